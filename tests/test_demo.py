"""``reveal-leaderboard demo``: from nothing to a board, reuse of existing data, and the end by Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
from reveal_leaderboard.cli import app
from typer.testing import CliRunner

pytestmark = pytest.mark.processes

ENTRANTS = {"Phantom Net L", "Phantom Net S", "Phantom Chat", "Location prior", "Chance"}


def demo(folder: Path, *options: str) -> list[str]:
    return ["demo", "--dir", str(folder), "--images", "40", "--port", "7861", *options]


def test_the_demo_shows_a_board_is_made_once_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "reveal_leaderboard", *demo(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = "".join(takewhile(lambda line: line != "Try next:\n", process.stdout))
    assert process.poll() is None, text + process.communicate()[1]
    for line in ("drawing 40 synthetic", "scoring locally", "the board"):
        assert line in text
    of_images = text.split("the board (chexlocalize")[1].split("the board (")[0]
    placed = re.findall(r"(?m)^ +(\S+)  ([A-Z])  (.{18}) +\d+%", of_images)
    assert {name.strip() for *_, name in placed} == ENTRANTS
    assert placed[-1][2].strip() == "Chance"
    assert [tier for _, tier, _ in placed] == sorted(tier for _, tier, _ in placed)
    auroc = dict(re.findall(r"(?m)^ +(Phantom Reader \w|Chance) +(\d+\.\d)%", text.split("AUROC")[1]))
    assert float(auroc["Phantom Reader L"]) > float(auroc["Phantom Reader S"]) > float(auroc["Chance"])

    url = text.split("The board is at")[1].split()[0]
    assert f"listening at {url}\n" in (folder / "log.txt").read_text()
    built = {path: path.stat().st_mtime_ns for path in (folder / "public").rglob("*.parquet")}
    module, lines = import_module("reveal_leaderboard.cli.demo"), list[str]()
    again = module.Demo(folder, n_images=40, seed=0, echo=lines.append)
    again.prepare()
    assert lines == [f"using the demo in {folder} (--fresh creates a new one)"]
    assert {path: path.stat().st_mtime_ns for path in built} == built
    module.upload(again.uploads(), url, lines.append)
    assert {line.split()[-1] for line in lines[2:]} == {"scored"}
    board = httpx.get(f"{url}/api/v1/leaderboard", params={"benchmark": "chexlocalize"}).json()
    assert sorted(entry["model"] for entry in board["entries"]) == sorted(ENTRANTS)
    cases = httpx.get(f"{url}/gallery/chexlocalize/gallery.json").json()
    assert {system.rsplit(", ", 1)[0] for system in cases["systems"]} == ENTRANTS  # "MODEL, TEAM"
    assert cases["cases"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    with pytest.raises(httpx.TransportError, match="refused"):
        httpx.get(f"{url}/healthz")


@pytest.mark.parametrize(
    ("option", "text"), [("--stay", "use --fresh to replace it"), ("--fresh", "does not look like a demo")]
)
def test_folder_without_a_demo_is_left_alone(
    option: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("reveal_leaderboard.cli.demo")  # the command of this name hides it
    monkeypatch.setattr(module, "arm_signals", lambda: None)
    (tmp_path / "thesis.txt").write_text("mine")
    done = CliRunner().invoke(app, demo(tmp_path, option))
    assert done.exit_code == 1
    assert text in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


class _Swallows:
    """Python drops exceptions that are raised while an object is deleted."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def wait_after_a_drop() -> None:
    del [_Swallows()][0]
    threading.Event().wait(20)


def test_signal_during_a_destructor_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("reveal_leaderboard.cli.demo")
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: dropped.append(one.exc_type))
    monkeypatch.setattr(module, "SECONDS_UNTIL_AGAIN", 0.01)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        module.arm_signals()
        with pytest.raises(KeyboardInterrupt):
            wait_after_a_drop()
    finally:
        module.disarm_signals()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert dropped == [KeyboardInterrupt]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
