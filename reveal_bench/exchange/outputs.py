"""Convert output of models and scripts (COCO results, tables of boxes or probabilities) to lines of a prediction file.

Conventions
-----------
A row is a mapping of names to values, from a table, a list of JSON or a COCO file. Each row has an id. A long table
also has a finding and its position or probability per row; a wide table has a column per finding. Notes state how every
name, id, category and box was read. Input that does not fit is refused, and the error lists all problems; nothing is
guessed or dropped.

=============  =======================================================================================================
ids            ids of the split, or paths and file names that end like exactly one id, folders joined by "_"; numbers
               whose text is exactly one id, see :mod:`reveal_bench.predictions.number_ids`
findings       names of the benchmark, or spellings of them (:func:`~reveal_bench.findings.canonical_finding`)
boxes          "xywh" (left, top, width, height), "xyxy" (left, top, right, bottom) or "cxcywh" (centre, size), in
               pixels, or in fractions of the image's sides with `normalised`: the caller states both; a rotated box
               becomes the upright box around it
numbers        a number of a category or image means the name that `categories` or `images` gives for the number
=============  =======================================================================================================
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, get_args

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.challenge_tables import BOXES, MASK, NO_FINDING, TARGET, challenge_rows
from reveal_bench.exchange.row_places import BOX_COLUMNS, PLACES, BoxForm, RowPlaces, number_from
from reveal_bench.findings import LabelPolicy, canonical_finding
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.predictions.number_ids import (
    advice_on_keyed,
    advice_on_numbers,
    id_of_number,
    id_of_path,
    ids_by_number,
    number_of,
    plain_value,
)
from reveal_bench.words import count_text

_ID_NAMES = ("image_id", "study_id", "task_id", "file_name", "filename", "image", "image_path", "path", "file", "id",
             "study", "img_path", "image_name", "dicom_id", "image index", "imageid", "patientid")  # fmt: skip
_FINDING_NAMES = ("finding", "category_id", "label", "category", "class", "class_name", "pathology", "disease",
                  "finding label", "labelname", "name")  # fmt: skip
_PROBABILITY_NAMES = ("probability", "prob", "prediction", "pred", "value", "p")
_SCORE_NAMES = ("score", "confidence")
_ROTATIONS = ("rotation", "attributes")
_PASSED_OVER = ("area", "iscrowd")
KNOWN_COLUMNS = (
    "reader",
    BOXES,
    MASK,
    TARGET,
    "bbox",
    "segmentation",
    *_ROTATIONS,
    *PLACES,
    *dict.fromkeys(name for group in BOX_COLUMNS for name in group),
)
"""Columns that are recognised only by these names; columns of ids, findings and scores may have other names."""
_INDEX_NAME = re.compile(r"Unnamed: \d+|index|level_0|")
_MOST_TOLD = 10


@dataclass(frozen=True)
class Reading:
    """Settings for reading rows: facts that the rows themselves do not state.

    Attributes
    ----------
    columns : name in the source -> meaning of the column: the benchmark's id column, "finding", "probability", "score",
        a kind of position such as "box", or a finding
    boxes : meaning of a box's four numbers; by default COCO's
    normalised : whether coordinates are fractions of the image's sides
    categories : number of a category -> name of its finding
    images : number of an image -> file name of the image
    sizes : number of an image -> (width, height) that the COCO dataset states; None where it states none
    leave_out_unknown : whether rows about images or studies outside the split are left out and counted, instead of
        refused
    policy : meaning of blank and uncertain (-1) cells of findings
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    boxes: BoxForm = "xywh"
    normalised: bool = False
    categories: Mapping[int, str] = field(default_factory=dict)
    images: Mapping[int, str] = field(default_factory=dict)
    sizes: Mapping[int, tuple[Any, Any]] = field(default_factory=dict)
    leave_out_unknown: bool = False
    policy: LabelPolicy = field(default_factory=LabelPolicy)


@dataclass(frozen=True)
class OutputLines:
    """Unchecked lines of a prediction file, and notes on how the source was read."""

    lines: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


