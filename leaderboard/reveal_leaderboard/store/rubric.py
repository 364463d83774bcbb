"""Questions of the rubric by which readers rate answers, and the check of their scores.

The board's reading page and the readers' app ask these questions; the check also applies to files of ratings. Source:
paper 001, section 3.3: six criteria from 1 (poor) to 5 (excellent). The four text criteria are always scored, the two
image criteria only if the answer has boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reveal_bench.findings import hint
from reveal_bench.kinds.tasks.records import meaning
from reveal_bench.metrics.ordinal import CRITERIA, HIGHEST, LOWEST

Scores = Mapping[str, int | None]


class RatingError(ValueError):
    """Scores break a rule; the message names the line (in a file), criterion, rule and value."""


@dataclass(frozen=True, slots=True)
class CriterionQuestion:
    """A criterion that a reader scores.

    Attributes
    ----------
    scale : (score, meaning) pairs, the best score first
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
    """Return the questions for an answer: all six if it has boxes, otherwise the four text criteria."""
    return QUESTIONS if has_boxes else TEXT_QUESTIONS


def check_scores(scores: Scores, *, has_boxes: bool) -> None:
    """Refuse scores that are missing, outside 1 to 5, or of unknown criteria, and image scores of an answer without
    boxes.

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
