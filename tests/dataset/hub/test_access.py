"""Gated, private and missing repositories: the errors that users without access get, and our message for each."""

from __future__ import annotations

import pytest

from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, READER, VAULT, Folders
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.snippets import EXPLAINED_DOWNLOAD, EXPLAINED_LOAD, LOAD, PUBLISH

WHERE = {"split": "validation", "revision": "v1.0.0", "streaming": False}


@pytest.fixture(scope="module")
def gated(hub: FakeHub, publisher: Client, folders: Folders) -> str:
    options = {"token": MAINTAINER, "private": False}
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/gated", options=options)
    publisher.value(
        "from huggingface_hub import HfApi\n"
        "HfApi(token=token).update_repo_settings('org/gated', gated='manual', repo_type='dataset')",
        token=MAINTAINER,
    )
    assert hub.repo("org/gated").gated
    return "org/gated"


@pytest.fixture(scope="module")
def private(hub: FakeHub, publisher: Client, folders: Folders) -> str:
    options = {"token": MAINTAINER, "private": True}
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/private", options=options)
    assert hub.repo("org/private").private
    return "org/private"


def test_gated(hub: FakeHub, publisher: Client, stranger: Client, gated: str) -> None:
    before = len(hub.log)
    nobody = stranger.run(LOAD, repo_id=gated, token=False, **WHERE)
    guest = stranger.run(LOAD, repo_id=gated, token=READER, **WHERE)
    assert nobody.names[0] == guest.names[0] == "DatasetNotFoundError"
    statuses = {(request.has_token, request.status) for request in hub.log[before:] if "/resolve/" in request.path}
    assert statuses == {(False, 401), (True, 403)}
    for token in (False, READER):
        for code in (EXPLAINED_LOAD, EXPLAINED_DOWNLOAD):
            outcome = publisher.run(code, repo_id=gated, revision="v1.0.0", token=token)
            assert outcome.names[0] == "HubError"
            assert f"{hub.endpoint}/datasets/org/gated is gated: request access" in (outcome.error or "")
    hub.repo(gated).granted.add("reader")
    assert len(stranger.value(LOAD, repo_id=gated, token=READER, **WHERE)) == 4


@pytest.mark.parametrize("token", [False, READER, VAULT])
def test_private_looks_as_if_it_did_not_exist(
    hub: FakeHub, publisher: Client, stranger: Client, private: str, token: str | bool
) -> None:
    outcome = stranger.run(LOAD, repo_id=private, token=token, **WHERE)
    assert {"DatasetNotFoundError", "RepositoryNotFoundError"} & set(outcome.names)
    for code in (EXPLAINED_LOAD, EXPLAINED_DOWNLOAD):
        for repo_id in (private, "org/missing"):
            explained = publisher.run(code, repo_id=repo_id, revision="v1.0.0", token=token)
            assert explained.names[0] == "HubError"
            sentence = f"{hub.endpoint}/datasets/{repo_id} does not exist, or it is private and your token"
            assert sentence in (explained.error or "")


def test_private_is_loaded_with_the_token(stranger: Client, private: str) -> None:
    assert len(stranger.value(LOAD, repo_id=private, token=MAINTAINER, **WHERE)) == 4


def test_a_revision_that_is_not_there(publisher: Client, gated: str) -> None:
    for code in (EXPLAINED_LOAD, EXPLAINED_DOWNLOAD):
        outcome = publisher.run(code, repo_id=gated, revision="v9.9.9", token=MAINTAINER)
        assert outcome.names[0] == "HubError"
        assert "org/gated has no such revision" in (outcome.error or "")


def test_no_hub_answers(publisher: Client, folders: Folders) -> None:
    # port 9 (discard) of loopback: nobody listens there
    options = {"token": MAINTAINER, "private": False, "endpoint": "http://127.0.0.1:9"}
    outcome = publisher.run(PUBLISH, folder=folders.public, repo_id="org/nowhere", options=options)
    assert outcome.names[0] == "HubError"
    assert "http://127.0.0.1:9/datasets/org/nowhere did not answer" in (outcome.error or "")


def test_other_errors_pass_unchanged(publisher: Client) -> None:
    code = """
        from reveal_bench.dataset.hub import hub_errors
        with hub_errors("org/name"):
            {}["key"]
    """
    assert publisher.run(code).names[0] == "KeyError"
