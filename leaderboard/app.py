"""Start a Hugging Face Space: download the datasets, then run a server, and for a demo also a worker.

Conventions
-----------
All options are settings of the Space (README.md explains them). A Space loses all files at a restart, so it runs in one
of two ways:

- as a *server*: the database, the uploads (``REVEAL_DATABASE``, ``REVEAL_BLOBS``), and the worker with holdouts and
  vault are on other machines;
- as a *demo* (``REVEAL_HOLDOUTS``): server and worker run here, and a restart loses everything. Only this process gets
  the holdouts' token. Server and worker run as the same user, so only Landlock keeps the server from the holdouts:
  without Landlock, a demo does not start.

The server never gets a token of the Hub or a key of a webhook, and the worker never gets the sign-in secrets.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOKENS = ("HF_HOLDOUT_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
SIGN_IN = ("OAUTH_CLIENT_SECRET", "OAUTH_CLIENT_ID", "REVEAL_METRICS_TOKEN")
SPACE = ("SPACE_ID", "SPACE_HOST", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET")
STORES = {
    "REVEAL_DATABASE": "postgresql+psycopg://",
    "REVEAL_BLOBS": "s3://",
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
}
"""Setting that says where a server stores its data -> start of a valid value."""
PUBLIC_FILES = ["*.json", "*.md", "manifest/*"]
"""Patterns of the files that the server needs from a public dataset: the manifest, not the images."""

FORMS = {False: "OWNER/DATASET@REVISION[:SPLIT]", True: "NAME=OWNER/DATASET@REVISION"}
_WORD = re.compile(
    r"(?!.*hf_[A-Za-z0-9]{20})"  # no token instead of a dataset or revision
    r"(?:(?P<name>\w[\w.-]*)=)?(?P<repo_id>\w[\w.-]*/\w[\w.-]*)@(?P<revision>\w[\w.+/-]*)(?::(?P<split>\w[\w.-]*))?",
    re.ASCII,
)


class SpaceError(ValueError):
    """A setting of the Space is missing or wrong; the message names the setting and its rule, but no value, which may
    be a secret.
    """


@dataclass(frozen=True)
class Source:
    """A dataset repository at a revision: a holdout with its benchmark `name`, or a public dataset with its scored
    `split`.
    """

    repo_id: str
    revision: str
    name: str = ""
    split: str = "holdout"


@dataclass(frozen=True)
class Access:
    """The setting that names datasets, the setting of the token that reads them, and the token."""

    setting: str
    token_setting: str
    token: str | None


Download = Callable[[Source, Access, Path, "list[str] | None"], None]


def sources(text: str, setting: str, *, named: bool) -> list[Source]:
    """Return the datasets in a setting such as ``org/data@v1.0.0`` or, if `named`,
    ``chexlocalize=org/data-holdout@v1.0.0``.

    Raises
    ------
    SpaceError
        If the setting is empty, or a dataset is repeated or malformed, for example without a revision. Revisions are
        required so that a board cannot change unnoticed.
    """
    datasets: list[Source] = []
    for number, word in enumerate(text.split(), start=1):
        match = _WORD.fullmatch(word)
        if match is None or bool(match["name"]) is not named or (named and match["split"]):
            form = FORMS[named]
            raise SpaceError(f"{setting} must contain {form}, separated by spaces, but word {number} does not match")
        source = Source(match["repo_id"], match["revision"], match["name"] or "", match["split"] or "holdout")
        if any(_key(source) == _key(other) for other in datasets):
            what = "NAME" if named else "dataset and split"
            raise SpaceError(f"{setting} must contain each {what} once per revision, but word {number} is a repetition")
        datasets.append(source)
    if not datasets:
        raise SpaceError(f"{setting} must name at least one dataset, got nothing")
    return datasets


def _key(source: Source) -> tuple[str, str, str]:
    """Return the name, revision and split, which identify a dataset: new labels of a benchmark are a new revision."""
    return source.name or source.repo_id, source.revision, source.split


def plan(environ: Mapping[str, str], home: Path, download: Download) -> dict[str, Sequence[str]]:
    """Download the datasets below `home`; return the command that starts the server and, for a demo, the worker's
    command.

    Raises
    ------
    SpaceError
        If a setting is missing or wrong (checked before any download), or if a dataset cannot be downloaded.
    """
    for name in SPACE:
        if not environ.get(name):
            raise SpaceError(f"{name} must be set: this runs as a Space with `hf_oauth: true` only")
    public = sources(environ.get("REVEAL_PUBLIC", ""), "REVEAL_PUBLIC", named=False)
    private = sources(environ["REVEAL_HOLDOUTS"], "REVEAL_HOLDOUTS", named=True) if is_demo(environ) else []
    _check_stores(environ)
    access = Access("REVEAL_PUBLIC", "HF_TOKEN", environ.get("HF_TOKEN", "").strip() or None)
    private_access = Access("REVEAL_HOLDOUTS", "HF_HOLDOUT_TOKEN", environ.get("HF_HOLDOUT_TOKEN", "").strip() or None)
    if private:
        _check_tokens(access, private_access)
    data = str(home / "board")
    serve = ["--data", data, "--auth", "huggingface", "--host", "0.0.0.0", "--port", _port(environ), "--proxies", "1"]
    for number, source in enumerate(public):
        folder = home / "public" / str(number)
        download(source, access, folder, PUBLIC_FILES)
        serve += ["--benchmark", f"{folder}:{source.split}"]
    keys = tuple(name for name in environ if name.startswith("REVEAL_WEBHOOK_"))
    commands = {"server": _command("serve", serve, TOKENS + keys)}
    if private:
        work = ["--data", data, "--vault", str(home / "vault")]
        (home / "holdouts").mkdir(mode=0o700, exist_ok=True)
        for number, source in enumerate(private):
            folder = home / "holdouts" / str(number)
            download(source, private_access, folder, None)
            work += ["--holdout", f"{source.name}={folder}"]
        if environ.get("REVEAL_UNCONFINED") == "accepted":
            work.append("--unconfined")
        commands["worker"] = _command("worker", work, TOKENS + SIGN_IN)
    return commands


def is_demo(environ: Mapping[str, str]) -> bool:
    """Return True for a demo: the Space itself scores submissions, and keeps nothing."""
    return bool(environ.get("REVEAL_HOLDOUTS"))


def _check_stores(environ: Mapping[str, str]) -> None:
    """Require a database and a bucket for a server, and neither for a demo.

    Messages show no value, which may be a secret.
    """
    for name, start in STORES.items():
        value = environ.get(name, "")
        if is_demo(environ):
            if value and start:
                raise SpaceError(
                    f"{name} must not be set with REVEAL_HOLDOUTS: a Space would lose the worker's vault at a restart, "
                    "so run the worker on another machine and unset REVEAL_HOLDOUTS"
                )
        elif not value:
            raise SpaceError(
                f"{name} must be set, since a Space keeps no files (or set REVEAL_HOLDOUTS for a demo that keeps none)"
            )
        elif not value.startswith(start):
            raise SpaceError(f"{name} must start with {start}")


def _check_tokens(public: Access, private: Access) -> None:
    """Require a token for the holdouts that differs from the public datasets' token."""
    if not private.token:
        raise SpaceError("HF_HOLDOUT_TOKEN must be set to a token that can read only the private holdout datasets")
    if private.token == public.token:
        raise SpaceError("HF_HOLDOUT_TOKEN must differ from HF_TOKEN, which must not be able to read the holdouts")


