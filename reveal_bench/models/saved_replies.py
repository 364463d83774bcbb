"""Replies that a model gave elsewhere, saved as text, become a run: read like those of models that were asked here.

Conventions
-----------
A table has a row per question: its id (``image_id`` and ``finding``, ``study_id`` or ``task_id``) and the model's
``reply``, as it came. It is a CSV or TSV file, or JSON lines. The prompts were somebody else's, so that the run states
no settings of prompts. How places are read, a caller has to say: cells, points and boxes belong to the square picture
of :mod:`reveal_bench.models.overlay`, boxes of detection to the whole picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.questions import AskSettings, describe_split, list_questions
from reveal_bench.models.run_folder import Exchange, RunInfo, with_reply
from reveal_bench.tables import TableRow, open_table


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
    with open_table(path, str(path), objects=True, verbatim=True) as rows:
        for row in rows:
            yield row.number, *_reply_of(row, needed, questions, path)


def _reply_of(row: TableRow, needed: Sequence[str], questions: Questions, path: Path) -> tuple[Question, str]:
    for name in needed:
        value = row.value(name) if name in row else None
        if not isinstance(value, str):
            got = "none" if value is None else repr(value)
            raise ValueError(f"{path}:{row.number} must have the text `{name}`, got {got}")
    asked = (row[needed[0]], row["finding"] if "finding" in needed else None)
    if asked not in questions:
        shown = ", ".join(filter(None, asked))
        raise ValueError(f"{path}:{row.number} must be of a question of the split, got {shown!r}")
    return questions[asked], row["reply"]
