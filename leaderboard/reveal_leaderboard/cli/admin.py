"""Commands ``reveal-leaderboard admin``: an operator's actions on a board, run on the board's machine.

Anyone who can open the database may run these commands. The event log records every action with the operator's login.
The module also has the command ``webhooks``: list deliveries, send a test message, retry a delivery, or run a process
that only sends.
"""

from __future__ import annotations

import getpass
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_bench.printed_tables import PrintedTable
from reveal_bench.words import count_text
from reveal_leaderboard.cli.process import log_to_stderr
from reveal_leaderboard.store.paths import BlobsAt, Data, Database, SettingsFile, resolve_paths

if TYPE_CHECKING:
    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.accounts.people import Team, User
    from reveal_leaderboard.store.store import Store
    from reveal_leaderboard.worker.webhooks import Sender

admin = typer.Typer(no_args_is_help=True, help="Boards, teams, people, flags and budgets.")
Why = Annotated[str, typer.Option(help="Reason, shown to those affected and stored in the event log.")]


@contextmanager
def _store(data: Path, database: str | None, settings: Path | None = None) -> Iterator[Store]:
    """Yield the open store; print an error as one line, without a traceback."""
    from sqlalchemy.exc import DatabaseError

    try:
        yield resolve_paths(data, database, None, settings).open_store(is_new=False)
    except (ValueError, LookupError, PermissionError) as error:
        message = error.args[0] if error.args else error
    except DatabaseError as error:  # such as a full disk
        message = f"the database refused the change ({error.orig}); nothing was changed"
    else:
        return
    typer.secho(f"error: {message}", fg="red", err=True)
    raise typer.Exit(1)


def operator() -> str:
    """Return the name of the person who runs the command, for the event log."""
    return f"cli:{getpass.getuser()}"


def show_table(rows: Iterable[Iterable[object]], head: tuple[str, ...]) -> None:
    """Print rows in columns, with a dash for None."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    for line in PrintedTable(head, cells, n_left=len(head)).to_lines():
        typer.echo(line.rstrip())


def as_time(moment: float | None) -> str | None:
    """Return seconds since 1970 as a UTC text, to the minute."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")


# Boards -------------------------------------------------------------------------------------------------------------


@admin.command()
def boards(data: Data, database: Database = None) -> None:
    """List boards, their versions and states."""
    from reveal_leaderboard.store import boards as board_queries

    with _store(data, database) as store, store.read() as connection:
        rows = board_queries.list_boards(connection)
        show_table(((r.benchmark, r.version, r.state, r.why, as_time(r.changed_at)) for r in rows),
              ("board", "version", "state", "why", "since"))  # fmt: skip


@admin.command(name="set-board")
def set_board(benchmark: str, state: str, data: Data, why: Why, database: Database = None) -> None:
    """Open, pause or close a board (STATE: open, paused or closed)."""
    from reveal_leaderboard.store import boards as board_queries

    with _store(data, database) as store, store.write() as connection:
        row = board_queries.set_state(connection, benchmark, state, who=operator(), why=why)
    typer.echo(f"{row.benchmark} {row.version} is {row.state}")


@admin.command()
def refresh(
    benchmark: str,
    data: Data,
    to: Annotated[str, typer.Option(metavar="VERSION", help="Version to score against, known to the server.")],
    switch: Annotated[
        bool, typer.Option("--switch", help="Show the new version now, if nothing is left to score.")
    ] = False,
    database: Database = None,
) -> None:
    """Score stored submissions against a new version; with --switch, show the new version on the board."""
    from reveal_leaderboard.boards import refresh

    with _store(data, database) as store, store.write() as connection:
        if not switch:
            n = refresh.start_refresh(connection, benchmark, to, who=operator())
            done = refresh.progress(connection, benchmark, to)
            queued = f"{n} submissions queued; of {done.total}, {done.done} are done and {done.left} left"
            typer.echo("\n".join([*refresh.carried_words(connection, benchmark, to), queued]))
            return
        changes = refresh.switch_version(connection, benchmark, to, who=operator())
    unranked = "" if changes.changes else "; no submission was or is ranked"
    typer.echo(f"the board of {benchmark} now shows {to}{unranked}")
    if changes.changes:
        show_table(
            ((c.submission_id, c.before, c.after) for c in changes.changes), ("submission", "rank before", "rank now")
        )
    if changes.dropped:
        typer.echo(f"not on the new board: {', '.join(changes.dropped)}")


