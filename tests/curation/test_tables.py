"""The tables of a curation folder survive being written, and say so when they are another kind."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reveal_bench.curation.tables import Finding, Placed, Revision, Suggestion, Vote, in_order, read_table, write_table

SUGGESTIONS = [
    Suggestion(
        "s1", "p1", (Finding("effusion", "left", "J90", "Pleural effusion"),), ("Pleural effusion",), "ok", "rules|v:3"
    ),
    Suggestion("s2", "p1", (), (), "ok", "rules|v:3"),
    Suggestion("s3", "p2", (Finding("scoliosis"),), (), "quarantined", "rules|v:3"),
]
VOTES = [
    Vote("s1", "r1", "disagree", "no é\n", ("COPD",)),
    Vote("s1", "r2", "agree_all"),
    Vote("s2", "r1", "x", "", ()),
]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [(Suggestion, SUGGESTIONS), (Vote, VOTES), (Revision, [Revision("s1", "r1", None, "nothing")]), (Placed, [])],
    ids=["nested", "none and empty", "none", "no rows"],
)
def test_rows_come_back(tmp_path: Path, kind: type, rows: list[object]) -> None:
    write_table(tmp_path / "a.parquet", rows, kind)
    assert read_table(tmp_path / "a.parquet", kind) == rows
    write_table(tmp_path / "b.parquet", rows, kind)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_columns_have_plain_types(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", VOTES, Vote)
    types = {field.name: str(field.type) for field in pq.read_schema(tmp_path / "a.parquet")}
    assert types["study_id"] == "string"
    assert types["labels"].startswith("list<")
    assert "string" in types["labels"]


def test_another_table_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", VOTES, Vote)
    with pytest.raises(ValueError, match=r"a\.parquet must have the columns study_id, reader, labels, source, got"):
        read_table(tmp_path / "a.parquet", Revision)


def test_labels_have_an_order(tmp_path: Path) -> None:
    assert in_order(["Pneumothorax", "Airspace opacity", "Pneumothorax"]) == ("Airspace opacity", "Pneumothorax")
    with pytest.raises(ValueError, match="must be among the twelve, got Fracture"):
        in_order(["Fracture"])
