"""Receipts of released scores: their exact format, and their verification without the leaderboard that issued them.

Conventions
-----------
A receipt file is a JSON object with the `receipt` (its content), its `hash` and its `signature`. The signature is over
the receipt's *canonical bytes*: JSON in ASCII, keys sorted, no spaces, and no numbers other than integers, so that
every programming language writes the same facts as the same bytes. Scores are therefore texts with the released
decimals, such as "0.47". The hash is SHA-256 of the canonical bytes in hexadecimal, the signature Ed25519 (RFC 8032) in
base64.

Receipts of one leaderboard form a chain: each is numbered and contains the hash of the previous one (64 zeros in the
first). If a key replaced an earlier one, its receipts contain the *succession*: for each change of key, a statement
signed with both the old and the new key. So anyone who trusts the first key can check the receipts signed with its
successors.

There are two kinds of receipts, distinguished by `schema` and `part`: receipts of public scores, and receipts of
*final* scores, which are computed on patients held back until a round ends. A final receipt is signed when the scores
are computed, and handed out when they are shown. The next receipt contains its hash, which proves that the final
receipt did not change in between. A few rounded scores could be guessed by trying values until the hash matches, so a
final receipt also contains a `blind`, 32 random bytes in hexadecimal.

What a receipt proves depends on the origin of the key. If a receipt is checked with the key inside it, the check proves
that nothing was changed since signing, but not who signed; compare the key with one that the leaderboard published.

The package `cryptography` is needed to check signatures.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from reveal_bench.files import parse_json

SCHEMA, FINAL_SCHEMA = "reveal-receipt/1", "reveal-final-receipt/1"
SUCCESSION_SCHEMA = "reveal-key-succession/1"
GENESIS = "0" * 64
LARGEST_FILE = 1 << 20

_HASH = re.compile(r"[0-9a-f]{64}")
_TEXTS = (
    "submission", "file_sha256", "team", "model", "benchmark", "version", "split", "part", "reference_hash",
    "metric_signature", "time", "previous", "key_id", "public_key",
)  # fmt: skip
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "schema": str,
    "number": int,
    **dict.fromkeys(_TEXTS, str),
    "released": dict,
    "shown_of": (str, type(None)),
    "allow_missing": bool,
    "software": dict,
    "succession": list,
}
_KINDS: dict[str, tuple[str, dict[str, type | tuple[type, ...]]]] = {
    SCHEMA: ("public", _FIELDS),
    FINAL_SCHEMA: ("final", _FIELDS | {"blind": str}),
}
"""Schema -> (value of `part`, names and types of the receipt's fields)."""
_FORMS = {"submission": re.compile(r"[\w-]{1,64}", re.ASCII), "time": re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z", re.ASCII)}


class ReceiptError(ValueError):
    """Error of a receipt with an invalid format, hash or signature."""


@dataclass(frozen=True)
class Verified:
    """Valid receipt, with the checks that were made.

    Attributes
    ----------
    receipt : dict
        Content of the receipt.
    is_from_trusted_key : bool
        True if the receipt was signed with the key that the caller trusts, or with a successor of that key.
    checked, unchecked : tuple of str
        Sentences that describe the checks that were made, and those that were not.
    """

    receipt: Mapping[str, Any]
    is_from_trusted_key: bool
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]


def exact(value: Any) -> Any:
    """Return a JSON `value` with every fraction as text: 0.47 becomes "0.47".

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    if isinstance(value, float):
        decimal = Decimal(repr(value))
        if not decimal.is_finite():
            raise ValueError(f"a number in a receipt must be finite, got {value}")
        return format(decimal, "f")
    if isinstance(value, Mapping):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(inner) for inner in value]
    return value


def canonical_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the bytes that are hashed and signed, defined in the module docstring.

    Raises
    ------
    ReceiptError
        If a value is not text, a whole number, true, false, null, a list or an object.
    """
    _check_values(document, "receipt")
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _check_values(value: Any, place: str) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ReceiptError(f"the keys of `{place}` must be text, got {key!r}")
            _check_values(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _check_values(inner, f"{place}[{i}]")
    elif not (value is None or isinstance(value, (str, int))):
        raise ReceiptError(f"`{place}` must be text, a whole number, true, false or null, got {value!r:.80}")


def receipt_hash(receipt: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical bytes, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_bytes(receipt)).hexdigest()


def key_id(public_key: str) -> str:
    """Return the short name of a public key (base64): the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(_key_bytes(public_key)).hexdigest()[:16]


def verify_signature(document: Mapping[str, Any], signature: str, public_key: str) -> bool:
    """Return True if `signature` (base64) of the canonical bytes was made with the private key of `public_key`."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ImportError("checking a receipt needs the package `cryptography`: pip install cryptography") from None

    try:
        raw = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(_key_bytes(public_key)).verify(raw, canonical_bytes(document))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def read_document(path: Path, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """Read a file with a receipt or, with `largest` of more than 1 MiB, a score document.

    Raises
    ------
    ReceiptError
        If the file is not a JSON object, names a key twice, or has more than `largest` bytes.
    """
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ReceiptError(f"{path} must be at most {largest >> 20} MiB, but is larger")
    try:
        document = parse_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ReceiptError(f"{path} must be JSON in UTF-8: {error}") from None
    if not isinstance(document, dict):
        raise ReceiptError(f"{path} must hold one JSON object, got {type(document).__name__}")
    return document


def verify_receipt(
    document: Mapping[str, Any],
    trusted_key: str | None = None,
    *,
    previous: Mapping[str, Any] | None = None,
    file_sha256: str | None = None,
) -> Verified:
    """Verify a receipt file offline.

    Parameters
    ----------
    document : dict
        The receipt file as read by :func:`read_document`.
    trusted_key : str, optional
        Public key (32 bytes in base64) that the leaderboard published. Without it the key inside the receipt is used.
    previous : dict, optional
        The receipt file with the preceding number, to check that this receipt follows it.
    file_sha256 : str, optional
        SHA-256 of the prediction file, 64 hexadecimal digits.

    Raises
    ------
    ReceiptError
        If a check fails; the message says which.
    """
    receipt = _check_form(document)
    number = receipt["number"]
    checked = [f"the text of receipt {number} has the hash that it states"]
    unchecked = []
    _check_signature(receipt, document["signature"])
    checked.append(f"it was signed with key {receipt['key_id']}, and nothing was changed since")
    if trusted_key is None:
        unchecked.append(
            "who owns the key: it was taken from the receipt itself, so anyone could have made it; pass a key that "
            "the leaderboard published"
        )
    else:
        checked.append(_check_origin(receipt, trusted_key))
    if previous is None:
        if number > 1:
            unchecked.append(f"that it follows receipt {number - 1}, which was not given")
    else:
        _check_link(receipt, previous)
        checked.append(f"it follows receipt {number - 1}")
    if file_sha256 is None:
        unchecked.append("the prediction file, which was not given")
    elif file_sha256 != receipt["file_sha256"]:
        raise ReceiptError(
            f"the receipt is of a file with SHA-256 {receipt['file_sha256']}, got one with {file_sha256}"
        )
    else:
        checked.append("the prediction file has the SHA-256 in the receipt")
    unchecked.append("that the scores were computed from the file: only the leaderboard has the references")
    return Verified(receipt, trusted_key is not None, tuple(checked), tuple(unchecked))


def _check_form(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the receipt in a receipt file, after checking its format and hash."""
    for name, kind in (("receipt", Mapping), ("hash", str), ("signature", str)):
        if not isinstance(document.get(name), kind):
            raise ReceiptError(f"a receipt file must have the field `{name}`, got {document.get(name)!r:.80}")
    receipt: Mapping[str, Any] = document["receipt"]
    _check_fields(receipt)
    number = receipt["number"]
    if receipt_hash(receipt) != document["hash"]:
        raise ReceiptError(f"the text of receipt {number} was changed: it does not have the hash that it states")
    if number == 1 and receipt["previous"] != GENESIS:
        raise ReceiptError("`previous` of receipt 1 must be 64 zeros")
    return receipt


def _check_fields(receipt: Mapping[str, Any]) -> None:
    schema = receipt.get("schema")
    if not isinstance(schema, str) or schema not in _KINDS:
        raise ReceiptError(f"`schema` must be {' or '.join(map(repr, _KINDS))}, got {schema!r:.80}")
    part, fields = _KINDS[schema]
    if strange := set(receipt) ^ set(fields):
        raise ReceiptError(f"a receipt must have exactly the fields of {schema}; wrong: {', '.join(sorted(strange))}")
    for name, wanted in fields.items():
        if not isinstance(receipt[name], wanted):
            raise ReceiptError(f"`{name}` has the wrong type: {receipt[name]!r:.80}")
    if receipt["part"] != part:
        raise ReceiptError(f"`part` of {schema} must be {part!r}, got {receipt['part']!r:.80}")
    number = receipt["number"]
    if isinstance(number, bool) or number < 1:
        raise ReceiptError(f"`number` must be 1 or more, got {number!r:.80}")
    for name, form in _FORMS.items():  # texts that exports write as they are
        if not form.fullmatch(receipt[name]):
            raise ReceiptError(f"`{name}` must match {form.pattern}, got {receipt[name]!r:.80}")
    for name in ("file_sha256", "previous", "blind"):
        if name in fields and not _HASH.fullmatch(receipt[name]):
            raise ReceiptError(f"`{name}` must be 64 hexadecimal digits, got {receipt[name]!r:.80}")


def _check_signature(receipt: Mapping[str, Any], signature: str) -> None:
    if key_id(receipt["public_key"]) != receipt["key_id"]:
        raise ReceiptError(f"`key_id` must be that of `public_key`, got {receipt['key_id']!r:.80}")
    if not verify_signature(receipt, signature, receipt["public_key"]):
        raise ReceiptError(
            f"the signature of receipt {receipt['number']} was not made with the key named in the receipt"
        )


def _check_origin(receipt: Mapping[str, Any], trusted_key: str) -> str:
    trusted = trusted_key.strip()
    _key_bytes(trusted)
    if trusted == receipt["public_key"]:
        return "the signing key is the key that you trust"
    if trusted in _predecessors(receipt):
        return f"the signing key succeeded {key_id(trusted)}, which you trust; the change was signed with both keys"
    raise ReceiptError(
        f"the receipt was signed with key {receipt['key_id']}, which is neither the trusted key "
        f"{key_id(trusted)} nor a successor of it"
    )


def _predecessors(receipt: Mapping[str, Any]) -> set[str]:
    """Return the predecessors of the receipt's key, each linked to the next by a statement signed with both keys."""
    heirs = {receipt["public_key"]}
    for change in reversed(receipt["succession"]):
        statement = change.get("statement") if isinstance(change, Mapping) else None
        if not isinstance(statement, Mapping) or statement.get("schema") != SUCCESSION_SCHEMA:
            raise ReceiptError(f"`succession` must contain statements of {SUCCESSION_SCHEMA}, got {change!r:.80}")
        old, new = str(statement.get("old_key")), str(statement.get("new_key"))
        signed = all(
            verify_signature(statement, str(change.get(name)), key)
            for name, key in (("signature_old", old), ("signature_new", new))
        )
        if not signed or new not in heirs:
            raise ReceiptError("`succession` must lead to the key of the receipt, each step signed with both keys")
        heirs.add(old)
    return heirs - {receipt["public_key"]}


def _check_link(receipt: Mapping[str, Any], previous: Mapping[str, Any]) -> None:
    before = _check_form(previous)
    _check_signature(before, previous["signature"])
    if before["number"] != receipt["number"] - 1:
        raise ReceiptError(f"`previous` must be receipt {receipt['number'] - 1}, got {before['number']}")
    if previous["hash"] != receipt["previous"]:
        raise ReceiptError(f"receipt {receipt['number']} does not follow the given receipt {before['number']}")


def _key_bytes(public_key: str) -> bytes:
    try:
        raw = base64.b64decode(public_key, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise ReceiptError(f"a public key must be 32 bytes in base64, got {public_key!r:.80}")
    return raw
