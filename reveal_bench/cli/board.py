"""Commands for a leaderboard: ``submit``, ``status``, ``withdraw``, ``receipt`` and ``verify-receipt``.

Tokens are read from a file or from ``REVEAL_TOKEN``. Tokens cannot be passed as options, because the shell's history
and other processes can read the command line. Exit codes: 0 if the submission is scored (without waiting: queued), 1 if
it was refused or failed, or the leaderboard is unreachable, 2 if the command was used wrongly. ``verify-receipt`` works
offline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import AllowMissing, AsJson, PredictionFile
from reveal_bench.files import file_sha256
from reveal_bench.words import with_interval

if TYPE_CHECKING:
    from reveal_bench.cli.client import Progress, Server

A_DAY = 24 * 3600.0

Url = Annotated[str, typer.Option(help="Address of the leaderboard.", envvar="REVEAL_LEADERBOARD_URL")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with your token; REVEAL_TOKEN by default. Local leaderboards need none."),
]
SubmissionId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the submission, as `submit` prints it.", show_default=False)
]


def submit(
    file: PredictionFile,
    benchmark: Annotated[str, typer.Option(help="Benchmark on the leaderboard.", show_default=False)],
    url: Url,
    metadata: Annotated[Path | None, typer.Option(help="FILE.submission.json or submission.json by default.")] = None,
    token_file: TokenFile = None,
    allow_missing: AllowMissing = False,
    wait: Annotated[bool, typer.Option(help="Wait for the score.")] = True,
    patience: Annotated[float, typer.Option(min=0, help="Seconds to wait for a leaderboard to start.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Upload a prediction file to a leaderboard, wait, and print its score. Exit code 1 means refused or failed."""
    from reveal_bench.cli import client
    from reveal_bench.predictions.files import metadata_path, prediction_file

    file = prediction_file(file)
    path = metadata or own_metadata(file)
    if path is None or not path.is_file():
        where = path or metadata_path(file)
        raise typer.BadParameter(
            f"metadata is needed: give --metadata, or put it in {where} (format: submissions/README.md)"
        )
    about = read_json(path)
    server = _server(url, token_file)
    try:
        server.wait_until_ready(seconds=patience)
        with _upload_bar(file.name) as progress:
            document = server.submit(
                file,
                benchmark=benchmark,
                metadata=about,
                allow_missing=allow_missing or _asked_whole_split(file),
                progress=progress,
            )
    except client.LeaderboardError as refusal:
        terminal.print_refusal(refusal.problem)
        raise
    if not document.get("is_new", True):
        typer.echo(f"{document['id']}: this file was already submitted", err=True)
    report = document.get("report") or {}
    terminal.warn(terminal.warnings_of(terminal.problems_of(report), report.get("format", "")))
    if wait:
        document = _watch(server, document, quiet=as_json)
    _show(document, server, as_json=as_json)


def _asked_whole_split(file: Path) -> bool:
    """Return True for a file of a run that asked all questions, so that those without a line have no usable answer."""
    from reveal_bench.models.run_folder import read_run
    from reveal_bench.predictions.files import is_run_file

    if not is_run_file(file):
        return False
    run = read_run(file.parent)
    return run.info.n_asked == run.info.n_questions and "not_asked" not in run.summary.by_status


