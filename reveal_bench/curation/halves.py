"""Two halves by patient, at random, and the best of several such draws.

The rule
--------
The unit is the patient. First come the patients of studies that were selected for a less common finding, then the
others, each group in random order, those with more studies first: a patient goes to the half with fewer studies, by a
coin if both have as many. So each group is halved, and both halves have as many studies, but for the odd one (paper
004, section 2.3: 123 and 77 studies became 100 and 100).

Of several draws the one is taken whose largest absolute standardized difference is smallest, over all columns of facts
and labels (:class:`reveal_bench.curation.balance.Differences`), the first of equals. The number of draws is said before
anybody looks; a difference that is undefined does not count, an infinite one does.

What ``reveal-bench build`` reads to make a dataset of a curation: ``labels.csv`` and ``mapping.yaml``.

A row per study with its labels, how many of three readers agreed to all of them, its half, and its demographics; the
mapping says what the columns mean (:mod:`reveal_bench.sources.mapping`), and that studies without a row are left out:
the images may be those of the whole pool. The table holds the labels of the holdout: it belongs where nobody but the
maintainer reads, and so it is made readable for its owner alone.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reveal_bench.arrays import BoolArray
from reveal_bench.curation.balance import Column, Differences
from reveal_bench.curation.folder import CurationError, Progress
from reveal_bench.curation.tables import Placed, Selected
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.sources.mapping import KEY_FACTS, VOCABULARIES

__all__ = ["CRITERION", "Draws", "LABELS_NAME", "draw_best", "draw_halves", "label_columns", "write_benchmark"]

CRITERION = "the largest absolute standardized difference over all columns of the facts and all labels, smallest wins"


@dataclass(frozen=True, slots=True)
class Draws:
    """`is_holdout` of the draw that was taken, bool array (n_studies,); its number from 1; the values of all."""

    is_holdout: BoolArray
    taken: int
    values: list[float]


def draw_halves(selected: Sequence[Selected], rng: np.random.Generator) -> BoolArray:
    """One draw: whether each study is in the holdout, bool array (n_studies,); see the module.

    Raises
    ------
    CurationError
        If there are fewer than two patients.
    """
    studies_of: dict[str, list[int]] = {}
    for i, study in enumerate(selected):
        studies_of.setdefault(study.patient_id, []).append(i)
    if len(studies_of) < 2:
        raise CurationError(f"a split needs studies of at least 2 patients, got {len(studies_of)}")
    rare = {study.patient_id for study in selected if study.reason == "less_common"}
    is_holdout, sizes = np.zeros(len(selected), bool), [0, 0]
    for group in (sorted(rare), sorted(studies_of.keys() - rare)):
        shuffled = [group[i] for i in rng.permutation(len(group))]
        for patient in sorted(shuffled, key=lambda patient: -len(studies_of[patient])):
            half = int(rng.integers(2)) if sizes[0] == sizes[1] else int(sizes[1] < sizes[0])
            is_holdout[studies_of[patient]] = bool(half)
            sizes[half] += len(studies_of[patient])
    return is_holdout


def draw_best(
    selected: Sequence[Selected],
    columns: Sequence[Column],
    rngs: Sequence[np.random.Generator],
    *,
    progress: Progress | None = None,
) -> Draws:
    """The best of one draw per element of `rngs`, by :data:`CRITERION`.

    Parameters
    ----------
    selected : studies in any order
    columns : what is compared, in the order of `selected`
    rngs : at least one
    progress : called with (draws done, draws in all)
    """
    difference = Differences(columns)
    values: list[float] = []
    taken, best = 0, np.zeros(0, bool)
    for i, rng in enumerate(rngs, start=1):
        is_holdout = draw_halves(selected, rng)
        values.append(float(np.nanmax(np.abs(difference(is_holdout)))))
        if i == 1 or values[-1] < values[taken - 1]:
            taken, best = i, is_holdout
        if progress is not None:
            progress(i, len(rngs))
    return Draws(best, taken, values)


def label_columns(selected: Sequence[Selected]) -> list[Column]:
    """Each label present or absent, the number of labels, and how many of three readers agreed to all."""
    found = [
        Column(label, tuple("present" if label in study.labels else "absent" for study in selected))
        for label in REVEAL_LABELS
    ]
    found.append(Column("n_labels", tuple(str(len(study.labels)) for study in selected)))
    found.append(Column("n_agree_all", tuple(str(study.n_agree_all) for study in selected)))
    return found


LABELS_NAME = "labels.csv"
MAPPING_NAME = "mapping.yaml"
COLUMNS = ("study_id", "patient_id", "labels", "n_agree_all", "split")

MAPPING = """# What the columns of labels.csv mean; written by reveal-bench curate.
table: labels.csv
study_key: {{column: study_id, matches: {study_key}}}
patient_key: {{column: patient_id}}
labels:
  list: {{column: labels, separator: ";"}}
n_agree_all: {{column: n_agree_all}}
other_studies: left out
split: {{column: split}}
"""


def write_benchmark(
    out: Path,
    placed: Sequence[Placed],
    *,
    study_key: str = KEY_FACTS[0],
    demographics: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Write both files into the folder `out`, which is made if it is missing.

    Parameters
    ----------
    placed : the studies; their rows are sorted by id, an order that tells nothing of the labels
    study_key : what the ids of studies are, of `builders.mapping.KEY_FACTS`
    demographics : of age_band, sex, race and patient_class those that are known -> study id -> word or ""

    Raises
    ------
    ValueError
        If `study_key` or a name of `demographics` is not one of those.
    """
    if study_key not in KEY_FACTS:
        raise ValueError(f"`study_key` must be one of {', '.join(KEY_FACTS)}, got {study_key!r}")
    known = dict(demographics or {})
    strangers = [name for name in known if name not in VOCABULARIES]
    if strangers:
        raise ValueError(f"`demographics` must be of {', '.join(VOCABULARIES)}, got {strangers[0]!r}")
    names = [name for name in VOCABULARIES if name in known]
    out.mkdir(parents=True, exist_ok=True)
    path = out / LABELS_NAME
    path.unlink(missing_ok=True)
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", newline="", encoding="utf-8"
    ) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *names])
        for study in sorted(placed, key=lambda study: study.study_id):
            agreed = "" if study.n_agree_all is None else study.n_agree_all
            own = [study.study_id, study.patient_id, "; ".join(study.labels) or "None", agreed, study.half]
            writer.writerow([*own, *(known[name].get(study.study_id, "") for name in names)])
    text = MAPPING.format(study_key=study_key)
    if names:
        text += "demographics:\n" + "".join(f"  {name}: {{column: {name}}}\n" for name in names)
    (out / MAPPING_NAME).write_text(text, encoding="utf-8")
