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
import json
from collections.abc import Iterator
from pathlib import Path

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.questions import AskSettings, describe_split, list_questions
from reveal_bench.models.run_folder import Exchange, RunInfo, with_reply

__all__ = ["read_saved_replies"]

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
    for line, question, text in _rows(Path(path), KINDS[described["kind"]].key, questions):
        if question.id in found:
            raise ValueError(f"{path}:{line} must be of a question without an earlier row, got {question.id}")
        reply = read_reply(text, question, settings)
        asked = Exchange(question.id, question.unit, reply.status, finding=question.finding)
        found[question.id] = with_reply(asked, reply, text=text)
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
    with path.open(encoding="utf-8-sig", newline="") as file:
        if path.suffix.lower() in DELIMITERS:
            table = csv.DictReader(file, delimiter=DELIMITERS[path.suffix.lower()])
            for cells in table:
                yield table.line_num, {name: text for name, text in cells.items() if isinstance(name, str)}
            return
        for number, text in enumerate(file, start=1):
            try:
                row = json.loads(text)
            except ValueError as error:
                raise ValueError(f"{path}:{number} must be a JSON object, got {error!s}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number} must be a JSON object, got {type(row).__name__}")
            yield number, row
