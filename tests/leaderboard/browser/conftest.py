"""One browser context for the tests of a module, so that Gradio's scripts are loaded once."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="module")
def context(browser: Any) -> Any:
    return browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
