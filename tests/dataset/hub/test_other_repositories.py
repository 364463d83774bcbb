"""Repositories that hold something else are left alone."""

from __future__ import annotations

import re

import pytest

from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, Folders
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.snippets import CREATE, PUBLISH

OPTIONS = {"token": MAINTAINER, "private": False}


@pytest.fixture
def made(hub: FakeHub, publisher: Client, request: pytest.FixtureRequest) -> str:
    """An empty public repository with a name of its own."""
    repo_id = "org/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    publisher.value(CREATE, repo_id=repo_id, private=False, token=MAINTAINER)
    return repo_id


def test_one_made_on_the_web_page_is_filled(hub: FakeHub, publisher: Client, folders: Folders, made: str) -> None:
    hub.repo(made).change("README.md", b"---\nlicense: other\n---\n")
    hub.repo(made).change("LICENSE", b"terms\n")
    done = publisher.value(PUBLISH, folder=folders.public, repo_id=made, options=OPTIONS)
    assert done["n_removed"] == 1
    assert "SYNTHETIC" in hub.store.text_of(made, "v1.0.0", "README.md")


def test_files_of_somebody_else_are_not_removed(hub: FakeHub, publisher: Client, folders: Folders, made: str) -> None:
    head = hub.repo(made).change("train.csv", b"years of work")
    outcome = publisher.run(PUBLISH, folder=folders.public, repo_id=made, options=OPTIONS)
    assert outcome.names[0] == "PublishRefusedError"
    assert ("`files` must belong to a dataset folder, because other files would be removed, got train.csv") in (
        outcome.error or ""
    )
    assert hub.repo(made).head == head


def test_another_benchmark_is_not_replaced(hub: FakeHub, publisher: Client, folders: Folders, made: str) -> None:
    info = b'{"benchmark": "chestx-det", "splits": {"test": {"references": "public"}}}'
    head = hub.repo(made).change("manifest/benchmark.json", info)
    outcome = publisher.run(PUBLISH, folder=folders.public, repo_id=made, options=OPTIONS)
    assert "`benchmark` must be chexlocalize, the benchmark of the folder, got 'chestx-det'" in (outcome.error or "")
    assert hub.repo(made).head == head
    hub.repo(made).change("manifest/benchmark.json", b"not JSON")
    broken = publisher.run(PUBLISH, folder=folders.public, repo_id=made, options=OPTIONS)
    assert "`benchmark` must be chexlocalize, the benchmark of the folder, got None" in (broken.error or "")


@pytest.mark.parametrize("private", [True, False])
def test_visibility_is_never_changed(
    hub: FakeHub, publisher: Client, folders: Folders, made: str, private: bool
) -> None:
    hub.repo(made).private = not private
    options = {**OPTIONS, "private": private}
    outcome = publisher.run(PUBLISH, folder=folders.public, repo_id=made, options=options)
    must = "private" if private else "public"
    assert (f"`visibility` must be {must}, as requested; an existing repository's visibility is never changed") in (
        outcome.error or ""
    )
    assert hub.repo(made).private is not private
    assert len(hub.repo(made).commits) == 1


def test_a_name_that_is_taken_by_what_the_token_cannot_see(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    hub.account("hf_narrow_0123456789", "narrow", "org", only=("org/mine",))
    publisher.value(CREATE, repo_id="org/hidden", private=True, token=MAINTAINER)
    options = {"token": "hf_narrow_0123456789", "private": True}
    outcome = publisher.run(PUBLISH, folder=folders.public, repo_id="org/hidden", options=options)
    assert outcome.names[0] == "HubError"
    assert "the token is not authorised to do this with" in (outcome.error or "")
    assert "hf_narrow" not in (outcome.error or "") + outcome.printed
