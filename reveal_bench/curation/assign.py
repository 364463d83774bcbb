"""Assign studies to readers: all studies get the same number of different readers, within each reader's capacity.

In paper 004 (section 2.2, Table S4), three of 17 readers read each study, and a reader got at most 300 studies, in
random order. The 17 lists have 3,000 entries, exactly three for each of 1,000 studies. If readers have no spare
capacity, assigning studies one by one may leave a last study that only readers who already have that study could take.
:func:`draw_assignment` avoids this. If readers have spare capacity, their numbers of studies are as equal as possible.

Input: a table of readers, columns `reader` and `capacity` (studies that the reader will read, a whole number).
Output: ``assignments.parquet`` (:class:`~reveal_bench.curation.tables.Assignment`, by reader and position).

When a reader stops early, the annotation page calls :func:`reassign`: readers with free capacity get the unread
studies, and votes already cast stay. If the only reader with free capacity already has the study, unread studies of
other readers move as well. The result names the studies that cannot get a reader.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import IntArray
from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import Assignment, Sampled, read_table, write_table
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.tables import scan_table

PER_STUDY, MOST = 3, 300
"""Readers per study, and maximum studies per reader (paper 004, section 2.2)."""

SWAPS_PER_PLACE = 50
"""Swaps tried per assignment: enough to remove every trace of the order in which studies were assigned."""

ASSIGNMENTS = "assignments.parquet"
COLUMNS = ("reader", "capacity")


def assign(
    folder: CurationFolder,
    readers: Path,
    *,
    most: int = MOST,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Assign the studies of ``sample.parquet`` to the readers of a table; see :func:`draw_assignment`.

    Every study gets :data:`PER_STUDY` readers, because a benchmark reports the agreement of three readers.

    Parameters
    ----------
    readers : table with the columns reader and capacity
    most : maximum studies per reader

    Returns
    -------
    StepRecord
        The counts are `studies`, `readers` (in the table), `places` (assignments), `capacity` (possible assignments)
        and `by_reader`.

    Raises
    ------
    BuildError
        If the table has problems; the error lists all of them.
    CurationError
        If there are too few readers, the step `sample` is not done, or `assign` was done with other inputs or settings.
    ValueError
        If `most` is below 1.
    """
    capacities = read_readers(Path(readers))

    def work(scratch: Path) -> dict[str, Any]:
        studies = [one.study_id for one in read_table(folder.path("sample.parquet"), Sampled)]
        assignments = draw_assignment(studies, capacities, folder.rng("assign"), most=most)
        write_table(scratch / ASSIGNMENTS, assignments, Assignment)
        if progress is not None:
            progress(len(studies), len(studies))
        by_reader = Counter(one.reader for one in assignments)
        return {
            "studies": len(studies),
            "readers": len(capacities),
            "places": len(assignments),
            "capacity": sum(min(capacity, most, len(studies)) for capacity in capacities.values()),
            "by_reader": {reader: by_reader[reader] for reader in sorted(capacities)},
        }

    return folder.run(
        "assign",
        {"per_study": PER_STUDY, "most": most},
        work,
        reads=["sample.parquet"],
        files={"readers": Path(readers)},
        writes=[ASSIGNMENTS],
        redo=redo,
    )


def read_readers(path: Path) -> dict[str, int]:
    """Read capacities from a table with exactly the columns reader and capacity (csv, tsv, xlsx, json, jsonl).

    Raises
    ------
    BuildError
        If the table has another column, a blank or repeated reader, or a capacity that is not a whole number >= 0; the
        error lists all problems.
    """
    problems: list[Problem] = []
    table = scan_table(path, path.name, problems)
    if table is None:
        raise BuildError(problems)
    if sorted(map(str.casefold, table.columns)) != sorted(COLUMNS):
        value = ", ".join(table.columns)
        raise BuildError([*problems, Problem(path.name, None, "columns", f"must be {' and '.join(COLUMNS)}", value)])
    capacities: dict[str, int] = {}
    first: dict[str, int] = {}
    for row in table.rows:
        reader, capacity = row["reader"], row["capacity"]
        if not reader or not reader.isprintable():
            value = repr(reader[:80]) if reader else "a blank cell"
            problems.append(Problem(path.name, row.number, "reader", "must be a name in printable characters", value))
        elif reader.casefold() in first:
            value = f"{reader!r} again, first in row {first[reader.casefold()]}"
            problems.append(Problem(path.name, row.number, "reader", "must occur only once", value))
        first.setdefault(reader.casefold(), row.number)
        if not (capacity.isascii() and capacity.isdecimal() and len(capacity) < 10):
            value = repr(capacity[:80]) if capacity else "a blank cell"
            rule = "must be a whole number of studies of at least 0"
            problems.append(Problem(path.name, row.number, "capacity", rule, value))
        else:
            capacities[reader] = int(capacity)
    if problems:
        raise BuildError(problems)
    return capacities


