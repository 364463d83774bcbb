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
    croissant.json, eval.yaml                  descriptions for machines
    CITATION.cff, .zenodo.json                 how to cite it
    CHECKSUMS.json                             sha256 of every other file

Records stream: their pictures are read by all workers, finished rows go to small parts on disk
(:mod:`reveal_bench.dataset.row_pool`), and the folder is made of the parts at the end. A killed build resumes where it
stopped, and writes the same bytes as an uninterrupted build.

A private holdout goes to a second folder of the same form (mode 0700, files 0600, no pictures). Either a split is
divided at random, or the records are already divided into the splits `released` and `holdout`. Before the division,
private rows exist only in the private folder's working folder.

A build works in ``.<name>.building`` beside its target: ``parts/`` holds finished rows, ``folder/`` the dataset folder
that is made from them at the end and gets the target's name once it is complete. After a kill, an interruption or
problems with the data the parts stay, so that the same command resumes from there; only a complete folder ever has the
target's name. Two builds of one target exclude each other by a lock.

A build with a holdout has two targets, which change together: the old folders wait in ``replaced`` until the new ones
are in place. If a build was killed in between, the next one undoes it and makes the folders again from the remaining
parts.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import Asks, Benchmark
from reveal_bench.dataset.balance import Balance, balance_of, columns_of, compared_columns
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
    """The working folder of one target."""

    root: Path
    target: Path

    @property
    def parts(self) -> Path:
        """Folder of the finished rows."""
        return self.root / "parts"

    @property
    def folder(self) -> Path:
        """The dataset folder while it is written."""
        return self.root / "folder"

    @property
    def replaced(self) -> Path:
        """The folder that had the target's name before."""
        return self.root / "replaced"

    @property
    def marker(self) -> Path:
        """File that exists while the target is being replaced; it says whether there was a target before."""
        return self.root / "replacing.json"

    def undo(self) -> None:
        """Undo an interrupted replacement."""
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
        """Make the dataset folder new and empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(self.root.stat().st_mode & self.folder.stat().st_mode)


@contextmanager
def workplace(target: Path, mode: int = 0o777) -> Iterator[Workplace]:
    """Yield the locked working folder of `target`.

    If the block fails and has finished parts, the folder stays; otherwise it is removed.

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
        rule = "is needed for the build, but is a link, a file or another user's folder: remove it, or build elsewhere"
        raise ValueError(f"{root} {rule}")
    root.chmod(mode & root.stat().st_mode)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{target} is being built by another process") from None
        place = Workplace(root, target)
        place.undo()
        shutil.rmtree(place.replaced, ignore_errors=True)  # left by a build that was killed during its clean-up
        place.clear_folder()
        is_done = False
        try:
            yield place
            is_done = True
        finally:
            if is_done or not any(place.parts.rglob("*.json")):
                shutil.rmtree(root, ignore_errors=True)


def replace_targets(places: Sequence[Workplace]) -> None:
    """Give every finished folder its target's name, or none of them if anything fails."""
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
    for place in places:  # from here on the folders are complete, even if removing the parts fails
        place.marker.unlink()


def drop_unused(parts: Path, used: set[str]) -> None:
    """Remove the parts of splits that this build does not have."""
    for path in parts.glob("*"):
        if path.name not in used:
            shutil.rmtree(path)


_VERSION = re.compile(r"\d+\.\d+\.\d+")
_SPLIT_NAME = re.compile(r"\w+(\.\w+)*")  # `datasets` accepts no other names, and reserves "all"
Progress = Callable[[str, int, int | None, int], None]


class BuildEngine(Protocol):
    """Maker of rows and writer of shards: this machine (:class:`Spool`, :class:`ShardWriter`), or other workers.

    Rows that leave a spool need not hold the bytes of their pictures, if the writer knows where to find them.
    """

    @property
    def spool(self) -> Callable[..., Spool]:
        """Function that makes a spool from the arguments of :class:`Spool`."""
        ...

    @property
    def shards(self) -> Callable[..., ShardWriter]:
        """Function that makes a writer from the arguments of :class:`ShardWriter` and the folder's name, `target`."""
        ...


