"""Find the consensus of readers: the labels of each vote, the majority's labels per study, and the readers' agreement.

Conventions
-----------
A vote yields a list of labels: all suggested labels if the reader agreed to all, the labels that the reader wrote down,
or the labels that a :class:`Reviser` derives from the comment. Otherwise the vote has no list.

A study with at least two lists has a majority: the labels in more than half of its lists. A label in exactly half of
the lists is tied and not in the majority's list; the tied labels, and the studies that have any, are counted. Source:
paper 004 (REVEAL-CXR), sections 2.2, 3 and 4.2, where 681 of 1,000 studies had a list.

Agreement
---------
Agreement is measured on the suggested labels as a whole, label by label, and between each reader and the others, with
the arithmetic of :mod:`reveal_bench.metrics`. All scores share the same replicates of the sampled studies, from one
seed; studies that contribute nothing to a score (no majority, no list) are resampled as well. Intervals are 95%
percentile intervals. In an :class:`~reveal_bench.metrics.intervals.Estimate` of kappa, `n` counts the compared votes
(for labels: lists), and `n_undefined` counts the votes without a majority to compare with.

* :attr:`ConsensusAgreement.answers`: kappa between a reader's answer and the majority of the study's votes, including
  the reader's own. Answers have two categories ("agree_all" and any other) or three. `against_others` uses only the
  majority of the other votes, which gives lower, less biased kappas; two other readers must agree, so studies with two
  votes do not count. Source: paper 004, section 4.2 (kappa 0.622).
* :attr:`ConsensusAgreement.labels`: the columns of Table S3, for studies with a majority's list. Kappa compares the
  readers' lists with the majority's list, and AC1 compares the readers with each other. The ratio is the proportion of
  the majority's lists that have the label. A tied label has no majority for kappa, and counts as absent in the ratio.
* :attr:`ConsensusAgreement.readers`: the column of Table S4, and kappa between each reader and the majority of the
  others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.curation.folder import CurationError, CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import (
    ANSWERS,
    Consensus,
    Labels,
    Revision,
    Sampled,
    Vote,
    in_order,
    json_ready,
    read_table,
    tally,
    write_table,
)
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.metrics.agreement import (
    ac1_from_sums,
    kappa_from_tables,
    reader_against_majority,
    reader_sums,
    resample_tables,
    unit_tables,
)
from reveal_bench.metrics.bootstrap import MACRO, estimate_means, resampling_counts
from reveal_bench.metrics.estimates import POOLED
from reveal_bench.metrics.intervals import Estimate, Resampling, find_intervals

ORDERED = tuple(reversed(ANSWERS))
"""Answers by code: 0 disagree, 1 agree mostly, 2 agree to all."""

READS = ("sample.parquet", "votes.parquet")
WRITES = ("revisions.parquet", "consensus.parquet", "agreement.json", "unread_notes.jsonl")
MIN_LISTS = 2
AGREE_ALL = ANSWERS[0]


class Reviser(Protocol):
    """A function that derives labels from comments; the step records its `signature`, a name with a version.

    If the reviser has a method `counts`, the step calls the method at the end and records the result.
    """

    @property
    def signature(self) -> str:
        """The reviser and its version, such as "rules v1"; the step treats another signature as another setting."""

    def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
        """Yield one revision per (vote, suggested labels), in any order."""


def consensus(
    folder: CurationFolder,
    *,
    revise: Reviser | Literal["rules"] = "rules",
    merge_mostly: bool = True,
    n_resamples: int = 1000,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Find the labels of every vote and of every study, and measure the readers' agreement.

    Writes ``revisions.parquet`` (a row per vote), ``consensus.parquet`` (a row per sampled study), ``agreement.json``
    (see :mod:`reveal_bench.curation.consensus`) and ``unread_notes.jsonl``, the notes for which a model gave no
    readable answer.

    Parameters
    ----------
    revise : derives labels from comments; "rules" is :mod:`reveal_bench.curation.comments`
    merge_mostly : compare readers on two answers, "agree all" and any other, as in the paper, instead of three
    n_resamples : replicates of the intervals; studies are resampled, with the folder's seed
    redo : repeat the step even if it was done with other inputs or settings
    progress : called with (comments done, all comments)

    Raises
    ------
    CurationError
        If an earlier step is not done, a vote does not fit the sample, or a reviser's answer does not fit the votes.
    ValueError
        If `n_resamples` is below 1.
    """
    if n_resamples < 1:
        raise ArgumentError("n_resamples", "must be at least 1", n_resamples)
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
        document = {**json_ready(agreement), "counts": counts}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        (scratch / "agreement.json").write_text(text, encoding="utf-8")
        unread = [json.dumps(asdict(note)) + "\n" for note in getattr(reviser, "unread", ())]
        (scratch / "unread_notes.jsonl").write_text("".join(unread), encoding="utf-8")
        own = getattr(reviser, "counts", None)  # a reviser that uses a model counts tokens and costs
        return counts if own is None else {**counts, "reviser": own()}

    settings = {"revise": reviser.signature, "merge_mostly": merge_mostly, "n_resamples": n_resamples}
    return folder.run("consensus", settings, work, reads=READS, writes=WRITES, redo=redo)


