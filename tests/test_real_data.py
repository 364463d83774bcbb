"""The transcript of docs/real_data.md, word for word on real annotations; without them, on a synthetic twin.

The real annotations are in ``../shared/data`` (see README).
"""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.findings import CHESTX_DET_FINDINGS
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.leaderboard.conftest import free_port, running
from tests.leaderboard.forked import Forked
from tests.transcripts import Step, in_shell, plain, steps

REAL = ROOT.parent / "shared" / "data" / "chestx_det" / "ChestX_Det_test.json"
STEPS = steps(ROOT / "docs" / "real_data.md", "From a download to a board, on real data")


def follow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Step, str]]:
    """Run every step in `folder`; the port of the page is exchanged for a free one.

    The first and the last command of ``reveal-bench`` are programs that a shell starts; those between them run in this
    process, and server and worker in forks. Other commands are left to the shell.
    """
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(folder)
    port = str(free_port())
    printed = []
    own = [step for step in STEPS if step.command.startswith("reveal-bench ")][1:-1]
    with ExitStack() as background:
        for step in STEPS:
            command = step.command.replace("7860", port)
            if step.is_background:
                words, log = shlex.split(command.removesuffix("&"))[1:], folder / "background.log"
                background.enter_context(running(*words, log=log, start=partial(Forked, folder=folder)))
            elif step in own:
                done = call(*shlex.split(command)[1:], cwd=folder)
                printed.append((step, (done.stderr + done.stdout).replace(port, "7860")))
            else:
                printed.append((step, in_shell(command, folder).replace(port, "7860")))
    return printed


def twin(path: Path, n_images: int) -> None:
    """A synthetic file of the same form: one rectangle per finding."""
    rng = np.random.default_rng(11)
    entries = []
    for i in range(n_images):
        syms = [name for name in CHESTX_DET_FINDINGS if rng.random() < 0.4]
        boxes = [[x, y, x + w, y + h] for x, y, w, h in rng.integers(100, 400, (len(syms), 4)).tolist()]
        polygons = [[[x, y], [x2, y], [x2, y2], [x, y2]] for x, y, x2, y2 in boxes]
        entries.append({"file_name": f"{i:05d}.png", "syms": syms, "boxes": boxes, "polygons": polygons})
    path.write_text(json.dumps(entries))


@pytest.mark.processes
def test_the_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word where the real file is; else its commands on the twin, of which less is known beforehand."""
    if REAL.exists():
        (tmp_path / REAL.name).symlink_to(REAL)
        for step, printed in follow(tmp_path, monkeypatch):
            assert step.matches(printed), f"$ {step.command}\n--- page\n{step.output}\n--- printed\n{plain(printed)}"
        return
    twin(tmp_path / REAL.name, 160)
    outputs = {step.command.split()[1]: text for step, text in follow(tmp_path, monkeypatch)}
    assert "macro" in outputs["score"]
    assert "accepted" in outputs["lint"]
    assert "released figures" in outputs["submit"]


def test_the_twin_passes_for_the_real_file(tmp_path: Path) -> None:
    twin(tmp_path / REAL.name, 20)
    lines = call("inspect", tmp_path / REAL.name).stdout.splitlines()
    assert lines[0] == f"{tmp_path / REAL.name}: chestx-det"
    assert lines[2].split()[:3] == ["test", "images", "20"]


def test_the_transcript_covers_the_whole_way() -> None:
    words = [" ".join(step.command.split()[:2]) for step in STEPS]
    for needed in ("inspect", "build", "validate", "baseline", "lint", "score", "submit"):
        assert f"reveal-bench {needed}" in words
    assert any("load_dataset" in step.command for step in STEPS)
