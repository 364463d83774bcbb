"""The three kinds of dataset, as far as writing them differs: what a row is, and which tables there are.

======================  ===============  ==========================  ==================
kind (`Benchmark.kind`)  a row is         main config                 key
======================  ===============  ==========================  ==================
localization            an image         ``localization``            ``image_id``
findings                a study          ``multilabel``              ``study_id``
tasks                   a task           ``tasks``                   ``task_id``
======================  ===============  ==========================  ==================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reveal_bench.benchmarks import Benchmark
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.rows import blank_study, study_features, study_row
from reveal_bench.kinds.images import VIEWS, Developed, PictureFile, StudyImage
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.kinds.localization.rows import (
    blank_row,
    localization_features,
    localization_row,
    mask_features,
    mask_rows,
)
from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tasks.records import CATEGORIES, TaskRecord
from reveal_bench.kinds.tasks.rows import blank_task, task_features, task_row

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of KINDS.

    Attributes
    ----------
    config, key : main config, and the column that names a row
    counted : what the manifest calls the number of rows
    image_columns : columns that hold pictures
    features : Features of the main config
    pictures : record -> its picture files, None where there is none
    row : record, benchmark, developed pictures -> row
    blank : row -> the same as an input without references
    has_prompts : whether a model needs more of a row than its manifest entry and pictures
    side_config, side_features, side_rows : a table that is made from each record, or None
    asked : record, asks -> what a model is asked of it (finding names)
    manifest_schema, manifest_row : the public manifest: its columns, and row, asked -> its entry
    """

    config: str
    key: str
    counted: str
    image_columns: tuple[str, ...]
    features: Callable[[Benchmark], Features]
    pictures: Callable[[Any], tuple[PictureFile | None, ...]]
    row: Callable[[Any, Benchmark, Sequence[Developed | None]], Row]
    blank: Callable[[Row], Row]
    asked: Callable[[Any, Benchmark, str], list[str]]
    manifest_schema: Callable[[], pa.Schema]
    manifest_row: Callable[[Row, Sequence[str]], Row]
    has_prompts: bool = False
    side_config: str | None = None
    side_features: Callable[[Benchmark], Features] | None = None
    side_rows: Callable[[Any, Benchmark], list[Row]] | None = None

    def key_of(self, record: Any) -> str:
        """The key of a record."""
        return str(getattr(record, self.key))

    def without_pixels(self, row: Row) -> Row:
        """`row` as the private folder of a holdout keeps it."""
        empty: Row = {name: None if row[name] is None or isinstance(row[name], dict) else [None] * len(row[name])
                      for name in self.image_columns}  # fmt: skip
        for name in ("image_facts", "prior_image_facts"):
            if name in row:
                empty[name] = [{**facts, "pixel_pipeline": "withheld"} for facts in row[name]]
        if "pixel_pipeline" in row:
            empty["pixel_pipeline"] = "withheld"
        return {**row, **empty}


def _text_schema(**columns: str) -> pa.Schema:
    import pyarrow as pa

    kinds = {"text": pa.string(), "whole": pa.int32(), "texts": pa.list_(pa.string()), "flag": pa.bool_()}
    return pa.schema({name: kinds[kind] for name, kind in columns.items()})


def _localization_row(record: LocalizationRecord, benchmark: Benchmark, developed: Sequence[Developed | None]) -> Row:
    picture = developed[0]
    if picture is not None:
        if picture.size != record.size:
            got = f"{picture.size[1]} x {picture.size[0]}"
            raise ValueError(f"the picture must have {record.width} x {record.height} pixels, got {got}")
        record = replace(
            record,
            image=picture.data,
            image_name=picture.name,
            source_sha256=picture.source_sha256,
            pixel_sha256=picture.pixel_sha256,
            pixel_pipeline=picture.pipeline,
        )
    return localization_row(record, benchmark.findings)


