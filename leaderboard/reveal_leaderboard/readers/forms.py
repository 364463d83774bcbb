"""The three forms of the readers' app: votes on labels, kinds of errors, and scores by the rubric.

Conventions
-----------
A :class:`ReaderForm` returns the content of the browser's panel for an item (:meth:`ReaderForm.panel`) and checks the
answer (:meth:`ReaderForm.read`). The panel contains nothing that identifies the item's origin. The definitions of
labels are in this project's words; definitions that paper 004 (Table S1) does not print follow common radiological
usage.

``votes``: paper 004, section 2.2. The form asks for an optional comment unless the reader agrees to all labels.
``errors``: paper 000, section 3. A miss that touches the reference is a partial hit, which
:mod:`reveal_leaderboard.readers.misses` identifies and no reader sees. For each other miss, the reader selects the kind
of error. ``rubric``: the questions of the board's reading page (:mod:`reveal_leaderboard.store.rubric`). `details` are
the scores. There is no comment, because the board stores none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reveal_bench.curation.tables import ANSWERS, in_order
from reveal_bench.findings import REVEAL_LABELS, REVEAL_TERMS, hint
from reveal_leaderboard.readers.store import CANNOT_READ
from reveal_leaderboard.store.rubric import RatingError, check_scores, questions

SCORED = "scored"
"""The answer of the rubric form if the reader gives scores."""

MAX_COMMENT = 4000
LINE_BREAKS = "\n\t"
DEFINITIONS = {term.name: term.definition or "" for term in REVEAL_TERMS} | {
    "Pleural effusion": "Fluid between the pleural layers: blunted angle, meniscus, or veiling of a supine film",
    "Pleural thickening": "Band or plaque along the pleura, smooth or lobulated, calcified or not, that is not fluid",
    "Pneumothorax": "Air between the pleural layers: a visceral line without lung markings beyond it",
}
NOT_READ = {"value": CANNOT_READ, "label": "Cannot be read", "key": "u", "why": "Why can it not be read? (optional)"}

CheckedAnswer = tuple[str, str, Any]
"""Answer, comment, details."""


class ReaderAnswerError(ValueError):
    """The form refuses an answer; the message is for the reader."""


class ReaderForm(Protocol):
    """A form: questions about an item, and the check of their answers."""

    title: str

    def panel(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the panel beside the images, as JSON."""

    def read(self, content: Mapping[str, Any], answer: str, comment: str, details: Any) -> CheckedAnswer:
        """Return the checked answer of the browser: answer, comment and details.

        Raises
        ------
        ReaderAnswerError
            If the answer breaks a rule of the form.
        """


class _Votes:
    title = "Judge the suggested labels"

    def panel(self, content: Mapping[str, Any]) -> dict[str, Any]:
        labels = content["labels"]
        entries = [{"name": label, "text": DEFINITIONS[label]} for label in labels]
        nothing = {"name": "None of the twelve labels", "text": "The suggestion is that no label applies"}
        return {
            "heading": "Suggested labels",
            "entries": entries or [nothing],
            "choices": [
                {"value": "agree_all", "label": "Agree all", "key": "1", "why": "Remark (optional)"},
                {"value": "agree_mostly", "label": "Agree mostly", "key": "2", "why": "What is not right?"},
                {"value": "disagree", "label": "Disagree", "key": "3", "why": "What is not right?"},
                NOT_READ,
            ],
            "asked": ["agree_mostly", "disagree"],
            "ticks": {"labels": [{"name": name, "text": DEFINITIONS[name]} for name in REVEAL_LABELS], "from": labels},
            "overlays": [],
        }

    def read(self, content: Mapping[str, Any], answer: str, comment: str, details: Any) -> CheckedAnswer:
        text = _comment(comment)
        _one_of(answer, (*ANSWERS, CANNOT_READ))
        if details is None:
            return answer, text, None
        if not isinstance(details, list) or not all(isinstance(label, str) for label in details):
            raise ReaderAnswerError("`details` must be a list of labels, or null")
        unknown = [label for label in details if label not in REVEAL_LABELS]
        if unknown:
            raise ReaderAnswerError(
                f"labels must be among the twelve of the form, got {hint(unknown[0][:60], REVEAL_LABELS)}"
            )
        if len(set(details)) < len(details):
            raise ReaderAnswerError("each label must be named only once")
        labels = list(in_order(details))
        if answer == CANNOT_READ:
            raise ReaderAnswerError("a study that cannot be read must have no labels")
        if answer == "agree_all" and labels != list(content["labels"]):
            raise ReaderAnswerError("an answer that agrees to all labels must not have a different list of labels")
        return answer, text, labels


