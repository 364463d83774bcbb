"""Example radiographs for a dataset report, reduced in size, with reference drawings.

Drawings (:mod:`reveal_bench.dataset.drawings`) are a separate layer that can be switched off. Every finding has at
least one example row, and every category of tasks two. Examples are the first suitable rows of the files, so that
reports of the same folder are identical. No other images are read.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reveal_bench.dataset.drawings import FindingDrawing, draw_layer
from reveal_bench.dataset.tables import DatasetFolder, TableFile
from reveal_bench.kinds.findings.records import AGREEMENTS
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tasks.records import CATEGORIES, TAGS
from reveal_bench.masks import Rle

if TYPE_CHECKING:
    from PIL import Image as PILImage

READER_NAMES = {
    "ground_truth": "ground truth",
    "human_benchmark": "benchmark readers",
    "individual": "individual readers",
}
SIDE_PX = 640


@dataclass(frozen=True, slots=True)
class RenderedImage:
    """Data URIs of a radiograph (None if pixels are withheld) and of its drawings (None if there are none)."""

    picture: str | None
    layer: str | None
    width: int
    height: int


def view_in_words(view: str) -> str:
    """Return a view as written in a sentence: AP, PA, frontal, lateral or unknown."""
    return view if view in ("AP", "PA") else view.lower()


def drawings_of(row: dict[str, Any], findings: Sequence[str]) -> list[FindingDrawing]:
    """Return the drawings of a localization row, ordered by finding, ground truth before other references."""
    codes = sorted({entry["label"] for entry in (*row["annotations"], *row["points"])})
    numbers = {code: n for n, code in enumerate(codes, start=1)}
    drawings: dict[tuple[int, int], FindingDrawing] = {}

    def drawing(code: int, reader: int) -> FindingDrawing:
        is_reference = READERS[reader] == "ground_truth"
        new = FindingDrawing(numbers[code], findings[code], READER_NAMES[READERS[reader]], is_reference)
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


def render_image(
    data: bytes | None, width: int, height: int, drawings: Sequence[FindingDrawing] = (), *, side: int = SIDE_PX
) -> RenderedImage:
    """Return the image, at most `side` pixels a side, and the layer with its drawings."""
    from PIL import Image

    scale = min(1.0, side / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    picture = None
    if data is not None:
        with Image.open(io.BytesIO(data)) as image:
            small = image.convert("L").resize(size, Image.Resampling.LANCZOS)
        picture = _uri(small, "JPEG", quality=80)
    layer = None
    if drawings:
        layer = _uri(draw_layer(drawings, size, (width, height)), "PNG", optimize=True)
    return RenderedImage(picture, layer, *size)


def _uri(image: PILImage.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


TASKS_PER_CATEGORY = 2


@dataclass
class ExampleSampler:
    """Select example rows from a stream of dataset rows.

    Attributes
    ----------
    keys : row key -> findings or category that the row illustrates
    """

    folder: DatasetFolder
    keys: dict[str, list[str]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def offer(self, row: Row) -> None:
        """Select the row if one of its findings, or its category, needs more examples."""
        limit = TASKS_PER_CATEGORY if "category" in row else 1
        new = [name for name in self._subjects(row) if self._counts.get(name, 0) < limit]
        if new:
            self.keys[row[self.folder.kind.key]] = new
            for name in new:
                self._counts[name] = self._counts.get(name, 0) + 1

    def _subjects(self, row: Row) -> list[str]:
        findings = self.folder.benchmark.findings
        if "category" in row:
            return [CATEGORIES[row["category"]].replace("_", " ")]
        if "annotations" not in row:
            return [findings[code] for code in row["labels"]]
        return [findings[code] for code in sorted({a["label"] for a in row["annotations"] if a["area_px"] > 0})]

    def rows(self, tables: Sequence[TableFile]) -> Iterator[Row]:
        """Yield the selected rows with their images."""
        key = self.folder.kind.key
        return picked_rows(tables, [key], lambda row: row[key] in self.keys)


def picked_rows(tables: Sequence[TableFile], columns: Sequence[str], is_picked: Callable[[Row], bool]) -> Iterator[Row]:
    """Yield the whole rows that `is_picked` picks by some of their `columns`, holding one row group in memory."""
    import pyarrow.parquet as pq

    for table in tables:
        with pq.ParquetFile(table.path) as file:
            names = [name for name in columns if name in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=names).to_pylist()
                places = [i for i, row in enumerate(rows) if is_picked(row)]
                if places:
                    yield from file.read_row_group(group).take(places).to_pylist()


@dataclass(frozen=True)
class ExampleImage:
    """An image on the page: its caption, its alternative text, and a legend line per finding."""

    film: RenderedImage
    caption: str
    spoken: str
    legend: Sequence[tuple[str, str, bool]]
    """Legend lines (colour, words, True if a reference is drawn)."""


@dataclass(frozen=True)
class Example:
    """An example row on the page.

    Attributes
    ----------
    subjects : findings, or the category, that the row illustrates
    title, labels, question, facts, note : optional texts
    """

    subjects: Sequence[str]
    films: Sequence[ExampleImage]
    title: str = ""
    labels: Sequence[str] = ()
    question: str = ""
    facts: Sequence[tuple[str, str]] = ()
    note: str = ""


def example(row: Row, folder: DatasetFolder, subjects: Sequence[str]) -> Example:
    """Return a row as an example; its columns determine the kind of benchmark."""
    make = _image if "annotations" in row else _task if "prompt" in row else _study
    return make(row, folder.benchmark.findings, subjects)


def _image(row: Row, findings: Sequence[str], subjects: Sequence[str]) -> Example:
    drawings = drawings_of(row, findings)
    film = render_image(_bytes(row["image"]), row["width"], row["height"], drawings)
    view = VIEWS[row["view"]]
    names = ", ".join(dict.fromkeys(drawing.finding for drawing in drawings))
    missing = ", ".join(findings[code] for code in row["missing"])
    note = f"Present, without a ground-truth drawing: {missing}" if missing else ""
    caption = f"{row['image_id']} · {view} · {row['width']} × {row['height']} pixels"
    spoken = f"{view} radiograph; drawn on it: {names or 'nothing'}"
    return Example(subjects, [ExampleImage(film, caption, spoken, legend_of(drawings))], note=note)


def _study(row: Row, findings: Sequence[str], subjects: Sequence[str]) -> Example:
    labels = [findings[code] for code in row["labels"]] or ["no label"]
    agreement = "unknown" if row["agreement"] is None else AGREEMENTS[row["agreement"]].replace("_", " ")
    films = list(_plain_films(row["images"], row["image_facts"], "radiograph"))
    return Example(subjects, films, row["study_id"], labels, facts=[("Agreement", agreement)])


def _task(row: Row, _: Sequence[str], subjects: Sequence[str]) -> Example:
    by_image: dict[str | None, list[FindingDrawing]] = {}
    for n, box in enumerate(row["reference_boxes"], start=1):
        drawing = FindingDrawing(n, box["label"], "reference", True, boxes=[box["bbox_xywh"]])
        by_image.setdefault(box["image_id"], []).append(drawing)
    films = [
        *_plain_films(row["images"], row["image_facts"], "radiograph", by_image),
        *_plain_films(row["prior_images"], row["prior_image_facts"], "earlier radiograph", by_image),
    ]
    tags = "; ".join(f"{name.replace('_', ' ')}: {', '.join(row['tags'][name])}" for name in TAGS if row["tags"][name])
    candidates = [("Indication", row["indication"]), ("Tags", tags), ("Reference answer", row["reference_answer"])]
    facts = [(name, text) for name, text in candidates if text]
    return Example(subjects, films, row["task_id"], question=row["prompt"], facts=facts)


def _plain_films(
    pictures: Sequence[Any],
    facts: Sequence[Row],
    word: str,
    drawings: dict[str | None, list[FindingDrawing]] | None = None,
) -> Iterator[ExampleImage]:
    for picture, entry in zip(pictures, facts, strict=True):
        own = (drawings or {}).get(entry["image_id"], [])
        film = render_image(_bytes(picture), entry["width"], entry["height"], own)
        view = VIEWS[entry["view"]]
        earlier = "earlier · " if word.startswith("earlier") else ""
        caption = f"{earlier}{entry['image_id']} · {view} · {entry['width']} × {entry['height']} pixels"
        yield ExampleImage(film, caption, f"{view} {word}", legend_of(own))


def _bytes(picture: Any) -> bytes | None:
    return None if picture is None else picture["bytes"]


def legend_of(drawings: Sequence[FindingDrawing]) -> list[tuple[str, str, bool]]:
    """Return a legend line per finding: (colour, description of its drawings, True if it has a reference)."""
    by_number: dict[int, list[FindingDrawing]] = {}
    for drawing in drawings:
        by_number.setdefault(drawing.number, []).append(drawing)
    lines = []
    for number, of_finding in by_number.items():
        parts = "; ".join(f"{drawing.reader} {drawing.what}" for drawing in of_finding)
        has_reference = any(drawing.is_reference for drawing in of_finding)
        lines.append((of_finding[0].colour, f"{number} {of_finding[0].finding}: {parts}", has_reference))
    return lines