def coco_names(document: Mapping[str, Any]) -> tuple[dict[int, str], dict[int, str]]:
    """Return number -> name of the categories, and of the images, in a COCO dataset file such as ``instances.json``.

    Raises
    ------
    ArgumentError
        If the file has no categories or images, or a number has two names.
    """
    named: list[dict[int, str]] = []
    for part, name in (("categories", "name"), ("images", "file_name")):
        rows = document.get(part) or []
        names: dict[int, str] = {}
        for row in rows:
            if not isinstance(row, Mapping) or "id" not in row or name not in row:
                raise ArgumentError("instances", f"must have `id` and `{name}` in each of its {part}", repr(row)[:80])
            if names.setdefault(row["id"], str(row[name])) != str(row[name]):
                raise ArgumentError("instances", f"must have each id once in its {part}", f"{row['id']} twice")
        named.append(names)
    if not any(named):
        raise ArgumentError("instances", "must be a COCO dataset with `images` or `categories`", ", ".join(document))
    return named[0], named[1]


def coco_sizes(document: Mapping[str, Any]) -> dict[int, tuple[Any, Any]]:
    """Return number -> (width, height) of the images in a file that :func:`coco_names` accepts; None if missing."""
    return {row["id"]: (row.get("width"), row.get("height")) for row in document.get("images") or []}


def read_outputs(
    rows: Sequence[Mapping[str, Any]],
    kind: AnyKind,
    manifest: Any,
    findings: Sequence[str],
    reading: Reading,
    elsewhere: Callable[[], Mapping[str, str]] = dict,
) -> OutputLines:
    """Return lines of a prediction file for a split; `elsewhere` maps other splits' ids to splits, for messages.

    Raises
    ------
    ArgumentError
        If rows lack an id or finding, or ids, findings or boxes do not fit the split; the message names all of them.
    """
    if not rows:
        raise ArgumentError("source", "must have at least one row", "none")
    if reading.boxes not in get_args(BoxForm):
        raise ArgumentError("boxes", f"must be one of {', '.join(get_args(BoxForm))}", repr(reading.boxes))
    challenge = challenge_rows(rows, findings, reading.categories, separate=kind.questions.has_several_places)
    if challenge is None:
        return _Reader(kind, manifest, findings, reading, elsewhere).read(rows)
    reading = replace(reading, boxes="xywh", categories=challenge.categories)
    reader = _Reader(kind, manifest, findings, reading, elsewhere, challenge.notes)
    return reader.read(challenge.rows, challenge.unmarked)


