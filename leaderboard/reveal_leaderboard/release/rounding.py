"""Round the values that a board releases: scores, interval bounds, averages and numbers of cases.

The steps and ranges are settings (:class:`~reveal_leaderboard.settings.ReleasePolicy`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.scored import Spread
from reveal_bench.metrics.jackknife import Z
from reveal_leaderboard.settings import ReleasePolicy

_STEPS = (0.01, 0.02, 0.05, 0.1, 0.25)

_FINEST = 0.001  # step of the grid of possible true values

WIDEST_REACH = 0.05
"""Largest rounding step of interval bounds."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounding by the settings of a release policy.

    Examples
    --------
    >>> Rounding(ReleasePolicy()).band(74), Rounding(ReleasePolicy()).round(0.4649)
    ('60-119', 0.46)
    """

    policy: ReleasePolicy

    def round(self, value: float, step: float | None = None) -> float | None:
        """Return `value` rounded to a multiple of `step`, by default of `resolution`; None for NaN."""
        step = self.policy.resolution if step is None else step
        return None if math.isnan(value) else _multiple(round(value / step), step)

    def round_outwards(self, low: float, high: float, step: float | None = None) -> tuple[float | None, float | None]:
        """Return the bounds of an interval, each rounded outwards to a multiple of `step`; None if undefined."""
        step = self.policy.resolution if step is None else step
        below = None if math.isnan(low) else _multiple(math.floor(low / step + 1e-9), step)
        above = None if math.isnan(high) else _multiple(math.ceil(high / step - 1e-9), step)
        return below, above

    def around(self, rounded: float, below: float, above: float, step: float) -> tuple[float | None, float | None]:
        """Return the bounds of an interval around a rounded score, as rounded distances from the score; None if
        undefined.

        Each bound is a whole number of steps away from the *rounded* value, with steps of at most `WIDEST_REACH`, and
        far enough to include the exact bound. A bound that is rounded separately would reveal where the exact value
        lies within its step. A distance reveals only the interval's length, which depends on the number of cases but
        hardly on the hits.

        Parameters
        ----------
        rounded : the rounded value
        below, above : distances of the exact bounds from the exact value; NaN if undefined
        step : rounding step of the value
        """
        if math.isnan(below) or math.isnan(above):
            return None, None
        reach = min(step, WIDEST_REACH)
        low, high = (max(0, math.ceil((distance + step / 2) / reach - 1e-9)) for distance in (below, above))
        return _multiple(round(rounded / reach) - low, reach), _multiple(round(rounded / reach) + high, reach)

    def consistent(
        self, rounded: float, spread: Spread, step: float, bounds: tuple[float, float]
    ) -> tuple[float | None, float | None]:
        """Return the bounds of an interval that is computed only from the rounded value: the range of possible true
        values.

        A true value is possible if the rounded value is at most 1.96 standard errors away from it, as in Wilson's score
        interval (1927, J. Am. Stat. Assoc. 22), with rounding as a separate error, whose variance is ``step**2 / 12``.

        Parameters
        ----------
        rounded : the rounded value
        spread : function that returns the standard error for a true value
        step : rounding step of the value
        bounds : range of the metric

        Examples
        --------
        >>> import numpy as np
        >>> Rounding(ReleasePolicy()).consistent(0.5, lambda truth: np.sqrt(truth * (1 - truth) / 96), 0.01, (0, 1))
        (0.4, 0.6)
        """
        low, high = bounds
        truths = np.linspace(low, high, round((high - low) / _FINEST) + 1)
        is_possible = np.abs(truths - rounded) <= Z * np.hypot(spread(truths), step / math.sqrt(12)) + 1e-9
        possible = truths[is_possible]
        return self.round_outwards(float(possible[0]), float(possible[-1]), min(step, WIDEST_REACH))

    def step_of(self, n_cases: int, *, positional: bool = False) -> float:
        """Return the rounding step for scores of a finding with `n_cases`, positional scores included."""
        n_reached = sum(start <= n_cases for start in self.policy.bands)
        step = self.policy.band_resolution[max(n_reached, 1) - 1] * (self.policy.place_factor if positional else 1)
        return max(self.policy.resolution, round(step, 6))

    def macro_step(self, n_cases: Sequence[int], *, positional: bool = False) -> float:
        """Return the rounding step of a macro over findings with these numbers of cases, such that no finding is shown
        more precisely than by its own score.

        For positional metrics this is true only if `place_factor` is 1. A macro over one finding has the step of that
        finding.
        """
        if len(n_cases) == 1:
            return self.step_of(n_cases[0], positional=positional)
        coarsest = max(map(self.step_of, n_cases), default=self.policy.resolution)
        if coarsest == self.policy.resolution:
            return self.policy.resolution
        wanted = max(self.policy.resolution, coarsest / len(n_cases))
        return next((step for step in _STEPS if step >= wanted - 1e-9), coarsest)

    def band(self, n: int) -> str:
        """Return the range that contains `n`, such as "60-119"; "fewer than 30" below the first."""
        reached = [start for start in self.policy.bands if start <= n]
        if not reached:
            return f"fewer than {self.policy.bands[0]}"
        rest = self.policy.bands[len(reached) :]
        return f"{reached[-1]}-{rest[0] - 1}" if rest else f"{reached[-1]}+"


def is_positional(metric: str) -> bool:
    """Return True if a metric scores predicted positions."""
    return any(metric in kind.release.positional_metrics for kind in KINDS.values())


def _multiple(steps: int, step: float) -> float:
    """Return `steps` times `step`, rounded so that it prints as a short decimal."""
    return round(steps * step, 6) + 0.0  # no -0.0
