"""Two boards, of images and of studies, with the real way in: intake, blobs, database and custody.

A file is read in a confined child, or by the child's own job in this process: that is many times cheaper.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.boards.catalogue import Catalogue, read_published
from reveal_leaderboard.custody import Custody, Lint, ParseFailed, parsing
from reveal_leaderboard.custody.arrays import read_canonical
from reveal_leaderboard.custody.fork_client import TemplateService
from reveal_leaderboard.custody.messages import ExitStatus, JobRequest
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.metadata import read_metadata
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.web.submissions import Intake, UploadResult

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.findings.records import StudyManifest, StudyRecord
from reveal_bench.kinds.localization.records import ImageManifest
from tests.leaderboard.conftest import METADATA, Board
from tests.leaderboard.hostile.corpus import BROKE_OFF, TOO_LARGE, Bad, Site
from tests.leaderboard.hostile.understanding import SENTENCES, check_report

IMAGES, STUDIES = "chexlocalize", "reveal-cxr"
GIB = 1 << 30
ENDED_WELL = ExitStatus(code=0, timed_out=False, peak_bytes=0, seconds=0.0)
manifest_of = lru_cache(maxsize=2)(parsing.load_shared)
PLENTY = "[quota]\ntotal = 1000\nper_day = 1000\nboard_total = 10000\n"


def build_studies(root: Path) -> tuple[Path, Path]:
    """Folders, public and private, of 160 studies of 160 patients, half of them held out and half with COPD."""
    records = [
        StudyRecord(f"study{i:03d}", f"patient{i:03d}", ("COPD",) if i % 2 else (REVEAL_LABELS[i % 3],))
        for i in range(160)
    ]
    public, private = root / "public", root / "private" / "studies-kept-here"
    build_folder(
        {"test": iter(records)}, public, BENCHMARKS[STUDIES], pixels="withhold", holdout=private, seed=3, synthetic=True
    )
    return public, private


@dataclass(frozen=True)
class Sent:
    """A file's result: its outcome or the sentence that replaces it, and the child's exit status."""

    outcome: UploadResult | None
    failure: Exception | None
    ended: list[ExitStatus]


@dataclass
class TwoBoards:
    """The way in to both boards, in this process; children are real where `is_confined`."""

    images: Board
    studies: Board
    root: Path
    custody: Custody
    is_confined: bool = True
    ended: list[ExitStatus] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.root / "settings.toml"
        settings.write_text(PLENTY, encoding="utf-8")
        self.data = self.root / "data"
        self.data.mkdir()
        self.store = Store(f"sqlite:///{self.data / 'leaderboard.sqlite'}", load_settings(settings))
        self.blobs, self.accounts = Blobs(self.data / "blobs"), Accounts(self.store.engine)
        published = [read_published(board.folder, "holdout") for board in (self.images, self.studies)]
        catalogue = Catalogue(self.store, published)
        self.intake = Intake(self.store, self.blobs, catalogue, self.custody, self.accounts)
        manifest, asked = published[0].manifest, published[1].manifest
        assert isinstance(manifest, ImageManifest)
        assert isinstance(asked, StudyManifest)
        image, finding = manifest.asked_pairs()[0]
        self.site = Site(image, finding, asked.studies[0], asked.studies[1], asked.labels)

    def send(self, bad: Bad) -> Sent:
        """Send a file as the API would, missing predictions allowed."""
        self.ended.clear()
        metadata = read_metadata(json.dumps({**METADATA, "model": {"name": f"Model {len(bad.name)}"}}))
        options: dict[str, Any] = {"actor": self.accounts.local_actor(), "filename": bad.filename}
        content = io.BytesIO(bad.make(self.site))
        try:
            board = IMAGES if bad.board == "images" else STUDIES
            outcome = self.intake.submit(content, board, metadata, allow_missing=True, **options)
        except Exception as error:
            return Sent(None, error, list(self.ended))
        return Sent(outcome, None, list(self.ended))

    def check(self, bad: Bad, *, is_confined: bool = True) -> float:
        """Send a file, and check its answer and what it did to the processes; returns the seconds its child took."""
        self.is_confined = is_confined
        templates = self.custody.template_ids()
        sent = self.send(bad)
        assert self.custody.template_ids() == templates
        (ended,) = sent.ended
        assert not ended.timed_out
        assert ended.peak_bytes < GIB
        if sent.failure is not None:
            assert isinstance(sent.failure, ParseFailed)
            assert sent.failure.kind in bad.rules
            assert str(sent.failure) in SENTENCES
            return ended.seconds
        assert sent.outcome is not None
        report, submission = sent.outcome.report, sent.outcome.submission
        check_report(report)
        assert {problem.rule for problem in report.problems if problem.severity == "error"} == bad.rules - {
            TOO_LARGE,
            BROKE_OFF,
        }
        assert (submission is not None) is not bool(bad.rules)
        if submission is not None:
            assert submission.filename.isprintable()
            assert not {"/", "\\"} & set(submission.filename)
        return ended.seconds

    def read_again(self, bad: Bad) -> tuple[Lint, Sequence[object]]:
        """Report and predictions of a sound file, read from the arrays that a worker would score."""
        self.is_confined = False
        board = self.images if bad.board == "images" else self.studies
        canonical, file = self.root / "canonical.npz", self.root / "file"
        file.write_bytes(bad.make(self.site))
        manifest = board.published.manifest
        parsed = self.custody.parse(file, manifest, name="-", allow_missing=True, canonical=canonical)
        with canonical.open("rb") as arrays:
            return parsed.report, read_canonical(arrays, manifest)


@contextmanager
def two_boards(images: Board, root: Path) -> Iterator[TwoBoards]:
    """Run both boards below `root` and record the exit of each child."""
    public, private = build_studies(root / "studies")
    with Custody(root / "custody") as custody, pytest.MonkeyPatch.context() as patch:
        custody.warm_up()
        world = TwoBoards(images, Board(public, private), root, custody)
        in_child = TemplateService.run

        def run(
            self: TemplateService, request: JobRequest, files: Sequence[int] = (), *, shared: bytes = b""
        ) -> tuple[ExitStatus, bytes | None]:
            if world.is_confined:
                ended, answer = in_child(self, request, files, shared=shared)
            else:
                ended, answer = ENDED_WELL, parsing.parse(request.arguments, [*files], manifest_of(shared))
            world.ended.append(ended)
            return ended, answer

        patch.setattr(TemplateService, "run", run)
        yield world
        world.store.engine.dispose()