@admin.command()
def exposure(benchmark: str, data: Data, database: Database = None, settings: SettingsFile = None) -> None:
    """Estimate how much a board has revealed of its holdout."""
    from reveal_leaderboard.release.exposure import exposure as read_meter
    from reveal_leaderboard.store import boards as board_queries

    with _store(data, database, settings) as store, store.read() as connection:
        board = board_queries.board_row(connection, benchmark)
        meter = read_meter(connection, benchmark, board.version, store.settings)
    typer.echo(f"{benchmark} {board.version}: {meter.level}. {meter.sentence}")


# People and teams ---------------------------------------------------------------------------------------------------


@admin.command()
def people(data: Data, database: Database = None) -> None:
    """List people and teams, teams awaiting approval first."""
    with _accounts(data, database) as accounts:
        show_table(
            (
                (u.id, u.name, u.issuer, u.subject, "admin" if u.is_admin else "", as_time(u.disabled_at))
                for u in accounts.users()
            ),
            ("person", "name", "signs in by", "subject", "rights", "closed"),
        )
        typer.echo("")
        show_table(
            (
                (
                    t.id,
                    t.name,
                    ", ".join(f"{u.name} ({role})" for u, role in accounts.members(t)),
                    as_time(t.waiting_since),
                    as_time(t.disabled_at),
                )
                for t in sorted(accounts.teams(), key=lambda t: t.waiting_since is None or t.disabled_at is not None)
            ),
            ("team", "name", "members", "waits since", "closed"),
        )


@admin.command()
def invite(
    address: str,
    data: Data,
    days: Annotated[int, typer.Option(help="Days until the link expires, 1 to 30.")] = 7,
    database: Database = None,
) -> None:
    """Print a link that signs in the owner of the e-mail address ADDRESS once (for `serve --auth links`).

    The server's address is read from REVEAL_URL. A new link replaces an unused one.
    """
    from reveal_leaderboard.web.sign_in_links import link_address
    from reveal_leaderboard.web.sign_in_modes import own_address

    with _accounts(data, database) as accounts:
        board = own_address(os.environ)
        secret = accounts.sign_in_link(address, operator(), days=days)
    typer.echo(link_address(board, secret))


@admin.command(name="add-team")
def add_team(name: str, owner: str, data: Data, database: Database = None) -> None:
    """Create a team; OWNER is the id of its owner."""
    with _accounts(data, database) as accounts:
        team = accounts.create_team(name, owner=_person(accounts, owner), who=operator())
    typer.echo(f"team {team.id}: {team.name}")


@admin.command(name="approve-team")
def approve_team(team: str, data: Data, database: Database = None) -> None:
    """Approve a team, so that it can submit (TEAM: its name). To refuse it, close it with `set-team`."""
    with _accounts(data, database) as accounts:
        match = _team(accounts, team)
        done = accounts.approve_team(match, operator())
    typer.echo(f"{match.name} {'may submit now' if done else 'has already been approved'}")


@admin.command(name="set-team")
def set_team(
    team: str, data: Data, why: Why, is_open: Annotated[bool, typer.Option("--open/--closed")] = False,
    database: Database = None,
) -> None:  # fmt: skip
    """Close a team, so that it cannot submit, or open it again (TEAM: its name). Its submissions stay."""
    with _accounts(data, database) as accounts:
        change = accounts.enable if is_open else accounts.disable
        change(_team(accounts, team), operator(), why)


