"""Writes a dataset folder: a Hugging Face dataset repository on disk.

Layout
------
::

    README.md                                   card; YAML `configs`, `dataset_info`
    localization/<split>-00000-of-000NN.parquet references and pictures, see :mod:`reveal_bench.builders.rows`
    holdout_inputs/holdout-*.parquet            pictures of the holdout without references, when pixels are embedded
    manifest/<split>.parquet                    image_id, study_id, view, width, height, asked
    manifest/benchmark.json                     :class:`reveal_bench.records.FolderInfo`
    CHECKSUMS.json                              sha256 of every other file

Everything is written to a new folder beside the target, which takes the target's name when it is complete; an
interrupted build leaves nothing under that name. Records stream: no more than one row group is in memory.

A private holdout goes to a second folder of the same form (mode 0700, files 0600, no pictures). Before it is divided,
the split exists in the private folder's temporary sibling alone.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reveal_bench.benchmarks import Asks, Benchmark
from reveal_bench.builders.holdout import check_apart, check_name, divide_patients
from reveal_bench.builders.rows import Row, blank_row, localization_row
from reveal_bench.builders.shards import SHARD_BYTES, read_rows
from reveal_bench.builders.source import BuildError, Pixels, Problem
from reveal_bench.builders.writer import FolderWriter
from reveal_bench.records import FolderInfo, LocalizationRecord

__all__ = ["HOLDOUT", "RELEASED", "build_folder"]

RELEASED, HOLDOUT = "released", "holdout"
Progress = Callable[[str, int], None]


def build_folder(
    records: Mapping[str, Iterable[LocalizationRecord]],
    out: Path,
    benchmark: Benchmark,
    *,
    version: str = "1.0.0",
    asks: Asks | None = None,
    pixels: Pixels = "embed",
    holdout: Path | None = None,
    holdout_fraction: float = 0.5,
    seed: int = 0,
    holdout_split: str = "test",
    synthetic: bool = False,
    overwrite: bool = False,
    max_shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> FolderInfo:
    """Write a dataset folder, and the private folder of its holdout if one is asked for.

    Parameters
    ----------
    records : dict from split name to its records, each iterated once
    out : the public folder; must be new or empty unless `overwrite`
    benchmark : row of BENCHMARKS; `asks` overrides its `asks`
    pixels : "embed" writes the records' picture bytes unchanged, "withhold" leaves them out
    holdout : folder for the private references, or None for no holdout
    holdout_fraction, seed : share of `holdout_split`'s patients that become private, and the seed of the division;
        the rest of that split is renamed "released"
    synthetic : the card says that all of it is made up
    progress : called with (split, images done) after each image

    Returns
    -------
    FolderInfo of the public folder

    Raises
    ------
    BuildError
        With every problem of every split, after all were read; nothing is left on disk.
    ValueError
        If an argument breaks its rule.
    """
    out, holdout = Path(out), None if holdout is None else Path(holdout)
    _check_arguments(records, out, pixels, holdout, holdout_fraction, holdout_split, overwrite)
    intake = _Intake(benchmark, asks or benchmark.asks, embed=pixels == "embed", progress=progress)
    with _targets(out, holdout) as (public, private):
        writer = _writer(public, intake, version, max_shard_bytes, embed=intake.embed)
        vault = None if private is None else _writer(private, intake, version, max_shard_bytes, embed=False)
        for split, split_records in records.items():
            if vault is not None and split == holdout_split:
                _write_divided(intake.rows(split_records, split), writer, vault, intake, holdout_fraction, seed)
            else:
                _write_split(intake.rows(split_records, split), split, writer)
        if intake.problems:
            raise BuildError(intake.problems)
        if vault is not None:
            vault.finish(synthetic=synthetic, is_private=True)
        return writer.finish(synthetic=synthetic)


def _writer(folder: Path, intake: _Intake, version: str, max_shard_bytes: int, *, embed: bool) -> FolderWriter:
    return FolderWriter(
        folder,
        intake.benchmark,
        version=version,
        asks=intake.asks,
        embed=embed,
        max_shard_bytes=max_shard_bytes,
    )


def _check_arguments(
    records: Mapping[str, Any],
    out: Path,
    pixels: str,
    holdout: Path | None,
    fraction: float,
    holdout_split: str,
    overwrite: bool,
) -> None:
    if pixels not in ("embed", "withhold"):
        raise ValueError(f"`pixels` must be 'embed' or 'withhold', got {pixels!r}")
    if not records:
        raise ValueError("`records` must have at least one split, got none")
    check_name(out, what="out", overwrite=overwrite)
    if holdout is None:
        return
    check_apart(out, holdout)
    check_name(holdout, what="holdout", overwrite=overwrite)
    if not 0 < fraction < 1:
        raise ValueError(f"`holdout_fraction` must lie in (0, 1), got {fraction}")
    if holdout_split not in records:
        raise ValueError(f"`holdout_split` must be one of the splits ({', '.join(records)}), got {holdout_split!r}")
    clash = {RELEASED, HOLDOUT} & set(records)
    if clash:
        raise ValueError(f"`records` must not use the names of a divided split, got {', '.join(sorted(clash))}")


class _Intake:
    """Records -> rows; keeps the problems of all splits instead of stopping at one."""

    def __init__(self, benchmark: Benchmark, asks: Asks, *, embed: bool, progress: Progress | None) -> None:
        self.benchmark, self.asks, self.embed, self.progress = benchmark, asks, embed, progress
        self.problems: list[Problem] = []
        self._split_of: dict[str, str] = {}

    def rows(self, records: Iterable[LocalizationRecord], split: str) -> Iterator[tuple[Row, list[str]]]:
        """Each good record as its row and the findings asked."""
        before, n_done = len(self.problems), 0
        try:
            for n_done, record in enumerate(records, start=1):
                row = self._row(record, split)
                if row is not None:
                    yield row, record.asked(self.asks)
                if self.progress is not None:
                    self.progress(split, n_done)
        except BuildError as error:
            self.problems.extend(error.problems)
        if n_done == 0 and len(self.problems) == before:
            self.problems.append(Problem(split, None, "records", "must have at least one image", "none"))

    def _row(self, record: LocalizationRecord, split: str) -> Row | None:
        problem = None
        if record.image_id in self._split_of:
            value = f"it again, first in {self._split_of[record.image_id]!r}"
            problem = Problem(split, record.image_id, "image_id", "must occur once in all splits", value)
        elif self.embed and record.image is None:
            problem = Problem(split, record.image_id, "image", "must be there when pixels are embedded", "None")
        self._split_of.setdefault(record.image_id, split)
        row = None
        try:
            row = localization_row(record, self.benchmark.findings, embed=self.embed)
        except ValueError as error:
            problem = Problem(split, record.image_id, "record", "must fit the benchmark", str(error))
        if problem is not None:
            self.problems.append(problem)
            return None
        return row


def _write_split(rows: Iterator[tuple[Row, list[str]]], split: str, writer: FolderWriter) -> None:
    split_writer = writer.split(split)
    for row, asked in rows:
        split_writer.add(row, asked)
    writer.close_split(split, split_writer)


def _write_divided(
    rows: Iterator[tuple[Row, list[str]]],
    writer: FolderWriter,
    vault: FolderWriter,
    intake: _Intake,
    fraction: float,
    seed: int,
) -> None:
    """Spool the split in the private folder, divide its patients, and send each row where it belongs."""
    spool = vault.shards("spool", "undivided")
    asked_of: dict[str, list[str]] = {}
    patients = set()
    for row, asked in rows:
        spool.add(row)
        asked_of[row["image_id"]] = asked
        patients.add(row["patient_id"])
    spooled = spool.close()
    if intake.problems:
        return
    private_patients = divide_patients(patients, fraction=fraction, seed=seed)
    released, private = writer.split(RELEASED), vault.split(HOLDOUT)
    inputs = writer.shards("holdout_inputs", HOLDOUT) if intake.embed else None
    for row in read_rows(spooled):
        asked = asked_of[row["image_id"]]
        if row["patient_id"] not in private_patients:
            released.add(row, asked)
            continue
        private.add({**row, "image": None, "pixel_pipeline": "withheld"}, asked)
        if inputs is not None:
            inputs.add(blank_row(row))
    shutil.rmtree(spool.folder)
    writer.close_split(RELEASED, released)
    vault.close_split(HOLDOUT, private, references="private")
    if inputs is not None:
        writer.close_shards("holdout_inputs", HOLDOUT, inputs)
    writer.add_manifest(HOLDOUT, private.manifest, private.tally.size, references="private")


@contextmanager
def _targets(out: Path, holdout: Path | None) -> Iterator[tuple[Path, Path | None]]:
    """Temporary siblings of the folders; renamed to them at the end, removed if anything fails."""
    public = _sibling(out, 0o777)
    private = None
    try:
        private = None if holdout is None else _sibling(holdout, 0o700)
        yield public, private
        if private is not None and holdout is not None:
            for path in private.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
            with _in_place(private, holdout), _in_place(public, out):
                pass
        else:
            with _in_place(public, out):
                pass
    finally:
        for folder in (public, private):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _sibling(target: Path, mode: int) -> Path:
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.with_name(f".{target.name}.building-{uuid.uuid4().hex[:8]}")
    folder.mkdir(mode=mode)
    return folder


@contextmanager
def _in_place(new: Path, target: Path) -> Iterator[None]:
    """Rename `new` to `target`; what stood there is put back if the block fails, else removed."""
    target = target.resolve()
    old = None
    if target.exists():
        old = target.with_name(f".{target.name}.replaced-{uuid.uuid4().hex[:8]}")
        target.rename(old)
    try:
        new.rename(target)
        yield
    except BaseException:
        if not new.exists() and target.exists():
            target.rename(new)
        if old is not None:
            old.rename(target)
        raise
    if old is not None:
        shutil.rmtree(old)
