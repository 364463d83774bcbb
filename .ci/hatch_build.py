"""Compiles ``reveal_bench/_kernels.c`` and its parts ``_kernels_*.h`` into the wheel.

Without a compiler the wheel has Python alone, with numba.

An editable installation gets the compiled module beside its source. ``REVEAL_BENCH_PURE=1`` leaves it out.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "reveal_bench._kernels"
SOURCE = Path("reveal_bench", "_kernels.c")


class CompiledKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled module to a wheel where it can be made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is packed."""
        if os.environ.get("REVEAL_BENCH_PURE") == "1":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="reveal-bench-build-"))
        try:
            made = compiled(Path(self.root) / SOURCE, self._folder)
        except Exception as error:  # no compiler, no headers, or another one than was foreseen: numba does it then
            self.app.display_warning(f"{SOURCE} was not compiled, numba will do it at the first run: {error}")
            return
        if version == "editable":
            shutil.copy2(made, Path(self.root, "reveal_bench", made.name))
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["force_include"][str(made)] = f"reveal_bench/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away the folder in which it was compiled."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def compiled(source: Path, folder: Path) -> Path:
    """The extension module made of `source` in `folder`."""
    from setuptools import Distribution, Extension

    # Products and sums are rounded one by one, as numpy and numba round them
    options = ["/O2"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off"]
    libraries = [] if sys.platform == "win32" else ["m"]
    extension = Extension(NAME, [str(source)], libraries=libraries, extra_compile_args=options, py_limited_api=True)
    command = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder), str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return Path(command.get_outputs()[0])
