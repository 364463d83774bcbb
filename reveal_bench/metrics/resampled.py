"""Scores of groups (findings, labels or criteria) by one metric, with the inputs of their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reveal_bench.arrays import FloatArray, IntArray


class AnyEvidence(Protocol):
    """Inputs of closed-form intervals of a macro and its groups."""

    def over(self, averaged: IntArray) -> AnyEvidence:
        """Return the evidence with the macro over the `averaged` groups."""
        ...

    def ends(self, values: FloatArray) -> FloatArray:
        """Return both bounds of the macro and every group, (2, 1 + n_groups); NaN if there is no interval."""
        ...

    def missing_reasons(self, values: FloatArray, ends: FloatArray) -> list[str]:
        """Return, for each column, why it has no interval; empty if it has an interval, or no value."""
        ...


class Resampled(Protocol):
    """Values of each group for one system and metric, in the data and in every replicate."""

    @property
    def values(self) -> FloatArray:
        """Values in the data, (n_groups,)."""
        ...

    @property
    def replicates(self) -> FloatArray:
        """Values in every replicate, (n_resamples, n_groups)."""
        ...

    @property
    def n(self) -> IntArray:
        """Number of rows of each group, (n_groups,)."""
        ...

    @property
    def weights(self) -> FloatArray | None:
        """Number of rows of each unit in each group, (n_units, n_groups); None if :meth:`left_out` returns None."""
        ...

    @property
    def positive_units(self) -> IntArray | None:
        """Number of units with each finding, (n_groups,), if units without it also contribute; otherwise None."""
        ...

    @property
    def behind(self) -> IntArray | None:
        """Number of units that support each value, (n_groups,); None if :attr:`weights` shows it."""
        ...

    @property
    def n_undefined(self) -> IntArray | None:
        """Number of undefined rows of each group, which are left out, (n_groups,); None if there are none."""
        ...

    def left_out(self) -> FloatArray | None:
        """Return the values without each unit, (n_units, n_groups); None if computing them would take too long."""
        ...

    def ratio_parts(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the numerators and denominators of each unit, (n_units, n_groups) each; None if they are unknown.

        A value is the sum of the numerators over the sum of the denominators.
        """
        ...

    def evidence(self, averaged: IntArray | None = None) -> AnyEvidence | None:
        """Return the inputs of closed-form intervals; None if there is no closed form.

        The first column is the macro over the `averaged` groups, by default all with a value.
        """
        ...


@dataclass(frozen=True)
class Figures:
    """Values that are not means: `values` and `n` (n_groups,), `replicates` (n_resamples, n_groups); NaN if undefined.

    `without` is returned by :meth:`left_out` and `parts` by :meth:`ratio_parts`. `support` contains the other inputs of
    intervals, with the macro over all groups. `weights`, `positive_units` and `behind` are as in
    :class:`Resampled`, if known; `n_undefined` (n_groups,) counts the rows left out because they are undefined.
    """

    values: FloatArray
    replicates: FloatArray
    n: IntArray
    without: FloatArray | None = None
    weights: FloatArray | None = None
    positive_units: IntArray | None = None
    behind: IntArray | None = None
    parts: tuple[FloatArray, FloatArray] | None = None
    support: AnyEvidence | None = None
    n_undefined: IntArray | None = None

    def left_out(self) -> FloatArray | None:
        """Return the values without each unit, if known."""
        return self.without

    def ratio_parts(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the numerators and denominators of each unit, if known."""
        return self.parts

    def evidence(self, averaged: IntArray | None = None) -> AnyEvidence | None:
        """Return the inputs of the intervals, if known."""
        return self.support if self.support is None or averaged is None else self.support.over(averaged)


def mean_of_defined(values: FloatArray) -> FloatArray:
    """Return the mean over the last axis, without NaN; NaN if nothing is defined.

    Examples
    --------
    >>> mean_of_defined(np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan]])).tolist()
    [1.5, nan]
    """
    defined = ~np.isnan(values)
    count = defined.sum(axis=-1)
    # Contiguous, so that equal numbers add up in the same order whatever array contains them
    whole = np.ascontiguousarray(np.where(defined, values, 0.0))
    mean: FloatArray = whole.sum(axis=-1) / np.where(count == 0, np.nan, count)
    return mean
