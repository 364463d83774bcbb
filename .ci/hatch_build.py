"""Compile ``reveal_bench/masks/_kernels.c`` and its parts ``_kernels_*.h`` into the wheel, as ``libkernels.so``.

The compiler is ``CC``, or ``cc``; on a machine without one (``CC=none``), ziglang, whose package is then
fetched for the build. An editable installation gets the library beside its source. Two environment variables change
this:

- ``REVEAL_PLATFORM``, one of :data:`TARGETS`, compiles by ziglang for that platform (``make wheels``).
- ``REVEAL_KERNELS=numpy`` compiles nothing: the wheel serves every platform, and numpy does the work.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

SOURCE = Path("reveal_bench", "masks", "_kernels.c")
LIBRARY = SOURCE.with_name("libkernels.so")
ZIG = "ziglang==0.17.1"

TARGETS = {
    "manylinux_2_17_x86_64.manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64.manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
"""Platform tag of a wheel -> ziglang's name of that platform, with the oldest glibc or macOS that is served."""


class CompiledKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Add the compiled library to a wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build needs on this machine."""
        return [ZIG] if is_compiled() and (target() or not own_compiler()) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is packed."""
        if not is_compiled():
            return
        self._folder = Path(tempfile.mkdtemp(prefix="reveal-bench-build-"))
        compile_library(Path(self.root, SOURCE).resolve(), self._folder)
        if version == "editable":
            shutil.copy2(self._folder / LIBRARY.name, Path(self.root, LIBRARY))
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"
        build_data["force_include"][str(self._folder / LIBRARY.name)] = LIBRARY.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder of the compilation."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def is_compiled() -> bool:
    """Return False if the wheel is to have no library."""
    return os.environ.get("REVEAL_KERNELS") != "numpy"


def target() -> str:
    """Return ziglang's name of the platform to compile for; empty for this machine."""
    platform = os.environ.get("REVEAL_PLATFORM", "")
    if platform and platform not in TARGETS:
        raise ValueError(f"REVEAL_PLATFORM must be one of {', '.join(TARGETS)}, got {platform!r}")
    return TARGETS[platform] if platform else ""


def platform_tag() -> str:
    """Return the tag of the platform compiled for; for this machine, a tag that promises nothing about others."""
    own = (tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))
    return os.environ.get("REVEAL_PLATFORM") or next(own)


def own_compiler() -> list[str]:
    """Return the command of this machine's C compiler; empty without one."""
    words = shlex.split(os.environ.get("CC", "cc"))
    return words if words and shutil.which(words[0]) else []


def compiler() -> list[str]:
    """Return the command that compiles for the platform: without names of folders, the same bytes everywhere."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-fno-sanitize=undefined", "-s"]
    if target():
        return [*zig, "-target", target()]
    return own_compiler() or zig


def compile_library(source: Path, folder: Path) -> None:
    """Write the shared library of `source` to `folder`.

    Raises
    ------
    RuntimeError
        If the compiler refuses it.
    """
    # Products and sums are rounded one by one, as numpy rounds them
    options = ["-O3", "-ffp-contract=off", "-fvisibility=hidden", "-shared", "-fPIC"]
    command = [*compiler(), *options, str(source), "-o", LIBRARY.name, "-lm"]
    try:
        subprocess.run(command, check=True, cwd=folder)
    except subprocess.CalledProcessError:
        raise RuntimeError(
            f"Cannot compile {source}: `{shlex.join(command)}` failed. Set CC to a working C compiler, CC=none to "
            "fetch the package ziglang, or REVEAL_KERNELS=numpy to install without a compiled library, which is slower."
        ) from None
