"""Parsers and folder layout of the CheXlocalize download.

Each file is parsed separately. Parsers do not stop at an error: they append it to a list of :class:`Problem` and return
the valid entries. Pitfalls of the files:

* the order of label columns differs, so columns are found by name; "Lung Opacity" means Airspace Opacity;
* `Path` begins with ``CheXpert-v1.0/valid/`` or ``test/``, so only the end ``patient*/study*/view*_*.jpg`` is used;
* the test CSV has no Sex, Age, Frontal/Lateral and AP/PA columns;
* sizes are ``[height, width]``, points ``[x, y]``;
* an empty mask's string depends on its size, so masks are decoded, never compared as text;
* most JSON parsers silently lose an image if its key is repeated, so a repeated key is an error here.

The annotation files are in ``CheXlocalize/`` or directly in the download. The pictures are in one of the following
folders. These may be beside the annotations, in a parent folder, or in the folder that the user names (`pictures`):

========================================  ==============================================================
``CheXpert/val``, ``CheXpert/test``       in the AIMI download of CheXlocalize
``CheXpert-v1.0/valid``                   in CheXpert as first published, with ``CheXpert-v1.0/valid.csv``
``CheXpert-v1.0 batch 1 (validate & csv)/valid``  in AIMI's current download of CheXpert, possibly nested twice
``CheXpert-v1.0-small/valid``             never used: the masks do not fit pictures of this size
========================================  ==============================================================

Only the end of a picture's path, ``patient*/study*/view*_*.jpg``, identifies it. If several folders contain a picture,
`pictures` takes precedence, then the folders above from top to bottom.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.files import leads_out
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS, canonical_finding, hint
from reveal_bench.kinds.localization.records import Polygons
from reveal_bench.masks import Rle, parse_masks
from reveal_bench.sources.source import Problem, folders_in, read_json
from reveal_bench.tables import TableReader, TableRow, open_table
from reveal_bench.words import count_text

ANNOTATIONS, PICTURES = "CheXlocalize", "CheXpert"
PARTIAL = ".azDownload-"
FOLDERS = {"val": ("val", "valid"), "test": ("test",)}
"""Name of a split in the annotation files -> names of the folders with its pictures."""
LABELS = {"val": ("val_labels.csv", "valid.csv"), "test": ("test_labels.csv",)}
HEAT_MAPS = {".npy", ".npz", ".png", ".safetensors"}
"""File suffixes of heat maps; pickles are not among them because opening a pickle can run code."""

_TAIL = re.compile(r"(?:^|/)(patient\d+)/(study\d+)/(view\d+_(?:frontal|lateral))\.jpg$")
_SMALL = re.compile(r"chexpert.*-small", re.IGNORECASE)
_REFERENCE = re.compile(r"(gt|hb)_(annotations|segmentations|salient_pt)_(val|test)\.json")


@dataclass(frozen=True)
class ChexlocalizeDownload:
    """Folders of a CheXlocalize download.

    Attributes
    ----------
    root : the path that the user gave
    folder : the folder that contains the annotations' folder; paths in messages are relative to `folder`
    annotations : the folder of the JSON files
    bases : folders that may contain CheXpert's pictures, the likeliest first
    """

    root: Path
    folder: Path
    annotations: Path
    bases: tuple[Path, ...]

    def path_text(self, path: Path) -> str:
        """Return a path relative to the download, for messages."""
        inner = next((base for base in (self.folder, *self.bases) if path.is_relative_to(base)), path.parent)
        return path.relative_to(inner).as_posix()

    def labels(self, split: str) -> Path | None:
        """Return the label file of a split, "val" or "test"."""
        return self._first(LABELS[split])

    def groundtruth(self) -> Path | None:
        """Return ``groundtruth.csv`` of rajpurkarlab/cheXpert-test-set-labels, if the user added that file."""
        return self._first(("groundtruth.csv",))

    def picture_folders(self, split: str) -> list[Path]:
        """Return the folders of a split's pictures, with CheXpert-small last."""
        named = [base for base in self.bases if base.name in FOLDERS[split]]
        below = [path / name for path in self._chexperts() for name in FOLDERS[split] if (path / name).is_dir()]
        return sorted([*named, *below], key=is_small)

    def _first(self, names: Sequence[str]) -> Path | None:
        places = [*self._chexperts(), self.annotations, self.folder]
        return next((place / name for name in names for place in places if (place / name).is_file()), None)

    def _chexperts(self) -> list[Path]:
        """Return all folders in which ``val``, ``valid`` or ``test`` may be."""
        folders: dict[Path, None] = {}
        for base in self.bases:
            level = [base]
            for _ in range(3):
                folders.update(dict.fromkeys(level))
                inner = (path for folder in level for path in folders_in(folder))
                level = [path for path in inner if path.name.casefold().startswith("chexpert")]
        return list(folders)


