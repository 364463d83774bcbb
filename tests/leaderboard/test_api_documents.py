"""Answers of the API by person: the routes on a real store, with scores written by the tests."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from reveal_leaderboard.accounts import invitations
from reveal_leaderboard.release.receipts import Signer, append
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.metadata import Metadata, TuningRecord
from reveal_leaderboard.store.tables import jobs
from reveal_leaderboard.web.api import add_api, health
from reveal_leaderboard.web.api.documents import PublicMetadata, PublicTuning
from reveal_leaderboard.web.api.problems import PROBLEMS, ProblemError
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from reveal_bench.exchange.receipts import verify_receipt
from tests.leaderboard.api_app import (
    NOBODY,
    SUBMISSIONS,
    Person,
    World,
    in_state,
    kept_world,
    private_parts,
    problem,
    sent,
    world,
)
from tests.leaderboard.conftest import BENCHMARK, METADATA, Board

__all__ = ["kept_world", "world"]

WriteFile = Callable[..., Path]
BOARD = f"/api/v1/leaderboard?benchmark={BENCHMARK}"


# Who sees what -------------------------------------------------------------------------------------------------------


STATES = ("queued", "refused", "failed", "withdrawn before", "withdrawn after", "hidden", "held", "scored")


@pytest.mark.parametrize("state", STATES)
def test_only_a_scored_visible_submission_is_public(world: World, write_file: WriteFile, state: str) -> None:
    sent_id = in_state(world, state, write_file)
    for path in ("", "/events", "/receipt"):
        unknown = world.client().get(f"{SUBMISSIONS}/{NOBODY}{path}")
        for who in (None, world.other):
            answer = world.client(who).get(f"{SUBMISSIONS}/{sent_id}{path}")
            if state == "scored" and path != "/receipt":
                assert answer.status_code == 200
            elif state == "withdrawn after":  # it was public once
                assert problem(answer, 410, "withdrawn")["entry"]["submission_id"] == sent_id
            elif state != "scored":
                assert (answer.status_code, answer.content) == (404, unknown.content)
    for person in (world.owner, world.admin):
        document = world.client(person).get(f"{SUBMISSIONS}/{sent_id}").json()
        assert document["status"] == state.split()[0].replace("hidden", "scored").replace("held", "scored").replace(
            "withdrawn", document["status"]
        )
        assert document["is_public"] is (state == "scored")


def test_what_was_public_and_is_withdrawn_says_whose_it_was_and_no_figure(world: World, write_file: WriteFile) -> None:
    sent_id = in_state(world, "withdrawn after", write_file)
    own = world.client(world.owner).get(f"{SUBMISSIONS}/{sent_id}").json()
    message = problem(world.client().get(f"{SUBMISSIONS}/{sent_id}"), 410, "withdrawn")
    assert message["entry"] == {
        "submission_id": sent_id,
        "model": own["metadata"]["model"]["name"],
        "team": own["metadata"]["organization"],
        "benchmark": BENCHMARK,
        "versions": own["versions"],
        "frozen_on": [],
        "sent_at": own["created_at"],
        "withdrawn_at": own["withdrawn_at"],
    }
    assert set(message) == {"type", "title", "status", "detail", "entry"}
    world.services.store.hide(sent_id, who="cli", why="looked at")
    problem(world.client().get(f"{SUBMISSIONS}/{sent_id}"), 404, "not-found")


def test_what_is_public_names_no_person_and_no_contact(world: World, write_file: WriteFile) -> None:
    sent_id = sent(world, write_file("my-secret-file-name.jsonl"))
    world.score(sent_id)
    texts = [
        world.client().get(path).text for path in (f"{SUBMISSIONS}/{sent_id}", f"{SUBMISSIONS}/{sent_id}/events", BOARD)
    ]
    for text in texts:
        assert world.owner.user.id not in text
        assert private_parts(world)["contact"] not in text
        assert "my-secret-file-name" not in text
    assert '"model":{"name":"Pointer"' in texts[0]


def test_every_field_of_the_metadata_is_either_shown_or_known_to_be_hidden() -> None:
    assert set(Metadata.model_fields) - set(PublicMetadata.model_fields) == {"contact", "share_predictions"}
    assert set(TuningRecord.model_fields) - set(PublicTuning.model_fields) == {"file", "file_sha256"}
    own = {"benchmark": "b", "version": "1", "split": "val", "n": 3, "criterion": "f1"}
    stored = {
        "model": {"name": "M"},
        "organization": "O",
        "kind": "cnn",
        "tuning": own | {"file": "my-secret-file-name"},
    }
    assert PublicMetadata.of(stored).model_dump()["tuning"] == own


def test_a_held_submission_says_whose_figures_it_shows(world: World, write_file: WriteFile) -> None:
    held = in_state(world, "held", write_file)
    score = world.client(world.owner).get(f"{SUBMISSIONS}/{held}").json()["score"]
    assert (score["is_held"], score["figures"][0]["value"]) == (True, 0.60)
    assert score["shown_of"] != held


def test_events_tell_roles_and_no_names(world: World, write_file: WriteFile) -> None:
    sent_id = in_state(world, "hidden", write_file)
    events = world.client(world.owner).get(f"{SUBMISSIONS}/{sent_id}/events").json()["events"]
    steps = [(event["to_status"], event["who"]) for event in events]
    assert steps == [
        *[(status, "submitter") for status in ("received", "linted", "queued")],
        *[(status, "worker") for status in ("scoring", "scored")],
        ("hidden", "operator"),
    ]
    assert events[-1]["at"].endswith("Z")
    assert set(events[0]) == {"at", "who", "from_status", "to_status", "why"}


def test_a_bad_token_is_told_so_and_not_taken_for_a_visitor(world: World) -> None:
    answer = world.client().get(f"{SUBMISSIONS}/{NOBODY}", headers={"Authorization": "Bearer rvl_nothing"})
    problem(answer, 401, "sign-in")
    assert answer.headers["www-authenticate"] == "Bearer"


# Boards --------------------------------------------------------------------------------------------------------------


def test_an_unchanged_board_is_not_sent_again(world: World, write_file: WriteFile) -> None:
    sent_id = sent(world, write_file())
    world.score(sent_id)
    first = world.client().get(BOARD)
    again = world.client().get(BOARD, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "public, max-age=10"
    world.services.store.hide(sent_id, who=f"user:{world.admin.user.id}", why="doubtful")
    after = world.client().get(BOARD, headers={"If-None-Match": first.headers["etag"]})
    assert (after.status_code, after.json()["entries"]) == (200, [])


def test_new_ranks_are_on_the_board_that_was_sent_before(world: World, write_file: WriteFile) -> None:
    sent_id = sent(world, write_file())
    world.score(sent_id)
    before = world.client().get(BOARD).json()["entries"]
    queue = world.services.queue
    job = queue.claim("hand", served=[world.services.intake.catalogue.current(BENCHMARK).key])
    assert job is not None
    entries = {sent_id: {"rank": 1, "rank_low": 1, "rank_high": 1, "tier": "A"}}
    assert queue.finish_result(job, document={"schema": 1, "entries": entries, "computed_for": [sent_id]})
    after = world.client().get(BOARD).json()["entries"]
    assert [(entry["is_new"], entry["rank"]) for entry in (*before, *after)] == [(True, None), (False, 1)]


def test_the_board_has_three_forms_of_the_same(world: World, write_file: WriteFile) -> None:
    world.score(sent(world, write_file()), 0.47)
    document = world.client().get(BOARD).json()
    figure = document["entries"][0]["figures"][0]
    assert (figure["value"], figure["low"], figure["high"]) == (0.47, 0.37, 0.57)
    table = pq.read_table(io.BytesIO(world.client().get(f"{BOARD}&format=parquet").content))
    assert table.column("value").to_pylist()[0] == 0.47
    csv = world.client().get(f"{BOARD}&format=csv")
    assert csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert csv.headers["content-disposition"].endswith('.csv"')
    assert ",0.47,0.37,0.57," in csv.text


def test_a_version_that_was_never_shown_is_unknown(world: World) -> None:
    with world.services.store.write() as connection:
        boards.register_version(connection, BENCHMARK, "9.9.9", "holdout", {})
    for version in ("9.9.9", "none"):
        problem(world.client().get(f"{BOARD}&version={version}"), 404, "unknown-benchmark")


def test_two_submissions_are_compared_at_once_and_no_worker_is_asked(world: World, write_file: WriteFile) -> None:
    ids = [sent(world, write_file(seed=seed), f"Pointer {seed}") for seed in (1, 2)]
    for sent_id, value in zip(ids, (0.40, 0.60), strict=True):
        world.score(sent_id, value)
    answer = world.client().get(f"/api/v1/compare?a={ids[0]}&b={ids[1]}")
    document = answer.json()["document"]
    assert (answer.status_code, document["a"], document["b"]) == (200, *ids)
    assert [(row["a"], row["b"], row["value"]) for row in document["rows"]] == [(0.4, 0.6, -0.2)]
    with world.services.store.read() as connection:
        assert not connection.execute(sa.select(jobs.c.id).where(jobs.c.kind == "compare")).all()
    problem(world.client().get(f"/api/v1/compare?a={ids[0]}&b={ids[0]}"), 409, "not-comparable")


def test_what_the_board_does_not_show_is_not_compared(world: World, write_file: WriteFile) -> None:
    ids = [sent(world, write_file(seed=seed), f"Pointer {seed}") for seed in (1, 2)]
    for sent_id, value in zip(ids, (0.40, 0.60), strict=True):
        world.score(sent_id, value)
    world.services.store.withdraw(ids[0], who="test")
    refused = world.client(world.owner).get(f"/api/v1/compare?a={ids[0]}&b={ids[1]}")
    problem(refused, 409, "not-comparable")
    assert "not on the board" in refused.json()["detail"]


def test_what_the_ladder_holds_is_not_told_by_comparing(world: World, write_file: WriteFile) -> None:
    held = in_state(world, "held", write_file)
    earlier = next(one.id for one in world.services.store.list_submissions() if one.id != held)
    path = f"/api/v1/compare?a={held}&b={earlier}"
    problem(world.client().get(path), 404, "not-found")
    problem(world.client(world.owner).get(path), 409, "not-comparable")


def test_a_benchmark_tells_its_rules_and_its_manifest(world: World, board: Board) -> None:
    [benchmark] = world.client().get("/api/v1/benchmarks").json()["benchmarks"]
    assert (benchmark["name"], benchmark["state"], benchmark["n_items"]) == (
        BENCHMARK,
        "open",
        len(board.manifest.rows),
    )
    assert benchmark["settings"]["quota"]["total"] == 12
    path = f"/api/v1/benchmarks/{BENCHMARK}/manifest"
    table = pq.read_table(io.BytesIO(world.client().get(path).content))
    rows = world.client().get(f"{path}?format=json").json()["rows"]
    assert table.column("image_id").to_pylist() == [row["image_id"] for row in rows] == list(board.manifest.rows)


# The person who asks --------------------------------------------------------------------------------------------------


def test_tokens_are_made_in_the_browser_alone(world: World) -> None:
    expected = {"name": "laptop", "team_id": world.owner.team.id, "scopes": ["read"], "days": 7}
    problem(world.client(world.owner).post("/api/v1/me/tokens", json=expected), 403, "session-only")
    browser = world.client(world.owner, browser=True)
    made = browser.post("/api/v1/me/tokens", json=expected)
    assert made.status_code == 201
    secret, token = made.json()["secret"], made.json()["token"]
    bearer = {"Authorization": f"Bearer {secret}"}
    account = world.client().get("/api/v1/me", headers=bearer).json()
    assert (account["via"], account["scopes"], account["name"]) == ("token", ["read"], "Owners")
    listed = browser.get("/api/v1/me/tokens").text
    assert token["id"] in listed
    assert secret not in listed
    problem(world.client(world.other, browser=True).delete(f"/api/v1/me/tokens/{token['id']}"), 404, "not-found")
    assert browser.delete(f"/api/v1/me/tokens/{token['id']}").status_code == 204
    problem(world.client().get("/api/v1/me", headers=bearer), 401, "sign-in")


def test_an_invitation_is_answered_by_the_person_invited_in_the_browser(world: World) -> None:
    accounts, team = world.services.accounts, world.owner.team
    guest = accounts.sign_in("https://id.example.org", "guest", "Guest")
    with world.services.store.write() as connection:
        first, second = (invitations.invite(connection, team, guest, "reader", "cli") for _ in range(2))
    _, secret = accounts.issue_token(guest, accounts.create_team("Guests", owner=guest, who="cli"), name="t")
    person = Person(guest, team, secret, accounts.new_session(guest))
    browser, path = world.client(person, browser=True), "/api/v1/me/invitations"
    listed = world.client(person).get(path).json()["invitations"]
    assert [(one["id"], one["role"], one["inviter"]) for one in listed] == [(second, "reader", "the board's operator")]
    assert listed[0]["team"] == {"id": team.id, "name": team.name}
    accept = {"answer": "accept"}
    problem(world.client(person).post(f"{path}/{second}", json=accept), 403, "session-only")
    problem(world.client(world.owner, browser=True).post(f"{path}/{second}", json=accept), 404, "not-found")
    problem(browser.post(f"{path}/{first}", json=accept), 404, "not-found")  # the second took its place
    assert browser.post(f"{path}/{second}", json={"answer": "decline"}).status_code == 204
    problem(browser.post(f"{path}/{second}", json=accept), 404, "not-found")
    assert guest.id not in {user.id for user, _ in accounts.members(team)}


def test_a_token_without_the_scope_does_not_submit(world: World, write_file: WriteFile) -> None:
    _, secret = world.services.accounts.issue_token(
        world.owner.user, world.owner.team, name="r", scopes=("read",), days=1
    )
    reader = Person(world.owner.user, world.owner.team, secret, "")
    problem(world.send(write_file(), who=reader, metadata={**METADATA, "organization": "Owners"}), 403, "scope")


BAD_TOKENS = [
    ({"days": 0}, "body.days"),
    ({"days": "7"}, "body.days"),
    ({"name": "<b>"}, "body.name"),
    ({"scopes": ["admin"]}, "body.scopes.0"),
    ({"team_id": NOBODY}, "body.team_id"),
    ({"\ud800": 1}, "body"),
]


def test_a_token_that_may_not_be_is_refused_by_its_field(world: World) -> None:
    browser = world.client(world.owner, browser=True)
    headers = {"Content-Type": "application/json"}
    for change, field in BAD_TOKENS:
        expected = {"name": "laptop", "team_id": world.owner.team.id, **change}
        answer = browser.post("/api/v1/me/tokens", content=json.dumps(expected), headers=headers)
        assert [error["field"] for error in problem(answer, 422, "invalid")["errors"]] == [field]


def test_my_submissions_are_those_of_my_teams(world: World, write_file: WriteFile) -> None:
    first, second = (sent(world, write_file(seed=seed)) for seed in (1, 2))
    sent(world, write_file(seed=3), who=world.other)
    listed = world.client(world.owner).get("/api/v1/me/submissions").json()
    assert [one["id"] for one in listed["submissions"]] == [second, first]
    assert listed["n"] == 2
    page = world.client(world.owner).get("/api/v1/me/submissions?limit=1&skip=1").json()
    assert [one["id"] for one in page["submissions"]] == [first]


# Receipts, health, errors --------------------------------------------------------------------------------------------


def test_a_receipt_verifies_with_the_published_key(world: World, write_file: WriteFile, tmp_path: Path) -> None:
    sent_id = sent(world, write_file())
    world.score(sent_id)
    (tmp_path / "vault").mkdir(mode=0o700)
    signer, store = Signer(tmp_path / "vault"), world.services.store
    submission, score = store.get(sent_id), store.score_of(sent_id)
    assert submission is not None
    with store.write() as connection:
        append(connection, signer, submission, score)
    document = world.client().get(f"{SUBMISSIONS}/{sent_id}/receipt").json()
    [key] = world.client().get("/api/v1/keys").json()["keys"]
    assert (key["public_key"], key["first"]) == (signer.public_key_text, 1)
    assert verify_receipt(document, key["public_key"]).receipt["submission"] == sent_id
    problem(world.client().get(f"{SUBMISSIONS}/{sent_id}/receipt?part=final"), 404, "not-found")


def test_readiness_counts_who_waits_and_who_works(world: World, write_file: WriteFile) -> None:
    sent(world, write_file())
    key = world.services.intake.catalogue.current(BENCHMARK).key
    world.services.queue.beat_worker("alive", [key], "rlimits")
    ready = world.client().get("/readyz").json()
    assert (ready["status"], ready["queued"], ready["live_workers"]) == ("ready", 1, 1)
    assert (ready["worker_confinement"], ready["benchmarks"]) == (["rlimits"], [BENCHMARK])
    assert [gap.split(" (")[1] for gap in ready["gaps"]] == ["there is neither Landlock nor bubblewrap)", "no seccomp)"]
    assert world.client().get("/healthz").json() == {"status": "ok"}


def test_without_its_database_it_is_not_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OperationalError("SELECT 1", {}, Exception("secret host name"))

    monkeypatch.setattr(health, "READY_SECONDS", 0.0)
    assert world.client().get("/readyz").json()["status"] == "ready"
    monkeypatch.setattr(type(world.services.store), "read", lambda self: broken())
    answer = world.client().get("/readyz")
    problem(answer, 503, "not-ready")
    assert "secret" not in answer.text


def test_a_failed_check_answers_for_a_second_after_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise visitors' requests queue one check after the other while the database is slow."""
    clock, starts = SimpleNamespace(now=0.0), list[float]()

    def slow(_: object) -> None:
        starts.append(clock.now)
        clock.now += 60
        raise OperationalError("SELECT 1", {}, Exception())

    monkeypatch.setattr(type(world.services.store), "read", slow)
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: clock.now))
    app = FastAPI()
    app.include_router(health.health_routes(world.services))
    for later in (0, 0.9, 0.1):
        clock.now += later
        with pytest.raises(ProblemError, match="not-ready"):
            TestClient(app).get("/readyz")
    assert starts == [0, 61]


