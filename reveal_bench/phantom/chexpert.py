"""Synthetic tables of labels in CheXpert's layout: references of two sets, and three readers of the test set."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray
from reveal_bench.findings import CHEXPERT_LABELS
from reveal_bench.phantom.folders import start_folder
from reveal_bench.phantom.layouts import NOTICE

__all__ = ["READERS", "write_chexpert_labels"]

READERS = {"bc4": 0.06, "bc6": 0.10, "bc8": 0.14}
"""Name of a reader's table -> the share of labels that the reader gets wrong."""
PREVALENCE = (0.0, 0.45, 0.25, 0.45, 0.02, 0.13, 0.06, 0.03, 0.28, 0.02, 0.19, 0.01, 0.01, 0.4)


def write_chexpert_labels(
    out: Path,
    n_studies: int = 500,
    *,
    seed: int = 0,
    long_side: int = 2828,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Write ``groundtruth.csv`` and a table per reader of `n_studies`, and ``valid.csv`` of two fifths as many.

    Parameters
    ----------
    out : new or empty folder
    long_side : makes no difference here: there are no pictures
    progress : called with (studies done, studies in all)

    Returns
    -------
    dict with the number of studies per split

    Raises
    ------
    ValueError
        If `out` is not empty or there is no study.
    """
    if n_studies < 1:
        raise ArgumentError("n_studies", "must be at least 1", n_studies)
    out = start_folder(out, NOTICE)
    rng = np.random.default_rng(seed)
    n_valid = 2 * n_studies // 5
    test, valid = (_draw(rng, n) for n in (n_studies, n_valid))
    names = [f"CheXpert-v1.0/test/patient{64741 + i}/study1" for i in range(n_studies)]
    _write(out / "groundtruth.csv", ("Study",), ((name,) for name in names), test)
    for reader, share in READERS.items():
        said = _with_no_finding(test ^ (rng.random(test.shape) < share))
        _write(out / f"{reader}.csv", ("Study",), ((name,) for name in names), said)
    facts, rows = [], []
    for i in range(n_valid):
        sex, age = ("Female", "Male")[rng.integers(2)], str(rng.integers(18, 91))
        for k, view in enumerate(("frontal", "lateral")[: 1 + (i % 6 == 0)], start=1):
            path = f"CheXpert-v1.0/valid/patient{64541 + i}/study1/view{k}_{view}.jpg"
            facts.append((path, sex, age, view.capitalize(), "AP" if view == "frontal" else ""))
            rows.append(i)
    _write(out / "valid.csv", ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA"), facts, valid[rows])
    if progress is not None:
        progress(n_studies + n_valid, n_studies + n_valid)
    return {"test": n_studies, "valid": n_valid}


def _draw(rng: np.random.Generator, n: int) -> BoolArray:
    return _with_no_finding(rng.random((n, len(CHEXPERT_LABELS))) < PREVALENCE)


def _with_no_finding(labels: BoolArray) -> BoolArray:
    """With "No Finding" where there is none, but for support devices, which are none."""
    labels = labels.copy()
    labels[:, 0] = ~labels[:, 1:-1].any(axis=1)
    return labels


def _write(path: Path, heads: Sequence[str], keys: Iterable[Sequence[str]], labels: BoolArray) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*heads, *CHEXPERT_LABELS])
        table.writerows([*key, *(f"{float(one)}" for one in row)] for key, row in zip(keys, labels, strict=True))
