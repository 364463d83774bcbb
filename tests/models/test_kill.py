"""An interrupted, killed and resumed run: only requests under way are asked twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from reveal_bench.models.questions import AskSettings
from reveal_bench.models.run_folder import read_run
from reveal_bench.models.running import ModelChoice, run_model
from tests.models.conftest import Truth, playing
from tests.models.endpoint import PlayedModel

pytestmark = pytest.mark.processes

CONNECTIONS = 4
ASKED = 14
"""Questions of the run: more than are answered or in flight before each of the three signals."""
FORKS = multiprocessing.get_context("fork")
"""Runs to be killed start often: as forks of this process, which has the imports already."""


def ask(folder: Path, out: Path, url: str) -> None:
    """The run, as the child does it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore Ctrl-C for what runs in the background
    choice = ModelChoice("played", url, max_connections=CONNECTIONS)
    run_model(folder, "test", out, AskSettings(), choice, limit=ASKED)


def ended(model: PlayedModel, folder: Path, out: Path, after: int, sent: signal.Signals) -> tuple[int | None, set[str]]:
    """Run until `after` more requests were answered and as many as may be are in flight; then send a signal.

    Returns
    -------
    exit code, and the questions that were in flight
    """
    begun = len(model.asked)
    model.gated_from = begun + after
    child = FORKS.Process(target=ask, args=(folder, out, model.url), daemon=True)
    child.start()
    assert child.pid is not None
    try:
        assert model.wait_for_open(CONNECTIONS)
        os.kill(child.pid, sent)
        child.join(60)
        code = child.exitcode
    finally:
        child.kill()
        child.join()
    model.open_gate()
    assert model.wait_for_none_open()
    assert len(model.asked) == begun + after + CONNECTIONS
    return code, {question for question, _ in model.asked[begun + after :]}


def test_interrupted_then_killed_then_done(films: Path, truth: Truth, tmp_path: Path) -> None:
    with playing(truth, error_rate=0.4) as (model, _):
        choice = ModelChoice("played", model.url, max_connections=CONNECTIONS)
        run_model(films, "test", tmp_path / "undisturbed", AskSettings(), choice, limit=ASKED)
    with playing(truth, error_rate=0.4) as (model, _):
        code, in_flight_first = ended(model, films, tmp_path / "out", 0, signal.SIGKILL)
        assert code == -signal.SIGKILL
        code, in_flight = ended(model, films, tmp_path / "out", 2, signal.SIGINT)
        assert code not in (0, None)
        assert read_run(tmp_path / "out").summary.by_status == {"answered": 2, "not_asked": ASKED - 2}
        code, in_flight_then = ended(model, films, tmp_path / "out", 4, signal.SIGKILL)
        assert code == -signal.SIGKILL
        choice = ModelChoice("played", model.url, max_connections=CONNECTIONS)
        run_model(films, "test", tmp_path / "out", AskSettings(), choice, limit=ASKED)
        expected = Counter(question for question, _, _ in truth.questions[:ASKED])
        expected.update(in_flight_first)
        expected.update(in_flight)
        expected.update(in_flight_then)
        assert Counter(question for question, _ in model.asked) == expected
    for path in (tmp_path / "undisturbed").iterdir():
        if path.is_file():
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert sum(1 for _ in (tmp_path / "out" / "logs").iterdir()) == 4
