"""What became of every question: the lines of ``transcript.jsonl``.

Coordinates are pixels of the full-size image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from reveal_bench.kinds.localization.records import Box, Point
from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.masks import Rle

if TYPE_CHECKING:
    from reveal_bench.models.answer_cells import Reply

__all__ = ["TOKENS", "Exchange", "ShotUsed", "from_line", "to_line", "with_reply"]

UNITS = {"localization": "image_id", "findings": "study_id", "tasks": "task_id"}
"""Kind of benchmark -> the field of a line that names what the question is about."""


@dataclass(frozen=True, slots=True)
class ShotUsed:
    """An example that a few-shot prompt showed; `tier` says how near to the question it could be chosen."""

    image_id: str
    split: str
    tier: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of one question in one epoch.

    Attributes
    ----------
    question : id of the question
    unit : id of the image, study or task
    status : of :data:`reveal_bench.models.answers.STATUSES`; only "answered" makes a prediction
    finding : of a localization, else None
    epoch : from 1
    text : what the model wrote, None if there is no reply
    note : why the text could not be read, or how
    cell, point, box, mask, labels, probabilities, answer, boxes : what was read; `answer` and `boxes` of open tasks
    score, error : the model's confidence, if it gives one; why there is no reply
    sent_temperature : as it went to the model, None if none was sent
    tokens_in, tokens_cached, tokens_out : None if the reply came without counts; `tokens_cached` of `tokens_in`
    shots : examples that the prompt showed
    """

    question: str
    unit: str
    status: str
    finding: str | None = None
    epoch: int = 1
    text: str | None = None
    note: str | None = None
    cell: str | None = None
    point: Point | None = None
    box: Box | None = None
    mask: Rle | None = None
    score: float | None = None
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] | None = None
    answer: str | None = None
    boxes: tuple[AnswerBox, ...] = ()
    error: str | None = None
    stop_reason: str | None = None
    served_model: str | None = None
    sent_temperature: float | None = None
    tokens_in: int | None = None
    tokens_cached: int | None = None
    tokens_out: int | None = None
    shots: tuple[ShotUsed, ...] = ()


def with_reply(asked: Exchange, reply: Reply, **facts: Any) -> Exchange:
    """The exchange of a question that was replied to; `facts` are further fields."""
    names = ("status", "note", "cell", "point", "box", "labels", "boxes")
    as_read = {name: getattr(reply, name) for name in names}
    return replace(asked, **{**as_read, "answer": reply.text, **facts})


_ALWAYS = ("status", "text", "note", "error", "stop_reason", "served_model", "sent_temperature")
TOKENS = ("tokens_in", "tokens_cached", "tokens_out")
_READ = ("cell", "point", "box", "mask", "score", "labels", "probabilities", "answer", "boxes")


def to_line(exchange: Exchange, kind: str) -> dict[str, Any]:
    """The line of an exchange in the transcript of a benchmark of `kind`; of what can be read, only what was."""
    given = asdict(exchange)
    as_read = {name: given[name] for name in _READ if given[name] is not None}
    if not exchange.boxes:
        del as_read["boxes"]
    about: dict[str, Any] = {"question": exchange.question, "epoch": exchange.epoch, UNITS[kind]: exchange.unit}
    about |= {"finding": exchange.finding} if exchange.finding else {}
    return about | {name: given[name] for name in (*_ALWAYS, *TOKENS, "shots")} | as_read


def from_line(line: dict[str, Any], kind: str) -> Exchange:
    """The exchange that :func:`to_line` wrote.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError
        If it is none.
    """
    given = dict(line)
    given["unit"] = given.pop(UNITS[kind])
    for name in ("point", "box", "labels"):
        if name in given:
            given[name] = tuple(given[name])
    if "mask" in given:
        height, width = given["mask"]["size"]
        given["mask"] = Rle((height, width), given["mask"]["counts"])
    given["boxes"] = tuple(AnswerBox(**{**box, "box": tuple(box["box"])}) for box in given.get("boxes", ()))
    given["shots"] = tuple(ShotUsed(**shot) for shot in given["shots"])
    return Exchange(**given)
