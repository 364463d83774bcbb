"""Is the private split of a folder fit to be told of? The checks of publishing beyond those of `validate_folder`.

They read every Parquet file of the folder, whatever its config, so a table that is added later is checked as well.
:mod:`reveal_bench.builders.leaks` looks for ids, hashes and references of the holdout in the other tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from reveal_bench.builders.source import Problem
from reveal_bench.builders.validate_inputs import input_rule
from reveal_bench.builders.validate_tables import (
    IDS,
    MANIFEST,
    DatasetFolder,
    Table,
    open_folder,
    read_table,
    tables_of,
)
from reveal_bench.records import FOLDER_INFO

__all__ = ["holdout_problems"]


def holdout_problems(folder: Path, holdout: Path | None, *, is_public: bool) -> Iterator[Problem]:
    """References in rows of a split whose references are private; a holdout that is missing, or of another folder.

    Parameters
    ----------
    folder : the folder that is to be published
    holdout : private folder of its holdout
    is_public : whether it goes to a public repository, which it may not without having been compared with its holdout
    """
    opened = open_folder(folder)
    for table in tables_of(opened):
        if table.split in opened.closed_splits and table.config != MANIFEST:
            yield from _reference_problems(opened, table)
    if holdout is not None:
        yield from _other_holdout_problems(opened, open_folder(holdout))
    elif is_public and opened.closed_splits:
        rule, got = "must be at hand before the folder is public", "the holdout was not compared: give --holdout"
        yield Problem(FOLDER_INFO, ", ".join(sorted(opened.closed_splits)), "holdout", rule, got)


def _reference_problems(folder: DatasetFolder, table: Table) -> Iterator[Problem]:
    """Columns of a split without public references that hold something all the same; pictures are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rule = input_rule(folder)
    counts: Counter[str] = Counter()
    try:
        columns = [name for name in pq.read_schema(table.path).names if name not in folder.kind.image_columns]
        for batch in read_table(table, columns):
            for row in batch:
                counts.update(set(rule.faults(row)))
    except (pa.ArrowException, OSError):
        return  # a damaged file, which `validate_folder` names
    for column, n_rows in sorted(counts.items()):
        text = "must be empty in a split whose references are private"
        yield Problem(table.name, None, column, text, f"a value in {n_rows:,} row" + ("s" if n_rows > 1 else ""))


def _other_holdout_problems(public: DatasetFolder, private: DatasetFolder) -> Iterator[Problem]:
    """A holdout of something else would find no leak, whatever there is."""
    name, info = private.path.name, private.info
    if info.benchmark != public.info.benchmark:
        rule = f"must be of the same benchmark as the folder, {public.info.benchmark}"
        yield Problem(f"{name}/{FOLDER_INFO}", None, "benchmark", rule, info.benchmark)
    for split in info.splits:
        manifest = f"manifest/{split}.parquet"
        if not (public.path / manifest).is_file():
            rule = f"must be a split of {public.path.name}, with its manifest"
            yield Problem(f"{name}/{FOLDER_INFO}", split, "splits", rule, "no manifest")
        elif _manifest_ids(public, split) != _manifest_ids(private, split):
            yield Problem(manifest, None, "ids", f"must be those of the manifest in {name}", "others")


def _manifest_ids(folder: DatasetFolder, split: str) -> set[str]:
    """Every row's ids, as text; none of a damaged file, which `validate_folder` names."""
    import pyarrow as pa

    try:
        tables = [table for table in tables_of(folder) if (table.config, table.split) == (MANIFEST, split)]
        return {
            repr(sorted(row.items())) for table in tables for batch in read_table(table, list(IDS)) for row in batch
        }
    except (pa.ArrowException, OSError):
        return set()
