"""Convert heat maps to lines of a prediction file by tasks, in the same order as a single machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reveal_bench import __version__
from reveal_bench.saliency_maps.predict import Job, MapOptions, cut_map
from reveal_bench.scale.engine import Done, TaskEngine
from reveal_bench.scale.tasks import Task, TaskPlace


def cut_some(place: TaskPlace, work: tuple[Sequence[Job], MapOptions]) -> dict[str, int]:
    """Convert the maps of a task to lines, and store these lines."""
    jobs, options = work
    lines = [json.dumps(cut_map(job, options)) for job in jobs]
    place.write("".join(f"{line}\n" for line in lines).encode(), ".jsonl")
    return {"n": len(lines)}


@dataclass(frozen=True)
class TaskMaps:
    """Converts maps by tasks, instead of the processes of :func:`reveal_bench.saliency_maps.predict.predict_maps`."""

    tasks: TaskEngine

    def __call__(self, jobs: Sequence[Job], options: MapOptions) -> Iterator[dict[str, Any]]:
        """Yield the line of each map, in order."""
        done: dict[int, Done] = {}
        n_given = 0
        for one in self.tasks.run("maps", self._plan(jobs, options)):
            done[one.number] = one
            while n_given in done:
                (name,) = done.pop(n_given).files
                for line in self.tasks.storage.read(name).decode().splitlines():
                    yield json.loads(line)
                n_given += 1

    def _plan(self, jobs: Sequence[Job], options: MapOptions) -> Iterator[Task]:
        size = self.tasks.task_size
        for start in range(0, len(jobs), size):
            batch = [_absolute(job) for job in jobs[start : start + size]]
            states = [file.path.stat() for files, _, _ in batch for file in files]
            state = (batch, [(state.st_size, state.st_mtime_ns) for state in states], options, __version__)
            identity = hashlib.sha256(repr(state).encode()).hexdigest()
            yield Task(identity, cut_some, (batch, options))


def _absolute(job: Job) -> Job:
    """Return the job with absolute paths, because tasks run in another folder."""
    files, pair, size = job
    return [replace(file, path=file.path.resolve()) for file in files], pair, size
