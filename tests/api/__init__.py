"""Tests of :mod:`reveal_bench.api`."""
