"""What differs between kinds of benchmark is asked of the kind: no dispatch on it outside reveal_bench/kinds."""

from __future__ import annotations

import ast

from reveal_bench.kinds import KINDS
from tests.conftest import ROOT
from tests.syntax import tree_of

HOME = ROOT / "reveal_bench" / "kinds"
PACKAGES = (ROOT / "reveal_bench", ROOT / "leaderboard" / "reveal_leaderboard")
NAMES = {*KINDS, *(kind.config for kind in KINDS.values())}
"""What a kind may be told by: its name, and the name of its main config."""
CONSTANTS = {name.upper() for name in KINDS}
"""What a name imported for a kind may look like."""
BUILT_IN = {"list", "tuple", "dict", "str", "bytes", "int", "float", "Mapping", "Sequence", "Sized"}


def classes_of_kinds() -> set[str]:
    """Names of all classes in the folders of the kinds: records, predictions, manifests, rows, tallies."""
    modules = (tree_of(path) for name in KINDS for path in (HOME / name).glob("*.py"))
    return {node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef)}


def names_in(node: ast.expr) -> set[str]:
    """Names and attributes anywhere in an expression."""
    found = (n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node)
             if isinstance(n, ast.Name | ast.Attribute))  # fmt: skip
    return set(found)


def texts_in(node: ast.expr) -> set[object]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def is_of_kind(node: ast.expr) -> bool:
    """Whether an expression says "kind" at its end, as `run.kind`, `kind_name` and `kind.name` do."""
    if isinstance(node, ast.Attribute):
        return "kind" in node.attr or (node.attr in ("name", "config") and is_of_kind(node.value))
    return isinstance(node, ast.Name) and "kind" in node.id.lower()


def dispatches(tree: ast.AST, classes: set[str]) -> list[int]:
    """Lines where code asks of what kind something is."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            asks_class = node.func.id in ("isinstance", "issubclass") and names_in(node.args[1]) & classes
            is_of_type = node.func.id == "isinstance" and names_in(node.args[0]) <= {"rows", "records", "manifest"}
            if asks_class or (is_of_type and not names_in(node.args[1]) & BUILT_IN):
                found.append(node.lineno)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            told = set().union(*map(texts_in, sides)) & NAMES or set().union(*map(names_in, sides)) & CONSTANTS
            is_type = any(isinstance(side, ast.Call) and names_in(side.func) == {"type"} for side in sides)
            if (told and any(map(is_of_kind, sides))) or (is_type and set().union(*map(names_in, sides)) & classes):
                found.append(node.lineno)
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
            named = {key.value for key in keys if isinstance(key, ast.Constant)} & NAMES
            typed = {name for key in keys for name in names_in(key)} & (classes | CONSTANTS)
            found += [node.lineno] * (len(named) > 1 or len(typed) > 1)
        elif isinstance(node, ast.MatchValue):
            found += [node.lineno] * bool(texts_in(node.value) & NAMES or names_in(node.value) & CONSTANTS)
        elif isinstance(node, ast.MatchClass):
            found += [node.lineno] * bool(names_in(node.cls) & classes)
    return found


def test_the_search_finds_every_form_of_dispatch() -> None:
    code = """
if isinstance(rows, CaseRows | StudyRows): ...
if run.kind == "tasks": ...
if kind_name in ("tasks", "findings"): ...
{"localization": 1, "tasks": 2}
match name:
    case "findings": ...
if kind.name != "localization": ...
if kind is LOCALIZATION: ...
if type(record) is StudyRecord: ...
if isinstance(rows, Unknown): ...
{"multilabel": "labels", "tasks": "prompts"}
match record:
    case TaskRecord(): ...
{StudyRecord: 1, TaskRecord: 2}
if config == "tasks" or job.kind == "rank" or isinstance(x, Path) or isinstance(rows, list): ...
{"tasks": 1, "other": 2}
"""
    lines = [2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15]
    assert sorted(dispatches(ast.parse(code), classes_of_kinds())) == lines


def test_only_kinds_dispatch_on_kinds() -> None:
    classes = classes_of_kinds()
    told = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in package.rglob("*.py")
        if not path.is_relative_to(HOME)
        for line in dispatches(tree_of(path), classes)
    ]
    assert told == []
