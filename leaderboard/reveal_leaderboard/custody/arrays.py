"""Named arrays in a file: .npz as numpy writes it, and a reader that takes nothing else.

Conventions
-----------
The file is a zip archive of ``name.npy`` members, stored without compression, so that its size bounds what it becomes
in memory. The reader asks for exact names, dtypes and numbers of axes, and never unpickles.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds.canonical import Fields

__all__ = [
    "MOST_BYTES",
    "list_arrays",
    "read_arrays",
    "write_arrays",
]

MOST_BYTES = 256 << 20
_HEADER_BYTES = 512  # of a .npy member; numpy's own are 128


def write_arrays(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write `arrays`; the same arrays give the same bytes."""
    np.savez(file, **{name: np.ascontiguousarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]


def list_arrays(file: BinaryIO) -> list[str]:
    """Names of the arrays in a file; empty if it is not an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile:
        return []


def read_arrays(file: BinaryIO, fields: Fields) -> dict[str, npt.NDArray[Any]]:
    """Read exactly the arrays named by `fields`; they cannot be written to.

    Raises
    ------
    ValueError
        If the file is too large, is not an archive of these arrays, or one has another dtype or number of axes.
    """
    size = file.seek(0, io.SEEK_END)
    if size > MOST_BYTES:
        raise ValueError(f"the arrays may have at most {MOST_BYTES} bytes, got {size}")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if sorted(names) != sorted(f"{name}.npy" for name in fields):
                raise ValueError(f"the arrays must be {sorted(fields)}, got {names[:50]}")
            return {m.filename[:-4]: _read_member(archive, m, *fields[m.filename[:-4]]) for m in members}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"the file must be an archive of arrays: {error}") from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, dtype: str, n_axes: int) -> npt.NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > MOST_BYTES:
        raise ValueError(f"array {member.filename!r} must be stored without compression")
    data = archive.read(member)
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"array {member.filename!r} must be of .npy version 1.0")
    shape, is_fortran, found = np.lib.format.read_array_header_1_0(stream, max_header_size=_HEADER_BYTES)
    if found != np.dtype(dtype) or len(shape) != n_axes or (is_fortran and n_axes > 1):
        raise ValueError(f"array {member.filename!r} must be of {dtype} with {n_axes} axes, got {found}, shape {shape}")
    n_items = 1
    for side in shape:
        n_items *= side
    if min(shape, default=0) < 0 or n_items * found.itemsize != len(data) - stream.tell():
        raise ValueError(f"array {member.filename!r} must fill its place in the archive, got shape {shape}")
    array: npt.NDArray[Any] = np.frombuffer(data, found, offset=stream.tell()).reshape(shape)
    return array
