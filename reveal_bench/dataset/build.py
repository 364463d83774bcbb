"""Writing of a dataset folder: a Hugging Face dataset repository on disk.

Layout
------
::

    README.md                                  card; YAML `configs`, `dataset_info`
    <config>/<split>-00000-of-000NN.parquet    main config with references and pictures, see :mod:`reveal_bench.kinds`;
                                               `masks`, the masks as pictures; further tables such as `labels`
    holdout_inputs/holdout-*.parquet           inputs of the holdout without references: pictures, when they are
                                               embedded, and the prompts of tasks
    preview/<split>-*.parquet                  small pictures with the reference, of public splits with pixels
    manifest/<split>.parquet                   the questions: ids, views, sizes, findings
    manifest/benchmark.json                    :class:`reveal_bench.kinds.folder.FolderInfo`
    manifest/films.json                        :class:`reveal_bench.dataset.build_log.FilmRecord`
    croissant.json, eval.yaml                  descriptions for machines
    CITATION.cff, .zenodo.json                 how to cite it
    CHECKSUMS.json                             sha256 of every other file

Records are processed one by one: several processes read their pictures, finished rows are written to small files
("parts", :mod:`reveal_bench.dataset.row_pool`), and the dataset folder is made from the parts at the end. A killed
build resumes where it stopped, and writes the same bytes as an uninterrupted build.

A private holdout is written to a second folder with the same layout (mode 0700, files 0600, no pictures). Either the
build divides a split at random, or the records are already divided into the splits `released` and `holdout`. Rows that
may become private are only in the private folder's working folder until the division.

A build works in ``.<name>.building`` beside its target. In this working folder ``parts/`` contains finished rows, and
``folder/`` is the dataset folder, which is renamed to the target when it is complete. The target is therefore never an
incomplete folder. The parts remain after a kill, an interruption or problems with the data, and the same command then
resumes from them. A lock prevents two builds of the same target.

A build with a holdout replaces two targets together: the old folders are kept in ``replaced`` until both new folders
are in place. If a build is killed in between, the next build first restores the old folders.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import Asks, Benchmark
from reveal_bench.dataset.balance import Balance, balance_of, columns_of, compared_columns
from reveal_bench.dataset.build_log import BuildLog as BuildLog  # imported from here by callers of build_folder
from reveal_bench.dataset.build_log import FilmNote, FilmRecord
from reveal_bench.dataset.holdout import (
    HOLDOUT,
    RELEASED,
    Division,
    check_apart,
    check_name,
    check_overwritten,
    patients_before,
    patients_overwritten,
    private_keys,
    shuffle_key,
)
from reveal_bench.dataset.layout import SHARD_BYTES, FolderWriter, ShardWriter
from reveal_bench.dataset.overlaps import check_build
from reveal_bench.dataset.row_pool import RowPool, Spool
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import FolderInfo
from reveal_bench.sources.source import BuildError, Extra, Pixels, Problem, Record


@dataclass(frozen=True, slots=True)
class Workplace:
    """The working folder beside a target."""

    root: Path
    target: Path

    @property
    def parts(self) -> Path:
        """Folder with the finished rows."""
        return self.root / "parts"

    @property
    def folder(self) -> Path:
        """The dataset folder that is being written."""
        return self.root / "folder"

    @property
    def replaced(self) -> Path:
        """The previous folder of the target's name."""
        return self.root / "replaced"

    @property
    def marker(self) -> Path:
        """File that exists during the replacement of the target; it states whether a target existed before."""
        return self.root / "replacing.json"

    def undo(self) -> None:
        """Restore the previous target after an interrupted replacement."""
        try:
            had_target = json.loads(self.marker.read_text(encoding="utf-8"))["had_target"]
        except FileNotFoundError:
            return
        if self.replaced.exists():
            if self.target.exists():
                shutil.rmtree(self.target)
            self.replaced.rename(self.target)
        elif not had_target and self.target.exists() and not self.folder.exists():
            shutil.rmtree(self.target)
        self.marker.unlink()

    def clear_folder(self) -> None:
        """Replace :attr:`folder` by a new, empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(self.root.stat().st_mode & self.folder.stat().st_mode)


@contextmanager
def workplace(target: Path, mode: int = 0o777) -> Iterator[Workplace]:
    """Yield the locked working folder of `target`.

    At the end of the block the folder is removed, unless the block fails and finished parts exist.

    Raises
    ------
    ValueError
        If another process is building the same target.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    root = target.with_name(f".{target.name}.building")
    root.mkdir(mode=mode, exist_ok=True)
    if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.getuid():
        rule = "is needed for the build, but is a link, a file or another user's folder. Remove it, or build elsewhere"
        raise ValueError(f"{root} {rule}")
    root.chmod(mode & root.stat().st_mode)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{target} is being built by another process") from None
        place = Workplace(root, target)
        place.undo()
        shutil.rmtree(place.replaced, ignore_errors=True)  # remains of a build that was killed during its clean-up
        place.clear_folder()
        is_done = False
        try:
            yield place
            is_done = True
        finally:
            if is_done or not any(place.parts.rglob("*.json")):
                shutil.rmtree(root, ignore_errors=True)


