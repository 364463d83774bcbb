"""The image: rules that a checker of Dockerfiles would look for, and files and commands that it names are there.

No daemon is needed: the file is read. `docs/operating.md` has the commands that build and run the image.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "leaderboard" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Every instruction with its argument on one line, without comments."""
    text = "\n".join(line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    lines = [line.strip() for line in re.sub(r" *\\\n\s*", " ", text).splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def arguments(name: str) -> list[str]:
    return [argument for instruction, argument in instructions() if instruction == name]


def test_the_base_is_one_release_of_debian() -> None:
    (base,) = arguments("FROM")
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", base), "neither `latest` nor a tag that moves to another Debian"


def test_debian_packages_leave_nothing_behind() -> None:
    for step in arguments("RUN"):
        if "apt-get install" in step:
            assert step.startswith("apt-get update && ")
            assert "--yes --no-install-recommends" in step
            assert step.endswith("&& rm -rf /var/lib/apt/lists/*")


def test_it_runs_as_a_user_of_its_own_who_is_named_by_number() -> None:
    names = [instruction for instruction, _ in instructions()]
    (user,) = arguments("USER")
    assert user.isdigit()
    assert int(user) > 0
    assert f"useradd --create-home --uid {user} board" in "\n".join(arguments("RUN"))
    assert names.index("USER") < names.index("CMD")
    assert "install --directory --owner board --mode 0700 /data /vault" in "\n".join(arguments("RUN"))


def test_commands_are_run_without_a_shell_so_that_signals_reach_them() -> None:
    (command,), (health,) = arguments("CMD"), arguments("HEALTHCHECK")
    assert json.loads(command) == ["python", "app.py"]
    assert json.loads(health.partition("CMD ")[2]) == ["reveal-leaderboard", "health"]


def test_nothing_is_fetched_by_add_and_no_secret_is_built_in() -> None:
    assert not arguments("ADD")
    named = " ".join(arguments("ENV") + arguments("ARG"))
    assert not re.search(r"SECRET|TOKEN|PASSWORD|_KEY", named)


def test_what_is_copied_is_there_and_data_is_not_sent_to_the_builder() -> None:
    for argument in arguments("COPY"):
        for source in argument.split()[:-1]:
            assert (FILE.parent / source).exists(), source
    kept_out = (FILE.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"board", "demo-data"} <= set(kept_out)


def test_the_libraries_are_those_of_the_package_and_their_versions_can_be_held() -> None:
    project = tomllib.loads((FILE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (step,) = [step for step in arguments("RUN") if "pip install" in step]
    extras = re.search(r'"\.\[([a-z0-9,]+)\]"', step)
    assert extras
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert "--require-hashes" in step
    assert "--constraint wheels/constraints.txt --build-constraint wheels/constraints.txt" in step


def test_no_index_is_asked_for_our_own_name() -> None:
    """Nobody has reserved the name: anyone who reserved it could run code in every image."""
    (step,) = [step for step in arguments("RUN") if "pip install" in step]
    commands = [command.split() for command in step.split(" && ")]
    installing = [words for words in commands if words[0] in ("pip", "uv")]
    by_name = [words for words in installing if {"reveal-bench", "reveal-leaderboard"} & set(words)]
    (download,) = by_name
    assert {"download", "--no-index", "--no-deps", "--find-links"} <= set(download)
    (install,) = [words for words in installing if words[:3] == ["uv", "pip", "install"]]
    assert "own/reveal_bench-*.whl)[dicom]" in " ".join(install)


@pytest.mark.parametrize("where", [FILE, ROOT / "docs" / "operating.md"], ids=["Dockerfile", "operating.md"])
def test_the_commands_told_are_those_of_the_package(where: Path) -> None:
    project = tomllib.loads((FILE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = re.sub(r"\\\n\s*", "", where.read_text(encoding="utf-8").replace("# ", ""))
    run = re.findall(r"docker run .*? reveal-leaderboard +(\S+) (\S+)", text)
    assert {role for _, role in run} == {"serve", "worker"}
    assert {program for program, _ in run} <= set(project["scripts"])
    assert "docker build -t reveal-leaderboard leaderboard" in text
