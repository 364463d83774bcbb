"""Python interface of the compiled loops over run-length masks, heat maps and ranked boxes.

Conventions
-----------
A mask is stored, in column-major order, as the increasing *ends* of its runs: run 0 is background, run 1 foreground,
and so on; only run 0 may be empty, and ``ends[-1] == height * width``. Many masks share one flat array ``ends``; mask i
is ``ends[offsets[i]:offsets[i + 1]]``. The functions of this module do not check masks, because
:mod:`reveal_bench.masks` checks them.

The loops are in ``_kernels.c``, which is compiled to a shared library when the package is installed
(``.ci/hatch_build.py``). If the library does not load, a warning is given, and :mod:`reveal_bench.masks.numpy_kernels`
computes the same results more slowly. The environment variable ``REVEAL_KERNELS=numpy`` selects the numpy loops.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.masks import numpy_kernels
from reveal_bench.masks.numpy_kernels import Bytes, Ends, Floats

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 7
"""Version of the loops and their arguments; a library compiled from another version is an error."""

_LIBRARY = Path(__file__).with_name("libkernels.so")  # on every system
_ARGUMENTS = {
    "average_precisions": "iqbqqqQ",
    "contains": "iqqqB",
    "count_characters": "bbQ",
    "count_runs": "bqQ",
    "counts_above": "iqqiiiQ",
    "coverage": "innnqqQ",
    "decode_strings": "bqqqnIQBQ",
    "deepest_pixels": "iqqqQ",
    "fill_runs": "inIQ",
    "filtered_rows": "innB",
    "hit_cells": "iqqnB",
    "intersections": "iqiqQ",
    "level_counts": "iqqiiQ",
    "map_ends": "iqqiIQ",
    "mask_areas": "iqQ",
    "measure_strings": "bqqnQBQ",
    "running_weights": "iqqQ",
    "runs_above": "iqqiiIQ",
    "upsample": "iqqiI",
}
"""Arguments of each loop; b, i, q: arrays with items of 1, 4, 8 bytes; B, I, Q: arrays for results; n: a number."""
_ITEM_BYTES = {"b": 1, "i": 4, "q": 8}


class Loops:
    """The loops of a compiled library as methods; they release Python's global lock, so that threads run in parallel.

    Raises
    ------
    OSError
        If `library` is missing or does not load.
    ImportError
        If the library was compiled from another version of the loops.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        version = self._library.version()
        if version != VERSION:
            remedy = "Install reveal-bench again (in a checkout: `pip install --editable .`)"
            raise ImportError(f"{library}: version must be {VERSION}, got {version}. {remedy}")

    def __getattr__(self, name: str) -> _Loop:
        loop = _Loop(getattr(self._library, name), _ARGUMENTS[name])
        setattr(self, name, loop)
        return loop


class _Loop:
    """A loop whose arguments are checked, because with wrong arguments it would read or write outside of arrays."""

    def __init__(self, function: Callable[..., int], kinds: str) -> None:
        self._function, self._kinds = function, kinds
        self._arguments = ctypes.c_int64 * (3 * len(kinds))

    def __call__(self, *arguments: npt.NDArray[Any] | int) -> None:
        """Run the loop; raise MemoryError if memory runs out."""
        numbers: list[
            int
        ] = []  # three numbers per argument: address; number of items, or the number itself; length of the last axis
        for i, (kind, value) in enumerate(zip(self._kinds, arguments, strict=True)):
            if isinstance(value, np.ndarray):
                flags = value.flags
                is_right = flags.c_contiguous and (flags.writeable or kind.islower())
                if not is_right or value.itemsize != _ITEM_BYTES.get(kind.lower()):
                    raise TypeError(f"argument {i} must be a contiguous array of kind {kind!r}, got {value.dtype}")
                numbers += (value.ctypes.data, value.size, value.shape[-1])
            elif kind == "n":
                numbers += (0, value, 0)
            else:
                raise TypeError(f"argument {i} must be an array of kind {kind!r}, got {value!r}")
        if self._function(self._arguments(*numbers)):
            raise MemoryError("no memory for the loops over masks")