def replace_targets(places: Sequence[Workplace]) -> None:
    """Rename every finished folder to its target; if one renaming fails, restore all previous targets."""
    try:
        for place in places:
            had_target = place.target.exists()
            place.marker.write_text(json.dumps({"had_target": had_target}), encoding="utf-8")
            if had_target:
                place.target.rename(place.replaced)
            place.folder.rename(place.target)
    except BaseException:
        for place in places:
            place.undo()
        raise
    for place in places:  # the folders are in place now, even if removing the parts fails
        place.marker.unlink()


def drop_unused(parts: Path, used: set[str]) -> None:
    """Remove the parts of all splits that are not in `used`."""
    for path in parts.glob("*"):
        if path.name not in used:
            shutil.rmtree(path)


_VERSION = re.compile(r"\d+\.\d+\.\d+")
_SPLIT_NAME = re.compile(r"\w+(\.\w+)*")  # `datasets` accepts no other names, and reserves "all"
Progress = Callable[[str, int, int | None, int], None]


class BuildEngine(Protocol):
    """Classes that make rows and write shards, as :class:`Spool` and :class:`ShardWriter` do on this machine.

    Rows from a spool may lack the bytes of their pictures if the writer can find these bytes elsewhere.
    """

    @property
    def spool(self) -> Callable[..., Spool]:
        """Function with the arguments of :class:`Spool` that returns a spool."""
        ...

    @property
    def shards(self) -> Callable[..., ShardWriter]:
        """Function with the arguments of :class:`ShardWriter` and the folder's name `target` that returns a writer."""
        ...


