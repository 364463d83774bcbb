"""A submitter's metadata for a submission."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from reveal_leaderboard.store.metadata import MetadataError, read_metadata

from reveal_bench.kinds.options import Tuning
from tests.conftest import ROOT
from tests.leaderboard.conftest import METADATA


def read(**changes: object) -> dict[str, object]:
    return read_metadata(json.dumps({**METADATA, **changes})).model_dump()


def test_the_projects_example_passes() -> None:
    example = (ROOT / "submissions" / "examples" / "submission.json").read_text(encoding="utf-8")
    assert read_metadata(example).model.name == "Phantom Pointer"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "=cmd()",
        "<script>alert(1)</script>",
        "a" * 65,
        "\u0430dmin",  # Cyrillic a
        "abc\u202egnp.exe",  # right-to-left override
        "a\u200bb",  # zero width space
        "a\x00b",
        " ",
    ],
)
def test_a_name_that_deceives_is_refused(name: str) -> None:
    with pytest.raises(MetadataError, match=r"model\.name"):
        read(model={"name": name})


def test_a_compatibility_form_is_the_same_name() -> None:
    assert read(model={"name": "\uff27\uff30\uff34-5"})["model"] == {"name": "GPT-5", "version": None}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("links", {"code": "http://example.org"}),
        ("links", {"code": "javascript:alert(1)"}),
        ("links", {"code": 'https://example.org/"onmouseover="x'}),
        ("links", {"other": "https://example.org"}),
        ("kind", "robot"),
        ("prompt_style", "magic"),
        ("training_data", "a\x07b"),
        ("training_data", "x" * 4001),
        ("parameters", {"a": [1]}),
        ("unknown", 1),
        ("organization", None),
        ("grid", 99),
    ],
)
def test_a_malformed_field_is_named(field: str, value: object) -> None:
    with pytest.raises(MetadataError, match=field):
        read(**{field: value})


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 30_000, '{"model": NaN}', " " * 70_000])
def test_what_is_no_metadata_document_is_refused(text: str) -> None:
    with pytest.raises(MetadataError, match=r"metadata|model|organization"):
        read_metadata(text)


def test_every_fault_is_listed_at_once() -> None:
    with pytest.raises(MetadataError, match="kind") as caught:
        read(kind="robot", organization="<b>")
    assert {error["field"] for error in caught.value.errors} == {"kind", "organization"}


@pytest.mark.parametrize(
    ("field", "value", "named", "rule"),
    [
        ("parameters", {"a": [1]}, "parameters.a", "must be a text"),
        ("parameters", {"": 1}, "parameters..[key]", "at least 1 character"),
        ("thresholds", {"Edema": 2}, "thresholds", "must be a number from 0 to 1"),
        ("model", 3, "model", "must be an object"),
    ],
)
def test_a_fault_is_named_once_in_the_words_of_the_file(field: str, value: object, named: str, rule: str) -> None:
    """pydantic lists one fault for each type that a value may have, by names of its own."""
    with pytest.raises(MetadataError) as caught:
        read(**{field: value})
    (fault,) = caught.value.errors
    assert fault["field"] == named
    assert rule in fault["rule"]


def test_record_of_tuning_is_accepted_as_tune_writes_it() -> None:
    tuning = Tuning("reveal-cxr", "1.0.0", "val", 100, "highest F1", "val.jsonl", "ab" * 32)
    assert read(thresholds={"Edema": 0.3}, tuning=asdict(tuning))["tuning"] == asdict(tuning)
    with pytest.raises(MetadataError, match="tuning"):
        read(tuning=asdict(tuning) | {"path": "x"})
