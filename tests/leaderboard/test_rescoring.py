"""A stored file is scored again against a version that asks other questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reveal_leaderboard.custody import Custody
from reveal_leaderboard.custody.arrays import read_canonical
from reveal_leaderboard.worker.worker import _with_coverage

from reveal_bench.kinds.localization.records import ImageManifest
from tests.leaderboard.conftest import Board
from tests.leaderboard.worlds import outcome


def later(manifest: ImageManifest) -> tuple[ImageManifest, int]:
    """The next version: the first image is gone, another is new; and the number of questions on the new one."""
    names = list(manifest.rows)
    rows = {name: manifest.rows[name] for name in names[1:]}
    rows["new"] = replace(manifest.rows[names[-1]], image_id="new")
    return replace(manifest, rows=rows, version="2.0.0"), len(rows["new"].asked)


def test_what_both_versions_ask_is_scored_and_the_rest_is_told(
    board: Board, custody: Custody, write_file: Callable[..., Path], tmp_path: Path
) -> None:
    manifest, n_new = later(board.manifest)
    upload, canonical = write_file(), tmp_path / "canonical.npz"
    assert not custody.parse(upload, manifest, name="as it was").report.ok
    parsed = custody.parse(upload, manifest, name="again", is_of_other_version=True, canonical=canonical)
    assert parsed.report.ok
    gone = next(iter(board.manifest.rows))
    n_gone = sum(json.loads(line)["image_id"] == gone for line in upload.read_text().splitlines())
    assert n_gone > 0
    kept = read_canonical(canonical, manifest)
    assert len(kept) == len(upload.read_text().splitlines()) - n_gone
    note = _with_coverage(outcome(), parsed.report).released.note
    assert f"{n_new} questions of this version have no answer and count as misses." in note
    assert f"{n_gone} predictions on images that are not in this version are left out." in note


def test_a_file_that_fits_says_nothing_more(board: Board, custody: Custody, write_file: Callable[..., Path]) -> None:
    parsed = custody.parse(write_file(), board.manifest, name="again", is_of_other_version=True)
    before = outcome()
    assert _with_coverage(before, parsed.report) == before
