"""The recipe of docs/challenges.md for Van Dyke's study, on a synthetic table in the layout of the public one."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import f as f_distribution

from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.markdown import block_below
from tests.reader_studies.studies import drawn

(COMMAND,) = block_below(ROOT / "docs" / "challenges.md", "Van Dyke, 1993", "sh").strip().splitlines()


def test_recipe_is_the_analysis_of_pseudovalues(tmp_path: Path) -> None:
    """Dorfman, Berbaum and Metz 1992, with the degrees of freedom of Hillis 2007."""
    study = drawn(np.random.default_rng(4), t=2, r=5, n=114)
    with (tmp_path / "VanDyke.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["reader", "treatment", "case", "case2", "case3", "truth", "rating"])
        for (t, r, c), rating in np.ndenumerate(study.scores):
            nested = f"{r + 1}.{c + 1}", f"{t + 1}.{c + 1}"
            table.writerow([r + 1, t + 1, c + 1, *nested, study.truth[c], int(rating)])
    document = json.loads(call(*shlex.split(COMMAND)[1:], "--json", cwd=tmp_path).stdout)

    def areas(kept: Any) -> Any:
        """Proportions of pairs of a positive and a negative case in order, ties counting half."""
        scores, positive = study.scores[..., kept], study.truth[kept] == 1
        gaps = scores[..., positive][..., None] - scores[..., ~positive][..., None, :]
        return ((gaps > 0) + (gaps == 0) / 2).mean(axis=(-2, -1))

    n = len(study.truth)
    whole = areas(slice(None))
    pseudo = np.stack([n * whole - (n - 1) * areas(np.arange(n) != c) for c in range(n)], axis=2)
    by_modality = pseudo.mean(axis=(1, 2), keepdims=True)
    reader, case = pseudo.mean(axis=2, keepdims=True), pseudo.mean(axis=1, keepdims=True)
    centred = pseudo - by_modality
    of_reader = reader - by_modality - centred.mean(axis=(0, 2), keepdims=True)
    of_case = case - by_modality - centred.mean(axis=(0, 1), keepdims=True)
    rest = pseudo - reader - case + by_modality
    rest = rest - rest.mean(axis=0, keepdims=True)
    ms_t = 5 * n * ((by_modality - pseudo.mean()) ** 2).sum()
    ms_tr = n * (of_reader**2).sum() / 4
    ms_tc = 5 * (of_case**2).sum() / (n - 1)
    ms_trc = (rest**2).sum() / (4 * (n - 1))
    below = ms_tr + max(ms_tc - ms_trc, 0)
    ratio, freedom = ms_t / below, below**2 / (ms_tr**2 / 4)
    difference = document["results"][-1]
    assert difference["value"] == pytest.approx(float(whole[0].mean() - whole[1].mean()), abs=1e-12)
    assert (difference["value"] / difference["error"]) ** 2 == pytest.approx(ratio, rel=1e-9)
    assert difference["freedom"] == pytest.approx(freedom, rel=1e-9)
    assert difference["p"] == pytest.approx(f_distribution.sf(ratio, 1, freedom), rel=1e-9)
