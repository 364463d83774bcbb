"""Verdicts on non-inferiority and equivalence, from the interval of a difference and a margin chosen beforehand.

Conventions
-----------
A is non-inferior to B if the whole 95% interval of their difference is above minus the margin (below the margin if
lower is better), and inferior if the whole interval is beyond this limit. A and B are equivalent if the whole interval
is between minus the margin and the margin, and not equivalent if it is entirely beyond one of these limits.

p is one-sided and agrees with the interval: it is below 0.025 if the verdict is non-inferior. For equivalence, p is the
larger of two one-sided p. Each p comes from the distribution that gives the interval
(:mod:`reveal_bench.evaluation.differences`).

A difference without an interval has no p and no verdict: if two systems differ on very few patients, nothing can be
concluded about other patients.

Source: Walker and Nowacki, J. Gen. Intern. Med. 26 (2011) 192; two one-sided tests as in Schuirmann, J. Pharmacokinet.
Biopharm. 15 (1987) 657.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.scales import value_text
from reveal_bench.words import p_text


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a difference, given a margin.

    Attributes
    ----------
    word : "non-inferior", "inferior", "equivalent", "not equivalent", "not shown", or "-" if nothing can be concluded
    p : one-sided p, for equivalence the larger of two; NaN if nothing can be concluded
    sentence : the verdict in plain English
    """

    word: str
    p: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Margin:
    """Largest difference that is considered unimportant, on the scale of the metric: 0.05 is five percentage points.

    Attributes
    ----------
    width : the margin
    equivalence : True for equivalence, which also requires a difference in A's favour to be below the margin; False for
        non-inferiority
    """

    width: float
    equivalence: bool = False

    def __post_init__(self) -> None:
        number = isinstance(self.width, Real) and not isinstance(self.width, bool)
        if not number or not 0 < self.width < math.inf:
            rule = "must be a number above 0, on the scale of the metric: 0.05 is five percentage points"
            raise ArgumentError("margin", rule, repr(self.width))

    def check(self, metrics: Sequence[str]) -> None:
        """Raise ArgumentError if the margin is not smaller than the range of each of `metrics`."""
        for name in metrics:
            span = METRICS[name].high - METRICS[name].low
            if self.width >= span:
                rule = f"must be smaller than the range of {name}, {span:g}: 0.05 is five percentage points"
                raise ArgumentError("margin", rule, self.width)

    def judge(
        self, metric: str, ends: tuple[float, float], p: float, tails: tuple[float, float], *, reason: str = ""
    ) -> Verdict:
        """Return the verdict on a difference, from its interval.

        Parameters
        ----------
        ends : bounds of the 95% interval of the difference
        p : two-sided p of the hypothesis of no difference
        tails : one-sided p of the hypotheses that the difference is at most minus the margin, and that it is at least
            the margin
        reason : why there is no interval; empty if unknown
        """
        low, high = ends
        if not low < high or math.isnan(p) or any(map(math.isnan, tails)):
            why = reason or "too few patients, or too few on whom A and B differ"
            return Verdict("-", math.nan, f"nothing can be concluded: {why}")
        if METRICS[metric].better == "lower":
            low, high, tails = -high, -low, tails[::-1]
        width = self.width
        if self.equivalence:
            within, beyond = -width < low and high < width, high <= -width or low >= width
            word = "equivalent" if within else "not equivalent" if beyond else "not shown"
            return Verdict(word, max(tails), self._sentence(metric, ends, word, max(tails)))
        word = "non-inferior" if low > -width else "inferior" if high <= -width else "not shown"
        return Verdict(word, tails[0], self._sentence(metric, ends, word, tails[0]))

    def _sentence(self, metric: str, ends: tuple[float, float], word: str, p: float) -> str:
        unit = "" if METRICS[metric].high > 1 else " points"
        low, high, width = (value_text(metric, x) for x in (*ends, self.width))
        sentences = {
            "non-inferior": f"A is not worse than B by {width}{unit} or more",
            "inferior": f"A is worse than B by {width}{unit} or more",
            "equivalent": f"A and B differ by less than {width}{unit}",
            "not equivalent": f"A and B differ by {width}{unit} or more",
            "not shown": f"inconclusive: A and B may differ by {width}{unit} or more"
            if self.equivalence
            else f"inconclusive: A may be worse than B by {width}{unit} or more",
        }
        side = "the larger one-sided" if self.equivalence else "one-sided"
        return f"{sentences[word]}: the 95% interval of A - B is {low} to {high} ({side} p {p_text(p)})"

    def fields(self, verdict: Verdict) -> dict[str, Any]:
        """Return margin and verdict as JSON fields, to be appended to those of the difference."""
        judged = {"verdict": verdict.word, "p_margin": verdict.p, "sentence": verdict.sentence}
        return {"margin": self.width, "equivalence": self.equivalence} | judged
