"""The application: who may see what, what it takes, and that no answer tells what readers must not know."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.readers.app import build_readers_app
from reveal_leaderboard.readers.images import ImageCache
from reveal_leaderboard.readers.store import Readings
from reveal_leaderboard.web.sign_in_modes import Auth

from tests.leaderboard.readers.reading_world import (
    HERE,
    READERS,
    Pool,
    accounts_in,
    local_app,
    prepared,
    signed_in_auth,
)

EVIL = "https://evil.example"
SAVED = {"key": "0" * 32, "answer": "agree_all", "comment": "", "details": None, "seconds": 4.25}


@dataclass(frozen=True)
class Page:
    """The page, with a client for Ada, for Ben, for a user without a list, and for no user."""

    readings: Readings
    ada: TestClient
    ben: TestClient
    stranger: TestClient
    nobody: TestClient
    accounts: Accounts


@pytest.fixture
def page(pool: Pool, tmp_path: Path) -> Iterator[Page]:
    readings = prepared(pool, tmp_path / "data")
    accounts = accounts_in(tmp_path / "accounts")
    people = {"subject-1": READERS[0], "subject-2": READERS[1]}
    app = build_readers_app(readings, ImageCache(pool.images), signed_in_auth(accounts), people)

    def client(subject: str | None) -> TestClient:
        test_client = TestClient(app, base_url=HERE, headers={"Origin": HERE}, raise_server_exceptions=False)
        if subject is not None:
            user = accounts.sign_in("the provider", subject, subject, as_admin=subject == "subject-9")
            test_client.cookies.set("__Host-reveal", accounts.new_session(user), domain="readers.example.org")
        return test_client

    yield Page(readings, client("subject-1"), client("subject-2"), client("subject-9"), client(None), accounts)
    readings.engine.dispose()


def tokens(client: TestClient) -> list[str]:
    return [one["token"] for one in client.get("/api/list").json()["items"]]


PATHS = ("/api/list", "/api/items/{}", "/api/items/{}/films/0")


@pytest.mark.parametrize("path", PATHS)
def test_only_readers_see_anything_and_only_their_own(page: Page, path: str) -> None:
    mine = path.format(tokens(page.ada)[0])
    statuses = [one.get(mine).status_code for one in (page.ada, page.ben, page.stranger, page.nobody)]
    own_of_all = 200 if path == "/api/list" else 404
    assert statuses == [200, own_of_all, 403, 401]


def test_a_reader_is_known_by_the_provider_too(page: Page) -> None:
    """An account of an earlier provider may have a reader's subject, and a session that has not ended."""
    secret = page.accounts.new_session(page.accounts.sign_in("an earlier provider", "subject-1", "Eve"))
    page.nobody.cookies.set("__Host-reveal", secret, domain="readers.example.org")
    assert page.nobody.get("/api/list").status_code == 403


@pytest.mark.parametrize("path", ["/api/items/{}/answers", "/api/stop"])
def test_only_readers_answer(page: Page, path: str) -> None:
    mine, body = path.format(tokens(page.ada)[0]), {} if path == "/api/stop" else SAVED
    assert page.stranger.post(mine, json=body).status_code == 403
    assert page.nobody.post(mine, json=body).status_code == 401
    assert page.ada.post(mine, json=body, headers={"Origin": EVIL}).status_code == 403
    silent = TestClient(page.ada.app, base_url=HERE, cookies=dict(page.ada.cookies))
    assert silent.post(mine, json=body).status_code == 403  # a cookie, and no word of where it comes from
    assert page.ada.post(mine, json=body).status_code == 200


def test_another_readers_study_does_not_exist(page: Page) -> None:
    theirs = tokens(page.ben)[0]
    assert page.ada.post(f"/api/items/{theirs}/answers", json=SAVED).status_code == 404
    assert not set(tokens(page.ada)) & set(tokens(page.ben))  # though they share studies
    assert page.readings.all_answers() == []


def test_tokens_are_those_of_one_session(page: Page, pool: Pool) -> None:
    first = tokens(page.ada)
    assert first == tokens(page.ada)
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in first)


