"""Split the benchmark into a released and a holdout half, by a rule fixed before any result is seen.

The rule
--------
The unit is the patient. Patients with a study selected for a less common finding are assigned first, then the others.
In each group, patients with more studies come first, in random order among equals. Each patient goes to the half with
fewer studies, or to a random half if both have the same number. Thus each group is halved, and both halves have equally
many studies, give or take one (paper 004, section 2.3: 123 and 77 studies became 100 and 100).

Of several draws, the first with the smallest maximum absolute standardized difference over all columns of facts and
labels (:mod:`reveal_bench.dataset.balance`) is used. The number of draws is fixed beforehand. Undefined differences are
ignored, infinite ones are not. ``balance.json`` records the rule, the number of draws, the maximum difference of each
draw, and the total number of draws ever requested in this folder, so that trying many splits leaves a record. The tests
of balance are reported but do not influence the choice (section 3).

Input of ``reveal-bench build``
---------------------------------
``labels.csv`` has a row per study: its labels, the number of the three readers who agreed to all of them, its half, and
its demographics. ``mapping.yaml`` declares the meaning of these columns (:mod:`reveal_bench.sources.mapping`).
``mapping.yaml`` also declares that studies without a row are left out, because the images may cover studies that were
not selected. The table contains the labels of the holdout, so only the maintainer may have it, and the file's
permissions allow only its owner to read it.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray
from reveal_bench.curation.balance import ColumnBalance, StudyFacts, compare_halves, read_facts
from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import HALVES, Placed, Selected, json_ready, read_table, write_table
from reveal_bench.dataset.balance import CRITERION, Column, Draws, best_draw
from reveal_bench.files import file_sha256
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.sources.mapping import KEY_FACTS, VOCABULARIES

WRITES = ("split.parquet", "balance.json", "benchmark/labels.csv", "benchmark/mapping.yaml")
LEVEL = 0.05
"""P values below this limit are counted; the paper reported none."""


def split(
    folder: CurationFolder,
    facts: Path | None = None,
    *,
    columns: Sequence[str] | None = None,
    best_of: int = 1,
    version: str = "1.0.0",
    key: str = "study",
    study_key: str = KEY_FACTS[0],
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Split the selected studies by the module's rule.

    Writes ``split.parquet``, ``balance.json`` and ``benchmark/``.

    Parameters
    ----------
    facts : table of acquisition and demographics, one row per study; None compares labels only
    columns : columns of `facts` to compare, all by default; age_band, sex, race and patient_class are also published
    best_of : number of draws, at least 1
    version : version of the benchmark, such as 1.0.0
    key : the column of `facts` with the study ids
    study_key : meaning of the study ids, from `reveal_bench.sources.mapping.KEY_FACTS`
    redo : repeat the step even if it was done with other inputs or settings; draws of the two runs are counted together
    progress : called with (draws done, all draws)

    Raises
    ------
    CurationError
        If the selection is not done, or has fewer than two patients.
    BuildError
        If `facts` have problems; the error lists all of them.
    ValueError
        If an argument is invalid.
    """
    _check(facts, columns, best_of, version, study_key)
    settings = {
        "columns": None if columns is None else list(columns),
        "best_of": best_of,
        "criterion": CRITERION,
        "version": version,
        "key": key,
        "study_key": study_key,
    }

    def work(scratch: Path) -> Mapping[str, Any]:
        selected = sorted(read_table(folder.path("selection.parquet"), Selected), key=lambda study: study.study_id)
        known = _facts(facts, [study.study_id for study in selected], key, columns)
        labels = label_columns(selected)
        judged = [*known.columns, *labels]
        rngs = [folder.rng(f"split draw {i}") for i in range(1, best_of + 1)]
        draws = draw_best(selected, judged, rngs, progress=progress)
        history = _history(folder, facts, settings)
        comparisons = [compare_halves(one, draws.is_holdout, folder.rng(f"split balance {one.name}")) for one in judged]
        halves = [HALVES[int(is_holdout)] for is_holdout in draws.is_holdout]
        placed = [
            Placed(one.study_id, one.patient_id, one.labels, one.n_agree_all, half, version)
            for one, half in zip(selected, halves, strict=True)
        ]
        counts = {**_counts(selected, halves), **_tested(comparisons)}
        counts |= {"studies_without_facts": known.n_studies_without_row}
        counts |= {"facts_of_other_studies": known.n_rows_of_others}
        counts |= {"history": history, "draws_looked_at": sum(entry["best_of"] for entry in history)}
        write_table(scratch / "split.parquet", placed, Placed)
        text = json.dumps(json_ready(_document(draws, settings, counts, comparisons, len(known.columns))), indent=1)
        (scratch / "balance.json").write_text(text + "\n", encoding="utf-8")
        write_benchmark(scratch / "benchmark", placed, study_key=study_key, demographics=_demographics(known, selected))
        return counts

    files = {} if facts is None else {"facts": Path(facts)}
    return folder.run("split", settings, work, reads=("selection.parquet",), files=files, writes=WRITES, redo=redo)


def _facts(path: Path | None, studies: Sequence[str], key: str, columns: Sequence[str] | None) -> StudyFacts:
    return StudyFacts((), 0, 0) if path is None else read_facts(Path(path), studies, key=key, columns=columns)