def revise_votes(
    sampled: Sequence[Sampled], votes: Sequence[Vote], reviser: Reviser, *, progress: Progress | None = None
) -> list[Revision]:
    """Return the labels of each vote, in the order of `votes`.

    Raises
    ------
    CurationError
        If a vote is on a study that was not sampled, occurs twice, has an unknown answer, or agrees to all but lists
        other labels; or if the reviser skips a vote or answers an unrequested one.
    """
    suggested = {study.study_id: study.labels for study in sampled}
    known: dict[tuple[str, str], Revision] = {}
    asked: dict[tuple[str, str], tuple[Vote, Labels]] = {}
    for vote in votes:
        key = vote.study_id, vote.reader
        _check_vote(vote, suggested)
        if key in known or key in asked:
            raise CurationError(
                f"a reader must vote once on a study, got a second vote of {vote.reader!r} on {vote.study_id!r}"
            )
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
                raise CurationError(
                    f"{reviser.signature} must answer each comment once, got an unrequested or second answer to {key}"
                )
            known[key] = _checked(revision, reviser.signature)
            if progress is not None:
                progress(n_done, len(asked))
    missing = [key for key in asked if key not in known]
    if missing:
        raise CurationError(f"{reviser.signature} must answer every comment, got no answer to {missing[0]}")
    return [known[vote.study_id, vote.reader] for vote in votes]


def find_consensus(
    sampled: Sequence[Sampled], votes: Sequence[Vote], revisions: Sequence[Revision]
) -> tuple[list[Consensus], dict[str, int]]:
    """Return the consensus of each sampled study, in the order of `sampled`, and the number of ties.

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
        cast, known = answers[study.study_id], lists[study.study_id]
        labels, tied = majority_labels(known)
        rows.append(
            Consensus(
                study.study_id,
                study.patient_id,
                study.labels,
                n_votes=len(cast),
                n_agree_all=cast.count(AGREE_ALL),
                n_lists=len(known),
                labels=labels,
            )
        )
        ties.append(len(tied))
    return rows, {"tied_labels": sum(ties), "studies_with_a_tie": sum(n > 0 for n in ties)}


def majority_labels(lists: Sequence[Labels]) -> tuple[Labels | None, Labels]:
    """Return the labels in more than half of `lists`, and those in exactly half, which have no majority.

    With fewer than two lists: (None, ()).

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
            f"{place} must not agree to all of {_joined(suggested[vote.study_id])} and name {_joined(vote.labels)}"
        )


def _checked(revision: Revision, signature: str) -> Revision:
    if revision.labels is not None and revision.labels != in_order(revision.labels):
        raise CurationError(
            f"{signature} must give labels in the order of REVEAL_LABELS, "
            f"got {_joined(revision.labels)} for {revision.study_id!r}"
        )
    return revision


def _joined(labels: Labels) -> str:
    return ", ".join(labels) or "no label"


def _counts(rows: Sequence[Consensus], votes: Sequence[Vote], revisions: Sequence[Revision]) -> dict[str, Any]:
    answers = Counter(vote.answer for vote in votes)
    return {
        "studies": len(rows),
        "votes": len(votes),
        "answers": {answer: answers[answer] for answer in ANSWERS},
        "by_n_votes": tally(row.n_votes for row in rows),
        "by_n_agree_all": tally(row.n_agree_all for row in rows if row.n_votes),
        "by_n_lists": tally(row.n_lists for row in rows),
        "by_source": dict(sorted(Counter(revision.source for revision in revisions).items())),
        "with_majority_list": sum(row.labels is not None for row in rows),
        "majority_differs_from_suggested": sum(row.labels not in (None, row.suggested) for row in rows),
    }