def test_nothing_that_a_reader_is_sent_tells_what_must_not_be_known(page: Page, pool: Pool) -> None:
    for token in tokens(page.ben):
        body = SAVED | {"answer": "disagree", "comment": "Bens-own-words", "key": token, "details": ["Aneurysm"]}
        assert page.ben.post(f"/api/items/{token}/answers", json=body).status_code == 200
    sent = [page.ada.get(path) for path in ("/", "/api/who", "/api/list", "/healthz", "/nowhere")]
    for token in tokens(page.ada):
        sent.append(page.ada.get(f"/api/items/{token}"))
        sent += [page.ada.get(f"/api/items/{token}/films/{n}") for n in range(4)]
        sent.append(page.ada.post(f"/api/items/{token}/answers", json=SAVED | {"key": token}))
        sent.append(page.ada.post(f"/api/items/{token}/answers", json=SAVED | {"key": "no"}))
    secrets = [word for report in pool.reports for word in report.splitlines() if len(word) > 12]
    for study, truth in pool.truth.items():
        secrets += [study, truth["case_id"], *(image["sop_uid"] for image in truth["images"])]
        secrets += [image["file"] for image in truth["images"]]
    secrets += [*READERS[1:], "Bens-own-words", "StudyInstanceUID", "2.25."]
    n_films = 0
    for answer in sent:
        is_film = answer.headers["content-type"] == "application/octet-stream"
        n_films += is_film
        sent_text = f"{answer.headers} {'' if is_film else answer.text}"
        content = answer.content
        assert [secret for secret in secrets if secret in sent_text or secret.encode() in content] == []
    assert n_films >= 6
    assert all(answer.headers["cache-control"] == "no-store" for answer in sent)


def test_a_films_bytes_are_its_values_alone(page: Page) -> None:
    token = tokens(page.ada)[0]
    facts = page.ada.get(f"/api/items/{token}").json()["films"][0]
    answer = page.ada.get(f"/api/items/{token}/films/0")
    assert len(answer.content) == 2 * facts["width"] * facts["height"]
    assert set(facts) == {
        "view", "fault", "height", "width", "slope", "intercept", "invert", "window", "range", "table",
        "padding", "notes", "presets", "preset", "spacing", "at_detector",
    }  # fmt: skip
    assert page.ada.get(f"/api/items/{token}/films/9").status_code == 404
    assert page.ada.get(f"/api/items/{token}/films/-1").status_code == 404


