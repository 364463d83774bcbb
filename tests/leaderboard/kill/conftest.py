"""Failures in the shared modules of the kill tests are told as well as those in tests."""

import pytest

pytest.register_assert_rewrite("tests.leaderboard.kill.arena", "tests.leaderboard.kill.drills")
