"""Scores of detectors against pycocotools, plain loops by FROC's rules, and hand arithmetic.

MONAI's `compute_froc_curve_data` (1.5) leaves out the lowest threshold of a curve; the plain loop's curve has all
of them. Everything else of its rule is the loop's: a mark on a lesion that is found already is neither hit nor alarm.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.detection import FROC_RATES, Matched, detection_figure, detection_figures, froc_points
from reveal_bench.metrics.detection_matching import CENTRE, IOUS, RULES, match_marks
from reveal_bench.metrics.intervals import Resampling

Array = npt.NDArray[np.float64]
BY_LOOP = (*FROC_RATES, "cpm", "afroc", "wafroc", "lroc", "lesion_sensitivity", "false_alarms", "rsna_precision")


@dataclass
class World:
    """Marks (image, x, y, width, height, score) and lesions (the same without a score) of one finding on n images."""

    n: int
    marks: Array
    lesions: Array

    def matched(self) -> Matched:
        image, lesion_image = self.marks[:, 0].astype(int), self.lesions[:, 0].astype(int)
        boxes, scores = self.marks[:, 1:5], self.marks[:, 5]
        hit = match_marks(boxes, boxes[:, :2] + boxes[:, 2:] / 2, scores, image, self.lesions[:, 1:], lesion_image)
        return Matched(np.arange(self.n), image, scores, hit, lesion_image)

    def figures(self, metrics: tuple[str, ...], times: Any) -> dict[str, float]:
        counts = np.array([times], np.float32)
        results = detection_figures(self.matched(), metrics, counts)
        return {name: float(replicates[0]) for name, (_, replicates) in results.items()}


def worlds(rng: np.random.Generator, n: int, *, ties: bool) -> Iterator[World]:
    """Small images with up to three lesions and six marks, half of them near a lesion; coordinates are whole."""
    for _ in range(n):
        n_images = int(rng.integers(1, 8))
        marks: list[list[float]] = []
        lesions: list[list[float]] = []
        for image in range(n_images):
            own = [[image, *rng.integers(0, 40, 2), *rng.integers(1, 30, 2)] for _ in range(rng.integers(0, 4))]
            for _ in range(rng.integers(0, 7)):
                box = [*rng.integers(0, 40, 2), *rng.integers(1, 30, 2)]
                if own and rng.random() < 0.6:
                    near = np.array(own[rng.integers(len(own))][1:]) + rng.integers(-3, 4, 4)
                    box = np.maximum(near, [0, 0, 1, 1]).tolist()
                score = rng.choice([0.1, 0.3, 0.5, 0.9]) if ties and rng.random() < 0.5 else rng.random()
                marks.append([image, *box, score])
            lesions += own
        yield World(n_images, np.reshape(marks, (-1, 6)), np.reshape(lesions, (-1, 5)))


def coco_precisions(world: World, times: Any) -> Array | None:
    """pycocotools' average precision at each of IOUS, of a dataset with image i `times[i]` times."""
    from pycocotools import coco, cocoeval

    images: list[dict[str, Any]] = []
    drawn: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image, repeats in enumerate(times):
        for _ in range(repeats):
            place = {"image_id": len(images) + 1, "category_id": 1}
            images.append({"id": len(images) + 1, "height": 100, "width": 100})
            for _, *box in world.lesions[world.lesions[:, 0] == image].tolist():
                drawn.append({**place, "id": len(drawn) + 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0})
            for _, *box, score in world.marks[world.marks[:, 0] == image].tolist():
                results.append({**place, "bbox": box, "score": score})
    if not results or not drawn:
        return None
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = {"images": images, "annotations": drawn, "categories": [{"id": 1, "name": "a"}]}
        truth.createIndex()
        run = cocoeval.COCOeval(truth, truth.loadRes(results), "bbox")
        run.params.iouThrs, run.params.maxDets = np.array(IOUS), [100]
        run.params.areaRng, run.params.areaRngLbl = [[0, 1e10]], ["all"]
        run.evaluate()
        run.accumulate()
    precisions: Array = run.eval["precision"][:, :, 0, 0, 0].mean(axis=1)
    return precisions


