"""Masks as run-length text, all in one spelling, in one array; and back, checked.

Conventions
-----------
The text is COCO's compressed run lengths, spelt as pycocotools spells them whatever the sender wrote: no run of length
zero but the first, no code longer than it need be. Mask i is ``text[offsets[i]:offsets[i + 1]]``; its size is known
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from reveal_bench.masks import Rle, pack_masks, parse_masks

__all__ = ["count_codes", "masks_from_text", "text_of_masks"]

_TEXT_AT_ONCE = 1 << 20  # characters: what is made of them fits into the processor's cache
_MOST_CHARACTERS = 7  # of one run

Text = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]


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