@dataclass
class SplitPictures:
    """Pictures of a split by image id, and warnings about pictures that are in several folders."""

    paths: dict[str, Path] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def is_small(path: Path) -> bool:
    """Return True if a folder is part of CheXpert-small."""
    return any(_SMALL.fullmatch(part) for part in path.parts)


def find_download(root: Path, pictures: Path | None = None) -> ChexlocalizeDownload | None:
    """Return the download in `root` or in a folder ``chexlocalize`` at most two levels below; None if missing."""
    root = Path(root)
    folder, outer = root, [root]
    for _ in range(3):
        for place in (folder / ANNOTATIONS, folder):
            if any(place.glob("gt_*.json")):
                own = [] if pictures is None else [Path(pictures)]
                folder = place.parent if place.name == ANNOTATIONS else place
                return ChexlocalizeDownload(root, folder, place, tuple(dict.fromkeys([*own, folder, *reversed(outer)])))
        inner = [path for path in folders_in(folder) if path.name.casefold() == "chexlocalize"]
        if len(inner) != 1:
            return None
        folder = inner[0]
        outer.append(folder)
    return None


def image_id_of(path: str) -> str | None:
    """Return the image id that the end of a picture's path contains, or None.

    Examples
    --------
    >>> image_id_of("CheXpert-v1.0/valid/patient64541/study1/view1_frontal.jpg")
    'patient64541_study1_view1_frontal'
    """
    match = _TAIL.search(path)
    return None if match is None else "_".join(match.groups())


def study_of(image_id: str) -> str:
    """Return the study id, which is the beginning of an image id.

    Examples
    --------
    >>> study_of("patient64541_study1_view1_frontal")
    'patient64541_study1'
    """
    return image_id.rsplit("_", 2)[0]


def index_pictures(download: ChexlocalizeDownload, split: str, problems: list[Problem]) -> SplitPictures:
    """Return the pictures of a split; note a problem if all of them are from CheXpert-small."""
    index = SplitPictures()
    folders = download.picture_folders(split)
    usable = [folder for folder in folders if not is_small(folder)]
    if folders and not usable:
        rule = "must contain the full-size pictures of CheXpert, because masks do not fit CheXpert-small"
        problems.append(Problem(download.path_text(folders[0]), None, "folder", rule, folders[0].parent.name))
    for folder in usable:
        here = _index_folder(download, folder, problems)
        again = len(here.keys() & index.paths.keys())
        if again:
            index.warnings.append(
                f"{again:,} pictures in {download.path_text(folder)} are not used, because another folder also has them"
            )
        index.paths = here | index.paths
    return index


def _index_folder(download: ChexlocalizeDownload, folder: Path, problems: list[Problem]) -> dict[str, Path]:
    pictures: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.jpg")):
        if path.name.startswith(".") or leads_out(path):
            continue
        name = download.path_text(path)
        image_id = image_id_of(name)
        if image_id is None:
            problems.append(Problem(name, None, "path", "must end in patient*/study*/view*_frontal|lateral.jpg", name))
        elif image_id in pictures:
            other = download.path_text(pictures[image_id])
            problems.append(Problem(name, image_id, "path", "must be the only picture with its id", f"also {other}"))
        else:
            pictures[image_id] = path
    return pictures


