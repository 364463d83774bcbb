"""Heat maps counted by hand on three images, and the average picture."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.geometry import Grid
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import encode_mask
from reveal_bench.reports.run_places import average_picture, heat_rows, overlay, prediction_shares, truth_shares
from tests.conftest import annotate

GRID = Grid(2)
Prediction = LocalizationPrediction


def record(image_id: str, *, view: str = "PA", **boxes: tuple[int, int, int, int]) -> LocalizationRecord:
    """An image of 8 x 8 pixels; each finding is a box (x, y, width, height). Cells of the 2 x 2 grid are 4 x 4."""
    annotations = []
    for finding, (x, y, width, height) in boxes.items():
        mask = np.zeros((8, 8), bool)
        mask[y : y + height, x : x + width] = True
        annotations.append(annotate(finding, mask))
    status = {finding: int(finding in boxes) for finding in ("Edema", "Atelectasis")}
    return LocalizationRecord(image_id, image_id, image_id, view, 8, 8, status, tuple(annotations))


RECORDS = [
    record("a", Edema=(0, 0, 4, 4)),  # A1 is a hit
    record("b", Edema=(0, 0, 8, 4), view="AP"),  # A1 and B1
    record("c", Edema=(5, 5, 1, 1), Atelectasis=(0, 4, 4, 4)),  # half of no cell: B2, which it touches; A2
    record("side", Edema=(4, 0, 4, 4), view="LATERAL"),
]


def test_truth_is_the_share_of_hit_cells_on_frontal_images() -> None:
    truths = truth_shares(RECORDS, ("Edema", "Atelectasis"), GRID)
    assert truths["Edema"].image_ids == ("a", "b", "c")
    assert truths["Edema"].shares.tolist() == [[2 / 3, 1 / 3], [0, 1 / 3]]
    assert truths["Atelectasis"].shares.tolist() == [[0, 0], [1, 0]]


def test_findings_without_a_frontal_question_have_no_map() -> None:
    assert truth_shares(RECORDS[3:], ("Edema",), GRID) == {}
    assert truth_shares(RECORDS[:2], ("Atelectasis",), GRID) == {}


def shares(*predictions: Prediction, epochs: int = 1) -> list[list[float]]:
    truths = truth_shares(RECORDS, ("Edema",), GRID)
    sizes = {r.image_id: r.size for r in RECORDS}
    result = prediction_shares([predictions] * epochs, sizes, truths, GRID)["Edema"]
    values: list[list[float]] = result.tolist()
    return values


def corner() -> np.ndarray:
    mask = np.zeros((8, 8), bool)
    mask[5:8, 0:3] = True
    return mask


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (Prediction("a", "Edema", cell="B1"), [[0, 1 / 3], [0, 0]]),
        (Prediction("a", "Edema", cell="B1", points=((0.0, 0.0),)), [[0, 1 / 3], [0, 0]]),  # the cell counts
        (Prediction("a", "Edema", points=((0.0, 0.0),)), [[1 / 3, 0], [0, 0]]),
        (Prediction("a", "Edema", points=((0.0, 0.0), (7.0, 7.0))), [[1 / 6, 0], [0, 1 / 6]]),
        (Prediction("a", "Edema", box=(4, 4, 4, 4)), [[0, 0], [0, 1 / 3]]),
        (Prediction("a", "Edema", mask=encode_mask(corner())), [[0, 0], [1 / 3, 0]]),
        (Prediction("a", "Edema", mask=encode_mask(np.zeros((8, 8), bool))), [[0, 0], [0, 0]]),
        (Prediction("a", "Atelectasis", cell="A1"), [[0, 0], [0, 0]]),  # not asked
        (Prediction("side", "Edema", cell="B1"), [[0, 0], [0, 0]]),  # a lateral
    ],
    ids=["cell", "cell-and-point", "point", "two-points", "box", "mask", "empty-mask", "other-finding", "lateral"],
)
def test_each_kind_of_answer_has_its_cell(prediction: Prediction, expected: list[list[float]]) -> None:
    assert np.allclose(shares(prediction), expected)
    assert np.allclose(shares(prediction, epochs=3), expected)


def test_a_point_outside_the_central_square_is_in_no_cell() -> None:
    wide = LocalizationRecord("w", "w", "w", "PA", 16, 8, {"Edema": 1}, (annotate("Edema", np.ones((8, 16), bool)),))
    truths = truth_shares([wide], ("Edema",), GRID)
    for x, n_inside in ((1.0, 0), (4.0, 1), (12.0, 0)):
        answer = Prediction("w", "Edema", points=((x, 1.0),))
        assert prediction_shares([[answer]], {"w": (8, 16)}, truths, GRID)["Edema"].sum() == n_inside


def test_rows_name_the_cells_as_the_grid_does() -> None:
    rows = heat_rows("run", {"Edema": np.array([[0.1, 0.2], [0.3, 0.4]])}, {"Edema": 3})
    assert [(cell, share) for _, _, cell, share, _ in rows] == [("A1", 0.1), ("B1", 0.2), ("A2", 0.3), ("B2", 0.4)]


def png(height: int, width: int, value: int, *, middle: int | None = None) -> bytes:
    pixels = np.full((height, width), value, np.uint8)
    if middle is not None:
        start = (width - height) // 2
        pixels[:, start : start + height] = middle
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def folder_of(tmp_path: Path, rows: list[tuple[str, str, bytes | None]]) -> Path:
    (tmp_path / "localization").mkdir(parents=True)
    table = pa.table(
        {
            "image_id": [image_id for image_id, _, _ in rows],
            "patient_id": [image_id for image_id, _, _ in rows],
            "view": [VIEWS.index(view) for _, view, _ in rows],
            "image": pa.array(
                [data and {"bytes": data, "path": "x"} for _, _, data in rows],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            ),
        }
    )
    pq.write_table(table, tmp_path / "localization" / "test-00000-of-00001.parquet")
    return tmp_path


def test_average_of_the_central_squares_of_frontal_images(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        [
            ("a", "PA", png(10, 10, 10)),
            ("b", "AP", png(10, 20, 0, middle=40)),  # its sides are cropped
            ("c", "UNKNOWN", png(30, 30, 100)),  # counts as frontal
            ("side", "LATERAL", png(10, 10, 255)),
            ("withheld", "PA", None),
        ],
    )
    average = average_picture(folder, "test", side=16)
    assert (average.n, average.n_patients) == (3, 3)
    assert average.pixels is not None
    assert np.allclose(average.pixels, 50, atol=0.7)  # (10 + 40 + 100) / 3


def test_no_pictures_no_average(tmp_path: Path) -> None:
    average = average_picture(folder_of(tmp_path, [("a", "PA", None)]), "test")
    assert (average.pixels, average.n) == (None, 0)


def test_an_average_that_could_show_a_person_has_no_pixels(tmp_path: Path) -> None:
    rows = [(f"p{i}", "PA", png(10, 10, 10 * i)) for i in range(10)]
    ten = average_picture(folder_of(tmp_path / "ten", rows), "test", side=8)
    assert ten.without_few() is ten
    nine = average_picture(folder_of(tmp_path / "nine", [*rows[:9], rows[0]]), "test", side=8)
    assert (nine.n, nine.n_patients) == (10, 9)
    assert nine.without_few().pixels is None


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the image of 'a' must be readable"):
        average_picture(folder_of(tmp_path, [("a", "PA", b"no picture")]), "test")


def test_overlay_shows_the_picture_where_nothing_is_and_darkens_with_the_share() -> None:
    picture = np.full((256, 256), 255.0)
    pixels = overlay(np.array([[0.0, 0.1], [0.4, 1.0]]), picture).astype(int)
    corners = [pixels[64, 64], pixels[64, 192], pixels[192, 64], pixels[192, 192]]
    assert corners[0].tolist() == [255, 255, 255]
    lightness = [float(np.dot(corner, (0.299, 0.587, 0.114))) for corner in corners]
    assert lightness == sorted(lightness, reverse=True)
    assert min(-np.diff(lightness)) > 20  # distinguishable in grey
