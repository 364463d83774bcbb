"""Sign-flip tests over patients: p values of paired differences, and of all pairs of systems at once.

Conventions
-----------
A mean of rows is the sum of the patients' contributions. For any score this is approximately true: unit u contributes
``value - (1 - h) left_out``, with h the proportion of all rows that u has and `left_out` the score without it. For
means these are exactly the contributions; for F1 and kappa they are weighted pseudo-values. A difference of two systems
is the sum of the differences d of their contributions, and if neither is better, d could equally have the other sign.

* p is the proportion of sign patterns whose absolute sum exceeds the observed one, ties counting half (mid-p, because
  the differences of hits are few whole numbers). Below 2**12 patterns all are used, otherwise one sample of them,
  shared by all metrics and findings.
* If the systems differ in fewer than :data:`LEAST_DIFFERING` patients, p is NaN, or 1 if they differ in none. A
  difference without an interval has no p. Neither has F1, kappa, precision or recall of a finding that fewer than
  :data:`LEAST_POSITIVE` patients have, because false positives then decide, and p is too large.
* For several systems each pair has ``|sum d| / sqrt(sum d**2)``. The patterns' maxima over all pairs, then over those
  not yet significant, give p that hold for all pairs together.

Sources: Lehmann and Romano, Testing Statistical Hypotheses (2005), section 15.2; mid-p as in Lancaster (1961), J. Am.
Stat. Assoc. 56; step-down maxima as in Westfall and Young, Resampling-Based Multiple Testing (1993), algorithm 2.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.metrics.bootstrap import Resampled, macro_first
from reveal_bench.metrics.intervals import Resampling

LEAST_DIFFERING = 8
"""Number of patients in whom two systems differ, below which p is undefined."""

LEAST_POSITIVE = 5
"""Number of patients with a finding, below which p is undefined if other patients contribute to the score."""

Signs = npt.NDArray[np.float32]

_EXACT_BELOW = 12  # patients: all 2**11 patterns are fewer than most draws
_SAME = 1e-9


def draw_signs(n_units: int, resampling: Resampling) -> Signs:
    """Return patterns of 1 and -1, (n_resamples, n_units)."""
    drawn = np.random.default_rng(resampling.seed).integers(0, 2, (resampling.n_resamples, n_units), np.int8)
    return (2 * drawn - 1).astype(np.float32)


def contributions(systems: Sequence[Resampled]) -> tuple[FloatArray, BoolArray] | None:
    """Return each unit's contribution to each value, and the units that support a difference.

    Returns
    -------
    contributions : (n_systems, n_units, 1 + n_groups), first to the macro over the groups that all systems have; NaN if
        undefined
    behind : bool (n_units, n_groups), the units that support any system's score

    None instead of both if a system has no values without each unit.
    """
    without = [system.left_out() for system in systems]
    weights = [system.weights for system in systems]
    if any(part is None for part in (*without, *weights)):
        return None
    rows = np.mean([weight for weight in weights if weight is not None], axis=0)
    total = rows.sum(axis=0)
    shares = np.divide(rows, total, out=np.zeros_like(rows), where=total > 0)
    parts = []
    for system, left_out in zip(systems, without, strict=True):
        assert left_out is not None
        rest = np.where(shares < 1, (1 - shares) * np.nan_to_num(left_out), 0)
        parts.append(system.values - rest)
    stack = np.stack(parts)
    stack[:, :, np.isnan(stack).any(axis=(0, 1))] = np.nan
    return macro_first(stack), rows > 0


def sign_flip_p(differences: FloatArray, signs: Signs, behind: BoolArray) -> float:
    """Return two-sided p that `differences` (n_units,) sum to 0, over the `behind` units, which support the value.

    Examples
    --------
    Of the 256 patterns of eight equal differences, two have a sum as large as the data's, which counts half:

    >>> sign_flip_p(np.ones(8), draw_signs(8, Resampling(1)), np.ones(8, bool)) * 256
    1.0
    """
    if np.isnan(differences).any():
        return float("nan")
    scale = np.abs(differences).max(initial=0.0)
    if scale <= _SAME * _SAME:
        return 1.0
    differ = np.abs(differences) > _SAME * scale
    n_differ = int(np.count_nonzero(differ & behind))
    if n_differ < LEAST_DIFFERING:
        return float("nan")
    exact = np.count_nonzero(differ) < _EXACT_BELOW
    patterns = np.array(list(product((1.0, -1.0), repeat=int(differ.sum())))) if exact else signs[:, differ]
    kept = differences[differ] / scale
    distance = np.abs(patterns @ kept) - abs(kept.sum())
    extreme = np.count_nonzero(distance > 1e-5) + np.count_nonzero(np.abs(distance) <= 1e-5) / 2
    return float(extreme / len(patterns)) if exact else float((extreme + 0.5) / (len(patterns) + 1))


def paired_p(parts: FloatArray, behind: BoolArray, signs: Signs) -> FloatArray:
    """Return p of two systems' difference, for the macro and each group, (1 + n_groups,)."""
    differences = parts[0] - parts[1]
    columns = [behind.any(axis=1), *behind.T]
    return np.array([sign_flip_p(d, signs, column) for d, column in zip(differences.T, columns, strict=True)])


def lacks_positives(system: Resampled) -> BoolArray:
    """Return True for groups with too few patients for a p, (1 + n_groups,); False for the macro, which is first."""
    positive = system.positive_units
    few = np.zeros(len(system.values), bool) if positive is None else positive < LEAST_POSITIVE
    return np.concatenate([[False], few])


def step_down_p(parts: FloatArray, signs: Signs) -> FloatArray:
    """Return p of the difference of every pair of systems, corrected for all pairs, (n_systems, n_systems).

    Parameters
    ----------
    parts : float array (n_systems, n_units), each unit's contribution to each system's score
    """
    n_systems = len(parts)
    i, j = np.triu_indices(n_systems, 1)
    corrected = np.ones((n_systems, n_systems))
    differences = parts[i] - parts[j]
    errors = np.sqrt((differences**2).sum(axis=1))
    differ = errors > _SAME * np.abs(parts).max(initial=1e-300)
    i, j, differences, errors = i[differ], j[differ], differences[differ], errors[differ]
    observed = np.abs(differences.sum(axis=1)) / errors
    flipped = signs @ parts.T
    order = np.argsort(-observed, kind="stable")
    maxima, p = np.zeros(len(signs)), np.empty(len(order))
    for k in order[::-1]:
        maxima = np.maximum(maxima, np.abs(flipped[:, i[k]] - flipped[:, j[k]]) / errors[k])
        p[k] = (1 + np.count_nonzero(maxima >= observed[k] - 1e-5)) / (len(signs) + 1)
    p[order] = np.maximum.accumulate(p[order])
    corrected[i, j] = corrected[j, i] = p
    return corrected
