"""Bad files for a board of studies with labels."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tests.leaderboard.hostile.corpus import TOO_LARGE, Bad, Site, bad_texts
from tests.leaderboard.hostile.lines import CONTROLS, HOSTILE_TEXTS, HUGE, NUMBERS

MIB = 1 << 20
SHORT = {"a text": "wrong-type", "digits of another script": "wrong-type", "a text with an underscore": "wrong-type"}


def study(answer: str) -> str:
    return f'{{"study_id": "STUDY", {answer}}}\n'


def _numbers() -> Iterator[Bad]:
    table = {name: (number, SHORT.get(name, rule)) for name, (number, rule) in NUMBERS.items()}
    table["a comma for a point"] = ("1,5", "json-syntax")
    table |= {
        "an integer of 400 digits": (HUGE, "score-range"),
        "a negative integer of 400 digits": (f"-{HUGE}", "score-range"),
        "above 1": ("1.0000000000000002", "score-range"),
        "below 0": ("-1e-300", "score-range"),
        "a percentage": ("85", "score-range"),
        "odd but sound: a tiny number": ("1e-400", ""),
        "odd but sound: a whole number": ("1", ""),
    }
    for name, (number, rules) in table.items():

        def make(site: Site, number: str = number) -> bytes:
            values = dict.fromkeys(site.labels, "0.5") | {site.labels[0]: number}
            inner = ", ".join(f'"{label}": {value}' for label, value in values.items())
            return site.fill(study(f'"probabilities": {{{inner}}}')).encode()

        yield Bad(f"studies: {name} as a probability", make, frozenset(rules.split()), "studies")


def _names() -> Iterator[Bad]:
    table: dict[str, tuple[str | bytes, str]] = {}
    for name, text in {**HOSTILE_TEXTS, **CONTROLS}.items():
        escaped = text if name in CONTROLS else text.replace("\\", "\\\\").replace('"', '\\"')
        table[f"{name} for a study"] = (f'{{"study_id": "{escaped}", "labels": []}}\n', "unknown-study")
        rule = "wrong-type" if len(text) > 100 else "unknown-finding"
        table[f"{name} for a label"] = (study(f'"labels": ["{escaped}"]'), rule)
    yield from bad_texts("studies", table, board="studies")


TABLE: dict[str, tuple[str | bytes, str]] = {
    "a study twice": (study('"labels": []') * 2, "duplicate-study"),
    "a key twice": (study('"labels": [], "labels": ["COPD"]'), "duplicate-key"),
    "a label's probability twice": (study('"probabilities": {"COPD": 0.1, "COPD": 0.2}'),
                                    "duplicate-key missing-labels"),
    "a label in two spellings": (study('"probabilities": {"COPD": 0.1, "copd": 0.2}'),
                                 "duplicate-label missing-labels"),
    "a label twice": (study('"labels": ["COPD", "copd"]'), "duplicate-label"),
    "labels after probabilities": (
        study('"probabilities": LABELS') + study('"labels": []').replace("STUDY", "ANOTHER"), "mixed-kinds"),
    "labels and probabilities": (study('"labels": [], "probabilities": LABELS'), "missing-field"),
    "neither": ('{"study_id": "STUDY"}', "missing-field"),
    "nothing": ("{}", "missing-field"),
    "an unknown key": (study('"labels": [], "patient": "x"'), "unknown-field"),
    "a key of markup": (study('"labels": [], "<script>alert(1)</script>": 1'), "unknown-field"),
    "a key of a megabyte": (study(f'"labels": [], "{"k" * MIB}": 1'), "unknown-field"),
    "ten thousand keys": (study('"labels": [], ' + ", ".join(f'"k{i}": 1' for i in range(10_000))), "unknown-field"),
    "a text for labels": (study('"labels": "COPD"'), "wrong-type"),
    "an object for labels": (study('"labels": {"COPD": true}'), "wrong-type"),
    "a thousand labels": (study('"labels": ' + json.dumps(["COPD"] * 1000)), "wrong-type"),
    "numbers for labels": (study('"labels": [1, null, [], {}]'), "wrong-type"),
    "a list for probabilities": (study('"probabilities": [0.5]'), "wrong-type"),
    "no probabilities": (study('"probabilities": {}'), "missing-labels"),
    "a label missing": (study('"probabilities": {"COPD": 0.5}'), "missing-labels"),
    "100,000 labels": (study('"probabilities": {' + ", ".join(f'"k{i}": 0.5' for i in range(100_000)) + "}"),
                       "unknown-finding too-many-problems"),
    "a number for a study": ('{"study_id": 7, "labels": []}', "missing-field"),
    "null for a study": ('{"study_id": null, "labels": []}', "missing-field"),
    "a list for a study": ('{"study_id": ["STUDY"], "labels": []}', "missing-field"),
    "5,000 unknown studies": (
        "".join(f'{{"study_id": "study-{i}", "labels": []}}\n' for i in range(5000)),
        "unknown-study too-many-problems"),
    "deep": ('{"study_id": ' + "[" * 100_000, "nesting"),
    "cut off": (study('"labels": []') + '{"study_id": "STU', "json-syntax"),
    "a document": ('{"STUDY": {"COPD": 1}}', "unknown-field missing-field"),
    "a list": ("[]", "format"),
    "a COCO list": ('[{"image_id": "IMAGE"}]', "format"),
    "150,000 lines": ("{}\n" * 150_000, "entries"),
    "a line of 5 MB": (study(f'"labels": ["{"x" * 5_000_000}"]'), "line-length"),
    "CSV: no study": ("id,COPD\nSTUDY,1\n", "missing-column"),
    "CSV: a column twice": ("study_id,COPD,COPD\nSTUDY,1,1\n", "duplicate-column"),
    "CSV: 100,000 columns": ("study_id," + ",".join(f"c{i}" for i in range(100_000)) + "\n", "columns"),
    "CSV: too few values": ("study_id,COPD\nSTUDY\n", "row-length"),
    "CSV: a quotation mark that never ends": ('study_id,COPD\n"STUDY,1\n', "table-syntax"),
    "CSV: a cell of 200 kB": ("study_id,COPD\n" + "x" * 200_000 + ",1\n", "unknown-study missing-labels"),
    "CSV: NaN": ("study_id,COPD\nSTUDY,NaN\n", "not-finite missing-labels"),
    "CSV: 1e400": ("study_id,COPD\nSTUDY,1e400\n", "not-finite missing-labels"),
    "CSV: a text": ("study_id,COPD\nSTUDY,=1+1\n", "wrong-type missing-labels"),
    "CSV: a comma for a point": ('study_id,COPD\nSTUDY,"0,5"\n', "wrong-type"),
    "CSV: a formula for a study": ("study_id,COPD\n=STUDY,1\n", "unknown-study missing-labels"),
    "CSV: a head of markup": ("study_id,<script>\nSTUDY,1\n", "unknown-finding missing-labels"),
    "CSV: NUL": ("study_id,COPD\nSTUDY\x00,1\n", "unknown-study missing-labels"),
    "CSV: a million rows": ("study_id,COPD\n" + "\n" * 1_000_000, "entries"),
    "CSV: Latin-1": (b"study_id,COPD\n\xc4,1\n", "encoding"),
    "empty": (b"", "empty-file"),
    "UTF-16": ("{}".encode("utf-16"), "encoding"),
    "gzip cut off": (gzip.compress(b"{}", mtime=0)[:-5], "compression"),
    "a ZIP archive": (b"PK\x03\x04" + bytes(30), "format"),
    "a pickle": (b"\x80\x04\x95", "format"),
}  # fmt: skip


def _parquet(site: Site) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"study_id": [site.study]}), sink)
    return sink.getvalue()


MORE = (Bad("studies: Parquet", _parquet, frozenset({"format"}), "studies"),)
STUDIES = (*_numbers(), *_names(), *bad_texts("studies", TABLE, board="studies"), *MORE)

LARGE_STUDIES = tuple(
    bad_texts(
        "studies",
        {
            "90 MB of nothing": (bytes(90 * MIB), "encoding"),
            "90 MB of commas": (b"study_id" + b"," * (90 * MIB), f"line-length {TOO_LARGE}"),
            "gzip of 600 MB": (gzip.compress(b"\n" * (6 * MIB), mtime=0) * 100, "expanded-size"),
            "90 MB in one line": (b'{"study_id": "' + b"x" * (90 * MIB) + b'"}', "line-length"),
            "4 million brackets in a line": (
                b'{"labels": [' + b"[]," * 1_300_000 + b"[]]}",
                "missing-field wrong-type",
            ),
        },
        board="studies",
    )
)