def outline(rects: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the outer edges [x0, y0, x1, y1] of a group of grid cells, topmost first."""
    edges: Counter[tuple[float, float, float, float]] = Counter()
    for x0, y0, x1, y1 in rects:
        edges.update([(x0, y0, x1, y0), (x0, y1, x1, y1), (x0, y0, x0, y1), (x1, y0, x1, y1)])
    return sorted((list(edge) for edge, n in edges.items() if n == 1), key=lambda edge: (edge[1], edge[0]))


class _Errors:
    title = "Say what kind of error it is"

    def panel(self, content: Mapping[str, Any]) -> dict[str, Any]:
        overlays = [
            *(
                {"kind": "reference", "edges": outline(rects), "label": "Reference"}
                for rects in [content["reference"]]
                if rects
            ),
            *({"kind": "model", "rect": rect, "label": "Model"} for rect in content["model"]),
            *({"kind": "model", "point": point, "label": "Model"} for point in content["points"]),
        ]
        return {
            "heading": "Finding asked for",
            "entries": [{"name": content["finding"], "text": "Orange: the model's localization. Green: the reference"}],
            "choices": [
                {
                    "value": "position_error", "label": "Position error", "key": "1", "why": "Remark (optional)",
                    "text": "The position is wrong, but possible for this finding",
                },
                {
                    "value": "anatomy_error", "label": "Anatomy error", "key": "2", "why": "Remark (optional)",
                    "text": "The position is anatomically impossible for this finding",
                },
                NOT_READ,
            ],
            "asked": [],
            "ticks": None,
            "overlays": overlays,
        }  # fmt: skip

    def read(self, content: Mapping[str, Any], answer: str, comment: str, details: Any) -> CheckedAnswer:
        if details is not None:
            raise ReaderAnswerError("`details` must be null")
        return _one_of(answer, ("position_error", "anatomy_error", CANNOT_READ)), _comment(comment), None


class _Rubric:
    title = "Score answers by the rubric"

    def panel(self, content: Mapping[str, Any]) -> dict[str, Any]:
        boxes = content["boxes"]
        wants = "The task asks for boxes." if content["requires_boxes"] else "The task asks for no boxes."
        draws = "The answer draws none." if not boxes else f"The answer draws {len(boxes)}, shown on the images."
        texts = [("Task", content["prompt"]), ("Indication", content["indication"]), ("Answer", content["answer"])]
        return {
            "heading": "Score this answer on its own",
            "texts": [{"name": name, "text": text} for name, text in texts if text],
            "entries": [{"name": "Boxes", "text": f"{wants} {draws}"}],
            "scales": [
                {
                    "name": question.name,
                    "title": question.title,
                    "scores": [{"score": score, "text": text} for score, text in question.scale],
                }
                for question in questions(has_boxes=bool(boxes))
            ],
            "scored": SCORED,
            "choices": [NOT_READ],
            "asked": [],
            "ticks": None,
            "overlays": [{"kind": "model", **box} for box in boxes],
        }

    def read(self, content: Mapping[str, Any], answer: str, comment: str, details: Any) -> CheckedAnswer:
        _one_of(answer, (SCORED, CANNOT_READ))
        if answer == CANNOT_READ:
            if details is not None:
                raise ReaderAnswerError("an answer that cannot be read must have no scores")
            return answer, _comment(comment), None
        if comment.strip():
            raise ReaderAnswerError("scores must have no comment: the board stores none")
        if not isinstance(details, dict):
            raise ReaderAnswerError("`details` must be the scores by criterion")
        has_boxes = bool(content["boxes"])
        try:
            check_scores(details, has_boxes=has_boxes)
        except RatingError as error:
            raise ReaderAnswerError(str(error)[:400]) from None
        return answer, "", {question.name: details[question.name] for question in questions(has_boxes=has_boxes)}


def _one_of(answer: str, known: Sequence[str]) -> str:
    if answer not in known:
        raise ReaderAnswerError(f"the answer must be one of {', '.join(known)}, got {hint(answer[:60], known)}")
    return answer


def _comment(text: str) -> str:
    stripped = text.strip()
    if len(stripped) > MAX_COMMENT:
        raise ReaderAnswerError(f"a comment must have at most {MAX_COMMENT} characters, got {len(stripped)}")
    if any(not (letter.isprintable() or letter in LINE_BREAKS) for letter in stripped):
        raise ReaderAnswerError("a comment must not contain control characters")
    return stripped


FORMS: dict[str, ReaderForm] = {"votes": _Votes(), "errors": _Errors(), "rubric": _Rubric()}
