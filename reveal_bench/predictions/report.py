"""The linter's report: as data, as JSON, and as plain text.

Conventions
-----------
A :class:`LintProblem` has a `line`: the line of a JSONL, CSV or TSV file, the 1-based row of a Parquet file, the
1-based entry of a JSON document; None if it concerns the whole file. `rule` is a stable identifier such as ``rle-sum``.
`value` is the value in the file, made safe to show: cut to a short length, with unprintable characters escaped; it is
empty if no single value is wrong.

Errors refuse a file, warnings do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from reveal_bench.words import count_text

Severity = Literal["error", "warning"]

_SHOWN_CHARACTERS = 80
_FIELD_CHARACTERS = 200
_SHOWN_ITEMS = 6
_SHOWN_DEPTH = 3
_PROBLEMS_IN_REPR = 8
_CONVERTED = {
    "unknown-column",
    "missing-column",
    "category-number",
    "image-number",
    "normalised-coordinates",
    "normalised-boxes",
    "format",
    "not-an-object",
    "column-type",
}
_CONVERTED_TABLES = {"unknown-field", "unknown-finding", "unknown-image", "unknown-study"}
"""Rules that another program's table breaks, but also a prediction file with a small mistake."""
_CONVERT = (
    "another program's table or COCO results? `reveal-bench convert FOLDER --from table --file FILE --out NEW.jsonl` "
    "reads many, and reports how it read each column; numbers of COCO need `--instances INSTANCES.json`, shares of "
    "the image `--normalised`, corners `--boxes xyxy`"
)
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class LintProblem:
    """One broken rule; see the module's conventions."""

    severity: Severity
    file: str
    line: int | None
    field: str
    rule: str
    value: str
    message: str
    hint: str = ""

    def to_line(self, form: str, *, with_severity: bool = True) -> str:
        """Return the problem as one line of text; the file's format `form` decides what its numbers count."""
        counted = {"jsonl": ":", "csv": ":", "tsv": ":", "parquet": ": row "}.get(form, ": entry ")
        place = self.file if self.line is None else f"{self.file}{counted}{self.line}"
        field = f" {self.field}:" if self.field else ""
        hint = f"  hint: {self.hint}" if self.hint else ""
        severity = f" {self.severity}:" if with_severity else ""
        return f"{place}:{severity}{field} {self.message}{hint}"


