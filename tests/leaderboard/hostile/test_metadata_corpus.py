"""Bad metadata: each document is refused with its fields named, or harmless wherever it comes out again."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from reveal_leaderboard.boards.exports import to_csv, to_parquet
from reveal_leaderboard.boards.standings import standings
from reveal_leaderboard.store.metadata import MAX_BYTES, Metadata, MetadataError, read_metadata
from reveal_leaderboard.web.api import documents
from reveal_leaderboard.web.pages.board_view import render
from reveal_leaderboard.web.pages.entry import entry_view
from reveal_leaderboard.web.pages.mine import submissions_view

from tests.leaderboard.conftest import METADATA, Board
from tests.leaderboard.hostile.lines import HOSTILE_TEXTS
from tests.leaderboard.hostile.understanding import MACHINE, check_markup
from tests.leaderboard.test_page_views import SUBMISSION, score
from tests.leaderboard.test_standings import Scores

FORMULA_STARTS = tuple("=+-@|\t\r\n＝＋－＠｜")
NAMES = {
    **{name: text for name, text in HOSTILE_TEXTS.items() if len(text) < MAX_BYTES},
    "NUL": "a\x00b",
    "an escape sequence": "\x1b[2J",
    "a line end": "a\nb",
    "half a character": "a\ud800",
    "only blanks": "   ",
    "nothing": "",
    "65 letters": "x" * 65,
    "wide signs": "\uff1dHYPERLINK",
    "a ligature that unfolds to a formula": "\ufe66 1",
}
LINKS = {
    "http": "http://example.org",
    "a script": "javascript:alert(1)",
    "data": "data:text/html,<script>alert(1)</script>",
    "a file": "file:///etc/passwd",
    "a quotation mark": 'https://example.org/"onmouseover="x',
    "markup": "https://example.org/<script>",
    "a line end": "https://example.org/\nSet-Cookie: a=b",
    "a blank": "https://example.org/ x",
    "another script": "https://ex\u0430mple.org/",
    "a backslash": "https://example.org\\@evil.example",
    "a user": "https://example.org@evil.example/",
    "no host": "https:///x",
    "a template": "https://example.org/`${1}`",
    "too long": "https://example.org/" + "x" * 500,
    "upper case": "JAVASCRIPT:alert(1)",
    "a number": 7,
    "a list": ["https://example.org"],
}
FIELDS: dict[str, tuple[str, object]] = {
    "another kind": ("kind", "robot"),
    "a kind of markup": ("kind", "<script>"),
    "another prompt style": ("prompt_style", "=1+1"),
    "an unknown field": ("__class__", "x"),
    "a field of markup": ("<script>", 1),
    "a model that is a text": ("model", "Net"),
    "a model without a name": ("model", {"version": "1"}),
    "a model with more": ("model", {"name": "Net", "path": "/etc/passwd"}),
    "a list for a name": ("organization", ["Example"]),
    "null for a name": ("organization", None),
    "a huge grid": ("grid", 10**30),
    "no grid": ("grid", 0),
    "a grid of a half": ("grid", 0.5),
    "a grid of true": ("grid", True),
    "a threshold of NaN": ("thresholds", float("nan")),
    "a threshold of infinity": ("thresholds", float("inf")),
    "a threshold above 1": ("thresholds", {"Edema": 1.01}),
    "a threshold in words": ("thresholds", "0.5"),
    "a threshold of true": ("thresholds", True),
    "a list of parameters": ("parameters", [1]),
    "51 parameters": ("parameters", {f"p{i}": i for i in range(51)}),
    "parameters in parameters": ("parameters", {"a": {"b": 1}}),
    "a parameter of infinity": ("parameters", {"a": float("inf")}),
    "a parameter with NUL": ("parameters", {"a\x00": 1}),
    "a parameter of direction marks": ("parameters", {"a": "\u202e"}),
    "training data with a bell": ("training_data", "a\x07b"),
    "training data of 4,001 letters": ("training_data", "x" * 4001),
    "training data with half a character": ("training_data", "\ud83d"),
    "training data of nothing": ("training_data", ""),
    "an overlap in a private script": ("known_overlap", "\ue000"),
    "a contact of 255 letters": ("contact", "x" * 255),
    "a contact with NUL": ("contact", "a@b\x00"),
    "a contact that is an object": ("contact", {"mail": "a@b"}),
    "other links": ("links", {"homepage": "https://example.org"}),
    "links as a text": ("links", "https://example.org"),
}
TEXTS = {
    "empty": "",
    "null": "null",
    "a list": "[]",
    "a number": "1",
    "not JSON": "{",
    "single quotes": str(METADATA),
    "two documents": json.dumps(METADATA) * 2,
    "a comment": "// x\n" + json.dumps(METADATA),
    "deep": "[" * 30_000,
    "deep objects": '{"model":' * 10_000,
    "thousands of digits": '{"grid": ' + "9" * 5000 + "}",
    "larger than it may be": json.dumps({**METADATA, "training_data": "x"}) + " " * MAX_BYTES,
    "a mark": "\ufeff" + json.dumps(METADATA),
    "NUL": json.dumps(METADATA) + "\x00",
    "half a character": '{"\ud800": 1}',
    "a field twice": json.dumps(METADATA)[:-1] + ', "kind": "other"}',
    "a model's name twice": json.dumps(METADATA).replace('"name"', '"name": "Other", "name"'),
}


def faults(text: str) -> list[dict[str, str]]:
    with pytest.raises(MetadataError, match=r"\S") as caught:
        read_metadata(text)
    for fault in caught.value.errors:
        assert set(fault) == {"field", "rule", "value"}
        assert 0 < len(fault["rule"]) <= 500
        assert len(fault["value"]) <= 80
        assert not MACHINE.search(fault["rule"])
        assert fault["rule"].isprintable()
    json.dumps(caught.value.errors).encode()
    return caught.value.errors


@pytest.mark.parametrize("field", ["organization", "model.name", "model.version"])
def test_bad_names_are_refused(field: str) -> None:
    refused = {}
    for name, value in NAMES.items():
        document: dict[str, Any] = json.loads(json.dumps(METADATA))
        place = document["model"] if field.startswith("model") else document
        place[field.rpartition(".")[2]] = value
        refused[name] = [fault["field"] for fault in faults(json.dumps(document))]
    assert refused == {name: [field] for name in NAMES}


@pytest.mark.parametrize("name", LINKS)
def test_a_bad_link_is_refused(name: str) -> None:
    problems = faults(json.dumps({**METADATA, "links": {"code": LINKS[name]}}))
    assert [fault["field"] for fault in problems] == ["links.code"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_bad_field_is_named(name: str) -> None:
    field, value = FIELDS[name]
    problems = faults(json.dumps({**METADATA, field: value}))
    assert {fault["field"].partition(".")[0] for fault in problems} == {field}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_document_is_refused(name: str) -> None:
    assert faults(TEXTS[name])


PROSE = {
    "markup": '<img src=x onerror="alert(1)"><script>alert(1)</script></textarea></title>',
    "Markdown": "[click](javascript:alert(1)) ![x](https://evil.example/x.png)",
    "a formula": "=HYPERLINK(1)",
    "a template": "{{7*7}}${7*7}",
    "line ends": "one\r\n=2\n\t@3",
}


CONTACT = "secret.contact@example.org"


@pytest.fixture
def odd(request: pytest.FixtureRequest) -> Metadata:
    """Sound metadata whose free texts are the worst that they may be."""
    text = PROSE[request.param]
    line = text.replace("\n", " ").replace("\r", " ")
    return read_metadata(
        json.dumps({
            **METADATA,
            "training_data": text, "known_overlap": text, "contact": CONTACT, "parameters": {line: line},
            "links": {"code": "https://example.org/=1+1&'".replace("'", ""), "paper": "https://example.org/%3Cscript%3E"},
        })
    )  # fmt: skip


@pytest.mark.parametrize("odd", PROSE, indirect=True)
def test_odd_texts_are_harmless_on_pages(odd: Metadata) -> None:
    sent = replace(SUBMISSION, metadata=odd.model_dump(exclude_none=True), filename='"><script>.jsonl')
    for is_own in (False, True):
        markup = entry_view(sent, [score()], "1.0.0", [(0.0, "scored", "<script>")], is_own=is_own)
        check_markup(markup)
        assert 'href="javascript:' not in markup
    assert CONTACT not in entry_view(sent, [score()], "1.0.0", [])
    check_markup(submissions_view([sent], waiting={}, reasons={}, may_change=True))


@pytest.mark.parametrize("odd", PROSE, indirect=True)
def test_odd_texts_are_harmless_in_exports(odd: Metadata, board: Board, tmp_path: Path) -> None:
    scores = Scores(tmp_path, board.published)
    scores.add("one", 0.5, metadata=odd.model_dump(exclude_none=True))
    board_rows = standings(scores.store, board.published)
    check_markup(render(board_rows))
    cells = [cell for row in csv.reader(io.StringIO(to_csv(board_rows), newline="")) for cell in row]
    assert len(cells) > 40
    assert not [cell for cell in cells if cell.startswith(FORMULA_STARTS) and not _is_number(cell)]
    for text in (
        to_csv(board_rows),
        documents.Board.model_validate(board_rows).model_dump_json(),
        str(pq.read_table(io.BytesIO(to_parquet(board_rows)))),
    ):
        assert CONTACT not in text
        assert "\x00" not in text


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