def _by_rules() -> Reviser:
    from reveal_bench.curation.comments import revise_by_rules

    reviser: Reviser = revise_by_rules
    return reviser


# Agreement of readers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """A row of Table S3 (paper 004); the label "all" pools the decisions on all labels."""

    label: str
    kappa: Estimate
    ac1: Estimate
    positive_ratio: Estimate


@dataclass(frozen=True, slots=True)
class ReaderConsensus:
    """A row of Table S4 (paper 004), with the proportion of the reader's answers that are "agree_all"."""

    reader: str
    n_studies: int
    kappa: Estimate
    agree_all: Estimate


@dataclass(frozen=True, slots=True)
class ConsensusAgreement:
    """All agreement scores, which the module's docstring defines.

    `shares` gives the proportion of studies by the number of their readers who agreed to all.
    """

    categories: int
    """The number of categories in the comparison: 2 or 3."""
    answers: Mapping[str, Estimate]
    shares: Sequence[Estimate]
    labels: Sequence[LabelAgreement]
    readers: Sequence[ReaderConsensus]


def measure_agreement(
    rows: Sequence[Consensus],
    votes: Sequence[Vote],
    revisions: Sequence[Revision],
    *,
    merge_mostly: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> ConsensusAgreement:
    """Compute every agreement score that the module's docstring defines.

    Parameters
    ----------
    rows : every sampled study; studies are resampled
    votes, revisions : votes and revisions on those studies
    merge_mostly : compare readers on two categories instead of three

    Raises
    ------
    ValueError
        If `rows` is empty.
    """
    resampling = Resampling(n_resamples, seed, "study", "percentile")
    return _Measuring(rows, votes, revisions, resampling).measure(2 if merge_mostly else 3)


class _Measuring:
    """Votes as codes: one row per study, one column per vote of a study, in any order."""

    def __init__(
        self,
        rows: Sequence[Consensus],
        votes: Sequence[Vote],
        revisions: Sequence[Revision],
        resampling: Resampling,
    ) -> None:
        self.rows, self.votes, self.resampling = rows, votes, resampling
        self.counts = resampling_counts(len(rows), resampling)
        self.studies = [row.study_id for row in rows]
        study_code = {study: i for i, study in enumerate(self.studies)}
        self.readers = sorted({vote.reader for vote in votes})
        reader_code = {reader: i for i, reader in enumerate(self.readers)}
        lists = {(revision.study_id, revision.reader): revision.labels for revision in revisions}
        shape = len(rows), max([1, *(row.n_votes for row in rows)])
        self.answers, self.reader_of = np.full(shape, -1), np.full(shape, -1)
        self.lists = np.full((*shape, len(REVEAL_LABELS)), -1)
        filled = np.zeros(len(rows), np.int64)
        for vote in votes:
            study = study_code[vote.study_id]
            place = study, filled[study]
            filled[study] += 1
            self.answers[place] = ORDERED.index(vote.answer)
            self.reader_of[place] = reader_code[vote.reader]
            labels = lists[vote.study_id, vote.reader]
            if labels is not None and rows[study].labels is not None:
                self.lists[place] = [label in labels for label in REVEAL_LABELS]

    def measure(self, categories: int) -> ConsensusAgreement:
        two, three = np.where(self.answers == -1, -1, self.answers == 2), self.answers
        return ConsensusAgreement(
            categories,
            answers={
                "two_categories": self._of_votes(two, 2),
                "three_categories": self._of_votes(three, 3),
                "two_categories_against_others": self._of_votes(two, 2, own_vote=False),
                "three_categories_against_others": self._of_votes(three, 3, own_vote=False),
            },
            shares=self._shares(),
            labels=self._labels(),
            readers=self._of_readers(two if categories == 2 else three, categories),
        )

    def _of_votes(self, codes: IntArray, categories: int, *, own_vote: bool = True) -> Estimate:
        pairs = reader_against_majority(codes, n_categories=categories, own_vote=own_vote)
        return self._kappas(pairs.tables[:, None], [POOLED], n_undefined=[int(pairs.n_undefined)])[0]

    def _labels(self) -> list[LabelAgreement]:
        pairs = reader_against_majority(self.lists, n_categories=2)
        sums = _with_pooled(reader_sums(self.lists, n_categories=2))
        names = [POOLED, *REVEAL_LABELS]
        n_undefined = [int(pairs.n_undefined.sum()), *pairs.n_undefined.tolist()]
        kappas = self._kappas(_with_pooled(pairs.tables), names, n_undefined=n_undefined)
        total = sums.sum(axis=0)
        ac1s = self._estimates(
            "gwet_ac1",
            names,
            ac1_from_sums(total),
            ac1_from_sums(resample_tables(self.counts, sums)),
            n=total[:, 1].astype(int).tolist(),
            n_undefined=(total[:, 2] - total[:, 1]).astype(int).tolist(),
        )
        listed = [row for row in self.rows if row.labels is not None]
        ratios = self._means(
            "positive_ratio",
            REVEAL_LABELS,
            [(label, row.study_id, label in (row.labels or ())) for row in listed for label in REVEAL_LABELS],
        )
        return [LabelAgreement(*row) for row in zip(names, kappas, ac1s, ratios, strict=True)]

    def _shares(self) -> list[Estimate]:
        """Return the proportions of studies by their number of "agree_all" votes."""
        read = [row for row in self.rows if row.n_votes]
        numbers = [str(n) for n in range(self.answers.shape[1] + 1)]
        cases = [(n, row.study_id, str(row.n_agree_all) == n) for row in read for n in numbers]
        return self._means("share_of_studies", numbers, cases)[1:]

    def _of_readers(self, codes: IntArray, categories: int) -> list[ReaderConsensus]:
        cases = [(vote.reader, vote.study_id, vote.answer == ANSWERS[0]) for vote in self.votes]
        shares = self._means("agree_all", self.readers, cases)[1:]
        rows = []
        for code, reader in enumerate(self.readers):
            own, theirs = codes[self.reader_of == code], np.where(self.reader_of == code, -1, codes)
            studies = np.flatnonzero((self.reader_of == code).any(axis=1))
            others = reader_against_majority(theirs[studies], n_categories=categories).tables.sum(axis=1)
            known = others.any(axis=1)
            tables = unit_tables(
                own[known],
                others[known].argmax(axis=1),
                n_categories=categories,
                units=studies[known],
                n_units=len(self.rows),
            )
            kappa = self._kappas(tables[:, None], [reader], n_undefined=[int((~known).sum())])[0]
            rows.append(ReaderConsensus(reader, len(studies), kappa, shares[code]))
        return rows

    def _kappas(self, tables: FloatArray, names: Sequence[str], *, n_undefined: Sequence[int]) -> list[Estimate]:
        """Return one kappa per name from contingency tables (n_studies, n_names, k, k)."""
        total = tables.sum(axis=0)
        replicates = kappa_from_tables(resample_tables(self.counts, tables))
        n = total.sum(axis=(-2, -1)).astype(int).tolist()
        return self._estimates("cohen_kappa", names, kappa_from_tables(total), replicates, n=n, n_undefined=n_undefined)

    def _estimates(
        self,
        metric: str,
        names: Sequence[str],
        values: FloatArray,
        replicates: FloatArray,
        *,
        n: Sequence[int],
        n_undefined: Sequence[int],
    ) -> list[Estimate]:
        intervals = find_intervals(values, replicates)
        recipe = self.resampling.signature(metric)
        return intervals.estimates(names, n, n_undefined, metric=metric, signature=recipe)

    def _means(self, metric: str, names: Sequence[str], cases: Sequence[tuple[str, str, bool]]) -> list[Estimate]:
        """Return the mean over all names pooled, then the mean of each name; `cases` are (name, study, value)."""
        together, *each = estimate_means(
            np.array([value for *_, value in cases], np.float64),
            [name for name, *_ in cases],
            [study for _, study, _ in cases],
            findings=names,
            units=self.studies,
            counts=self.counts,
            recipe=self.resampling.signature(metric, 1),
        )
        assert together.finding == MACRO
        return [together, *each]


def _with_pooled(of_labels: FloatArray) -> FloatArray:
    """Return counts (n_studies, n_labels, ...) with the sum over labels inserted before the first label."""
    return np.concatenate([of_labels.sum(axis=1, keepdims=True), of_labels], axis=1)