def status(submission_id: SubmissionId, url: Url, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show a submission's position in the queue, or its score. Exit code 1 means refused or failed."""
    server = _server(url, token_file)
    _show(server.submission(submission_id), server, as_json=as_json)


def withdraw(
    submission_id: SubmissionId,
    url: Url,
    token_file: TokenFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Withdraw a submission: free while queued; once scored, it leaves the leaderboard but counts in the quota."""
    server = _server(url, token_file)
    before = server.submission(submission_id)
    if before["status"] == "scored" and not yes:
        typer.confirm(
            f"{submission_id} is scored: withdrawing removes it from the leaderboard, but it still counts in the "
            "quota. Withdraw it?",
            abort=True,
        )
    after = server.withdraw(submission_id)
    cost = (
        "and costs nothing"
        if after["status"] == "withdrawn"
        else "and removed from the leaderboard, but still counts in the quota"
    )
    typer.echo(f"submission {submission_id} is withdrawn {cost}")


def receipt(
    submission_id: SubmissionId,
    url: Url,
    out: Annotated[Path, typer.Option(help="File to write; it must not exist yet.", show_default=False), OUTPUT],
    version: Annotated[str | None, typer.Option(help="Benchmark version; by default the newest.")] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Fetch the receipt of the final scores, once announced.")
    ] = False,
    token_file: TokenFile = None,
) -> None:
    """Fetch, check and save the signed receipt of a score."""
    from reveal_bench.exchange.receipts import verify_receipt

    if out.exists():
        raise typer.BadParameter(f"--out must not exist yet, got {out}")
    server = _server(url, token_file)
    document = server.receipt(submission_id, version=version, part="final" if final else None)
    verified = verify_receipt(document)
    signed_with = verified.receipt["public_key"]
    if signed_with not in {key["public_key"] for key in server.receipt_keys()}:
        raise ValueError(f"the receipt must be signed with a key that {url} publishes, got {signed_with}")
    with out.open("x", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2) + "\n")
    typer.echo(f"wrote {out}")
    for sentence in (*verified.checked, f"the signing key is one that {url} publishes"):
        terminal.say(f"  checked: {sentence}")
    typer.echo(f"check it at any time: reveal-bench verify-receipt {out} --key KEYS, {KEYS_ADVICE}", err=True)


def own_metadata(file: Path) -> Path | None:
    """Return the metadata of a prediction file or run folder, if any.

    Raises
    ------
    ValueError
        If it has thresholds, and could be that of several prediction files.
    """
    from reveal_bench.predictions.files import metadata_beside, metadata_path

    beside, own = metadata_beside(file), metadata_path(file)
    if beside not in (None, own) and "thresholds" in read_json(beside):
        raise ValueError(
            f"{beside}: `thresholds` must be those of one prediction file, got {file.name} and others in this folder. "
            f"Name it {own.name} if they are those of {file.name}"
        )
    return beside


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises
    ------
    ValueError
        If the file contains anything else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: must be JSON in UTF-8: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: must contain one JSON object, got {type(document).__name__}")
    return document


def _server(url: str, token_file: Path | None) -> Server:
    from reveal_bench.cli import client

    return client.Server(url, client.read_token(token_file))


def _watch(server: Server, document: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Follow a submission until it is finished, and print each change."""
    try:
        for state in server.follow(document["id"], timeout=A_DAY):
            document = state
            if not quiet:
                typer.echo(f"{document['id']}: {document['status']}{_queue_note(document)}", err=True)
    except KeyboardInterrupt:
        typer.echo(
            f"scoring continues on the leaderboard; check it with: reveal-bench status {document['id']} --url "
            f"{server.url}",
            err=True,
        )
        raise
    return document


def _queue_note(document: dict[str, Any]) -> str:
    """Return a note on a submission's position in the queue and its expected wait, if known."""
    position, seconds = document.get("queue_position"), document.get("expected_seconds")
    if not position:
        return ""
    if seconds is None:
        return f" (position {position})"
    about = f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
    return f" (position {position}, about {about} to wait)"


def _show(document: dict[str, Any], server: Server, *, as_json: bool) -> None:
    """Print a submission's state or score; exit with code 1 if it was refused, failed or withdrawn."""
    state = document["status"]
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    elif state == "scored":
        _show_score(document, server)
    elif state in ("refused", "failed", "withdrawn"):
        typer.secho(f"submission {document['id']} is {state}: {_last_word(document)}", fg="red", err=True)
    else:
        typer.echo(f"submission {document['id']} is {state}{_queue_note(document)}")
    if state in ("refused", "failed", "withdrawn"):
        raise typer.Exit(1)


def _show_score(document: dict[str, Any], server: Server) -> None:
    score = document["score"]
    if score["figures"]:
        terminal.print_released(document)
    else:
        terminal.say(f"submission {document['id']} is scored. {score['note']}")
    if score.get("is_held"):
        terminal.warn([f"these are the scores of submission {score['shown_of']}: {_last_word(document)}"])
    if document.get("withdrawn_at"):
        terminal.warn(["withdrawn from the leaderboard"])
    if document.get("hidden_why"):
        terminal.warn([f"hidden from the leaderboard by its operators: {document['hidden_why']}"])
    typer.echo(f"{server.url.rstrip('/')}/entry?id={document['id']}")


def _last_word(document: dict[str, Any]) -> str:
    reasons = [
        event["why"] for event in document["events"] if event["to_status"] == document["status"] and event["why"]
    ]
    return reasons[-1] if reasons else "no reason was given"


@contextmanager
def _upload_bar(name: str) -> Iterator[Progress]:
    """Show the upload's progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from reveal_bench.cli.progress import has_bars

    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console, disable=not has_bars()) as bar:
        task = bar.add_task(f"sending {name}")

        def update(done: int, total: int) -> None:
            # The server answers once its linter has finished
            what = f"checking {name}" if done == total else f"sending {name}"
            bar.update(task, completed=done, total=total, description=what)

        yield update


KEYS_ADVICE = "a file with the answer of the leaderboard's /api/v1/keys"
FIGURE = ("metric", "finding", "value", "low", "high")


def verify_receipt(
    file: Annotated[Path, typer.Argument(help="Receipt from the leaderboard (JSON file).", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY|FILE|-",
            help="Public key published by the leaderboard, or a file (- for standard input) with the key or the answer "
            "of /api/v1/keys.",
        ),
    ] = None,
    previous: Annotated[Path | None, typer.Option(help="Preceding receipt in the chain.")] = None,
    predictions: Annotated[
        Path | None, typer.Option("--file", help="Prediction file or run folder that was scored.")
    ] = None,
    any_key: Annotated[
        bool, typer.Option("--any-key", help="Accept any signing key: anyone could have signed.")
    ] = False,
) -> None:
    """Check a receipt offline: its signature, its position in the chain, and the scored file."""
    from reveal_bench.exchange import receipts
    from reveal_bench.predictions.files import prediction_file

    verified = receipts.verify_receipt(
        receipts.read_document(file),
        None if key is None else read_key(key, file),
        previous=None if previous is None else receipts.read_document(previous),
        file_sha256=None if predictions is None else file_sha256(prediction_file(predictions)),
    )
    _show_receipt(verified.receipt)
    for sentence in verified.checked:
        terminal.say(f"checked      {sentence}")
    for sentence in verified.unchecked:
        terminal.say(f"not checked  {sentence}")
    if not verified.is_from_trusted_key and not any_key:
        raise ValueError(
            f"the receipt's signing key is not known. Give --key KEYS, {KEYS_ADVICE}; or accept any key with --any-key"
        )


def _show_receipt(receipt: Any) -> None:
    typer.echo(
        f"receipt {receipt['number']} of {receipt['time']}: {_plain(receipt['model'])} ({_plain(receipt['team'])})"
    )
    place = f"{receipt['benchmark']} {receipt['version']}, split {receipt['split']}, {receipt['part']} part"
    typer.echo(f"{_plain(place)}, submission {_plain(receipt['submission'])}")
    if receipt["shown_of"] is not None:
        typer.echo(
            f"the scores shown are those of submission {_plain(receipt['shown_of'])}, which this submission did not "
            "surpass"
        )
    figures = receipt["released"].get("figures")
    for figure in filter(lambda one: isinstance(one, dict), figures if isinstance(figures, list) else []):
        metric, finding, value, low, high = (_plain(figure.get(name)) for name in FIGURE)
        interval = "" if "None" in (low, high) else f"{low} to {high}"
        typer.echo(f"  {metric:<16} {finding:<28} {with_interval(value, interval)}")


def _plain(text: object) -> str:
    """Return text without control characters, because submitters choose these names."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def read_key(text: str, receipt: Path) -> str:
    """Return the public key given as ``--key``: the key itself, or a file ("-": standard input) with the key or with
    the answer of ``/api/v1/keys``.

    Of several keys, return the one that signed the `receipt`, otherwise the newest.

    Raises
    ------
    ValueError
        If the file contains neither.
    """
    from reveal_bench.exchange.receipts import read_document

    path = Path(text)
    if text == "-":
        content = typer.get_text_stream("stdin").read()
    elif path.is_file():
        content = path.read_text(encoding="utf-8")
    else:
        return text
    try:
        keys = [str(key["public_key"]) for key in json.loads(content)["keys"]]
    except (ValueError, KeyError, TypeError):
        keys = content.split()
        if len(keys) > 1:
            keys = []
    if not keys:
        where = "standard input" if text == "-" else path
        raise ValueError(f"{where} must contain only a public key, or the answer of /api/v1/keys")
    signed = read_document(receipt).get("receipt")
    signer = signed.get("public_key") if isinstance(signed, dict) else None
    return signer if signer in keys else keys[-1]
