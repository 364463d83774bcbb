"""Pickles as published are read; everything else in a pickle is refused by its name, and nothing in it runs."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.saliency_maps.pickles import PickleError, parse_pickle, read_pickle
from tests.saliency.published import published_pickle, storage_bytes, tensor_pickle

HEAT = np.linspace(-1, 3, 12, dtype=np.float32).reshape(3, 4)


def write(folder: Path, data: bytes) -> Path:
    path = folder / "a_Edema_map.pkl"
    path.write_bytes(data)
    return path


def test_a_published_pickle_is_read(tmp_path: Path) -> None:
    result = read_pickle(write(tmp_path, published_pickle(HEAT, task="Edema", probability=0.25, size=(2828, 2320))))
    assert np.array_equal(result["map"], HEAT[None, None])
    assert result["map"].dtype == np.float32
    assert (result["prob"], result["task"], result["gt"], result["cxr_dims"]) == (0.25, "Edema", 1, (2320, 2828))
    assert result["cxr_img"].shape == (3, 2, 2)


def tensor(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, storage: bytes | None = None) -> bytes:
    """A pickle of one tensor whose parts need not fit."""
    data = storage_bytes(HEAT.ravel()) if storage is None else storage
    parts = [
        b"\x80\x03ctorch._utils\n_rebuild_tensor_v2\n(ctorch.storage\n_load_from_bytes\nB",
        struct.pack("<I", len(data)), data, b"\x85RJ", struct.pack("<i", offset),
        *(b"(" + b"".join(b"J" + struct.pack("<i", n) for n in part) + b"t" for part in (size, stride)),
        b"\x89NtR.",
    ]  # fmt: skip
    return b"\x80\x03}X\x03\x00\x00\x00map" + b"".join(parts)[2:-1] + b"s."


def test_views_of_a_storage_are_taken_as_they_are_said(tmp_path: Path) -> None:
    result = read_pickle(write(tmp_path, tensor((2, 3), (1, 4), offset=1)))["map"]
    assert np.array_equal(result, [[HEAT.ravel()[1 + i + 4 * j] for j in range(3)] for i in range(2)])


class Runs:
    """An object with which an attacker's pickle runs code."""

    def __reduce__(self) -> Any:
        return os.system, ("touch reveal-bench-was-run",)


def calls(module: str, name: str) -> bytes:
    return b"\x80\x03c" + f"{module}\n{name}\n".encode() + b"X\x01\x00\x00\x00a\x85R."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps({"map": Runs()}), "it names 'posix.system', which could run code"),
        (calls("builtins", "eval"), "it names 'builtins.eval'"),
        (calls("torch.storage", "_load_from_bytes.__globals__"), "it names 'torch.storage._load_from_bytes.__gl"),
        (calls("torch", "load"), "it names 'torch.load'"),
        (calls("collections", "OrderedDict"), "an OrderedDict must be empty"),
        (b"\x80\x03U\x01aQ.", "persistent ids are allowed only in a storage"),
        (tensor((1 << 20, 1 << 20), (0, 0)), "it must fit into its storage of 12 numbers"),
        (tensor((4, 4), (4, 1)), "it must fit into its storage of 12 numbers"),
        (tensor((3, 4), (4, 1), offset=1), "it must fit into its storage of 12 numbers"),
        (tensor((3, 4), (4,)), "must be whole numbers that fit"),
        (tensor((2, 2), (-1, 1), offset=5), "must be whole numbers that fit"),
        (tensor((1,) * 9, (1,) * 9), "must be a tuple of at most 8 numbers"),
        (tensor((3, 4), (4, 1), storage=calls("os", "system")), "it names 'os.system'"),
        (tensor((3, 4), (4, 1), storage=storage_bytes(HEAT.ravel())[:-4]), "as many numbers, got 12 and 44 bytes"),
        (tensor((3, 4), (4, 1), storage=tensor((3, 4), (4, 1))), "it names 'torch._utils._rebuild_tensor_v2'"),
        (tensor((3, 4), (4, 1), storage=pickle.dumps(1, 2) * 3), "torch's magic number and protocol, got 1, 1"),
        (b"\x80\x03}r\x00\x00\x00\x10.", "at most 100,000 opcodes, and no larger index in its memo"),
        (b"\x80\x03ccollections\nOrderedDict\n)R}b.", "it has the opcode BUILD, which no heat map needs"),
        (b"\x80\x03" + b"]" * 100_001 + b".", "at most 100,000 opcodes"),
        (pickle.dumps([1]), "must contain a dictionary with the key `map`, got list"),
        (b"", "is not a complete pickle: ValueError"),
        (b"not a pickle", "is not a complete pickle"),
    ],
)  # fmt: skip
def test_hostile_and_damaged_pickles_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(PickleError, match=re.escape(message)) as caught:
        read_pickle(path)
    assert str(path) in str(caught.value)
    assert not Path("reveal-bench-was-run").exists()


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_bytes_turned_at_random_never_do_more_than_fail() -> None:
    whole = bytearray(published_pickle(HEAT, task="Edema", probability=0.25, size=(28, 23)))
    rng = np.random.default_rng(8)
    n_read = 0
    for i in range(10_000):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 1 + i % 4):
            data[at] = int(rng.integers(0, 256))
        with contextlib.suppress(PickleError):
            n_read += bool(parse_pickle(bytes(data[: len(data) - (i % 7 == 0) * int(rng.integers(1, 400))]), "it"))
    assert 100 < n_read < 9_900  # some only change a number


def test_large_files_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveal_bench.saliency_maps.pickles.MOST_BYTES", 100)
    with pytest.raises(PickleError, match="must have at most 100 bytes, got 1"):
        read_pickle(write(tmp_path, b"x" * 101))


def test_tensors_of_the_phantom_are_whole(tmp_path: Path) -> None:
    data = b"\x80\x03}X\x03\x00\x00\x00map" + tensor_pickle(HEAT) + b"s."
    assert np.array_equal(read_pickle(write(tmp_path, data))["map"], HEAT)
