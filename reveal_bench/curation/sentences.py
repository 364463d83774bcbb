"""A report in prose -> its sentences that tell of the film, in a form that patterns can match.

Conventions
-----------
Findings, impression and the like are read; indication, history, comparison, technique and recommendation are not. A
report without headings is read as a whole. Where no section is called findings, a paragraph after the first one below
another heading is read, too: many reports tell the findings there without a heading.

Normalised text is in lower case and American spelling; words, numbers and ``, : ? >`` stand apart by one space; a
hyphen is a space; a bracket, slash or dash is a comma. CM is cardiomegaly where it cannot be centimetres: not in a text
all in capitals, after a number, or before a word like "above".
"""

from __future__ import annotations

import re
from textwrap import wrap

__all__ = ["normalised", "sentences", "told_sections"]

MOST_CHARACTERS = 600
"""Of a sentence."""

TOLD = (
    "findings?",
    "impressions?",
    "conclusions?",
    "opinion",
    "interpretation",
    "results?",
    "observations?",
    "(?:final |preliminary )?report",
    "summary",
    "diagnosis",
    "addendum",
    "findings ?(?:and|/|&) ?impression",
)
OTHER = (
    "indications?",
    "(?:clinical |patient |medical )?history",
    "clinical (?:findings|information|details|indication|data|question)",
    "reason for (?:the )?(?:exam|examination|study|test)",
    "comparisons?",
    "techniques?",
    "procedure",
    "exam(?:ination)?",
    "study",
    "views?",
    "recommendations?",
    "notifications?",
    "communication",
    "(?:electronically )?signed(?: by)?",
    "dictated(?: by)?",
    "attending",
    "date",
)
_HEAD = re.compile(
    rf"(?<![^\W_])({'|'.join((*TOLD, *OTHER))})(?![^\W_])"
    r"(?:[ \t*]{0,9}(?P<mark>:)[ \t*]{0,9}|[ \t*]{0,9}(?P<end>\n|\Z))?",
    re.IGNORECASE,
)
_TOLD = re.compile("|".join(TOLD), re.IGNORECASE)
_LEADING = re.compile(r"[\s*#]{0,20}\Z")

_SPELLINGS = (
    (re.compile(r"oedema"), "edema"),
    (re.compile(r"oesoph"), "esoph"),
    (re.compile(r"haem(?=o|a)"), "hem"),
    (re.compile(r"tumour"), "tumor"),
    (re.compile(r"goitre"), "goiter"),
    (re.compile(r"n['’]t\b"), " not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\bw/o\b"), "without"),
    (re.compile(r"\bw/"), "with "),
    (re.compile(r"\br/o\b"), "rule out"),
    (re.compile(r"\bs/p\b"), "status post"),
    (re.compile(r"\bc/w\b"), "consistent with"),
    (re.compile(r"\bh/o\b"), "history of"),
    (re.compile(r"\bb/l\b"), "bilateral"),
    (re.compile(r"\band/or\b"), "or"),
    (re.compile(r"[()\[\]/]| [-–—]{1,3} |[–—]"), " , "),
)
_DOTTED = re.compile(r"\b(approx|ca|vs|resp|incl|cf|Dr)\.")
_CM = re.compile(r"\bCM\b(?!\s{1,9}(?i:above|below|from|to|in|x|proximal|distal)\b)")
_NUMBER = r"(?:\d|\b(?:several|few|half|one|two|three|four|five|six|seven|eight|nine|ten)\b)"
_COUNTED = re.compile(_NUMBER, re.IGNORECASE)
_COUNTED_JUST_BEFORE = re.compile(rf"{_NUMBER}[ \t]{{0,9}}-?[ \t]{{0,9}}\n?[ \t]{{0,9}}\Z", re.IGNORECASE)
_END = re.compile(r"[.!?;]\s|\n")
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[,:?>]")

