"""Three readers without a sign-in provider, from the maintainer's links to agreed votes, on the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.cli import app
from typer.testing import CliRunner

from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.tables import Vote, read_table
from reveal_bench.curation.votes import import_votes
from tests.leaderboard.readers.reading_world import READERS, make_pool
from tests.leaderboard.readers.test_killed_server import started

browsing = pytest.importorskip("tests.leaderboard.browser.browsing")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(browsing.CHROMIUM is None, reason="no Chromium here")]

THREE = READERS[:3]


def call(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, done.output
    return done.output


def test_three_readers_sign_in_by_links_and_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, data, people = make_pool(tmp_path, readers=THREE, n_read=2), tmp_path / "data", tmp_path / "people.csv"
    people.write_text("subject,reader\n" + "".join(f"{name[-3:].upper()}@example.org,{name}\n" for name in THREE))
    server, url = started(pool, data, tmp_path / "log", "--auth", "links", "--people", str(people))
    monkeypatch.setenv("REVEAL_URL", url)
    links = [line.split("\t") for line in call("readers-invite", "--data", data, "--people", people).splitlines()]
    assert [line[:2] for line in links] == [[name, f"{name[-3:].lower()}@example.org"] for name in THREE]
    try:
        with browsing.running_browser() as browser:
            for (_, _, link), width in zip(links, (1440, 1024, 390), strict=True):
                with browsing.watched_page(browser, url, width=width) as page:
                    read_by_link(page, url, link)
    finally:
        server.terminate()
        server.join(30)
    call("readers-export", "--data", data, "--out", tmp_path / "votes.csv")
    folder = CurationFolder(pool.curation)
    assert import_votes(folder, tmp_path / "votes.csv").counts["missing"] == 0
    votes = read_table(folder.path("votes.parquet"), Vote)
    assert sorted({(one.reader, one.answer) for one in votes}) == [(name, "agree_all") for name in THREE]
    assert len(votes) == 6


def read_by_link(page: Any, url: str, link: str) -> None:
    page.goto(url)
    page.wait_for_selector("text=You are not signed in")
    page.keyboard.press("Enter")  # on the link
    page.wait_for_selector("text=Ask them for a link")
    page.goto(link)
    assert browsing.faults(page) == []
    page.get_by_role("button", name="Sign in").click()
    for number in (1, 2):
        page.wait_for_function("n => document.querySelector('#place').textContent === `${n} of 2`", arg=number)
        page.wait_for_function("() => document.querySelector('.view canvas')?.dataset.scale")
        page.keyboard.press("1")
        page.keyboard.press("Enter")
    page.wait_for_selector("text=You are done")


def test_links_need_addresses_of_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(tmp_path, readers=THREE, n_read=2)
    data, people = tmp_path / "data", tmp_path / "people.csv"
    call("readers-prepare", "--data", data, "--curation", pool.curation, "--images", pool.images)
    people.write_text(f"subject,reader\nada,{THREE[0]}\na@example.org,{THREE[1]}\nA@example.org,{THREE[2]}\n")
    invite = ("readers-invite", "--data", data, "--people", people)
    assert "REVEAL_URL must be set" in call(*invite, code=1)
    monkeypatch.setenv("REVEAL_URL", "https://readers.example.org")
    output = call(*invite, code=1)
    assert "people.csv: line 2: `subject`: the address must look like name@example.org" in output
    assert "line 4: subject and reader must not be repeated, got 'a@example.org' and 'Reader Cyd'" in output
    people.write_text(f"subject,reader\nada@example.org,{THREE[0]}\n")
    assert "`--reader` must be in people.csv, got Dr Who" in call(*invite, "--reader", "Dr Who", code=1)
    assert "--auth links needs --people" in " ".join(call("readers", "--data", data, "--auth", "links", code=2).split())
