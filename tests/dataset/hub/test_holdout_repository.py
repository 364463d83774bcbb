"""A holdout's references: a private repository with its own token, and no trace of them anywhere else."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq
import pytest

from reveal_bench.kinds.localization.records import read_localization
from tests.conftest import files_of
from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, READER, VAULT, Folders
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.snippets import CREATE, LOAD, PUBLISH, PUBLISH_HOLDOUT


def test_it_goes_to_a_private_repository_that_its_own_token_alone_reads(
    hub: FakeHub, publisher: Client, stranger: Client, folders: Folders
) -> None:
    repo_id, before = "vault/chexlocalize-holdout", len(hub.log)
    done = publisher.value(PUBLISH_HOLDOUT, folder=folders.vault, repo_id=repo_id, options={"token": VAULT})
    assert hub.repo(repo_id).private
    assert hub.repo(repo_id).tags == {"v1.0.0": done["commit"]}
    where = {"repo_id": repo_id, "split": "holdout", "revision": "v1.0.0", "streaming": False}
    for token in (False, MAINTAINER, READER):
        refused = stranger.run(LOAD, token=token, **where)
        assert {"DatasetNotFoundError", "RepositoryNotFoundError"} & set(refused.names)
    assert len(stranger.value(LOAD, token=VAULT, **where)) == 8
    answered = [request for request in hub.log[before:] if request.status < 300 and repo_id in request.path]
    assert answered
    assert all(request.has_token for request in answered)


@pytest.mark.parametrize("login", ["", "os.environ['HF_TOKEN'] = options['token']"])
def test_the_token_of_the_public_repositories_is_refused(
    hub: FakeHub, publisher: Client, folders: Folders, login: str
) -> None:
    before = len(hub.log)
    code = f"""
        import os
        {login}
        try:
            from reveal_bench.dataset.hub import publish_holdout
            publish_holdout(folder, "vault/never", **options)
        finally:
            os.environ.pop("HF_TOKEN", None)
    """
    options = {"token": MAINTAINER, "public_token": None if login else MAINTAINER}
    outcome = publisher.run(code, folder=folders.vault, options=options)
    assert "`token` of a holdout must differ from" in (outcome.error or "")
    none = publisher.run(code, folder=folders.vault, options={"token": "", "public_token": None})
    assert "`token` must be given for a holdout" in (none.error or "")
    assert len(hub.log) == before


def test_a_public_repository_is_refused(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    publisher.value(CREATE, repo_id="vault/open", private=False, token=VAULT)
    outcome = publisher.run(PUBLISH_HOLDOUT, folder=folders.vault, repo_id="vault/open", options={"token": VAULT})
    assert outcome.names[0] == "PublishRefusedError"
    assert "`visibility` must be private" in (outcome.error or "")
    assert len(hub.repo("vault/open").commits) == 1


def test_it_does_not_replace_a_public_folder_nor_the_reverse(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    public = {"token": VAULT, "private": True, "tag": "v0.1.0"}
    publisher.value(PUBLISH, folder=folders.public, repo_id="vault/public", options=public)
    outcome = publisher.run(PUBLISH_HOLDOUT, folder=folders.vault, repo_id="vault/public", options={"token": VAULT})
    assert "`references` must be private, as in the folder" in (outcome.error or "")
    publisher.value(PUBLISH_HOLDOUT, folder=folders.vault, repo_id="vault/refs", options={"token": VAULT})
    reverse = publisher.run(PUBLISH, folder=folders.public, repo_id="vault/refs", options=public)
    assert "`references` must be public, as in the folder" in (reverse.error or "")
    assert len(hub.repo("vault/public").commits) == len(hub.repo("vault/refs").commits) == 2


@pytest.mark.usefixtures("empty_store")
def test_nothing_of_it_and_no_token_is_in_what_a_public_folder_sends(
    hub: FakeHub, publisher: Client, folders: Folders
) -> None:
    before = len(hub.log)
    options = {"token": MAINTAINER, "private": False, "holdout": str(folders.vault)}
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/quiet", options=options)
    requests = hub.log[before:]
    bodies = [request.body for request in requests if request.body]
    parquet = [pq.read_table(io.BytesIO(body)).to_pylist() for body in bodies if body[:4] == b"PAR1"]
    tables = [json.dumps(rows, default=bytes.hex) for rows in parquet]
    assert len(tables) == sum(name.endswith(".parquet") for name in files_of(folders.public))
    texts = [body.decode() for body in bodies if body[:4] != b"PAR1"] + tables
    records = read_localization(folders.vault, "holdout")
    assert len(records) == 8
    for record in records:
        with_id = [text for text in texts if f'"{record.image_id}"' in text]
        assert len(with_id) == 1  # the manifest of the split, which is public
        assert '"asked"' in with_id[0]
        for secret in (f'"{record.patient_id}"', record.source_sha256 or "?"):
            assert not [text for text in texts if secret in text]

    seen = "".join(request.path for request in requests) + "".join(texts) + "".join(publisher.everything_printed)
    assert [token for token in (MAINTAINER, VAULT, READER) if token in seen] == []
    # objects go to another host, with a signed address and without the token
    uploads = [request for request in requests if request.method == "PUT"]
    assert {(request.host, request.has_token) for request in uploads} == {("localhost", False)}
