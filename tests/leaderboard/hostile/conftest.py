"""Failures in shared modules are told as well as those in tests."""

import pytest

pytest.register_assert_rewrite("tests.leaderboard.hostile.understanding", "tests.leaderboard.hostile.world")
