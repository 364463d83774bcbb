"""Sources of this repository as syntax trees, for the tests that read code."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

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
    found: list[tuple[str, str]] = []
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names]
    return tuple(found)
