"""Parse the positions in a model's answer: a point, a box, boxes with scores, and the boxes of an open task.

Conventions
-----------
Points and boxes are returned in pixels of the full image, mapped from pixels of the image that the model saw. Numbers
are read in the requested convention only (:mod:`reveal_bench.models.coordinates`); a note says if they seem to have
another unit. Numbers may be named ("x", "xmin", "left", "cx"). Some names imply a convention: "box_2d" is in
thousandths, y first; "bbox_2d" has corners; tags such as <point x="..." y="..."> have their own convention. Of a JSON
list with several positions, the object labelled with the finding is used, otherwise the last. The number that means the
full width, such as 1000 thousandths, is inside. A box that reaches at most 1% of the side beyond an edge is clipped,
with a note.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from reveal_bench.findings import canonical_finding
from reveal_bench.kinds.detection.lint import MOST_ON_IMAGE
from reveal_bench.kinds.detection.records import ScoredBox
from reveal_bench.kinds.localization.records import Box
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.kinds.tasks.lint import ANSWER_LIMITS
from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.models.answer_words import (
    MAX_PROSE,
    Reply,
    bare,
    begins_absent,
    json_spans,
    noted,
    nothing,
    probability,
    says_absent,
    statements,
)
from reveal_bench.models.coordinates import convention
from reveal_bench.models.overlay import SquareView, whole_size
from reveal_bench.models.questions import AskSettings

LEAST_SIDE = 1e-6
"""Minimum side of a box in pixels; a shorter one may be rounded to 0."""
_SYNONYMS = {
    "left": "x", "top": "y", "width": "w", "height": "h", "xmin": "x1", "ymin": "y1", "xmax": "x2", "ymax": "y2",
    "right": "x2", "bottom": "y2", "xcenter": "cx", "xcentre": "cx", "centerx": "cx", "centrex": "cx",
    "ycenter": "cy", "ycentre": "cy", "centery": "cy", "centrey": "cy",
}  # fmt: skip
_BOX_KEYS = ("box", "bbox", "box_2d", "bbox_2d", "bounding_box")
_SIDE_KEYS = frozenset({"x", "y", "w", "h", "x1", "y1", "x2", "y2", "cx", "cy"} | set(_SYNONYMS))
_PLACE_KEYS = {*_BOX_KEYS, "point", "point_2d", "x"}
_LIST_KEYS = ("boxes", "detections", "objects", "predictions", "bboxes", "bounding_boxes", "results")
_SCORE_KEYS = ("score", "confidence", "probability")
_BOX_BEGUN = re.compile(r"[\"'](?:box|boxes|bbox|box_2d|bbox_2d|detections)[\"']\s{0,3}:")
_NUMBER_KEYS = "point|box|bounding box|bbox|coordinates?|answer|location|position|punkt|antwort|réponse|答案|坐标"
_LABEL = (
    r"c[ _]?[xy]|[xy][ _]?cent(?:er|re)|cent(?:er|re)[ _]?[xy]|[xy][ _]?m(?:in|ax)|[xy][12]|[xy]"
    r"|width|height|left|top|right|bottom|w|h"
)
_NUMBER = re.compile(
    rf"(?i)(?:(?<![A-Za-z])[\"']?(?P<label>{_LABEL})[\"']?\s{{0,2}}(?:[:=≈~]|(?:is|of)\s(?:about\s|around\s|approximately\s|roughly\s)?)\s{{0,2}}[\"']?)?"
    r"(?<![A-Za-z0-9.])(?P<number>-?(?:[0-9]{1,7}(?:\.[0-9]{1,12})?|\.[0-9]{1,12}))(?![0-9]|\.[0-9]|[eE][-+]?[0-9])(?P<percent>\s?%)?"
)
_BETWEEN_CORNERS = re.compile(r"\s{0,3}[)\]]\s{0,3},?\s{0,3}[(\[]\s{0,3}")
_BETWEEN = re.compile(r"(?i)(?:\s?px)?[\"']?\s{0,4}(?:px|pixels?)?\s{0,4}[,;|]?\s{0,8}(?:and|und|et)?\s{0,3}[\"']?")

_PLURAL = {"point": "points", "box": "boxes"}
_TAGS = (
    (re.compile(r"<points?\s{1,3}x1?=[\"'](?P<x>[0-9.]{1,9})[\"']\s{1,3}y1?=[\"'](?P<y>[0-9.]{1,9})[\"']"), "percent"),
    (
        re.compile(r"<points?\s{1,3}coords=[\"'][0-9]{1,4} [0-9]{1,4} (?P<x>[0-9]{1,4}) (?P<y>[0-9]{1,4})"),
        "thousandths-xy",
    ),
    (
        re.compile(r"<loc_(?P<x1>[0-9]{1,4})><loc_(?P<y1>[0-9]{1,4})><loc_(?P<x2>[0-9]{1,4})><loc_(?P<y2>[0-9]{1,4})>"),
        "thousandths-xy",
    ),
    (re.compile(r"<loc[0-9]{4}>"), "1,024 bins, y first"),
    (re.compile(r"<patch_index_[0-9]{4}>"), "patches of the image"),
)
"""Tags with positions, and the convention that each implies (Molmo, Molmo 2, Florence-2, PaliGemma, Kosmos-2)."""


def _named_number(name: str) -> str:
    return rf"[≈~]?\s?(?<![0-9.])(?P<{name}>-?[0-9]{{0,5}}\.?[0-9]{{1,9}}(?:\s?%)?)(?:\s?(?:px|pixels?))?"


_X1, _Y1, _X2, _Y2, _X, _Y, _W, _H, _CX, _CY = (
    _named_number(name) for name in ("x1", "y1", "x2", "y2", "x", "y", "w", "h", "cx", "cy")
)
_TO = r"\s{0,3}(?:to|and|until|through|-|->|→|bis|à|до|至|到)\s{0,3}"
_UPPER = (
    "(?:top|upper)[ -]left|links oben|linke obere|supérieur gauche|superior izquierd|левый верхний|верхний левый|左上"
)
_LOWER = (
    "(?:bottom|lower)[ -]right|rechts unten|rechte untere|inférieur droit|inferior derech|правый нижний|нижний правый"
    "|右下"
)
_PAIR, _PAIR1, _PAIR2, _CENTRE = (
    rf"[(\[]\s?{x}\s?,\s?{y}\s?[)\]]" for x, y in ((_X, _Y), (_X1, _Y1), (_X2, _Y2), (_CX, _CY))
)
_SIZE = rf"[^0-9(]{{0,40}}?{_W} (?:wide|in width)[^0-9(]{{0,12}}{_H} (?:high|tall)"
_SIDES = rf"[^0-9(]{{0,20}}width\W{{0,4}}(?:of |is )?{_W}[^0-9(]{{0,15}}height\W{{0,4}}(?:of |is )?{_H}"
_CENTRED = rf"cent(?:er|re)d?\b[^0-9\n(]{{0,20}}{_CENTRE}"
_WAY = "(?:of the way )?(?:down |across |in )?(?:from|of) the"
_FROM_LEFT, _FROM_TOP = rf"{_X} {_WAY} (?:left|width)\b", rf"{_Y} {_WAY} (?:top|height)\b"
_PAIRS_IN_WORDS, _SIDES_IN_WORDS = (
    [re.compile(f"(?i){pattern}") for pattern in patterns]
    for patterns in (
        (
            rf"(?:{_UPPER})[^0-9\n(]{{0,30}}{_PAIR1}[^0-9([]{{0,20}}(?:{_LOWER})[^0-9([]{{0,30}}{_PAIR2}",
            rf"{_PAIR1}(?: (?:in|at) the (?:{_UPPER}))?\s{{0,3}}(?:to|-|->|→|bis|à|до|至|到)\s{{0,3}}{_PAIR2}",
            *(f"{corner}{size}" for corner in (_CENTRED, _PAIR) for size in (_SIZE, _SIDES)),
        ),
        (
            rf"\bx\b[^0-9\n.]{{0,20}}?{_X1}{_TO}(?:x\s?=\s?)?{_X2}[^0-9]{{0,20}}?"
            rf"\by\b[^0-9\n.]{{0,20}}?{_Y1}{_TO}(?:y\s?=\s?)?{_Y2}",
            rf"\bx\s?=\s?{_X1}\s?,?\s?y\s?=\s?{_Y1}\)?{_TO}\(?x\s?=\s?{_X2}\s?,?\s?y\s?=\s?{_Y2}",
            rf"{_FROM_LEFT}[^0-9\n]{{0,30}}?{_FROM_TOP}{_SIZE}",
            rf"{_FROM_LEFT}[^0-9\n]{{0,30}}?{_FROM_TOP}",
            rf"{_FROM_TOP}[^0-9\n]{{0,30}}?{_FROM_LEFT}",
        ),
    )
)
"""Positions in words: corners such as "(10, 20) to (40, 60)", and sides such as "x from 10 to 40, y from 20 to 60"."""
_TURNED = str.maketrans("xy", "yx")
_TO_THE_EDGE = ("fractions", "percent", "thousandths-xy", "thousandths-yx")
"""Conventions in which the right and lower edges have a number: 1, 100 or 1000."""
_EDGE, _CLIPPED = 1e-5, 0.01
"""Distance of a point on the edge from the edge, and how far a box may reach beyond it, as fractions of the side."""


def read_place(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to a question whose answer is a point or a box; `plain` is cleaned text."""
    plain, problem = _untagged(plain, settings)
    if problem:
        return Reply("unclear", note=problem)
    plain, note_on_list = _last_of_lists(plain, question)
    text, n = bare(plain), 2 if question.form == "point" else 4
    for pattern in _SIDES_IN_WORDS:
        text = pattern.sub(_named, text)
    for pattern in _PAIRS_IN_WORDS if n == 4 else ():
        text = pattern.sub(partial(_named, is_y_first=settings.coordinates == "thousandths-yx"), text)
    named = statements(text, _NUMBER_KEYS)
    rests = [rest for rest, _ in named if _number_runs(rest, settings) or begins_absent(rest)]
    if rests:
        runs = _number_runs(rests[-1], settings)[:1]
        is_absent = not runs
    else:
        runs = _number_runs(text, settings)
        if is_cut and len(runs) != 1:
            return Reply("cut_off")
        fitting = [run for run in runs if len(run) == n]
        note_on_list = note_on_list or (f"{len(fitting)} {_PLURAL[question.form]} named" if len(fitting) > 1 else "")
        runs = fitting[-1:] or runs[-1:]
        is_absent = says_absent(text, question.finding) or [value for value, _, _ in json_spans(plain)] == [[]]
    if not runs:
        return nothing(plain, question, is_absent=is_absent)
    if is_cut and (len(runs[0]) < n or text[-1:].isdigit()):  # another digit may be missing
        return Reply("cut_off")
    key = boxes_2d[0] if (boxes_2d := re.findall(r"\bb?box[ _]2d", plain)) else ""
    values, note = _in_order(runs[0], n, key.replace(" ", "_"), settings)
    if values is None:
        return Reply("unclear", note=note)
    shown = (settings.side, settings.side)
    return noted(_place_reply(_in_pixels(values, shown, settings), values, note, question, settings), note_on_list)


