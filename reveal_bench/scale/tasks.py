"""Tasks of one stage of a work, in a storage, and the step of a pipeline of datatrove that runs one.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.files import file_sha256
from reveal_bench.scale.storage import TaskStorage


class TaskError(RuntimeError):
    """A task could not be done; what others finished stays."""


@dataclass(frozen=True)
class TaskPlace:
    """Where a task puts what it makes.

    Attributes
    ----------
    number : of the task in its stage
    attempt : 1, or more if the task was started before and not finished
    files : name of each piece -> its sha256 and size; grows
    """

    storage: TaskStorage
    stage: str
    number: int
    attempt: int = 1
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
class RunTask:
    """The one step of a pipeline of datatrove: run the task whose rank it is."""

    url: str
    stage: str

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Run one task, and leave its mark."""
        storage, began = TaskStorage(self.url), time.time()
        host = socket.gethostname()
        task: Task = pickle.loads(storage.read(f"{self.stage}/tasks/{rank:05d}.pkl"))
        if identity_of(storage, self.stage, rank) == task.identity:  # killed before datatrove had its own mark
            return
        earlier = sum(name.startswith(f"{rank:05d}-") for name in storage.names(f"{self.stage}/starts"))
        storage.write(f"{self.stage}/starts/{rank:05d}-{host}-{os.getpid()}-{time.time_ns()}", b"")
        place = TaskPlace(storage, self.stage, rank, attempt=earlier + 1)
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


def record_of(storage: TaskStorage, stage: str, number: int) -> dict[str, Any]:
    """What a task left when it was done; empty if it is not."""
    try:
        record: dict[str, Any] = json.loads(storage.read(f"{stage}/done/{number:05d}.json"))
    except FileNotFoundError:
        return {}
    return record


def identity_of(storage: TaskStorage, stage: str, number: int) -> str | None:
    """The identity of a task that is done; None if it is not."""
    return record_of(storage, stage, number).get("identity")
