"""Which benchmarks this server knows, and which version of each its board shows.

Conventions
-----------
A server is given the public folders of every version that it may show. Which one a board shows, and submissions go to,
stands in the database (table `boards`), so that all servers switch at the same moment; see
:mod:`reveal_leaderboard.boards.refresh`.
"""

from __future__ import annotations

from collections.abc import Iterable

from reveal_leaderboard.boards.published import Published
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.store import Store

__all__ = ["Catalogue", "UnknownBenchmarkError"]


class UnknownBenchmarkError(ValueError):
    """No such benchmark is served."""


class Catalogue:
    """The `published` benchmarks; the first version given of a new benchmark is the one its board starts with."""

    def __init__(self, store: Store, published: Iterable[Published]) -> None:
        self.store = store
        self._known: dict[tuple[str, str], Published] = {}
        for one in published:
            self._known[one.name, one.version] = one
        with store.write() as connection:
            for one in self._known.values():
                boards.register_version(connection, one.name, one.version, one.split, one.facts())
        self.names = tuple(dict.fromkeys(name for name, _ in self._known))

    def current(self, name: str) -> Published:
        """The version that the board of `name` shows.

        Raises
        ------
        UnknownBenchmarkError
            If `name` is not served, or not in that version.
        """
        if name in self.names:
            with self.store.read() as connection:
                board = boards.board(connection, name)
            known = None if board is None else self._known.get((name, board.version))
            if known is not None:
                return known
        raise UnknownBenchmarkError(f"This board serves: {', '.join(self.names)}.")

    def get(self, name: str, version: str) -> Published | None:
        """One version, if its public folder is here."""
        return self._known.get((name, version))

    def versions(self, name: str) -> list[Published]:
        """Every version that is here, in the order given."""
        return [one for (of, _), one in self._known.items() if of == name]
