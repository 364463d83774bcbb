"""Tasks of one stage of a work: written to a storage, run by datatrove's executors, and told by their marks.

In the storage a stage is a folder::

    <stage>/tasks/00012.pkl      what the task is: a function of a module, and its argument
    <stage>/starts/00012-...     one per attempt: machine, process and time are in the name
    <stage>/pieces/00012.*       what the task made
    <stage>/done/00012.json      written last: identity, machine, seconds, sha256 and size of its pieces, what it tells
    <stage>/failed/00012.pkl     the error of a task that failed
    <stage>/datatrove/           datatrove's own logs, and its marks of what is completed

A task has an identity, a hash of all that its outcome depends on. One that is done with the same identity is not run
again, whoever ran it and when. What a task tells does not depend on the machine, so the order and the number of
machines have no influence on what is made of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.layout import file_sha256
from reveal_bench.dataset.row_pool import Worker
from reveal_bench.scale.storage import Storage

__all__ = ["Done", "Executor", "MakeExecutor", "RunTask", "Task", "TaskEngine", "TaskError", "TaskPlace"]

LOOK_SECONDS = 0.2
"""Between two looks at the marks."""
PATIENCE_SECONDS = 24 * 3600.0
"""How long no task may finish on an executor that works elsewhere, such as a queue of Slurm."""


class TaskError(RuntimeError):
    """A task could not be done; what others finished stays."""


@dataclass(frozen=True)
class TaskPlace:
    """Where a task puts what it makes.

    Attributes
    ----------
    number : of the task in its stage
    files : name of each piece -> its sha256 and size; grows
    """

    storage: Storage
    stage: str
    number: int
    files: dict[str, tuple[str, int]] = field(default_factory=dict)

    def name(self, ending: str) -> str:
        """Name of a piece in the storage."""
        return f"{self.stage}/pieces/{self.number:05d}{ending}"

    def keep(self, path: Path, ending: str) -> None:
        """Store a local file as a piece."""
        self.storage.upload(path, self.name(ending))
        self.files[self.name(ending)] = (file_sha256(path), path.stat().st_size)

    def write(self, data: bytes, ending: str) -> None:
        """Store bytes as a piece."""
        self.storage.write(self.name(ending), data)
        self.files[self.name(ending)] = (hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True)
class Task:
    """Something to do.

    Attributes
    ----------
    identity : hash of everything that its outcome depends on
    function : of a module; takes a :class:`TaskPlace` and the argument, returns what is to be told, as JSON
    argument : anything that can be pickled
    inputs : name in the storage -> local file that the task reads there
    """

    identity: str
    function: Callable[[TaskPlace, Any], Mapping[str, Any]]
    argument: Any
    inputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A task that is done: its number, whether it was before, its pieces, and what it tells."""

    number: int
    was_done: bool
    files: Mapping[str, tuple[str, int]]
    told: Mapping[str, Any]


class Executor(Protocol):
    """What runs the tasks of a stage: any executor of datatrove."""

    def run(self) -> Any:
        """Run them, or hand them to a queue."""
        ...