def set_aside(download: ChexlocalizeDownload) -> list[tuple[str, str]]:
    """Return (path, reason) of each file that is no reference: interrupted downloads, heat maps and masks of models."""
    aside = []
    places = dict.fromkeys([download.annotations, *download.picture_folders("val"), *download.picture_folders("test")])
    for place in places:
        aside += [(download.path_text(path), "interrupted download") for path in sorted(place.rglob(f"{PARTIAL}*"))]
    for path in sorted(download.annotations.iterdir()):
        if path.is_dir() and "map" in path.name.casefold():
            aside += list(_heat_maps(download, path))
        elif path.suffix == ".json" and not path.name.startswith(".") and _REFERENCE.fullmatch(path.name) is None:
            aside.append((download.path_text(path), "a model's masks, not references"))
    return aside


def _heat_maps(download: ChexlocalizeDownload, folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".pkl":
            yield download.path_text(path), "pickled heat map, never opened because a pickle can run code"
        elif path.suffix in HEAT_MAPS:
            yield download.path_text(path), "heat map of a model, not a reference"


OTHER_LABELS = {"No Finding", "Pneumonia", "Pleural Other", "Fracture"}
"""CheXpert's labels whose findings CheXlocalize did not segment."""
FACTS = {"Path", "Sex", "Age", "Frontal/Lateral", "AP/PA"}
STATUS = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "-1": -1, "-1.0": -1, "": None}

_STUDY = re.compile(r"(?:^|/)(patient\d+)/(study\d+)/?$")
_ID = re.compile(r"(patient\d+)_(study\d+)_(view\d+_(?:frontal|lateral))")
Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A row of a label CSV; `view_raw` comes from the AP/PA column or, if it is blank, from the file name."""

    image_id: str
    line: int
    status: dict[str, int | None]
    view: str
    view_raw: str


@dataclass
class Masks:
    """Masks of a segmentation file; `index` is a dict from (image id, finding) to the position in the lists."""

    rles: list[Rle] = field(default_factory=list)
    index: dict[tuple[str, str], int] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    areas: list[int] = field(default_factory=list)
    boxes: list[list[float]] = field(default_factory=list)

    def area(self, image_id: str, finding: str) -> int:
        """Return the number of pixels of an image's mask for a finding; 0 without a mask."""
        i = self.index.get((image_id, finding))
        return 0 if i is None else self.areas[i]


def parse_labels(path: Path, problems: list[Problem], warnings: list[str]) -> dict[str, LabelRow]:
    """Return a dict from image id to row of a label CSV, in file order."""
    rows: dict[str, LabelRow] = {}
    n_uncertain = 0
    for raw, columns in _label_rows(path, "Path", problems, warnings):
        row = _label_row(raw, columns, problems)
        if row is None:
            continue
        if row.image_id in rows:
            value = f"{row.image_id}, also line {rows[row.image_id].line}"
            problems.append(raw.problem("Path", "must be unique", value))
            continue
        n_uncertain += sum(status == -1 for status in row.status.values())
        rows[row.image_id] = row
    if n_uncertain:
        warnings.append(
            f"{path.name}: {count_text(n_uncertain, 'uncertain label')} (-1); an uncertain finding does "
            "not count as present"
        )
    return rows


def parse_groundtruth(path: Path, problems: list[Problem], warnings: list[str]) -> dict[str, dict[str, int | None]]:
    """Return the labels of ``groundtruth.csv``, ``{"patient64741_study1": {finding: status}}``."""
    studies: dict[str, dict[str, int | None]] = {}
    for raw, columns in _label_rows(path, "Study", problems, warnings):
        match = _STUDY.search(raw["Study"])
        study_id = "_".join(match.groups()) if match else ""
        if not study_id or study_id in studies:
            rule = "must be unique and end in patient*/study*"
            problems.append(raw.problem("Study", rule, repr(raw["Study"])))
            continue
        studies[study_id] = _statuses(raw.number, raw, columns, problems)
    return studies


