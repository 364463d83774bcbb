"""Send the board's events to webhooks, as signed messages by HTTPS that are repeated until accepted.

Conventions
-----------
Messages follow the Standard Webhooks specification 1.0. The body is JSON with `type`, `timestamp` (of the event) and
`data`. The headers are ``webhook-id`` (the same at every attempt), ``webhook-timestamp`` (of the attempt) and
``webhook-signature`` (for each key, ``v1,`` and the HMAC-SHA256 over id, timestamp and body). A message contains only
facts that are public at the time of sending. If an entry is public, or was public until its team withdrew it, the
message contains its address, team and model. For any other entry, the message says only that something happened to an
entry. No message contains a score, a reason or a person.

Each webhook has a thread, so that a slow receiver delays neither scoring nor other webhooks. An attempt ends after
:data:`SECONDS`. Only the status code of the answer is read; redirects are not followed. The host name is looked up once
per attempt, its addresses are checked, and the connection uses a checked address. Proxies in the environment are not
used.

Messages are sent by the process that has the keys in its environment: a worker, or ``reveal-leaderboard webhooks
deliver`` if workers have no network.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import sqlalchemy as sa

from reveal_leaderboard.addresses import is_public_address
from reveal_leaderboard.boards.standings import is_public, read_withdrawn
from reveal_leaderboard.settings import Webhook, webhook_keys
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.deliveries import Deliveries, Delivery
from reveal_leaderboard.store.store import Store, Submission
from reveal_leaderboard.store.tables import events, flags

SECONDS = 15.0
POLL_SECONDS = 1.0
AGAIN_SECONDS = 30.0
LAST_SECONDS = 5.0

log = logging.getLogger(__name__)


class NotAllowedAddressError(OSError):
    """The settings do not allow the receiver's address."""


@dataclass(frozen=True)
class Sender:
    """Sends the messages of one webhook.

    Parameters
    ----------
    keys : signing keys; every message has a signature by each key
    server : address of the board, such as "https://board.example.org"; if empty, messages contain only the path of an
        entry
    """

    store: Store
    name: str
    webhook: Webhook
    keys: Sequence[bytes]
    server: str = ""

    def run(self, stopping: threading.Event) -> None:
        """Send due messages until stopped."""
        while not stopping.is_set():
            try:
                if not self.step():
                    stopping.wait(POLL_SECONDS)
            except Exception as error:  # such as an unreachable database; claimed deliveries become due again later
                log.warning("webhook %s waits", self.name, exc_info=error)
                stopping.wait(AGAIN_SECONDS)

    def step(self, *, only: str | None = None) -> bool:
        """Send one due message (with `only`, the delivery with this id); return True if there was one."""
        deliveries = Deliveries(self.store.engine)
        deliveries.collect(self.name, self.webhook.events)
        delivery = deliveries.claim(self.name, only=only)
        if delivery is None:
            return False
        answer = self._send(delivery)
        log.info("webhook %s, delivery %s, attempt %d: %s", self.name, delivery.id, delivery.attempts, answer)
        deliveries.note(delivery, answer)
        return True

    def _send(self, delivery: Delivery) -> int | None:
        """Return the status code of the answer; None without an answer."""
        try:
            body, at = _body(self.store, delivery, self.server), int(time.time())
            headers = {
                "content-type": "application/json",
                "user-agent": "reveal-leaderboard",
                "webhook-id": delivery.id,
                "webhook-timestamp": str(at),
                "webhook-signature": signatures(self.keys, delivery.id, at, body),
            }
            return asyncio.run(asyncio.wait_for(_post(self.webhook, headers, body), SECONDS))
        except (OSError, ValueError, LookupError, httpx.HTTPError) as error:  # a timeout is an OSError
            log.warning("webhook %s was not reached", self.name, exc_info=error)
            return None