def choose_loops(library: Path) -> Any:
    """Return the compiled loops, or the numpy loops if the library does not load or numpy is requested.

    Raises
    ------
    ImportError
        If the library was compiled from another version of the loops, which is an error in the installation.
    """
    backend = os.environ.get("REVEAL_KERNELS", "")
    if backend not in ("", "numpy"):
        raise ImportError(f"REVEAL_KERNELS must be empty or 'numpy', got {backend!r}")
    reason = "REVEAL_KERNELS=numpy"
    if not backend:
        try:
            return Loops(library)
        except OSError as error:
            reason = f"{error}. {_remedy(library.parents[2])}"
    warnings.warn(f"reveal-bench uses slow numpy loops (same results): {reason}", RuntimeWarning, stacklevel=2)
    return numpy_kernels


def _remedy(root: Path) -> str:
    if not (root / "pyproject.toml").exists():
        return "Installing reveal-bench again compiles it"
    remedy = f"work in another folder, or compile it here: `pip install --editable {root}`"
    return f"Python reads this checkout instead of an installed reveal-bench: {remedy}"


loops = choose_loops(_LIBRARY)

Counts = Floats


def count_characters(text: bytes, characters: bytes) -> list[int]:
    """Return the number of each of the one-byte `characters` in `text`; fast for long texts."""
    counts = np.zeros(len(characters), np.int64)
    loops.count_characters(np.frombuffer(text, np.uint8), np.frombuffer(characters, np.uint8), counts)
    return counts.tolist()


def count_runs(text: Bytes, offsets: IntArray) -> IntArray:
    """Return the number of complete run codes in each COCO string (characters without the continuation bit)."""
    n_runs = np.empty(len(offsets) - 1, np.int64)
    loops.count_runs(text, offsets, n_runs)
    return n_runs


def decode_strings(
    text: Bytes, offsets: IntArray, areas: IntArray, n_runs: IntArray, max_runs: int
) -> tuple[Ends, IntArray, Bytes, IntArray]:
    """Decode COCO strings to run ends; return (ends, run_offsets, status, place). An invalid string has no runs.

    `status` is a :class:`~reveal_bench.masks.numpy_kernels.Status`. `place` is the position of a character for
    TRUNCATED, BAD_CHARACTER and TOO_LONG, the sum of the runs for UNDERFLOW, the number of runs for TOO_MANY_RUNS, and
    otherwise the number of the first invalid run.
    """
    ends = np.empty(n_runs.sum(), np.int32)
    run_offsets, place = np.empty(len(offsets), np.int64), np.zeros(len(n_runs), np.int64)
    status = np.zeros(len(n_runs), np.uint8)
    loops.decode_strings(text, offsets, _whole(areas), _whole(n_runs), max_runs, ends, run_offsets, status, place)
    trimmed = ends if run_offsets[-1] == len(ends) else ends[: run_offsets[-1]].copy()
    return trimmed, run_offsets, status, place


def measure_strings(
    text: Bytes, offsets: IntArray, n_pixels: IntArray, max_runs: int
) -> tuple[IntArray, Bytes, IntArray]:
    """Return (areas, status, place) of COCO strings, without storing run ends; see :func:`decode_strings`.

    An invalid string has the area 0. For TOO_MANY_RUNS `place` is the largest allowed number of runs plus 1.
    """
    n = len(offsets) - 1
    areas, place, status = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.uint8)
    loops.measure_strings(text, offsets, _whole(n_pixels), max_runs, areas, status, place)
    return areas, status, place


def mask_areas(ends: Ends, offsets: IntArray) -> IntArray:
    """Return the number of foreground pixels of each mask."""
    areas = np.empty(len(offsets) - 1, np.int64)
    loops.mask_areas(_ends(ends), _whole(offsets), areas)
    return areas


