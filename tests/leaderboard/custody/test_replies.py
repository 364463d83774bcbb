"""Compromised children: a reply is accepted only if it follows all rules."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from reveal_leaderboard.custody import Custody, Lint, ParseFailed, ScoreFailed
from reveal_leaderboard.custody import custody as custody_module
from reveal_leaderboard.custody.fork_client import TemplateService
from reveal_leaderboard.custody.messages import ExitStatus
from reveal_leaderboard.settings import ReleasePolicy

from reveal_bench.kinds.localization.records import ImageManifest
from reveal_bench.predictions import LintProblem, LintReport
from tests.leaderboard.conftest import Board
from tests.leaderboard.custody.conftest import ROOT, SMALL

pytestmark = pytest.mark.processes

MANIFEST = ImageManifest("b", "1", "t", 8, (), {})
POLICY = ReleasePolicy()


@pytest.fixture(scope="module")
def liar(scratch: Path) -> Iterator[Custody]:
    """A custody whose children all return false answers."""

    def service(module: str, scratch: Path, **options: object) -> TemplateService:
        limits = replace(SMALL, wall_seconds=1.0)
        return TemplateService(
            "tests.leaderboard.custody.liar", scratch, lanes=1, limits=limits, paths=[ROOT], wrapped=False
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(custody_module, "TemplateService", service)
        with Custody(scratch) as made:
            yield made


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    for name in ("salt", "a.1.0.0.npz", "c.npz", *(f"{name}.1.0.0.npz" for name in RANKS)):
        (tmp_path / name).write_bytes(bytes(32))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nothing", "crashed"),
        ("no JSON", "crashed"),
        ("deep", "crashed"),
        ("list", "crashed"),
        ("not a report", "crashed"),
        ("a text", "crashed"),
        ("more", "crashed"),
        ("more in it", "crashed"),
        ("raise", "crashed"),
        ("memory", "too_large"),
        ("sleep", "timeout"),
    ],
)
def test_no_report(liar: Custody, tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "upload").write_bytes(b"x")
    with pytest.raises(ParseFailed) as caught:
        liar.parse(tmp_path / "upload", MANIFEST, name=name, canonical=tmp_path / "c.npz")
    assert caught.value.kind == kind
    assert "canary" not in str(caught.value)
    assert not (tmp_path / "c.npz").exists()


def test_a_killed_child_used_too_much_memory(liar: Custody, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends the largest process with SIGKILL when memory is short."""
    killed = ExitStatus(code=-signal.SIGKILL, timed_out=False, peak_bytes=1, seconds=0.5)
    monkeypatch.setattr(TemplateService, "run", lambda *_, **__: (killed, None))
    (tmp_path / "upload").write_bytes(b"x")
    with pytest.raises(ParseFailed) as caught:
        liar.parse(tmp_path / "upload", MANIFEST, name="any")
    assert caught.value.kind == "too_large"


SOUND = LintReport(
    file="predictions.jsonl",
    format="jsonl",
    n_entries=2,
    problems=(
        LintProblem("warning", "predictions.jsonl", None, "", "missing-pairs", "", "1 of 3 asked pairs", "are misses"),
        LintProblem("error", "predictions.jsonl", 17, "box", "outside-image", "[1, 2]", "must be inside, got [1, 2]"),
    ),
    predictions=(),
    missing_pairs=(("a", "Edema"),),
    statistics={"per_finding": {"Edema": 2}, "kinds": {}, "share_missing": 1 / 3},
    allow_missing=True,
).to_document()
PROBLEM = SOUND["problems"][1]
NOT_SHOWN = {"schema", "n_predictions"}


