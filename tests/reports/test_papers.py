"""docs/papers.md: its commands write the named files from synthetic data.

That of paper 002 is held to by tests/saliency/test_report.py, which runs the command.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reveal_bench.cli import app
from reveal_bench.curation.folder import CurationFolder
from tests.conftest import ROOT, World
from tests.dataset.card_folders import tasks_folder

PICTURED = {"figures/examples.png"}  # of films, which this world withholds: tests/reports/test_run_cells.py draws them


def files_of_paper(number: str) -> set[str]:
    """The files of reports that the page names for a paper."""
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    part = re.split(r"(?m)^## Paper ", text)[1:]
    own = next(one for one in part if one.startswith(number))
    return set(re.findall(r"`((?:figures|tables|report)/[\w.-]+)`", own))


def test_the_files_of_paper_000_are_written(
    world: World, run_paths: dict[str, Path], undrawn: None, tmp_path: Path
) -> None:
    runs = [f"{name}={run_paths[name]}" for name in ("one", "fine", "few")]
    words = ["report", *runs, "--folder", str(world.folder), "--out", str(tmp_path), "--resamples", "10"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    named = files_of_paper("000") - PICTURED
    assert len(named) == 8
    assert {name for name in named if not (tmp_path / name).is_file()} == set()


@pytest.mark.usefixtures("undrawn")
def test_the_files_of_paper_001_are_written(tmp_path: Path) -> None:
    folder, out = tasks_folder(tmp_path, n=4), tmp_path / "rated"
    words = ["report", str(folder), "--ratings", str(folder), "--split", "test", "--out", str(out)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    named = files_of_paper("001")
    assert len(named) == 8
    assert {name for name in named if not (out / name).is_file()} == set()


def test_the_files_of_paper_004_are_written(curated: CurationFolder) -> None:
    named = files_of_paper("004")
    assert len(named) == 10
    assert {name for name in named if not curated.path(name).is_file()} == set()
