"""Interrupted uploads: received files are not sent again, and nothing is visible until everything has arrived."""

from __future__ import annotations

import hashlib
import threading

import pytest

from tests.conftest import files_of
from tests.dataset.hub.clients import Client, stop, tell
from tests.dataset.hub.conftest import MAINTAINER, Folders
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.fake_repo import GITATTRIBUTES
from tests.dataset.hub.snippets import PUBLISH, PUBLISH_WITHOUT_WAITING

OPTIONS = {"token": MAINTAINER, "private": False, "group_bytes": 1}  # one file after the other


def large_objects(folders: Folders) -> set[str]:
    """sha256 of every Parquet file."""
    files = files_of(folders.public).items()
    return {hashlib.sha256(data).hexdigest() for name, data in files if name.endswith(".parquet")}


@pytest.mark.usefixtures("empty_store")
def test_a_cut_connection_then_the_same_command(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    call = {"folder": folders.public, "repo_id": "org/cut", "options": OPTIONS}
    hub.do_before("lfs_verify", lambda: hub.cut_uploads(after=100))  # the first object arrives, no other
    outcome = publisher.run(PUBLISH_WITHOUT_WAITING, **call)
    assert outcome.names[0] == "HubError"
    assert "the connection broke" in (outcome.error or "")
    assert "run the same command again" in (outcome.error or "")
    assert hub.counts["cut"] == 6  # the client itself tries five times more
    assert len(hub.store.objects) == 1
    repo = hub.repo("org/cut")
    assert (repo.tags, len(repo.commits)) == ({}, 1)

    hub.release()
    done = publisher.value(PUBLISH, **call)
    assert hub.store.objects.keys() == large_objects(folders)
    assert dict(hub.store.received) == dict.fromkeys(hub.store.objects, 1)  # each was sent once
    assert repo.tags == {"v1.0.0": done["commit"]}


@pytest.mark.usefixtures("empty_store")
def test_a_killed_process_then_the_same_command(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    call = {"folder": folders.public, "repo_id": "org/killed", "options": OPTIONS}
    victim = publisher.start()
    try:
        first_arrived = threading.Event()
        hub.do_before("lfs_verify", lambda: (hub.hang_uploads(after=100), first_arrived.set()))
        tell(victim, PUBLISH, **call)
        assert first_arrived.wait(120)
        assert hub.cut is not None
        assert hub.cut.reached.wait(60)
    finally:
        stop(victim)
    assert len(hub.store.objects) == 1
    assert hub.store.text_of("org/killed", "main", ".gitattributes") == GITATTRIBUTES.decode()
    hub.release()
    publisher.value(PUBLISH, **call)
    assert dict(hub.store.received) == dict.fromkeys(large_objects(folders), 1)
    assert hub.repo("org/killed").tags.keys() == {"v1.0.0"}


@pytest.mark.usefixtures("empty_store")
def test_groups_are_as_small_as_asked(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    code = """
        from pathlib import Path
        from reveal_bench.dataset.hub import prepare, send
        steps = []
        note = lambda *step: steps.append(step)
        checked = prepare(folder, repo_id, private=False, holdout=Path(holdout), progress=note)
        send(checked, token=token, group_bytes=size, progress=note)
        result = steps
    """
    n_files = len(files_of(folders.public))
    for size, repo_id in ((1, "org/single"), (1 << 30, "org/together")):
        where = {"folder": folders.public, "holdout": folders.vault, "repo_id": repo_id}
        steps = publisher.value(code, **where, token=MAINTAINER, size=size)
        assert [step for step in steps if step[0] == "rules"] == [["rules", n, 5] for n in range(1, 6)]
        groups = list(range(1, n_files + 1)) if size == 1 else [n_files]
        assert [step for step in steps if step[0] == "files"] == [["files", n, n_files] for n in groups]
    assert hub.counts["put_object"] == len(large_objects(folders))  # the second repository finds them there


def test_a_file_that_changes_during_the_upload_is_not_published(
    hub: FakeHub, publisher: Client, copied: Folders
) -> None:
    def write() -> None:
        with (copied.public / "README.md").open("a", encoding="utf-8") as card:
            card.write("one more line\n")

    hub.do_before("preupload", write)
    options = {"token": MAINTAINER, "private": False}
    outcome = publisher.run(PUBLISH, folder=copied.public, repo_id="org/changing", options=options)
    assert outcome.names[0] == "PublishRefusedError"
    assert "README.md: `sha256` must not change during publication" in (outcome.error or "")
    assert len(hub.repo("org/changing").commits) == 1
