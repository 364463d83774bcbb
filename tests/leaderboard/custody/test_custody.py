"""From uploads to released scores, for both kinds of benchmark, and every possible failure on the way."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reveal_leaderboard.custody import MOST_MASK_RUNS, Custody, Lint, ParseFailed, ScoreFailed, cases_file
from reveal_leaderboard.custody.arrays import read_canonical, write_canonical
from reveal_leaderboard.custody.limits import PARSE_LIMITS
from reveal_leaderboard.custody.scoring import read_cases
from reveal_leaderboard.release.fingerprints import fingerprint
from reveal_leaderboard.release.ranking import rank_document
from reveal_leaderboard.release.release import release, split_final
from reveal_leaderboard.settings import ReleasePolicy

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.findings.lint import findings_to_jsonl, lint_findings
from reveal_bench.kinds.findings.records import (
    FindingsPrediction,
    StudyManifest,
    StudyRecord,
    read_studies,
    read_study_manifest,
)
from reveal_bench.kinds.findings.scoring import score_studies
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, ManifestRow
from reveal_bench.kinds.localization.scoring import CaseRows, score_localization
from reveal_bench.masks import encode_mask
from reveal_bench.predictions.limits import LintOptions
from tests.leaderboard.conftest import Board, guesses

pytestmark = pytest.mark.processes

POLICY = ReleasePolicy(min_cell=10, place_cell=10, bands=(10, 20), band_resolution=(0.1, 0.01), n_resamples=100)
SALT = bytes(range(32))


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir(mode=0o700)
    (folder / "salt").write_bytes(SALT)
    return folder


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 studies, half of them held out in the folder beside it."""
    folder = tmp_path_factory.mktemp("studies") / "public"
    rng = np.random.default_rng(1)
    records = [
        StudyRecord(f"study{i}", f"patient{i}", tuple(label for label in REVEAL_LABELS[:6] if rng.random() < 0.5))
        for i in range(60)
    ]
    build_folder(
        {"test": iter(records)}, folder, BENCHMARKS["reveal-cxr"], pixels="withhold",
        holdout=folder.with_name("private"), holdout_split="test", synthetic=True,
    )  # fmt: skip
    return folder


def study_guesses(manifest: StudyManifest, *, probabilities: bool) -> list[FindingsPrediction]:
    rng = np.random.default_rng(2)
    made = []
    for study in manifest.studies:
        values = dict(zip(manifest.labels, rng.random(len(manifest.labels)).tolist(), strict=True))
        labels = tuple(label for label, value in values.items() if value > 0.5)
        made.append(FindingsPrediction(study, None, values) if probabilities else FindingsPrediction(study, labels))
    return made


@pytest.mark.parametrize("masks", [True, False], ids=["masks", "points"])
def test_a_localization_file_is_scored_as_at_home_bit_for_bit(
    custody: Custody, board: Board, write_file: Callable[..., Path], tmp_path: Path, vault: Path, masks: bool
) -> None:
    upload, canonical = write_file(masks=masks), tmp_path / "canonical.npz"
    parsed = custody.parse(upload, board.manifest, name="mine.jsonl", canonical=canonical)
    at_home = lint_predictions(upload, board.manifest, LintOptions(name="mine.jsonl"))
    assert parsed.report == Lint.model_validate_json(at_home.to_json())
    assert read_canonical(canonical, board.manifest) == at_home.predictions

    outcome = custody.score(canonical, board.holdout, "holdout", policy=POLICY, vault=vault, submission_id="s1")
    info = board.published.info
    rows = score_localization(
        at_home.predictions, board.records, findings=info.findings, grid=info.grid, asks=info.asks
    )
    with cases_file(vault, "s1", "1.0.0").open("rb") as file:
        kept = read_cases(file)
    assert isinstance(kept, CaseRows)
    assert list(kept.values) == list(rows.values)
    assert {name: v.tobytes() for name, v in kept.values.items()} == {n: v.tobytes() for n, v in rows.values.items()}
    assert replace(kept, values={}) == replace(rows, values={})
    assert outcome.released == release(rows, POLICY)
    assert len(outcome.released.figures) > 20
    assert outcome.final is None
    assert outcome.fingerprint == fingerprint(at_home.predictions, board.manifest, SALT)


