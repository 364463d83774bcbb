"""Linter of prediction files of tasks: each line has one answer as text and any boxes that belong to it.

Conventions
-----------
JSONL, plain or compressed: ``{"task_id": "...", "answer": "text", "boxes": [{"image_id": "...", "label": "...", "box":
[x, y, width, height]}]}``; `boxes` may be left out. ``{"task_id": "...", "abstain": true}`` declines to answer. Boxes
are in pixels of an image of the task and inside it. An answer is plain text. Line ends and tabs are kept. Other control
characters, and characters that reverse the direction of writing, are refused, so that readers see exactly what the file
contains.

The linter knows only the public manifest, reports all problems, and repairs nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.kinds.localization.records import Box
from reveal_bench.kinds.tasks.records import AnswerBox, TaskAnswer, TaskManifest, TaskQuestion
from reveal_bench.predictions.abstain import Abstentions
from reveal_bench.predictions.files import open_source
from reveal_bench.predictions.hints import name_hint
from reveal_bench.predictions.jsonl import RawPrediction, check_entries, read_jsonl
from reveal_bench.predictions.limits import Limits, LintOptions
from reveal_bench.predictions.report import LintReport, ProblemLog

_FIELDS = ("task_id", "answer", "boxes")
_BOX_FIELDS = ("image_id", "label", "box")
_SIDES = ("x", "y", "width", "height")
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_OF_A_LINE = re.compile(f"[\t\n\r]|{_UNSEEN.pattern}")
_NAMED = 5
_SAME_SHARE, _SAME_LEAST = 0.9, 20


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of one answer: characters of its text and of each box's label, and number of boxes."""

    characters: int = 20_000
    label_characters: int = 200
    boxes: int = 100


ANSWER_LIMITS = AnswerLimits()


def lint_tasks(path: Path, manifest: TaskManifest, options: LintOptions = LintOptions()) -> LintReport:
    """Check a file of answers to tasks against the public manifest of a split.

    Parameters
    ----------
    path : JSONL, plain or compressed
    manifest : public manifest with the tasks asked
    options : see :class:`~reveal_bench.predictions.limits.LintOptions`; missing answers get the lowest ratings, and the
        limits of one answer are :data:`ANSWER_LIMITS`

    Returns
    -------
    LintReport; its `predictions` are TaskAnswer, none if there is an error; its `missing_pairs` are (task_id, "") for
    each task without an answer

    Raises
    ------
    OSError
        If the file cannot be read. The content of the file never raises an error.
    """
    limits = options.limits
    log, data = open_source(path, limits, options.name)
    if data is None:
        return LintReport.of_unread(log, options.allow_missing)
    file_format, entries = _entries(data, limits, log)
    checker = AnswerChecker(manifest, limits, log)
    asked = [(task.task_id, "") for task in manifest.tasks]
    declined = Abstentions(("task_id",), asked, "unknown-task", log, others=manifest.other_tasks)
    answers = check_entries(declined.answers(entries), checker.check, log)
    declined.check([(task_id, "") for task_id in checker.first_line])
    valid = [answer for answer in answers if answer is not None]
    if not answers and not declined.lines and not log.has_errors:
        log.refuse("empty-file", "the file holds no answers")
    answered = {*checker.first_line, *(task_id for task_id, _ in declined.lines)}
    missing = [] if log.stopped else _note_missing(answered, manifest, options, log)
    _note_patterns(valid, checker.without_boxes, log)
    log.note_not_asked({})
    kept = () if log.has_errors else tuple(valid)
    pairs = tuple((task_id, "") for task_id in missing)
    problems, rest = tuple(log.problems), (_statistics(valid), options.allow_missing, *declined.counted)
    return LintReport(log.file, file_format, len(answers), problems, kept, pairs, *rest)


def answers_to_jsonl(answers: Iterable[TaskAnswer]) -> str:
    r"""Return answers in the canonical form, one per line.

    Examples
    --------
    >>> answers_to_jsonl([TaskAnswer("t1", "Enlarged.", (AnswerBox("i1", "heart", (1, 2, 3.5, 4)),))])
    '{"task_id": "t1", "answer": "Enlarged.", "boxes": [{"image_id": "i1", "label": "heart", "box": [1, 2, 3.5, 4]}]}\n'
    """
    lines = []
    for answer in answers:
        boxes = [{"image_id": box.image_id, "label": box.label, "box": list(box.box)} for box in answer.boxes]
        fields: dict[str, Any] = {"task_id": answer.task_id, "answer": answer.answer}
        lines.append(json.dumps(fields | ({"boxes": boxes} if boxes else {})) + "\n")
    return "".join(lines)