def _untagged(plain: str, settings: AskSettings) -> tuple[str, str]:
    """Return the text with tags of positions as named numbers, and a problem if they imply another convention."""
    for pattern, coordinates in _TAGS:
        tag = pattern.search(plain)
        if tag and coordinates != settings.coordinates:
            return plain, f'a tag such as "{tag[0][:24]}" is in {coordinates}: {settings.coordinates} were asked for'
        plain = pattern.sub(_named, plain)
    return plain, ""


def _named(tag: re.Match[str], *, is_y_first: bool = False) -> str:
    """Return a tag of a position, or a position in words, as a line of named numbers."""
    numbers = {name.translate(_TURNED) if is_y_first else name: value for name, value in tag.groupdict().items()}
    return f"\n{'box' if len(numbers) == 4 else 'point'}: {', '.join(f'{k}={v}' for k, v in numbers.items())}\n"


def _last_of_lists(plain: str, question: Question) -> tuple[str, str]:
    """Return the text with one object of each JSON list of positions, and a note on the others.

    The object whose label is the finding is kept if there is exactly one, otherwise the last.
    """
    note = ""
    for value, start, end in reversed(json_spans(plain)):
        if (
            isinstance(value, list)
            and len(value) > 1
            and all(_PLACE_KEYS & set(v) if isinstance(v, dict) else 0 for v in value)
        ):
            named = [v for v in value if canonical_finding(str(v.get("label")), (question.finding or "",))]
            kept = named[0] if len(named) == 1 else value[-1]
            note = f"{len(value)} {_PLURAL[question.form]} named, passed over: {len(value) - 1}"
            plain = plain[:start] + json.dumps(kept) + plain[end:]
    return plain, note


