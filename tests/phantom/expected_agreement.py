"""The exact agreement that is expected of simulated readers, by enumeration, to test estimates from their votes.

A reader agrees to all labels with probability AGREE_IF_RIGHT if the suggestion is right, otherwise with probability
AGREE_IF_WRONG. A reader who does not agree looks at the images and sees the true labels, except for independent errors:
an airspace opacity is misread with probability OPACITY_MISREAD, and any other label is missed with probability
OTHER_MISSED. The reader then writes a comment on the changes or, with probability SILENT, no comment. A reader's list
of labels is therefore the suggested list, the list seen, or unknown. If a reader saw exactly the suggested labels, the
comment names no label, and the reader's list depends on how comments are interpreted (:data:`Lists`).

Readers of a study are independent, so the expected table of (reader's answer, majority) is a sum over all combinations
of the readers' answers. :func:`expected_agreement` adds these tables over the studies. An estimate from votes converges
to the kappa of this sum, which is computed without simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.votes import (
    AGREE_IF_RIGHT,
    AGREE_IF_WRONG,
    MOSTLY_IF_RIGHT,
    MOSTLY_IF_WRONG,
    OPACITY_MISREAD,
    OTHER_MISSED,
    SILENT,
)

Ties = Literal["left_out", "absent"]
Lists = Literal["by_hand", "comments", "changes"]
"""Readers whose lists of labels are known.

All options include readers who agree to all or whose comment names a label. "by_hand" adds all other readers with a
comment, who wrote a list down. "comments" adds readers whose comment approves ("Labels are fine", or "Equivocal" if the
reader mostly agrees), as in :mod:`reveal_bench.curation.comments`. "changes" adds none.
"""

EQUIVOCAL = 1 / 3
"""Proportion of comments that only express doubt among comments that name no label: one wording of three."""

UNKNOWN, NO, YES = range(3)
"""A reader's statement about a label: unknown, absent, present."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected agreement in the votes on some studies.

    Attributes
    ----------
    share_agreed : proportion of studies with at least two readers who agree to the labels
    kappa : a reader's kappa with the majority, for "agree all" against any other answer; the majority includes the
        reader's own vote
    ac1 : Gwet's AC1 among a study's readers, for "agree all" against any other answer
    share_with_list : proportion of studies with at least two known lists of labels
    label_kappas, label_ac1 : label -> kappa and AC1 for "the label is in the list", in studies with at least two lists;
        NaN if chance agreement is 1
    """

    share_agreed: float
    kappa: float
    ac1: float
    share_with_list: float
    label_kappas: dict[str, float]
    label_ac1: dict[str, float]


def expected_agreement(
    studies: Iterable[tuple[Sequence[str], Sequence[str]]],
    *,
    n_readers: int = 3,
    lists: Lists = "comments",
    ties: Ties = "left_out",
) -> Expected:
    """Return the exact expected agreement of readers as in :func:`.curation.cast`, for given suggestions and truth.

    Parameters
    ----------
    studies : (suggested labels, true labels) of each study
    n_readers : number of readers per study
    lists : readers whose lists of labels are known, one of :data:`Lists`
    ties : treatment of a label in half of a study's known lists: "left_out", as in
        :func:`reveal_bench.metrics.agreement.reader_against_majority`, or "absent" from the majority list

    Raises
    ------
    ValueError
        If studies are missing, or readers are fewer than two.
    """
    pairs = list(studies)
    if not pairs or n_readers < 2:
        raise ValueError(
            f"at least one study and two readers are required, got {len(pairs)} studies and {n_readers} readers"
        )
    agree = np.array([AGREE_IF_RIGHT if set(a) == set(b) else AGREE_IF_WRONG for a, b in pairs])
    answers = _enumerated(np.stack([np.zeros_like(agree), 1 - agree, agree], axis=-1), n_readers, ties)
    listed = _enumerated(_list_chances(pairs, agree, lists), n_readers, ties)
    kappas, ac1 = _kappa(listed.tables), _ac1(listed)
    return Expected(
        share_agreed=float(_share_of_at_least_two(agree, n_readers)),
        kappa=float(_kappa(answers.tables)),
        ac1=float(_ac1(answers)),
        share_with_list=float(listed.n_with_pair[0] / len(pairs)),
        label_kappas=dict(zip(REVEAL_LABELS, kappas.tolist(), strict=True)),
        label_ac1=dict(zip(REVEAL_LABELS, ac1.tolist(), strict=True)),
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """Expected values summed over studies: tables (..., reader, majority), and the terms of AC1."""

    tables: FloatArray
    agreeing_pairs: FloatArray
    n_with_pair: FloatArray
    share_of_yes: FloatArray


def _list_chances(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], agree: FloatArray, lists: Lists) -> FloatArray:
    """Return the probabilities (n_studies, n_labels, 3) that a reader's list is unknown, lacks or has the label."""
    in_suggested = np.array([[label in a for label in REVEAL_LABELS] for a, _ in pairs])
    in_truth = np.array([[label in b for label in REVEAL_LABELS] for _, b in pairs])
    is_opacity = np.array([label == "Airspace opacity" for label in REVEAL_LABELS])
    seen_if_true = np.where(is_opacity, 1 - OPACITY_MISREAD, 1 - OTHER_MISSED)
    seen = np.where(in_truth, seen_if_true, np.where(is_opacity, OPACITY_MISREAD, 0.0))
    looks = (1 - agree) * (1 - SILENT)
    yes = agree[:, None] * in_suggested + looks[:, None] * seen
    unknown = (1 - agree) * SILENT
    if lists != "by_hand":
        tells_nothing = looks * np.where(in_suggested, seen, 1 - seen).prod(axis=1)  # sees exactly the suggested labels
        if lists == "comments":
            is_right = (in_suggested == in_truth).all(axis=1)
            tells_nothing *= EQUIVOCAL * (1 - np.where(is_right, MOSTLY_IF_RIGHT, MOSTLY_IF_WRONG))
        yes = yes - tells_nothing[:, None] * in_suggested
        unknown = unknown + tells_nothing
    unknown = np.broadcast_to(unknown[:, None], yes.shape)
    return np.stack([unknown, 1 - unknown - yes, yes], axis=-1)


