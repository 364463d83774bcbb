"""Votes that were cast elsewhere: a table of them -> ``votes.parquet``, with nothing lost and nothing guessed.

A row is one reader's answer to one study: `study`, `reader`, `answer` and, if there are such columns, `comment` and
`labels` (those that the reader wrote down by hand). Answers are spelled as in paper 004 ("Agree All", "agree_mostly",
"Disagree") or as there in Figure 2, where the first is "Agree"; case, spaces, hyphens and underscores do not matter.
Labels stand in one cell, separated; "None" says that the reader saw none of the twelve, a blank that nothing is said.

Every row is held against the assignments. What is wrong is raised together, with line, field, rule and value. Studies
with fewer votes than readers are refused unless they may be missing, and counted in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.builders.source import BuildError, Problem
from reveal_bench.builders.study_labels import spelled_labels
from reveal_bench.builders.study_table import StudyTable, TableRow
from reveal_bench.builders.study_table import read_table as read_any_table
from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import (
    ANSWERS,
    Assignment,
    Labels,
    Sampled,
    Vote,
    in_order,
    read_table,
    write_table,
)
from reveal_bench.findings import REVEAL_LABELS, hint

__all__ = ["COLUMNS", "check_votes", "import_votes", "spelled_answer", "vote_counts"]

COLUMNS = {name: name for name in ("study", "reader", "answer", "comment", "labels")}
"""Field -> column, unless told otherwise; the last two may be missing."""
NEEDED = ("study", "reader", "answer")

VOTES, ASSIGNMENTS, SAMPLE = "votes.parquet", "assignments.parquet", "sample.parquet"
SPELLINGS = {"agree": "agree_all", **{answer.replace("_", " "): answer for answer in ANSWERS}}


def import_votes(
    folder: CurationFolder,
    table: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str = ";",
    allow_missing: bool = False,
    reassigned: Path | None = None,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Take up a table of votes (csv, tsv, xlsx, json, jsonl).

    Parameters
    ----------
    columns : field of :data:`COLUMNS` -> name of its column in the table, where it is another
    separator : between labels in one cell
    allow_missing : go on though studies lack votes
    reassigned : assignments as they were in the end, a Parquet file like ``assignments.parquet``, if readings changed
        hands (:func:`~reveal_bench.curation.reassign.reassign`)

    Returns
    -------
    StepRecord
        Its counts are those of :func:`vote_counts`.

    Raises
    ------
    BuildError
        With everything that is wrong with the table.
    CurationError
        If votes are missing and may not, assign is not done, or import-votes was done otherwise.
    ValueError
        If `columns` has an unknown field.
    """
    table = Path(table)
    named = {**COLUMNS, **(columns or {})}
    unknown = sorted(named.keys() - COLUMNS.keys())
    if unknown:
        raise ValueError(f"`columns` must be of {', '.join(COLUMNS)}, got {unknown[0]!r}")
    rows = _read(table, named, required=[*NEEDED, *(columns or {})])

    def work(scratch: Path) -> dict[str, Any]:
        assignments = read_table(reassigned or folder.path(ASSIGNMENTS), Assignment)
        sampled = read_table(folder.path(SAMPLE), Sampled)
        votes = check_votes(rows, assignments, sampled, columns=named, separator=separator)
        counts = vote_counts(votes, assignments)
        if counts["missing"] and not allow_missing:
            raise CurationError(_missing_text(votes, assignments))
        write_table(scratch / VOTES, votes, Vote)
        if progress is not None:
            progress(len(votes), len(votes))
        return counts

    files = {"votes": table} | ({"reassigned": Path(reassigned)} if reassigned else {})
    settings = {"columns": named, "separator": separator, "allow_missing": allow_missing}
    return folder.run(
        "import-votes", settings, work, reads=[ASSIGNMENTS, SAMPLE], files=files, writes=[VOTES], redo=redo
    )


