"""A card with gate texts gates its repository before the first file is sent."""

from __future__ import annotations

import pytest

from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, Folders, build
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.fake_repo import RefusalError
from tests.dataset.hub.snippets import CREATE, PUBLISH
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
    assert "the token may not do this with" in (outcome.error or "")
    assert len(hub.repo("org/closed").commits) == 1, "the Hub's own, with .gitattributes"


def test_the_dry_run_says_so(publisher: Client, real: Folders) -> None:
    out = printed(publisher, real.public, "org/dry-gated", "--dry-run")
    line = "chexlocalize 1.0.0, no problems -> org/dry-gated (private, gated: access is asked for), tag v1.0.0"
    assert f"{real.public}: {line}" in out.splitlines()
