"""Seventeen simulated readers of unequal diligence, and what must come of their votes, exactly.

How many studies each of them reads is Table S4 of paper 004; how they err is :mod:`reveal_bench.phantom.votes`, the
same for all. A vote depends on (seed, study, reader) alone: whoever else reads the study, and whenever, it is the same.

The model, given a study's suggested labels and its truth
---------------------------------------------------------
A reader agrees to all with probability AGREE_IF_RIGHT or AGREE_IF_WRONG. One who does not looks for himself: sees the
true labels, but for an airspace opacity mistaken with OPACITY_MISREAD and any other label missed with OTHER_MISSED,
each by itself; and stays silent with SILENT, or says in a comment what to change. So a reader's list of labels is the
suggested one; or what he saw; or is not known. One who saw just what was suggested names no label in his comment: what
his list is then depends on how comments are read, see :data:`Lists`.

Readers of a study are independent, so that the expected table of (reader's answer, majority) is a sum over all
combinations of their answers. :func:`expected_agreement` adds these tables over the studies that were read. The kappa
of the sum is what an estimate from the votes tends to; no simulation is involved.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.votes import (
    AGREE_IF_RIGHT,
    AGREE_IF_WRONG,
    MOSTLY_IF_RIGHT,
    MOSTLY_IF_WRONG,
    OPACITY_MISREAD,
    OTHER_MISSED,
    SILENT,
    cast_votes,
)

__all__ = [
    "READERS",
    "VOTE_COLUMNS",
    "Expected",
    "Lists",
    "Ties",
    "cast",
    "expected_agreement",
    "write_readers",
    "write_votes",
]

FloatArray = npt.NDArray[np.float64]
Ties = Literal["left_out", "absent"]
Lists = Literal["by_hand", "comments", "changes"]
"""Whose list is known besides those who agree to all and those whose comment names a label: who wrote it down by hand
(everybody with a comment); who approves in a comment ("Labels are fine", or one in doubt, "Equivocal", who agrees
mostly), as :mod:`reveal_bench.curation.comments` reads it; or nobody."""

EQUIVOCAL = 1 / 3
"""Of the comments that name no label, those that only doubt: one wording of three."""

FINISHED = (300, 300, 300, 273, 229, 222, 213, 203, 177, 151, 140, 133, 121, 94, 57, 53, 34)
READERS = {f"reader_{number:02d}": finished for number, finished in enumerate(FINISHED, start=1)}
"""Reader -> studies finished (paper 004, Table S4): 3,000 together, three for each of 1,000 studies."""

VOTE_COLUMNS = ("study", "reader", "answer", "comment", "labels")

UNKNOWN, NO, YES = range(3)
"""What a reader may say of one thing: nothing, that it is not so, that it is."""


def write_readers(path: Path, readers: Mapping[str, int] = READERS) -> None:
    """Write the table of readers and capacities that `assign` reads."""
    _write(path, ("reader", "capacity"), readers.items())


def write_votes(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write rows of :func:`cast` as the table that `import-votes` reads."""
    _write(path, VOTE_COLUMNS, ([row[name] for name in VOTE_COLUMNS] for row in rows))


def cast(
    assignments: Iterable[tuple[str, str]],
    suggested: Mapping[str, Sequence[str]],
    truth: Mapping[str, Sequence[str]],
    seed: int,
    *,
    by_hand: bool = False,
) -> list[dict[str, str]]:
    """The readers' votes.

    Parameters
    ----------
    assignments : (study, reader) of every reading
    suggested, truth : study -> labels
    seed : another one gives other votes
    by_hand : whether readers also write down their labels; otherwise there are comments alone, as in paper 004

    Returns
    -------
    list of dict with :data:`VOTE_COLUMNS`, in the order of `assignments`
        `labels` is "" where nothing is written down and "None" where the reader sees none of the twelve.

    Raises
    ------
    KeyError
        If a study is not in `suggested` or `truth`.
    """
    rows = []
    for study, reader in assignments:
        digest = sha256(f"{study}\0{reader}".encode()).digest()
        rng = np.random.default_rng([seed, *digest[:16]])
        vote = cast_votes(rng, suggested[study], truth[study])[0]  # the first of three alike is this reader's
        is_written = by_hand and vote.labels is not None and vote.answer != "Agree All"
        labels = "; ".join(vote.labels or ()) or "None" if is_written else ""
        rows.append(dict(zip(VOTE_COLUMNS, (study, reader, vote.answer, vote.comment, labels), strict=True)))
    return rows


