"""Grouping of DICOM files or pictures into studies, and suggestion of a mapping for the table of labels.

DICOM files are grouped by their headers, never by folders. Only the values of :class:`reveal_bench.dicom.Header` are
used. Duplicates and files that are not original radiographs are set aside with the reason. Unreadable files, and images
that may show a patient's name, are problems. If a mapping has ``pictures: true``, the tree has PNG and JPEG files
instead: a study is one file or all files of one folder, depending on the mapping's study key.

A suggested mapping says what the columns of a table probably mean. It is never used until a person has checked and
saved it. It describes the table near the root whose rows match the studies best. Unknown meanings are written as
``???``, which no source accepts.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

from reveal_bench.dicom.files import DicomFile
from reveal_bench.dicom.header import Header
from reveal_bench.dicom.scan import film_notes, header_warnings, scan_tree, set_aside, walk
from reveal_bench.findings import REVEAL_LABELS, canonical_finding
from reveal_bench.kinds.images import PictureFile
from reveal_bench.sources.mapping import FINDING_NAME, KEY_FACTS, VOCABULARIES, folded
from reveal_bench.sources.pictures import SUFFIXES, picture_size
from reveal_bench.sources.source import DownloadProblems, Problem
from reveal_bench.sources.study_labels import ABSENT, PRESENT, age_of, image_stem, spelled_labels
from reveal_bench.tables import TABLE_SUFFIXES, InputTable, scan_table
from reveal_bench.words import count_text

FRONTAL = ("AP", "PA")


@dataclass(frozen=True, slots=True)
class TreeImage:
    """An image: its file, header, and path for messages; the header of a PNG or JPEG file has only ids and size."""

    file: DicomFile
    header: Header
    source_path: str
    is_dicom: bool = True

    @property
    def order(self) -> tuple[int, int, str]:
        """Sort key: frontal images first, then by InstanceNumber."""
        number = self.header.instance_number
        rank = 0 if self.header.view in FRONTAL else 1
        return rank, number if number is not None else 1 << 31, self.header.sop_uid or ""

    def picture(self, image_id: str) -> PictureFile:
        """Return the image's file, which is published under the name `image_id`."""
        path, member = self.file.path, self.file.member
        if self.is_dicom:
            return PictureFile(path, f"{image_id}.png", self.source_path, "dicom", member, film_notes(self.header))
        return PictureFile(path, f"{image_id}{path.suffix.lower()}", self.source_path, member=member)


@dataclass(slots=True)
class TreeStudy:
    """A study; `uid` and `patients` are identifiers from the headers and must not be published."""

    uid: str
    images: list[TreeImage] = field(default_factory=list)

    @property
    def patients(self) -> set[str]:
        """The PatientIDs of the study's images, usually one."""
        return {image.header.patient_key for image in self.images if image.header.patient_key}

    def keys(self, fact: str) -> set[str]:
        """Return the study's values of a fact in :data:`reveal_bench.sources.mapping.KEY_FACTS`."""
        if fact == "StudyInstanceUID":
            return {self.uid}
        if fact == "PatientID":
            return self.patients
        if fact == "folder":
            return {part for image in self.images for part in _path(image.source_path).parts[:-1]}
        if fact == "file":
            return {_path(image.source_path).stem for image in self.images}
        uids = {"SeriesInstanceUID": "series_uid", "SOPInstanceUID": "sop_uid"}[fact]
        return {uid for image in self.images if (uid := getattr(image.header, uids))}


