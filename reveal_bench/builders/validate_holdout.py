"""Does a public folder say the same of its holdout as the private folder does?

What is told of a split without references is its manifest, its sizes, and the pictures in ``holdout_inputs``; a model
would be scored against others if a row or a picture were exchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reveal_bench.builders.rows import Row
from reveal_bench.builders.source import Problem
from reveal_bench.builders.validate_tables import INPUTS, MANIFEST, DatasetFolder, open_folder, read_table, tables_of
from reveal_bench.records import FOLDER_INFO

__all__ = ["holdout_problems"]

RULE = "must be that of the holdout's private folder"


def holdout_problems(
    public: DatasetFolder, holdout: Path, shown: Mapping[str, Sequence[tuple[str, str]]]
) -> Iterator[Problem]:
    """Where the public folder and the private one differ in what both say of the holdout.

    Parameters
    ----------
    shown : image id -> (file, sha256 of the decoded pixels) of the pictures in the public folder's inputs
    """
    private = open_folder(holdout)
    key = public.kind.key
    for split in sorted(public.closed_splits):
        if split not in private.info.splits:
            yield Problem(FOLDER_INFO, split, "splits", "must be in the private folder", "no such split there")
            continue
        sizes, stated = private.info.splits[split], public.info.splits[split]
        for name in sorted((sizes.keys() | stated.keys()) - {"references"}):
            if sizes.get(name) != stated.get(name):
                yield Problem(FOLDER_INFO, split, name, f"must be {sizes.get(name)}, as in the private folder",
                              str(stated.get(name)))  # fmt: skip
        told, kept = (_rows(folder, MANIFEST, split) for folder in (public, private))
        yield from _manifest_problems(told, kept, f"{MANIFEST}/{split}.parquet", key)
        inputs = _rows(public, INPUTS, split, [key])
        if inputs or public.kind.has_prompts:
            yield from _input_problems(Counter(row[key] for row in inputs), kept, f"{INPUTS}/{split}", key)
    yield from _picture_problems(private, shown)


def _manifest_problems(told: list[Row], kept: list[Row], file: str, key: str) -> Iterator[Problem]:
    rows = {row.get(key): row for row in told}
    known = {row.get(key): row for row in kept}
    for name in sorted(rows.keys() ^ known.keys(), key=str):
        yield Problem(file, name, key, "must be in both folders' manifests", "in one alone")
    for name, row in rows.items():
        for column in row if name in known else ():
            if row[column] != known[name].get(column):
                yield Problem(file, name, column, RULE, str(row[column]))


def _input_problems(inputs: Counter[str], kept: list[Row], file: str, key: str) -> Iterator[Problem]:
    known = {row[key] for row in kept}
    for name in sorted(inputs.keys() | known, key=str):
        n_expected = int(name in known)
        if inputs[name] != n_expected:
            yield Problem(
                file, name, key, f"must have {n_expected} rows, as the private manifest says", str(inputs[name])
            )


def _picture_problems(private: DatasetFolder, shown: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[Problem]:
    for table in tables_of(private):
        if table.config != private.kind.config:
            continue
        columns = ["image_id", "pixel_sha256", "image_facts", "prior_image_facts"]
        for row in (row for batch in read_table(table, columns) for row in batch):
            facts = [row] if "image_id" in row else [*row["image_facts"], *(row.get("prior_image_facts") or ())]
            for entry in facts:
                for file, pixels in shown.get(entry["image_id"], ()):
                    if entry["pixel_sha256"] not in (None, pixels):
                        yield Problem(file, entry["image_id"], "image", RULE, f"a picture with the pixels {pixels}")


def _rows(folder: DatasetFolder, config: str, split: str, columns: list[str] | None = None) -> list[Row]:
    """Rows of a split; none of a damaged file, which its schema's problem says."""
    import pyarrow as pa

    rows: list[Row] = []
    for table in tables_of(folder):
        if (table.config, table.split) == (config, split):
            try:
                rows += [row for batch in read_table(table, columns) for row in batch]
            except (OSError, pa.ArrowException):
                continue
    return rows
