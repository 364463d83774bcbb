"""The command ``reveal-bench verify-receipt``: check a leaderboard's receipt without the leaderboard."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import typer

FIGURE = ("metric", "finding", "value", "low", "high")


def verify_receipt(
    file: Annotated[Path, typer.Argument(help="Receipt, as the leaderboard gave it (JSON).", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY|FILE", help="Public key that the leaderboard published, or a file that holds it."),
    ] = None,
    previous: Annotated[Path | None, typer.Option(help="The receipt with the number before.")] = None,
    predictions: Annotated[Path | None, typer.Option("--file", help="The prediction file that was scored.")] = None,
) -> None:
    """Check a receipt offline: its signature, its place in the chain, and the file it is of."""
    from reveal_bench import receipts

    verified = receipts.verify_receipt(
        receipts.read_receipt(file),
        None if key is None else _key(key),
        previous=None if previous is None else receipts.read_receipt(previous),
        file_sha256=None if predictions is None else _sha256(predictions),
    )
    _show(verified.receipt)
    for sentence in verified.checked:
        typer.echo(f"checked      {sentence}")
    for sentence in verified.unchecked:
        typer.echo(f"not checked  {sentence}")


def _show(receipt: Any) -> None:
    typer.echo(
        f"receipt {receipt['number']} of {receipt['time']}: {_plain(receipt['model'])} ({_plain(receipt['team'])})"
    )
    place = f"{receipt['benchmark']} {receipt['version']}, split {receipt['split']}, {receipt['part']} part"
    typer.echo(f"{_plain(place)}, submission {_plain(receipt['submission'])}")
    if receipt["shown_of"] is not None:
        typer.echo(f"the figures are those of submission {_plain(receipt['shown_of'])}, which this one did not surpass")
    figures = receipt["released"].get("figures")
    for figure in filter(lambda one: isinstance(one, dict), figures if isinstance(figures, list) else []):
        metric, finding, value, low, high = (_plain(figure.get(name)) for name in FIGURE)
        interval = "" if "None" in (low, high) else f"  ({low} to {high})"
        typer.echo(f"  {metric:<16} {finding:<28} {value}{interval}")


def _plain(text: object) -> str:
    """Names come from whoever submitted: nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def _key(text: str) -> str:
    path = Path(text)
    if not path.is_file():
        return text
    words = path.read_text(encoding="utf-8").split()
    if len(words) != 1:
        raise ValueError(f"{path} must hold one public key and nothing else, got {len(words)} words")
    return words[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
