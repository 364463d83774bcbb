"""The kill tests on PostgreSQL, with the uploads in a bucket."""

from __future__ import annotations

import pytest

from tests.leaderboard.kill.drills import Drills, place
from tests.leaderboard.kill.many_kills import ManyKills, takes_minutes
from tests.leaderboard.kill.orders import AT_THE_DATABASE

__all__ = ["place"]


@pytest.mark.processes
class TestOnPostgreSQL(Drills):
    kind, few = "postgresql", AT_THE_DATABASE


@pytest.mark.processes
@takes_minutes
class TestManyKillsOnPostgreSQL(ManyKills):
    kind = "postgresql"
