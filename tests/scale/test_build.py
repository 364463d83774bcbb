"""A folder built by tasks equals the process pool's byte for byte: resumed, killed, changed, through a bucket."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.cli.engine import tasks_of
from reveal_bench.dataset.build import BuildLog, build_folder
from reveal_bench.scale.build import TaskBuild
from reveal_bench.scale.engine import TaskEngine
from reveal_bench.scale.tasks import RunTask, TaskError
from reveal_bench.sources import detect_source
from reveal_bench.sources.source import BuildError, Problem
from tests.cli.test_score import call
from tests.dataset import test_resume
from tests.dataset.test_resume import build, studies, tree, write_pictures
from tests.scale.sent import Deadly, DeadlyOnce

SIZE = 10
"""Studies of one task."""


class HereExecutor:
    """Runs every task in this process, as a cluster would elsewhere."""

    def __init__(self, step: RunTask, n_tasks: int) -> None:
        self.step, self.n_tasks = step, n_tasks

    def run(self) -> None:
        for rank in range(self.n_tasks):
            self.step(None, rank, self.n_tasks)


def here(step: RunTask, n_tasks: int, logs: str) -> HereExecutor:
    return HereExecutor(step, n_tasks)


def by_tasks(pictures: Path, out: Path, storage: Path, *, executor: Any = None, **options: Any) -> BuildLog:
    """Build with two processes of datatrove's, or another executor; the tasks stay in the storage."""
    log = BuildLog()
    with TaskEngine(storage, work="test", workers=2, task_size=SIZE, executor=executor) as tasks:
        build(pictures, out, engine=TaskBuild(tasks), log=log, **options)
    return log


def same(one: Path, other: Path) -> bool:
    """Return True if two folders and the private folders beside them are equal in every byte."""
    return all(
        tree(one.with_name(one.name + end)) == tree(other.with_name(other.name + end)) for end in ("", "-private")
    )


def starts(storage: Path, stage: str = "rows-test") -> Counter[int]:
    """Attempts of each task."""
    return Counter(int(path.name[:5]) for path in (storage / stage / "starts").glob("[0-9]*"))


