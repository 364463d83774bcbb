"""Rows of every kind: their type, ClassLabel codes, the facts about images, and the rules for these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reveal_bench.kinds.images import SPACING_SOURCES, VIEWS, PublishedPicture, StudyImage

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

Row = dict[str, Any]
Fault = tuple[str, str, str]
"""A problem of a row: field, rule, value."""


def code_of(names: Sequence[str], name: str, what: str) -> int:
    """Return the position of `name` in its vocabulary.

    Raises
    ------
    ValueError
        If it is not in the vocabulary.
    """
    if name not in names:
        raise ValueError(f"`{what}` must be one of {', '.join(names)}, got {name!r}")
    return names.index(name)


IMAGE_FACTS = (
    "image_id", "width", "height", "view_raw", "manufacturer", "manufacturer_raw", "model", "model_raw",
    "detector_type", "kvp", "exposure_mas", "source_sha256", "pixel_sha256", "pixel_pipeline",
)  # fmt: skip
"""Columns of `image_facts` that are written unchanged."""


def image_facts_features() -> dict[str, Any]:
    """Return the features of one entry of the column `image_facts`."""
    from datasets import ClassLabel, List, Value

    kinds = {"width": "int32", "height": "int32", "kvp": "float64", "exposure_mas": "float64"}
    return {
        **{name: Value(kinds.get(name, "string")) for name in IMAGE_FACTS},
        "view": ClassLabel(names=list(VIEWS)),
        "spacing_mm": List(Value("float64")),
        "spacing_source": ClassLabel(names=list(SPACING_SOURCES)),
    }


def image_facts_row(image: StudyImage) -> Row:
    """Return an image as an entry of the column `image_facts`."""
    return {
        **{name: getattr(image, name) for name in IMAGE_FACTS},
        "view": code_of(VIEWS, image.view, "view"),
        "spacing_mm": None if image.spacing_mm is None else list(image.spacing_mm),
        "spacing_source": code_of(SPACING_SOURCES, image.spacing_source, "spacing_source"),
    }


def image_facts_of(row: Row) -> list[Row]:
    """Return the facts about each image of a row of any kind: the row itself, or entries of its columns of facts."""
    if "image_id" in row:
        return [row]
    return [*(row.get("image_facts") or ()), *(row.get("prior_image_facts") or ())]


LENGTHS = {
    "bbox_xywh": (1, 4),
    "boxes_xywh": (2, 4),
    "extra_boxes_xywh": (2, 4),
    "polygons": (3, 2),
    "size": (1, 2),
    "spacing_mm": (1, 2),
}
"""Column, or field of a column -> depth of its lists, and the length of the innermost lists. The schema cannot fix this
length, because only pyarrow 26 and newer can read a null list of fixed length."""
MAY_BE_NULL = ("bbox_xywh", "spacing_mm")
"""Lists that are null if unknown."""


def length_faults(row: Row, place: str = "") -> Iterator[Fault]:
    """Yield a problem for each list of numbers, at any depth, whose length is not that in :data:`LENGTHS`."""
    for name, value in row.items():
        where = f"{place}.{name}" if place else name
        if isinstance(value, dict):
            yield from length_faults(value, where)
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, dict):
                    yield from length_faults(entry, where)
            if name in LENGTHS and any(_wrong_lengths(value, *LENGTHS[name])):
                yield where, f"must have {LENGTHS[name][1]} numbers in each innermost list", str(value)[:80]


def _wrong_lengths(values: Sequence[Any], depth: int, length: int) -> Iterator[bool]:
    """Yield True for each innermost list whose length is not `length`; null is covered by another rule."""
    if depth == 1:
        values = [values]
    elif depth > 2:
        for inner in values:
            yield from _wrong_lengths(inner or (), depth - 1, length)
        return
    yield from (True for inner in values if inner is not None and len(inner) != length)


def parquet_schema(features: Features) -> pa.Schema:
    """Return the schema for rows of `features`, with metadata that `datasets` 2.21 and newer understand.

    ``List``, which came with `datasets` 4.0, is written as a JSON list of its single feature, which every version
    reads.
    """
    schema = features.arrow_schema
    metadata = {"info": {"features": _listed(features.to_dict())}}
    return schema.with_metadata({"huggingface": json.dumps(metadata)})


def _listed(feature: Any) -> Any:
    if not isinstance(feature, dict):
        return feature
    if feature.get("_type") == "List":
        return [_listed(feature["feature"])]
    return {name: _listed(inner) for name, inner in feature.items()}


def of_any_length(feature: Any) -> Any:
    """Return `feature` with lists of any length instead of the fixed lengths of format 1."""
    from datasets import List

    if isinstance(feature, dict):
        return {name: of_any_length(inner) for name, inner in feature.items()}
    return List(of_any_length(feature.feature)) if isinstance(feature, List) else feature


def image_cell(picture: PublishedPicture | None) -> Row | None:
    """Return a picture as a value of the `Image` feature; None if its pixels are withheld."""
    return None if picture is None or picture.data is None else {"bytes": picture.data, "path": picture.name}


def without_hashes(facts: Sequence[Row]) -> list[Row]:
    """Return facts about images without hashes, which would identify images to those who hold the files."""
    return [{**entry, "source_sha256": None, "pixel_sha256": None} for entry in facts]


def one_value(values: Sequence[str | None]) -> str | None:
    """Return the value that all images of a study share, or None if they differ."""
    return values[0] if len(set(values)) == 1 else None


def text_schema(**columns: str) -> pa.Schema:
    """Return a schema; each column's type is "text", "texts", "whole" (a number) or "flag"."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "whole": pa.int32(), "texts": pa.list_(pa.string()), "flag": pa.bool_()}
    return pa.schema({name: kinds[kind] for name, kind in columns.items()})


def size_faults(width: int, height: int, name: str) -> Iterator[Fault]:
    """Yield a problem if no picture can have this size."""
    if width < 1 or height < 1:
        yield name, "must be at least 1 x 1", f"{width} x {height}"


def parallel_faults(row: Row, ids: str, columns: dict[str, str]) -> Iterator[Fault]:
    """Yield a problem for each of `columns` that does not have one entry per id, and one if an id occurs twice."""
    for column in columns:
        if len(row[column] or ()) != len(row[ids]):
            rule = f"must be one per entry of `{ids}`, which has {len(row[ids])}"
            yield column, rule, str(len(row[column] or ()))
    if len(set(row[ids])) != len(row[ids]):
        yield ids, "must be unique in the row", ", ".join(row[ids])


def facts_faults(facts: Sequence[Any], ids: Sequence[str], name: str) -> Iterator[Fault]:
    """Yield a problem if `facts` are not those of the images `ids` in this order, and one for each impossible size."""
    if [entry["image_id"] for entry in facts] != list(ids):
        yield f"{name}.image_id", f"must be {', '.join(ids)}", ", ".join(str(entry["image_id"]) for entry in facts)
    for entry in facts:
        yield from size_faults(entry["width"], entry["height"], f"{name}[{entry['image_id']}].size")