def _enumerated(chances: FloatArray, n_readers: int, ties: Ties) -> _Sums:
    """Return expected sums over all combinations of `n_readers` statements; `chances` has shape (n_studies, ..., 3)."""
    shape = chances.shape[1:-1]
    tables = np.zeros((*shape, 2, 2))
    agreeing, with_pair, yes_share = (np.zeros(shape) for _ in range(3))
    for statements in product(range(3), repeat=n_readers):
        votes = [one - NO for one in statements if one != UNKNOWN]
        n, n_yes = len(votes), sum(votes)
        if n < 2:  # there is no other reader with whom to agree
            continue
        weight = np.prod([chances[..., one] for one in statements], axis=0).sum(axis=0)
        with_pair += weight
        yes_share += weight * n_yes / n
        agreeing += weight * (n_yes * (n_yes - 1) + (n - n_yes) * (n - n_yes - 1)) / (n * (n - 1))
        if 2 * n_yes == n and ties == "left_out":
            continue
        majority = int(2 * n_yes > n)
        tables[..., 1, majority] += weight * n_yes
        tables[..., 0, majority] += weight * (n - n_yes)
    return _Sums(tables, agreeing, with_pair, yes_share)


def _share_of_at_least_two(agree: FloatArray, n_readers: int) -> FloatArray:
    none = (1 - agree) ** n_readers
    one = n_readers * agree * (1 - agree) ** (n_readers - 1)
    share: FloatArray = (1 - none - one).mean()
    return share


def _kappa(tables: FloatArray) -> FloatArray:
    shares = tables / tables.sum(axis=(-2, -1), keepdims=True)
    chance = (shares.sum(axis=-1) * shares.sum(axis=-2)).sum(axis=-1)
    agreement = np.trace(shares, axis1=-2, axis2=-1)
    return _beyond(agreement, chance)


def _ac1(sums: _Sums) -> FloatArray:
    yes, agreement = sums.share_of_yes / sums.n_with_pair, sums.agreeing_pairs / sums.n_with_pair
    return _beyond(agreement, 2 * yes * (1 - yes))


def _beyond(agreement: FloatArray, chance: FloatArray) -> FloatArray:
    """Return agreement beyond chance; NaN if chance agreement is 1."""
    room = np.where(np.isclose(chance, 1), np.nan, 1 - chance)
    beyond: FloatArray = (agreement - chance) / room
    return beyond
