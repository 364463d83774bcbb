"""Tables and mappings that would hang, exhaust memory, crash or lead outside the download; ids that would become odd
paths.

| input | what must come of it |
|---|---|
| a pipe, socket or device as table or mapping | a problem, never a wait |
| a link or a path out of the download | a problem |
| an xlsx that unpacks to gigabytes, is cut off, or lacks a part | a problem, never a crash |
| an xlsx whose head claims more columns and rows than it has | its own rows |
| an id of dots, with slashes, letters of other scripts, too long | a problem |
"""

from __future__ import annotations

import os
import zipfile

import pytest

from reveal_bench.sources.mapping import read_mapping
from reveal_bench.sources.reveal_cxr import read
from reveal_bench.sources.source import BuildError
from reveal_bench.tables import TABLE_SUFFIXES, TableLimits, scan_table
from tests.sources.reveal_trees import MAPPING, TABLE, write_tree

NO_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
SHEET = "xl/worksheets/sheet1.xml"


def messages(path, **options):
    problems = []
    table = scan_table(path, path.name, problems, **options)
    assert (table is None) == bool(problems)
    return [str(problem) for problem in problems]


def workbook(path, changed=None, *, method=zipfile.ZIP_DEFLATED):
    """Two columns, two rows; `changed` maps a part to a function of its bytes, or to None to leave it out."""
    import openpyxl

    book = openpyxl.Workbook()
    for row in (["study", "label"], ["1.2.1", "COPD"], ["1.2.2", None]):
        book.active.append(row)
    plain = path.with_suffix(".plain")
    book.save(plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", method) as target:
        for name in source.namelist():
            change = (changed or {}).get(name, bytes)
            if change is not None:
                target.writestr(name, change(source.read(name)))
    plain.unlink()
    return path


@NO_PIPES
@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
def test_table_must_be_a_regular_file(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    os.mkfifo(path)
    expected = [f"t{suffix}: `file` must be a regular file, got something else"]
    assert messages(path) == expected
    path.unlink()
    path.symlink_to("/dev/zero")
    assert messages(path) == expected
    path.unlink()
    path.mkdir()
    assert messages(path) == expected


@NO_PIPES
def test_mapping_must_be_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "m.yaml")
    for path in (tmp_path / "m.yaml", tmp_path):
        with pytest.raises(BuildError, match="`file` must be YAML in UTF-8, got not a regular file"):
            read_mapping(path)


@pytest.mark.parametrize("table", ["../outside.csv", "/etc/passwd", "a/../../outside.csv", "a/../table.csv", ".."])
def test_a_mapping_names_a_table_within_the_download(tmp_path, table):
    (tmp_path / "outside.csv").write_text(TABLE)
    write_tree(tmp_path / "root", mapping=MAPPING.replace("table.csv", table))
    with pytest.raises(BuildError, match=r"`table` must be a path within the download, without .., got ") as caught:
        read_mapping(tmp_path / "root" / "mapping.yaml")
    assert caught.value.problems[0].value == table


def test_a_table_within_the_download_where_links_lead(tmp_path):
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (tmp_path / "outside.csv").write_text("a\n1\n")
    (root / "deep" / "t.csv").write_text("a\n1\n")
    (root / "in.csv").symlink_to("deep/t.csv")
    (root / "out.csv").symlink_to(tmp_path / "outside.csv")
    (tmp_path / "link").symlink_to(root)
    assert messages(root / "in.csv", within=root) == []
    assert messages(tmp_path / "link" / "in.csv", within=tmp_path / "link") == []
    assert messages(root / "out.csv", within=root) == [
        "out.csv: `file` must be within the download, got a file outside of the download"
    ]


INLINE = b't="inlineStr"><is><t>study</t></is>'


def cut_in_half(part):
    return part[: len(part) // 2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({SHEET: cut_in_half}, "not an xlsx file: ParseError"),
        ({SHEET: lambda part: b""}, "not an xlsx file: ParseError"),
        ({SHEET: None}, "not an xlsx file: IndexError"),
        ({"xl/workbook.xml": None}, "not an xlsx file: "),
        ({"xl/workbook.xml": cut_in_half}, "not an xlsx file: ParseError"),
        ({"[Content_Types].xml": None}, "not an xlsx file: KeyError"),
        ({SHEET: lambda part: b"<a>" * 100_000}, "not an xlsx file: ParseError"),
        ({"xl/styles.xml": cut_in_half}, "not an xlsx file: ParseError"),
        ({SHEET: lambda part: part.replace(INLINE, b't="s"><v>99</v>')}, "not an xlsx file: IndexError"),
        ({SHEET: lambda part: part.replace(b'r="A2"', b'r="99"')}, "not an xlsx file: "),
    ],
)
def test_a_workbook_that_is_damaged(tmp_path, changed, message):
    (text,) = messages(workbook(tmp_path / "t.xlsx", changed), limits=TableLimits(rows=1000))
    assert text.startswith(f"t.xlsx: `file` must be readable as xlsx, got {message}")