_CONNECTING = re.compile(
    r"(?:\b(?:or|and|of|the|a|an|no|with|without|in|to|for|is|are|by|at)|,)\s{0,9}\Z", re.IGNORECASE
)
_BREAK = re.compile(r"(?<=[.!;])\s+|(?<=\w\?)\s+")
_BULLET = re.compile(r"\s{0,20}(?:[-*•]|\(?\d{1,2}[.)])\s+")


def told_sections(report: str) -> str:
    r"""The parts of a report that tell what the film shows; "" if there are none.

    Examples
    --------
    >>> told_sections("INDICATION: Pneumonia? FINDINGS: Clear lungs. IMPRESSION: Normal.")
    'Clear lungs.\n\nNormal.'
    """
    text = "\n".join(line.strip() for line in report.splitlines())
    heads = [match for match in _HEAD.finditer(text) if _is_head(match, text)]
    has_findings = any(match[1].casefold().startswith("finding") for match in heads)
    parts = [] if has_findings else [text[: heads[0].start()] if heads else text]
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
        body = text[head.end() : end].strip()
        if _TOLD.fullmatch(head[1]):
            parts.append(body)
        elif not has_findings:
            parts += re.split(r"\n\n+", body)[1:]
    return "\n\n".join(part.strip() for part in parts if re.search(r"\w", part))


def _is_head(match: re.Match[str], text: str) -> bool:
    """Whether a section begins: at the start of a line, or after a sentence or in capitals, then with a colon."""
    before = text[max(0, match.start() - 20) : match.start()]
    line_start = before.rpartition("\n")[2] if "\n" in before or match.start() <= 20 else "x"
    is_first = _LEADING.match(line_start) is not None
    if match["mark"]:
        return is_first or match[1].isupper() or before.rstrip().endswith((".", ";", "!", "?"))
    return is_first and (match["end"] is not None or (match[1].isupper() and _TOLD.fullmatch(match[1]) is not None))


def sentences(text: str) -> list[str]:
    """Sentences and list entries, normalised; a line that was only wrapped goes on in the next one.

    What has more than :data:`MOST_CHARACTERS` is no sentence and is cut at a blank, so that nothing takes long.
    """
    entries: list[list[str]] = []
    if any(map(str.islower, text)):
        text = _CM.sub(_spelled_out, text)
    for line in map(str.strip, text.split("\n")):
        entry = _BULLET.sub("", line, count=1)
        goes_on = bool(entries and entries[-1][-1] and entry) and entry == line
        if goes_on and (not entry[0].isupper() or _CONNECTING.search(entries[-1][-1][-30:])):
            entries[-1].append(entry)
        else:
            entries.append([entry])
    found = (normalised(part) for entry in entries for part in _BREAK.split(" ".join(entry)))
    return [
        piece
        for one in found
        if one
        for piece in ([one] if len(one) <= MOST_CHARACTERS else wrap(one, MOST_CHARACTERS))
    ]


def _spelled_out(cm: re.Match[str]) -> str:
    """CM as cardiomegaly, unless a number is before it in its sentence; with a capital, as it may begin a line."""
    before = cm.string[max(0, cm.start() - MOST_CHARACTERS) : cm.start()]
    own_sentence = _BULLET.sub("", _END.split(before)[-1], count=1)
    is_length = _COUNTED_JUST_BEFORE.search(before[-30:]) or _COUNTED.search(own_sentence)
    return cm[0] if is_length else "Cardiomegaly"


def normalised(sentence: str) -> str:
    """Text as patterns see it.

    Examples
    --------
    >>> normalised("Small L-sided pleural oedema/effusion (1.5-cm), w/o PTX.")
    'small l sided pleural edema , effusion , 1.5 cm , without ptx'
    """
    sentence = _DOTTED.sub(r"\1", sentence).casefold()
    for pattern, plain in _SPELLINGS:
        sentence = pattern.sub(plain, sentence)
    text = " ".join(_TOKEN.findall(sentence))
    return re.sub(r"(?: ,){2,}", " ,", text).strip(" ,")
