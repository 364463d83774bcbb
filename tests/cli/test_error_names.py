"""Errors of commands name options and arguments, never parameters of the library's functions."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import PARAMETERS, _message, app, curate
from tests.cli.test_score import call
from tests.conftest import World


def test_every_translated_parameter_leads_to_a_command() -> None:
    commands = [*app.registered_commands, *curate.app.registered_commands]
    known = {name for one in commands if one.callback for name in inspect.signature(one.callback).parameters}
    for name, ours in PARAMETERS.items():
        assert known & set(ours), name


@pytest.mark.parametrize(
    ("command", "argument", "named"),
    [
        ("baseline", "records", "FOLDER"), ("score", "bench", "FOLDER"), ("curves", "thresholds", "`thresholds`"),
        ("rank", "systems", "SYSTEMS"), ("compare", "n_resamples", "--resamples"), ("saliency", "prob", "MAPS"),
        ("build", "pixels", "--images"), ("run", "form", "--answer"),
        ("import-lmms", "export", "--tasks"), ("shapes", "overwrite", "`overwrite`"),
    ],
)  # fmt: skip
def test_parameters_of_the_library_are_translated(
    monkeypatch: pytest.MonkeyPatch, command: str, argument: str, named: str
) -> None:
    monkeypatch.setattr("sys.argv", ["reveal-bench", command])
    assert _message(ArgumentError(argument, "must be", 1)) == f"{named} must be, got 1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("score {tmp}/p.jsonl {world} --split released --subset {tmp}/ids", "--subset must be asked in "),
        ("readers {tmp}/table.csv", "TABLE must have the columns "),
        ("import-inspect {tmp} --out {tmp}/new", "LOGS must contain logs (.eval)"),
        ("metrics luck", "NAMES must be among "),
        ("phantom {tmp}/new --images 2 --val-images -1", "--val-images must be at least 0, got -1"),
    ],
)
def test_error_names_the_option_or_argument(words: str, message: str, world: World, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("nobody\n")
    (tmp_path / "p.jsonl").write_text("")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    formatted = words.format(world=world.folder, tmp=tmp_path).split()
    refused = call(*formatted, expect=1).stderr
    assert message in refused
    assert "`" not in refused.splitlines()[0]
