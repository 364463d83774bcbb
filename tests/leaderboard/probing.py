"""Somebody who uses the leaderboard as an oracle: a patient prober with a good model of his own.

What a board tells about a label, how many of the studies called have it, is a *counting query*. The prober sends calls
that are no model's, keeps for every label the counts that fit the rounded figures, and puts them together:

* "focused": a random half of the studies he is least sure of, chosen anew after every answer; decoded by the linear
  estimate of least mean square error;
* "random": a random half of those that his model leaves open, decoded by linear programming (Dinur and Nissim 2003);
* "splitting": half of the group of studies that is least known, and so on until every group is one study.

All labels are probed at once. Each submission also calls some more of the studies that he is sure of, so that the
scores rise from one to the next and pass the ladder. Any board will do: `ask` is all he knows of it.

With ten submissions there are 45 pairs, and a comparison of two costs nothing. The standard error of a *paired*
difference of F1 tells how many of the studies called in both have the label: one more count for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.special import logit

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Strategy = Literal["focused", "random", "splitting"]
STRATEGIES: tuple[Strategy, ...] = ("focused", "random", "splitting")

Answer = Mapping[str, Mapping[str, float]]
"""Metric ("f1", "recall"; others are ignored) -> label -> the figure shown; a label that is not shown is absent."""
Ask = Callable[[BoolArray], Answer | None]
"""Calls (n_studies, n_labels) -> the answer; None if another score is shown instead. Raises BudgetSpentError."""
Compare = Callable[[int, int], Mapping[str, float]]
"""Two answers, counted from 0 among those shown -> label -> standard error of their difference of F1, if any."""


class BudgetSpentError(Exception):
    """The board scores nothing more of this prober."""


@dataclass
class Prober:
    """The attacker.

    Attributes
    ----------
    labels : names of the columns
    beliefs : float array (n_studies, n_labels), probabilities by his own model, in (0, 1)
    step : resolution of the board's figures, by label or of all; 1e-6 for exact ones
    focus : studies per label that "focused" asks about at a time
    seed : of his random choices
    """

    labels: Sequence[str]
    beliefs: FloatArray
    step: float | Mapping[str, float] = 0.01
    focus: int = 14
    seed: int = 0
    probes: list[Probe] = field(default_factory=list)

    def own_calls(self) -> BoolArray:
        """What he would send for his model alone, (n_studies, n_labels)."""
        return np.column_stack([best_calls(belief, belief.sum()) for belief in self.beliefs.T])

    def attack(self, ask: Ask, strategy: Strategy, *, most: int) -> BoolArray:
        """Ask `most` times, or until the budget is spent; the calls he would send after that, (n_studies, n_labels)."""
        self.probes = probes = [
            Probe(self.beliefs[:, i], self._step(label), strategy, self.focus, np.random.default_rng([self.seed, i]))
            for i, label in enumerate(self.labels)
        ]
        for k in range(most):
            calls = np.column_stack([probe.next((k + 1) / most) for probe in probes])
            try:
                answer = ask(calls) or {}
            except BudgetSpentError:
                break
            for i, (label, probe) in enumerate(zip(self.labels, probes, strict=True)):
                probe.note(calls[:, i], {metric: shown[label] for metric, shown in answer.items() if label in shown})
        return np.column_stack([best_calls(probe.learnt(), probe.n_positives()) for probe in probes])

    def attack_pairs(self, compare: Compare) -> BoolArray:
        """After :meth:`attack`, compare all pairs that are shown, too; the calls he would send then."""
        n_shown = max(len(probe.asked) for probe in self.probes)
        told = {pair: compare(*pair) for pair in combinations(range(n_shown), 2)}
        columns = []
        for label, probe in zip(self.labels, self.probes, strict=True):
            errors = {pair: error[label] for pair, error in told.items() if label in error}
            columns.append(best_calls(probe.learnt_of_pairs(errors), probe.n_positives()))
        return np.column_stack(columns)

    def _step(self, label: str) -> float:
        return self.step[label] if isinstance(self.step, Mapping) else self.step


@dataclass
class Probe:
    """What he does about one label, and what he knows of it."""

    belief: FloatArray
    step: float
    strategy: Strategy
    focus: int
    rng: np.random.Generator
    asked: list[BoolArray] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)
    groups: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def next(self, progress: float) -> BoolArray:
        """What to call next, (n_studies,); `progress` in (0, 1] is the share of the sure studies to call, too."""
        now = self.belief if self.strategy == "random" else self.learnt()
        calls = np.zeros(len(now), bool)
        if self.strategy == "splitting":
            unsure = self._split(now)
            calls[unsure[::2]] = True
        else:
            n_unsure = self.focus if self.strategy == "focused" else round(4 * now.sum())
            unsure = np.argsort(-now * (1 - now), kind="stable")[:n_unsure]
            calls[unsure[self.rng.random(len(unsure)) < 0.5]] = True
        sure = np.setdiff1d(np.flatnonzero(now > 0.5), unsure)
        sure = sure[np.argsort(-now[sure], kind="stable")]
        calls[sure[: int(len(sure) * progress)]] = True
        return calls

    def _split(self, now: FloatArray) -> npt.NDArray[np.int64]:
        """The least known group, most likely studies first; every other one of it is asked about."""
        if not self.groups:
            self.groups = [np.argsort(-now, kind="stable")[: max(2, round(2 * now.sum()))]]
        unknown = [float((now[group] * (1 - now[group])).sum()) if len(group) > 1 else -1.0 for group in self.groups]
        group = self.groups.pop(int(np.argmax(unknown)))
        self.groups += [group[::2], group[1::2]] if len(group) > 1 else [group]
        return group

    def note(self, calls: BoolArray, figures: dict[str, float]) -> None:
        """Keep an answer; an empty one told nothing."""
        if figures:
            self.asked.append(calls)
            self.figures.append(figures)

    def learnt(self) -> FloatArray:
        """Probabilities after all answers, (n_studies,)."""
        if not self.asked:
            return self.belief
        n, low, high = self._counts()
        sets = np.array([*self.asked, np.ones(len(self.belief), bool)], float)
        decode = decode_program if self.strategy == "random" else decode_linear
        return decode(self.belief, sets, np.append(low, n), np.append(high, n))

    def learnt_of_pairs(self, errors: Mapping[tuple[int, int], float]) -> FloatArray:
        """Probabilities after all answers and the standard errors of the differences of pairs, (n_studies,)."""
        if not self.asked:
            return self.belief
        n, low, high = self._counts()
        reach = max(1.0, 100 * self.step)
        sets, counts = [*self.asked], (low + high) / 2
        for (i, j), error in errors.items():
            found = count_in_both(self.asked[i], self.asked[j], n, counts[i], counts[j], error)
            sets.append(self.asked[i] & self.asked[j])
            low, high = np.append(low, found - reach), np.append(high, found + reach)
        everything = np.array([*sets, np.ones(len(self.belief), bool)], float)
        return decode_linear(self.belief, everything, np.append(low, n), np.append(high, n))

    def n_positives(self) -> float:
        """His best estimate of how many studies have the label."""
        return float(self._counts()[0] if self.asked else self.belief.sum())

    def _counts(self) -> tuple[int, FloatArray, FloatArray]:
        """The number of positives nearest to his belief that fits all figures; least and most of every set asked."""
        n = np.arange(1.0, len(self.belief))[:, None]
        sizes = np.array([calls.sum() for calls in self.asked], float)
        low, high = np.zeros((len(n), len(sizes))), np.minimum(sizes, n)
        half = self.step / 2 + 1e-9
        for per_unit, metric in (((sizes + n) / 2, "f1"), (n, "recall")):
            shown = np.array([figures.get(metric, np.nan) for figures in self.figures])
            low = np.fmax(low, np.ceil((shown - half) * per_unit - 1e-6))
            high = np.fmin(high, np.floor((shown + half) * per_unit + 1e-6))
        distance = np.where((low <= high).all(axis=1), np.abs(n[:, 0] - self.belief.sum()), np.inf)
        best = int(np.argmin(distance))
        return int(n[best, 0]), low[best], high[best]


def count_in_both(a: BoolArray, b: BoolArray, n: float, in_a: float, in_b: float, error: float) -> float:
    """How many of the studies that both `a` and `b` call have the label, by the error of their difference of F1.

    A study moves F1 = 2 |A & P| / (|A| + n) by (2 ap - F1 (a + p)) / (|A| + n), to first order; the variance is the sum
    of squares of what it moves the difference by, and that is linear in the count.
    """
    of_a, of_b = a.sum() + n, b.sum() + n
    f_a, f_b = 2 * in_a / of_a, 2 * in_b / of_b

    def moved(called_a: int, called_b: int, has: int) -> float:
        by_a = (2 * called_a * has - f_a * (called_a + has)) / of_a
        return float((by_a - (2 * called_b * has - f_b * (called_b + has)) / of_b) ** 2)

    def variance(x: float) -> float:
        both, only_a, only_b = (a & b).sum(), (a & ~b).sum(), (b & ~a).sum()
        with_it = {(1, 1): x, (1, 0): in_a - x, (0, 1): in_b - x, (0, 0): n - in_a - in_b + x}
        called = {(1, 1): both, (1, 0): only_a, (0, 1): only_b}
        has = sum(k * moved(*kind, 1) for kind, k in with_it.items())
        return float(has + sum((k - with_it[kind]) * moved(*kind, 0) for kind, k in called.items()))

    slope = variance(1.0) - variance(0.0)
    least, most = max(0.0, in_a + in_b - n), min(in_a, in_b, float((a & b).sum()))
    return float(np.clip((error**2 - variance(0.0)) / slope, least, max(least, most))) if slope else (least + most) / 2


def best_calls(belief: FloatArray, n_positives: float) -> BoolArray:
    """The studies to call for the best F1 that these probabilities promise, if `n_positives` have the label."""
    order = np.argsort(-belief, kind="stable")
    promised = 2 * np.cumsum(belief[order]) / (np.arange(1, len(belief) + 1) + n_positives)
    calls = np.zeros(len(belief), bool)
    calls[order[: int(np.argmax(promised)) + 1]] = True
    return calls


def decode_linear(belief: FloatArray, sets: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Posterior means if the answers were sums of independent normal variables: the best linear estimate."""
    spread = belief * (1 - belief)
    noise = ((high - low) / 2) ** 2 / 3 + 1e-4
    gain = np.linalg.solve((sets * spread) @ sets.T + np.diag(noise), (low + high) / 2 - sets @ belief)
    learnt: FloatArray = np.clip(belief + spread * (sets.T @ gain), 1e-4, 1 - 1e-4)
    return learnt


def decode_program(belief: FloatArray, sets: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The likeliest labels, as numbers in [0, 1], within the bounds of all answers; `belief` if there are none."""
    rows, bounds = np.vstack([sets, -sets]), np.concatenate([high, -low])
    found = linprog(-logit(np.clip(belief, 1e-4, 1 - 1e-4)), A_ub=rows, b_ub=bounds, bounds=(0, 1))
    if not found.success:
        return belief
    learnt: FloatArray = np.clip(found.x, 1e-4, 1 - 1e-4)
    return learnt