@dataclass(frozen=True)
class LintReport:
    """The linter's report on one file.

    Attributes
    ----------
    file : str
        Name shown for the file.
    format : str
        Format found by looking at the content, such as "jsonl" or "chexlocalize-segmentations"; "unknown" if none fits.
    n_entries : int
        Predictions read, before several of one pair are merged.
    problems : tuple of LintProblem
        In the order found.
    predictions : tuple of LocalizationPrediction or FindingsPrediction
        Predictions to score, one per (image, finding) or study; empty if there is any error.
    missing_pairs : tuple of (image_id, finding)
        Questions that are asked, but not predicted.
    statistics : mapping
        Statistics for people, see :func:`reveal_bench.kinds.localization.lint.describe`.
    allow_missing : bool
        True if missing pairs were declared to be intentional.
    abstained : tuple of (image_id, finding), or of an id and ""
        Questions that a line declines to answer, see :mod:`reveal_bench.predictions.abstain`; in the order of the file.
    n_questions : int
        Number of questions that the split asks.
    """

    file: str
    format: str
    n_entries: int
    problems: tuple[LintProblem, ...]
    predictions: tuple[Any, ...]
    missing_pairs: tuple[tuple[str, str], ...]
    statistics: Mapping[str, Any]
    allow_missing: bool = False
    abstained: tuple[tuple[str, str], ...] = ()
    n_questions: int = 0

    @classmethod
    def of_unread(cls, log: ProblemLog, allow_missing: bool) -> LintReport:
        """Return the report on a file that was refused before its format was known, for the reasons in `log`."""
        return cls(log.file, "unknown", 0, tuple(log.problems), (), (), {}, allow_missing)

    def __repr__(self) -> str:
        return self.render(most=_PROBLEMS_IN_REPR, statistics=False)

    @property
    def n_predictions(self) -> int:
        """Number of predictions to score."""
        return len(self.predictions)

    @property
    def n_errors(self) -> int:
        """Number of errors, which refuse the file."""
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def n_warnings(self) -> int:
        """Number of warnings, which do not refuse the file."""
        return len(self.problems) - self.n_errors

    @property
    def ok(self) -> bool:
        """True if the file may be scored: it has no error."""
        return not any(problem.severity == "error" for problem in self.problems)

    @property
    def verdict(self) -> str:
        """The counts of errors and warnings in words, such as "1 error, 0 warnings"."""
        return verdict_of(self.n_errors, self.n_warnings)

    def to_document(self) -> dict[str, Any]:
        """Return the whole report, except the predictions, as JSON values.

        Keys: ``schema`` (1), ``file``, ``format``, ``ok``, ``n_entries``, ``n_predictions``, ``n_errors``,
        ``n_warnings``, ``allow_missing``, ``problems`` (a list of objects with the fields of :class:`LintProblem`),
        ``missing_pairs`` and ``abstained`` (lists of [image_id, finding]) and ``statistics``.
        """
        return {
            "schema": 1,
            "file": self.file,
            "format": self.format,
            "ok": self.ok,
            "n_entries": self.n_entries,
            "n_predictions": self.n_predictions,
            "n_errors": self.n_errors,
            "n_warnings": self.n_warnings,
            "allow_missing": self.allow_missing,
            "problems": [asdict(problem) for problem in self.problems],
            "missing_pairs": [list(pair) for pair in self.missing_pairs],
            "abstained": [list(pair) for pair in self.abstained],
            "statistics": dict(self.statistics),
        }

    def to_json(self) -> str:
        """Return the text of :meth:`to_document`."""
        return json.dumps(self.to_document(), indent=2) + "\n"

    def render(self, most: int = 50, *, every: bool = False, statistics: bool = True) -> str:
        """Return plain text: errors, warnings, a possible remedy, the number of problems and the statistics.

        Parameters
        ----------
        most : most lines of problems
        every : True to show each problem, False for one line per rule, with the first problem and their number
        statistics : True to end with the statistics

        Examples
        --------
        >>> problem = LintProblem("error", "p.jsonl", 3, "cell", "cell", '"Z9"', "must be in the grid, got Z9")
        >>> print(LintReport("p.jsonl", "jsonl", 3, (problem, problem), (), (), {}).render())
        p.jsonl:3: error: cell: must be in the grid, got Z9  (2 such errors)
        p.jsonl (jsonl): 3 predictions, 2 errors, 0 warnings: refused
        """
        ordered = sorted(self.problems, key=lambda problem: problem.severity == "warning")  # stable
        problem_lines = [one.to_line(self.format) for one in ordered] if every else lines_by_rule(ordered, self.format)
        lines = problem_lines[:most]
        if len(problem_lines) > most:
            lines.append(f"... and {len(problem_lines) - most} more")
        converted = _CONVERTED if self.format == "jsonl" else _CONVERTED | _CONVERTED_TABLES
        if any(problem.rule in converted for problem in self.problems):
            lines.append(_CONVERT)
        verdict = "accepted" if self.ok else "refused"
        read = count_text(self.n_entries, "prediction")
        read += f", {len(self.abstained)} declined" if self.abstained else ""
        lines.append(f"{self.file} ({self.format}): {read}, {self.verdict}: {verdict}")
        if statistics:
            lines += [f"  {name}: {words}" for name, words in statistics_in_words(self.statistics).items()]
        return "\n".join(lines)


_FIELD = re.compile(r"[.\[]")
"""Pattern for the end of a field's name: the name in ``boxes[0].label`` is "boxes"."""


def lines_by_rule(problems: Sequence[LintProblem], file_format: str) -> list[str]:
    """Return a line per broken rule and field: the first such problem, and their number."""
    same: dict[tuple[str, ...], list[LintProblem]] = {}
    for problem in problems:
        same.setdefault((problem.severity, problem.rule, _FIELD.split(problem.field, 1)[0]), []).append(problem)
    return [
        one.to_line(file_format) + (f"  ({count_text(len(others) + 1, f'such {one.severity}')})" if others else "")
        for one, *others in same.values()
    ]


def verdict_of(n_errors: int, n_warnings: int) -> str:
    """Return the counts of errors and warnings in words, such as "1 error, 0 warnings"."""
    return f"{count_text(n_errors, 'error')}, {count_text(n_warnings, 'warning')}"


