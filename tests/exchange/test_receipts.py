"""Receipts verified without the leaderboard: every possible fault is reported."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from reveal_bench.cli.board import verify_receipt as command
from reveal_bench.exchange.receipts import (
    FINAL_SCHEMA,
    GENESIS,
    ReceiptError,
    canonical_bytes,
    exact,
    key_id,
    read_document,
    receipt_hash,
    verify_receipt,
    verify_signature,
)

KEY, STRANGER = Ed25519PrivateKey.from_private_bytes(b"1" * 32), Ed25519PrivateKey.from_private_bytes(b"2" * 32)
PREDICTIONS = b'{"image_id": "a"}\n'


def public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def make(number: int = 1, previous: str = GENESIS, key: Ed25519PrivateKey = KEY, **changes: Any) -> dict[str, Any]:
    """A receipt file, signed here with nothing of the package but its canonical form written out."""
    receipt = {
        "schema": "reveal-receipt/1", "number": number, "previous": previous, "submission": "0f" * 16,
        "file_sha256": hashlib.sha256(PREDICTIONS).hexdigest(), "team": "Example Laboratory", "model": "Model A",
        "benchmark": "chexlocalize", "version": "1.0.0", "split": "holdout", "part": "public",
        "reference_hash": "ab" * 32, "metric_signature": "point_hit|v:1", "shown_of": None, "allow_missing": False,
        "released": {"figures": [
            {"metric": "point_hit", "finding": "macro", "value": "0.47", "low": "0.42", "high": "0.52"},
        ]},
        "time": "2026-11-22T05:00:00Z", "software": {"reveal-bench": "0.1.0"}, "succession": [],
        "public_key": public(key), "key_id": hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16],
    } | changes  # fmt: skip
    text = json.dumps(receipt, sort_keys=True, separators=(",", ":")).encode()
    signature = base64.b64encode(key.sign(text)).decode()
    return {"receipt": receipt, "hash": hashlib.sha256(text).hexdigest(), "signature": signature}


def make_final(number: int = 1, previous: str = GENESIS, **changes: Any) -> dict[str, Any]:
    """Return the same receipt for final scores."""
    return make(number, previous, **{"schema": "reveal-final-receipt/1", "part": "final", "blind": "cd" * 32} | changes)


def succession(old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> dict[str, Any]:
    statement = {"schema": "reveal-key-succession/1", "old_key": public(old), "new_key": public(new), "time": "now"}
    text = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signatures = (base64.b64encode(key.sign(text)).decode() for key in (old, new))
    return {"statement": statement, **dict(zip(("signature_old", "signature_new"), signatures, strict=True))}


def test_canonical_bytes() -> None:
    document = {"b": 1, "a": ["é", None, True], "c": {"z": "0.47", "y": 2}}
    assert canonical_bytes(document) == b'{"a":["\\u00e9",null,true],"b":1,"c":{"y":2,"z":"0.47"}}'
    assert receipt_hash({}) == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.47, "0.47"), (1.0, "1.0"), (1e-7, "0.0000001"), (3, 3), (True, True), ([0.5, None], ["0.5", None])],
)
def test_fractions_become_their_decimals(value: Any, expected: Any) -> None:
    assert exact(value) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_figure(value: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        exact({"a": [value]})


@pytest.mark.parametrize("value", [0.47, {1: "a"}, b"bytes"], ids=["fraction", "number-for-key", "bytes"])
def test_only_exact_values_have_a_canonical_form(value: Any) -> None:
    with pytest.raises(ReceiptError, match=r"`receipt\.a` must"):
        canonical_bytes({"a": value})


def test_signatures() -> None:
    signed = make()
    assert verify_signature(signed["receipt"], signed["signature"], public(KEY))
    assert not verify_signature(signed["receipt"], signed["signature"], public(STRANGER))
    assert not verify_signature({}, signed["signature"], public(KEY))


def test_all_checks() -> None:
    first = make()
    second = make(2, first["hash"])
    verified = verify_receipt(second, public(KEY), previous=first, file_sha256=hashlib.sha256(PREDICTIONS).hexdigest())
    assert verified.is_from_trusted_key
    assert len(verified.checked) == 5
    assert verified.unchecked == (
        "that the scores were computed from the file: only the leaderboard has the references",
    )


def test_a_receipt_of_final_figures_is_checked_as_the_others_are() -> None:
    first = make()
    final = make_final(2, first["hash"])
    third = make(3, final["hash"])
    digest = hashlib.sha256(PREDICTIONS).hexdigest()
    verified = verify_receipt(final, public(KEY), previous=first, file_sha256=digest)
    assert (verified.receipt["part"], len(verified.checked)) == ("final", 5)
    assert verify_receipt(third, public(KEY), previous=final).is_from_trusted_key
    final["receipt"]["released"]["figures"][0]["value"] = "0.57"
    with pytest.raises(ReceiptError, match="the text of receipt 2 was changed"):
        verify_receipt(final)
    with pytest.raises(ReceiptError, match="the text of receipt 2 was changed"):
        verify_receipt(third, previous=final)


def test_without_a_key_the_origin_is_said_to_be_open() -> None:
    verified = verify_receipt(make(2, "cd" * 32))
    assert not verified.is_from_trusted_key
    text = " ".join(verified.unchecked)
    assert "anyone could have made it" in text
    assert "that it follows receipt 1" in text
    assert "the prediction file, which was not given" in text


def test_a_successor_of_the_trusted_key_is_trusted() -> None:
    third = Ed25519PrivateKey.from_private_bytes(b"3" * 32)
    steps = [succession(KEY, STRANGER), succession(STRANGER, third)]
    assert verify_receipt(make(key=third, succession=steps), public(KEY)).is_from_trusted_key
    with pytest.raises(ReceiptError, match="each step signed with both keys"):
        verify_receipt(make(key=third, succession=steps[:1]), public(KEY))


def forge_old(step: dict[str, Any]) -> None:
    step["signature_old"] = step["signature_new"]


def forge_new(step: dict[str, Any]) -> None:
    step["signature_new"] = step["signature_old"]


@pytest.mark.parametrize("forge", [forge_old, forge_new])
def test_a_forged_succession_is_refused(forge: Callable[[dict[str, Any]], None]) -> None:
    step = succession(KEY, STRANGER)
    forge(step)
    with pytest.raises(ReceiptError, match="each step signed with both keys"):
        verify_receipt(make(key=STRANGER, succession=[step]), public(KEY))


def changed(**fields: Any) -> dict[str, Any]:
    document = make()
    document["receipt"] |= fields
    return document


def rehashed(**fields: Any) -> dict[str, Any]:
    document = changed(**fields)
    return document | {"hash": receipt_hash(document["receipt"])}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "must have the field `receipt`, got None"),
    "list": ({"receipt": []}, "must have the field `receipt`"),
    "no-signature": ({**make(), "signature": None}, "must have the field `signature`, got None"),
    "schema": (
        make(schema="reveal-receipt/2"),
        "`schema` must be 'reveal-receipt/1' or 'reveal-final-receipt/1', got 'reveal-receipt/2'",
    ),
    "schemas": (make(schema=["reveal-receipt/1"]), "`schema` must be 'reveal-receipt/1' or"),
    "final-part": (make(part="final"), "`part` of reveal-receipt/1 must be 'public', got 'final'"),
    "public-part": (make_final(part="public"), "`part` of reveal-final-receipt/1 must be 'final', got 'public'"),
    "no-blind": (make(schema=FINAL_SCHEMA, part="final"), "exactly the fields of reveal-final-receipt/1; wrong: blind"),
    "blind": (make_final(blind="cd" * 31), "`blind` must be 64 hexadecimal digits"),
    "more": (make(extra="x"), "exactly the fields of reveal-receipt/1; wrong: extra"),
    "kind": (make(team=3), "`team` has the wrong type: 3"),
    "number": (make(number=0), "`number` must be 1 or more, got 0"),
    "true": (make(number=True), "`number` must be 1 or more, got True"),
    "first": (make(previous="ab" * 32), "`previous` of receipt 1 must be 64 zeros"),
    "submission": (make(submission="x},\n@b{y,t={"), r"`submission` must match .*, got 'x},"),
    "time": (make(time="}\n@a{b,c={"), "`time` must match "),
    "hash": (make(file_sha256="AB" * 32), "`file_sha256` must be 64 hexadecimal digits"),
    "fraction": (changed(released={"a": 0.5}), r"`receipt\.released\.a` must be text, a whole number"),
    "changed": (changed(model="Model B"), "the text of receipt 1 was changed"),
    "rehashed": (
        rehashed(model="Model B"),
        "the signature of receipt 1 was not made with the key named in the receipt",
    ),
    "key-id": (make(key_id="0" * 16), "`key_id` must be that of `public_key`"),
    "key": (make(public_key="AAAA"), "a public key must be 32 bytes in base64, got 'AAAA'"),
    "signature": ({**make(), "signature": "????"}, "the signature of receipt 1 was not made with the key"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    document, message = WRONG[name]
    with pytest.raises(ReceiptError, match=message):
        verify_receipt(document)


def test_a_stranger_s_receipt_is_refused_with_a_trusted_key() -> None:
    with pytest.raises(ReceiptError, match=f"neither the trusted key {key_id(public(KEY))}"):
        verify_receipt(make(key=STRANGER), public(KEY))
    with pytest.raises(ReceiptError, match="a public key must be 32 bytes in base64"):
        verify_receipt(make(), "not a key")


def test_the_link_and_the_file_are_checked() -> None:
    first = make()
    with pytest.raises(ReceiptError, match="receipt 2 does not follow the given receipt 1"):
        verify_receipt(make(2, "cd" * 32), previous=first)
    with pytest.raises(ReceiptError, match="`previous` must be receipt 2, got 1"):
        verify_receipt(make(3, first["hash"]), previous=first)
    with pytest.raises(ReceiptError, match="is of a file with SHA-256"):
        verify_receipt(first, file_sha256="00" * 32)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be JSON in UTF-8"),
        (b"[]", "must hold one JSON object, got list"),
        (b'{"a": 1, "a": 2}', "the key 'a' is repeated"),
        (b'{"a": ' + b"[" * 100_000, "must be JSON in UTF-8"),
        (b" " * (1 << 20) + b"{}", "at most 1 MiB"),
        (b'{"a": "\xff"}', "must be JSON in UTF-8"),
    ],
    ids=["empty", "list", "twice", "deep", "large", "bytes"],
)
def test_hostile_files(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "receipt.json"
    file.write_bytes(content)
    with pytest.raises(ReceiptError, match=message):
        read_document(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first = make()
    for name, document in (("1.json", first), ("2.json", make(2, first["hash"], model="Model\x1b[31m A"))):
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "key.txt").write_text(public(KEY) + "\n")
    (tmp_path / "run").mkdir()
    for path in (tmp_path, tmp_path / "run"):
        (path / "predictions.jsonl").write_bytes(PREDICTIONS)
    return tmp_path


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_command_lists_checks_made_and_not_made(folder: Path) -> None:
    done = run(
        folder / "2.json", "--key", folder / "key.txt", "--previous", folder / "1.json",
        "--file", folder / "run",
    )  # fmt: skip
    assert done.exit_code == 0
    assert "receipt 2 of 2026-11-22T05:00:00Z: Model?[31m A (Example Laboratory)" in done.output
    assert "  point_hit        macro                        0.47 (0.42 to 0.52)" in done.output
    assert done.output.count("checked      ") == 5
    assert done.output.count("not checked  ") == 1
    bare = run(folder / "2.json", "--key", public(KEY))
    assert "not checked  the prediction file, which was not given" in bare.output


def test_the_command_says_that_figures_are_final(folder: Path) -> None:
    (folder / "final.json").write_text(json.dumps(make_final()))
    done = run(folder / "final.json", "--key", public(KEY))
    assert done.exit_code == 0
    assert "chexlocalize 1.0.0, split holdout, final part, submission" in done.output


def test_the_command_refuses_what_does_not_hold(folder: Path) -> None:
    done = run(folder / "2.json", "--key", public(STRANGER))
    assert isinstance(done.exception, ReceiptError)
    (folder / "key.txt").write_text("two words")
    (folder / "keys.json").write_text(
        json.dumps({"keys": [{"public_key": public(KEY)}, {"public_key": public(STRANGER)}]})
    )
    assert run(folder / "2.json", "--key", folder / "keys.json").exit_code == 0
    assert "must contain only a public key" in str(run(folder / "1.json", "--key", folder / "key.txt").exception)


def test_hostile_figures_do_not_stop_the_command(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(make(released={"figures": ["x", {"metric": "\x1b]0;"}, None]})))
    done = run(file, "--any-key")
    assert done.exit_code == 0
    assert "\x1b" not in done.output


def test_a_receipt_of_an_unknown_key_fails_unless_accepted(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(make(key=STRANGER)))
    refused = run(file)
    assert refused.exit_code != 0
    assert "the receipt's signing key is not known. Give --key KEYS, a file with the" in str(refused.exception)
    assert "/api/v1/keys" in str(refused.exception)
    assert "not checked  who owns the key" in refused.output
    assert run(file, "--any-key").exit_code == 0