@admin.command(name="add-member")
def add_member(
    team: str, person: str, data: Data, role: Annotated[str, typer.Option()] = "member", database: Database = None
) -> None:
    """Add a person to a team (TEAM: its name; PERSON: an id)."""
    with _accounts(data, database) as accounts:
        accounts.add_member(_team(accounts, team), _person(accounts, person), role, operator())


@admin.command(name="remove-member")
def remove_member(team: str, person: str, data: Data, database: Database = None) -> None:
    """Remove a person from a team."""
    with _accounts(data, database) as accounts:
        accounts.remove_member(_team(accounts, team), _person(accounts, person), operator())


@admin.command(name="set-admin")
def set_admin(
    person: str, data: Data, is_admin: Annotated[bool, typer.Option("--yes/--no")] = True, database: Database = None
) -> None:
    """Make a person an administrator, or remove this right."""
    with _accounts(data, database) as accounts:
        accounts.set_admin(_person(accounts, person), is_admin, operator())


@admin.command(name="set-person")
def set_person(
    person: str, data: Data, why: Why, is_open: Annotated[bool, typer.Option("--open/--closed")] = False,
    database: Database = None,
) -> None:  # fmt: skip
    """Close a person's account, which ends all sessions and tokens, or open it again."""
    with _accounts(data, database) as accounts:
        change = accounts.enable if is_open else accounts.disable
        change(_person(accounts, person), operator(), why)


@admin.command()
def tokens(data: Data, database: Database = None) -> None:
    """List the valid API tokens, without their secrets."""
    with _accounts(data, database) as accounts:
        rows = accounts.live_tokens()
    show_table(
        (
            (
                t.id,
                t.name,
                owner,
                t.team.name,
                " ".join(t.scopes),
                *map(as_time, (t.created_at, t.used_at, t.expires_at)),
            )
            for t, owner in rows
        ),
        ("token", "name", "owner", "team", "may", "made", "last used", "until"),
    )


@admin.command(name="revoke-token")
def revoke_token(token: str, data: Data, why: Why, database: Database = None) -> None:
    """Revoke an API token permanently (TOKEN: its id, or the secret if it leaked)."""
    with _accounts(data, database) as accounts:
        token_id = accounts.token_id_of(token) or token
        if not accounts.revoke_token(token_id, operator(), why):
            raise LookupError("no valid token has this id; `admin tokens` lists them")
    typer.echo(f"token {token_id} is revoked")


# Submissions, flags and budgets ---------------------------------------------------------------------------------------


@admin.command()
def hide(submission: str, data: Data, why: Why, database: Database = None) -> None:
    """Hide a submission from its board."""
    with _store(data, database) as store:
        store.hide(submission, who=operator(), why=why)


@admin.command(name="restore")
def restore_entry(submission: str, data: Data, why: Why, database: Database = None) -> None:
    """Show a hidden submission on its board again."""
    with _store(data, database) as store:
        store.restore(submission, who=operator(), why=why)


@admin.command()
def flags(
    data: Data, clear: Annotated[str | None, typer.Option(metavar="ID", help="Id of the flag to clear.")] = None,
    database: Database = None,
) -> None:  # fmt: skip
    """List open flags, or clear a flag."""
    with _store(data, database) as store:
        if clear is not None and not store.clear_flag(clear, operator()):
            raise LookupError(f"no open flag {clear}")
        rows = store.flags()
        show_table(((f.id, f.kind, f.submission_id, f.other_id, f.detail, as_time(f.raised_at)) for f in rows),
              ("flag", "kind", "submission", "other", "detail", "since"))  # fmt: skip


