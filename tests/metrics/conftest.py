"""Switch off type checks of oracles that are called thousands of times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quick_oracle() -> Iterator[None]:
    from sklearn import config_context

    with config_context(skip_parameter_validation=True, assume_finite=True):
        yield
