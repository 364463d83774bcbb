"""From a prediction file and a dataset folder to a scored document: what ``reveal-bench score`` does.

The document (:meth:`ScoredFile.to_document`, ``--json``) is stable:

* ``schema``: 1
* ``benchmark``, ``version``, ``split``: what was scored against; ``references_sha256``: of its reference files
* ``file``, ``file_sha256``, ``format``, ``n_predictions``, ``n_missing``: what was scored
* ``protocol``: unit, n_resamples, seed, interval, allow_missing; grid and asks (localization) or thresholds (findings)
* ``strata``: for findings, estimates of the same form by name of the stratum; else empty
* ``estimates``: a list of objects with the fields of :class:`~reveal_bench.metrics.bootstrap.Estimate`; scores are
  fractions, undefined is null
* ``software``: name and version
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import reveal_bench
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.kinds.findings.records import StudyManifest, read_studies, read_study_manifest
from reveal_bench.kinds.findings.scoring import StudyRows, score_studies, summarize_studies
from reveal_bench.kinds.folder import FolderInfo, read_folder_info, split_shards
from reveal_bench.kinds.localization.records import Manifest, read_localization, read_manifest
from reveal_bench.kinds.localization.scoring import CaseRows, score_localization, summarize
from reveal_bench.kinds.tasks.records import read_task_manifest
from reveal_bench.metrics.bootstrap import Estimate
from reveal_bench.predictions import LintReport, lint_findings, lint_predictions, lint_tasks

__all__ = ["LintError", "ScoredFile", "hash_references", "lint_file", "score_file"]


class LintError(ValueError):
    """The prediction file has errors; `report` holds them all."""

    def __init__(self, report: LintReport) -> None:
        self.report = report
        super().__init__(f"{report.file} has {report.verdict} and was not scored")


@dataclass(frozen=True)
class ScoredFile:
    """A scored prediction file with everything that its numbers depend on."""

    path: Path
    report: LintReport
    manifest: Manifest | StudyManifest
    rows: CaseRows | StudyRows
    estimates: Sequence[Estimate]
    protocol: dict[str, Any]
    references_sha256: str
    strata: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores should know, for people."""
        return self.rows.notes if isinstance(self.rows, CaseRows) else ()

    def to_document(self) -> dict[str, Any]:
        """The stable JSON document described above."""
        return {
            "schema": 1,
            "benchmark": self.manifest.benchmark,
            "version": self.manifest.version,
            "split": self.manifest.split,
            "references_sha256": self.references_sha256,
            "file": self.path.name,
            "file_sha256": hashlib.sha256(self.path.read_bytes()).hexdigest(),
            "format": self.report.format,
            "n_predictions": len(self.report.predictions),
            "n_missing": len(self.report.missing_pairs),
            "protocol": self.protocol,
            "estimates": [_without_nan(asdict(estimate)) for estimate in self.estimates],
            "strata": {name: [_without_nan(asdict(e)) for e in part] for name, part in self.strata.items()},
            "notes": list(self.notes),
            "software": {"name": "reveal-bench", "version": reveal_bench.__version__},
        }


def _without_nan(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in fields.items()}


def hash_references(folder: Path, split: str) -> str:
    """SHA-256 over the names and bytes of the reference files of `split`, in order."""
    digest = hashlib.sha256()
    for path in [path for config in ("localization", "multilabel") for path in split_shards(folder, config, split)]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _kind(info: FolderInfo) -> str:
    known = BENCHMARKS.get(info.benchmark)
    return "localization" if known is None else known.kind


def lint_file(
    path: Path, folder: Path, split: str, *, grid: int | None = None, allow_missing: bool = False
) -> LintReport:
    """Lint one prediction file against the public manifest, of the kind that the folder's benchmark asks for.

    Raises
    ------
    ValueError
        If the folder or split is not what it must be.
    """
    kind = _kind(read_folder_info(folder))
    if kind == "findings":
        return lint_findings(path, read_study_manifest(folder, split), allow_missing=allow_missing)
    if kind == "tasks":
        return lint_tasks(path, read_task_manifest(folder, split), allow_missing=allow_missing)
    return lint_predictions(path, read_manifest(folder, split), grid=grid, allow_missing=allow_missing)


def score_file(
    path: Path,
    folder: Path,
    split: str,
    *,
    grid: int | None = None,
    thresholds: float | Mapping[str, float] = 0.5,
    allow_missing: bool = False,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: str = "patient",
    interval: str = "percentile",
) -> ScoredFile:
    """Lint and score one prediction file, of the kind that the folder's benchmark asks for.

    Parameters
    ----------
    path : prediction file of any accepted format
    folder, split : dataset folder and the split whose references it holds
    grid : cells per side (localization); the folder's own by default
    thresholds : probability from which a label counts as predicted (findings): one number, or one per label
    allow_missing : count questions without an answer as misses instead of refusing the file
    interval : "percentile", or for localization "bca" or "chexlocalize"

    Raises
    ------
    LintError
        If the file has errors; its `report` lists all of them.
    ValueError
        If the folder, split or interval is not what it must be, or the benchmark asks for tasks: readers score those.
    """
    info = read_folder_info(folder)
    path, folder = Path(path), Path(folder)
    options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed, "unit": unit}
    protocol = {**options, "interval": interval, "allow_missing": allow_missing}
    kind = _kind(info)
    if kind == "tasks":
        raise ValueError(f"answers to the tasks of {info.benchmark} are scored by readers, not by a program")
    if kind == "findings":
        if interval != "percentile":
            raise ValueError(f"`interval` must be 'percentile' for a findings-type benchmark, got {interval!r}")
        return _score_findings(path, folder, split, thresholds, options, protocol)
    options["interval"] = interval
    return _score_localization(path, folder, split, info, grid, options, protocol)


def _score_localization(
    path: Path,
    folder: Path,
    split: str,
    info: FolderInfo,
    grid: int | None,
    options: dict[str, Any],
    protocol: dict[str, Any],
) -> ScoredFile:
    manifest = read_manifest(folder, split)
    cells = manifest.grid if grid is None else grid
    records = read_localization(folder, split)
    report = lint_predictions(path, manifest, grid=cells, allow_missing=protocol["allow_missing"])
    if not report.ok:
        raise LintError(report)
    rows = score_localization(report.predictions, records, findings=manifest.findings, grid=cells, asks=info.asks)
    estimates = summarize(rows, **options)
    protocol = {"grid": cells, "asks": info.asks, **protocol}
    return ScoredFile(path, report, manifest, rows, estimates, protocol, hash_references(folder, split))


def _score_findings(
    path: Path,
    folder: Path,
    split: str,
    thresholds: float | Mapping[str, float],
    options: dict[str, Any],
    protocol: dict[str, Any],
) -> ScoredFile:
    manifest = read_study_manifest(folder, split)
    records = read_studies(folder, split)
    report = lint_findings(path, manifest, allow_missing=protocol["allow_missing"])
    if not report.ok:
        raise LintError(report)
    rows = score_studies(report.predictions, records, labels=manifest.labels, thresholds=thresholds)
    estimates = summarize_studies(rows, **options)
    strata = {name: summarize_studies(rows, stratum=name, **options) for name in rows.strata()}
    protocol = {"thresholds": thresholds, **protocol}
    return ScoredFile(path, report, manifest, rows, estimates, protocol, hash_references(folder, split), strata)
