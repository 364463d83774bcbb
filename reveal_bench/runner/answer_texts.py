"""The answer to an open task: its text, whole, and the boxes of its JSON, mapped to the full images."""

from __future__ import annotations

from typing import Any

from reveal_bench.predictions.tasks import ANSWER_LIMITS
from reveal_bench.runner.answer_places import LEAST_SIDE, kept_inside
from reveal_bench.runner.answer_replies import Reply
from reveal_bench.runner.answer_words import cleaned, is_refusal, json_values
from reveal_bench.runner.prompts import shown_size
from reveal_bench.runner.questions import AskSettings, Question
from reveal_bench.task_records import AnswerBox

__all__ = ["read_text"]

_SHORT = 600
"""Characters; a text this short that has the words of a refusal is one."""


def read_text(text: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """The reply to an open task: `text` whole, and the boxes of the last JSON block that has any."""
    blocks = [block for value in json_values(text) if (block := _box_entries(value)) is not None]
    read = [_answer_box(entry, question, settings) for entry in (blocks[-1] if blocks else [])[: ANSWER_LIMITS.boxes]]
    boxes, notes = tuple(box for box, _ in read if box), [note for _, note in read if note]
    if blocks and len(blocks[-1]) > ANSWER_LIMITS.boxes:
        notes.append(f"{len(blocks[-1])} boxes, the first {ANSWER_LIMITS.boxes} were read")
    if question.requires_boxes and not blocks:
        notes.append("no boxes, though the task asks for them")
    if len(text) > ANSWER_LIMITS.characters:  # a file with it would be refused
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
    """A box of an open task's answer in the full image's pixels, or a note that tells why it is none."""
    if not isinstance(entry, dict):
        return None, f"passed over a box that is a {type(entry).__name__}, no object"
    label = entry.get("label")
    most = ANSWER_LIMITS.label_characters
    if not (isinstance(label, str) and label.strip() and label.isprintable() and len(label) <= most):
        return None, f"passed over a box without a label of 1 to {most} plain characters"
    n, place = len(question.images), entry.get("image", 1 if len(question.images) == 1 else None)
    if isinstance(place, bool) or not isinstance(place, int) or not 1 <= place <= n:
        return None, f"passed over {label!r}: `image` must be a number from 1 to {n}"
    sides = [entry.get(name) for name in ("x", "y", "w", "h")]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 1e7 for v in sides):
        return None, f"passed over {label!r}: x, y, w and h must be numbers"
    x, y, width, height = (float(v) for v in sides)  # type: ignore[arg-type]  # numbers, as just checked
    image = question.images[place - 1]
    shown_height, shown_width = shown_size(image, settings.side)
    if not (x >= 0 and y >= 0 and LEAST_SIDE <= width <= shown_width - x and LEAST_SIDE <= height <= shown_height - y):
        return None, f"passed over {label!r}: outside the picture of {shown_width} x {shown_height} pixels"
    across, down = image.size[1] / shown_width, image.size[0] / shown_height
    full = kept_inside((x * across, y * down, width * across, height * down), image.size)
    return AnswerBox(image.image_id, label.strip(), full), ""
