"""Simulate suggested labels, and three readers who agree or disagree with known error rates.

As in paper 004 (section 2.2), a reader sees a study with suggested labels and answers "Agree All", "Agree Mostly" or
"Disagree". The model has five numbers. A suggestion is right with probability :data:`SUGGESTION_RIGHT`; independently
of other readers, a reader answers "Agree All" to a right suggestion with probability :data:`AGREE_IF_RIGHT`, and to a
wrong one with probability :data:`AGREE_IF_WRONG`. A reader who does not answer "Agree All" answers "Agree Mostly" with
probability :data:`MOSTLY_IF_RIGHT` or :data:`MOSTLY_IF_WRONG`, otherwise "Disagree". Therefore every expected table of
agreement has a closed form. With these numbers, at least two of three readers answer "Agree All" in 39% of studies
(paper: 381 of 1,000). Kappa between a reader and the majority, with "Agree All" against the other two answers, is 0.63
(paper: 0.622).

In the stage `benchmark`, every study was selected, so the suggestion is right and at least two readers agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.choices import choose
from reveal_bench.phantom.reveal_studies import POOL, RevealStudy

ANSWERS = ("Agree All", "Agree Mostly", "Disagree")
N_READERS = 17
"""Number of readers, three of whom read each study (paper 004)."""

SUGGESTION_RIGHT = 0.38
AGREE_IF_RIGHT = 0.74
AGREE_IF_WRONG = 0.22
MOSTLY_IF_RIGHT = 0.75
MOSTLY_IF_WRONG = 0.45

OPACITY_MISREAD = 0.15
OTHER_MISSED = 0.05
"""Probabilities of errors by a reader who does not agree.

The first is that an airspace opacity is wrongly reported or missed, the second that any other label is missed.
"""
SILENT = 0.3
"""Proportion of readers without a comment, among readers who do not agree."""


@dataclass(frozen=True, slots=True)
class SimulatedVote:
    """One reader's answer; `labels` are the labels that the reader would give, None if unknown."""

    reader: str
    answer: str
    comment: str
    labels: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SimulatedVotes:
    """The suggestion for a study, and the three votes."""

    suggested: tuple[str, ...]
    votes: tuple[SimulatedVote, ...]

    @property
    def n_agree_all(self) -> int:
        """Number of readers who agreed to all labels."""
        return sum(vote.answer == "Agree All" for vote in self.votes)


def draw_votes(study: RevealStudy) -> SimulatedVotes:
    """Return the suggestion and the three votes for a study."""
    rng = study.rng(40)
    if study.stage == "pool":
        suggested = study.labels if rng.random() < SUGGESTION_RIGHT else _wrong(rng, study.labels)
        return SimulatedVotes(suggested, cast_votes(rng, suggested, study.labels))
    while True:  # a benchmark does not select other outcomes
        votes = SimulatedVotes(study.labels, cast_votes(rng, study.labels, study.labels))
        if votes.n_agree_all >= 2:
            return votes


def cast_votes(rng: np.random.Generator, suggested: Sequence[str], truth: Sequence[str]) -> tuple[SimulatedVote, ...]:
    """Return the votes of three different readers on a suggestion."""
    is_right = set(suggested) == set(truth)
    agree, mostly = (AGREE_IF_RIGHT, MOSTLY_IF_RIGHT) if is_right else (AGREE_IF_WRONG, MOSTLY_IF_WRONG)
    votes = []
    for reader in rng.choice(N_READERS, 3, replace=False):
        name = f"reader_{reader + 1:02d}"
        if rng.random() < agree:
            votes.append(SimulatedVote(name, "Agree All", "", tuple(suggested)))
            continue
        answer = "Agree Mostly" if rng.random() < mostly else "Disagree"
        labels = _read(rng, truth)
        is_silent = rng.random() < SILENT
        comment = "" if is_silent else _comment(rng, suggested, labels)
        votes.append(SimulatedVote(name, answer, comment, None if is_silent else labels))
    return tuple(votes)


def _wrong(rng: np.random.Generator, truth: tuple[str, ...]) -> tuple[str, ...]:
    """Return a suggestion with one label too many or too few, usually airspace opacity."""
    label = choose(rng, {label: POOL[label] ** 1.5 for label in REVEAL_LABELS})
    return _ordered(set(truth) ^ {label})


def _read(rng: np.random.Generator, truth: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of a reader who looks at the images."""
    seen = {label for label in truth if label == "Airspace opacity" or rng.random() >= OTHER_MISSED}
    if rng.random() < OPACITY_MISREAD:
        seen ^= {"Airspace opacity"}
    return _ordered(seen)


def _ordered(labels: set[str]) -> tuple[str, ...]:
    return tuple(label for label in REVEAL_LABELS if label in labels)


def _comment(rng: np.random.Generator, suggested: Sequence[str], labels: Sequence[str]) -> str:
    """Return a short comment on the changes, in a reader's style."""
    more = [_small(label) for label in labels if label not in suggested]
    less = [_small(label) for label in suggested if label not in labels]
    notes = []
    if less:
        notes.append(f"{rng.choice(['No', 'I do not see', 'Would remove'])} {_joined(rng, less)}")
    if more:
        notes.append(f"{rng.choice(['Also', 'Add', 'There is also'])} {_joined(rng, more)}")
    if not notes:
        notes.append(str(rng.choice(["Subtle, but plausible", "Equivocal", "Labels are fine, film is rotated"])))
    return ". ".join(notes) + str(rng.choice([".", ""]))


def _small(label: str) -> str:
    return label if label.isupper() else label[0].lower() + label[1:]


def _joined(rng: np.random.Generator, labels: list[str]) -> str:
    return str(rng.choice([" and ", ", "])).join(labels)
