"""Parse a model's answer into a cell, a point, a box, boxes, labels or text, or state why it is unusable.

Conventions
-----------
Nothing is repaired and nothing guessed: a cell or point outside the image, or a name that is not one of the labels, is
not an answer. The `note` lists ignored parts. Thinking (``<think>...</think>`` and the like) is never read. Points and
boxes are returned in pixels of the full image, mapped from pixels of the image that the model saw. Numbers are read in
the requested convention only (:mod:`reveal_bench.models.coordinates`), even if they seem to have another unit. An
answer to a mirrored image is mirrored back.

* A cell: :mod:`reveal_bench.models.answer_cells` defines where an answer is searched for a cell, and which of several
  cells is used.
* A point or a box: numbers, in order or by name; the note says if they seem to have another unit. Some names imply a
  convention: "box_2d" is in thousandths, y first; a tag <point x="..." y="..."> is in percent; "bbox_2d" has corners.
* Boxes with scores: the last JSON block that has boxes; boxes without a score in [0, 1] are ignored.
* The labels of a study: JSON, a line "Findings: ..." or a list under that line, a list such as "COPD: yes", or the last
  lines if they are labels.
* An open task: the whole text, and the boxes in its JSON, with coordinates by name or as a list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from reveal_bench.findings import canonical_finding, conflict
from reveal_bench.kinds.detection.lint import MOST_ON_IMAGE
from reveal_bench.kinds.detection.records import ScoredBox
from reveal_bench.kinds.localization.records import Box
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.kinds.tasks.lint import ANSWER_LIMITS
from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.models.answer_cells import read_cell
from reveal_bench.models.answer_words import (
    MAX_CHARACTERS,
    MAX_PROSE,
    Reply,
    bare,
    begins_absent,
    cleaned,
    is_refusal,
    json_values,
    lines_of,
    noted,
    nothing,
    says_absent,
    statements,
    without_thinking,
)
from reveal_bench.models.controls import mirrored_back
from reveal_bench.models.coordinates import convention
from reveal_bench.models.overlay import SquareView, whole_size
from reveal_bench.models.questions import AskSettings

LEAST_SIDE = 1e-6
"""Minimum side of a box in pixels; a shorter one may be rounded to 0."""
_SYNONYMS = {
    "left": "x", "top": "y", "width": "w", "height": "h", "xmin": "x1", "ymin": "y1", "xmax": "x2", "ymax": "y2",
    "right": "x2", "bottom": "y2",
}  # fmt: skip
_NUMBER_KEYS = "point|box|bounding box|bbox|coordinates?|answer|location|position|punkt|antwort|réponse|答案|坐标"
_LABEL = r"x_?min|y_?min|x_?max|y_?max|x1|y1|x2|y2|x|y|width|height|left|top|right|bottom|w|h"
_NUMBER = re.compile(
    rf"(?i)(?:(?<![A-Za-z])[\"']?(?P<label>{_LABEL})[\"']?\s{{0,2}}[:=]\s{{0,2}})?"
    r"(?<![A-Za-z0-9.])(?P<number>-?[0-9]{1,7}(?:\.[0-9]{1,12})?)(?![0-9]|\.[0-9]|[eE][-+]?[0-9])(?P<percent>\s?%)?"
)
_TAG = re.compile(r"<points?\s{1,3}x1?=\"(?P<x>[0-9.]{1,9})\"\s{1,3}y1?=\"(?P<y>[0-9.]{1,9})\"")
_BETWEEN_CORNERS = re.compile(r"\s{0,3}[)\]]\s{0,3},?\s{0,3}[(\[]\s{0,3}")
_BETWEEN = re.compile(r"(?i)\s{0,4}(?:px|pixels?)?\s{0,4}[,;|]?\s{0,8}(?:and|und|et)?\s{0,3}[\"']?")


def read_place(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to a question whose answer is a point or a box; `plain` is cleaned text."""
    if settings.coordinates == "percent":
        plain = _TAG.sub("\\npoint: \\g<x>, \\g<y>\\n", plain)
    text, n = bare(plain), 2 if question.form == "point" else 4
    named = statements(text, _NUMBER_KEYS)
    rests = [rest for rest, _ in named if _number_runs(rest, settings) or begins_absent(rest)]
    if rests:
        runs = _number_runs(rests[-1], settings)[:1]
        is_absent = not runs
    else:
        runs = _number_runs(text, settings)
        if is_cut and len(runs) != 1:
            return Reply("cut_off")
        runs = [run for run in runs if len(run) == n][-1:] or runs[-1:]
        is_absent = says_absent(text, question.finding)
    if not runs:
        return nothing(plain, question, is_absent=is_absent)
    if is_cut and (len(runs[0]) < n or text[-1:].isdigit()):  # another digit may be missing
        return Reply("cut_off")
    key = boxes_2d[0] if (boxes_2d := re.findall(r"\bb?box[ _]2d", plain)) else ""
    values, note = _in_order(runs[0], n, key.replace(" ", "_"), settings)
    if values is None:
        return Reply("unclear", note=note)
    return _place_reply(_in_pixels(values, (settings.side, settings.side), settings), values, note, question, settings)


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
    if set(by_label) == {"x1", "y1", "x2", "y2"}:
        x, y = by_label["x1"], by_label["y1"]
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
    x, y = place[:2]
    if len(place) == 2:
        inside = 0 <= x < side and 0 <= y < side
        reply = Reply("answered", point=view.to_full(x, y)) if inside else Reply("outside")
        return noted(reply, *notes)
    width, height = place[2:]
    if min(width, height) < LEAST_SIDE:
        return noted(Reply("unclear", note="a box must have a width and a height above 0"), *notes)
    if x < 0 or y < 0 or x + width > side or y + height > side:
        if 0 <= x < width <= side and 0 <= y < height <= side and not settings.corners:
            notes.append("corners instead of width and height?")
        return noted(Reply("outside"), *notes)
    full = view.box_to_full((x, y, width, height))
    return noted(Reply("answered", box=kept_inside(full, question.image.size)), *notes)


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
            ((match["label"] or "").lower().replace("_", ""), float(match["number"]), bool(match["percent"]))
        )
        end = match.end()
    return runs