def _in_order(
    run: Sequence[tuple[str, float, bool]], n: int, key: str, settings: AskSettings
) -> tuple[tuple[float, ...] | None, str]:
    """Return a run of `n` numbers as x, y (width, height) in the requested unit, or None, and a note.

    `key` is the key of these numbers in a JSON object, or "".
    """
    chosen = convention(settings.coordinates)
    if any(is_percent for _, _, is_percent in run) and settings.coordinates != "percent":
        return None, f"percentages: {settings.coordinates} were asked for"
    if key == "box_2d" and settings.coordinates != "thousandths-yx":
        return None, f'"box_2d" is in thousandths, y first: {settings.coordinates} were asked for'
    if len(run) != n:
        return None, f"{len(run)} numbers, {n} were asked for"
    names = ("x", "y", "w", "h")[:n]
    order = chosen.names("point" if n == 2 else "box", corners=settings.corners or key.endswith("box_2d"))
    labels = [_SYNONYMS.get(label, label or name) for (label, _, _), name in zip(run, order, strict=True)]
    by_label = dict(zip(labels, (value for _, value, _ in run), strict=True))
    if set(by_label) == set(names):
        return tuple(by_label[name] for name in names), ""
    if set(by_label) == {"cx", "cy", "w", "h"}:
        width, height = by_label["w"], by_label["h"]
        return (by_label["cx"] - width / 2, by_label["cy"] - height / 2, width, height), "named by its centre"
    if set(by_label) in ({"x1", "y1", "x2", "y2"}, {"x", "y", "x2", "y2"}):
        x, y = by_label.get("x1", by_label.get("x", 0.0)), by_label.get("y1", by_label.get("y", 0.0))
        return (x, y, by_label["x2"] - x, by_label["y2"] - y), "" if settings.corners else "named as corners"
    return None, f"numbers named {', '.join(labels)}"


