"""Tables that ``score`` writes to files, besides the scores that it prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from reveal_bench.files import replacing

if TYPE_CHECKING:
    from reveal_bench.api.bench import Bench
    from reveal_bench.evaluation.score import ScoredFile

Compat = Literal["chexlocalize", "chexlocalize-full"]
"""Papers whose tables ``score --compat`` writes: the keys of :data:`reveal_bench.analyses.compat.COMPAT`."""


def write_published_tables(scored: ScoredFile, compat: Compat, folder: Path, *, human: bool) -> None:
    """Write the tables of a paper's published code."""
    from reveal_bench.analyses.compat import published_tables

    for table in published_tables(scored, compat):
        for path in table.write(folder, human=human):
            typer.echo(f"wrote {path}", err=True)


def write_tables(
    file: Path,
    bench: Bench,
    scored: ScoredFile,
    *,
    rows: Path | None,
    pixels: Path | None,
    boundaries: Path | None,
    box_accuracy: Path | None,
) -> None:
    """Write tables behind the scores: values per case, counts of pixels, agreement of boundaries, accuracy of boxes."""
    if rows is not None:
        import pyarrow.parquet as pq

        with replacing_file(rows) as new:
            pq.write_table(scored.rows.to_table(), new)
    if pixels is not None:
        from reveal_bench.api.analyses import pixels as count_pixels

        counted = count_pixels(file, bench, allow_missing=scored.report.allow_missing)
        with replacing_file(pixels) as new:
            new.write_text(counted.to_csv(), encoding="utf-8")
    if boundaries is None and box_accuracy is None:
        return
    from reveal_bench.analyses.box_accuracy import box_accuracies
    from reveal_bench.analyses.pixels import boundary_means

    records = list(bench.kind.data.read_references(bench.dataset, bench.split))
    compared = scored.report.predictions, records, scored.rows.groups
    if boundaries is not None:
        _write_csv("boundaries", boundary_means(*compared), boundaries)
    if box_accuracy is not None:
        _write_csv("box accuracy", box_accuracies(*compared), box_accuracy)


def _write_csv(title: str, rows: Sequence[Any], path: Path) -> None:
    from reveal_bench.api.result_table import RoundedTable
    from reveal_bench.metrics.intervals import as_record

    with replacing_file(path) as new:
        new.write_text(RoundedTable(title, [as_record(row) for row in rows]).to_csv(), encoding="utf-8")


@contextmanager
def replacing_file(target: Path) -> Iterator[Path]:
    """Yield a new file that replaces `target` only if the block succeeds."""
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} must be a file, or not exist yet")
    with replacing(target) as new:
        yield new