def build_folder(
    records: Mapping[str, Iterable[Record]],
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
    best_of: int = 1,
    previous: Path | None = None,
    previous_holdout: Path | None = None,
    retire_holdout: bool = False,
    synthetic: bool = False,
    overwrite: bool = False,
    keep_going: bool = False,
    workers: int = 1,
    extras: Sequence[Extra] = (),
    log: BuildLog | None = None,
    max_shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
    engine: BuildEngine | None = None,
    beside: Sequence[Path] = (),
    accepted_overlaps: Collection[str] = (),
) -> FolderInfo:
    """Write a dataset folder and, if `holdout` is given, the private folder of its holdout.

    Parameters
    ----------
    records : dict from split name to its records, each iterated once
    out : public folder to write; must be new or empty unless `overwrite`
    benchmark : the benchmark; `asks`, if given, replaces the attribute `asks` of the benchmark
    pixels : "embed" to write the pictures, "withhold" to hash the pictures without writing them
    holdout : folder for the private references, or None for no holdout
    holdout_fraction, seed : proportion of patients of `holdout_split` who become private, and seed of the random
        division; the remaining patients form the split "released". The seed also determines the order of rows in each
        half
    holdout_split : the split to divide. If it is "holdout", the records are already divided, and this split is private
    best_of : number of random divisions; the division with the most similar halves is used
    previous, previous_holdout : public and private folder of an earlier version, whose private patients stay private
        and whose released patients stay released
    keep_going : leave out records with problems instead of raising at the end
    workers : number of processes that read pictures; with more than one, the calling script needs the ``__main__``
        guard of `multiprocessing`
    extras : further tables; rows with the key of a held-out record are written to the private folder
    log : filled with further results of the build
    progress : called with (split, records done, records in all or None, records with
        a problem) after each record
    engine : classes that make rows and write shards, such as :class:`reveal_bench.scale.build.TaskBuild`; by default
        `workers` processes on this machine. All engines write the same bytes
    beside : public or private folders of other benchmarks and versions; the new folders must not reveal references that
        these folders hold out, nor the reverse
    accepted_overlaps : names of benchmarks for which such an overlap is accepted

    Returns
    -------
    FolderInfo of the public folder

    Raises
    ------
    BuildError
        With the problems of all splits, after all records were read. Finished rows are kept beside `out`, so that the
        same call resumes from them.
    ValueError
        If an argument is invalid; if overwriting would move a patient to the other half or make a holdout public; or if
        the new folders reveal references that a folder in `beside` holds out, or the reverse
        (:class:`reveal_bench.dataset.overlaps.OverlapError`).
    """
    out, holdout = Path(out), None if holdout is None else Path(holdout)
    if not _VERSION.fullmatch(version):
        raise ArgumentError("version", "must be three numbers such as 1.2.3", repr(version))
    _check_arguments(records, out, pixels, holdout, holdout_fraction, holdout_split, workers)
    _check_draws(best_of, holdout, holdout_split)
    is_predivided = holdout is not None and holdout_split == HOLDOUT
    before = patients_before(previous, previous_holdout, holdout)
    division = Division(
        holdout_fraction, seed, *before, best_of=best_of, is_predivided=is_predivided, retire=retire_holdout
    )
    log = log if log is not None else BuildLog()
    new_spool = Spool if engine is None else engine.spool
    intake = _Intake(benchmark, embed=pixels == "embed", progress=progress, new_spool=new_spool)
    with ExitStack() as stack:
        private = None if holdout is None else stack.enter_context(workplace(holdout, 0o700))
        public = stack.enter_context(workplace(out))
        for name, place in (("out", public), ("holdout", private)):
            if place is not None:
                check_name(place.target, what=name, overwrite=overwrite)
        check_overwritten(out, holdout)
        key = KINDS[benchmark.kind].key
        division = replace(
            division,
            overwritten=patients_overwritten(out, holdout),
            private_keys=private_keys(previous, key) | private_keys(out, key),
        )
        is_divided = {split: private is not None and split == holdout_split for split in records}
        drop_unused(public.parts, {split for split in records if not is_divided[split]})
        asked = asks or benchmark.asks
        with RowPool(benchmark, asked, embed=intake.embed, workers=workers) as pool:
            spools = {}
            for split, split_records in records.items():
                if private is not None and is_divided[split]:
                    spools[split] = intake.spool(split_records, split, private, pool, shuffled_by=seed)
                else:
                    order = seed if is_predivided else None
                    spools[split] = intake.spool(split_records, split, public, pool, shuffled_by=order)
        if private is not None:
            drop_unused(private.parts, {holdout_split})
        log.resumed = sum(spool.n_resumed for spool in spools.values())
        log.left_out += intake.settle(keep_going=keep_going)
        log.films += {film.image_id: film for film in intake.films}.values()

        def writer(place: Workplace, *, embed: bool) -> FolderWriter:
            return FolderWriter(
                place.folder,
                benchmark,
                version=version,
                asks=asked,
                embed=embed,
                max_shard_bytes=max_shard_bytes,
                writer=ShardWriter if engine is None else partial(engine.shards, target=place.target.name),
            )

        assembly = _Assembly(
            writer(public, embed=intake.embed), None if private is None else writer(private, embed=False)
        )
        division.check(spools)
        for split, spool in spools.items():
            if is_divided[split]:
                log.balance = assembly.divide(spool, division, spools.get(RELEASED))
            else:
                assembly.write(spool, split)
        division.check_released(assembly.public_splits(), key)
        assembly.add_extras(extras, left_out={problem.row for problem in log.left_out})
        info = assembly.finish(synthetic=synthetic, films=FilmRecord.of(log).to_json())
        log.shared += check_build(_folders(public, private), beside, retire_holdout, accepted_overlaps)
        if private is not None:
            for path in private.folder.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
        replace_targets([place for place in (private, public) if place is not None])
        return info


def _folders(*places: Workplace | None) -> list[Path]:
    return [place.folder for place in places if place is not None]