def _label_rows(
    path: Path, key: str, problems: list[Problem], warnings: list[str]
) -> Iterator[tuple[TableRow, dict[str, str]]]:
    """Yield (row, dict from finding to column); nothing if the column `key` or the column of a finding is missing."""
    with open_table(path, problems=problems) as reader:
        if reader.is_broken:
            return
        columns = _label_columns(reader, key, problems, warnings)
        if len(columns) == len(CHEXLOCALIZE_FINDINGS) and key in reader:
            for row in reader:
                yield row, columns


def _label_columns(table: TableReader, key: str, problems: list[Problem], warnings: list[str]) -> dict[str, str]:
    """Return a dict from finding to the name of its column."""
    columns: dict[str, str] = {}
    known = {name.casefold() for name in (*OTHER_LABELS, *FACTS, key)}
    for head in table.columns:
        finding = canonical_finding(head, CHEXLOCALIZE_FINDINGS)
        if finding is None:
            if head.casefold() not in known:
                warnings.append(f"{table.file}: the column {head!r} is unknown and is ignored")
        elif finding in columns:
            value = f"{columns[finding]!r} and {head!r}"
            problems.append(Problem(table.file, 1, finding, "must have one column", value))
        else:
            columns[finding] = head
    expected = [key, *(finding for finding in CHEXLOCALIZE_FINDINGS if finding not in columns)]
    lacking = [name for name in expected if name not in table]
    problems += [Problem(table.file, 1, name, "must be a column", ", ".join(table.columns)) for name in lacking]
    return columns


def _label_row(raw: TableRow, columns: dict[str, str], problems: list[Problem]) -> LabelRow | None:
    image_id = image_id_of(raw["Path"])
    if image_id is None:
        rule = "must end in patient*/study*/view*_frontal|lateral.jpg"
        problems.append(raw.problem("Path", rule, repr(raw["Path"])))
        return None
    status = _statuses(image_id, raw, columns, problems)
    lateral = image_id.endswith("lateral")
    projection = raw.get("AP/PA", "")
    view = "LATERAL" if lateral else projection if projection in ("AP", "PA") else "FRONTAL"
    return LabelRow(image_id, raw.number, status, view, projection or ("lateral" if lateral else "frontal"))


def _statuses(row: int | str, raw: TableRow, columns: dict[str, str], problems: list[Problem]) -> dict[str, int | None]:
    status: dict[str, int | None] = {}
    for finding in CHEXLOCALIZE_FINDINGS:
        text = raw[columns[finding]]
        if text not in STATUS:
            problems.append(Problem(raw.file, row, columns[finding], "must be 1, 0, -1 or blank", repr(text)))
        status[finding] = STATUS.get(text)
    return status


def parse_masks_file(path: Path, problems: list[Problem]) -> Masks:
    """Return the masks of a file with ``{image id: {finding: {"size": [h, w], "counts": "..."}}}``."""
    masks = Masks()
    owners: list[tuple[str, str]] = []
    for image_id, finding, value in _entries(path, problems):
        if finding is None:
            continue
        size = _size(value.get("size")) if isinstance(value, dict) else None
        counts = value.get("counts") if isinstance(value, dict) else None
        if size is None or not isinstance(counts, str):
            rule = 'must be {"size": [h, w], "counts": "..."}'
            problems.append(Problem(path.name, image_id, finding, rule, str(value)[:80]))
            continue
        first = masks.sizes.setdefault(image_id, size)
        if first != size:
            rule = "must be the same for all masks of an image ([h, w])"
            problems.append(Problem(path.name, image_id, f"{finding}.size", rule, f"{list(first)} and {list(size)}"))
        masks.index[image_id, finding] = len(masks.rles)
        masks.rles.append(Rle(size, counts))
        owners.append((image_id, finding))
    packed, broken = parse_masks(masks.rles)
    for i, reason in broken.items():
        problems.append(Problem(path.name, owners[i][0], owners[i][1], "must be a well-formed mask", str(reason)))
    masks.areas, masks.boxes = packed.areas.tolist(), packed.boxes_xywh().tolist()
    return masks


