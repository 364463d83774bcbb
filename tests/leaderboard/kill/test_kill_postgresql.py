"""Kill tests on PostgreSQL; see :mod:`tests.leaderboard.kill.drills`."""

from __future__ import annotations

import pytest

from tests.leaderboard.kill.drills import Drills, places
from tests.leaderboard.kill.orders import AT_THE_DATABASE

place = places("postgresql")


@pytest.mark.processes
class TestKill(Drills):
    few = AT_THE_DATABASE