@pytest.mark.parametrize("ties", [True, False])
def test_average_precision_is_that_of_pycocotools(ties: bool) -> None:
    rng = np.random.default_rng(ties)
    n_images = 0
    for world in worlds(rng, 150, ties=ties):
        # Copies of an image whose marks tie among each other are side by side here, and one after the other there
        for times in ([1] * world.n, *([] if ties else [rng.integers(0, 4, world.n)])):
            expected = coco_precisions(world, times)
            if expected is not None:
                results = world.figures(("ap_40", "ap_50", "ap"), times)
                wanted = [expected[0], expected[2], expected[2:].mean()]
                np.testing.assert_allclose(list(results.values()), wanted, atol=1e-9)
                n_images += world.n * (list(times) == [1] * world.n)
    assert n_images >= 500


def by_loop(world: World, times: Any) -> dict[str, float]:
    """FROC and its relatives mark by mark, of a dataset with image i `times[i]` times."""
    hits = world.matched().hit
    lesions: list[tuple[float, float]] = []  # best score, weight in its image
    alarms: list[float] = []
    normal: list[float] = []
    highest: list[float | None] = []  # of images with lesions: the score of the top mark if it hits
    precisions: list[float] = []
    for image, repeats in enumerate(times):
        marks = np.flatnonzero(world.marks[:, 0] == image)
        own = world.lesions[world.lesions[:, 0] == image]
        best, false = [-np.inf] * len(own), []
        for k in marks:
            _, left, top, width, height, score = world.marks[k]
            x, y = left + width / 2, top + height / 2
            inside = [(np.hypot(x - a - w / 2, y - b - h / 2), j) for j, (_, a, b, w, h) in enumerate(own)
                      if a <= x < a + w and b <= y < b + h]  # fmt: skip
            if inside:
                best[min(inside)[1]] = max(best[min(inside)[1]], score)
            else:
                false.append(score)
        sure = [k for k in marks if world.marks[k, 5] >= 0.5]
        for _ in range(repeats):
            lesions += [(score, 1 / len(own)) for score in best]
            alarms += false
            if len(own):
                highest.append(max(best) if max(best) > max(false, default=-np.inf) else None)
            else:
                normal.append(max(false, default=-np.inf))
            if len(own) or sure:
                true = [sum(hits[row, k] >= 0 for k in sure) for row in range(8)]
                precisions.append(float(np.mean([t / (len(sure) + len(own) - t) for t in true])))
    results = dict.fromkeys(BY_LOOP, np.nan)
    n = sum(times)
    if precisions:
        results["rsna_precision"] = float(np.mean(precisions))
    if n:
        results["false_alarms"] = sum(score >= 0.5 for score in alarms) / n
    if lesions:
        levels = sorted({score for score, _ in lesions if score > -np.inf} | set(alarms), reverse=True)
        rates = [0.0, *(sum(score >= level for score in alarms) / n for level in levels)]
        shares = [0.0, *(sum(score >= level for score, _ in lesions) / len(lesions) for level in levels)]
        results |= {name: float(np.interp(rate, rates, shares)) for name, rate in FROC_RATES.items()}
        results["cpm"] = float(np.mean([results[name] for name in FROC_RATES]))
        results["lesion_sensitivity"] = sum(score >= 0.5 for score, _ in lesions) / len(lesions)
    if lesions and normal:
        wins = [(weight, above(score, alarm)) for score, weight in lesions for alarm in normal]
        results["afroc"] = float(np.mean([win for _, win in wins]))
        results["wafroc"] = sum(weight * win for weight, win in wins) / len(normal) / len(highest)
        results["lroc"] = float(np.mean([0 if s is None else above(s, alarm) for s in highest for alarm in normal]))
    return results


def above(score: float, alarm: float) -> float:
    return 1.0 if score > alarm else 0.5 if score == alarm else 0.0


