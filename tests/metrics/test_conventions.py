"""Conventions of challenges and libraries against slow, plain versions of their published rules.

Each convention runs on 250 random and degenerate inputs. The number of inputs on which this package and the rule
differ, or only one of them has a value, is in the table of docs/metrics.md, which is compared with the counts here.
Inputs on which the rule itself has no value (it would divide by 0) count as different only if this package has one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from reveal_bench.analyses.box_accuracy import THRESHOLDS, box_accuracies
from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import encode_mask, pack_masks
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.detection import FROC_RATES, Matched, detection_figure, detection_figures
from reveal_bench.metrics.detection_matching import match_marks
from reveal_bench.metrics.map_scores import _LEVELS
from tests.conftest import ROOT
from tests.metrics.test_detection import World, worlds

N = 250
Array = npt.NDArray[np.float64]
Pair = tuple[float, float]
NAN = math.nan


def ours(name: str, *inputs: object, **options: object) -> float:
    return float(np.squeeze(METRICS[name].resolve()(*inputs, **options)))


def same(pair: Pair) -> bool:
    a, b = pair
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def labels() -> Iterator[tuple[Array, Array, Array]]:
    """Scores with ties, decisions and references of up to twelve studies; some labels are constant."""
    rng = np.random.default_rng(1)
    for _ in range(N):
        n = int(rng.integers(1, 13))
        present = rng.random(n) < rng.choice([0.0, 0.1, 0.5, 1.0])
        scores = rng.integers(0, 9, n) / 8
        yield scores, scores >= rng.choice([0.1, 0.5, 1.1]), present


def column(values: Array) -> Array:
    return np.asarray(values)[:, None]


def balanced_accuracy(_: Array, called: Array, present: Array) -> Pair:
    """scikit-learn's: the mean recall of the classes that occur in the references."""
    rates = [np.mean(called[present == side] == side) for side in (True, False) if (present == side).any()]
    return ours("balanced_accuracy", column(called), column(present)), float(np.mean(rates))


def mcc(_: Array, called: Array, present: Array) -> Pair:
    """scikit-learn's: 0 where it would divide by 0."""
    a, b = called - called.mean(), present - present.mean()
    scale = math.sqrt(float((a**2).sum() * (b**2).sum()))
    return ours("mcc", column(called), column(present)), float((a * b).sum() / scale) if scale > 0 else 0.0


def log_loss(scores: Array, _: Array, present: Array) -> Pair:
    """scikit-learn's: probabilities at least the smallest number that changes 1, at most 1 minus it."""
    least = 2.0**-52
    kept = [min(max(p, least), 1 - least) for p in np.where(present, scores, 1 - scores).tolist()]
    return ours("log_loss", column(scores), column(present)), -sum(map(math.log, kept)) / len(kept)


def plain_average_precision(scores: Array, present: Array) -> float:
    """scikit-learn's: 0 without a positive."""
    total, n = 0.0, int(present.sum())
    for score in scores[present]:
        total += present[scores >= score].mean()
    return float(total / n) if n else 0.0


def average_precision(scores: Array, _: Array, present: Array) -> Pair:
    return ours("average_precision", column(scores), column(present)), plain_average_precision(scores, present)


def two_labels() -> Iterator[tuple[Array, Array]]:
    rng = np.random.default_rng(2)
    for _ in range(N):
        n = int(rng.integers(2, 13))
        yield rng.integers(0, 9, (n, 2)) / 8, rng.random((n, 2)) < rng.choice([0.1, 0.5], 2)


def macro_average_precision(scores: Array, present: Array) -> Pair:
    """scikit-learn's macro: a label without a positive counts as 0."""
    each = [plain_average_precision(*pair) for pair in zip(scores.T, present.T, strict=True)]
    return ours("average_precision", scores, present, average="macro"), sum(each) / 2


def ratings() -> Iterator[tuple[Array, Array]]:
    rng = np.random.default_rng(3)
    for _ in range(N):
        n = int(rng.integers(1, 10))
        yield rng.integers(0, 5, n), rng.integers(0, 5, n)


def quadratic_kappa(a: Array, b: Array) -> Pair:
    """scikit-learn's default: the scale has only the categories that occur, one step apart; theirs is NaN for 0 / 0."""
    place = {category: i for i, category in enumerate(sorted({*a.tolist(), *b.tolist()}))}
    x, y = (np.array([place[one] for one in side.tolist()]) for side in (a, b))
    expected = np.mean((x[:, None] - y) ** 2)
    theirs = float(1 - np.mean((x - y) ** 2) / expected) if expected > 0 else NAN
    return ours("cohen_kappa_quadratic", a, b, n_categories=5), theirs