def _history(folder: CurationFolder, facts: Path | None, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every split requested so far, ending with this one; an immediate repetition counts once."""
    before = folder.record("split")
    history: list[dict[str, Any]] = [] if before is None else list(before.counts["history"])
    entry = {
        "best_of": settings["best_of"],
        "columns": settings["columns"],
        "selection": file_sha256(folder.path("selection.parquet")),
        "facts": None if facts is None else file_sha256(Path(facts)),
    }
    return history if history and history[-1] == entry else [*history, entry]


def _document(
    draws: Draws,
    settings: Mapping[str, Any],
    counts: Mapping[str, Any],
    comparisons: Sequence[ColumnBalance],
    n_facts: int,
) -> dict[str, Any]:
    rule = {
        "best_of": settings["best_of"],
        "criterion": CRITERION,
        "values": draws.values,
        "taken": draws.taken,
        "draws_looked_at": counts["draws_looked_at"],
        "history": counts["history"],
    }
    return {
        "version": settings["version"],
        "rule": rule,
        "counts": {name: value for name, value in counts.items() if name not in ("history", "draws_looked_at")},
        "facts": comparisons[:n_facts],
        "labels": comparisons[n_facts:],
    }


def _counts(selected: Sequence[Selected], halves: Sequence[str]) -> dict[str, Any]:
    counts: dict[str, Any] = {"studies": len(selected)}
    for half in HALVES:
        own = [study for study, where in zip(selected, halves, strict=True) if where == half]
        counts[half] = {
            "studies": len(own),
            "patients": len({study.patient_id for study in own}),
            "less_common": sum(study.reason == "less_common" for study in own),
        }
    return counts


def _tested(comparisons: Sequence[ColumnBalance]) -> dict[str, int]:
    p_values = [one.test.p_value for one in comparisons if not math.isnan(one.test.p_value)]
    return {"columns_tested": len(p_values), "columns_below_0.05": sum(p < LEVEL for p in p_values)}


def _demographics(known: StudyFacts, selected: Sequence[Selected]) -> dict[str, dict[str, str]]:
    studies = [study.study_id for study in selected]
    return {
        column.name: dict(zip(studies, column.texts, strict=True))
        for column in known.columns
        if column.name in VOCABULARIES
    }


def _check(facts: Path | None, columns: Sequence[str] | None, best_of: int, version: str, study_key: str) -> None:
    if best_of < 1:
        raise ArgumentError("best_of", "must be at least 1", best_of)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ArgumentError("version", "must have the form 1.2.3", repr(version))
    if study_key not in KEY_FACTS:
        raise ArgumentError("study_key", f"must be one of {', '.join(KEY_FACTS)}", repr(study_key))
    if isinstance(columns, str) or (columns is not None and facts is None):
        raise ArgumentError("columns", "must be a list of columns of `facts`", repr(columns), ("facts",))


def draw_halves(selected: Sequence[Selected], rng: np.random.Generator) -> BoolArray:
    """Draw one split and return a bool array (n_studies,), True for studies in the holdout.

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
    """Return the best of one draw per element of `rngs`, by :data:`CRITERION`.

    Parameters
    ----------
    selected : studies in any order
    columns : the columns to compare, in the order of `selected`
    rngs : random generators, at least one
    progress : called with (draws done, all draws)
    """

    def draws() -> Iterator[BoolArray]:
        for i, rng in enumerate(rngs, start=1):
            yield draw_halves(selected, rng)
            if progress is not None:
                progress(i, len(rngs))

    return best_draw(draws(), columns)


def label_columns(selected: Sequence[Selected]) -> list[Column]:
    """Return each label as present or absent, the number of labels, and the number of readers who agreed to all."""
    columns = [
        Column(label, tuple("present" if label in study.labels else "absent" for study in selected))
        for label in REVEAL_LABELS
    ]
    columns.append(Column("n_labels", tuple(str(len(study.labels)) for study in selected)))
    columns.append(Column("n_agree_all", tuple(str(study.n_agree_all) for study in selected)))
    return columns


LABELS_NAME, MAPPING_NAME = "labels.csv", "mapping.yaml"
COLUMNS = ("study_id", "patient_id", "labels", "n_agree_all", "split")
MAPPING = """# What the columns of labels.csv mean; written by reveal-bench curate.
table: labels.csv
study_key: {{column: study_id, matches: {study_key}}}
patient_key: {{column: patient_id}}
labels:
  list: {{column: labels, separator: ";"}}
n_agree_all: {{column: n_agree_all}}
other_studies: left out
findings: [{findings}]
split: {{column: split}}
"""


def write_benchmark(
    out: Path,
    placed: Sequence[Placed],
    *,
    study_key: str = KEY_FACTS[0],
    demographics: Mapping[str, Mapping[str, str]] | None = None,
    mapping: str = "",
) -> None:
    """Write both files into the folder `out`, which is created if missing.

    Parameters
    ----------
    placed : the studies; their rows are sorted by id, an order that reveals nothing about the labels
    study_key : meaning of the study ids, from `reveal_bench.sources.mapping.KEY_FACTS`
    demographics : column (age_band, sex, race or patient_class) -> study id -> word or ""
    mapping : text of ``mapping.yaml``, made from the other arguments by default

    Raises
    ------
    ValueError
        If `study_key` or a column of `demographics` is not one of those listed.
    """
    if study_key not in KEY_FACTS:
        raise ArgumentError("study_key", f"must be one of {', '.join(KEY_FACTS)}", repr(study_key))
    known = dict(demographics or {})
    unknown = [name for name in known if name not in VOCABULARIES]
    if unknown:
        raise ArgumentError("demographics", f"must be among {', '.join(VOCABULARIES)}", repr(unknown[0]))
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
    if not mapping:
        mapping = MAPPING.format(study_key=study_key, findings=", ".join(REVEAL_LABELS))
        if names:
            mapping += "demographics:\n" + "".join(f"  {name}: {{column: {name}}}\n" for name in names)
    (out / MAPPING_NAME).write_text(mapping, encoding="utf-8")
