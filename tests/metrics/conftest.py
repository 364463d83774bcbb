"""Oracles that are called thousands of times do without looking at the types of their arguments each time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quick_oracle() -> Iterator[None]:
    from sklearn import config_context

    with config_context(skip_parameter_validation=True, assume_finite=True):
        yield
