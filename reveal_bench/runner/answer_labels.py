"""The labels that an answer gives a study: JSON, a line "Findings: ..." or a list under it, a list of
"COPD: yes", or the last lines, if they are labels."""

from __future__ import annotations

import re
from typing import Any

from reveal_bench.findings import canonical_finding
from reveal_bench.runner.answer_replies import Reply
from reveal_bench.runner.answer_words import bare, is_refusal, json_values, lines_of, statements
from reveal_bench.runner.questions import AskSettings, Question

__all__ = ["read_labels"]

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
    """The reply to a question whose answer is labels; `plain` is cleaned text."""
    values = [value for value in json_values(plain) if _is_labels(value)]
    if values:
        return _of_names(_names_in(values[-1]), question, is_stated=True)
    text = bare(plain)
    found = [(rest, is_end) for rest, is_end in statements(text, _LABEL_KEYS) if _split(rest)]
    if is_cut and (not found or found[-1][1]):
        return Reply("cut_off")
    if found:
        return _of_names(_split(found[-1][0]), question, is_stated=True)
    names, lines = list[str](), list(lines_of(text))
    ticked = [match for line in lines if (match := _TICKED.fullmatch(line)) and _label(match["name"], question.choices)]
    if ticked:
        return _of_names([m["name"] for m in ticked if m["said"].lower() in _YES], question, is_stated=True)
    for line in reversed(lines):
        if _of_names(_split(line), question).status != "answered":
            break
        names += _split(line)
    if names:
        return _of_names(names, question)
    if lines and not is_refusal(plain):
        return _of_names(_split(lines[-1]), question)
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


def _split(line: str) -> list[str]:
    parts = re.split(r"[,;、，]|\band\b|\bund\b", re.sub(r"[\[\]\"{}]", " ", line[:5000]))
    return [part.strip(" .'\t:-") for part in parts if part.strip(" .'\t:-")]


def _of_names(names: list[str], question: Question, *, is_stated: bool = False) -> Reply:
    """The reply whose labels are those named; a denied one is passed over, one that is no label makes it unclear.

    No label at all is an answer where "none" is said, or where the place of the answer holds nothing else.
    """
    found, denied, unknown = set(), [], []
    says_none = False
    for name in names:
        label = _label(name, question.choices)
        if label:
            found.add(label)
        elif _NO_LABELS.fullmatch(name[:200]):
            says_none = True
        elif _DENIED.match(name):
            denied.append(name[:80])
        else:
            unknown.append(name[:80])
    if unknown:
        return Reply("unclear", note=f"no labels of the benchmark: {'; '.join(unknown[:5])}")
    if says_none and found:
        return Reply("unclear", note=f"says none, and names {', '.join(sorted(found))}")
    if not (found or says_none or is_stated):
        return Reply("unclear")
    note = f"passed over: {'; '.join(denied[:5])}" if denied else ""
    return Reply("answered", labels=tuple(label for label in question.choices if label in found), note=note)


def _label(name: str, choices: tuple[str, ...]) -> str | None:
    """The label that a name is, also with a remark in brackets: "Pleural effusion (left)"."""
    without = re.sub(r"\s{0,3}\([^()]{0,80}\)", "", name[:300]).strip(" '")
    return canonical_finding(name[:300], choices) or canonical_finding(without, choices)
