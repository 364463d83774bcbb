"""What an answer is read as: the one thing that all readers of answers make."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reveal_bench.records import Box, Point
from reveal_bench.runner.answer_words import is_refusal
from reveal_bench.runner.questions import Question
from reveal_bench.task_records import AnswerBox

__all__ = ["STATUSES", "Reply", "noted", "nothing"]

STATUSES = ("answered", "absent", "refused", "unclear", "outside", "cut_off", "empty", "failed")
"""What became of a question; "failed" (no answer came at all) is never the parser's."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer was read as.

    Attributes
    ----------
    status : of :data:`STATUSES`
    cell : name of a cell in the grid
    point : (x, y) in pixels of the full image
    box : [x, y, width, height] in pixels of the full image
    labels : spelt and ordered as the benchmark has them; empty for "none", None where there is no answer
    text : the answer to an open task without thinking, otherwise None
    boxes : of an open task, in pixels of the full images
    note : how the answer was read, if not as asked for, and what of it was passed over; "" if there is nothing to say
    """

    status: str
    cell: str | None = None
    point: Point | None = None
    box: Box | None = None
    labels: tuple[str, ...] | None = None
    text: str | None = None
    boxes: tuple[AnswerBox, ...] = ()
    note: str = ""


def noted(reply: Reply, *notes: str) -> Reply:
    """The reply with more notes; empty ones are left out."""
    return replace(reply, note="; ".join(note for note in (reply.note, *notes) if note))


def nothing(plain: str, question: Question, *, is_absent: bool) -> Reply:
    """The reply for an answer that has none of what was asked for."""
    if is_absent:
        return Reply("unclear", note="says that the finding is absent") if question.present else Reply("absent")
    return Reply("refused" if is_refusal(plain) else "unclear")
