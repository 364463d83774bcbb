"""The questions of open tasks (paper 001, section 3.1): the page to select among candidates, and their chapter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from reveal_bench.curation.candidates import COLUMNS
from reveal_bench.kinds.tasks.records import QUESTION_SCORES, TAGS, TaskRecord
from reveal_bench.metrics.ordinal import HIGHEST, LOWEST
from reveal_bench.reports.chapters import Chapter, PrintedTable
from reveal_bench.reports.page import Csv, render
from reveal_bench.reports.panels import panels
from reveal_bench.reports.style import Illustration, check_extra, paints, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def questions_chapter(tasks: Sequence[TaskRecord]) -> Chapter:
    """How the questions themselves were scored, and how many have each tag; a task may have several of a kind."""
    scored = {
        _title(name): Counter(score for task in tasks if (score := (task.question_scores or {}).get(name)) is not None)
        for name in QUESTION_SCORES
    }
    scored = {name: counts for name, counts in scored.items() if counts}
    figures = [_figure(scored)] if scored else []
    words = f"{len(tasks):,} tasks; scores and tags are of the questions, not of answers."
    source = "As section 3.1 and Supplementary Fig. 1 of paper 001"
    return Chapter("questions", "Questions", source, words, figures, [_tags(tasks)])


def _tags(tasks: Sequence[TaskRecord]) -> PrintedTable:
    counted = Counter(("category", task.category.replace("_", " ")) for task in tasks)
    counted.update((name, value) for name in TAGS for task in tasks for value in task.tags.get(name, ()))
    order = ("category", *TAGS)
    ordered = sorted(counted.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0][1]))
    shown = [
        {"tag": _title(name), "value": value, "tasks": f"{n:,}", "share": percent(n / len(tasks))}
        for (name, value), n in ordered
    ]
    csv = Csv("tags", ("tag", "value", "tasks", "share"), [(*tag, n, n / len(tasks)) for tag, n in ordered])
    return PrintedTable("tags", "What the tasks are about", "Tasks with each tag, the most first", shown, csv.text())


def _figure(scored: Mapping[str, Counter[int]]) -> Illustration:
    means = "; ".join(f"{name} {sum(c.elements()) / c.total():.2f}" for name, c in scored.items())
    return Illustration(
        "question-scores",
        "Scores of the questions",
        f"Share of the tasks with each score from {LOWEST} to {HIGHEST}.",
        f"Bars: per score of the questions, the share of tasks. Means: {means}.",
        partial(_draw, scored),
    )


def _draw(scored: Mapping[str, Counter[int]], width: float) -> Figure:
    def draw(axes: Axes, name: str) -> None:
        counts = scored[name]
        shares = [100 * counts[score] / counts.total() for score in range(LOWEST, HIGHEST + 1)]
        axes.bar(range(LOWEST, HIGHEST + 1), shares, 0.7, **paints(1)[0].options)

    def scale(axes: Axes) -> None:
        axes.set_xticks(range(LOWEST, HIGHEST + 1))
        axes.set_ylim(0, 100)

    return panels(list(scored), width, draw, "Score", "Share of tasks (%)", scale=scale)


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def selection_page(candidates: Sequence[Mapping[str, str]], reports: Mapping[str, str]) -> str:
    """The page as HTML; its script saves what is chosen as ``tasks.csv``, in the form of the candidates.

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
