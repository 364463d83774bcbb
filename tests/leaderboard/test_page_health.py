"""The maintainers' page of health: each part has a verdict and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store.blobs import Blobs, DiskSpace
from reveal_leaderboard.store.database import connect, size_of
from reveal_leaderboard.store.deliveries import Deliveries
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import jobs, workers
from reveal_leaderboard.web.pages.health import HealthPart, health_view, in_bytes, in_time, read_health

from tests.leaderboard.browser.world import IMAGES, STUDIES, World
from tests.leaderboard.databases import DATABASE_SOURCE, Kept

GB = 10**9


@pytest.fixture(scope="module")
def kept_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A board with one team, and one submission scored."""
    world = World(tmp_path_factory.mktemp("health"), mode="oidc")
    ada, north = world.member("Ada", "Northern Lab")
    world.ada, world.north = ada, north  # type: ignore[attr-defined]
    world.send(ada, north, "First")
    world.score(0.7)
    yield world
    world.store.engine.dispose()


@pytest.fixture
def world(kept_world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same board for every test, with room on its disk and a worker for every benchmark."""
    kept = Kept(kept_world.store.engine)
    kept_world.queue.beat_worker("one", [(IMAGES, "1.0.0"), (STUDIES, "1.0.0")], "rlimits, landlock-4, seccomp", None)
    monkeypatch.setattr(Blobs, "room", lambda blobs: DiskSpace(500 * GB, 1000 * GB, False))
    yield kept_world
    kept.put_back()


def part(world: World, name: str) -> HealthPart:
    return next(one for one in read_health(world.services) if one.name == name)


def change(world: World, query: Any) -> None:
    with world.store.write() as connection:
        connection.execute(query)


def test_a_board_that_works(world: World) -> None:
    parts = read_health(world.services)
    assert [one.name for one in parts] == ["Queue", "Workers", "Uploads", "Database", "Incidents", "Flags"]
    assert {one.state for one in parts} == {"good"}
    assert part(world, "Queue").value == "0 waiting"
    assert "1 submission scored in the last day, half of them within" in part(world, "Queue").explanation
    assert part(world, "Uploads").explanation == "Of 1.0 TB. 1 uploaded file, 1 kB in total."
    assert "The leaderboard works." in health_view(parts)


@pytest.mark.parametrize(
    ("waited", "state", "text"), [(10, "good", "1"), (300, "watch", "5 min"), (3600, "bad", "60 min")]
)
def test_a_queue_that_stands_still(world: Any, waited: float, state: str, text: str) -> None:
    sent = world.send(world.ada, world.north, "Second")
    change(world, jobs.update().where(jobs.c.subject == sent.id).values(created_at=jobs.c.created_at - waited))
    queue = part(world, "Queue")
    assert (queue.state, queue.value) == (state, "1 waiting")
    assert f"has waited {text}" in queue.explanation


def test_nobody_scores(world: World) -> None:
    change(world, workers.update().values(seen_at=workers.c.seen_at - 1000))
    assert part(world, "Workers").explanation == "Nothing is scored until you start a worker."
    assert "Check Workers." in health_view(read_health(world.services))


def test_a_board_that_no_worker_serves_is_named(world: World) -> None:
    change(world, workers.update().values(serves=[[IMAGES, "1.0.0"]]))
    part_of_page = part(world, "Workers")
    assert part_of_page.state == "bad"
    assert part_of_page.explanation == f"No worker scores {STUDIES} 1.0.0. Start a worker with the holdout."


def test_a_worker_whose_children_are_not_confined_is_named(world: World) -> None:
    change(world, workers.update().values(confinement="rlimits, no landlock, seccomp, no bubblewrap"))
    part_of_page = part(world, "Workers")
    assert (part_of_page.state, part_of_page.value[-5:]) == ("watch", "alive")
    assert "can read holdouts and vaults (there is neither Landlock nor bubblewrap)" in part_of_page.explanation


@pytest.mark.parametrize(
    ("room", "state", "text"),
    [
        (DiskSpace(40 * GB, 1000 * GB, False), "watch", "Of 1.0 TB"),  # less than a twentieth
        (DiskSpace(1 * GB, 4 * GB, False), "watch", "Of 4 GB"),  # less than 2 GB
        (DiskSpace(1 << 20, 1000 * GB, False), "bad", "is full, so nothing can be sent"),
        (DiskSpace(500 * GB, 1000 * GB, True), "bad", "is read-only, so nothing can be sent"),
        (None, "bad", "missing or unreadable, so nothing can be sent"),
    ],
)
def test_the_disk_of_uploads(
    world: World, monkeypatch: pytest.MonkeyPatch, room: DiskSpace | None, state: str, text: str
) -> None:
    monkeypatch.setattr(Blobs, "room", lambda blobs: room)
    part_of_page = part(world, "Uploads")
    assert part_of_page.state == state
    assert text in part_of_page.explanation


def test_the_disk_is_asked(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    room = blobs.room()
    assert room is not None
    assert 0 < room.free <= room.total
    (tmp_path / "blobs" / "incoming").rmdir()
    assert blobs.room() is None
    assert not blobs.has_room(0)


def test_an_incident_counts_for_a_day(world: Any) -> None:
    sent = world.send(world.ada, world.north, "Broken")
    world.queue.fail(world.work(), who="worker:1", why="secret", incident="INC-1")
    assert (part(world, "Incidents").state, part(world, "Incidents").value) == ("watch", "1")
    change(world, jobs.update().where(jobs.c.subject == sent.id).values(ended_at=jobs.c.ended_at - 25 * 3600))
    assert part(world, "Incidents").state == "good"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_size_of_a_database(kind: str, tmp_path: Path) -> None:
    engine = connect(DATABASE_SOURCE.migrated(kind, tmp_path))
    with engine.connect() as connection:
        size = size_of(connection)
    engine.dispose()  # SQLite then writes its log into the file
    if kind == "sqlite":
        assert size == Path(str(engine.url.database)).stat().st_size
    else:
        assert size > 1_000_000


def test_webhooks_are_told_where_there_are_any(world: Any, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[webhooks.chat]\nurl = "https://chat.example.org"\nevents = ["scored"]\n')
    services = replace(world.services, store=Store(world.store.engine.url, load_settings(tmp_path / "settings.toml")))
    outbox = Deliveries(world.store.engine)
    outbox.add_test("chat")
    webhooks = {row.name: row for row in read_health(services)}["Webhooks"]
    assert (webhooks.state, webhooks.value) == ("good", "1 waiting")
    refused = outbox.claim("chat")
    assert refused is not None
    outbox.note(refused, 410)
    webhooks = {row.name: row for row in read_health(services)}["Webhooks"]
    assert (webhooks.state, webhooks.value) == ("watch", "0 waiting")
    assert webhooks.explanation.startswith("1 failed in the last day, 0 are being retried")
    services.store.engine.dispose()


def test_figures_are_short() -> None:
    assert [in_bytes(n) for n in (0, 999, 1000, 12_340_000, 5e12, 2e15)] == [
        "0 bytes", "999 bytes", "1 kB", "12 MB", "5.0 TB", "2000.0 TB",
    ]  # fmt: skip
    assert [in_time(s) for s in (0, 119, 120, 7199, 7200, 3 * 86400)] == [
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2.0 h",
        "3 days",
    ]
