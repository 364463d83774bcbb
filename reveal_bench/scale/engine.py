"""Run the tasks of a stage through a storage, by processes of this machine or any executor of datatrove."""

from __future__ import annotations

import atexit
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.row_pool import WorkerProcess
from reveal_bench.scale.storage import TaskStorage
from reveal_bench.scale.tasks import RunTask, Task, TaskError, identity_of, record_of

WORK = "work.txt"
"""Name of the file that states to which work the storage belongs."""
LOOK_SECONDS = 0.2
"""Seconds between two checks for finished tasks of processes on this machine."""
ELSEWHERE_SECONDS = 3.0
"""Seconds between two checks for finished tasks of other machines; a bucket bills every check."""
PATIENCE_SECONDS = 24 * 3600.0
"""Maximum seconds without a finished task on an executor of other machines, such as a Slurm queue."""


@dataclass(frozen=True)
class Done:
    """A finished task: number, whether an earlier run did the task (`was_done`), output files, and result."""

    number: int
    was_done: bool
    files: Mapping[str, tuple[str, int]]
    result: Mapping[str, Any]


class Executor(Protocol):
    """The method of a datatrove executor that runs the tasks of a stage."""

    def run(self) -> Any:
        """Run the tasks, or submit them to a queue."""
        ...


MakeExecutor = Callable[[RunTask, int, str], Executor]
"""Function that makes an executor of datatrove from a step, the number of tasks and the folder for datatrove's logs."""


def _wait_elsewhere() -> bool:
    time.sleep(ELSEWHERE_SECONDS)
    return False


class TaskEngine:
    """Runs tasks through a storage; a context manager that ends its processes.

    Parameters
    ----------
    storage : a folder that all machines see, or ``s3://BUCKET/PREFIX``; keep it as private as the data
    work : name of the work, such as "build /data/set"; a storage serves only one work
    workers : processes on this machine, at least 1; ignored with `executor`
    executor : function that makes an executor of datatrove for a stage; by default, processes on this machine run the
        tasks
    task_size : records, studies or maps of one task, at least 1
    patience : seconds without a finished task after which the engine stops waiting for an `executor` of other machines

    Raises
    ------
    ArgumentError
        If an argument is invalid, or the storage is in use for another work.
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
        if executor is None and find_spec("datatrove") is None:
            raise ImportError("--engine datatrove needs datatrove: pip install 'reveal-bench[scale]'")
        self.storage, self.task_size = TaskStorage(storage), task_size
        self._idle: list[WorkerProcess] = []
        self._make = executor
        self._patience = 0.0 if executor is None else patience
        self._workers = workers
        self._claim(work)
        atexit.register(self.close)  # before multiprocessing waits for the processes

    def __enter__(self) -> TaskEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the processes that wait for tasks."""
        while self._idle:
            self._idle.pop().kill()
        atexit.unregister(self.close)

    @property
    def is_untouched(self) -> bool:
        """True if no task was ever written to the storage."""
        return self.storage.names("") <= {WORK}

    def _claim(self, work: str) -> None:
        try:
            known = self.storage.read(WORK).decode()
        except FileNotFoundError:
            self.storage.write(WORK, work.encode())
        else:
            if known != work:
                raise ArgumentError("storage", f"must be used only for the work {work}", known)

    def run(self, stage: str, tasks: Iterable[Task]) -> Iterator[Done]:
        """Run the unfinished tasks; yield tasks that an earlier run finished, then each task when it finishes.

        Raises
        ------
        Exception
            The error of a task that failed.
        TaskError
            If a task was not finished.
        """
        waiting, finished = self._hand_out(stage, tasks)
        yield from (self._done(stage, number, was_done=True) for number in finished)
        if not waiting:
            return
        step, logs = RunTask(self.storage.url, stage), self.storage.url + f"/{stage}/datatrove"
        n_tasks = len(waiting) + len(finished)
        if self._make is not None:
            self._make(step, n_tasks, logs).run()
            yield from self._as_they_finish(stage, waiting, _wait_elsewhere)
            return
        from reveal_bench.scale.local import WatchedExecutor

        executor = WatchedExecutor(step, n_tasks, logs, workers=self._workers, idle=self._idle)
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(executor.run)
            try:
                yield from self._as_they_finish(stage, waiting, lambda: not wait([running], LOOK_SECONDS).done)
                running.result()
            except TaskError:
                running.result()  # the executor's own error, if any, explains more
                raise
            finally:
                executor.stop()

    def _hand_out(self, stage: str, tasks: Iterable[Task]) -> tuple[set[int], list[int]]:
        """Write the unfinished tasks to the storage; return the numbers of unfinished tasks, and of finished tasks."""
        waiting, finished = set[int](), []
        known = self.storage.names(f"{stage}/done")
        completed = self.storage.names(f"{stage}/datatrove/completions")
        self.storage.remove(f"{stage}/failed")
        for number, task in enumerate(tasks):
            name = f"{number:05d}"
            if f"{name}.json" in known:
                if identity_of(self.storage, stage, number) == task.identity:
                    finished.append(number)
                    continue
                self.storage.remove(f"{stage}/done/{name}.json")
            if name in completed:  # a task with another identity left this mark
                self.storage.remove(f"{stage}/datatrove/completions/{name}")
            for place, path in task.inputs.items():
                self.storage.upload(path, place)
            self.storage.write(f"{stage}/tasks/{name}.pkl", pickle.dumps(task))
            waiting.add(number)
        return waiting, finished

    def _as_they_finish(self, stage: str, waiting: set[int], runs_on: Callable[[], bool]) -> Iterator[Done]:
        """Yield tasks as they finish; `runs_on` waits briefly, and returns True while an executor runs here."""
        last, is_running = time.monotonic(), self._make is None
        while waiting:
            for name in sorted(self.storage.names(f"{stage}/failed")):
                raise pickle.loads(self.storage.read(f"{stage}/failed/{name}"))
            marks = self.storage.names(f"{stage}/done")
            for number in sorted(n for n in waiting if f"{n:05d}.json" in marks):
                waiting.discard(number)
                last = time.monotonic()
                yield self._done(stage, number, was_done=False)
            if waiting and not is_running and time.monotonic() - last > self._patience:
                numbers = ", ".join(map(str, sorted(waiting)[:5]))
                rule = f"{len(waiting)} tasks of {stage} were not finished (the first: {numbers})"
                raise TaskError(f"{rule}; repeat the command to finish them")
            is_running = bool(waiting) and runs_on()

    def _done(self, stage: str, number: int, *, was_done: bool) -> Done:
        record = record_of(self.storage, stage, number)
        files = {name: (sha256, size) for name, (sha256, size) in record["files"].items()}
        return Done(number, was_done, files, record["told"])
