"""The secrets of a hospital's board: its canaries, the vault's keys and all exact scores."""

from __future__ import annotations

import base64
import json
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
from reveal_leaderboard.custody.scoring import read_cases

from reveal_bench.kinds.findings.scoring import StudyRows, summarize_studies
from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.metrics.intervals import Estimate, Resampling
from tests.leaderboard.leak.canaries import Search
from tests.leaderboard.leak.hospital import HASH, MARKERS, ODD, Hospital, bar_code


def secret_texts(hospital: Hospital) -> dict[str, str | bytes]:
    """Return name -> text or bytes, with the vault's current ones."""
    key = base64.b64decode(json.loads((hospital.vault / "receipt-key.json").read_text())["private"])
    keys: dict[str, str | bytes] = {"salt": (hospital.vault / "salt").read_bytes(), "signing key": key}
    known = {"hash of a file": HASH, "decimals of a coordinate": f".{ODD}", "outline": bar_code()}
    return {**MARKERS, **known, **keys}


def exact_figures(hospital: Hospital) -> list[float]:
    """Return all unrounded scores: metrics of all findings with intervals, differences and single cases."""
    figures: list[float] = []
    for path in sorted(hospital.vault.glob("*.npz")):
        figures += _figures_of(path)
    return figures


@cache  # the search runs twice, and files of the vault never change
def _estimates(path: Path) -> tuple[list[Estimate], npt.NDArray[np.float64]]:
    """Return the scores of one submission and the values of single cases."""
    with path.open("rb") as file:
        rows = read_cases(file)
    if isinstance(rows, CaseRows):
        return summarize(rows, Resampling(interval="percentile")), np.concatenate(list(rows.values.values()))
    assert isinstance(rows, StudyRows)
    return summarize_studies(rows, Resampling(interval="percentile")), np.empty(
        0
    )  # decisions, and probabilities from the sender


def _figures_of(path: Path) -> list[float]:
    estimates, single = _estimates(path)
    return [*(n for e in estimates for n in (e.value, e.low, e.high)), *np.unique(single[~np.isnan(single)]).tolist()]


def differences(hospital: Hospital, pairs: list[tuple[str, str]]) -> list[float]:
    """Return the unrounded differences between pairs of files of the vault."""
    gaps = []
    for names in pairs:
        values = [{(e.metric, e.finding): e.value for e in _estimates(hospital.vault / name)[0]} for name in names]
        gaps += [abs(a[key] - b[key]) for a, b in combinations(values, 2) for key in a.keys() & b.keys()]
    return gaps


def search_for(hospital: Hospital, pairs: list[tuple[str, str]]) -> Search:
    return Search(secret_texts(hospital), [*exact_figures(hospital), *differences(hospital, pairs)])
