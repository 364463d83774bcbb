"""A board under fire: a real server and two real workers, submissions to them, and the check of everything they wrote.

Conventions
-----------
Servers and workers are forked by a process that has already imported everything, because each kill needs new ones.

One of the two workers has orders to die, and the other takes no jobs until then. The lease of the dead one is ended at
once: that leases expire with time is shown by the tests of the queue and by the many kills. The other worker then
finishes the remaining jobs, and a third replaces the dead one. Each submission has its own team, so its scores are its
own: they must equal, bit for bit, the scores of the same predictions in the undisturbed runs at the start of an arena.
Files differ in meaningless blanks, so that each is stored by itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import sqlalchemy as sa
from reveal_leaderboard.store.audit import audit
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import jobs, ledger, receipts, results, scores, submissions

from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from tests.leaderboard.conftest import ACCEPTED, ASKING, BENCHMARK, METADATA, Board, free_port, guesses, wait_until
from tests.leaderboard.forked import FORKS
from tests.leaderboard.kill.orders import Desk, Orders
from tests.leaderboard.kill.processes import Process, descendants, is_alive
from tests.leaderboard.kill.victim import run

N_FILES = 3
LEASE_SECONDS = 3.0
PATIENCE = 240.0
"""Seconds: the first start of all compiles, perhaps on a busy machine."""


@dataclass
class Send:
    """A submission to be sent: its key, its team, its predictions; and its id once it was acknowledged."""

    key: str
    team: str
    file: int
    content: bytes = field(repr=False)
    id: str = ""


@dataclass
class Player:
    """A server or worker, its orders, and whatever it ever started as far as it was seen."""

    process: ForkServerProcess
    pid: int
    desk: Desk
    seen: set[Process] = field(default_factory=set)

    def look(self) -> bool:
        """Note what it started; whether it runs."""
        self.seen |= descendants(self.pid)
        return self.process.exitcode is None

    def wait_killed(self) -> None:
        """Wait until it was killed and nothing that it started is left."""
        wait_until(lambda: not self.look(), seconds=PATIENCE, pause=0.15)
        assert self.process.exitcode == -signal.SIGKILL
        wait_until(lambda: not any(map(is_alive, self.seen)), seconds=PATIENCE, pause=0.15)


class Arena:
    """The board at `url` with its uploads at `blobs`, all else below `root`; everything random is drawn from `seed`."""

    def __init__(self, board: Board, url: str, blobs: str, root: Path, seed: int) -> None:
        self.board, self.url, self.root, self.data = board, url, root, root / "data"
        self.draw = random.Random(seed)
        self.numbers = count(1)
        self.sends: list[Send] = []
        self.players: list[Player] = []
        self.client = httpx.Client(verify=False, timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))
        self.port = free_port()
        self.texts = [predictions_to_jsonl(guesses(board.manifest, seed=n)) for n in range(N_FILES)]
        self.undisturbed: dict[int, tuple[str, bytes]] = {}
        self.store, self.blobs = Store(url), Blobs(blobs)
        self.server: Player
        self.workers: list[Player] = []

    # Processes ------------------------------------------------------------------------------------------------------

    def start(self, command: str, *words: str | Path) -> Player:
        """A process with the product's command line that takes no jobs until ordered to."""
        number = next(self.numbers)
        desk = Desk(self.data / "desks" / str(number))  # a confined server reads and writes below its data only
        desk.give(Orders(number, is_held=True))
        settings = self.root / "settings.toml"
        settings.write_text(
            f"[exposure]\nclose_bits = 1000.0\n{ACCEPTED}", encoding="utf-8"
        )  # or the board pauses after six teams
        options = [
            "--data",
            str(self.data),
            "--database",
            self.url,
            "--blobs",
            self.blobs.url,
            "--settings",
            str(settings),
        ]
        options += map(str, words)
        scratch, log = self.root / "scratch", self.root / f"{command}.log"
        scratch.mkdir(exist_ok=True)
        environ = {**os.environ, "TMPDIR": str(scratch)}
        process = FORKS.Process(target=run, args=(desk, log, environ, [command, *options]), daemon=True)
        process.start()
        assert process.pid is not None
        player = Player(process, process.pid, desk)
        self.players.append(player)
        return player

    def start_server(self) -> Player:
        """A server that answers."""
        player = self.start("serve", "--benchmark", self.board.folder, "--port", str(self.port))

        def answers() -> bool:
            assert player.process.exitcode is None, self.log("serve")
            with suppress(httpx.TransportError):
                return self.client.get(self.address("/readyz")).status_code == 200
            return False

        wait_until(answers, seconds=PATIENCE, pause=ASKING)
        return player

    def start_worker(self) -> Player:
        """A worker that takes no jobs yet."""
        holdout, vault = f"{BENCHMARK}={self.board.holdout}", self.root / "vault"
        return self.start("worker", "--holdout", holdout, "--vault", vault, "--lease-seconds", str(LEASE_SECONDS))

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def order(self, player: Player, **words: object) -> Orders:
        """Give new orders."""
        orders = replace(Orders(), number=next(self.numbers), **words)  # type: ignore[arg-type]
        player.desk.give(orders)
        return orders

    def close(self) -> None:
        """End everything that was started here."""
        for player in self.players:
            player.look()
            player.process.kill()
            player.process.join()
        self.client.close()
        self.store.engine.dispose()
        wait_until(lambda: not any(is_alive(one) for player in self.players for one in player.seen))

    def lapse(self, player: Player) -> None:
        """End the leases of a worker that is dead or stopped, as if their time were over."""
        mine = jobs.c.status == "leased", jobs.c.worker.endswith(f"-{player.pid}")
        with self.store.write() as connection:
            connection.execute(jobs.update().where(*mine).values(lease_until=1.0))

    # Sending --------------------------------------------------------------------------------------------------------

    def new_send(self) -> Send:
        """A submission that nobody sent before."""
        number = len(self.sends)
        file = number % N_FILES
        head, _, tail = self.texts[file].partition("\n")
        content = f"{head[:-1]}{' ' * (number + 1)}}}\n{tail}".encode()
        send = Send(f"key-{number}", f"Laboratory {number}", file, content)
        self.sends.append(send)
        return send

    def request(self, send: Send) -> httpx.Request:
        """The request that submits it."""
        return httpx.Request(
            "POST",
            self.address("/api/v1/submissions"),
            data={"benchmark": BENCHMARK, "metadata": json.dumps(METADATA | {"organization": send.team})},
            files={"file": ("predictions.jsonl", send.content)},
            headers={"Idempotency-Key": send.key},
        )

    def post(self, send: Send) -> bool | None:
        """Submit; whether it was new, or None if no answer came. Without any answer, nothing is acknowledged."""
        try:
            response = self.client.send(self.request(send))
        except httpx.TransportError:
            return None
        assert response.status_code == 202, response.text
        document = response.json()
        assert send.id in ("", document["id"])
        send.id = document["id"]
        return bool(document["is_new"])

    def post_all(self, sends: Sequence[Send]) -> list[bool | None]:
        """Submit at the same time."""
        with ThreadPoolExecutor(len(sends)) as pool:
            return list(pool.map(self.post, sends))

    # Checking -------------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Return True if no job is left; assert that no worker ended without being killed."""
        assert all(player.process.exitcode in (None, -signal.SIGKILL) for player in self.workers), self.log("worker")
        left = sa.select(sa.func.count()).where(jobs.c.status.in_(("queued", "leased")))
        with self.store.read() as connection:
            return bool(connection.execute(left).scalar_one() == 0)

    def wait_idle(self) -> None:
        """Wait until no job is left."""
        wait_until(self.is_idle, seconds=PATIENCE, pause=0.15)

    def wait_met(self, player: Player, orders: Orders) -> None:
        """Wait until orders are carried out; if all children were too quick for them, there is another submission."""

        def is_met() -> bool:
            if orders.point.startswith("mid-") and self.is_idle() and not player.desk.is_done(orders.number):
                self.post(self.new_send())
            return not player.look() or player.desk.is_done(orders.number)

        wait_until(is_met, seconds=PATIENCE, pause=0.15)
        assert player.desk.is_done(orders.number)

    def open(self) -> None:
        """Start everything, have each of the files scored while nobody dies, and note what comes out."""
        self.server = self.start_server()
        self.workers = [self.start_worker(), self.start_worker()]
        self.order(self.workers[0])
        sends = [self.new_send() for _ in range(N_FILES)]
        assert self.post_all(sends) == [True] * N_FILES
        self.wait_idle()
        with self.store.read() as connection:
            for send in sends:
                released = sa.select(scores.c.released).where(scores.c.submission_id == send.id)
                document = json.dumps(connection.execute(released).scalar_one(), sort_keys=True)
                self.undisturbed[send.file] = document, self.rows(send)
        self.check()

    def half_written(self) -> list[Path]:
        """Return the files that killed workers left in the vault."""
        return list((self.root / "vault").glob(".writing-*"))

    def rows(self, send: Send) -> bytes:
        """The exact rows that the vault holds of a submission."""
        (path,) = (self.root / "vault").glob(f"{send.id}.*.npz")
        return path.read_bytes()

    def check(self) -> None:
        """Everything acknowledged is scored once, charged once and as ever; nothing else is there; all books agree."""
        with self.store.read() as connection:
            assert audit(connection, blobs=self.blobs).problems == ()
            known = set(connection.execute(sa.select(submissions.c.id)).scalars())
            assert known == {send.id for send in self.sends}
            for send in self.sends:
                self._check_one(connection, send)
            by_status = sa.select(jobs.c.status, sa.func.count()).group_by(jobs.c.status)
            assert connection.execute(by_status).all() == [("done", len(self.sends) + 1)]  # one of them ranks
            spent = connection.execute(sa.select(sa.func.sum(ledger.c.amount))).scalar_one()
            charged = sa.select(sa.func.count()).where(ledger.c.kind == "charged")
            assert spent == connection.execute(charged).scalar_one() == len(self.sends)
            placed = connection.execute(sa.select(results.c.document).where(results.c.kind == "rank")).scalar_one()
            assert set(placed["entries"]) == known
        assert self.blobs.orphans(self.store, older_than=0) == []
        assert list(self.data.glob("blobs/incoming/*")) == []

    def _check_one(self, connection: sa.Connection, send: Send) -> None:
        mine = submissions.c.id == send.id
        assert connection.execute(sa.select(submissions.c.status).where(mine)).scalar_one() == "scored", send
        (score,) = connection.execute(sa.select(scores).where(scores.c.submission_id == send.id)).all()
        assert (json.dumps(score.released, sort_keys=True), self.rows(send)) == self.undisturbed[send.file]
        assert score.shown_of == send.id
        of = receipts.c.submission_id == send.id
        assert connection.execute(sa.select(sa.func.count()).where(of)).scalar_one() == 1
        booked = (
            sa.select(ledger.c.kind, ledger.c.amount).where(ledger.c.submission_id == send.id).order_by(ledger.c.id)
        )
        assert connection.execute(booked).all() == [("reserved", 1), ("charged", 0)]

    def check_books(self, sends: Sequence[Send]) -> set[str]:
        """Check the invariants after a server died, and return the keys of everything that it wrote.

        What was acknowledged is written down; of the rest, an upload may be stored, whole, and is then an orphan.
        """
        with self.store.read() as connection:
            assert audit(connection, blobs=self.blobs).problems == ()
            there = {row.idempotency_key: row.id for row in connection.execute(sa.select(submissions))}
        for send in self.sends:
            assert send in sends or send.key in there
            assert not send.id or there[send.key] == send.id
        unwritten = {sha256(send.content).hexdigest() for send in sends if send.key not in there}
        orphans = self.blobs.orphans(self.store, older_than=0)
        assert set(orphans) <= unwritten
        for name in orphans:
            with self.blobs.open_local(name):  # which compares its content
                pass
        return set(there)

    def log(self, command: str) -> str:
        """Return the output of all servers, or of all workers, so far."""
        return (self.root / f"{command}.log").read_text(encoding="utf-8")


@contextmanager
def arena(board: Board, url: str, blobs: str, root: Path, seed: int) -> Iterator[Arena]:
    """An arena with its first runs behind it."""
    opened = Arena(board, url, blobs, root, seed)
    try:
        opened.open()
        yield opened
    finally:
        opened.close()
