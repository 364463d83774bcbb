"""Schemas of other projects, typed in from their own documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}

EVAL_RESULTS: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["dataset", "value"],
        "additionalProperties": False,
        "properties": {
            "dataset": {
                "type": "object",
                "required": ["id", "task_id"],
                "additionalProperties": False,
                "properties": {"id": _TEXT, "task_id": _TEXT, "revision": _TEXT},
            },
            "value": {"type": "number"},
            "verifyToken": _TEXT,
            "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?$"},
            "source": {
                "type": "object",
                "required": ["url"],
                "additionalProperties": False,
                "properties": {"url": _TEXT, "name": _TEXT, "user": _TEXT, "org": _TEXT},
            },
            "evaluation_framework": _TEXT,
            "notes": _TEXT,
        },
    },
}
"""``.eval_results/*.yaml`` as docs/hub/eval-results.md of hub-docs has it; the same fields are required."""


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _closed(schema: Any) -> Any:
    """The schema with every object closed whose properties it lists, so that no name in it can be misspelt."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


_REGISTRY = Path(__file__).parent / "every_eval_ever"
EVERY_EVAL_EVER: dict[str, Any] = _closed(json.loads((_REGISTRY / "eval.schema.json").read_text(encoding="utf-8")))
"""``eval.schema.json`` of every-eval-ever 0.3.0 (MIT, see the LICENSE beside it), closed."""
CASE: dict[str, Any] = _closed(json.loads((_REGISTRY / "instance_level_eval.schema.json").read_text(encoding="utf-8")))
"""``instance_level_eval.schema.json`` of the same, closed."""

_PEOPLE: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            _object("", **{"family-names": _TEXT, "given-names": _TEXT})
            | {"minProperties": 1, "additionalProperties": False},
            _object("name", name=_TEXT) | {"additionalProperties": False},
        ]
    },
}
_ENTITY = _object("name", name=_TEXT) | {"additionalProperties": False}
_WORK = _object(
    "authors title type", authors=_PEOPLE, title=_TEXT, type={"enum": ["article", "conference-paper", "generic"]},
    year={"type": "integer"}, url={"type": "string", "format": "uri", "pattern": "^(https|http|ftp|sftp)://.+"},
    doi={"type": "string", "pattern": r"^10\.\d{4,9}(\.\d+)?/[A-Za-z0-9:/_;\-\.\(\)\[\]\\]+$"}, journal=_TEXT,
    conference=_ENTITY, publisher=_ENTITY, volume={"type": ["string", "integer"]}, issue=_TEXT,
    start={"type": ["string", "integer"]}, end={"type": ["string", "integer"]},
) | {"additionalProperties": False}  # fmt: skip

CITATION: dict[str, Any] = _object(
    "authors cff-version message title",
    **{
        "cff-version": {"const": "1.2.0"}, "message": _TEXT, "title": _TEXT, "abstract": _TEXT, "version": _TEXT,
        "type": {"enum": ["dataset", "software"]}, "authors": _PEOPLE, "license": {"enum": ["Apache-2.0", "CC-BY-4.0"]},
        "license-url": {"type": "string", "pattern": "^(https|http|ftp|sftp)://.+"},
        "keywords": {"type": "array", "minItems": 1, "items": _TEXT}, "preferred-citation": _WORK,
        "references": {"type": "array", "minItems": 1, "items": _WORK},
    },
) | {"additionalProperties": False}  # fmt: skip
"""``schema.json`` of citation-file-format 1.2.0: the fields that our files have, which are closed there as well."""
