"""The web server of a leaderboard: pages, REST API, sign-in, and middleware.

On import, Gradio parses the source of each of its components and writes type stubs for editors next to them. The
parsing takes a third of Gradio's import time, and a server should not write to the installed package. Gradio has no
option against this, so the function that writes stubs is replaced as soon as its module is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE = "gradio.component_meta"


class GradioWithoutStubs(MetaPathFinder):
    """Import hook that replaces Gradio's function that writes type stubs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of Gradio's stub module, with a changed loader; None for all other modules."""
        spec = PathFinder.find_spec(fullname, path) if fullname == MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def run(module: ModuleType) -> None:
            execute(module)
            module.create_or_modify_pyi = lambda *_: None  # type: ignore[attr-defined]

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, GradioWithoutStubs())
