"""``reveal-bench publish`` as its user runs it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.hub.clients import Client
from tests.hub.conftest import MAINTAINER, VAULT, Folders, build, files_of
from tests.hub.fake_hub import FakeHub

MAIN = "from reveal_bench import cli, cli_publish; cli.app.command()(cli_publish.publish); cli.main()"
NO_NETWORK = """
import socket
def refuse(*_):
    raise SystemExit("network!")
socket.socket.connect = socket.getaddrinfo = refuse
"""


def run(
    client: Client, *words: object, expect: int = 0, before: str = "", answer: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command; `answer` is typed on a terminal, without it there is none."""
    command = [sys.executable, "-c", before + MAIN, "publish", *map(str, words)]
    options = {"capture_output": True, "text": True, "cwd": ROOT, "env": {**client.environment(), **env}}
    if answer is None:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    else:
        keyboard, terminal = pty.openpty()
        os.write(keyboard, f"{answer}\n".encode())
        done = subprocess.run(command, stdin=terminal, **options)  # type: ignore[call-overload]
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == expect, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    for token in (MAINTAINER, VAULT):
        assert token not in done.stdout + done.stderr
    return done


def test_a_dry_run_shows_all_and_touches_no_network(publisher: Client, folders: Folders) -> None:
    words = (folders.public, "org/dry", "--public", "--holdout", folders.vault, "--holdout-repo", "vault/dry")
    out = run(publisher, *words, "--dry-run", before=NO_NETWORK).stdout.splitlines()
    assert out[-1] == "dry run: nothing was sent"
    heads = [line for line in out if not line.startswith(" ")][:2]
    what = "chexlocalize 1.0.0 (synthetic), no problems ->"
    assert heads == [
        f"{folders.vault}: {what} vault/dry (holdout, private), tag v1.0.0",
        f"{folders.public}: {what} org/dry (PUBLIC), tag v1.0.0",
    ]
    sizes = {name: len(data) for name, data in files_of(folders.public).items()}
    in_all = [line.split() for line in out if line.startswith("  in all")]
    assert in_all[1] == ["in", "all", str(len(sizes)), "files", f"{sum(sizes.values()) / 1000:.1f}", "kB"]
    manifest = [line.split() for line in out if line.startswith("  manifest/")][1]
    assert manifest[:3] == ["manifest/", str(sum(name.startswith("manifest/") for name in sizes)), "files"]


def test_publish_both_then_again(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    words = (folders.public, "org/cli", "--public", "--holdout", folders.vault, "--holdout-repo", "vault/cli")
    tokens = {"HF_TOKEN": MAINTAINER, "HF_HOLDOUT_TOKEN": VAULT}
    order: list[str] = []
    hub.do_before("name_commit", lambda: order.extend(hub.store.repos.keys() & {"org/cli", "vault/cli"}))
    out = run(publisher, *words, "--yes", "--message", "First release", **tokens).stdout.splitlines()
    assert order == ["vault/cli"]  # the public repository is made after the holdout is safe
    repo = hub.repo("org/cli")
    n_files = len(files_of(folders.public))
    where = f"{hub.endpoint}/datasets/org/cli/tree/v1.0.0 at {repo.head[:12]}"
    assert out[-2:] == [
        f"{where}: {n_files} files uploaded, 0 unchanged",
        'load it with load_dataset("org/cli", revision="v1.0.0")',
    ]
    assert repo.commits[repo.head].message == "First release"
    assert hub.repo("vault/cli").private
    assert not repo.private
    again = run(publisher, *words, "--yes", **tokens).stdout.splitlines()
    assert again[-2] == f"{where}: 0 files uploaded, {n_files} unchanged"


def test_private_is_what_it_is_unless_asked_otherwise(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    run(publisher, folders.public, "org/default", "--yes", HF_TOKEN=MAINTAINER)
    assert hub.repo("org/default").private


def test_it_asks(hub: FakeHub, publisher: Client, folders: Folders, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{MAINTAINER}\n")
    words = (folders.public, "org/asked", "--token-file", token)
    before = len(hub.log)
    nobody = run(publisher, *words, expect=1)
    assert "there is no terminal to ask on: say --yes to publish, or --dry-run to look" in nobody.stderr
    assert "Aborted" in run(publisher, *words, answer="n", expect=1).stderr
    assert len(hub.log) == before
    assert "uploaded" in run(publisher, *words, answer="y").stdout
    assert list(hub.repo("org/asked").tags) == ["v1.0.0"]


def test_every_reason_is_told_and_nothing_is_sent(hub: FakeHub, publisher: Client, tmp_path: Path) -> None:
    real = build(tmp_path, synthetic=False)
    (real.public / "notes.txt").write_text("x")
    before = len(hub.log)
    words = (real.public, "org/refused", "--public", "--tag", "latest", "--yes")
    text = run(publisher, *words, expect=1, HF_TOKEN=MAINTAINER).stderr
    assert f"error: {real.public} is not published, for 3 reasons:" in text
    assert "`tag` must be 'v' and a version X.Y.Z, got 'latest'" in text
    assert "CHECKSUMS.json:notes.txt: `files` must be plain data files" in text
    assert "`benchmark` must be openly licensed for a public repository" in text
    assert len(hub.log) == before


@pytest.mark.parametrize(
    ("words", "tokens", "error"),
    [
        (["--holdout-repo", "vault/x"], {}, "`--holdout-repo` needs `--holdout`"),
        (["--holdout", "VAULT", "--holdout-repo", "org/tokens"], {}, "must be another repository than org/tokens"),
        (
            ["--holdout", "VAULT", "--holdout-repo", "vault/x"],
            {"HF_TOKEN": MAINTAINER},
            "a holdout needs a token of its own: set HF_HOLDOUT_TOKEN, or give --holdout-token-file",
        ),
        (
            ["--holdout", "VAULT", "--holdout-repo", "vault/x"],
            {"HF_TOKEN": VAULT, "HF_HOLDOUT_TOKEN": VAULT},
            "`token` of a holdout must be one of its own",
        ),
        (["--token-file", "EMPTY"], {}, "must hold one token and nothing else"),
        (["--token-file", "no-such-file"], {}, "No such file or directory: 'no-such-file'"),
        ([], {}, "there is no token to publish with: set HF_TOKEN"),
    ],
)
def test_tokens(
    hub: FakeHub,
    publisher: Client,
    folders: Folders,
    tmp_path: Path,
    words: list[str],
    tokens: dict[str, str],
    error: str,
) -> None:
    (tmp_path / "empty").write_text("\n")
    named = {"VAULT": str(folders.vault), "EMPTY": str(tmp_path / "empty")}
    before = len(hub.log)
    given = [named.get(word, word) for word in words]
    assert error in run(publisher, folders.public, "org/tokens", *given, "--yes", expect=1, **tokens).stderr
    assert len(hub.log) == before
