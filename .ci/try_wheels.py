"""Run the files that .ci/wheels.py wrote to dist/, as far as this machine can: the second half of `make wheels`.

- tests/test_kernels.py runs against the library of each wheel, under an emulator if needed, and holds it against numpy.
- The wheel of this machine and the source distribution (compiled by CC, compiled by ziglang, and without a compiled
  library) are installed by pip in a new environment. There the README's first example runs, outside the checkout. It
  must print the same for all of them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from hatch_build import LIBRARY, TARGETS
from wheels import DIST, ROOT, demand, run

GLIBC_X86, GLIBC_ARM = (tag for tag in TARGETS if tag.startswith("manylinux"))
RUNNERS = {
    GLIBC_X86: ("", "/lib64/ld-linux-x86-64.so.2", ""),
    GLIBC_ARM: ("qemu-aarch64 -L /usr/aarch64-linux-gnu", "/usr/aarch64-linux-gnu", "qemu-user and libc6-arm64-cross"),
    "musllinux_1_2_x86_64": ("", "/lib/ld-musl-x86_64.so.1", "musl"),
    "win_amd64": ("/usr/lib/wine/wine64", "/usr/lib/wine/wine64", "wine64"),
}
"""Platform tag -> the command that runs its programs here, a file that this needs, and Debian's packages with it."""

SLOW = "reveal-bench uses slow numpy loops"


def main() -> None:
    """Try the libraries, then the installations."""
    with tempfile.TemporaryDirectory(prefix="reveal-bench-try-") as name:
        folder = Path(name)
        for tag in TARGETS:
            command, needed, packages = RUNNERS.get(tag, ("", "", ""))
            if needed and Path(needed).exists():
                try_library(tag, command, folder)
                print(f"{tag}: built and run, results as numpy's")
            else:
                print(f"{tag}: built, not run" + (f" (install {packages})" if packages else ""))
        try_installations(folder)


def try_library(tag: str, runner: str, folder: Path) -> None:
    """Compare the library of a wheel with numpy, in a process of its platform."""
    (wheel,) = DIST.glob(f"reveal_bench-*-{tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract(LIBRARY.as_posix(), folder / tag)
    server = folder / tag / ("server.exe" if tag.startswith("win") else "server")
    options = ["-dynamic"] if tag.startswith("musl") else ["-ldl"] if tag.startswith("many") else []
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[tag], "-s", "-O2"]
    run(*compiler, str(ROOT / ".ci" / "serve_library.c"), "-o", str(server), *options)
    place = f"Z:{library}" if tag.startswith("win") else library
    command = shlex.join([*shlex.split(runner), str(server), place])
    tests = [str(ROOT / ".venv" / "bin" / "python"), "-m", "pytest", "-q", str(ROOT / "tests" / "test_kernels.py")]
    environment = {"REVEAL_LIBRARY_SERVER": command, "WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
    run(*tests, environment=environment, folder=ROOT)


def try_installations(folder: Path) -> None:
    """Run the README's first example with each way to install."""
    (wheel,) = DIST.glob(f"reveal_bench-*-{GLIBC_X86}.whl")
    (source,) = DIST.glob("reveal_bench-*.tar.gz")
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONWARNINGS": f"error:{SLOW}"}
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, str(wheel), environment=environment, folder=folder)
    run(str(programs / "python"), "-m", "pip", "check", environment=environment, folder=folder)
    for command in commands_before_the_example():
        run(*shlex.split(command), environment=environment, folder=folder)
    outputs = {wheel.name: run_example(folder, environment)}
    for title, choice in {
        "sdist, compiled by cc": {},
        "sdist, compiled by ziglang": {"CC": "none"},
        "sdist, without a library": {"REVEAL_KERNELS": "numpy", "PYTHONWARNINGS": f"ignore:{SLOW}"},
    }.items():
        if title.endswith("cc") and not shutil.which("cc"):
            print(f"{title}: not tried, since this machine has no compiler")
            continue
        chosen = environment | choice
        run(*pip, "--no-deps", "--no-cache-dir", "--force-reinstall", str(source), environment=chosen, folder=folder)
        outputs[title] = run_example(folder, chosen)
    for title, output in outputs.items():
        demand(f"{title}: printed by the README's example", output, outputs[wheel.name])
        print(f"{title}: installed, and the README's first example printed the same")


def commands_before_the_example() -> list[str]:
    """Return the README's commands that make its data, and the commands that write the two prediction files."""
    (block,) = re.findall(r"```sh\n(reveal-bench phantom .*?)```", readme(), re.DOTALL)
    chance = "reveal-bench baseline {} data/chexlocalize --split released --out {}"
    return [
        *block.replace("\\\n", "").strip().splitlines(),
        chance.format("location-prior", "predictions.jsonl"),
        chance.format("chance", "theirs.jsonl"),
    ]


def run_example(folder: Path, environment: dict[str, str]) -> str:
    """Return the output of the README's first example, and all of its scores."""
    example = re.findall(r"```python\n(.*?)```", readme(), re.DOTALL)[0]
    return run("python", "-c", f"{example}\nprint(result)", environment=environment, folder=folder)


def readme() -> str:
    """Return the text of the README."""
    return (ROOT / "README.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
