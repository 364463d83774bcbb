"""Create the folders of synthetic downloads, each with a notice."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError


def check_sizes(*, long_side: int, **counts: int) -> None:
    """Raise ValueError unless every count is at least 1 and `long_side`, in pixels, is an allowed size of images."""
    for name, count in counts.items():
        if count < 1:
            raise ArgumentError(name, "must be at least 1", count)
    if not 64 <= long_side <= 8192:
        raise ArgumentError("long_side", "must be in [64, 8192]", long_side)


def start_folder(out: Path, notice: str, *inner: str) -> Path:
    """Create a new folder with subfolders, each of which has a notice that its contents are synthetic.

    Raises
    ------
    ValueError
        If `out` is not empty.
    """
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise ArgumentError("out", "must be a new or empty folder", out)
    for folder in dict.fromkeys((out, *(out / name for name in inner))):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SYNTHETIC.txt").write_text(notice, encoding="utf-8")
    return out


def open_csv(stack: ExitStack, path: Path, heads: Sequence[str], *, delimiter: str = ",") -> Any:
    """Return a writer of rows of a new CSV file that has a header and is open until `stack` is closed."""
    file = stack.enter_context(path.open("w", newline="", encoding="utf-8"))
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(heads)
    return writer


def write_csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with a header; its folder is created if missing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])
