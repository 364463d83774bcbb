"""A benchmark of studies is published, refreshed and published again: both revisions load, each with its labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, Folders
from tests.dataset.hub.snippets import PUBLISH
from tests.dataset.hub.test_kinds_published import study

LOAD = """
    from datasets import load_dataset
    rows = load_dataset(repo_id, "multilabel", split="released", revision=revision, token=token)
    names = rows.features["labels"].feature.names
    result = {row["study_id"]: [names[code] for code in row["labels"]] for row in rows}
"""


def test_the_revision_before_a_refresh_still_loads(publisher: Client, stranger: Client, tmp_path: Path) -> None:
    films = tmp_path / "films"
    films.mkdir()
    studies = [study(films, i) for i in range(12)]
    first = {"released": studies[:4], "holdout": studies[4:8]}
    corrected = replace(studies[0], labels=("Pneumothorax",), agreement=None)
    second = {"released": [corrected, *studies[1:4], *studies[8:10]], "holdout": [*studies[4:8], *studies[10:]]}
    before: Folders | None = None
    for version, halves in (("1.0.0", first), ("2.0.0", second)):
        folders = Folders(tmp_path / version / "public", tmp_path / version / "vault")
        build_folder(
            halves, folders.public, BENCHMARKS["reveal-cxr"], version=version, holdout=folders.vault,
            holdout_split="holdout", synthetic=True,
            previous=before.public if before else None, previous_holdout=before.vault if before else None,
        )  # fmt: skip
        options = {"token": MAINTAINER, "private": False}
        publisher.value(PUBLISH, folder=folders.public, repo_id="org/refreshed", options=options)
        before = folders
    loaded = {}
    for revision in ("v1.0.0", "v2.0.0"):
        loaded[revision] = stranger.value(LOAD, repo_id="org/refreshed", revision=revision, token=None)
    old = {f"study{i}": ["COPD"] for i in range(4)}
    assert loaded["v1.0.0"] == old
    assert loaded["v2.0.0"] == old | {"study0": ["Pneumothorax"], "study8": ["COPD"], "study9": ["COPD"]}
