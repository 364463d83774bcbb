"""Reader of lines in which a system declines to answer a question.

Such a line has the fields that name the question and ``"abstain": true``. The question is scored as if it were left
out. But because abstaining is intentional, the file needs no permission to leave these questions out; they are counted,
and the answered questions also get separate scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from reveal_bench.findings import canonical_finding
from reveal_bench.predictions.jsonl import RawPrediction
from reveal_bench.predictions.report import ProblemLog

ABSTAIN = "abstain"
"""Field that a line has if it declines a question."""

Question = tuple[str, str]
"""Key of a question: (image_id, finding), or (id, "") with the id of an image, study or task."""


class Abstentions:
    """Filter that separates lines that abstain from the other entries of a file.

    Parameters
    ----------
    keys : fields that name a question
    asked : all questions of the split
    unknown : id of the rule broken by a line whose question is not in the split
    others : ids in the split that are not asked; lines that decline them are counted

    Attributes
    ----------
    lines : question -> the line that declines it
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        asked: Iterable[Question],
        unknown: str,
        log: ProblemLog,
        others: Collection[str] = (),
    ) -> None:
        self.lines: dict[Question, int] = {}
        self._keys, self._asked, self._unknown, self._log = keys, frozenset(asked), unknown, log
        self._others = frozenset(others)
        self._items, self._findings = ({question[part] for question in self._asked} for part in (0, 1))

    @property
    def counted(self) -> tuple[tuple[Question, ...], int]:
        """Declined questions, and the number of questions in the split."""
        return tuple(self.lines), len(self._asked)

    def answers(self, entries: Iterable[RawPrediction]) -> Iterator[RawPrediction]:
        """Yield the entries that answer a question, without the field ``abstain``."""
        for entry in entries:
            declared = entry.fields.get(ABSTAIN, False)
            if declared is True:
                self._note(entry)
            elif declared is False:
                if ABSTAIN in entry.fields:
                    entry = replace(entry, fields={k: value for k, value in entry.fields.items() if k != ABSTAIN})
                yield entry
            else:
                self._error(entry, "wrong-type", "must be true or false", declared)

    def check(self, answered: Collection[Question]) -> None:
        """Log an error for each question that is both declined and answered."""
        for question in sorted(self.lines.keys() & set(answered)):
            message = "a question must be answered or declined, not both"
            self._log.error(
                "abstain-and-answer", message, line=self.lines[question], field=ABSTAIN, value=list(question)
            )

    def _note(self, entry: RawPrediction) -> None:
        names = [entry.fields.get(key) for key in self._keys]
        further = sorted(set(entry.fields) - {*self._keys, ABSTAIN})
        named = names[0] if len(names) == 1 else names
        if further:
            self._error(entry, "abstain-and-answer", "a line that abstains must not contain an answer", further)
            return
        if not all(isinstance(value, str) for value in names):
            self._error(entry, "wrong-type", f"{' and '.join(self._keys)} must be text", named)
            return
        if str(names[0]) in self._others:
            self._log.n_not_asked += 1
            return
        spelling = str(names[1]) if len(names) > 1 else ""
        question = str(names[0]), canonical_finding(spelling, self._findings) or spelling
        if question[0] in self._items and question not in self._asked:
            self._error(entry, "unknown-finding", "must be a finding that the split asks about this image", spelling)
        elif question not in self._asked:
            self._error(entry, self._unknown, f"{' and '.join(self._keys)} must name a question of the split", named)
        elif question in self.lines:
            self._error(entry, "abstain-twice", f"already declined at {self.lines[question]}", named)
        else:
            self.lines[question] = entry.line

    def _error(self, entry: RawPrediction, rule: str, message: str, value: object) -> None:
        self._log.error(rule, message, line=entry.line, field=ABSTAIN, value=value)
