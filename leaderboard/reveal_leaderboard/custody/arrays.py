"""Named arrays in a file: .npz as numpy writes it, and a reader that takes nothing else.

Conventions
-----------
The file is a zip archive of ``name.npy`` members, stored without compression, so that its size bounds what it becomes
in memory. The reader asks for exact names, dtypes and numbers of axes, and never unpickles.

Masks as run-length text, all in one spelling, in one array; and back, checked.

Conventions
-----------
The text is COCO's compressed run lengths, spelt as pycocotools spells them whatever the sender wrote: no run of length
zero but the first, no code longer than it need be. Mask i is ``text[offsets[i]:offsets[i + 1]]``; its size is known
elsewhere.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import IntArray
from reveal_bench.masks import Rle, pack_masks, parse_masks

__all__ = [
    "Fields",
    "MOST_BYTES",
    "count_codes",
    "list_arrays",
    "masks_from_text",
    "read_arrays",
    "text_of_masks",
    "write_arrays",
]

MOST_BYTES = 256 << 20
_HEADER_BYTES = 512  # of a .npy member; numpy's own are 128

Fields = Mapping[str, tuple[str, int]]
"""Name -> (dtype such as "<f8", number of axes)."""


def write_arrays(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write `arrays`; the same arrays give the same bytes."""
    np.savez(file, **{name: np.ascontiguousarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]


def list_arrays(file: BinaryIO) -> list[str]:
    """Names of the arrays in a file; empty if it is no archive."""
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
        If the file is too large, is no archive of these arrays, or one has another dtype or number of axes.
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


_TEXT_AT_ONCE = 1 << 20  # characters: what is made of them fits into the processor's cache
_MOST_CHARACTERS = 7  # of one run

Text = npt.NDArray[np.uint8]


def count_codes(rle: Rle) -> int:
    """Runs that the text of a mask spells: characters that end a code."""
    text = np.frombuffer(rle.counts.encode(), np.uint8)
    return int(np.count_nonzero((text - 48) & 0x20 == 0))


def text_of_masks(masks: Sequence[Rle]) -> tuple[Text, IntArray]:
    """The text of all masks, and the offsets of each, shape (n + 1,).

    Raises
    ------
    ValueError
        If a mask is malformed.
    """
    texts, lengths = [np.zeros(0, np.uint8)], [np.zeros(1, np.int64)]
    for batch in _batches([len(rle.counts) for rle in masks]):
        packed = pack_masks(masks[batch])
        text, n_characters = _spell(packed.ends, packed.offsets)
        texts.append(text)
        lengths.append(n_characters)
    return np.concatenate(texts), np.cumsum(np.concatenate(lengths))


def masks_from_text(
    text: Text, offsets: IntArray, sizes: Sequence[tuple[int, int]], *, most_runs: int
) -> tuple[Rle, ...]:
    """The masks back.

    Parameters
    ----------
    sizes : (height, width) of each mask
    most_runs : of one mask

    Raises
    ------
    ValueError
        If offsets do not fit the text, or a mask is malformed, does not fill its size or has too many runs.
    """
    if len(offsets) != len(sizes) + 1 or offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
        raise ValueError(f"the offsets of {len(sizes)} masks must rise from 0 to {len(text)}")
    spelt = text.tobytes().decode("latin-1")
    places = offsets.tolist()
    masks = tuple(Rle(size, spelt[a:b]) for size, a, b in zip(sizes, places[:-1], places[1:], strict=True))
    for batch in _batches(np.diff(offsets).tolist()):
        packed, problems = parse_masks(masks[batch])
        if problems:
            raise ValueError(f"a mask is malformed: {next(iter(problems.values()))}")
        if (np.diff(packed.offsets) > most_runs).any():
            raise ValueError(f"a mask may have at most {most_runs} runs, got {int(np.diff(packed.offsets).max())}")
    return masks


def _batches(lengths: Sequence[int]) -> Iterator[slice]:
    start = n_characters = 0
    for i, length in enumerate(lengths):
        n_characters += length
        if n_characters >= _TEXT_AT_ONCE:
            yield slice(start, i + 1)
            start, n_characters = i + 1, 0
    if start < len(lengths):
        yield slice(start, len(lengths))


def _spell(ends: npt.NDArray[np.int32], offsets: IntArray) -> tuple[Text, IntArray]:
    """Text of packed masks, and the number of characters of each."""
    runs = np.diff(ends, prepend=ends.dtype.type(0))
    runs[offsets[:-1]] = ends[offsets[:-1]]
    values = runs.copy()
    values[2:] -= runs[:-2]  # a code is the difference to the run two before,
    for place in range(3):  # but for the first three of a mask
        early = offsets[:-1] + place
        early = early[early < offsets[1:]]
        values[early] = runs[early]
    # 5 bits a character, low first, sign-extended
    n_characters = np.ones(len(values), np.int8)
    for more in range(1, _MOST_CHARACTERS):
        n_characters += (values >= 1 << 5 * more - 1) | (values < -(1 << 5 * more - 1))
    stops = np.cumsum(n_characters, dtype=np.int64)
    starts = stops - n_characters
    text = np.empty(int(stops[-1]), np.uint8)
    which = np.arange(len(values))
    for place in range(_MOST_CHARACTERS):
        continued = n_characters[which] > place + 1
        text[starts[which] + place] = (values[which] & 0x1F) + 48 + (continued.astype(np.int32) << 5)
        which = which[continued]
        if len(which) == 0:
            break
        values[which] >>= 5
    return text, np.diff(stops[offsets[1:] - 1], prepend=0)