@admin.command()
def grant(
    team: str,
    benchmark: str,
    n: Annotated[int, typer.Argument(min=1)],
    data: Data,
    why: Why,
    database: Database = None,
) -> None:
    """Grant a team N more scored submissions on the board's current version."""
    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.store import boards as board_queries
    from reveal_leaderboard.store import quota
    from reveal_leaderboard.store.cases import boards_sharing

    with _store(data, database) as store:
        match = _team(Accounts(store.engine), team)
        with store.write() as connection:
            board = board_queries.board_row(connection, benchmark)
            quota.grant(connection, match.id, benchmark, board.version, n, who=operator(), why=why)
            others = [name for name, _ in boards_sharing(connection, benchmark, board.version)]
    typer.echo(f"{match.name} may have {n} more submissions scored on {benchmark} {board.version}")
    if others:
        typer.echo(
            f"submissions also count on {', '.join(others)}, with the same cases: grant there as well if no "
            f"budget is left"
        )


@admin.command()
def workers(data: Data, database: Database = None) -> None:
    """List all known workers."""
    from reveal_leaderboard.store.queue import Queue

    with _store(data, database) as store, store.read() as connection:
        for w in Queue.workers(connection):
            serves = ", ".join(f"{name} {version}" for name, version in w.serves)
            typer.echo(f"{w.name}: {serves}; since {as_time(w.started_at)}, seen {as_time(w.seen_at)}; {w.confinement}")


@admin.command()
def answers(
    benchmark: str,
    data: Data,
    out: Annotated[Path, typer.Option(help="CSV file to write: ids of answer and task, text, boxes.")],
    database: Database = None,
    settings: SettingsFile = None,
) -> None:
    """Write the answers that wait for readers to a file, without models and teams."""
    from reveal_leaderboard.boards.reading import answers_csv

    with _store(data, database, settings) as store, store.read() as connection:
        out.write_text(answers_csv(connection, benchmark), encoding="utf-8", newline="")


@admin.command()
def ratings(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    data: Data,
    database: Database = None,
    settings: SettingsFile = None,
) -> None:
    """Import a file of ratings, either completely or not at all."""
    from reveal_leaderboard.boards.reading import import_ratings

    with _store(data, database, settings) as store, store.write() as connection:
        taken = import_ratings(connection, file, store.settings, who=operator())
    typer.echo(f"{taken.new} new, {taken.changed} changed; {taken.complete} submissions are completely scored")


@admin.command()
def export(
    benchmark: str,
    data: Data,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder to write.")],
    database: Database = None,
    blobs: BlobsAt = None,
) -> None:
    """Export all submissions to a board: scores, ranks, metadata, receipts, and predictions that may be published."""
    from reveal_leaderboard.boards.round_export import export_round

    with _store(data, database) as store:
        done = export_round(store, resolve_paths(data, database, blobs, None).open_blobs(), benchmark, out)
    counts = [count_text(done.submissions, "submission"), count_text(done.figures, "score")]
    counts += [count_text(done.receipts, "receipt"), count_text(done.predictions, "prediction file")]
    typer.echo(f"{out}: {', '.join(counts)}")


@admin.command()
def orphans(
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete these files.")] = False,
) -> None:
    """List stored files older than a day without a submission, left by interrupted uploads."""
    at = resolve_paths(data, database, blobs, None)
    store = at.open_store(is_new=False)
    stored = at.open_blobs()
    for name in stored.orphans(store):
        if remove:
            stored.remove(name)
        typer.echo(f"{name}{' removed' if remove else ''}")


@admin.command(name="rotate-receipt-key")
def rotate_receipt_key(
    vault: Annotated[Path, typer.Option(exists=True, file_okay=False, help="The worker's vault.")],
) -> None:
    """Replace the receipt key; the old and the new key sign the change. Run this as the worker's user."""
    from reveal_leaderboard.release.receipts import KEY_FILE, Signer

    if not (vault / KEY_FILE).exists():  # because a `Signer` creates a missing key
        raise typer.BadParameter(f"must be a worker's vault, with {KEY_FILE}, got {vault}", param_hint="--vault")
    signer = Signer(vault)
    signer.rotate()
    typer.echo(f"{signer.key_id}  {signer.public_key_text}")