BAD: dict[str, tuple[dict[str, Any], int]] = {
    "no such answer": ({"answer": "maybe"}, 422),
    "paper's spelling": ({"answer": "Agree All"}, 422),
    "key": ({"key": "x"}, 422),
    "another field": ({"reader": "Reader Ben"}, 422),
    "long comment": ({"answer": "disagree", "comment": "x" * 4001}, 422),
    "control character": ({"answer": "disagree", "comment": "a\x00b"}, 422),
    "unknown label": ({"answer": "disagree", "details": ["Kyphosis"]}, 422),
    "label twice": ({"answer": "disagree", "details": ["COPD", "COPD"]}, 422),
    "labels of another form": ({"answer": "disagree", "details": {"process": 5}}, 422),
    "agrees and ticks others": ({"details": ["Aneurysm", "Lung mass", "Hiatal hernia"]}, 422),
    "labels of the unreadable": ({"answer": "cannot_read", "details": []}, 422),
    "negative seconds": ({"seconds": -1}, 422),
    "seconds as text": ({"seconds": "4"}, 422),
    "endless": ({"comment": "x" * 70_000}, 413),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_bad_answer_is_refused_and_nothing_is_kept(page: Page, what: str) -> None:
    change, status = BAD[what]
    answer = page.ada.post(f"/api/items/{tokens(page.ada)[0]}/answers", json=SAVED | change)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert page.readings.all_answers() == []


def test_seconds_that_are_no_number_are_refused(page: Page) -> None:
    body = json.dumps(SAVED).replace("4.25", "NaN")
    path = f"/api/items/{tokens(page.ada)[0]}/answers"
    assert page.ada.post(path, content=body, headers={"Content-Type": "application/json"}).status_code == 422


def test_an_answer_is_kept_changed_and_shown_to_its_reader_again(page: Page) -> None:
    token = tokens(page.ada)[2]
    path = f"/api/items/{token}/answers"
    body = SAVED | {"answer": "disagree", "comment": " no effusion\n", "details": ["COPD", "Aneurysm"]}
    assert page.ada.post(path, json=body).json() == {"saved": True, "answer": "disagree"}
    assert page.ada.post(path, json=body).json() == {"saved": True, "answer": "disagree"}  # a double click
    own = page.ada.get(f"/api/items/{token}").json()["own"]
    assert own == {"answer": "disagree", "comment": "no effusion", "details": ["Aneurysm", "COPD"]}
    assert page.ada.post(path, json=SAVED).status_code == 409  # the key of another answer
    assert page.ada.post(path, json=SAVED | {"key": "1" * 32}).status_code == 200
    assert [one["answer"] for one in page.ada.get("/api/list").json()["items"]] == ["", "", "agree_all", "", "", ""]


def test_who_stops_answers_no_more(page: Page) -> None:
    token = tokens(page.ada)[0]
    assert page.ada.post("/api/stop", json={}).json() == {"is_open": False}
    assert page.ada.get("/api/list").json()["is_open"] is False
    assert page.ada.post(f"/api/items/{token}/answers", json=SAVED).status_code == 409
    assert page.ben.get("/api/list").json()["is_open"] is True


def test_pages_run_our_scripts_alone(page: Page) -> None:
    index = page.nobody.get("/")
    policy = dict(part.split(" ", 1) for part in index.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in str(policy)
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=|https?://", index.text)
    named = re.findall(r'(?:src|href)="(/static/[^"]+)"', index.text)
    assert len(named) == 4
    assert {page.nobody.get(path).status_code for path in [*named, "/static/film.js"]} == {200}
    for path in ("/static/app.py", "/static/..%2fapp.py", "/static/index.html"):
        assert page.nobody.get(path).status_code == 404


def test_a_reader_with_an_account_cannot_choose_a_name(page: Page) -> None:
    assert page.ada.post("/api/reader", json={"reader": READERS[1]}).status_code == 403
    page.ada.cookies.set("reveal-reader", "UmVhZGVyIEJlbg", domain="readers.example.org")  # Reader Ben
    assert page.ada.get("/api/who").json()["reader"] == READERS[0]
    assert "readers" not in page.nobody.get("/api/who").json()
    assert page.ada.get("/api/who").json()["readers"] == []


def test_in_local_mode_one_person_may_be_any_reader(pool: Pool, tmp_path: Path) -> None:
    app = local_app(pool, tmp_path)
    here = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5), headers={"Origin": "http://127.0.0.1"})
    assert here.get("/api/who").json()["readers"] == list(READERS)
    assert here.get("/api/list").status_code == 403
    assert here.post("/api/reader", json={"reader": "Eve"}).status_code == 422
    assert here.post("/api/reader", json={"reader": READERS[2]}, follow_redirects=False).status_code == 303
    assert here.get("/api/who").json()["reader"] == READERS[2]
    assert len(tokens(here)) == 6
    elsewhere = TestClient(app, base_url="http://127.0.0.1", client=("10.0.0.9", 5))
    assert elsewhere.get("/api/list").status_code == 401
    assert here.get("/api/list", headers={"Host": "evil.example"}).status_code == 400


def test_a_picture_that_cannot_be_shown_is_said_to_be(pool: Pool, tmp_path: Path) -> None:
    readings = prepared(pool, tmp_path / "data")
    empty = build_readers_app(readings, ImageCache(tmp_path / "none"), Auth(accounts_in(tmp_path), "local"), {})
    here = TestClient(
        empty, base_url="http://127.0.0.1", client=("127.0.0.1", 5), headers={"Origin": "http://127.0.0.1"}
    )
    here.post("/api/reader", json={"reader": READERS[0]})
    token = tokens(here)[0]
    image_facts = here.get(f"/api/items/{token}").json()["films"][0]
    assert set(image_facts) == {"view", "fault"}
    assert image_facts["fault"] == "This image cannot be shown."
    assert here.get(f"/api/items/{token}/films/0").status_code == 404


def test_the_wire_is_compressed(page: Page) -> None:
    token = tokens(page.ada)[0]
    with page.ada.stream("GET", f"/api/items/{token}/films/0") as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert len(raw) < len(gzip.decompress(raw))
