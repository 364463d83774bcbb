"""The notebooks of docs/ run, and show what their files say that they show."""

from __future__ import annotations

import json

import pytest

from docs import run_notebooks
from tests.conftest import ROOT

NOTEBOOKS = sorted(path.name for path in (ROOT / "docs").glob("*.ipynb"))


def test_there_is_one_for_developers_and_one_for_maintainers() -> None:
    assert NOTEBOOKS == ["maintainer.ipynb", "model_developer.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_what_its_code_says(name: str) -> None:
    path = ROOT / "docs" / name
    written = json.loads(path.read_text(encoding="utf-8"))
    found = run_notebooks.run(path)
    assert run_notebooks.shown(found) == run_notebooks.shown(written), (
        f"run python docs/run_notebooks.py: {name} drifted"
    )
    assert any("image/png" in one.get("data", ()) for cell in written["cells"] for one in cell.get("outputs", ()))
