"""Checks of one prediction: types, texts, ids, coordinates, cells and scores.

Checks use only the public manifest. They never raise and never stop at the first problem: each returns the checked
value, or None after logging the problem. Coordinates follow :mod:`reveal_bench.geometry`: a point at x == width is
outside; a box may touch the border; so may the vertex of a contour.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, fields
from operator import attrgetter

from reveal_bench.findings import canonical_finding
from reveal_bench.geometry import Grid, box_centre, is_inside
from reveal_bench.kinds.localization.formats import FIELDS, GEOMETRIES, OF_TORCHVISION, TORCHVISION
from reveal_bench.kinds.localization.records import (
    Box,
    ImageManifest,
    LocalizationPrediction,
    ManifestRow,
    Point,
    Polygons,
)
from reveal_bench.masks import Rle
from reveal_bench.predictions.hints import id_hint, name_hint
from reveal_bench.predictions.jsonl import RawPrediction
from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.number_ids import ADVICE
from reveal_bench.predictions.report import ProblemLog

_MOST_NAMED = 10  # maximum number of unknown fields, or of bad vertices, named per entry
_LONGEST_SIDE = 1 << 53
_MOST_SEARCHED = 100  # maximum number of unknown names and ids with a suggested spelling

_KNOWN, _GEOMETRIES, _RLE = frozenset(FIELDS), frozenset(GEOMETRIES), frozenset(("size", "counts"))

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_NO_PREFIX = {"image_id": "", "finding": "", "points": "", "polygons": "", "rle": ""}
_TABLE_NAMES = {
    "point": "x,y",
    "point[0]": "x",
    "point[1]": "y",
    "box": "x,y,width,height",
    "box[0]": "x",
    "box[1]": "y",
    "box[2]": "width",
    "box[3]": "height",
    "rle.size": "size_h,size_w",
    "rle.size[0]": "size_h",
    "rle.size[1]": "size_w",
    "rle.counts": "counts",
}
_FILE_NAMES: dict[str, dict[str, str]] = {
    "csv": _TABLE_NAMES,
    "tsv": _TABLE_NAMES,
    "parquet": _TABLE_NAMES,
    "coco-results": {"box": "bbox", "rle": "segmentation", "polygons": "segmentation", "finding": "category_id"},
    "chexlocalize-segmentations": _NO_PREFIX,
    "chexlocalize-points": _NO_PREFIX,
    "chexlocalize-annotations": _NO_PREFIX,
}


_predicted = attrgetter(*(one.name for one in fields(LocalizationPrediction)))


@dataclass(slots=True)
class Draft:
    """A checked prediction. `row` is None for an unknown image, and `finding` is None for an unknown finding.

    `filled` is the mask made from the contours of its image and finding, and `area` the area of its mask; both are None
    until known. Geometry with valid numbers is kept even if it is outside the image, so that patterns of errors can be
    recognised.
    """

    line: int
    path: str
    row: ManifestRow | None
    finding: str | None
    points: tuple[Point, ...] = ()
    cell: str | None = None
    box: Box | None = None
    rle: Rle | None = None
    polygons: Polygons = ()
    score: float | None = None
    filled: Rle | None = None
    area: int | None = None

    @property
    def is_asked(self) -> bool:
        """True if the manifest asks for this image and finding."""
        return self.row is not None and self.finding in self.row.asked

    def prediction(self) -> LocalizationPrediction:
        """Return the prediction with all its fields; raises AttributeError if the draft lacks a field."""
        return LocalizationPrediction(*_predicted(self))

    @property
    def image_id(self) -> str:
        """The id of a known image."""
        assert self.row is not None
        return self.row.image_id

    @property
    def mask(self) -> Rle | None:
        """The mask as given, or else the mask made from the contours."""
        return self.rle or self.filled

    @property
    def coordinates(self) -> tuple[Point, ...]:
        """Points, the far corner of the box, and vertices."""
        if self.box is None and not self.polygons:
            return self.points
        corner = ((self.box[0] + self.box[2], self.box[1] + self.box[3]),) if self.box else ()
        return (*self.points, *corner, *(vertex for contour in self.polygons for vertex in contour))


class EntryChecker:
    """Checker of one file's entries against the manifest; the masks' run lengths are read later, all at once.

    Attributes
    ----------
    spellings : Counter of (spelling, canonical name) Tolerated spellings in the file, and how often each occurs.
    """

    def __init__(self, manifest: ImageManifest, grid: int, file_format: str, limits: Limits, log: ProblemLog) -> None:
        self.spellings: Counter[tuple[str, str]] = Counter()
        self._manifest = manifest
        self._grid = Grid(grid)
        self._limits = limits
        self._log = log
        self._names = _FILE_NAMES.get(file_format, {})
        self._min_vertices = 2 if file_format == "chexlocalize-annotations" else 3
        self._findings: dict[str, str | None] = {name: name for name in manifest.findings}
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}  # so that equal sizes are stored once
        self._sorted_ids = sorted(manifest.rows)
        self._unknown_ids: dict[str, str] = {}  # hints for unknown ids that occur several times
        self._name_hints: dict[str, str] = {}

    def check(self, entry: RawPrediction) -> Draft:
        """Check `entry` and log all of its problems."""
        fields = entry.fields
        self._check_names(entry)
        draft = Draft(entry.line, entry.path, self._row(entry), self._finding(entry))
        if "point" in fields:
            point = self._point(entry, "point", fields["point"], draft.row)
            draft.points = () if point is None else (point,)
        if "points" in fields:
            draft.points += self._points(entry, draft.row)
        if "cell" in fields:
            draft.cell = self._cell(entry)
        if "box" in fields:
            draft.box = self._box(entry, draft.row)
        if "rle" in fields:
            draft.rle = self._rle(entry, draft.row)
        if "polygons" in fields:
            draft.polygons = self._polygons(entry, draft.row)
        if "score" in fields:
            draft.score = self._score(entry)
        return draft

    def error(
        self, entry: RawPrediction | Draft, rule: str, field: str, message: str, value: object, *, hint: str = ""
    ) -> None:
        """Log an error of one entry, using the file's name for the field."""
        self._log.error(rule, message, line=entry.line, field=self._place(entry, field), value=value, hint=hint)

    def warning(self, entry: RawPrediction | Draft, rule: str, field: str, message: str, *, hint: str = "") -> None:
        """Log a warning about one entry, using the file's name for the field."""
        self._log.warning(rule, message, line=entry.line, field=self._place(entry, field), hint=hint)

    def _place(self, entry: RawPrediction | Draft, field: str) -> str:
        name = self._names.get(field)
        if name is None:
            head = min((len(field), *(at for at in (field.find("["), field.find(".")) if at > 0)))
            name = self._names.get(field[:head], field[:head]) + field[head:]
        return entry.path + ("." if entry.path and name[:1].isalpha() else "") + name

    def _check_names(self, entry: RawPrediction) -> None:
        fields = entry.fields
        unknown = () if fields.keys() <= _KNOWN else [key for key in fields if key not in FIELDS]
        is_of_torchvision = {"boxes", "scores"} <= set(unknown)
        for key in unknown[:_MOST_NAMED]:
            hint = OF_TORCHVISION if is_of_torchvision and key in TORCHVISION else self._name_hint(key, FIELDS)
            self.error(entry, "unknown-field", key[:50], "is not a field of a localization prediction", key, hint=hint)
        for key in ("image_id", "finding"):
            if key not in fields:
                self.error(entry, "missing-field", key, f"`{key}` is missing", dict(fields))
        if _GEOMETRIES.isdisjoint(fields):
            message = f"one of {', '.join(GEOMETRIES)} must be given"
            self.error(entry, "missing-geometry", "", message, dict(fields))
        if "point" in fields and "points" in fields:
            message = "`point` and `points` exclude each other"
            self.error(entry, "point-and-points", "points", message, fields["points"], hint="put all into `points`")
        if "rle" in fields and "polygons" in fields:
            message = "`rle` and `polygons` are both given: the mask is taken from `rle`, `polygons` is only checked"
            self.warning(entry, "two-masks", "polygons", message)

    def _text(self, entry: RawPrediction, field: str, most: int) -> str | None:
        value = entry.fields[field]
        if not isinstance(value, str):
            self.error(entry, "wrong-type", field, "must be text", value)
        elif len(value) > most:
            self.error(entry, "text-length", field, f"must have at most {most} characters", value)
        elif _CONTROL.search(value):
            self.error(entry, "control-character", field, "must hold no control characters", value)
        else:
            return value
        return None

    def _row(self, entry: RawPrediction) -> ManifestRow | None:
        image_id = entry.fields.get("image_id")
        row = self._manifest.rows.get(image_id) if isinstance(image_id, str) else None
        if row is not None or "image_id" not in entry.fields:
            return row
        if type(image_id) is int:
            is_coco = not isinstance(entry.fields.get("finding"), str)
            hint = "the COCO file with `images` names the file of each number" if is_coco else ADVICE
            hint = f'write "{image_id}"' if str(image_id) in self._manifest.rows else hint
            self.error(entry, "image-number", "image_id", "must be the id of an image, as text", image_id, hint=hint)
            return None
        image_id = self._text(entry, "image_id", self._limits.id_characters)
        # Report an image of a document only once
        if image_id is not None and not (entry.path and image_id in self._unknown_ids):
            message = f"is not an image of {self._manifest.benchmark} {self._manifest.split}"
            self.error(entry, "unknown-image", "image_id", message, image_id, hint=self._id_hint(image_id))
        return None

    def _id_hint(self, image_id: str) -> str:
        if image_id not in self._unknown_ids:
            searched = len(self._unknown_ids) < _MOST_SEARCHED  # searching for similar names takes milliseconds
            self._unknown_ids[image_id] = id_hint(image_id, self._sorted_ids, self._manifest.rows) if searched else ""
        return self._unknown_ids[image_id]

    def _name_hint(self, name: str, known: tuple[str, ...]) -> str:
        if name not in self._name_hints and len(self._name_hints) < _MOST_SEARCHED:
            self._name_hints[name] = name_hint(name, known)
        return self._name_hints.get(name, "")

    def _finding(self, entry: RawPrediction) -> str | None:
        if "finding" not in entry.fields:
            return None
        if type(entry.fields["finding"]) is int:
            hint = "the COCO file with `categories` says what a number means"
            message, number = "must be the name of a finding", entry.fields["finding"]
            self.error(entry, "category-number", "finding", message, number, hint=hint)
            return None
        spelling = entry.fields["finding"]
        if type(spelling) is not str or spelling not in self._findings:
            spelling = self._text(entry, "finding", self._limits.finding_characters)
        if spelling is None:
            return None
        known, others = self._manifest.findings, self._manifest.others
        if spelling not in self._findings:
            self._findings[spelling] = canonical_finding(spelling, known) or canonical_finding(spelling, others)
        finding = self._findings[spelling]
        if finding is None:
            hint = self._name_hint(spelling, known)
            message = f"is not a finding of {self._manifest.benchmark}"
            self.error(entry, "unknown-finding", "finding", message, spelling, hint=hint)
        elif finding != spelling:
            self.spellings[spelling, finding] += 1
        return finding

    def _numbers(self, entry: RawPrediction, field: str, value: object, names: tuple[str, ...]) -> list[float] | None:
        """Return `value` as a list of finite numbers, one for each of the names."""
        if not isinstance(value, list) or len(value) != len(names):
            self.error(entry, "wrong-type", field, f"must be [{', '.join(names)}]", value)
            return None
        if all(map(_is_finite, value)):
            return value
        for i, item in enumerate(value):
            self._is_number(entry, f"{field}[{i}]", item)
        return None

    def _is_number(self, entry: RawPrediction, field: str, value: object) -> bool:
        if _is_finite(value):
            return True
        if type(value) is float:
            self.error(entry, "not-finite", field, "must be a finite number", value)
        elif isinstance(value, str) and _reads_as_number(value):
            self.error(entry, "number-as-text", field, "must be a number", value, hint="write it without quotes")
        else:
            self.error(entry, "wrong-type", field, "must be a number", value)
        return False

    def _point(self, entry: RawPrediction, field: str, value: object, row: ManifestRow | None) -> Point | None:
        numbers = self._numbers(entry, field, value, ("x", "y"))
        if numbers is None:
            return None
        x, y = numbers
        if row is not None and not is_inside(x, y, size=row.size):
            hint = "it is inside with x and y exchanged" if is_inside(y, x, size=row.size) else edge_hint(x, y, row)
            self.error(entry, "outside-image", field, _inside(row), value, hint=hint)
        return _as_float(x), _as_float(y)

    def _points(self, entry: RawPrediction, row: ManifestRow | None) -> tuple[Point, ...]:
        value = entry.fields["points"]
        most = self._limits.points
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            rule = "one point [x, y]: only one is accepted here" if most == 1 else f"1 to {most} points [x, y]"
            self.error(entry, "wrong-type", "points", f"must be a list of {rule}", value)
            return ()
        points = [self._point(entry, f"points[{i}]", item, row) for i, item in enumerate(value)]
        return tuple(point for point in points if point is not None)

    def _cell(self, entry: RawPrediction) -> str | None:
        cell = self._text(entry, "cell", self._limits.finding_characters)
        if cell is None:
            return None
        try:
            self._grid.parse(cell)
        except ValueError:
            last = self._grid.cells[-1]
            message = f"must be a cell of the {self._grid.n} x {self._grid.n} grid, A1 to {last}"
            self.error(entry, "cell", "cell", message, cell, hint=cell_hint(cell, self._grid))
        return cell

    def _box(self, entry: RawPrediction, row: ManifestRow | None) -> Box | None:
        value = entry.fields["box"]
        numbers = self._numbers(entry, "box", value, ("x", "y", "width", "height"))
        if numbers is None:
            return None
        x, y, width, height = (_as_float(number) for number in numbers)
        hint = "" if row is None else box_hint((x, y, width, height), row)
        if width <= 0 or height <= 0:
            where = "" if row is None else f" (image {row.image_id})"
            self.error(entry, "box-size", "box", f"must have a width and a height above 0{where}", value, hint=hint)
        elif row is not None and not _holds(row, (x, y, width, height)):
            self.error(entry, "outside-image", "box", _inside(row), value, hint=hint)
        return x, y, width, height

    def _rle(self, entry: RawPrediction, row: ManifestRow | None) -> Rle | None:
        value = entry.fields["rle"]
        if not isinstance(value, dict) or value.keys() != _RLE:
            message = 'must be {"size": [height, width], "counts": "..."}'
            self.error(entry, "wrong-type", "rle", message, value)
            return None
        size = self._size(entry, value["size"], row)
        counts = value["counts"]
        if not isinstance(counts, str):
            hint = (
                "uncompressed runs: encode them with pycocotools.mask.frPyObjects" if isinstance(counts, list) else ""
            )
            self.error(entry, "wrong-type", "rle.counts", "must be text", counts, hint=hint)
        elif len(counts) > self._limits.counts_characters:
            message = f"must have at most {self._limits.counts_characters} characters"
            self.error(entry, "text-length", "rle.counts", message, counts)
        elif not counts.isascii():
            message = "may hold only the characters '0' to 'o'"
            self.error(entry, "rle-alphabet", "rle.counts", message, counts)
        elif size is not None:
            return Rle(size, counts)
        return None

    def _size(self, entry: RawPrediction, value: object, row: ManifestRow | None) -> tuple[int, int] | None:
        numbers = self._numbers(entry, "rle.size", value, ("height", "width"))
        if numbers is None:
            return None
        height, width = numbers
        if min(height, width) < 1 or height != math.floor(height) or width != math.floor(width):
            self.error(entry, "wrong-type", "rle.size", "must be two whole numbers above 0", value)
            return None
        if max(numbers) > _LONGEST_SIDE:  # a number with hundreds of digits is not shown in messages
            self.error(entry, "rle-size", "rle.size", "is larger than any image", value)
            return None
        size = int(height), int(width)
        if row is not None and size != row.size:
            message = f"must be the image's [height, width] = [{row.height}, {row.width}]"
            self.error(entry, "rle-size", "rle.size", message, value, hint=size_hint(size, row))
        return self._sizes.setdefault(size, size)

    def _polygons(self, entry: RawPrediction, row: ManifestRow | None) -> Polygons:
        value = entry.fields["polygons"]
        limits = self._limits
        if not isinstance(value, list) or not 1 <= len(value) <= limits.contours:
            message = f"must be a list of 1 to {limits.contours} contours"
            self.error(entry, "wrong-type", "polygons", message, value)
            return ()
        n_vertices = sum(len(contour) for contour in value if isinstance(contour, list))
        if n_vertices > limits.vertices:
            message = f"may have at most {limits.vertices} vertices in all"
            self.error(entry, "vertices", "polygons", message, n_vertices)
            return ()
        contours = [self._contour(entry, f"polygons[{i}]", contour, row) for i, contour in enumerate(value)]
        return tuple(contour for contour in contours if contour)

    def _contour(self, entry: RawPrediction, field: str, value: object, row: ManifestRow | None) -> tuple[Point, ...]:
        if not isinstance(value, list) or len(value) < self._min_vertices:
            message = f"must be a list of at least {self._min_vertices} vertices [x, y]"
            self.error(entry, "wrong-type", field, message, value)
            return ()
        contour = []
        n_bad = 0
        for i, vertex in enumerate(value):
            numbers = self._numbers(entry, f"{field}[{i}]", vertex, ("x", "y"))
            if numbers is not None:
                x, y = _as_float(numbers[0]), _as_float(numbers[1])
                contour.append((x, y))
                if row is None or (0 <= x <= row.width and 0 <= y <= row.height):
                    continue
                self.error(entry, "outside-image", f"{field}[{i}]", _inside(row), vertex)
            n_bad += 1
            if n_bad == _MOST_NAMED:
                message = f"more vertices may be wrong: only the first {n_bad} of a contour are named"
                self.error(entry, "vertices", field, message, len(value))
                break
        return tuple(contour)

    def _score(self, entry: RawPrediction) -> float | None:
        value = entry.fields["score"]
        if not self._is_number(entry, "score", value):
            return None
        if not 0 <= value <= 1:
            hint = "a probability, not a logit or a percentage"
            self.error(entry, "score-range", "score", "must be in [0, 1]", value, hint=hint)
            return None
        return float(value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits: outside any image
        return math.inf if value > 0 else -math.inf


def _is_finite(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _reads_as_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _holds(row: ManifestRow, box: Box) -> bool:
    """Return True if the box is in the image, including its border, and its centre is in a pixel."""
    x, y, width, height = box
    fits = 0 <= x <= x + width <= row.width and 0 <= y <= y + height <= row.height
    return fits and is_inside(*box_centre(box), size=row.size)


def _inside(row: ManifestRow) -> str:
    return f"must be inside the image {row.image_id}, {row.width} x {row.height} (width x height)"


_RESIZED_SIDES = (224, 256, 320, 336, 384, 448, 512, 768, 1024)


def cell_hint(cell: str, grid: Grid) -> str:
    """Return how to write a cell whose parts are exchanged, whose letter is small, or which belongs to a finer grid."""
    plain = cell.strip().upper()
    for guess in (plain, plain[::-1]):
        if guess in grid.cells:
            return f"write {guess}: a capital letter for the column, then the row"
    advice = "a cell of a finer grid? state the `grid` in submission.json, or with --grid"
    return advice if plain in Grid(16).cells else ""


def box_hint(box: Box, row: ManifestRow) -> str:
    """Return a hint for a box outside the image: that it is within a pixel of it, or looks like two corners."""
    x, y, width, height = box
    beyond = max(-x, -y, x + width - row.width, y + height - row.height)
    if width > 0 and height > 0 and 0 < beyond <= 1:
        return f"{beyond:.4g} pixels outside: clip boxes to the image, as torchvision's clip_boxes_to_image does"
    looks_xyxy = 0 <= x < width <= row.width and 0 <= y < height <= row.height
    return "[x1, y1, x2, y2]? boxes are [x, y, width, height]" if looks_xyxy else ""


def edge_hint(x: float, y: float, row: ManifestRow) -> str:
    """Return a hint for a point exactly on the right or lower border."""
    return "coordinates start at 0" if x == row.width or y == row.height else ""


def size_hint(size: tuple[int, int], row: ManifestRow) -> str:
    """Return a hint for a mask whose (height, width) differs from the image's."""
    if size == (row.width, row.height):
        return "height comes first"
    if max(size) in _RESIZED_SIDES and max(row.size) > max(size):
        return f"a mask of an image resized to {max(size)} pixels: scale it to the full-size image before encoding"
    return ""
