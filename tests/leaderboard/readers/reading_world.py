"""A synthetic pool of studies with reports, a curation of it up to the assignment, and the page over it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.readers.app import build_readers_app
from reveal_leaderboard.readers.images import ImageCache
from reveal_leaderboard.readers.preparation import prepare_votes
from reveal_leaderboard.readers.store import Readings
from reveal_leaderboard.store.database import connect
from reveal_leaderboard.web.sign_in_modes import Auth, Provider

from reveal_bench.curation.assign import assign
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.tables import Sampled, in_order
from reveal_bench.phantom.reveal import write_reveal
from tests.curation.made_folder import done
from tests.leaderboard.databases import DATABASE_SOURCE

READERS = ("Reader Ada", "Reader Ben", "Reader Cyd", "Reader Dora")
N_STUDIES, N_READ = 12, 8
HERE = "https://readers.example.org"


@dataclass(frozen=True)
class Pool:
    """A download, the truth about it, and the curation folder."""

    images: Path
    truth: Mapping[str, dict[str, Any]]
    reports: tuple[str, ...]
    curation: Path
    readers: Path

    def files_of(self, study: str) -> list[Path]:
        return [self.images / image["file"] for image in self.truth[study]["images"]]


def make_pool(root: Path, *, readers: Sequence[str] = READERS, n_read: int = N_READ) -> Pool:
    """Studies for three readers each; by default eight for four readers, six a reader."""
    images = root / "download"
    write_reveal(images, n_studies=N_STUDIES, seed=3, long_side=320, stage="pool")
    lines = (images / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    truth = {one["study_uid"]: one for one in map(json.loads, lines)}
    with (images / "reports.csv").open(encoding="utf-8", newline="") as file:
        reports = tuple(row["report"] for row in csv.DictReader(file))
    table, capacity = root / "readers.csv", 3 * n_read // len(readers)
    table.write_text("reader,capacity\n" + "".join(f"{name},{capacity}\n" for name in readers), encoding="utf-8")
    folder = CurationFolder.create(root / "curation", name="Chest", seed=7)
    several = sorted(truth, key=lambda study: (-len(truth[study]["images"]), study))[:n_read]
    sampled = [_sampled(truth[study]) for study in sorted(several)]
    done(folder, "extract", "suggestions.parquet", [], Sampled)
    done(folder, "sample", "sample.parquet", sampled, Sampled)
    assign(folder, table)
    return Pool(images, truth, reports, folder.root, table)


def _sampled(study: Mapping[str, Any]) -> Sampled:
    labels = in_order(study["suggested"])
    return Sampled(study["study_uid"], study["case_id"], labels, len(labels))


def prepared(pool: Pool, data: Path) -> Readings:
    """The lists of the pool in `data`, a new folder: a copy of those that were prepared once."""
    made = pool.images.with_name("prepared")
    if not made.exists():
        prepare_votes(made, pool.curation, pool.images).engine.dispose()
    shutil.copytree(made, data, dirs_exist_ok=True)
    return Readings(data)


def accounts_in(data: Path) -> Accounts:
    data.mkdir(parents=True, exist_ok=True)
    return Accounts(connect(DATABASE_SOURCE.migrated("sqlite", data)))


def local_app(pool: Pool, data: Path) -> FastAPI:
    readings = prepared(pool, data)
    return build_readers_app(readings, ImageCache(pool.images), Auth(accounts_in(data / "accounts"), "local"), {})


def signed_in_auth(accounts: Accounts) -> Auth:
    provider = Provider("https://id.example.org", "c", "s", f"{HERE}/login/callback", "the provider", "the provider")
    return Auth(accounts, "oidc", provider)
