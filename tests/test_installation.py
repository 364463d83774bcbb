"""The build hook's choices, and the file of exact versions with hashes that installations use."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

OWN = {"reveal-bench", "reveal-leaderboard"}


def constraints() -> dict[str, list[tuple[Requirement, str]]]:
    """Name -> its versions, one for each marker, each with the lines of its hashes."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8"))
    versions: dict[str, list[tuple[Requirement, str]]] = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        line, _, hashes = entry.partition(" \\\n")
        requirement = Requirement(line)
        versions.setdefault(canonicalize_name(requirement.name), []).append((requirement, hashes))
    return versions


def declared() -> list[Requirement]:
    """All that the two projects, their extras and their builds ask for."""
    lines: list[str] = []
    for folder in (ROOT, ROOT / "leaderboard"):
        document = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        project, groups = document["project"], document.get("dependency-groups", {})
        lines += project["dependencies"] + document["build-system"]["requires"]
        for more in (*project.get("optional-dependencies", {}).values(), *groups.values()):
            lines += more
    return [line for line in map(Requirement, lines) if line.name not in OWN]


def test_each_constraint_is_exact_and_has_hashes() -> None:
    versions = constraints()
    assert len(versions) > 200
    for name, entries in versions.items():
        for requirement, hashes in entries:
            assert re.fullmatch(r"==[\w.+!]+", str(requirement.specifier)), name
            assert re.fullmatch(r"(    --hash=sha256:[0-9a-f]{64}( \\\n)?)+", hashes), name


def test_constraints_cover_what_is_declared_and_what_is_installed() -> None:
    versions = constraints()
    for line in declared():
        exact = [str(entry.specifier)[2:] for entry, _ in versions[canonicalize_name(line.name)]]
        assert all(line.specifier.contains(version, prereleases=True) for version in exact), line
    for name, entries in versions.items():
        for entry, _ in entries:
            if entry.marker is None or entry.marker.evaluate():
                installed = [d.version for d in importlib.metadata.distributions(name=name)]
                assert all(entry.specifier.contains(version, prereleases=True) for version in installed), entry


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook, without the environment of the user who runs the tests."""
    for name in ("CC", "REVEAL_PLATFORM", "REVEAL_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / ".ci" / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the hook's data for a wheel of hatchling; nothing is compiled."""
    monkeypatch.setattr(hook, "compile_library", lambda source, folder: Path(folder, "libkernels.so").touch())
    data: dict[str, Any] = {"force_include": {}}
    builder = hook.CompiledKernels(str(ROOT), {}, None, None, "dist", "wheel")
    builder.initialize("standard", data)
    builder.finalize("standard", data, "")
    return data


def test_wheel_has_the_tag_of_the_platform_compiled_for(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for tag in hook.TARGETS:
        monkeypatch.setenv("REVEAL_PLATFORM", tag)
        data = built(hook, monkeypatch)
        assert (data["tag"], data["pure_python"]) == (f"py3-none-{tag}", False)
        assert list(data["force_include"].values()) == ["reveal_bench/masks/libkernels.so"]
    monkeypatch.setenv("REVEAL_PLATFORM", "win_arm64")
    with pytest.raises(ValueError, match=r"REVEAL_PLATFORM must be one of manylinux_2_17_x86_64.*, got 'win_arm64'"):
        hook.compiler()


@pytest.mark.skipif(sys.platform != "linux", reason="the tag of a Linux machine")
def test_wheel_of_this_machine_does_not_claim_others(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert built(hook, monkeypatch)["tag"] == f"py3-none-linux_{platform.machine()}"


def test_wheel_without_library_is_pure(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVEAL_KERNELS", "numpy")
    monkeypatch.setenv("CC", "none")
    assert built(hook, monkeypatch) == {"force_include": {}}
    assert hook.CompiledKernels(str(ROOT), {}, None, None, "dist", "wheel").dependencies() == []


def test_ziglang_is_fetched_only_where_it_compiles(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ((pinned, _),) = constraints()["ziglang"]
    builder = hook.CompiledKernels(str(ROOT), {}, None, None, "dist", "wheel")
    monkeypatch.setenv("CC", f"{sys.executable} -c pass")
    assert builder.dependencies() == []
    assert hook.compiler() == [sys.executable, "-c", "pass"]
    monkeypatch.setenv("REVEAL_PLATFORM", "macosx_11_0_arm64")
    assert builder.dependencies() == [str(pinned)]
    assert hook.compiler()[-2:] == ["-target", "aarch64-macos.11.0"]
    monkeypatch.delenv("REVEAL_PLATFORM")
    monkeypatch.setenv("CC", "none")
    assert builder.dependencies() == [str(pinned)]
    assert hook.compiler()[:4] == [sys.executable, "-m", "ziglang", "cc"]


def test_no_compiler_contracts_or_reorders_arithmetic(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "compiler.py"
    compiler.write_text("import sys; open('libkernels.so', 'w').write(' '.join(sys.argv))", encoding="utf-8")
    monkeypatch.setenv("CC", f"{sys.executable} {compiler}")
    hook.compile_library(Path("source.c"), tmp_path)
    options = (tmp_path / "libkernels.so").read_text(encoding="utf-8").split()
    assert {"-ffp-contract=off", "-shared", "source.c"} <= set(options)
    assert not {"-ffast-math", "-Ofast", "-march=native", "-funsafe-math-optimizations"} & set(options)


def test_failing_compiler_names_the_remedies(hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -c exit(1)")
    with pytest.raises(RuntimeError, match=r"Cannot compile source\.c: .*CC=none.*REVEAL_KERNELS=numpy"):
        hook.compile_library(Path("source.c"), tmp_path)
