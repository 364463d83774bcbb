"""overlay: edges as in the scoring grid, names visible on any image, coordinates mapped there and back."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw, ImageFont

from reveal_bench.geometry import Grid
from reveal_bench.models.overlay import (
    SquareView,
    cells_are_named,
    draw_grid,
    grid_margin,
    shown_png,
    square_picture,
    whole_picture,
)

SIZES = [(512, 512), (420, 512), (512, 421), (301, 1000), (5, 4), (1, 1), (1, 6), (7, 1)]
FILMS = ["black", "white", "grey", "dark grey", "bright grey", "ramp", "noise"]


def film(kind: str, side: int) -> Image.Image:
    greys = {"black": 0, "dark grey": 64, "grey": 128, "bright grey": 190, "white": 255}
    if kind == "ramp":
        return Image.fromarray(np.tile(np.linspace(0, 255, side).astype(np.uint8), (side, 1)))
    if kind == "noise":
        rough = np.random.default_rng(3).integers(0, 256, (side // 16, side // 16)).astype(np.uint8)
        return Image.fromarray(rough).resize((side, side), Image.Resampling.BICUBIC)
    return Image.new("L", (side, side), greys[kind])


def luminance(image: Image.Image) -> npt.NDArray[np.float64]:
    """Return the luminance of RGB pixels, by ITU-R 601, in [0, 255]."""
    return np.asarray(image).astype(np.float64) @ (0.299, 0.587, 0.114)


# ------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("size", "side", "margin", "point", "full"),
    [
        ((256, 256), 256, 0, (12.5, 200), (12.5, 200)),
        ((512, 512), 256, 0, (1, 255), (2, 510)),
        ((512, 768), 256, 0, (0, 0), (128, 0)),  # wide: (768 - 512) / 2 to the left of the square
        ((768, 512), 256, 0, (256, 256), (512, 640)),  # tall; the corner is the square's far end
        ((4, 7), 8, 0, (1, 2), (2, 1)),  # a surplus of 3: the square begins at 1.5
        ((1, 1), 64, 0, (32, 16), (0.5, 0.25)),
        ((512, 512), 256, 16, (16, 144), (0, 256)),
    ],
)
def test_a_shown_point_is_mapped_to_the_full_image_and_back(
    size: tuple[int, int], side: int, margin: int, point: tuple[float, float], full: tuple[float, float]
) -> None:
    view = SquareView(size, side, margin)
    assert view.to_full(*point) == full
    assert view.to_view(*full) == point


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("side", [64, 256, 1000])
def test_round_trips_lose_nothing(size: tuple[int, int], side: int) -> None:
    view = SquareView(size, side, margin=3)
    for x, y in [(0, 0), (3, 3), (side / 3, side / 7), (side + 3, side + 3), (-5, side * 2)]:
        assert view.to_view(*view.to_full(x, y)) == pytest.approx((x, y), abs=1e-9)
        assert view.to_full(*view.to_view(x, y)) == pytest.approx((x, y), abs=1e-9)


def test_a_box_is_mapped_with_its_extent() -> None:
    assert SquareView((400, 1000), 100).box_to_full((10, 20, 5, 50)) == (340, 80, 20, 200)
    assert SquareView((400, 1000), 100, margin=10).box_to_full((10, 10, 100, 100)) == (300, 0, 400, 400)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_cells_are_shown_where_the_scoring_grid_has_them(size: tuple[int, int]) -> None:
    grid, side = Grid(8), 256
    view = SquareView(size, side, grid_margin(side, grid))
    with Image.open(io.BytesIO(shown_png(Image.new("L", size[::-1]), form="cell", side=side, grid=grid))) as shown_file:
        assert shown_file.size == (side + 2 * view.margin,) * 2
    for number, cell in enumerate(grid.cells):
        row, column = divmod(number, 8)
        position = (view.margin + 32 * column + 16, view.margin + 32 * row + 16)
        assert view.to_view(*grid.centre(cell, size=size)) == pytest.approx(position, abs=1e-9)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SquareView((0, 5), 64), r"`size` must be \(height, width\) of at least 1 pixel, got \(0, 5\)"),
        (lambda: SquareView((5, 5), 0), "`side` must be at least 1, got 0"),
        (lambda: SquareView((5, 5), 1, -1), "`margin` must be at least 0, got -1"),
        (lambda: square_picture(Image.new("I;16", (4, 4)), side=64), "`image` must have mode L or RGB, got I;16"),
        (lambda: square_picture(Image.new("RGBA", (4, 4)), side=64), "`image` must have mode L or RGB, got RGBA"),
        (lambda: whole_picture(Image.new("P", (4, 4)), side=64), "`image` must have mode L or RGB, got P"),
        (lambda: whole_picture(Image.new("L", (4, 4)), side=0), "`side` must be at least 1, got 0"),
        (lambda: draw_grid(Image.new("L", (256, 255)), Grid()), "`image` must be square, got 256 x 255"),
        (lambda: draw_grid(Image.new("F", (256, 256)), Grid()), "`image` must have mode L or RGB, got F"),
        (lambda: draw_grid(Image.new("L", (64, 64)), Grid(8)), "`side` must be at least 76 for a grid of 8 cells"),
        (
            lambda: shown_png(Image.new("L", (9, 9)), form="cell", side=246, grid=26),
            "`side` must be at least 247 for a grid of 26 cells per side, got 246",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


# ---------------------------------------------------------------------------------------------------------- pictures


def test_the_crop_is_exact_to_half_a_pixel() -> None:
    # Grey is twice the column's number, so that the pixel whose centre is at x has the value 2 (x - 0.5).
    # The square of 100 begins at 13.5: its first pixel has its centre at 14 and must be 27, not 26 or 28.
    ramp = Image.fromarray(np.tile(np.arange(127, dtype=np.uint8) * 2, (100, 1)))
    row = np.asarray(square_picture(ramp, side=100))[50, 10:90, 0]
    assert row.tolist() == list(range(27 + 20, 27 + 180, 2))


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_square_is_rgb_of_the_side_asked_for_and_symmetric(size: tuple[int, int], mode: str) -> None:
    values = np.random.default_rng(1).integers(0, 256, size).astype(np.uint8)
    image = Image.fromarray(values).convert(mode)
    square = square_picture(image, side=64)
    assert (square.mode, square.size) == ("RGB", (64, 64))
    mirrored = square_picture(image.transpose(Image.Transpose.ROTATE_180), side=64)
    difference = np.asarray(square).astype(int) - np.asarray(mirrored.transpose(Image.Transpose.ROTATE_180))
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize(
    ("width", "height", "side", "size"),
    [
        (2000, 1000, 1024, (1024, 512)),
        (1000, 2000, 500, (250, 500)),
        (300, 200, 1024, (300, 200)),  # never enlarged
        (1, 5000, 1000, (1, 1000)),
        (1, 1, 64, (1, 1)),
    ],
)
def test_a_whole_picture_keeps_its_shape(width: int, height: int, side: int, size: tuple[int, int]) -> None:
    picture = whole_picture(Image.new("L", (width, height), 77), side=side)
    assert (picture.mode, picture.size, picture.getpixel((0, 0))) == ("RGB", size, (77, 77, 77))


# -------------------------------------------------------------------------------------------------------------- grid


@pytest.mark.parametrize(
    ("side", "n"), [(256, 8), (256, 16), (256, 7), (256, 26), (100, 3), (64, 1), (512, 16), (1024, 8), (1000, 13)]
)
@pytest.mark.parametrize("kind", ["black", "white", "grey"])
def test_lines_are_where_the_grid_has_its_edges(side: int, n: int, kind: str) -> None:
    picture, margin = luminance(draw_grid(film(kind, side), Grid(n))), grid_margin(side, Grid(n))
    assert picture.shape == (side + 2 * margin, side + 2 * margin)
    through = margin + round(side * 0.75 / n)  # below the names of the first row, above its lower edge
    for scan in (picture[through, :], picture[:, through]):
        inside = scan[margin : margin + side]
        for k in range(1, n):
            # the one step from a dark stripe up to a light one is at the edge, rounded to a pixel
            near = inside[round(side * k / n) - 2 : round(side * k / n) + 2]
            rises = np.flatnonzero(np.diff(near) > 100)
            assert len(rises) == 1
            assert round(side * k / n) - 2 + rises[0] + 1 == pytest.approx(side * k / n, abs=0.5)


@pytest.mark.parametrize("kind", FILMS)
@pytest.mark.parametrize(("side", "n"), [(256, 8), (256, 16), (1024, 16)])
def test_every_line_stands_out_on_every_film(kind: str, side: int, n: int) -> None:
    grid = Grid(n)
    picture, margin = luminance(draw_grid(film(kind, side), grid)), grid_margin(side, grid)
    for k in range(n + 1):
        edge = margin + side * k // n
        for j in range(n):
            at = margin + round(side * (j + 0.8) / n)
            for stripe in (picture[at, edge - 1 : edge + 1], picture[edge - 1 : edge + 1, at]):
                least = 75 if k in (0, n) else 100  # the outer lines have one stripe on the margin
                assert stripe[1] - stripe[0] >= least, (k, j)


def marks(text: str, size: int) -> npt.NDArray[np.float64]:
    """A word as it looks on paper: 0 where nothing is, 1 where ink is."""
    font = ImageFont.load_default(size)
    _, _, right, bottom = font.getbbox(text, anchor="lt")
    paper = Image.new("L", (int(right), int(bottom)))
    ImageDraw.Draw(paper).text((0, 0), text, 255, font, anchor="lt")
    return np.asarray(paper).astype(np.float64) / 255


def likeness(place: npt.NDArray[np.float64], word: npt.NDArray[np.float64]) -> float:
    """Largest absolute correlation of a word with a part of a picture; dark on light counts as light on dark."""
    windows = np.lib.stride_tricks.sliding_window_view(place, word.shape)
    flat = windows.reshape(-1, word.size)
    flat = flat - flat.mean(1, keepdims=True)
    ink = (word - word.mean()).ravel()
    scale = np.linalg.norm(flat, axis=1) * np.linalg.norm(ink)
    return float(np.abs(flat @ ink / np.maximum(scale, 1e-9)).max())


@pytest.mark.parametrize("kind", FILMS)
def test_every_cell_can_be_read_by_its_name_on_every_film(kind: str) -> None:
    # The reader knows the typeface, nothing of the film: the name that is most like what it sees must be the right one.
    grid = Grid(8)
    picture, margin = luminance(draw_grid(film(kind, 256), grid)), grid_margin(256, grid)
    words = {cell: np.pad(marks(cell, 10), 1) for cell in grid.cells}
    for number, cell in enumerate(grid.cells):
        y, x = (margin + 32 * place + 1 for place in divmod(number, 8))
        corner = picture[y : y + 12, x : x + 18]
        assert np.ptp(corner) >= 75
        if number % 3 == 0:  # a third of them, each against all
            assert max(words, key=lambda name: likeness(corner, words[name])) == cell


@pytest.mark.parametrize(("side", "n"), [(256, 8), (256, 16), (256, 26), (1024, 16)])
def test_letters_and_numbers_stand_in_the_margin_on_all_four_sides(side: int, n: int) -> None:
    grid = Grid(n)
    picture, margin = luminance(draw_grid(film("white", side), grid)), grid_margin(side, grid)
    outer = margin - max(1, round(side / 500))
    for strip in (picture[:outer], picture[-outer:], picture[:, :outer].T, picture[:, -outer:].T):
        for k in range(n):
            name = strip[:, margin + side * k // n : margin + side * (k + 1) // n]
            assert name.max() - name.min() >= 150
        assert strip[0].max() < 40  # nothing is cut off at the rim


@pytest.mark.parametrize("kind", ["black", "grey", "white", "noise"])
@pytest.mark.parametrize(("side", "n", "free"), [(256, 8, 0.75), (256, 16, 0.75), (1024, 8, 0.9)])
def test_the_film_is_hardly_hidden(kind: str, side: int, n: int, free: float) -> None:
    under, grid = film(kind, side), Grid(n)
    picture = draw_grid(under, grid)
    margin, cell = grid_margin(side, grid), side // n
    seen = np.asarray(picture)[margin : margin + side, margin : margin + side].astype(int)
    same = (seen == np.asarray(under.convert("RGB"))).all(axis=2)
    assert same.mean() >= free
    for row in range(n):
        for column in range(n):
            # below the name, up to the next line, nothing is drawn
            low, high = (cell * 15 // 32, cell - 3 * side // 500 - 1) if cells_are_named(side, grid) else (2, cell - 2)
            place = same[row * cell + low : row * cell + high, column * cell + 3 : (column + 1) * cell - 6]
            assert place.all()


def test_names_are_drawn_where_there_is_room() -> None:
    assert [cells_are_named(256, Grid(n)) for n in (1, 8, 9, 10, 16)] == [True, True, True, False, False]
    assert cells_are_named(512, Grid(16))


@pytest.mark.parametrize("size", [(301, 420), (420, 301)], ids=["wide", "tall"])
def test_a_mark_in_a_cell_of_the_film_lands_in_that_cell_of_the_shown_picture(size: tuple[int, int]) -> None:
    grid, side = Grid(8), 160
    margin = grid_margin(side, grid)
    blank = luminance(draw_grid(square_picture(Image.new("L", size[::-1]), side=side), grid))
    for number, cell in enumerate(grid.cells):
        row, column = divmod(number, 8)
        x, y = grid.centre(cell, size=size)
        image = Image.new("L", size[::-1])
        ImageDraw.Draw(image).ellipse((x - 5, y - 5, x + 4, y + 4), fill=255)
        weight = np.abs(luminance(draw_grid(square_picture(image, side=side), grid)) - blank)
        down, right = np.indices(weight.shape)
        centre = [float((axis * weight).sum() / weight.sum()) + 0.5 - margin for axis in (right, down)]
        assert centre == pytest.approx([20 * column + 10, 20 * row + 10], abs=1), cell


def test_what_is_drawn_on_stays_as_it_is() -> None:
    image = film("noise", 256)
    before = image.tobytes()
    draw_grid(image, Grid(8))
    assert image.tobytes() == before


# --------------------------------------------------------------------------------------------------------------- PNG


@pytest.mark.parametrize(
    ("form", "size"), [("cell", 288), ("point", 256), ("box", 256), ("labels", (256, 192)), ("text", (256, 192))]
)
def test_the_png_holds_pixels_alone_and_is_the_same_every_time(form: str, size: int | tuple[int, int]) -> None:
    image = film("noise", 400).crop((0, 0, 400, 300))
    image.info = {"dpi": (72, 72), "icc_profile": b"profile", "Description": "somebody", "exif": b"Exif\0\0name"}
    png = shown_png(image, form=form, side=256, grid=8)  # type: ignore[arg-type]
    assert png == shown_png(image.copy(), form=form, side=256, grid=Grid(8))  # type: ignore[arg-type]
    assert b"".join(_chunks(png)).replace(b"IDAT", b"") == b"IHDRIEND"
    with Image.open(io.BytesIO(png)) as back:
        assert back.mode == "RGB"
        assert back.size == (size if isinstance(size, tuple) else (size, size))


def _chunks(png: bytes) -> list[bytes]:
    names, at = [], 8
    while at < len(png):
        names.append(png[at + 4 : at + 8])
        at += 12 + int.from_bytes(png[at : at + 4], "big")
    return names
