"""FROC, panoptic quality and distances between boundaries against MONAI and panoptica themselves.

They need torch, so `make soak` has them in an environment of their own (REVEAL_PEERS_PYTHON is its python); their
results for a few cases are numbers in this file.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.masks import encode_mask, pack_masks
from reveal_bench.metrics.detection import FROC_RATES, detection_figure
from reveal_bench.metrics.detection_matching import box_overlaps
from reveal_bench.metrics.mask_agreement import hausdorff_95, surface_distance

PYTHON = os.environ.get("REVEAL_PEERS_PYTHON")
needs_peers = pytest.mark.skipif(
    PYTHON is None, reason="needs MONAI and panoptica in an environment of their own: make soak"
)


BOXES = [0.25, 0.25, 0.25, 0.75, 0.75, 0.75, 0.75, 0.1010101, 0.5555556, 0.1818182,
         0.0, 0.0, 0.0, 0.6666667, 0.6666667, 0.6666667, 0.6666667, 0.0, np.nan, 0.0]  # fmt: skip
MASKS = [[0.057971, 8.500735], [0.0, 6.537145], [0.947368, 4.262707]]


def cells(rng: np.random.Generator, most: int) -> list[list[int]]:
    """Boxes in different cells of a 4 x 4 grid of 16 pixels."""
    places = rng.permutation(16)[: rng.integers(0, most + 1)].tolist()
    boxes = rng.integers([0, 0, 2, 2], [6, 6, 11, 11], (len(places), 4)).tolist()
    return [[16 * (p % 4) + x, 16 * (p // 4) + y, w, h] for p, (x, y, w, h) in zip(places, boxes, strict=True)]


def case_of_boxes(rng: np.random.Generator) -> dict[str, Any]:
    images = []
    for _ in range(rng.integers(1, 6)):
        marks = [[*box, round(0.01 + 0.98 * float(rng.random()), 3)] for box in cells(rng, 8)]
        lesions = cells(rng, 4)
        for k, box in enumerate(lesions):  # some marks are a lesion, or a part of it
            if k < len(marks) and rng.random() < 0.6 and all(_apart(box, other[:4]) for other in marks):
                marks.append(
                    [*box[:3], max(1, box[3] - int(rng.integers(0, 5))), round(0.01 + 0.98 * float(rng.random()), 3)]
                )
        images.append({"lesions": lesions, "marks": marks})
    return {"images": images, "panoptic": True}


def _apart(a: list[int], b: list[int]) -> bool:
    return a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]


def figures(images: list[dict[str, Any]], *metrics: str) -> list[float]:
    marks = [[(mark[:4], mark[4]) for mark in image["marks"]] for image in images]
    lesions = [image["lesions"] for image in images]
    return [detection_figure(marks, lesions, metric=metric, threshold=0.0) for metric in metrics]


def is_cut_short(images: list[dict[str, Any]]) -> bool:
    """Return True if every lesion is hit: MONAI then leaves out the lowest threshold."""
    return figures(images, "lesion_sensitivity")[0] == 1


def has_a_half(image: dict[str, Any]) -> bool:
    """Return True if an IoU is 1/2: a match for panoptica, but not by the definition of panoptic quality."""
    pairs = [(mark[:4], lesion) for mark in image["marks"] for lesion in image["lesions"]]
    return bool((box_overlaps(*(np.array(part, float) for part in zip(*pairs, strict=True))) == 0.5).any())


def ask(cases: list[dict[str, Any]]) -> list[Any]:
    assert PYTHON is not None
    script = Path(__file__).with_name("peers.py")
    done = subprocess.run([PYTHON, script], input=json.dumps(cases), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@needs_peers
def test_2000_cases_of_boxes() -> None:
    rng = np.random.default_rng(0)
    cases = [one for one in (case_of_boxes(rng) for _ in range(4000))
             if any(image["lesions"] for image in one["images"]) and not is_cut_short(one["images"])]  # fmt: skip
    assert len(cases) >= 2000
    n_panoptic = 0
    for case, (rates, panoptic) in zip(cases, ask(cases), strict=True):
        np.testing.assert_allclose(figures(case["images"], *FROC_RATES), rates, atol=1e-6)
        first = case["images"][:1]
        if not first[0]["lesions"] and not first[0]["marks"]:
            continue
        if not first[0]["lesions"] or not first[0]["marks"] or not has_a_half(first[0]):
            n_panoptic += 1
            own = figures(first, "pq", "sq", "rq")
            if own[2] == 0:  # without a match, quality is undefined here and 0 in panoptica
                assert (own[0], panoptic[0]) == (0, 0)
            else:
                np.testing.assert_allclose(own, panoptic, atol=1e-6)
    assert n_panoptic >= 2000


def case_of_masks(rng: np.random.Generator) -> dict[str, Any]:
    both = []
    for _ in range(2):
        mask = np.zeros((24, 20), int)
        for x, y, w, h in rng.integers([0, 0, 1, 1], [15, 18, 12, 12], (rng.integers(1, 4), 4)).tolist():
            mask[y : y + h, x : x + w] = 1
        both.append(mask.tolist())
    return {"a": both[0], "b": both[1], "tolerance": float(rng.integers(0, 5)) / 2, "spacing": [0.5, 0.25]}


def with_degenerate(case: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The case with one of its masks, or both, empty, one pixel, a corner, a row, or the whole image."""
    for name in ("a", "b") if rng.random() < 0.5 else ("a",):
        mask = np.zeros((24, 20), int)
        row, column = rng.integers([24, 20])
        mask[[np.s_[:0], np.s_[row, column], np.s_[-1, -1], np.s_[row], np.s_[:]][rng.integers(5)]] = 1
        case = {**case, name: mask.tolist()}
    return case


