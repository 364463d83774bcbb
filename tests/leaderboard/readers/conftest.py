"""One synthetic pool, and one board of answers, for tests of the annotation page; each has a data folder of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from reveal_leaderboard.custody import Custody

from tests.leaderboard.readers.reading_world import Pool, make_pool
from tests.leaderboard.readers.rubric_world import Waiting, build_pictured_board, waiting_in
from tests.leaderboard.task_world import Room


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    pytest.importorskip("pydicom")
    return make_pool(tmp_path_factory.mktemp("readers"))


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory, custody: Custody) -> Iterator[Waiting]:
    """Read only: a test that brings ratings in has a room of its own."""
    root = tmp_path_factory.mktemp("rubric")
    room = Room(build_pictured_board(root), root / "data", custody)
    yield waiting_in(room, root / "answers.csv")
    room.store.engine.dispose()
