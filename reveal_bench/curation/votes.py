"""Import a table of votes cast elsewhere into ``votes.parquet``, without losing or guessing anything.

A row is one reader's answer to one study: `study`, `reader`, `answer` and, optionally, `comment` and `labels` (labels
that the reader wrote down). Answers are spelled as in paper 004 ("Agree All", "agree_mostly", "Disagree") or as in its
Figure 2, where the first is "Agree"; case, spaces, hyphens and underscores do not matter. One cell lists all labels of
a vote. "None" means that the reader saw none of the twelve labels; a blank cell means that the reader listed no labels.

Every row is checked against the assignments. All problems are raised together, with line, field, rule and value.
Studies with missing votes are always counted, and are refused unless `allow_missing` is True. The folder's own
assignments determine the number of votes per study: assignments that were given up later count as missing, too.
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
"""Field -> default name of its column; the last two columns are optional."""
NEEDED = ("study", "reader", "answer")

VOTES, ASSIGNMENTS, SAMPLE = "votes.parquet", "assignments.parquet", "sample.parquet"
SPELLINGS = {"agree": "agree_all", **{answer.replace("_", " "): answer for answer in ANSWERS}}


def import_votes(
    folder: CurationFolder,
    *tables: Path,
    columns: Mapping[str, str] | None = None,
    separator: str = ";",
    allow_missing: bool = False,
    reassigned: Path | None = None,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Import votes.

    Parameters
    ----------
    tables : one or more tables of votes (csv, tsv, xlsx, json, jsonl), such as one from each reader
    columns : field of :data:`COLUMNS` -> name of its column in the table, if different
    separator : between labels in one cell
    allow_missing : continue although studies lack votes
    reassigned : the final assignments, a Parquet file like ``assignments.parquet``, if studies were reassigned
        (:func:`~reveal_bench.curation.assign.reassign`)

    Returns
    -------
    StepRecord
        The counts are those of :func:`vote_counts`.

    Raises
    ------
    BuildError
        If the table has problems; the error lists all of them.
    CurationError
        If votes are missing and `allow_missing` is False, `reassigned` does not fit this assignment, the step `assign`
        is not done, or `import-votes` was done with other inputs or settings.
    ValueError
        If `columns` has an unknown field.
    """
    named = {**COLUMNS, **(columns or {})}
    unknown = sorted(named.keys() - COLUMNS.keys())
    if unknown:
        raise ArgumentError("columns", f"must be among {', '.join(COLUMNS)}", repr(unknown[0]))
    read = [_read(Path(table), named, required=[*NEEDED, *(columns or {})]) for table in tables]

    def work(scratch: Path) -> dict[str, Any]:
        first = read_table(folder.path(ASSIGNMENTS), Assignment)
        assignments = first
        if reassigned is not None:
            assignments = read_table(Path(reassigned), Assignment)
            _check_reassigned(assignments, first)
        sampled = read_table(folder.path(SAMPLE), Sampled)
        votes = check_votes(read, assignments, sampled, columns=named, separator=separator)
        counts = vote_counts(votes, assignments, first)
        if counts["missing"] and not allow_missing:
            raise CurationError(_missing_text(votes, first, counts["given_up"]))
        write_table(scratch / VOTES, votes, Vote)
        if progress is not None:
            progress(len(votes), len(votes))
        return counts

    files = {f"votes {i}" if i > 1 else "votes": Path(table) for i, table in enumerate(tables, start=1)}
    files |= {"reassigned": Path(reassigned)} if reassigned else {}
    settings = {"columns": named, "separator": separator, "allow_missing": allow_missing}
    return folder.run(
        "import-votes", settings, work, reads=[ASSIGNMENTS, SAMPLE], files=files, writes=[VOTES], redo=redo
    )


def check_votes(
    tables: Iterable[InputTable],
    assignments: Iterable[Assignment],
    sampled: Iterable[Sampled],
    *,
    columns: Mapping[str, str] = COLUMNS,
    separator: str = ";",
) -> list[Vote]:
    """Return the rows of tables as votes, by study and reader.

    A row is wrong if a required cell is blank; its study or reader is unknown, or the study was not assigned to the
    reader; the same reader answered the same study in an earlier row; the answer is unknown; a label is not one of the
    twelve, or is repeated, or occurs with "None"; or labels with "agree all" are not the suggested ones. A comment with
    "agree all" is kept.

    Raises
    ------
    BuildError
        If a row has a problem; the error lists the problems of all rows.
    """
    checking = _Checking(columns, separator, assignments, sampled)
    votes = [checking.read(table.file, row) for table in tables for row in table.rows]
    if checking.problems:
        raise BuildError(checking.problems)
    return sorted((vote for vote in votes if vote is not None), key=lambda vote: (vote.study_id, vote.reader))


def spelled_answer(text: str) -> str | None:
    """Return the answer (one of ANSWERS) that `text` spells; None for any other text.

    Examples
    --------
    >>> spelled_answer("Agree All"), spelled_answer("agree-mostly"), spelled_answer("maybe")
    ('agree_all', 'agree_mostly', None)
    """
    return SPELLINGS.get(" ".join(text.casefold().replace("_", " ").replace("-", " ").split()))


