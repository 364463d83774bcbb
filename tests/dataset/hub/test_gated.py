"""A card with gate texts gates its repository before the first file is sent."""

from __future__ import annotations

import pytest

from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, Folders, build
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.fake_repo import RefusalError
from tests.dataset.hub.snippets import CHECK_THERE, CREATE, PUBLISH
from tests.dataset.hub.test_cli_publish import printed

OPTIONS = {"token": MAINTAINER, "private": True}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """A folder that counts as CheXlocalize's own data, whose card asks people to sign."""
    return build(tmp_path_factory.mktemp("real"), synthetic=False)


def test_it_is_gated_before_anything_is_sent(hub: FakeHub, publisher: Client, real: Folders) -> None:
    gated: list[bool] = []
    hub.do_before("preupload", lambda: gated.append(hub.repo("org/signed").gated))
    publisher.value(PUBLISH, folder=real.public, repo_id="org/signed", options=OPTIONS)
    repo = hub.repo("org/signed")
    assert (gated, repo.gated, repo.private) == ([True], True, True)


def test_an_open_repository_is_gated_with_the_next_version(hub: FakeHub, publisher: Client, real: Folders) -> None:
    publisher.value(CREATE, repo_id="org/opened", private=True, token=MAINTAINER)
    publisher.value(PUBLISH, folder=real.public, repo_id="org/opened", options=OPTIONS)
    assert hub.repo("org/opened").gated
    hub.repo("org/opened").gated = False
    publisher.value(PUBLISH, folder=real.public, repo_id="org/opened", options=OPTIONS)  # which has nothing to send
    assert hub.repo("org/opened").gated


def test_without_gate_texts_the_setting_is_left_alone(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/drawn", options=OPTIONS)
    assert not hub.repo("org/drawn").gated
    assert "/api/datasets/org/drawn/settings" not in {request.path for request in hub.log}


def test_nothing_is_sent_where_the_gate_is_refused(hub: FakeHub, publisher: Client, real: Folders) -> None:
    def refuse() -> None:
        raise RefusalError(403, "settings are for admins")

    hub.do_before("settings", refuse)
    outcome = publisher.run(PUBLISH, folder=real.public, repo_id="org/closed", options=OPTIONS)
    assert "the token is not authorised to do this with" in (outcome.error or "")
    assert len(hub.repo("org/closed").commits) == 1, "the Hub's own, with .gitattributes"


@pytest.mark.parametrize("refusal", ["files", "parent", "missing"])
def test_a_repository_that_is_refused_is_left_as_it_was(
    hub: FakeHub, publisher: Client, real: Folders, refusal: str
) -> None:
    repo_id, options, error = f"org/refused-{refusal}", OPTIONS, "ParentMovedError"
    if refusal != "missing":
        publisher.value(CREATE, repo_id=repo_id, private=True, token=MAINTAINER)
    if refusal == "files":
        hub.repo(repo_id).change("train.csv", b"years of work")
        error = "PublishRefusedError"
    else:
        options = {**OPTIONS, "parent": "abc"}
    outcome = publisher.run(PUBLISH, folder=real.public, repo_id=repo_id, options=options)
    assert outcome.names[0] == error
    if refusal == "missing":
        assert repo_id not in hub.store.repos
    else:
        assert not hub.repo(repo_id).gated


def test_looking_at_a_repository_does_not_gate_it(hub: FakeHub, publisher: Client, real: Folders) -> None:
    publisher.value(CREATE, repo_id="org/looked-at", private=True, token=MAINTAINER)
    publisher.value(CHECK_THERE, folder=real.public, repo_id="org/looked-at", token=MAINTAINER)
    assert not hub.repo("org/looked-at").gated


@pytest.mark.parametrize(
    ("setting", "rule"),
    [("gated", "must be gated, as the card says"), ("private", "must be private, as requested")],
)
def test_one_that_is_opened_during_the_commit_is_not_tagged(
    hub: FakeHub, publisher: Client, real: Folders, setting: str, rule: str
) -> None:
    repo_id = f"org/opened-{setting}"
    hub.do_before("commit", lambda: setattr(hub.repo(repo_id), setting, False))
    outcome = publisher.run(PUBLISH, folder=real.public, repo_id=repo_id, options=OPTIONS)
    assert outcome.names[0] == "HubError"
    assert f"{rule}, but this changed during the upload." in (outcome.error or "")
    assert hub.repo(repo_id).tags == {}
    hub.repo(repo_id).private = True
    publisher.value(PUBLISH, folder=real.public, repo_id=repo_id, options=OPTIONS)
    assert (hub.repo(repo_id).gated, list(hub.repo(repo_id).tags)) == (True, ["v1.0.0"])


def test_the_dry_run_says_so(publisher: Client, real: Folders) -> None:
    out = printed(publisher, real.public, "org/dry-gated", "--dry-run")
    line = "chexlocalize 1.0.0, no problems -> org/dry-gated (private, gated: access must be requested), tag v1.0.0"
    assert f"{real.public}: {line}" in out.splitlines()
