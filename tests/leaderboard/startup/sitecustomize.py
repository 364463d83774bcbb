"""Read by every Python that the tests start: importing Gradio does not write type stubs for editors.

Gradio parses the source of each of its components for them, a third of the time that its import takes, and has no
switch for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE = "gradio.component_meta"


class WithoutStubs(MetaPathFinder):
    """Finds the one module of Gradio that writes the stubs, and takes the writer away."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def run(module: ModuleType) -> None:
            execute(module)
            module.create_or_modify_pyi = lambda *_: None  # type: ignore[attr-defined]

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, WithoutStubs())
