"""One reader of tables: accepted and refused tables, from outside, at every place that takes a table.

Each place gets a sound table with commas. Faults of that table must be refused with the file and the line or column,
and other ways to write it must be read as the same.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.readers.app import read_people
from reveal_leaderboard.readers.rubric_answers import read_answers
from reveal_leaderboard.store.ratings import COLUMNS as RATING_COLUMNS
from reveal_leaderboard.store.ratings import read_ratings_file

import reveal_bench as rb
from reveal_bench.api.conversion import rows_of
from reveal_bench.curation.assign import read_readers
from reveal_bench.curation.balance import read_facts
from reveal_bench.curation.report_tables import ReportColumns, read_reports
from reveal_bench.curation.tables import Vote
from reveal_bench.curation.tables import read_table as read_rows
from reveal_bench.curation.votes import import_votes
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.lint import lint_findings
from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import ImageManifest, ManifestRow
from reveal_bench.reports.curves import read_curves
from reveal_bench.reports.misses import read_reviews
from reveal_bench.sources.boxes import Faults, read_table
from reveal_bench.sources.chexlocalize_files import parse_labels
from reveal_bench.sources.mimic_cxr_jpg import table_rows
from reveal_bench.sources.reveal_cxr import read
from reveal_bench.sources.rexecution_files import read_ratings_table
from reveal_bench.tables import TableError, TableLimits, open_table
from reveal_bench.tables import read_table as read_input_table
from tests.curation.test_votes import curation
from tests.sources.reveal_trees import KEY, MAPPING, write_tree

STUDIES = StudyManifest("b", "1.0.0", "released", ("COPD",), ("s1", "s2"))
IMAGES = ImageManifest(
    "b", "1.0.0", "released", 8, ("Edema",), {"p1": ManifestRow("p1", "p", "AP", 64, 48, ("Edema",))}
)


class RefusedError(Exception):
    """The messages of a place that collects problems."""


def of_report(report: Any) -> Any:
    if report.n_errors:
        raise RefusedError(report.render())
    return report.predictions


def of_boxes(path: Path) -> list[dict[str, str]]:
    faults = Faults()
    rows = read_table(path, ("image", "finding", "x"), faults, [])
    if faults.problems:
        raise RefusedError("\n".join(map(str, faults.problems)))
    return [{name.casefold(): text for name, text in row.values.items()} for row in rows]


def of_problems(read: Callable[[Path, list[Any]], Any]) -> Callable[[Path], Any]:
    def run(path: Path) -> Any:
        problems: list[Any] = []
        table = read(path, problems)
        if problems:
            raise RefusedError("\n".join(map(str, problems)))
        return table

    return run


def of_mapping(path: Path) -> Any:
    write_tree(path.parent, table=None, mapping=MAPPING.replace("table.csv", path.name))
    return [(study.labels, study.agreement, study.sex) for study in read(path.parent, id_key=KEY).splits["test"]]


def of_votes(path: Path) -> Any:
    folder = curation(path.parent)
    import_votes(folder, path, allow_missing=True)
    return read_rows(folder.path("votes.parquet"), Vote)


def of_misses(path: Path) -> Any:
    key = {"id": "m1", "image_id": "image1", "finding": "Edema", "grid": 8, "cell": "A1", "models": ["m"]}
    path.with_name("key.jsonl").write_text(json.dumps(key) + "\n")
    return read_reviews(path)


@dataclass(frozen=True)
class Place:
    """A table as the place wants it, and what the place makes of a file; `number` is a column of numbers."""

    text: str
    read: Callable[[Path], Any]
    number: str | None = None


READINGS = "reader,case,truth,score\n" + "".join(
    f"r{reader},c{case},{case % 2},{(reader * case) % 7}.5\n" for reader in range(3) for case in range(12)
)
LABELS = ["Path", *CHEXLOCALIZE_FINDINGS]
PLACES: dict[str, Place] = {
    "readers": Place(READINGS, lambda path: rb.readers(path).to_csv(), "score"),
    "agreement": Place(
        "reader,case,score\n"
        + "".join(f"r{reader},c{case},{case % (2 + reader)}\n" for reader in (0, 1) for case in range(20)),
        lambda path: rb.agreement(path).to_csv(),
        "score",
    ),
    "convert": Place(
        "image_id,finding,x\np1,Edema,1.5\np2,Edema,2\n", lambda path: rows_of(path, ["image_id", "finding", "x"]), "x"
    ),
    "boxes of a download": Place("image,finding,x\np1,Edema,1.5\np2,Edema,2\n", of_boxes, "x"),
    "labels of CheXlocalize": Place(
        f"{','.join(LABELS)}\ntest/patient1/study1/view1_frontal.jpg{',1' * 10}\n"
        f"test/patient2/study1/view1_frontal.jpg{',0' * 10}\n",
        of_problems(lambda path, problems: list(parse_labels(path, problems, []).items())),
    ),
    "metadata of MIMIC": Place(
        "study_id,split\n1,test\n2,test\n",
        of_problems(lambda path, problems: [row.texts for row in table_rows(path, ("study_id", "split"), problems)]),
    ),
    "facts": Place("study,sex\ns1,F\ns2,M\n", lambda path: read_facts(path, ["s1", "s2"], key="study")),
    "reports": Place(
        "study,patient,report\ns1,p1,Clear.\ns2,p2,Edema.\n",
        lambda path: read_reports(path, ReportColumns("study", "patient", "report", None)),
    ),
    "labels by a mapping": Place(
        "study,labels,agree,sex\n1.2.1,Airspace opacity,3 of 3,Female\n1.2.2,None,2 of 3,Male\n1.2.3,COPD,3 of 3,\n",
        of_mapping,
    ),
    "votes": Place("study,reader,answer\ns1,ann,agree all\ns2,ann,agree all\n", of_votes),
    "answers on misses": Place(
        "id,finding,reader,category,comment\nm1,Edema,Ada,position_error,\nm1,Edema,Ben,position_error,\n", of_misses
    ),
    "readers of a curation": Place("reader,capacity\nAda,10\nBen,20\n", read_readers),
    "ratings of answers": Place(
        "task_id,model,reader,process,execution,synthesis\nt1,m,Ada,1,2,3\nt2,m,Ada,5,4,3\n", read_ratings_table
    ),
    "ratings of a board": Place(
        f"{','.join(RATING_COLUMNS)}\na1,Ada,1,2,3,4,,\na2,Ada,5,4,3,2,1,1\n",
        read_ratings_file,
    ),
    "answers to rate": Place("answer_id,task_id,answer,boxes\na1,t1,Clear.,\na2,t2,Edema.,[]\n", read_answers),
    "people": Place("subject,reader\n1,Ada\n2,Ben\n", lambda path: read_people(path, ["Ada", "Ben"])),
    "curves": Place(
        "finding,threshold,metric,value,low,high,n_cases,is_best\n"
        "Edema,0.5,mask_iou,0.4,0.3,0.5,9,0\nEdema,0.6,mask_iou,0.5,0.4,0.6,9,1\n",
        read_curves,
        "value",
    ),
    "predictions of places": Place(
        "image_id,finding,x,y\np1,Edema,1.5,2\n", lambda path: of_report(lint_predictions(path, IMAGES)), "x"
    ),
    "predictions of studies": Place(
        "study_id,COPD\ns1,0.5\ns2,1\n", lambda path: of_report(lint_findings(path, STUDIES)), "COPD"
    ),
}


def doubled(text: str) -> str:
    return "".join(f"{line},{line.rsplit(',', 1)[1]}\n" for line in text.splitlines())


def with_last_line(change: Callable[[str], str]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        *lines, last = text.splitlines()
        return "\n".join([*lines, change(last)]) + "\n"

    return changed


FAULTS: dict[str, Callable[[str], str | bytes]] = {
    "a column twice": doubled,
    "a column twice, once in capitals": lambda text: doubled(text).replace(
        text.split("\n", 1)[0].rsplit(",", 1)[1] + "\n", text.split("\n", 1)[0].rsplit(",", 1)[1].upper() + "\n", 1
    ),
    "a cell too few": with_last_line(lambda line: line.split(",", 1)[1]),
    "a cell too many": with_last_line(lambda line: f"{line},,7"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "a declared separator that separates nothing": lambda text: "sep=;\n" + text,
    "Latin-1": with_last_line(lambda line: line.replace(",", "\u00e4,", 1)),
    "an open quotation mark": with_last_line(lambda line: f'"{line}'),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PLACES)
def test_a_faulty_table_is_refused_everywhere(tmp_path: Path, name: str, fault: str) -> None:
    place = PLACES[name]
    path = tmp_path / "t.csv"
    faulty = FAULTS[fault](place.text)
    path.write_bytes(faulty if isinstance(faulty, bytes) else faulty.encode("latin-1"))
    with pytest.raises((ValueError, RefusedError)) as refused:
        place.read(path)
    message = str(refused.value)
    n_lines = place.text.count("\n")
    header = place.text.split("\n", 1)[0]
    line = n_lines if fault in ("a cell too few", "a cell too many", "Latin-1", "an open quotation mark") else 1
    assert "t.csv:" in message
    assert re.search(rf":{line}:|line {line}\b", message) or "first bytes are those of UTF-16" in message
    if "twice" in fault:
        assert header.rsplit(",", 1)[1] in message
    if fault.startswith(("UTF-16", "Latin-1")):
        assert "UTF-8" in message


WAYS: dict[str, Callable[[str], str | bytes]] = {
    "semicolons": lambda text: text.replace(",", ";"),
    "tabs": lambda text: text.replace(",", "\t"),
    "a separator declared": lambda text: "sep=;\n" + text.replace(",", ";"),
    "a byte order mark": lambda text: text.encode("utf-8-sig"),
    "blank rows": lambda text: "\n" + text.replace("\n", "\n\n ,\n") + ",,\n",
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "names in capitals": lambda text: text.replace(text.split("\n", 1)[0], text.split("\n", 1)[0].upper()),
    "spaces around names": lambda text: text.replace(
        text.split("\n", 1)[0], f" {text.split(chr(10), 1)[0].replace(',', ' , ')} "
    ),
    "gzip": lambda text: gzip.compress(text.encode(), mtime=0),
}


def without_places(table: Any) -> str:
    """Return the contents of a table, without the lines that blank rows and a declared separator move."""
    return re.sub(r"\b(line|number)=\d+|0x[0-9a-f]+", "", repr(table))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PLACES)
def test_another_way_to_write_a_table_is_read_the_same_everywhere(tmp_path: Path, name: str, way: str) -> None:
    place = PLACES[name]
    sound, other = tmp_path / "sound" / "t.csv", tmp_path / "other" / "t.csv"
    for path, content in ((sound, place.text), (other, WAYS[way](place.text))):
        path.parent.mkdir()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert without_places(place.read(other)) == without_places(place.read(sound))


@pytest.mark.parametrize("name", [name for name, place in PLACES.items() if place.number])
def test_a_decimal_comma_is_refused_by_name(tmp_path: Path, name: str) -> None:
    place = PLACES[name]
    *lines, last = place.text.replace(",", ";").splitlines()
    cells = last.split(";")
    cells[lines[0].split(";").index(str(place.number))] = "0,5"
    path = tmp_path / "t.csv"
    path.write_text("\n".join([*lines, ";".join(cells)]) + "\n")
    with pytest.raises(
        (ValueError, RefusedError), match=rf"t\.csv:{len(lines) + 1}:.*{place.number}.*decimal comma.*0,5"
    ):
        place.read(path)


def parquet(path: Path, **columns: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)
    return path


def test_dates_and_bytes_in_lists_of_parquet_are_text(tmp_path: Path) -> None:
    columns = {
        "day": [None, [date(2026, 1, 2)]],
        "image": [None, {"bytes": b"\x89PNG"}],
        "box": [None, [[1], None, []]],
    }
    _, row = read_input_table(parquet(tmp_path / "t.parquet", **columns)).rows
    assert (row["day"], row["image"]) == ('["2026-01-02"]', r"""{"bytes": "b'\\x89PNG'"}""")
    assert row["box"] == "[[1], null, []]"


LIMITED: dict[str, tuple[str | bytes | dict[str, Any], TableLimits, str]] = {
    "bytes": ("a\n1\n", TableLimits(file_bytes=3), "`size` must be at most 3 bytes, got 4"),
    "rows": ("a\n1\n2\n3\n", TableLimits(rows=2), "t:4: `rows` must be at most 2"),
    "blank rows": ("a\n\n\n\n", TableLimits(rows=2), "t:4: `rows` must be at most 2"),
    "columns": ("a,b,c\n1,2,3\n", TableLimits(columns=2), "t:1: `columns` must be at most 2, got 3"),
    "a line": ("a\n12345\n", TableLimits(line_bytes=4), "t:2: `line` must have at most 4 bytes"),
    "a cell of many lines": ('a\n"' + "1234567\n" * 20_000 + '"\n', TableLimits(line_bytes=9), "t:2: `file` must be"),
    "gzip": (gzip.compress(b"a\n" + b"1\n" * 99, mtime=0), TableLimits(unpacked_bytes=100), "at most 100 bytes"),
    "columns of Parquet": ({"a": [1], "b": [2]}, TableLimits(columns=1), "`columns` must be at most 1, got 2"),
    "rows of Parquet": ({"a": [1, 2]}, TableLimits(rows=1), "`rows` must be at most 1, got 2"),
    "cells of Parquet": ({"a": [1] * 9, "b": [2] * 9}, TableLimits(cells=17), "`cells` must be at most 17, got 18"),
    "values in lists": ({"a": [[1] * 18]}, TableLimits(cells=17), "`cells` must be at most 17, got 18"),
    "lists in a list": ({"a": [[[]] * 9]}, TableLimits(cells=17), "`cells` must be at most 17, got 18"),
    "repeated texts": ({"a": ["x" * 1000] * 1000}, TableLimits(unpacked_bytes=900_000), "t:1: `size` must be at most"),
    "repeated texts in lists": (
        {"a": [["x" * 1000]] * 1000}, TableLimits(unpacked_bytes=900_000), "t:1: `size` must be at most"
    ),
    "a JSON list": ('[{"a": 1}]', TableLimits(json_bytes=9), "`size` must be at most 9 bytes, got 10"),
}  # fmt: skip


@pytest.mark.parametrize("what", LIMITED)
def test_limits(tmp_path: Path, what: str) -> None:
    content, limits, message = LIMITED[what]
    path = tmp_path / "t"  # no suffix: the content says what it is
    if isinstance(content, dict):
        parquet(path, **content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert read_input_table(path).columns
    with pytest.raises(TableError, match=message):
        read_input_table(path, limits=limits)


def test_ids_keep_their_digits_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,n\n007,1.50\n")
    (tmp_path / "t.json").write_text('[{"id": "007", "n": 1.5}]')
    parquet(tmp_path / "t.parquet", id=["007"], n=[1.5])
    rows = [read_input_table(tmp_path / f"t.{suffix}").rows[0] for suffix in ("csv", "json", "parquet")]
    assert [(row["ID"], row[" n".strip()]) for row in rows] == [("007", "1.50"), ("007", "1.5"), ("007", "1.5")]
    assert [row.value("n") for row in rows] == ["1.50", 1.5, 1.5]


def test_names_of_columns_are_found_whatever_their_case(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Score, Reader \n1,Ada\n")
    with open_table(tmp_path / "t.csv") as table:
        (row,) = table
    assert (table.columns, row["score"], row["READER"]) == (("Score", "Reader"), "1", "Ada")
    assert "score" in table
    assert row.get("truth") is None