@pytest.mark.parametrize("ties", [True, False])
def test_froc_and_its_relatives_are_those_of_a_plain_loop(ties: bool) -> None:
    rng = np.random.default_rng(ties)
    for world in worlds(rng, 100, ties=ties):
        for times in ([1] * world.n, rng.integers(0, 4, world.n).tolist()):
            results = world.figures(BY_LOOP, times)
            np.testing.assert_allclose(list(results.values()), list(by_loop(world, times).values()), atol=1e-12)


def test_replicates_are_the_figures_of_datasets_with_images_repeated() -> None:
    rng = np.random.default_rng(3)
    for world in worlds(rng, 15, ties=False):
        counts = resampling_counts(world.n, Resampling(20, int(rng.integers(99))))
        replicates = {name: results[1] for name, results in detection_figures(world.matched(), BY_LOOP, counts).items()}
        for b, row in enumerate(counts.astype(int).tolist()):
            expected = by_loop(world, row)
            np.testing.assert_allclose([replicates[name][b] for name in BY_LOOP], list(expected.values()), atol=1e-12)


def test_figures_by_hand() -> None:
    """Four images: two lesions on the first, one on the second, none on the others.

    By falling score: hit .9, alarm .8 (image 3), hit .7 by centre and IoU 0.5 exactly, alarm .6 (image 0).
    """
    a, b, c = [0, 0, 10, 10], [50, 50, 10, 10], [20, 20, 10, 10]
    marks: Any = [[(a, 0.9), ([80, 80, 5, 5], 0.6)], [([20, 20, 10, 5], 0.7)], [], [([5, 5, 5, 5], 0.8)]]
    lesions: Any = [[a, b], [c], [], []]

    def figure(metric: str, threshold: float = 0.5) -> float:
        return detection_figure(marks, lesions, metric=metric, threshold=threshold)

    # precision 1 up to recall 1/3 (34 of 101 recalls), 2/3 up to 2/3 (33 more), then nothing
    assert figure("ap_50") == pytest.approx((34 + 33 * 2 / 3) / 101)
    assert figure("ap_50") == figure("ap_40")
    assert figure("ap") == pytest.approx((figure("ap_50") + 9 * 34 / 101) / 10)
    assert [figure(name) for name in FROC_RATES] == pytest.approx([1 / 3] + [2 / 3] * 6)
    assert figure("cpm") == pytest.approx((1 / 3 + 6 * 2 / 3) / 7)
    # lesions score .9, nothing, .7 against images without one: nothing, .8
    assert figure("afroc") == pytest.approx((1 + 1 + 0.5 + 0 + 1 + 0) / 6)
    assert figure("wafroc") == pytest.approx((((1 + 1) / 2 + (0.5 + 0) / 2) + (1 + 0)) / 4)
    assert figure("lroc") == pytest.approx((2 + 1) / 4)
    assert figure("lesion_sensitivity") == pytest.approx(2 / 3)
    assert figure("lesion_sensitivity", 0.8) == pytest.approx(1 / 3)
    assert figure("false_alarms") == 0.5
    # image 0: 1 of 1 + 1 + 1; image 1: hit at 0.4, 0.45 and 0.5 of eight thresholds; image 3: nothing right
    assert figure("rsna_precision") == pytest.approx((1 / 3 + 3 / 8 + 0) / 3)


