"""Questions that runs asked: others are not scored, and questions without a usable answer are misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import OpenFolder
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.parts import Manifest
from reveal_bench.predictions.files import Questions, epoch_of, form_of_run, question_statuses
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.predictions.report import LintProblem, LintReport

USABLE = ("answered", "absent")
"""Statuses of questions that have an answer."""
_MISSING = ("missing-pairs", "missing-studies", "missing-tasks")


def select_asked(dataset: OpenFolder, split: str, parts: Collection[Questions]) -> OpenFolder:
    """Return `dataset` with only the questions that every run asked.

    Parameters
    ----------
    parts : questions of each run, from :func:`~reveal_bench.predictions.files.questions_of_runs`

    Raises
    ------
    ArgumentError
        If no question was asked by all runs.
    """
    if not parts:
        return dataset
    kind = KINDS[dataset.info.kind]
    questions = set(_questions(kind, kind.questions.read_manifest(dataset, split)))
    common = {
        (key, finding)
        for key, finding in questions
        if all((key, finding) in part or (key, None) in part for part in parts)
    }
    if not common:
        raise ArgumentError("predictions", "must answer some of the same questions", "runs that share no question")
    if common == questions:
        return dataset
    keys = frozenset(key for key, _ in common)
    is_cut = any(key in keys for key, _ in questions - common)
    return replace(
        dataset, selection=replace(dataset.selection, keys=keys, pairs=frozenset(common) if is_cut else None)
    )


def lint_run_file(path: Path, kind: AnyKind, manifest: Manifest, options: LintOptions) -> LintReport:
    """Return the report on a prediction file of a run.

    Questions that the run asked without a usable answer are misses, counted by status. Questions that it answered, or
    did not ask, must be in the file, as in any other file.
    """
    statuses = question_statuses(path, manifest.split, kind.key)
    pairs = dict.fromkeys(pair if pair in statuses else (pair[0], "") for pair in _questions(kind, manifest))
    unanswered = {pair: status for pair in pairs if (status := statuses.get(pair, "answered")) not in USABLE}
    if unanswered.keys() == pairs.keys() and not path.stat().st_size:
        report = LintReport(options.name or path.name, "jsonl", 0, (), (), tuple(pairs), {}, allow_missing=True)
    else:
        allowing = replace(options, allow_missing=options.allow_missing or bool(unanswered))
        report = kind.predictions.lint(path, manifest, allowing)
    if not unanswered.keys() >= set(report.missing_pairs):
        unanswered = {}
        report = kind.predictions.lint(path, manifest, options)
    report = replace(report, form=form_of_run(path))
    epoch, n_epochs = epoch_of(path)
    if n_epochs > 1:
        hint = f"score the others by their files, such as predictions-{2 if epoch == 1 else 1}.jsonl"
        report = _with_warning(report, "epoch", f"only epoch {epoch} of {n_epochs} is scored", hint)
    return _with_unanswered(report, unanswered, len(pairs)) if unanswered and report.ok else report


def _with_unanswered(report: LintReport, unanswered: Mapping[tuple[str, str], str], n_asked: int) -> LintReport:
    """Return `report` with a warning that counts unanswered questions by status, and the kind's hint on misses."""
    hints = [one.hint for one in report.problems if one.rule in _MISSING] or ["they count as no detection"]
    if not report.n_entries:
        hints = ["all are misses; a leaderboard takes no empty file"]
    problems = tuple(one for one in report.problems if one.rule not in _MISSING)
    missing = report.missing_pairs or tuple(unanswered)
    report = replace(report, problems=problems, missing_pairs=missing, n_questions=n_asked)
    counts = Counter(status.replace("_", " ") for status in unanswered.values()).most_common()
    reasons = ", ".join(f"{n:,} {status}" for status, n in counts)
    message = f"{len(unanswered):,} of {n_asked:,} questions have no usable answer: {reasons}"
    return _with_warning(report, "no-answers", message, hints[0])


def _with_warning(report: LintReport, rule: str, message: str, hint: str) -> LintReport:
    warning = LintProblem("warning", report.file, None, "", rule, "", message, hint)
    return replace(report, problems=(*report.problems, warning))


def _questions(kind: AnyKind, manifest: Manifest) -> list[tuple[str, str]]:
    """Return (id, finding) of every question."""
    entries = kind.questions.manifest_entries(manifest)
    return [(entry[kind.key], finding) for entry in entries for finding in entry["asked"]]
