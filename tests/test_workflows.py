"""The workflows of the host: rules that zizmor, which `make lint` runs on them, does not check."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
MAKE_TARGETS = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield f"{path.name}: {name}", job


def test_every_action_is_pinned_by_its_digest() -> None:
    used = [
        place for _, job in jobs() for place in (job.get("uses"), *(step.get("uses") for step in job.get("steps", [])))
    ]
    actions = {place for place in used if place and not place.startswith("./")}
    assert all(PINNED.fullmatch(action) for action in actions)
    assert len({action.partition("@")[0] for action in actions}) == len(actions) >= 4, "one digest for each action"
    for path in WORKFLOWS:
        for line in re.findall(r"(?m)uses: (?!\./)(.*)$", path.read_text(encoding="utf-8")):
            assert re.search(r" # v\d+\.\d+\.\d+$", line), f"{path.name}: {line} must say which version it is"


def test_jobs_may_write_nothing_but_the_publishers_token() -> None:
    assert all(read(path)["permissions"] == {} for path in WORKFLOWS)
    allowed = {name: job["permissions"] for name, job in jobs()}
    assert {name: allowed[name] for name in allowed if "write" in allowed[name].values()} == {
        "release.yml: publish": {"id-token": "write"}
    }
    assert dict(jobs())["release.yml: publish"]["environment"] == "pypi"


def test_make_targets_of_workflows_exist() -> None:
    runs = [step["run"] for _, job in jobs() for step in job.get("steps", []) if "run" in step]
    targets = {target for run in runs for target in re.findall(r"\bmake ([a-z-]+)", run)}
    assert {"lint", "test"} < targets <= MAKE_TARGETS


def test_every_python_that_the_project_names_is_tested() -> None:
    tested = dict(jobs())["ci.yml: test"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f">={tested[0]}" == project["requires-python"]
    assert tested == [f"3.{minor}" for minor in range(11, 11 + len(tested))]
