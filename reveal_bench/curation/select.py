"""Choosing the studies of the benchmark: those that readers agreed on, the less common findings and the most first.

The rule (paper 004, section 2.3)
---------------------------------
1. A study is eligible if exactly three readers voted (the agreement of a published study is of three), at least
   `at_least` of them agreed to all suggested labels, and its readers' majority has at least one label.
2. Every eligible study with a less common label is taken. If these are more than the target, as many as the target are
   drawn of them at random, each with the same chance.
3. The others follow by their number of labels, the most first, until the target is met; those with the same number come
   in random order.

The order of chance is one permutation of the eligible studies, sorted by id, from the folder's seed. A target that
cannot be met is not an error: the shortage is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.folder import CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import Consensus, Labels, Selected, in_order, read_table, tally, write_table

LESS_COMMON: Labels = in_order(
    (
        "COPD", "Pleural thickening", "Lung nodule", "Lung mass", "Aneurysm", "Pneumothorax", "Hiatal hernia",
        "Lymphadenopathy", "Interstitial opacity",
    )
)  # fmt: skip
"""Paper 004, section 2.3."""

N_READERS = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """What was selected, in the order of the rule, and the counts that say how."""

    selected: list[Selected]
    counts: dict[str, Any]


def select(
    folder: CurationFolder,
    *,
    target: int = 200,
    less_common: Sequence[str] = LESS_COMMON,
    at_least: int = 2,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Choose the studies of the benchmark, see the module; writes ``selection.parquet``.

    Parameters
    ----------
    target : number of studies wanted, at least 1
    less_common : labels whose studies come first
    at_least : how many of three readers must have agreed to all, 1 to 3
    redo : do it again though it was done with other inputs or settings
    progress : called once, at the end

    Raises
    ------
    CurationError
        If the consensus is not done.
    ValueError
        If an argument breaks its rule.
    """
    first = _checked(target, less_common, at_least)

    def work(scratch: Path) -> Mapping[str, Any]:
        rows = read_table(folder.path("consensus.parquet"), Consensus)
        choice = choose(rows, folder.rng("select"), target=target, less_common=first, at_least=at_least)
        write_table(scratch / "selection.parquet", choice.selected, Selected)
        if progress is not None:
            progress(len(rows), len(rows))
        return choice.counts

    settings = {"target": target, "less_common": first, "at_least": at_least}
    return folder.run("select", settings, work, reads=("consensus.parquet",), writes=("selection.parquet",), redo=redo)


def choose(
    rows: Sequence[Consensus],
    rng: np.random.Generator,
    *,
    target: int = 200,
    less_common: Sequence[str] = LESS_COMMON,
    at_least: int = 2,
) -> Choice:
    """:func:`select` of rows in any order.

    Returns
    -------
    Choice, whose counts are: ``studies``; of these ``not_three_votes``, ``too_few_agree_all``, ``without_labels`` and
    ``eligible``; of these ``less_common``, taken but for ``less_common_left_out``, and ``most_findings``; ``selected``
    by ``n_labels`` and by ``n_agree_all``; ``shortage``; ``cut_off``, the number of labels of the last one taken by it,
    and ``cut_off_left_out``, how many studies with that number were left out by chance
    """
    first = _checked(target, less_common, at_least)
    counts: dict[str, Any] = {"studies": len(rows), "not_three_votes": 0, "too_few_agree_all": 0, "without_labels": 0}
    eligible: list[tuple[Consensus, Labels]] = []
    for row in sorted(rows, key=lambda row: row.study_id):
        if row.n_votes != N_READERS:
            counts["not_three_votes"] += 1
        elif row.n_agree_all < at_least:
            counts["too_few_agree_all"] += 1
        elif not row.labels:
            counts["without_labels"] += 1
        else:
            eligible.append((row, row.labels))
    shuffled = [eligible[i] for i in rng.permutation(len(eligible))]
    rare = [(row, labels) for row, labels in shuffled if set(labels) & set(first)]
    others = [(row, labels) for row, labels in shuffled if not set(labels) & set(first)]
    rest = sorted(others, key=lambda one: len(one[1]), reverse=True)  # the most labels first, equals as shuffled
    n_more = max(target - len(rare), 0)
    taken = [_selected(*one, "less_common") for one in rare[:target]]
    taken += [_selected(*one, "most_findings") for one in rest[:n_more]]
    cut_off = len(rest[:n_more][-1][1]) if rest[:n_more] else None
    counts |= {
        "eligible": len(eligible),
        "less_common": len(rare),
        "less_common_left_out": len(rare[target:]),
        "most_findings": len(rest[:n_more]),
        "selected": len(taken),
        "shortage": target - len(taken),
        "by_n_labels": tally(len(study.labels) for study in taken),
        "by_n_agree_all": tally(study.n_agree_all for study in taken),
        "cut_off": cut_off,
        "cut_off_left_out": sum(len(labels) == cut_off for _, labels in rest[n_more:]),
    }
    return Choice(taken, counts)


def _selected(row: Consensus, labels: Labels, reason: str) -> Selected:
    return Selected(row.study_id, row.patient_id, labels, row.n_agree_all, reason)


def _checked(target: int, less_common: Sequence[str], at_least: int) -> Labels:
    """`less_common` in its order, if all arguments keep their rules."""
    if target < 1:
        raise ArgumentError("target", "must be at least 1", target)
    if not 1 <= at_least <= N_READERS:
        raise ArgumentError("at_least", f"must lie in [1, {N_READERS}]", at_least)
    if isinstance(less_common, str):
        raise ArgumentError("less_common", "must be a list of labels", repr(less_common))
    try:
        return in_order(less_common)
    except ValueError as error:
        raise ValueError(f"`less_common`: {error}") from None