@dataclass(frozen=True, slots=True)
class Expected:
    """What the votes on some studies tend to.

    Attributes
    ----------
    share_agreed : of studies to whose labels at least two readers agree
    kappa : of a reader with the majority, "agree all" against the rest; his own vote is in the majority
    ac1 : Gwet's AC1 among a study's readers, "agree all" against the rest
    share_with_list : of studies with at least two lists of labels that are known
    label_kappas, label_ac1 : label -> the same of "the label is in the list", in studies with at least two lists;
        NaN where chance agreement is 1
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
    """Exact values for readers of :func:`cast`, given what was suggested and what is true.

    Parameters
    ----------
    studies : (suggested labels, true labels) of each study that was read
    n_readers : of each study
    lists : how lists become known
    ties : what becomes of a label that half of a study's known lists have: "left_out", as in
        :func:`reveal_bench.metrics.agreement.reader_against_majority`, or "absent" from the majority list

    Raises
    ------
    ValueError
        If there is no study or fewer than two readers.
    """
    pairs = list(studies)
    if not pairs or n_readers < 2:
        raise ValueError(f"there must be a study and two readers, got {len(pairs)} studies and {n_readers} readers")
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
    """Expected values added over studies: tables (..., reader, majority), and what AC1 is made of."""

    tables: FloatArray
    agreeing_pairs: FloatArray
    n_with_pair: FloatArray
    share_of_yes: FloatArray


def _list_chances(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], agree: FloatArray, lists: Lists) -> FloatArray:
    """Chance (n_studies, n_labels, 3) that a reader's list is unknown, lacks the label, or has it."""
    in_suggested = np.array([[label in a for label in REVEAL_LABELS] for a, _ in pairs])
    in_truth = np.array([[label in b for label in REVEAL_LABELS] for _, b in pairs])
    is_opacity = np.array([label == "Airspace opacity" for label in REVEAL_LABELS])
    seen_if_true = np.where(is_opacity, 1 - OPACITY_MISREAD, 1 - OTHER_MISSED)
    seen = np.where(in_truth, seen_if_true, np.where(is_opacity, OPACITY_MISREAD, 0.0))
    looks = (1 - agree) * (1 - SILENT)
    yes = agree[:, None] * in_suggested + looks[:, None] * seen
    unknown = (1 - agree) * SILENT
    if lists != "by_hand":
        tells_nothing = looks * np.where(in_suggested, seen, 1 - seen).prod(axis=1)  # he sees what was suggested
        if lists == "comments":
            is_right = (in_suggested == in_truth).all(axis=1)
            tells_nothing *= EQUIVOCAL * (1 - np.where(is_right, MOSTLY_IF_RIGHT, MOSTLY_IF_WRONG))
        yes = yes - tells_nothing[:, None] * in_suggested
        unknown = unknown + tells_nothing
    unknown = np.broadcast_to(unknown[:, None], yes.shape)
    return np.stack([unknown, 1 - unknown - yes, yes], axis=-1)


def _enumerated(chances: FloatArray, n_readers: int, ties: Ties) -> _Sums:
    """Expected sums over studies, by all combinations of what `n_readers` say; chances (n_studies, ..., 3)."""
    shape = chances.shape[1:-1]
    tables = np.zeros((*shape, 2, 2))
    agreeing, with_pair, yes_share = (np.zeros(shape) for _ in range(3))
    for said in product(range(3), repeat=n_readers):
        votes = [one - NO for one in said if one != UNKNOWN]
        n, n_yes = len(votes), sum(votes)
        if n < 2:  # nobody to agree with
            continue
        weight = np.prod([chances[..., one] for one in said], axis=0).sum(axis=0)
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
    """Agreement beyond chance; NaN where chance agreement is 1."""
    room = np.where(np.isclose(chance, 1), np.nan, 1 - chance)
    beyond: FloatArray = (agreement - chance) / room
    return beyond


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
