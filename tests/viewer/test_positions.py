"""Maps of where systems and references mark findings."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from reveal_bench.kinds.cases import REFERENCE, Case, CaseAnswer, CaseFilm, Mark
from reveal_bench.viewer.positions import CELLS, answer_maps, draw_map, mean_film
from reveal_bench.viewer.serving import Galleries, Gallery

FILM = CaseFilm("i", "PA", 480, 240)  # a cell of the map is 10 x 5 pixels
LEFT = Mark(0, "Edema", boxes=((0, 0, 240, 240),))
CORNER = Mark(0, "Edema", points=((475.0, 2.5),))


def case(key: str, *groups: str, film: CaseFilm = FILM) -> Case:
    return Case(key, (film,), groups, {REFERENCE: (LEFT,)})


def test_a_map_is_the_share_of_cases_that_mark_a_place() -> None:
    """Twelve cases: three answers on the left half, nine at a point, a second system without any."""
    cases = [case(f"c{i}", "Edema", *["Mass"] * (i < 9)) for i in range(12)]
    inputs = [{"A": [CaseAnswer("Edema", True, "", (LEFT if i < 3 else CORNER,))], "B": []} for i in range(12)]
    cases.append(case("side", "Edema", film=CaseFilm("i", "LATERAL", 480, 240)))
    inputs.append({"A": [CaseAnswer("Edema", True, "", (CORNER,))], "B": []})
    maps = answer_maps(cases, inputs)
    assert {of: n for of, (_, n) in maps.items()} == {("A", "Edema"): 12, ("B", "Edema"): 12, (REFERENCE, "Edema"): 12}
    shares = maps["A", "Edema"][0]
    assert shares.shape == (CELLS, CELLS)
    assert (shares[:, : CELLS // 2] == 3 / 12).all()
    # within 1.5 cells of the middle of the last cell of the first row: that cell and the three that touch it
    assert np.argwhere(shares == 9 / 12).tolist() == [[0, 46], [0, 47], [1, 46], [1, 47]]
    assert not maps["B", "Edema"][0].any()
    assert (maps[REFERENCE, "Edema"][0][:, : CELLS // 2] == 1).all()


def test_a_point_covers_the_cells_around_it() -> None:
    """A corner of four cells: their middles are 0.71 cells away, the next ones 1.58, more than 1.5."""
    corner = Mark(0, "Edema", points=((240.0, 100.0),))
    answers = [{"A": [CaseAnswer("Edema", True, "", (corner,))]}] * 12
    shares, _ = answer_maps([case(f"c{i}", "Edema") for i in range(12)], answers)["A", "Edema"]
    assert np.argwhere(shares).tolist() == [[row, column] for row in (19, 20) for column in (23, 24)]


def test_a_drawn_map_is_the_film_where_nothing_is_marked() -> None:
    buffer = io.BytesIO()
    Image.new("L", (60, 30), 120).save(buffer, "PNG")
    film = mean_film([buffer.getvalue()] * 2)
    assert (film == 120).all()
    shares = np.zeros((CELLS, CELLS))
    shares[:, : CELLS // 2] = 0.25
    with Image.open(io.BytesIO(draw_map(film, shares))) as image:
        pixels = np.asarray(image, float)
    assert pixels[96, 150] == pytest.approx([120, 120, 120], abs=4)
    assert pixels[96, 40] == pytest.approx([0.25 * 120 + 0.75 * 255, 0.25 * 120 + 0.75 * 196, 30], abs=6)


def test_maps_are_found_by_system_and_group() -> None:
    index = {
        "benchmark": "b", "systems": ["A", "B"], "groups": ["Edema", "Mass"], "cases": [],
        "places": [[0, 1, 11], [2, 1, 11]],
    }  # fmt: skip
    galleries = Galleries([Gallery(index, lambda place: b"map" if place == "places/0-1.jpg" else None)])
    assert galleries.places("b", "A") == [("Mass", 11, "/gallery/b/places/0-1.jpg", "/gallery/b/places/2-1.jpg")]
    assert galleries.places("b", "B") == galleries.places("b", "C") == galleries.places("c", "A") == []
    served = galleries.answer("b/places/0-1.jpg")
    assert served is not None
    assert (served.body, served.media) == (b"map", "image/jpeg")
