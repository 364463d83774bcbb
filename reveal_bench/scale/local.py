"""Replace datatrove's local executor with supervised processes; only this module imports datatrove.

datatrove's own executor uses a pool of processes, which waits for ever if a process is killed. Here a thread per
process notices if the process died, and gives the process's task to a new process.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from datatrove.executor.local import LocalPipelineExecutor

from reveal_bench.dataset.row_pool import WorkerProcess
from reveal_bench.scale.tasks import RunTask, TaskError

ATTEMPTS = 3
"""Number of processes that a task may kill before it is abandoned."""


def run_rank(request: tuple[RunTask, int, str, int]) -> bool:
    """Run one task as datatrove does, but write what datatrove would print to the task's log in the storage."""
    step, tasks, logs, rank = request
    if sys.stderr is sys.__stderr__:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - datatrove writes to this file as long as the process lives
    LocalPipelineExecutor([step], tasks=tasks, workers=1, logging_dir=logs)._run_for_rank(rank, local_rank=1)
    return True


class WatchedExecutor(LocalPipelineExecutor):
    """Executor of the tasks that are not completed, of which `workers` run at a time.

    Parameters
    ----------
    step, tasks, logs : arguments of :data:`reveal_bench.scale.engine.MakeExecutor`
    idle : list of processes that wait for tasks; new processes are added to the list and wait for the next stage
    """

    def __init__(self, step: RunTask, tasks: int, logs: str, *, workers: int, idle: list[WorkerProcess]) -> None:
        super().__init__([step], tasks=tasks, workers=workers, logging_dir=logs)
        self._call = (step, tasks, logs)
        self._idle = idle
        self._busy: list[WorkerProcess] = []
        self._ranks: SimpleQueue[int] = SimpleQueue()
        self._ended = False

    def run(self) -> None:
        """Run the tasks, and return when all are completed.

        Raises
        ------
        TaskError
            If a task killed its process several times.
        """
        for rank in self.get_incomplete_ranks():
            self._ranks.put(rank)
        with ThreadPoolExecutor(self.workers) as threads:
            for served in [threads.submit(self._serve) for _ in range(min(self.workers, self._ranks.qsize()))]:
                served.result()

    def stop(self) -> None:
        """Kill the running tasks, whose output does not count as finished."""
        self._ended = True
        for worker in list(self._busy):
            worker.kill()

    def _serve(self) -> None:
        """Run one task after another in this thread."""
        while not self._ended:
            try:
                rank = self._ranks.get_nowait()
            except Empty:
                return
            answer = self._done_by_a_worker(rank)
            if isinstance(answer, Exception):
                self._ended = True
                raise answer

    def _done_by_a_worker(self, rank: int) -> Any:
        """Run a task in a process, and in a new one if the process dies, because the task may not be the cause."""
        for _ in range(ATTEMPTS):
            if self._ended:
                return None
            try:
                worker = self._idle.pop()
            except IndexError:
                worker = WorkerProcess(run_rank, daemon=False)  # not a daemon, because a task may start processes
            self._busy.append(worker)
            answer = worker.ask((*self._call, rank))
            self._busy.remove(worker)
            if answer is not None:
                self._idle.append(worker)
                return answer
        if self._ended:
            return None
        rule = f"task {rank} of {self._call[0].stage} killed its process {ATTEMPTS} times, or memory ran out"
        return TaskError(f"{rule}; run without --engine datatrove to see the file in the error")
