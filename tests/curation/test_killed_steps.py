"""Every step is killed while it puts its files in place, and run again: the results are the same as without a kill."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from reveal_bench.curation.tables import Assignment, Placed, Sampled, read_table
from reveal_bench.phantom.curation import cast, write_votes
from reveal_bench.reports.style import Illustration
from tests.cli.test_score import call
from tests.conftest import files_of, in_child

pytestmark = pytest.mark.processes


def killed(n: int, *words: object) -> None:
    """The command in a process that is killed before it puts its n-th file in place."""
    real, left = os.replace, n

    def replace(old: Path, new: Path) -> None:
        nonlocal left
        left -= Path(new).name != "attempt.json"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reveal_bench.curation.folder.os.replace", replace)
        assert in_child(lambda: call(*words)) == -signal.SIGKILL


def curated(pool: Path, folder: Path, *, is_killed: bool) -> None:
    """Every step is killed at each of its files in turn, the last one being its record."""
    votes, corrections = folder.with_suffix(".csv"), folder.with_suffix(".corrections.csv")
    later = version_after(folder)
    steps: list[tuple[int, tuple[object, ...]]] = [
        (2, ("extract", folder, "--reports", pool / "reports.csv")),
        (1, ("sample", folder, "--strata", "1:12,2:8", "--fill")),
        (2, ("assign", folder, "--readers", pool / "readers.csv")),
        (1, ("import-votes", folder, "--votes", votes)),
        (3, ("consensus", folder, "--resamples", 20)),
        (1, ("select", folder, "--target", 12)),
        (4, ("split", folder, "--facts", pool / "facts.csv", "--best-of", 3)),
        (3, ("report", folder)),
        (3, ("refresh", later, "--before", folder, "--corrections", corrections)),
    ]
    for n, words in steps:
        if words[0] == "import-votes":
            readings = [(one.study_id, one.reader) for one in read_table(folder / "assignments.parquet", Assignment)]
            suggested = {one.study_id: one.labels for one in read_table(folder / "sample.parquet", Sampled)}
            lines = (pool / "truth.jsonl").read_text(encoding="utf-8").splitlines()
            truth = {one["study_uid"]: one["labels"] for one in map(json.loads, lines)}
            write_votes(votes, cast(readings, suggested, truth, 1))
        if words[0] == "refresh":
            first = read_table(folder / "split.parquet", Placed)[0]  # it has a label, as all that were selected
            corrections.write_text(f"study,labels,why\n{first.study_id},None,read again\n", encoding="utf-8")
        if is_killed:
            is_first = words[0] in ("extract", "refresh")  # writes the folder's own file, too
            killed(n + is_first, "curate", *words)
        call("curate", *words)


def version_after(folder: Path) -> Path:
    """The folder of the refresh."""
    return folder.with_suffix(".next")


def test_killing_and_running_again_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip drawing figures, which takes most of the time; tests/reports checks that equal inputs give equal figures."""
    monkeypatch.setattr(Illustration, "for_page", lambda _: [("wide", "<svg/>")])
    monkeypatch.setattr(Illustration, "file", lambda *_: b"<svg/>")
    pool = tmp_path / "pool"
    call("phantom", pool, "--style", "reveal-pool", "--images", 60, "--no-pictures")
    curated(pool, tmp_path / "whole", is_killed=False)
    curated(pool, tmp_path / "killed", is_killed=True)
    for of in (Path, version_after):
        whole, again = files_of(of(tmp_path / "whole")), files_of(of(tmp_path / "killed"))
        assert sorted(whole) == sorted(again)
        assert len(whole) > 5
        assert [name for name in whole if whole[name] != again[name]] == []
