"""Report of the linter on a prediction file, as data, JSON or plain text.

Conventions
-----------
A :class:`LintProblem` has a `line`: the line of a JSONL, CSV or TSV file, the 1-based row of a Parquet file, the
1-based entry of a JSON document; None for a problem of the whole file. `rule` is a stable identifier such as
``rle-sum``. `value` is the value in the file, safe to print: shortened, with unprintable characters escaped; it is
empty if no single value is wrong.

A file with errors is refused; a file with only warnings is accepted.
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
"""Rules that point to another program's table only if the file is not JSONL, where a small mistake is likelier."""
_FOREIGN = {"missing-column", "format"}
"""Rules that another program's file breaks as a whole, so that the remedy comes before the problems."""
_NUMBERED = {"category-number", "image-number", "normalised-coordinates", "normalised-boxes"}
_CONVERT = (
    "is this another program's table, or COCO results? `reveal-bench convert FOLDER --from table --file FILE --out "
    "NEW.jsonl` (in Python, rb.convert) reads many formats and reports how it read each column"
)
_CONVERT_NUMBERED = (
    ". COCO's numeric ids need `--instances INSTANCES.json`, coordinates as fractions of the image `--normalised`, "
    "boxes given by corners `--boxes xyxy`"
)
IN_FRAME = "DataFrame"
IN_MEMORY = ("list", "mapping", IN_FRAME)
"""Formats of reports on predictions that are not a file."""
_CONVERT_IN_MEMORY = "another layout? rb.convert(predictions, bench) reads many, and reports how it read each column"
_EXPLAINED = ("did you mean", "it belongs to split")
"""Starts of hints after which conversion is no remedy."""
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class LintProblem:
    """Broken rule in a prediction file; the module docstring describes the attributes."""

    severity: Severity
    file: str
    line: int | None
    field: str
    rule: str
    value: str
    message: str
    hint: str = ""

    def to_line(self, form: str, *, with_severity: bool = True) -> str:
        """Return the problem as one line of text; the file's format `form` decides if its number is a line, a row or an
        entry.
        """
        counted = {"jsonl": ":", "csv": ":", "tsv": ":", "parquet": ": row ", IN_FRAME: ": row "}.get(form, ": entry ")
        place = self.file if self.line is None else f"{self.file}{counted}{self.line}"
        field = f" {self.field}:" if self.field else ""
        hint = f"  hint: {self.hint}" if self.hint else ""
        severity = f" {self.severity}:" if with_severity else ""
        return f"{place}:{severity}{field} {self.message}{hint}"


@dataclass(frozen=True)
class LintReport:
    """Report of the linter on one file.

    Attributes
    ----------
    file : str
        Name of the file in messages.
    format : str
        Format recognised from the content, such as "jsonl" or "chexlocalize-segmentations"; "unknown" if no format
        fits.
    n_entries : int
        Number of predictions read, before those for the same image and finding are merged.
    problems : tuple of LintProblem
        In the order found.
    predictions : tuple of LocalizationPrediction or FindingsPrediction
        Predictions to score, one per (image, finding) or study; empty if the file has an error.
    missing_pairs : tuple of (image_id, finding)
        Questions of the split without a prediction.
    statistics : mapping
        Statistics for display, see :func:`reveal_bench.kinds.localization.lint.describe`.
    allow_missing : bool
        True if the sender declared that missing pairs are intentional.
    abstained : tuple of (image_id, finding), or of an id and ""
        Questions that the file declines to answer, see :mod:`reveal_bench.predictions.abstain`, in the order of the
        file.
    n_questions : int
        Number of questions that the split asks.
    form : str
        Form of answers that the file's run asked for, such as "cell"; empty for files that are not of a run.
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
    form: str = ""

    @classmethod
    def of_unread(cls, log: ProblemLog, allow_missing: bool) -> LintReport:
        """Return the report on a file that was refused before its format was known; `log` contains the reasons."""
        return cls(log.file, "unknown", 0, tuple(log.problems), (), (), {}, allow_missing)

    def __repr__(self) -> str:
        return self.render(most=_PROBLEMS_IN_REPR, statistics=False)

    @property
    def n_predictions(self) -> int:
        """Number of predictions that can be scored."""
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
        """True if the file has no error, so that it can be scored."""
        return not any(problem.severity == "error" for problem in self.problems)

    @property
    def verdict(self) -> str:
        """The numbers of errors and warnings in words, such as "1 error, 0 warnings"."""
        return verdict_of(self.n_errors, self.n_warnings)

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON values, without the predictions.

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
        """Return the JSON text of :meth:`to_document`."""
        return json.dumps(self.to_document(), indent=2) + "\n"

    def render(self, most: int = 50, *, every: bool = False, statistics: bool = True) -> str:
        """Return plain text: errors, warnings, a possible remedy, the numbers of problems, and the statistics.

        Parameters
        ----------
        most : largest number of lines with problems
        every : True to list each problem, False for one line per rule, with its first problem and the number of
            problems
        statistics : True to append the statistics

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
        rules = {one.rule for one in self.problems if not one.hint.startswith(_EXPLAINED)}
        if rules & converted:
            of_file = _CONVERT + _CONVERT_NUMBERED * bool(rules & _NUMBERED)
            place = 0 if rules & _FOREIGN else len(lines)
            lines.insert(place, _CONVERT_IN_MEMORY if self.format in IN_MEMORY else of_file)
        verdict = "accepted" if self.ok else "refused"
        read = count_text(self.n_entries, "prediction")
        read += f", {len(self.abstained)} declined" if self.abstained else ""
        lines.append(f"{self.file} ({self.format}): {read}, {self.verdict}: {verdict}")
        if statistics:
            lines += [f"  {name}: {words}" for name, words in statistics_in_words(self.statistics).items()]
        return "\n".join(lines)


