"""A curated benchmark is refreshed: five corrected labels, ten new studies, and a board with submissions on it.

One documented run (docs/curation.md): curate, build, score; refresh, build the next version, score all stored
submissions again, switch. The old version stays what it was, for `load_dataset`, for permalinks and for receipts.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.boards.catalogue import Catalogue, read_published
from reveal_leaderboard.boards.refresh import start_refresh, switch_version
from reveal_leaderboard.cli.demo import settings_of
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.release import receipts
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.audit import audit
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.metadata import read_metadata
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.web.submissions import Intake
from reveal_leaderboard.worker.worker import Worker, open_holdouts

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.curation.assign import assign
from reveal_bench.curation.consensus import consensus
from reveal_bench.curation.extract import ReportTable, extract
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.refresh import refresh
from reveal_bench.curation.report_tables import ReportColumns
from reveal_bench.curation.sample import sample
from reveal_bench.curation.select import select
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Assignment, Placed, Sampled, read_table
from reveal_bench.curation.votes import import_votes
from reveal_bench.dataset.build import build_folder
from reveal_bench.exchange.receipts import verify_receipt
from reveal_bench.kinds.findings.lint import findings_to_jsonl
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.phantom import study_predictions, write_curation_world
from reveal_bench.phantom.curation import cast, write_votes
from reveal_bench.sources.reveal_cxr import read
from tests.leaderboard.conftest import METADATA
from tests.leaderboard.databases import DATABASE_SOURCE

NAME, KEY = "reveal-cxr", bytes(range(32))
N_FIRST, N_LATER = 70, 30
QUALITIES = {"Good": 0.7, "Fair": 0.4, "Chance": 0.0}


@dataclass(frozen=True)
class Version:
    """A built version of the benchmark."""

    curation: CurationFolder
    public: Path
    private: Path


def curated(root: Path, pool: Path, rows: slice, target: int) -> CurationFolder:
    """A selection from a part of the pool."""
    folder = CurationFolder.create(root, name="Chest", seed=1)
    with (pool / "reports.csv").open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    table = root.with_suffix(".csv")
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *lines[rows]])
    extract(folder, ReportTable(table, ReportColumns("study", "patient", "report")))
    sample(folder, strata={1: target, 2: target // 2, 3: target // 4}, fill=True)
    assign(folder, pool / "readers.csv")
    truth = dict(_truths(pool))
    suggested = {one.study_id: one.labels for one in read_table(folder.path("sample.parquet"), Sampled)}
    readings = [(one.study_id, one.reader) for one in read_table(folder.path("assignments.parquet"), Assignment)]
    write_votes(root.with_suffix(".votes.csv"), cast(readings, suggested, truth, 1))
    import_votes(folder, root.with_suffix(".votes.csv"))
    consensus(folder, n_resamples=10)
    select(folder, target=target)
    return folder


def _truths(pool: Path) -> Iterator[tuple[str, Sequence[str]]]:
    for line in (pool / "truth.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        yield one["study_uid"], one["labels"]


def built(curation: CurationFolder, root: Path, pool: Path, version: str, before: Version | None = None) -> Version:
    reading = read(pool / "films", mapping=curation.path("benchmark/mapping.yaml"), id_key=KEY)
    public, private = root / "public" / version, root / "private" / version
    build_folder(
        reading.splits, public, BENCHMARKS[NAME], version=version, holdout=private, holdout_split="holdout",
        previous=before and before.public, previous_holdout=before and before.private, extras=reading.extras,
        synthetic=True,
    )  # fmt: skip
    return Version(curation, public, private)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Version]:
    root = tmp_path_factory.mktemp("refresh")
    pool = root / "pool"
    write_curation_world(pool, n_studies=N_FIRST + N_LATER, seed=2, long_side=64)
    first = curated(root / "v1", pool, slice(0, N_FIRST), 30)
    split(first, pool / "facts.csv")
    old = built(first, root, pool, "1.0.0")
    later = curated(root / "later", pool, slice(N_FIRST, None), 10)
    placed = read_table(first.path("split.parquet"), Placed)
    corrected = [("study", "labels", "why")]
    corrected += [(one.study_id, "COPD" if one.labels != ("COPD",) else "None", "seen on CT") for one in placed[:5]]
    with (root / "corrections.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(corrected)
    second = CurationFolder.create(root / "v2", name="Chest", seed=1)
    refresh(second, first, corrections=root / "corrections.csv", additions=later, facts=pool / "facts.csv")
    return old, built(second, root, pool, "2.0.0", old)


def test_both_versions_load_and_nobody_changed_sides(versions: tuple[Version, Version]) -> None:
    old, new = versions
    sizes = {}
    for version in versions:
        rows = datasets.load_dataset(str(version.public), "multilabel", split="released")
        assert rows.num_rows == len(read_studies(version.public, "released"))
        sizes[read_folder_info(version.public).version] = (rows.num_rows, len(read_studies(version.private, "holdout")))
    assert sizes == {"1.0.0": (15, 15), "2.0.0": (20, 20)}
    before, after = (
        {(one.patient_id, half) for half, folder in (("released", v.public), ("holdout", v.private))
         for one in read_studies(folder, half)}
        for v in versions
    )  # fmt: skip
    assert before <= after
    assert len({patient for patient, _ in after}) == len(after) == 40
    assert new.curation.record("refresh") is not None
    relabelled = [
        one
        for half, folder, other in (("released", old.public, new.public), ("holdout", old.private, new.private))
        for one in read_studies(folder, half)
        if one.labels != {two.study_id: two for two in read_studies(other, half)}[one.study_id].labels
    ]
    assert len(relabelled) == 5


def test_the_board_shows_the_new_version_with_every_submission_scored_again(
    versions: tuple[Version, Version], tmp_path: Path, custody: Custody
) -> None:
    old, new = versions
    (tmp_path / "settings.toml").write_text(settings_of(NAME), encoding="utf-8")
    settings = load_settings(tmp_path / "settings.toml")
    data = tmp_path / "data"
    data.mkdir()
    store = Store(DATABASE_SOURCE.migrated("sqlite", data), settings)
    blobs, accounts = Blobs(data / "blobs"), Accounts(store.engine)
    published = [read_published(version.public, "holdout") for version in versions]
    vault = tmp_path / "vault"

    def work(*served: Version) -> None:
        holdouts = open_holdouts([(NAME, one.private) for one in served], shared=[data], vault=vault)
        Worker(store, blobs, holdouts, custody, settings).run(once=True)

    intake = Intake(store, blobs, Catalogue(store, published[:1]), custody, accounts)
    labels = read_folder_info(old.public).findings
    for name, quality in QUALITIES.items():
        file = tmp_path / f"{name}.jsonl"
        made = study_predictions(read_studies(old.private, "holdout"), labels, quality=quality, seed=1)
        file.write_text(findings_to_jsonl(made), encoding="utf-8")
        document = METADATA | {"model": {"name": name, "version": "1"}, "organization": f"{name} Laboratory"}
        with file.open("rb") as stream:
            metadata = read_metadata(json.dumps(document))
            intake.submit(stream, NAME, metadata, actor=accounts.local_actor(), filename=file.name, allow_missing=False)
    work(old)
    first = {submission.model_name: score for submission, score in store.board_rows(NAME, "1.0.0")}
    assert set(first) == set(QUALITIES)
    with store.read() as connection:
        first_receipts = [receipts.receipt_file(connection, score.submission_id, "1.0.0") for score in first.values()]
    # The server is started again with both folders, the worker with both holdouts.
    Catalogue(store, published)
    with store.write() as connection:
        assert start_refresh(connection, NAME, "2.0.0", who="cli:test") == 3
    work(old, new)
    with store.write() as connection:
        switch_version(connection, NAME, "2.0.0", who="cli:test")
    work(old, new)
    second = {submission.model_name: score for submission, score in store.board_rows(NAME, "2.0.0")}
    assert set(second) == set(QUALITIES)
    for score in second.values():
        assert "5 questions of this version have no answer and count as misses" in score.released["note"]
        assert score.shown_of == score.submission_id
    frozen = {submission.model_name: score.released for submission, score in store.board_rows(NAME, "1.0.0")}
    assert frozen == {name: score.released for name, score in first.items()}
    with store.read() as connection:
        for receipt in first_receipts:
            assert verify_receipt(receipt).receipt["version"] == "1.0.0"
            assert receipt == receipts.receipt_file(connection, receipt["receipt"]["submission"], "1.0.0")
        assert audit(connection, blobs=blobs).problems == ()
        current = boards.board(connection, NAME)
        assert current.version == "2.0.0"
        assert connection.execute(sa.text("SELECT count(*) FROM receipts")).scalar_one() == 6
