"""A sample of the bad files sent to a real server on loopback, while a real worker scores what it accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from reveal_bench.kinds.localization.records import Manifest
from reveal_bench.predictions import RULES
from tests.leaderboard.conftest import METADATA, Board, Server, running, serve
from tests.leaderboard.hostile.corpus import BROKE_OFF, TOO_LARGE, Bad, Site
from tests.leaderboard.hostile.test_files import CORPUS
from tests.leaderboard.hostile.understanding import SENTENCES, check_sentence
from tests.leaderboard.hostile.world import IMAGES, PLENTY, STUDIES, build_studies
from tests.leaderboard.hostile.wrappings import LARGE_WRAPPINGS

pytestmark = pytest.mark.processes

REFUSED = [bad for bad in CORPUS if bad.rules]
SOUND = [bad for bad in CORPUS if not bad.rules]
SAMPLE = (*REFUSED[::60], *SOUND[::12], *LARGE_WRAPPINGS[::7])


@pytest.fixture(scope="module")
def server(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Site]]:
    root = tmp_path_factory.mktemp("http")
    public, private = build_studies(root / "studies")
    manifest, asked = board.manifest, Board(public, private).published.manifest
    assert isinstance(manifest, Manifest)
    image, finding = manifest.asked_pairs()[0]
    settings = root / "settings.toml"
    settings.write_text(PLENTY, encoding="utf-8")
    with serve(board, root, "--benchmark", str(public), "--settings", str(settings)) as served:
        holdouts = [f"{IMAGES}={board.holdout}", f"{STUDIES}={private}"]
        words = [word for holdout in holdouts for word in ("--holdout", holdout)]
        with running(
            "worker", "--data", served.data, "--settings", settings, *words, log=root / "worker.log"
        ) as worker:
            yield served, Site(image, finding, asked.studies[0], asked.studies[1], asked.labels)  # type: ignore[union-attr]
            assert (served.process.poll(), worker.poll()) == (None, None)


def send(server: Server, site: Site, bad: Bad) -> httpx.Response:
    metadata = {**METADATA, "model": {"name": f"Model {SAMPLE.index(bad)}"}}
    board = IMAGES if bad.board == "images" else STUDIES
    fields = {"benchmark": board, "metadata": json.dumps(metadata), "allow_missing": "true"}
    name = bad.filename.replace("\x00", "") or "predictions"
    files = {"file": (name, bad.make(site))}
    return httpx.post(f"{server.url}/api/v1/submissions", data=fields, files=files, timeout=120, verify=False)


def check_lint(document: dict[str, Any], rules: frozenset[str]) -> None:
    found = document["report"]["problems"]
    assert {problem["rule"] for problem in found if problem["severity"] == "error"} <= rules
    assert {problem["rule"] for problem in found} <= set(RULES)
    for problem in found:
        check_sentence(problem["message"])


@pytest.mark.parametrize("bad", SAMPLE, ids=lambda bad: bad.name)
def test_a_bad_file_is_answered_over_http(server: tuple[Server, Site], bad: Bad) -> None:
    served, site = server
    answer = send(served, site, bad)
    document = answer.json()
    if not bad.rules:
        assert answer.status_code == 202
        assert served.wait_scored(document["id"])["status"] == "scored"
        return
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    check_sentence(document["detail"])
    if document["type"] == "/problems/unreadable":
        assert document["detail"] in SENTENCES
        assert bad.rules & {TOO_LARGE, BROKE_OFF}
    else:
        assert document["type"] == "/problems/lint"
        check_lint(document, bad.rules)


def test_nothing_of_a_bad_file_is_kept(server: tuple[Server, Site]) -> None:
    served, site = server
    before = sorted(path.name for path in (served.data / "blobs").rglob("*") if path.is_file())
    assert send(served, site, SAMPLE[0]).status_code == 422
    after = sorted(path.name for path in (served.data / "blobs").rglob("*") if path.is_file())
    assert after == before


def test_the_log_holds_no_text_of_a_file(server: tuple[Server, Site], tmp_path: Path) -> None:
    served, site = server
    canary = "canary4711"
    line = f'{{"image_id": "{canary}", "finding": "{canary}", "cell": "{canary}"}}'
    bad = Bad("canary", lambda _: line.encode(), frozenset({"cell"}), "images", f"{canary}.jsonl")
    metadata = json.dumps({**METADATA, "contact": f"{canary}@example.org"})
    fields = {"benchmark": IMAGES, "metadata": metadata}
    answer = httpx.post(
        f"{served.url}/api/v1/submissions", data=fields, files={"file": (bad.filename, bad.make(site))}, timeout=60
    )
    assert answer.status_code == 422
    assert canary in answer.text
    assert canary not in served.log.read_text(encoding="utf-8")
