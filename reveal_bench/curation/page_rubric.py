"""Agreement of two readers' rubric scores, as Table 3 of paper 001 prints it.

Of each criterion the quadratic-weighted kappa, the mean absolute difference, and mean and SD (over n - 1) of each
reader's scores, all over the answers that both readers rated: so are the figures of the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reveal_bench.builders.rexecution_files import parse_ratings
from reveal_bench.builders.source import BuildError, Problem
from reveal_bench.curation.page_html import Section, Table, number, paragraph, section, table
from reveal_bench.metrics.ordinal import CRITERIA, reader_agreement
from reveal_bench.task_records import Rating

__all__ = ["RubricRow", "draw_rubric", "read_ratings", "rubric_table"]

FloatArray = npt.NDArray[np.float64]
HEADS = ("Evaluation category", "QWK", "MAD", "first reader, mean ± SD", "second reader, mean ± SD", "answers")


@dataclass(frozen=True, slots=True)
class RubricRow:
    """A row of Table 3; NaN where undefined, `n` answers that both rated."""

    criterion: str
    kappa: float
    mean_absolute_difference: float
    mean_first: float
    sd_first: float
    mean_second: float
    sd_second: float
    n: int

    def cells(self) -> tuple[str, ...]:
        """As printed."""
        means = ((self.mean_first, self.sd_first), (self.mean_second, self.sd_second))
        printed = (f"{number(mean)} ± {number(sd)}" if self.n else "undefined" for mean, sd in means)
        name = self.criterion.replace("_", " ").capitalize()
        return name, number(self.kappa), number(self.mean_absolute_difference), *printed, str(self.n)


def rubric_table(first: npt.ArrayLike, second: npt.ArrayLike) -> list[RubricRow]:
    """The rows of Table 3 of two readers.

    Parameters
    ----------
    first, second : rating arrays (n_answers, 6), columns as in :data:`reveal_bench.metrics.ordinal.CRITERIA`, whole
        numbers from 1 to 5, NaN where the reader gave none

    Raises
    ------
    ValueError
        If a shape is another or a rating is none.

    Examples
    --------
    >>> row = rubric_table([[5, 1, 1, 1, 1, 1], [4, 1, 1, 1, 1, 1]], [[5, 2, 1, 1, 1, 1], [3, 2, 1, 1, 1, 1]])[0]
    >>> row.mean_absolute_difference, row.mean_first, row.mean_second, row.n
    (0.5, 4.5, 4.0, 2)
    """
    found = reader_agreement(first, second)
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    rows = []
    for i, agreement in enumerate(found):
        both = ~np.isnan(one[:, i]) & ~np.isnan(two[:, i])
        figures = (*_mean_and_sd(one[both, i]), *_mean_and_sd(two[both, i]))
        rows.append(
            RubricRow(agreement.criterion, agreement.kappa, agreement.mean_absolute_difference, *figures, agreement.n)
        )
    return rows


def read_ratings(path: Path) -> list[Rating]:
    """A table of ratings (:mod:`reveal_bench.builders.rexecution_files`).

    Raises
    ------
    BuildError
        With everything that is wrong with it.
    """
    problems: list[Problem] = []
    found = parse_ratings(path, problems, [])
    if problems:
        raise BuildError(problems)
    return [line.rating for line in found]


def draw_rubric(ratings: Sequence[Rating]) -> Section:
    """Everybody against the reader with the most answers, one table each."""
    tally = Counter(one.reader for one in ratings)
    readers = sorted(tally, key=lambda reader: (-tally[reader], reader))
    answers = sorted({(one.task_id, one.model) for one in ratings})
    parts: list[str | Table] = []
    rows: list[tuple[object, ...]] = []
    scores = {reader: _scores(ratings, reader, answers) for reader in readers}
    for other in readers[1:]:
        found = rubric_table(scores[readers[0]], scores[other])
        caption = f"{readers[0]} (first) and {other} (second): quadratic-weighted kappa, mean absolute difference"
        parts.append(table(HEADS, [row.cells() for row in found], caption=caption))
        rows += [(readers[0], other, *_plain(row)) for row in found]
    if len(readers) < 2:
        parts.append(paragraph("Only one reader rated: there is nobody to compare with."))
    heads = ("first", "second", "criterion", "kappa", "mad", "mean_first", "sd_first", "mean_second", "sd_second", "n")
    csv = Table("rubric", heads, tuple(rows))
    return section("rubric", "Rubric scores of two readers", "As Table 3 of paper 001 (ReXecution)", *parts, csv)


def _scores(ratings: Sequence[Rating], reader: str, answers: Sequence[tuple[str, str]]) -> FloatArray:
    place = {answer: i for i, answer in enumerate(answers)}
    found = np.full((len(answers), len(CRITERIA)), np.nan)
    for one in ratings:
        if one.reader == reader:
            given = (getattr(one, name) for name in CRITERIA)
            found[place[one.task_id, one.model]] = [np.nan if score is None else score for score in given]
    return found


def _mean_and_sd(values: FloatArray) -> tuple[float, float]:
    mean = float(values.mean()) if len(values) else np.nan
    return mean, float(values.std(ddof=1)) if len(values) > 1 else np.nan


def _plain(row: RubricRow) -> tuple[object, ...]:
    figures = (row.kappa, row.mean_absolute_difference, row.mean_first, row.sd_first, row.mean_second, row.sd_second)
    return row.criterion, *(None if np.isnan(figure) else round(figure, 6) for figure in figures), row.n