@dataclass
class StudyTree:
    """The studies below a folder, and its other files.

    Attributes
    ----------
    studies : dict from StudyInstanceUID to study, in the order of their first files
    set_aside : (path, reason) of readable files that are not part of the dataset
    problems : problems of files
    problem_studies : dict from StudyInstanceUID to the problems of the study
    n_others : dict from suffix to number of files that are neither DICOM nor a table nor a mapping
    """

    studies: dict[str, TreeStudy] = field(default_factory=dict)
    set_aside: list[tuple[str, str]] = field(default_factory=list)
    problems: DownloadProblems = field(default_factory=DownloadProblems)
    problem_studies: defaultdict[str, list[Problem]] = field(default_factory=lambda: defaultdict(list))
    warnings: list[str] = field(default_factory=list)
    n_others: Counter[str] = field(default_factory=Counter)

    @property
    def headers(self) -> list[Header]:
        """The headers of all images."""
        return [image.header for _, image in _images(self.studies.values())]

    @property
    def n_images(self) -> int:
        """Number of images in all studies."""
        return sum(len(study.images) for study in self.studies.values())

    def by_key(self, fact: str) -> dict[str, list[TreeStudy]]:
        """Return a dict from each value of a fact in :data:`reveal_bench.sources.mapping.KEY_FACTS` to studies."""
        studies: dict[str, list[TreeStudy]] = {}
        for study in self.studies.values():
            for key in study.keys(fact):
                studies.setdefault(key, []).append(study)
        return studies

    def add_problems(self, uid: str, problems: list[Problem]) -> None:
        """Note problems of a study."""
        if problems:
            self.problems += problems
            self.problem_studies[uid] += problems


def read_tree(
    root: Path,
    *,
    workers: int = 1,
    require_deidentified: bool = False,
    include_secondary: bool = False,
    leave_out: Collection[str] = (),
) -> StudyTree:
    """Return the DICOM files below `root`, grouped into studies.

    Parameters
    ----------
    workers : processes that read headers
    require_deidentified : if True, a header that does not state de-identification is a problem; otherwise it causes a
        warning
    include_secondary : also accept secondary captures whose modality is CR, DX or missing
    leave_out : see :func:`reveal_bench.dicom.scan.scan_tree`
    """
    scan = scan_tree(Path(root), workers=workers, include_secondary=include_secondary, leave_out=leave_out)
    tree = StudyTree()
    tree.set_aside = [(file.path_text(scan.root), reason) for file, reason in scan.set_aside]
    suffixes = (PurePosixPath(file.member or file.path.name).suffix for file in scan.others)
    expected = (*TABLE_SUFFIXES, ".yaml")
    tree.n_others.update(suffix or "no suffix" for suffix in suffixes if suffix.lower() not in expected)
    for file, reason in scan.unreadable:
        tree.problems.append(Problem(file.path_text(scan.root), None, "file", "must be readable DICOM", reason))
    n_secondary = sum(set_aside(header) is not None for _, header in scan.headers)
    if n_secondary:
        tree.warnings.append(
            f"{n_secondary:,} secondary captures are accepted as radiographs; before publishing, check "
            "that none shows a patient's name"
        )
    for file, header in scan.headers:
        path = file.path_text(scan.root)
        missing = [
            name
            for name, value in (("StudyInstanceUID", header.study_uid), ("SOPInstanceUID", header.sop_uid))
            if value is None
        ]
        for name in missing:
            tree.problems.append(Problem(path, None, name, "must be in the header", "none"))
        if not missing:
            uid = str(header.study_uid)
            tree.studies.setdefault(uid, TreeStudy(uid)).images.append(TreeImage(file, header, path))
    for study in tree.studies.values():
        study.images.sort(key=lambda image: image.order)
    _check_patients(tree)
    _check_markers(tree, require_deidentified=require_deidentified)
    return tree


