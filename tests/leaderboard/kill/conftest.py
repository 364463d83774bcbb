"""Failures in the shared modules of the kill tests are reported in full, as in tests."""

import pytest

pytest.register_assert_rewrite("tests.leaderboard.kill.arena", "tests.leaderboard.kill.drills")
