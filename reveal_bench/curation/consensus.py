"""What the readers of a study say together: each vote's labels, the majority's list, and how well readers agree.

Conventions
-----------
A vote amounts to a list of labels: all suggested ones if the reader agreed to all, those that the reader wrote down by
hand, or those that a :class:`Reviser` reads out of the comment; a vote without any of these has no list.

A study with at least two lists has a majority: the labels that are in more than half of its lists. Two lists that
differ on a label are a tie and no majority for it: the label is not in the majority's list, the study keeps its list,
and both are counted. Source: paper 004 (REVEAL-CXR), sections 2.2, 3 and 4.2, where 681 of 1,000 studies had a list.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.reader_agreement import as_document, measure_agreement
from reveal_bench.curation.tables import (
    ANSWERS,
    Consensus,
    Labels,
    Revision,
    Sampled,
    Vote,
    in_order,
    read_table,
    write_table,
)

__all__ = ["Reviser", "consensus", "find_consensus", "majority_labels", "revise_votes"]

READS = ("sample.parquet", "votes.parquet")
WRITES = ("revisions.parquet", "consensus.parquet", "agreement.json", "unread_notes.jsonl")
MIN_LISTS = 2
AGREE_ALL = ANSWERS[0]


class Reviser(Protocol):
    """Reads labels out of comments; `signature` names it with its version, for whoever asks what was done.

    If it has a method `counts`, what that returns afterwards goes into the record of the step.
    """

    @property
    def signature(self) -> str:
        """Such as "rules v1"; another signature is another setting of the step."""

    def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
        """One revision for each (vote, suggested labels), in any order."""


def consensus(
    folder: CurationFolder,
    *,
    revise: Reviser | Literal["rules"] = "rules",
    merge_mostly: bool = True,
    n_resamples: int = 1000,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Find the labels of every vote and of every study, and measure how well readers agree.

    Writes ``revisions.parquet`` (a row per vote), ``consensus.parquet`` (a row per sampled study), ``agreement.json``
    (:mod:`reveal_bench.curation.reader_agreement`) and ``unread_notes.jsonl``, the notes that a model gave no readable
    answer to.

    Parameters
    ----------
    revise : reads labels out of comments; "rules" is :mod:`reveal_bench.curation.comments`
    merge_mostly : whether readers are compared on two answers, "agree all" and any other, as in the paper, or on three
    n_resamples : replicates of the intervals; studies are drawn, by the folder's seed
    redo : do it again though it was done with other inputs or settings
    progress : called with (comments read, comments in all)

    Raises
    ------
    CurationError
        If an earlier step is not done, a vote does not fit the sample, or a reviser's answer does not fit the votes.
    ValueError
        If `n_resamples` is below 1.
    """
    if n_resamples < 1:
        raise ValueError(f"`n_resamples` must be at least 1, got {n_resamples}")
    reviser = _by_rules() if revise == "rules" else revise

    def work(scratch: Path) -> Mapping[str, Any]:
        sampled = read_table(folder.path("sample.parquet"), Sampled)
        votes = read_table(folder.path("votes.parquet"), Vote)
        revisions = revise_votes(sampled, votes, reviser, progress=progress)
        rows, n_ties = find_consensus(sampled, votes, revisions)
        agreement = measure_agreement(
            rows, votes, revisions, merge_mostly=merge_mostly, n_resamples=n_resamples, seed=folder.seed
        )
        write_table(scratch / "revisions.parquet", revisions, Revision)
        write_table(scratch / "consensus.parquet", rows, Consensus)
        counts = {**_counts(rows, votes, revisions), **n_ties}
        document = {**as_document(agreement), "counts": counts}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        (scratch / "agreement.json").write_text(text, encoding="utf-8")
        unread = [json.dumps(asdict(note)) + "\n" for note in getattr(reviser, "unread", ())]
        (scratch / "unread_notes.jsonl").write_text("".join(unread), encoding="utf-8")
        own = getattr(reviser, "counts", None)  # of tokens and costs, if it is a model's
        return counts if own is None else {**counts, "reviser": own()}

    settings = {"revise": reviser.signature, "merge_mostly": merge_mostly, "n_resamples": n_resamples}
    return folder.run("consensus", settings, work, reads=READS, writes=WRITES, redo=redo)


def revise_votes(
    sampled: Sequence[Sampled], votes: Sequence[Vote], reviser: Reviser, *, progress: Progress | None = None
) -> list[Revision]:
    """The labels that each vote amounts to, in the order of `votes`.

    Raises
    ------
    CurationError
        If a vote is on a study that was not sampled, stands twice or has an unknown answer, a reader agrees to all and
        writes down other labels, or the reviser leaves out a vote or answers what was not asked.
    """
    suggested = {study.study_id: study.labels for study in sampled}
    known: dict[tuple[str, str], Revision] = {}
    asked: dict[tuple[str, str], tuple[Vote, Labels]] = {}
    for vote in votes:
        key = vote.study_id, vote.reader
        _check_vote(vote, suggested)
        if key in known or key in asked:
            raise CurationError(f"a reader must vote once on a study, got {vote.reader!r} again on {vote.study_id!r}")
        if vote.answer == AGREE_ALL:
            known[key] = Revision(*key, suggested[vote.study_id], "agreed")
        elif vote.labels is not None:
            known[key] = Revision(*key, in_order(vote.labels), "reader")
        elif not vote.comment.strip():
            known[key] = Revision(*key, None, "nothing")
        else:
            asked[key] = vote, suggested[vote.study_id]
    if asked:
        for n_done, revision in enumerate(reviser(list(asked.values())), start=1):
            key = revision.study_id, revision.reader
            if key not in asked or key in known:
                raise CurationError(f"{reviser.signature} must answer each comment once, got {key} unasked or again")
            known[key] = _checked(revision, reviser.signature)
            if progress is not None:
                progress(n_done, len(asked))
    missing = [key for key in asked if key not in known]
    if missing:
        raise CurationError(f"{reviser.signature} must answer every comment, got none for {missing[0]}")
    return [known[vote.study_id, vote.reader] for vote in votes]


