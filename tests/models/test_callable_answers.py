"""Valid answers of callables, every kind by hand arithmetic, and the messages that refuse invalid ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from reveal_bench.arguments import PROBABILITY_RULE
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_manifest
from reveal_bench.kinds.questions import Question
from reveal_bench.masks import decode_mask, encode_mask
from reveal_bench.models.callables import LabelReader
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
    fields = {name: getattr(prediction, name) for name in names if getattr(prediction, name) not in (None, ())}
    assert fields == expected


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
        ({}, "the answer must have some of point, cell, box, mask, heat_map, score, got []"),
        ({"score": 0.5}, "must have some of point, cell, box, mask, heat_map, score, got ['score']"),
        ({"pont": (1, 2)}, "must have some of point, cell, box, mask, heat_map, score, got ['pont']"),
        ({"point": (1, 2), "color": 3}, "got ['point', 'color']"),
        ({"point": (1, 2, 3)}, "`point` must be 2 numbers, got (1, 2, 3)"),
        ({"point": ("1", "2")}, "`point` must be 2 numbers, got ('1', '2')"),
        ({"point": (True, False)}, "`point` must be 2 numbers"),
        ({"point": [(1, 2), 3]}, "`point` must be readable by numpy, got list"),
        ({"point": None}, "`point` must be 2 numbers, got None"),
        ({"point": (64, 48)}, "`point` must be inside the image"),
        ({"point": (-0.1, 0)}, "`point` must be inside the image"),
        ({"point": (float("nan"), 0)}, "`point[0]` must be a finite number, got nan"),
        ({"cell": "I1"}, "`cell` must be a cell of the 8 x 8 grid, A1 to H8"),
        ({"cell": 12}, "`cell` must be text"),
        ({"box": (10, 10, 0, 5)}, "`box` must have a width and a height above 0"),
        ({"box": (40, 40, 60, 60)}, "`box` must be inside the image"),
        ({"mask": np.zeros((5, 6), bool)}, "`mask` must have the picture's shape ("),
        ({"mask": "MASK"}, "`mask` must have the picture's shape"),
        ({"heat_map": np.zeros(5)}, "with at least one pixel, got float64 of shape (5,)"),
        ({"heat_map": np.zeros((0, 5))}, "`heat_map` must be a two-dimensional array"),
        ({"heat_map": [[0, np.nan]]}, "`heat_map` must be finite, got nan at row 0, column 1"),
        ({"heat_map": [[0, np.inf]]}, "`heat_map` must be finite, got inf at row 0, column 1"),
        ({"heat_map": [[0, 1]], "point": (1, 1)}, "`point` must not be given with `heat_map`"),
        ({"point": (1, 1), "score": 1.5}, "`score` must be in [0, 1]"),
        ({"point": (1, 1), "score": [0.5]}, "`score` must be a number, got [0.5]"),
    ],
    ids=lambda value: None if isinstance(value, str) else "answer",
)  # fmt: skip
def test_wrong_answers_are_refused_and_named(world: World, answer: Any, message: str) -> None:
    pair = "|".join(read_manifest(world.folder, "released").asked_pairs()[0])
    with pytest.raises(ValueError, match=f"^answer to '{re.escape(pair)}': .*{re.escape(message)}"):
        run(world, lambda image, finding: answer)


def test_a_mask_of_shares_is_no_mask(world: World) -> None:
    with pytest.raises(ValueError, match=r"`mask` must contain bool, or only 0 and 1, got float64 \(a `heat_map`\?\)"):
        ask_one(world, {"mask": np.full(first_size(world), 0.5)})
    with pytest.raises(ValueError, match="`mask` must contain bool, or only 0 and 1, got int64"):
        ask_one(world, {"mask": np.full(first_size(world), 2)})


# Heat maps


def test_a_heat_map_gives_a_mask_only_with_a_threshold(world: World) -> None:
    heat_map = np.zeros((4, 4))
    heat_map[1, 2] = 1
    assert ask_one(world, {"heat_map": heat_map}).mask is None
    mask = square_mask(first_size(world))
    assert ask_one(world, {"heat_map": heat_map, "mask": mask}).mask == encode_mask(mask)
    height, width = first_size(world)
    cut = ask_one(world, {"heat_map": heat_map, "box": (0, 0, 9, 9)}, threshold=0.5)
    ((x, y),) = cut.points  # where it is largest at the size of the image, within a pixel of the map's centre
    assert abs(x - 2.5 * width / 4) <= 1
    assert abs(y - 1.5 * height / 4) <= 1
    assert cut.box == (0, 0, 9, 9)
    assert cut.mask is not None
    inside = decode_mask(cut.mask)
    assert inside[int(1.5 * height / 4), int(2.5 * width / 4)]
    assert 0 < inside.mean() < 0.2
    constant = ask_one(world, {"heat_map": np.ones((4, 4))})
    assert constant.points == ()
    assert not decode_mask(constant.mask).any()
    with pytest.raises(ValueError, match="`mask` must not be given with `heat_map`"):
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
        ({"probabilities": dict.fromkeys(LABELS, 1.2)}, f"`probabilities[Edema]` {PROBABILITY_RULE}, got 1.2"),
        ({"probabilities": dict.fromkeys(LABELS, float("nan"))}, f"`probabilities[Edema]` {PROBABILITY_RULE}, got nan"),
        ({"probabilities": dict.fromkeys(LABELS, "0.5")}, "`probabilities[Edema]` must be a number, got '0.5'"),
        ({"labels": [], "probabilities": {}}, "must give `labels` or `probabilities`, the same for all studies"),
        ({"point": (1, 2)}, "the answer must have some of labels, probabilities, got ['point']"),
    ],
    ids=lambda value: None if isinstance(value, str) else "answer",
)
def test_wrong_answers_about_studies(answer: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LabelReader()(Question("study", "labels", (), choices=LABELS), answer)
