"""Questions that runs asked: others are not scored, and questions without a usable answer are misses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import OpenFolder
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.parts import Manifest
from reveal_bench.predictions.files import Questions, epoch_of, questions_of_runs, unanswered_questions
from reveal_bench.predictions.report import LintProblem, LintReport


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


def unanswered_report(path: Path, name: str, kind: AnyKind, manifest: Manifest) -> LintReport | None:
    """Return the report on the empty file of a run without any usable answer; None for other files.

    Parameters
    ----------
    name : name of the file in the report
    manifest : questions asked
    """
    asked = questions_of_runs([path], manifest.split, kind.key)
    if path.stat().st_size or not asked:
        return None
    pairs = list(
        dict.fromkeys(
            (key, finding if (key, finding) in asked[0] else "") for key, finding in _questions(kind, manifest)
        )
    )
    message = f"the run has no usable answer to any of its {len(pairs):,} questions"
    hint = "all are misses; a leaderboard takes no empty file"
    problem = LintProblem("warning", name, None, "", "no-answers", "", message, hint)
    missing, n_questions = tuple(pairs), len(pairs)
    return LintReport(name, "jsonl", 0, (problem,), (), missing, {}, allow_missing=True, n_questions=n_questions)


def with_facts_of_run(report: LintReport, path: Path, kind: AnyKind, manifest: Manifest) -> LintReport:
    """Return `report` with a note on other epochs of the run, and with the questions that it did not answer.

    The report itself counts these questions unless no answer means no finding in a file.
    """
    epoch, n_epochs = epoch_of(path)
    if n_epochs > 1:
        message = f"only epoch {epoch} of {n_epochs} is scored"
        note = LintProblem("warning", report.file, None, "", "epoch", "", message, "`report` has the mean over epochs")
        report = replace(report, problems=(*report.problems, note))
    if not report.ok or report.missing_pairs:
        return report
    asked = _questions(kind, manifest)
    unanswered = unanswered_questions(path, manifest.split, kind.key)
    missing = tuple((key, finding) for key, finding in asked if (key, finding) in unanswered)
    if not missing:
        return report
    message = f"{len(missing):,} of {len(asked):,} questions have no usable answer"
    problem = LintProblem("warning", report.file, None, "", "no-answers", "", message, "they count as no detection")
    return replace(report, problems=(*report.problems, problem), missing_pairs=missing, n_questions=len(asked))


def _questions(kind: AnyKind, manifest: Manifest) -> list[tuple[str, str]]:
    """Return (id, finding) of every question."""
    entries = kind.questions.manifest_entries(manifest)
    return [(entry[kind.key], finding) for entry in entries for finding in entry["asked"]]
