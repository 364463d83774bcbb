"""Sign a receipt for every public or final score, in the transaction that writes the score.

Conventions
-----------
:mod:`reveal_bench.exchange.receipts` defines the content and the verification of receipts. The private key is in the
worker's vault and is loaded for every signature, so that a rotation takes effect at once. The web process never sees
the private key; each receipt contains the public key. A rotation creates a new key, signs a statement of the change
with the old and the new key, and deletes the old key; every later receipt contains these statements. The table `chains`
has the number of receipts and the last hash, in a row that is locked until the transaction ends.

Final scores are withheld until their round ends. The round is ended by a web process or an operator, who cannot sign.
So the receipt of a final score is signed when the score is written, and withheld together with the score: a user may
read the receipt only if the user may see the score (:meth:`reveal_leaderboard.store.store.Store.score_of`). The next
receipt contains the withheld receipt's hash. This hash reveals nothing, because it also covers 32 random bytes (`blind`
in :mod:`reveal_bench.exchange.receipts`).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

import reveal_bench
import reveal_leaderboard
from reveal_bench.exchange.receipts import (
    FINAL_SCHEMA,
    SCHEMA,
    SUCCESSION_SCHEMA,
    canonical_bytes,
    exact,
    key_id,
    receipt_hash,
)
from reveal_leaderboard.store.blobs import write_durably
from reveal_leaderboard.store.boards import split_of
from reveal_leaderboard.store.database import iso_time, locked
from reveal_leaderboard.store.scores import Score, StoredReceipt
from reveal_leaderboard.store.submissions import Submission
from reveal_leaderboard.store.tables import chains, receipts, submissions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CHAIN = "receipts"
KEY_FILE = "receipt-key.json"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Public key of receipts, with the numbers of the first and the last receipt that it verifies."""

    key_id: str
    public_key: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Key:
    """Content of the key file."""

    private: Ed25519PrivateKey
    succession: list[dict[str, Any]]

    @property
    def public_text(self) -> str:
        return _text(self.private.public_key().public_bytes_raw())

    def sign(self, document: Mapping[str, Any]) -> str:
        return _text(self.private.sign(canonical_bytes(document)))

    def to_bytes(self) -> bytes:
        return json.dumps({"private": _text(self.private.private_bytes_raw()), "succession": self.succession}).encode()


