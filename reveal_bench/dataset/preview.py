"""The config `preview`: small pictures with the reference drawn on them, for people who browse a dataset.

The Hub's viewer cuts rows of more than about 2 MB, and radiographs of full size exceed that. A preview has the first
radiographs of each split whose references are public, at most :data:`MOST_PICTURES`, as JPEG no larger than
:data:`SIDE_PX` pixels. It is made from the rows of the folder alone. It is never the default config: its pictures show
the answers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reveal_bench.dataset.drawings import Drawing, draw_layer
from reveal_bench.kinds.cases import REFERENCE, Case
from reveal_bench.kinds.folder import read_rows, split_shards
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.rows import Row

if TYPE_CHECKING:
    from datasets import Features

PREVIEW = "preview"
MOST_PICTURES = 100
SIDE_PX = 384
QUALITY = 85
"""Of the JPEG files, as Pillow counts it."""
ALLOWED_DIFFERENCE = 4.0
"""Mean difference of two pictures of the same drawing, in grey levels of 255: Pillow's versions differ by less."""
_ROWS_AT_ONCE = 4  # a row of pictures may take megabytes


def preview_features(kind: AnyKind) -> Features:
    """Features of the config: the picture, its ids, and the reference in words."""
    from datasets import Features, Image, Value

    names = dict.fromkeys((kind.key, "image_id", "reference"))
    return Features({"image": Image(), **{name: Value("string") for name in names}})


def preview_rows(folder: Path, split: str, kind: AnyKind) -> Iterator[Row]:
    """Rows of the config for the first radiographs of a split; none where pixels are withheld.

    Parameters
    ----------
    folder : dataset folder; its card and its other descriptions need not be written yet
    """
    records, pictures = kind.data.each_reference(folder, split), _pictures_of(folder, split, kind)
    made = (row for record, found in zip(records, pictures, strict=False) for row in _case_rows(kind, record, found))
    yield from islice(made, MOST_PICTURES)


def difference(a: bytes, b: bytes) -> float:
    """Mean absolute difference of two pictures, in grey levels of 255; 255 if their sizes differ.

    Raises
    ------
    ValueError
        If one of them is not a picture.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        left, right = (np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.int16) for data in (a, b))
    except (OSError, SyntaxError, UnidentifiedImageError) as error:
        raise ValueError(str(error)) from None
    return float(np.abs(left - right).mean()) if left.shape == right.shape else 255.0


def _pictures_of(folder: Path, split: str, kind: AnyKind) -> Iterator[list[bytes | None]]:
    """The picture bytes of each row, in the order in which its case lists them."""
    columns = kind.table.image_columns
    for row in chain.from_iterable(
        read_rows(shard, columns, at_once=_ROWS_AT_ONCE) for shard in split_shards(folder, kind.config, split)
    ):
        cells = chain.from_iterable(row[name] if isinstance(row[name], list) else [row[name]] for name in columns)
        yield [None if cell is None else cell["bytes"] for cell in cells]


def _case_rows(kind: AnyKind, record: object, pictures: list[bytes | None]) -> Iterator[Row]:
    """A row for each radiograph of a record that has pixels, and a picture that can be decoded."""
    from PIL import Image

    case = kind.display.case(record)
    for number, (film, data) in enumerate(zip(case.films, pictures, strict=True)):
        if data is None:
            continue
        drawings = _drawings(case, number)
        words = [f"{drawing.number} {drawing.finding}" for drawing in drawings]
        words += [f"{name}: {text}" for name, text in case.told]
        try:
            small = _drawn(data, (film.width, film.height), drawings)
        except (OSError, SyntaxError, Image.DecompressionBombError):
            continue  # `validate` reports it
        image = {"bytes": small, "path": f"{film.image_id}.jpg"}
        reference = "\n".join(words) or "nothing drawn"
        yield {"image": image, kind.key: case.key, "image_id": film.image_id, "reference": reference}


def _drawings(case: Case, number: int) -> list[Drawing]:
    """What the reference has on one radiograph of a case: one drawing per finding."""
    drawings: dict[str, Drawing] = {}
    for mark in case.marks.get(REFERENCE, ()):
        if mark.film == number:
            new = Drawing(len(drawings) + 1, mark.group, REFERENCE, is_reference=True)
            drawing = drawings.setdefault(mark.group, new)
            drawing.rles += mark.masks
            drawing.boxes += mark.boxes
            drawing.points += mark.points
    return list(drawings.values())


def _drawn(data: bytes, full: tuple[int, int], drawings: list[Drawing]) -> bytes:
    """A radiograph of size `full` (width, height) as a small JPEG without metadata, with outlines on it."""
    from PIL import Image

    scale = min(1.0, SIDE_PX / max(full))
    size = (max(1, round(full[0] * scale)), max(1, round(full[1] * scale)))
    with Image.open(io.BytesIO(data)) as image:
        image.draft("L", (2 * size[0], 2 * size[1]))  # decodes a large JPEG at a fraction of its size
        small = image.convert("L").resize(size, Image.Resampling.LANCZOS).convert("RGBA")
    layer = draw_layer(drawings, size, full, fill=0)
    buffer = io.BytesIO()
    Image.alpha_composite(small, layer).convert("RGB").save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
