"""Measurement of a picture's contrast from its grey levels: whether it shows anything.

A wrong display window makes a radiograph black, white, or black and white without grey. Such pictures are found by the
number of pixels at each grey level. Padding and a border of one value do not count, because the exposed field of a
small child or a finger is only a few percent of the detector. A border that leaves less than 1% of the picture counts,
because a lone letter is not a picture.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LEAST_CONTRAST = 16
"""Least difference between the grey levels below which 1% and 99% of the pixels are, of 255."""
MOST_CLIPPED = 0.98
"""Largest proportion of pixels that may be black (0) or white (255).

A premature infant's chest of 6 x 8 cm is 3% of a detector of 35 x 43 cm, and letters may lie outside the field.
"""
LEAST_WITHIN_BORDER = 0.01
"""Least proportion of the picture within its border; with less, the border counts."""
_COUNTED_AT_ONCE = 1 << 20

Counts = npt.NDArray[np.integer]


def counts_within_border(pixels: npt.NDArray[np.unsignedinteger]) -> Counts:
    """Count the values of a picture, without the outer rows and columns of a single value.

    Parameters
    ----------
    pixels : uint8 or uint16 array, shape (height, width)

    Returns
    -------
    int64 array, shape (256,) or (65536,)
        Number of pixels at each value. If less than 1% of the picture is within the border, all its pixels count.
    """
    differs = pixels != pixels[0, 0]
    rows, columns = (np.flatnonzero(differs.any(axis=axis)) for axis in (1, 0))
    if len(rows):
        inner = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        pixels = inner if inner.size >= LEAST_WITHIN_BORDER * pixels.size else pixels
    counts = np.zeros(1 << 8 * pixels.dtype.itemsize, dtype=np.int64)
    n_rows = max(1, _COUNTED_AT_ONCE // pixels.shape[1])
    for start in range(0, len(pixels), n_rows):  # np.bincount needs 8 bytes per pixel
        counts += np.bincount(pixels[start : start + n_rows].reshape(-1), minlength=len(counts))
    return counts


def contrast_fault(counts: Counts) -> str:
    """Return what is wrong with the contrast of a picture, as a clause such as "every pixel is black"; "" if nothing.

    Parameters
    ----------
    counts : integer array, shape (256,)
        Number of pixels at each grey level.

    Examples
    --------
    >>> ramp = np.ones(256, dtype=int)
    >>> contrast_fault(ramp)
    ''
    >>> contrast_fault(np.bincount([0] * 9, minlength=256))
    'every pixel is black'
    >>> contrast_fault(np.bincount([0, 0, 0, 255], minlength=256))
    '100.0% of the pixels are black or white'
    """
    total = int(counts.sum())
    used = np.flatnonzero(counts)
    if len(used) == 1:
        return f"every pixel is {_GREYS.get(int(used[0]), f'grey level {used[0]}')}"
    clipped = (int(counts[0]) + int(counts[255])) / total
    if clipped > MOST_CLIPPED:
        return f"{100 * clipped:.1f}% of the pixels are black or white"
    shares = np.cumsum(counts) / total
    low, high = (int(np.argmax(shares >= share)) for share in (0.01, 0.99))
    if high - low < LEAST_CONTRAST:
        return f"98% of the pixels are between grey levels {low} and {high} of 255"
    return ""


_GREYS = {0: "black", 255: "white"}
