"""One browser for the tests of a module, so that Gradio's scripts are loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.leaderboard.browser.browsing import running_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def context(browser: Any) -> Any:
    return browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
