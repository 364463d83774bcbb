"""A board's gallery: released cases only, served under its own content policy; other addresses do not exist."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from reveal_leaderboard.boards.catalogue import read_published
from reveal_leaderboard.boards.galleries import open_galleries, prepare_board_gallery
from reveal_leaderboard.cli import app
from reveal_leaderboard.web.app import CASES, add_gallery, menu_of
from reveal_leaderboard.web.middleware import SecureHeaders
from typer.testing import CliRunner

from reveal_bench.viewer.serving import Galleries
from tests.viewer.gallery_sample import GallerySample, make_gallery_sample


@pytest.fixture(scope="module")
def gallery_files(tmp_path_factory: pytest.TempPathFactory, twin_of: Callable[[str], Path]) -> GallerySample:
    return make_gallery_sample(tmp_path_factory.mktemp("gallery"), twin_of("chexlocalize"))


def with_first_case(gallery_files: GallerySample, out: Path, **changes: Any) -> Path:
    """A copy of the gallery whose first case has other ids."""
    shutil.copytree(gallery_files.gallery, out)
    index = json.loads((out / "gallery.json").read_text())
    index["cases"][0].update(changes)
    (out / "gallery.json").write_text(json.dumps(index))
    return out


def test_a_gallery_with_a_case_that_is_held_out_is_refused(gallery_files: GallerySample, tmp_path: Path) -> None:
    published = read_published(gallery_files.public, "holdout")
    assert open_galleries([gallery_files.gallery], [published]).names == ["chexlocalize"]
    held_out = next(iter(published.manifest.rows))
    for n, change in enumerate(({"id": held_out}, {"images": [held_out]})):
        wrong = with_first_case(gallery_files, tmp_path / str(n), **change)
        with pytest.raises(ValueError, match=f"held out, got 1 of chexlocalize: {held_out}"):
            open_galleries([wrong], [published])


def test_a_gallery_of_a_benchmark_that_is_not_served_is_refused(gallery_files: GallerySample) -> None:
    with pytest.raises(ValueError, match="that this server serves"):
        open_galleries([gallery_files.gallery], [])


def test_the_command_prepares_a_gallery_or_says_why_not(gallery_files: GallerySample, tmp_path: Path) -> None:
    def run(benchmark: str, split: str, out: str) -> tuple[int, str]:
        words = ["gallery", benchmark, "--dataset", gallery_files.public, "--split", split, "--out", tmp_path / out]
        files = [f"--predictions={name}={path}" for name, path in gallery_files.files.items()]
        done = CliRunner().invoke(app, [*map(str, words), *files])
        return done.exit_code, " ".join(done.output.replace("│", " ").split())

    code, texts = run("chexlocalize", "released", "good")
    assert (code, f"{len(gallery_files.records)} cases" in texts) == (0, True), texts
    assert (tmp_path / "good" / "gallery.json").read_bytes() == (gallery_files.gallery / "gallery.json").read_bytes()
    code, texts = run("chexlocalize", "holdout", "closed")
    assert (code, "references are public" in texts) == (2, True), texts
    code, texts = run("reveal-cxr", "released", "other")
    assert (code, "must be a dataset folder of reveal-cxr" in texts) == (2, True), texts
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_a_released_case_that_another_split_holds_out_is_found_when_it_is_prepared(
    gallery_files: GallerySample, tmp_path: Path
) -> None:
    public = tmp_path / "public"
    shutil.copytree(gallery_files.public, public)
    shutil.copy(public / "manifest" / "released.parquet", public / "manifest" / "holdout.parquet")
    with pytest.raises(ValueError, match="held out"):
        prepare_board_gallery("chexlocalize", public, "released", {}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_routes_bring_a_stricter_policy_and_keep_that_of_the_gate(gallery_files: GallerySample) -> None:
    galleries = open_galleries([gallery_files.gallery], [read_published(gallery_files.public, "holdout")])
    application = FastAPI()
    add_gallery(application, galleries)
    application.add_middleware(SecureHeaders)
    client = TestClient(application)
    page = client.get("/gallery")
    assert page.status_code == 200
    gate, own = page.headers.get_list("content-security-policy")
    assert "frame-ancestors 'none'" in gate
    assert own.startswith("default-src 'none'; script-src 'self';")
    assert client.get("/gallery/chexlocalize/gallery.json").json()["benchmark"] == "chexlocalize"
    assert client.get("/gallery/chexlocalize/films/0-0.jpg").headers["content-type"] == "image/jpeg"
    assert client.get("/gallery/chexlocalize/%2e%2e/holdout.jsonl").status_code == 404
    assert menu_of(galleries)[-1] == ("Cases", "/gallery")


def test_where_there_is_no_gallery_nothing_leads_to_one() -> None:
    application = FastAPI()
    add_gallery(application, Galleries())
    assert TestClient(application).get("/gallery").status_code == 404
    assert CASES not in dict(menu_of(Galleries())).values()
