"""What differs between kinds of benchmark is asked of the kind: dispatch outside reveal_bench/kinds, counted."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from reveal_bench.kinds import KINDS
from tests.conftest import ROOT

HOME = ROOT / "reveal_bench" / "kinds"
LEFT: dict[str, int] = {
    "reveal_bench/dataset/attach.py": 2,
    "reveal_bench/dataset/build.py": 1,
    "reveal_bench/dataset/card.py": 5,
    "reveal_bench/dataset/card_tables.py": 1,
    "reveal_bench/dataset/tables.py": 1,
    "reveal_bench/dataset/tally.py": 1,
    "reveal_bench/dataset/validate.py": 1,
    "reveal_bench/dataset/validate_rows.py": 3,
    "reveal_bench/dataset/workshop.py": 1,
    "reveal_bench/models/callables.py": 6,
    "reveal_bench/models/questions.py": 2,
    "reveal_bench/models/run_folder.py": 4,
    "reveal_bench/reports/dataset.py": 5,
    "reveal_bench/reports/films.py": 4,
    "reveal_bench/reports/runs.py": 1,
    "reveal_bench/sources/midrc.py": 1,
}
"""File -> at most so many places. Cards, tallies and validation of dataset folders, reports and model runs still ask by
name; none in evaluation, predictions, curation and the leaderboard. Lower a number when you clear a place."""


def classes_of_kinds() -> set[str]:
    """Names of all classes in the folders of the kinds: records, predictions, manifests, rows."""
    modules = (ast.parse(path.read_text()) for name in KINDS for path in (HOME / name).glob("*.py"))
    return {node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef)}


def is_of_kind(node: ast.expr) -> bool:
    """Whether an expression says "kind" at its end, as `run.kind` and `kind_name` do."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return "kind" in name


def dispatches(tree: ast.AST, classes: set[str]) -> list[int]:
    """Lines where code asks of what kind something is."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node.args[1])
                     if isinstance(n, ast.Name | ast.Attribute)}  # fmt: skip
            found += [node.lineno] * bool(names & classes)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = {n.value for side in sides for n in ast.walk(side) if isinstance(n, ast.Constant)}
            found += [node.lineno] * bool(texts & set(KINDS) and any(map(is_of_kind, sides)))
        elif isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            found += [node.lineno] * (len(keys & set(KINDS)) > 1)
        elif isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant):
            found += [node.lineno] * (node.value.value in KINDS)
    return found


def test_the_search_finds_every_form_of_dispatch() -> None:
    code = """
if isinstance(rows, CaseRows | StudyRows): ...
if run.kind == "tasks": ...
if kind_name in ("tasks", "findings"): ...
{"localization": 1, "tasks": 2}
match kind:
    case "findings": ...
if config == "tasks" or job.kind == "rank" or isinstance(x, Path): ...
"""
    assert dispatches(ast.parse(code), classes_of_kinds()) == [2, 3, 4, 5, 7]


def test_only_kinds_dispatch_on_kinds() -> None:
    classes = classes_of_kinds()
    places: Counter[str] = Counter()
    told = []
    for package in (ROOT / "reveal_bench", ROOT / "leaderboard" / "reveal_leaderboard"):
        for path in package.rglob("*.py"):
            if path.is_relative_to(HOME):
                continue
            name = str(Path(path).relative_to(ROOT))
            lines = dispatches(ast.parse(path.read_text()), classes)
            places[name] += len(lines)
            told += [f"{name}:{line}" for line in lines]
    assert not places - Counter(LEFT), "\n".join(told)
