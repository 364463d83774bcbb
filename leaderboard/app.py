"""Entry of the Hugging Face Space: fetches the folders, then keeps one server and one worker running.

Conventions
-----------
Everything comes from the Space's settings (README.md says how to fill them in). This process alone gets the token of
the holdout; it downloads the folders and hands the token on to nobody. The server is started without any token or key
of a webhook and takes away its own right to open anything but the public folders and the board's data; the worker is
started without the secrets of signing in. On a Space both run as the same user, so without Landlock nothing would keep
them apart: then this refuses to start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOKENS = ("HF_HOLDOUT_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
SIGN_IN = ("OAUTH_CLIENT_SECRET", "OAUTH_CLIENT_ID", "REVEAL_METRICS_TOKEN")
PUBLIC_FILES = ["*.json", "*.md", "manifest/*"]
"""What the server needs of a public dataset: what is asked, not the pictures."""

Download = Callable[[str, str, Path, "str | None", "list[str] | None"], None]


class SpaceError(ValueError):
    """The Space is not set up; the message names the setting, the rule and the value."""


@dataclass(frozen=True)
class Source:
    """A dataset repository at a revision; `name` is the benchmark (holdouts) and `split` the scored one (public)."""

    repo_id: str
    revision: str
    name: str = ""
    split: str = "holdout"


def sources(text: str, setting: str, *, named: bool) -> list[Source]:
    """Read a setting such as ``org/data@v1.0.0`` or, `named`, ``chexlocalize=org/data-holdout@v1.0.0``.

    Raises
    ------
    SpaceError
        If there is none, or one names no repository or no revision: a board must not change under its users' feet.
    """
    found = []
    for word in text.split():
        name, _, rest = word.partition("=") if named else ("", "", word)
        repo_id, _, tail = rest.partition("@")
        revision, _, split = tail.partition(":")
        if repo_id.count("/") != 1 or not revision or (named and not name):
            form = "NAME=OWNER/DATASET@REVISION" if named else "OWNER/DATASET@REVISION[:SPLIT]"
            raise SpaceError(f"{setting} must hold {form}, several with spaces between, got {word!r}")
        found.append(Source(repo_id, revision, name, split or "holdout"))
    if not found:
        raise SpaceError(f"{setting} must name at least one dataset, got nothing")
    return found


def plan(environ: Mapping[str, str], home: Path, download: Download) -> dict[str, Sequence[str]]:
    """Fetch the folders below `home`; the commands of the server and the worker.

    Raises
    ------
    SpaceError
        If a setting is missing or wrong.
    """
    for name in ("SPACE_ID", "SPACE_HOST", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET"):
        if not environ.get(name):
            raise SpaceError(f"{name} must be set: this runs as a Space with `hf_oauth: true` only")
    public = sources(environ.get("REVEAL_PUBLIC", ""), "REVEAL_PUBLIC", named=False)
    private = sources(environ.get("REVEAL_HOLDOUTS", ""), "REVEAL_HOLDOUTS", named=True)
    token = environ.get("HF_HOLDOUT_TOKEN")
    if not token:
        raise SpaceError("HF_HOLDOUT_TOKEN must be set, a secret that reads the private holdout datasets and no more")
    data = Path(environ.get("REVEAL_DATA") or "/data")
    if not data.is_dir():
        raise SpaceError(f"REVEAL_DATA must be a folder on the Space's persistent storage, got {data}")
    serve = ["--data", str(data / "board"), "--auth", "huggingface", "--host", "0.0.0.0", "--port", _port(environ)]
    serve += ["--proxies", "1"]
    for number, source in enumerate(public):
        folder = home / "public" / str(number)
        download(source.repo_id, source.revision, folder, environ.get("HF_TOKEN"), PUBLIC_FILES)
        serve += ["--benchmark", f"{folder}:{source.split}"]
    work = ["--data", str(data / "board"), "--vault", str(data / "vault")]
    (home / "holdouts").mkdir(mode=0o700, exist_ok=True)
    for number, source in enumerate(private):
        folder = home / "holdouts" / str(number)
        download(source.repo_id, source.revision, folder, token, None)
        work += ["--holdout", f"{source.name}={folder}"]
    keys = tuple(name for name in environ if name.startswith("REVEAL_WEBHOOK_"))
    return {"server": _command("serve", serve, TOKENS + keys), "worker": _command("worker", work, TOKENS + SIGN_IN)}


def _port(environ: Mapping[str, str]) -> str:
    return environ.get("PORT") or "7860"


def _command(role: str, options: Sequence[str], without: Sequence[str]) -> list[str]:
    hidden = [word for name in without for word in ("-u", name)]
    return ["env", *hidden, sys.executable, "-m", "reveal_leaderboard", role, *options]


def fetch(repo_id: str, revision: str, folder: Path, token: str | None, patterns: list[str] | None) -> None:
    """Download a dataset repository at a revision; without a token only what everybody may read."""
    from huggingface_hub import snapshot_download

    snapshot_download(
        repo_id, repo_type="dataset", revision=revision, local_dir=folder, token=token or False, allow_patterns=patterns
    )


def main() -> None:
    """Fetch, start, and look after both until the Space is stopped."""
    from reveal_leaderboard.custody.confinement import landlock_abi
    from reveal_leaderboard.worker.supervisor import Supervisor

    try:
        if landlock_abi() < 1 and os.environ.get("REVEAL_UNCONFINED") != "accepted":
            raise SpaceError(
                "this kernel has no Landlock, so nothing would keep the server from the holdout: run the worker "
                "elsewhere (README.md), or set REVEAL_UNCONFINED to `accepted`"
            )
        commands = plan(os.environ, Path.home(), fetch)
    except SpaceError as error:
        sys.exit(f"error: {error}")
    supervisor = Supervisor(commands)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stopping.set())
    supervisor.run()


if __name__ == "__main__":
    main()
