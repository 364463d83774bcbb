"""Write the files for a package index to dist/, and check them: `make wheels`.

That is the source distribution, a wheel for each platform of ``hatch_build.TARGETS``, compiled from the source
distribution, and the wheel of reveal-leaderboard. All are built twice, the second time from a copy of the committed
files elsewhere, with other times and permissions, and must have the same bytes.
"""

from __future__ import annotations

import ast
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import lief
from hatch_build import LIBRARY, TARGETS
from packaging.tags import mac_platforms
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

NEEDED = {
    "manylinux": {"libc.so.6", "libm.so.6"},
    "musllinux": {"libc.so"},
    "macosx": {"/usr/lib/libSystem.B.dylib"},
    "win": {"KERNEL32.dll", *(f"api-ms-win-crt-{part}-l1-1-0.dll" for part in ("heap", "runtime", "stdio", "string"))},
}
"""Kind of platform -> the libraries of the system that ours may need."""
ARCHITECTURES = {"x86_64": "X86_64", "amd64": "X86_64", "aarch64": "ARM64", "arm64": "ARM64"}
"""End of a platform tag -> lief's name of the architecture."""
OWN_NAMES = {"__mh_dylib_header", "___dso_handle"}
"""Symbols that every library for macOS exports."""


def main() -> None:
    """Build, compare and check all files."""
    with tempfile.TemporaryDirectory() as folder:
        first, second, elsewhere = (Path(folder, name) for name in ("first", "second", "elsewhere"))
        build(ROOT, first)
        copy_committed_files(elsewhere)
        build(elsewhere, second, umask=0o077)
        names = sorted(path.name for path in first.iterdir())
        _, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
        demand("built twice, with files that are not committed?", different + missing, [])
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(first, DIST)
    demand("files in dist", len(names), len(TARGETS) + 2)
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))
    for tag in TARGETS:
        (wheel,) = DIST.glob(f"reveal_bench-*-py3-none-{tag}.whl")
        check_tag(wheel, tag)
        with zipfile.ZipFile(wheel) as archive:
            check_library(archive.read(LIBRARY.as_posix()), tag)
        print(f"{wheel.name}: checked")


def build(checkout: Path, out: Path, umask: int = 0o022) -> None:
    """Write the source distribution and all wheels of a checkout to `out`."""

    def hatchling(folder: Path, target: str, platform: str = "") -> None:
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
        run(*command, environment={"REVEAL_PLATFORM": platform}, folder=folder, umask=umask)

    hatchling(checkout, "sdist")
    hatchling(checkout / "leaderboard", "wheel")
    (sdist,) = out.glob("reveal_bench-*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(sdist, folder, filter="data")
        for platform in TARGETS:
            hatchling(Path(folder, sdist.name.removesuffix(".tar.gz")), "wheel", platform)


def copy_committed_files(folder: Path) -> None:
    """Copy the files with today's times, readable by their owner only."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, cwd=ROOT, capture_output=True, text=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        copy.chmod((ROOT / name).stat().st_mode & 0o700)


def check_tag(wheel: Path, tag: str) -> None:
    """Check that installers know the tag, and that auditwheel gives a wheel for glibc the same one."""
    platforms = {each.platform for each in parse_wheel_filename(wheel.name)[3]}
    demand(f"{wheel.name}: platforms", platforms, set(tag.split(".")))
    if "manylinux" in tag:  # it cannot read a wheel for musl on a machine with glibc
        output = run(sys.executable, "-m", "auditwheel", "show", str(wheel))
        tags = [tag for tag in platforms if f'platform tag: "{tag}"' in " ".join(output.split())]
        demand(f"{wheel.name}: tags by auditwheel", len(tags), 1)
    elif "macosx" in tag:
        architecture = tag.removeprefix("macosx_11_0_")
        demand(f"{wheel.name}: known to installers", tag in mac_platforms((11, 0), architecture), True)


def check_library(content: bytes, tag: str) -> None:
    """Check symbols, needed libraries, architecture, and the oldest supported system."""
    lief.logging.disable()
    library = lief.parse(content)
    kind = tag.split("_")[0]
    exported = {str(function.name) for function in library.exported_functions} - OWN_NAMES
    if kind == "macosx":
        exported = {name.removeprefix("_") for name in exported}
    demand(f"{tag}: exported functions", exported, {*arguments_of_loops(), "version"})
    needed = {getattr(each, "name", each) for each in library.libraries} - {LIBRARY.name}
    demand(f"{tag}: needed libraries beyond the system's", needed - NEEDED[kind], set())
    architecture = next(ARCHITECTURES[end] for end in ARCHITECTURES if tag.endswith(end))
    demand(f"{tag}: architecture", library.abstract.header.architecture.name, architecture)
    demand(f"{tag}: folders of this machine", [word for word in (b"/tmp", b"/home", b"/root") if word in content], [])
    if kind == "manylinux":
        versions = {each.name for need in library.symbols_version_requirement for each in need.get_auxiliary_symbols()}
        newest = max(tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in versions)
        demand(f"{tag}: glibc {newest} is at most 2.17", newest <= (2, 17), True)
    if kind == "macosx":
        demand(f"{tag}: oldest macOS", list(library.build_version.minos), [11, 0, 0])
        demand(f"{tag}: signed", library.has_code_signature, tag.endswith("arm64"))


def arguments_of_loops() -> dict[str, str]:
    """Return the table of loops in kernels.py."""
    tree = ast.parse((ROOT / "reveal_bench" / "masks" / "kernels.py").read_text(encoding="utf-8"))
    tables = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    return dict(ast.literal_eval(tables["_ARGUMENTS"]))


def run(*command: str, environment: dict[str, str] | None = None, folder: Path = ROOT, umask: int = -1) -> str:
    """Return the output of a command; print it and stop if the command fails."""
    more = os.environ | (environment or {})
    program = shutil.which(command[0], path=more["PATH"]) or command[0]
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, cwd=folder, env=more, umask=umask)
    demand(f"{' '.join(command)}\n{done.stdout}{done.stderr}\nexit code", done.returncode, 0)
    return done.stdout


def demand(what: str, got: object, expected: object) -> None:
    """Stop unless two values are equal."""
    if got != expected:
        sys.exit(f"{what}: must be {expected}, got {got}")


if __name__ == "__main__":
    main()
