"""The public part of a tasks-type split, and the commands on a folder of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reveal_bench.cli import app
from reveal_bench.evaluation.score import lint_file, score_file
from reveal_bench.kinds.tasks.lint import answers_to_jsonl
from reveal_bench.kinds.tasks.records import read_task_manifest
from tests.leaderboard.task_world import TaskBoard, answers_to, build_task_board


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> TaskBoard:
    return build_task_board(tmp_path_factory.mktemp("tasks"), n_tasks=8)


def test_split_asks_the_same_in_public_and_private_folder(board: TaskBoard) -> None:
    manifest = read_task_manifest(board.folder, "holdout")
    assert (manifest.benchmark, manifest.version, manifest.split) == ("rexecution", "1.0.0", "holdout")
    assert len(manifest.tasks) == 4
    first = manifest.tasks[0]
    number = int(first.task_id.removeprefix("task-"))
    assert first.prompt == f"Prompt number {number}."
    assert dict(first.images) == {f"image-{number:03d}": (80, 100)}
    assert (first.indication, first.requires_boxes) == ("Cough.", number % 2 == 0)
    assert read_task_manifest(board.holdout, "holdout") == manifest


def test_released_split_is_read_from_its_tasks(board: TaskBoard) -> None:
    assert len(read_task_manifest(board.folder, "released").tasks) == 4


def test_folder_without_the_inputs_is_refused(board: TaskBoard, tmp_path: Path) -> None:
    (tmp_path / "manifest").mkdir()
    for name in ("benchmark.json", "holdout.parquet"):
        (tmp_path / "manifest" / name).write_bytes((board.folder / "manifest" / name).read_bytes())
    with pytest.raises(ValueError, match="holds no holdout_inputs of split 'holdout'"):
        read_task_manifest(tmp_path, "holdout")
    with pytest.raises(ValueError, match="got 'test'"):
        read_task_manifest(tmp_path, "test")


def test_answer_file_is_linted_and_not_scored(board: TaskBoard, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(answers_to_jsonl(answers_to(board.manifest)), encoding="utf-8")
    report = lint_file(path, board.folder, "holdout")
    assert report.ok, report.render()
    assert report.n_predictions == 4
    with pytest.raises(ValueError, match="answers to tasks of rexecution are scored by readers"):
        score_file(path, board.folder, "holdout")


def test_lint_command_supports_tasks(board: TaskBoard, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = answers_to_jsonl(answers_to(board.manifest)).replace("Answer to", "\\u0000 to", 1)
    path.write_text(lines, encoding="utf-8")
    done = CliRunner().invoke(app, ["lint", str(path), str(board.folder), "--split", "holdout"])
    assert done.exit_code == 1
    assert "answers.jsonl:1: error: answer: must hold no control characters" in done.output
