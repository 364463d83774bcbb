"""Properties of every metric of METRICS: table complete, range, direction, symmetry, invariances, degenerate inputs.

Each metric is put behind one adapter: synthetic data of n cases -> what its function takes, and its values. Data are
held as two lists with an entry per case, so that cases can be permuted, doubled and exchanged without knowing the
metric.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import isfunction
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.masks import encode_mask, pack_masks
from reveal_bench.metrics import FAMILIES, METRICS, Metric
from reveal_bench.saliency_maps.scores import MAP_METRICS, POOLED

Array = npt.NDArray[np.float64]
Data = tuple[list[Any], list[Any]]

CHANCES = ("grid_chance", "point_chance")
NOT_METRICS = {
    "localization": {"cell_coverage", "chance_among", "hit_cells", "hits_among"},
    "pixelwise": {"shared_areas"},
    "labels": {
        "apply_thresholds", "check_pair", "exact_match_from_sums", "hamming_from_sums", "kappa_from_sums", "label_sums",
        "lowest_mcc", "mcc_from_sums", "ranking_influences", "ranking_replicates",
        "ratio_from_sums", "ratio_parts", "sum_by_unit", "tables_from_sums",
    },
    "agreement": {
        "ac1_from_sums", "ac1_from_tables", "agreement_from_tables", "check_codes", "contingency_table",
        "difference_from_tables", "divide", "kappa_from_tables", "lowest_kappa", "reader_against_majority",
        "reader_sums", "resample_tables", "unit_tables",
    },
    "reliability": {
        "alpha_from_coincidences", "coincidences", "fleiss_from_sums", "fleiss_sums", "icc_from_sums", "icc_sums",
        "rating_counts",
    },
    "detection": {"detection_figures", "froc_points", "precision_recall"},
    "ordinal": {"compare_models", "reader_agreement"},
}  # fmt: skip
"""Public functions that are not metrics by themselves: parts of metrics, or forms of metrics that are in the table."""

N_LABELS, N_CATEGORIES = 3, 5
SIZE = 6


@dataclass(frozen=True)
class Adapter:
    """Synthetic data for one kind of metric, and the call of its function.

    Attributes
    ----------
    draw : (generator, number of cases) -> predictions and references, an entry per case
    call : (function, predictions, references) -> values
    per_case : whether there is a value per case, which moves with the case
    relabel : the same data with labels or categories renamed and, for a value per label, where each label went
    best, worst : predictions for references, if there are any
    """

    draw: Callable[[np.random.Generator, int], Data]
    call: Callable[[Callable[..., Any], Sequence[Any], Sequence[Any]], Any]
    per_case: bool = False
    relabel: Callable[[Data], tuple[Data, list[int] | None]] | None = None
    best: Callable[[list[Any]], list[Any]] = list
    worst: Callable[[list[Any]], list[Any]] | None = None


def draw_mask(rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    return rng.random((SIZE, SIZE)) < rng.choice([0.0, 0.2, 0.6, 1.0])


def masks(rng: np.random.Generator, n: int) -> Data:
    return [draw_mask(rng) for _ in range(n)], [draw_mask(rng) for _ in range(n)]


def pack(some: Sequence[Any]) -> Any:
    return pack_masks([encode_mask(mask) for mask in some])


def first_inside(mask: Any) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for y, x in np.argwhere(mask)[:1]]


def first_outside(mask: Any) -> list[tuple[float, float]]:
    return first_inside(~np.asarray(mask))


def points(rng: np.random.Generator, n: int) -> Data:
    places = [[(float(x), float(y)) for x, y in rng.uniform(0, SIZE, (rng.integers(0, 3), 2))] for _ in range(n)]
    return places, masks(rng, n)[1]


def cells(rng: np.random.Generator, n: int) -> Data:
    names = ["ABCDEF"[column] + str(row + 1) for column, row in rng.integers(0, SIZE, (n, 2))]
    return [[name] if rng.random() < 0.9 else [] for name in names], masks(rng, n)[1]


def cell_of(points_of: Callable[[Any], list[tuple[float, float]]]) -> Callable[[list[Any]], list[Any]]:
    return lambda references: [
        ["ABCDEF"[int(x)] + str(int(y) + 1) for x, y in points_of(reference)] for reference in references
    ]


def boxes(rng: np.random.Generator, n: int) -> Data:
    results, held = rng.uniform(1, SIZE, (n, 4)), rng.uniform(1, SIZE, (n, 4))
    results[rng.random(n) < 0.2] = np.nan
    held[rng.random(n) < 0.2] = np.nan
    return list(results), list(held)


def lesions(rng: np.random.Generator, n: int) -> Data:
    """Boxes with scores that are all different, and boxes; some images have none of either."""

    def drawn() -> list[list[float]]:
        return [[*rng.uniform(0, SIZE, 2), *rng.uniform(1, SIZE, 2)] for _ in range(rng.integers(0, 4))]

    return [[(box, float(rng.random())) for box in drawn()] for _ in range(n)], [drawn() for _ in range(n)]


def label_sets(rng: np.random.Generator, n: int) -> Data:
    shares = rng.choice([0.0, 0.3, 0.7], N_LABELS)
    return list(rng.random((n, N_LABELS)) < 0.5), list(rng.random((n, N_LABELS)) < shares)


def label_scores(rng: np.random.Generator, n: int) -> Data:
    return list(rng.integers(0, 5, (n, N_LABELS)) / 4), label_sets(rng, n)[1]


def rotate_labels(data: Data) -> tuple[Data, list[int]]:
    order = [2, 0, 1]
    return ([row[order] for row in data[0]], [row[order] for row in data[1]]), order


def ratings(rng: np.random.Generator, n: int) -> Data:
    a = rng.integers(0, N_CATEGORIES, n)
    return a.tolist(), np.where(rng.random(n) < 0.5, a, rng.integers(0, N_CATEGORIES, n)).tolist()


def rename_codes(data: Data) -> tuple[Data, None]:
    code = [3, 0, 4, 1, 2]
    return ([code[rating] for rating in data[0]], [code[rating] for rating in data[1]]), None


def reverse_codes(data: Data) -> tuple[Data, None]:
    return ([4 - rating for rating in data[0]], [4 - rating for rating in data[1]]), None


def far_apart(references: list[Any]) -> list[Any]:
    return [0 if rating >= 2 else 4 for rating in references]


def rubric(rng: np.random.Generator, n: int) -> Data:
    scores = rng.integers(1, 6, (n, 6)).astype(float)
    scores[rng.random((n, 6)) < 0.1] = np.nan
    return list(scores), [None] * n


def array(rows: Sequence[Any], width: int) -> npt.NDArray[Any]:
    return np.array(rows) if len(rows) else np.zeros((0, width))


def of_rubric(attribute: str) -> Adapter:
    def call(function: Callable[..., Any], scores: Sequence[Any], _: Sequence[Any]) -> Any:
        return [getattr(row, attribute) for row in function({"model": array(scores, 6)})]

    return Adapter(rubric, call)


def of_pairs(draw: Callable[..., Data], **more: Any) -> Adapter:
    return Adapter(draw, lambda f, a, b: f(a, pack(b)), per_case=True, **more)


def no_labels_right(references: list[Any]) -> list[Any]:
    return [~np.asarray(row) for row in references]


MASKS = Adapter(
    masks, lambda f, a, b: f(pack(a), pack(b)), per_case=True, worst=lambda references: [~mask for mask in references]
)
LABELS = Adapter(
    label_sets, lambda f, a, b: f(array(a, N_LABELS), array(b, N_LABELS)), relabel=rotate_labels, worst=no_labels_right
)
SCORES = Adapter(
    label_scores,
    lambda f, a, b: f(array(a, N_LABELS), array(b, N_LABELS)),
    relabel=rotate_labels,
    best=lambda references: [np.asarray(row, float) for row in references],
    worst=lambda references: [1 - np.asarray(row, float) for row in references],
)


def raters(relabel: Callable[[Data], tuple[Data, None]], worst: Callable[[list[Any]], list[Any]] | None) -> Adapter:
    return Adapter(ratings, lambda f, a, b: f(a, b, n_categories=N_CATEGORIES), relabel=relabel, worst=worst)


def readers(relabel: Callable[[Data], tuple[Data, None]]) -> Adapter:
    return Adapter(
        ratings, lambda f, a, b: f(np.column_stack([a, b]).astype(int), n_categories=N_CATEGORIES), relabel=relabel
    )


ICC = Adapter(ratings, lambda f, a, b: f(np.column_stack([a, b])), relabel=reverse_codes)


def each_map(function: Callable[..., Any], maps: Sequence[Any], references: Sequence[Any]) -> Array:
    if len(maps) != len(references):
        raise ValueError("`maps` must have the length of `references`")
    return np.array(
        [function(np.asarray(heat, float), np.asarray(mask, bool)) for heat, mask in zip(maps, references, strict=True)]
    )


def call_pooled(function: Callable[..., Any], maps: Sequence[Any], references: Sequence[Any]) -> Any:
    return function([np.asarray(one, float) for one in maps], [np.asarray(one, bool) for one in references])


def adapter(metric: Metric) -> Adapter:
    """Return the adapter by name if a metric differs from its family, else by family."""
    of_maps = Adapter(
        lambda rng, n: ([rng.random((3, 3)) for _ in range(n)], [draw_mask(rng) for _ in range(n)]),
        each_map,
        per_case=True,
        best=lambda references: [mask * np.linspace(1, 2, mask.size).reshape(mask.shape) for mask in references],
    )
    by_name = {
        "point_hit": of_pairs(
            points,
            best=lambda references: [first_inside(mask) for mask in references],
            worst=lambda references: [first_outside(mask) for mask in references],
        ),
        "grid_hit": Adapter(
            cells,
            lambda f, a, b: f(a, pack(b), grid=importlib.import_module("reveal_bench.geometry").Grid(SIZE)),
            per_case=True,
            best=cell_of(first_inside),
            worst=cell_of(first_outside),
        ),
        **dict.fromkeys(CHANCES, Adapter(masks, lambda f, _, b: f(pack(b)), per_case=True)),
        "box_iou": Adapter(
            boxes,
            lambda f, a, b: f(np.reshape(a, (-1, 4)), np.reshape(b, (-1, 4))),
            per_case=True,
            worst=lambda references: [np.add(box, [100, 0, 0, 0]) for box in references],
        ),
        **dict.fromkeys(MAP_METRICS, of_maps),
        "grounding_iou": replace(of_maps, best=lambda references: [np.asarray(mask, float) for mask in references]),
        POOLED: replace(of_maps, call=call_pooled, per_case=False),
        "surface_distance": Adapter(masks, lambda f, a, b: f(pack(a), pack(b)), per_case=True),
        "average_precision": Adapter(SCORES.draw, SCORES.call, relabel=SCORES.relabel, best=SCORES.best),
        "auroc": SCORES,
        "log_loss": SCORES,
        "mean_absolute_difference": raters(reverse_codes, None),
        "cohen_kappa_linear": raters(reverse_codes, None),
        "cohen_kappa_quadratic": raters(reverse_codes, None),
        "percent_agreement": raters(rename_codes, far_apart),
        "krippendorff_alpha_ordinal": readers(reverse_codes),
        "krippendorff_alpha_interval": readers(reverse_codes),
        **{name: ICC for name in METRICS if name.startswith("icc_")},
        "content": Adapter(rubric, lambda f, a, _: f(*array(a, 6)[:, :3].T), per_case=True),
        "rubric_mean": of_rubric("mean"),
        "rubric_sd": of_rubric("sd"),
        "share_of_5": of_rubric("share_of_5"),
        "share_below_3": of_rubric("share_below_3"),
    }
    lesion_wise = Adapter(
        lesions,
        lambda f, a, b: f(a, b),
        best=lambda references: [[(box, 1.0) for box in boxes] for boxes in references],
        worst=lambda references: [[([99, 99, 1, 1], 0.9 if boxes else 1.0)] for boxes in references],
    )
    by_family = {
        "localization": MASKS,
        "lesions": lesion_wise,
        "labels": LABELS,
        "agreement": raters(rename_codes, None),
        "reliability": readers(rename_codes),
    }
    return by_name[metric.name] if metric.name in by_name else by_family[metric.family]


def values(metric: Metric, data: Data) -> Array:
    return np.atleast_1d(np.asarray(adapter(metric).call(metric.resolve(), *data), np.float64))


def each(chosen: Callable[[Metric], bool] = lambda _: True) -> Any:
    """A test of every metric that is `chosen`."""
    return pytest.mark.parametrize("metric", [pytest.param(m, id=m.name) for m in METRICS.values() if chosen(m)])


DRAWS = [1, 2, 3, 10, 60]


@pytest.mark.parametrize("module", NOT_METRICS)
def test_every_public_function_is_in_the_table(module: str) -> None:
    imported = importlib.import_module(f"reveal_bench.metrics.{module}")
    own = {name: one for name, one in vars(imported).items() if isfunction(one) and one.__module__ == imported.__name__}
    public = {name for name in own if not name.startswith("_")}
    listed = {metric.function.split(".")[1] for metric in METRICS.values() if metric.function.startswith(f"{module}.")}
    assert public == listed | NOT_METRICS[module]
    assert not listed & NOT_METRICS[module]


@each()
def test_rows_are_complete(metric: Metric) -> None:
    assert callable(metric.resolve())
    assert metric.low < metric.high
    assert metric.family in FAMILIES
    assert all((metric.title, metric.undefined, metric.source, metric.formula, metric.oracle))
    assert METRICS[metric.name] is metric
    assert hash(metric) == hash(METRICS[metric.name])


def test_titles_are_unique() -> None:
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


@each()
def test_range_holds(metric: Metric, rng: np.random.Generator) -> None:
    results = np.concatenate([values(metric, adapter(metric).draw(rng, n)) for n in DRAWS * 3])
    defined = results[~np.isnan(results)]
    assert len(defined)
    assert defined.min() >= metric.low - 1e-12
    assert defined.max() <= metric.high + 1e-12


@each()
def test_order_of_cases_does_not_matter(metric: Metric, rng: np.random.Generator) -> None:
    for n in DRAWS:
        data = adapter(metric).draw(rng, n)
        order = rng.permutation(n)
        shuffled = [data[0][i] for i in order], [data[1][i] for i in order]
        before, after = values(metric, data), values(metric, shuffled)
        np.testing.assert_allclose(after, before[order] if adapter(metric).per_case else before, rtol=1e-12)


# These divide by n - 1
@each(lambda metric: metric.name != "rubric_sd" and not metric.name.startswith(("krippendorff", "icc")))
def test_doubling_every_case_changes_nothing(metric: Metric, rng: np.random.Generator) -> None:
    for n in DRAWS:
        a, b = adapter(metric).draw(rng, n)
        before, after = values(metric, (a, b)), values(metric, (a + a, b + b))
        if adapter(metric).per_case:
            np.testing.assert_array_equal(after, np.concatenate([before, before]))
        else:
            np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-15)


@each(lambda metric: adapter(metric).relabel is not None)
def test_names_do_not_matter(metric: Metric, rng: np.random.Generator) -> None:
    for n in DRAWS:
        data = adapter(metric).draw(rng, n)
        renamed, order = adapter(metric).relabel(data)  # type: ignore[misc]
        before, after = values(metric, data), values(metric, renamed)
        np.testing.assert_allclose(after, before[order] if len(before) > 1 else before, rtol=1e-12, atol=1e-15)


@each()
def test_symmetry_is_as_declared(metric: Metric, rng: np.random.Generator) -> None:
    if metric.family in ("ordinal", "lesions") or metric.name in (
        "point_hit",
        "grid_hit",
        *CHANCES,
        "auroc",
        "average_precision",
        "log_loss",
        *MAP_METRICS,
        POOLED,
    ):
        assert not metric.symmetric  # its two inputs are of different kinds, or it has one
        return
    draws = [adapter(metric).draw(rng, n) for n in DRAWS]
    same = [np.array_equal(values(metric, (a, b)), values(metric, (b, a)), equal_nan=True) for a, b in draws]
    if metric.symmetric:
        for a, b in draws:
            np.testing.assert_allclose(values(metric, (b, a)), values(metric, (a, b)), rtol=1e-12, atol=1e-15)
    else:
        assert not all(same)


# The best contrast-to-noise ratio is infinite, and a pooled map of a whole reference is constant
@each(lambda m: m.better != "neither" and m.family != "ordinal" and m.name not in ("contrast_to_noise", POOLED))
def test_perfect_and_worst_predictions(metric: Metric, rng: np.random.Generator) -> None:
    best, worst = (metric.high, metric.low) if metric.better == "higher" else (metric.low, metric.high)
    how = adapter(metric)
    n_checked = 0
    for n in DRAWS:
        references = how.draw(rng, n)[1]
        perfect = values(metric, (how.best(references), references))
        np.testing.assert_allclose(perfect[~np.isnan(perfect)], best, rtol=1e-12)
        n_checked += int((~np.isnan(perfect)).sum())
        if how.worst is not None and worst != inf:
            bad = values(metric, (how.worst(references), references))
            np.testing.assert_allclose(bad[~np.isnan(bad)], worst, atol=1e-12)
    assert n_checked


@each(lambda metric: metric.family == "agreement")
def test_worst_agreement(metric: Metric) -> None:
    """The low end of the range is reached: by two categories always confused, half of the cases each way."""
    if metric.name == "mean_absolute_difference":
        assert values(metric, ([0, 4], [4, 0])) == 4  # all of the scale
        return
    results = metric.resolve()([0, 1], [1, 0], n_categories=2)
    assert results == pytest.approx(metric.low)


@each()
def test_no_cases_are_undefined(metric: Metric) -> None:
    assert np.isnan(values(metric, ([], []))).all()


UNDEFINED: dict[str, Data] = {
    "masks": ([np.zeros((SIZE, SIZE), bool)] * 2, [np.zeros((SIZE, SIZE), bool)] * 2),
    "places": ([[], []], [np.zeros((SIZE, SIZE), bool)] * 2),
    "boxes": ([np.full(4, np.nan)] * 2, [np.full(4, np.nan)] * 2),
    "labels": ([np.zeros(N_LABELS, bool)] * 2, [np.zeros(N_LABELS, bool)] * 2),
    "agreement": ([2, 2], [2, 2]),
    "reliability": ([2, 2], [2, 2]),
    "ordinal": ([np.full(6, np.nan)] * 2, [None] * 2),
    "lesions": ([[], []], [[], []]),
}


@each()
def test_all_undefined(metric: Metric) -> None:
    """Nothing to find, constant raters, nothing rated: NaN, or the documented value."""
    kind = {"point_hit": "places", "grid_hit": "places", "box_iou": "boxes"}.get(
        metric.name, "masks" if metric.family == "localization" else metric.family
    )
    results = values(metric, UNDEFINED[kind])
    defined = {
        "siim_dice": 1.0,
        "pixel_specificity": 1.0,  # all pixels are negative
        "specificity": 1.0,  # all references and predictions are negative
        "npv": 1.0,
        "exact_match": 1.0,
        "hamming_loss": 0.0,
        "log_loss": 0.0,
        "gwet_ac1": 1.0,  # its chance is 0 for constant raters
        "percent_agreement": 1.0,
        "mean_absolute_difference": 0.0,
        "false_alarms": 0.0,
    }
    np.testing.assert_array_equal(results, np.full(len(results), defined.get(metric.name, np.nan)))


@each(lambda metric: metric.family not in ("ordinal", "reliability") and metric.name not in CHANCES)
def test_lengths_that_differ_are_refused(metric: Metric, rng: np.random.Generator) -> None:
    a, b = adapter(metric).draw(rng, 3)
    with pytest.raises(ValueError, match=r"`\w+`.* must have the (length|shape) of `\w+`"):
        values(metric, (a, b[:2]))
