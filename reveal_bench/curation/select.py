"""Select a benchmark's studies from those on which readers agreed: less common findings first, then most findings.

The rule (paper 004, section 2.3)
---------------------------------
1. A study is eligible if exactly three readers voted (a published study always states the agreement of three), at least
   `at_least` of them agreed to all suggested labels, and its readers' majority has at least one label.
2. Every eligible study with a less common label is selected. If these studies are more than the target, a random subset
   of the target's size is selected, with equal chances.
3. The other eligible studies follow, those with the most labels first, until the target is met; ties are in random
   order.

The random order is one permutation of the eligible studies, sorted by id, from the folder's seed. If the target cannot
be met, the shortage is counted and no error is raised.
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
"""Labels whose studies come first (paper 004, section 2.3)."""

N_READERS = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected studies, in the order of the rule, and the counts behind them."""

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
    """Select the studies of the benchmark by the module's rule, and write ``selection.parquet``.

    Parameters
    ----------
    target : number of studies to select, at least 1
    less_common : labels whose studies come first
    at_least : minimum number of the three readers who agreed to all, 1 to 3
    redo : repeat the step even if it was done with other inputs or settings
    progress : called once, at the end

    Raises
    ------
    CurationError
        If the consensus is not done.
    ValueError
        If an argument is invalid.
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
    """Select as :func:`select` does, for rows in any order.

    Returns
    -------
    Choice, whose counts are: ``studies``, divided into ``not_three_votes``, ``too_few_agree_all``, ``without_labels``
    and ``eligible``. Eligible studies that are ``less_common`` (all selected except ``less_common_left_out``), and
    those selected for ``most_findings``. ``selected`` studies, ``by_n_labels`` and ``by_n_agree_all``; ``shortage``;
    ``cut_off``, the smallest number of labels of a study selected for most findings, and ``cut_off_left_out``, the
    number of studies with that many labels that chance left out.
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
    rest = sorted(others, key=lambda one: len(one[1]), reverse=True)  # most labels first, ties in the shuffled order
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
    """Check the arguments; return `less_common` in the order of REVEAL_LABELS."""
    if target < 1:
        raise ArgumentError("target", "must be at least 1", target)
    if not 1 <= at_least <= N_READERS:
        raise ArgumentError("at_least", f"must be in [1, {N_READERS}]", at_least)
    if isinstance(less_common, str):
        raise ArgumentError("less_common", "must be a list of labels", repr(less_common))
    try:
        return in_order(less_common)
    except ValueError as error:
        raise ValueError(f"`less_common`: {error}") from None
