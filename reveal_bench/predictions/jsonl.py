r"""Reader of JSON lines, one prediction per line, that is strict and nearly as fast as orjson.

Conventions
-----------
The parser of every format yields :class:`RawPrediction` objects, whose `fields` have the names and shapes of the JSONL
format, so that one set of checks serves all formats. An entry that the parser cannot convert is reported in the log.

orjson refuses NaN, Infinity, invalid UTF-8 and unescaped control characters, but silently keeps only the last of
duplicate keys. Dropped keys are detected by counting quotation marks: every string has two, plus one for each ``\"`` in
it. The parsed value, written as JSON again, has fewer quotation marks than the text only if a key and its value were
dropped. An escape ``\u0022`` would make the counts disagree, so text that contains it is read by the slower standard
library. Text that orjson refuses is also read by the standard library, whose errors name the problem. The standard
library accepts NaN, so that the checks can report the field that contains NaN.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from reveal_bench.files import parse_json as strict_json
from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import ProblemLog

_LONG = 1 << 16  # above this many bytes, compiled loops save more time than loading numpy costs

MAX_NESTING = 250
"""Deepest nesting of lists and objects that is accepted; orjson writes at most 254 levels."""

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


class JsonError(Exception):
    """Error of a text that is not acceptable JSON, with the broken `rule` and advice in `hint`."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.rule = rule
        self.hint = hint


def parse_json(text: bytes) -> tuple[Any, list[str]]:
    """Parse one JSON text.

    Returns
    -------
    value : the parsed value; it may contain NaN and infinities, which the caller must report
    duplicate_keys : keys that appear more than once in one object; `value` contains their last value

    Raises
    ------
    JsonError
        If the text is not JSON, not UTF-8 or nested too deeply.

    Examples
    --------
    >>> parse_json(b'{"a": 1, "b": {"c": 2, "c": 3}}')
    ({'a': 1, 'b': {'c': 3}}, ['c'])
    """
    try:
        value = orjson.loads(text)
        if b"\\u0022" not in text and _n_quotes(orjson.dumps(value)) == _n_quotes(text):
            return value, []
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return _parse_slowly(text)


def times_in(text: bytes, characters: bytes) -> list[int]:
    """Return how often each of the one-byte `characters` occurs in `text`, in their order."""
    from reveal_bench.masks import kernels

    return kernels.count_characters(text, characters)


def _n_quotes(text: bytes) -> int:
    return text.count(b'"') if len(text) < _LONG else times_in(text, b'"')[0]


def _parse_slowly(text: bytes) -> tuple[Any, list[str]]:
    duplicates: list[str] = []
    _check_nesting(text)
    try:
        value = strict_json(text.decode("utf-8"), duplicates)
    except UnicodeDecodeError as error:
        raise JsonError(
            "encoding", f"must be UTF-8; byte {error.start + 1} is 0x{text[error.start]:02x}", "save it as UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise _syntax_fault(error) from None
    except ValueError:  # an integer with more digits than Python reads
        raise JsonError("number-size", "must not contain a number with thousands of digits") from None
    return value, duplicates


def _check_nesting(text: bytes) -> None:
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        bracket = text[token.start()]
        if bracket in b"[{":
            depth += 1
            if depth > MAX_NESTING:
                raise JsonError("nesting", f"lists and objects may be nested at most {MAX_NESTING} deep")
        elif bracket in b"]}":
            depth -= 1


def _syntax_fault(error: json.JSONDecodeError) -> JsonError:
    place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
    around = error.doc[error.pos : error.pos + 1]
    if error.msg.startswith("Invalid control character"):
        return JsonError(
            "control-character", f"a text contains the control character {around!r} at {place}", "escape or remove it"
        )
    if not around or error.msg.startswith("Unterminated string"):
        return JsonError("json-syntax", f"not JSON: it ends too early, at {place}", "was the file cut off?")
    hint = "put text and names in double quotes" if around == "'" else ""
    return JsonError("json-syntax", f"not JSON: {error.msg.removesuffix(' at')} at {place}, before {around!r}", hint)


Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class RawPrediction:
    """Prediction as read from a file, not yet checked.

    Attributes
    ----------
    line : number of the line, row or entry in the file, counted from 1
    fields : field name of the JSONL format -> value of any JSON type
    path : path of the prediction in a JSON document, such as ``patient1_study1_view1_frontal.Edema``
    """

    line: int
    fields: Mapping[str, Any]
    path: str = ""


def check_entries(
    entries: Iterable[RawPrediction], check: Callable[[RawPrediction], Checked], log: ProblemLog
) -> list[Checked]:
    """Yield the result of `check` for each entry, until the log stops reading."""
    checked = []
    for entry in entries:
        checked.append(check(entry))
        if log.stopped:
            break
    return checked


def read_jsonl(data: bytes, limits: Limits, log: ProblemLog) -> Iterator[RawPrediction]:
    """Yield the predictions of a JSONL file. Lines that are not a JSON object are reported; blank lines are skipped."""
    if data.count(b"\n") > limits.entries:
        log.refuse("entries", f"a file may have at most {limits.entries} lines", value=data.count(b"\n"))
        return
    for number, ended in enumerate(io.BytesIO(data), start=1):  # iterating copies only one line at a time
        line = ended.removesuffix(b"\n")
        if len(line) > limits.line_bytes:
            log.error(
                "line-length", f"a line must have at most {limits.line_bytes} bytes", line=number, value=len(line)
            )
        elif line and not line.isspace():
            entry = _entry_of_line(line, number, log)
            if entry is not None:
                yield entry
        if log.stopped:
            return


def _entry_of_line(line: bytes, number: int, log: ProblemLog) -> RawPrediction | None:
    try:
        value, duplicate_keys = parse_json(line)
    except JsonError as fault:
        log.error(fault.rule, str(fault), line=number, hint=fault.hint)
        return None
    if not isinstance(value, dict):
        hint = 'such as {"image_id": "...", "finding": "...", "point": [x, y]}'
        log.error("not-an-object", "a line must contain one JSON object", line=number, value=value, hint=hint)
        return None
    for key in duplicate_keys:
        log.error("duplicate-key", "a key may appear only once in an object", line=number, field=key, value=key)
    return RawPrediction(number, value)