def distances(case: dict[str, Any]) -> list[float]:
    a, b = (pack_masks([encode_mask(np.array(case[name]))]) for name in ("a", "b"))
    spacing = (case["spacing"][0], case["spacing"][1])
    share = surface_distance(a, b, tolerance=case["tolerance"], spacing=spacing)
    return [float(share[0]), float(hausdorff_95(a, b, spacing=spacing)[0])]


@needs_peers
def test_2000_cases_of_masks() -> None:
    rng = np.random.default_rng(1)
    cases = [case_of_masks(rng) for _ in range(2000)]
    cases += [with_degenerate(case_of_masks(rng), rng) for _ in range(2000)]
    own, statements = np.array([distances(case) for case in cases]), np.array(ask(cases))
    is_far = np.isinf(own) & np.isnan(statements)  # to an empty mask: without end for us, undefined for MONAI
    assert is_far.sum() > 100
    np.testing.assert_allclose(np.where(is_far, 0, own), np.where(is_far, 0, statements), atol=1e-5)


def test_what_the_peers_said_of_a_few_cases() -> None:
    """As :mod:`tests.metrics.peers` printed it: FROC, panoptic quality, surface Dice and Hausdorff 95."""
    rng = np.random.default_rng(6)
    results = []
    while len(results) < 2:
        case = case_of_boxes(rng)
        if case["images"][0]["lesions"] and case["images"][0]["marks"] and not is_cut_short(case["images"]):
            results.append([figures(case["images"], *FROC_RATES), figures(case["images"][:1], "pq", "sq", "rq")])
    masks = [distances(case_of_masks(rng)) for _ in range(3)]
    np.testing.assert_allclose(np.concatenate([np.ravel(part) for one in results for part in one]), BOXES, atol=1e-6)
    np.testing.assert_allclose(masks, MASKS, atol=1e-5)


def test_the_smallest_example_where_boundaries_are_weighed_otherwise() -> None:
    """Two of the three boundary pixels; 95% of the way from 0 to 1. DeepMind's surface-distance: 0.815 and 1."""
    case = {"a": [[1, 0, 0]], "b": [[1, 1, 0]], "tolerance": 0, "spacing": [1, 1]}
    assert distances(case) == pytest.approx([2 / 3, 0.95])
