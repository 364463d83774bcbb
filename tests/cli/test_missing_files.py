"""A file that does not exist: the same words from every command, before it does anything."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command_name

from reveal_bench.cli import app, curate
from reveal_bench.cli.inputs import OUTPUT
from tests.cli.test_score import call


def _leaves(hint: Any) -> list[Any]:
    parts = get_args(hint)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [hint]


def _paths() -> Iterator[tuple[str, Any, str, bool, bool]]:
    """Yield (command, its function, name of a path, True if it is repeatable, True if it must exist)."""
    for prefix, group in (("", app), ("curate ", curate.app)):
        for command in group.registered_commands:
            assert command.callback is not None
            name = prefix + (command.name or get_command_name(command.callback.__name__))
            for key, hint in get_type_hints(command.callback, include_extras=True).items():
                if Path in _leaves(hint):
                    marks = getattr(hint, "__metadata__", ())
                    yield name, command.callback, key, "list" in str(hint), OUTPUT not in marks


PATHS = list(_paths())


def test_every_command_reports_a_missing_file_in_the_same_words() -> None:
    inputs = [path for path in PATHS if path[-1]]
    assert len(inputs) > 80
    for command, function, tested, is_list, _ in inputs:
        required = [key for key, parameter in inspect.signature(function).parameters.items()
                    if parameter.default is inspect.Parameter.empty]  # fmt: skip
        values: dict[str, Any] = dict.fromkeys(required, "x") | {tested: [Path("no/f")] if is_list else Path("no/f")}
        with pytest.raises(FileNotFoundError) as refused:
            function(**values)
        assert str(refused.value) == "no/f does not exist", (command, tested)


def test_paths_that_are_written_need_not_exist() -> None:
    written = {f"{command} {key}" for command, _, key, _, must_exist in PATHS if not must_exist}
    assert {words for words in written if not words.endswith(" out")} == {
        "phantom anatomy", "phantom counterfactuals", "build id_key", "build holdout", "build log", "build id_table",
        "curate extract folder", "curate refresh folder", "curate candidates folder",
        "score rows", "score pixels", "score boundaries", "score box_accuracy", "score tables", "run dry_run",
        "tune metadata",
        "curves reader", "rank reader",  # also names of readers
    }  # fmt: skip
    assert all(not must_exist for _, _, key, _, must_exist in PATHS if key == "out")


@pytest.mark.parametrize(
    "words",
    [
        "score no/f here", "convert here --from table --file no/f --out new", "agreement no/f",
        "build no/f --out new", "inspect here --mapping no/f", "curves here here --reader no/f.csv",
        "curate assign here --readers no/f", "submit no/f --benchmark b --url http://127.0.0.1:9",
        "misses A=no/f --folder here --out new", "draft-ratings no/f --folder here --ratings here --out new",
        "report no/f --folder here --out new", "view here A=no/f",
    ],
)  # fmt: skip
def test_message_is_one_line(words: str, tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    refused = call(*words.split(), expect=1, cwd=tmp_path).stderr
    assert refused in ("error: no/f does not exist\n", "error: no/f.csv does not exist\n")
    assert not (tmp_path / "new").exists()
