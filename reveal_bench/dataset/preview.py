"""The config `preview`: small pictures with the reference drawn on them, for people who browse a dataset on the Hub.

The Hub's viewer truncates rows of more than about 2 MB, and full-size images exceed this limit. The preview has the
first images of each split with public references, at most :data:`MOST_PICTURES`, as JPEG files with sides of at most
:data:`SIDE_PX` pixels. It is made only from the rows of the folder. It is never the default config, because its
pictures show the answers.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.arguments import Problem
from reveal_bench.dataset.drawings import FindingDrawing, draw_layer
from reveal_bench.kinds.cases import REFERENCE, Case
from reveal_bench.kinds.folder import read_rows, split_shards
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.rows import Row
from reveal_bench.sources.pictures import FORMATS, without_metadata

if TYPE_CHECKING:
    from datasets import Features

PREVIEW = "preview"
MOST_PICTURES = 100
SIDE_PX = 384
QUALITY = 85
"""Quality of the JPEG files, as Pillow's parameter."""
ALLOWED_DIFFERENCE = 16
"""Largest difference of a pixel (0 to 255) that another version of Pillow may cause."""
_ROWS_AT_ONCE = 4  # a row with pictures may take megabytes


def preview_features(kind: AnyKind) -> Features:
    """Return the features of the config `preview`: a picture, its ids, and the reference as text."""
    from datasets import Features, Image, Value

    names = dict.fromkeys((kind.key, "image_id", "reference"))
    return Features({"image": Image(), **{name: Value("string") for name in names}})


def preview_rows(folder: Path, split: str, kind: AnyKind) -> Iterator[Row]:
    """Yield rows of the config `preview` for the first images of a split; none if pixels are withheld.

    Parameters
    ----------
    folder : dataset folder, which may still lack its card and other descriptions
    """
    yield from islice(_all_rows(folder, split, kind), MOST_PICTURES)


def _all_rows(folder: Path, split: str, kind: AnyKind) -> Iterator[Row]:
    references, pictures = kind.data.read_references(folder, split), _pictures_of(folder, split, kind)
    for record, (key, cells) in zip(references, pictures, strict=True):
        if kind.data.key_of(record) != key:
            raise ValueError(
                f"{folder}: references and pictures of {split} must have the same order, but differ at {key}"
            )
        yield from _case_rows(kind, record, cells)


def preview_problems(folder: Path, split: str, kind: AnyKind, rows: Iterable[tuple[str, Row]]) -> Iterator[Problem]:
    """Yield a problem for each row of the config `preview` that differs from :func:`preview_rows`.

    Parameters
    ----------
    folder : dataset folder whose main config has no problems in this split
    rows : (file, row) of the config `preview`
    """
    n_made = n_rows = 0
    file = PREVIEW
    for place, made in zip_longest(rows, preview_rows(folder, split, kind)):
        n_rows += place is not None
        n_made += made is not None
        if place is None or made is None:
            continue
        file, row = place
        for name in row.keys() - {"image"}:
            if row[name] != made[name]:
                yield Problem(file, row[kind.key], name, f"must be {made[name]!r}", repr(row[name]))
        if (fault := _picture_fault(row["image"], made["image"])) is not None:
            yield Problem(file, row[kind.key], "image", *fault)
    if n_rows != n_made:
        rule = f"must have a row for each of the first {n_made} images of the split"
        yield Problem(file, None, PREVIEW, rule, f"{n_rows} rows")


def _picture_fault(picture: Row | None, made: Row) -> tuple[str, str] | None:
    """Return (rule, value) if a picture differs from `made`, a new drawing for comparison; otherwise None."""
    from PIL import Image, UnidentifiedImageError

    picture = picture or {"bytes": None, "path": None}
    if picture["path"] != made["path"]:
        return f"must have the path {made['path']!r}", repr(picture["path"])
    data = picture["bytes"] or b""
    if data == made["bytes"]:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image, Image.open(io.BytesIO(made["bytes"])) as other:
            is_plain = (image.size, image.mode) == (other.size, other.mode) and without_metadata(data) == data
            if is_plain:
                pixels = (np.asarray(one, np.int16) for one in (image, other))
                is_plain = int(np.abs(np.subtract(*pixels)).max()) <= ALLOWED_DIFFERENCE
    except UnidentifiedImageError:
        return "must be a JPEG file", "other data"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return "must be a JPEG file", str(error)
    return None if is_plain else ("must be the same as the preview that `build` draws", "another picture")


def _pictures_of(folder: Path, split: str, kind: AnyKind) -> Iterator[tuple[str, list[bytes | None]]]:
    """Yield (key, [bytes or None of each picture]) of each row of the main config."""
    columns = kind.table.image_columns
    for row in chain.from_iterable(
        read_rows(shard, [kind.key, *columns], at_once=_ROWS_AT_ONCE)
        for shard in split_shards(folder, kind.config, split)
    ):
        cells = chain.from_iterable(row[name] if isinstance(row[name], list) else [row[name]] for name in columns)
        yield row[kind.key], [None if cell is None else cell["bytes"] for cell in cells]


def _case_rows(kind: AnyKind, record: Any, pictures: Sequence[bytes | None]) -> Iterator[Row]:
    """Yield a row for each image of a record that has pixels, up to the first image that cannot be drawn."""
    from PIL import Image

    try:
        case = kind.display.case(record)
        for number, (film, data) in enumerate(zip(case.films, pictures, strict=True)):
            if data is not None:
                drawings = _drawings(case, number)
                image = {"bytes": _drawn(data, (film.width, film.height), drawings), "path": f"{film.image_id}.jpg"}
                reference = _reference_text(case, film.is_prior, drawings)
                yield {"image": image, kind.key: case.key, "image_id": film.image_id, "reference": reference}
    except (OSError, SyntaxError, ValueError, ArithmeticError, Image.DecompressionBombError):
        return


def _reference_text(case: Case, is_prior: bool, drawings: Sequence[FindingDrawing]) -> str:
    """Return the text of a preview, with one line per numbered finding and per other fact of the reference."""
    lines = ["Earlier image"] if is_prior else []
    lines += [f"{drawing.number} {drawing.finding}" for drawing in drawings]
    lines += [f"{name}: {text}" for name, text in case.facts]
    return "\n".join(lines) or "no reference drawn"


def _drawings(case: Case, number: int) -> list[FindingDrawing]:
    """Return one drawing per finding of the reference on image `number` of a case."""
    drawings: dict[str, FindingDrawing] = {}
    for mark in case.marks.get(REFERENCE, ()):
        if mark.film == number:
            new = FindingDrawing(len(drawings) + 1, mark.group, REFERENCE, is_reference=True)
            drawing = drawings.setdefault(mark.group, new)
            drawing.rles += mark.masks
            drawing.boxes += mark.boxes
            drawing.points += mark.points
    return list(drawings.values())


def _drawn(data: bytes, full: tuple[int, int], drawings: list[FindingDrawing]) -> bytes:
    """Return a small JPEG file, without metadata, of a radiograph of size `full` (width, height) with the drawings."""
    from PIL import Image

    scale = min(1.0, SIDE_PX / max(full))
    size = (max(1, round(full[0] * scale)), max(1, round(full[1] * scale)))
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        image.draft("L", (2 * size[0], 2 * size[1]))  # a large JPEG is decoded at reduced size
        small = image.convert("L").resize(size, Image.Resampling.LANCZOS).convert("RGBA")
    layer = draw_layer(drawings, size, full, fill=0)
    buffer = io.BytesIO()
    Image.alpha_composite(small, layer).convert("RGB").save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
