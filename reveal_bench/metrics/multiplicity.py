"""Corrections of p for several tests.

Source: Holm (1979), Scandinavian Journal of Statistics 6.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import FloatArray


def holm(p: npt.ArrayLike) -> FloatArray:
    """Return Holm's correction of several p: of m sorted p, the i-th times m - i + 1, never falling, at most 1.

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
