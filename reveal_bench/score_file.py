"""From a prediction file and a dataset folder to a scored document: what ``reveal-bench score`` does.

The document (:meth:`ScoredFile.to_document`, ``--json``) is stable:

* ``schema``: 1
* ``benchmark``, ``version``, ``split``: what was scored against; ``references_sha256``: of its reference files
* ``file``, ``file_sha256``, ``format``, ``n_predictions``, ``n_missing``: what was scored
* ``protocol``: grid, asks, unit, n_resamples, seed, allow_missing
* ``estimates``: a list of objects with the fields of :class:`~reveal_bench.metrics.bootstrap.Estimate`; scores are
  fractions, undefined is null
* ``software``: name and version
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import reveal_bench
from reveal_bench.metrics.bootstrap import Estimate
from reveal_bench.predictions import LintReport, lint_predictions
from reveal_bench.records import Manifest, read_folder_info, read_localization, read_manifest
from reveal_bench.scoring import CaseRows, Unit, score_localization, summarize

__all__ = ["LintError", "ScoredFile", "hash_references", "score_file"]


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
    manifest: Manifest
    rows: CaseRows
    estimates: Sequence[Estimate]
    protocol: dict[str, Any]
    references_sha256: str

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
            "software": {"name": "reveal-bench", "version": reveal_bench.__version__},
        }


def _without_nan(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in fields.items()}


def hash_references(folder: Path, split: str) -> str:
    """SHA-256 over the names and bytes of the reference files of `split`, in order."""
    digest = hashlib.sha256()
    for path in sorted((Path(folder) / "localization").glob(f"{split}-*.parquet")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def score_file(
    path: Path,
    folder: Path,
    split: str,
    *,
    grid: int | None = None,
    allow_missing: bool = False,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: Unit = "patient",
) -> ScoredFile:
    """Lint and score one prediction file.

    Parameters
    ----------
    path : prediction file of any accepted format
    folder, split : dataset folder and the split whose references it holds
    grid : cells per side; the folder's own by default
    allow_missing : count questions without an answer as misses instead of refusing the file

    Raises
    ------
    LintError
        If the file has errors; its `report` lists all of them.
    ValueError
        If the folder or split is not what it must be.
    """
    manifest = read_manifest(folder, split)
    cells = manifest.grid if grid is None else grid
    records = read_localization(folder, split)
    report = lint_predictions(path, manifest, grid=cells, allow_missing=allow_missing)
    if not report.ok:
        raise LintError(report)
    asks = read_folder_info(folder).asks
    rows = score_localization(report.predictions, records, findings=manifest.findings, grid=cells, asks=asks)
    protocol = {
        "grid": cells,
        "asks": asks,
        "unit": unit,
        "n_resamples": n_resamples,
        "seed": seed,
        "allow_missing": allow_missing,
    }
    estimates = summarize(rows, n_resamples=n_resamples, seed=seed, unit=unit)
    return ScoredFile(Path(path), report, manifest, rows, estimates, protocol, hash_references(folder, split))
