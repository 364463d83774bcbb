"""The rows that the report shows: for every finding at least one, every category of tasks with two.

They are the first ones in the order of the files, so that a report of the same folder is the same report. Pictures are
read for them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from reveal_bench.builders.report.films import Drawing, Film, drawings_of, make_film
from reveal_bench.builders.rows import Row
from reveal_bench.builders.validate_tables import DatasetFolder, Table
from reveal_bench.records import VIEWS
from reveal_bench.study_records import AGREEMENTS
from reveal_bench.task_records import CATEGORIES, TAGS

__all__ = ["Chosen", "example"]

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
        limit = TASKS_PER_CATEGORY if self.folder.kind_name == "tasks" else 1
        new = [name for name in self._subjects(row) if self._shown.get(name, 0) < limit]
        if new:
            self.keys[row[self.folder.kind.key]] = new
            for name in new:
                self._shown[name] = self._shown.get(name, 0) + 1

    def _subjects(self, row: Row) -> list[str]:
        findings = self.folder.benchmark.findings
        if self.folder.kind_name == "tasks":
            return [CATEGORIES[row["category"]].replace("_", " ")]
        if self.folder.kind_name == "findings":
            return [findings[code] for code in row["labels"]]
        return [findings[code] for code in sorted({a["label"] for a in row["annotations"] if a["area_px"] > 0})]

    def rows(self, tables: Sequence[Table]) -> Iterator[Row]:
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


def example(row: Row, folder: DatasetFolder, subjects: Sequence[str]) -> str:
    """One row as HTML."""
    make = {"localization": _image, "findings": _study, "tasks": _task}[folder.kind_name]
    shown = f'<p class="subjects">Example of {escape(", ".join(subjects))}</p>'
    return f'<article class="example {folder.kind_name}">{shown}{make(row, folder)}</article>'


def _image(row: Row, folder: DatasetFolder) -> str:
    drawings = drawings_of(row, folder.benchmark.findings)
    film = make_film(_bytes(row["image"]), row["width"], row["height"], drawings)
    view = VIEWS[row["view"]]
    caption = f"{row['image_id']} · {view} · {row['width']} x {row['height']} pixels"
    drawn = ", ".join(dict.fromkeys(drawing.finding for drawing in drawings))
    missing = ", ".join(folder.benchmark.findings[code] for code in row["missing"])
    note = f"<p>Present, without a ground-truth drawing: {escape(missing)}</p>" if missing else ""
    return _figure(film, caption, f"{view} radiograph; drawn on it: {drawn or 'nothing'}", drawings) + note


def _study(row: Row, folder: DatasetFolder) -> str:
    labels = [folder.benchmark.findings[code] for code in row["labels"]] or ["no label"]
    chips = "".join(f'<li class="chip">{escape(label)}</li>' for label in labels)
    agreement = "unknown" if row["agreement"] is None else AGREEMENTS[row["agreement"]].replace("_", " ")
    films = "".join(_plain_films(row["images"], row["image_facts"], "radiograph"))
    head = f"<h4>{escape(row['study_id'])}</h4>"
    return f'{head}<ul class="chips">{chips}</ul><p>Agreement: {agreement}</p><div class="films">{films}</div>'


def _task(row: Row, _: DatasetFolder) -> str:
    by_image: dict[str | None, list[Drawing]] = {}
    for n, box in enumerate(row["reference_boxes"], start=1):
        drawing = Drawing(n, box["label"], "reference", True, boxes=[box["bbox_xywh"]])
        by_image.setdefault(box["image_id"], []).append(drawing)
    images = _plain_films(row["images"], row["image_facts"], "radiograph", by_image)
    prior = _plain_films(row["prior_images"], row["prior_image_facts"], "earlier radiograph", by_image)
    tags = "; ".join(f"{name.replace('_', ' ')}: {', '.join(row['tags'][name])}" for name in TAGS if row["tags"][name])
    told = [
        ("Indication", row["indication"]),
        ("Tags", tags),
        ("Reference answer", row["reference_answer"]),
    ]
    facts = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in told if text)
    head = f"<h4>{escape(row['task_id'])}</h4><blockquote>{escape(row['prompt'])}</blockquote><dl>{facts}</dl>"
    return f'{head}<div class="films">{"".join([*images, *prior])}</div>'


def _plain_films(
    pictures: Sequence[Any],
    facts: Sequence[Row],
    word: str,
    drawings: dict[str | None, list[Drawing]] | None = None,
) -> Iterator[str]:
    for picture, entry in zip(pictures, facts, strict=True):
        drawn = (drawings or {}).get(entry["image_id"], [])
        film = make_film(_bytes(picture), entry["width"], entry["height"], drawn)
        view = VIEWS[entry["view"]]
        earlier = "earlier · " if word.startswith("earlier") else ""
        caption = f"{earlier}{entry['image_id']} · {view} · {entry['width']} x {entry['height']} pixels"
        yield _figure(film, caption, f"{view} {word}", drawn)


def _bytes(picture: Any) -> bytes | None:
    return None if picture is None else picture["bytes"]


def _figure(film: Film, caption: str, spoken: str, drawings: Sequence[Drawing]) -> str:
    size = f'width="{film.width}" height="{film.height}"'
    if film.picture is None:
        shown = f'<span class="withheld" style="aspect-ratio:{film.width}/{film.height}">pixels withheld</span>'
    else:
        shown = f'<img src="{film.picture}" alt="{escape(spoken)}" {size}>'
    layer = "" if film.layer is None else f'<img class="layer" src="{film.layer}" alt="" {size}>'
    switch = "" if film.layer is None else '<label><input type="checkbox" checked> drawings</label>'
    legend = _legend(drawings)
    return (
        f'<figure style="max-width:{film.width}px"><div class="film">{shown}{layer}</div>'
        f"<figcaption><span>{escape(caption)}</span>{switch}</figcaption>{legend}</figure>"
    )


def _legend(drawings: Sequence[Drawing]) -> str:
    """One line per finding: its number, its colour, and who drew what."""
    by_number: dict[int, list[Drawing]] = {}
    for drawing in drawings:
        by_number.setdefault(drawing.number, []).append(drawing)
    lines = []
    for number, of_finding in by_number.items():
        has_reference = any(drawing.is_reference for drawing in of_finding)
        swatch = f'<span class="swatch{"" if has_reference else " line"}" style="--c:{of_finding[0].colour}"></span>'
        drawn = "; ".join(f"{drawing.reader} {drawing.what}" for drawing in of_finding)
        lines.append(f"<li>{swatch}<span>{number} {escape(of_finding[0].finding)}: {escape(drawn)}</span></li>")
    return f'<ul class="legend">{"".join(lines)}</ul>' if lines else ""
