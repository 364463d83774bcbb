"""What may be told of a split whose references are private: the columns that `Kind.blank` leaves as they are.

The rule is taken from `Kind.blank` itself, so what a builder writes as an input and what is refused in one cannot part.
A column that the kind of benchmark does not have must be empty too: nobody knows what it tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reveal_bench.dataset.tables import IDS, DatasetFolder
from reveal_bench.kinds.rows import Row

__all__ = ["InputRule", "input_rule"]

HASHES = ("source_sha256", "pixel_sha256")


@dataclass(frozen=True)
class InputRule:
    """What a row without references may hold.

    Attributes
    ----------
    blanked : columns that must be empty, with what an input has there (a code may stand for "unknown")
    known : columns that may hold something
    """

    blanked: Mapping[str, Any]
    known: frozenset[str]

    def faults(self, row: Row) -> Iterator[str]:
        """Columns of the row, or dotted places in them, that hold something which is no input."""
        for name, value in row.items():
            if name in self.known:
                yield from _hashes_in(name, value)
            elif not is_empty(value) and value != self.blanked.get(name):
                yield name


def input_rule(folder: DatasetFolder) -> InputRule:
    """The rule for the folder's kind of benchmark."""
    kind = folder.kind
    blanked = kind.blank({"image_facts": [], "prior_image_facts": []})
    facts = {"image_facts", "prior_image_facts"}
    columns = {*kind.features(folder.benchmark), *kind.manifest_schema().names, *IDS}
    empty = {name: value for name, value in blanked.items() if name not in facts}
    return InputRule(empty, frozenset(columns - empty.keys()))


def _hashes_in(column: str, value: Any) -> Iterator[str]:
    """Dotted names of the hashes that are told in the facts of pictures."""
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            yield from (f"{column}.{name}" for name in HASHES if entry.get(name) is not None)


def is_empty(value: object) -> bool:
    """Whether nothing is told by a value, at any depth."""
    if isinstance(value, dict):
        return all(is_empty(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_empty(inner) for inner in value)
    return value is None or value == ""
