"""Where tasks leave their files: a folder that every machine sees, or ``s3://BUCKET/PREFIX``, through fsspec.

Names are relative, with ``/``. A file is whole or not there: in a folder it is written beside its name and renamed, and
a bucket shows an object when all of it has arrived. Credentials and the address of a bucket come from the environment
(``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...), never from the URL.

Tasks are stored as pickles, so whoever can write to the storage can run code on the machines that work for it.
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
    """Files below a folder or a bucket's prefix.

    Parameters
    ----------
    url : a folder, which is made with mode 0700 if it is missing, or ``s3://BUCKET/PREFIX``

    Raises
    ------
    ArgumentError
        If it is of another kind, or has credentials in it.
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
            with suppress(FileExistsError):  # another task was faster
                os.mkdir(self.root, 0o700)

    @property
    def fs(self) -> Any:
        """The file system, opened when it is first asked for."""
        if self._fs is None:
            import fsspec

            try:
                self._fs = fsspec.filesystem("file" if self.is_local else "s3")
            except ImportError:
                raise ImportError("storage in a bucket needs s3fs: pip install 'reveal-bench[scale]'") from None
        return self._fs

    def path(self, name: str) -> str:
        """The full name of a file."""
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        return bytes(self.fs.cat_file(self.path(name)))

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end`, the last not among them."""
        return bytes(self.fs.cat_file(self.path(name), start=start, end=end))

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole."""
        if self.is_local:
            path = Path(self.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        else:
            self.fs.pipe_file(self.path(name), data)

    def upload(self, path: Path, name: str) -> None:
        """Write a file whole with the content of a local one."""
        if self.is_local:
            target = Path(self.path(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as new:
                shutil.copyfile(path, new)
                with new.open("rb") as file:
                    os.fsync(file.fileno())
        else:
            self.fs.put_file(str(path), self.path(name))

    def fetch(self, name: str, path: Path) -> None:
        """Put a file at a local path: a second name of the same file where the disk is the same, else a copy."""
        with replacing(path) as new:
            if self.is_local:
                try:
                    os.link(self.path(name), new)
                except OSError:  # another disk, or one without links
                    shutil.copyfile(self.path(name), new)
            else:
                self.fs.get_file(self.path(name), str(new))

    def names(self, folder: str) -> set[str]:
        """Names of the files in a folder, without the folder's; none if it is not there."""
        self.fs.invalidate_cache()
        try:
            paths = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return set()
        return {name for name in (str(one).rpartition("/")[2] for one in paths) if name and name[0] != "."}

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing if it is not there."""
        with suppress(FileNotFoundError):
            self.fs.rm(self.path(name), recursive=True)