def signatures(keys: Sequence[bytes], message_id: str, at: int, body: bytes) -> str:
    """Return the header ``webhook-signature`` of a message sent at this many seconds since 1970."""
    signed = f"{message_id}.{at}.".encode() + body
    codes = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return " ".join(f"v1,{code}" for code in codes)


def open_senders(store: Store, environ: Mapping[str, str]) -> list[Sender]:
    """Return a sender for each webhook of the settings whose keys are in the environment.

    Raises
    ------
    SettingsError
        If a key is invalid.
    """
    space = environ.get("SPACE_HOST", "")
    server = (environ.get("REVEAL_URL") or (space and f"https://{space}")).rstrip("/")
    senders = []
    for name, webhook in store.settings.webhooks.items():
        if keys := webhook_keys(name, environ):
            senders.append(Sender(store, name, webhook, keys, server))
        else:
            log.warning("webhook %s has no key in the environment: another process must send its messages", name)
    return senders


@contextmanager
def delivering(senders: Sequence[Sender], *, to_the_end: bool = False) -> Iterator[None]:
    """Run the senders during the block; with `to_the_end`, also send the messages that are due at its end."""
    stopping = threading.Event()
    threads = [
        threading.Thread(target=sender.run, args=(stopping,), name=f"webhook {sender.name}", daemon=True)
        for sender in senders
    ]
    for thread in threads:
        thread.start()
    try:
        yield
        stopping.set()
        deadline = time.monotonic() + LAST_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for sender in senders:
            while to_the_end and sender.step():
                pass
    finally:
        stopping.set()


def _body(store: Store, delivery: Delivery, server: str) -> bytes:
    event_id = delivery.event_id
    at, data = (
        (delivery.created_at, {}) if event_id is None else _describe_event(store, event_id, delivery.kind, server)
    )
    message = {"type": delivery.kind, "timestamp": iso_time(at), "data": data}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _describe_event(store: Store, event_id: int, kind: str, server: str) -> tuple[float, dict[str, Any]]:
    """Return the time of an event, and its facts that are public now."""
    with store.read() as connection:
        event = connection.execute(sa.select(events.c.at, events.c.subject).where(events.c.id == event_id)).one()
        submission_id = event.subject.partition(":")[2]
        if kind == "flagged":
            query = sa.select(flags.c.submission_id).where(flags.c.id == submission_id)
            submission_id = connection.execute(query).scalar_one()
    submission = store.get(submission_id)
    if submission is None:
        raise LookupError(f"event {event_id} belongs to a missing submission")
    document: dict[str, Any] = {"event": event_id, "benchmark": submission.benchmark, "version": submission.version}
    if _may_be_named(store, submission):
        document |= {
            "entry": f"{server}/entry?id={submission.id}",
            "team": submission.team,
            "model": submission.model_name,
        }
    return event.at, document


def _may_be_named(store: Store, submission: Submission) -> bool:
    return is_public(submission, store.score_of(submission.id)) or read_withdrawn(store, submission) is not None


async def _post(webhook: Webhook, headers: Mapping[str, str], body: bytes) -> int:
    url = httpx.URL(webhook.url)
    host = url.raw_host.decode("ascii")
    address = await _address(host, url.port or (443 if url.scheme == "https" else 80), is_private=webhook.private)
    sent_to = {"host": url.netloc.decode("ascii"), **headers}
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=_trusted(), timeout=SECONDS) as client,
        client.stream(
            "POST", url.copy_with(host=address), content=body, headers=sent_to, extensions={"sni_hostname": host}
        ) as answer,
    ):
        return answer.status_code


async def _address(host: str, port: int, *, is_private: bool) -> str:
    """Return an address of `host`, after checking that all addresses of the host are allowed."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(socket_address[0]) for *_, socket_address in infos]
    if not is_private and not all(map(is_public_address, addresses)):
        raise NotAllowedAddressError(f"{host} is a private address. Allow it with `private = true`")
    return addresses[0]


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
