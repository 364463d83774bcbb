"""Templates that run hostile jobs, and one custody for all tests of a worker process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from reveal_leaderboard.custody import Custody, JailLimits
from reveal_leaderboard.custody.fork_client import TemplateService, bubblewrap_works

ROOT = Path(__file__).parents[3]
SMALL = JailLimits(
    memory=256 << 20, cpu_seconds=2, wall_seconds=20.0, file_bytes=2 << 20, open_files=64, answer_bytes=1 << 20
)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("custody")


@pytest.fixture(scope="session", params=["plain", "bubblewrap"])
def jail(request: pytest.FixtureRequest, scratch: Path) -> Iterator[TemplateService]:
    """A template of hostile jobs, with and without bubblewrap."""
    wrapped = request.param == "bubblewrap"
    if wrapped and not bubblewrap_works():
        pytest.skip("bubblewrap is not installed, or not allowed here")
    made = make_jail(scratch, wrapped=wrapped)
    yield made
    made.close()


def make_jail(scratch: Path, *, wrapped: bool = False, lanes: int = 4) -> TemplateService:
    module = "tests.leaderboard.custody.hostile"
    return TemplateService(module, scratch, lanes=lanes, limits=SMALL, paths=[ROOT], wrapped=wrapped)


@pytest.fixture(scope="session")
def custody(scratch: Path) -> Iterator[Custody]:
    with Custody(scratch, bubblewrap=False) as kept:
        yield kept
