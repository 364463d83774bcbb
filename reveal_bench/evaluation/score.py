"""Scoring of a prediction file against a dataset folder, and the JSON document of ``reveal-bench score``.

The fields of the document (:meth:`ScoredFile.to_document`, ``--json``) are stable:

* ``schema``: 1
* ``benchmark``, ``version``, ``split`` of the references; ``references_sha256`` of their files
* ``file``, ``file_sha256``, ``format``, ``n_predictions``, ``n_missing`` of the predictions
* ``abstained``, if the file declines questions: ``n``, ``coverage``, and ``estimates`` of the answered ones
* ``protocol``: unit, n_resamples, seed, interval, allow_missing; grid and asks (localization) or thresholds (findings);
  ``missing`` if a missing answer counts as something other than a miss; ``criterion`` if it is not the kind's first
* ``strata``: for benchmarks of findings, name of the stratum -> its estimates; otherwise empty
* ``finding_groups``, if groups of findings were requested: name of the group -> its ``findings``, and the ``estimates``
  of their macros
* ``estimates``: a list of objects with the fields of :class:`~reveal_bench.metrics.intervals.Estimate`; scores are
  fractions, undefined is null
* ``software``: name and version
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.finding_groups import resolve_finding_groups
from reveal_bench.files import file_sha256
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import AnyFolder, open_folder, read_rows, split_shards
from reveal_bench.kinds.options import ScoringOptions, plain_thresholds
from reveal_bench.kinds.parts import Manifest
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.predictions.files import is_run_file
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.predictions.report import LintReport
from reveal_bench.version import __version__
from reveal_bench.words import count_text, percent_text

if TYPE_CHECKING:
    from reveal_bench.kinds.tasks.records import Rating

UNKNOWN_KEYS = ("unknown-image", "unknown-study", "unknown-task")
"""Rules that an id outside the split breaks."""


class LintError(ValueError):
    """Error of a prediction file; the message lists the first five problems, `report` all of them."""

    def __init__(self, report: LintReport) -> None:
        self.report = report
        problems = report.render(most=5, statistics=False)
        super().__init__(f"{report.file} was not scored\n{problems}")


@dataclass(frozen=True)
class AnsweredOnly:
    """Scores of only the answered questions, for a system that abstains from some.

    Attributes
    ----------
    n_abstained : number of declined questions: pairs of an image and a finding, or studies, tasks or images
    coverage : proportion of the questions that are answered
    estimates : scores of the answered questions; in a :class:`ScoredFile`, the others count as misses
    """

    n_abstained: int
    coverage: float
    estimates: Sequence[Estimate]

    @property
    def in_words(self) -> str:
        """The coverage in words, such as "coverage 90.0%, 12 questions declined"."""
        return f"coverage {percent_text(self.coverage)}, {count_text(self.n_abstained, 'question')} declined"


@dataclass(frozen=True)
class ScoredFile:
    """Scored predictions from a file (from Python if `path` is None), with everything that determines the scores."""

    path: Path | None
    report: LintReport
    manifest: Manifest
    rows: Rows
    options: ScoringOptions
    references_sha256: str
    answered: AnsweredOnly | None = None
    groups: Sequence[str] | None = None

    def __repr__(self) -> str:
        return f"<scores of {self.report.file}: {len(self.estimates)} figures of {self.rows!r}>"

    @property
    def place(self) -> str:
        """Benchmark, version and split that were answered, and the part of the split if only a part was asked."""
        part = f", {self.options.part}" if self.options.part else ""
        return f"{self.manifest.benchmark} {self.manifest.version}, split {self.manifest.split}{part}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the scores, for display."""
        return (*self.rows.notes, *self.tuning_notes)

    @property
    def tuning_notes(self) -> tuple[str, ...]:
        """Note on the split on which the thresholds were tuned; empty if they were not tuned."""
        tuning = self.options.tuning
        return () if tuning is None else (tuning.note(self.manifest.benchmark, self.manifest.split),)

    @property
    def resampling(self) -> Resampling:
        """Method of the intervals."""
        return self.options.resampling

    @property
    def protocol(self) -> dict[str, Any]:
        """Options that determine the scores, as in ``protocol`` of the document."""
        return {**KINDS[self.rows.kind].protocol(self.options), **self.rows.settled}

    @cached_property
    def estimates(self) -> Sequence[Estimate]:
        """Every score, of all groups or those of `groups`; computed at first use."""
        return self.rows.estimates(self.resampling, groups=self.groups)

    @cached_property
    def strata(self) -> Mapping[str, Sequence[Estimate]]:
        """Every score in each stratum, by the stratum's name; empty unless the options ask for strata."""
        return {name: self.rows.estimates(self.resampling, stratum=name) for name in self._sizes_of_strata}

    @cached_property
    def leading_in_strata(self) -> Mapping[str, tuple[Estimate, int]]:
        """Name of each stratum -> the macro of the first metric in it, and its number of cases."""
        first = [self.estimates[0].metric]
        return {
            name: (self.rows.estimates(self.resampling, stratum=name, metrics=first)[0], size)
            for name, size in self._sizes_of_strata.items()
        }

    @property
    def _sizes_of_strata(self) -> dict[str, int]:
        return {name: int(part.sum()) for name, part in self.rows.strata().items()} if self.options.strata else {}

    @cached_property
    def finding_groups(self) -> Mapping[str, Sequence[Estimate]]:
        """Macros over groups of findings, by the name of the group; empty without groups."""
        return self.rows.group_macros(self.resampling, self.options.finding_groups or {})

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document described in the module docstring."""
        return {
            "schema": 1,
            "benchmark": self.manifest.benchmark,
            "version": self.manifest.version,
            "split": self.manifest.split,
            "references_sha256": self.references_sha256,
            "file": self.report.file if self.path is None else self.path.name,
            "file_sha256": None if self.path is None else file_sha256(self.path),
            "format": self.report.format,
            "n_predictions": len(self.report.predictions),
            "n_missing": len(self.report.missing_pairs),
            "protocol": self.protocol,
            "estimates": [_without_nan(asdict(estimate)) for estimate in self.estimates],
            **self._abstained(),
            **self._finding_groups(),
            "strata": {name: [_without_nan(asdict(e)) for e in part] for name, part in self.strata.items()},
            "notes": list(self.notes),
            "software": {"name": "reveal-bench", "version": __version__},
        }

    def _finding_groups(self) -> dict[str, Any]:
        groups = {
            name: {
                "findings": list(self.options.finding_groups[name]),
                "estimates": [_without_nan(asdict(e)) for e in part],
            }
            for name, part in self.finding_groups.items()
        }
        return {"finding_groups": groups} if groups else {}

    def _abstained(self) -> dict[str, Any]:
        if self.answered is None:
            return {}
        estimates = [_without_nan(asdict(estimate)) for estimate in self.answered.estimates]
        return {
            "abstained": {
                "n": self.answered.n_abstained,
                "coverage": self.answered.coverage,
                "estimates": estimates,
            }
        }


def _without_nan(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in fields.items()}


def hash_references(folder: AnyFolder, split: str) -> str:
    """Return the SHA-256 over the names and bytes of the reference files of `split`, in order."""
    digest = hashlib.sha256()
    configs = sorted(kind.config for kind in KINDS.values())
    for path in [path for config in configs for path in split_shards(folder, config, split)]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def lint_file(path: Path, folder: AnyFolder, split: str, options: LintOptions = LintOptions()) -> LintReport:
    """Lint one prediction file against the public manifest of a split, by the rules of the benchmark's kind.

    Questions that a run asked without a usable answer need no permission to be missing. An id from another split of the
    folder is reported with the name of that split.

    Raises
    ------
    ValueError
        If the folder is not a dataset folder, or has no such split.
    """
    folder = open_folder(folder)
    kind = KINDS[folder.info.kind]
    manifest = kind.questions.read_manifest(folder, split)
    if is_run_file(path):
        from reveal_bench.evaluation.asked_part import lint_run_file

        report = lint_run_file(path, kind, manifest, options)
    else:
        report = kind.predictions.lint(path, manifest, options)
    if not any(problem.rule in UNKNOWN_KEYS for problem in report.problems):
        return report
    home = ids_of_other_splits(folder, split)
    hints = (split_hint(one.rule, one.value, home) or one.hint for one in report.problems)
    problems = (replace(one, hint=hint) for one, hint in zip(report.problems, hints, strict=True))
    return replace(report, problems=tuple(problems))


def ids_of_other_splits(folder: AnyFolder, split: str) -> dict[str, str]:
    """Return id -> split for the ids of all splits of a folder except `split`."""
    info = open_folder(folder).info
    key = KINDS[info.kind].key
    others = [other for other in info.splits if other != split]
    return {
        row[key]: other for other in others for row in read_rows(Path(folder, "manifest", f"{other}.parquet"), [key])
    }


def split_hint(rule: str, value: str, home: Mapping[str, str]) -> str:
    """Return the hint on an unknown id that belongs to another split; empty for other problems.

    Parameters
    ----------
    rule, value : rule and value of a problem in a lint report
    home : from :func:`ids_of_other_splits`
    """
    other = home.get(value.strip('"')) if rule in UNKNOWN_KEYS else None
    return "" if other is None else f"it belongs to split {other!r}"


def score_file(
    path: Path,
    folder: AnyFolder,
    split: str,
    options: ScoringOptions = ScoringOptions(),
    *,
    ratings: Sequence[Rating] | None = None,
) -> ScoredFile:
    """Lint and score one prediction file, by the rules of the benchmark's kind.

    Parameters
    ----------
    path : prediction file of any accepted format
    folder, split, options, ratings : see :func:`resolve_options`

    Raises
    ------
    LintError
        If the file has errors; its `report` lists all of them.
    ValueError
        As :func:`resolve_options`.
    """
    path, folder = Path(path), open_folder(folder)
    options = resolve_options(options, folder, split, ratings=ratings)
    report = lint_file(path, folder, split, LintOptions(options.grid, options.allow_missing, any_scale=True))
    return score_report(report, folder, split, options, path=path, ratings=ratings)


def resolve_options(
    options: ScoringOptions, folder: AnyFolder, split: str, *, ratings: Sequence[Rating] | None = None
) -> ScoringOptions:
    """Return the options for a folder, with all defaults filled in, before a prediction file is read.

    Parameters
    ----------
    folder, split : dataset folder, and a split with references in it
    ratings : readers' ratings of the answers; required for tasks

    Raises
    ------
    ValueError
        If the kind of benchmark does not have these options, or the references of the split are private.
    """
    folder = open_folder(folder)
    kind = KINDS[folder.info.kind]
    if kind.scoring.scored_by == "readers" and ratings is None:
        raise ArgumentError(
            "ratings",
            f"must be given: answers to tasks of {folder.info.benchmark} are scored by readers, not by a program",
        )
    options = replace(options, thresholds=plain_thresholds(options.thresholds, folder.findings))
    resolved = replace(kind.resolve(options, folder.info), part=folder.part(split, kind.items))
    if options.finding_groups is not None:
        resolved = replace(resolved, finding_groups=resolve_finding_groups(options.finding_groups, folder))
    if folder.selection.findings is not None:
        groups = {name: [one for one in own if one in folder.findings] for name, own in resolved.finding_groups.items()}
        if options.finding_groups is not None and (empty := [name for name, own in groups.items() if not own]):
            raise ArgumentError("finding_groups", "must each have a finding that is asked", repr(empty[0]))
        resolved = replace(resolved, finding_groups={name: tuple(own) for name, own in groups.items() if own})
    if not split_shards(folder, kind.config, split):
        kind.data.read_records(folder, split)  # raises the error that the kind defines
    return resolved


def score_report(
    report: LintReport,
    folder: AnyFolder,
    split: str,
    options: ScoringOptions,
    *,
    path: Path | None = None,
    ratings: Sequence[Rating] | None = None,
) -> ScoredFile:
    """Score the predictions of a lint report, by the rules of the benchmark's kind.

    Parameters
    ----------
    report : lint report of predictions for the split
    folder, split : dataset folder, and a split with references in it
    options : result of :func:`resolve_options`
    path : the linted file; None for predictions from Python
    ratings : readers' ratings of the answers; required for tasks

    Raises
    ------
    LintError
        If the report has errors.
    """
    if not report.ok:
        raise LintError(report)
    folder = open_folder(folder)
    kind = KINDS[folder.info.kind]
    options = replace(options, allow_missing=report.allow_missing, form=report.form)
    resampling = options.resampling
    manifest = kind.questions.read_manifest(folder, split)
    references = kind.data.read_references(folder, split)
    rows = kind.scoring.score(report.predictions, references, manifest, options, ratings or ())
    return ScoredFile(
        path,
        report,
        manifest,
        rows,
        options,
        hash_references(folder, split),
        _answered_only(rows, report, resampling) if report.abstained else None,
    )


def _answered_only(rows: Rows, report: LintReport, resampling: Resampling) -> AnsweredOnly:
    unanswered = {*report.abstained, *report.missing_pairs}
    rest = rows.without(unanswered)
    coverage = 1 - len(unanswered) / report.n_questions
    return AnsweredOnly(len(report.abstained), coverage, rest.estimates(resampling) if len(rest) else ())
