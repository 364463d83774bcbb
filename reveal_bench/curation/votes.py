"""Votes that were cast elsewhere: a table of them -> ``votes.parquet``, with nothing lost and nothing guessed.

A row is one reader's answer to one study: `study`, `reader`, `answer` and, if there are such columns, `comment` and
`labels` (those that the reader wrote down by hand). Answers are spelled as in paper 004 ("Agree All", "agree_mostly",
"Disagree") or as there in Figure 2, where the first is "Agree"; case, spaces, hyphens and underscores do not matter.
Labels stand in one cell, separated; "None" says that the reader saw none of the twelve, a blank that nothing is said.

Every row is held against the assignments. What is wrong is raised together, with line, field, rule and value. Studies
with fewer votes than they were to have are refused unless votes may be missing, and counted in any case. How many they
were to have, the folder's own assignments say: readings that were given up since are missing, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import (
    ANSWERS,
    Assignment,
    Labels,
    Sampled,
    Vote,
    read_table,
    write_table,
)
from reveal_bench.findings import hint
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.sources.study_labels import labels_of_cell
from reveal_bench.tables import InputTable, TableRow, missing_columns, scan_table
from reveal_bench.words import count_text

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
        hands (:func:`~reveal_bench.curation.assign.reassign`)

    Returns
    -------
    StepRecord
        Its counts are those of :func:`vote_counts`.

    Raises
    ------
    BuildError
        With everything that is wrong with the table.
    CurationError
        If votes are missing and may not, `reassigned` is not of this assignment, assign is not done, or import-votes
        was done otherwise.
    ValueError
        If `columns` has an unknown field.
    """
    table = Path(table)
    named = {**COLUMNS, **(columns or {})}
    unknown = sorted(named.keys() - COLUMNS.keys())
    if unknown:
        raise ArgumentError("columns", f"must be of {', '.join(COLUMNS)}", repr(unknown[0]))
    rows = _read(table, named, required=[*NEEDED, *(columns or {})])

    def work(scratch: Path) -> dict[str, Any]:
        first = read_table(folder.path(ASSIGNMENTS), Assignment)
        assignments = first
        if reassigned is not None:
            assignments = read_table(Path(reassigned), Assignment)
            _check_reassigned(assignments, first)
        sampled = read_table(folder.path(SAMPLE), Sampled)
        votes = check_votes(rows, assignments, sampled, columns=named, separator=separator)
        counts = vote_counts(votes, assignments, first)
        if counts["missing"] and not allow_missing:
            raise CurationError(_missing_text(votes, first, counts["given_up"]))
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
    table: InputTable,
    assignments: Iterable[Assignment],
    sampled: Iterable[Sampled],
    *,
    columns: Mapping[str, str] = COLUMNS,
    separator: str = ";",
) -> list[Vote]:
    """The rows of a table as votes, by study and reader.

    A row is wrong if a needed cell is blank; its study or reader is unknown, or the one was not assigned to the other;
    the same reader answered the same study in an earlier row; the answer is unknown; a label is not one of the twelve,
    or there twice, or stands beside "None"; or labels beside "agree all" are not those that were suggested. A comment
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


def vote_counts(
    votes: Sequence[Vote], assignments: Sequence[Assignment], first: Sequence[Assignment] | None = None
) -> dict[str, Any]:
    """What is there and what is not.

    Parameters
    ----------
    assignments : as they were in the end
    first : as they were at first, if that is something else; they say how many votes a study was to have

    Returns
    -------
    dict
        `studies`, `assigned` (readings at first), `given_up` (those that have no reader any more), `votes`, `missing`
        (readings without a vote, those given up among them), `studies_by_votes` (number of votes -> studies), `answers`
        (answer -> votes), `comments`, `comments_with_agree_all`, `with_labels`, and `by_reader`: reader -> {assigned
        (in the end), votes}.
    """
    first = assignments if first is None else first
    by_study = Counter(vote.study_id for vote in votes)
    wanted = Counter(one.study_id for one in first)
    tally = Counter(by_study[study] for study in wanted)
    answers = Counter(vote.answer for vote in votes)
    assigned, cast = Counter(one.reader for one in assignments), Counter(vote.reader for vote in votes)
    return {
        "studies": len(wanted),
        "assigned": len(first),
        "given_up": len(first) - len(assignments),
        "votes": len(votes),
        "missing": len(first) - len(votes),
        "studies_by_votes": {str(n): tally[n] for n in range(max(wanted.values(), default=0) + 1)},
        "answers": {answer: answers[answer] for answer in ANSWERS},
        "comments": sum(bool(vote.comment) for vote in votes),
        "comments_with_agree_all": sum(bool(vote.comment) and vote.answer == "agree_all" for vote in votes),
        "with_labels": sum(vote.labels is not None for vote in votes),
        "by_reader": {reader: {"assigned": assigned[reader], "votes": cast[reader]} for reader in sorted(assigned)},
    }


def _read(path: Path, columns: Mapping[str, str], *, required: Iterable[str]) -> InputTable:
    """The table, with the columns that must be there; one that was named must, too."""
    problems: list[Problem] = []
    table = scan_table(path, path.name, problems)
    if table is not None:
        problems += missing_columns(table, (columns[one] for one in required))
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
        text = row.get(column, "")
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
        cell = row.cell(self.columns["labels"]) if self.columns["labels"] in row else ""
        if cell == "":
            return None
        entries = [one.strip() for one in cell.split(self.separator)] if isinstance(cell, str) else cell
        return labels_of_cell(entries, "labels", lambda field, rule, value: self._fail(row, field, rule, value))


def _check_reassigned(assignments: Sequence[Assignment], first: Sequence[Assignment]) -> None:
    """Readings may change hands or be given up, but none comes in.

    Raises
    ------
    CurationError
        If there is a study that was not assigned, or one with more readings than before or the same reader twice.
    """
    wanted = Counter(one.study_id for one in first)
    found = Counter(one.study_id for one in assignments)
    others = sorted(found.keys() - wanted.keys())
    if others:
        raise CurationError(
            f"`reassigned` must be of the studies that were assigned, got {len(others):,} others, the first of them"
            f" {others[0]!r}"
        )
    more = sorted(study for study in found if found[study] > wanted[study])
    if more:
        raise CurationError(
            f"`reassigned` must have no more readings of a study than were assigned, got {found[more[0]]} instead of"
            f" {wanted[more[0]]} of {more[0]!r}; it is so with {len(more):,} studies"
        )
    pairs = Counter((one.study_id, one.reader) for one in assignments)
    study, reader = max(pairs, key=lambda pair: pairs[pair], default=("", ""))
    if pairs[study, reader] > 1:
        raise CurationError(f"`reassigned` must give a reader a study once, got {study!r} for {reader!r} again")


def _missing_text(votes: Sequence[Vote], first: Sequence[Assignment], n_given_up: int) -> str:
    """How many studies lack how many votes, and the first of them."""
    there = Counter(vote.study_id for vote in votes)
    wanted = Counter(one.study_id for one in first)
    lacking = {study: n - there[study] for study, n in wanted.items() if n > there[study]}
    tally = Counter(there[study] for study in lacking)
    parts = ", ".join(f"{tally[n]:,} with {count_text(n, 'vote')}" for n in sorted(tally))
    named = ", ".join(sorted(lacking)[:3])
    given_up = f"; {n_given_up:,} readings were given up" if n_given_up else ""
    return (
        f"every study must have the votes of all its readers, got {len(lacking):,} without ({parts}), the first of them"
        f" {named}{given_up}; `--allow-missing` (`allow_missing=True`) goes on without"
        f" the {sum(lacking.values()):,} votes that are missing"
    )