@dataclass(frozen=True)
class RunTask:
    """The one step of a pipeline of datatrove: run the task whose rank it is."""

    url: str
    stage: str

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Run one task, and leave its mark."""
        storage, began = Storage(self.url), time.time()
        host = socket.gethostname()
        task: Task = pickle.loads(storage.read(f"{self.stage}/tasks/{rank:05d}.pkl"))
        if _identity(storage, self.stage, rank) == task.identity:  # killed before datatrove had its own mark
            return
        storage.write(f"{self.stage}/starts/{rank:05d}-{host}-{os.getpid()}-{time.time_ns()}", b"")
        place = TaskPlace(storage, self.stage, rank)
        try:
            told = task.function(place, task.argument)
        except Exception as error:
            storage.write(f"{self.stage}/failed/{rank:05d}.pkl", _pickled(error))
            raise
        seconds = round(time.time() - began, 3)
        record = {"identity": task.identity, "host": host, "seconds": seconds, "files": place.files, "told": told}
        storage.write(f"{self.stage}/done/{rank:05d}.json", json.dumps(record).encode())


def _pickled(error: Exception) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # an error whose class cannot be made again from what it holds
        return pickle.dumps(TaskError(f"{type(error).__name__}: {error}"))
    return data


def _record(storage: Storage, stage: str, number: int) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(storage.read(f"{stage}/done/{number:05d}.json"))
    except FileNotFoundError:
        return {}
    return record


def _identity(storage: Storage, stage: str, number: int) -> str | None:
    return _record(storage, stage, number).get("identity")


MakeExecutor = Callable[[RunTask, int, str], Executor]
"""Takes the step, the number of tasks, and where datatrove shall log; gives an executor of datatrove."""


class TaskEngine:
    """Runs tasks through a storage; a context manager that ends its processes.

    Parameters
    ----------
    storage : a folder that all machines see, or ``s3://BUCKET/PREFIX``; as private as what is worked on
    work : what is done there, such as "build /data/set"; one storage is for one work
    workers : processes on this machine, at least 1; without influence if `executor` is given
    executor : makes an executor of datatrove for a stage; by default processes on this machine
    task_size : records, studies or maps of one task, at least 1
    patience : seconds without a finished task after which an `executor` that works elsewhere is given up

    Raises
    ------
    ArgumentError
        If an argument breaks its rule, or the storage is in use for something else.
    ImportError
        If datatrove is not installed.
    """

    def __init__(
        self,
        storage: str | Path,
        *,
        work: str,
        workers: int = 1,
        executor: MakeExecutor | None = None,
        task_size: int = 256,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        for name, value in (("workers", workers), ("task_size", task_size)):
            if value < 1:
                raise ArgumentError(name, "must be at least 1", value)
        self.storage, self.task_size = Storage(storage), task_size
        self._is_here = executor is None
        self._idle: list[Worker] = []
        self._patience = 0.0 if executor is None else patience
        if executor is None:
            try:
                from reveal_bench.scale.local import WatchedExecutor
            except ImportError:
                raise ImportError("--engine datatrove needs datatrove: pip install 'reveal-bench[scale]'") from None
            executor = partial(WatchedExecutor, workers=workers, idle=self._idle)
        self._executor = executor
        self._claim(work)

    def __enter__(self) -> TaskEngine:
        return self

    def __exit__(self, *_: object) -> None:
        while self._idle:
            self._idle.pop().kill()

    def _claim(self, work: str) -> None:
        try:
            known = self.storage.read("work.txt").decode()
        except FileNotFoundError:
            self.storage.write("work.txt", work.encode())
        else:
            if known != work:
                raise ArgumentError("storage", f"must be used for one work, that is {work}", known)

    def run(self, stage: str, tasks: Iterable[Task]) -> Iterator[Done]:
        """Do what is not done; yields every task as it is finished, those of an earlier run first.

        Raises
        ------
        Exception
            That of a task, if one fails.
        TaskError
            If a task was not finished.
        """
        waiting, finished = self._hand_out(stage, tasks)
        yield from (self._done(stage, number, was_done=True) for number in finished)
        if not waiting:
            return
        step, logs = RunTask(self.storage.url, stage), self.storage.url + f"/{stage}/datatrove"
        executor = self._executor(step, len(waiting) + len(finished), logs)
        if not self._is_here:
            executor.run()
            yield from self._as_they_finish(stage, waiting, lambda: False)
            return
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(executor.run)
            try:
                yield from self._as_they_finish(stage, waiting, lambda: not running.done())
                running.result()
            except TaskError:
                running.result()  # what was wrong says more, if it raised
                raise
            finally:
                executor.stop()  # type: ignore[attr-defined]

    def _hand_out(self, stage: str, tasks: Iterable[Task]) -> tuple[set[int], list[int]]:
        """Write the tasks that are not done; returns their numbers, and those of the others."""
        waiting, finished = set[int](), []
        known = self.storage.names(f"{stage}/done")
        self.storage.remove(f"{stage}/failed")
        for number, task in enumerate(tasks):
            name = f"{number:05d}"
            if f"{name}.json" in known:
                if _identity(self.storage, stage, number) == task.identity:
                    finished.append(number)
                    continue
                for mark in (f"done/{name}.json", f"datatrove/completions/{name}"):
                    self.storage.remove(f"{stage}/{mark}")
            for place, path in task.inputs.items():
                self.storage.upload(path, place)
            self.storage.write(f"{stage}/tasks/{name}.pkl", pickle.dumps(task))
            waiting.add(number)
        return waiting, finished

    def _as_they_finish(self, stage: str, waiting: set[int], is_running: Callable[[], bool]) -> Iterator[Done]:
        last = time.monotonic()
        while waiting:
            was_running = is_running()
            for name in sorted(self.storage.names(f"{stage}/failed")):
                raise pickle.loads(self.storage.read(f"{stage}/failed/{name}"))
            marks = self.storage.names(f"{stage}/done")
            for number in sorted(n for n in waiting if f"{n:05d}.json" in marks):
                waiting.discard(number)
                last = time.monotonic()
                yield self._done(stage, number, was_done=False)
            if waiting and not was_running and time.monotonic() - last > self._patience:
                told = ", ".join(map(str, sorted(waiting)[:5]))
                rule = f"{len(waiting)} tasks of {stage} were not finished (the first: {told})"
                raise TaskError(f"{rule}; the same command goes on with them")
            if waiting:
                time.sleep(LOOK_SECONDS if is_running() or not self._is_here else 0)

    def _done(self, stage: str, number: int, *, was_done: bool) -> Done:
        record = _record(self.storage, stage, number)
        files = {name: (sha256, size) for name, (sha256, size) in record["files"].items()}
        return Done(number, was_done, files, record["told"])
