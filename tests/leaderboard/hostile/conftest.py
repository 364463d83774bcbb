"""One pair of boards for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.leaderboard.hostile.understanding", "tests.leaderboard.hostile.world")

from tests.leaderboard.conftest import Board  # noqa: E402
from tests.leaderboard.hostile.world import TwoBoards, two_boards  # noqa: E402


@pytest.fixture(scope="module")
def boards(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBoards]:
    with two_boards(board, tmp_path_factory.mktemp("hostile")) as world:
        yield world