def vote_counts(
    votes: Sequence[Vote], assignments: Sequence[Assignment], first: Sequence[Assignment] | None = None
) -> dict[str, Any]:
    """Count votes that exist and votes that are missing.

    Parameters
    ----------
    assignments : the final assignments
    first : the original assignments, if they differ; they determine the number of votes per study

    Returns
    -------
    dict
        `studies`, `assigned` (original assignments), `given_up` (those without a reader now), `votes`, `missing`
        (assignments without a vote, including those given up), `studies_by_votes` (number of votes -> studies),
        `answers` (answer -> votes), `comments`, `comments_with_agree_all`, `with_labels`, and `by_reader`: reader ->
        {assigned (finally), votes}.
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
    """Read the table, in which the mandatory columns and all columns named by the caller are required."""
    problems: list[Problem] = []
    table = scan_table(path, path.name, problems)
    if table is not None:
        problems += missing_columns(table, (columns[one] for one in required))
    if problems or table is None:
        raise BuildError(problems)
    return table


class _Checking:
    """Converts rows to votes and collects problems in `problems`."""

    def __init__(
        self,
        columns: Mapping[str, str],
        separator: str,
        assignments: Iterable[Assignment],
        sampled: Iterable[Sampled],
    ) -> None:
        self.file, self.columns, self.separator = "", columns, separator
        self.assigned = {(one.study_id, one.reader) for one in assignments}
        self.readers = {reader for _, reader in self.assigned}
        self.suggested = {one.study_id: one.labels for one in sampled}
        self.problems: list[Problem] = []
        self._first: dict[tuple[str, str], tuple[str, TableRow]] = {}

    def read(self, file: str, row: TableRow) -> Vote | None:
        """Return the vote of a row of `file`; None if the row has a problem."""
        self.file = file
        n_before = len(self.problems)
        study, reader, answer = (self._text(row, field) for field in NEEDED)
        self._place(row, study, reader)
        spelled = spelled_answer(answer)
        if answer and spelled is None:
            self._fail(row, "answer", f"must be one of {', '.join(ANSWERS)}", hint(answer, ANSWERS))
        labels = self._labels(row)
        suggested = self.suggested.get(study)
        if spelled == "agree_all" and None not in (labels, suggested) and labels != suggested:
            rule = "must be blank or the suggested labels if the answer is agree_all"
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
        """Check that this reader was assigned this study, and has not answered it before."""
        is_study, is_reader = study in self.suggested, reader in self.readers
        if study and not is_study:
            self._fail(row, "study", "must be a study of the sample", repr(study[:128]))
        if reader and not is_reader:
            self._fail(row, "reader", "must be a reader who was assigned studies", hint(reader[:128], self.readers))
        if is_study and is_reader and (study, reader) not in self.assigned:
            self._fail(row, "study", "must be assigned to the reader", f"{study!r} for {reader!r}")
        file, first = self._first.setdefault((study, reader), (self.file, row))
        if is_study and is_reader and first is not row:
            value = f"{study!r} of {reader!r} again, first in {file}:{first.number}"
            self._fail(row, "study", "must be answered once by a reader", value)

    def _labels(self, row: TableRow) -> Labels | None:
        cell = row.cell(self.columns["labels"]) if self.columns["labels"] in row else ""
        if cell == "":
            return None
        entries = [one.strip() for one in cell.split(self.separator)] if isinstance(cell, str) else cell
        return labels_of_cell(entries, "labels", lambda field, rule, value: self._fail(row, field, rule, value))


def _check_reassigned(assignments: Sequence[Assignment], first: Sequence[Assignment]) -> None:
    """Check that assignments changed readers or were given up, but none was added.

    Raises
    ------
    CurationError
        If a study was not assigned, or has more assignments than before or the same reader twice.
    """
    wanted = Counter(one.study_id for one in first)
    counts = Counter(one.study_id for one in assignments)
    others = sorted(counts.keys() - wanted.keys())
    if others:
        raise CurationError(
            f"`reassigned` must have only assigned studies, got {len(others):,} others, the first of them {others[0]!r}"
        )
    more = sorted(study for study in counts if counts[study] > wanted[study])
    if more:
        raise CurationError(
            f"`reassigned` must not have more assignments of a study than before, got {counts[more[0]]} instead of"
            f" {wanted[more[0]]} of {more[0]!r}; {len(more):,} studies have more"
        )
    pairs = Counter((one.study_id, one.reader) for one in assignments)
    study, reader = max(pairs, key=lambda pair: pairs[pair], default=("", ""))
    if pairs[study, reader] > 1:
        raise CurationError(f"`reassigned` must give a reader a study once, got {study!r} for {reader!r} again")


def _missing_text(votes: Sequence[Vote], first: Sequence[Assignment], n_given_up: int) -> str:
    """Return a sentence on the studies that lack votes, naming the first of them."""
    there = Counter(vote.study_id for vote in votes)
    wanted = Counter(one.study_id for one in first)
    lacking = {study: n - there[study] for study, n in wanted.items() if n > there[study]}
    tally = Counter(there[study] for study in lacking)
    parts = ", ".join(f"{tally[n]:,} with {count_text(n, 'vote')}" for n in sorted(tally))
    named = ", ".join(sorted(lacking)[:3])
    given_up = f"; {n_given_up:,} assignments were given up" if n_given_up else ""
    return (
        f"every study must have the votes of all its readers, got {len(lacking):,} without ({parts}), the first of them"
        f" {named}{given_up}; `--allow-missing` (`allow_missing=True`) continues without"
        f" the {sum(lacking.values()):,} missing votes"
    )