def _check_arguments(
    records: Mapping[str, Any],
    out: Path,
    pixels: str,
    holdout: Path | None,
    fraction: float,
    holdout_split: str,
    workers: int,
) -> None:
    if pixels not in ("embed", "withhold"):
        raise ArgumentError("pixels", "must be 'embed' or 'withhold'", repr(pixels))
    if workers < 1:
        raise ArgumentError("workers", "must be at least 1", workers)
    if not records:
        raise ArgumentError("records", "must have at least one split", "none")
    for split in records:
        if split == "all" or not _SPLIT_NAME.fullmatch(split):
            rule = "must have split names made of letters, digits and _, but not 'all'"
            raise ArgumentError("records", rule, repr(split))
    if holdout is None:
        if HOLDOUT in records:
            raise ArgumentError(
                "holdout", "must name a folder because the records have the private split 'holdout'", "none"
            )
        return
    check_apart(out, holdout)
    if not 0 < fraction < 1:
        raise ArgumentError("holdout_fraction", "must be in (0, 1)", fraction)
    if holdout_split not in records:
        raise ArgumentError("holdout_split", f"must be one of the splits ({', '.join(records)})", repr(holdout_split))
    clash = {RELEASED, HOLDOUT} & set(records)
    if clash and holdout_split != HOLDOUT:
        raise ArgumentError(
            "records",
            "must not have splits named 'released' or 'holdout' when a split is divided",
            ", ".join(sorted(clash)),
        )


def _check_draws(best_of: int, holdout: Path | None, holdout_split: str) -> None:
    if best_of < 1:
        raise ArgumentError("best_of", "must be at least 1", best_of)
    if best_of > 1 and (holdout is None or holdout_split == HOLDOUT):
        rule = "must be 1 unless the build draws a `holdout` from a split"
        raise ArgumentError("best_of", rule, best_of, ("holdout", "holdout_split"))


class _Intake:
    """First stage of a build: it makes the rows of all splits, and collects their problems instead of stopping."""

    def __init__(
        self, benchmark: Benchmark, *, embed: bool, progress: Progress | None, new_spool: Callable[..., Spool]
    ) -> None:
        self.benchmark, self.embed, self.progress, self._new_spool = benchmark, embed, progress, new_spool
        self.kind = KINDS[benchmark.kind]
        self.problems: list[Problem] = []
        self.films: list[FilmNote] = []
        self.fatal: list[Problem] = []
        self._split_of: dict[str, str] = {}

    def spool(
        self, records: Iterable[Record], split: str, place: Workplace, pool: RowPool, *, shuffled_by: int | None = None
    ) -> Spool:
        """Return a spool with the rows of a split, in the order of `records` or shuffled by a seed."""
        spool = self._new_spool(
            place.parts / split,
            self.kind.table.features(self.benchmark).arrow_schema,
            None if self.kind.table.side_config is None else self.kind.table.side_features(self.benchmark).arrow_schema,
            self.kind.data.key_of,
        )
        total = len(records) if isinstance(records, Sized) else None
        before, n_done, n_failed = len(self.problems), 0, 0
        checked: Iterable[Record] = self._checked(records, split)
        if shuffled_by is not None:
            checked = sorted(checked, key=lambda record: shuffle_key(shuffled_by, self.kind.data.key_of(record)))
        for n_done, made in enumerate(spool.fill(checked, pool), start=1):
            n_failed += made is not None and bool(made.problems)
            if self.progress is not None:
                self.progress(split, n_done, total, n_failed)
        self.problems += spool.problems
        self.films += spool.films
        if not spool.keys and len(self.problems) == before:
            self.fatal.append(Problem(split, None, "records", f"must have at least one {self.kind.key[:-3]}", "none"))
        return spool

    def settle(self, *, keep_going: bool) -> list[Problem]:
        """Raise the problems or, with `keep_going`, return them; a split without any records always raises."""
        if self.fatal or (self.problems and not keep_going):
            raise BuildError([*self.problems, *self.fatal])
        return self.problems

    def _checked(self, records: Iterable[Record], split: str) -> Iterator[Record]:
        """Yield the records without a problem, and note the problems of the other records."""
        stream = iter(records)
        while True:
            try:
                record = next(stream)
            except StopIteration:
                return
            except BuildError as error:  # a source may raise problems after its last record
                self.problems.extend(error.problems)
                return
            problem = self._problem(record, split)
            if problem is None:
                yield record
            else:
                self.problems.append(problem)

    def _problem(self, record: Record, split: str) -> Problem | None:
        key, name = self.kind.data.key_of(record), self.kind.key
        if key in self._split_of:
            value = f"a repetition, first in {self._split_of[key]!r}"
            return Problem(split, key, name, "must be unique across all splits", value)
        self._split_of[key] = split
        if self.embed and not self.kind.data.has_pixels(record):
            return Problem(split, key, "image", "must exist when pixels are embedded", "None")
        return None


