"""The notebooks of docs/ run, and produce the outputs stored in their files."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from docs import run_notebooks
from tests.cli.test_score import call
from tests.conftest import ROOT

NOTEBOOKS = sorted(path.name for path in (ROOT / "docs").glob("*.ipynb"))


def test_there_is_one_for_developers_and_one_for_maintainers() -> None:
    assert NOTEBOOKS == ["maintainer.ipynb", "model_developer.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_what_its_code_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second command, in one of them a build by several processes, is a program; the others run in this process."""
    in_a_shell, n_started = run_notebooks._command, 0

    def command(line: str) -> str:
        nonlocal n_started
        n_started += 1
        if n_started == 2 or not line.startswith("reveal-bench "):
            return in_a_shell(line)
        return call(*shlex.split(line)[1:], cwd=Path()).stdout

    monkeypatch.setattr(run_notebooks, "_command", command)
    monkeypatch.setenv("COLUMNS", run_notebooks.WIDTH)
    path = ROOT / "docs" / name
    written = json.loads(path.read_text(encoding="utf-8"))
    outputs = run_notebooks.run(path)
    assert run_notebooks.shown(outputs) == run_notebooks.shown(written), (
        f"run python docs/run_notebooks.py: {name} drifted"
    )
    assert any("image/png" in one.get("data", ()) for cell in written["cells"] for one in cell.get("outputs", ()))