def intersections(ends_a: Ends, offsets_a: IntArray, ends_b: Ends, offsets_b: IntArray) -> IntArray:
    """Return for each i the number of pixels in both mask i of a and mask i of b, which must have equal sizes."""
    common = np.empty(len(offsets_a) - 1, np.int64)
    loops.intersections(_ends(ends_a), _whole(offsets_a), _ends(ends_b), _whole(offsets_b), common)
    return common


def contains(ends: Ends, offsets: IntArray, which: IntArray, positions: IntArray) -> BoolArray:
    """Return bool array (n,), True if mask `which[k]` contains the pixel `positions[k]` (column-major index)."""
    inside = np.empty(len(which), np.bool_)
    loops.contains(_ends(ends), _whole(offsets), _whole(which), _whole(positions), inside)
    return inside


def coverage(ends: Ends, start: int, stop: int, height: int, edges_x: IntArray, edges_y: IntArray) -> IntArray:
    """Return the exact area of a mask in each grid cell, in units of (1/2n)**2 pixel; shape (n rows, n columns).

    Edges of cells are integers in units of 1/2n pixel, see :class:`reveal_bench.geometry.Grid`.
    """
    areas = np.zeros((len(edges_y) - 1, len(edges_x) - 1), np.int64)
    loops.coverage(_ends(ends), int(start), int(stop), height, _whole(edges_x), _whole(edges_y), areas)
    return areas


def hit_cells(ends: Ends, offsets: IntArray, sizes: IntArray, n: int) -> BoolArray:
    """Return bool array (n_masks, n rows, n columns), True for the cells of an n x n grid that hit a mask.

    A cell is a hit if the mask covers at least half of the cell. If no cell is covered that far, every cell with any
    coverage is a hit.
    """
    hits = np.zeros((len(offsets) - 1, n, n), np.bool_)
    loops.hit_cells(_ends(ends), _whole(offsets), _whole(sizes), n, hits)
    return hits


def deepest_pixels(ends: Ends, offsets: IntArray, sizes: IntArray, which: IntArray) -> IntArray:
    """Return (x, y) of the deepest pixel of each mask, shape (n, 2); (-1, -1) for an empty mask.

    The deepest pixel has the largest Euclidean distance between its centre and the nearest pixel centre outside the
    mask; everything beyond the image counts as outside. In case of ties, the first pixel in row-major order is
    returned.
    """
    pixels = np.full((len(which), 2), -1, np.int64)
    loops.deepest_pixels(_ends(ends), _whole(offsets), _whole(sizes), _whole(which), pixels)
    return pixels


