"""The kill tests on SQLite, with the uploads in a folder."""

from __future__ import annotations

import pytest

from tests.leaderboard.kill.drills import Drills, place
from tests.leaderboard.kill.many_kills import ManyKills, takes_minutes
from tests.leaderboard.kill.orders import EACH_STATE

__all__ = ["place"]


@pytest.mark.processes
class TestOnSQLite(Drills):
    kind, few = "sqlite", EACH_STATE


@pytest.mark.processes
@takes_minutes
class TestManyKillsOnSQLite(ManyKills):
    kind = "sqlite"