def test_a_workbook_with_too_many_rows(tmp_path):
    path = workbook(tmp_path / "t.xlsx", {SHEET: lambda part: part.replace(b'<row r="3"', b'<row r="9999999999"')})
    assert messages(path, limits=TableLimits(rows=1000)) == ["t.xlsx:1002: `rows` must be at most 1,000, got more"]


def test_an_archive_that_is_damaged(tmp_path):
    path = workbook(tmp_path / "t.xlsx")
    whole = path.read_bytes()
    data = bytearray(whole)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo(SHEET).header_offset
    data[at + 80 : at + 90] = bytes(10)
    for damaged in (data, whole[:-30], whole[: len(whole) // 2], b"", b"PK\x05\x06" + bytes(18)):
        path.write_bytes(damaged)
        (message,) = messages(path)
        assert "must be readable as xlsx, got not an xlsx file: " in message


def test_a_workbook_without_enough_memory(tmp_path, monkeypatch):
    import openpyxl

    def exhausted(*_args, **_options):
        raise MemoryError

    path = workbook(tmp_path / "t.xlsx")
    monkeypatch.setattr(openpyxl, "load_workbook", exhausted)
    assert messages(path) == ["t.xlsx: `file` must be readable as xlsx, got not an xlsx file: MemoryError"]


def test_a_workbook_that_unpacks_to_too_much(tmp_path):
    assert TableLimits().workbook_bytes == 256 << 20
    path = workbook(tmp_path / "t.xlsx", {"xl/theme/theme1.xml": lambda part: part + b" " * (3 << 20)})
    assert path.stat().st_size < 1 << 20
    (message,) = messages(path, limits=TableLimits(workbook_bytes=2 << 20))
    assert "bytes unpacked; at most 2,097,152 are read" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("study,site\n1,a\n2,K\u00f6ln\n".encode("latin-1"), "t.csv:3: {}, got the byte 0xf6"),
        ("study,site\n1,a\n".encode("utf-16"), "t.csv:1: {}, got UTF-16, or not text"),
    ],
)
def test_a_table_of_another_encoding(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert messages(path) == [message.format("`file` must be UTF-8: save the table as CSV UTF-8")]


def test_columns_without_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("Study,,,sex\n1,2,3,F\n")
    rule = "`columns` must all have different, non-blank names in the first row"
    assert messages(path) == [f"t.csv:1: {rule}, got a blank more than once"]


def test_parts_count_together(tmp_path):
    path = workbook(tmp_path / "t.xlsx")
    with zipfile.ZipFile(path) as archive:
        sizes = [info.file_size for info in archive.infolist()]
    assert messages(path, limits=TableLimits(workbook_bytes=sum(sizes))) == []
    (message,) = messages(path, limits=TableLimits(workbook_bytes=sum(sizes) - 1))
    assert f"{sum(sizes):,} bytes unpacked" in message


def test_a_sheet_whose_head_claims_more_than_it_has(tmp_path):
    """Excel writes such heads for columns that were formatted; filling 200,000 rows up to them takes many minutes."""

    def boast(part):
        assert b'ref="A1:B3"' in part
        part = part.replace(b'ref="A1:B3"', b'ref="A1:XFD1048576"')
        return part.replace(b"</sheetData>", b'<row r="200000"><c r="B200000" t="str"><v>x</v></c></row></sheetData>')

    problems = []
    table = scan_table(workbook(tmp_path / "t.xlsx", {SHEET: boast}), "t.xlsx", problems)
    assert problems == []
    assert [(row.number, *row.values()) for row in table.rows] == [
        (2, "1.2.1", "COPD"), (3, "1.2.2", ""), (200000, "", "x"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["A", "7", "study_1.b-C", "x" * 64, "A..B"])
def test_public_ids_that_may_be(tmp_path, text):
    write_tree(tmp_path, table=with_ids(text), mapping=MAPPING + "ids: {study: sid, patient: pid}\n")
    assert read(tmp_path).splits["test"][0].study_id == text


@pytest.mark.parametrize(
    "text", [".", "..", "...", "-rf", "_x", ".hidden", "a/b", "a\\b", "名前", "é", "x" * 65, "a b", "٣", "a:b", "a\tb"]
)
def test_public_ids_that_may_not_be(tmp_path, text):
    write_tree(tmp_path, table=with_ids(text), mapping=MAPPING + "ids: {study: sid, patient: pid}\n")
    with pytest.raises(BuildError, match="must be an id of at most 64 letters, digits, _, - and dots, the first") as e:
        read(tmp_path)
    assert [(problem.row, problem.field, problem.value) for problem in e.value.problems] == [(2, "sid", repr(text))]


def with_ids(first):
    ids = iter((first, "S2", "S3"))
    head, *rows = TABLE.splitlines()
    return "\n".join([f"{head},sid,pid", *(f"{row},{next(ids)},P{i}" for i, row in enumerate(rows))]) + "\n"
