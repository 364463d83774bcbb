"""What commands say of long work where nobody looks at a terminal."""

from __future__ import annotations

import pytest

from reveal_bench.cli.output import plain_progress, progress


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 4.0, 12.0, 13.0, 30.0])
    update = plain_progress("building", every=10, clock=lambda: next(seconds))
    for done in (100, 300, 310):
        update("train", done, 1_000)
    update("building", 7, None, 2)
    captured = capsys.readouterr()
    assert captured.err == "building train: 300 of 1,000 (30 %) after 12 s\nbuilding: 7, 2 failed after 30 s\n"
    assert not captured.out


def test_short_work_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading") as update:
        update("reading", 1, 2)
        update("reading", 2, 2)
    assert capsys.readouterr().err == ""
