"""Writing of files that are never incomplete, limits of a download, and JSON parsing that detects repeated keys.

A file is written under another name, flushed to disk and renamed, so that at any time, even after a crash, either the
old or the new file exists. A killed program leaves files named ``.writing-*``.

Do not use this module for files that do not fit into memory, or that must not have a name while they are incomplete.
For such files the vault copies a nameless file (``custody``), uploads are streamed to a locked file named after its
hash (``blobs``), and keys are created with ``O_EXCL`` (:mod:`reveal_bench.sources.ids`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

FOLDER_INFO = "manifest/benchmark.json"
"""Path of the file that identifies a dataset folder."""
FILMS = "manifest/films.json"
"""Path of the file with notes on the films of a dataset folder."""


_DOWNLOAD: ContextVar[tuple[Path, ...]] = ContextVar("download", default=())


@contextmanager
def reading_download(*places: Path | None) -> Iterator[None]:
    """Restrict the reading of tables, documents and pictures in the block to these folders and files.

    Parameters
    ----------
    places : folders and files that the user named, which may be links; None is ignored
    """
    token = _DOWNLOAD.set(tuple(Path(place).resolve() for place in places if place is not None))
    try:
        yield
    finally:
        _DOWNLOAD.reset(token)


def leads_out(path: Path) -> bool:
    """Return True if `path` is a link out of the download that is being read; False if no download is being read."""
    places = _DOWNLOAD.get()
    return bool(places) and not any(map(path.resolve().is_relative_to, places))


def file_sha256(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path, *, single_writer: bool = False) -> Iterator[Path]:
    """Yield a new path next to `path`, whose file replaces `path` if the block succeeds; make missing folders.

    `single_writer` means that no other process writes `path` at the same time, so that a file left by a killed program
    can be overwritten.
    """
    path = Path(path)
    new = path.with_name(f".writing-{path.name}" + ("" if single_writer else f".{secrets.token_hex(6)}"))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield new
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def write_whole(
    path: Path,
    data: str | bytes | memoryview,
    *,
    private: bool = False,
    durable: bool = False,
    single_writer: bool = False,
) -> None:
    """Replace the file `path` by `data` (text as UTF-8), which is flushed to disk before it is renamed to `path`.

    Parameters
    ----------
    private : True to let only the owner read the file
    durable : True to also flush the folder, so that the new name survives a crash of the machine
    single_writer : see :func:`replacing`
    """
    with replacing(path, single_writer=single_writer) as new:
        _write(new, data, private=private)
    if durable:
        flush_folder(Path(path).parent)


def write_all(files: Mapping[Path, str | bytes | memoryview]) -> None:
    """Write several files as :func:`write_whole` does; all are on disk before the first is renamed."""
    with ExitStack() as stack:
        for path in reversed(list(files)):  # so that files are renamed in the given order
            _write(stack.enter_context(replacing(path)), files[path])


def _write(new: Path, data: str | bytes | memoryview, *, private: bool = False) -> None:
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with os.fdopen(handle, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, so that new names survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def where_not_utf8(data: bytes) -> tuple[int, str]:
    """Return (line, value) of the first byte that is not UTF-8.

    Examples
    --------
    >>> where_not_utf8("study,site\\n1,Köln".encode("latin-1"))
    (2, '0xf6')
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1, f"0x{data[error.start]:02x}"
    return 1, "none"


def parse_json(text: str, repeated: list[str] | None = None) -> Any:
    """Return the value of a JSON text; unlike most parsers, do not silently drop earlier values of a repeated key.

    Parameters
    ----------
    repeated : list to which repeated keys are added; without it, a repeated key raises an error

    Raises
    ------
    ValueError
        If the text is not JSON, or an object repeats a key and `repeated` is not given.
    RecursionError
        If the text is nested too deeply.

    Examples
    --------
    >>> parse_json('[{"a": 1}, {"a": 2}]')
    [{'a': 1}, {'a': 2}]
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is repeated in one object
    >>> parse_json('{"a": 1, "a": 2}', keys := []), keys
    ({'a': 2}, ['a'])
    """

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]
            if repeated is None:
                raise ValueError(f"the key {twice[0]!r} is repeated in one object")
            repeated.extend(twice)
        return value

    return json.loads(text, object_pairs_hook=made)
