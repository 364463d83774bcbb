"""Options for dividing a command's work into tasks: ``--engine``, ``--storage``, ``--executor``, ``--task-size``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError

if TYPE_CHECKING:
    from reveal_bench.scale.engine import TaskEngine


Engine = Literal["pool", "datatrove"]


EngineName = Annotated[
    Engine,
    typer.Option("--engine", help="pool: processes on this machine; datatrove: resumable tasks."),
]
StoragePlace = Annotated[
    str | None,
    typer.Option(
        "--storage", help="Where tasks store their files: a folder or s3://BUCKET/PREFIX; not deleted afterwards."
    ),
]
ExecutorFile = Annotated[
    str | None,
    typer.Option("--executor", help="FILE.py:FUNCTION that returns a datatrove executor, for Slurm or Ray."),
]
TaskSize = Annotated[int, typer.Option("--task-size", min=1, help="Records or maps per task.")]


def seen_by(engine: Engine, path: Path) -> Path:
    """Return an absolute `path`, because tasks may start in another folder; unchanged for the pool."""
    return path if engine == "pool" else path.resolve()


@contextmanager
def tasks_of(
    engine: Engine,
    storage: str | None,
    executor: str | None,
    work: str,
    *,
    target: Path,
    workers: int,
    task_size: int = 256,
) -> Iterator[TaskEngine | None]:
    """Return the engine that runs a command's tasks; None for the pool.

    Parameters
    ----------
    storage : value of ``--storage``; by default a folder beside `target` that is removed once the work is done
    executor : value of ``--executor``; by default, tasks run as processes on this machine
    work : name of the command
    target : folder or file that the command writes or checks
    """
    if engine == "pool":
        for name, given in (("storage", storage), ("executor", executor)):
            if given is not None:
                raise ArgumentError(name, "needs `engine` datatrove", given, ("engine",))
        yield None
        return
    from reveal_bench.scale.engine import TaskEngine

    target = target.resolve()
    place = storage or str(target.with_name(f".{target.name}.tasks"))
    if "://" not in place and (target == Path(place).resolve() or target in Path(place).resolve().parents):
        raise ArgumentError("storage", "must be outside the folders that are written or checked", place)
    make = None if executor is None else _function(executor)
    with TaskEngine(place, work=f"{work} {target}", workers=workers, executor=make, task_size=task_size) as tasks:
        is_done = False
        try:
            yield tasks
            is_done = True
        finally:
            if storage is None and (is_done or tasks.is_untouched):
                tasks.storage.remove("")


def _function(text: str) -> Any:
    path, _, name = text.rpartition(":")
    if not Path(path).is_file():
        raise ArgumentError("executor", "must be FILE.py:FUNCTION of an existing file", repr(text))
    executor = run_path(path).get(name)
    if not callable(executor):
        raise ArgumentError("executor", f"must name a function of {path}", repr(name))
    return executor
