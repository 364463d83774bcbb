"""Publishing with the real client: one commit, one tag, and versions that anybody loads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reveal_bench.kinds.localization.records import LocalizationRecord
from tests.conftest import files_of
from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, READER, Folders, build
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.snippets import LOAD, LOADED_AGAIN, PUBLISH

CORRECTED = "patient00008_study1_view1_frontal"
OPTIONS = {"token": MAINTAINER, "private": False}


@pytest.fixture(scope="session")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Version 1.1.0: the label `Cardiomegaly` of one image of the validation split is corrected."""

    def correct(record: LocalizationRecord) -> LocalizationRecord:
        if record.image_id != CORRECTED:
            return record
        flipped = 1 - (record.label_status["Cardiomegaly"] or 0)
        kept = tuple(a for a in record.annotations if a.finding != "Cardiomegaly")
        status = {**record.label_status, "Cardiomegaly": flipped}
        return replace(record, label_status=status, annotations=kept, missing=("Cardiomegaly",) * flipped)

    return build(tmp_path_factory.mktemp("v2"), version="1.1.0", change=correct)


def test_publish_tag_load_refresh_load_both(
    hub: FakeHub, publisher: Client, stranger: Client, folders: Folders, refreshed: Folders
) -> None:
    repo_id = "org/versions"
    first = publisher.value(PUBLISH, folder=folders.public, repo_id=repo_id, options=OPTIONS)
    assert (first["n_uploaded"], first["n_unchanged"], first["n_removed"]) == (len(files_of(folders.public)), 0, 0)
    assert first["url"] == f"{hub.endpoint}/datasets/{repo_id}/tree/v1.0.0"
    repo = hub.repo(repo_id)
    assert repo.tags == {"v1.0.0": first["commit"]}
    assert len(repo.commits) == 2  # the Hub's own and ours
    assert not repo.private

    second = publisher.value(PUBLISH, folder=refreshed.public, repo_id=repo_id, options=OPTIONS)
    assert repo.tags == {"v1.0.0": first["commit"], "v1.1.0": second["commit"]}
    assert repo.commits[second["commit"]].parent == first["commit"]
    # the halves of the split `test` and their manifests are as they were
    same = {n for n, data in files_of(folders.public).items() if files_of(refreshed.public)[n] == data}
    assert "localization/released-00000-of-00001.parquet" in same
    assert second["n_unchanged"] == len(same)
    assert "1.1.0" in hub.store.text_of(repo_id, "v1.1.0", "README.md")
    assert "1.1.0" not in hub.store.text_of(repo_id, "v1.0.0", "README.md")

    assert "ModuleNotFoundError" in stranger.run("import reveal_bench").names
    where = {"repo_id": repo_id, "split": "validation", "token": False}
    old = stranger.value(LOAD, revision="v1.0.0", streaming=False, **where)
    new = stranger.value(LOAD, revision="v1.1.0", streaming=False, **where)
    assert old.keys() == new.keys()
    assert len(old) == 4
    differing = {(row, finding) for row in old for finding in old[row] if old[row][finding] != new[row][finding]}
    assert differing == {(CORRECTED, "Cardiomegaly")}
    assert stranger.value(LOAD, revision="v1.0.0", streaming=True, **where) == old
    commit = hub.repo(repo_id).resolve("v1.0.0")
    for streaming in (False, True):  # the commit that was loaded, whatever is there by now
        again = publisher.value(LOADED_AGAIN, revision="v1.0.0", streaming=streaming, **where)
        assert again == {"folder": commit, "split": "validation", "n": 4}
    assert hub.counts["unknown route"] == 0


