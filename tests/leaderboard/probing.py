"""People who use the leaderboard as an oracle: probers with a good model, alone or several teams together.

What a board tells about a label, how many of the studies called have it, is a *counting query*. The probers send calls
that are not a model's, keep for every label the counts that fit the rounded figures, and put them together:

* "focused": a random half of the studies they are least sure of, chosen anew after every answer; decoded by the linear
  estimate of least mean square error;
* "random": a random half of those that the model leaves open, decoded by linear programming (Dinur and Nissim 2003);
* "splitting": half of the group of studies that is least known, and so on until every group is one study.

They may know how many studies have each label, and be told the macro more finely than a board shows it: that is what
ranks, tiers and the macro's interval tell, and more. All labels are probed at once. Each submission of a team also
calls some more of the studies that they are sure of, so that its scores rise from one to the next and pass the ladder.
Any board will do: `ask` is all they know of it, and what a board says beside (intervals of labels, comparisons,
receipts, exports) is made of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.special import logit

from reveal_bench.metrics.bootstrap import MACRO

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Strategy = Literal["focused", "random", "splitting"]
STRATEGIES: tuple[Strategy, ...] = ("focused", "random", "splitting")

Answer = Mapping[str, Mapping[str, float]]
"""Metric ("f1", "recall"; others are ignored) -> label, or MACRO -> the score shown; hidden scores are absent."""
Ask = Callable[[BoolArray], Answer | None]
"""Calls (n_studies, n_labels) -> the answer; None if another score is shown instead. Raises BudgetSpentError."""


MACRO_STEP = 0.005
"""Resolution of the macro that the attackers see, if any: finer than rank, tier and interval on any board."""


class BudgetSpentError(Exception):
    """The board scores nothing more of this prober."""


@dataclass
class Prober:
    """The attackers, who share every answer that one of them gets.

    Attributes
    ----------
    labels : names of the columns
    beliefs : float array (n_studies, n_labels), probabilities by their model, in (0, 1)
    step : resolution of the board's figures, by label or of all; 1e-6 for exact ones
    focus : studies per label that "focused" asks about at a time
    seed : of their random choices
    positives : how many have each label, where they know it
    """

    labels: Sequence[str]
    beliefs: FloatArray
    step: float | Mapping[str, float] = 0.01
    focus: int = 24
    seed: int = 0
    positives: Mapping[str, int] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    macros: list[float] = field(default_factory=list)

    def own_calls(self) -> BoolArray:
        """Return the calls they would send to score their model honestly, (n_studies, n_labels)."""
        return np.column_stack([best_calls(belief, belief.sum()) for belief in self.beliefs.T])

    def attack(self, asks: Sequence[Ask], strategy: Strategy, *, each: int) -> BoolArray:
        """One team after the other asks `each` times, or until its budget is spent.

        Returns
        -------
        The calls that they would send after that, (n_studies, n_labels).
        """
        self.probes = probes = [
            Probe(
                self.beliefs[:, i], self._step(label), strategy, self.focus, np.random.default_rng([self.seed, i]),
                known=self.positives.get(label),
            )
            for i, label in enumerate(self.labels)
        ]  # fmt: skip
        self.macros = []
        for ask, k in product(asks, range(each)):
            calls = np.column_stack([probe.next((k + 1) / each) for probe in probes])
            try:
                answer = ask(calls) or {}
            except BudgetSpentError:
                continue
            for i, (label, probe) in enumerate(zip(self.labels, probes, strict=True)):
                probe.note(calls[:, i], {name: values[label] for name, values in answer.items() if label in values})
            if MACRO in answer.get("f1", {}):
                self.macros.append(answer["f1"][MACRO])
                self._narrow()
        return np.column_stack([best_calls(probe.learnt(), probe.n_positives()) for probe in probes])

    def _narrow(self) -> None:
        """Narrow the counts of each label by the macros, known to `MACRO_STEP`: the best linear estimate again."""
        probes = [probe for probe in self.probes if probe.asked]
        counts = [probe.counts() for probe in probes]
        sizes = np.array([[calls.sum() for calls in probe.asked] for probe in probes])
        weights = 2 / (sizes + np.array([n for n, *_ in counts])[:, None]) / len(probes)  # of a hit in the macro
        low, high = (np.array([ends[i] for ends in counts]) for i in (1, 2))
        middle, spread = (low + high) / 2, ((high - low) / 2) ** 2 / 3 + 1e-4
        gain = weights * spread / ((weights**2 * spread).sum(axis=0) + MACRO_STEP**2 / 12)
        middle = middle + gain * (self.macros - (weights * middle).sum(axis=0))
        half = np.sqrt(3 * spread * (1 - gain * weights))
        for probe, *ends in zip(probes, middle - half, middle + half, strict=True):
            probe.narrowed = ends[0], ends[1]

    def _step(self, label: str) -> float:
        return self.step[label] if isinstance(self.step, Mapping) else self.step


@dataclass
class Probe:
    """The attack on one label: its calls so far, and the knowledge gained."""

    belief: FloatArray
    step: float
    strategy: Strategy
    focus: int
    rng: np.random.Generator
    asked: list[BoolArray] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)
    groups: list[npt.NDArray[np.int64]] = field(default_factory=list)
    known: int | None = None
    narrowed: tuple[FloatArray, FloatArray] | None = None

    def next(self, progress: float) -> BoolArray:
        """Return the next calls, (n_studies,); `progress` in (0, 1] is the share of the sure studies to call, too."""
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
        """Keep an answer unless it is empty."""
        if figures:
            self.asked.append(calls)
            self.figures.append(figures)

    def learnt(self) -> FloatArray:
        """Probabilities after all answers, (n_studies,)."""
        if not self.asked:
            return self.belief
        n, low, high = self.counts()
        low, high = self.narrowed or (low, high)
        sets = np.array([*self.asked, np.ones(len(self.belief), bool)], float)
        decode = decode_program if self.strategy == "random" else decode_linear
        return decode(self.belief, sets, np.append(low, n), np.append(high, n))

    def n_positives(self) -> float:
        """Their best estimate of how many studies have the label."""
        return float(self.counts()[0] if self.asked else self.belief.sum())

    def counts(self) -> tuple[int, FloatArray, FloatArray]:
        """The number of positives nearest to their belief that fits all figures; least and most of every set asked."""
        n = np.arange(1.0, len(self.belief))[:, None] if self.known is None else np.array([[float(self.known)]])
        sizes = np.array([calls.sum() for calls in self.asked], float)
        low, high = np.zeros((len(n), len(sizes))), np.minimum(sizes, n)
        half = self.step / 2 + 1e-9
        for per_unit, metric in (((sizes + n) / 2, "f1"), (n, "recall")):
            values = np.array([figures.get(metric, np.nan) for figures in self.figures])
            low = np.fmax(low, np.ceil((values - half) * per_unit - 1e-6))
            high = np.fmin(high, np.floor((values + half) * per_unit + 1e-6))
        distance = np.where((low <= high).all(axis=1), np.abs(n[:, 0] - self.belief.sum()), np.inf)
        best = int(np.argmin(distance))
        return int(n[best, 0]), low[best], high[best]


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
    """Return the likeliest labels within the bounds of all answers, in [0, 1]; `belief` if no labels fit."""
    rows, bounds = np.vstack([sets, -sets]), np.concatenate([high, -low])
    solution = linprog(-logit(np.clip(belief, 1e-4, 1 - 1e-4)), A_ub=rows, b_ub=bounds, bounds=(0, 1))
    if not solution.success:
        return belief
    learnt: FloatArray = np.clip(solution.x, 1e-4, 1 - 1e-4)
    return learnt
