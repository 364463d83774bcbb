"""Read reader studies in the input formats of iMRMC and RJafroc as rows of readings.

Conventions
-----------
``.imrmc``  any text, the line ``BEGIN DATA:``, then lines of reader, case, modality and score; the score of the reader
            -1 or ``truth`` is the truth of the case (iMRMC's user manual, section 4.1.1). A table with the columns
            ``readerID, caseID, modalityID, score`` is read in the same way
``.xlsx``   the sheets ``Truth`` (``CaseID``, ``LesionID``, 0 for a case without disease), ``FP`` or ``NL``, and ``TP``
            or ``LL`` (``ReaderID``, ``ModalityID``, ``CaseID`` and a rating), with one rating of each case by each
            reader (RJafroc's ROC data). Free-response data have marks instead, and are refused
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from reveal_bench.table_formats import TableError
from reveal_bench.tables import TableLimits, TableReader, TableRow, open_table

_IMRMC = ("readerID", "caseID", "modalityID", "score")
_START = re.compile(rb"(?:^|(?<=[\r\n]))[ \t]*BEGIN DATA:[ \t]*(?=[\r\n]|$)")
_TRUTHS = ("-1", "truth")
_MARKS = {"FP": 0, "NL": 0, "TP": 1, "LL": 1}
"""Sheets of ratings -> truth of the cases in them."""
_SHEET = re.compile(rb'<(?:\w+:)?sheet\s[^<>]*?name="([^"<]{1,31})"')
_WORKBOOK, _WORKBOOK_BYTES = "xl/workbook.xml", 1 << 20


def study_rows(path: Path) -> list[dict[str, str]] | None:
    """Return the readings in a file of iMRMC or RJafroc; None for another table.

    Returns
    -------
    Rows with `reader`, `case`, `modality`, `score` and `truth`.

    Raises
    ------
    TableError
        If the file breaks its format; the message names file and line.
    """
    if path.suffix.lower() == ".xlsx" and zipfile.is_zipfile(path):
        sheets = {name.upper(): name for name in _sheet_names(path)}
        return _jafroc(path, sheets) if "TRUTH" in sheets and sheets.keys() & _MARKS.keys() else None
    is_text = path.suffix.lower() in (".imrmc", ".csv", ".txt") and path.is_file()
    if not is_text or path.stat().st_size > TableLimits().file_bytes:
        return None
    text = path.read_bytes()
    if start := _START.search(text):
        before = text[: start.start()]  # replaced by blank lines to keep the line numbers
        n_before = max(before.count(b"\n"), before.count(b"\r"))
        text = b"\n" * n_before + ",".join(_IMRMC).encode() + text[start.end() :]
    elif {one.strip(' "\ufeff').casefold() for one in _first_line(text)} != {one.casefold() for one in _IMRMC}:
        return None
    with open_table(text, path.name, columns=_IMRMC) as table:
        return _imrmc(list(table))


def _first_line(text: bytes) -> list[str]:
    return re.split(rb"[\r\n]", text[: 1 << 12], maxsplit=1)[0].decode("utf-8", "replace").split(",")


def _imrmc(rows: Iterable[TableRow]) -> list[dict[str, str]]:
    truths: dict[str, str] = {}
    readings = []
    for row in rows:
        if row["readerID"] not in _TRUTHS:
            readings.append(row)
        elif truths.setdefault(row["caseID"], row["score"]) != row["score"]:
            raise TableError(row.problem("score", f"must give case {row['caseID']} one truth", row["score"]))
    return [_reading(row, "score", truths.get(row["caseID"])) for row in readings]


def _jafroc(path: Path, sheets: Mapping[str, str]) -> list[dict[str, str]]:
    truths: dict[str, set[int]] = {}
    with open_table(path, sheet=sheets["TRUTH"]) as table:
        _check_columns(table, ("CaseID", "LesionID"))
        for row in table:
            truths.setdefault(row["CaseID"], set()).add(int(row["LesionID"] not in ("0", "0.0")))
    marks = [(sheets[name], truth) for name, truth in _MARKS.items() if name in sheets]
    return [row for sheet, truth in marks for row in _ratings(path, sheet, truth, truths)]


def _ratings(path: Path, sheet: str, truth: int, truths: Mapping[str, set[int]]) -> Iterator[dict[str, str]]:
    with open_table(path, sheet=sheet) as table:
        rating = next((name for name in table.columns if name.casefold().endswith("rating")), f"{sheet}_Rating")
        _check_columns(table, ("ReaderID", "ModalityID", "CaseID", rating))
        for row in table:
            if truths.get(row["CaseID"]) != {truth}:
                rule = f"must be a case with {'a lesion' if truth else 'no lesion'} in the sheet Truth: free-response "
                rule += "marks are no readings of cases"
                raise TableError(row.problem("CaseID", rule, f"{row['CaseID']} in the sheet {sheet}"))
            yield _reading(row, rating, str(truth))


def _check_columns(table: TableReader, names: Iterable[str]) -> None:
    if missing := [name for name in names if name not in table]:
        raise table.error("columns", f"must include {', '.join(missing)}", ", ".join(table.columns))


def _reading(row: TableRow, score: str, truth: str | None) -> dict[str, str]:
    if truth is None:
        raise TableError(row.problem("caseID", "must have a row with its truth", row["caseID"]))
    names = {"reader": "readerID", "case": "caseID", "modality": "modalityID", "score": score}
    return {ours: row[theirs] for ours, theirs in names.items()} | {"truth": truth}


def _sheet_names(path: Path) -> list[str]:
    """Return the names of a workbook's sheets; empty if it is damaged or its list of sheets is too long."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(_WORKBOOK)
            text = archive.read(info) if info.file_size <= _WORKBOOK_BYTES else b""
    except Exception:  # any of zipfile and its decompressors; the reader of tables says what is wrong
        return []
    return [name.decode("utf-8", "replace") for name in _SHEET.findall(text)]
