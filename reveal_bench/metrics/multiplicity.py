"""Corrections of p for several tests.

Source: Holm (1979), Scandinavian Journal of Statistics 6.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import FloatArray


def holm(p: npt.ArrayLike) -> FloatArray:
    """Return p corrected by Holm: the i-th of m sorted p is multiplied by m - i + 1, made non-decreasing, and at most
    1.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected
