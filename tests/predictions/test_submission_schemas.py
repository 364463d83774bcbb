"""The schemas in `submissions/schema` accept the examples and refuse a malformed line for each rule."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped, unused-ignore]

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS, REVEAL_LABELS
from reveal_bench.geometry import MAX_CELLS, Grid

SUBMISSIONS = Path(__file__).resolve().parents[2] / "submissions"
EXAMPLES = SUBMISSIONS / "examples"
SCHEMAS: dict[str, Any] = {
    name: json.loads((SUBMISSIONS / "schema" / f"{name}.schema.json").read_text(encoding="utf-8"))
    for name in ("localization", "detection", "findings", "tasks", "submission", "reference")
}
EXAMPLE_SCHEMAS = {
    "localization.jsonl": "localization",
    "detection.jsonl": "detection",
    "findings.jsonl": "findings",
    "findings_probabilities.jsonl": "findings",
    "tasks.jsonl": "tasks",
    "submission.json": "submission",
}
KINDS = ("point", "points", "cell", "box", "rle", "polygons")

PAIR = {"image_id": "phantom00001_study1_view1_frontal", "finding": "Edema"}
POINT = {**PAIR, "point": [1, 2]}
STUDY = {"study_id": "phantom00001_study1"}
TASK = {"task_id": "phantom_task_0001", "answer": "No change."}
DETECTION = {**PAIR, "box": [1, 2, 3, 4], "score": 0.5}
BOX = {"image_id": "phantom00001_study1_view1_frontal", "label": "tube", "box": [1, 2, 3, 4]}
META = {"model": {"name": "M"}, "organization": "O", "kind": "cnn"}


def validate(schema: str, value: object) -> None:
    Draft202012Validator(SCHEMAS[schema]).validate(value)


def read(name: str) -> list[Any]:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    return [json.loads(text)] if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def subschemas(schema: object, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object inside a schema with its path, the schema itself first."""
    if isinstance(schema, dict):
        yield path, schema
    children = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, child in children:
        yield from subschemas(child, f"{path}/{key}")


