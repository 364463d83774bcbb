"""A bucket that speaks S3, through fsspec's `s3fs` (extra ``s3``).

Conventions
-----------
Objects are written whole: a small one in one request, a large one as a multipart upload that shows when it is
completed. Nothing is cached here: another server may have written since.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Bucket"]


class Bucket:
    """The objects below ``s3://BUCKET/PREFIX``.

    Raises
    ------
    ValueError
        If `url` names no bucket, or holds credentials or a query.
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
            If the bucket holds something else afterwards.
        """
        self._files.put_file(str(path), self._key(name))
        stored = int(self._files.info(self._key(name), refresh=True)["size"])
        if stored != size:
            raise OSError(f"{self.url}/{name} must have {size} bytes after it was stored, got {stored}")

    def get(self, name: str, path: Path) -> None:
        """Download the object `name`; FileNotFoundError if there is none."""
        self._files.get_file(self._key(name), str(path))

    def exists(self, name: str) -> bool:
        """Whether there is an object `name`."""
        try:
            return bool(self._files.info(self._key(name), refresh=True)["type"] == "file")
        except FileNotFoundError:
            return False

    def remove(self, name: str) -> None:
        """Remove the object `name`."""
        self._files.rm_file(self._key(name))

    def names(self) -> Iterator[tuple[str, float]]:
        """(last part of the name, seconds since 1970 UTC when it was stored) of every object."""
        for path, info in self._files.find(self._root, detail=True, refresh=True).items():
            yield path.rsplit("/", 1)[-1], info["LastModified"].timestamp()

    def abort_uploads(self, *, older_than: float) -> int:
        """Give up multipart uploads that were begun `older_than` seconds ago and never completed; returns how many."""
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