def _in_pixels(values: tuple[float, ...], size: tuple[int, int], settings: AskSettings) -> tuple[float, ...]:
    """Convert x, y (width, height) from the requested unit to pixels of the shown image of `size` (height, width)."""
    units = convention(settings.coordinates).pixels_of(size) * 2
    return tuple(value * unit for value, unit in zip(values, units, strict=False))


def _place_reply(
    place: tuple[float, ...], numbers: tuple[float, ...], note: str, question: Question, settings: AskSettings
) -> Reply:
    """Return the reply in pixels of the full image; `place` is in pixels of the square, `numbers` as requested."""
    side, view = settings.side, SquareView(question.image.size, settings.side)
    notes = [note, _looks_like(numbers, side) if settings.coordinates == "pixels" else ""]
    if len(place) == 2:
        point = _within(place, (side, side)) if settings.coordinates in _TO_THE_EDGE else place
        inside = all(0 <= value < side for value in point)
        return noted(Reply("answered", point=view.to_full(*point)) if inside else Reply("outside"), *notes)
    x, y, width, height = place
    if min(width, height) < LEAST_SIDE:
        return noted(Reply("unclear", note="a box must have a width and a height above 0"), *notes)
    clipped, beyond = _clipped(place, (side, side))
    if clipped is None:
        if 0 <= x < width <= side and 0 <= y < height <= side and not settings.corners:
            notes.append("corners instead of width and height?")
        return noted(Reply("outside", note=beyond), *notes)
    full = view.box_to_full(clipped)
    return noted(Reply("answered", box=kept_inside(full, question.image.size)), *notes, beyond)


def _within(point: tuple[float, ...], size: tuple[int, int]) -> tuple[float, ...]:
    """Return a point [x, y]; one exactly on the right or lower edge of `size` (height, width) moves just inside."""
    return tuple(s * (1 - _EDGE) if value == s else value for value, s in zip(point, reversed(size), strict=True))