def changed(value: dict[str, Any], place: tuple[str | int, ...], new: object) -> dict[str, Any]:
    """Return a copy of `value` with `new` at `place`."""
    copied = copy.deepcopy(value)
    part: Any = copied
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = new
    return copied


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_well_formed_closed_bounded_and_described(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for place, part in subschemas(SCHEMAS[name]):
        if part.get("type") == "object":
            assert "additionalProperties" in part, f"{place} is open"
        if part.get("type") == "string" and not place.endswith("/not") and place != "#/then/properties/prompt_style":
            assert "maxLength" in part, f"{place} has no length limit"
        if part.get("type") == "array":
            assert "maxItems" in part, f"{place} has no length limit"
        if place.startswith(("#/if", "#/then", "#/else", "#/properties/source/oneOf")):
            continue
        for key, child in part.get("properties", {}).items():
            if place.endswith("/properties"):
                continue  # the properties table itself, where a property is named "properties"
            assert child.get("description"), f"{place}/properties/{key} has no description"


def test_schema_vocabularies_agree_with_the_package() -> None:
    assert tuple(SCHEMAS["reference"]["$defs"]["finding"]["enum"]) == CHEXLOCALIZE_FINDINGS
    assert SCHEMAS["submission"]["properties"]["grid"]["maximum"] == MAX_CELLS
    for cell in Grid(MAX_CELLS).cells:
        validate("localization", {**PAIR, "cell": cell})


def test_every_example_is_listed_and_valid() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == set(EXAMPLE_SCHEMAS)
    for name, schema in EXAMPLE_SCHEMAS.items():
        for row in read(name):
            validate(schema, row)


def test_examples_show_every_kind_of_prediction() -> None:
    rows = read("localization.jsonl")
    assert {key for row in rows for key in row if key in KINDS} == set(KINDS)
    assert len({(row["image_id"], row["finding"]) for row in rows}) == len(rows)
    drawn = read("detection.jsonl")
    assert {key for row in drawn for key in row if key in KINDS} == set(KINDS) - {"points", "cell"}
    assert len({(row["image_id"], row["finding"]) for row in drawn}) < len(drawn)
    assert all(set(row["probabilities"]) == set(REVEAL_LABELS) for row in read("findings_probabilities.jsonl"))
    assert any(row["labels"] == [] for row in read("findings.jsonl"))
    assert any(row.get("boxes") for row in read("tasks.jsonl"))
    assert set(read("submission.json")[0]) == set(SCHEMAS["submission"]["properties"])


def test_example_masks_are_coco_run_lengths() -> None:
    coco = pytest.importorskip("pycocotools.mask")
    masks = [row["rle"] for row in read("localization.jsonl") if "rle" in row]
    # The first mask is an ellipse, the second two discs that do not meet, of radius 8 (197 pixels, by the Gauss circle
    # problem) and 7 (149).
    ellipse = sum(((x - 18) / 14) ** 2 + ((y - 74) / 10) ** 2 <= 1 for x in range(80) for y in range(96))
    assert [mask["size"] for mask in masks] == [[96, 80], [96, 80]]
    assert [int(coco.area(mask)) for mask in masks] == [ellipse, 197 + 149]
    assert [coco.merge([mask])["counts"].decode() for mask in masks] == [mask["counts"] for mask in masks]


GOOD = [
    ("localization", {**PAIR, "points": [[0, 0], [5.5, 6]], "cell": "AB12", "score": 0}),
    ("localization", {**POINT, "rle": {"size": [1, 1], "counts": "01"}, "polygons": [[[0, 0], [1, 0], [1, 1]]]}),
    ("detection", {**PAIR, "point": [1, 2], "score": 1}),
    ("findings", {**STUDY, "probabilities": {"COPD": 1}}),
    ("tasks", {**TASK, "answer": "Two\nlines\twith a tab."}),
    *[
        (kind, {**question, "abstain": True})
        for kind, question in (("localization", PAIR), ("findings", STUDY), ("tasks", {"task_id": "t"}))
    ],
    ("submission", META),
    ("submission", {**META, "kind": "human_reader", "prompt_style": None, "thresholds": 0.3, "grid": 16}),
    ("submission", {**META, "parameters": {"seed": 1, "stream": False, "effort": "high", "stop": None}}),
]


@pytest.mark.parametrize(("schema", "value"), GOOD)
def test_good_value_is_accepted(schema: str, value: object) -> None:
    validate(schema, value)


BAD = [
    *[
        (kind, {**question, "abstain": True}, "too many properties|is valid under each of")
        for kind, question in (("localization", POINT), ("findings", {**STUDY, "labels": []}), ("tasks", TASK))
    ],
    # localization
    ("localization", PAIR, r"is not valid under any of the given schemas|is a required property"),
    ("localization", {"finding": "Edema", "point": [1, 2]}, r"'image_id' is a required property"),
    ("localization", {"image_id": "a", "point": [1, 2]}, r"'finding' is a required property"),
    ("localization", {**POINT, "points": [[1, 2]]}, r"should not be valid under"),
    ("localization", {**POINT, "confidence": 0.5}, r"'confidence' was unexpected"),
    ("localization", {**POINT, "score": 1.5}, r"1\.5 is greater than the maximum of 1"),
    ("localization", {**POINT, "score": -0.5}, r"-0\.5 is less than the minimum of 0"),
    ("localization", {**POINT, "score": "0.5"}, r"'0\.5' is not of type 'number'"),
    ("localization", {**PAIR, "point": [1]}, r"\[1\] is too short"),
    ("localization", {**PAIR, "point": [1, 2, 3]}, r"expected at most 2|is too long"),
    ("localization", {**PAIR, "point": [-1, 2]}, r"-1 is less than the minimum of 0"),
    ("localization", {**PAIR, "point": [1, float("inf")]}, r"inf is greater than the maximum"),
    ("localization", {**PAIR, "point": [True, 2]}, r"True is not of type 'number'"),
    ("localization", {**PAIR, "point": None}, r"None is not of type 'array'"),
    ("localization", {**PAIR, "points": {"x": 1}}, r"is not of type 'array'"),
    ("localization", {**PAIR, "points": []}, r"should be non-empty"),
    ("localization", {**PAIR, "points": [[1, 2]] * 101}, r"is too long|expected at most 100"),
    ("localization", {**PAIR, "cell": "d5"}, r"'d5' does not match"),
    ("localization", {**PAIR, "cell": "D0"}, r"'D0' does not match"),
    ("localization", {**PAIR, "cell": "D05"}, r"'D05' does not match"),
    ("localization", {**PAIR, "cell": "ABC1"}, r"'ABC1' does not match"),
    ("localization", {**PAIR, "cell": "D123"}, r"'D123' does not match"),
    ("localization", {**PAIR, "cell": "D5\n"}, r"should not be valid under"),
    ("localization", {**PAIR, "box": [1, 2, 3]}, r"\[1, 2, 3\] is too short"),
    ("localization", {**PAIR, "box": [1, 2, 3, 4, 5]}, r"expected at most 4|is too long"),
    ("localization", {**PAIR, "box": [1, 2, 100001, 4]}, r"100001 is greater than the maximum"),
    ("localization", {**PAIR, "box": "1,2,3,4"}, r"'1,2,3,4' is not of type 'array'"),
    ("localization", {**PAIR, "box": [1, 2, 0, 4]}, r"0 is less than or equal to the minimum of 0"),
    ("localization", {**PAIR, "box": [-1, 2, 3, 4]}, r"-1 is less than the minimum of 0"),
    ("localization", {**PAIR, "rle": {"size": [0, 5], "counts": "1"}}, r"0 is less than the minimum of 1"),
    ("localization", {**PAIR, "rle": {"size": [5.5, 5], "counts": "1"}}, r"5\.5 is not of type 'integer'"),
    ("localization", {**PAIR, "rle": {"size": [5, 100001], "counts": "1"}}, r"100001 is greater than the maximum"),
    ("localization", {**PAIR, "rle": {"size": [5, 5, 1], "counts": "1"}}, r"expected at most 2|is too long"),
    ("localization", {**PAIR, "rle": {"size": 5, "counts": "1"}}, r"5 is not of type 'array'"),
    ("localization", {**PAIR, "rle": "i0"}, r"'i0' is not of type 'object'"),
    ("localization", {**PAIR, "rle": {"size": [5, 5], "counts": "0" * 1000001}}, r"is too long"),
    ("localization", {**PAIR, "rle": {"size": [5], "counts": "1"}}, r"\[5\] is too short"),
    ("localization", {**PAIR, "rle": {"size": [5, 5]}}, r"'counts' is a required property"),
    ("localization", {**PAIR, "rle": {"counts": "1"}}, r"'size' is a required property"),
    ("localization", {**PAIR, "rle": {"size": [5, 5], "counts": [25]}}, r"\[25\] is not of type 'string'"),
    ("localization", {**PAIR, "rle": {"size": [5, 5], "counts": "i0~"}}, r"'i0~' does not match"),
    ("localization", {**PAIR, "rle": {"size": [5, 5], "counts": ""}}, r"should be non-empty|does not match"),
    ("localization", {**PAIR, "rle": {"size": [5, 5], "counts": "i0", "order": "F"}}, r"'order' was unexpected"),
    ("localization", {**PAIR, "polygons": []}, r"should be non-empty"),
    ("localization", {**PAIR, "polygons": [[[0, 0], [1, 0], [1, 1]]] * 1001}, r"is too long|at most 1000"),
    ("localization", {**PAIR, "polygons": [[[0, 0]] * 100001]}, r"is too long|at most 100000"),
    ("localization", {**PAIR, "polygons": [[[0, 0], [1, 1]]]}, r"is too short"),
    ("localization", {**PAIR, "polygons": [[0, 0, 1, 0, 1, 1]]}, r"0 is not of type 'array'"),
    # detection
    ("detection", {**PAIR, "box": [1, 2, 3, 4]}, r"'score' is a required property"),
    ("detection", {**PAIR, "score": 0.5}, r"is not valid under any of the given schemas|is a required property"),
    ("detection", {**DETECTION, "cell": "D5"}, r"'cell' was unexpected"),
    ("detection", {**DETECTION, "points": [[1, 2]]}, r"'points' was unexpected"),
    # findings
    ("findings", STUDY, r"is not valid under any of the given schemas|is a required property"),
    ("findings", {"labels": []}, r"'study_id' is a required property"),
    ("findings", {**STUDY, "labels": [], "probabilities": {"COPD": 0.5}}, r"is valid under each of"),
    ("findings", {**STUDY, "labels": ["COPD", "COPD"]}, r"has non-unique elements"),
    ("findings", {**STUDY, "labels": [str(number) for number in range(101)]}, r"is too long|at most 100"),
    ("findings", {**STUDY, "labels": ["x" * 101]}, r"is too long"),
    ("findings", {**STUDY, "labels": [1]}, r"1 is not of type 'string'"),
    ("findings", {**STUDY, "labels": "COPD"}, r"'COPD' is not of type 'array'"),
    ("findings", {**STUDY, "labels": [""]}, r"should be non-empty"),
    ("findings", {**STUDY, "probabilities": {}}, r"should be non-empty"),
    ("findings", {**STUDY, "probabilities": {str(n): 0 for n in range(101)}}, r"has too many properties|at most 100"),
    ("findings", {**STUDY, "probabilities": {"": 0.5}}, r"should be non-empty"),
    ("findings", {**STUDY, "probabilities": [0.5]}, r"is not of type 'object'"),
    ("findings", {**STUDY, "probabilities": {"COPD": 2.3}}, r"2\.3 is greater than the maximum of 1"),
    ("findings", {**STUDY, "probabilities": {"COPD": -0.1}}, r"-0\.1 is less than the minimum of 0"),
    ("findings", {**STUDY, "probabilities": {"COPD": "0.5"}}, r"'0\.5' is not of type 'number'"),
    ("findings", {**STUDY, "probabilities": {"x" * 101: 0.5}}, r"is too long"),
    ("findings", {**STUDY, "labels": [], "view": "PA"}, r"'view' was unexpected"),
    # tasks
    ("tasks", {"answer": "No change."}, r"'task_id' is a required property"),
    ("tasks", {"task_id": "t"}, r"'answer' is a required property"),
    ("tasks", {**TASK, "boxes": [{**BOX, "box": [1, 2, 3, -4]}]}, r"-4 is less than or equal to the minimum of 0"),
    ("tasks", {**TASK, "boxes": [{"label": "tube", "box": [1, 2, 3, 4]}]}, r"'image_id' is a required property"),
    ("tasks", {**TASK, "boxes": [{**BOX, "score": 1}]}, r"'score' was unexpected"),
    ("tasks", {**TASK, "boxes": BOX}, r"is not of type 'array'"),
    ("tasks", {**TASK, "boxes": [[1, 2, 3, 4]]}, r"\[1, 2, 3, 4\] is not of type 'object'"),
    ("tasks", {**TASK, "boxes": [{**BOX, "box": [1, 2, 3]}]}, r"is too short"),
    ("tasks", {**TASK, "boxes": [{**BOX, "box": [-1, 2, 3, 4]}]}, r"-1 is less than the minimum of 0"),
    ("tasks", {**TASK, "boxes": [BOX] * 101}, r"is too long|expected at most 100"),
    ("tasks", {**TASK, "reasoning": "because"}, r"'reasoning' was unexpected"),
    # submission.json
    ("submission", {"organization": "O", "kind": "cnn"}, r"'model' is a required property"),
    ("submission", {"model": {"name": "M"}, "kind": "cnn"}, r"'organization' is a required property"),
    ("submission", {"model": {"name": "M"}, "organization": "O"}, r"'kind' is a required property"),
    ("submission", {**META, "model": {"version": "1"}}, r"'name' is a required property"),
    ("submission", {**META, "model": "M"}, r"'M' is not of type 'object'"),
    ("submission", {**META, "model": {"name": "M", "licence": "MIT"}}, r"'licence' was unexpected"),
    ("submission", {**META, "kind": "human"}, r"'human' is not one of"),
    ("submission", {**META, "prompt_style": "CoT"}, r"'CoT' is not one of"),
    ("submission", {**META, "grid": 0}, r"0 is less than the minimum of 1"),
    ("submission", {**META, "grid": 27}, r"27 is greater than the maximum of 26"),
    ("submission", {**META, "grid": "8"}, r"'8' is not of type 'integer'"),
    ("submission", {**META, "thresholds": 1.2}, r"1\.2 is greater than the maximum of 1|is not valid under any"),
    ("submission", {**META, "thresholds": {"COPD": -1}}, r"-1 is less than the minimum of 0|is not valid under any"),
    ("submission", {**META, "thresholds": {}}, r"should be non-empty|is not valid under any"),
    ("submission", {**META, "thresholds": {"": 0.5}}, r"should be non-empty|is not valid under any"),
    ("submission", {**META, "parameters": {str(n): 0 for n in range(51)}}, r"has too many properties|at most 50"),
    ("submission", {**META, "parameters": {"": 0}}, r"should be non-empty"),
    ("submission", {**META, "parameters": {"stop": "x" * 501}}, r"is too long|is not valid under any"),
    ("submission", {**META, "parameters": {"stop": ["a"]}}, r"is not valid under any of the given schemas"),
    ("submission", {**META, "links": {"code": "http://example.org"}}, r"does not match"),
    ("submission", {**META, "links": {"paper": "http://example.org"}}, r"does not match"),
    ("submission", {**META, "links": {"model": "http://example.org"}}, r"does not match"),
    ("submission", {**META, "links": ["https://example.org"]}, r"is not of type 'object'"),
    ("submission", {**META, "links": {"code": "javascript:alert(1)"}}, r"does not match"),
    ("submission", {**META, "links": {"code": "https://"}}, r"does not match"),
    ("submission", {**META, "links": {"code": "https://example.org/a b"}}, r"does not match"),
    ("submission", {**META, "links": {"demo": "https://example.org"}}, r"'demo' was unexpected"),
    ("submission", {**META, "rank": 1}, r"'rank' was unexpected"),
]


@pytest.mark.parametrize(("schema", "value", "message"), BAD)
def test_bad_value_is_refused(schema: str, value: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        validate(schema, value)


TEXTS = [
    ("localization", POINT, ("image_id",)),
    ("localization", POINT, ("finding",)),
    ("findings", {**STUDY, "labels": []}, ("study_id",)),
    ("tasks", TASK, ("task_id",)),
    ("tasks", TASK, ("answer",)),
    ("tasks", {**TASK, "boxes": [BOX]}, ("boxes", 0, "image_id")),
    ("tasks", {**TASK, "boxes": [BOX]}, ("boxes", 0, "label")),
    ("submission", META, ("model", "name")),
    ("submission", META, ("model", "version")),
    ("submission", META, ("organization",)),
    ("submission", META, ("training_data",)),
    ("submission", META, ("known_overlap",)),
    ("submission", META, ("contact",)),
]


@pytest.mark.parametrize(("schema", "good", "place"), TEXTS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"should be non-empty"),
        ("x" * 20001, r"is too long"),
        ("bell\x07", r"should not be valid under"),
        (7, r"7 is not of type 'string'"),
    ],
    ids=["empty", "too long", "control character", "number"],
)
def test_bad_text_is_refused(
    schema: str, good: dict[str, Any], place: tuple[str | int, ...], text: object, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        validate(schema, changed(good, place, text))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_only_an_object_is_accepted(schema: str) -> None:
    with pytest.raises(ValidationError, match=r"\[\] is not of type 'object'"):
        validate(schema, [])


def reference_row() -> dict[str, Any]:
    path = SUBMISSIONS / "reference" / "chexlocalize" / "000-gpt-5-zero-shot.json"
    row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return row


BAD_ROWS: list[tuple[tuple[str | int, ...], object, str]] = [
    (("schema",), 2, r"1 was expected"),
    (("benchmark",), "chexpert", r"'chexpert' is not one of"),
    (("split",), "train", r"'train' is not one of"),
    (("kind",), "human_reader", r"'human_reader' is not one of"),
    (("prompt_style",), "CoT", r"'CoT' is not one of"),
    (("prompt_style",), None, r"None is not of type 'string'"),
    (("source", "paper"), "0", r"'0' does not match"),
    (("source", "url"), "http://arxiv.org/abs/2509.18015", r"does not match"),
    (("source", "unit_printed"), "fraction", r"'percent' was expected|3 was expected|is not valid under any"),
    (("source", "digits_printed"), 2, r"2 is not one of"),
    (("repeats",), "002-Human.json", r"does not match|is not valid under any"),
    (("figures",), {}, r"should be non-empty"),
    (("figures", "grid_hit"), {"Edema": 0.639}, r"does not have enough properties"),
    (("figures", "grid_hit", "Edema"), -0.1, r"-0\.1 is less than the minimum of 0"),
    (("figures", "grid_hit", "Edema"), "0.639", r"'0\.639' is not of type 'number'"),
    (("notes",), "two\nlines", r"should not be valid under"),
    (("name",), "", r"should be non-empty"),
    (("protocol",), "x" * 2001, r"is too long"),
    (("source", "rank"), 1, r"'rank' was unexpected"),
    (("source",), {"paper": "000"}, r"is a required property"),
    (("printed_macro", "grid_hit"), {"value": 0.497}, r"is a required property"),
    (("printed_macro", "grid_hit", "value"), 49.7, r"49\.7 is greater than the maximum of 1"),
    (("figures", "grid_hit", "Edema"), 63.9, r"63\.9 is greater than the maximum of 1"),
    (("figures", "grid_hit", "Lung Opacity"), 0.372, r"'Lung Opacity' is not one of"),
    (("figures", "hit_rate"), reference_row()["figures"]["grid_hit"], r"'hit_rate' is not one of"),
    (("printed_macro", "hit_rate"), reference_row()["printed_macro"]["grid_hit"], r"'hit_rate' is not one of"),
    (("printed_macro", "grid_hit", "n_findings"), 8, r"8 is not one of"),
    (("printed_macro", "grid_hit", "low"), 0.4, r"'low' was unexpected"),
    (("rank",), 1, r"'rank' was unexpected"),
]


@pytest.mark.parametrize(("keys", "value", "message"), BAD_ROWS)
def test_bad_reference_row_is_refused(keys: tuple[str | int, ...], value: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        validate("reference", changed(reference_row(), keys, value))


@pytest.mark.parametrize("key", SCHEMAS["reference"]["properties"])
def test_reference_row_needs_every_key(key: str) -> None:
    row = reference_row()
    del row[key]
    with pytest.raises(ValidationError, match=rf"'{key}' is a required property"):
        validate("reference", row)


def test_only_language_models_have_a_prompt_style() -> None:
    with pytest.raises(ValidationError, match=r"'zero-shot' is not of type 'null'"):
        validate("reference", {**reference_row(), "kind": "cnn"})
