"""Published ids for patients, studies and images without public ids: keyed hashes of the source's identifiers.

An id is the first 16 hexadecimal digits of HMAC-SHA256 over the kind and the identifier, under a secret of the
publisher. Without the secret nobody can recover an identifier from an id, or check a guessed identifier. Under the same
secret, an identifier always gets the same id, so new versions of a dataset keep their ids. A study, an image and a
patient with the same identifier get unrelated ids.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from reveal_bench.arguments import ArgumentError

IdKind = Literal["study", "image", "patient"]
KINDS: tuple[IdKind, ...] = ("study", "image", "patient")
KEY_BYTES = 32
"""Smallest length of a secret, in bytes."""
DIGITS = 16


def keyed_id(key: bytes, kind: IdKind, uid: str) -> str:
    """Return the id of `uid`, such as ``study-0f4c9d21a7b3e856``.

    Parameters
    ----------
    key : bytes, at least 32
    kind : {"study", "image", "patient"}
    uid : the source's identifier, not empty; spaces and NULs around it do not matter

    Raises
    ------
    ValueError
        If an argument is invalid; the message does not show the key.

    Examples
    --------
    >>> keyed_id(bytes(32), "study", "1.2.3") == keyed_id(bytes(32), "study", " 1.2.3")
    True
    """
    if len(key) < KEY_BYTES:
        raise ArgumentError("key", f"must have at least {KEY_BYTES} bytes", len(key))
    if kind not in KINDS:
        raise ArgumentError("kind", f"must be one of {', '.join(KINDS)}", repr(kind))
    bare = uid.strip(" \0")
    if not bare:
        raise ArgumentError("uid", "must not be empty")
    digest = hmac.new(key, f"reveal-bench\0{kind}\0{bare}".encode(), hashlib.sha256).hexdigest()
    return f"{kind}-{digest[:DIGITS]}"


def check_collisions(key: bytes, kind: IdKind, uids: Iterable[str]) -> dict[str, list[str]]:
    """Return a dict from id to identifiers, for each id that several different `uids` share. Almost always empty."""
    names: dict[str, list[str]] = {}
    for uid in sorted({uid.strip(" \0") for uid in uids}):
        names.setdefault(keyed_id(key, kind, uid), []).append(uid)
    return {hashed: several for hashed, several in names.items() if len(several) > 1}


def read_id_key(path: Path, *, create: bool = False) -> bytes:
    """Read a secret from a file of hexadecimal digits that only its owner may read.

    Parameters
    ----------
    path : Path
        At least 64 digits, spaces and line feeds between them allowed; mode 0600 or stricter.
    create : bool
        Write a new random secret if the file is missing.

    Raises
    ------
    ValueError
        If the file is missing and `create` is False, or if the file is too short, not hexadecimal, or readable or
        writable by other users.
    """
    path = Path(path)
    if create:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            text = file.read(1 << 16)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; it must contain the secret from which ids are made") from None
    if os.name == "posix" and mode & 0o077:
        raise ValueError(f"{path}: only the owner may be able to read the secret (chmod 600), got mode {mode:04o}")
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:  # the message never shows the secret
        raise ValueError(f"{path}: the secret must be written in hexadecimal digits") from None
    if len(key) < KEY_BYTES:
        raise ValueError(
            f"{path}: the secret must have at least {2 * KEY_BYTES} hexadecimal digits, got {2 * len(key)}"
        )
    return key
