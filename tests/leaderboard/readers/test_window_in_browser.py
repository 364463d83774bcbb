"""The readers' page on an image whose first window shows nothing: notes, fitted window, presets, by key and mouse."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reveal_leaderboard.readers.app import build_readers_app
from reveal_leaderboard.readers.images import ImageCache, read_image
from reveal_leaderboard.web.sign_in_modes import Auth

from reveal_bench.dicom.contrast import contrast_fault, counts_within_border
from reveal_bench.dicom.write import write_dicom
from tests.dicom.conftest import Write, write
from tests.dicom.test_oddities import CASES, GOOD, write_odd
from tests.leaderboard.conftest import serving
from tests.leaderboard.readers.reading_world import READERS, Pool, accounts_in, prepared
from tests.leaderboard.readers.test_images import as_a_browser_shows

browsing = pytest.importorskip("tests.leaderboard.browser.browsing")
__all__ = ["write"]
pytestmark = pytest.mark.skipif(browsing.CHROMIUM is None, reason="no Chromium here")

NOTHING = "This window shows nothing"


def write_ramp(path: Path) -> None:
    """100 columns from 1000 in steps of 10, padding of 0 below, and a border; only the second window shows them."""
    pixels = np.full((220, 120), 4095, dtype=np.uint16)
    pixels[10:210, 10:110] = 0
    pixels[10:110, 10:110] = 1000 + 10 * np.arange(100)
    attributes = {
        "PixelPaddingValue": 0,
        "WindowCenter": ["60000", "1500"],
        "WindowWidth": ["10", "1200"],
        "ImagerPixelSpacing": ["0.5", "0.25"],
    }
    write_dicom(path, pixels, attributes, bits_stored=12)


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Any, pool: Pool, tmp_path: Path) -> Iterator[Any]:
    """The first study of the first reader, whose first image is the ramp."""
    readings, images = prepared(pool, tmp_path / "data"), tmp_path / "images"
    shutil.copytree(pool.images, images)
    write_ramp(images / readings.item(readings.places(READERS[0])[0].item).films[0].file)
    app = build_readers_app(readings, ImageCache(images), Auth(accounts_in(tmp_path / "accounts"), "local"), {})
    width = getattr(request, "param", 1440)
    with serving(app) as url, browsing.watched_page(browser, url, width=width) as page:
        page.goto(url)
        page.locator("#reader + button").click()
        page.wait_for_function("() => document.querySelector('.view canvas')?.dataset.scale")
        yield page
    readings.engine.dispose()


def window(page: Any) -> tuple[float, float]:
    """Return center and width of the first image's window."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    center, width = page.evaluate("(({center, width}) => [center, width])(document.querySelector('canvas').dataset)")
    return float(center), float(width)


def remarks(page: Any) -> list[str]:
    return [text for text in page.locator(".view .remarks p").all_inner_texts()[:2] if text]


def preset(page: Any) -> str:
    name: str = page.locator("#presets option:checked").inner_text()
    return name


def test_reader_finds_a_window_that_shows_the_image(page: Any) -> None:
    note = "The file's first window shows too little: another one shown"
    assert (window(page), remarks(page)) == ((1500, 1200), [note])
    assert preset(page) == "File 2: W 1200 L 1500"
    page.keyboard.press("p")
    assert (window(page), preset(page)) == ((2047.5, 4095), "Full range: W 4095 L 2048")
    page.keyboard.press("p")  # each column is 1% of the pixels without padding and border: 1000 to 1980
    assert (window(page), preset(page)) == ((1490, 980), "Fit to values")
    page.keyboard.press("p")
    assert (window(page), remarks(page)) == ((60000, 10), [note, NOTHING])
    page.keyboard.press("f")
    assert (window(page), remarks(page)) == ((1490, 980), [note])
    page.locator("#presets").select_option("File 1: W 10 L 60000")
    assert (window(page), remarks(page)) == ((60000, 10), [note, NOTHING])
    assert browsing.faults(page) == []
    page.keyboard.press("1")  # is an answer although the list of presets has the focus
    assert page.locator("#choices [aria-pressed=true]").count() == 1
    page.get_by_role("button", name="Fit").click()
    assert (window(page), remarks(page)) == ((1490, 980), [note])
    page.keyboard.press("w")
    assert preset(page) == "By hand"
    page.keyboard.press("r")
    assert (window(page), preset(page)) == ((1500, 1200), "File 2: W 1200 L 1500")


