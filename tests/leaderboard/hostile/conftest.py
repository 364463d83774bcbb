"""Failures in shared modules are reported in full, as in tests."""

import pytest

pytest.register_assert_rewrite("tests.leaderboard.hostile.understanding", "tests.leaderboard.hostile.world")
