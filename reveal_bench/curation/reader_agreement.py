"""How well readers agree: on the suggested labels as a whole, label by label, and each reader with the others.

Conventions
-----------
All arithmetic is that of :mod:`reveal_bench.metrics`. One draw of the sampled studies, by one seed, serves every
figure; studies that have nothing to say about one (no majority, no list) are drawn all the same. Intervals are 95 %
percentile intervals. In an :class:`~reveal_bench.metrics.bootstrap.Estimate` of kappa, `n` counts votes (of decisions
on labels: lists) that were compared, and `n_undefined` those without a majority to be compared with.

* :attr:`Agreement.answers`: a reader's answer against the majority of the study's votes, the reader's own included, on
  two categories ("agree_all" and any other) and on three; as `against_others`, against the majority of the other votes
  alone, which flatters less. Source: paper 004, section 4.2 (kappa 0.622).
* :attr:`Agreement.labels`: the columns of its Table S3, of the studies with a majority's list. Kappa is that of the
  readers' lists against the majority's, AC1 that of the readers among themselves, the ratio the share of the lists of
  the majority that have the label; a tie is no majority for kappa, and absent in the ratio.
* :attr:`Agreement.readers`: the column of its Table S4, and each reader against the majority of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.curation.tables import ANSWERS, Consensus, Revision, Vote
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.agreement import (
    ac1_from_sums,
    kappa_from_tables,
    reader_against_majority,
    reader_sums,
    resample_tables,
    unit_tables,
)
from reveal_bench.metrics.bootstrap import MACRO, Counts, Estimate, estimate_means, resampling_counts, signature
from reveal_bench.metrics.estimates import POOLED
from reveal_bench.metrics.intervals import find_intervals

__all__ = ["Agreement", "LabelAgreement", "ReaderAgreement", "as_document", "measure_agreement"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ORDERED = tuple(reversed(ANSWERS))
"""Disagree, mostly, all: codes 0, 1, 2."""


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """A row of Table S3; the label "all" stands for all decisions together."""

    label: str
    kappa: Estimate
    ac1: Estimate
    positive_ratio: Estimate


@dataclass(frozen=True, slots=True)
class ReaderAgreement:
    """A row of Table S4, with the share of the reader's answers that are "agree_all"."""

    reader: str
    n_studies: int
    kappa: Estimate
    agree_all: Estimate


@dataclass(frozen=True, slots=True)
class Agreement:
    """See the module. `shares` are of the studies with a vote, by how many of their readers agreed to all."""

    categories: int
    """On how many the readers are compared: 2 or 3."""
    answers: Mapping[str, Estimate]
    shares: Sequence[Estimate]
    labels: Sequence[LabelAgreement]
    readers: Sequence[ReaderAgreement]


def measure_agreement(
    rows: Sequence[Consensus],
    votes: Sequence[Vote],
    revisions: Sequence[Revision],
    *,
    merge_mostly: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Agreement:
    """Every figure of agreement, see the module.

    Parameters
    ----------
    rows : of every sampled study; they are what is resampled
    votes, revisions : of those studies
    merge_mostly : whether readers are compared on two categories, or on three

    Raises
    ------
    ValueError
        If there is no study.
    """
    counts = resampling_counts(len(rows), n_resamples=n_resamples, seed=seed)
    return _Measuring(rows, votes, revisions, counts, seed).measure(2 if merge_mostly else 3)


def as_document(agreement: Agreement) -> dict[str, Any]:
    """`agreement` for a JSON file: undefined is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    document: dict[str, Any] = plain(asdict(agreement))
    return document


class _Measuring:
    """Votes as codes: rows are studies, columns the places of a study's votes, in whatever order."""

    def __init__(
        self,
        rows: Sequence[Consensus],
        votes: Sequence[Vote],
        revisions: Sequence[Revision],
        counts: Counts,
        seed: int,
    ) -> None:
        self.rows, self.votes, self.counts, self.seed = rows, votes, counts, seed
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

    def measure(self, categories: int) -> Agreement:
        two, three = np.where(self.answers == -1, -1, self.answers == 2), self.answers
        return Agreement(
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
        return [LabelAgreement(*found) for found in zip(names, kappas, ac1s, ratios, strict=True)]

    def _shares(self) -> list[Estimate]:
        """Shares of studies by their number of "agree_all"."""
        read = [row for row in self.rows if row.n_votes]
        numbers = [str(n) for n in range(self.answers.shape[1] + 1)]
        cases = [(n, row.study_id, str(row.n_agree_all) == n) for row in read for n in numbers]
        return self._means("share_of_studies", numbers, cases)[1:]

    def _of_readers(self, codes: IntArray, categories: int) -> list[ReaderAgreement]:
        cases = [(vote.reader, vote.study_id, vote.answer == ANSWERS[0]) for vote in self.votes]
        shares = self._means("agree_all", self.readers, cases)[1:]
        found = []
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
            found.append(ReaderAgreement(reader, len(studies), kappa, shares[code]))
        return found

    def _kappas(self, tables: FloatArray, names: Sequence[str], *, n_undefined: Sequence[int]) -> list[Estimate]:
        """Of tables (n_studies, n_names, k, k)."""
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
        found = find_intervals(values, replicates)
        ends = zip(found.values.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
        evidence = zip(n, n_undefined, found.n_empty.tolist(), strict=True)
        recipe = self._recipe(metric, METRICS[metric].version)
        return [Estimate(metric, name, *a, *b, recipe) for name, a, b in zip(names, ends, evidence, strict=True)]

    def _means(self, metric: str, names: Sequence[str], cases: Sequence[tuple[str, str, bool]]) -> list[Estimate]:
        """Means over all names together, then of each; `cases` are (name, study, whether it is so)."""
        together, *each = estimate_means(
            np.array([value for *_, value in cases], np.float64),
            [name for name, *_ in cases],
            [study for _, study, _ in cases],
            findings=names,
            units=self.studies,
            counts=self.counts,
            recipe=self._recipe(metric, 1),
        )
        assert together.finding == MACRO
        return [together, *each]

    def _recipe(self, metric: str, version: int) -> str:
        return signature(metric, version, n_resamples=len(self.counts), seed=self.seed, unit="study")


def _with_pooled(of_labels: FloatArray) -> FloatArray:
    """(n_studies, n_labels, ...) with the sum over the labels put first."""
    return np.concatenate([of_labels.sum(axis=1, keepdims=True), of_labels], axis=1)
