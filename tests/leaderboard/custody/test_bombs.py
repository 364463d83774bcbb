"""Bombs are answered in bounded memory, with a report or one of the fixed sentences, and the template lives on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reveal_leaderboard.custody import Custody, Lint, ParseFailed
from reveal_leaderboard.custody.messages import Ended, Request
from reveal_leaderboard.custody.service import TemplateService

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.records import Manifest, ManifestRow
from tests.leaderboard.custody.bombs import BOMBS, write_bomb

pytestmark = pytest.mark.processes

ROWS = {f"p{i:03}": ManifestRow(f"p{i:03}", "s", "AP", 64, 48, ("Edema",)) for i in range(20)}
MANIFEST = Manifest("chexlocalize", "1.0", "test", 8, CHEXLOCALIZE_FINDINGS, ROWS)
STUDIES = StudyManifest("reveal-cxr", "1.0", "test", ("Edema", "Fracture"), ("a", "b"))
GIB = 1 << 30


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Ended]:
    """How the children of a test ended, in order."""
    seen: list[Ended] = []
    plain = TemplateService.run

    def run(self: TemplateService, request: Request, *args: object, **options: object) -> tuple[Ended, bytes | None]:
        ended, answer = plain(self, request, *args, **options)  # type: ignore[arg-type]
        seen.append(ended)
        return ended, answer

    monkeypatch.setattr(TemplateService, "run", run)
    return seen


@pytest.fixture(scope="session")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            made[name] = write_bomb(name, tmp_path_factory.mktemp("bombs"))
        return made[name]

    return find


def lint(custody: Custody, path: Path, manifest: Manifest | StudyManifest) -> Lint | None:
    """The report, or None where it took too much memory."""
    try:
        return custody.parse(path, manifest, name="bomb").report
    except ParseFailed as failed:
        if failed.kind != "too_large":
            raise
        return None


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_answered_in_bounded_memory(
    custody: Custody, bomb: Callable[[str], Path], ends: list[Ended], name: str
) -> None:
    custody.warm_up()
    template = custody.template_ids()
    report = lint(custody, bomb(name), MANIFEST)
    if report is not None:
        assert not report.ok
        assert all(len(problem.message) < 1000 for problem in report.problems)
        assert len(report.problems) <= 1001
    assert ends[0].peak_bytes < GIB
    assert ends[0].seconds < 60
    assert custody.template_ids() == template


@pytest.mark.parametrize("name", ["csv_in_gzip", "deep_jsonl", "csv_of_columns", "jsonl_of_one_line", "zeros", "noise"])
def test_a_bomb_among_findings(custody: Custody, bomb: Callable[[str], Path], ends: list[Ended], name: str) -> None:
    report = lint(custody, bomb(name), STUDIES)
    assert report is None or not report.ok
    assert ends[0].peak_bytes < GIB
