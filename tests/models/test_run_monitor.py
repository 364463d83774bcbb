"""The conditions under which a run stops, and the pauses before a request is sent again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from reveal_bench.models.run_monitor import RunWatcher

ERROR = OSError("no")


def watcher(patience: float = 0.0) -> RunWatcher:
    return RunWatcher(None, "asking", 99, [], patience=patience)


def test_ten_failures_in_a_row_end_a_run() -> None:
    run = watcher()
    for error in (*[ERROR] * 9, None, *[ERROR] * 9):  # an answer in between starts the count again
        run.count_attempt(error)
    assert not run.is_over()
    run.count_attempt(ERROR)
    assert run.is_over()


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({}, 3, 6),  # pauses begin at three seconds, with up to three more at random
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "1"}, 3, 6),
        ({"retry-after": "86400"}, 1800, 1800),
    ],
    ids=["own", "endpoint's", "shorter", "too long"],
)
def test_a_pause_that_the_endpoint_asks_for_is_made(headers: dict[str, str], low: float, high: float) -> None:
    error = OSError("busy")
    error.response, error.status = SimpleNamespace(headers=headers), 429  # type: ignore[attr-defined]
    state = SimpleNamespace(outcome=SimpleNamespace(exception=lambda: error), attempt_number=1)
    api = SimpleNamespace(retry_wait=lambda: None)
    with watcher().watch_retries(api, max_retries=5):
        seconds = api.retry_wait()(state)
    assert low <= seconds <= high
