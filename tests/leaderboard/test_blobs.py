"""Uploads in a folder and in a bucket: whole or not at all, under the hash of their content."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.store.blobs import BlobDamagedError, Blobs, write_durably

CONTENT = b"x" * 3_000_000


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return f"file://{tmp_path / 'blobs'}"
    return f"s3://{request.getfixturevalue('bucket')}/{tmp_path.name}"


def stored(blobs: Blobs, content: bytes) -> str:
    with blobs.receive(io.BytesIO(content)) as incoming:
        blobs.keep(incoming)
    return incoming.sha256


def test_a_kept_file_is_found_under_its_hash_by_another_server(place: str) -> None:
    blobs = Blobs(place)
    with blobs.receive(io.BytesIO(CONTENT)) as incoming:
        assert not blobs.exists(incoming.sha256)
        blobs.keep(incoming)
    assert incoming.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert incoming.size == len(CONTENT)
    other = Blobs(place)
    assert other.exists(incoming.sha256)
    with other.open_local(incoming.sha256) as path:
        assert path.read_bytes() == CONTENT
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [name for name, _ in other.names()] == [incoming.sha256]


def test_keeping_the_same_content_twice_is_harmless(place: str) -> None:
    blobs = Blobs(place)
    assert stored(blobs, b"same") == stored(blobs, b"same")
    assert len(list(blobs.names())) == 1


def test_what_is_not_there_is_said_to_be_missing(place: str) -> None:
    blobs = Blobs(place)
    assert not blobs.exists("0" * 64)
    with pytest.raises(FileNotFoundError), blobs.open_local("0" * 64):
        pass


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "0" * 63, "A" * 64], ids=["path", "empty", "short", "case"])
def test_only_hashes_are_names(place: str, name: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        Blobs(place).exists(name)


def test_a_removed_file_is_gone(place: str) -> None:
    blobs = Blobs(place)
    sha256 = stored(blobs, b"short-lived")
    blobs.remove(sha256)
    assert not blobs.exists(sha256)


def test_orphans_are_old_files_that_no_submission_names(place: str) -> None:
    blobs = Blobs(place)
    known, orphan = stored(blobs, b"submitted"), stored(blobs, b"refused by the quota")
    store = FakeStore(known, stored(blobs, b"its predictions"))
    assert blobs.orphans(store, older_than=-5) == [orphan]  # type: ignore[arg-type]
    assert blobs.orphans(store) == []  # type: ignore[arg-type]


class FakeStore:
    """A store with two submissions, of which only the hashes matter; nothing but its file was kept of the second."""

    def __init__(self, sha256: str, canonical: str) -> None:
        self.engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        with self.engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE submissions (sha256 TEXT, canonical TEXT)"))
            insert = sa.text("INSERT INTO submissions VALUES (:sha256, :canonical), (:sha256, NULL)")
            connection.execute(insert, {"sha256": sha256, "canonical": canonical})

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self.engine.begin() as connection:
            yield connection


def test_damage_is_noticed_in_a_folder(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    sha256 = stored(blobs, b"whole")
    blobs.path(sha256).write_bytes(b"whale")
    with pytest.raises(BlobDamagedError, match=f"{sha256} is damaged"), blobs.open_local(sha256):
        pass


def test_damage_is_noticed_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    import boto3

    blobs = Blobs(f"s3://{bucket}/damaged")
    sha256 = stored(blobs, b"whole")
    boto3.client("s3").put_object(Bucket=bucket, Key=f"damaged/{sha256[:2]}/{sha256}", Body=b"whale")
    with pytest.raises(BlobDamagedError, match=f"{sha256} is damaged"), blobs.open_local(sha256):
        pass
    assert list(blobs._incoming.iterdir()) == []


def test_a_large_object_shows_only_when_it_is_whole(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3
    import s3fs.core

    monkeypatch.setattr(s3fs.core, "calculate_chunksize", lambda size, chunksize=None: 5 << 20)
    blobs = Blobs(f"s3://{bucket}/large")
    content = os.urandom(1 << 20) * 11
    files: Any = blobs._bucket._files  # type: ignore[union-attr]
    seen: list[bool] = []
    call = files._call_s3

    async def watched(method: str, *arguments: Any, **options: Any) -> Any:
        if method == "upload_part":
            listing = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix="large/")
            seen.append(listing["KeyCount"] > 0)
        return await call(method, *arguments, **options)

    monkeypatch.setattr(files, "_call_s3", watched)
    sha256 = stored(blobs, content)
    assert seen == [False] * 3  # 11 MiB in parts of 5
    with blobs.open_local(sha256) as path:
        assert path.read_bytes() == content


def test_sweeping_a_bucket_ends_old_uploads_that_were_never_completed(bucket: str) -> None:
    import boto3

    client = boto3.client("s3")
    client.create_multipart_upload(Bucket=bucket, Key="swept/ab/left")
    client.create_multipart_upload(Bucket=bucket, Key="elsewhere/left")
    blobs = Blobs(f"s3://{bucket}/swept")
    assert blobs._bucket.abort_uploads(older_than=100 * 365 * 86400.0) == 0  # they may be under way still
    assert blobs.sweep() == 1  # moto says that every upload was begun in 2010
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["elsewhere/left"]


def test_a_bucket_that_cannot_be_reached_loses_nothing_silently(bucket: str) -> None:
    blobs = Blobs("s3://no-such-bucket/x")
    with pytest.raises(OSError, match="bucket"), blobs.receive(io.BytesIO(b"content")) as incoming:
        blobs.keep(incoming)
    assert list(blobs._incoming.iterdir()) == []


@pytest.mark.parametrize("url", ["gs://bucket", "file://relative", "s3://", "s3://key:secret@bucket"])
def test_other_places_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="`blobs` must be") as caught:
        Blobs(url)
    assert "key:secret" not in str(caught.value)


def test_a_bucket_has_no_paths(bucket: str) -> None:
    with pytest.raises(ValueError, match="have no path"):
        Blobs(f"s3://{bucket}").path("0" * 64)


def test_a_file_that_is_not_kept_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    with blobs.receive(io.BytesIO(b"refused")):
        pass
    with pytest.raises(OSError, match="network gone"), blobs.receive(Broken()):
        pass
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Broken(io.BytesIO):
    """A stream that fails."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError("network gone")


def test_sweeping_removes_what_a_killed_server_left_and_nothing_else(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    sha256 = stored(blobs, b"kept")
    (tmp_path / "blobs" / "incoming" / "left").write_bytes(b"half")
    with blobs.receive(io.BytesIO(b"under way")) as incoming:
        assert Blobs(tmp_path / "blobs").sweep() == 1
        blobs.keep(incoming)
    assert blobs.exists(sha256)
    assert blobs.exists(incoming.sha256)


def test_a_durable_write_replaces_whole_files_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "exact.json"
    write_durably(path, b"old")
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