def _clipped(box: tuple[float, ...], size: tuple[int, int]) -> tuple[Box | None, str]:
    """Return a box that ends at the edges of an image of `size` (height, width), and a note on what was beyond.

    A box that reaches further beyond than 1% of the side is None.
    """
    (height, width), (x, y, w, h) = size, box
    left, top, right, bottom = max(x, 0.0), max(y, 0.0), min(x + w, width), min(y + h, height)
    beyond = max(left - x, top - y, x + w - right, y + h - bottom)
    if beyond <= 0:
        return (x, y, w, h), ""
    note = f"reaches {beyond:.3g} pixels beyond the edge of the picture of {width} x {height}"
    if max(left - x, x + w - right) > _CLIPPED * width or max(top - y, y + h - bottom) > _CLIPPED * height:
        return None, note
    return (left, top, right - left, bottom - top), f"{note}: clipped"


def _looks_like(values: tuple[float, ...], side: int) -> str:
    """Return a note if the numbers, which are read as pixels, seem to have another unit."""
    if all(0 <= value <= 1 for value in values) and any(value % 1 for value in values):
        return "looks like fractions of the side"
    if all(0 <= value <= 1000 for value in values) and max(values) > side:
        return "looks like thousandths of the side, or pixels of another size"
    return ""


def kept_inside(box: Box, size: tuple[int, int]) -> Box:
    """Return the box, cut where a rounding error puts it slightly beyond the right or lower edge."""
    x, y, width, height = box
    return x, y, min(width, size[1] - x), min(height, size[0] - y)


def _number_runs(text: str, settings: AskSettings) -> list[list[tuple[str, float, bool]]]:
    """Return runs of numbers separated only by separators and labels, as (label or "", number, is_percentage).

    If corners are requested, "(10, 20), (40, 60)" is one run.
    """
    runs: list[list[tuple[str, float, bool]]] = []
    end = -1
    for match in _NUMBER.finditer(text, max(0, len(text) - MAX_PROSE)):
        between = text[end : match.start()][:40]
        is_pair = settings.corners and len(runs[-1:]) == 1 and len(runs[-1]) == 2
        joins = _BETWEEN.fullmatch(between) or (is_pair and _BETWEEN_CORNERS.fullmatch(between))
        if end < 0 or not joins or match.start() - end > 39:
            runs.append([])
        runs[-1].append(
            (re.sub("[ _]", "", (match["label"] or "").lower()), float(match["number"]), bool(match["percent"]))
        )
        end = match.end()
    return runs


def box_entries(value: Any) -> list[Any] | None:
    """Return the boxes of a JSON value in the answer to an open task; None if the value does not contain boxes."""
    if isinstance(value, dict) and isinstance(value.get("boxes"), list):
        return list(value["boxes"])
    if isinstance(value, list) and value and all(isinstance(entry, dict) and "label" in entry for entry in value):
        return value
    return None


def answer_box(entry: Any, question: Question, settings: AskSettings) -> tuple[AnswerBox | None, str]:
    """Return a box of an open task's answer, in pixels of the full image, or a note on the problem."""
    if not isinstance(entry, dict):
        return None, f"passed over a box that is a {type(entry).__name__}, no object"
    label = entry.get("label")
    most = ANSWER_LIMITS.label_characters
    if not (isinstance(label, str) and label.strip() and label.isprintable() and len(label) <= most):
        return None, f"passed over a box without a label of 1 to {most} plain characters"
    n, place = len(question.images), entry.get("image", 1 if len(question.images) == 1 else None)
    if isinstance(place, bool) or not isinstance(place, int) or not 1 <= place <= n:
        return None, f"passed over {label!r}: `image` must be a number from 1 to {n}"
    image = question.images[place - 1]
    box, note = _whole_picture_box(entry, image, settings)
    if box is None:
        return None, f"passed over {label!r}: {note}"
    return AnswerBox(image.image_id, label.strip(), box), note


def _whole_picture_box(entry: dict[str, Any], image: ViewedImage, settings: AskSettings) -> tuple[Box | None, str]:
    """Return a box in pixels of an image that was shown whole, or a note on the problem."""
    values, note = _sides(entry, settings)
    if values is None:
        return None, note
    size = height_shown, width_shown = whole_size(image.size, settings.side)
    x, y, width, height = _in_pixels(values, size, settings)
    clipped, beyond = _clipped((x, y, width, height), size)
    if clipped is None or min(clipped[2:]) < LEAST_SIDE:
        return None, f"outside the picture of {width_shown} x {height_shown} pixels"
    x, y, width, height = clipped
    across, down = image.size[1] / width_shown, image.size[0] / height_shown
    return kept_inside((x * across, y * down, width * across, height * down), image.size), "; ".join(
        filter(None, (note, beyond))
    )


