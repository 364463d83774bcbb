"""Define the tasks of a stage of work, how a storage records them, and the datatrove step that runs one task.

In the storage, a stage is a folder::

    <stage>/tasks/00012.pkl      the task: a function of a module, and its argument
    <stage>/starts/00012-...     one per attempt: machine, process and time are in the name
    <stage>/pieces/00012.*       the output of the task
    <stage>/done/00012.json      written last: identity, machine, seconds, sha256 and size of its pieces, result
    <stage>/failed/00012.pkl     the error of a task that failed
    <stage>/datatrove/           datatrove's own logs, and its marks of completed tasks

A task has an identity, a hash of everything on which the task's outcome depends. A finished task with the same identity
is not run again, no matter where or when it ran. Results do not depend on the machine, so neither the order nor the
number of machines changes the output.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.files import file_sha256
from reveal_bench.scale.storage import TaskStorage


class TaskError(RuntimeError):
    """A task could not be done; finished tasks are kept."""


@dataclass(frozen=True)
class TaskPlace:
    """The place in the storage where a task puts its output.

    Attributes
    ----------
    number : number of the task in its stage
    attempt : 1, or more if an earlier attempt did not finish
    files : name of each stored piece -> sha256 and size of the piece
    """

    storage: TaskStorage
    stage: str
    number: int
    attempt: int = 1
    files: dict[str, tuple[str, int]] = field(default_factory=dict)

    def name(self, ending: str) -> str:
        """Return the full name of a piece in the storage."""
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
    """A unit of work.

    Attributes
    ----------
    identity : hash of everything on which the outcome depends
    function : function of a module; takes a :class:`TaskPlace` and the argument, and returns the result as JSON
    argument : anything that can be pickled
    inputs : name in the storage -> local file that the task reads there
    """

    identity: str
    function: Callable[[TaskPlace, Any], Mapping[str, Any]]
    argument: Any
    inputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class RunTask:
    """The only step of a datatrove pipeline, which runs the task whose number is the rank."""

    url: str
    stage: str

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Run one task, and mark the task as done."""
        storage, began = TaskStorage(self.url), time.time()
        host = socket.gethostname()
        task: Task = pickle.loads(storage.read(f"{self.stage}/tasks/{rank:05d}.pkl"))
        # An earlier attempt may have been killed before datatrove marked the task.
        if identity_of(storage, self.stage, rank) == task.identity:
            return
        earlier = sum(name.startswith(f"{rank:05d}-") for name in storage.names(f"{self.stage}/starts"))
        storage.write(f"{self.stage}/starts/{rank:05d}-{host}-{os.getpid()}-{time.time_ns()}", b"")
        place = TaskPlace(storage, self.stage, rank, attempt=earlier + 1)
        try:
            result = task.function(place, task.argument)
        except Exception as error:
            storage.write(f"{self.stage}/failed/{rank:05d}.pkl", _pickled(error))
            raise
        seconds = round(time.time() - began, 3)
        record = {"identity": task.identity, "host": host, "seconds": seconds, "files": place.files, "told": result}
        storage.write(f"{self.stage}/done/{rank:05d}.json", json.dumps(record).encode())


def _pickled(error: Exception) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # raised for an error that cannot be unpickled
        return pickle.dumps(TaskError(f"{type(error).__name__}: {error}"))
    return data


def record_of(storage: TaskStorage, stage: str, number: int) -> dict[str, Any]:
    """Return the record of a finished task; empty if the task is not finished."""
    try:
        record: dict[str, Any] = json.loads(storage.read(f"{stage}/done/{number:05d}.json"))
    except FileNotFoundError:
        return {}
    return record


def identity_of(storage: TaskStorage, stage: str, number: int) -> str | None:
    """Return the identity of a finished task; None if the task is not finished."""
    return record_of(storage, stage, number).get("identity")
