"""Pages, API, sign-in, and what a request passes before them.

Whenever Gradio is imported, it parses the source of each of its components and writes type stubs for editors beside
them: a third of the time that its import takes, and writing where a server should not. It has no switch for that, so
the function is taken out of its module as soon as that is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE = "gradio.component_meta"


class GradioWithoutStubs(MetaPathFinder):
    """Finds the one module of Gradio that writes stubs, and takes the writer away."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module with another loader; None for every other module."""
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
