"""The small gallery that tests here look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.viewer.shown import Shown, make_shown


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory, twin_of: Callable[[str], Path]) -> Shown:
    return make_shown(tmp_path_factory.mktemp("shown"), twin_of("chexlocalize"))