@pytest.mark.parametrize("probabilities", [True, False], ids=["probabilities", "labels"])
def test_a_findings_file_is_scored_as_at_home_bit_for_bit(
    custody: Custody, studies: Path, tmp_path: Path, vault: Path, probabilities: bool
) -> None:
    manifest, holdout = read_study_manifest(studies, "holdout"), studies.with_name("private")
    upload, canonical = tmp_path / "mine.jsonl", tmp_path / "canonical.npz"
    upload.write_text(findings_to_jsonl(study_guesses(manifest, probabilities=probabilities)))
    parsed = custody.parse(upload, manifest, name="mine.jsonl", canonical=canonical)
    at_home = lint_findings(upload, manifest)
    assert parsed.report == Lint.model_validate_json(replace(at_home, file="mine.jsonl").to_json())
    assert read_canonical(canonical, manifest) == at_home.predictions

    outcome = custody.score(canonical, holdout, "holdout", policy=POLICY, vault=vault, submission_id="s2")
    rows = score_studies(at_home.predictions, read_studies(holdout, "holdout"), labels=manifest.labels)
    with cases_file(vault, "s2", "1.0.0").open("rb") as file:
        kept: Any = read_cases(file)
    for name in ("predicted", "present", "probabilities", "has_prediction"):
        mine, theirs = getattr(kept, name), getattr(rows, name)
        assert (mine is None and theirs is None) or mine.tobytes() == theirs.tobytes()
    assert (kept.labels, kept.studies) == (rows.labels, rows.studies)
    assert outcome.released == release(rows, POLICY)
    assert outcome.released.figures
    assert outcome.fingerprint == fingerprint(at_home.predictions, manifest, SALT)


def test_the_reference_hash_is_keyed(custody: Custody, board: Board, tmp_path: Path, vault: Path) -> None:
    write_canonical(tmp_path / "c.npz", guesses(board.manifest), board.manifest)
    outcome = custody.score(tmp_path / "c.npz", board.holdout, "holdout", policy=POLICY, vault=vault, submission_id="s")
    (shard,) = (board.holdout / "localization").glob("holdout-*.parquet")
    digest = hmac.new(SALT, hashlib.sha256(shard.read_bytes()).digest(), hashlib.sha256)
    assert outcome.reference_hash == digest.hexdigest()


def test_the_final_part_is_of_other_patients(custody: Custody, board: Board, tmp_path: Path, vault: Path) -> None:
    predictions = guesses(board.manifest)
    write_canonical(tmp_path / "c.npz", predictions, board.manifest)
    policy = replace(POLICY, final_share=0.4)
    outcome = custody.score(tmp_path / "c.npz", board.holdout, "holdout", policy=policy, vault=vault, submission_id="s")
    rows = score_localization(predictions, board.records, findings=board.published.info.findings)
    patients = {patient for _, patient in rows.all_images}
    kept_back = split_final(patients, SALT, 0.4)
    assert 0 < len(kept_back) < len(patients)
    public, final = rows.of_patients(patients - kept_back), rows.of_patients(kept_back)
    assert outcome.released == release(public, policy, other=final)
    assert outcome.final == release(final, policy, other=public)
    for part, wanted in (("public", patients - kept_back), ("final", kept_back)):
        with cases_file(vault, "s", "1.0.0", part).open("rb") as file:  # type: ignore[arg-type]
            rows_of_part = read_cases(file)
        assert isinstance(rows_of_part, CaseRows)
        assert {patient for _, patient in rows_of_part.all_images} == wanted