def test_publishing_the_same_again_does_nothing(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    call = {"folder": folders.public, "repo_id": "org/again", "options": OPTIONS}
    first = publisher.value(PUBLISH, **call)
    hub.counts.clear()
    again = publisher.value(PUBLISH, **call)
    assert (again["commit"], again["n_uploaded"]) == (first["commit"], 0)
    assert again["n_unchanged"] == first["n_uploaded"]
    assert not {"commit", "preupload", "lfs_batch", "put_object", "name_commit", "create"} & set(hub.counts)


def test_an_interruption_before_the_tag_is_made_good(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    call = {"folder": folders.public, "repo_id": "org/untagged", "options": OPTIONS}
    first = publisher.value(PUBLISH, **call)
    del hub.repo("org/untagged").tags["v1.0.0"]
    hub.counts.clear()
    assert publisher.value(PUBLISH, **call)["commit"] == first["commit"]
    assert (hub.counts["commit"], hub.counts["name_commit"]) == (0, 1)
    assert hub.repo("org/untagged").tags == {"v1.0.0": first["commit"]}


def test_a_version_never_gets_other_content(hub: FakeHub, publisher: Client, folders: Folders, tmp_path: Path) -> None:
    first = publisher.value(PUBLISH, folder=folders.public, repo_id="org/fixed", options=OPTIONS)
    other = build(tmp_path, change=lambda record: replace(record, view="LATERAL"))
    for tag in (None, "v1.0.1"):  # under another tag the folder still says that it is 1.0.0
        outcome = publisher.run(PUBLISH, folder=other.public, repo_id="org/fixed", options={**OPTIONS, "tag": tag})
        assert outcome.names[0] == "PublishRefusedError"
        rule = r"`tag` must be new, but v1\.0\.0 exists with other content. Tags never move, so build a new version"
        assert re.search(rule, outcome.error or "")
    assert hub.repo("org/fixed").tags == {"v1.0.0": first["commit"]}
    assert hub.repo("org/fixed").head == first["commit"]


def test_a_tag_made_by_somebody_else_meanwhile_is_an_error(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/raced", options={**OPTIONS, "tag": "v0.9.0"})
    repo = hub.repo("org/raced")
    first = next(iter(repo.commits))
    hub.do_before("name_commit", lambda: repo.tags.update({"v1.0.0": first}))
    outcome = publisher.run(PUBLISH, folder=folders.public, repo_id="org/raced", options=OPTIONS)
    assert outcome.names[0] == "HubError"
    assert "someone else made the tag v1.0.0" in (outcome.error or "")
    assert repo.tags["v1.0.0"] == first


def test_files_that_are_gone_are_removed_and_gitattributes_stays(
    hub: FakeHub, publisher: Client, folders: Folders, refreshed: Folders
) -> None:
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/removal", options=OPTIONS)
    hub.repo("org/removal").change("notes/old.txt", b"by hand")
    second = publisher.value(PUBLISH, folder=refreshed.public, repo_id="org/removal", options=OPTIONS)
    assert second["n_removed"] == 1
    files = set(hub.repo("org/removal").commits[second["commit"]].files)
    assert files == set(files_of(refreshed.public)) | {".gitattributes"}


def test_a_moved_parent_publishes_nothing(
    hub: FakeHub, publisher: Client, folders: Folders, refreshed: Folders
) -> None:
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/moved", options=OPTIONS)
    repo = hub.repo("org/moved")
    call = {"folder": refreshed.public, "repo_id": "org/moved"}
    # somebody else commits after our client has read the repository and sent its files
    hub.do_before("commit", lambda: repo.change("eval.yaml", b"name: x\n"))
    outcome = publisher.run(PUBLISH, **call, options=OPTIONS)
    assert outcome.names[:2] == ("ParentMovedError", "HubError")
    assert "someone else changed" in (outcome.error or "")
    assert "run the same command again" in (outcome.error or "")
    assert list(repo.tags) == ["v1.0.0"]
    assert repo.commits[repo.head].message == "change eval.yaml"
    stale = publisher.run(PUBLISH, **call, options={**OPTIONS, "parent": "a" * 40})
    assert stale.names[0] == "ParentMovedError"
    assert "must be at aaaa" in (stale.error or "")
    done = publisher.value(PUBLISH, **call, options={**OPTIONS, "parent": repo.head})
    assert repo.tags["v1.1.0"] == done["commit"]


def test_a_repository_that_turns_public_during_the_upload_gets_no_commit(
    hub: FakeHub, publisher: Client, folders: Folders
) -> None:
    def open_it() -> None:
        hub.repo("org/turned-public").private = False

    hub.do_before("lfs_batch", open_it)
    call = {"folder": folders.public, "repo_id": "org/turned-public", "options": {**OPTIONS, "private": True}}
    outcome = publisher.run(PUBLISH, **call)
    assert outcome.names[0] == "PublishRefusedError"
    assert (
        "`visibility` must be private, as requested; an existing repository's visibility is never changed, got public"
    ) in (outcome.error or "")
    assert len(hub.repo("org/turned-public").commits) == 1


def test_what_the_hub_serves_is_compared_with_what_was_checked(
    hub: FakeHub, publisher: Client, folders: Folders
) -> None:
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/ignoring", options={**OPTIONS, "tag": "v0.9.0"})
    repo = hub.repo("org/ignoring")
    repo.change("README.md", b"---\nlicense: other\n---\n")
    # the real Hub and the real client leave out, without a word, what a .gitignore in the repository names
    repo.change(".gitignore", b"README.md\n")
    call = {"folder": folders.public, "repo_id": "org/ignoring", "options": {**OPTIONS, "tag": "v0.9.0"}}
    repo.tags.clear()
    outcome = publisher.run(PUBLISH, **call)
    assert outcome.names[0] == "HubError"
    assert "other files than were sent" in (outcome.error or "")
    assert "(README.md). The commit is not tagged" in (outcome.error or "")
    assert repo.tags == {}


def test_another_hub_by_argument(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    before = len(hub.log)
    options = {**OPTIONS, "endpoint": hub.storage}  # the same server under its other name
    done = publisher.value(PUBLISH, folder=folders.public, repo_id="org/elsewhere", options=options)
    assert done["url"] == f"{hub.storage}/datasets/org/elsewhere/tree/v1.0.0"
    api = [request for request in hub.log[before:] if request.path.startswith(("/api/datasets", "/api/repos"))]
    assert {request.host for request in api} == {"localhost"}


def test_a_token_that_may_not_write(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    publisher.value(PUBLISH, folder=folders.public, repo_id="org/theirs", options={**OPTIONS, "tag": "v0.9.0"})
    repo = hub.repo("org/theirs")
    repo.tags.clear()
    hub.counts.clear()
    call = {"folder": folders.public, "repo_id": "org/theirs"}
    outcome = publisher.run(PUBLISH, **call, options={**OPTIONS, "token": READER})
    assert outcome.names[0] == "HubError"
    assert "the token is not authorised to do this with" in (outcome.error or "")
    unknown = publisher.run(PUBLISH, **call, options={**OPTIONS, "token": "hf_nobody"})
    assert "the token is missing or not valid" in (unknown.error or "")
    none = publisher.run(PUBLISH, **call, options={**OPTIONS, "token": None})
    assert "a token is needed to publish: set HF_TOKEN" in (none.error or "")
    assert repo.tags == {}


def test_what_was_private_is_not_released_by_a_later_version(
    hub: FakeHub, publisher: Client, folders: Folders, tmp_path: Path
) -> None:
    call = {"repo_id": "org/reshuffled", "options": OPTIONS}
    publisher.value(PUBLISH, folder=folders.public, **call)
    other = build(tmp_path / "other", version="1.1.0", seed=4)
    outcome = publisher.run(PUBLISH, folder=other.public, **call)
    assert outcome.names[0] == "PublishRefusedError"
    assert "must not be public, because the row was private in v1.0.0: build with `previous`" in (outcome.error or "")
    assert list(hub.repo("org/reshuffled").tags) == ["v1.0.0"]
    rekeyed = build(
        tmp_path / "rekeyed", version="1.1.0", seed=4, change=lambda one: replace(one, image_id="x" + one.image_id)
    )
    outcome = publisher.run(PUBLISH, folder=rekeyed.public, **call)
    assert "must have a row in common with the previous version" in (outcome.error or "")
    kept = build(tmp_path / "kept", version="1.1.0", seed=4, previous=folders)
    publisher.value(PUBLISH, folder=kept.public, **call)
    assert list(hub.repo("org/reshuffled").tags) == ["v1.0.0", "v1.1.0"]
    retired = build(tmp_path / "retired", version="2.0.0", seed=4)
    assert "or publish with `retire_holdout`" in (publisher.run(PUBLISH, folder=retired.public, **call).error or "")
    call["options"] = {**OPTIONS, "retire_holdout": True}
    publisher.value(PUBLISH, folder=retired.public, **call)
    later = build(tmp_path / "later", version="2.1.0", previous=retired)
    publisher.value(PUBLISH, folder=later.public, repo_id="org/reshuffled", options=OPTIONS)  # known since 2.0.0
