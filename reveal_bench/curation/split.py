"""Dividing the benchmark into its released and its holdout half, by a rule that is fixed before anybody looks.

Draws and the rule by which one is taken are those of :mod:`reveal_bench.curation.halves`. ``balance.json`` records the
rule, how many draws were asked for, the value of every one and, over everything that was ever asked for in this folder,
how many were looked at: nobody can shop for a split unseen. Tests are reported and decide nothing.
Source: paper 004 (REVEAL-CXR), sections 2.3 and 3.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from reveal_bench.curation.balance import ColumnBalance, Facts, compare_halves, read_facts
from reveal_bench.curation.folder import CurationFolder, Progress, StepRecord
from reveal_bench.curation.halves import CRITERION, Draws, draw_best, label_columns, write_benchmark
from reveal_bench.curation.tables import HALVES, Placed, Selected, read_table, write_table
from reveal_bench.sources.mapping import KEY_FACTS, VOCABULARIES

__all__ = ["split"]

WRITES = ("split.parquet", "balance.json", "benchmark/labels.csv", "benchmark/mapping.yaml")
LEVEL = 0.05
"""P values below it are counted; the paper found none."""


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
    """Divide the selected studies, see the module.

    Writes ``split.parquet``, ``balance.json`` and ``benchmark/``, see :mod:`reveal_bench.curation.halves`.

    Parameters
    ----------
    facts : table of acquisition and demographics, one row per study; None compares labels alone
    columns : those of `facts` to compare, all by default; age_band, sex, race and patient_class are published, too
    best_of : number of draws, at least 1
    version : of the benchmark, such as 1.0.0
    key : the column of `facts` with the ids of studies
    study_key : what the ids of studies are, of `builders.mapping.KEY_FACTS`
    redo : do it again though it was done with other inputs or settings; the draws of both are counted
    progress : called with (draws done, draws in all)

    Raises
    ------
    CurationError
        If the selection is not done, or is of fewer than two patients.
    BuildError
        With everything that is wrong with `facts`.
    ValueError
        If an argument breaks its rule.
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
        found = [compare_halves(one, draws.is_holdout, folder.rng(f"split balance {one.name}")) for one in judged]
        halves = [HALVES[int(is_holdout)] for is_holdout in draws.is_holdout]
        placed = [
            Placed(one.study_id, one.patient_id, one.labels, one.n_agree_all, half, version)
            for one, half in zip(selected, halves, strict=True)
        ]
        counts = {**_counts(selected, halves), **_tested(found), **_missed(known)}
        counts |= {"history": history, "draws_looked_at": sum(entry["best_of"] for entry in history)}
        write_table(scratch / "split.parquet", placed, Placed)
        text = json.dumps(_plain(_document(draws, settings, counts, found, len(known.columns))), indent=1)
        (scratch / "balance.json").write_text(text + "\n", encoding="utf-8")
        write_benchmark(scratch / "benchmark", placed, study_key=study_key, demographics=_demographics(known, selected))
        return counts

    files = {} if facts is None else {"facts": Path(facts)}
    return folder.run("split", settings, work, reads=("selection.parquet",), files=files, writes=WRITES, redo=redo)


def _facts(path: Path | None, studies: Sequence[str], key: str, columns: Sequence[str] | None) -> Facts:
    return Facts((), 0, 0) if path is None else read_facts(Path(path), studies, key=key, columns=columns)


def _history(folder: CurationFolder, facts: Path | None, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every split that was asked for, this one last; the same thing asked for twice in a row counts once."""
    before = folder.record("split")
    history: list[dict[str, Any]] = [] if before is None else list(before.counts["history"])
    entry = {
        "best_of": settings["best_of"],
        "columns": settings["columns"],
        "selection": sha256(folder.path("selection.parquet").read_bytes()).hexdigest(),
        "facts": None if facts is None else sha256(Path(facts).read_bytes()).hexdigest(),
    }
    return history if history and history[-1] == entry else [*history, entry]


def _document(
    draws: Draws, settings: Mapping[str, Any], counts: Mapping[str, Any], found: Sequence[ColumnBalance], n_facts: int
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
        "facts": [asdict(one) for one in found[:n_facts]],
        "labels": [asdict(one) for one in found[n_facts:]],
    }


def _counts(selected: Sequence[Selected], halves: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"studies": len(selected)}
    for half in HALVES:
        own = [study for study, where in zip(selected, halves, strict=True) if where == half]
        found[half] = {
            "studies": len(own),
            "patients": len({study.patient_id for study in own}),
            "less_common": sum(study.reason == "less_common" for study in own),
        }
    return found


def _tested(found: Sequence[ColumnBalance]) -> dict[str, int]:
    p_values = [one.test.p_value for one in found if not math.isnan(one.test.p_value)]
    return {"columns_tested": len(p_values), "columns_below_0.05": sum(p < LEVEL for p in p_values)}


def _missed(known: Facts) -> dict[str, int]:
    return {"studies_without_facts": known.n_studies_without_row, "facts_of_other_studies": known.n_rows_of_others}


def _demographics(known: Facts, selected: Sequence[Selected]) -> dict[str, dict[str, str]]:
    studies = [study.study_id for study in selected]
    return {
        column.name: dict(zip(studies, column.texts, strict=True))
        for column in known.columns
        if column.name in VOCABULARIES
    }


def _plain(value: Any) -> Any:
    """For JSON: undefined and infinite are null."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check(facts: Path | None, columns: Sequence[str] | None, best_of: int, version: str, study_key: str) -> None:
    if best_of < 1:
        raise ValueError(f"`best_of` must be at least 1, got {best_of}")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"`version` must be of the form 1.2.3, got {version!r}")
    if study_key not in KEY_FACTS:
        raise ValueError(f"`study_key` must be one of {', '.join(KEY_FACTS)}, got {study_key!r}")
    if isinstance(columns, str) or (columns is not None and facts is None):
        raise ValueError(f"`columns` must be a list of columns of `facts`, got {columns!r}")
