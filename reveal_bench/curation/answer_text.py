"""A model's answer -> the one JSON object in it, held to a schema.

Conventions
-----------
Packaging does not matter: a code fence, prose before and after, a leading ``<think>`` block, the same object twice.
Everything else does: two different objects, one that is cut off or broken, a key twice, and whatever the schema does
not allow are an :class:`AnswerError`, whose message tells the model what to do better. Nothing is repaired.

The schemas use a few words of JSON Schema: type, properties, required, additionalProperties, items, enum, minItems.
A word that is not among them is an error here, so that none is quietly ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

__all__ = ["AnswerError", "check_schema", "only_object"]

MOST_CHARACTERS = 200_000
THINKING = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
LOOKS_LIKE_JSON = re.compile(r'\{\s*["}]')
TYPES: dict[str, type | tuple[type, ...]] = {"object": dict, "array": list, "string": str, "null": type(None)}
WORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "minItems"}


class AnswerError(ValueError):
    """An answer is not what was asked for."""


def only_object(text: str) -> dict[str, Any]:
    """The one JSON object in a model's answer.

    Raises
    ------
    AnswerError
        If there is none, it is cut off or broken, or there are two that differ.

    Examples
    --------
    >>> only_object('Here it is: {"labels": []}. Anything else?')
    {'labels': []}
    """
    if len(text) > MOST_CHARACTERS:
        raise AnswerError(f"the answer must have at most {MOST_CHARACTERS:,} characters, got {len(text):,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AnswerError("the answer must be Unicode text, got half of a surrogate pair") from None
    text = THINKING.sub("", text, count=1) if THINKING.match(text) else text
    if not text.strip():
        raise AnswerError("the answer must be a JSON object, got nothing")
    if (bare := text.strip()).startswith("[") and bare.endswith("]"):
        raise AnswerError("the answer must be a JSON object, got a list")
    found: dict[str, dict[str, Any]] = {}
    for piece in _braced(text):
        if LOOKS_LIKE_JSON.match(piece):
            value = _decoded(piece)
            found[json.dumps(value, sort_keys=True)] = value
    if not found:
        raise AnswerError("the answer must hold a JSON object, got none")
    if len(found) > 1:
        raise AnswerError(f"the answer must hold one JSON object, got {len(found)} different ones")
    return next(iter(found.values()))


def check_schema(value: Any, schema: Mapping[str, Any], place: str = "the answer") -> None:
    """Hold a value to a schema.

    Raises
    ------
    AnswerError
        Naming the place, the rule and the value got.
    """
    unknown = set(schema) - WORDS
    if unknown:
        raise ValueError(f"schemas here use {', '.join(sorted(WORDS))}, got {', '.join(sorted(unknown))}")
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) for kind in kinds):
        raise AnswerError(f"{place} must be {' or '.join(kinds)}, got {_shown(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise AnswerError(f"{place} must be one of {_shown(list(schema['enum']), 1000)}, got {_shown(value)}")
    if isinstance(value, dict):
        _check_object(value, schema, place)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            raise AnswerError(f"{place} must have at least {schema['minItems']} items, got {len(value)}")
        for i, item in enumerate(value):
            check_schema(item, schema.get("items", {}), f"{place}[{i}]")


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], place: str) -> None:
    known: Mapping[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        raise AnswerError(f"{place} must have the keys {', '.join(map(repr, known))}, got no {missing[0]!r}")
    extra = [name for name in value if name not in known]
    if extra and schema.get("additionalProperties") is False:
        raise AnswerError(f"{place} must have no keys but {', '.join(map(repr, known))}, got {_shown(extra[0])}")
    for name, inner in known.items():
        if name in value:
            check_schema(value[name], inner, name if place == "the answer" else f"{place}.{name}")


def _braced(text: str) -> Iterator[str]:
    """The outermost pieces between matching braces; braces in the strings of such a piece do not count."""
    start, depth, in_string, escaped = 0, 0, False, False
    for i, character in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == "{":
            start = i if depth == 0 else start
            depth += 1
        elif depth and character == '"':
            in_string = True
        elif depth and character == "}":
            depth -= 1
            if depth == 0:
                yield text[start : i + 1]
    if depth:
        raise AnswerError("the answer must hold a whole JSON object, got one that is cut off or has no closing brace")


def _decoded(piece: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = [key for key in keys if keys.count(key) > 1] if len(set(keys)) < len(keys) else []
        if twice:
            raise AnswerError(f"a JSON object must have each key once, got {_shown(twice[0])} again")
        return dict(pairs)

    def no_number(name: str) -> NoReturn:
        raise AnswerError(f"the answer must be JSON, got {name}, which is no JSON")

    try:
        value: dict[str, Any] = json.loads(piece, object_pairs_hook=once, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise AnswerError(f"the answer must be JSON, got a mistake at character {error.pos}: {error.msg}") from None
    except (RecursionError, ValueError) as error:  # a number of thousands of digits
        if isinstance(error, AnswerError):
            raise
        raise AnswerError("the answer must be plain JSON, got one that is nested too deeply or too large") from None
    return value


def _shown(value: Any, most: int = 120) -> str:
    """A value as the message shows it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[:most] + "..."