def test_ranks_are_computed_from_the_vault(custody: Custody, board: Board, tmp_path: Path, vault: Path) -> None:
    rows = {}
    for seed in (0, 1, 2):
        predictions = guesses(board.manifest, seed=seed)
        write_canonical(tmp_path / "c.npz", predictions, board.manifest)
        options: dict[str, Any] = {"policy": POLICY, "vault": vault, "submission_id": f"s{seed}"}
        custody.score(tmp_path / "c.npz", board.holdout, "holdout", **options)
        rows[f"s{seed}"] = score_localization(predictions, board.records, findings=board.published.info.findings)
    for paired in (False, True):
        ranking = custody.rank(vault, "1.0.0", list(rows), policy=POLICY, paired=paired)
        assert ranking == json.loads(json.dumps(rank_document(rows, POLICY, paired=paired))) | {"part": "public"}
    with pytest.raises(ScoreFailed) as caught:
        custody.rank(vault, "1.0.0", ["s0", "unknown"], policy=POLICY)
    assert "unknown.1.0.0.npz" in caught.value.detail


def test_a_file_with_errors_leaves_its_report_alone(
    custody: Custody, board: Board, write_file: Callable[..., Path], tmp_path: Path
) -> None:
    upload = write_file(broken={3: '{"image_id": "nobody", "finding": "Edema", "point": [1, 2]}'})
    parsed = custody.parse(upload, board.manifest, name="\u202egnp.jsonl", canonical=tmp_path / "c.npz")
    assert not (tmp_path / "c.npz").exists()
    assert {problem.rule for problem in parsed.report.problems} == {"unknown-image", "missing-pairs"}
    assert [p.line for p in parsed.report.problems if p.rule == "unknown-image"] == [3]
    assert parsed.report.file == "\\u202egnp.jsonl"


def test_a_mask_of_too_many_runs_is_refused_with_its_line(custody: Custody, tmp_path: Path) -> None:
    height, width = 400, MOST_MASK_RUNS // 400 + 2
    manifest = ImageManifest(
        "b", "1", "t", 8, ("Edema",), {"a": ManifestRow("a", "a", "AP", width, height, ("Edema",))}
    )
    stripes = np.zeros((height, width), bool)
    stripes[::2] = True
    upload = tmp_path / "noise.jsonl"
    upload.write_text(predictions_to_jsonl([LocalizationPrediction("a", "Edema", mask=encode_mask(stripes))]))
    (problem,) = custody.parse(upload, manifest, name="noise").report.problems
    assert (problem.line, problem.rule, problem.severity) == (1, "rle-runs", "error")
    assert f"at most {MOST_MASK_RUNS} runs here, got {height * width + 1}" in problem.message


def test_an_upload_that_is_a_link_or_is_not_there(custody: Custody, board: Board, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("link", "nothing"):
        with pytest.raises(OSError, match=name):
            custody.parse(tmp_path / name, board.manifest, name=name)


def test_canonical_arrays_of_another_manifest_are_not_scored(
    custody: Custody, board: Board, tmp_path: Path, vault: Path
) -> None:
    manifest = replace(board.manifest, version="0.9")
    write_canonical(tmp_path / "c.npz", guesses(board.manifest), manifest)
    with pytest.raises(ScoreFailed, match=r"^Scoring stopped on our side\.$") as caught:
        custody.score(tmp_path / "c.npz", board.holdout, "holdout", policy=POLICY, vault=vault, submission_id="s")
    assert "are for a different manifest" in caught.value.detail
    assert [path.name for path in vault.iterdir()] == ["salt"]


@pytest.fixture
def small(scratch: Path) -> Iterator[Custody]:
    """Children with hardly any memory and time."""
    limits = replace(PARSE_LIMITS, memory=40 << 20, cpu_seconds=1, wall_seconds=30.0, file_bytes=10_000)
    with Custody(scratch, parse_limits=limits, bubblewrap=False) as kept:
        yield kept


def test_what_needs_too_much_gets_a_fixed_sentence(small: Custody, board: Board, tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    large.write_bytes(b" " * (60 << 20))
    with pytest.raises(ParseFailed, match=r"^Reading the file takes more memory than a check may use\.") as caught:
        small.parse(large, board.manifest, name="large")
    assert caught.value.kind == "too_large"


def test_arrays_that_outgrow_their_limit(
    small: Custody, board: Board, write_file: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(ParseFailed) as caught:
        small.parse(write_file(), board.manifest, name="good", canonical=tmp_path / "c.npz")
    assert caught.value.kind == "too_large"
    assert not (tmp_path / "c.npz").exists()
