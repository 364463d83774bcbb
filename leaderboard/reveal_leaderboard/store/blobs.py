"""Store of uploads and parsed predictions, by the SHA-256 of their content, in a folder or an S3 bucket.

Conventions
-----------
A file exists only with its whole content, even if a process is killed while writing. In a folder, a file is written
under a temporary name, hashed, flushed to disk and renamed, and the folder is flushed. In a bucket, an object becomes
visible once its upload is complete. The hash is checked before a file is opened. Names sent by clients never become
paths.

A store is named by its URL: ``file:///FOLDER`` (or a plain path) or ``s3://BUCKET/PREFIX``. Credentials and the address
of a bucket are read from the settings that AWS's own tools use (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...),
never from the URL. The bucket must exist, and only the board may use it. The client is fsspec's `s3fs` (extra ``s3``).
Small objects are written in one request, large ones as a multipart upload. Listings of a bucket are not cached, since
other servers may write.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from reveal_bench.files import flush_folder, write_whole
from reveal_leaderboard.store.submissions import stored_names

if TYPE_CHECKING:
    from reveal_leaderboard.store.store import Store


class Bucket:
    """The objects below ``s3://BUCKET/PREFIX``.

    Raises
    ------
    ValueError
        If `url` names no bucket, or contains credentials or a query.
    ImportError
        If `s3fs` is not installed.
    """

    def __init__(self, url: str) -> None:
        place = url.removeprefix("s3://").strip("/")
        if not place or any(c in place for c in "@?#"):
            raise ValueError(f"`blobs` must be s3://BUCKET/PREFIX without credentials, got {url.split('@')[-1]!r}")
        try:
            from s3fs import S3FileSystem
        except ImportError:
            raise ImportError("blobs in a bucket need s3fs: pip install 'reveal-leaderboard[s3]'") from None
        self._root, self.url = place, f"s3://{place}"
        self._name = place.split("/")[0]
        self._files: Any = S3FileSystem(use_listings_cache=False, skip_instance_cache=True)

    def put(self, path: Path, name: str, size: int) -> None:
        """Store a local file under `name`.

        Raises
        ------
        OSError
            If the object in the bucket then differs in size from the file.
        """
        self._files.put_file(str(path), self._key(name))
        stored = int(self._files.info(self._key(name), refresh=True)["size"])
        if stored != size:
            raise OSError(f"{self.url}/{name} must have {size} bytes after it was stored, got {stored}")

    def get(self, name: str, path: Path) -> None:
        """Download the object `name`; raise FileNotFoundError if it does not exist."""
        self._files.get_file(self._key(name), str(path))

    def exists(self, name: str) -> bool:
        """Return True if the object `name` exists."""
        try:
            return bool(self._files.info(self._key(name), refresh=True)["type"] == "file")
        except FileNotFoundError:
            return False

    def remove(self, name: str) -> None:
        """Remove the object `name`."""
        self._files.rm_file(self._key(name))

    def names(self) -> Iterator[tuple[str, float]]:
        """Yield (last part of the name, time of storing in seconds since 1970 UTC) for every object."""
        for path, info in self._files.find(self._root, detail=True, refresh=True).items():
            yield path.rsplit("/", 1)[-1], info["LastModified"].timestamp()

    def abort_uploads(self, *, older_than: float) -> int:
        """Abort incomplete multipart uploads that began at least `older_than` seconds ago; return their number."""
        prefix = self._key("")[len(self._name) + 1 :]
        count = 0
        for upload in self._files.list_multipart_uploads(self._name):
            if upload["Key"].startswith(prefix) and time.time() - upload["Initiated"].timestamp() >= older_than:
                key = {"Bucket": self._name, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                self._files.call_s3("abort_multipart_upload", **key)
                count += 1
        return count

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"


CHUNK = 1 << 20
ORPHANED_AFTER = 24 * 3600.0
"""Seconds after which a file without a submission is an orphan; files are stored before their submission is
recorded.
"""

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobDamagedError(OSError):
    """The content of a stored file does not match its hash."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A received file that is not stored yet: temporary path, size and hash."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A disk's free and total bytes, and whether it is read-only."""

    free: int
    total: int
    is_read_only: bool


