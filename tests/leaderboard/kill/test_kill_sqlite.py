"""Kill tests on SQLite; see :mod:`tests.leaderboard.kill.drills`."""

from __future__ import annotations

import pytest

from tests.leaderboard.kill.drills import Drills, places
from tests.leaderboard.kill.orders import EACH_STATE

place = places("sqlite")


@pytest.mark.processes
class TestKill(Drills):
    few = EACH_STATE
