"""Exports: their contents, and that no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reveal_leaderboard.boards.exports import COLUMNS, to_csv, to_parquet
from reveal_leaderboard.boards.standings import BoardEntry, Standings, standings
from reveal_leaderboard.web.api import documents

from tests.leaderboard.conftest import RARE, Board
from tests.leaderboard.test_standings import Scores, score

FORMULA_STARTS = "=+-@|＝＋－＠｜"
TEXT_COLUMNS = [name for name, (kind, _) in COLUMNS.items() if kind == "string"]


@pytest.fixture(scope="module")
def sample(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Standings:
    """Two placed entries and one that is new, on data that are said to be real."""
    scores = Scores(tmp_path_factory.mktemp("exports"), board.published)
    for name, value in (("best", 0.6), ("second", 0.58), ("new", 0.7)):
        scores.add(name, value)
    scores.rank(("best", 1, 1, 2, "A"), ("second", 1, 1, 2, "A"))
    published = replace(board.published, info=replace(board.published.info, synthetic=False))
    return standings(scores.store, published)


def to_json(board: Standings) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(documents.Board.model_validate(board).model_dump_json())
    return document


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def meta(file: bytes) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(pq.read_schema(io.BytesIO(file)).metadata[b"reveal_leaderboard"])
    return about


def test_json_holds_the_board(sample: Standings) -> None:
    document = to_json(sample)
    head = ("benchmark", "title", "kind", "version", "split", "primary", "is_frozen", "synthetic", "min_cell", "schema")
    assert [document[name] for name in head] == [
        *("chexlocalize", "CheXlocalize", "localization", "1.0.0", "holdout", "point_hit", False, False, 30, 2)
    ]
    first, _, last = document["entries"]
    assert {name: first[name] for name in ("rank", "rank_low", "rank_high", "tier", "is_new", "place", "version")} == {
        "rank": 1,
        "rank_low": 1,
        "rank_high": 2,
        "tier": "A",
        "is_new": False,
        "place": "1-2",
        "version": "1.0.0",
    }
    assert (last["place"], last["rank"], last["is_new"]) == ("new, being placed", None, True)
    assert first["figures"][0] == {
        "metric": "point_hit",
        "finding": "macro",
        "value": 0.6,
        "low": 0.55,
        "high": None,
        "n": "9",
        "signature": "point_hit|b:1000|v:1",
    }
    assert (first["hidden"], document["hidden"]) == ([RARE], [RARE])
    assert document["versions"] == [{"version": "1.0.0", "shown_at": sample.history[0].shown_at, "frozen_at": None}]
    assert document["metrics"][0] == {"name": "point_hit", "title": "Hit rate", "better": "higher"}
    assert (document["ranked_at"], document["notes"]) == ("2026-11-21T12:00:00Z", ["1 new entry is being placed."])
    human = next(row for row in document["references"] if row["name"] == "Human benchmark")
    # Paper 002, Extended Data Fig. 6: hit rate of the human benchmark, the printed average 0.820.
    assert human["macro"]["point_hit"] == 0.82
    assert "rank" not in human


def test_csv_has_a_row_per_figure(sample: Standings) -> None:
    rows = read_csv(to_csv(sample))
    assert list(rows[0]) == list(COLUMNS)
    entries = [row for row in rows if row["is_reference"] == "false"]
    assert len(entries) == 3 * 4
    assert {name: entries[0][name] for name in ("rank", "rank_low", "rank_high", "tier", "value", "low", "high")} == {
        "rank": "1",
        "rank_low": "1",
        "rank_high": "2",
        "tier": "A",
        "value": "0.6",
        "low": "0.55",
        "high": "",
    }
    assert (entries[0]["team"], entries[0]["date"], entries[0]["source"]) == ("Team best", "2026-11-21", "submission")
    assert (entries[-1]["model"], entries[-1]["rank"], entries[-1]["is_new"]) == ("new", "", "true")
    human = next(row for row in rows if row["model"] == "Human benchmark" and row["finding"] == RARE)
    assert (human["rank"], human["is_reference"], human["submission_id"]) == ("", "true", "")
    assert "Nature Machine Intelligence" in human["source"]


def test_parquet_holds_what_csv_holds(sample: Standings) -> None:
    file = to_parquet(sample)
    rows = pq.read_table(io.BytesIO(file)).to_pylist()

    def as_text(name: str, value: Any) -> str:
        if name == "is_new" or name == "is_reference":
            return str(value).lower()
        return "" if value is None else str(value)

    assert [{name: as_text(name, value) for name, value in row.items()} for row in rows] == read_csv(to_csv(sample))
    assert rows[0]["date"] == date(2026, 11, 21)


def test_parquet_tells_what_it_is_of(sample: Standings) -> None:
    file = to_parquet(sample)
    about = meta(file)
    assert (about["benchmark"], about["version"], about["split"]) == ("chexlocalize", "1.0.0", "holdout")
    assert (about["exported_at"], about["primary"]) == (None, "point_hit")
    assert about["signatures"] == {name: [f"{name}|b:1000|v:1"] for name in ("grid_hit", "point_hit")}
    schema = pq.read_schema(io.BytesIO(file))
    kinds = {"string": "string", "int32": "int32", "bool": "bool", "float64": "double", "date32": "date32[day]"}
    assert {field.name: str(field.type) for field in schema} == {
        name: kinds[kind] for name, (kind, _) in COLUMNS.items()
    }
    assert schema.field("tier").metadata[b"meaning"].decode() == COLUMNS["tier"][1]


def test_an_export_does_not_depend_on_the_time(sample: Standings) -> None:
    assert to_parquet(sample) == to_parquet(sample)


def test_an_empty_board_has_the_same_columns(sample: Standings) -> None:
    empty = replace(sample, entries=(), references=())
    assert to_csv(empty) == ",".join(COLUMNS) + "\r\n"
    assert pq.read_schema(io.BytesIO(to_parquet(empty))).names == list(COLUMNS)
    assert to_json(empty)["entries"] == []


def test_rows_of_other_data_are_not_exported(sample: Standings) -> None:
    apart = replace(sample, comparable=False)
    assert to_json(apart)["references"] == []
    for text in (to_csv(apart), str(pq.read_table(io.BytesIO(to_parquet(apart))).to_pylist())):
        assert "Human benchmark" not in text


def named(board: Standings, text: str) -> Standings:
    """The board with one entry whose every text is `text`."""
    entry = BoardEntry(text, text, text, text, text, text, "2026-11-21", "1.0.0", score(-0.5))
    return replace(board, benchmark=text, entries=(entry,), references=())


HOSTILE = st.text(st.sampled_from(FORMULA_STARTS + "\t\r\n;, \"'\u00a01a") | st.characters(codec="utf-8"), max_size=30)


@settings(deadline=None)
@given(HOSTILE)
def test_no_cell_begins_like_a_formula(sample: Standings, text: str) -> None:
    rows = read_csv(to_csv(named(sample, text)))
    assert len(rows) == 4, "one row per figure, whatever the text holds"
    for row in rows:
        for name in TEXT_COLUMNS:
            assert not row[name].lstrip().startswith(tuple(FORMULA_STARTS)), name
            assert not row[name].startswith(("\t", "\r", "\n")), name


@settings(deadline=None)
@given(HOSTILE)
@pytest.mark.parametrize("cut_at", [";", "\t", "|"])
def test_no_cell_begins_like_a_formula_where_another_separator_is_taken(
    sample: Standings, cut_at: str, text: str
) -> None:
    board = named(sample, text)
    board = replace(board, entries=(replace(board.entries[0], score=score(0.5)),))  # no number with a sign
    for line in to_csv(board).splitlines():
        for cell in line.split(cut_at)[1:]:
            assert not cell.lstrip(" \u00a0").startswith(tuple(FORMULA_STARTS))


@settings(deadline=None)
@given(HOSTILE)
def test_texts_and_numbers_come_back(sample: Standings, text: str) -> None:
    board = named(sample, text)
    rows = read_csv(to_csv(board))
    # The apostrophes that were put in are the only difference.
    assert rows[0]["team"].replace("'", "") == text.replace("'", "")
    assert [float(row["value"]) for row in rows] == [-0.5, -0.6, -0.5, -0.6]
    assert to_json(board)["entries"][0]["team"] == text
    assert pq.read_table(io.BytesIO(to_parquet(board)))["team"].to_pylist() == [text] * 4


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("  @SUM(A1)", "'  @SUM(A1)"),
        ("\tx", "'\tx"),
        ("a;=1", "a;'=1"),
        ("GPT-4 (few-shot)", "GPT-4 (few-shot)"),
        ("-", "'-"),
        ("", ""),
    ],
)
def test_cells_by_hand(sample: Standings, text: str, cell: str) -> None:
    assert read_csv(to_csv(named(sample, text)))[0]["model"] == cell