@dataclass
class BuildLog:
    """Facts of a build besides its folders.

    Attributes
    ----------
    left_out : problems of the records that were left out
    resumed : number of records whose rows an earlier run had made
    balance : similarity of the halves, if the build has a holdout
    shared : sentences about other benchmarks that hold out some of the same cases
    """

    left_out: list[Problem] = field(default_factory=list)
    resumed: int = 0
    balance: Balance | None = None
    shared: list[str] = field(default_factory=list)


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
    out : the public folder; must be new or empty unless `overwrite`
    benchmark : row of BENCHMARKS; if `asks` is given, it replaces the row's `asks`
    pixels : "embed" writes the pictures, "withhold" reads and hashes them and leaves them out
    holdout : folder for the private references, or None for no holdout
    holdout_fraction, seed : proportion of `holdout_split`'s patients who become private, and the seed of the division;
        the rest of that split is renamed "released". The seed also decides the order of rows in each half
    holdout_split : the split to divide; "holdout" if the records are already divided, and then that split is private
        without a draw
    best_of : number of divisions drawn from the seed; the one with the most similar halves is used
    previous, previous_holdout : folders of an earlier version: its private patients stay private, its released patients
        released
    keep_going : leave out records with problems instead of raising at the end
    workers : processes that read pictures; with more than one the caller's script needs the usual `__main__` guard
    extras : further tables; rows whose key belongs to the holdout go to the private folder
    log : filled in, unless it is None
    progress : called with (split, records done, records in all or None, records with
        a problem) after each record
    engine : maker of rows and writer of shards, such as :class:`reveal_bench.scale.build.TaskBuild`; it does not change
        the bytes that are written. By default `workers` processes of this machine
    beside : public or private folders of other benchmarks and versions, with which the new folders are compared
    accepted_overlaps : benchmarks that may reveal references of this holdout, or this build of theirs

    Returns
    -------
    FolderInfo of the public folder

    Raises
    ------
    BuildError
        With every problem of every split, after all records were read. Finished rows are kept beside `out`, and the
        same call resumes from them.
    ValueError
        If an argument is invalid, or if overwriting would move a patient from one half to the other, or make a holdout
        public, or if the build reveals references that a folder `beside` it holds out, or the reverse
        (:class:`reveal_bench.dataset.overlaps.OverlapError`).
    """
    out, holdout = Path(out), None if holdout is None else Path(holdout)
    if not _VERSION.fullmatch(version):
        raise ArgumentError("version", "must have the form 1.2.3", repr(version))
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
        info = assembly.finish(synthetic=synthetic)
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
            rule = "must have split names of letters, digits and _ other than 'all'"
            raise ArgumentError("records", rule, repr(split))
    if holdout is None:
        if HOLDOUT in records:
            raise ArgumentError("holdout", "must be a folder for the private split 'holdout'", "none")
        return
    check_apart(out, holdout)
    if not 0 < fraction < 1:
        raise ArgumentError("holdout_fraction", "must be in (0, 1)", fraction)
    if holdout_split not in records:
        raise ArgumentError("holdout_split", f"must be one of the splits ({', '.join(records)})", repr(holdout_split))
    clash = {RELEASED, HOLDOUT} & set(records)
    if clash and holdout_split != HOLDOUT:
        raise ArgumentError("records", "must not use the names of a divided split", ", ".join(sorted(clash)))


def _check_draws(best_of: int, holdout: Path | None, holdout_split: str) -> None:
    if best_of < 1:
        raise ArgumentError("best_of", "must be at least 1", best_of)
    if best_of > 1 and (holdout is None or holdout_split == HOLDOUT):
        rule = "must be 1 unless a `holdout` is drawn from an undivided split"
        raise ArgumentError("best_of", rule, best_of, ("holdout", "holdout_split"))


class _Intake:
    """Maker of spools from records, which collects the problems of all splits instead of stopping at one."""

    def __init__(
        self, benchmark: Benchmark, *, embed: bool, progress: Progress | None, new_spool: Callable[..., Spool]
    ) -> None:
        self.benchmark, self.embed, self.progress, self._new_spool = benchmark, embed, progress, new_spool
        self.kind = KINDS[benchmark.kind]
        self.problems: list[Problem] = []
        self.fatal: list[Problem] = []
        self._split_of: dict[str, str] = {}

    def spool(
        self,
        records: Iterable[Record],
        split: str,
        place: Workplace,
        pool: RowPool,
        *,
        shuffled_by: int | None = None,
    ) -> Spool:
        """Return the rows of a split's records, in the order of the records or in one shuffled by a seed."""
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
            n_failed += made is not None and made.problem is not None
            if self.progress is not None:
                self.progress(split, n_done, total, n_failed)
        self.problems += spool.problems
        if not spool.keys and len(self.problems) == before:
            self.fatal.append(Problem(split, None, "records", f"must have at least one {self.kind.key[:-3]}", "none"))
        return spool

    def settle(self, *, keep_going: bool) -> list[Problem]:
        """Raise the problems; with `keep_going` return them instead, unless a split has no records."""
        if self.fatal or (self.problems and not keep_going):
            raise BuildError([*self.problems, *self.fatal])
        return self.problems

    def _checked(self, records: Iterable[Record], split: str) -> Iterator[Record]:
        """Yield the records without a problem; note the problems of the others."""
        stream = iter(records)
        while True:
            try:
                record = next(stream)
            except StopIteration:
                return
            except BuildError as error:  # problems that the source raises after its last record
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
            value = f"it again, first in {self._split_of[key]!r}"
            return Problem(split, key, name, "must occur once in all splits", value)
        self._split_of[key] = split
        if self.embed and not self.kind.data.has_pixels(record):
            return Problem(split, key, "image", "must exist when pixels are embedded", "None")
        return None