def _sides(entry: dict[str, Any], settings: AskSettings) -> tuple[tuple[float, ...] | None, str]:
    """Return x, y, width and height of a box of an open task, by name or as a list, or a note on the problem."""
    key = next((key for key in _BOX_KEYS if isinstance(entry.get(key), list | dict)), "")
    sides = entry[key] if key else entry
    if isinstance(sides, dict):
        named = {plain: v for name, v in sides.items() if (plain := re.sub("[ _]", "", name.lower())) in _SIDE_KEYS}
        sides, labels = list(named.values()), list(named)
    else:
        labels = [""] * len(sides)
    numbers = [_number(value) for value in sides]
    if not numbers or any(map(math.isnan, numbers)):
        return None, "x, y, w and h must be numbers"
    return _in_order([(label, number, False) for label, number in zip(labels, numbers, strict=True)], 4, key, settings)


def _number(value: Any) -> float:
    """Return a JSON number, or a text that is one; NaN for anything else, and for a number of more than 7 digits."""
    if isinstance(value, str) and re.fullmatch(r"\s?-?[0-9]{1,7}(?:\.[0-9]{1,12})?\s?", value):
        return float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e7 else math.nan


def read_boxes(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to a question about one finding whose answer is any number of boxes with scores."""
    spans = json_spans(plain)
    blocks = [block for value, _, _ in spans if (block := _detections_in(value, question)) is not None]
    is_broken = not blocks and _BOX_BEGUN.search(_between(plain, spans))
    alone = [value for value, _, _ in spans if isinstance(value, dict) and set(_BOX_KEYS) & set(value)]
    if alone and not blocks and not is_broken and not is_cut:
        blocks = [alone]
    if not blocks:
        is_absent = says_absent(bare(plain), question.finding)
        reply = Reply("cut_off") if is_cut else nothing(plain, question, is_absent=is_absent)
        return noted(reply, "broken JSON" if is_broken and reply.status == "unclear" else "")
    entries = blocks[-1]
    if not entries:
        return nothing(plain, question, is_absent=True)
    read = [_detection(entry, question, settings) for entry in entries[:MOST_ON_IMAGE]]
    detections, notes = tuple(one for one, _ in read if one), list(dict.fromkeys(note for _, note in read if note))
    if len(entries) > MOST_ON_IMAGE:
        notes.append(f"{len(entries)} boxes, the first {MOST_ON_IMAGE} were read")
    return noted(Reply("answered" if detections else "unclear", detections=detections), *notes[:10])


def _between(text: str, spans: Sequence[tuple[Any, int, int]]) -> str:
    """Return the text outside the JSON values."""
    starts, ends = [start for _, start, _ in spans], [end for _, _, end in spans]
    return " ".join(text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True))


def _detections_in(value: Any, question: Question) -> list[Any] | None:
    """Return the boxes of a JSON value; None if the value does not contain boxes.

    An object may have the boxes under a general key, or under the finding's name.
    """
    if isinstance(value, dict):
        keys = [key for key in value if key in _LIST_KEYS or canonical_finding(key, (question.finding or "",))]
        return next((list(value[key]) for key in keys if isinstance(value[key], list)), None)
    if isinstance(value, list) and all(isinstance(v, list) or (isinstance(v, dict) and _has_sides(v)) for v in value):
        return value
    return None


def _has_sides(entry: dict[str, Any]) -> bool:
    return bool(set(_BOX_KEYS) & set(entry)) or len(_SIDE_KEYS & set(entry)) >= 4


def _detection(entry: Any, question: Question, settings: AskSettings) -> tuple[ScoredBox | None, str]:
    """Return a box with its score, or a note on the problem."""
    if not isinstance(entry, dict):
        return None, f"passed over a box that is a {type(entry).__name__}, no object with a score"
    score = probability(next((entry[key] for key in _SCORE_KEYS if key in entry), None))
    if score is None or not 0 <= score <= 1:
        return None, "passed over a box without a score from 0 to 1"
    box, note = _whole_picture_box(entry, question.image, settings)
    return (None, f"passed over a box: {note}") if box is None else (ScoredBox(box, score), note)
