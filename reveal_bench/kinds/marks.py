"""Marks of predictions: by what two files are found to be the same, or nearly so. No reference has a part in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Item", "Marks", "exact"]

Item = tuple[Any, ...]
"""JSON values."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Of checked predictions.

    Attributes
    ----------
    answers : all that is scored, to the last bit and in one order
    items : the answers coarsely: (id, finding, answer)
    """

    answers: list[Item]
    items: set[Item]


def exact(number: float) -> str:
    """All bits of a number; zero has one sign."""
    return (float(number) + 0.0).hex()
