"""Example rows of a dataset report, and their radiographs: smaller, with what was drawn on them.

Drawings are a layer of their own that can be switched off. A finding of a picture has a number and a colour of
:data:`PALETTE` (Okabe and Ito's, told apart by colour-blind eyes); the number stands on the picture too, so that
nothing rests on the colour alone. The ground truth is filled, other readers are lines; points are rings.

For every finding at least one row is shown, for every category of tasks two: the first ones in the order of the files,
so that a report of the same folder is the same report. Pictures are read for them alone.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.dataset.tables import DatasetFolder, TableFile
from reveal_bench.kinds.findings.records import AGREEMENTS
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tasks.records import CATEGORIES, TAGS
from reveal_bench.masks import Rle, decode_mask, pack_masks, shrink_mask

if TYPE_CHECKING:
    from PIL import Image as PILImage
    from PIL import ImageDraw

PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
READER_NAMES = {
    "ground_truth": "ground truth",
    "human_benchmark": "benchmark readers",
    "individual": "individual readers",
}
SIDE_PX = 640
FILL_ALPHA = 80
TAG_PX = 17


@dataclass
class Drawing:
    """What one reader (or several of one kind) drew for one finding, in pixels of the full picture.

    Attributes
    ----------
    number : of the finding on this picture, from 1
    is_reference : ground truth, drawn filled
    """

    number: int
    finding: str
    reader: str
    is_reference: bool
    rles: list[Rle] = field(default_factory=list)
    boxes: list[Sequence[float]] = field(default_factory=list)
    points: list[tuple[float, float]] = field(default_factory=list)

    @property
    def colour(self) -> str:
        """Of the finding."""
        return PALETTE[(self.number - 1) % len(PALETTE)]

    @property
    def what(self) -> str:
        """Such as "mask, 2 points"."""
        counts = (("mask", len(self.rles)), ("box", 0 if self.rles else len(self.boxes)), ("point", len(self.points)))
        plural = {"mask": "masks", "box": "boxes", "point": "points"}
        return ", ".join(name if n == 1 else f"{n} {plural[name]}" for name, n in counts if n)


@dataclass(frozen=True, slots=True)
class Film:
    """A picture as data URIs: the radiograph (None where pixels are withheld) and the layer (None without drawings)."""

    picture: str | None
    layer: str | None
    width: int
    height: int


def view_in_words(view: str) -> str:
    """A view as it stands in a sentence: AP, PA, frontal, lateral, unknown."""
    return view if view in ("AP", "PA") else view.lower()


def drawings_of(row: dict[str, Any], findings: Sequence[str]) -> list[Drawing]:
    """Drawings of a localization row, in the order of the findings, the ground truth first."""
    codes = sorted({entry["label"] for entry in (*row["annotations"], *row["points"])})
    numbers = {code: n for n, code in enumerate(codes, start=1)}
    drawings: dict[tuple[int, int], Drawing] = {}

    def drawing(code: int, reader: int) -> Drawing:
        is_reference = READERS[reader] == "ground_truth"
        new = Drawing(numbers[code], findings[code], READER_NAMES[READERS[reader]], is_reference)
        return drawings.setdefault((code, reader), new)

    for annotation in row["annotations"]:
        if annotation["area_px"] == 0:
            continue
        target = drawing(annotation["label"], annotation["reader"])
        if annotation["rle"] is not None:
            height, width = annotation["rle"]["size"]
            target.rles.append(Rle((height, width), annotation["rle"]["counts"]))
        target.boxes += annotation["boxes_xywh"]
    for point in row["points"]:
        drawing(point["label"], point["reader"]).points.append((point["x"], point["y"]))
    return [drawings[key] for key in sorted(drawings)]


def make_film(data: bytes | None, width: int, height: int, drawings: Sequence[Drawing]) -> Film:
    """A picture no larger than SIDE_PX, and the layer with the drawings."""
    from PIL import Image

    scale = min(1.0, SIDE_PX / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    picture = None
    if data is not None:
        with Image.open(io.BytesIO(data)) as image:
            small = image.convert("L").resize(size, Image.Resampling.LANCZOS)
        picture = _uri(small, "JPEG", quality=80)
    layer = None
    if drawings:
        canvas = Image.new("RGBA", size)
        for drawing in drawings:
            canvas = _drawn(canvas, drawing, size, (width, height))
        tags: list[tuple[float, float]] = []
        for drawing in drawings:
            _tag(canvas, drawing, tags, (width, height))
        layer = _uri(canvas, "PNG", optimize=True)
    return Film(picture, layer, *size)


def _uri(image: PILImage.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _drawn(canvas: PILImage.Image, drawing: Drawing, size: tuple[int, int], full: tuple[int, int]) -> PILImage.Image:
    from PIL import Image, ImageColor, ImageDraw

    colour = ImageColor.getrgb(drawing.colour)[:3]
    for mask in (shrink_mask(decode_mask(rle), size) for rle in drawing.rles):
        layer = Image.new("RGBA", size, (*colour, 0))
        layer.putalpha(_alpha(mask, filled=drawing.is_reference))
        canvas = Image.alpha_composite(canvas, layer)
    pen = ImageDraw.Draw(canvas)
    fx, fy = size[0] / full[0], size[1] / full[1]
    if not drawing.rles:
        for x, y, wide, high in drawing.boxes:
            corners = (x * fx, y * fy, (x + wide) * fx, (y + high) * fy)
            _box(pen, corners, colour, 3 if drawing.is_reference else 1)
    for x, y in drawing.points:
        for radius, shade, width in ((8, (0, 0, 0, 255), 5), (7, (*colour, 255), 3)):  # a ring
            ends = x * fx - radius, y * fy - radius, x * fx + radius, y * fy + radius
            pen.ellipse(ends, outline=shade, width=width)
    return canvas


def _box(
    pen: ImageDraw.ImageDraw, corners: tuple[float, float, float, float], colour: tuple[int, int, int], width: int
) -> None:
    left, top, right, bottom = corners
    pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=(0, 0, 0, 255), width=width + 2)
    pen.rectangle((left, top, right, bottom), outline=(*colour, 255), width=width)


def _alpha(mask: Any, *, filled: bool) -> PILImage.Image:
    """A line of two pixels around the mask, and its filling if it has one."""
    from PIL import Image

    inner = mask.copy()
    for _ in range(2):
        padded = np.pad(inner, 1)
        inner = inner & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    alpha = np.where(mask & ~inner, 255, np.where(mask, FILL_ALPHA if filled else 0, 0))
    return Image.fromarray(alpha.astype(np.uint8))


def _tag(canvas: PILImage.Image, drawing: Drawing, tags: list[tuple[float, float]], full: tuple[int, int]) -> None:
    """The finding's number inside its mask or box, or beside its point; beside the `tags` that are there already."""
    from PIL import ImageDraw, ImageFont

    if not drawing.is_reference and drawing.rles:
        return
    width, height = canvas.size
    x, y = _tag_place(drawing, canvas.size, full)
    x, y = min(max(x, 10), width - 10), min(max(y, 10), height - 10)
    for _ in tags:
        if not any(abs(x - other_x) < TAG_PX and abs(y - other_y) < TAG_PX for other_x, other_y in tags):
            break
        x = x + TAG_PX if x + 2 * TAG_PX < width else TAG_PX
    tags.append((x, y))
    ImageDraw.Draw(canvas).text(
        (x, y), str(drawing.number), font=ImageFont.load_default(size=16), anchor="mm", fill=(255, 255, 255, 255),
        stroke_width=3, stroke_fill=(0, 0, 0, 255),
    )  # fmt: skip