def filtered_rows(ends: Ends, height: int, width: int) -> Bytes:
    """Return a mask as rows of a 1-bit PNG picture with PNG's filter 2 "up", shape (height, 1 + ceil(width / 8)).

    Each row begins with 2; from every other byte the byte above is subtracted, so that nearly all bytes are 0.
    """
    rows = np.empty((height, (width + 7) // 8 + 1), np.uint8)
    loops.filtered_rows(_ends(ends), height, width, rows.ravel())
    return rows


def running_weights(counts: Counts, units: IntArray, stops: IntArray) -> FloatArray:
    """Return the sums of the weights of the first `stops[k]` of `units`, shape (n_replicates, n_stops).

    `counts` contains the weights, float32 (n_replicates, n_units); `stops` must not decrease. Sums of whole numbers are
    exact.
    """
    sums = np.empty((len(counts), len(stops)))
    loops.running_weights(_counts(counts), _whole(units), _whole(stops), sums)
    return sums


def average_precisions(
    counts: Counts, units: IntArray, hits: BoolArray, marks: FloatArray, n_lesions: FloatArray
) -> FloatArray:
    """Return the interpolated average precision.

    It is the mean, over the recalls 0, 0.01, ..., 1, of the best precision at that recall or a higher recall.

    Parameters
    ----------
    counts : float32 array (n_replicates, n_units)
    units : int array (n_marks,), unit (such as patient) of each mark, by decreasing score
    hits : bool array (n_rows, n_marks)
    marks : float array (n_replicates, n_marks), cumulative weight of all marks up to each mark
    n_lesions : float array (n_replicates,), weight of all lesions, above 0

    Returns
    -------
    float array (n_replicates, n_rows)
    """
    values = np.empty((len(counts), len(hits)))
    recalls = np.linspace(0, 1, 101)  # exactly the numbers with which COCO's code compares
    hits, marks = np.ascontiguousarray(hits), np.ascontiguousarray(marks)
    loops.average_precisions(_counts(counts), _whole(units), hits, marks, n_lesions, recalls, values)
    return values


@dataclass(frozen=True, slots=True)
class ResizedMap:
    """A heat map resized to its image without being stored at that size; rows are interpolated between rows of `wide`.

    `wide` has shape (n, width). The resized map is ``wide[upper] * (1 - shares) + wide[lower] * shares``, shape
    (height, width), in single precision.
    """

    wide: Floats
    upper: IntArray
    lower: IntArray
    shares: Floats

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""
        return len(self.upper), self.wide.shape[1]

    def arrays(self) -> tuple[Floats, IntArray, IntArray, Floats]:
        """Return the arrays with the types that the loops need."""
        return _single(self.wide), _whole(self.upper), _whole(self.lower), _single(self.shares)


def upsample(laid: ResizedMap) -> Floats:
    """Return all pixels of the resized map, shape (height, width)."""
    fine = np.empty(laid.size, np.float32)
    loops.upsample(*laid.arrays(), fine)
    return fine


def map_ends(laid: ResizedMap) -> tuple[Floats, int]:
    """Return (array of lowest and highest value, row-major index of the first pixel with the highest value)."""
    ends, place = np.empty(2, np.float32), np.zeros(1, np.int64)
    loops.map_ends(*laid.arrays(), ends, place)
    return ends + np.float32(0), int(place[0])  # turns -0 into 0, because the order of 0 and -0 is undefined


def level_counts(laid: ResizedMap, ends: Floats) -> IntArray:
    """Return the number of pixels at each level 0 to 255 (truncated) of the map, rescaled from `ends` to [0, 255]."""
    counts = np.empty(256, np.int64)
    loops.level_counts(*laid.arrays(), _single(ends), counts)
    return counts


def runs_above(laid: ResizedMap, cut: float) -> Ends:
    """Return the mask of pixels with values strictly above `cut`."""
    room = 16 * laid.size[1] + 64
    single, n_ends = np.array([cut], np.float32), np.empty(1, np.int64)
    while True:
        ends = np.empty(room, np.int32)
        loops.runs_above(*laid.arrays(), single, ends, n_ends)
        if n_ends[0] <= room:
            return ends[: n_ends[0]].copy()
        room = int(n_ends[0])


def fill_runs(ends: Ends, height: int) -> Ends:
    """Return a mask with its holes filled, without isolated pixels (none of whose eight neighbours is in the mask)."""
    filled, n_ends = np.empty(len(ends), np.int32), np.empty(1, np.int64)
    loops.fill_runs(_ends(ends), height, filled, n_ends)
    return filled[: n_ends[0]].copy()


def counts_above(laid: ResizedMap, cuts: Floats, ends: Ends) -> IntArray:
    """Return the number of pixels above each of the increasing `cuts`, in the image and inside a mask: shape (2, n)."""
    counts = np.empty((2, len(cuts)), np.int64)
    loops.counts_above(*laid.arrays(), _single(cuts), _ends(ends), counts)
    return counts


def _single(numbers: Floats) -> Floats:
    return np.ascontiguousarray(numbers, np.float32)


def _counts(counts: Counts) -> Counts:
    return np.ascontiguousarray(counts, np.float32)


def _ends(ends: Ends) -> Ends:
    return np.ascontiguousarray(ends, np.int32)


def _whole(numbers: IntArray) -> IntArray:
    return np.ascontiguousarray(numbers, np.int64)
