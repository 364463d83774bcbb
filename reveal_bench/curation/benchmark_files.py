"""What ``reveal-bench build`` reads to make a dataset of a curation: ``labels.csv`` and ``mapping.yaml``.

A row per study with its labels, how many of three readers agreed to all of them, its half, and its demographics; the
mapping says what the columns mean (:mod:`reveal_bench.builders.mapping`), and that studies without a row are left out:
the images may be those of the whole pool. The table holds the labels of the holdout: it belongs where nobody but the
maintainer reads, and so it is made readable for its owner alone.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from reveal_bench.builders.mapping import KEY_FACTS, VOCABULARIES
from reveal_bench.curation.tables import Placed

__all__ = ["LABELS_NAME", "MAPPING_NAME", "write_benchmark"]

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
