"""Responses of the viewer's server: its own files, a gallery's, and no other file of the disk."""

from __future__ import annotations

import json
import re
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from reveal_bench.viewer.serving import STATIC, Galleries, Gallery, loopback_server
from tests.cli.test_score import call
from tests.conftest import World
from tests.viewer.gallery_sample import GallerySample


def test_files_of_the_page_and_of_the_gallery_and_no_others(sample: GallerySample) -> None:
    galleries = Galleries([Gallery.of_folder(sample.gallery)])
    page = galleries.answer("")
    assert page is not None
    text = page.body.decode()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=|https?://", text)
    named = re.findall(r'(?:src|href)="/gallery/(static/[^"]+)"', text)
    assert len(named) == 4
    assert all(galleries.answer(name) for name in [*named, *(f"static/{name}" for name in STATIC)])
    listed = galleries.answer("list.json", menu=[("Board", "/")])
    assert listed is not None
    assert json.loads(listed.body) == {"menu": [["Board", "/"]], "galleries": ["chexlocalize"]}
    for place in ("gallery.json", "cases/0.json", "films/0-0.jpg", "thumbnails/0.jpg"):
        served = galleries.answer(f"chexlocalize/{place}")
        assert served is not None
        assert served.body == (sample.gallery / place).read_bytes()
        assert "script-src 'self'" in served.headers["Content-Security-Policy"]
        assert "unsafe" not in served.headers["Content-Security-Policy"]
    (sample.gallery.parent / "secret.json").write_text("{}")
    outside = ("chexlocalize/../secret.json", "chexlocalize/cases/../../secret.json", "static/../gallery.py")
    for place in (
        *outside,
        "static/gallery.html",
        "chexlocalize/cases/999.json",
        f"chexlocalize/cases/{'9' * 5000}.json",
        "chexlocalize/",
        "other/gallery.json",
    ):
        assert galleries.answer(place) is None, place


def test_without_a_gallery_there_is_no_page() -> None:
    assert Galleries().answer("") is None
    assert Galleries().strip("chexlocalize", 4) == []


def test_a_strip_names_cases_that_are_there(sample: GallerySample) -> None:
    galleries = Galleries([Gallery.of_folder(sample.gallery)])
    strip = galleries.strip("chexlocalize", 3)
    assert len(strip) == 3
    first = json.loads((sample.gallery / "cases" / "0.json").read_text())
    address, thumbnail, words = strip[0]
    assert address == f"/gallery?benchmark=chexlocalize&case={first['id']}"
    assert galleries.answer(thumbnail.removeprefix("/gallery/")) is not None
    assert words.startswith(f"{first['films'][0]['view']} radiograph, asked for {first['groups'][0]}")
    assert len(galleries.strip("chexlocalize", 1000)) == len(sample.records)


def test_other_folders_and_two_galleries_of_one_benchmark_are_refused(sample: GallerySample, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gallery\.json"):
        Gallery.of_folder(tmp_path)
    (tmp_path / "gallery.json").write_text('{"schema": 0}')
    with pytest.raises(ValueError, match="this version"):
        Gallery.of_folder(tmp_path)
    with pytest.raises(ValueError, match="once per benchmark"):
        Galleries([Gallery.of_folder(sample.gallery)] * 2)


def test_view_says_where_the_cases_are(sample: GallerySample, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: ThreadingHTTPServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupted)
    answer = call("view", sample.public, f"Net={sample.files['Right']}").stdout
    assert re.search(rf"^{len(sample.records)} cases: http://127\.0\.0\.1:\d+/gallery", answer)
    ids = sample.public.parent / "ids.txt"
    ids.write_text(sample.records[0].image_id)
    assert "1 cases: " in call("view", sample.public, str(sample.files["Right"]), "--subset", ids).stdout
    assert re.search(r"^\d+ cases: http", call("view", world.folder, "--split", "released").stdout)
    assert call("view", sample.public, "none.jsonl", expect=1).stderr == "error: none.jsonl does not exist\n"


def test_the_server_of_view_answers_to_its_own_address_alone(sample: GallerySample) -> None:
    with loopback_server(Galleries([Gallery.of_folder(sample.gallery)])) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            page = httpx.get(f"{address}/gallery")
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html")
            assert page.headers["x-frame-options"] == "DENY"
            assert httpx.get(f"{address}/gallery/chexlocalize/cases/0.json").status_code == 200
            assert httpx.get(f"{address}/gallery", headers={"Host": "elsewhere.example"}).status_code == 404
            assert httpx.get(f"{address}/gallery/chexlocalize/..%2f..%2fsecret.json").status_code == 404
            assert httpx.get(address, follow_redirects=True).url == f"{address}/gallery"
        finally:
            server.shutdown()
            thread.join()
