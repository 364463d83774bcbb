"""Import a model's replies that another program obtained and saved as text, and parse them like all replies.

Conventions
-----------
A table has a row per question: its id (``image_id`` and ``finding``, ``study_id`` or ``task_id``) and the model's
unmodified ``reply``. An optional ``finish_reason`` says why the model stopped ("length": it was cut off). The table is
a CSV or TSV file, or JSON lines. Columns may have other names, and ids may be paths of image files. The prompts are
unknown, so the run has no settings of prompts. The caller must state the convention for positions. Cells, points and
boxes refer to the square image of :mod:`reveal_bench.models.overlay`; boxes of a detection benchmark refer to the whole
image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import canonical_finding, hint
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.questions import AskSettings, describe_split, list_questions
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, with_reply
from reveal_bench.predictions.number_ids import id_of_path
from reveal_bench.tables import TableRow, open_table
from reveal_bench.words import count_text


def read_saved_replies(
    path: Path,
    folder: Path,
    split: str,
    settings: AskSettings,
    *,
    model: str,
    columns: Mapping[str, str] | None = None,
) -> tuple[RunInfo, list[QuestionOutcome]]:
    """Read a file of replies to the questions of a split.

    Parameters
    ----------
    path : the table, in the format of the module's docstring
    settings : the form of the answers, and the convention for positions
    model : name to publish
    columns : the table's name of a column -> its name in the module's docstring, where they differ

    Returns
    -------
    RunInfo, list of QuestionOutcome
        In the order of the manifest. A question without a row has no exchange and counts as not asked.

    Raises
    ------
    ArgumentError
        If `columns` give a name that is not in the module's docstring, or give one twice.
    ValueError
        If a row lacks a field, or its question is not in the split or has an earlier row; the error names file and
        line.
    """
    questions = {(question.unit, question.finding): question for question in list_questions(folder, split, settings)}
    described = describe_split(folder, split)
    exchanges: dict[str, QuestionOutcome] = {}
    if not questions:
        raise ValueError(f"{folder} must have questions in split {split!r}")
    key = KINDS[described["kind"]].key
    theirs = _by_our_names(columns or {}, (key, "finding", "reply", "finish_reason"))
    for line, question, text, reason in _rows(Path(path), key, questions, theirs):
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


def _by_our_names(columns: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Return our name of a column -> the table's."""
    theirs: dict[str, str] = {}
    for name, ours in columns.items():
        if ours not in known or ours in theirs:
            rule = f"must give each of {', '.join(known)} to at most one column, and no other name"
            raise ArgumentError("columns", rule, f"{name}={ours}")
        theirs[ours] = name
    return theirs


def _rows(
    path: Path, key: str, questions: Questions, theirs: Mapping[str, str]
) -> Iterator[tuple[int, Question, str, str | None]]:
    """Yield every row's line number, question, reply and finish reason; `theirs`: our column -> the table's."""
    asked: dict[str, list[str]] = {}
    for unit, finding in questions:
        asked.setdefault(unit, []).extend([] if finding is None else [finding])
    asks_findings = any(asked.values())
    ours = (key, "finding", "reply") if asks_findings else (key, "reply")
    needed, reasons = {name: theirs.get(name, name) for name in ours}, theirs.get("finish_reason", "finish_reason")
    with open_table(path, str(path), objects=True, verbatim=True) as rows:
        for row in rows:
            _check_columns(row, {**needed, **theirs}, path)
            reason = row.value(reasons) if reasons in row else None
            question, reply = _reply_of(row, list(needed.values()), asked, path)
            yield row.number, questions[question], reply, str(reason) if reason else None


def _check_columns(row: TableRow, needed: Mapping[str, str], path: Path) -> None:
    """Raise ValueError if a row lacks a column; `needed` maps our names to the table's."""
    names = needed.values()
    missing = {ours: name for ours, name in needed.items() if name not in row}
    if missing:
        rule = f"must have the {count_text(len(needed), 'column')} {', '.join(names)}"
        others = [f": --column {name}={next(iter(missing))} renames a column" for name in row if name not in names]
        got = f"{', '.join(missing.values())} not among {', '.join(row)}{''.join(others[:1])}"
        raise ValueError(f"{path}:{row.number} {rule}; {got}")


def _reply_of(
    row: TableRow, needed: Sequence[str], asked: Mapping[str, Sequence[str]], path: Path
) -> tuple[tuple[str, str | None], str]:
    """Return a row's id and finding, and its reply; `needed` are the columns of id, finding (if asked) and reply."""
    for name in needed:
        value = row.value(name)
        if not isinstance(value, str):
            raise ValueError(f"{path}:{row.number} must have the text `{name}`, got {value!r}")
    case_id = id_of_path(row[needed[0]], asked)
    if case_id is None:
        rule = f"`{needed[0]}` must be an id of the split"
        raise ValueError(f"{path}:{row.number} {rule}, got {hint(row[needed[0]], asked)}")
    finding, reply = row[needed[1]] if len(needed) > 2 else None, row[needed[-1]]
    if finding is not None:
        known = canonical_finding(finding, asked[case_id])
        if known is None:
            rule = f"`{needed[1]}` must be one that is asked about {case_id} ({', '.join(asked[case_id])})"
            raise ValueError(f"{path}:{row.number} {rule}, got {finding!r}")
        finding = known
    return (case_id, finding), reply
