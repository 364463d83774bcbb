"""Files for contributors: CONTRIBUTING, SECURITY and the hooks of git; commands are in test_docs.py."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from tests.conftest import ROOT

HOOKS = {
    hook["id"]: hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repository["hooks"]
}


def test_hooks_use_programs_of_the_environment() -> None:
    programs = {match[1] for hook in HOOKS.values() if (match := re.match(r"\.venv/bin/([\w-]+)", hook["entry"]))}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert programs == {"ruff", "mypy"}
    assert programs <= {re.split(r"[\[>=]", requirement)[0] for requirement in extras["dev"]}


@pytest.mark.parametrize(
    ("name", "is_private"),
    [
        ("tests/a.dcm", True), ("board/leaderboard.sqlite", True), ("vault/receipt-key.json", True),
        ("vault/salt", True), ("vault/INC-0A1B2C3D.txt", True), ("server.env", True), ("wheels/x.whl", True),
        ("data/patient1.jpg", True), ("tests/a.PNG", True), ("leaderboard/board.png", False),
        ("docs/cases.jpg", False), ("reveal_bench/models/keys.py", False), ("docs/salt.md", False),
    ],
)  # fmt: skip
def test_private_files_are_recognised_by_their_names(name: str, is_private: bool) -> None:
    assert bool(re.search(HOOKS["private-files"]["files"], name)) == is_private


def test_the_front_page_links_to_both_guides() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in text for name in ("CONTRIBUTING.md", "SECURITY.md"))
    assert 60 <= len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_security_names_no_address_of_mail() -> None:
    """Nobody has set one up: an invented one would swallow reports."""
    assert not re.search(r"\S@\S", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
