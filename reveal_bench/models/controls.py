"""Define controls, which repeat the questions with one change to show whether a model looks at the image.

Conventions
-----------
A control changes either the image or the wording, and nothing else. Some changes lower the score of a model that looks
at the image, but not of a model that answers from prevalence. The others change something irrelevant, or something that
can be undone: the answer to a mirrored image is mirrored back before it is compared with the original references. The
words left and right are exchanged, too, in the question and in the answer. Examples of few-shot prompts are unchanged,
except for their images under "no-image".

:mod:`reveal_bench.models.control_pictures` makes the changed images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import Box
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answer_words import Reply


@dataclass(frozen=True, slots=True)
class Control:
    """A change to the images or the wording of all questions.

    Attributes
    ----------
    shows : what the model gets instead of the image or question
    falls : True if the score of a model that looks at the image falls, False if that score stays the same
    of_places : True if the control is only for questions about the position of a finding
    """

    shows: str
    falls: bool
    of_places: bool = False


CONTROLS: Mapping[str, Control] = {
    "no-image": Control("the question without any image", falls=True),
    "blank": Control("a uniform grey image instead of the original", falls=True),
    "other-patient": Control("the image of another patient, in the same view if there is one", falls=True),
    "occluded-finding": Control("the image with a uniform grey patch over the finding", falls=True, of_places=True),
    "without-finding": Control("the same image without the finding (phantoms only)", falls=True, of_places=True),
    "mirrored": Control("the mirrored image, whose answer is mirrored back", falls=False),
    "occluded-elsewhere": Control(
        "the image with a uniform grey patch next to the finding", falls=False, of_places=True
    ),
    "paraphrase": Control("the same question in other words", falls=False),
}
"""Name -> control, in the order in which reports list them."""

_SIDE = re.compile(r"\b(?:(?:left|right)\b|[LR](?=UL\b|LL\b))", re.IGNORECASE)
_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}
_LEAST = 1e-6
"""Pixels by which a mirrored left edge stays inside the right edge, which is not part of the image."""


def swap_sides(text: str) -> str:
    """Return the text with left and right exchanged.

    Examples
    --------
    >>> swap_sides("Left effusion, clear RLL; nothing is left-sided but the LUL.")
    'Right effusion, clear LLL; nothing is right-sided but the RUL.'
    """
    return _SIDE.sub(lambda match: _like(_OTHER[match[0].lower()], match[0]), text)


def _like(word: str, model: str) -> str:
    return word.upper() if model.isupper() else word.capitalize() if model[0].isupper() else word


def mirrored_question(question: Question) -> Question:
    """Return the question with left and right exchanged in its wording."""
    words = (question.finding, question.prompt, question.indication)
    finding, prompt, indication = (text and swap_sides(text) for text in words)
    return replace(question, finding=finding, prompt=prompt, indication=indication)


def mirrored_back(reply: Reply, question: Question, n: int) -> Reply:
    """Turn the reply to a mirrored image into a reply to the original; `n` is the grid's number of cells per side."""
    widths = {image.image_id: image.size[1] for image in question.images}
    cell = point = box = None
    if reply.cell is not None:
        column, row = Grid(n).parse(reply.cell)
        cell = Grid(n).name(n - 1 - column, row)
    if reply.point is not None:
        point = (min(question.image.size[1] - reply.point[0], question.image.size[1] - _LEAST), reply.point[1])
    if reply.box is not None:
        box = _mirrored(reply.box, question.image.size[1])
    detections = tuple(replace(one, box=_mirrored(one.box, question.image.size[1])) for one in reply.detections)
    boxes = tuple(
        replace(one, label=swap_sides(one.label), box=_mirrored(one.box, widths[one.image_id])) for one in reply.boxes
    )
    text = None if reply.text is None else swap_sides(reply.text)
    return replace(reply, cell=cell, point=point, box=box, detections=detections, boxes=boxes, text=text)


def _mirrored(box: Box, width: int) -> Box:
    x, y, wide, high = box
    return max(0.0, width - x - wide), y, wide, high
