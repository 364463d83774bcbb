"""``reveal-bench phantom``, ``inspect`` and ``build``: options, hints and errors."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from reveal_bench.cli.build import cores
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.phantom import write_reveal
from tests.cli.test_score import call


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli-build") / "download"
    write_reveal(root, n_studies=12, seed=4, long_side=64)
    return root


def build(*words: object, expect: int = 0) -> CompletedProcess[str]:
    """Build with one worker: more take a second each to start and change nothing (builders/test_resume)."""
    return call("build", *words, "--workers", 1, expect=expect)


def test_studies_from_dicom_with_a_log_and_a_key(download: Path, tmp_path: Path) -> None:
    options = ("--id-key", tmp_path / "key", "--holdout", tmp_path / "vault", "--log", tmp_path / "logs" / "log.jsonl")
    done = build(download, "--out", tmp_path / "set", *options)
    assert "wrote the secret key" in done.stderr
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_folder_info(tmp_path / "set").synthetic
    entries = [json.loads(line) for line in (tmp_path / "logs/log.jsonl").read_text().splitlines()]
    assert {"set aside", "warning", "picture"} == {entry["what"] for entry in entries}
    assert (tmp_path / "logs/log.jsonl").stat().st_mode & 0o777 == 0o600
    again = ("--previous", tmp_path / "set", "--previous-holdout", tmp_path / "vault", "--seed", "9")
    build(download, "--out", tmp_path / "2", "--holdout", tmp_path / "2p", "--id-key", tmp_path / "key", *again)
    assert (tmp_path / "2p/multilabel").exists()
    same = ["diff", tmp_path / "set", tmp_path / "2", "--holdout-before", tmp_path / "vault"]
    changes = json.loads(call(*same, "--holdout-after", tmp_path / "2p", "--json").stdout)
    assert not any(changes.get(name) for name in ("added", "removed", "moved"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--id-key", "{tmp}/set/key"), "must be outside the dataset folder"),
        ((), "give --id-key FILE: a secret key from which ids are made"),
        (("--id-key", "{tmp}/k", "--log", "{tmp}/set/log"), "--log must be outside"),
        (("--id-key", "{tmp}/k", "--version", "banana"), "--version must be three numbers such as 1.2.3, got 'banana'"),
        (("--id-key", "{tmp}/k", "--pictures", "{download}"), "--pictures is not an option of the source reveal-cxr"),
        (("--id-key", "{tmp}/k", "--previous", "{download}"), "must be given together"),
        (("--id-key", "{tmp}/k", "--source", "nih-boxes"), "--id-key is not for nih-boxes"),
    ],
)
def test_wrong_build_is_refused(download: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    formatted = [option.format(tmp=tmp_path, download=download) for option in options]
    done = build(download, "--out", tmp_path / "set", *formatted, expect=1)
    assert message in done.stderr
    assert not (tmp_path / "set").exists()
    if "nih-boxes" in options:
        assert not (tmp_path / "k").exists()


def test_broken_file_is_named_with_the_next_step(download: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(download, tmp_path / "download")
    victim = sorted(copy.rglob("*.dcm"))[0]
    victim.write_bytes(victim.read_bytes()[:-200])
    options = ("--out", tmp_path / "set", "--id-key", tmp_path / "key")
    refused = build(copy, *options, expect=1).stderr
    assert victim.name in refused
    assert "--keep-going omits rows with problems" in refused
    done = build(copy, *options, "--keep-going")
    assert "left out:" in done.stderr


def test_custom_card_is_published(download: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "dataset_cards" / "own-findings.md").read_text()
    own = tmp_path / "card.md"
    text = text.replace("# {{title}}", "# Films of Ward 5") + "\n```bibtex\n@misc{a,\n  title = {Ours},\n}\n```\n"
    own.write_text(text.replace("{Ours},", "{Ours},\n  author = {Ng, A},\n  year = {2026}"))
    words = (download, "--out", tmp_path / "d", "--id-key", tmp_path / "key", "--images", "withhold")
    build(*words, "--card", own)
    for name in ("README.md", "CITATION.cff", "croissant.json"):
        written = (tmp_path / "d" / name).read_text()
        assert "Films of Ward 5" in written
        assert "REVEAL-CXR" not in written
    assert validate_folder(tmp_path / "d", load=False) == []
    own.write_text(text)
    assert "must have title, author and year" in build(*words, "--overwrite", "--card", own, expect=1).stderr
    for wrong in ("## Secrets", "## Privacy\n\n## Secrets"):  # a missing section, a blank one
        own.write_text(text.replace("## Privacy", wrong))
        refused = build(*words, "--overwrite", "--card", own, expect=1).stderr
        assert "--card must have a title and every section" in refused
        assert "without ## Privacy" in refused.replace("\n", " ")


def test_build_uses_two_processes_unless_one_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert (cores(None), cores(1), cores(5)) == (2, 1, 5)
