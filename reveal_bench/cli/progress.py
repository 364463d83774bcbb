"""Progress of long commands on standard error: bars on a terminal, lines in a log, one line in a notebook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer


def in_notebook() -> bool:
    """Return True if this command was called from a notebook (``!reveal-bench ...``), where terminals are imitated.

    Jupyter's server sets JPY_PARENT_PID; every kernel turns pagers off and asks for colour, as no terminal does.
    """
    kernel = {"PAGER": "cat", "GIT_PAGER": "cat", "CLICOLOR": "1"}
    return "JPY_PARENT_PID" in os.environ or all(os.environ.get(name) == value for name, value in kernel.items())


def has_bars() -> bool:
    """Return True if standard error is a terminal, on which bars may move."""
    return sys.stderr.isatty() and not in_notebook()


@contextmanager
def _one_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a text over the last one."""
    width = 0

    def write(line: str) -> None:
        nonlocal width
        typer.echo(f"\r{line:<{width}}", nl=False, err=True)
        width = len(line)

    try:
        yield write
    finally:
        if width:
            typer.echo(err=True)


def _write_line(line: str) -> None:
    typer.echo(line, err=True)


@contextmanager
def progress(verb: str) -> Iterator[Callable[..., None]]:
    """Yield a function of (what, done, total or None, failed, note) that shows progress on standard error."""
    if in_notebook():
        with _one_line() as write:
            yield plain_progress(verb, growth=1.5, write=write)
        return
    if not has_bars():
        yield plain_progress(verb)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rate = TextColumn("{task.fields[rate]}")
    failures = TextColumn("{task.fields[failed]}", style="red")

    class Bar(Progress):
        note = ""

        def get_renderables(self) -> Iterator[Any]:
            yield from super().get_renderables()
            yield self.note  # on a separate line, because 80 columns have no space for it

    with Bar(*columns, TimeRemainingColumn(), rate, failures, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None = None, failed: int = 0, note: str = "") -> None:
            if what not in tasks:
                description = what if what == verb else f"{verb} {what}"
                tasks[what] = bar.add_task(description, total=total, rate="", failed="")
            speed = next(task.speed for task in bar.tasks if task.id == tasks[what])
            bar.update(
                tasks[what],
                completed=done,
                total=total,
                rate=f"{speed:.1f}/s" if speed else "",
                failed=f"{failed:,} failed" if failed else "",
            )
            bar.note = note

        yield update


def plain_progress(
    verb: str,
    *,
    every: float = 10.0,
    growth: float = 1.0,
    write: Callable[[str], None] = _write_line,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[..., None]:
    """Return a progress function for a log: at most one line per interval, and none for shorter work.

    Each interval is `growth` times the last one: notebooks keep all texts in their file.

    Examples
    --------
    >>> seconds = iter([0, 4, 12, 13])
    >>> update = plain_progress("building", clock=lambda: next(seconds))
    >>> update("train", 100, 1_000)
    >>> update("train", 300, 1_000)  # goes to standard error: building train: 300 of 1,000 (30%) after 12 s
    >>> update("train", 310, 1_000)
    """
    start = last = clock()

    def update(what: str, done: int, total: int | None = None, failed: int = 0, note: str = "") -> None:
        nonlocal every, last
        now = clock()
        if now - last < every:
            return
        last, every = now, every * growth
        share = f" of {total:,} ({100 * done // total}%)" if total else ""
        failures = "".join(f", {text}" for text in (f"{failed:,} failed" if failed else "", note) if text)
        name = what if what == verb else f"{verb} {what}"
        write(f"{name}: {done:,}{share}{failures} after {now - start:.0f} s")

    return update
