"""An entry's shared result: badge, card, figures and citation, and what they must not reveal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.web.app import build_app
from reveal_leaderboard.web.link_preview import Preview
from reveal_leaderboard.web.result_images import card, entry_figure
from reveal_leaderboard.web.shared_result import Comparator, SharedResult
from reveal_leaderboard.web.vector_image import Dot, VectorImage
from starlette.testclient import TestClient

from tests.leaderboard.browser.world import IMAGES, World, released

SVG = "{http://www.w3.org/2000/svg}"
RESULT = SharedResult(
    "abc", "Net 2", "Team", IMAGES, "CheXlocalize", "1.0.0", "holdout", released(IMAGES, 0.7), "2026-11-23",
    place="2-5", tier="B", n_ranked=8, comparators=(Comparator("Chance", "chance", 0.14, "a paper"),), receipt="f" * 64,
)  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("pictures"))
    yield made
    made.store.engine.dispose()


@pytest.fixture(scope="module")
def scored(world: World) -> Submission:
    submission = world.send(*world.member("Ada", "Northern Lab"), "Net")
    world.score(0.7)
    world.rank({submission.id: (1, 1, 1, "A")})
    return submission


@pytest.fixture(scope="module")
def client(world: World) -> TestClient:
    intake: Any = world.intake
    app = build_app(world.store, intake.blobs, world.catalogue, intake.custody, world.auth)
    return TestClient(app, base_url="http://127.0.0.1")


def addresses(submission_id: str) -> list[str]:
    return [
        f"/badge/{submission_id}.svg",
        f"/card/{submission_id}.png",
        *(f"/figure/entry/{submission_id}.{form}" for form in ("svg", "png")),
    ]


def recipe_of(body: bytes) -> dict[str, Any]:
    """The recipe in an SVG or PNG file."""
    if body.startswith(b"\x89PNG"):
        return dict(json.loads(Image.open(BytesIO(body)).text["Recipe"]))  # type: ignore[attr-defined]
    return dict(json.loads(ElementTree.fromstring(body).findtext(f"{SVG}metadata") or ""))


def test_every_picture_bears_its_recipe_and_is_kept_by_its_tag(client: TestClient, scored: Submission) -> None:
    for address in [*addresses(scored.id), f"/figure/board/{IMAGES}.svg", f"/figure/board/{IMAGES}.png"]:
        answer = client.get(address)
        assert answer.status_code == 200, address
        recipe = recipe_of(answer.content)
        identity = (recipe["benchmark"], recipe["version"], recipe["metric"], recipe["signature"])
        assert identity == (IMAGES, "1.0.0", "point_hit", "point_hit|v:1")
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        assert "max-age=" in answer.headers["cache-control"]
        again = client.get(address, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.head(address).status_code == 200


def test_a_badge_says_value_interval_benchmark_and_version(client: TestClient, scored: Submission) -> None:
    badge = ElementTree.fromstring(client.get(f"/badge/{scored.id}.svg").content)
    assert badge.findtext(f"{SVG}title") == f"{IMAGES} 1.0.0: 70% (65 to 75) · rank 1"
    assert badge.get("role") == "img"


def test_a_card_has_the_size_that_sites_ask_for() -> None:
    assert Image.open(BytesIO(card(RESULT).to_png())).size == (1200, 630)
    texts = [shape.text for shape in card(RESULT).shapes if hasattr(shape, "text")]
    assert {"70%", "95% interval 65 to 75", "Rank 2–5 of 8 · tier B", "Chance"} <= set(texts)


def test_a_figure_shows_released_findings_alone_and_their_values_when_pointed_at() -> None:
    drawn = entry_figure(RESULT)
    assert drawn is not None
    text = drawn.to_svg().decode()
    for finding in RESULT.score.hidden:
        assert finding not in text
    assert "<title>Macro: 70 (65 to 75)</title>" in text
    rows = [shape.y for shape in drawn.shapes if isinstance(shape, Dot)]
    assert rows == sorted(rows)
    assert 0 < rows[0] < rows[-1] < drawn.height
    assert entry_figure(RESULT, "made_up") is None


@pytest.mark.parametrize(("name", "page_status"), [("hidden", 404), ("withdrawn", 410), ("waiting", 404)])
def test_what_visitors_may_not_see_has_no_pictures(
    world: World, client: TestClient, monkeypatch: pytest.MonkeyPatch, name: str, page_status: int
) -> None:
    submission = world.send(*world.member(name, f"Laboratory {name}"), "Secret Net")
    if name != "waiting":
        world.score(0.7)
    if name == "hidden":
        world.store.hide(submission.id, who="test", why="looked at")
    if name == "withdrawn":
        world.store.withdraw(submission.id, who="test")
    monkeypatch.setattr(type(world.auth), "actor", lambda *_: None)  # a visitor; local mode makes everybody an admin
    unknown = addresses("0" * 32)
    for address, other in zip(addresses(submission.id), unknown, strict=True):
        answer = client.get(address)
        assert answer.status_code == page_status
        assert b"70" not in answer.content.replace(submission.id.encode(), b"")
        if name != "withdrawn":  # told as what never was
            assert answer.content == client.get(other).content
            assert b"Secret Net" not in answer.content
    page = client.get(f"/entry?id={submission.id}")
    assert page.status_code == page_status
    assert ("Secret Net" in page.text) is (name == "withdrawn")  # without its scores
    assert not re.search(r"\b70\b", page.text)  # digits also occur in addresses of assets
    if name == "waiting":
        world.store.withdraw(submission.id, who="test")


def test_the_page_of_an_entry_bears_its_preview_and_an_unknown_one_answers_404(
    client: TestClient, scored: Submission
) -> None:
    page = client.get(f"/entry?id={scored.id}")
    assert page.status_code == 200
    assert "Click to try out the app" not in page.text
    tags = dict(re.findall(r'<meta property="(og:[a-z]+)" content="([^"]*)">', page.text))
    assert tags["og:title"] == "Net v1.0, Northern Lab · REVEAL leaderboard"
    assert tags["og:image"] == f"http://127.0.0.1/card/{scored.id}.png?version=1.0.0"
    assert client.get("/entry?id=nothing").status_code == 404
    assert client.get("/about").status_code == 200


HOSTILE = '"><img src=x onerror=alert(1)>{}\\input{x}%&_#$ } @misc{y, | [a](b)'


def test_what_is_left_of_a_benchmark_that_is_not_served_any_more_is_not_found(
    client: TestClient, world: World, scored: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.catalogue, "names", ())
    for address in [*addresses(scored.id), f"/entry?id={scored.id}"]:
        assert client.get(address).status_code == 404, address


def test_names_stay_text_in_every_form() -> None:
    result = replace(RESULT, model=HOSTILE, team=HOSTILE)
    bibtex = result.bibtex("https://board.example.org")
    author = bibtex.splitlines()[1]
    assert author.count("{") == author.count("}")  # BibTeX counts them, escaped or not
    assert r"\input" not in bibtex
    assert "url = {https://board.example.org/entry?id=abc&version=1.0.0}" in bibtex
    ElementTree.fromstring(card(result).to_svg())
    assert b"<img" not in card(result).to_svg()
    assert "<img" not in Preview("/entry", result.model, result.spoken).tags("https://board.example.org")


def test_a_stranger_who_asks_again_does_not_have_it_drawn_again(
    client: TestClient, scored: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawing a PNG takes a processor a tenth of a second, whoever asks."""
    drawn: list[str] = []
    draw = VectorImage.to_png

    def to_png(picture: VectorImage) -> bytes:
        drawn.append(picture.title)
        return draw(picture)

    monkeypatch.setattr(VectorImage, "to_png", to_png)
    asked = [client.get(f"/card/{scored.id}.png", params={"version": "1.0.0", "again": k}) for k in range(3)]
    assert len({answer.content for answer in asked}) == 1
    assert len(drawn) <= 1  # by an earlier test, perhaps
    client.get(f"/card/{scored.id}.png", headers={"If-None-Match": asked[0].headers["etag"]})
    assert len(drawn) <= 1
