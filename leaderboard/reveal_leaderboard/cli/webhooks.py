"""``reveal-leaderboard webhooks``: what was told to whom, a test message, another attempt, and sending alone."""

from __future__ import annotations

import os
import signal
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_leaderboard.cli.admin import as_time, show_table
from reveal_leaderboard.cli.process import log_to_stderr
from reveal_leaderboard.store.places import Data, Database, SettingsFile, places

if TYPE_CHECKING:
    from reveal_leaderboard.store.store import Store
    from reveal_leaderboard.worker.webhooks import Sender

__all__ = ["webhooks"]

SHOWN = 100


class Action(StrEnum):
    """What to do with webhooks."""

    LIST = "list"
    TEST = "test"
    RETRY = "retry"
    DELIVER = "deliver"


def webhooks(
    data: Data,
    action: Annotated[
        Action,
        typer.Argument(help="list the last deliveries; test NAME; retry ID; deliver what is due, until stopped."),
    ] = Action.LIST,
    which: Annotated[str, typer.Argument(metavar="[NAME|ID]", help="Name of a webhook, or id of a delivery.")] = "",
    database: Database = None,
    settings: SettingsFile = None,
) -> None:
    """Show and send what the webhooks of the settings file are told."""
    store = places(data, database, None, settings).open_store(is_new=False)
    try:
        {Action.LIST: _list, Action.TEST: _test, Action.RETRY: _retry, Action.DELIVER: _deliver}[action](store, which)
    except (LookupError, ValueError) as error:
        typer.secho(f"error: {error.args[0]}", fg="red", err=True)
        raise typer.Exit(1) from None


def _list(store: Store, _: str) -> None:
    from reveal_leaderboard.store.deliveries import Deliveries

    for name, webhook in store.settings.webhooks.items():
        typer.echo(f"{name}: {webhook.url} is told {', '.join(webhook.events)}")
    rows = Deliveries(store.engine).newest(SHOWN)
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


def _test(store: Store, name: str) -> None:
    from reveal_leaderboard.store.deliveries import Deliveries

    sender = next((one for one in _senders(store) if one.name == name), None)
    if sender is None:
        raise LookupError(f"NAME must be a webhook of the settings whose key is in the environment, got {name!r}")
    deliveries = Deliveries(store.engine)
    delivery_id = deliveries.add_test(name)
    sender.step(only=delivery_id)
    sent = next(row for row in deliveries.newest(SHOWN) if row.id == delivery_id)
    typer.echo(f"{sent.id}: {sent.status}, answer {'none' if sent.answer is None else sent.answer}")
    if sent.status != "delivered":
        raise typer.Exit(1)


def _retry(store: Store, delivery_id: str) -> None:
    from reveal_leaderboard.store.deliveries import Deliveries

    Deliveries(store.engine).retry(delivery_id)
    typer.echo(f"{delivery_id} is sent again")


def _deliver(store: Store, _: str) -> None:
    from reveal_leaderboard.worker.webhooks import delivering

    log_to_stderr(store.settings.webhooks)
    senders = _senders(store)
    if not senders:
        raise LookupError("there is no webhook in the settings whose key is in the environment")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with delivering(senders):
        stopping.wait()


def _senders(store: Store) -> list[Sender]:
    from reveal_leaderboard.worker.webhooks import open_senders

    return open_senders(store, os.environ)
