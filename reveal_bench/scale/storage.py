"""Store the files of tasks in a folder that every machine sees, or in ``s3://BUCKET/PREFIX``, through fsspec.

Names are relative, with ``/``. A file is complete or absent: in a folder, it is written under another name and then
renamed; a bucket shows an object only after all of it has arrived. A bucket's credentials and address come from the
environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...), never from the URL.

Tasks are stored as pickles, so anyone who can write to the storage can run code on the machines that use it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import replacing, write_whole


class TaskStorage:
    """Files in a folder or under a bucket's prefix.

    Parameters
    ----------
    url : a folder, created with mode 0700 if it is missing, or ``s3://BUCKET/PREFIX``

    Raises
    ------
    ArgumentError
        If `url` is neither, or contains credentials.
    ImportError
        If `s3fs` is not installed and the storage is a bucket.
    """

    def __init__(self, url: str | Path) -> None:
        text = str(url)
        scheme, _, place = text.partition("://") if "://" in text else ("", "", text)
        bucket = place.strip("/").split("/")[0]
        if scheme not in ("", "file", "s3") or (scheme == "s3" and (not bucket or "@" in place)):
            rule = "must be a folder or s3://BUCKET/PREFIX without credentials"
            raise ArgumentError("storage", rule, repr(text.split("@")[-1]))
        self.is_local = scheme != "s3"
        self.root = os.path.abspath(place) if self.is_local else place.strip("/")
        self.url = self.root if self.is_local else f"s3://{self.root}"
        self._fs: Any = None
        if self.is_local and not os.path.isdir(self.root):
            os.makedirs(os.path.dirname(self.root), exist_ok=True)
            with suppress(FileExistsError):  # another task created the file first
                os.mkdir(self.root, 0o700)

    @property
    def fs(self) -> Any:
        """The file system, opened on first use."""
        if self._fs is None:
            import fsspec

            try:
                self._fs = fsspec.filesystem("file" if self.is_local else "s3")
            except ImportError:
                raise ImportError("storage in a bucket needs s3fs: pip install 'reveal-bench[scale]'") from None
        return self._fs

    def path(self, name: str) -> str:
        """Return the full name of a file."""
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        """Return all bytes of a file.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        """
        return bytes(self.fs.cat_file(self.path(name)))

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to but not including `end`."""
        return bytes(self.fs.cat_file(self.path(name), start=start, end=end))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        if self.is_local:
            write_whole(Path(self.path(name)), data)
        else:
            self.fs.pipe_file(self.path(name), data)

    def upload(self, path: Path, name: str) -> None:
        """Write a local file, whole or not at all."""
        if self.is_local:
            with replacing(Path(self.path(name))) as new:
                shutil.copyfile(path, new)
                with new.open("rb") as file:
                    os.fsync(file.fileno())
        else:
            self.fs.put_file(str(path), self.path(name))

    def fetch(self, name: str, path: Path) -> None:
        """Make a file available at a local path: by a hard link on the same disk, otherwise by a copy."""
        with replacing(path) as new:
            if self.is_local:
                try:
                    os.link(self.path(name), new)
                except OSError:  # another disk, or a disk without hard links
                    shutil.copyfile(self.path(name), new)
            else:
                self.fs.get_file(self.path(name), str(new))

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, without the folder's name; [] if the folder does not exist."""
        self.fs.invalidate_cache()
        try:
            paths = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return set()
        return {name for name in (str(one).rpartition("/")[2] for one in paths) if name and name[0] != "."}

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""
        with suppress(FileNotFoundError):
            self.fs.rm(self.path(name), recursive=True)