def read_pictures(root: Path, *, one_per_study: bool, leave_out: Collection[str] = ()) -> StudyTree:
    """Return the visible PNG and JPEG files below `root`, grouped into studies.

    A picture has no header, so its view is unknown and its patient comes from the table. Its path below the root, which
    is never published, replaces the UIDs.

    Parameters
    ----------
    one_per_study : if True, each file is a study; otherwise each folder with files is a study
    leave_out : paths below `root` of pictures that are set aside unread
    """
    tree = StudyTree()
    aside: list[tuple[DicomFile, str]] = []
    unreadable: list[tuple[DicomFile, str]] = []
    files = [file for file in walk(root, aside, unreadable, leave_out) if file.member is None]
    for file in sorted(files, key=lambda file: file.path):
        if file.path.suffix.lower() not in SUFFIXES:
            continue
        name = file.path.relative_to(root)
        uid = (name if one_per_study else name.parent).as_posix()
        try:
            height, width = picture_size(file.path)
        except ValueError as error:
            rule = "must be a PNG or JPEG file"
            tree.add_problems(uid, [Problem(name.as_posix(), None, "file", rule, str(error))])
            height, width = 0, 0
        header = _bare_header(uid, name.as_posix(), height, width)
        study = tree.studies.setdefault(uid, TreeStudy(uid))
        study.images.append(TreeImage(file, header, name.as_posix(), is_dicom=False))
    tree.set_aside = [(file.path_text(root), reason) for file, reason in aside]
    rule = "must be a readable file"
    tree.problems += [Problem(file.path_text(root), None, "file", rule, reason) for file, reason in unreadable]
    tree.warnings.append("pictures have no header that warns of names in the pixels, so look at them before publishing")
    return tree


def files_below(root: Path) -> list[Path]:
    """Return the files and archives in which studies are looked for, sorted."""
    return sorted({file.path for file in walk(root, [], [])})


def _bare_header(study: str, image: str, height: int, width: int) -> Header:
    """Return a header with the ids and size of a picture; all other values are unknown."""
    known: dict[str, Any] = dict.fromkeys(item.name for item in fields(Header))
    known |= dict.fromkeys(("image_type", "deid_methods", "source_uids"), ())
    known |= {"study_uid": study, "sop_uid": image, "rows": height, "columns": width, "has_pixels": True}
    return Header(**{**known, "view": "UNKNOWN", "spacing_source": "none", "transfer_syntax": ""})


def _path(name: str) -> PurePosixPath:
    """Return a file's path, in which an archive counts as a folder with the archive's name without suffix."""
    archive, bang, member = name.partition("!")
    return PurePosixPath(archive).with_suffix("") / member if bang else PurePosixPath(name)


def _check_patients(tree: StudyTree) -> None:
    for study in tree.studies.values():
        if len(study.patients) > 1:
            files = ", ".join(image.source_path for image in study.images)
            rule, got = "must be the same in all images of a study", f"{len(study.patients)} different"
            tree.add_problems(study.uid, [Problem(files, None, "PatientID", rule, got)])


def _check_markers(tree: StudyTree, *, require_deidentified: bool) -> None:
    for study, image in _images(tree.studies.values()):
        tree.add_problems(
            study.uid, marker_problems(image.header, image.source_path, require_deidentified=require_deidentified)
        )
    tree.warnings += marker_warnings(tree.headers)


def marker_problems(header: Header, name: str, *, require_deidentified: bool = False) -> list[Problem]:
    """Return problems if the header forbids publishing an image; `name` is its path for messages."""
    problems = []
    if header.burned_in:
        rule = "must not be YES, because the pixels may show a name"
        problems.append(Problem(name, None, "BurnedInAnnotation", rule, "YES"))
    if require_deidentified and not header.deidentified:
        got = "NO" if header.deidentified is False else "none"
        rule = "must be YES, as the mapping requires"
        problems.append(Problem(name, None, "PatientIdentityRemoved", rule, got))
    return problems


def marker_warnings(headers: Iterable[Header]) -> list[str]:
    """Return warnings that count headers without a statement that the image may be published."""
    return _counted(text for header in headers for text in header_warnings(header))


def film_warnings(headers: Iterable[Header]) -> list[str]:
    """Return warnings that count notes on films, for an inspection; a build counts those of the films that it uses."""
    headers = list(headers)
    unseen = ["pixels were not checked: `build` checks them"] if headers else []
    return [*_counted(text for header in headers for text in film_notes(header)), *unseen]


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{count_text(n, 'image')}: {text}" for text, n in Counter(texts).most_common()]


def _images(studies: Iterable[TreeStudy]) -> Iterable[tuple[TreeStudy, TreeImage]]:
    return ((study, image) for study in studies for image in study.images)


OPEN = "???"
"""Placeholder in a suggested mapping for a value that a person must fill in."""

