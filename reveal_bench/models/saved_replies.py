"""Replies that a model gave elsewhere, saved as text, become a run: read like those of models that were asked here.

Conventions
-----------
A table has a row per question: its id (``image_id`` and ``finding``, ``study_id`` or ``task_id``) and the model's
``reply``, as it came. It is a CSV or TSV file, or JSON lines. The prompts were somebody else's, so that the run states
no settings of prompts. How places are read, a caller has to say: cells, points and boxes belong to the square picture
of :mod:`reveal_bench.models.overlay`, boxes of detection to the whole picture.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.questions import AskSettings, describe_split, list_questions
from reveal_bench.models.run_folder import Exchange, RunInfo, with_reply

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_saved_replies(
    path: Path, folder: Path, split: str, settings: AskSettings, *, model: str
) -> tuple[RunInfo, list[Exchange]]:
    """Read a file of replies to the questions of a split.

    Parameters
    ----------
    path : the table, see above
    settings : the form of the answers, and how their places are read
    model : name to publish

    Returns
    -------
    RunInfo, list of Exchange
        In the order of the manifest. A question without a row has no exchange, and counts as not asked.

    Raises
    ------
    ValueError
        With file and line, if a row lacks a field, is of no question of the split, or of one that had a row before.
    """
    questions = {(question.unit, question.finding): question for question in list_questions(folder, split, settings)}
    described = describe_split(folder, split)
    found: dict[str, Exchange] = {}
    if not questions:
        raise ValueError(f"{folder} must ask something of split {split!r}")
    for line, question, text in _rows(Path(path), KINDS[described["kind"]].key, questions):
        if question.id in found:
            raise ValueError(f"{path}:{line} must be of a question without an earlier row, got {question.id}")
        reply = read_reply(text, question, settings)
        asked = Exchange(question.id, question.unit, reply.status, finding=question.finding)
        found[question.id] = with_reply(asked, reply, text=text)
    if not found:
        raise ValueError(f"{path} must have a row, got none")
    info = RunInfo(**described, n_questions=len(questions), n_asked=len(questions), model=model, grid=settings.grid)
    return info, [found[question.id] for question in questions.values() if question.id in found]


Questions = dict[tuple[str, str | None], Question]


def _rows(path: Path, key: str, questions: Questions) -> Iterator[tuple[int, Question, str]]:
    """Line, question and reply of every row."""
    asks_findings = any(finding is not None for _, finding in questions)
    needed = (key, "finding", "reply") if asks_findings else (key, "reply")
    for line, row in _lines(path):
        for name in needed:
            if not isinstance(row.get(name), str):
                got = "none" if row.get(name) is None else repr(row[name])
                raise ValueError(f"{path}:{line} must have the text `{name}`, got {got}")
        asked = (str(row[key]), str(row["finding"]) if asks_findings else None)
        if asked not in questions:
            shown = ", ".join(filter(None, asked))
            raise ValueError(f"{path}:{line} must be of a question of the split, got {shown!r}")
        yield line, questions[asked], str(row["reply"])


def _lines(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Rows with the lines that they begin in."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8, got {error}") from None
    delimiter = DELIMITERS.get(path.suffix.lower())
    yield from _json_lines(path, text) if delimiter is None else _cells(path, text, delimiter)


def _cells(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, dict[str, object]]]:
    before = csv.field_size_limit(len(text) + 1)  # thoughts may be long
    try:
        table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names = next(table, [])
        if len(set(names)) < len(names):
            raise ValueError(f"{path}:1 must name each column once, got {', '.join(names)}")
        line = table.line_num + 1
        for cells in table:
            if cells and len(cells) != len(names):
                raise ValueError(
                    f"{path}:{line} must have {len(names)} cells, got {len(cells)}: quote what has a {delimiter!r}"
                )
            if cells:
                yield line, dict(zip(names, cells, strict=True))
            line = table.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path} must be a table with balanced quotes, got {error}") from None
    finally:
        csv.field_size_limit(before)


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number} must be a JSON object, got {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number} must be a JSON object, got {type(row).__name__}")
        yield number, row
