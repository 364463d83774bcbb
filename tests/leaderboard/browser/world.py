"""A small leaderboard for looking at pages: the real store, queue and accounts, with synthetic scores.

Two boards, one of each kind, and on demand one of tasks. Nothing is scored: a worker's answers are written as
:func:`outcome` makes them. Files are linted for real, in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor, Team, User
from reveal_leaderboard.boards.catalogue import Catalogue, Published
from reveal_leaderboard.boards.refresh import start_refresh, switch_version
from reveal_leaderboard.release.fingerprints import Fingerprint
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import Settings, load_settings
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.store import NewSubmission, Store, Submission
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.sign_in_modes import Auth
from reveal_leaderboard.web.submissions import Intake

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.folder import FolderInfo
from reveal_bench.kinds.localization.records import ImageManifest, ManifestRow
from reveal_bench.kinds.tasks.records import CATEGORIES, TaskManifest, TaskQuestion
from tests.leaderboard.api_app import LintHere
from tests.leaderboard.databases import DATABASE_SOURCE

IMAGES, STUDIES, TASKS = "chexlocalize", "reveal-cxr", "rexecution"
RARE = 2  # the last findings of a board are too rare to be shown
METRICS = {IMAGES: ("point_hit", "grid_hit", "mask_iou_all"), STUDIES: ("f1", "recall", "cohen_kappa")}
MORE = "[quota]\ntotal = 10\nper_day = 10\n[release]\nladder_step = 0.0\n"


def published(name: str, version: str = "1.0.0", *, synthetic: bool = True, folder: Path = Path()) -> Published:
    """The public side of a board that has no folder."""
    findings = BENCHMARKS[name].findings
    info = FolderInfo(name, version, synthetic, "findings with a reference", 8, findings, {"holdout": {}})
    if BENCHMARKS[name].kind == "findings":
        manifest: Any = StudyManifest(name, version, "holdout", findings, tuple(f"study{i:03d}" for i in range(60)))
        return Published(folder, info, manifest, "findings")
    if BENCHMARKS[name].kind == "tasks":
        asked = [TaskQuestion(f"t{i}", CATEGORIES[0], False, f"Task {i}.", None, {"a": (64, 48)}) for i in range(4)]
        return Published(folder, info, TaskManifest(name, version, "holdout", tuple(asked)), "tasks")
    rows = {f"image{i:03d}": ManifestRow(f"image{i:03d}", "s", "FRONTAL", 64, 48, findings[:3]) for i in range(20)}
    manifest = ImageManifest(name, version, "holdout", 8, findings, rows)
    return Published(folder, info, manifest, "localization")


def released(name: str, value: float, *, spread: float = 0.05, metrics: tuple[str, ...] = ()) -> ReleasedScore:
    """Figures that follow from `value` by arithmetic; the last findings are hidden."""
    findings = BENCHMARKS[name].findings
    visible, hidden = findings[:-RARE], findings[-RARE:]
    figures = []
    for m, metric in enumerate(metrics or METRICS[name]):
        for i, finding in enumerate(("macro", *visible)):
            at = round(min(max(value - 0.15 * m + 0.04 * ((i * 7) % 5 - 2) * (i > 0), 0.0), 1.0), 2)
            low, high = (round(min(max(at + d, 0.0), 1.0), 2) for d in (-spread - 0.01 * i, spread + 0.01 * i))
            n = str(len(visible)) if finding == "macro" else ("30-59", "60-119", "120+")[i % 3]
            figures.append(ReleasedEstimate(metric, finding, at, low, high, n, f"{metric}|v:1"))
    note = f"Fewer than 30 cases, not shown and not in any macro: {', '.join(hidden)}."
    return ReleasedScore(tuple(figures), visible, hidden, note, {"min_cell": 30})


def outcome(name: str, value: float, seed: int, **options: Any) -> ScoredOutcome:
    """Return the outcome that a worker would report."""
    mark = Fingerprint(f"{seed:064x}", tuple((seed * 7919 + i * 104729) % 2**32 for i in range(128)))
    return ScoredOutcome(released(name, value, **options), None, "0" * 64, mark)


@dataclass
class World:
    """The parts, and short ways to fill them."""

    root: Path
    mode: str = "local"
    names: Sequence[str] = (IMAGES, STUDIES)
    versions: Sequence[str] = ("1.0.0",)
    settings: Settings = field(init=False)
    n: int = 0

    def __post_init__(self) -> None:
        (self.root / "settings.toml").write_text(MORE, encoding="utf-8")
        self.settings = load_settings(self.root / "settings.toml")
        self.store = Store(DATABASE_SOURCE.migrated("sqlite", self.root), self.settings)
        self.queue = Queue(self.store.engine, self.settings)
        self.accounts = Accounts(self.store.engine)
        custody = LintHere()
        served = [published(name, v, folder=self.root / name) for name in self.names for v in self.versions]
        self.boards = {one.name: one for one in served}
        self.catalogue = Catalogue(self.store, served)
        blobs = Blobs(self.root / "blobs")
        self.intake = Intake(self.store, blobs, self.catalogue, custody, self.accounts)  # type: ignore[arg-type]
        auth: Any = Auth(self.accounts, "local") if self.mode == "local" else FakeAuth(self.accounts)
        self.auth = auth

    @property
    def services(self) -> Services:
        return Services(self.store, self.queue, self.intake, self.accounts, self.auth)

    def member(self, name: str, team: str, *, is_admin: bool = False) -> tuple[User, Team]:
        """A person who owns a team."""
        user = self.accounts.sign_in("https://id.example", name, name, as_admin=is_admin)
        return user, self.accounts.create_team(team, owner=user, who=f"user:{user.id}")

    def send(self, user: User, team: Team, model: str, *, benchmark: str = IMAGES, **options: Any) -> Submission:
        """Queue a submission."""
        self.n += 1
        metadata: Mapping[str, Any] = {
            "model": {"name": model, "version": "1.0"},
            "organization": team.name,
            "kind": "cnn",
            **options.pop("metadata", {}),
        }
        new = NewSubmission(
            benchmark=benchmark,
            version="1.0.0",
            split="holdout",
            team_id=team.id,
            user_id=user.id,
            model_name=model,
            kind=metadata["kind"],
            prompt_style=metadata.get("prompt_style"),
            metadata=metadata,
            filename=f"{model}.jsonl",
            sha256=f"{self.n:064x}",
            size=1000,
        )
        submission, _ = self.store.add_submission(replace(new, **options), who=f"user:{user.id}")
        return submission

    def work(self, kind: str = "score", benchmark: str = IMAGES, version: str = "1.0.0") -> Any:
        """Lease the next job of a board, and check that it is of `kind`."""
        self.queue.beat_worker("worker-1", [(benchmark, version)], "rlimits, landlock-4, seccomp", None)
        job = self.queue.claim("worker-1", served=[(benchmark, version)])
        if kind == "score" and job is not None and job.kind == "rank":  # it stood back long enough; the score asks anew
            self.queue.finish_result(job, document={"schema": 1, "metric": "", "entries": {}, "computed_for": []})
            job = self.queue.claim("worker-1", served=[(benchmark, version)])
        assert job.kind == kind, (job.kind, kind)
        return job

    def score(self, value: float, *, benchmark: str = IMAGES, **options: Any) -> None:
        """Let a worker finish the next submission with figures round `value`, then whatever follows from it."""
        job = self.work("score", benchmark)
        self.n += 1
        assert self.queue.finish_score(job, who="worker:1", outcome=outcome(benchmark, value, self.n, **options))

    def rank(self, places: Mapping[str, tuple[int, int, int, str]], *, benchmark: str = IMAGES) -> None:
        """Write the ranks: submission id -> (rank, low, high, tier)."""
        job = self.work("rank", benchmark)
        keys = ("rank", "rank_low", "rank_high", "tier")
        entries = {name: dict(zip(keys, place, strict=True)) for name, place in places.items()}
        document = {"schema": 1, "metric": METRICS[benchmark][0], "entries": entries, "computed_for": sorted(places)}
        assert self.queue.finish_result(job, document=document)

    def refresh(self, version: str, value: float, *, benchmark: str = IMAGES) -> None:
        """Score every submission with `value` on one of `versions`, and show that version."""
        with self.store.write() as connection:
            n = start_refresh(connection, benchmark, version, who="test")
        jobs = [self.work("rescore", benchmark, version) for _ in range(n)]
        for job in jobs:
            self.n += 1
            assert self.queue.finish_score(job, who="worker:1", outcome=outcome(benchmark, value, self.n))
        with self.store.write() as connection:
            switch_version(connection, benchmark, version, who="test")


class FakeAuth:
    """Takes every request for one of `user`: what a session’s cookie does, without the sign-in."""

    mode = "oidc"
    is_secure = False

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.user: User | None = None

    def actor(self, request: Any) -> Actor | None:
        user = self.user
        if user is None:
            return None
        user = self.accounts.user(user.id)
        scopes = ("read", "submit", "admin") if user.is_admin else ("read", "submit")
        return Actor(user, self.accounts.teams_of(user), frozenset(scopes), "session")