class _Assembly:
    """Writer of the dataset folders from the spools of all splits."""

    def __init__(self, writer: FolderWriter, vault: FolderWriter | None) -> None:
        self.writer, self.vault = writer, vault
        self.kind = writer.kind
        self._place_of: dict[str, tuple[FolderWriter, str]] = {}

    def write(self, spool: Spool, split: str) -> None:
        """Write a split with public references."""
        self._write_rows(spool.rows(), self.writer, split)
        self._write_side(spool, split)

    def divide(self, spool: Spool, division: Division, released_already: Spool | None) -> Balance:
        """Divide the patients of a split into halves, and write each row to the half of its patient.

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
        """Add further tables; a row with a key goes to the folder and split of the record with that key.

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
        """Return the split of each row with public references, by its key."""
        return {key: split for key, (writer, split) in self._place_of.items() if writer is self.writer}

    def finish(self, *, synthetic: bool) -> FolderInfo:
        """Complete the folders, the private one first."""
        if self.vault is not None:
            self.vault.finish(synthetic=synthetic, is_private=True)
        return self.writer.finish(synthetic=synthetic)

    def _write_rows(self, rows: Iterable[tuple[dict[str, Any], list[str]]], writer: FolderWriter, split: str) -> None:
        split_writer = writer.split(split)
        for row, asked in rows:
            split_writer.add(row, asked)
            self._place_of[row[self.kind.key]] = (writer, split)
        writer.close_split(split, split_writer)

    def _write_side(self, spool: Spool, split: str) -> None:
        """Write the side table of the rows that are public in `split`."""
        if self.kind.table.side_config is None:
            return
        features, shards = self.kind.table.side_features(self.writer.benchmark), None
        for row in spool.side_rows():
            if self._place_of.get(row[self.kind.key]) == (self.writer, split):
                shards = shards or self.writer.shards(self.kind.table.side_config, split, features)
                shards.add(row)
        if shards is not None:
            self.writer.close_shards(self.kind.table.side_config, split, shards, features)