def _entries(data: bytes, limits: Limits, log: ProblemLog) -> tuple[str, Iterator[RawPrediction]]:
    if data.lstrip()[:1] == b"{":
        return "jsonl", read_jsonl(data, limits, log)
    hint = "one object per line, not a list" if data.lstrip()[:1] == b"[" else ""
    log.refuse("format", "the file must be JSONL", value=data[:8].decode("latin-1"), hint=hint)
    return "unknown", iter(())


class AnswerChecker:
    """Checker of entries, which stores the line of each task's answer, and the answers that lack boxes."""

    def __init__(self, manifest: TaskManifest, limits: Limits, log: ProblemLog) -> None:
        self.first_line: dict[str, int] = {}
        self.without_boxes: list[str] = []
        self._manifest, self._limits, self._log = manifest, limits, log
        self._tasks = {task.task_id: task for task in manifest.tasks}
        self._other_tasks = set(manifest.other_tasks)
        self._some_ids = [task.task_id for task in manifest.tasks[:1000]]

    def check(self, entry: RawPrediction) -> TaskAnswer | None:
        """Return the checked answer, or None after logging its problems."""
        before = len(self._log.problems)
        for name in sorted(set(entry.fields) - set(_FIELDS))[:10]:
            hint = name_hint(name, _FIELDS)
            self._error(entry, "unknown-field", name[:50], "is not a field of an answer", name, hint)
        task = self._task(entry)
        answer = self._text(entry, "answer", entry.fields.get("answer"), ANSWER_LIMITS.characters)
        if answer is not None and not answer.strip():
            hint = "leave the task out, and allow missing tasks, if there is no answer"
            self._error(entry, "empty-answer", "answer", "must hold text", answer, hint)
        boxes = self._boxes(entry, task)
        if task is None or answer is None or len(self._log.problems) > before:
            return None
        if task.requires_boxes and not boxes:
            self.without_boxes.append(task.task_id)
        return TaskAnswer(task.task_id, answer, boxes, entry.line)

    def _error(self, entry: RawPrediction, rule: str, field: str, message: str, value: object, hint: str = "") -> None:
        self._log.error(rule, message, line=entry.line, field=field, value=value, hint=hint)

    def _task(self, entry: RawPrediction) -> TaskQuestion | None:
        task_id = entry.fields.get("task_id")
        if not isinstance(task_id, str):
            self._error(entry, "missing-field", "task_id", "must be a text", task_id)
            return None
        if task_id in self._other_tasks:
            self._log.n_not_asked += 1
            return None
        task = self._tasks.get(task_id)
        if task is None:
            hint = name_hint(task_id, self._some_ids) if len(task_id) < self._limits.id_characters else ""
            message = f"is not a task of split {self._manifest.split}"
            self._error(entry, "unknown-task", "task_id", message, task_id, hint[:300])
            return None
        if task_id in self.first_line:
            message = f"already answered in line {self.first_line[task_id]}"
            self._error(entry, "duplicate-task", "task_id", message, task_id)
            return None
        self.first_line[task_id] = entry.line
        return task

    def _text(self, entry: RawPrediction, field: str, value: Any, most: int, *, is_line: bool = False) -> str | None:
        """Return `value` if it is text without hidden characters, and on a single line if that is required."""
        if not isinstance(value, str):
            rule = "missing-field" if value is None else "wrong-type"
            self._error(entry, rule, field, "must be a text", value)
            return None
        if len(value) > most:
            self._error(entry, "text-length", field, f"must have at most {most} characters", len(value))
            return None
        unseen = (_NOT_OF_A_LINE if is_line else _UNSEEN).search(value)
        if unseen is not None:
            but = "" if is_line else " but line ends and tabs"
            message = f"must hold no control characters{but}, and none that reverse the writing direction"
            self._error(entry, "control-character", field, message, value[max(0, unseen.start() - 20) :])
            return None
        return value

    def _boxes(self, entry: RawPrediction, task: TaskQuestion | None) -> tuple[AnswerBox, ...]:
        entries = entry.fields.get("boxes", [])
        if not isinstance(entries, list):
            self._error(entry, "wrong-type", "boxes", "must be a list of boxes", entries)
            return ()
        if len(entries) > ANSWER_LIMITS.boxes:
            self._error(entry, "boxes", "boxes", f"must be at most {ANSWER_LIMITS.boxes}", len(entries))
            return ()
        boxes = [self._box(entry, f"boxes[{i}]", raw, task) for i, raw in enumerate(entries)]
        return tuple(box for box in boxes if box is not None)

    def _box(self, entry: RawPrediction, place: str, raw: Any, task: TaskQuestion | None) -> AnswerBox | None:
        if not isinstance(raw, dict) or set(raw) != set(_BOX_FIELDS):
            self._error(entry, "wrong-type", place, f"must be an object of {', '.join(_BOX_FIELDS)}", raw)
            return None
        label = self._label(entry, f"{place}.label", raw["label"])
        sides = self._sides(entry, f"{place}.box", raw["box"])
        image_id = raw["image_id"]
        size = task.images.get(image_id) if task is not None and isinstance(image_id, str) else None
        if size is None:
            if task is not None:
                hint = f"its images: {', '.join(task.images)}"[:300]
                self._error(entry, "unknown-image", f"{place}.image_id", "is not an image of the task", image_id, hint)
            return None
        if label is None or sides is None:
            return None
        x, y, width, height = sides
        if x < 0 or y < 0 or x + width > size[1] or y + height > size[0]:
            looks_xyxy = 0 <= x < width <= size[1] and 0 <= y < height <= size[0]
            hint = "[x1, y1, x2, y2]? boxes are [x, y, width, height]" if looks_xyxy else ""
            message = f"must be inside the image, {size[1]} x {size[0]} pixels"
            self._error(entry, "outside-image", f"{place}.box", message, raw["box"], hint)
            return None
        return AnswerBox(image_id, label, sides)

    def _label(self, entry: RawPrediction, place: str, raw: Any) -> str | None:
        label = self._text(entry, place, raw, ANSWER_LIMITS.label_characters, is_line=True)
        if label is None or label.strip():
            return label
        self._error(entry, "missing-field", place, "must name what the box holds", raw)
        return None

    def _sides(self, entry: RawPrediction, place: str, raw: Any) -> Box | None:
        if not isinstance(raw, list) or len(raw) != len(_SIDES):
            self._error(entry, "wrong-type", place, "must be [x, y, width, height]", raw)
            return None
        for i, value in enumerate(raw):
            if isinstance(value, bool) or not isinstance(value, int | float):
                self._error(entry, "wrong-type", f"{place}[{i}]", "must be a number", value)
                return None
            if not math.isfinite(value) or abs(value) > 1e9:
                self._error(entry, "not-finite", f"{place}[{i}]", "must be a finite number of pixels", value)
                return None
        x, y, width, height = (float(value) for value in raw)
        if width <= 0 or height <= 0:
            self._error(entry, "box-size", place, "must have a width and a height above 0", raw)
            return None
        return x, y, width, height