def _tag_place(drawing: Drawing, size: tuple[int, int], full: tuple[int, int]) -> tuple[float, float]:
    fx, fy = size[0] / full[0], size[1] / full[1]
    if drawing.rles:
        deepest = pack_masks(drawing.rles[:1]).deepest_xy([0])[0]
        return (float(deepest[0]) + 0.5) * fx, (float(deepest[1]) + 0.5) * fy
    if drawing.boxes:
        x, y, _, _ = drawing.boxes[0]
        return x * fx + 12, y * fy + 12
    x, y = drawing.points[0]
    return x * fx + 18, y * fy


TASKS_PER_CATEGORY = 2


@dataclass
class Chosen:
    """Picks rows as they go by.

    Attributes
    ----------
    keys : key -> what the row is an example of
    """

    folder: DatasetFolder
    keys: dict[str, list[str]] = field(default_factory=dict)
    _shown: dict[str, int] = field(default_factory=dict)

    def offer(self, row: Row) -> None:
        """Take the row if it shows something that has not been shown often enough."""
        limit = TASKS_PER_CATEGORY if "category" in row else 1
        new = [name for name in self._subjects(row) if self._shown.get(name, 0) < limit]
        if new:
            self.keys[row[self.folder.kind.key]] = new
            for name in new:
                self._shown[name] = self._shown.get(name, 0) + 1

    def _subjects(self, row: Row) -> list[str]:
        findings = self.folder.benchmark.findings
        if "category" in row:
            return [CATEGORIES[row["category"]].replace("_", " ")]
        if "annotations" not in row:
            return [findings[code] for code in row["labels"]]
        return [findings[code] for code in sorted({a["label"] for a in row["annotations"] if a["area_px"] > 0})]

    def rows(self, tables: Sequence[TableFile]) -> Iterator[Row]:
        """The chosen rows with their pictures; one row group is in memory at a time."""
        import pyarrow.parquet as pq

        key = self.folder.kind.key
        for table in tables:
            with pq.ParquetFile(table.path) as file:
                for group in range(file.num_row_groups):
                    keys = file.read_row_group(group, columns=[key]).column(key).to_pylist()
                    places = [i for i, name in enumerate(keys) if name in self.keys]
                    if places:
                        yield from file.read_row_group(group).take(places).to_pylist()


