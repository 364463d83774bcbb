"""How sure a system was of its answers, case by case, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reveal_bench.arrays import BoolArray, FloatArray

__all__ = ["Confidences"]


@dataclass(frozen=True, slots=True)
class Confidences:
    """The cases of a split for which a system said how sure it was.

    Attributes
    ----------
    event : what a probability is of, such as "findings present"
    whole_split : whether the cases are those of the split with and without the event, so that they show what decisions
        by the probabilities are worth; not so where a case is there because its finding is
    groups : of the benchmark, in table order
    case_groups, case_patients : sequences of str (n_cases,)
    all_patients : every patient of the split, with cases or not
    probabilities : float array (n_cases,) in [0, 1], of the event
    happened : bool array (n_cases,)
    sureness : float array (n_cases,) in [0, 1], how sure the system was that its own answer is right
    right : bool array (n_cases,), whether it was
    n_unsaid : cases of the split without a confidence, which have no part
    """

    event: str
    whole_split: bool
    groups: tuple[str, ...]
    case_groups: Sequence[str]
    case_patients: Sequence[str]
    all_patients: frozenset[str]
    probabilities: FloatArray
    happened: BoolArray
    sureness: FloatArray
    right: BoolArray
    n_unsaid: int

    def __len__(self) -> int:
        return len(self.probabilities)
