"""Find a model's convention for coordinates by asking for known positions in drawings.

The drawings contain nothing from a patient or a benchmark. The model is asked about a drawing as about any image, with
the convention :data:`reveal_bench.models.coordinates.AUTO`: the prompt leaves the convention to the model. The same
parser reads the answers in every convention. Of the conventions with enough correct answers, the one that puts the
answers nearest to the rectangles is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.metrics.localization import box_iou
from reveal_bench.models.answers import read_reply
from reveal_bench.models.coordinates import CONVENTIONS, LARGEST, SMALLEST
from reveal_bench.models.questions import AskSettings

if TYPE_CHECKING:
    from PIL.Image import Image


class CalibrationError(ValueError):
    """No convention of coordinates fits the answers about the drawings."""


@dataclass(frozen=True, slots=True)
class CoordinateCalibration:
    """The convention found with the drawings, and the answers on which it rests.

    Attributes
    ----------
    coordinates, corners : the convention that fits the answers
    hits : convention -> number of answers that this convention makes correct; " corners" after a name means boxes read
        as corners
    answers : the model's texts, one per drawing; "" without an answer
    tokens : (sent, of these cached, written) per drawing, None if unknown; empty in runs of earlier versions
    """

    coordinates: str
    corners: bool
    hits: Mapping[str, int]
    answers: tuple[str, ...]
    tokens: tuple[tuple[int | None, int | None, int | None], ...] = ()

    @property
    def key(self) -> str:
        """The key of the convention in `hits`."""
        return _key(self.coordinates, corners=self.corners)

    def document(self) -> dict[str, Any]:
        """Return the calibration as JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> CoordinateCalibration:
        """Return the calibration that :meth:`document` wrote."""
        tokens = tuple((n_in, n_cached, n_out) for n_in, n_cached, n_out in document.get("tokens", ()))
        return cls(**{**document, "answers": tuple(document["answers"]), "tokens": tokens})


_PLACES = (
    (0.08, 0.62, 0.22, 0.15),
    (0.68, 0.10, 0.15, 0.24),
    (0.40, 0.76, 0.24, 0.16),
    (0.72, 0.55, 0.20, 0.18),
    (0.10, 0.20, 0.18, 0.14),
    (0.38, 0.06, 0.20, 0.14),
    (0.06, 0.38, 0.16, 0.18),
    (0.60, 0.80, 0.26, 0.13),
)
"""(left, top, width, height) of the rectangles, as fractions of the drawing.

The positions avoid the middle, and distinguish left from right, up from down, corners from sizes, and one unit from
another.
"""
LEAST_HITS = 6
"""Minimum number of correct answers, of eight drawings."""
LEAST_IOU = 0.5
SQUARE, WIDE = (512, 512), (384, 512)
"""(height, width) of drawings shown as squares, and of drawings shown whole, whose sides must differ."""
PAPER, INK = 40, 225
NEARER = 0.01
"""``pixels-N`` is chosen only if its answers are nearer to the rectangles by this fraction of the side."""


@dataclass(frozen=True)
class Drawings:
    """Eight drawings of a bright rectangle on a dark background, with the questions about them."""

    form: str

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of each drawing, in pixels."""
        return WIDE if self.form in ("boxes", "text") else SQUARE

    @property
    def questions(self) -> tuple[Question, ...]:
        """One question per drawing."""
        return tuple(
            Question(
                f"drawing-{number}",
                self.form,
                (ViewedImage(f"drawing-{number}", "DRAWING", self.size),),
                None if self.form == "text" else "bright rectangle",
                prompt="Mark the bright rectangle." if self.form == "text" else None,
                requires_boxes=self.form == "text",
            )
            for number in range(1, len(_PLACES) + 1)
        )

    def box(self, image_id: str) -> tuple[float, float, float, float]:
        """Return [x, y, width, height] of a drawing's rectangle, in pixels of the drawing."""
        left, top, wide, high = _PLACES[int(image_id.removeprefix("drawing-")) - 1]
        height, width = self.size
        return round(left * width), round(top * height), round(wide * width), round(high * height)

    def open(self, image_id: str) -> Image:
        """Return the image of a drawing."""
        from PIL import Image, ImageDraw

        x, y, width, height = self.box(image_id)
        picture = Image.new("L", self.size[::-1], PAPER)
        ImageDraw.Draw(picture).rectangle((x, y, x + width - 1, y + height - 1), fill=INK)
        return picture