def voc_2010(world: World, times: Any, threshold: float) -> float:
    """PASCAL VOC 2010, mark by mark: IoU above the threshold, best lesion only, exact area under the envelope."""
    lesions = [(i, k, box) for i, n in enumerate(times) for k in range(n)
               for box in world.lesions[world.lesions[:, 0] == i, 1:].tolist()]  # fmt: skip
    marks = [(i, k, box, s) for i, n in enumerate(times) for k in range(n)
             for *box, s in world.marks[world.marks[:, 0] == i, 1:].tolist()]  # fmt: skip
    taken: set[int] = set()
    precisions, recalls = [], []
    for n_marks, (i, k, box, _) in enumerate(sorted(marks, key=lambda mark: -mark[3]), start=1):
        best, largest = -1, 0.0
        for j, (image, copy, other) in enumerate(lesions):
            if (image, copy) == (i, k) and iou(box, other) > largest:
                best, largest = j, iou(box, other)
        if largest > threshold:
            taken.add(best)
        precisions.append(len(taken) / n_marks)
        recalls.append(len(taken) / len(lesions) if lesions else np.nan)
    if not lesions:
        return np.nan
    steps = np.diff([0.0, *recalls])
    return float(sum(step * max(precisions[place:]) for place, step in enumerate(steps)))


def iou(box: list[float], other: list[float]) -> float:
    (a, b, w, h), (x, y, wide, high) = box, other
    shared = max(0.0, min(a + w, x + wide) - max(a, x)) * max(0.0, min(b + h, y + high) - max(b, y))
    return shared / (w * h + wide * high - shared)


@pytest.mark.parametrize("ties", [True, False])
def test_voc_average_precision_is_that_of_a_plain_loop(ties: bool) -> None:
    rng = np.random.default_rng(ties)
    for world in worlds(rng, 150, ties=ties):
        for times in ([1] * world.n, *([] if ties else [rng.integers(0, 4, world.n).tolist()])):
            results = world.figures(("voc_ap_40", "voc_ap_50"), times)
            expected = [voc_2010(world, times, threshold) for threshold in (0.4, 0.5)]
            np.testing.assert_allclose(list(results.values()), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("marks", "lesions", "expected"),
    [
        ([([0, 0, 40, 100], 0.9)], [[0, 0, 100, 100]], 0),  # an IoU of exactly 0.4
        ([([0, 0, 41, 100], 0.9)], [[0, 0, 100, 100]], 1),
        ([([0, 0, 100, 100], 0.9), ([1, 0, 100, 100], 0.8)], [[0, 0, 100, 100], [30, 0, 100, 100]], 0.5),
        ([([0, 0, 100, 100], 0.9), ([29, 0, 100, 100], 0.8)], [[0, 0, 100, 100], [30, 0, 100, 100]], 1),
        ([([500, 0, 9, 9], 0.9), ([0, 0, 9, 9], 0.8)], [[0, 0, 9, 9]], 0.5),
        ([([0, 0, 9, 9], 0.9), ([0, 0, 9, 9], 0.8)], [[0, 0, 9, 9]], 1),
        ([], [[0, 0, 9, 9]], 0),
        ([([0, 0, 9, 9], 0.9)], [], np.nan),
    ],
)
def test_voc_average_precision_by_hand(marks: Any, lesions: Any, expected: float) -> None:
    np.testing.assert_equal(detection_figure([marks], [lesions], metric="voc_ap_40"), expected)


def test_image_auroc_is_that_of_scikit_learn_on_highest_marks() -> None:
    from sklearn.metrics import roc_auc_score

    rng, n_undefined = np.random.default_rng(5), 0
    for _ in range(1000):
        box, n = [0, 0, 9, 9], int(rng.integers(1, 9))
        levels = rng.choice([0.0, 0.5, 1.0, rng.random()], 6)
        marks: Any = [[(box, float(score)) for score in rng.choice(levels, rng.integers(0, 3))] for _ in range(n)]
        lesions: Any = [[box] * int(k) for k in rng.integers(0, 3, n) * rng.integers(0, 2)]
        present = [len(boxes) > 0 for boxes in lesions]
        highest = [max((score for _, score in own), default=0.0) for own in marks]
        is_defined = len(set(present)) == 2
        n_undefined += not is_defined
        expected = roc_auc_score(present, highest) if is_defined else np.nan
        value = detection_figure(marks, lesions, metric="image_auroc")
        np.testing.assert_allclose(value, expected, atol=1e-12)
    assert 100 < n_undefined < 900