def test_a_report_in_good_order_is_shown_as_it_is() -> None:
    report = Lint.model_validate_json(json.dumps(SOUND))
    assert report.model_dump(mode="json") == {name: SOUND[name] for name in SOUND if name not in NOT_SHOWN}
    assert report.verdict == "1 error, 1 warning"


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": [1]}, {"schema": 2}, {"schema": True}, {"ok": True}, {"n_errors": 0}, {"n_warnings": 7},
        {"n_predictions": 3}, {"n_predictions": -1}, {"n_entries": 2.0}, {"n_entries": True}, {"allow_missing": 1},
        {"file": None}, {"missing_pairs": [["a"]]}, {"missing_pairs": [["a", 1]]}, {"problems": {}}, {"problems": [1]},
        {"problems": [PROBLEM | {"html": "<b>"}]}, {"problems": [PROBLEM | {"severity": "fatal"}]},
        {"problems": [PROBLEM | {"line": "17"}]}, {"problems": [PROBLEM | {"value": 1}]}, {"statistics": {"x": [1]}},
        {"statistics": {"x": True}}, {"statistics": {"x": {"y": "z"}}}, {"statistics": {"x": float("nan")}},
    ],
    ids=str,
)  # fmt: skip
def test_a_report_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Lint.model_validate_json(json.dumps(SOUND | changes))


@pytest.mark.parametrize("name", SOUND)
def test_a_report_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Lint.model_validate_json(json.dumps({key: value for key, value in SOUND.items() if key != name}))


SCORES = [
    "nothing", "no JSON", "deep", "list", "another field", "another policy", "no hash", "raw value", "raw interval",
    "text value", "infinite", "hidden finding", "raise", "memory", "sleep",
]  # fmt: skip


@pytest.mark.parametrize("name", SCORES)
def test_no_score(liar: Custody, board: Board, vault: Path, name: str) -> None:
    before = sorted(vault.iterdir())
    with pytest.raises(ScoreFailed, match=r"^Scoring stopped on our side\.$") as caught:
        liar.score(vault / "c.npz", board.holdout, name, policy=POLICY, vault=vault, submission_id="s")
    assert caught.value.kind == {"memory": "too_large", "sleep": "timeout"}.get(name, "crashed")
    assert sorted(vault.iterdir()) == before  # no rows are kept


def test_the_details_are_for_the_vault(liar: Custody, board: Board, vault: Path) -> None:
    with pytest.raises(ScoreFailed) as caught:
        liar.score(vault / "c.npz", board.holdout, "raise", policy=POLICY, vault=vault, submission_id="s")
    assert "exit code 1" in caught.value.detail
    assert "KeyError: 'canary of a reference'" in caught.value.detail


def test_a_score_in_good_order(liar: Custody, board: Board, vault: Path) -> None:
    outcome = liar.score(vault / "c.npz", board.holdout, "good", policy=POLICY, vault=vault, submission_id="s")
    assert [figure.value for figure in outcome.released.figures] == [0.5, 0.5]
    assert outcome.fingerprint.sketch == (1, 2)
    assert (vault / "s.1.0.0.npz").stat().st_mode & 0o777 == 0o600


RANKS = ["good rank", "stranger", "schema 2", "rank 0", "exact chance", "good"]


@pytest.mark.parametrize("name", RANKS[1:])
def test_no_ranks(liar: Custody, vault: Path, name: str) -> None:
    with pytest.raises(ScoreFailed):
        liar.rank(vault, "1.0.0", ["a", name], policy=POLICY)


def test_ranks_in_good_order(liar: Custody, vault: Path) -> None:
    assert list(liar.rank(vault, "1.0.0", ["a", "good rank"], policy=POLICY)["entries"]) == ["a"]


def test_without_a_salt_nothing_is_scored(liar: Custody, board: Board, tmp_path: Path) -> None:
    (tmp_path / "c.npz").write_bytes(b"x")
    with pytest.raises(ScoreFailed) as caught:
        liar.score(tmp_path / "c.npz", board.holdout, "good", policy=POLICY, vault=tmp_path, submission_id="s")
    assert "salt" in caught.value.detail