def draw_assignment(
    studies: Sequence[str],
    capacities: Mapping[str, int],
    rng: np.random.Generator,
    *,
    per_study: int = PER_STUDY,
    most: int = MOST,
) -> list[Assignment]:
    """Assign studies at random; the order of `studies` and `capacities` does not change the result.

    :func:`loads` gives the number of studies per reader. Readers and studies are shuffled. Then each reader in turn
    takes the next studies of the list, which starts again when it is exhausted. No load exceeds the number of studies,
    so no reader gets a study twice, and an assignment is found whenever one exists. Then random pairs of assignments
    swap their studies, unless a reader would get a study twice. :data:`SWAPS_PER_PLACE` swaps are tried per assignment,
    which is a random walk over all assignments with these loads. Finally, each reader's list is shuffled.

    Returns
    -------
    list of Assignment, by reader and position

    Raises
    ------
    CurationError
        If the readers' capacity is too low; the message states the number of missing assignments.
    ValueError
        If `per_study` or `most` is below 1 or a study occurs twice.
    """
    if per_study < 1 or most < 1:
        raise ValueError(f"`per_study` and `most` must be at least 1, got {per_study} and {most}")
    if len(set(studies)) < len(studies):
        raise ArgumentError("studies", "must name each study once")
    load = loads(len(studies), capacities, rng, per_study=per_study, most=most)
    names = [sorted(load)[i] for i in rng.permutation(len(load))]
    order = rng.permutation(len(studies))
    dealt = np.repeat(np.arange(len(names)), [load[name] for name in names])
    of_place = order[np.arange(len(dealt)) % max(len(studies), 1)]
    _swap(of_place, dealt, rng)
    by_id = sorted(studies)
    assignments = []
    for reader, name in sorted(enumerate(names), key=lambda one: one[1]):
        own = sorted(by_id[i] for i in of_place[dealt == reader])
        listed = [own[i] for i in rng.permutation(len(own))]
        assignments += [Assignment(name, position, study) for position, study in enumerate(listed, start=1)]
    return assignments


def loads(
    n_studies: int,
    capacities: Mapping[str, int],
    rng: np.random.Generator,
    *,
    per_study: int = PER_STUDY,
    most: int = MOST,
) -> dict[str, int]:
    """Return the number of studies per reader, as equal as capacities allow; random readers get the remainder.

    No reader gets more studies than their capacity, `most` or the number of studies. Every reader is in the result.

    Raises
    ------
    CurationError
        If all capacities together do not suffice for `per_study` readers of each study.
    """
    limits = {name: min(capacities[name], most, n_studies) for name in sorted(capacities)}
    places, offered = per_study * n_studies, sum(limits.values())
    if offered < places:
        able = sum(limit > 0 for limit in limits.values())
        raise CurationError(
            f"{per_study} readers for each of {n_studies:,} studies are {places:,} assignments; the {able} readers can"
            f" take {offered:,}, at most {most} each and no study twice: {places - offered:,} are missing"
        )
    level = 0
    while sum(min(limit, level + 1) for limit in limits.values()) <= places and level < n_studies:
        level += 1
    load = {name: min(limit, level) for name, limit in limits.items()}
    able_to_more = [name for name, limit in limits.items() if limit > level]
    rest = places - sum(load.values())
    for i in rng.permutation(len(able_to_more))[:rest]:
        load[able_to_more[i]] += 1
    return load


def _swap(study: IntArray, reader: IntArray, rng: np.random.Generator) -> None:
    """Swap studies between assignments, in place; see :func:`draw_assignment`."""
    n = len(study)
    if n < 2:
        return
    studies, readers = study.tolist(), reader.tolist()
    pairs = set(zip(studies, readers, strict=True))
    for a, b in rng.integers(0, n, (SWAPS_PER_PLACE * n, 2)).tolist():
        one, other = (studies[b], readers[a]), (studies[a], readers[b])
        if one in pairs or other in pairs:
            continue
        pairs -= {(studies[a], readers[a]), (studies[b], readers[b])}
        pairs |= {one, other}
        studies[a], studies[b] = studies[b], studies[a]
    study[:] = studies


@dataclass(frozen=True, slots=True)
class Reassigned:
    """The new `assignments`, by reader and position, and the studies that lack readers, once per missing reader."""

    assignments: tuple[Assignment, ...]
    missing: tuple[str, ...]
    n_moved: int
    """Number of assignments that moved from one reader to another."""