def mask_pairs() -> Iterator[tuple[Array, Array]]:
    rng = np.random.default_rng(4)
    for _ in range(N):
        shape = rng.integers(1, 6, 2)
        yield tuple(rng.random(shape) < rng.choice([0.0, 0.3, 1.0]) for _ in range(2))  # type: ignore[misc]


def plain_siim_dice(a: Array, b: Array) -> float:
    return 1.0 if not a.any() and not b.any() else float(2 * (a & b).sum() / (a.sum() + b.sum()))


def siim_dice(a: Array, b: Array) -> Pair:
    return ours("siim_dice", *(pack_masks([encode_mask(one)]) for one in (a, b))), plain_siim_dice(a, b)


def dice(a: Array, b: Array) -> Pair:
    return ours("dice", *(pack_masks([encode_mask(one)]) for one in (a, b))), plain_siim_dice(a, b)


def maps() -> Iterator[tuple[Array, Array]]:
    """Similarities from -1 to 1, constant maps, and references with one box, empty or the whole image."""
    rng = np.random.default_rng(5)
    for _ in range(N):
        height, width = rng.integers(2, 7, 2)
        heat = rng.uniform(-1, 1, (height, width)) if rng.random() < 0.9 else np.full((height, width), 0.25)
        reference = np.zeros((height, width), bool)
        top, left = rng.integers(0, height), rng.integers(0, width)
        reference[top : top + rng.integers(0, height + 1), left : left + rng.integers(0, width + 1)] = True
        yield heat.astype(np.float32), reference


def pixel_average_precision(heat: Array, reference: Array) -> Pair:
    return ours("pixel_average_precision", heat, reference), plain_average_precision(heat.ravel(), reference.ravel())


def grounding_iou(heat: Array, reference: Array) -> Pair:
    """BioViL's: masks above five thresholds."""
    values = []
    for threshold in (0.1, 0.2, 0.3, 0.4, 0.5):
        mask = heat > threshold
        values.append((mask & reference).sum() / (mask | reference).sum() if reference.any() else NAN)
    return ours("grounding_iou", heat, reference), float(np.mean(values))


def contrast_to_noise(heat: Array, reference: Array) -> Pair:
    """BioViL's formula, whose variances are those of the pixels; no value if it divides by 0."""
    inside, outside = heat[reference].astype(float), heat[~reference].astype(float)
    if not len(inside) or not len(outside):
        return ours("contrast_to_noise", heat, reference), NAN
    noise = math.sqrt(inside.var() + outside.var())
    theirs = abs(inside.mean() - outside.mean()) / noise if noise > 1e-12 else NAN
    return ours("contrast_to_noise", heat, reference), theirs


def map_sets() -> Iterator[tuple[list[Array], list[Array]]]:
    every = list(maps())
    for i in range(N):
        chosen = [every[i], every[(7 * i + 1) % N]]
        yield [heat for heat, _ in chosen], [reference for _, reference in chosen]


def pooled_pixel_ap(heats: list[Array], references: list[Array]) -> Pair:
    """PxAP (Choe et al. 2020): precision at each threshold, weighted by the recall gained there."""
    levels, inside = [], []
    for heat, reference in zip(heats, references, strict=True):
        spread = heat.max() - heat.min()
        levels.append(((heat - heat.min()) / spread if spread > 0 else np.zeros_like(heat)).ravel())
        inside.append(reference.ravel())
    values, truth = np.concatenate(levels), np.concatenate(inside)
    order = np.searchsorted(_LEVELS, values, side="right")
    area, recall = 0.0, 0.0
    for level in sorted(set(order.tolist()), reverse=True):
        called = order >= level
        own = truth[called].sum() / truth.sum() if truth.any() else NAN
        area, recall = area + truth[called].mean() * (own - recall), own
    return ours("pooled_pixel_ap", heats, references), float(area)


