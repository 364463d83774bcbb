"""Heat maps as CheXlocalize publishes them: pickles of torch's tensors in its legacy form, written byte by byte."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["published_pickle", "storage_bytes", "tensor_pickle"]

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


def published_pickle(
    heat_map: npt.NDArray[np.float32], *, task: str, probability: float, size: tuple[int, int]
) -> bytes:
    """The pickle of one map (h, w) of a finding on an image of `size` (height, width)."""
    items: Mapping[str, bytes] = {
        "map": tensor_pickle(heat_map[None, None]),
        "prob": b"G" + struct.pack(">d", probability),
        "task": _text(task),
        "gt": b"K\x01",
        "cxr_img": tensor_pickle(np.zeros((3, 2, 2), np.float32)),
        "cxr_dims": _whole(size[1]) + _whole(size[0]) + b"\x86",
    }
    return b"\x80\x03}(" + b"".join(_text(name) + value for name, value in items.items()) + b"u."


def tensor_pickle(values: npt.NDArray[np.float32]) -> bytes:
    """The opcodes that push a tensor: a function's name, its arguments, and the call."""
    storage = b"ctorch.storage\n_load_from_bytes\n" + _bytes(storage_bytes(values.ravel())) + b"\x85R"
    strides = np.cumprod([1, *values.shape[:0:-1]])[::-1].tolist()
    sides = (b"(" + b"".join(map(_whole, part)) + b"t" for part in (values.shape, strides))
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + b"".join(sides) + b"\x89" + hooks + b"tR"


def storage_bytes(values: npt.NDArray[np.float32], *, key: str = "94210") -> bytes:
    """A storage in torch's legacy form."""
    pid = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(key) + _text("cpu") + _whole(len(values)) + b"Nt"
    system = {"protocol_version": _PROTOCOL, "little_endian": True}
    head = b"".join(pickle.dumps(part, 2) for part in (_MAGIC, _PROTOCOL, system))
    keys = pickle.dumps([key], 2)
    return head + b"\x80\x02" + pid + b"Q." + keys + struct.pack("<q", len(values)) + values.astype("<f4").tobytes()


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(data)) + data


def _whole(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)