def reassign(
    assignments: Iterable[Assignment],
    votes: Collection[tuple[str, str]],
    capacities: Mapping[str, int],
    stopped: Collection[str],
    rng: np.random.Generator,
    *,
    most: int = MOST,
) -> Reassigned:
    """Move the unread studies of `stopped` readers to others.

    Each open assignment goes to the reader with the most free capacity among readers without the study (ties at
    random). If no such reader has free capacity, unread studies move along the shortest chain of readers that ends at
    one with free capacity. Therefore as many assignments as possible find a reader. A reader's remaining studies keep
    their order; new ones follow in random order. Positions are renumbered from 1 if a study was removed.

    Parameters
    ----------
    assignments : the current assignments
    votes : (study_id, reader) of every vote already cast; each must be in `assignments`
    capacities : reader -> total studies, including those already read; capacities may rise and readers be added
    stopped : readers who read no further studies
    most : maximum studies per reader

    Raises
    ------
    ValueError
        If a vote has no assignment, a reader is neither in `capacities` nor in `stopped`, or a name is unknown.
    """
    before = sorted(assignments, key=lambda one: (one.reader, one.position))
    world = _Assignments(before, votes, capacities, stopped, most)
    unread = [(one.study_id, one.reader) for one in before if one.reader in stopped]
    freed = sorted(study for study, reader in unread if (study, reader) not in world.fixed)
    for study, reader in unread:
        if (study, reader) not in world.fixed:
            world.of_study[study].discard(reader)
            world.of_reader[reader].discard(study)
    missing = [study for study in (freed[i] for i in rng.permutation(len(freed))) if not world.place(study, rng)]
    after = _listed(before, world.of_reader, rng)
    moved = {(one.study_id, one.reader) for one in after} - {(one.study_id, one.reader) for one in before}
    return Reassigned(tuple(after), tuple(sorted(missing)), len(moved))


class _Assignments:
    """The studies of each reader; `fixed` contains the (study, reader) pairs already read."""

    def __init__(
        self,
        assignments: Sequence[Assignment],
        votes: Collection[tuple[str, str]],
        capacities: Mapping[str, int],
        stopped: Collection[str],
        most: int,
    ) -> None:
        names = {one.reader for one in assignments}
        unknown = sorted(set(stopped) - names - set(capacities)) or sorted(names - set(capacities) - set(stopped))
        if unknown:
            rule = "must have every reader who continues, and `stopped` must be known readers"
            raise ValueError(f"`capacities` {rule}, got {unknown[0]!r}")
        self.fixed = set(votes)
        stray = sorted(self.fixed - {(one.study_id, one.reader) for one in assignments})
        if stray:
            raise ArgumentError("votes", "must be for assigned studies", f"{stray[0][0]!r} of {stray[0][1]!r}")
        self.active = [name for name in sorted(capacities) if name not in stopped]
        self.limits = {name: min(capacities[name], most) for name in self.active}
        self.of_reader: dict[str, set[str]] = {name: set() for name in sorted(names | set(capacities))}
        self.of_study: dict[str, set[str]] = {}
        for one in assignments:
            self.of_reader[one.reader].add(one.study_id)
            self.of_study.setdefault(one.study_id, set()).add(one.reader)

    def room(self, reader: str) -> int:
        return self.limits[reader] - len(self.of_reader[reader])

    def place(self, study: str, rng: np.random.Generator) -> bool:
        """Find a reader for a study, moving unread studies if necessary: shortest augmenting path, breadth first."""
        came_from: dict[str, tuple[str, str]] = {}  # study -> (study that replaces it, the reader who swaps)
        queue = deque([study])
        tried: set[str] = set()
        while queue:
            here = queue.popleft()
            others = [self.active[i] for i in rng.permutation(len(self.active))]
            others = [reader for reader in others if reader not in self.of_study[here]]
            if others:
                reader = max(others, key=self.room)  # ties: the first
                if self.room(reader) > 0:
                    self._move(study, here, reader, came_from)
                    return True
            for reader in others:
                if reader in tried:  # this reader's studies are already in the queue
                    continue
                tried.add(reader)
                for there in sorted(self.of_reader[reader]):
                    if (there, reader) not in self.fixed and there != study and there not in came_from:
                        came_from[there] = (here, reader)
                        queue.append(there)
        return False

    def _move(self, start: str, last: str, reader: str, came_from: Mapping[str, tuple[str, str]]) -> None:
        """Move `last` to `reader`, its predecessor to the reader that had `last`, and so on."""
        while True:
            self.of_reader[reader].add(last)
            self.of_study[last].add(reader)
            if last == start:
                return
            previous, at = came_from[last]
            self.of_reader[at].discard(last)
            self.of_study[last].discard(at)
            last, reader = previous, at


def _listed(
    before: Sequence[Assignment], of_reader: Mapping[str, set[str]], rng: np.random.Generator
) -> list[Assignment]:
    """Return assignments in order: a reader's earlier studies, then the new ones at random."""
    old: dict[str, list[str]] = {reader: [] for reader in of_reader}
    for one in before:
        if one.study_id in of_reader[one.reader]:
            old[one.reader].append(one.study_id)
    after = []
    for reader, listed in old.items():
        new = sorted(of_reader[reader] - set(listed))
        own = [*listed, *(new[i] for i in rng.permutation(len(new)))]
        after += [Assignment(reader, position, study) for position, study in enumerate(own, start=1)]
    return after