_LABEL_KEYS = "findings?|labels?|answer|diagnos[ei]s|present|befunde?|antwort|réponse|答案"
_NO_LABELS = re.compile(
    r"(?i)\W*(?:none(?: of (?:them|these|the above|the (?:\w{1,10} )?(?:findings|labels)))?"
    r"(?: (?:is|are) (?:present|seen|visible))?|no (?:acute )?(?:finding|abnormalit|label|patholog)\w*.{0,40}"
    r"|normal|normal (?:study|exam|chest)\w*|nothing|n/a|keine?|aucune?|无)\W*"
)
_TICKED = re.compile(
    r"(?i)(?P<name>[^:|\n]{1,80}?)\s{0,9}[:|]\s{0,9}(?P<said>yes|no|true|false|present|absent|positive|negative)\.?"
)
_DENIED = re.compile(r"(?i)\W*(?:no|not|without|negative for|absent|kein|keine|pas de|无)\b")
_YES = {True, "yes", "true", "present", "positive"}
_NO = {False, "no", "false", "absent", "negative", None}


def read_labels(plain: str, question: Question, _: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to a question whose answer is labels; `plain` is cleaned text."""
    values = [value for value in json_values(plain) if _is_labels(value)]
    if values:
        return _labels_reply(_names_in(values[-1]), question, is_stated=True)
    text = bare(plain)
    listed = [(rest, is_end) for rest, is_end in statements(text, _LABEL_KEYS) if _split(rest, question.choices)]
    if is_cut and (not listed or listed[-1][1]):
        return Reply("cut_off")
    if listed:
        return _labels_reply(_split(listed[-1][0], question.choices), question, is_stated=True)
    names, lines = list[str](), list(lines_of(text))
    ticked = [match for line in lines if (match := _TICKED.fullmatch(line)) and _label(match["name"], question.choices)]
    if ticked:
        return _labels_reply([m["name"] for m in ticked if m["said"].lower() in _YES], question, is_stated=True)
    for line in reversed(lines):
        if _labels_reply(_split(line, question.choices), question).status != "answered":
            break
        names += _split(line, question.choices)
    if names:
        return _labels_reply(names, question)
    if lines and not is_refusal(plain):
        return _labels_reply(_split(lines[-1], question.choices), question)
    return Reply("refused" if lines else "unclear")


def _is_labels(value: Any) -> bool:
    if isinstance(value, dict):
        return any(isinstance(value.get(key), list) for key in ("findings", "labels", "answer")) or (
            bool(value) and all(isinstance(v, bool | int | str) or v is None for v in value.values())
        )
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _names_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return value
    for key in ("findings", "labels", "answer"):
        if isinstance(value.get(key), list):
            return [entry if isinstance(entry, str) else f"a {type(entry).__name__}" for entry in value[key]]
    named = {key: v.strip().lower() if isinstance(v, str) else v for key, v in value.items()}
    odd = [f"{key}: {v}" for key, v in named.items() if v not in _YES and v not in _NO]
    return [key for key, v in named.items() if v in _YES] + odd


def _split(line: str, choices: Sequence[str]) -> list[str]:
    """Return the names in a list in words; the "and" within a name such as "Lines and tubes" does not separate."""
    listed = re.split(r"[,;、，]", re.sub(r"[\[\]\"{}]", " ", line[:5000]))
    parts = [part for one in listed for part in ([one] if _label(one, choices) else re.split(r"\band\b|\bund\b", one))]
    return [part.strip(" .'\t:-") for part in parts if part.strip(" .'\t:-")]


def _labels_reply(names: list[str], question: Question, *, is_stated: bool = False) -> Reply:
    """Return the reply with the named labels; denied labels are ignored, and any other name makes the answer unclear.

    An empty list is an answer only if the text says "none", or `is_stated` is True.
    """
    labels, denied, unknown = set(), [], []
    says_none = False
    for name in names:
        label = _label(name, question.choices)
        if label:
            labels.add(label)
        elif _NO_LABELS.fullmatch(name[:200]):
            says_none = True
        elif _DENIED.match(name):
            denied.append(name[:80])
        else:
            unknown.append(name[:80])
    if unknown:
        return Reply("unclear", note=f"no labels of the benchmark: {'; '.join(unknown[:5])}")
    if lone := conflict(labels, question.choices):
        return Reply("unclear", note=f"says {lone}, and names {', '.join(sorted(labels - {lone}))}")
    if says_none and labels:
        return Reply("unclear", note=f"says none, and names {', '.join(sorted(labels))}")
    if not (labels or says_none or is_stated):
        return Reply("unclear")
    note = f"passed over: {'; '.join(denied[:5])}" if denied else ""
    return Reply("answered", labels=tuple(label for label in question.choices if label in labels), note=note)


def _label(name: str, choices: Sequence[str]) -> str | None:
    """Return the label of a name, which may have a remark in brackets: "Pleural effusion (left)"."""
    without = re.sub(r"\s{0,3}\([^()]{0,80}\)", "", name[:300]).strip(" '")
    return canonical_finding(name[:300], choices) or canonical_finding(without, choices)


_SHORT = 600
"""Largest length in characters of a refusal; a longer text with such a wording is read as an answer."""


def read_text(text: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to an open task: the whole `text`, and the boxes of the last JSON block that has boxes."""
    blocks = [block for value in json_values(text) if (block := _box_entries(value)) is not None]
    read = [_answer_box(entry, question, settings) for entry in (blocks[-1] if blocks else [])[: ANSWER_LIMITS.boxes]]
    boxes, notes = tuple(box for box, _ in read if box), [note for _, note in read if note]
    if blocks and len(blocks[-1]) > ANSWER_LIMITS.boxes:
        notes.append(f"{len(blocks[-1])} boxes, the first {ANSWER_LIMITS.boxes} were read")
    if question.requires_boxes and not blocks:
        notes.append("no boxes, though the task asks for them")
    if len(text) > ANSWER_LIMITS.characters:  # a prediction file with a longer text would be refused
        return Reply("unclear", text=text, note=f"longer than the {ANSWER_LIMITS.characters:,} characters allowed")
    note = "; ".join(notes[:10])
    if is_cut and not (blocks and text.rstrip(" `\n").endswith(("}", "]"))):
        return Reply("cut_off", text=text, boxes=boxes, note=note)
    if len(text) <= _SHORT and not boxes and is_refusal(cleaned(text)):
        return Reply("refused", text=text, note=note)
    return Reply("answered", text=text, boxes=boxes, note=note)


def _box_entries(value: Any) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("boxes"), list):
        return list(value["boxes"])
    if isinstance(value, list) and value and all(isinstance(entry, dict) and "label" in entry for entry in value):
        return value
    return None


