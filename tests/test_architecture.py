"""Who may import whom (the project's design), shown by walking the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

LEAVES = {"findings", "geometry", "masks"}
ALLOWED: dict[str, set[str]] = {
    "findings": set(),
    "geometry": set(),
    "kernels": set(),
    "dicom": {"dicom"},
    "masks": {"geometry", "kernels"},
    "records": {"findings", "geometry", "masks"},
    "benchmarks": {"findings", "geometry"},
    "metrics": {"metrics", "geometry", "masks", "kernels"},
    "evaluate_modules": {"evaluate_modules", "metrics", "masks", "geometry"},
    "phantom": {"phantom", "records", "study_records", "task_records", "rubric", "benchmarks", "dicom", "boxes"}
    | LEAVES,
    "builders": {"builders", "records", "study_records", "task_records", "rubric", "benchmarks", "dicom", "boxes"}
    | LEAVES,
    "curation": {"curation", "records", "study_records", "task_records", "rubric", "findings", "metrics", "builders"}
    | {"prices"},
    "runner": {"runner", "records", "study_records", "task_records", "benchmarks", "boxes", "cases", "metrics"}
    | {"predictions", "prices"}
    | LEAVES,
    "prices": set(),
    "study_records": {"records"},
    "task_records": {"records", "study_records"},
    "rubric": set(),
    "predictions": {"predictions", "records", "study_records", "task_records", "benchmarks"} | LEAVES,
    "boxes": {"masks"},
    "cases": {"boxes", "masks", "records"},
    "baselines": {"records", "masks", "boxes", "geometry", "metrics", "kernels"},
    "scoring": {"predictions", "records", "cases", "boxes", "benchmarks", "metrics", "masks", "geometry"},
    "study_scoring": {"study_records", "metrics"},
    "rubric_scoring": {"task_records", "metrics", "comparison"},
    "score_file": {"scoring", "study_scoring", "predictions", "records", "study_records", "task_records"}
    | {"benchmarks", "metrics"},
    "analysis": {
        "analysis",
        "runner",
        "score_file",
        "scoring",
        "comparison",
        "predictions",
        "records",
        "boxes",
        "cases",
    }
    | {"benchmarks", "baselines", "metrics"}
    | LEAVES,
    "client": set(),
    "comparison": {"scoring", "metrics"},
    "study_comparison": {"comparison", "metrics", "study_records", "study_scoring"},
    "receipts": set(),
    "compat": {"scoring", "metrics"},
    "options": {"prices"},
    "terminal": {"metrics", "comparison", "runner"},
    "cli_metrics": {"metrics"},
    "cli_build": {"options", "terminal", "phantom", "builders", "benchmarks"},
    "cli_publish": {"options", "terminal", "builders"},
    "cli_folder": {"options", "terminal", "builders"},
    "cli_curate": {"options", "terminal", "curation", "cli_curate_model"},
    "cli_curate_model": {"curation", "options"},
    "cli_report": {"options", "terminal", "builders", "analysis", "runner"},
    "cli_run": {"options", "terminal", "runner", "analysis", "prices", "score_file", "predictions"},
    "cli_receipt": {"receipts"},
    "cli_submit": {"options", "terminal", "client", "receipts"},
    "cli_compare": {"options", "terminal", "score_file", "scoring", "comparison"},
}
"""Package module -> package modules it may import. `cli` and the package itself may import anything."""

FORBIDDEN_NAMES = {
    "utils", "helpers", "common", "constants", "types", "errors", "config", "logging", "validators", "base", "registry",
}  # fmt: skip


def imports_of(path: Path, package: str) -> set[str]:
    """First parts, below `package`, of every module of `package` that the file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module else []
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
    return found


def modules() -> list[Path]:
    return sorted((ROOT / "reveal_bench").rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    name = path.relative_to(ROOT / "reveal_bench").parts[0].removesuffix(".py")
    if name in ("cli", "__init__", "__main__"):
        return
    extra = imports_of(path, "reveal_bench") - ALLOWED[name] - {"__version__"}
    assert not extra, f"{name} may not import {sorted(extra)}"


def test_nobody_imports_the_command_line_or_the_leaderboard() -> None:
    for path in modules():
        if path.name not in ("cli.py", "__main__.py"):
            assert "cli" not in imports_of(path, "reveal_bench")
        assert "reveal_leaderboard" not in path.read_text(encoding="utf-8")


def test_no_module_has_a_name_that_says_nothing() -> None:
    for root in ("reveal_bench", "leaderboard"):
        for path in (ROOT / root).rglob("*.py"):
            assert path.stem not in FORBIDDEN_NAMES or path.match("analysis/errors.py"), path  # a model's errors


def test_no_module_is_longer_than_400_lines() -> None:
    for root in ("reveal_bench", "leaderboard", "tests", "benchmarks"):
        for path in (ROOT / root).rglob("*.py"):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import reveal_bench", "numpy pyarrow numba typer datasets inspect_ai openai matplotlib"),
        ("import reveal_bench.cli", "numpy pyarrow numba datasets evaluate PIL rich inspect_ai openai matplotlib"),
        ("import reveal_bench.models.run_folder", "pyarrow numba datasets inspect_ai openai"),
        ("import reveal_bench.predictions", "pyarrow numba datasets"),
        ("import reveal_bench.kinds.localization.scoring", "pyarrow numba datasets"),
    ],
)
def test_imports_are_light(statement: str, forbidden: str) -> None:
    code = f"import sys; {statement}; print(sorted(set({forbidden.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
