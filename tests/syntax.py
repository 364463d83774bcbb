"""Sources of this repository as syntax trees, for tests that read code; and a check of examples against that code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.draw_architecture import statements

TRIES = 5


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, read once in each process.

    CPython 3.11 keeps the depth of a parse in one place for all: one that another interrupts, in a thread or in what a
    garbage collection runs, ends in "AST constructor recursion depth mismatch". The file is not to blame.
    """
    text = path.read_text(encoding="utf-8")
    for _ in range(TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


@cache
def imports_of(path: Path) -> tuple[tuple[str, str], ...]:
    """(dotted name, its module) of everything that a file imports, wherever in the file it does."""
    imports: list[tuple[str, str]] = []
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            imports += [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            imports += [(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names]
    return tuple(imports)


@cache
def names_defined(path: Path) -> set[str]:
    """Return the names that a module defines: functions, classes, variables, and `Class.method`."""
    return set(_defined(tree_of(path).body))


def _defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


OURS = ("reveal_bench", "reveal_leaderboard")


class Example(ast.NodeVisitor):
    """Checks the names of ours in an example: imports and attributes exist, calls fit the signatures.

    `problems` lists what does not. A variable has the class that the call before it says it returns; of one without a
    known class, nothing is checked.
    """

    def __init__(self, **known: Any) -> None:
        self.known, self.classes, self.problems = known, dict[str, type](), list[str]()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] in OURS:
                module = import_module(alias.name)
                name = alias.name.split(".")[0]
                self.known[alias.asname or name] = module if alias.asname else import_module(name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if (node.module or "").split(".")[0] in OURS:
            module = import_module(str(node.module))
            for alias in node.names:
                try:
                    self.known[alias.asname or alias.name] = getattr(module, alias.name)
                except AttributeError:
                    self.problems.append(f"{node.module} has no {alias.name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.known.pop(target.id, None)
                self.classes.pop(target.id, None)
                result = self._class_of(node.value)
                if result is not None:
                    self.classes[target.id] = result

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = self._resolve(node.func)
        is_open = any(isinstance(argument, ast.Starred) for argument in node.args)
        is_open |= any(isinstance(argument, ast.Constant) and argument.value is ... for argument in node.args)
        if function is None or is_open or any(keyword.arg is None for keyword in node.keywords):
            return
        try:
            inspect.signature(function).bind(*node.args, **{str(keyword.arg): ... for keyword in node.keywords})
        except TypeError as error:
            self.problems.append(f"{ast.unparse(node.func)}: {error}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        owner = self._resolve(node.value) or self._class_of(node.value)
        if owner is not None and not _has(owner, node.attr):
            self.problems.append(f"{ast.unparse(node.value)} has no {node.attr}")

    def _resolve(self, node: ast.expr) -> Any:
        """Return the object of ours that a name or attribute refers to."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        owner = self._resolve(node.value) if isinstance(node, ast.Attribute) else None
        return getattr(owner, node.attr, None) if isinstance(node, ast.Attribute) else None

    def _class_of(self, node: ast.expr) -> type | None:
        """Return the class of what a variable or a call of ours holds."""
        if isinstance(node, ast.Name):
            return self.classes.get(node.id)
        function = self._resolve(node.func) if isinstance(node, ast.Call) else None
        if inspect.isclass(function):
            return function
        if function is None or not inspect.isfunction(function):
            return None
        module = import_module(function.__module__)
        result = getattr(module, str(function.__annotations__.get("return")), None)
        return result if inspect.isclass(result) and result is not Any else None


def _has(owner: Any, name: str) -> bool:
    fields = {field for base in getattr(owner, "__mro__", ()) for field in inspect.get_annotations(base)}
    is_dynamic = (
        inspect.isclass(owner) and hasattr(owner, "__getattr__") and not owner.__module__.startswith("reveal_bench")
    )
    if hasattr(owner, name) or name in fields or is_dynamic:
        return True
    source = inspect.getsource(owner) if inspect.isclass(owner) else ""
    if f"self.{name}" in source:
        return True
    try:
        import_module(f"{owner.__name__}.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def problems_of_example(text: str, **known: Any) -> list[str]:
    """Return what in an example does not fit the code, a syntax error too."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [f"{error.msg}: {error.text}"]
    example = Example(**known)
    try:
        example.visit(tree)
    except ImportError as error:
        return [str(error)]
    return example.problems