def _port(environ: Mapping[str, str]) -> str:
    port = environ.get("PORT") or "7860"
    if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise SpaceError("PORT must be a whole number from 1 to 65535")
    return port


def _command(role: str, options: Sequence[str], without: Sequence[str]) -> list[str]:
    hidden = [word for name in without for word in ("-u", name)]
    return ["env", *hidden, sys.executable, "-m", "reveal_leaderboard", role, *options]


def fetch(source: Source, access: Access, folder: Path, patterns: list[str] | None) -> None:
    """Download a dataset repository at a revision, anonymously without a token.

    Raises
    ------
    SpaceError
        If the download fails.
    """
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(
            source.repo_id,
            repo_type="dataset",
            revision=source.revision,
            local_dir=folder,
            token=access.token or False,
            allow_patterns=patterns,
        )
    except Exception as error:  # the Hub's client raises many types of errors, whose texts may contain the token
        raise SpaceError(explain(error, source, access)) from None


def explain(error: BaseException, source: Source, access: Access) -> str:
    """Return one sentence about a failed download: setting, repository, revision and remedy, but never the token."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    subject = f"{access.setting} names {source.repo_id}@{source.revision}"
    if _is_disk_full(error):
        return f"{subject}, but the disk is full: choose larger storage or name fewer datasets, then restart the Space"
    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    is_absent = isinstance(error, RepositoryNotFoundError) or (status == 401 and access.token is None)
    reader = access.token_setting if access.token else "an anonymous visitor"
    if isinstance(error, RevisionNotFoundError):
        return f"{subject}, but the dataset has no such revision: name one of its tags, branches or commits"
    if isinstance(error, GatedRepoError):
        return f"{subject}, a gated dataset: accept its terms and set {access.token_setting} to that account's token"
    if is_absent:
        remedy = f"correct the name, or set {access.token_setting} to a token that reads it"
        return f"{subject}, but this dataset does not exist or {reader} cannot read it: {remedy}"
    if status == 401:
        return f"{subject}, but the Hub refuses the token in {access.token_setting}: replace it with a valid one"
    if status == 403:
        return f"{subject}, but {reader} may not read it: set {access.token_setting} to a token that may"
    cause = f"HTTP {status}" if status else type(error).__name__
    return f"{subject}, but the download failed ({cause}): check that the Hub is reachable, then restart the Space"


def _is_disk_full(error: BaseException | None) -> bool:
    """Return True if the error means a full disk; the Hub's compiled client says so only in the error's text."""
    if error is None:
        return False
    is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(error)
    return is_full or _is_disk_full(error.__cause__ or error.__context__)


def main() -> None:
    """Download the datasets, start the processes, and restart those that die until the Space is stopped."""
    from reveal_leaderboard.custody.confinement import landlock_abi
    from reveal_leaderboard.worker.supervisor import Supervisor

    try:
        if is_demo(os.environ) and landlock_abi() < 1 and os.environ.get("REVEAL_UNCONFINED") != "accepted":
            raise SpaceError(
                "REVEAL_HOLDOUTS must be unset where the kernel has no Landlock, since nothing would keep the server "
                "from the holdouts: run the worker elsewhere (README.md), or set REVEAL_UNCONFINED to `accepted`"
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