def check_votes(
    table: StudyTable,
    assignments: Iterable[Assignment],
    sampled: Iterable[Sampled],
    *,
    columns: Mapping[str, str] = COLUMNS,
    separator: str = ";",
) -> list[Vote]:
    """The rows of a table as votes, by study and reader.

    A row is wrong if a needed cell is blank; its study or reader is unknown, or the one was not assigned to the other;
    the same reader answered the same study in an earlier row; the answer is no answer; a label is none of the twelve or
    there twice, or stands beside "None"; or labels beside "agree all" are not those that were suggested. A comment
    beside "agree all" is kept.

    Raises
    ------
    BuildError
        With every problem of every row.
    """
    checking = _Checking(table.file, columns, separator, assignments, sampled)
    votes = [checking.read(row) for row in table.rows]
    if checking.problems:
        raise BuildError(checking.problems)
    return sorted((vote for vote in votes if vote is not None), key=lambda vote: (vote.study_id, vote.reader))


def spelled_answer(text: str) -> str | None:
    """One of ANSWERS, None if `text` spells none of them.

    Examples
    --------
    >>> spelled_answer("Agree All"), spelled_answer("agree-mostly"), spelled_answer("maybe")
    ('agree_all', 'agree_mostly', None)
    """
    return SPELLINGS.get(" ".join(text.casefold().replace("_", " ").replace("-", " ").split()))


def vote_counts(votes: Sequence[Vote], assignments: Sequence[Assignment]) -> dict[str, Any]:
    """What is there and what is not.

    Returns
    -------
    dict
        `studies`, `assigned` (readings), `votes`, `missing` (readings without a vote), `studies_by_votes` (number of
        votes -> studies), `answers` (answer -> votes), `comments`, `comments_with_agree_all`, `with_labels`, and
        `by_reader`: reader -> {assigned, votes}.
    """
    by_study = Counter(vote.study_id for vote in votes)
    wanted = Counter(one.study_id for one in assignments)
    tally = Counter(by_study[study] for study in wanted)
    answers = Counter(vote.answer for vote in votes)
    assigned, cast = Counter(one.reader for one in assignments), Counter(vote.reader for vote in votes)
    return {
        "studies": len(wanted),
        "assigned": len(assignments),
        "votes": len(votes),
        "missing": len(assignments) - len(votes),
        "studies_by_votes": {str(n): tally[n] for n in range(max(wanted.values(), default=0) + 1)},
        "answers": {answer: answers[answer] for answer in ANSWERS},
        "comments": sum(bool(vote.comment) for vote in votes),
        "comments_with_agree_all": sum(bool(vote.comment) and vote.answer == "agree_all" for vote in votes),
        "with_labels": sum(vote.labels is not None for vote in votes),
        "by_reader": {reader: {"assigned": assigned[reader], "votes": cast[reader]} for reader in sorted(assigned)},
    }


def _read(path: Path, columns: Mapping[str, str], *, required: Iterable[str]) -> StudyTable:
    """The table, with the columns that must be there; one that was named must, too."""
    problems: list[Problem] = []
    table = read_any_table(path, path.name, problems)
    if table is not None:
        for name in dict.fromkeys(columns[one] for one in required):
            if name not in table.columns:
                value = f"{hint(name, table.columns)}; it has {', '.join(table.columns)}"[:300]
                problems.append(Problem(path.name, None, "column", f"must be a column of {path.name}", value))
    if problems or table is None:
        raise BuildError(problems)
    return table