def _answer_box(entry: Any, question: Question, settings: AskSettings) -> tuple[AnswerBox | None, str]:
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
    return AnswerBox(image.image_id, label.strip(), box), ""


def _whole_picture_box(entry: dict[str, Any], image: ViewedImage, settings: AskSettings) -> tuple[Box | None, str]:
    """Return a box in pixels of an image that was shown whole, or a note on the problem."""
    values, note = _sides(entry, settings)
    if values is None:
        return None, note
    size = height_shown, width_shown = whole_size(image.size, settings.side)
    x, y, width, height = _in_pixels(values, size, settings)
    if not (x >= 0 and y >= 0 and LEAST_SIDE <= width <= width_shown - x and LEAST_SIDE <= height <= height_shown - y):
        return None, f"outside the picture of {width_shown} x {height_shown} pixels"
    across, down = image.size[1] / width_shown, image.size[0] / height_shown
    return kept_inside((x * across, y * down, width * across, height * down), image.size), ""


_BOX_KEYS = ("box", "bbox", "box_2d", "bbox_2d")


def _sides(entry: dict[str, Any], settings: AskSettings) -> tuple[tuple[float, ...] | None, str]:
    """Return x, y, width and height of a box of an open task, by name or as a list, or a note on the problem."""
    key = next((key for key in _BOX_KEYS if isinstance(entry.get(key), list)), "")
    names = ("x", "y", "w", "h") if "w" in entry or "x" in entry else ("x1", "y1", "x2", "y2")
    sides = entry[key] if key else [entry.get(name) for name in names]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 1e7 for v in sides):
        return None, "x, y, w and h must be numbers"
    labels = [""] * len(sides) if key else names
    return _in_order([(name, float(v), False) for name, v in zip(labels, sides, strict=True)], 4, key, settings)