_FIELD = re.compile(r"[.\[]")
"""Pattern that ends a field's name: the name in ``boxes[0].label`` is "boxes"."""


def lines_by_rule(problems: Sequence[LintProblem], file_format: str) -> list[str]:
    """Return one line per broken rule and field, with the first such problem and the number of problems."""
    same: dict[tuple[str, ...], list[LintProblem]] = {}
    for problem in problems:
        same.setdefault((problem.severity, problem.rule, _FIELD.split(problem.field, 1)[0]), []).append(problem)
    return [
        one.to_line(file_format) + (f"  ({count_text(len(others) + 1, f'such {one.severity}')})" if others else "")
        for one, *others in same.values()
    ]


def verdict_of(n_errors: int, n_warnings: int) -> str:
    """Return the numbers of errors and warnings in words, such as "1 error, 0 warnings"."""
    return f"{count_text(n_errors, 'error')}, {count_text(n_warnings, 'warning')}"


def statistics_in_words(statistics: Mapping[str, Any]) -> dict[str, str]:
    """Return the statistics of a report as words, such as {"per finding": "Edema 2"}."""
    words = {}
    for name, value in statistics.items():
        text = ", ".join(f"{key} {_number(n)}" for key, n in value.items()) if isinstance(value, dict) else value
        words[name.replace("_", " ")] = _number(text) or "none"
    return words


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class ProblemLog:
    """Log that collects the problems of one file.

    Parameters
    ----------
    file : str
        Name of the file in messages.
    most : int
        Number of problems after which reading stops with a note.

    Attributes
    ----------
    stopped : bool
        True if reading was stopped, so that unread questions are not reported as missing.
    left_out : frozenset
        Rules that are no errors in this log: entries that break them are left out and counted.
    n_left_out : int
        Number of entries left out.
    n_not_asked : int
        Number of entries on images, studies or tasks of the split that are not asked.
    """

    def __init__(self, file: str, most: int) -> None:
        self.file = file
        self.problems: list[LintProblem] = []
        self.stopped = False
        self.left_out: frozenset[str] = frozenset()
        self.n_left_out = self.n_not_asked = 0
        self._most = most

    @property
    def has_errors(self) -> bool:
        """True if an error was logged."""
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
        """Log an error; ", got" and `value` are appended to `message`."""
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
        """Log a warning; ", got" and `value` are appended to `message`."""
        self._add("warning", rule, message, line, field, value, hint)

    def note_left_out(self, what: str) -> None:
        """Log the number of entries left out, if any."""
        if self.n_left_out:
            self.warning(
                "left-out", f"{self.n_left_out:,} predictions on {what} that are not in this version are left out"
            )

    def note_not_asked(self, findings: Mapping[str, int]) -> None:
        """Log how many entries, and answers on which findings, are left out because they are not asked."""
        if self.n_not_asked:
            self.warning("not-asked", f"left out {count_text(self.n_not_asked, 'entry')} outside the asked part")
        if findings:
            message = f"answers on {count_text(len(findings), 'finding')} that are not asked were left out"
            self.warning("not-asked", message, value=list(findings))

    def refuse(
        self, rule: str, message: str, *, line: int | None = None, value: object = _NOTHING, hint: str = ""
    ) -> None:
        """Log an error after which the rest of the file is not read."""
        self._add("error", rule, message, line, "", value, hint)
        self.stopped = True

    def _add(
        self, severity: Severity, rule: str, message: str, line: int | None, field: str, value: object, hint: str
    ) -> None:
        if len(self.problems) >= self._most:
            if not self.stopped:
                self.stopped = True
                full = f"more than {self._most} problems, so the rest of the file was not read"
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
