"""``reveal-bench publish`` as its user runs it."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from reveal_bench.cli import data as cli_publish
from tests.conftest import ROOT, files_of
from tests.dataset.hub.clients import Client
from tests.dataset.hub.conftest import MAINTAINER, VAULT, Folders, build
from tests.dataset.hub.fake_hub import FakeHub
from tests.dataset.hub.snippets import RUN_COMMAND

MAIN = "from reveal_bench import cli; cli.main()"


def run(
    client: Client, *words: object, expect: int = 0, answer: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; `answer` is typed on a terminal, which only exists then."""
    command = [sys.executable, "-c", MAIN, "publish", *map(str, words)]
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
    _check_printed(done.stdout + done.stderr)
    return done


def printed(client: Client, *words: object, expect: int = 0, **tokens: str) -> str:
    """Return everything that the command prints without a terminal, run in a process that already has its imports."""
    outcome = client.run(RUN_COMMAND, words=["publish", *map(str, words)], tokens=tokens)
    assert (outcome.error, outcome.result) == (None, expect), outcome.printed
    _check_printed(outcome.printed)
    return outcome.printed


def _check_printed(text: str) -> None:
    assert "Traceback" not in text
    assert not [token for token in (MAINTAINER, VAULT) if token in text]


def test_a_dry_run_shows_all_and_touches_no_network(hub: FakeHub, publisher: Client, folders: Folders) -> None:
    before = len(hub.log)
    words = (folders.public, "org/dry", "--public", "--holdout", folders.vault, "--holdout-repo", "vault/dry")
    out = printed(publisher, *words, "--dry-run").splitlines()
    assert len(hub.log) == before
    assert out[-1] == "dry run: nothing was sent"
    heads = [line for line in out if "no problems ->" in line]
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


def test_publish_both_then_again(hub: FakeHub, publisher: Client, folders: Folders, tmp_path: Path) -> None:
    words = (folders.public, "org/cli", "--public", "--holdout", folders.vault, "--holdout-repo", "vault/cli")
    tokens = {"HF_TOKEN": MAINTAINER, "HF_HOLDOUT_TOKEN": VAULT}
    order: list[str] = []
    hub.do_before("name_commit", lambda: order.extend(hub.store.repos.keys() & {"org/cli", "vault/cli"}))
    out = printed(publisher, *words, "--yes", "--message", "First release", **tokens).splitlines()
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
    again = printed(publisher, *words, "--yes", **tokens).splitlines()
    assert again[-2] == f"{where}: 0 files uploaded, {n_files} unchanged"
    other = build(tmp_path, version="1.1.0", seed=4)  # releases what was private
    words = (other.public, "org/cli", "--public", "--holdout", other.vault, "--holdout-repo", "vault/cli", "--yes")
    assert "must not be public, because the row was private" in printed(publisher, *words, expect=1, **tokens)
    assert list(hub.repo("vault/cli").tags) == ["v1.0.0"]  # nothing of the refused version is there


def test_it_asks_and_is_private_by_default(hub: FakeHub, publisher: Client, folders: Folders, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{MAINTAINER}\n")
    words = (folders.public, "org/asked", "--token-file", token)
    before = len(hub.log)
    nobody = printed(publisher, *words, expect=1)
    assert "No terminal: pass --yes to publish, or --dry-run to preview" in nobody
    assert "the folder was not compared with the holdout: give --holdout" in nobody
    assert len(hub.log) == before
    assert "uploaded" in run(publisher, *words, answer="y").stdout
    assert list(hub.repo("org/asked").tags) == ["v1.0.0"]
    assert hub.repo("org/asked").private


class Keyboard(io.StringIO):
    """A terminal on which this was typed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "ends"), [("n", True), ("y", False), ("", True)])
def test_only_yes_confirms_publishing(monkeypatch: pytest.MonkeyPatch, answer: str, ends: bool) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard(f"{answer}\n"))
    with pytest.raises(typer.Abort) if ends else nullcontext():
        cli_publish._ask(yes=False)


def test_every_reason_is_reported_and_nothing_is_sent(hub: FakeHub, publisher: Client, tmp_path: Path) -> None:
    real = build(tmp_path, synthetic=False)
    (real.public / "notes.txt").write_text("x")
    before = len(hub.log)
    words = (real.public, "org/refused", "--public", "--tag", "latest", "--yes")
    text = printed(publisher, *words, expect=1, HF_TOKEN=MAINTAINER)
    assert f"error: {real.public} is not published, for 5 reasons:" in text
    assert "the holdout was not compared: give --holdout" in text
    assert "`tag` must be 'v' and a version X.Y.Z, got 'latest'" in text
    assert "CHECKSUMS.json:notes.txt: `files` must be regular data files" in text
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
            "a holdout needs a separate token: set HF_HOLDOUT_TOKEN, or give --holdout-token-file",
        ),
        (
            ["--holdout", "VAULT", "--holdout-repo", "vault/x"],
            {"HF_TOKEN": VAULT, "HF_HOLDOUT_TOKEN": VAULT},
            "`token` of a holdout must differ from",
        ),
        (["--token-file", "EMPTY"], {}, "must contain one token and nothing else"),
        (["--token-file", "no-such-file"], {}, "no-such-file does not exist"),
        ([], {}, "a token is needed to publish: set HF_TOKEN"),
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
    arguments = [named.get(word, word) for word in words]
    assert error in printed(publisher, folders.public, "org/tokens", *arguments, "--yes", expect=1, **tokens)
    assert len(hub.log) == before
