"""What single readers said of the cases of a split: as references of their own, and as answers beside a system's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ReadKind", "Readings"]

Readings = Mapping[str, Mapping[str, Any]]
"""Reader -> key of a record -> what that reader said of it, in a form that the kind alone looks into."""


class ReadKind:
    """How single readers' words are made references and answers; a kind whose datasets keep none leaves it."""

    def readings(self, folder: Path, split: str, records: Sequence[Any]) -> Readings:
        """What single readers said of `records`; empty where the folder keeps none."""
        return {}

    def agreed(self, record: Any, said: Sequence[Any], at_least: int) -> Any:
        """What at least so many of several readers said of `record`."""
        raise NotImplementedError

    def by_reading(self, record: Any, said: Any) -> Any:
        """`record` with what was said as its reference."""
        raise NotImplementedError

    def answers_of(self, record: Any, said: Any) -> list[Any]:
        """What was said as predictions."""
        raise NotImplementedError