def test_without_room_for_uploads_it_is_not_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "READY_SECONDS", 0.0)
    monkeypatch.setattr(health, "LEAST_ROOM", 1 << 60)
    assert "disk of uploads is nearly full" in problem(world.client().get("/readyz"), 503, "not-ready")["detail"]


METRICS = [
    (None, "127.0.0.1", {}, 200),
    (None, "203.0.113.9", {}, 403),
    ("t0ken", "127.0.0.1", {}, 403),
    ("t0ken", "203.0.113.9", {"Authorization": "Bearer t0ken"}, 200),
    ("t0ken", "203.0.113.9", {"Authorization": "Bearer other"}, 403),
    ("t0ken", "203.0.113.9", {"Authorization": "Basic t0ken"}, 403),
]


def test_metrics_are_for_operators(world: World) -> None:
    problem(world.client(host="127.0.0.1").get("/metrics"), 404, "not-found")
    apps = {token: FastAPI() for token in (None, "t0ken")}
    for token, app in apps.items():
        add_api(app, replace(world.services, metrics=lambda: "up 1\n", metrics_token=token))
    for token, host, headers, status in METRICS:
        answer = TestClient(apps[token], client=(host, 50000)).get("/metrics", headers=headers)
        assert (answer.status_code, answer.text == "up 1\n") == (status, status == 200), (token, host, headers)


def test_every_problem_type_has_its_page(world: World) -> None:
    client = world.client()
    for name, kind in PROBLEMS.items():
        document = client.get(f"/problems/{name}").json()
        assert (document["type"], document["status"]) == (f"/problems/{name}", kind.status)
        page = client.get(f"/problems/{name}", headers={"Accept": "text/html"})
        assert page.headers["content-type"].startswith("text/html")
        assert f"<h1>{kind.title}</h1>" in html.unescape(page.text)


def test_other_methods_and_other_paths_are_problems_too(world: World) -> None:
    answer = world.client().put(f"{SUBMISSIONS}/{NOBODY}")
    problem(answer, 405, "method")
    assert answer.headers["allow"] == "DELETE, GET"
    for path in ("/api/v1/nothing", "/problems/nothing", f"{SUBMISSIONS}/not-hex"):
        problem(world.client().get(path), 404, "not-found")
    for path in ("/api/v1/leaderboard?benchmark=none", "/api/v1/benchmarks/none/manifest"):
        problem(world.client().get(path), 404, "unknown-benchmark")
    for path in ("/api/v1/leaderboard", f"{BOARD}&format=xml"):
        problem(world.client().get(path), 422, "invalid")
