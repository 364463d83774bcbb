"""Orders to a running process under test: whether it may take jobs, and where it dies.

Conventions
-----------
A *point* is a named place in the life of a submission, see :data:`WORKER_POINTS` and :data:`SERVER_POINTS`. Orders are
in a file that the process reads whenever it passes a point. It writes its actions to a second file before it dies.
Only the standard library is imported here: a server confines itself before anything else is loaded.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

WORKER_POINTS = (
    "before-claim-commit",
    "after-claim",
    "parse-start",
    "mid-parse",
    "parsed",
    "mid-score",
    "rows-half-kept",
    "scored",
    "before-finish-commit",
    "after-finish",
    "mid-rank",
    "before-rank-commit",
)
"""Points of a worker in the order in which a job passes them; a child is at work at those that begin with "mid".

A worker parses only what the server kept no predictions of: see :attr:`Orders.keeps_nothing`.
"""

SERVER_POINTS = (
    "mid-upload",
    "mid-receive",
    "parsed",
    "before-blob-kept",
    "blob-kept",
    "before-predictions-kept",
    "predictions-kept",
    "before-submission-commit",
    "after-submission",
)
"""The first is met on the way from the client, the others while the server handles what came."""

EACH_STATE = (
    "before-claim-commit",
    "mid-parse",
    "mid-score",
    "rows-half-kept",
    "before-finish-commit",
    "after-finish",
    "mid-rank",
    "before-rank-commit",
    "mid-receive",
    "before-predictions-kept",
    "before-submission-commit",
    "after-submission",
)
"""One for each state that a kill can leave in the database, on disk or in the children. The others leave the same:
after-claim, parse-start and a worker's parsed as mid-parse; scored as before-finish-commit; mid-upload, a server's
parsed and before-blob-kept as mid-receive; blob-kept as before-predictions-kept; predictions-kept as
before-submission-commit."""

AT_THE_DATABASE = ("before-claim-commit", "before-finish-commit", "before-submission-commit")
"""Those with a transaction open; what a kill leaves at the others does not depend on the kind of database."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Current orders to a process: whether it may take jobs, and where it dies.

    Attributes
    ----------
    number : of the orders; others mean that passages are counted anew
    is_held : take no jobs
    point, nth, delay : where to die: at the n-th passage of the point, after so many seconds
    target : who dies: "self"; "child" or "template" of the children, at a point in the middle; "stop": SIGSTOP to self
    keeps_nothing : be a server from before predictions were kept: of uploads, the files alone
    """

    number: int = 0
    is_held: bool = False
    point: str = ""
    nth: int = 1
    delay: float = 0.0
    target: str = "self"
    keeps_nothing: bool = False


class Desk:
    """The folder through which a test and a process under test speak."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._orders, self._done = folder / "orders.json", folder / "done"

    def give(self, orders: Orders) -> None:
        """Replace the orders; the process sees the old ones or the new ones."""
        draft = self._orders.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(orders)), encoding="utf-8")
        os.replace(draft, self._orders)

    def orders(self) -> Orders:
        """The present orders."""
        return Orders(**json.loads(self._orders.read_text(encoding="utf-8")))

    def report(self, number: int) -> None:
        """Say that these orders are carried out in this moment."""
        self._done.write_text(str(number), encoding="utf-8")

    def is_done(self, number: int) -> bool:
        """Return True if these orders were carried out."""
        return self._done.exists() and self._done.read_text(encoding="utf-8") == str(number)
