"""Read heat maps from the pickles that CheXlocalize publishes, without torch and without running code in a pickle.

Loading a pickle can call any function. Therefore this module calls only its own code for dictionaries and tensors. The
module refuses any other name, and tensors whose size, stride and storage do not fit together. Before reading a pickle,
the module refuses opcodes that set attributes or make objects. The module also refuses memo indices larger than any
heat map needs, because the memo would need as much memory. Numbers are copied from the file, and a storage must contain
all of its numbers, so memory use stays within a few times the size of the file.

A pickle is a dictionary with ``map`` (a float tensor), ``prob`` (a number, or one per label of CheXpert), ``task``,
``gt``, ``cxr_img`` and ``cxr_dims`` (width, height). A tensor refers to a storage, which is bytes in torch's legacy
format: a magic number, the protocol number 1001, a dictionary, a persistent id, the list of keys, and for each key a
count and raw values.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_BYTES = 1 << 28
"""Maximum size of a file, in bytes; published files have 1.6 MB."""
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_MOST_SIDES = 8
_MOST_OPCODES = 100_000
_NOT_NEEDED = {"BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID"}
_DTYPES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8", "IntStorage": "<i4",
    "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1", "BoolStorage": "?",
}  # fmt: skip
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError,
    RecursionError, MemoryError, struct.error,
)  # fmt: skip

Values = npt.NDArray[Any]


class PickleError(ValueError):
    """A pickle is not a heat map, or contains something that may not be read."""


class _Refused(pickle.UnpicklingError):
    """A pickle contains a name or size that is not allowed; this error's text is part of PickleError's message."""


def read_pickle(path: Path) -> dict[str, Any]:
    """Read the dictionary of a pickle: numbers, texts, tuples, and tensors as arrays.

    Raises
    ------
    PickleError
        If the file is too large, contains anything else, or is damaged; the message names the file and the problem.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise PickleError(f"{path} must have at most {MOST_BYTES:,} bytes, got {size:,}")
    return parse_pickle(path.read_bytes(), str(path))


def parse_pickle(data: bytes, name: str) -> dict[str, Any]:
    """Parse the bytes of a pickle like :func:`read_pickle`; messages call the file `name`."""
    try:
        contents = _TensorUnpickler(_checked(io.BytesIO(data))).load()
    except _Refused as error:
        raise PickleError(f"{name} is refused: {error}") from None
    except _BROKEN as error:
        raise PickleError(f"{name} is not a complete pickle: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(contents, dict):
        raise PickleError(f"{name} must contain a dictionary with the key `map`, got {type(contents).__name__}")
    return contents


def _checked(stream: io.BytesIO) -> io.BytesIO:
    """Return the next pickle in `stream`; refuse opcodes that no heat map needs."""
    start = stream.tell()
    for n, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if opcode.name in _NOT_NEEDED:
            raise _Refused(f"it has the opcode {opcode.name}, which no heat map needs")
        if n >= _MOST_OPCODES or (opcode.name.endswith("PUT") and int(argument or 0) > _MOST_OPCODES):
            raise _Refused(f"it must have at most {_MOST_OPCODES:,} opcodes, and no larger index in its memo")
    return io.BytesIO(stream.getbuffer()[start : stream.tell()])


class _TensorUnpickler(pickle.Unpickler):
    """Unpickler for the outer pickle, which is a dictionary with tensors."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            "torch._utils._rebuild_tensor_v2": self._rebuild,
            "torch.storage._load_from_bytes": self._load_storage,
            "collections.OrderedDict": _empty,
        }
        return _named(known, module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("persistent ids are allowed only in a storage")

    def _load_storage(self, data: Any) -> Values:
        if not isinstance(data, bytes):
            raise _Refused(f"a storage must be bytes, got {type(data).__name__}")
        return _read_storage(data)

    def _rebuild(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Values:
        """Return a tensor as an array with its own memory."""
        if not isinstance(storage, np.ndarray):
            raise _Refused(f"a tensor must have a storage, got {type(storage).__name__}")
        sides = [offset, *_whole("size", size), *_whole("stride", stride)]
        if len(size) != len(stride) or not all(_is_count(side) for side in sides):
            raise _Refused(
                f"a tensor's offset, size {size!r:.80} and stride {stride!r:.80} must be whole numbers that fit"
            )
        n = int(np.prod(size, dtype=object))
        last = offset + sum((side - 1) * step for side, step in zip(size, stride, strict=True))
        if n > len(storage) or (n and last >= len(storage)):
            rule = f"it must fit into its storage of {len(storage)} numbers"
            raise _Refused(f"a tensor of size {size!r:.80} and stride {stride!r:.80}: {rule}")
        bytes_apart = [step * storage.itemsize for step in stride]
        view = np.lib.stride_tricks.as_strided(storage[offset:], size, bytes_apart, writeable=False)
        return np.array(view) if n else np.zeros(size, storage.dtype)


class _StorageUnpickler(pickle.Unpickler):
    """Unpickler for a pickle inside a storage."""

    def find_class(self, module: str, name: str) -> Any:
        known = {f"torch.{kind}": kind for kind in _DTYPES} | {"collections.OrderedDict": _empty}
        return _named(known, module, name)

    def persistent_load(self, pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) == 6 and pid[0] == "storage" and pid[1] in _DTYPES):
            raise _Refused(f"a storage's id must state the type of numbers, got {pid!r:.80}")
        return pid


def _read_storage(data: bytes) -> Values:
    """Return the numbers of a storage in torch's legacy format."""
    stream = io.BytesIO(data)
    magic, protocol, _ = (_StorageUnpickler(_checked(stream)).load() for _ in range(3))
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise _Refused(
            f"a storage must begin with torch's magic number and protocol, got {magic!r:.40}, {protocol!r:.40}"
        )
    pid, keys = (_StorageUnpickler(_checked(stream)).load() for _ in range(2))
    if not isinstance(pid, tuple) or not isinstance(keys, list) or keys != [pid[2]]:
        raise _Refused("a storage must contain only its own key")
    dtype = np.dtype(_DTYPES[pid[1]])
    (n,) = struct.unpack("<q", stream.read(8))
    raw = stream.read()
    if n != pid[4] or len(raw) != n * dtype.itemsize:
        raise _Refused(
            f"a storage of {pid[4]!r:.40} {dtype} must contain as many numbers, got {n} and {len(raw)} bytes"
        )
    return np.frombuffer(raw, dtype)


def _named(known: dict[str, Any], module: str, name: str) -> Any:
    full = f"{module}.{name}"
    if full not in known:
        raise _Refused(f"it names {full!r:.80}, which could run code; only tensors and plain values are read")
    return known[full]


def _empty(*items: Any) -> OrderedDict[str, Any]:
    if items:
        raise _Refused("an OrderedDict must be empty")
    return OrderedDict()


def _whole(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) > _MOST_SIDES:
        raise _Refused(f"a tensor's {name} must be a tuple of at most {_MOST_SIDES} numbers, got {value!r:.80}")
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