def point(page: Any, x: float, y: float) -> tuple[float, float]:
    """Return where the page shows a position on the first image, in pixels of the page."""
    window(page)
    now = page.evaluate("({...document.querySelector('canvas').dataset})")
    box, scale = page.locator("canvas").first.bounding_box(), float(now["scale"])
    left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    return left + (x - float(now["x"])) * scale, top + (y - float(now["y"])) * scale


@pytest.mark.parametrize("page", [1440, 390], indirect=True)
def test_reader_measures_in_mm_by_mouse_and_by_keyboard(page: Any) -> None:
    caption, mouse = page.locator("figcaption").first, page.mouse
    mouse.move(*point(page, 30.5, 50.5))
    assert caption.inner_text().endswith("· value 1200")
    page.keyboard.press("m")
    mouse.click(*point(page, 10, 20))
    mouse.click(*point(page, 90, 80))  # 80 columns of 0.25 mm, 60 rows of 0.5 mm: 20 and 30 mm
    assert length(caption) == pytest.approx(36.06, abs=0.2)
    mouse.move(2, 2)
    page.get_by_role("button", name="Zoom in").click()
    page.keyboard.press("x")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("x")
    window(page)
    scale = float(page.locator("canvas").first.get_attribute("data-scale"))
    assert length(caption) == pytest.approx(60 / scale * 0.5, abs=0.06)  # 60 pixels of the screen, along the rows
    assert "at the detector" in caption.inner_text()
    page.get_by_role("button", name="Ruler").click()
    window(page)
    assert " mm" not in caption.inner_text()
    assert browsing.faults(page) == []


def length(caption: Any) -> float:
    """Return the length that the caption states, in mm."""
    window(caption.page)
    return float(caption.inner_text().rpartition(" · ")[2].split(" mm")[0])


def test_facts_of_an_image_state_its_padding_and_presets(tmp_path: Path) -> None:
    write_ramp(tmp_path / "ramp.dcm")
    facts = read_image((tmp_path / "ramp.dcm").read_bytes()).facts
    assert (facts["spacing"], facts["at_detector"]) == ((0.5, 0.25), True)
    assert (facts["padding"], facts["preset"]) == ([0, 0], 1)
    assert [one["name"] for one in facts["presets"]] == ["File 1", "File 2", "Full range"]


SAYS = """async ([facts, packed]) => {
  const { Film } = await import("/static/film.js");
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const film = new Film(facts, new Uint16Array(bytes.buffer));
  return [film.showsNothing, ...facts.presets.map((_, n) => { film.choose(n); return film.showsNothing; })];
}"""


def test_no_odd_film_is_blank_without_a_word(page: Any, write: Write) -> None:
    """The page says of every way of display what the pixel pipeline finds, and opens no film of `CASES` with a blank
    one.
    """
    wrong, n_blank = [], 0
    empty = ("empty", GOOD, np.full((64, 64), 100, np.uint16), {}, None)
    for name, attributes, pixels, options, _ in [*CASES, empty]:
        picture = read_image(write_odd(write, attributes, pixels, options).read_bytes())
        values, facts = picture.values, picture.facts
        said = page.evaluate(SAYS, [facts, base64.b64encode(values.astype("<u2").tobytes()).decode()])
        expected = [bool(blankness(values, facts | preset)) for preset in [{}, *facts["presets"]]]
        n_blank += sum(expected)
        wrong += [(name, n) for n, (a, b) in enumerate(zip(said, expected, strict=True)) if a != b]
        wrong += [(name, "opens")] if said[0] != (name == "empty") else []
    assert wrong == []
    assert n_blank > 10


def blankness(values: np.ndarray, facts: dict[str, Any]) -> str:
    """Return what is wrong with the contrast of a display, without padding and a border of one value."""
    counts = counts_within_border(values)
    if facts["padding"]:
        within = counts.copy()
        within[facts["padding"][0] : facts["padding"][1] + 1] = 0
        counts = within if within.any() else counts
    used = np.flatnonzero(counts)
    greys = np.rint(as_a_browser_shows(used, facts)).astype(int)
    return contrast_fault(np.bincount(greys, weights=counts[used], minlength=256).astype(int))