def calibrate(texts: Sequence[str], settings: AskSettings) -> CoordinateCalibration:
    """Return the convention of the model that answered the questions about the drawings.

    Parameters
    ----------
    texts : one answer per drawing, in order
    settings : settings of the questions about the drawings; `corners` restricts the conventions to corners

    Raises
    ------
    CalibrationError
        If at most five of eight answers are correct in every convention.
    """
    drawings = Drawings(settings.form)
    resized = _resized_side(texts, settings, drawings)
    names = [*CONVENTIONS, *([f"pixels-{resized}"] if resized else [])]
    ways = (False,) if settings.form == "point" else (True,) if settings.corners else (False, True)
    hits: dict[str, int] = {}
    fits: list[tuple[float, str, bool]] = []
    for name in names:
        for corners in ways:
            reading = replace(settings, coordinates=name, corners=corners)
            distances = _distances(texts, reading, drawings)
            hits[_key(name, corners=corners)] = len(distances)
            if len(distances) >= LEAST_HITS:
                behind = NEARER if name not in CONVENTIONS else 0.0
                fits.append((median(distances) + behind, name, corners))
    if not fits:
        counts = "; ".join(f"{name} {n}" for name, n in hits.items())
        first = next((text for text in texts if text), "nothing")
        raise CalibrationError(
            f"no convention fits: correct answers to {len(texts)} drawings of a rectangle, by convention: {counts}; "
            f"{LEAST_HITS} are needed. First answer: {json.dumps(first[:200])}{_seen(texts, settings, drawings)}. "
            "Name a convention or ask for cells."
        )
    # Named numbers fit both ways: then boxes are asked for as in a run whose convention is stated
    _, name, corners = min(fits, key=lambda fit: (fit[0], fit[2] == (fit[1] == "pixels")))
    return CoordinateCalibration(name, corners, hits, tuple(texts))


def _key(name: str, *, corners: bool) -> str:
    return f"{name} corners" if corners else name


def _distances(texts: Sequence[str], settings: AskSettings, drawings: Drawings) -> list[float]:
    """Return the distances of correct answers from the centres of the rectangles, as fractions of the long side."""
    distances = []
    for text, question in zip(texts, drawings.questions, strict=True):
        place, truth = _place(text, question, settings), drawings.box(question.images[0].image_id)
        if place is not None and _is_hit(place, truth):
            distances.append(math.dist(_middle(place), _middle(truth)) / max(drawings.size))
    return distances


def _seen(texts: Sequence[str], settings: AskSettings, drawings: Drawings) -> str:
    """Return the format of answers that fit no convention, in brackets, or "": boxes by their centre, or tags."""
    for name in CONVENTIONS:
        read = replace(settings, coordinates=name, corners=False)
        places = [_place(text, question, read) for text, question in zip(texts, drawings.questions, strict=True)]
        truths = [drawings.box(question.id) for question in drawings.questions]
        n = sum(
            _is_hit((p[0] - p[2] / 2, p[1] - p[3] / 2, *p[2:]), truth)
            for p, truth in zip(places, truths, strict=True)
            if p is not None and len(p) == 4
        )
        if n >= LEAST_HITS:
            return f" (centre, width and height of a box in {name})"
    first = next(filter(None, texts), "")
    note = read_reply(first, drawings.questions[0], replace(settings, coordinates="pixels")).note.partition(": ")[0]
    return f" ({note})" if note else ""


def _is_hit(place: tuple[float, ...], truth: tuple[float, ...]) -> bool:
    """Return True if a point is in the rectangle, or a box is near enough to it."""
    if len(place) == 4:
        return bool(box_iou([place], [truth])[0] >= LEAST_IOU)
    x, y, width, height = truth
    return x <= place[0] < x + width and y <= place[1] < y + height


def _place(text: str, question: Question, settings: AskSettings) -> tuple[float, ...] | None:
    """Return the point or box of an answer, in pixels of the drawing; None if the answer has none or several boxes."""
    reply = read_reply(text, question, settings)
    if question.form in ("boxes", "text"):
        boxes = reply.boxes or reply.detections
        return boxes[0].box if len(boxes) == 1 else None
    return reply.point or reply.box


def _resized_side(texts: Sequence[str], settings: AskSettings, drawings: Drawings) -> int | None:
    """Return the N of ``pixels-N`` that fits the answers, from the median ratio of left and top edges."""
    ratios = []
    for text, question in zip(texts, drawings.questions, strict=True):
        place = _place(text, question, replace(settings, coordinates=f"pixels-{LARGEST}", corners=False))
        if place is None:
            continue
        truth = drawings.box(question.images[0].image_id)
        known = _middle(truth) if len(place) == 2 else truth[:2]
        ratios += [got / true for got, true in zip(place[:2], known, strict=True)]
    side = round(LARGEST * median(ratios)) if ratios else 0
    return side if SMALLEST <= side <= LARGEST else None


def _middle(place: Sequence[float]) -> tuple[float, float]:
    if len(place) == 2:
        return place[0], place[1]
    x, y, width, height = place
    return x + width / 2, y + height / 2
