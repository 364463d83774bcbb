"""A synthetic REVEAL-CXR download, and the CheXlocalize one of the tests of dataset folders."""

import json

import pytest

from reveal_bench.phantom import write_reveal
from tests.conftest import made_once
from tests.dataset.conftest import benchmark, copy, download, record  # noqa: F401  (fixtures)

N, SEED, SIDE = 15, 8, 96
"""Studies of the download, what they are drawn from, and the longer side of their films."""


@pytest.fixture(scope="session")
def reveal_download(tmp_path_factory):
    """Studies with every rare way to store an image, and with every kind of other file; never changed."""

    def make(root):
        write_reveal(root, n_studies=N, seed=SEED, long_side=SIDE)

    return made_once(tmp_path_factory, "reveal-cxr", make)


@pytest.fixture(scope="session")
def truth(reveal_download):
    return [json.loads(line) for line in (reveal_download / "truth.jsonl").read_text().splitlines()]
