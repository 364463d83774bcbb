"""Messages to webhooks: their contents, times and receivers."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.cli import app
from reveal_leaderboard.settings import Webhook, load_settings
from reveal_leaderboard.store.database import moment
from reveal_leaderboard.store.deliveries import KEPT_SECONDS, PAUSES, Deliveries, Delivery
from reveal_leaderboard.store.scores import raise_flag
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import deliveries
from reveal_leaderboard.worker import webhooks
from reveal_leaderboard.worker.webhooks import Sender, delivering, signatures
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.leaderboard.conftest import free_port, running, wait_until
from tests.leaderboard.databases import database_url, on_both
from tests.leaderboard.filled_board import FilledBoard, filled
from tests.leaderboard.receiver import SECRET, Receiver, receiving
from tests.markdown import block_below

__all__ = ["database_url", "filled"]

GUIDE = ROOT / "docs" / "operating.md"
SERVER = "https://board.example.org"
ALL = ("scored", "withdrawn", "flagged")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def sender(store: Store, url: str, name: str = "chat", *, private: bool = True) -> Sender:
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    return Sender(store, name, Webhook(url, ALL, private), [key], SERVER)


def all_sent(one: Sender) -> None:
    while one.step():
        pass


def rows(store: Store) -> list[Delivery]:
    return Deliveries(store.engine).newest(100)


def wait_over(store: Store) -> None:
    """Whatever waits is due."""
    with store.write() as connection:
        connection.execute(deliveries.update().values(next_at=deliveries.c.next_at - PAUSES[-1]))


def test_a_signature_is_that_of_the_specifications_own_example() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signatures([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@on_both
def test_what_happens_is_told_as_far_as_everybody_may_know_it(filled: FilledBoard, receiver: Receiver) -> None:
    chat = sender(filled.store, receiver.url)
    assert not chat.step()  # no earlier event
    filled.score_next(0.47)
    public = filled.score(b"best of all", "Ä <b>model</b>", 0.83)
    filled.score(b"not better than that", "Model G", 0.83)  # held by the ladder
    filled.store.withdraw(public.id, who="user:x")
    filled.store.withdraw(filled.send(b"never scored", "Model H").id, who="user:x")
    with filled.store.write() as connection:
        raise_flag(connection, public.id, "probing", None, "nearly that of another")
    hidden = filled.score(b"the very best", "Model I", 0.93)
    filled.store.hide(hidden.id, who="user:admin", why="doubtful")
    all_sent(chat)
    messages = [(message["type"], set(message["data"])) for message in receiver.messages]
    least, named = {"event", "benchmark", "version"}, {"event", "benchmark", "version", "entry", "team", "model"}
    assert messages == [
        ("scored", least),  # the submission that waited before; it shows another one's figures
        ("scored", named), ("scored", least), ("withdrawn", named), ("withdrawn", least), ("flagged", named),
        ("scored", least),  # hidden by the time of sending
    ]  # fmt: skip
    data = {"benchmark": "chexlocalize", "version": "1.0.0", "entry": f"{SERVER}/entry?id={public.id}"}
    data |= {"team": "Example Laboratory", "model": "Ä <b>model</b>"}
    with filled.store.read() as connection:
        query = "SELECT id, at FROM events WHERE subject = :s AND to_status = 'scored'"
        event = connection.execute(sa.text(query), {"s": f"submission:{public.id}"}).one()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at))
    assert receiver.messages[1] == {"type": "scored", "timestamp": at, "data": {"event": event.id, **data}}
    everything = b"".join(body for _, body in receiver.got)
    assert not re.search(rb"0\.83|0\.93|probing|nearly|doubtful|user:|Model [GHI]|Person", everything)
    assert len(set(receiver.ids)) == 7
    assert {(row.status, row.answer, row.attempts) for row in rows(filled.store)} == {("delivered", 204, 1)}


@on_both
def test_what_was_undone_is_not_told(filled: FilledBoard, receiver: Receiver) -> None:
    chat, first = sender(filled.store, receiver.url), filled.store.list_submissions()[0].id
    all_sent(chat)
    with filled.store.engine.connect() as connection:
        raise_flag(connection, first, "probing", None, "")
        connection.rollback()
    all_sent(chat)
    assert receiver.got == []


@on_both
def test_who_dies_before_the_answer_is_noted_sends_again_under_the_same_id(
    filled: FilledBoard, receiver: Receiver
) -> None:
    chat, outbox = sender(filled.store, receiver.url), Deliveries(filled.store.engine)
    outbox.add_test("chat")
    dead = outbox.claim("chat")
    assert dead is not None
    assert chat._send(dead) == 204
    assert not chat.step()  # it is another's, as long as that may live
    wait_over(filled.store)
    receiver.status = 500
    assert chat.step()
    outbox.note(dead, 204)  # too late: it was claimed anew
    assert receiver.ids == [dead.id] * 2
    assert [(row.status, row.answer, row.attempts) for row in rows(filled.store)] == [("waiting", 500, 2)]


def test_a_killed_process_sends_again_under_the_same_id(
    filled: FilledBoard, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVEAL_WEBHOOK_CHAT_SECRET", SECRET)
    settings = tmp_path / "webhooks.toml"
    settings.write_text(f'[webhooks.chat]\nurl = "{receiver.url}"\nevents = ["scored"]\nprivate = true\n')
    Deliveries(filled.store.engine).add_test("chat")
    where = ("--data", tmp_path, "--database", str(filled.store.engine.url))
    arguments = ("webhooks", *where, "--settings", settings, "deliver")
    with running(*arguments, log=tmp_path / "log") as process:
        receiver.before = lambda: os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    receiver.before = lambda: None
    (row,) = rows(filled.store)
    assert (row.status, row.attempts, row.answer) == ("waiting", 1, None)
    wait_over(filled.store)
    with running(*arguments, log=tmp_path / "log"):
        wait_until(lambda: rows(filled.store)[0].status == "delivered")
    assert receiver.ids == [row.id] * 2
    assert receiver.messages[0]["type"] == "test"


def test_attempts_come_later_and_later_and_end(filled: FilledBoard, receiver: Receiver) -> None:
    chat, outbox = sender(filled.store, receiver.url), Deliveries(filled.store.engine)
    outbox.add_test("chat")
    receiver.status = 302  # to itself: were it followed, it would be sent twice
    for n, pause in enumerate(PAUSES, start=1):
        assert chat.step()
        assert not chat.step()
        (row,) = rows(filled.store)
        assert (row.status, row.attempts, row.answer) == ("waiting", n, 302)
        with filled.store.read() as connection:
            assert row.next_at - pause == pytest.approx(moment(connection), abs=20)
        wait_over(filled.store)
    assert chat.step()
    (row,) = rows(filled.store)
    assert (row.status, row.attempts, row.answer) == ("failed", len(PAUSES) + 1, 302)
    assert receiver.ids == [row.id] * (len(PAUSES) + 1)
    outbox.retry(row.id)
    receiver.status = 410
    assert chat.step()
    assert [(row.status, row.attempts, row.answer) for row in rows(filled.store)] == [("failed", 1, 410)]
    with filled.store.write() as connection:
        connection.execute(deliveries.update().values(ended_at=deliveries.c.ended_at - KEPT_SECONDS))
    filled.score_next(0.2)
    all_sent(chat)
    assert {row.kind for row in rows(filled.store)} == {"scored"}  # what ended so long ago is forgotten
    with pytest.raises(LookupError, match="no delivery 'x'"):
        outbox.retry("x")


def test_a_clock_that_is_set_back_holds_no_message(filled: FilledBoard, receiver: Receiver) -> None:
    chat = sender(filled.store, receiver.url)
    Deliveries(filled.store.engine).add_test("chat")
    with filled.store.write() as connection:
        connection.execute(deliveries.update().values(next_at=deliveries.c.next_at + 10 * PAUSES[-1]))
    assert chat.step()


def test_a_receiver_that_hangs_holds_up_nobody_else(
    filled: FilledBoard, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    with receiving() as hanging:
        hanging.before = lambda: let_go.wait(60)
        both = [sender(filled.store, hanging.url, "slow"), sender(filled.store, receiver.url)]
        for one in both:
            all_sent(one)
        with delivering(both):
            filled.score_next(0.9)
            wait_until(lambda: hanging.got)
            wait_until(lambda: receiver.got)
            filled.score(b"scored meanwhile", "Model K", 0.95)
            wait_until(lambda: len(receiver.got) == 2)
            assert len(hanging.got) == 1
            let_go.set()
            wait_until(lambda: len(hanging.got) == 2)


def test_an_attempt_ends_whatever_the_receiver_does(
    filled: FilledBoard, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "SECONDS", 0.2)
    let_go = threading.Event()
    receiver.before = lambda: let_go.wait(60)
    Deliveries(filled.store.engine).add_test("chat")
    assert sender(filled.store, receiver.url).step()
    let_go.set()
    assert [(row.status, row.answer) for row in rows(filled.store)] == [("waiting", None)]


INSIDE = ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "::",
          "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_a_private_address_is_not_asked_unless_the_settings_say_so(
    filled: FilledBoard, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """One of the name's addresses is allowed, and the connection would go there; the name is refused anyway."""
    asked = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append((host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("93.184.216.34", address)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    Deliveries(filled.store.engine).add_test("chat")
    assert sender(filled.store, receiver.url.replace("127.0.0.1", "hook.example"), private=False).step()
    assert (len(asked), receiver.got) == (1, [])
    assert [(row.status, row.answer) for row in rows(filled.store)] == [("waiting", None)]


def test_the_address_that_was_checked_is_the_one_that_is_asked_and_the_name_is_proved(
    filled: FilledBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_side, client_side = certificate(tmp_path, "hook.example")
    monkeypatch.setattr(webhooks, "_trusted", lambda: client_side)
    asked = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    outbox = Deliveries(filled.store.engine)
    with receiving(server_side) as receiver:
        port = receiver.url.split(":")[2]
        for name in ("hook.example", "other.example"):
            outbox.add_test(name.partition(".")[0])
            assert sender(filled.store, f"https://{name}:{port}", name.partition(".")[0]).step()
        (headers,) = [headers for headers, _ in receiver.got]
    assert (headers["host"], asked) == (f"hook.example:{port.split('/')[0]}", ["hook.example", "other.example"])
    assert {row.webhook: row.answer for row in rows(filled.store)} == {"hook": 204, "other": None}


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return server and client contexts for a new certificate of `name`, which the client trusts."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, today = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file = folder / "certificate.pem"
    file.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=str(file))


def test_operators_list_test_and_repeat(
    filled: FilledBoard, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--data", str(tmp_path), "--database", str(filled.store.engine.url)]
    settings = tmp_path / "webhooks.toml"
    settings.write_text(f'[webhooks.chat]\nurl = "{receiver.url}"\nevents = ["scored"]\nprivate = true\n')

    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["webhooks", *words, *where, "--settings", str(settings)])
        assert done.exit_code == code, done.output
        return done.output

    assert "must be a webhook of the settings whose key is in the environment, got 'chat'" in run(
        "test", "chat", code=1
    )
    monkeypatch.setenv("REVEAL_WEBHOOK_CHAT_SECRET", SECRET)
    receiver.status = 500
    assert run("test", "chat", code=1).endswith(": waiting, answer 500\n")
    receiver.status = 204
    assert run("test", "chat").endswith(": delivered, answer 204\n")
    listed = run().splitlines()
    assert listed[0] == f"chat: {receiver.url} receives scored"
    assert [re.split("  +", line)[1:4] for line in listed[1:]] == [["webhook", "kind", "event"]] + [
        ["chat", "test", "-"]
    ] * 2
    assert "is sent again" in run("retry", receiver.ids[0])
    assert "no delivery 'x'" in run("retry", "x", code=1)
    assert {message["type"] for message in receiver.messages} == {"test"}


def test_who_has_the_key_sends_and_names_the_server(filled: FilledBoard, tmp_path: Path) -> None:
    text = "".join(f'[webhooks.{name}]\nurl = "https://a.example"\nevents = ["scored"]\n' for name in ("a", "b-c"))
    (tmp_path / "own.toml").write_text(text)
    store = Store(filled.store.engine.url, load_settings(tmp_path / "own.toml"))
    key = {"REVEAL_WEBHOOK_B_C_SECRET": SECRET}
    places = [{}, {"REVEAL_URL": f"{SERVER}/"}, {"SPACE_HOST": "my.hf.space"}]
    senders = [[(one.name, one.server) for one in webhooks.open_senders(store, key | place)] for place in places]
    assert senders == [[("b-c", "")], [("b-c", SERVER)], [("b-c", "https://my.hf.space")]]
    assert webhooks.open_senders(store, {}) == []
    store.engine.dispose()


def test_the_settings_and_the_message_of_the_guide_are_right(tmp_path: Path) -> None:
    table = block_below(GUIDE, "Webhooks", "toml")
    (tmp_path / "own.toml").write_text(table)
    assert load_settings(tmp_path / "own.toml").webhooks == {"chat": Webhook("https://chat.example.org/board", ALL)}
    message = json.loads(block_below(GUIDE, "Webhooks", "json"))
    assert set(message["data"]) == {
        "event",
        "benchmark",
        "version",
        "entry",
        "team",
        "model",
    }


def test_the_receiver_of_the_guide_takes_what_is_signed_and_nothing_else(
    filled: FilledBoard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = block_below(GUIDE, "Webhooks", "python")
    port = free_port()
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    assert "8790" in code
    threading.Thread(target=exec, args=(code.replace("8790", str(port)), {}), daemon=True).start()
    good = sender(filled.store, f"http://127.0.0.1:{port}")
    outbox = Deliveries(filled.store.engine)

    def taken(one: Sender) -> int | None:
        delivery_id = outbox.add_test("chat")
        one.step(only=delivery_id)
        return next(row.answer for row in rows(filled.store) if row.id == delivery_id)

    wait_until(lambda: taken(good) == 204)
    assert '{"type":"test"' in capsys.readouterr().out
    assert taken(Sender(good.store, "chat", good.webhook, [bytes(32), *good.keys])) == 204  # while keys change
    assert taken(Sender(good.store, "chat", good.webhook, [bytes(32)])) == 400