class _Reader:
    def __init__(
        self,
        kind: AnyKind,
        manifest: Any,
        findings: Sequence[str],
        reading: Reading,
        elsewhere: Callable[[], Mapping[str, str]],
        notes: Sequence[str] = (),
    ) -> None:
        self._kind, self._findings, self._reading, self._elsewhere = kind, findings, reading, elsewhere
        self._entries = {str(entry[kind.key]): entry for entry in kind.questions.manifest_entries(manifest)}
        self._numbered = ids_by_number(self._entries)
        self._notes: list[str] = list(notes)
        self._unknown_ids: Counter[str] = Counter()
        self._unknown_findings: Counter[str] = Counter()
        self._ids: dict[Any, str | None] = {}
        self._names: dict[Any, str | None] = {}
        self._places = RowPlaces(self._entries, reading.boxes, is_normalised=reading.normalised)
        self._has_numbered_findings = False  # as in COCO results, whose images are numbered, too

    def read(self, rows: Sequence[Mapping[str, Any]], unmarked: Sequence[Mapping[str, Any]] = ()) -> OutputLines:
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = self._columns(names, rows)
        renamed = [{columns[name]: value for name, value in row.items() if name in columns} for row in rows]
        for row in unmarked:
            self._id(next((row[name] for name, meaning in columns.items() if meaning == self._kind.key), None))
        self._has_numbered_findings = any(number_of(row.get("finding")) is not None for row in renamed)
        if "finding" in columns.values():
            lines = self._long([{k: v for k, v in row.items() if v is not None} for row in renamed])
        else:
            lines = self._wide(renamed)
        self._refuse()
        if not lines and not self._unknown_ids:
            rule = "must have answers: a position, a probability, or a column for each finding"
            raise ArgumentError("source", rule, f"the columns {', '.join(names[:20])}")
        self._tell_of_spellings()
        return OutputLines(tuple(lines), tuple(self._notes))

    def _columns(self, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return name in the source -> meaning, without unused columns."""
        renamed = self._reading.columns
        absent = [name for name in renamed if name not in names]
        if absent:
            raise ArgumentError("columns", f"must name columns of the source ({', '.join(names[:20])})", absent[0])
        meanings = dict(renamed)
        for index in names:
            if index not in meanings and _INDEX_NAME.fullmatch(index) and _is_count([row.get(index) for row in rows]):
                self._notes.append(f"the column `{index}`, which numbers the rows, was left out")
                names = [name for name in names if name != index]
        self._assign(meanings, names, self._kind.key, (self._kind.key, *_ID_NAMES), needed=True)
        self._assign(meanings, names, "finding", self._names_before_numbers(rows))
        for name, theirs in (("probability", _PROBABILITY_NAMES), ("score", _SCORE_NAMES)):
            self._assign(meanings, names, name, theirs)
        for group in BOX_COLUMNS:
            if set(group) <= set(names) and not set(group) & meanings.keys():
                meanings |= {name: f"box.{i}" for i, name in enumerate(group)}
                self._places.box_form = BOX_COLUMNS[group]
                self._notes.append(f"`{', '.join(group)}` read as boxes, {BOX_COLUMNS[group]}")
                break
        else:
            if {"x", "y"} <= set(names) and not {"x", "y"} & meanings.keys():
                meanings |= {"x": "point.0", "y": "point.1"}
        places = {"bbox": "box", "segmentation": "segmentation", **{place: place for place in PLACES}}
        places |= {name: name for name in (*_ROTATIONS, MASK)}
        meanings |= {name: places[name] for name in names if name in places and name not in meanings}
        rest = [name for name in names if name not in meanings]
        if "finding" in meanings.values():
            left_out = [name for name in rest if name not in _PASSED_OVER]
            if left_out:
                self._notes.append(f"columns left out because they are not scored: {_named(left_out)}")
            return meanings
        return meanings | {name: name for name in rest}

    def _assign(
        self, meanings: dict[str, str], names: Sequence[str], ours: str, theirs: Sequence[str], *, needed: bool = False
    ) -> None:
        """Record which column means `ours`: the column that the caller named, otherwise the first with a usual name."""
        if ours in meanings.values():
            return
        folded = {name.casefold(): name for name in reversed(names) if name not in meanings}
        usual = [folded[name] for name in theirs if name in folded]
        if usual:
            meanings[usual[0]] = ours
            if usual[0] != ours:
                self._notes.append(f"`{usual[0]}` read as `{ours}`")
        elif needed:
            raise ArgumentError("columns", f"must say which column is `{ours}`", ", ".join(map(str, names[:20])))

    def _names_before_numbers(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """Return usual names of the finding's column; without names of categories, columns of numbers come last."""
        if self._reading.categories:
            return _FINDING_NAMES
        texts = {name.casefold() for row in rows for name, value in row.items() if isinstance(number_from(value), str)}
        return sorted(_FINDING_NAMES, key=lambda name: name not in texts)

    def _long(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return lines from a long table, in which each row is about one finding.

        Rows with probabilities are joined by id; rows with positions are not.
        """
        key = self._kind.key
        places: dict[tuple[Any, ...], tuple[float, dict[str, Any]]] = {}
        chances: dict[str, dict[str, Any]] = {}
        n_merged = n_unmarked = 0
        for number, row in enumerate(rows, start=1):
            one = self._id(row.get(key))
            if self._is_without_finding(row.get("finding")) or (
                self._kind.predictions.names_places and set(row) <= {key, "score", "probability"}
            ):
                n_unmarked += 1
                continue
            finding = self._finding(row.get("finding"))
            if one is None or finding is None:
                continue
            place = self._places.read(row, one, number)
            if not place and self._kind.predictions.names_places:
                rule = "must have a position in each row: `xmin, ymin, xmax, ymax`, `bbox`, `x, y`, a cell or a mask"
                raise ArgumentError("source", rule, f"{', '.join(row)} in row {number}")
            if not place:
                if finding in chances.setdefault(one, {}):
                    raise ArgumentError("source", "must have each id and finding once", f"{one}, {finding} twice")
                chances[one][finding] = number_from(row.get("probability", row.get("score")))
                continue
            score = number_from(row.get("score", row.get("probability")))
            rank = float(score) if isinstance(score, int | float) else -math.inf
            own = (one, finding, number) if self._kind.questions.has_several_places else (one, finding)
            if own in places:
                if rank == -math.inf or places[own][0] == -math.inf:
                    raise ArgumentError("source", "must have each id and finding once, or a score", f"{one}, {finding}")
                n_merged += 1
                if rank <= places[own][0]:
                    continue
            fields = {key: one, "finding": finding, **place}
            places[own] = (rank, fields if score is None else fields | {"score": score})
        if n_merged:
            self._notes.append(
                f"{n_merged:,} more positions of an id and finding were left out: the one with the best score was kept"
            )
        self._notes += [f"{count_text(n_unmarked, 'row')} of no finding mark nothing"] * bool(n_unmarked)
        self._notes += self._places.notes()
        lines = [self._kind.predictions.entry(line) for _, line in places.values()]
        return lines + [line for one, answer in chances.items() for line in self._kind.predictions.entries(one, answer)]

    def _wide(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return lines from a wide table, with a column per finding or, if answers have no findings, per field."""
        key, lines, seen = self._kind.key, [], set()
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != key]
        findings = {name: canonical_finding(name, self._findings) for name in names}
        known = {name: finding for name, finding in findings.items() if finding is not None}
        if not known and self._kind.questions.asked_column == "finding":
            needed = f"must have a column `finding`, or one per finding ({', '.join(self._findings)})"
            raise ArgumentError("source", needed, ", ".join(map(str, names[:20])))
        if known:
            left_out = [name for name in names if name not in known]
            if left_out:
                self._notes.append(f"columns left out because the benchmark does not ask for them: {_named(left_out)}")
            self._names |= known
        twice = [finding for finding, n in Counter(known.values()).items() if n > 1]
        if twice:
            theirs = [name for name, finding in known.items() if finding == twice[0]]
            raise ArgumentError("columns", f"must say which column is {twice[0]!r}", " and ".join(map(repr, theirs)))
        is_labelling = known and self._kind.predictions.confidence_field == "probabilities"
        answer_of = self._label_answers(rows, known) if is_labelling else None
        n_missing = 0
        for row in rows:
            one = self._id(row.get(key))
            if one is None:
                continue
            if one in seen:
                raise ArgumentError("source", "must have each id once", one)
            seen.add(one)
            answer: Any = {known.get(name, name): _value(value) for name, value in row.items()
                           if name != key and (not known or name in known) and value not in (None, "")}  # fmt: skip
            if answer_of is not None and (answer := answer_of(answer, one)) is None:
                n_missing += 1
                continue
            lines += self._kind.predictions.entries(one, answer)
        if n_missing and not lines:
            raise ArgumentError("source", "must have a row in which no label is missing", "none")
        if n_missing:
            self._notes.append(f"left out {count_text(n_missing, 'row')} in which a label is missing")
        return lines

    def _label_answers(
        self, rows: Sequence[Mapping[str, Any]], known: Mapping[str, str]
    ) -> Callable[[dict[str, Any], str], dict[str, Any] | list[str] | None]:
        """Return a function that applies the policy to the row of an id; it returns None if a label is missing.

        A table in which all values are 0, 1 or -1 has labels; the values of other tables are scores, even -1.
        """
        policy, asked = self._reading.policy, dict.fromkeys(known.values())
        values = {value for row in rows for name in known if not _is_blank(value := _value(row.get(name)))}
        are_labels = all(isinstance(value, int | float) and value in (0, 1, -1) for value in values)
        are_decisions = are_labels and asked.keys() >= {*self._findings}
        are_chances = all(0 <= value <= 1 for value in values if _is_real(value))
        if are_decisions:
            self._notes.append("values are 0 and 1: read as labels, not as probabilities")

        def answer(row: dict[str, Any], one: str) -> dict[str, Any] | list[str] | None:
            filled = dict(row)
            for finding in asked:
                if _is_blank(row.get(finding)):
                    if policy.blank == "negative" and not (are_labels or are_chances):
                        raise ArgumentError("blank", "must be missing if scores are not probabilities", "negative")
                    filled[finding] = policy.value("", f"no value or NaN for {one}, {finding!r}")
                elif are_labels and row[finding] == -1:
                    filled[finding] = policy.value("-1")
            if any(isinstance(value, float) and math.isnan(value) for value in filled.values()):
                return None
            return [name for name, value in filled.items() if value] if are_decisions else filled

        return answer

    def _id(self, value: Any) -> str | None:
        """Return the split's id for a value; if there is none, count the value as unknown and return None."""
        value = _plain_name(value)
        if value not in self._ids:
            self._ids[value] = self._found_id(value, self._entries, self._numbered)
        case_id = self._ids[value]
        if case_id is None:
            self._unknown_ids[repr(value)] += 1
        elif value not in self._entries:
            self._check_size(case_id, self._reading.sizes.get(number_from(value), (None, None)))
        return case_id

    def _check_size(self, case_id: str, size: tuple[Any, Any]) -> None:
        """Raise an ArgumentError if a COCO dataset states another size of an image, whose boxes are then wrong."""
        entry = self._entries[case_id]
        own = entry.get("width"), entry.get("height")
        if self._reading.normalised or None in own or size in (own, (None, None)):
            return
        rule = f"must have images at full size, {case_id} has {own[0]} x {own[1]} pixels"
        raise ArgumentError("instances", rule, f"{size[0]} x {size[1]}")

    def _found_id(self, value: Any, known: Mapping[str, Any], numbered: Mapping[float, str]) -> str | None:
        text = value
        if self._reading.images and value not in known:
            text = self._reading.images.get(number_from(value), value)
        elif not self._has_numbered_findings and value not in known:
            text = id_of_number(value, numbered) or value
        return id_of_path(text, known) if isinstance(text, str) else None

    def _is_in_a_known_folder(self, path: str) -> bool:
        """Return True for a file in a folder that is named like an id, such as an image in the folder of a study."""
        folder = PurePosixPath(path.replace("\\", "/")).parent
        return self._found_id(folder.as_posix(), self._entries, {}) is not None

    def _finding(self, value: Any) -> str | None:
        value = _plain_name(value)
        if value not in self._names:
            name = self._reading.categories.get(number_from(value), value)
            self._names[value] = canonical_finding(name, self._findings) if isinstance(name, str) else None
        finding = self._names[value]
        if finding is None:
            self._unknown_findings[repr(value)] += 1
        return finding

    def _is_without_finding(self, value: Any) -> bool:
        """Return True for "No finding" in a benchmark of positions that has no such finding."""
        name = self._reading.categories.get(number_from(_plain_name(value)), value)
        is_named = isinstance(name, str) and name.replace("_", " ").casefold() == NO_FINDING
        return is_named and self._kind.predictions.names_places and canonical_finding(name, self._findings) is None

    def _refuse(self) -> None:
        """Refuse ids and findings that the split does not have.

        With `leave_out_unknown`, rows with unknown ids are left out instead.
        """
        if self._unknown_findings:
            hint = ""
            if not self._reading.categories:
                hint = "; numbers need `categories` and `first_category`, or `instances`"
            elif "0" in self._unknown_findings and 1 in self._reading.categories:
                hint = "; where numbers count from 0, `first_category` must be 0"
            elif any(_is_real(number_from(one)) for one in self._unknown_findings):
                first, last = min(self._reading.categories), max(self._reading.categories)
                hint = f"; `categories` name the numbers {first} to {last}, and may name one 'No finding'"
            raise ArgumentError(
                "source",
                f"must have findings of the benchmark ({', '.join(self._findings)}){hint}",
                _some(self._unknown_findings),
                ("categories", "first_category", "instances"),
            )
        unknown = [one for one, case_id in self._ids.items() if case_id is None]
        are_numbers = not self._reading.images and any(number_of(one) is not None for one in unknown)
        is_nothing_read = are_numbers and not any(self._ids.values())
        if unknown and (is_nothing_read or not self._reading.leave_out_unknown):
            example = next(iter(self._entries), "none")
            home = self._elsewhere()
            numbered = ids_by_number(home)
            others = Counter(home[case_id] for one in unknown if (case_id := self._found_id(one, home, numbered)))
            if others:
                other, n = others.most_common(1)[0]
                rule = f"must have ids of the split, such as {example!r}; {n:,} are of {other!r}, another `split`"
                raise ArgumentError("source", rule, _some(self._unknown_ids), ("split",))
            if are_numbers:
                rule = f"must have ids of the split as text, such as {example!r}"
                if self._has_numbered_findings:
                    rule += "; numbers need `instances`, a COCO dataset"
                    raise ArgumentError("source", rule, _some(self._unknown_ids), ("instances",))
                rule += advice_on_numbers(unknown, self._entries, self._kind.key)
                raise ArgumentError("source", rule, _some(self._unknown_ids))
            rule = f"must have ids of the split, such as {example!r}{advice_on_keyed(self._entries)}"
            if any(isinstance(one, str) and self._is_in_a_known_folder(one) for one in unknown):
                rule += ", not of images in folders with these names: give one row each, such as the images' mean"
            elif any(self._ids.values()):
                rule += ", unless `leave_out_unknown` is set"
            raise ArgumentError("source", rule, _some(self._unknown_ids), ("leave_out_unknown",))
        if self._unknown_ids:
            n = sum(self._unknown_ids.values())
            rows = "1 row" if n == 1 else f"{n:,} rows"
            self._notes.append(f"left out {rows} with ids that the split does not have: {_some(self._unknown_ids)}")

    def _tell_of_spellings(self) -> None:
        for what, read, most in (("id", self._ids, 1), ("finding", self._names, len(self._names))):
            changed = [
                f"{theirs} as {ours}" for theirs, ours in read.items() if ours not in (None, theirs, str(theirs))
            ]
            if changed:
                more = f" and {len(changed) - most:,} more" if len(changed) > most else ""
                self._notes.append(f"read under another name, {what}s: {', '.join(changed[:most])}{more}")


def _plain_name(value: Any) -> Any:
    """Return a name or number unchanged, and any other value as text that matches no name."""
    value = plain_value(value)
    return value if isinstance(value, str | int | float) or value is None else repr(value)


def _named(columns: Sequence[str]) -> str:
    return ", ".join(name or "a column without a name" for name in columns)


def _is_count(values: Sequence[Any]) -> bool:
    """Return True if values are 0, 1, 2 ... or 1, 2, 3 ..., as numbers or text."""
    texts = [str(value) for value in values]
    return any(texts == [str(i + first) for i in range(len(texts))] for first in (0, 1))


def _value(cell: Any) -> Any:
    """Return the number of a cell, also of True and False as pandas writes them, and any other value unchanged."""
    return {"True": 1, "False": 0}[cell] if cell in ("True", "False") else number_from(cell)


def _is_blank(value: Any) -> bool:
    return value in (None, "") or value != value


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float)


def _some(counted: Iterable[str]) -> str:
    every = list(counted)
    more = f" and {len(every) - _MOST_TOLD:,} more" if len(every) > _MOST_TOLD else ""
    return ", ".join(every[:_MOST_TOLD]) + more
