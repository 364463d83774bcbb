"""Run lengths of the SIIM-ACR challenge: pairs of a gap and a length, column by column."""

from __future__ import annotations

import numpy as np

from reveal_bench.masks.run_lengths import PackedMasks


class MaskError(ValueError):
    """The error of a mask's text, with the rule that it breaks and the offending value."""

    def __init__(self, rule: str, value: object) -> None:
        super().__init__(f"{rule}, got {value}")
        self.rule, self.value = rule, value


def decode_relative(text: str, size: tuple[int, int]) -> PackedMasks:
    """Return a mask of `size` (height, width), decoded from the challenge's pairs of gap and length.

    Raises
    ------
    MaskError
        If `text` is not a list of such pairs, or extends beyond the picture.

    Examples
    --------
    >>> decode_relative("1 2 3 1", (3, 3)).dense(0).astype(int)
    array([[0, 0, 1],
           [1, 0, 0],
           [1, 0, 0]])
    """
    height, width = size
    n_pixels = height * width
    tokens = text.split()
    if not tokens or len(tokens) % 2 or not all(token.isascii() and token.isdigit() for token in tokens):
        raise MaskError("must be -1 or pairs of gap and length", repr(text[:40]))
    if max(map(len, tokens)) > len(str(n_pixels)):
        raise MaskError(f"must only contain numbers up to {n_pixels}", max(tokens, key=len)[:40])
    runs = np.array(tokens, np.int64)
    if (runs[1::2] == 0).any():
        raise MaskError("must have lengths above 0", 0)
    if runs.sum() > n_pixels:
        raise MaskError(f"must end within {height} x {width} = {n_pixels} pixels", runs.sum())
    ends = np.cumsum(runs)
    ends = ends if ends[-1] == n_pixels else np.append(ends, n_pixels)
    return PackedMasks(np.array([[height, width]], np.int64), ends.astype(np.int32), np.array([0, len(ends)], np.int64))