DEPTH, MOST_TABLES, SAMPLE = 3, 200, 400
SEPARATORS = (";", "|", ",", "/")
FEW = 12
"""Largest number of different texts in a column that is taken to contain categories."""

_WORDS: dict[str, dict[str, str]] = {
    "sex": {"f": "F", "female": "F", "m": "M", "male": "M"},
    "race": {
        "african american": "Black or African American",
        "black": "Black or African American",
        "asian": "Asian",
        "white": "White",
        "caucasian": "White",
        "other": "Other",
    },
    "patient_class": {"i": "inpatient", "o": "outpatient", "e": "emergency", "emergency room": "emergency"},
    "age_band": {},
}
_UNKNOWN_WORDS = ("", "unknown", "not reported", "not available", "n/a", "na", "u", "unk")
_READER = re.compile(r"reader|rater|radiologist|annotator", re.IGNORECASE)
_NAMES = {"sex": r"sex|gender", "race": r"race|ethnic", "patient_class": r"class|setting|in.?patient"}


@dataclass
class Guess:
    """A suggested mapping for `table`: `content` is its YAML data, `notes` are open questions."""

    table: InputTable
    content: dict[str, Any]
    n_matched: int
    n_studies: int
    has_labels: bool
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the table, with its sheet if the workbook has several."""
        return self.table.file + (f" (sheet {self.content['sheet']})" if "sheet" in self.content else "")

    @property
    def rank(self) -> tuple[bool, float, int, int]:
        """Sort key of guesses; the best guess has the largest key."""
        share = self.n_matched / max(self.n_studies, 1)
        n_facts = len(self.content) + self._n_demographics
        return self.has_labels, round(share, 2), n_facts, len(self.content["labels"].get("wide", ()))

    @property
    def _n_demographics(self) -> int:
        """Number of demographic facts that come from columns, not from headers."""
        return sum("column" in rule for rule in self.content.get("demographics", {}).values())

    @property
    def text(self) -> str:
        """Text of the mapping, for a person to save and correct."""
        import yaml

        head = [
            f"# Guessed from {self.table.file}: read every line before you use it.",
            *(f"# {n}" for n in self.notes),
        ]
        return "\n".join(head) + "\n" + yaml.safe_dump(self.content, sort_keys=False, allow_unicode=True, width=110)


def tables_below(root: Path) -> Iterator[Path]:
    """Yield files in or near `root` that may be a table of studies, the nearest first."""
    paths = []
    for folder, subfolders, names in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        subfolders[:] = sorted(n for n in subfolders if not n.startswith(".")) if depth < DEPTH else []
        paths += [
            (depth, Path(folder, name))
            for name in sorted(names)
            if not name.startswith((".", "~")) and name.lower().endswith(TABLE_SUFFIXES)
        ]
    yield from (path for _, path in sorted(paths, key=lambda entry: entry[0])[:MOST_TABLES])


def guess_mapping(root: Path, tree: StudyTree) -> Guess | None:
    """Return the best suggested mapping for a table below `root`; None if no table matches any study."""
    guesses = []
    pictures = {Path(name).stem for _, _, names in os.walk(root) for name in names if name.lower().endswith(SUFFIXES)}
    for path in tables_below(root):
        for table, sheet in _tables_of(path, path.relative_to(root).as_posix()):
            guess = _guess(table, tree, pictures) if table.rows else None
            if guess is not None:
                guess.content = {"table": table.file, **({"sheet": sheet} if sheet else {}), **guess.content}
                guesses.append(guess)
    if not guesses:
        return None
    best = max(guesses, key=lambda guess: guess.rank)
    others = [guess.name for guess in guesses if guess is not best]
    if others:
        best.notes.append(f"Other tables that match studies: {', '.join(others)}")
    return best


def _tables_of(path: Path, name: str) -> Iterator[tuple[InputTable, str]]:
    """Yield each readable table of a file, with the name of its sheet in a workbook of several."""
    problems = DownloadProblems()
    try:
        table = scan_table(path, name, problems)
    except ImportError:
        return
    if table is not None:
        yield table, ""
    for sheet in (sheet for problem in problems if problem.field == "sheet" for sheet in problem.value.split(", ")):
        if (table := scan_table(path, name, DownloadProblems(), sheet=sheet)) is not None:
            yield table, sheet


def _guess(table: InputTable, tree: StudyTree, pictures: Collection[str] = ()) -> Guess | None:
    cells = {column: [row[column] for row in table.rows] for column in table.columns}
    is_alone = not (tree.studies or tree.problems or tree.set_aside)
    if not is_alone:
        key = _study_key(cells, tree)
        if key is None:
            return None
        column, fact, n_matched = key
        content: dict[str, Any] = {"table": table.file, "study_key": {"column": column, "matches": fact}}
    else:
        unique = [name for name, texts in cells.items() if all(texts) and len(set(texts)) == len(texts)]
        pictured = [name for name in unique if all(image_stem(text) in pictures for text in cells[name])]
        column, n_matched = (*pictured, *unique, table.columns[0])[0], 0
        place: dict[str, Any] = {"column": column} | ({"matches": "file"} if pictured else {})
        content = {"table": table.file, "pictures": True if pictured else "none", "study_key": place}
        patients = [name for name in cells if name != column and re.match("patient|subject", name, re.IGNORECASE)]
        content.update(("patient_key", {"column": name}) for name in patients[:1])
    rest = {name: texts for name, texts in cells.items() if name != column}
    labels, notes, used = _labels(table, rest)
    own = _own_findings(rest)
    if own and (not used or (is_alone and len(own) > len(used))):
        content["findings"] = own
        labels, notes, used = {"wide": {name: name for name in own}}, [], set(own)
    if is_alone and not used:
        return None
    content["labels"] = labels
    rest = {name: texts for name, texts in rest.items() if name not in used}
    agreement = _agreement(rest)
    if agreement is not None:
        content["agreement"] = agreement
        rest.pop(agreement["column"])
    demographics = _demographics(rest)
    demographics |= _in_headers(tree, demographics)
    if demographics:
        content["demographics"] = demographics
    if n_matched < len(tree.studies):
        notes.append(f"column {column} matches {fact} of only {n_matched:,} of {len(tree.studies):,} studies")
    if len(set(cells[column])) < len(cells[column]):
        reader = next((name for name in rest if _READER.search(name) and all(rest[name])), None)
        if reader is not None:
            content["reader"] = {"column": reader}
        else:
            rule = "a study must have only one row, or a column must name the reader of each row"
            notes.append(f"{column} has the same value in several rows: {rule}")
            n_matched = 0
    return Guess(table, content, n_matched, len(tree.studies), bool(used), notes)


def _study_key(cells: dict[str, list[str]], tree: StudyTree) -> tuple[str, str, int] | None:
    """Return (column, fact, n): the column that matches a fact of most studies, n studies; None without a match."""
    best: tuple[int, str, str] | None = None
    for fact in KEY_FACTS:
        by_key: dict[str, str] = {}
        shared: set[str] = set()
        for study in tree.studies.values():
            for key in study.keys(fact):
                if by_key.setdefault(key, study.uid) != study.uid:
                    shared.add(key)
        for column, texts in cells.items():
            matched = len({by_key[text] for text in texts if text in by_key and text not in shared})
            if matched and (best is None or matched > best[0]):
                best = (matched, column, fact)
    return None if best is None else (best[1], best[2], best[0])


def _labels(table: InputTable, cells: dict[str, list[str]]) -> tuple[dict[str, Any], list[str], set[str]]:
    """Return (mapping's `labels`, notes on open questions, columns with labels)."""
    wide = {}
    for column, texts in cells.items():
        label = canonical_finding(column, REVEAL_LABELS)
        if label is not None and {folded(text) for text in texts[:SAMPLE]} <= PRESENT | ABSENT | {""}:
            wide[column] = label
    if len(wide) > 1:
        missing = [label for label in REVEAL_LABELS if label not in wide.values()]
        notes = [f"No column for {', '.join(missing)}, so they count as absent"] if missing else []
        return {"wide": wide}, notes, set(wide)
    for column in cells:
        values = [row.cell(column) for row in table.rows[:SAMPLE]]
        lists = [value for value in values if isinstance(value, list) or value.startswith("[")]
        if (
            lists
            and all(isinstance(value, list) for value in lists)
            and _share(v for value in lists for v in value) > 0.6
        ):
            return {"json": {"column": column}}, [], {column}
        for separator in SEPARATORS:
            entries = [entry.strip() for value in values if isinstance(value, str) for entry in value.split(separator)]
            if any(entries) and _share(entry for entry in entries if entry) > 0.6:
                return {"list": {"column": column, "separator": separator}}, [], {column}
    return {"list": {"column": OPEN, "separator": ";"}}, ["No column with labels was recognised"], set()


def _own_findings(cells: dict[str, list[str]]) -> list[str]:
    """Return the columns whose cells only mean present or absent, which may be the user's own findings.

    A single such column gives an empty list.
    """
    columns = [
        column
        for column, texts in cells.items()
        if set(map(folded, texts)) <= PRESENT | ABSENT and FINDING_NAME.fullmatch(column)
    ]
    return columns if len(columns) > 1 else []


def _share(entries: Iterator[Any]) -> float:
    """Return the proportion of `entries` that are labels or texts of :data:`NO_LABEL`."""
    listed = list(entries)
    _, unknown = spelled_labels(listed)
    return 1 - len(unknown) / len(listed) if listed else 0.0


def _categories(texts: list[str]) -> list[str] | None:
    """Return the different texts of a column; None if there are more than :data:`FEW`, or none."""
    different = sorted(set(texts) - {""})
    return different if 0 < len(different) <= FEW else None


def _agreement(cells: dict[str, list[str]]) -> dict[str, Any] | None:
    for column, texts in cells.items():
        different = _categories(texts)
        if different and re.search(r"agree|consensus", column, re.IGNORECASE) and len(different) <= 4:
            return {"column": column, "values": {text: _agreement_of(text) for text in different}}
    return None


def _agreement_of(text: str) -> str:
    """Return the agreement for the first number in a text such as "2 of 3", "all three" or "Agree All: 3/3"."""
    numbers = re.findall(r"\d+|two|three|unanimous", folded(text))
    meaning = {"2": "two_of_three", "two": "two_of_three"}
    meaning |= dict.fromkeys(("3", "three", "unanimous"), "three_of_three")
    return meaning.get(numbers[0], OPEN) if numbers else OPEN


def _demographics(cells: dict[str, list[str]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for column, texts in cells.items():
        if re.search(r"\bage|age\b|age_", column, re.IGNORECASE) and not {"age", "age_band"} & columns.keys():
            ages = [text for text in set(texts) if folded(text) not in _UNKNOWN_WORDS]
            if ages and all(text in VOCABULARIES["age_band"] for text in ages):
                columns["age_band"] = {"column": column}
            elif ages and all(age_of(text) is not None for text in ages):
                columns["age"] = {"column": column}
            continue
        for name, pattern in _NAMES.items():
            different = _categories(texts)
            if name not in columns and different and re.search(pattern, column, re.IGNORECASE):
                values = _values(different, name)
                columns[name] = {"column": column, **({"values": values} if values else {})}
                break
    return columns


def _in_headers(tree: StudyTree, of_table: dict[str, Any]) -> dict[str, Any]:
    """Return rules that take age and sex from the headers if no column of the table states them."""
    has_age = any(header.age_years is not None for header in tree.headers) and not {"age", "age_band"} & of_table.keys()
    has_sex = any(header.sex is not None for header in tree.headers) and "sex" not in of_table
    return {name: {"from": "header"} for name, has in (("age", has_age), ("sex", has_sex)) if has}


def _values(texts: list[str], name: str) -> dict[str, str | None]:
    """Return a dict from text to term of this package (None for unknown), for texts that are not such terms."""
    own = {folded(word) for word in VOCABULARIES[name]}
    return {
        text: None if folded(text) in _UNKNOWN_WORDS else _WORDS[name].get(folded(text), OPEN)
        for text in texts
        if folded(text) not in own
    }