def _note_missing(
    answered: Collection[str], manifest: TaskManifest, options: LintOptions, log: ProblemLog
) -> list[str]:
    missing = [task.task_id for task in manifest.tasks if task.task_id not in answered]
    if missing:
        named = "; ".join(missing[:_NAMED])
        refusal = options.part_refusal(len(missing), len(manifest.tasks))
        message = f"{len(missing)} of {len(manifest.tasks)} tasks have no answer{refusal}: {named}"
        if options.allow_missing:
            log.warning(
                "missing-tasks", message, hint="missing answers get the lowest score, 1, once all others are rated"
            )
        else:
            log.error("missing-tasks", message, hint=options.missing_hint("missing tasks"))
    return missing


def _note_patterns(answers: list[TaskAnswer], without_boxes: list[str], log: ProblemLog) -> None:
    if without_boxes:
        named = "; ".join(without_boxes[:_NAMED])
        message = f"{len(without_boxes)} answers draw no box though the task asks for boxes: {named}"
        log.warning("missing-boxes", message, field="boxes")
    answer, n = Counter(answer.answer for answer in answers).most_common(1)[0] if answers else ("", 0)
    if len(answers) >= _SAME_LEAST and n > _SAME_SHARE * len(answers):
        log.warning("same-answer", f"{n} of {len(answers)} answers are the same", field="answer", value=answer)


def _statistics(answers: list[TaskAnswer]) -> dict[str, Any]:
    """Return the lengths of the answers in characters, the number of boxes, and the proportion of the most common
    answer.
    """
    lengths = sorted(len(answer.answer) for answer in answers)
    n = len(answers)
    middle = (lengths[(n - 1) // 2] + lengths[n // 2]) / 2 if n else 0
    characters = {"shortest": lengths[0] if n else 0, "median": middle, "longest": lengths[-1] if n else 0}
    boxes = {"answers_with_boxes": sum(bool(a.boxes) for a in answers), "all": sum(len(a.boxes) for a in answers)}
    commonest = max(Counter(answer.answer for answer in answers).values(), default=0) / max(1, n)
    return {"characters": characters, "boxes": boxes, "same_answer_share": commonest}
