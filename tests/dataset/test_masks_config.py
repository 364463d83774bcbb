"""Pictures of masks, and how large a row is, without a folder around them."""

from __future__ import annotations

import io
import json
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from reveal_bench.dataset.layout import row_bytes
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.kinds.localization.rows import mask_features, mask_rows
from reveal_bench.masks import encode_mask


@pytest.mark.parametrize("size", [(1, 1), (3, 8), (5, 9), (40, 17), (64, 64)])
def test_a_mask_s_picture_has_one_bit_a_pixel_and_reads_as_grey(
    size: tuple[int, int], rng: np.random.Generator
) -> None:
    mask = rng.random(size) < 0.4
    mask[0, 0] = True
    annotation = Annotation("Edema", "ground_truth", encode_mask(mask), area_px=int(mask.sum()))
    record = LocalizationRecord("i", "p", "s", "PA", size[1], size[0], {"Edema": 1}, (annotation,))
    (row,) = mask_rows(record, ("Edema",))
    with Image.open(io.BytesIO(row["mask"]["bytes"])) as picture:
        assert (picture.mode, picture.size) == ("1", size[::-1])
        picture.load()  # checks the sums of all chunks
        assert np.array_equal(np.asarray(picture), mask)
    loaded = datasets.Dataset.from_list([row], features=mask_features(("Edema",)))[0]["mask"]
    assert loaded.mode == "L"
    assert np.array_equal(np.asarray(loaded), mask * 255)


def plain_bytes(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 8 if inner is None else sum(map(plain_bytes, inner))


def test_the_size_of_a_row_is_that_of_all_its_parts() -> None:
    rows = [
        {"polygons": [[[1.0, 2.0], [3.0, 4.0]], []], "empty": [[], [1, 2]], "none": None, "flags": [True, None]},
        {"names": ["ab", "c"], "data": b"xyz", "nested": [{"box": [1.5, 2.0]}], "mixed": [None, 1.0], "rows": [[[1]]]},
    ]
    assert [row_bytes(row) for row in rows] == [plain_bytes(json.loads(json.dumps(rows[0]))), plain_bytes(rows[1])]
