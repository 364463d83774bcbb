"""The questions of the rubric: which criteria a reader scores, in which words, and the check of the scores.

The board's reading page and the readers' app ask these questions, and files of ratings pass the same check. Source:
paper 001, section 3.3: six criteria from 1 (poor) to 5 (excellent). The four text criteria are always scored, the
picture criteria only if the answer has boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reveal_bench.findings import hint
from reveal_bench.kinds.tasks.records import meaning
from reveal_bench.metrics.ordinal import CRITERIA, HIGHEST, LOWEST

Scores = Mapping[str, int | None]


class RatingError(ValueError):
    """Scores that break a rule, or a file of them; the message names line, criterion, rule and value."""


@dataclass(frozen=True, slots=True)
class CriterionQuestion:
    """One criterion for a reader.

    Attributes
    ----------
    scale : (score, its meaning), the best score first
    """

    name: str
    title: str
    scale: tuple[tuple[int, str], ...]


def _question(name: str) -> CriterionQuestion:
    scale = tuple((score, meaning(name, score)) for score in range(HIGHEST, LOWEST - 1, -1))
    return CriterionQuestion(name, name.replace("_", " ").capitalize(), scale)


QUESTIONS = tuple(_question(name) for name in CRITERIA)
TEXT_QUESTIONS = QUESTIONS[:4]


def questions(*, has_boxes: bool) -> tuple[CriterionQuestion, ...]:
    """Return the questions about an answer with or without boxes."""
    return QUESTIONS if has_boxes else TEXT_QUESTIONS


def check_scores(scores: Scores, *, has_boxes: bool) -> None:
    """Refuse scores of unknown criteria, outside 1 to 5, missing, or of boxes that the answer does not have.

    Raises
    ------
    RatingError
        If scores break a rule; the message names every problem.
    """
    unknown = [name for name in scores if name not in CRITERIA]
    problems = [f"scores must name the rubric's criteria, got {hint(str(name)[:60], CRITERIA)}" for name in unknown[:1]]
    expected = questions(has_boxes=has_boxes)
    for question in QUESTIONS:
        score = scores.get(question.name)
        if score is not None and (type(score) is not int or not LOWEST <= score <= HIGHEST):
            problems.append(f"{question.title} must be a whole number from {LOWEST} to {HIGHEST}, got {score!r}")
        elif score is None and question in expected:
            why = "" if question in TEXT_QUESTIONS else ": the answer has boxes"
            problems.append(f"{question.title} must be scored{why}")
        elif score is not None and question not in expected:
            problems.append(f"{question.title} must be empty: the answer has no boxes")
    if problems:
        raise RatingError("; ".join(problems))
