"""From an uploaded file to a queued submission: the one way in, for the API and the page alike.

Conventions
-----------
A file is linted against the public manifest before anything is kept: a file with errors leaves nothing behind but its
report. The linter knows no reference, so the report may say everything about the file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reveal_bench.masks import empty_rle, parse_masks
from reveal_bench.predictions import Limits, LintReport, lint_predictions
from reveal_bench.records import FolderInfo, Manifest, read_folder_info, read_manifest
from reveal_leaderboard.blobs import Blobs
from reveal_leaderboard.metadata import Metadata
from reveal_leaderboard.store import NewSubmission, Store, Submission

__all__ = ["Intake", "Outcome", "Published", "display_name", "open_data", "read_published", "warm_up"]

DATABASE = "leaderboard.sqlite"
LINTS_AT_ONCE = 2
MIB = 1 << 20
BOARD_LIMITS = Limits(
    file_bytes=96 * MIB,
    expanded_bytes=96 * MIB,
    expansion=30,
    entries=100_000,
    containers=2_000_000,
    values=10_000_000,
    points=1,
    contours=200,
    vertices=20_000,
    polygon_work=1_000_000_000,
    problems=1_000,
)
"""What a board takes: files three times as large as CheXlocalize's whole test set needs, and one point per question:
with several, a lattice of points hits everything (several are scored at home, as for the human benchmark)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """The public side of a benchmark: its folder, and what the scored split asks."""

    folder: Path
    info: FolderInfo
    manifest: Manifest

    @property
    def name(self) -> str:
        """Name of the benchmark."""
        return self.manifest.benchmark

    @property
    def manifest_file(self) -> Path:
        """The split's manifest as Parquet."""
        return self.folder / "manifest" / f"{self.manifest.split}.parquet"


@dataclass(frozen=True)
class Outcome:
    """What became of an upload: its lint report and, if that is clean, the submission and whether it is new."""

    report: LintReport
    submission: Submission | None = None
    is_new: bool = False


def read_published(folder: Path, split: str) -> Published:
    """Read the public side of a benchmark.

    Raises
    ------
    ValueError
        If the folder is no dataset folder, lacks the split, or holds the split's references: a server must not.
    """
    if any(Path(folder).rglob(f"localization/{split}-*.parquet")):
        raise ValueError(f"{folder} holds the references of split {split!r}, which a leaderboard's server must not see")
    return Published(Path(folder), read_folder_info(folder), read_manifest(folder, split))


def open_data(data: Path) -> tuple[Store, Blobs]:
    """The store and the uploaded files of a data folder; made on first use."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Store(f"sqlite:///{data / DATABASE}"), Blobs(data / "blobs")


class Intake:
    """Lints, keeps and queues uploads to the `published` benchmarks."""

    def __init__(self, store: Store, blobs: Blobs, published: Mapping[str, Published]) -> None:
        self.store, self.blobs, self.published = store, blobs, published
        self._lanes = threading.BoundedSemaphore(LINTS_AT_ONCE)

    def lint(self, path: Path, benchmark: str, *, name: str, allow_missing: bool) -> LintReport:
        """Report on a file without keeping it."""
        with self._lanes:
            manifest = self.published[benchmark].manifest
            shown = display_name(name)
            return lint_predictions(path, manifest, allow_missing=allow_missing, limits=BOARD_LIMITS, name=shown)

    def submit(
        self,
        stream: BinaryIO,
        benchmark: str,
        metadata: Metadata,
        *,
        filename: str,
        allow_missing: bool,
        who: str,
        idempotency_key: str | None = None,
    ) -> Outcome:
        """Receive, lint and queue a file.

        Raises
        ------
        MetadataError
            If the metadata name another grid than the board's.
        KeyReusedError
            If the team used this key for another submission.
        """
        metadata.check_grid(self.published[benchmark].manifest.grid)
        with self.blobs.receive(stream) as incoming:
            report = self.lint(incoming.path, benchmark, name=filename, allow_missing=allow_missing)
            if not report.ok:
                log.info("refused at the door: %d errors, sha256 %s", report.n_errors, incoming.sha256)
                return Outcome(report)
            self.blobs.keep(incoming)
        manifest = self.published[benchmark].manifest
        new = NewSubmission(
            benchmark=manifest.benchmark,
            version=manifest.version,
            split=manifest.split,
            team=metadata.organization,
            model_name=metadata.model.name,
            kind=metadata.kind,
            prompt_style=metadata.prompt_style,
            metadata=metadata.model_dump(exclude_none=True),
            filename=display_name(filename),
            sha256=incoming.sha256,
            size=incoming.size,
            allow_missing=allow_missing,
            idempotency_key=idempotency_key,
        )
        submission, is_new = self.store.add_submission(new, who=who)
        log.info("submission %s %s", submission.id, "queued" if is_new else "was there already")
        return Outcome(report, submission, is_new)


def warm_up() -> None:
    """Load the compiled mask reader (the first time: compile it), so that the first upload need not wait for it."""
    masks, _ = parse_masks([empty_rle((8, 8))])
    log.info("the linter is ready, tried on %d mask", len(masks.areas))


def display_name(filename: str) -> str:
    """A client's file name reduced to what is safe to show: its last part, printable, 200 characters."""
    last = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:200] or "upload"
