"""Names of array types for signatures: float64, int64 and bool of any shape. Docstrings give the shapes.

Also the mean that leaves out NaN, which means an undefined score everywhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def mean_of_defined(values: FloatArray) -> FloatArray:
    """Return the mean over the last axis, without NaN; NaN if nothing is defined.

    Examples
    --------
    >>> mean_of_defined(np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan]])).tolist()
    [1.5, nan]
    """
    defined = ~np.isnan(values)
    count = defined.sum(axis=-1)
    # Contiguous, so that equal numbers add up in the same order whatever array contains them
    whole = np.ascontiguousarray(np.where(defined, values, 0.0))
    mean: FloatArray = whole.sum(axis=-1) / np.where(count == 0, np.nan, count)
    return mean
