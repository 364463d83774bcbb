"""The code does what the examples in docstrings of the two packages show.

pytest's own `--doctest-modules` would import the two packages as a whole to collect them, and so in each process of a
run.
"""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = (ROOT / "reveal_bench", ROOT / "leaderboard" / "reveal_leaderboard")


def modules_with_examples() -> list[str]:
    """Dotted names, by their text alone."""
    paths = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    return [dotted(path) for path in paths if any(map(is_example, path.read_text(encoding="utf-8").splitlines()))]


def is_example(line: str) -> bool:
    return line.lstrip().startswith(">>> ") and "doctest: +SKIP" not in line


def dotted(path: Path) -> str:
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0
    assert failed == 0