@pytest.mark.processes
def test_shards_are_those_of_the_pool_and_finished_tasks_stay(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures", 210)  # more than one group of rows in both halves
    sorted(pictures.iterdir())[60].write_bytes(b"broken")
    storage = tmp_path / "storage"
    seen = []

    def stop(split: str, done: int, total: int, failed: int) -> None:
        seen.append((done, failed))
        if done == 50:
            raise KeyboardInterrupt

    build(pictures, tmp_path / "pool", max_shard_bytes=1, keep_going=True)
    with pytest.raises(KeyboardInterrupt):
        by_tasks(pictures, tmp_path / "out", storage, progress=stop)
    done = {int(path.stem) for path in (storage / "rows-test" / "done").glob("[0-9]*")}  # others are half written
    assert 5 <= len(done) < 21
    with pytest.raises(BuildError, match=r"1 problem:\n060\.png:study-60: `picture` must be readable"):
        by_tasks(pictures, tmp_path / "out", storage, executor=here)
    log = by_tasks(pictures, tmp_path / "out", storage, max_shard_bytes=1, keep_going=True, executor=here)
    assert same(tmp_path / "out", tmp_path / "pool")
    assert len(list((tmp_path / "out" / "multilabel").iterdir())) == 2
    assert ([problem.file for problem in log.left_out], log.resumed) == (["060.png"], 210)
    assert {n: starts(storage)[n] for n in done} == dict.fromkeys(done, 1)
    assert oct(storage.stat().st_mode & 0o777) == "0o700"


@pytest.mark.processes
def test_a_killed_process_costs_its_own_task_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = write_pictures(tmp_path / "pictures", 60)
    build(pictures, tmp_path / "pool")
    records, storage = studies(pictures), tmp_path / "storage"
    image = records[24].images[0]  # of the fourth task, in the order of the seed
    assert image.picture is not None
    deadly = DeadlyOnce(image.picture.path, image.picture.name, image.picture.source_path)
    records[24] = replace(records[24], images=(replace(image, picture=deadly),))
    monkeypatch.setattr(test_resume, "studies", lambda _: records)
    (tmp_path / "armed").write_text(str(os.getpid()))
    by_tasks(pictures, tmp_path / "out", storage)
    assert not (tmp_path / "armed").exists()
    assert starts(storage) == {0: 1, 1: 1, 2: 1, 3: 2, 4: 1, 5: 1}
    assert same(tmp_path / "out", tmp_path / "pool")


@pytest.mark.processes
def test_a_picture_that_ends_its_decoder_is_a_problem_as_any_other(tmp_path: Path) -> None:
    records = studies(write_pictures(tmp_path / "pictures", 12))
    image = records[5].images[0]
    assert image.picture is not None
    deadly = Deadly(image.picture.path, image.picture.name, image.picture.source_path)
    records[5] = replace(records[5], images=(replace(image, picture=deadly),))

    def made(out: Path, engine: TaskBuild | None) -> list[Problem]:
        log = BuildLog()
        build_folder(
            {"test": records}, out, BENCHMARKS["reveal-cxr"], workers=2, keep_going=True, engine=engine, log=log
        )
        return log.left_out

    with TaskEngine(tmp_path / "storage", work="test", task_size=SIZE) as tasks:
        problems = made(tmp_path / "out", TaskBuild(tasks))
    assert [problem.file for problem in problems] == ["005.png"]
    assert starts(tmp_path / "storage") == {0: 2, 1: 1}
    assert problems == made(tmp_path / "pool", None)
    assert tree(tmp_path / "out") == tree(tmp_path / "pool")


def test_what_changed_is_made_again(tmp_path: Path) -> None:
    pictures, storage = write_pictures(tmp_path / "pictures", 40), tmp_path / "storage"
    by_tasks(pictures, tmp_path / "out", storage, executor=here)
    Image.new("L", (20, 24), 7).save(pictures / "015.png")
    log = by_tasks(pictures, tmp_path / "out", storage, overwrite=True, executor=here)
    assert (starts(storage), log.resumed) == ({0: 1, 1: 2, 2: 1, 3: 1}, 30)
    build(pictures, tmp_path / "pool")
    assert same(tmp_path / "out", tmp_path / "pool")
    with (storage / "rows-test" / "pieces" / "00002.pictures").open("r+b") as file:
        file.write(b"another file")
    (storage / "shards-out-holdout_inputs-holdout" / "done" / "00000.json").unlink()
    with pytest.raises(TaskError, match=r"rows-test/pieces/00002\.pictures was changed"):
        by_tasks(pictures, tmp_path / "out", storage, overwrite=True, executor=here)


@pytest.mark.processes
def test_the_commands_through_a_bucket(twin_of: Callable[[str], Path], bucket: str, tmp_path: Path) -> None:
    """Pictures in two tables, a sound folder and a spoilt one."""
    out, pool = tmp_path / "out", tmp_path / "pool"
    tasks = ("--engine", "datatrove", "--storage", f"s3://{bucket}/build", "--workers", "1", "--task-size", "6")
    for place, words in ((pool, ()), (out, tasks)):
        vault = place.with_name(f"{place.name}-private")
        call("build", twin_of("chexlocalize"), "--out", place, "--holdout", vault, "--keep-going", *words)
    assert same(out, pool)
    assert list((out / "masks").iterdir())
    spoil(out / "localization" / "released-00000-of-00001.parquet", "image")
    spoil(out / "masks" / "released-00000-of-00001.parquet", "mask")
    words = ("validate", out, "--holdout", tmp_path / "out-private", "--no-load", "--json")
    expected = json.loads(call(*words, expect=1).stdout)
    (tmp_path / "own.py").write_text("from tests.scale.test_build import here\n")
    by_tasks = call(*words, "--engine", "datatrove", "--executor", f"{tmp_path / 'own.py'}:here", expect=1)
    assert json.loads(by_tasks.stdout) == expected
    assert not (tmp_path / ".out.tasks").exists()
    fields = {problem["field"] for problem in expected["problems"]}
    assert {"sha256", "image", "annotations.label", "pixel_sha256"} <= fields
    assert any(field.endswith("area_px") for field in fields)


def test_named_storage_stays_after_the_work_and_the_default_goes(tmp_path: Path) -> None:
    for storage in (None, str(tmp_path / "kept")):
        with tasks_of("datatrove", storage, None, "build", target=tmp_path / "out", workers=1) as tasks:
            assert tasks is not None
    assert (tmp_path / "kept").is_dir()
    assert not (tmp_path / ".out.tasks").exists()


@pytest.mark.parametrize("style", ["vindr-cxr", "reveal-cxr", "rexecution"])
def test_every_kind_of_rows(style: str, twin_of: Callable[[str], Path], tmp_path: Path) -> None:
    """Pictures in a column of their own, in lists, of the study before; tables beside; DICOM."""
    module = detect_source(twin_of(style))
    further = {"id_key": b"k" * 32} if "id_key" in module.options else {}

    def made(out: Path, engine: TaskBuild | None) -> Path:
        source_data = module.read(twin_of(style), pixels="embed", keep_going=True, **further)
        build_folder(
            source_data.splits, out, BENCHMARKS[module.benchmark], holdout=out.with_name(f"{out.name}-private"),
            holdout_split="holdout" if "holdout" in source_data.splits else module.holdout_split or "test",
            synthetic=True, keep_going=True, extras=source_data.extras, engine=engine,
        )  # fmt: skip
        return out

    tasks = TaskEngine(tmp_path / "storage", work="test", executor=here, task_size=4)
    assert same(made(tmp_path / "out", TaskBuild(tasks)), made(tmp_path / "pool", None))


def spoil(path: Path, column: str) -> None:
    """A table with wrong pictures, and where there are annotations a wrong area and an unknown code."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0][column]["bytes"], rows[1][column] = b"no picture", rows[2][column]
    if column == "image":
        rows[3]["annotations"][0]["area_px"] += 1
        rows[4]["annotations"][0]["label"] = 99
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
