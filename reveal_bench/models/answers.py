"""Parse a model's answer into a cell, a point, a box, boxes, labels or text, or state why it is unusable.

Conventions
-----------
Nothing is guessed: a cell or point outside the image, or a name that is not one of the labels, is not an answer. The
`note` lists ignored parts. Thinking (``<think>...</think>`` and the like) is never read. An answer to a mirrored image
is mirrored back.

* A cell: :mod:`reveal_bench.models.answer_cells` defines where an answer is searched for a cell, and which of several
  cells is used.
* A point or a box: :mod:`reveal_bench.models.answer_places` defines how numbers are read.
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
from reveal_bench.kinds.questions import Question
from reveal_bench.kinds.tasks.lint import ANSWER_LIMITS
from reveal_bench.models.answer_cells import read_cell
from reveal_bench.models.answer_places import answer_box, box_entries, read_boxes, read_place
from reveal_bench.models.answer_words import (
    MAX_CHARACTERS,
    SAFETY_VERDICT,
    Reply,
    bare,
    cleaned,
    is_refusal,
    json_values,
    lines_of,
    noted,
    statements,
    without_thinking,
)
from reveal_bench.models.controls import mirrored_back
from reveal_bench.models.questions import AskSettings

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
    blocks = [block for value in json_values(text) if (block := box_entries(value)) is not None]
    read = [answer_box(entry, question, settings) for entry in (blocks[-1] if blocks else [])[: ANSWER_LIMITS.boxes]]
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


PARSER_VERSION = "5"
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
        note = "cut off while thinking" if is_open else "nothing but thinking" if text.strip() else ""
        return Reply("cut_off" if is_cut or is_open else "empty", note=note)
    if SAFETY_VERDICT.fullmatch(plain):
        return Reply("refused", note="the verdict of a safety model")
    reply = _READERS[question.form](plain, question, settings, is_cut)
    if settings.control == "mirrored":
        reply = mirrored_back(reply, question, settings.grid)
    is_long = len(text) > MAX_CHARACTERS
    return noted(reply, f"only the last {MAX_CHARACTERS:,} characters were read") if is_long else reply
