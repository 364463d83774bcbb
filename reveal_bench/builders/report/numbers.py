"""Shares with 95 % Wilson score intervals (Wilson 1927, J Am Stat Assoc 22:209)."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Share", "wilson_interval"]

Z = 1.959963984540054
"""Standard normal quantile of 0.975."""


@dataclass(frozen=True, slots=True)
class Share:
    """`n` of `of`, with the interval of the share; `value` is NaN of none."""

    name: str
    n: int
    of: int

    @property
    def value(self) -> float:
        """The share in [0, 1]."""
        return self.n / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high)."""
        return wilson_interval(self.n, self.of)

    @property
    def text(self) -> str:
        """Such as ``187 of 668, 28.0 % (24.7 to 31.5)``."""
        if not self.of:
            return "0 of 0"
        low, high = self.interval
        return f"{self.n:,} of {self.of:,}, {100 * self.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def wilson_interval(n: int, of: int) -> tuple[float, float]:
    """95 % Wilson score interval of the share n / of; (NaN, NaN) of none.

    Raises
    ------
    ValueError
        If `n` does not lie in [0, `of`].

    Examples
    --------
    >>> [round(bound, 4) for bound in wilson_interval(0, 10)]
    [0.0, 0.2775]
    """
    if not 0 <= n <= of:
        raise ValueError(f"`n` must lie in [0, {of}], got {n}")
    if of == 0:
        return math.nan, math.nan
    share, square = n / of, Z * Z
    centre = (share + square / (2 * of)) / (1 + square / of)
    half = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return max(0.0, centre - half), min(1.0, centre + half)