class Blobs:
    """The uploaded files at `url`; a missing folder is created.

    Raises
    ------
    ValueError
        If `url` is neither ``file://`` nor ``s3://``.
    """

    def __init__(self, url: str | Path) -> None:
        text = str(url)
        self._bucket = Bucket(text) if text.startswith("s3://") else None
        if self._bucket is not None:
            self.url = self._bucket.url
            # Folder for files on their way to a bucket; it is removed with the server's temporary folder.
            self._temporary = tempfile.TemporaryDirectory(prefix="reveal-incoming-", ignore_cleanup_errors=True)
            self._incoming = Path(self._temporary.name)
            return
        if "://" in text and not text.startswith("file:///"):
            raise ValueError(f"`blobs` must be a folder, file:///FOLDER or s3://BUCKET/PREFIX, got {text!r}")
        self.folder = Path(text.removeprefix("file://")).absolute()
        self.url = f"file://{self.folder}"
        self._incoming = self.folder / "incoming"
        try:
            self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            words = f"{self.folder} must be a folder that this user may write to: {error.strerror}"
            raise ValueError(words) from None

    def path(self, sha256: str) -> Path:
        """Return the path of the file with this hash, for a store in a folder.

        Raises
        ------
        ValueError
            If the files are in a bucket, or `sha256` is not a hash.
        """
        if self._bucket is not None:
            raise ValueError(f"files at {self.url} have no path: use open_local")
        return self.folder / _place(sha256)

    @contextmanager
    def receive(self, stream: BinaryIO) -> Iterator[ReceivedFile]:
        """Copy `stream` to a temporary file and yield the file, which is removed after the block unless it was
        stored.
        """
        with _locked_file(self._incoming) as file:
            path = Path(file.name)
            try:
                digest = hashlib.sha256()
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
                yield ReceivedFile(path, file.tell(), digest.hexdigest())
            finally:
                path.unlink(missing_ok=True)

    def keep(self, incoming: ReceivedFile) -> None:
        """Store a received file permanently; when the function returns, the file survives a crash."""
        if self._bucket is not None:
            self._bucket.put(incoming.path, _place(incoming.sha256), incoming.size)
            return
        target = self.path(incoming.sha256)
        target.parent.mkdir(exist_ok=True, mode=0o700)
        flush_folder(target.parent.parent)
        os.replace(incoming.path, target)
        os.utime(target)  # `orphans` counts the file's age from now
        flush_folder(target.parent)

    def store(self, path: Path) -> str:
        """Store a copy of the file at `path` permanently, and return its hash."""
        with path.open("rb") as stream, self.receive(stream) as incoming:
            self.keep(incoming)
            return incoming.sha256

    def exists(self, sha256: str) -> bool:
        """Return True if content with this hash is stored."""
        if self._bucket is not None:
            return self._bucket.exists(_place(sha256))
        return self.path(sha256).is_file()

    @contextmanager
    def open_local(self, sha256: str) -> Iterator[Path]:
        """Yield a local file with this content, downloaded from a bucket if needed; read the file only inside the
        block.

        Raises
        ------
        FileNotFoundError
            If the content is not stored.
        BlobDamagedError
            If the stored content has another hash.
        """
        if self._bucket is None:
            path = self.path(sha256)
            _check(path, sha256)
            yield path
            return
        with _locked_file(self._incoming) as file:
            path = Path(file.name)
            try:
                self._bucket.get(_place(sha256), path)
                _check(path, sha256)
                yield path
            finally:
                path.unlink(missing_ok=True)

    def names(self) -> Iterator[tuple[str, float]]:
        """Yield (hash, time of storing in seconds since 1970 UTC) for every file."""
        if self._bucket is not None:
            names = self._bucket.names()
        else:
            names = ((path.name, path.stat().st_mtime) for path in self.folder.glob("??/*"))
        return ((name, at) for name, at in names if _NAME.fullmatch(name))

    def orphans(self, store: Store, *, older_than: float = ORPHANED_AFTER) -> list[str]:
        """Return the hashes of files without a submission that were stored at least `older_than` seconds ago.

        Files are stored before their submission is recorded, and remain if a quota then refuses the submission.
        """
        latest = time.time() - older_than
        old = {name for name, at in self.names() if at <= latest}
        with store.read() as connection:  # read after the listing, so that new submissions are included
            known = set.union(*stored_names(connection))
        return sorted(old - known)

    def remove(self, sha256: str) -> None:
        """Remove a stored file, such as an orphan."""
        if self._bucket is not None:
            self._bucket.remove(_place(sha256))
        else:
            self.path(sha256).unlink(missing_ok=True)

    def room(self) -> DiskSpace | None:
        """Return the space on the disk that receives files, also for a bucket; None if its folder is missing."""
        try:
            disk = os.statvfs(self._incoming)
        except OSError:
            return None
        is_read_only = bool(disk.f_flag & os.ST_RDONLY)
        return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, is_read_only)

    def has_room(self, n_bytes: int) -> bool:
        """Return True if a file of `n_bytes` can be received now: the disk is writable and has enough space."""
        room = self.room()
        return room is not None and room.free >= n_bytes and not room.is_read_only

    def sweep(self) -> int:
        """Remove incomplete files of killed servers, but not of running uploads; return their number."""
        if self._bucket is not None:
            return self._bucket.abort_uploads(older_than=ORPHANED_AFTER)
        return sum(_remove_if_left(path) for path in self._incoming.iterdir())


def _place(sha256: str) -> str:
    if not _NAME.fullmatch(sha256):
        raise ValueError(f"`sha256` must be 64 hexadecimal digits, got {sha256!r:.80}")
    return f"{sha256[:2]}/{sha256}"


def _check(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise BlobDamagedError(f"the stored file {sha256} is damaged: its content has the hash {actual}")


@contextmanager
def _locked_file(folder: Path) -> Iterator[BinaryIO]:
    """Yield a new file that is locked while open; the operating system releases the lock if the process is killed."""
    while True:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # otherwise another process removed the file before it was locked
                yield file  # type: ignore[misc]
                return


def _remove_if_left(path: Path) -> bool:
    with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return False


def write_durably(path: Path, data: bytes) -> None:
    """Write `data` to `path`, readable by its owner only; after a crash the file has the old or the new content."""
    write_whole(path, data, private=True, durable=True)
