"""Write a synthetic repository of a competition in the layout of rajpurkarlab/cheXpert-test-set-labels.

::

    groundtruth.csv                                                       fourteen labels of each study
    radiologists/benchmark_radiologists/bc4.csv, ...                      the same columns, by reader
    radiologists/groundtruth/bc1_gt.csv, ...                              readers whose majority is the reference
    example_models/predictions/standard/NAME_predictions.csv              scores of five findings, on any scale
    example_models/decisions/standard/NAME_decisions.csv                  the same findings, 0 or 1
    labeler/chexpert_labels.csv                                           a labeler of reports: 1, 0, -1 or blank
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from reveal_bench.arrays import BoolArray
from reveal_bench.findings import CHEXPERT_LABELS
from reveal_bench.phantom.folders import start_folder, write_csv
from reveal_bench.phantom.layouts import LABEL_READERS, NOTICE, draw_labels, label_generator, with_no_finding

COMPETITION_FINDINGS = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
"""The findings of the CheXpert competition, in the order of its files."""
SYSTEMS = tuple(f"system{i:02d}" for i in range(1, 11))
"""Names of the systems, the best first."""
FURTHER_READERS = {f"bc{i}_gt": 0.08 + 0.01 * i for i in (1, 2, 3, 5, 7)}
"""Name of a further reader -> proportion of labels in which the reader is wrong."""


def write_competition(
    out: Path,
    n_studies: int = 500,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Write references, eight readers, ten systems and a labeler of `n_studies`.

    Scores of a system are normal, with a mean that is higher by 2.6 to 1.7 if the finding is present; each system has
    its own scale.

    Parameters
    ----------
    out : new or empty folder
    progress : called with (studies done, all studies)

    Returns
    -------
    dict with the number of studies per split

    Raises
    ------
    ValueError
        If `out` is not empty.
    """
    out = start_folder(out, NOTICE)
    rng = label_generator(seed)
    truth = draw_labels(rng, n_studies)
    names = [f"CheXpert-v1.0/test/patient{64741 + i}/study1" for i in range(n_studies)]

    def write(path: str, findings: tuple[str, ...], values: list[list[str]]) -> None:
        rows = ((name, *row) for name, row in zip(names, values, strict=True))
        write_csv(out / path, ("Study", *findings), rows)

    write("groundtruth.csv", CHEXPERT_LABELS, _texts(truth))
    for readers, folder in ((LABEL_READERS, "benchmark_radiologists"), (FURTHER_READERS, "groundtruth")):
        for reader, share in readers.items():
            votes = with_no_finding(truth ^ (rng.random(truth.shape) < share))
            write(f"radiologists/{folder}/{reader}.csv", CHEXPERT_LABELS, _texts(votes))
    asked = truth[:, [CHEXPERT_LABELS.index(finding) for finding in COMPETITION_FINDINGS]]
    for i, system in enumerate(SYSTEMS):
        gain, scale = 2.6 - 0.1 * i, 1 + i / 2
        scores = scale * (gain * asked + rng.normal(size=asked.shape) - 1)
        path = f"example_models/{{0}}/standard/{system}_{{0}}.csv"
        write(path.format("predictions"), COMPETITION_FINDINGS, [[f"{x:.6f}" for x in row] for row in scores])
        write(path.format("decisions"), COMPETITION_FINDINGS, _texts(scores > scale * (gain / 2 - 1)))
    marks = np.where(truth, "1", rng.choice(["", "0", "-1"], truth.shape, p=[0.8, 0.15, 0.05]))
    write("labeler/chexpert_labels.csv", CHEXPERT_LABELS, marks.tolist())
    if progress is not None:
        progress(n_studies, n_studies)
    return {"test": n_studies}


def _texts(labels: BoolArray) -> list[list[str]]:
    return [[str(int(label)) for label in row] for row in labels]