def statistics_in_words(statistics: Mapping[str, Any]) -> dict[str, str]:
    """Return the statistics of a report in words, such as {"per finding": "Edema 2"}."""
    words = {}
    for name, value in statistics.items():
        text = ", ".join(f"{key} {_number(n)}" for key, n in value.items()) if isinstance(value, dict) else value
        words[name.replace("_", " ")] = _number(text) or "none"
    return words


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class ProblemLog:
    """Collects the problems of one file.

    Parameters
    ----------
    file : str
        Name to show.
    most : int
        Number of problems after which reading stops with a note.

    Attributes
    ----------
    stopped : bool
        True if reading was stopped: unread questions must not be called missing.
    left_out : frozenset
        Rules that are not errors here: entries that break them are left out and counted.
    n_left_out : int
        Number of entries left out.
    """

    def __init__(self, file: str, most: int) -> None:
        self.file = file
        self.problems: list[LintProblem] = []
        self.stopped = False
        self.left_out: frozenset[str] = frozenset()
        self.n_left_out = 0
        self._most = most

    @property
    def has_errors(self) -> bool:
        """True if there is an error so far."""
        return any(problem.severity == "error" for problem in self.problems)

    def error(
        self,
        rule: str,
        message: str,
        *,
        line: int | None = None,
        field: str = "",
        value: object = _NOTHING,
        hint: str = "",
    ) -> None:
        """Note an error; ", got" and `value` are put at the end of `message`."""
        if rule in self.left_out:
            self.n_left_out += 1
        else:
            self._add("error", rule, message, line, field, value, hint)

    def warning(
        self,
        rule: str,
        message: str,
        *,
        line: int | None = None,
        field: str = "",
        value: object = _NOTHING,
        hint: str = "",
    ) -> None:
        """Note a warning; ", got" and `value` are put at the end of `message`."""
        self._add("warning", rule, message, line, field, value, hint)

    def note_left_out(self, what: str) -> None:
        """Note how many entries were left out, if any."""
        if self.n_left_out:
            self.warning(
                "left-out", f"{self.n_left_out:,} predictions on {what} that are not in this version are left out"
            )

    def refuse(
        self, rule: str, message: str, *, line: int | None = None, value: object = _NOTHING, hint: str = ""
    ) -> None:
        """Note an error after which the rest of the file is not read."""
        self._add("error", rule, message, line, "", value, hint)
        self.stopped = True

    def _add(
        self, severity: Severity, rule: str, message: str, line: int | None, field: str, value: object, hint: str
    ) -> None:
        if len(self.problems) >= self._most:
            if not self.stopped:
                self.stopped = True
                full = f"more than {self._most} problems: the rest of the file was not read"
                self.problems.append(LintProblem("error", self.file, line, "", "too-many-problems", "", full))
            return
        text = "" if value is _NOTHING else show_value(value)
        if text:
            message = f"{message}, got {text}"
        place = escape(field if len(field) <= _FIELD_CHARACTERS else field[: _FIELD_CHARACTERS - 3] + "...")
        self.problems.append(LintProblem(severity, self.file, line, place, rule, text, message, escape(hint)))


def escape(text: str) -> str:
    """Return `text` with unprintable characters (controls, direction marks, surrogates) escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def show_value(value: object) -> str:
    r"""Return a value from a user's file as one short line of printable characters.

    Examples
    --------
    >>> show_value([2700, 10.0, "a\x00b", None, True])
    '[2700, 10.0, "a\\x00b", null, true]'
    """
    text = _format_value(value, _SHOWN_DEPTH)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _format_value(value: object, depth: int) -> str:
    if isinstance(value, str):
        cut = value[:_SHOWN_CHARACTERS]
        return '"' + escape(cut) + ('"' if len(cut) == len(value) else '..."')
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple, dict)) and depth == 0:
        return "..."
    if isinstance(value, (list, tuple)):
        items = [_format_value(item, depth - 1) for item in value[:_SHOWN_ITEMS]]
        return "[" + ", ".join(items + ["..."] * (len(value) > _SHOWN_ITEMS)) + "]"
    if isinstance(value, dict):
        keys = list(value)[:_SHOWN_ITEMS]
        items = [f"{_format_value(key, 0)}: {_format_value(value[key], depth - 1)}" for key in keys]
        return "{" + ", ".join(items + ["..."] * (len(value) > _SHOWN_ITEMS)) + "}"
    return repr(value)
