"""Run-length masks and boxes, and the compiled loops over them.

:mod:`~reveal_bench.masks.run_lengths` defines the masks, :mod:`~reveal_bench.masks.kernels` the loops, which are
compiled from the C sources in this folder, and :mod:`~reveal_bench.masks.numpy_kernels` the same loops in numpy.
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
