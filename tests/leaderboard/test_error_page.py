"""Errors for people: a browser that follows an address gets a page, a program the problem document."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from reveal_leaderboard.web.middleware import LOST, PROBLEM_TYPE, ErrorPages
from starlette.testclient import TestClient

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SENTENCE = "Not <b>now</b>."


def client() -> TestClient:
    app = FastAPI()

    def problem(status: int, title: str, detail: str) -> JSONResponse:
        headers = {"Retry-After": "7"}
        return JSONResponse({"title": title, "status": status, "detail": detail}, status, headers, PROBLEM_TYPE)

    app.add_api_route("/login", lambda: problem(429, "Too many", SENTENCE), methods=["GET", "HEAD", "POST"])
    app.add_api_route("/lost", lambda: problem(404, "Not Found", "Not Found"))
    app.add_api_route("/api/v1/lost", lambda: problem(404, "Not Found", "Not Found"))
    app.add_api_route("/fine", lambda: JSONResponse({"is": "fine"}))
    app.add_middleware(ErrorPages)
    return TestClient(app)


def test_a_browser_gets_a_page_with_the_status_the_headers_and_the_sentence() -> None:
    answer = client().get("/login", headers=BROWSER)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "Not &lt;b&gt;now&lt;/b&gt;." in answer.text
    assert 'href="/"' in answer.text


def test_a_page_that_is_not_there_says_so_in_words() -> None:
    answer = client().get("/lost", headers=BROWSER)
    assert answer.status_code == 404
    assert LOST in answer.text


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [("GET", "/login", {"Accept": "*/*"}), ("GET", "/login", {}), ("POST", "/login", BROWSER),
     ("GET", "/api/v1/lost", BROWSER)],
    ids=["any", "none", "post", "api"],
)  # fmt: skip
def test_programs_get_the_problem_document(method: str, path: str, headers: Mapping[str, str]) -> None:
    answer = client().request(method, path, headers=dict(headers))
    assert answer.headers["content-type"] == PROBLEM_TYPE
    assert answer.json()["status"] == answer.status_code


def test_what_is_no_error_passes() -> None:
    assert client().get("/fine", headers=BROWSER).json() == {"is": "fine"}


def test_a_head_has_no_body_and_the_length_of_the_page() -> None:
    answer = client().head("/login", headers=BROWSER)
    assert answer.content == b""
    assert int(answer.headers["content-length"]) == len(client().get("/login", headers=BROWSER).content)
