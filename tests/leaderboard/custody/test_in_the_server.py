"""The server lints by the same code, although Landlock holds it already: templates start, and start again, inside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from reveal_leaderboard.custody.confinement import landlock_abi

from reveal_bench.predictions import predictions_to_jsonl
from tests.leaderboard.conftest import Board, guesses
from tests.leaderboard.custody.conftest import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock"),
]

LIKE_THE_SERVER = """
import json, os, signal, sys
from pathlib import Path

from reveal_leaderboard.custody.confinement import confine, readable_places

data, public, upload = map(Path, sys.argv[1:])
confine(read=[*readable_places(), public], write=[data])  # before libraries start threads

from reveal_bench.kinds.localization.records import read_manifest
from reveal_leaderboard.custody import Custody

manifest = read_manifest(public, "holdout")
with Custody(data / "custody") as custody:
    canonical = data / "canonical.npz"
    first = custody.parse(upload, manifest, name="mine", canonical=canonical)
    os.kill(custody.template_ids()[0], signal.SIGKILL)
    second = custody.parse(upload, manifest, name="mine")
    print(json.dumps([first.report.ok, canonical.exists(), second.report.ok, custody.confinement]))
"""


def test_a_server_that_gave_up_its_rights_still_lints(board: Board, tmp_path: Path) -> None:
    upload = tmp_path / "data" / "upload"
    upload.parent.mkdir()
    upload.write_text(predictions_to_jsonl(guesses(board.manifest)))
    arguments = [str(upload.parent), str(board.folder), str(upload)]
    command = [sys.executable, "-c", LIKE_THE_SERVER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome[:3] == [True, True, True]
    assert f"landlock-{landlock_abi()}, seccomp" in outcome[3]
