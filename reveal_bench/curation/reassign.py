"""Readers who stop early: what they have not read goes to others, and no vote that was cast is touched.

The annotation page calls :func:`reassign` when a reader says that it was enough. Studies are handed to readers with
room; where that does not work out (the only reader with room knows the study already), studies that others have not
read yet move as well. What then has no reader cannot have one: the result names it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.curation.assign import MOST
from reveal_bench.curation.tables import Assignment

__all__ = ["Reassigned", "reassign"]


@dataclass(frozen=True, slots=True)
class Reassigned:
    """The new `assignments`, by reader and position, and the studies that lack a reader, once per reading missing."""

    assignments: tuple[Assignment, ...]
    missing: tuple[str, ...]
    n_moved: int
    """Readings that went from one reader to another."""


def reassign(
    assignments: Iterable[Assignment],
    votes: Collection[tuple[str, str]],
    capacities: Mapping[str, int],
    stopped: Collection[str],
    rng: np.random.Generator,
    *,
    most: int = MOST,
) -> Reassigned:
    """Hand what `stopped` readers have not read to others.

    Each reading without a reader goes to the reader with most room of those who do not have the study (at random among
    equals). If none of them has room, the shortest chain of unread studies is moved up that ends at a reader with room.
    So as many readings as possible find a reader. What a reader keeps stays in its order and place; what is new comes
    after it, in random order. Positions count from 1 again where something was taken out.

    Parameters
    ----------
    assignments : as they are
    votes : (study_id, reader) of every vote that was cast; all of them among the assignments
    capacities : reader -> studies in all, those read among them; here capacity may be raised, and readers be added
    stopped : readers who read nothing more
    most : no reader gets more

    Raises
    ------
    ValueError
        If a vote was not assigned, a reader is neither in `capacities` nor stopped, or nobody has this name.
    """
    before = sorted(assignments, key=lambda one: (one.reader, one.position))
    world = _Readings(before, votes, capacities, stopped, most)
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


class _Readings:
    """Who has which study; `fixed` are those that were read."""

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
            raise ValueError(
                f"`capacities` must have every reader who goes on, and nobody else stops, got {unknown[0]!r}"
            )
        self.fixed = set(votes)
        stray = sorted(self.fixed - {(one.study_id, one.reader) for one in assignments})
        if stray:
            raise ValueError(f"`votes` must be of studies that were assigned, got {stray[0][0]!r} of {stray[0][1]!r}")
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
        """Find a reader for a study, moving unread ones if need be: the shortest augmenting path, by breadth."""
        came_from: dict[str, tuple[str, str]] = {}  # study -> (study that takes its place, at this reader)
        queue = deque([study])
        tried: set[str] = set()
        while queue:
            here = queue.popleft()
            others = [self.active[i] for i in rng.permutation(len(self.active))]
            others = [reader for reader in others if reader not in self.of_study[here]]
            if others:
                reader = max(others, key=self.room)  # the first of equals
                if self.room(reader) > 0:
                    self._move(study, here, reader, came_from)
                    return True
            for reader in others:
                if reader in tried:  # its studies are in the queue already
                    continue
                tried.add(reader)
                for there in sorted(self.of_reader[reader]):
                    if (there, reader) not in self.fixed and there != study and there not in came_from:
                        came_from[there] = (here, reader)
                        queue.append(there)
        return False

    def _move(self, start: str, last: str, reader: str, came_from: Mapping[str, tuple[str, str]]) -> None:
        """`last` goes to `reader`, the one before it to where `last` was, and so on."""
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
    """Assignments in order: what a reader had, then what is new, at random."""
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
