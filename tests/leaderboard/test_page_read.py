"""The page of readers: blinded, and nobody else is shown or may save anything."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.store.tables import ratings
from reveal_leaderboard.web.pages import read
from reveal_leaderboard.web.services import Services

from tests.leaderboard.databases import Kept
from tests.leaderboard.task_world import BENCHMARK, REFERENCE, Room, answers_to, kept_room, task_board

__all__ = ["kept_room", "task_board"]


class Auth:
    """Replacement for `Auth`, with the person that a test sets."""

    def __init__(self) -> None:
        self.asking: Actor | None = None

    def actor(self, request: Any) -> Actor | None:
        return self.asking


class Page:
    """The handlers of the page, called as a browser could."""

    def __init__(self, room: Room) -> None:
        self.room, self.auth = room, Auth()
        auth: Any = self.auth
        services = Services(room.store, room.queue, room.intake, room.accounts, auth)
        self.handlers = read.ReadHandlers(services)
        self.request: Any = SimpleNamespace(request=None, query_params={})

    def open(self, actor: Actor | None, benchmark: str | None = BENCHMARK) -> tuple[Any, ...]:
        self.auth.asking = actor
        return self.handlers.open(self.request, benchmark)

    def save(self, actor: Actor | None, answer_id: str, *scores: Any, benchmark: str = BENCHMARK) -> tuple[Any, ...]:
        self.auth.asking = actor
        return self.handlers.save(self.request, benchmark, answer_id, *scores)


@pytest.fixture(scope="module")
def kept_page(kept_room: Room) -> Page:
    ada = kept_room.person("Ada", team="Northern Lab")
    inputs = answers_to(kept_room.board.manifest, "<script>alert(1)</script> *x*")
    kept_room.submit(ada, "Northern Lab", "Alpha", inputs)
    kept_room.worker.run(once=True)
    return Page(kept_room)


@pytest.fixture
def page(kept_page: Page) -> Iterator[Page]:
    kept, kept_page.auth.asking = Kept(kept_page.room.store.engine), None
    yield kept_page
    kept.put_back()


def n_ratings(room: Room) -> int:
    with room.store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(ratings)).scalar_one())


def test_the_page_is_laid_out(page: Page) -> None:
    with gr.Blocks() as blocks:
        read.build(page.handlers.services, blocks)
    radios = [block for block in blocks.blocks.values() if isinstance(block, gr.Radio)]
    assert [radio.label for radio in radios] == [
        "Process", "Execution", "Synthesis", "Language", "Image content", "Image style",
    ]  # fmt: skip
    assert [value for _, value in radios[0].choices] == [5, 4, 3, 2, 1]
    assert all(dependency["api_visibility"] == "private" for dependency in blocks.config["dependencies"])


def test_a_reader_is_shown_the_task_and_the_answer_and_not_whose_it_is(page: Page) -> None:
    text, markup, form, answer_id, *radios = page.open(page.room.person("one", role="reader"))
    assert text == ""
    assert form["visible"]
    assert "Prompt number" in markup
    assert "&lt;script&gt;alert(1)&lt;/script&gt; *x* to task-" in markup
    assert "<script>" not in markup
    for secret in ("Alpha", "Northern", "Ada", "jsonl", REFERENCE, answer_id):
        assert secret not in markup
    has_boxes = "effusion" in markup
    assert [radio["visible"] for radio in radios] == [True] * 4 + [has_boxes] * 2
    assert {radio["value"] for radio in radios} == {None}


def test_nobody_else_is_shown_or_may_save_anything(page: Page) -> None:
    room = page.room
    answer_id = page.open(room.person("one", role="reader"))[3]
    outsiders = [
        (None, "You are not signed in."),
        (room.person("stranger"), "This page is for readers."),
        (room.person("owner", role="owner"), "This page is for readers."),
        (room.person("rival", team="Southern Lab"), "This page is for readers."),
    ]
    for actor, words in outsiders:
        for text, markup, form, kept, *radios in (
            page.open(actor),
            page.save(actor, answer_id, 1, 1, 1, 1, None, None),
            page.handlers.back(page.request, BENCHMARK),
        ):
            assert words in text
            assert (markup, kept, form["visible"]) == ("", "", False)
            assert {radio["value"] for radio in radios} == {None}
    assert n_ratings(room) == 0


def test_a_reader_of_the_own_team_is_shown_nothing(page: Page) -> None:
    room = page.room
    answer_id = page.open(room.person("one", role="reader"))[3]
    team = next(team for team in room.accounts.teams() if team.name == "Northern Lab")
    both = room.person("both", role="reader")
    room.accounts.add_member(team, both.user, "reader", "cli:test")
    both = room.actor(both.user)
    assert "You have scored all answers" in page.open(both)[0]
    text, markup, *_ = page.save(both, answer_id, 1, 1, 1, 1, None, None)
    assert "readers must not rate answers of their own team" in text
    assert markup == ""
    _, markup, *_ = page.save(both, answer_id, None, None, None, None, None, None)
    assert "Prompt" not in markup
    assert n_ratings(room) == 0


def test_saving_goes_on_and_what_is_missing_is_asked_for_again(page: Page) -> None:
    room, reader = page.room, page.room.person("one", role="reader")
    first = page.open(reader)
    has_boxes = "effusion" in first[1]
    pictures = (2, 1) if has_boxes else (None, None)
    text, _, form, again, *radios = page.save(reader, first[3], 5, 4, None, 3, *pictures)
    assert "Synthesis must be scored" in text
    assert (again, form["visible"]) == (first[3], True)
    assert [radio["value"] for radio in radios] == [5, 4, None, 3, *pictures]
    assert n_ratings(room) == 0
    text, _, _, following, *radios = page.save(reader, first[3], 5, 4, 3, 3, *pictures)
    assert "Saved." in text
    assert following != first[3]
    assert {radio["value"] for radio in radios} == {None}
    text, _, _, back, *radios = page.handlers.back(page.request, BENCHMARK)
    assert "your last scores" in text
    assert (back, [radio["value"] for radio in radios]) == (first[3], [5, 4, 3, 3, *pictures])


@pytest.mark.parametrize("score", [0, 6, 2.5, "5", True, [5]], ids=repr)
def test_what_a_browser_could_make_up_is_not_kept(page: Page, score: Any) -> None:
    reader = page.room.person("one", role="reader")
    answer_id = page.open(reader)[3]
    text, *_ = page.save(reader, answer_id, score, 4, 4, 4, None, None)
    assert "Not saved." in text
    assert n_ratings(page.room) == 0
    assert "unknown answer" in page.save(reader, "made up", 4, 4, 4, 4, None, None)[0]
    assert "No board on this server" in page.open(reader, "chexlocalize")[0]
    assert "No board on this server" in page.open(reader, None)[0]


def test_the_last_rating_ends_the_reading(page: Page) -> None:
    room = page.room
    (submission,) = room.store.list_submissions()
    for name in ("one", "two"):
        reader = room.person(name, role="reader")
        text, markup, form, answer_id, *_ = page.open(reader)
        while form["visible"]:
            pictures = (3, 3) if "effusion" in markup else (None, None)
            text, markup, form, answer_id, *_ = page.save(reader, answer_id, 3, 3, 3, 3, *pictures)
    assert "completes the scoring" in text
    assert "You have scored all answers." in text
    assert room.status(submission) == "queued"
