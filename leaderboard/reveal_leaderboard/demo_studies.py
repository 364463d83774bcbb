"""The demo's second dataset: studies with labels, from DICOM files and reports, in the style of REVEAL-CXR.

A pool of synthetic studies is curated (:mod:`reveal_leaderboard.demo_curation`), and what was selected becomes a public
folder, checked as for publishing, and a private holdout; models of graded quality predict both halves: they are scored
at home on the one, and uploaded for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.builders import BUILDERS
from reveal_bench.builders.folder import HOLDOUT, build_folder
from reveal_bench.builders.hub import prepare
from reveal_bench.builders.ids import read_id_key
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.phantom import study_predictions, write_curation_world
from reveal_bench.predictions import findings_to_jsonl
from reveal_bench.records import read_folder_info
from reveal_bench.score_file import score_file
from reveal_bench.study_records import read_studies
from reveal_leaderboard.demo_board import Upload
from reveal_leaderboard.demo_curation import curate

__all__ = ["SETTINGS", "STUDIES", "prepare_studies", "score_studies_at_home", "study_uploads"]

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
    for split, folder in (("released", public), ("holdout", private)):
        studies = read_studies(folder, split)
        for number, (model, (_, quality)) in enumerate(MODELS.items()):
            made = study_predictions(studies, labels, quality=quality, seed=seed + number)
            _file_of(root, model, split).write_text(findings_to_jsonl(made), encoding="utf-8")


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
