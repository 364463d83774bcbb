"""One synthetic pool for all tests of the annotation page; every test has a data folder of its own."""

from __future__ import annotations

import pytest

from tests.leaderboard.readers.reading_world import Pool, make_pool


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    pytest.importorskip("pydicom")
    return make_pool(tmp_path_factory.mktemp("readers"))