def detections() -> Iterator[tuple[World, dict[str, float]]]:
    """Worlds of up to seven images, half with tied scores, and this package's scores of them."""
    names = ("rsna_precision", "voc_ap_40", "ap_40", "image_auroc", "cpm")
    for ties in (True, False):
        for world in worlds(np.random.default_rng(6 + ties), N // 2, ties=ties):
            image, lesion_image = world.marks[:, 0].astype(int), world.lesions[:, 0].astype(int)
            boxes, scores = world.marks[:, 1:5], world.marks[:, 5]
            hit = match_marks(boxes, boxes[:, :2] + boxes[:, 2:] / 2, scores, image, world.lesions[:, 1:], lesion_image)
            matched = Matched(np.arange(world.n), image, scores, hit, lesion_image, threshold=0.0)
            figures = detection_figures(matched, names, np.ones((0, world.n), np.float32))
            yield world, {name: figures[name][0] for name in names}


def iou(a: Array, b: Array) -> float:
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = wide * high if wide > 0 and high > 0 else 0.0
    return float(shared / (a[2] * a[3] + b[2] * b[3] - shared))


def rsna(world: World, figures: dict[str, float]) -> Pair:
    """The kernel of RSNA 2018: lesion by lesion, the first free box by falling score with enough IoU is a hit."""
    values = []
    for image in range(world.n):
        lesions = [row[1:] for row in world.lesions if row[0] == image]
        marks = sorted((row for row in world.marks if row[0] == image), key=lambda row: -row[5])
        if not lesions and not marks:
            continue
        ratios = []
        for threshold in (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75):
            taken: set[int] = set()
            for lesion in lesions:
                fitting = (i for i, mark in enumerate(marks) if iou(mark[1:5], lesion) >= threshold and i not in taken)
                taken |= set(list(fitting)[:1])
            ratios.append(len(taken) / (len(marks) + len(lesions) - len(taken)))
        values.append(np.mean(ratios))
    return figures["rsna_precision"], float(np.mean(values)) if values else NAN


def plain_voc(world: World) -> float:
    """PASCAL VOC 2010 at 0.4: the largest IoU decides, it must be above 0.4, and a lesion is hit once."""
    order = sorted(range(len(world.marks)), key=lambda i: -world.marks[i, 5])
    taken: set[int] = set()
    hits = []
    for i in order:
        rivals = [(iou(world.marks[i, 1:5], row[1:]), -k) for k, row in enumerate(world.lesions)
                  if row[0] == world.marks[i, 0]]  # fmt: skip
        best, place = max(rivals, default=(0.0, 0))
        hits.append(best > 0.4 and -place not in taken)
        taken |= {-place} if hits[-1] else set()
    if not len(world.lesions):
        return NAN
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1) if hits else np.zeros(0)
    return float(sum(precision[k:].max() for k, hit in enumerate(hits) if hit) / len(world.lesions))


def voc_ap_40(world: World, figures: dict[str, float]) -> Pair:
    return figures["voc_ap_40"], plain_voc(world)


def no_finding(world: World, _: dict[str, float]) -> Pair:
    """VinBigData's class 14: an image without a lesion has the box (0, 0, 1, 1), and so has every answer.

    So the first answer to such an image is a hit, and each other answer a false alarm.
    """
    box, images = [0.0, 0.0, 1.0, 1.0], range(world.n)
    answers = [[(box, row[5]) for row in world.marks.tolist() if row[0] == image] for image in images]
    normal = {image for image in images if not (world.lesions[:, 0] == image).any()}
    own = detection_figure(answers, [[box] * (image in normal) for image in images], metric="voc_ap_40")
    left, hits = set(normal), []
    for image, *_ in sorted(world.marks.tolist(), key=lambda row: -row[5]):
        hits.append(image in left)
        left -= {image}
    precisions = [sum(hits[: k + 1]) / (k + 1) for k in range(len(hits))]
    found = sum(max(precisions[k:]) for k, hit in enumerate(hits) if hit)
    return own, found / len(normal) if normal else NAN


def ap_40(world: World, figures: dict[str, float]) -> Pair:
    return figures["ap_40"], plain_voc(world)


def image_auroc(world: World, figures: dict[str, float]) -> Pair:
    """object-CXR's and NODE21's: the highest score of each image, 0 without a mark."""
    scores = [max((row[5] for row in world.marks if row[0] == image), default=0.0) for image in range(world.n)]
    having = set(world.lesions[:, 0].astype(int).tolist())
    pairs = [(scores[a] > scores[b]) + (scores[a] == scores[b]) / 2
             for a in having for b in range(world.n) if b not in having]  # fmt: skip
    return figures["image_auroc"], float(np.mean(pairs)) if pairs else NAN


def object_cxr_froc(world: World, figures: dict[str, float]) -> Pair:
    """object-CXR's: the sensitivity after the mark with which the false alarms reach each rate, else after the last."""
    found: set[int] = set()
    n_false, rates, values = 0, list(FROC_RATES.values()), []
    for mark in sorted(world.marks.tolist(), key=lambda row: -row[5]):
        x, y = mark[1] + mark[3] / 2, mark[2] + mark[4] / 2
        inside = {
            k
            for k, (image, left, top, wide, high) in enumerate(world.lesions.tolist())
            if image == mark[0] and left <= x <= left + wide and top <= y <= top + high
        }
        found |= inside
        n_false += not inside
        while rates and n_false / world.n >= rates[0]:
            values.append(len(found) / len(world.lesions) if len(world.lesions) else NAN)
            rates.pop(0)
    last = len(found) / len(world.lesions) if len(world.lesions) else NAN
    return figures["cpm"], float(np.mean([*values, *[last] * len(rates)]))


