"""JSON that loses nothing: a key that is repeated in an object is an error, where most readers keep the last value."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

__all__ = ["parse_json"]


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises
    ------
    ValueError
        If it is no JSON, or an object in it has a key twice.
    RecursionError
        If it is nested too deeply.

    Examples
    --------
    >>> parse_json('[{"a": 1}, {"a": 2}]')
    [{'a': 1}, {'a': 2}]
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is repeated in one object
    """
    return json.loads(text, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r} is repeated in one object")
    return made