@dataclass(frozen=True)
class Shown:
    """A film as the page shows it: what is written below and spoken, and a line of legend per finding."""

    film: Film
    caption: str
    spoken: str
    legend: Sequence[tuple[str, str, bool]]
    """(colour, words, whether a reference is drawn)."""


@dataclass(frozen=True)
class Example:
    """A row as the page shows it.

    Attributes
    ----------
    subjects : what it is an example of
    title, labels, question, facts, note : shown where there are any
    """

    subjects: Sequence[str]
    films: Sequence[Shown]
    title: str = ""
    labels: Sequence[str] = ()
    question: str = ""
    facts: Sequence[tuple[str, str]] = ()
    note: str = ""


def example(row: Row, folder: DatasetFolder, subjects: Sequence[str]) -> Example:
    """One row, of whichever kind it is: by the columns that it has."""
    make = _image if "annotations" in row else _task if "prompt" in row else _study
    return make(row, folder.benchmark.findings, subjects)


def _image(row: Row, findings: Sequence[str], subjects: Sequence[str]) -> Example:
    drawings = drawings_of(row, findings)
    film = make_film(_bytes(row["image"]), row["width"], row["height"], drawings)
    view = VIEWS[row["view"]]
    drawn = ", ".join(dict.fromkeys(drawing.finding for drawing in drawings))
    missing = ", ".join(findings[code] for code in row["missing"])
    note = f"Present, without a ground-truth drawing: {missing}" if missing else ""
    caption = f"{row['image_id']} · {view} · {row['width']} × {row['height']} pixels"
    spoken = f"{view} radiograph; drawn on it: {drawn or 'nothing'}"
    return Example(subjects, [Shown(film, caption, spoken, legend_of(drawings))], note=note)


def _study(row: Row, findings: Sequence[str], subjects: Sequence[str]) -> Example:
    labels = [findings[code] for code in row["labels"]] or ["no label"]
    agreement = "unknown" if row["agreement"] is None else AGREEMENTS[row["agreement"]].replace("_", " ")
    films = list(_plain_films(row["images"], row["image_facts"], "radiograph"))
    return Example(subjects, films, row["study_id"], labels, facts=[("Agreement", agreement)])


def _task(row: Row, _: Sequence[str], subjects: Sequence[str]) -> Example:
    by_image: dict[str | None, list[Drawing]] = {}
    for n, box in enumerate(row["reference_boxes"], start=1):
        drawing = Drawing(n, box["label"], "reference", True, boxes=[box["bbox_xywh"]])
        by_image.setdefault(box["image_id"], []).append(drawing)
    films = [
        *_plain_films(row["images"], row["image_facts"], "radiograph", by_image),
        *_plain_films(row["prior_images"], row["prior_image_facts"], "earlier radiograph", by_image),
    ]
    tags = "; ".join(f"{name.replace('_', ' ')}: {', '.join(row['tags'][name])}" for name in TAGS if row["tags"][name])
    told = [("Indication", row["indication"]), ("Tags", tags), ("Reference answer", row["reference_answer"])]
    facts = [(name, text) for name, text in told if text]
    return Example(subjects, films, row["task_id"], question=row["prompt"], facts=facts)


def _plain_films(
    pictures: Sequence[Any],
    facts: Sequence[Row],
    word: str,
    drawings: dict[str | None, list[Drawing]] | None = None,
) -> Iterator[Shown]:
    for picture, entry in zip(pictures, facts, strict=True):
        drawn = (drawings or {}).get(entry["image_id"], [])
        film = make_film(_bytes(picture), entry["width"], entry["height"], drawn)
        view = VIEWS[entry["view"]]
        earlier = "earlier · " if word.startswith("earlier") else ""
        caption = f"{earlier}{entry['image_id']} · {view} · {entry['width']} × {entry['height']} pixels"
        yield Shown(film, caption, f"{view} {word}", legend_of(drawn))


def _bytes(picture: Any) -> bytes | None:
    return None if picture is None else picture["bytes"]


def legend_of(drawings: Sequence[Drawing]) -> list[tuple[str, str, bool]]:
    """One line per finding: its colour, its number and who drew what, and whether it has a reference."""
    by_number: dict[int, list[Drawing]] = {}
    for drawing in drawings:
        by_number.setdefault(drawing.number, []).append(drawing)
    lines = []
    for number, of_finding in by_number.items():
        drawn = "; ".join(f"{drawing.reader} {drawing.what}" for drawing in of_finding)
        has_reference = any(drawing.is_reference for drawing in of_finding)
        lines.append((of_finding[0].colour, f"{number} {of_finding[0].finding}: {drawn}", has_reference))
    return lines