def boxes() -> Iterator[tuple[Array, Array]]:
    rng = np.random.default_rng(8)
    for _ in range(N):
        drawn = np.array([*rng.integers(0, 5, 2), *rng.integers(1, 6, 2)], float)
        own = drawn if rng.random() < 0.1 else np.array([*rng.integers(0, 5, 2), *rng.integers(1, 6, 2)], float)
        yield own, drawn


def box_accuracy() -> list[tuple[float, float]]:
    """Wang et al. 2017: located if IoU, or the proportion of the predicted box, is above T, here as sums over T."""
    pairs, results, step = list(boxes()), [], 50
    for start in range(0, N, step):
        names = [str(i) for i in range(start, start + step)]
        records, predictions = [], []
        for name in names:
            own, drawn = (tuple(box.tolist()) for box in pairs[int(name)])
            annotation = Annotation(name, "ground_truth", None, (), drawn, 1, 1, (drawn,))
            status = {**dict.fromkeys(names), name: 1}
            records.append(LocalizationRecord(name, name, name, "PA", 99, 99, status, annotations=(annotation,)))
            predictions.append(LocalizationPrediction(name, name, box=own))
        located = dict.fromkeys(names, 0.0)
        for one in box_accuracies(predictions, records, names):
            if one.finding in located:
                located[one.finding] += one.accuracy.value * (1 if one.overlap == "iou" else 100)
        for name in names:
            own, drawn = pairs[int(name)]
            wide = min(own[0] + own[2], drawn[0] + drawn[2]) - max(own[0], drawn[0])
            high = min(own[1] + own[3], drawn[1] + drawn[3]) - max(own[1], drawn[1])
            share = max(wide, 0) * max(high, 0) / (own[2] * own[3])
            by_rule = sum((iou(own, drawn) > t) + 100 * (share > t) for t in THRESHOLDS)
            results.append((located[name], float(by_rule)))
    return results


CONVENTIONS: dict[str, tuple[Callable[[], Iterator[tuple[object, ...]]], Callable[..., Pair]]] = {
    "balanced_accuracy, scikit-learn": (labels, balanced_accuracy),
    "mcc, scikit-learn": (labels, mcc),
    "log_loss, scikit-learn": (labels, log_loss),
    "average_precision, scikit-learn": (labels, average_precision),
    "macro average_precision of two labels, scikit-learn": (two_labels, macro_average_precision),
    "cohen_kappa_quadratic, scikit-learn": (ratings, quadratic_kappa),
    "siim_dice, SIIM-ACR 2019": (mask_pairs, siim_dice),
    "dice, SIIM-ACR 2019": (mask_pairs, dice),
    "pixel_average_precision, scikit-learn": (maps, pixel_average_precision),
    "pooled_pixel_ap, PxAP": (map_sets, pooled_pixel_ap),
    "grounding_iou, BioViL": (maps, grounding_iou),
    "contrast_to_noise, BioViL": (maps, contrast_to_noise),
    "voc_ap_40, VOC 2010 as in VinBigData 2021": (detections, voc_ap_40),
    'voc_ap_40 of "No finding", VinBigData 2021': (detections, no_finding),
    "ap_40, VOC 2010 as in VinBigData 2021": (detections, ap_40),
    "rsna_precision of all boxes, RSNA 2018": (detections, rsna),
    "image_auroc, object-CXR 2020": (detections, image_auroc),
    "cpm, object-CXR's FROC": (detections, object_cxr_froc),
}


def in_docs() -> dict[str, tuple[int, int]]:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    return {f"{ours.replace('`', '')}, {theirs}": (int(n), int(both)) for ours, theirs, n, both in rows}


def count_differences() -> dict[str, tuple[int, int]]:
    """Return the numbers of inputs that differ, and of those among them on which both have a value."""
    drawn = {inputs: list(inputs()) for inputs in {inputs for inputs, _ in CONVENTIONS.values()}}
    pairs = {name: [pair(*case) for case in drawn[inputs]] for name, (inputs, pair) in CONVENTIONS.items()}
    pairs["box accuracy, Wang et al. 2017"] = box_accuracy()
    assert {len(one) for one in pairs.values()} == {N}
    different = {name: [pair for pair in one if not same(pair)] for name, one in pairs.items()}
    return {name: (len(one), sum(not math.isnan(a + b) for a, b in one)) for name, one in different.items()}


def test_docs_have_the_number_of_inputs_that_differ() -> None:
    assert in_docs() == count_differences()
