"""Tables and compression: CSV, TSV and Parquet have the same predictions as the canonical form."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.predictions.test_formats import SMALL, TALL, WIDE, _content, _errors, _mask

# --- tables

ROWS = [
    {"image_id": WIDE, "finding": "Edema", "x": 1.5, "y": 2, "score": 0.5},
    {"image_id": WIDE, "finding": "Cardiomegaly", "cell": "D5"},
    {"image_id": TALL, "finding": "Pleural Effusion", "x": 1, "y": 2, "width": 3, "height": 4.5},
    {"image_id": SMALL, "finding": "Airspace Opacity", "size_h": 96, "size_w": 80,
     "counts": _mask((96, 80), (1, 5), (2, 7)).counts},
]  # fmt: skip
CANONICAL = [
    {"image_id": WIDE, "finding": "Edema", "point": [1.5, 2], "score": 0.5},
    {"image_id": WIDE, "finding": "Cardiomegaly", "cell": "D5"},
    {"image_id": TALL, "finding": "Pleural Effusion", "box": [1, 2, 3, 4.5]},
    {"image_id": SMALL, "finding": "Airspace Opacity",
     "rle": {"size": [96, 80], "counts": _mask((96, 80), (1, 5), (2, 7)).counts}},
]  # fmt: skip
COLUMNS = ["image_id", "finding", "x", "y", "width", "height", "cell", "size_h", "size_w", "counts", "score"]


def _csv(rows, separator=",", columns=COLUMNS):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _parquet(columns, **options):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def _parquet_of_rows(rows):
    return _parquet({name: [row.get(name) for row in rows] for name in COLUMNS})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("csv", _csv(ROWS)),
        ("tsv", _csv(ROWS, "\t")),
        ("csv", _csv(ROWS, columns=COLUMNS[::-1])),
        ("csv", _csv(ROWS).replace("\r\n", "\n").rstrip("\n")),
        ("parquet", _parquet_of_rows(ROWS)),
        ("jsonl", "\r\n\r\n".join(map(json.dumps, CANONICAL))),
    ],
)
def test_tables_equal_the_canonical_form(lint, name, content):
    report = lint(content)
    assert report.format == name
    assert report.n_errors == 0, report.render()
    assert _content(report) == _content(lint(CANONICAL))


def test_field_limit_of_the_csv_module_is_unchanged(lint):
    before = csv.field_size_limit()
    counts = "1" * (before + 1)
    assert "table-syntax" not in {problem.rule for problem in lint(_csv([{**ROWS[3], "counts": counts}])).problems}
    assert csv.field_size_limit() == before


def test_csv_problems_are_named_by_line_and_column(lint):
    header = "image_id,finding,x,y,width,height,cell,size_h,size_w,counts,score\n"
    rows = [
        f"{WIDE},Edema,12,abc,,,,,,,",
        f"{WIDE},Cardiomegaly,12,,,,,,,,1.5",
        f"{TALL},Pleural Effusion,1,2,3,,,,,,",
        f"{SMALL},Airspace Opacity,,,,,,96,81,PVWX6,nan",
        f"{SMALL},Edema,1e400,\u0661\u0662,,,,,,,",  # Arabic digits, which float() would take for 12
        f"{SMALL},Edema,1_0,2,,,,,,,,extra",
    ]
    assert _errors(lint(header + "\n".join(rows))) == [
        (2, "y", "wrong-type", '"abc"'),
        (3, "y", "wrong-type", "null"),
        (3, "score", "score-range", "1.5"),
        (4, "height", "wrong-type", "null"),
        (5, "size_h,size_w", "rle-size", "[96, 81]"),
        (5, "score", "not-finite", "nan"),
        (6, "x", "not-finite", "inf"),
        (6, "y", "number-as-text", '"\u0661\u0662"'),
        (7, "", "row-length", '"12"'),
        (5, "counts", "rle-overflow", '"PVWX6"'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "errors"),
    [
        ("image_id,finding,score", [("", "missing-column")]),
        ("image,finding,cell", [("image", "unknown-column"), ("image_id", "missing-column")]),
        ("image_id,finding,cell,cell", [("cell", "duplicate-column")]),
        ("image_id,Cell,cell ", [("Cell, cell", "duplicate-column")]),
        (",".join(f"c{i}" for i in range(1000)), [("", "columns")]),
    ],
)  # fmt: skip
def test_wrong_headers_are_refused(lint, header, errors):
    report = lint(header + "\na,b,c\n")
    assert [(p.field, p.rule) for p in report.problems] == errors
    assert {p.line for p in report.problems} == {1}


def test_ids_of_a_table_stay_text(lint):
    assert _errors(lint("image_id,finding,cell\n007,Edema,D5\n")) == [(2, "image_id", "unknown-image", '"007"')]


def test_quoted_line_ends_do_not_shift_the_line(lint):
    errors = _errors(lint('image_id,finding,cell\n"a\nb",Edema,D5\nc,Edema,D5\n'))
    assert errors == [(2, "image_id", "control-character", '"a\\nb"'), (4, "image_id", "unknown-image", '"c"')]


def test_unclosed_quotation_mark_is_refused(lint):
    errors = _errors(lint('image_id,finding,cell\n"a,Edema,D5\n'))
    assert [(line, rule) for line, _, rule, _ in errors] == [(2, "table-syntax")]


def test_parquet_problems_are_named_by_row_and_column(lint):
    content = _parquet({"image_id": [WIDE, SMALL], "finding": ["Edema", None], "x": [float("nan"), 80], "y": [1.0, 2]})
    assert _errors(lint(content)) == [
        (1, "x", "not-finite", "nan"),
        (2, "finding", "missing-field", f'{{"image_id": "{SMALL}", "point": [80.0, 2.0]}}'),
        (2, "x,y", "outside-image", "[80.0, 2.0]"),
    ]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"image_id": [1], "finding": ["Edema"], "cell": ["A1"]}, (1, "image_id", "column-type", '"int64"')),
        ({"image_id": ["a"], "finding": ["b"], "x": ["1"], "y": [2]}, (1, "x", "column-type", '"string"')),
        ({"image_id": ["a"], "finding": ["b"], "x": [True], "y": [2]}, (1, "x", "column-type", '"bool"')),
        (
            {"image_id": [["a"]], "finding": ["b"], "cell": ["A1"]},
            (1, "image_id", "column-type", '"list<element: string>"'),
        ),
    ],
)
def test_parquet_column_types(lint, columns, error):
    assert _errors(lint(_parquet(columns))) == [error]


def test_parquet_text_must_be_utf8(lint):
    names = pa.array([b"patient\xff"], pa.binary()).view(pa.string())
    errors = _errors(lint(_parquet({"image_id": names, "finding": ["Edema"], "cell": ["A1"]})))
    assert [rule for _, _, rule, _ in errors] == ["encoding"]


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)])
@pytest.mark.parametrize("content", [_csv(ROWS).encode(), _parquet_of_rows(ROWS)])
def test_compressed_files(lint, compress, content):
    report = lint(compress(content))
    assert report.n_errors == 0
    assert _content(report) == _content(lint(CANONICAL))
