"""Single tasks: tasks that fail or kill their process, the rights to a storage; and heat maps cut by tasks."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.scale.engine import TaskEngine
from reveal_bench.scale.storage import TaskStorage
from reveal_bench.scale.tasks import RunTask, Task, TaskError
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.scale.sent import square


def tasks_of(*numbers: int) -> list[Task]:
    return [Task(str(number), square, number) for number in numbers]


@pytest.mark.processes
def test_a_task_that_fails_says_why_and_one_that_ends_its_process_is_given_up(tmp_path: Path) -> None:
    with TaskEngine(tmp_path / "storage", work="squares", workers=2) as engine:
        assert sorted(one.result["square"] for one in engine.run("a", tasks_of(1, 2, 3))) == [1, 4, 9]
        with pytest.raises(ArgumentError, match="`number` must bring luck, got 13"):
            list(engine.run("b", tasks_of(1, 13)))
        with pytest.raises(TaskError, match="task 1 of c killed its process 3 times, or memory ran out"):
            list(engine.run("c", tasks_of(1, 99)))
        # corrected runs go on: unchanged finished tasks stay, and dropped tasks are not reported
        squares = {one.number: one.result["square"] for one in engine.run("b", tasks_of(1, 12))}
        assert squares == {0: 1, 1: 144}  # whether the first was done before the second failed is chance
        done = {one.number: (one.result["square"], one.was_done) for one in engine.run("a", tasks_of(1, 7))}
        assert done == {0: (1, True), 1: (49, False)}
        assert engine.storage.read("b/pieces/00001.txt") == b"144"


class ElsewhereExecutor:
    """An executor that submits tasks and returns; `does` selects the tasks that are ever run."""

    def __init__(self, step: RunTask, does: range) -> None:
        self.step, self.does = step, does

    def run(self) -> None:
        for rank in self.does:
            self.step(None, rank, len(self.does))


def test_other_executors_are_waited_for(tmp_path: Path) -> None:
    def engine(does: range) -> TaskEngine:
        return TaskEngine(
            tmp_path / "storage",
            work="squares",
            executor=lambda step, n, logs: ElsewhereExecutor(step, does),
            patience=0,
        )

    with pytest.raises(TaskError, match=r"2 tasks of a were not finished \(the first: 1, 2\)"):
        list(engine(range(1)).run("a", tasks_of(1, 2, 3)))
    assert [one.was_done for one in engine(range(3)).run("a", tasks_of(1, 2, 3))] == [True, False, False]
    assert len(list((tmp_path / "storage" / "a" / "starts").iterdir())) == 3


def test_the_example_asks_slurm_for_what_it_says(tmp_path: Path) -> None:
    slurm = run_path(str(ROOT / "docs" / "cluster.py"))["slurm"]
    executor = slurm(RunTask(str(tmp_path), "rows-test"), 120, str(tmp_path / "logs"))
    output = executor.get_sbatch_args(3)  # 120 tasks, 50 to a job
    assert (output["array"], output["partition"], output["job-name"]) == ("0-2%200", "cpu", "reveal-rows-test")
    assert executor.get_incomplete_ranks() == list(range(120))


@pytest.mark.parametrize("url", ["gs://bucket/x", "s3://", "s3://key:secret@bucket/x"])
def test_storage_is_a_folder_or_a_bucket(url: str) -> None:
    with pytest.raises(
        ArgumentError, match=r"`storage` must be a folder or s3://BUCKET/PREFIX without credentials"
    ) as e:
        TaskStorage(url)
    assert "secret" not in str(e.value)


def test_a_storage_is_for_one_work(tmp_path: Path) -> None:
    TaskEngine(tmp_path / "storage", work="build /a")
    with pytest.raises(ArgumentError, match="`storage` must be used only for the work build /b, got build /a"):
        TaskEngine(tmp_path / "storage", work="build /b")


@pytest.mark.processes
def test_heat_maps_and_the_commands(world: Any, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.mkdir()
    rng = np.random.default_rng(2)
    for image, finding in rb.load(world.folder, split="released").manifest.asked_pairs():
        np.save(maps / f"{image}_{finding}.npy", rng.random((8, 8)).astype(np.float32))
    by_pool, out = tmp_path / "pool.jsonl", tmp_path / "tasks.jsonl"
    call("saliency", maps, world.folder, "--out", by_pool, "--threshold", "0.6")
    words = ("saliency", maps, world.folder, "--out", out, "--threshold", "0.6", "--engine", "datatrove")
    call(*words, "--processes", "2", "--task-size", "10", "--storage", tmp_path / "storage")
    assert out.read_bytes() == by_pool.read_bytes()
    n_maps = len(list(maps.iterdir()))
    assert len(list((tmp_path / "storage" / "maps" / "done").iterdir())) == -(-n_maps // 10)
    refused = call("saliency", maps, world.folder, "--out", out, "--storage", tmp_path / "storage", expect=1)
    assert "--storage needs --engine datatrove" in refused.stderr
    refused = call(*words, "--executor", "nowhere.py:slurm", expect=1)
    assert "--executor must be FILE.py:FUNCTION of an existing file, got 'nowhere.py:slurm'" in refused.stderr
    call("build", maps, "--source", "chexlocalize", "--out", tmp_path / "new", "--engine", "datatrove", expect=1)
    assert not (tmp_path / ".new.tasks").exists()
    refused = call("validate", world.folder, "--engine", "datatrove", "--storage", world.folder / "x", expect=1)
    assert "--storage must be outside the folders that are written or checked" in refused.stderr
