"""The environment with torch that `make soak` makes, and the mark of tests that need it."""

from __future__ import annotations

import os

import pytest

__all__ = ["PYTHON", "needs_torch"]

PYTHON = os.environ.get("REVEAL_PEERS_PYTHON")
needs_torch = pytest.mark.skipif(PYTHON is None, reason="needs torch in an environment of its own: make soak")
