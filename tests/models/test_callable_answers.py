"""What callables may answer: every kind by hand arithmetic, and what is refused with which message."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from reveal_bench.kinds.localization.records import LocalizationPrediction, read_manifest
from reveal_bench.kinds.questions import Question
from reveal_bench.masks import decode_mask, encode_mask
from reveal_bench.models.callable_answers import LabelReader, heat_map_mask, heat_map_point
from tests.conftest import World
from tests.models.test_callables import Answer, run

LABELS = ("Edema", "Mass", "Nodule")


def ask_one(world: World, answer: Answer, **options: Any) -> LocalizationPrediction:
    (prediction,) = run(world, lambda image, finding: answer, limit=1, **options).predictions
    assert isinstance(prediction, LocalizationPrediction)
    return prediction


def first_size(world: World) -> tuple[int, int]:
    return next(iter(read_manifest(world.folder, "released").rows.values())).size


def square_mask(size: tuple[int, int]) -> Any:
    mask = np.zeros(size, bool)
    mask[3:9, 5:15] = True
    return mask


# What may be answered


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"point": (3, 4.5)}, {"points": ((3.0, 4.5),)}),
        ({"point": np.array([3, 4.5], np.float32)}, {"points": ((3.0, 4.5),)}),
        ({"cell": "D5"}, {"cell": "D5"}),
        ({"box": [1, 2, 3, 4], "point": (0, 0)}, {"box": (1.0, 2.0, 3.0, 4.0), "points": ((0.0, 0.0),)}),
        ({"cell": "A1", "score": np.float32(0.5)}, {"cell": "A1", "score": 0.5}),
        ({"cell": "A1", "score": 1}, {"cell": "A1", "score": 1.0}),
    ],
    ids=["point", "array", "cell", "box-and-point", "score", "whole-score"],
)
def test_answers(world: World, answer: Answer, expected: dict[str, Any]) -> None:
    prediction = ask_one(world, answer)
    names = ("points", "cell", "box", "mask", "score")
    found = {name: getattr(prediction, name) for name in names if getattr(prediction, name) not in (None, ())}
    assert found == expected


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64])
def test_a_mask_is_encoded(world: World, kind: type) -> None:
    mask = square_mask(first_size(world))
    prediction = ask_one(world, {"mask": mask.astype(kind)})
    assert prediction.mask is not None
    assert (decode_mask(prediction.mask) == mask).all()
    assert prediction.points == ()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((1, 2), "the answer must be a mapping such as {'point': (x, y)}, or None, got tuple"),
        ({}, "the answer must hold some of point, cell, box, mask, heat_map, score, got []"),
        ({"score": 0.5}, "must hold some of point, cell, box, mask, heat_map, score, got ['score']"),
        ({"pont": (1, 2)}, "must hold some of point, cell, box, mask, heat_map, score, got ['pont']"),
        ({"point": (1, 2), "color": 3}, "got ['point', 'color']"),
        ({"point": (1, 2, 3)}, "`point` must be 2 numbers, got (1, 2, 3)"),
        ({"point": ("1", "2")}, "`point` must be 2 numbers, got ('1', '2')"),
        ({"point": (True, False)}, "`point` must be 2 numbers"),
        ({"point": [(1, 2), 3]}, "`point` must be readable by numpy, got list"),
        ({"point": None}, "`point` must be 2 numbers, got None"),
        ({"point": (64, 48)}, "`point` must lie inside the image"),
        ({"point": (-0.1, 0)}, "`point` must lie inside the image"),
        ({"point": (float("nan"), 0)}, "`point[0]` must be a finite number, got nan"),
        ({"cell": "I1"}, "`cell` must be a cell of the 8 x 8 grid, A1 to H8"),
        ({"cell": 12}, "`cell` must be text"),
        ({"box": (10, 10, 0, 5)}, "`box` must have a width and a height above 0"),
        ({"box": (40, 40, 60, 60)}, "`box` must lie inside the image"),
        ({"mask": np.zeros((5, 6), bool)}, "`mask` must have the picture's shape ("),
        ({"mask": "MASK"}, "`mask` must have the picture's shape"),
        ({"heat_map": np.zeros(5)}, "`heat_map` must be a two-dimensional array of numbers, got float64 of shape (5,)"),
        ({"heat_map": np.zeros((0, 5))}, "`heat_map` must be a two-dimensional array"),
        ({"heat_map": [[0, np.nan]]}, "`heat_map` must be finite, got nan at row 0, column 1"),
        ({"heat_map": [[0, np.inf]]}, "`heat_map` must be finite, got inf at row 0, column 1"),
        ({"heat_map": [[0, 1]], "point": (1, 1)}, "`point` may not stand beside `heat_map`"),
        ({"point": (1, 1), "score": 1.5}, "`score` must lie in [0, 1]"),
        ({"point": (1, 1), "score": [0.5]}, "`score` must be a number, got [0.5]"),
    ],
    ids=lambda value: None if isinstance(value, str) else "answer",
)  # fmt: skip
def test_wrong_answers_are_refused_and_named(world: World, answer: Any, message: str) -> None:
    pair = "|".join(read_manifest(world.folder, "released").asked_pairs()[0])
    with pytest.raises(ValueError, match=f"^answer to '{re.escape(pair)}': .*{re.escape(message)}"):
        run(world, lambda image, finding: answer)


def test_a_mask_of_shares_is_no_mask(world: World) -> None:
    with pytest.raises(ValueError, match=r"`mask` must be of bool or of 0 and 1, got float64 \(a `heat_map`\?\)"):
        ask_one(world, {"mask": np.full(first_size(world), 0.5)})
    with pytest.raises(ValueError, match="`mask` must be of bool or of 0 and 1, got int64"):
        ask_one(world, {"mask": np.full(first_size(world), 2)})


# Heat maps


@pytest.mark.parametrize(
    ("heat_map", "size", "point"),
    [
        ([[7]], (40, 20), (10.0, 20.0)),
        ([[0, 1], [0, 0]], (40, 20), (15.0, 10.0)),
        ([[0, 1], [1, 1]], (40, 20), (15.0, 10.0)),  # the first of equals, by rows
        ([[0, 0], [3, 0]], (40, 20), (5.0, 30.0)),
        ([[-5, -4, -6]], (3, 3), (1.5, 1.5)),
        (np.eye(40)[::-1] * 1.0, (40, 40), (39.5, 0.5)),  # a pixel of the map is one of the picture: its centre
        ([[1, 1], [1, 1]], (40, 20), (5.0, 10.0)),
        ([[-1e308, 1e308]], (2, 4), (3.0, 1.0)),
    ],
)
def test_the_point_of_a_heat_map(heat_map: Any, size: tuple[int, int], point: tuple[float, float]) -> None:
    assert heat_map_point(heat_map, size) == point


@pytest.mark.parametrize("threshold", [0.5, 0.2, "otsu"])
def test_the_mask_of_a_heat_map(threshold: Any) -> None:
    """Upsampled by hand along one axis: centres at 2 and 6 of 8 pixels, linear between, flat beyond."""
    fine = np.interp(np.arange(8) + 0.5, [2, 6], [0, 1])  # 0, 0, .125, .375, .625, .875, 1, 1
    expected = fine > (threshold if threshold != "otsu" else 0.375)  # 4 low and 4 high part best there
    found = heat_map_mask([[10.0, 30.0]], (3, 8), threshold)
    assert found.tolist() == [expected.tolist()] * 3


def test_otsu_is_opencv_s(rng: np.random.Generator) -> None:
    cv2 = pytest.importorskip("cv2")
    for _ in range(20):
        coarse = rng.random((6, 6)) ** rng.integers(1, 5)
        found = heat_map_mask(coarse, (60, 60), "otsu")
        scaled = (coarse - coarse.min()) / np.ptp(coarse)
        fine = cv2.resize(scaled.astype(np.float32), (60, 60), interpolation=cv2.INTER_LINEAR)
        fine = (fine - fine.min()) / np.ptp(fine)
        _, expected = cv2.threshold((255 * fine).astype(np.uint8), 0, 1, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        assert (found != expected.astype(bool)).mean() < 0.005  # levels that fall on either side of a whole number


@pytest.mark.parametrize("threshold", [0.5, "otsu"])
def test_a_constant_heat_map_has_an_empty_mask(threshold: Any) -> None:
    assert not heat_map_mask(np.full((4, 4), 3.0), (10, 12), threshold).any()


def test_a_heat_map_gives_a_mask_only_with_a_threshold(world: World) -> None:
    heat_map = np.zeros((4, 4))
    heat_map[1, 2] = 1
    assert ask_one(world, {"heat_map": heat_map}).mask is None
    mask = square_mask(first_size(world))
    assert ask_one(world, {"heat_map": heat_map, "mask": mask}).mask == encode_mask(mask)
    height, width = first_size(world)
    cut = ask_one(world, {"heat_map": heat_map, "box": (0, 0, 9, 9)}, threshold=0.5)
    assert cut.points == ((2.5 * width / 4, 1.5 * height / 4),)
    assert cut.box == (0, 0, 9, 9)
    assert cut.mask is not None
    inside = decode_mask(cut.mask)
    assert inside[int(1.5 * height / 4), int(2.5 * width / 4)]
    assert 0 < inside.mean() < 0.2
    with pytest.raises(ValueError, match="`mask` may not stand beside `heat_map`"):
        ask_one(world, {"heat_map": heat_map, "mask": mask}, threshold="otsu")


# Studies


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"labels": ["Edoema"]}, "`labels` must be among Edema, Mass, Nodule, each once, got ['Edoema']"),
        ({"labels": ["Edema", "Edema"]}, "`labels` must be among Edema, Mass, Nodule, each once"),
        ({"labels": [["Edema"]]}, "`labels` must be among Edema, Mass, Nodule, each once"),
        ({"labels": "Edema"}, "`labels` must be a list of labels, got 'Edema'"),
        ({"probabilities": {"Edema": 0.1}}, "`probabilities` must map every one of Edema, Mass, Nodule, got ['Edema']"),
        ({"probabilities": 0.5}, "`probabilities` must map every one of Edema, Mass, Nodule, got 0.5"),
        ({"probabilities": dict.fromkeys(LABELS, 1.2)}, "`probabilities[Edema]` must lie in [0, 1], got 1.2"),
        ({"probabilities": dict.fromkeys(LABELS, float("nan"))}, "`probabilities[Edema]` must lie in [0, 1], got nan"),
        ({"probabilities": dict.fromkeys(LABELS, "0.5")}, "`probabilities[Edema]` must be a number, got '0.5'"),
        ({"labels": [], "probabilities": {}}, "must give `labels` or `probabilities`, the same for all studies"),
        ({"point": (1, 2)}, "the answer must hold some of labels, probabilities, got ['point']"),
    ],
    ids=lambda value: None if isinstance(value, str) else "answer",
)
def test_wrong_answers_about_studies(answer: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LabelReader()(Question("study", "labels", (), choices=LABELS), answer)
