"""Schemas of other projects, typed in from their own documents."""

from __future__ import annotations

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


_SOURCES = [
    _object("dataset_name source_type url", dataset_name=_TEXT, source_type={"const": "url"}, url={"type": "array"}),
    _object(
        "dataset_name source_type", dataset_name=_TEXT, source_type={"const": "hf_dataset"}, hf_repo=_TEXT,
        hf_split=_TEXT, samples_number={"type": "integer"}, additional_details=_TEXTS,
    ),
    _object("dataset_name source_type", dataset_name=_TEXT, source_type={"const": "other"}, additional_details=_TEXTS),
]  # fmt: skip

_METRIC = _object(
    "lower_is_better", evaluation_description=_TEXT, metric_id=_TEXT, metric_name=_TEXT, metric_kind=_TEXT,
    metric_unit=_TEXT, lower_is_better={"type": "boolean"}, score_type={"enum": ["binary", "continuous", "levels"]},
    min_score={"type": "number"}, max_score={"type": "number"}, additional_details=_TEXTS,
) | {
    "if": {"properties": {"score_type": {"const": "levels"}}},
    "then": {"required": ["level_names", "has_unknown_level"]},
    "else": {
        "if": {"properties": {"score_type": {"const": "continuous"}}},
        "then": {"required": ["min_score", "max_score"]},
    },
}  # fmt: skip

_NUMBER: dict[str, Any] = {"type": "number"}
_UNCERTAINTY = _object(
    "",
    standard_error=_object("value", value=_NUMBER, method=_TEXT),
    confidence_interval=_object(
        "lower upper", lower=_NUMBER, upper=_NUMBER, method=_TEXT,
        confidence_level={"type": "number", "minimum": 0, "maximum": 1},
    ),
    standard_deviation=_NUMBER, num_samples={"type": "integer"}, num_bootstrap_samples={"type": "integer"},
) | {"additionalProperties": False}  # fmt: skip

EVERY_EVAL_EVER: dict[str, Any] = _object(
    "schema_version evaluation_id retrieved_timestamp source_metadata model_info eval_library evaluation_results",
    schema_version={"const": "0.2.2"},
    evaluation_id=_TEXT,
    evaluation_timestamp=_TEXT,
    retrieved_timestamp={"type": "string", "pattern": r"^\d+$"},
    source_metadata=_object(
        "source_type source_organization_name evaluator_relationship", source_name=_TEXT,
        source_type={"enum": ["documentation", "evaluation_run"]}, source_organization_name=_TEXT,
        source_organization_url=_TEXT, source_organization_logo_url=_TEXT,
        evaluator_relationship={"enum": ["first_party", "third_party", "collaborative", "other"]},
        additional_details=_TEXTS,
    ),
    eval_library=_object("name version", name=_TEXT, version=_TEXT, additional_details=_TEXTS),
    model_info=_object("name id", name=_TEXT, id=_TEXT, developer=_TEXT, additional_details=_TEXTS),
    evaluation_results={
        "type": "array",
        "items": _object(
            "evaluation_name source_data metric_config score_details", evaluation_result_id=_TEXT,
            evaluation_name=_TEXT, source_data={"oneOf": _SOURCES}, evaluation_timestamp=_TEXT, metric_config=_METRIC,
            score_details=_object("score", score=_NUMBER, details=_TEXTS, uncertainty=_UNCERTAINTY),
        ),
    },
    detailed_evaluation_results={"type": "object"},
) | {"additionalProperties": False}  # fmt: skip
"""``eval.schema.json`` of evaleval/every_eval_ever, version 0.2.2: what a record of ours can have of it, required as
there. Uncertainty is closed here, so that no name in it can be misspelt."""

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
