"""HTML page on which a radiologist selects among candidate questions for open tasks (paper 001, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from reveal_bench.curation.candidates import COLUMNS
from reveal_bench.kinds.tasks.records import QUESTION_SCORES, TAGS
from reveal_bench.reports.page import render
from reveal_bench.reports.style import check_extra

if TYPE_CHECKING:
    pass


def selection_page(candidates: Sequence[Mapping[str, str]], reports: Mapping[str, str]) -> str:
    """Return the page as HTML; its script saves the selection as ``tasks.csv`` in the format of ``candidates.csv``.

    Parameters
    ----------
    candidates : rows of :func:`reveal_bench.curation.candidates.read_candidates`
    reports : study -> its report, shown beside its candidates

    Raises
    ------
    ImportError
        Without the extra [report].
    """
    check_extra("jinja2")
    studies = [
        {"id": study, "indication": rows[0]["indication"], "report": reports[study], "candidates": rows}
        for study, rows in _by_study(candidates)
    ]
    key = sha256(repr(candidates).encode()).hexdigest()[:16]
    data = {"columns": COLUMNS, "scores": QUESTION_SCORES, "rows": candidates, "key": f"candidates-{key}"}
    return render("candidates.html", studies=studies, scores=QUESTION_SCORES, tags=TAGS, data=data)


def _by_study(candidates: Sequence[Mapping[str, str]]) -> Iterable[tuple[str, list[Mapping[str, str]]]]:
    return ((study, list(rows)) for study, rows in groupby(candidates, key=itemgetter("study_id")))
