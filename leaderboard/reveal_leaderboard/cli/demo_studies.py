"""The demo's second dataset: studies with labels, from DICOM files and reports, in the style of REVEAL-CXR.

A pool of synthetic studies is curated (:mod:`reveal_leaderboard.cli.demo_studies`), and what was selected becomes a
public folder, checked as for publishing, and a private holdout; models of graded quality predict both halves: they are
scored at home on the one, and uploaded for the other.

The demo's curation: from a pool of studies with reports to a benchmark, step by step, as paper 004 made one.

The readers are simulated, with known error rates (:mod:`reveal_bench.phantom.curation`); everything else is
what ``reveal-bench curate`` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.curation.assign import assign
from reveal_bench.curation.consensus import consensus
from reveal_bench.curation.extract import ReportTable, extract
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.report_tables import ReportColumns
from reveal_bench.curation.sample import sample
from reveal_bench.curation.select import select
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Assignment, Sampled, read_table
from reveal_bench.curation.votes import import_votes
from reveal_bench.dataset.build import HOLDOUT, build_folder
from reveal_bench.dataset.hub import prepare
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.phantom import study_predictions, write_curation_world
from reveal_bench.phantom.curation import cast, expected_agreement, write_votes
from reveal_bench.predictions import findings_to_jsonl
from reveal_bench.reports.curation import report
from reveal_bench.sources import BUILDERS
from reveal_bench.sources.ids import read_id_key
from reveal_leaderboard.cli.demo_board import Upload

__all__ = ["SETTINGS", "STUDIES", "prepare_studies", "score_studies_at_home", "study_uploads"]

STRATA = {1: 0.34, 2: 0.22, 3: 0.10, 4: 0.04}
"""Suggested labels -> share of the pool that is sampled; what a stratum lacks comes from the next one down."""
TARGET = 0.5
"""Studies selected, as a share of the pool at most."""
DRAWS = 20


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


STUDIES = "reveal-cxr"
MODELS = {
    "Phantom Reader L": ("Example University", 0.6),
    "Phantom Reader S": ("Example Hospital", 0.35),
    "Chance": ("Chance Laboratory", 0.0),
}
"""Model -> the team that sends it, and its quality."""
SETTINGS = """# For the demo alone, whose holdout is as small as a demo must be: findings with ten cases are shown.
[benchmarks.reveal-cxr.release]
min_cell = 10
bands = [10, 30, 60, 120]
"""
Say = Callable[[str], None]


def prepare_studies(root: Path, *, n_studies: int, seed: int, private: Path, say: Say) -> None:
    """Write the pool, curate it, build and check both folders, and write two prediction files per model."""
    pool, public = root / "pool", root / "public"
    write_curation_world(pool, n_studies=n_studies, seed=seed, long_side=512)
    mapping = curate(CurationFolder.create(root / "curation", name="Demo", seed=seed), pool, say)
    key = read_id_key(root / "id-key", create=True)
    reading = BUILDERS[STUDIES].read(pool / "films", keep_going=False, mapping=mapping, id_key=key)
    build_folder(
        reading.splits,
        public,
        BENCHMARKS[STUDIES],
        holdout=private,
        holdout_split=HOLDOUT,
        extras=reading.extras,
        seed=seed,
        synthetic=True,
    )
    ready = prepare(public, f"demo/{STUDIES}", private=False, holdout=private)
    say(f"     publish    {len(ready.files)} files checked, nothing of the holdout among them; not sent")
    labels = read_folder_info(public).findings
    for half, folder in (("released", public), ("holdout", private)):
        studies = read_studies(folder, half)
        for number, (model, (_, quality)) in enumerate(MODELS.items()):
            made = study_predictions(studies, labels, quality=quality, seed=seed + number)
            _file_of(root, model, half).write_text(findings_to_jsonl(made), encoding="utf-8")


def score_studies_at_home(root: Path, say: Say) -> None:
    """Score every model's file on the released half, as its author would."""
    for model in MODELS:
        scored = score_file(_file_of(root, model, "released"), root / "public", "released")
        (macro,) = [e for e in scored.estimates if (e.metric, e.finding) == ("auroc", MACRO)]
        interval = f"{100 * macro.low:.1f} to {100 * macro.high:.1f}"
        say(f"     {model:<16} {100 * macro.value:5.1f} %  ({interval})")


def study_uploads(root: Path) -> list[Upload]:
    """Every model's file for the holdout."""
    return [
        Upload(
            STUDIES,
            _file_of(root, model, "holdout"),
            {"model": {"name": model, "version": "1"}, "organization": team, "kind": "other"},
        )
        for model, (team, _) in MODELS.items()
    ]


def _file_of(root: Path, model: str, split: str) -> Path:
    return root / f"{model.lower().replace(' ', '-')}-{split}.jsonl"
