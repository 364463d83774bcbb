"""Compiles ``reveal_bench/_kernels.c`` and its parts ``_kernels_*.h`` into the wheel, as ``libkernels.so``.

The compiler is ``CC``, or ``cc``; on a machine without one, that of the package ziglang, which is then fetched for the
build. An editable installation gets the library beside its source.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("reveal_bench", "_kernels.c")
LIBRARY = SOURCE.with_name("libkernels.so")


class CompiledKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled library to a wheel."""

    def dependencies(self) -> list[str]:
        """What the build needs on this machine."""
        return [] if own_compiler() else ["ziglang==0.16.0"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is packed."""
        self._folder = Path(tempfile.mkdtemp(prefix="reveal-bench-build-"))
        made = compile_library(Path(self.root, SOURCE), self._folder / LIBRARY.name)
        if version == "editable":
            shutil.copy2(made, Path(self.root, LIBRARY))
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(made)] = LIBRARY.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away the folder in which it was compiled."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def own_compiler() -> list[str]:
    """The command of this machine's C compiler; empty if there is none."""
    words = shlex.split(os.environ.get("CC", "cc"))
    return words if words and shutil.which(words[0]) else []


def compile_library(source: Path, made: Path) -> Path:
    """The shared library `made` of `source`.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler refuses it.
    """
    zig = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-fno-sanitize=undefined"]
    # Products and sums are rounded one by one, as numpy rounds them
    options = ["-O3", "-ffp-contract=off", "-fvisibility=hidden", "-shared", "-fPIC"]
    libraries = [] if sys.platform == "win32" else ["-lm"]
    command = [*(own_compiler() or zig), *options, str(source), "-o", str(made), *libraries]
    subprocess.run(command, check=True)
    return made