def find_consensus(
    sampled: Sequence[Sampled], votes: Sequence[Vote], revisions: Sequence[Revision]
) -> tuple[list[Consensus], dict[str, int]]:
    """What the readers of each sampled study say together, in the order of `sampled`; and how many ties there are.

    Returns
    -------
    rows, and the numbers of ``tied_labels`` (pairs of study and label) and ``studies_with_a_tie``
    """
    answers: dict[str, list[str]] = {study.study_id: [] for study in sampled}
    lists: dict[str, list[Labels]] = {study.study_id: [] for study in sampled}
    for vote in votes:
        answers[vote.study_id].append(vote.answer)
    for revision in revisions:
        if revision.labels is not None:
            lists[revision.study_id].append(revision.labels)
    rows, ties = [], []
    for study in sampled:
        given, known = answers[study.study_id], lists[study.study_id]
        labels, tied = majority_labels(known)
        rows.append(
            Consensus(
                study.study_id,
                study.patient_id,
                study.labels,
                n_votes=len(given),
                n_agree_all=given.count(AGREE_ALL),
                n_lists=len(known),
                labels=labels,
            )
        )
        ties.append(len(tied))
    return rows, {"tied_labels": sum(ties), "studies_with_a_tie": sum(n > 0 for n in ties)}


def majority_labels(lists: Sequence[Labels]) -> tuple[Labels | None, Labels]:
    """The labels in more than half of `lists`, and those in exactly half, which have no majority.

    With fewer than two lists there is none: (None, ()).

    Examples
    --------
    >>> majority_labels([("COPD",), ("COPD", "Lung mass"), ("Lung mass",)])
    (('COPD', 'Lung mass'), ())
    >>> majority_labels([("COPD",), ("COPD", "Lung mass")])
    (('COPD',), ('Lung mass',))
    >>> majority_labels([("COPD",)])
    (None, ())
    """
    if len(lists) < MIN_LISTS:
        return None, ()
    n_lists_with = Counter(label for one in lists for label in set(one))
    most = in_order(label for label, n in n_lists_with.items() if 2 * n > len(lists))
    return most, in_order(label for label, n in n_lists_with.items() if 2 * n == len(lists))


def _check_vote(vote: Vote, suggested: Mapping[str, Labels]) -> None:
    place = f"the vote of {vote.reader!r} on {vote.study_id!r}"
    if vote.study_id not in suggested:
        raise CurationError(f"{place} must be on a sampled study")
    if vote.answer not in ANSWERS:
        raise CurationError(f"{place} must be one of {', '.join(ANSWERS)}, got {vote.answer!r}")
    if vote.answer == AGREE_ALL and vote.labels is not None and set(vote.labels) != set(suggested[vote.study_id]):
        raise CurationError(
            f"{place} must not agree to all of {_shown(suggested[vote.study_id])} and name {_shown(vote.labels)}"
        )


def _checked(revision: Revision, signature: str) -> Revision:
    if revision.labels is not None and revision.labels != in_order(revision.labels):
        raise CurationError(
            f"{signature} must give labels in their order, got {_shown(revision.labels)} for {revision.study_id!r}"
        )
    return revision


def _shown(labels: Labels) -> str:
    return ", ".join(labels) or "no label"


def _counts(rows: Sequence[Consensus], votes: Sequence[Vote], revisions: Sequence[Revision]) -> dict[str, Any]:
    answers = Counter(vote.answer for vote in votes)
    return {
        "studies": len(rows),
        "votes": len(votes),
        "answers": {answer: answers[answer] for answer in ANSWERS},
        "by_n_votes": _tally(row.n_votes for row in rows),
        "by_n_agree_all": _tally(row.n_agree_all for row in rows if row.n_votes),
        "by_n_lists": _tally(row.n_lists for row in rows),
        "by_source": dict(sorted(Counter(revision.source for revision in revisions).items())),
        "with_majority_list": sum(row.labels is not None for row in rows),
        "majority_differs_from_suggested": sum(row.labels not in (None, row.suggested) for row in rows),
    }


def _tally(numbers: Iterator[int]) -> dict[str, int]:
    return {str(number): n for number, n in sorted(Counter(numbers).items())}


def _by_rules() -> Reviser:
    from reveal_bench.curation.comments import revise_by_rules

    found: Reviser = revise_by_rules
    return found
