"""Measurement of a picture's contrast from its grey levels: whether it shows anything.

A wrong display window makes a radiograph black, white, or black and white without grey. Such pictures are found by the
number of pixels at each grey level, without padding, so that collimated borders that the file declares do not count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LEAST_CONTRAST = 16
"""Least difference between the grey levels below which 1% and 99% of the pixels are, of 255."""
MOST_CLIPPED = 0.95
"""Largest proportion of pixels that may be black (0) or white (255)."""

Counts = npt.NDArray[np.integer]


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
    if not total:
        return "every pixel is padding"
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