class Signer:
    """Signing key in the folder `vault`; the first worker that uses the key creates it.

    Raises
    ------
    ValueError
        If users other than its owner can read the key file, or the file contains no key.
    """

    def __init__(self, vault: Path) -> None:
        self._file = Path(vault) / KEY_FILE
        if not self._file.exists():
            _create_once(self._file, _new_key().to_bytes())
        self._load()

    @property
    def public_key_text(self) -> str:
        """Public key: 32 bytes in base64."""
        return self._load().public_text

    @property
    def key_id(self) -> str:
        """Id of the key, a short name."""
        return key_id(self.public_key_text)

    def key_ids(self) -> set[str]:
        """Return the ids of the key and of its predecessors."""
        key = self._load()
        return {key_id(text) for text in (key.public_text, *(one["statement"]["old_key"] for one in key.succession))}

    def rotate(self) -> dict[str, Any]:
        """Replace this key by a new key and delete it; return the statement signed with both keys.

        Earlier receipts stay valid, and later receipts contain the statement.
        """
        old, fresh = self._load(), _new_key()
        statement = {
            "schema": SUCCESSION_SCHEMA,
            "old_key": old.public_text,
            "new_key": fresh.public_text,
            "time": iso_time(time.time()),
        }
        change = {
            "statement": statement,
            "signature_old": old.sign(statement),
            "signature_new": fresh.sign(statement),
        }
        write_durably(self._file, _Key(fresh.private, [*old.succession, change]).to_bytes())
        return change

    def _load(self) -> _Key:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if self._file.stat().st_mode & 0o077:
            raise ValueError(f"{self._file} must be readable by its owner only (mode 0600)")
        try:
            document = json.loads(self._file.read_bytes())
            private = Ed25519PrivateKey.from_private_bytes(base64.b64decode(document["private"], validate=True))
            return _Key(private, document["succession"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self._file} contains no receipt key") from None


def append(connection: sa.Connection, signer: Signer, submission: Submission, score: Score) -> StoredReceipt:
    """Sign the receipt of `score` and append it to the chain, in the transaction that writes the score.

    Raises
    ------
    LookupError
        If the database was not migrated and so has no chain to append to.
    RefreshError
        If the version of the score is unknown.
    """
    chain = connection.execute(locked(sa.select(chains).where(chains.c.name == CHAIN))).one_or_none()
    if chain is None:
        raise LookupError("the chain of receipts is missing, because the database was not migrated")
    key = signer._load()
    split = split_of(connection, submission.benchmark, score.version)  # the split may have had a different name
    facts = _facts(submission, score, split) | {
        "number": chain.length + 1,
        "previous": chain.head,
        "public_key": key.public_text,
        "key_id": key_id(key.public_text),
        "succession": key.succession,
    }
    receipt = StoredReceipt(
        id=chain.length + 1,
        submission_id=submission.id,
        version=score.version,
        part=score.part,
        document=canonical_bytes(facts).decode("ascii"),
        signature=key.sign(facts),
        key_id=facts["key_id"],
        previous=chain.head,
        hash=receipt_hash(facts),
    )
    values = {name: getattr(receipt, name) for name in StoredReceipt.__slots__}
    connection.execute(receipts.insert().values(**values))
    connection.execute(chains.update().where(chains.c.name == CHAIN).values(length=receipt.id, head=receipt.hash))
    return receipt


def with_other_keys(connection: sa.Connection, signers: Mapping[tuple[str, str], Signer]) -> list[tuple[str, str]]:
    """Return the (benchmark, version) pairs of `signers` whose last receipt was signed neither with the signer's key
    nor with one of its predecessors.
    """
    others = []
    for (benchmark, version), signer in signers.items():
        query = sa.select(receipts.c.key_id).join(submissions, submissions.c.id == receipts.c.submission_id)
        mine = query.where(submissions.c.benchmark == benchmark, receipts.c.version == version)
        last = connection.execute(mine.order_by(receipts.c.id.desc()).limit(1)).scalar_one_or_none()
        if last is not None and last not in signer.key_ids():
            others.append((benchmark, version))
    return others


def _facts(submission: Submission, score: Score, split: str) -> dict[str, Any]:
    kind: dict[str, Any] = {"schema": SCHEMA}
    if score.part == "final":
        kind = {"schema": FINAL_SCHEMA, "blind": secrets.token_hex(32)}
    return kind | {
        "submission": submission.id,
        "file_sha256": submission.sha256,
        "team": submission.team,
        "model": submission.model_name,
        "benchmark": submission.benchmark,
        "version": score.version,
        "split": split,
        "part": score.part,
        "reference_hash": score.reference_hash,
        "metric_signature": score.signature,
        "released": exact(score.released),
        "shown_of": None if score.shown_of == submission.id else score.shown_of,
        "allow_missing": submission.allow_missing,
        "time": iso_time(score.scored_at),
        "software": {"reveal-bench": reveal_bench.__version__, "reveal-leaderboard": reveal_leaderboard.__version__},
    }


def receipt_file(
    connection: sa.Connection, submission_id: str, version: str, part: str = "public"
) -> dict[str, Any] | None:
    """Return the receipt file of a released score; None without a receipt."""
    mine = (receipts.c.submission_id == submission_id, receipts.c.version == version, receipts.c.part == part)
    row = connection.execute(sa.select(receipts).where(*mine)).one_or_none()
    return None if row is None else StoredReceipt(**row._mapping).to_file()


def public_keys(connection: sa.Connection) -> list[PublicKey]:
    """Return the keys of all receipts, sorted by their first receipts."""
    first, last = sa.func.min(receipts.c.id), sa.func.max(receipts.c.id)
    spans = connection.execute(sa.select(receipts.c.key_id, first, last).group_by(receipts.c.key_id).order_by(first))
    keys = []
    for name, start, end in spans.all():
        document = connection.execute(sa.select(receipts.c.document).where(receipts.c.id == start)).scalar_one()
        keys.append(PublicKey(name, json.loads(document)["public_key"], start, end))
    return keys


def _new_key() -> _Key:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return _Key(Ed25519PrivateKey.generate(), [])


def _create_once(path: Path, data: bytes) -> None:
    """Write `path`, readable by its owner only, unless another process has written it.

    A crash leaves no partial file.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # closing the file releases the lock
        if not path.exists():
            write_durably(path, data)
    finally:
        os.close(folder)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