@contextmanager
def _accounts(data: Path, database: str | None) -> Iterator[Accounts]:
    from reveal_leaderboard.accounts.accounts import Accounts

    with _store(data, database) as store:
        yield Accounts(store.engine)


def _person(accounts: Accounts, person_id: str) -> User:
    user = accounts.user(person_id)
    if user is None:
        raise LookupError(f"no person {person_id}; `admin people` lists them")
    return user


def _team(accounts: Accounts, name: str) -> Team:
    match = next((team for team in accounts.teams() if team.name.casefold() == name.casefold()), None)
    if match is None:
        raise LookupError(f"no team {name!r}; `admin people` lists them")
    return match


DELIVERIES_SHOWN = 100


class Action(StrEnum):
    """Actions of the command `webhooks`."""

    LIST = "list"
    TEST = "test"
    RETRY = "retry"
    DELIVER = "deliver"


def webhooks(
    data: Data,
    action: Annotated[
        Action,
        typer.Argument(help="list the last deliveries, test NAME, retry ID, or deliver due messages until stopped."),
    ] = Action.LIST,
    which: Annotated[str, typer.Argument(metavar="[NAME|ID]", help="Name of a webhook, or id of a delivery.")] = "",
    database: Database = None,
    settings: SettingsFile = None,
) -> None:
    """List or send messages to the webhooks in the settings file."""
    acts = {Action.LIST: _list_deliveries, Action.TEST: _send_test, Action.RETRY: _send_again}
    with _store(data, database, settings) as store:
        acts.get(action, _deliver_due)(store, which)


def _list_deliveries(store: Store, _: str) -> None:
    from reveal_leaderboard.store.deliveries import Deliveries

    for name, webhook in store.settings.webhooks.items():
        typer.echo(f"{name}: {webhook.url} receives {', '.join(webhook.events)}")
    rows = Deliveries(store.engine).newest(DELIVERIES_SHOWN)
    show_table(
        (
            (
                row.id, row.webhook, row.kind, row.event_id, as_time(row.created_at), row.status, row.attempts,
                row.answer, as_time(row.next_at) if row.status == "waiting" else None,
            )
            for row in rows
        ),
        ("delivery", "webhook", "kind", "event", "made", "state", "attempts", "answer", "next attempt"),
    )  # fmt: skip


def _send_test(store: Store, name: str) -> None:
    from reveal_leaderboard.store.deliveries import Deliveries

    sender = next((one for one in _senders(store) if one.name == name), None)
    if sender is None:
        raise LookupError(f"NAME must be a webhook of the settings whose key is in the environment, got {name!r}")
    deliveries = Deliveries(store.engine)
    delivery_id = deliveries.add_test(name)
    sender.step(only=delivery_id)
    sent = next(row for row in deliveries.newest(DELIVERIES_SHOWN) if row.id == delivery_id)
    typer.echo(f"{sent.id}: {sent.status}, answer {'none' if sent.answer is None else sent.answer}")
    if sent.status != "delivered":
        raise typer.Exit(1)


def _send_again(store: Store, delivery_id: str) -> None:
    from reveal_leaderboard.store.deliveries import Deliveries

    Deliveries(store.engine).retry(delivery_id)
    typer.echo(f"{delivery_id} is sent again")


def _deliver_due(store: Store, _: str) -> None:
    from reveal_leaderboard.worker.webhooks import delivering

    log_to_stderr(store.settings.webhooks)
    senders = _senders(store)
    if not senders:
        raise LookupError("no key of any webhook is set in the environment")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with delivering(senders):
        stopping.wait()


def _senders(store: Store) -> list[Sender]:
    from reveal_leaderboard.worker.webhooks import open_senders

    return open_senders(store, os.environ)
