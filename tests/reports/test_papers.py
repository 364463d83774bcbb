"""docs/papers.md names every item of the papers; its commands run on synthetic data and write the named files.

The report of paper 002 is made in tests/saliency/test_report.py. `ELSEWHERE` has the commands that need a model, a
server or other data, with the tests that run them. tests/test_docs.py parses all.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reveal_bench.cli import app
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.kinds.localization.records import read_manifest
from tests.conftest import ROOT, World
from tests.dataset.card_folders import tasks_folder
from tests.markdown import code_in_text
from tests.reports.conftest import write_points

PAGE = ROOT / "docs" / "papers.md"
ITEMS = {
    "000": (("Figure", 10), ("Table", 2)),
    "001": (("Figure", 5), ("Table", 3), ("Supplementary Table", 2)),
    "002": (("Figure", 3), ("Table", 3), ("Extended Data Figure", 10), ("Supplementary Table S", 1)),
    "004": (("Figure", 4), ("Table", 1), ("Table S", 4), ("Box", 4)),
}
"""Numbered items of each paper, counted in its text."""
ELSEWHERE = {
    "reveal-bench report RUNS": "below",
    "reveal-bench report data/rexecution": "below",
    "reveal-bench report maps/gradcam": "tests/saliency/test_report.py",
    "reveal-bench report model.jsonl": "tests/analyses/test_relative_decrease.py",
    "reveal-bench score model.jsonl data/all": "tests/saliency/test_report.py",
    "reveal-bench score predictions.jsonl data/reveal-cxr": "tests/analyses/test_reader_reference.py",
    "reveal-bench run": "tests/models/test_cli_run.py",
    "reveal-bench draft-ratings": "tests/curation/test_draft_ratings.py",
    "reveal-bench curate candidates": "tests/curation/test_candidates.py",
    "reveal-bench curate extract": "tests/cli/test_curate.py",
    "reveal-bench curate sample": "tests/cli/test_curate.py",
    "reveal-bench curate select": "tests/cli/test_curate.py",
    "reveal-bench curate consensus": "tests/cli/test_curate.py",
    "reveal-bench curate report": "tests/cli/test_curate.py",
    "reveal-bench convert": "tests/api/test_conversion.py",
    "reveal-leaderboard readers": "tests/leaderboard/readers/test_readers_app.py",
}
PICTURED = {"figures/examples.png"}  # of films, which this world withholds: tests/reports/test_run_cells.py draws them


def files_of_paper(number: str) -> set[str]:
    """The files of reports that the page names for a paper."""
    return set(re.findall(r"`((?:figures|tables|report)/[\w.-]+)`", section_of(number)))


def section_of(number: str) -> str:
    """The page's text on a paper."""
    parts = re.split(r"(?m)^## Paper ", PAGE.read_text(encoding="utf-8"))[1:]
    return next(one for one in parts if one.startswith(number))


def numbers_after(kind: str, items: str) -> set[int]:
    """The numbers of items of a kind, such as 4, 7 and 8 of "Figures 4, 7 and 8, heat maps"."""
    kind = "Box(?:es)?" if kind == "Box" else re.sub(r"(Figure|Table)", r"\1s?", kind)
    numbers: set[int] = set()
    separator = r"(?:, | and | to )"
    pattern = rf"(?<!Data )(?<!Supplementary ){kind} ?(\d+[a-z]?(?:{separator}\d+[a-z]?)*)(?!\d)"
    for listed in re.findall(pattern, items):
        numbers |= {int(one) for one in re.findall(r"\d+", listed)}
    return numbers


@pytest.mark.parametrize("number", ITEMS)
def test_every_item_of_a_paper_has_a_row_with_a_command_or_a_reason(number: str) -> None:
    rows = [line.strip("| ").split(" | ") for line in section_of(number).splitlines() if line.startswith("| ")][1:]
    items = "; ".join(row[0] for row in rows)
    for kind, n in ITEMS[number]:
        assert numbers_after(kind, items) == set(range(1, n + 1)), kind
    for item, way, *_ in rows:
        has_command = re.search(r"reveal-(?:bench|leaderboard) |^(?:RUNS|RATED|PAGE|CURATED)\b|^the same ", way)
        assert has_command or re.match(r"none: |no counterpart, because ", way), item


@pytest.mark.usefixtures("undrawn")
def test_commands_of_the_page_run(world: World, run_paths: dict[str, Path], tmp_path: Path) -> None:
    places = {
        "data/chexlocalize": str(world.folder),
        "test": "released",
        **dict.fromkeys(("A.jsonl", "model.jsonl"), str(run_paths["points"])),
        "B.jsonl": str(write_points(tmp_path / "b.jsonl", read_manifest(world.folder, "released"), 8)),
        **{name: str(tmp_path / name) for name in ("shapes", "tables")},
    }
    commands = {code for code in code_in_text(PAGE) if re.match(r"reveal-\w+ ", code)}
    own = {code for code in commands if not code.startswith(tuple(ELSEWHERE))}
    assert len(own) == 4
    for code in sorted(own):
        command, *words = code.split()[1:]
        words = [command, *(places.get(word, word) for word in words)]
        if command == "report":
            words += ["--out", str(tmp_path / "counts")]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (code, done.output)
    assert all((ROOT / place).exists() for place in ELSEWHERE.values() if place != "below")
    assert {path.name for path in tmp_path.iterdir()} >= {"shapes", "tables", "counts"}


def test_the_files_of_paper_000_are_written(
    world: World, run_paths: dict[str, Path], undrawn: None, tmp_path: Path
) -> None:
    runs = [f"{name}={run_paths[name]}" for name in ("one", "fine", "few")]
    words = ["report", *runs, "--folder", str(world.folder), "--out", str(tmp_path), "--resamples", "10"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    named = files_of_paper("000") - PICTURED
    assert len(named) == 9
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
    assert len(named) == 11
    assert {name for name in named if not curated.path(name).is_file()} == set()
