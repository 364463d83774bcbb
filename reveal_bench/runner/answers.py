"""A model's answer -> what it says: a cell, a point, a box, labels, or text with boxes; or why it says nothing usable.

Conventions
-----------
Nothing is repaired and nothing guessed: a cell or point that is not in the picture, or a name that is no label, is no
answer. What was passed over stands in the `note`. Thinking (``<think>...</think>`` and the like) is never read. Points
and boxes are given in pixels of the full image, mapped from those of the picture that was shown. Where a cell is looked
for, and which of several counts, stands in :mod:`reveal_bench.runner.answer_cells`.
"""

from __future__ import annotations

from reveal_bench.runner.answer_cells import read_cell
from reveal_bench.runner.answer_labels import read_labels
from reveal_bench.runner.answer_places import read_place
from reveal_bench.runner.answer_replies import STATUSES, Reply, noted
from reveal_bench.runner.answer_texts import read_text
from reveal_bench.runner.answer_words import MAX_CHARACTERS, cleaned, without_thinking
from reveal_bench.runner.questions import AskSettings, Question

__all__ = ["PARSER_VERSION", "STATUSES", "Reply", "read_reply"]

PARSER_VERSION = "1"
"""Of the rules by which replies are read; changed when one comes to be read otherwise. Every run folder states it."""

_CUT = {"max_tokens", "length", "model_length", "max_output_tokens", "model_context_window_exceeded"}
_FILTERED = {"content_filter", "refusal", "safety", "recitation", "prohibited_content", "blocklist"}
_READERS = {"cell": read_cell, "point": read_place, "box": read_place, "labels": read_labels, "text": read_text}


def read_reply(text: str, question: Question, settings: AskSettings, *, stop_reason: str | None = None) -> Reply:
    """Read a model's answer. Never raises, whatever the text.

    Parameters
    ----------
    text : as the model wrote it, thinking included; of more than 200,000 characters the last ones are read
    question : that was asked
    settings : it was asked with; the grid, the form and the size of the picture
    stop_reason : why the model stopped, as its API says; "max_tokens", "length" and the like for one that was cut off

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
    said, is_open = without_thinking(text)
    plain = said if question.form == "text" else cleaned(said)
    if not plain:
        if is_cut or not is_open:
            note = "cut off while thinking" if is_open else "nothing but thinking" if text.strip() else ""
            return Reply("cut_off" if is_cut else "empty", note=note)
        return Reply("unclear", note="the thinking has no end")
    reply = _READERS[question.form](plain, question, settings, is_cut)
    is_long = len(text) > MAX_CHARACTERS
    return noted(reply, f"only the last {MAX_CHARACTERS:,} characters were read") if is_long else reply
