"""Array types for signatures (float64, int64 and bool of any shape), reading of NumPy files, and a mean without NaN.

Docstrings state the shapes. NaN means an undefined score throughout the package.
"""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def read_npy(stream: IO[bytes], n_bytes: int) -> npt.NDArray[Any]:
    """Return the array in a NumPy file, read from a seekable stream of `n_bytes` bytes.

    Raises
    ------
    ValueError
        If the stream is not a NumPy file, contains Python objects, or has a header that claims more values than it has.
    """
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"a NumPy file of version {version[0]}.{version[1]}")
    shape, _, dtype = readers[version](stream)
    if math.prod(shape) * dtype.itemsize > n_bytes:
        raise ValueError(f"the header claims the shape {shape} of {dtype}, but the file has {n_bytes:,} bytes")
    stream.seek(0)
    array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array
