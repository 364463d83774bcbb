"""Kill tests on PostgreSQL; see :mod:`tests.leaderboard.kill.drills`."""

from __future__ import annotations

import pytest

from tests.leaderboard.kill.drills import Drills, places

place = places("postgresql")


@pytest.mark.processes
class TestKill(Drills):
    pass
