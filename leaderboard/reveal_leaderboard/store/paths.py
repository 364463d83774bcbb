"""Locations of a leaderboard's data (data folder, database, uploads, settings), from command-line options.

With only `--data FOLDER`, a SQLite database and the uploads are in this folder. With `--database` and `--blobs`,
several servers and workers share a PostgreSQL database and a bucket, and each has its own data folder for temporary
files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reveal_leaderboard.store.blobs import Blobs
    from reveal_leaderboard.store.store import Store

DATABASE = "leaderboard.sqlite"

Data = Annotated[Path, typer.Option(envvar="REVEAL_DATA", help="Folder of the database and the uploads.")]
Database = Annotated[
    str | None,
    typer.Option(
        envvar="REVEAL_DATABASE",
        metavar="URL",
        help="PostgreSQL URL, such as postgresql+psycopg://host/name; better set in REVEAL_DATABASE.",
    ),
]
BlobsAt = Annotated[
    str | None,
    typer.Option(
        envvar="REVEAL_BLOBS", metavar="URL", help="Where uploads are stored: s3://bucket/folder or a folder."
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(envvar="REVEAL_SETTINGS", exists=True, dir_okay=False, help="TOML file with changed settings."),
]


@dataclass(frozen=True)
class DataPaths:
    """Locations of a leaderboard's data; `settings` is None for the packaged settings."""

    data: Path
    database: str
    blobs: str
    settings: Path | None

    @property
    def shared(self) -> list[Path]:
        """The folders on this machine that a server reads and writes."""
        return [self.data, *([Path(self.blobs)] if self.blobs.startswith(os.sep) else [])]

    @property
    def private(self) -> list[Path]:
        """Paths whose files the web server must never serve."""
        return [self.data / DATABASE, *(folder for folder in self.shared[1:] or [self.data / "blobs"])]

    def open_store(self, *, is_new: bool = True) -> Store:
        """Return the store on the migrated database, with the settings; if `is_new`, create a missing database."""
        file = self.database.removeprefix("sqlite:///")
        if not is_new and file != self.database and not Path(file).is_file():
            raise typer.BadParameter(f"no board at {file}", param_hint="--data")
        from sqlalchemy.exc import DatabaseError

        from reveal_leaderboard.settings import SettingsError, load_settings
        from reveal_leaderboard.store.store import Store

        try:
            settings = load_settings(self.settings)
        except SettingsError as error:
            raise typer.BadParameter(str(error), param_hint="--settings") from None
        make_folder(self.data, "--data")
        try:
            return Store(self.database, settings)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--data or --database") from None
        except DatabaseError as error:
            message = f"the database cannot be opened ({error.orig}); nothing was changed"
            raise typer.BadParameter(message, param_hint="--data or --database") from None

    def open_blobs(self) -> Blobs:
        """Return the store of uploads."""
        from reveal_leaderboard.store.blobs import Blobs

        try:
            return Blobs(self.blobs)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--data or --blobs") from None


def make_folder(folder: Path, option: str) -> None:
    """Create a folder with access for its user only; an error names the command-line option."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        words = f"{folder} must be a folder that this user may write to: {error.strerror}"
        raise typer.BadParameter(words, param_hint=option) from None


def resolve_paths(data: Path, database: str | None, blobs: str | None, settings: Path | None) -> DataPaths:
    """Return the locations for these options."""
    data = data.resolve()
    if blobs is None:
        blobs = str(data / "blobs")
    elif "://" not in blobs:
        blobs = str(Path(blobs).resolve())
    return DataPaths(data, database or f"sqlite:///{data / DATABASE}", blobs, settings and settings.resolve())
