"""Check of a command's input files before it starts, so that every command reports a missing file in the same words."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

OUTPUT = "output"
"""Mark in the annotation of a path that a command writes, or that need not exist; all other paths must exist."""


def check_inputs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that raises FileNotFoundError if a path among its arguments and options does not exist."""

    @wraps(command)
    def checked(**values: Any) -> Any:
        hints = get_type_hints(command, include_extras=True)
        for name, value in values.items():
            paths = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Path)]
            if paths and OUTPUT not in getattr(hints[name], "__metadata__", ()):
                require_files(*paths)
        return command(**values)

    return checked


def require_files(*paths: Path) -> None:
    """Raise FileNotFoundError if one of the paths does not exist."""
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
