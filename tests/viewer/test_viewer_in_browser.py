"""The viewer's tools by keyboard and by hand, on a desktop and a phone, on an image of 120 x 220 pixels shown at half
its size, with spacings of 0.5 mm between rows and 0.25 mm between columns.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reveal_bench.viewer.serving import Galleries, Gallery, loopback_server
from tests.viewer.gallery_sample import GallerySample

browsing = pytest.importorskip("tests.leaderboard.browser.browsing")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(browsing.CHROMIUM is None, reason="no Chromium here")]

FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def gallery(sample: GallerySample, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """The sample with a ramp of greys 100 to 159 as its first image, whose second finding all systems miss, and a
    uniform second image.
    """
    root = tmp_path_factory.mktemp("viewer") / "gallery"
    shutil.copytree(sample.gallery, root)
    Image.fromarray(np.tile(np.arange(100, 160, dtype=np.uint8), (110, 1))).save(root / "films/0-0.jpg", quality=100)
    for name in ("films/1-0.jpg", "thumbnails/1.jpg"):
        Image.new("L", (60, 110), 24).save(root / name)
    change(root / "gallery.json", lambda index: index["cases"][0]["results"][1].__setitem__(1, "--"))
    size = {"width": 120, "height": 220, "spacing_mm": [0.5, 0.25], "spacing_source": "imager_pixel_spacing"}
    change(root / "cases/0.json", lambda case: case["films"][0].update(size))
    return Gallery.of_folder(root)


def change(path: Path, edit: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture(params=[(1440, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, browser: Any, gallery: Gallery) -> Iterator[Any]:
    """The list of cases."""
    width, scheme = request.param
    with loopback_server(Galleries([gallery])) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            with browsing.watched_page(browser, address, width=width, scheme=scheme) as page:
                page.goto(address)
                page.wait_for_selector("#cards a")
                yield page
        finally:
            server.shutdown()
            thread.join()


def opened(page: Any) -> dict[str, str]:
    """Return the state of the image once it is drawn."""
    page.wait_for_selector("#stage canvas[data-scale]")
    page.evaluate(FRAME)
    state: dict[str, str] = page.evaluate("({...document.querySelector('.view canvas').dataset})")
    return state


def window(page: Any) -> tuple[float, float]:
    state = opened(page)
    return float(state["center"]), float(state["width"])


def point(page: Any, x: float, y: float) -> tuple[float, float]:
    """Return where the page shows a pixel of the JPEG."""
    state, box = opened(page), page.locator("canvas").bounding_box()
    scale = float(state["scale"])
    left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    return left + (x - float(state["x"])) * scale, top + (y - float(state["y"])) * scale


def test_tools_act_by_keyboard_and_by_hand(page: Any) -> None:
    page.locator("#show").select_option("All systems miss")
    page.locator("#cards a").click()
    missed = page.locator("#groups button").nth(1)
    assert (window(page), missed.get_attribute("aria-pressed")) == ((127.5, 255), "true")
    caption, whole = page.locator("figcaption"), float(opened(page)["scale"])
    page.keyboard.press("f")  # each column is 1/60 of the pixels: the 1st and the 99th percentile are the ends
    assert window(page) == pytest.approx((129.5, 59), abs=1)
    page.keyboard.press("p")
    assert (window(page), page.locator("#presets option:checked").inner_text()) == (
        (127.5, 255),
        "Full range: W 255 L 128",
    )
    page.get_by_role("button", name="Fit").click()
    page.keyboard.press("r")
    assert window(page) == (127.5, 255)
    page.get_by_role("button", name="Ruler").click()
    page.mouse.click(*point(page, 10, 20))
    page.mouse.click(*point(page, 50, 80))  # 80 columns of 0.25 mm, 120 rows of 0.5 mm: 20 and 60 mm
    opened(page)
    length, text = caption.inner_text().rpartition(" · ")[2].split(" ", 1)
    assert (float(length), text) == (pytest.approx(63.25, abs=0.8), "mm at the detector")
    page.mouse.move(*point(page, 20.5, 50.5))
    assert float(caption.inner_text().partition("JPEG value ")[2].split(" ")[0]) == pytest.approx(120, abs=1)
    page.get_by_role("button", name="Zoom in").click()
    assert float(opened(page)["scale"]) == pytest.approx(1.25 * whole)
    page.keyboard.press("z")
    assert float(opened(page)["scale"]) == whole
    assert browsing.faults(page) == []


def test_a_window_that_shows_nothing_says_so(page: Any) -> None:
    blank = page.get_by_text("This image shows nothing")
    blank.wait_for()
    assert page.locator("#cards a").nth(1).get_by_text("This image shows nothing").count() == blank.count() == 1
    page.locator("#cards a").first.click()
    status = page.locator(".view [role=status]")
    opened(page)
    assert status.inner_text() == ""
    page.keyboard.press("n")
    page.wait_for_function("() => document.querySelector('.view [role=status]')?.textContent")
    assert status.inner_text() == "This window shows nothing"


LABELS = """async () => {
  const { Film } = await import("/gallery/static/film.js"), { Viewer } = await import("/gallery/static/viewer.js");
  const window = { center: 127.5, width: 255, function: "LINEAR_EXACT" };
  const facts = { width: 400, height: 400, slope: 1, intercept: 0, window, table: null, range: [0, 255] };
  const rect = [0.2, 0.2, 0.8, 0.8], overlays = ["First", "Second", "Third"].map((label, n) => (
    { label, rect, colour: ["#00ff00", "#ff0000", "#0000ff"][n] }
  ));
  const texts = [], viewer = new Viewer(new Film(facts, new Uint16Array(160000).fill(255)), {
    title: "", overlays, drag: () => "move", measures: () => false, onTouch: () => {},
  });
  const context = viewer.canvas.getContext("2d");
  for (const name of ["strokeRect", "fillText"]) {
    const own = context[name].bind(context);
    context[name] = (...given) => { texts.push(name === "fillText" ? given[0] : name); own(...given); };
  }
  [viewer.canvas.width, viewer.canvas.height] = [400, 400];
  viewer.fit();
  viewer.paint();
  viewer.close();
  return [texts, viewer.plates.map(({ top }) => top).sort((a, b) => a - b)];
}"""


def test_labels_are_drawn_after_all_marks_and_apart(page: Any) -> None:
    texts, tops = page.evaluate(LABELS)
    assert texts == ["strokeRect"] * 3 + ["First", "Second", "Third"]
    assert np.diff(tops).min() >= 19  # the height of a plate