def test_replicates_of_image_auroc_weigh_images_as_scikit_learn_does() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(6)
    for world in worlds(rng, 50, ties=True):
        times = rng.integers(0, 4, world.n)
        present = np.isin(np.arange(world.n), world.lesions[:, 0])
        highest = [max(world.marks[world.marks[:, 0] == image, 5], default=0.0) for image in range(world.n)]
        kept = times > 0
        if len(set(present[kept])) == 2:
            expected = roc_auc_score(present, highest, sample_weight=times)
            assert world.figures(("image_auroc",), times)["image_auroc"] == pytest.approx(expected)


def test_image_auroc_ignores_where_marks_are() -> None:
    """Images with a lesion score .4 (a miss) and 0 (no mark), images without score 0 (a mark), 0 and .4."""
    away: Any = ([50, 50, 5, 5], 0.4)
    marks: Any = [[away, ([0, 0, 9, 9], 0.1)], [], [([0, 0, 9, 9], 0.0)], [], [away]]
    lesions: Any = [[[0, 0, 9, 9]], [[0, 0, 9, 9]], [], [], []]
    figure = detection_figure(marks, lesions, metric="image_auroc")
    assert figure == pytest.approx((1 + 1 + 0.5 + 0.5 + 0.5 + 0) / 6)


def test_a_hit_by_iou_takes_its_lesion_and_the_best_free_one() -> None:
    lesions = np.array([[0, 0, 10, 10], [2, 0, 10, 10.0]])
    marks = np.array([[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 10.0]])
    case = np.zeros(3, int)
    hit = match_marks(marks, marks[:, :2] + 5, np.array([0.5, 0.9, 0.7]), case, lesions, case[:2])
    assert hit[RULES.index("iou_50")].tolist() == [-1, 0, 1]  # IoU of the second: 80 / 120
    assert hit[RULES.index("iou_70")].tolist() == [-1, 0, -1]
    assert hit[CENTRE].tolist() == [0, 0, 0]  # by centres each hits the nearest, however often


def test_points_hit_by_their_place_and_never_by_overlap() -> None:
    nothing = np.full((2, 4), np.nan)
    case = np.zeros(2, int)
    lesion = np.array([[0, 0, 10, 10.0]])
    hit = match_marks(nothing, np.array([[0, 0], [10, 5.0]]), np.ones(2), case, lesion, case[:1])
    assert hit[CENTRE].tolist() == [0, -1]  # a box is open on the right
    assert (hit[CENTRE + 1 :] == -1).all()
    assert (hit[:CENTRE] == -1).all()


def test_a_curve_begins_at_nothing_and_ends_with_every_mark() -> None:
    alarms, shares = froc_points(World(2, np.array([[0, 0, 0, 9, 9, 0.9], [1, 0, 0, 9, 9, 0.4]]),
                                       np.array([[0, 0, 0, 9, 9.0]])).matched())  # fmt: skip
    assert alarms.tolist() == [0, 0, 0.5]
    assert shares.tolist() == [0, 1, 1]


def test_scores_that_are_not_finite_and_figures_that_are_unknown_are_refused() -> None:
    with pytest.raises(ValueError, match="`scores` must be finite, got nan"):
        detection_figure([[([0, 0, 1, 1], float("nan"))]], [[]], metric="ap_50")
    with pytest.raises(ValueError, match="`metrics` must be among"):
        detection_figure([[]], [[]], metric="ap_55")


def test_no_finding_of_vinbigdata_is_a_box_of_one_pixel_on_images_without_a_box() -> None:
    """The class "No finding 0.9 0 0 1 1": hits at 0.9 and 0.7, a miss at 0.8, and one such image without an answer."""
    box = [0, 0, 1, 1]
    answers = [[(box, 0.9)], [(box, 0.8)], [(box, 0.7)], []]
    normal = [[box], [], [box], [box]]
    assert detection_figure(answers, normal, metric="voc_ap_40") == pytest.approx((1 + 2 / 3) / 3)
