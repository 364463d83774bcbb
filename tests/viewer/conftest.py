"""The small gallery for the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.viewer.gallery_sample import GallerySample, make_gallery_sample


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory, twin_of: Callable[[str], Path]) -> GallerySample:
    return make_gallery_sample(tmp_path_factory.mktemp("gallery"), twin_of("chexlocalize"))