class _Checking:
    """Rows -> votes; what is wrong goes to `problems`."""

    def __init__(
        self,
        file: str,
        columns: Mapping[str, str],
        separator: str,
        assignments: Iterable[Assignment],
        sampled: Iterable[Sampled],
    ) -> None:
        self.file, self.columns, self.separator = file, columns, separator
        self.assigned = {(one.study_id, one.reader) for one in assignments}
        self.readers = {reader for _, reader in self.assigned}
        self.suggested = {one.study_id: one.labels for one in sampled}
        self.problems: list[Problem] = []
        self._first: dict[tuple[str, str], int] = {}

    def read(self, row: TableRow) -> Vote | None:
        """The vote of a row, None if something is wrong with it."""
        n_before = len(self.problems)
        study, reader, answer = (self._text(row, field) for field in NEEDED)
        self._place(row, study, reader)
        spelled = spelled_answer(answer)
        if answer and spelled is None:
            self._fail(row, "answer", f"must be one of {', '.join(ANSWERS)}", hint(answer, ANSWERS))
        labels = self._labels(row)
        suggested = self.suggested.get(study)
        if spelled == "agree_all" and None not in (labels, suggested) and labels != suggested:
            rule = "must be blank or the suggested labels with agree_all"
            self._fail(row, "labels", rule, self._text(row, "labels"))
        if len(self.problems) > n_before:
            return None
        return Vote(study, reader, spelled or "", self._text(row, "comment"), labels)

    def _fail(self, row: TableRow, field: str, rule: str, value: str) -> None:
        self.problems.append(Problem(self.file, row.number, self.columns[field], rule, value))

    def _text(self, row: TableRow, field: str) -> str:
        column = self.columns[field]
        text = row.text(column) if column in row.cells else ""
        if not text and field in NEEDED:
            self._fail(row, field, "must not be blank", "a blank cell")
        return text

    def _place(self, row: TableRow, study: str, reader: str) -> None:
        """Whether this reader was to answer this study, and had not."""
        is_study, is_reader = study in self.suggested, reader in self.readers
        if study and not is_study:
            self._fail(row, "study", "must be a study of the sample", repr(study[:128]))
        if reader and not is_reader:
            self._fail(row, "reader", "must be a reader who was assigned studies", hint(reader[:128], self.readers))
        if is_study and is_reader and (study, reader) not in self.assigned:
            self._fail(row, "study", "must be assigned to the reader", f"{study!r} for {reader!r}")
        first = self._first.setdefault((study, reader), row.number)
        if is_study and is_reader and first != row.number:
            value = f"{study!r} of {reader!r} again, first in row {first}"
            self._fail(row, "study", "must be answered once by a reader", value)

    def _labels(self, row: TableRow) -> Labels | None:
        cell = row.cells.get(self.columns["labels"], "")
        entries = [one.strip() for one in cell.split(self.separator)] if isinstance(cell, str) else list(cell)
        if cell == "":
            return None
        known, unknown = spelled_labels(entries)
        for text in unknown:
            self._fail(row, "labels", "must be one of the twelve labels, or None", hint(text, REVEAL_LABELS))
        twice = sorted({label for label in known if known.count(label) > 1})
        if twice:
            self._fail(row, "labels", "must name each label once", f"{', '.join(twice)} again")
        if known and len(known) + len(unknown) < len(entries):
            self._fail(row, "labels", 'must not have "None" beside a label', repr(cell))
        return in_order(known)


def _missing_text(votes: Sequence[Vote], assignments: Sequence[Assignment]) -> str:
    """How many studies lack how many votes, and the first of them."""
    cast = {(vote.study_id, vote.reader) for vote in votes}
    lacking: dict[str, int] = {}
    for one in assignments:
        if (one.study_id, one.reader) not in cast:
            lacking[one.study_id] = lacking.get(one.study_id, 0) + 1
    there = Counter(vote.study_id for vote in votes)
    tally = Counter(there[study] for study in lacking)
    parts = ", ".join(f"{tally[n]:,} with {n} vote{'s' * (n != 1)}" for n in sorted(tally))
    first = ", ".join(sorted(lacking)[:3])
    return (
        f"every study must have the votes of all its readers, got {len(lacking):,} without ({parts}), the first of them"
        f" {first}; allow_missing goes on without the {sum(lacking.values()):,} votes that are missing"
    )