class _Assembly:
    """Second stage of a build: it writes the public and the private folder from the spools of all splits."""

    def __init__(self, writer: FolderWriter, vault: FolderWriter | None) -> None:
        self.writer, self.vault = writer, vault
        self.kind = writer.kind
        self._place_of: dict[str, tuple[FolderWriter, str]] = {}

    def write(self, spool: Spool, split: str) -> None:
        """Write a split with public references."""
        self._write_rows(spool.rows(), self.writer, split)
        self._write_side(spool, split)

    def divide(self, spool: Spool, division: Division, released_already: Spool | None) -> Balance:
        """Divide the patients of a split into halves, write each row to its patient's half, and return the balance.

        Parameters
        ----------
        released_already : the released half, if the records are already divided
        """
        assert self.vault is not None
        names = ("patient_id", *compared_columns(self.writer.features))
        others = [] if released_already is None else released_already.facts(names)
        facts = [*others, *spool.facts(names)]
        columns = columns_of(facts, self.writer.features)
        patients = [row["patient_id"] for row in facts]
        draws = division.draw(patients, columns, n_released=len(others))
        private = {patient for patient, is_private in zip(patients, draws.is_holdout, strict=True) if is_private}
        if not division.is_predivided:
            released = ((row, asked) for row, asked in spool.rows() if row["patient_id"] not in private)
            self._write_rows(released, self.writer, RELEASED)
            self._write_side(spool, RELEASED)
        features = self.writer.features
        has_inputs = self.writer.embed or self.kind.questions.has_prompts
        inputs = self.writer.shards("holdout_inputs", HOLDOUT, features) if has_inputs else None
        split = self.vault.split(HOLDOUT)
        for row, asked in spool.rows():
            if row["patient_id"] in private:
                split.add(self.kind.table.without_pixels(row), asked)
                self._place_of[row[self.kind.key]] = (self.vault, HOLDOUT)
                if inputs is not None:
                    inputs.add(self.kind.table.blank(row))
        self.vault.close_split(HOLDOUT, split, references="private")
        if inputs is not None:
            self.writer.close_shards("holdout_inputs", HOLDOUT, inputs, features)
        self.writer.add_manifest(HOLDOUT, split.manifest, split.tally.size, references="private")
        return balance_of(draws, columns)

    def add_extras(self, extras: Sequence[Extra], *, left_out: set[int | str | None]) -> None:
        """Add further tables; each row is written to the folder and split of the record with the same key.

        Raises
        ------
        BuildError
            If a row's key is not the key of a record.
        """
        for extra in extras:
            features = extra.features()
            if extra.key is None:
                self.writer.add_table(extra.config, extra.split or "all", features, extra.rows)
                continue
            rows_of: dict[tuple[FolderWriter, str], list[dict[str, Any]]] = {}
            unknown = []
            for row in extra.rows:
                key = row[extra.key]
                if key in self._place_of:
                    rows_of.setdefault(self._place_of[key], []).append(row)
                elif key not in left_out:
                    unknown.append(Problem(extra.config, key, extra.key, "must be the key of a record", repr(key)))
            if unknown:
                raise BuildError(unknown)
            for (writer, split), rows in rows_of.items():
                writer.add_table(extra.config, split, features, rows)

    def public_splits(self) -> dict[str, str]:
        """Return a dict from row key to split, for all rows with public references."""
        return {key: split for key, (writer, split) in self._place_of.items() if writer is self.writer}

    def finish(self, *, synthetic: bool, films: str) -> FolderInfo:
        """Complete the private and then the public folder; return the description of the public folder."""
        if self.vault is not None:
            self.vault.finish(synthetic=synthetic, is_private=True)
        return self.writer.finish(synthetic=synthetic, films=films)

    def _write_rows(self, rows: Iterable[tuple[dict[str, Any], list[str]]], writer: FolderWriter, split: str) -> None:
        split_writer = writer.split(split)
        for row, asked in rows:
            split_writer.add(row, asked)
            self._place_of[row[self.kind.key]] = (writer, split)
        writer.close_split(split, split_writer)

    def _write_side(self, spool: Spool, split: str) -> None:
        """Write the side table (such as masks) of the public rows of `split`."""
        if self.kind.table.side_config is None:
            return
        features, shards = self.kind.table.side_features(self.writer.benchmark), None
        for row in spool.side_rows():
            if self._place_of.get(row[self.kind.key]) == (self.writer, split):
                shards = shards or self.writer.shards(self.kind.table.side_config, split, features)
                shards.add(row)
        if shards is not None:
            self.writer.close_shards(self.kind.table.side_config, split, shards, features)
