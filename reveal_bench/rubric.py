"""The rubric by which readers score a model's answer to an open task, as data.

Conventions
-----------
Six criteria, each scored from 1 (poor) to 5 (excellent); of the first four a text is judged, of the last two the boxes
drawn into an image. *Content* is no criterion of its own: it is the smallest of process, execution and synthesis.

Source: what each score stands for follows the published scoring criteria of the ReXecution framework (paper 001,
section 3.3, and its supplement); the wording here is our own. The published text decides where the two differ.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RUBRIC", "RubricEntry", "meaning"]


class RubricEntry(NamedTuple):
    """What `score` (1 to 5) of `criterion` stands for."""

    criterion: str
    score: int
    description: str


_MEANINGS = {
    "process": (
        "Did not grasp what was asked, or looked only at things that have nothing to do with it.",
        "A shallow or narrow look; places or kinds of finding that decide the question were left out.",
        "The heart of the question is covered in part; several regions or kinds of finding that matter were left out.",
        "Nearly everything that matters was looked for; one small gap, or something covered only by implication.",
        "Every region and kind of finding that matters to the question was looked for, and this is spelled out.",
    ),
    "execution": (
        "Most of what is reported is invented, beside the point, or the opposite of what the image shows.",
        "Several findings are wrong or without support in the image and change how it reads; clearly saw what the "
        "question suggested.",
        "Part is right, but there is one grave or a number of small inventions or omissions; probably led by the "
        "question.",
        "One small invention or omission that changes nothing for the patient; perhaps led by the question.",
        "All that is reported, normal regions included, is there and well described; nothing is invented or left out, "
        "and nothing suggests that the question led the reading.",
    ),
    "synthesis": (
        "No reasoning to speak of, or reasoning that contradicts itself from end to end.",
        "Conclusions do not follow from the findings, or the findings are misunderstood.",
        "The argument has holes, is much too sure or too unsure, or leaves out what makes the case difficult.",
        "Sound on the whole; a few shortcuts or assumptions, no grave error of logic.",
        "The findings are weighed as a careful clinician would, with as much doubt as the case deserves.",
    ),
    "language": (
        "So confusing or wrong that the meaning is lost or turned around.",
        "Often ambiguous or misleading; details that matter are hard to make out.",
        "Vague in places; the reader has to guess part of what is meant.",
        "Clear, with a few clumsy phrases or one that could be misread.",
        "Clear and exact throughout; it can be read in one way only.",
    ),
    "image_content": (
        "Boxes or their labels are so wrong that nobody could use the picture.",
        "Most boxes or labels are wrong; one or two are right.",
        "Some boxes are right; one or two lie clearly off their target, or their labels are unclear.",
        "One small flaw: a box somewhat off, or a label that is not quite clear.",
        "Each box lies on its target and each label names what the box holds.",
    ),
    "image_style": (
        "What is drawn has little to do with the text, or what should be drawn is missing; the picture confuses.",
        "Many boxes do not belong to the text or mark irrelevant places, or the decisive findings are not marked.",
        "Several findings of the text have no box, or several boxes have no place in the answer.",
        "One small mismatch between text and boxes, such as a minor finding without a box.",
        "What the text reports is marked, and nothing else is.",
    ),
}

RUBRIC: tuple[RubricEntry, ...] = tuple(
    RubricEntry(criterion, score, description)
    for criterion, descriptions in _MEANINGS.items()
    for score, description in enumerate(descriptions, start=1)
)
"""Thirty entries: criteria in the order of tables, scores ascending within."""


def meaning(criterion: str, score: int) -> str:
    """What `score` of `criterion` stands for.

    Raises
    ------
    ValueError
        If the criterion is unknown or the score is not 1, 2, 3, 4 or 5.

    Examples
    --------
    >>> meaning("image_style", 5)
    'What the text reports is marked, and nothing else is.'
    """
    for entry in RUBRIC:
        if (entry.criterion, entry.score) == (criterion, score):
            return entry.description
    known = ", ".join(_MEANINGS)
    raise ValueError(f"`criterion` must be one of {known} and `score` from 1 to 5, got {criterion!r} and {score!r}")