def _developed_images(images: Sequence[StudyImage], developed: Sequence[Developed | None]) -> tuple[StudyImage, ...]:
    """Images with what was found out when their pictures were read."""
    known = []
    for image, picture in zip(images, developed, strict=True):
        if picture is None:
            known.append(image)
            continue
        if picture.size != (image.height, image.width):
            got = f"{picture.size[1]} x {picture.size[0]}"
            raise ValueError(f"image {image.image_id} must have {image.width} x {image.height} pixels, got {got}")
        known.append(
            replace(
                image,
                source_sha256=picture.source_sha256,
                pixel_sha256=picture.pixel_sha256,
                pixel_pipeline="withheld" if picture.data is None else picture.pipeline,
            )
        )
    return tuple(known)


def _study_row(record: StudyRecord, benchmark: Benchmark, developed: Sequence[Developed | None]) -> Row:
    record = replace(record, images=_developed_images(record.images, developed))
    return study_row(record, benchmark.findings, developed)


def _task_row(record: TaskRecord, benchmark: Benchmark, developed: Sequence[Developed | None]) -> Row:
    n_images = len(record.images)
    record = replace(
        record,
        images=_developed_images(record.images, developed[:n_images]),
        prior_images=_developed_images(record.prior_images, developed[n_images:]),
    )
    return task_row(record, developed)


def _localization_entry(row: Row, asked: Sequence[str]) -> Row:
    entry = {name: row[name] for name in ("image_id", "study_id", "width", "height")}
    return {**entry, "view": VIEWS[row["view"]], "asked": list(asked)}


def _study_entry(row: Row, _: Sequence[str]) -> Row:
    views = [VIEWS[view] for view in row["views"]]
    return {"study_id": row["study_id"], "image_ids": row["image_ids"], "views": views}


def _task_entry(row: Row, _: Sequence[str]) -> Row:
    names = ("task_id", "study_id", "image_ids", "prior_image_ids", "requires_boxes")
    return {**{name: row[name] for name in names}, "category": CATEGORIES[row["category"]]}


KINDS: dict[str, Kind] = {
    "localization": Kind(
        config="localization",
        key="image_id",
        counted="n_images",
        image_columns=("image",),
        features=lambda benchmark: localization_features(benchmark.findings),
        pictures=lambda record: (record.picture,),
        row=_localization_row,
        blank=blank_row,
        asked=lambda record, _, asks: record.asked(asks),
        manifest_schema=lambda: _text_schema(
            image_id="text", study_id="text", view="text", width="whole", height="whole", asked="texts"
        ),
        manifest_row=_localization_entry,
        side_config="masks",
        side_features=lambda benchmark: mask_features(benchmark.findings),
        side_rows=lambda record, benchmark: mask_rows(record, benchmark.findings),
    ),
    "findings": Kind(
        config="multilabel",
        key="study_id",
        counted="n_studies",
        image_columns=("images",),
        features=lambda benchmark: study_features(benchmark.findings),
        pictures=lambda record: tuple(image.picture for image in record.images),
        row=_study_row,
        blank=blank_study,
        asked=lambda _, benchmark, __: list(benchmark.findings),
        manifest_schema=lambda: _text_schema(study_id="text", image_ids="texts", views="texts"),
        manifest_row=_study_entry,
    ),
    "tasks": Kind(
        config="tasks",
        key="task_id",
        counted="n_tasks",
        image_columns=("images", "prior_images"),
        features=lambda _: task_features(),
        pictures=lambda record: tuple(image.picture for image in (*record.images, *record.prior_images)),
        row=_task_row,
        blank=blank_task,
        asked=lambda record, _, __: [record.category],
        manifest_schema=lambda: _text_schema(
            task_id="text",
            study_id="text",
            image_ids="texts",
            prior_image_ids="texts",
            category="text",
            requires_boxes="flag",
        ),
        manifest_row=_task_entry,
        has_prompts=True,
    ),
}
