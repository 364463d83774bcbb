"""A loopback Hub, users with tokens, and small folders to publish."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.sources.source import Pixels
from tests.conftest import random_records
from tests.dataset.hub.clients import Client
from tests.dataset.hub.fake_hub import FakeHub

MAINTAINER, VAULT, READER = "hf_maintainer_0123456789", "hf_vault_0123456789abcd", "hf_reader_0123456789abc"
"""Tokens: one that may write to `org` but sees nothing of the holdouts, one for the holdouts alone, one of a guest."""


@pytest.fixture(scope="session")
def hub() -> Iterator[FakeHub]:
    """One Hub for all tests; each test uses its own repositories."""
    with FakeHub() as hub:
        hub.account(MAINTAINER, "maintainer", "org")
        hub.account(VAULT, "keeper", "vault")
        hub.account(READER, "reader")
        yield hub


@pytest.fixture(autouse=True)
def _no_fault_is_left(hub: FakeHub) -> Iterator[None]:
    yield
    hub.release()
    hub.before.clear()


@pytest.fixture
def empty_store(hub: FakeHub) -> None:
    """Many tests publish the same files, so each test begins with a Hub that has none of them."""
    hub.store.objects.clear()
    hub.store.received.clear()
    hub.counts.clear()


@pytest.fixture(scope="session")
def publisher(hub: FakeHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A user with this project."""
    client = Client(hub.endpoint, tmp_path_factory.mktemp("publisher"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def stranger(hub: FakeHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A user with `datasets`, and nothing of this project."""
    client = Client(hub.endpoint, tmp_path_factory.mktemp("stranger"), is_stranger=True)
    yield client
    client.close()


@dataclass(frozen=True)
class Folders:
    public: Path
    vault: Path


def records_with_hashes(n: int) -> list[LocalizationRecord]:
    """Random records; each names the file of a download by its sha256."""
    records = random_records(np.random.default_rng(11), n)
    return [replace(record, source_sha256=f"{i + 1:064x}") for i, record in enumerate(records)]


def build(
    root: Path,
    *,
    version: str = "1.0.0",
    synthetic: bool = True,
    pixels: Pixels = "withhold",
    seed: int = 3,
    previous: Folders | None = None,
    change: Callable[[LocalizationRecord], LocalizationRecord] = lambda record: record,
) -> Folders:
    """Sixteen images of eight patients, four of them held out, and four images of validation."""
    records = [change(record) for record in records_with_hashes(20)]
    build_folder(
        {"validation": records[16:], "test": records[:16]},
        root / "public",
        BENCHMARKS["chexlocalize"],
        version=version,
        pixels=pixels,
        holdout=root / "vault",
        previous=previous and previous.public,
        previous_holdout=previous and previous.vault,
        seed=seed,
        synthetic=synthetic,
    )
    return Folders(root / "public", root / "vault")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Version 1.0.0, never changed."""
    return build(tmp_path_factory.mktemp("v1"))


@pytest.fixture
def copied(folders: Folders, tmp_path: Path) -> Folders:
    """A copy of version 1.0.0 for a test to damage."""
    for name in ("public", "vault"):
        shutil.copytree(getattr(folders, name), tmp_path / name)
    return Folders(tmp_path / "public", tmp_path / "vault")
