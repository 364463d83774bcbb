"""Finding ids and texts in prose: without regard to case and to how lines are broken."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

__all__ = ["folded", "telling_ids", "told_ids"]

TOKEN = re.compile(r"[\w.+-]+")
PIECE = re.compile(r"[^\W_]+")
ID_CHARACTERS, ID_DIGITS = 4, 8
"""Least length of an id that is looked for; of one that is a mere number, which a size or a count may be by chance."""
PIECES = 24
"""An id is looked for in up to that many neighbouring pieces of a longer word, such as a file name."""


def folded(text: str) -> str:
    """The text in one case, with single spaces."""
    return " ".join(text.casefold().split())


def telling_ids(ids: Collection[str]) -> dict[str, str]:
    """Folded id -> id, of those that no one writes by chance: with a digit, and long enough."""
    return {
        name.casefold(): name
        for name in ids
        if len(name) >= (ID_DIGITS if name.isdigit() else ID_CHARACTERS) and any(c.isdigit() for c in name)
    }


def told_ids(text: str, ids: dict[str, str]) -> Iterator[str]:
    """Ids that stand in the text as a word, or as whole pieces of one; `ids` as of :func:`telling_ids`."""
    found = set()
    for token in set(TOKEN.findall(text.casefold())) if ids else ():
        if token in ids:
            found.add(ids[token])
            continue
        pieces = [match.span() for match in PIECE.finditer(token)]
        for i, (start, _) in enumerate(pieces):
            found.update(ids[part] for _, end in pieces[i : i + PIECES] if (part := token[start:end]) in ids)
    yield from sorted(found)