def parse_annotations(
    path: Path, problems: list[Problem], warnings: list[str]
) -> tuple[dict[str, dict[str, Polygons]], dict[str, Size]]:
    """Return (polygons, sizes) of a file with ``{image id: {"img_size": [h, w], finding: [[[x, y], ...], ...]}}``."""
    polygons: dict[str, dict[str, Polygons]] = {}
    sizes: dict[str, Size] = {}
    n_outside = 0
    for image_id, finding, value in _entries(path, problems):
        if finding is None:
            size = _size(value)
            if size is None:
                problems.append(Problem(path.name, image_id, "img_size", "must be [h, w]", str(value)[:80]))
            else:
                sizes[image_id] = size
                polygons.setdefault(image_id, {})
            continue
        contours = _contours(value)
        if contours is None:
            rule = "must be contours of at least 2 finite vertices [x, y]"
            problems.append(Problem(path.name, image_id, finding, rule, str(value)[:80]))
            continue
        polygons.setdefault(image_id, {})[finding] = contours
    for image_id, by_finding in polygons.items():
        if image_id not in sizes:
            problems.append(Problem(path.name, image_id, "img_size", "must be [h, w]", "none"))
            continue
        height, width = sizes[image_id]
        n_outside += sum(
            any(not (0 <= x <= width and 0 <= y <= height) for contour in contours for x, y in contour)
            for contours in by_finding.values()
        )
    if n_outside:
        warnings.append(f"{path.name}: {n_outside:,} annotations have vertices outside their picture")
    return polygons, sizes


def parse_points(path: Path, problems: list[Problem]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the points of a salient-point file with ``{image id: {finding: [[x, y], ...]}}``."""
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for image_id, finding, value in _entries(path, problems):
        if finding is None:
            continue
        if not isinstance(value, list) or not all(_is_vertex(vertex) for vertex in value):
            rule = "must be points [x, y] of finite numbers"
            problems.append(Problem(path.name, image_id, finding, rule, str(value)[:80]))
            continue
        points.setdefault(image_id, {})[finding] = [(float(x), float(y)) for x, y in value]
    return points


def _entries(path: Path, problems: list[Problem]) -> Iterator[tuple[str, str | None, Any]]:
    """Yield (image id, finding, value) for each entry of a JSON file; the finding is None for ``img_size``."""
    repeated: list[str] = []
    content = read_json(path, dict, problems.append, repeated=repeated)
    problems += [Problem(path.name, key, "key", "must not be repeated", repr(key)) for key in repeated]
    for image_id, entry in content.items():
        if _ID.fullmatch(image_id) is None:
            rule = "must look like patient1_study1_view1_frontal"
            problems.append(Problem(path.name, image_id, "image id", rule, repr(image_id)))
            continue
        if not isinstance(entry, dict):
            problems.append(Problem(path.name, image_id, "entry", "must be a JSON object", type(entry).__name__))
            continue
        for name, value in entry.items():
            if name == "img_size":
                yield image_id, None, value
                continue
            finding = canonical_finding(name, CHEXLOCALIZE_FINDINGS)
            if finding is None:
                value = hint(name, CHEXLOCALIZE_FINDINGS)
                problems.append(Problem(path.name, image_id, "finding", "must be one of the 10 findings", value))
                continue
            yield image_id, finding, value


def _size(value: Any) -> Size | None:
    if isinstance(value, list) and len(value) == 2 and all(type(side) is int and side > 0 for side in value):
        return value[0], value[1]
    return None


def _is_vertex(vertex: Any) -> bool:
    if not isinstance(vertex, list) or len(vertex) != 2:
        return False
    return all(type(value) in (int, float) and math.isfinite(value) for value in vertex)


def _contours(value: Any) -> Polygons | None:
    if not isinstance(value, list):
        return None
    for contour in value:
        if not isinstance(contour, list) or len(contour) < 2 or not all(_is_vertex(vertex) for vertex in contour):
            return None
    return tuple(tuple((float(x), float(y)) for x, y in contour) for contour in value)
