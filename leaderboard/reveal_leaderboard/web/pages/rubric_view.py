"""Readers' ratings as HTML: the board of a tasks benchmark, a released score, and the page of a reader.

Conventions
-----------
Mean ratings have two decimals, on a scale from 1 (poor) to 5 (excellent). Proportions are in percent, and the readers'
agreement is a coefficient. All texts of submitters are escaped.
"""

from __future__ import annotations

from typing import Any

from reveal_bench.kinds.tasks.records import CATEGORIES, TaskQuestion
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.ordinal import CONTENT, REPORTED
from reveal_leaderboard.boards.reading import ReadingProgress
from reveal_leaderboard.boards.standings import BoardEntry, Standings, filtered
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.store.ratings import StoredAnswer
from reveal_leaderboard.store.rubric import QUESTIONS
from reveal_leaderboard.web.pages.board_notes import RANK_SENTENCE
from reveal_leaderboard.web.pages.board_view import View, head_of
from reveal_leaderboard.web.pages.drawing import AGREEMENT, CORRECT, RATING, draw, message

PAGE = "rubric.html"
TITLES = {
    MACRO: "Overall", CONTENT: "Content", **{question.name: question.title for question in QUESTIONS},
    "broad_abnormality": "Broad abnormality queries", "diagnosis_support": "Diagnostic reasoning",
    "measurement_temporal": "Measurements, comparisons over time",
}  # fmt: skip
"""Displayed names of criteria and task categories."""
COLUMNS = ((RATING, MACRO), *((RATING, name) for name in REPORTED), (CORRECT, CONTENT), (AGREEMENT, MACRO))
LEGEND = (
    "Mean of the readers’ scores from 1 (poor) to 5 (excellent), followed by the 95% interval from "
    "resampled patients. The line runs from 1 to 5.",
    "Overall: the mean of process, execution, synthesis and language. A task without an answer scores 1 on these.",
    "Content: the minimum of process, execution and synthesis. Completely correct: answers whose content is 5.",
    "Images are scored only if an answer draws boxes, and do not count in the overall score.",
    "Readers’ agreement: quadratic-weighted kappa of all pairs of readers, averaged over the four "
    "text criteria. 1 is full agreement, 0 agreement by chance. Agreement describes the reliability "
    "of scores, not the quality of models.",
)
HEAD = ["Criterion", "Answers", "Mean score, 1 to 5", "Completely correct", "Readers’ agreement, κ"]

Cell = tuple[ReleasedEstimate | None, str, str]
"""Content of a cell: a score, or the placeholder for a missing score and the reason."""


def is_rubric(score: ReleasedScore) -> bool:
    """Return True if a score consists of readers' ratings."""
    return any(figure.metric == RATING for figure in score.figures) or CONTENT in (*score.shown, *score.hidden)


def _cell(figure: ReleasedEstimate | None, why: str = "too few scored answers: not shown") -> Cell:
    return figure, "–", why


def render_board(board: Standings, view: View | None = None) -> str:
    """Return the board of a tasks benchmark as HTML, ordered by rank; only the filters of `view` are used."""
    view = view or View()
    entries = filtered(board, search=view.search, kind=view.kind, organization=view.organization).entries
    above = head_of(board, len(entries), "overall score, 1 to 5")
    if not entries:
        return above
    columns = [c for c in COLUMNS if any(entry.figure(*c) is not None for entry in entries)]
    rows = [_row(entry, columns) for entry in entries]
    frozen = board.version if board.is_frozen else None
    table = draw(PAGE, "table", f"Board of {board.benchmark}", [_title(*c) for c in columns], rows, frozen)
    files = draw("board.html", "downloads", board)
    return above + table + files + draw(PAGE, "legend", (RANK_SENTENCE, *LEGEND))


def _title(metric: str, finding: str) -> tuple[str, str]:
    """Return the title of a column, and whether higher is better."""
    if metric == RATING:
        return TITLES[finding], "↑ higher is better, 1 to 5" if finding == MACRO else ""
    return "Completely correct" if metric == CORRECT else "Readers’ agreement, κ", ""


def _row(entry: BoardEntry, columns: list[tuple[str, str]]) -> tuple[BoardEntry, str, list[tuple[Any, ...]], bool]:
    """Return the values of a board's row for its template."""
    return entry, KINDS.get(entry.kind, entry.kind), [(*_cell(entry.figure(*c)), _title(*c)[0]) for c in columns], False


def render_score(score: ReleasedScore) -> str:
    """Return a released score as a table: overall, per criterion, and per task category."""
    if not score.figures:
        return message("info", "This score has no value that can be shown.", score.note)
    rows = []
    for name in (MACRO, *REPORTED, *CATEGORIES):
        mean = score.figure(RATING, name)
        n = "–" if mean is None else f"{mean.n} criteria" if name == MACRO else mean.n
        correct = _cell(score.figure(CORRECT, name)) if name == CONTENT else (None, "", "not defined for this row")
        agreement = _cell(score.figure(AGREEMENT, name), "no agreement to show")
        title = f"Tasks: {TITLES[name]}" if name in CATEGORIES else TITLES[name]
        rows.append((title, n, [_cell(mean), correct, agreement]))
    return draw(PAGE, "score", HEAD, rows, f"{LEGEND[0]} {score.note}")


# The view of a reader -------------------------------------------------------------------------------------------------


def progress_bar(progress: ReadingProgress) -> str:
    """Return the reader's progress as text and as a bar."""
    return draw(PAGE, "progress", progress.rated, progress.rated + progress.left, progress.left)


def answer_view(task: TaskQuestion | None, answer: StoredAnswer) -> str:
    """Return a task and an answer, as plain text and a list of boxes, without the author."""
    return draw(PAGE, "answer", task, answer)


assert set(TITLES) == {MACRO, *REPORTED, *CATEGORIES}
