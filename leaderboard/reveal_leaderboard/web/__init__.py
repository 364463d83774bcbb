"""Pages, API, sign-in, and the middleware in front of them.

On import, Gradio parses the source of each of its components and writes type stubs for editors next to them. That takes
a third of its import time and writes where a server should not. Gradio has no switch for it, so the function is
replaced as soon as its module is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE = "gradio.component_meta"


class GradioWithoutStubs(MetaPathFinder):
    """Finds the module of Gradio that writes stubs, and replaces the function that does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the stub-writing module, with a changed loader; None for all other modules."""
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
