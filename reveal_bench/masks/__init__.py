"""Run-length masks and boxes, and compiled loops for computing with them.

:mod:`~reveal_bench.masks.run_lengths` defines the masks, :mod:`~reveal_bench.masks.kernels` calls the loops that are
compiled from the C sources in this folder, and :mod:`~reveal_bench.masks.numpy_kernels` has equivalent loops in numpy.
"""

from __future__ import annotations

from reveal_bench.masks.run_lengths import (
    MAX_PIXELS,
    MAX_RUNS,
    BoolMask,
    Box,
    MaskProblem,
    PackedMasks,
    Rle,
    decode_mask,
    empty_rle,
    encode_mask,
    measure_masks,
    pack_boxes,
    pack_masks,
    pack_regions,
    parse_masks,
    rasterize_polygons,
    shrink_mask,
    tight_box,
    union_masks,
)

__all__ = [
    "MAX_PIXELS",
    "MAX_RUNS",
    "BoolMask",
    "Box",
    "MaskProblem",
    "PackedMasks",
    "Rle",
    "decode_mask",
    "empty_rle",
    "encode_mask",
    "measure_masks",
    "pack_boxes",
    "pack_masks",
    "pack_regions",
    "parse_masks",
    "rasterize_polygons",
    "shrink_mask",
    "tight_box",
    "union_masks",
]
