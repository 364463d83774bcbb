"""Import a model's replies that another program obtained and saved as text, and parse them like all replies.

Conventions
-----------
A table has a row per question: its id (``image_id`` and ``finding``, ``study_id`` or ``task_id``) and the model's
unmodified ``reply``. An optional ``finish_reason`` says why the model stopped ("length": it was cut off). The table is
a CSV or TSV file, or JSON lines. The prompts are unknown, so the run has no settings of prompts. The caller must state
the convention for positions. Cells, points and boxes refer to the square image of
:mod:`reveal_bench.models.overlay`, boxes of a detection benchmark to the whole image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reveal_bench.findings import canonical_finding, hint
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.questions import AskSettings, describe_split, list_questions
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, with_reply
from reveal_bench.tables import TableRow, open_table
from reveal_bench.words import count_text


def read_saved_replies(
    path: Path, folder: Path, split: str, settings: AskSettings, *, model: str
) -> tuple[RunInfo, list[QuestionOutcome]]:
    """Read a file of replies to the questions of a split.

    Parameters
    ----------
    path : the table, in the format of the module's docstring
    settings : the form of the answers, and the convention for positions
    model : name to publish

    Returns
    -------
    RunInfo, list of QuestionOutcome
        In the order of the manifest. A question without a row has no exchange and counts as not asked.

    Raises
    ------
    ValueError
        If a row lacks a field, or its question is not in the split or has an earlier row; the error names file and
        line.
    """
    questions = {(question.unit, question.finding): question for question in list_questions(folder, split, settings)}
    described = describe_split(folder, split)
    exchanges: dict[str, QuestionOutcome] = {}
    if not questions:
        raise ValueError(f"{folder} must have questions in split {split!r}")
    for line, question, text, reason in _rows(Path(path), KINDS[described["kind"]].key, questions):
        if question.id in exchanges:
            raise ValueError(f"{path}:{line} must be about a question without an earlier row, got {question.id}")
        reply = read_reply(text, question, settings, stop_reason=reason)
        asked = QuestionOutcome(question.id, question.unit, reply.status, finding=question.finding)
        exchanges[question.id] = with_reply(asked, reply, text=text, stop_reason=reason)
    if not exchanges:
        raise ValueError(f"{path} must have at least one row, got none")
    info = RunInfo(**described, n_questions=len(questions), n_asked=len(questions), model=model, grid=settings.grid)
    return info, [exchanges[question.id] for question in questions.values() if question.id in exchanges]


Questions = dict[tuple[str, str | None], Question]


def _rows(path: Path, key: str, questions: Questions) -> Iterator[tuple[int, Question, str, str | None]]:
    """Yield line number, question, reply and reason for the end of every row."""
    asks_findings = any(finding is not None for _, finding in questions)
    needed = (key, "finding", "reply") if asks_findings else (key, "reply")
    with open_table(path, str(path), objects=True, verbatim=True) as rows:
        for row in rows:
            reason = row.value("finish_reason") if "finish_reason" in row else None
            yield row.number, *_reply_of(row, needed, questions, path), str(reason) if reason else None


def _reply_of(row: TableRow, needed: Sequence[str], questions: Questions, path: Path) -> tuple[Question, str]:
    missing = [name for name in needed if name not in row]
    if missing:
        rule = f"must have the {count_text(len(needed), 'column')} {', '.join(needed)}"
        raise ValueError(f"{path}:{row.number} {rule}; {', '.join(missing)} not among {', '.join(row)}")
    for name in needed:
        value = row.value(name)
        if not isinstance(value, str):
            raise ValueError(f"{path}:{row.number} must have the text `{name}`, got {value!r}")
    case_id, finding = row[needed[0]], row["finding"] if "finding" in needed else None
    known = [name for unit, name in questions if unit == case_id]
    if not known:
        rule = f"`{needed[0]}` must be an id of the split"
        raise ValueError(f"{path}:{row.number} {rule}, got {hint(case_id, (unit for unit, _ in questions))}")
    if finding is not None:
        findings = [name for name in known if name is not None]
        finding = canonical_finding(finding, findings)
        if finding is None:
            rule = f"`finding` must be one that is asked about {case_id} ({', '.join(findings)})"
            raise ValueError(f"{path}:{row.number} {rule}, got {row['finding']!r}")
    return questions[case_id, finding], row["reply"]