def read_boxes(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to a question about one finding whose answer is any number of boxes with scores."""
    blocks = [block for value in json_values(plain) if (block := _detections_in(value)) is not None]
    if not blocks:
        is_absent = says_absent(bare(plain), question.finding)
        return Reply("cut_off") if is_cut else nothing(plain, question, is_absent=is_absent)
    entries = blocks[-1]
    if not entries:
        return nothing(plain, question, is_absent=True)
    read = [_detection(entry, question, settings) for entry in entries[:MOST_ON_IMAGE]]
    detections, notes = tuple(one for one, _ in read if one), list(dict.fromkeys(note for _, note in read if note))
    if len(entries) > MOST_ON_IMAGE:
        notes.append(f"{len(entries)} boxes, the first {MOST_ON_IMAGE} were read")
    return noted(Reply("answered" if detections else "unclear", detections=detections), *notes[:10])


def _detections_in(value: Any) -> list[Any] | None:
    """Return the boxes of a JSON value; None if the value does not contain boxes."""
    if isinstance(value, dict) and isinstance(value.get("boxes"), list):
        return list(value["boxes"])
    if isinstance(value, list) and all(isinstance(entry, dict) and set(_BOX_KEYS) & set(entry) for entry in value):
        return value
    return None


def _detection(entry: Any, question: Question, settings: AskSettings) -> tuple[ScoredBox | None, str]:
    """Return a box with its score, or a note on the problem."""
    if not isinstance(entry, dict):
        return None, f"passed over a box that is a {type(entry).__name__}, no object"
    score = entry.get("score", entry.get("confidence"))
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        return None, "passed over a box without a score from 0 to 1"
    box, note = _whole_picture_box(entry, question.image, settings)
    return (None, f"passed over a box: {note}") if box is None else (ScoredBox(box, float(score)), "")


PARSER_VERSION = "2"
"""Version of the parsing rules, raised when any reply is parsed differently; every run folder states the version."""

_CUT = {"max_tokens", "length", "model_length", "max_output_tokens", "model_context_window_exceeded"}
_FILTERED = {"content_filter", "refusal", "safety", "recitation", "prohibited_content", "blocklist"}
_READERS = {
    "cell": read_cell, "point": read_place, "box": read_place, "boxes": read_boxes, "labels": read_labels,
    "text": read_text,
}  # fmt: skip


def read_reply(text: str, question: Question, settings: AskSettings, *, stop_reason: str | None = None) -> Reply:
    """Parse a model's answer. No text raises an error.

    Parameters
    ----------
    text : the model's text, including thinking; only the last 200,000 characters are read
    question : the question
    settings : how the question was asked: grid, form of the answer and size of the image
    stop_reason : why the model stopped, as its API says; "max_tokens", "length" and the like mean that the text was cut
        off

    Examples
    --------
    >>> question = Question("i1|Edema", "cell", (), "Edema")
    >>> read_reply("The haze spans C4 to D5.\\n**Cell: D4**", question, AskSettings()).cell
    'D4'
    """
    reason = (stop_reason or "").lower()
    if reason in _FILTERED:
        return Reply("refused", note=f"stopped by {reason}")
    is_cut = reason in _CUT
    reply_text, is_open = without_thinking(text)
    plain = reply_text if question.form == "text" else cleaned(reply_text)
    if not plain:
        if is_cut or not is_open:
            note = "cut off while thinking" if is_open else "nothing but thinking" if text.strip() else ""
            return Reply("cut_off" if is_cut else "empty", note=note)
        return Reply("unclear", note="the thinking has no end")
    reply = _READERS[question.form](plain, question, settings, is_cut)
    if settings.control == "mirrored":
        reply = mirrored_back(reply, question, settings.grid)
    is_long = len(text) > MAX_CHARACTERS
    return noted(reply, f"only the last {MAX_CHARACTERS:,} characters were read") if is_long else reply
