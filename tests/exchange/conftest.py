"""Small dataset folders with pictures that tests here convert."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.sources import SOURCE_MODULES
from tests.conftest import made_once


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, twin_of: Callable[[str], Path]) -> Callable[[str], Path]:
    """Name of a benchmark -> a small public folder of it with pictures, a half held out."""

    def folder(name: str) -> Path:
        def make(root: Path) -> None:
            key = {"id_key": bytes(32)} if name == "reveal-cxr" else {}
            splits = SOURCE_MODULES[name].read(twin_of(name), pixels="embed", keep_going=False, **key).splits
            build_folder(splits, root / "public", BENCHMARKS[name], holdout=root / "vault", seed=1, synthetic=True)

        return made_once(tmp_path_factory, f"exchanged-{name}", make) / "public"

    return folder
