"""``reveal-leaderboard demo``: from nothing to a board, again from what is there, and ended by Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from reveal_leaderboard.cli import app
from typer.testing import CliRunner

pytestmark = pytest.mark.processes

ENTRANTS = {"Phantom Net L", "Phantom Net S", "Phantom Chat", "Location prior", "Chance"}


def demo(folder: Path, *options: str) -> list[str]:
    return ["demo", "--dir", str(folder), "--images", "60", "--port", "7861", *options]


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "reveal_leaderboard", *demo(folder, *options)]


def test_the_demo_runs_twice_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    first = subprocess.run(command(folder, "--no-stay"), capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    for line in ("drawing 60 synthetic", "scoring at home", "the board"):
        assert line in first.stdout
    of_images = first.stdout.split("the board (chexlocalize")[1].split("the board (")[0]
    placed = re.findall(r"(?m)^ +(\S+)  ([A-Z])  (.{18}) +\d+ %", of_images)
    assert {name.strip() for *_, name in placed} == ENTRANTS
    assert placed[-1][2].strip() == "Chance"
    assert [tier for _, tier, _ in placed] == sorted(tier for _, tier, _ in placed)
    auroc = dict(re.findall(r"(?m)^ +(Phantom Reader \w|Chance) +(\d+\.\d) %", first.stdout.split("AUROC")[1]))
    assert float(auroc["Phantom Reader L"]) > float(auroc["Phantom Reader S"]) > float(auroc["Chance"])
    built = {path: path.stat().st_mtime_ns for path in (folder / "public").rglob("*.parquet")}

    again = subprocess.Popen(command(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.stdout is not None
    url = next(line.split()[-1] for line in again.stdout if line.startswith("The board is at"))
    assert f"listening at {url}\n" in (folder / "log.txt").read_text()
    board = httpx.get(f"{url}/api/v1/leaderboard", params={"benchmark": "chexlocalize"}).json()
    assert {entry["model"] for entry in board["entries"]} == ENTRANTS
    shown = httpx.get(f"{url}/gallery/chexlocalize/gallery.json").json()
    assert {system.rsplit(", ", 1)[0] for system in shown["systems"]} == ENTRANTS  # "MODEL, TEAM"
    assert shown["cases"]
    again.send_signal(signal.SIGINT)
    _, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    with pytest.raises(httpx.TransportError, match="refused"):
        httpx.get(f"{url}/healthz")
    assert {path: path.stat().st_mtime_ns for path in built} == built


@pytest.mark.parametrize(
    ("option", "said"), [("--stay", "use --fresh to replace it"), ("--fresh", "does not look like a demo")]
)
def test_a_folder_that_is_no_demo_is_left_alone(
    option: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("reveal_leaderboard.cli.demo")  # the command of this name hides it
    monkeypatch.setattr(module, "heed_signals", lambda: None)
    (tmp_path / "thesis.txt").write_text("mine")
    done = CliRunner().invoke(app, demo(tmp_path, option))
    assert done.exit_code == 1
    assert said in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


class _Swallows:
    """Python drops what is raised while an object is deleted."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def wait_after_a_drop() -> None:
    del [_Swallows()][0]
    threading.Event().wait(20)


def test_a_signal_that_came_where_python_drops_exceptions_is_heeded_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("reveal_leaderboard.cli.demo")
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: dropped.append(one.exc_type))
    monkeypatch.setattr(module, "SECONDS_UNTIL_AGAIN", 0.01)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        module.heed_signals()
        with pytest.raises(KeyboardInterrupt):
            wait_after_a_drop()
    finally:
        module.heeded()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert dropped == [KeyboardInterrupt]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
