"""The public datasets of a server's benchmarks, the version that each board shows, and the checks before a server
starts.

Conventions
-----------
A web process has only the *public folder* of a benchmark. It contains the questions of the scored split
(``manifest/<split>.parquet``) and may contain its inputs (``holdout_inputs``). Nothing else of that split may be in the
folder, because a server that can open a reference can reveal it. So each folder is searched before it is served, by the
rules by which a build leaves references out.

A server has the public folder of every version that it may show. The database (table `boards`) contains the version
that a board shows and that accepts submissions, so that all servers switch at the same time
(:mod:`reveal_leaderboard.boards.refresh`). A server may have several versions of a benchmark, so a board is identified
by benchmark and version.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reveal_bench.benchmarks import BENCHMARKS, Benchmark
from reveal_bench.dataset.overlaps import (
    Digests,
    FolderCases,
    Overlap,
    OverlapError,
    cases_by_version,
    find_overlap,
    find_shared,
    read_cases,
)
from reveal_bench.evaluation.score import ids_of_other_splits
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import FolderInfo, check_split, read_folder_info
from reveal_bench.words import count_text
from reveal_leaderboard.settings import LEAST_CELL, BenchmarkSettings, Quota, ReleasePolicy
from reveal_leaderboard.store import boards, cases
from reveal_leaderboard.store.store import Store

log = logging.getLogger(__name__)


class UnknownBenchmarkError(ValueError):
    """The server does not have the benchmark, or not the requested version."""


class TooSmallError(ValueError):
    """The holdout is so small that its board could never show a score."""


class LeakError(ValueError):
    """Colluding teams could learn too much on a board, and the settings do not accept this."""


class Catalogue:
    """The public datasets of a server, and the boards in the database; a new board starts with the first listed
    version.

    With `checked`, :meth:`check_policy` runs before anything is recorded, so that a refused version opens no board.
    """

    def __init__(self, store: Store, published: Iterable[Published], *, checked: bool = False) -> None:
        self.store = store
        self._known: dict[tuple[str, str], Published] = {}
        for one in published:
            self._known[one.name, one.version] = one
        self.names = tuple(dict.fromkeys(name for name, _ in self._known))
        with store.read() as connection:
            self._known = {key: self._with_patients(connection, one) for key, one in self._known.items()}
        if checked:
            self.check_policy()
        with store.write() as connection:
            for one in self._known.values():
                boards.register_version(connection, one.name, one.version, one.split, one.facts())
        with store.write() as connection:  # a second transaction, because the chain of events must be locked last
            for one in self._known.values():
                if one.scored_by == "program":
                    cases.register_cases(connection, *one.key, one.held_out)
                    cases.record_overlaps(connection, *one.key, self._revealing(connection, one))
            without_cases = cases.versions_without_cases(connection)
        for name, version in without_cases:
            log.warning(
                "the cases of %s %s are not recorded: start a server with its folder once, otherwise a version "
                "with the same cases gives every team a new budget",
                name,
                version,
            )

    def _revealing(self, connection: sa.Connection, one: Published) -> dict[BoardKey, str]:
        """Return the public folders that reveal references of a version, without accepted ones; includes folders no
        longer served.
        """
        accepted = self.store.settings.of(one.name).exposure.accepted_overlaps
        recorded = cases.overlaps_of(connection, *one.key).items()
        away = {key: sentence for key, sentence in recorded if key not in self._known and key[0] not in accepted}
        return away | {row.other: row.sentence for row in self._not_accepted(one) if row.holdout == one.key}

    def _with_patients(self, connection: sa.Connection, one: Published) -> Published:
        """Return a version with the overlaps of patients, if a worker recorded the patients of its holdout."""
        patients = cases.patients_of(connection, *one.key)
        known = {_other(one, overlap) for overlap in one.overlaps}
        others = [other.cases for key, other in self._known.items() if key not in {one.key, *known}] if patients else []
        held_out = replace(one.cases, held_out={"patient": patients})
        further = (find_overlap(held_out, other) for other in others)
        return replace(one, overlaps=(*one.overlaps, *(overlap for overlap in further if overlap is not None)))

    def check_policy(self) -> None:
        """Refuse boards that miss their folder, could never show a score, or disclose too much.

        Accepted leaks (see "What colluding teams can learn" in the operator's guide) and broken rules of versions that
        are not shown are logged as warnings.

        Raises
        ------
        UnknownBenchmarkError
            If the public folder of a board's version is missing.
        TooSmallError
            If the holdout is too small for any score.
        LeakError
            If colluding teams could gain more than 0.05, and the settings do not accept this.
        OverlapError
            If the public folder of another board or of an earlier version reveals references of a board, and the
            settings do not accept this.
        """
        with self.store.read() as connection:
            rows = {name: boards.board(connection, name) for name in self.names}
            versions = [row for name in self.names for row in boards.list_versions(connection, name, shown_only=False)]
        visible = {(name, row.version if row else self.versions(name)[0].version) for name, row in rows.items()}
        frozen = {(row.benchmark, row.version) for row in versions if row.frozen_at is not None}
        for name, version in sorted(visible - self._known.keys()):
            raise UnknownBenchmarkError(
                f"the board of {name} shows version {version}: add the --benchmark folder of this version"
            )
        for one in self._known.values():
            settings = self.store.settings.of(one.name)
            if one.key not in frozen:  # a frozen version may be published
                self._check_overlaps(one, frozen if one.key in visible else set())
            rule = one.too_small_for(settings.release)
            if rule and one.key in visible:
                raise TooSmallError(f"{one.name} {one.version} {rule}")
            if rule:
                log.warning("%s %s has too small a holdout: a board could never show a score", one.name, one.version)
            _check_leaks(one, settings, is_visible=one.key in visible)

    def _check_overlaps(self, one: Published, shown_before: Collection[BoardKey]) -> None:
        """Raise OverlapError for overlaps with other boards and, if `one` is shown, with earlier versions; otherwise
        warn.
        """
        for overlap in self._not_accepted(one):
            other = _other(one, overlap)
            if other[0] == one.name and other not in shown_before:
                log.warning(
                    'the public folder of %s %s reveals references of %s %s; see "Refresh a holdout"',
                    *overlap.other,
                    *overlap.holdout,
                )
                continue
            accepted = [*self.store.settings.of(one.name).exposure.accepted_overlaps, other[0]]
            remedy = setting_remedy(one.name, "exposure", "accepted_overlaps", accepted)
            raise OverlapError(
                f"{' '.join(overlap.holdout)} must have references that no other board reveals, but "
                f"{overlap.sentence}. Hold out other patients, serve only one of the two boards, or accept the "
                f"overlap, which the board then states: {remedy}"
            )

    def _not_accepted(self, one: Published) -> list[Overlap]:
        accepted = self.store.settings.of(one.name).exposure.accepted_overlaps
        return [overlap for overlap in one.overlaps if _other(one, overlap)[0] not in accepted]

    def current(self, name: str) -> Published:
        """Return the version that the board of `name` shows.

        Raises
        ------
        UnknownBenchmarkError
            If the server does not have the benchmark, or not the version on its board.
        """
        if name in self.names:
            with self.store.read() as connection:
                board = boards.board(connection, name)
            known = None if board is None else self._known.get((name, board.version))
            if known is not None:
                return known
        raise UnknownBenchmarkError(f"Benchmarks on this server: {', '.join(self.names)}.")

    def get(self, name: str, version: str) -> Published | None:
        """Return a version; None if this server does not have its public folder."""
        return self._known.get((name, version))

    def versions(self, name: str) -> list[Published]:
        """Return the versions of a benchmark whose folders this server has, in the order of its options."""
        return [one for (of, _), one in self._known.items() if of == name]


def journal_words(store: Store, published: Iterable[Published]) -> list[str]:
    """Return the names and versions that a server's log may contain, besides the names of its benchmarks."""
    with store.read() as connection:
        keys = cases.versions_without_cases(connection)
    for one in published:
        keys += [one.key, *(_other(one, overlap) for overlap in one.overlaps)]
    return [word for key in keys for word in key]


NO_CASES = FolderCases("", "", "all")
SIMULATED = ReleasePolicy()
"""The release policy with which five colluding teams gained at most 0.05 in simulations."""


def _check_leaks(one: Published, settings: BenchmarkSettings, *, is_visible: bool) -> None:
    """Raise LeakError for leaks of a shown board that the settings do not accept; warn of other leaks."""
    leaks, accepted = one.leaks(settings), settings.exposure.accepted_leaks
    rules = ", and ".join(leaks.values())
    if is_visible and not set(leaks) <= set(accepted):
        remedy = setting_remedy(one.name, "exposure", "accepted_leaks", list(leaks))
        instead = "Leave out `quota.total`, or accept this: " if "more submissions" in leaks else "Accept that: "
        raise LeakError(
            f"{one.name} {one.version} {rules}; otherwise five colluding teams could gain more than 0.05. "
            f"{instead}{remedy}"
        )
    for reason in leaks:
        log.warning("colluding teams can gain more than 0.05 on %s %s: %s", one.name, one.version, reason)


def setting_remedy(benchmark: str, table: str, name: str, value: object) -> str:
    """Return a sentence on how to set a benchmark's setting in the settings file; a top-level key must be above any
    [table].
    """
    head = f"benchmarks.{benchmark}.{table}"
    where = f"set `{name}` in its table [{head}] or, if there is none, write above its first [table]"
    return f"in the file of --settings, {where}:\n{head}.{name} = {json.dumps(value)}"


BoardKey = tuple[str, str]
"""(benchmark, version)"""


MANIFEST, INPUTS = "manifest", "holdout_inputs"
"""Folders that may contain files of the scored split."""


@dataclass(frozen=True)
class Published:
    """Public dataset of a version of a benchmark: its folder, and the questions of the scored split.

    Attributes
    ----------
    folder : the public dataset folder
    info : content of the folder's ``benchmark.json``
    manifest : manifest of the scored split, parsed by the benchmark's kind
    kind : key of `KINDS`
    cases : digests of the held-out cases and, if several boards are served, of the cases whose references the folder
        reveals
    overlaps : overlaps in which this version's holdout is revealed, or its folder reveals another holdout
    """

    folder: Path
    info: FolderInfo
    manifest: Any
    kind: str
    cases: FolderCases = NO_CASES
    overlaps: tuple[Overlap, ...] = ()

    @property
    def name(self) -> str:
        """Name of the benchmark."""
        return str(self.manifest.benchmark)

    @property
    def version(self) -> str:
        """Version of the folder."""
        return str(self.manifest.version)

    @property
    def key(self) -> BoardKey:
        """(benchmark, version)."""
        return self.name, self.version

    @property
    def held_out(self) -> Digests:
        """Digests of the held-out cases."""
        return self.cases.held_out

    @property
    def split(self) -> str:
        """Name of the scored split."""
        return str(self.manifest.split)

    @property
    def benchmark(self) -> Benchmark:
        """Row of BENCHMARKS."""
        return BENCHMARKS[self.name]

    @property
    def title(self) -> str:
        """Title of the benchmark."""
        return self.benchmark.title

    @property
    def findings(self) -> tuple[str, ...]:
        """The benchmark's findings or labels, in the order of tables; for a tasks-type benchmark, the rubric's criteria
        and the categories of tasks.
        """
        return KINDS[self.kind].questions.scope(self.manifest)[0]

    @property
    def part(self) -> str:
        """Part of the findings that the folder asks, such as "5 of 14 findings"; empty if it asks all."""
        n, n_other = len(self.info.findings), len(self.info.not_asked)
        return f"{n} of {count_text(n + n_other, 'finding')}" if n_other else ""

    @cached_property
    def ids_of_other_splits(self) -> dict[str, str]:
        """Id -> split for the ids of the folder's other splits; empty if the folder was removed since the start."""
        return ids_of_other_splits(self.folder, self.split) if self.folder.is_dir() else {}

    @property
    def n_items(self) -> int:
        """Number of images, studies or tasks in the scored split."""
        return KINDS[self.kind].questions.scope(self.manifest)[1]

    @property
    def items(self) -> str:
        """Name of the items: "images", "studies" or "tasks"."""
        return KINDS[self.kind].items

    @property
    def scored_by(self) -> str:
        """Who scores submissions: "program" or "readers"."""
        return KINDS[self.kind].scoring.scored_by

    def too_small_for(self, policy: ReleasePolicy) -> str:
        """Return the reason and remedy if this version's board could never show a score; empty if it could."""
        kind = KINDS[self.kind]
        (n, what), least = kind.release.largest_cell(self.manifest), kind.release.least_items(policy.least_held_out)
        if n >= least:
            return ""
        both = ", both with the finding and without it" if kind.release.requires_negatives else ""
        parts = ", in both parts of `release.final_share`" if policy.final_share else ""
        why = (
            f"must hold out at least {least}, or no score can ever be shown, got {n} {what}: a score needs "
            f"`release.min_cell` = {policy.min_cell} {self.items}{both}{parts}."
        )
        smallest = kind.release.least_items(replace(policy, min_cell=LEAST_CELL).least_held_out)
        if n < smallest:
            return f"{why} The smallest possible number is {smallest}, so hold out more."
        remedy = setting_remedy(self.name, "release", "min_cell", LEAST_CELL)
        return f"{why} Hold out more, or allow fewer cases (`bands` then begin with this number): {remedy}"

    def leaks(self, settings: BenchmarkSettings) -> dict[str, str]:
        """Return reason -> broken rule for each reason in `LEAKS` why colluding teams could gain more than 0.05 on this
        board.

        The required numbers of cases do not depend on the settings: a setting with a smaller number is itself a reason.
        """
        if self.scored_by != "program":
            return {}
        release, policy, leaks = KINDS[self.kind].release, settings.release, {}
        total, most = self.quota(settings).total, release.most_answers
        if total > most:
            leaks["more submissions"] = f"must have `quota.total` {most}, got {total}"
        few = []
        if policy.min_cell < SIMULATED.min_cell:
            few.append(f"must have `release.min_cell` {SIMULATED.min_cell}, got {policy.min_cell}")
        n, least = release.cases_of_average(self.manifest, policy.least_held_out), SIMULATED.place_cell
        if n is not None and policy.place_cell < least:
            few.append(f"must have `release.place_cell` {least}, got {policy.place_cell}")
        if n is not None and self.info.asks == "all":
            few.append("must ask only for findings that are present, or its number of cases is unknown")
        elif n is not None and (public := n * (1 - policy.final_share)) < least:
            what = "outside `release.final_share`, each counted by its weight"
            few.append(f"must have {least} cases in its average ({what}), got {public:.0f}")
        if few:
            leaks["few cases"] = ", and ".join(few)
        return leaks

    def quota(self, settings: BenchmarkSettings) -> Quota:
        """Return the submission budget of this version."""
        return settings.quota.on(KINDS[self.kind].release.most_answers)

    @property
    def synthetic(self) -> bool:
        """True if the data are synthetic."""
        return self.info.synthetic

    def facts(self) -> dict[str, Any]:
        """Return the public facts of this version that the database stores, as plain JSON values."""
        return {
            "kind": self.kind,
            "findings": list(self.findings),
            "part": self.part,
            f"n_{self.items}": self.n_items,
            "synthetic": self.synthetic,
        }

    @property
    def manifest_file(self) -> Path:
        """File of the split's manifest (Parquet)."""
        return self.folder / MANIFEST / f"{self.split}.parquet"


def read_published(folder: Path, split: str, key: bytes = b"") -> Published:
    """Read the public dataset of a benchmark; `key` is the key of the digests of its cases' ids.

    Raises
    ------
    ValueError
        If the folder is not a dataset folder, does not contain the split, is of an unknown benchmark, or contains
        references of the split.
    """
    folder = Path(folder)
    info = read_folder_info(folder)
    check_split(info, folder, split)
    kind = _kind(folder, info)
    _check_no_references(folder, split)
    manifest = KINDS[kind].questions.read_manifest(folder, split)
    return Published(folder, info, manifest, kind, read_cases(folder, key, with_public=False))


def read_published_boards(
    folders: Iterable[tuple[Path, str]], beside: Iterable[Path] = (), key: bytes = b""
) -> dict[BoardKey, Published]:
    """Read several (folder, split) pairs by :func:`read_published`, and find the overlaps between them.

    Parameters
    ----------
    folders, key : as in :func:`read_published`
    beside : public folders of boards on other servers of the same operator

    Raises
    ------
    ValueError
        If :func:`read_published` refuses a folder, or two folders contain the same version of a benchmark.
    """
    boards: dict[BoardKey, Published] = {}
    for folder, split in folders:
        published = read_published(folder, split, key)
        other = boards.setdefault(published.key, published)
        if other is not published:
            name, version = published.key
            raise ValueError(f"each version of a benchmark must be given once: {folder} and {other.folder} are both "
        f"{name} "
        f"{version}")  # fmt: skip
    elsewhere = [cases for cases in cases_by_version(beside, key) if cases.key not in boards]
    if len(boards) + len(elsewhere) < 2:
        return boards
    # Readers' scores reveal no labels
    here = {one.key: read_cases(one.folder, key) for one in boards.values() if one.scored_by == "program"}
    for own, theirs in itertools.product(here.values(), elsewhere):
        if shared := find_shared(own, theirs):
            log.warning(
                "%s also holds out %d of the %d cases of %s: budgets count on both boards only if they share a "
                "server or database",
                theirs.benchmark,
                shared.n,
                shared.n_held,
                own.benchmark,
            )
    return {
        key: replace(one, cases=here[key], overlaps=_overlaps(here[key], here.values(), elsewhere))
        if key in here
        else one
        for key, one in boards.items()
    }


def _overlaps(one: FolderCases, here: Iterable[FolderCases], elsewhere: Sequence[FolderCases]) -> tuple[Overlap, ...]:
    """Return the overlaps in which other folders reveal a board's references, or its folder reveals those of other
    boards.
    """
    pairs = [(one, other) for other in (*here, *elsewhere) if other.key != one.key]
    overlaps = (find_overlap(*pair) for pair in (*pairs, *((other, one) for other in elsewhere)))
    return tuple(overlap for overlap in overlaps if overlap is not None)


def _other(one: Published, overlap: Overlap) -> BoardKey:
    return overlap.other if overlap.holdout == one.key else overlap.holdout


def _kind(folder: Path, info: FolderInfo) -> str:
    if info.benchmark not in BENCHMARKS:
        raise ValueError(f"{folder}: `benchmark` must be one of {', '.join(BENCHMARKS)}, got {info.benchmark!r}")
    return BENCHMARKS[info.benchmark].kind


def _check_no_references(folder: Path, split: str) -> None:
    """Refuse a folder that contains references of `split`.

    The folder may contain only the manifest and the inputs of `split`, and neither may contain references.
    """
    rule = f"the references of split {split!r}, which a leaderboard's server must not see"
    for path in sorted(folder.rglob("*")):
        if path.name != split and not path.name.startswith((f"{split}-", f"{split}.")):
            continue
        place = path.relative_to(folder)
        if place != Path(MANIFEST, f"{split}.parquet") and (place.parts[0], path.suffix) != (INPUTS, ".parquet"):
            raise ValueError(f"{folder} contains {rule}: {place.as_posix()}")
        columns = _forbidden_columns(folder, path)
        if columns:
            raise ValueError(f"{folder} contains {rule}: {place.as_posix()} has values in {', '.join(columns)}")


def _forbidden_columns(folder: Path, shard: Path) -> list[str]:
    """Return columns with values that neither manifest nor inputs may contain; columns of images are not checked."""
    import pyarrow.parquet as pq

    from reveal_bench.dataset.tables import input_rule, open_folder

    opened = open_folder(folder)
    rule = input_rule(opened)
    file = pq.ParquetFile(shard)
    columns = [name for name in file.schema_arrow.names if name not in opened.kind.table.image_columns]
    rows = (row for batch in file.iter_batches(columns=columns) for row in batch.to_pylist())
    return sorted({column for row in rows for column in rule.faults(row)})
