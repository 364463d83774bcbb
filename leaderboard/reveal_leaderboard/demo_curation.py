"""The demo's curation: from a pool of studies with reports to a benchmark, step by step, as paper 004 made one.

The readers are simulated, with known error rates (:mod:`reveal_bench.phantom.curation_readers`); everything else is
what ``reveal-bench curate`` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from reveal_bench.curation.assign import assign
from reveal_bench.curation.consensus import consensus
from reveal_bench.curation.extract import ReportTable, extract
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.report import report
from reveal_bench.curation.reports import ReportColumns
from reveal_bench.curation.sample import sample
from reveal_bench.curation.select import select
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Assignment, Sampled, read_table
from reveal_bench.curation.votes import import_votes
from reveal_bench.phantom.curation_readers import cast, expected_agreement, write_votes

__all__ = ["curate"]

STRATA = {1: 0.34, 2: 0.22, 3: 0.10, 4: 0.04}
"""Suggested labels -> share of the pool that is sampled; what a stratum lacks comes from the next one down."""
TARGET = 0.5
"""Studies selected, as a share of the pool at most."""
DRAWS = 20
Say = Callable[[str], None]


def curate(folder: CurationFolder, pool: Path, say: Say) -> Path:
    """Go through every step with what :func:`reveal_bench.phantom.write_curation_world` wrote; where the mapping is."""
    found = extract(folder, ReportTable(pool / "reports.csv", ReportColumns("study", "patient", "report"))).counts
    say(f"     extract    {found['studies']} reports of {found['patients']} patients, {found['quarantined']} set apart")
    strata = {n: max(round(share * found["studies"]), 1) for n, share in STRATA.items()}
    sampled = sample(folder, strata=strata, fill=True).counts
    say(f"     sample     {sampled['sampled']} studies, one per patient, {sampled['set_aside']} further ones left out")
    given = assign(folder, pool / "readers.csv").counts
    assignments = read_table(folder.path("assignments.parquet"), Assignment)
    readings = [(one.study_id, one.reader) for one in assignments]
    suggested = {one.study_id: one.labels for one in read_table(folder.path("sample.parquet"), Sampled)}
    truth = _truth(pool)
    write_votes(pool / "votes.csv", cast(readings, suggested, truth, folder.seed))
    import_votes(folder, pool / "votes.csv")
    say(f"     read       {given['places']} readings by {given['readers']} simulated readers, three of each study")
    consensus(folder)
    agreement = json.loads(folder.path("agreement.json").read_text(encoding="utf-8"))
    kappa = agreement["answers"]["two_categories"]
    expected = expected_agreement([(suggested[study], truth[study]) for study in suggested]).kappa
    interval = f"{kappa['low']:.2f} to {kappa['high']:.2f}"
    say(f"     consensus  kappa {kappa['value']:.2f} ({interval}); the simulated error rates make it {expected:.2f}")
    selected = select(folder, target=max(round(TARGET * found["studies"]), 2)).counts
    say(f"     select     {selected['selected']} studies that two readers agreed to, less common findings first")
    halves = split(folder, pool / "facts.csv", best_of=DRAWS).counts
    sizes = f"{halves['released']['studies']} released, {halves['holdout']['studies']} held out"
    say(f"     split      {sizes}; the best balanced of {DRAWS} draws")
    report(folder)
    say(f"     report     {folder.path('report/index.html')}")
    return folder.path("benchmark/mapping.yaml")


def _truth(pool: Path) -> dict[str, list[str]]:
    lines = (pool / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["study_uid"]: one["labels"] for one in map(json.loads, lines)}
