"""Confined processes of server and worker can open only the files in their request.

Hostile code replaces the linter in a fork server started by the server (already restricted by Landlock) and in one
started by a worker (which may open everything). It also replaces the scorer, which gets one holdout.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from reveal_leaderboard.custody.confinement import landlock_abi
from reveal_leaderboard.custody.sandbox import has_seccomp

from tests.leaderboard.custody import hostile
from tests.leaderboard.leak import opener
from tests.leaderboard.leak.opener import opened

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(landlock_abi() == 0 or not has_seccomp(), reason="this kernel has no Landlock or no seccomp"),
]
SECRETS = ("holdout", "holdout of another board", "vault", "database", "another upload", "settings", "public manifest")


@dataclass(frozen=True)
class Machine:
    """A data folder, a public folder, two holdouts and a vault, with files of every kind."""

    root: Path

    @property
    def files(self) -> dict[str, Path]:
        paths = (
            "private/holdout/localization/holdout-00000.parquet", "private/other/multilabel/holdout-00000.parquet",
            "private/vault/salt", "data/leaderboard.sqlite", "data/blobs/ab/abcd", "settings.toml",
            "public/manifest/holdout.parquet",
        )  # fmt: skip
        return dict(zip(SECRETS, (self.root / path for path in paths), strict=True))

    def build(self) -> Machine:
        for name, path in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text(f"canary of the {name}")
        self.modules.mkdir()
        for module in (hostile, opener):
            shutil.copy(str(module.__file__), self.modules)
        return self

    @property
    def texts(self) -> dict[str, str]:
        return {name: str(path) for name, path in self.files.items()}

    @property
    def modules(self) -> Path:
        return self.root / "data" / "modules"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine")).build()


LIKE_THE_SERVER = """
import json, sys
from pathlib import Path

from reveal_leaderboard import cli
from reveal_leaderboard.cli.process import live_in
from reveal_leaderboard.store.paths import resolve_paths

root, files = Path(sys.argv[1]), json.loads(sys.argv[2])
live_in(root / "data")
state = cli._confine(resolve_paths(root / "data", None, None, root / "settings.toml"), [root / "public"]).summary
sys.path.insert(0, str(root / "data" / "modules"))

from opener import opened

print(json.dumps([state, opened(files, root / "data", root / "data" / "modules")]))
"""


def test_confined_process_of_the_server_opens_nothing(machine: Machine) -> None:
    arguments = [str(machine.root), json.dumps(machine.texts)]
    command = [sys.executable, "-c", LIKE_THE_SERVER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    state, results = json.loads(done.stdout.splitlines()[-1])
    assert state.startswith("landlock-")
    assert results == dict.fromkeys(SECRETS, "PermissionError")


def test_confined_linter_of_the_worker_opens_nothing(machine: Machine, tmp_path: Path) -> None:
    assert opened(machine.texts, tmp_path, machine.modules) == dict.fromkeys(SECRETS, "PermissionError")


def test_confined_scorer_opens_only_its_holdout(machine: Machine, tmp_path: Path) -> None:
    named = str(machine.files["holdout"].parents[1])
    results = opened(machine.texts, tmp_path, machine.modules, places=[named])
    assert results == dict.fromkeys(SECRETS, "PermissionError") | {"holdout": "done"}
