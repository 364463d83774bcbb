"""The second generator of simulated worlds, benchmarks/second_world.py."""

import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PREVALENCE = (0.6, 0.2, 0.05)


@pytest.fixture(scope="module")
def second_world() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return import_module("second_world")


def test_values_of_counts_equal_a_hand_calculation(second_world: Any) -> None:
    """Present: scores 0, 0.5, 1, 1; absent: 0, 0, 0, 0.5. So TP 3, FN 1, FP 1, TN 3."""
    values = second_world.values_of_counts(np.array([1, 1, 2]), np.array([3, 1, 0]))
    for metric in ("recall", "specificity", "precision", "npv", "f1"):
        assert values[metric] == pytest.approx(3 / 4)
    assert values["cohen_kappa"] == pytest.approx((3 / 4 - 1 / 2) / (1 - 1 / 2))
    assert values["auroc"] == pytest.approx((2 * 4 + 3.5 + 1.5) / 16)
    assert values["average_precision"] == pytest.approx((1 + 1 + 3 / 4 + 4 / 8) / 4)


def test_a_large_trial_agrees_with_the_true_values(second_world: Any) -> None:
    """Within four standard errors, as if the images were independent but only half as many."""
    world = second_world.SecondWorld("three", PREVALENCE, digits=2, dead="cardiomegaly")
    true = world.true_values(3)
    (trial,) = world.draw(30_000, 1, 1, np.random.default_rng(7))
    (system,) = trial.systems
    assert set(np.unique(trial.patients)) == set(range(30_000))
    assert trial.present.mean(axis=0) == pytest.approx(PREVALENCE, abs=0.02)
    assert all(values.shape == (3, 3) for values in true.values())
    for j in range(3):
        present, scores, calls = trial.present[:, j], system.scores[:, j], system.calls[:, j]
        rates = {
            "recall": (metrics.recall_score(present, calls), present.sum()),
            "specificity": (metrics.recall_score(~present, ~calls), (~present).sum()),
            "precision": (metrics.precision_score(present, calls, zero_division=np.nan), calls.sum()),
            "f1": (metrics.f1_score(present, calls), present.sum()),
            "cohen_kappa": (metrics.cohen_kappa_score(present, calls), present.sum()),
            "auroc": (metrics.roc_auc_score(present, scores), present.sum()),
            "average_precision": (metrics.average_precision_score(present, scores), present.sum()),
            "point_hit": (np.nanmean(system.hits[:, j]), present.sum()),
            "mask_iou": (np.nanmean(system.ious[:, j]), present.sum()),
        }
        for metric, (value, n) in rates.items():
            error = 0.5 * math.sqrt(2 / max(n, 1))
            assert value == pytest.approx(true[metric][2, j], abs=4 * error, nan_ok=True), (metric, j)
    assert true["recall"][0, 2] == 0
    assert true["auroc"][0, 2] == 0.5
    assert math.isnan(true["precision"][0, 2])


def test_chance_has_the_values_of_independent_calls(second_world: Any) -> None:
    """Precision is the prevalence p, recall and false positive rate are both q, F1 is 2 p q / (p + q)."""
    world = second_world.SecondWorld("chance-of-three", PREVALENCE, is_chance=True)
    true = second_world.population(world, 200_000)
    p, q = true["precision"], true["recall"]
    assert p[0] == pytest.approx(PREVALENCE, abs=0.02)
    assert 1 - true["specificity"] == pytest.approx(q, abs=0.01)
    assert true["f1"] == pytest.approx(2 * p * q / (p + q), abs=1e-9)
    assert true["cohen_kappa"] == pytest.approx(0, abs=0.015)
    assert true["auroc"] == pytest.approx(0.5, abs=0.01)
    assert true["average_precision"] == pytest.approx(p, abs=0.01)


def test_the_first_system_is_worse_by_every_metric_where_it_should_be(second_world: Any) -> None:
    world = next(world for world in second_world.SECOND_WORLDS if world.name == "second-worse")
    for metric, (first, other) in second_world.population(world, 60_000).items():
        assert first.mean() < other.mean() - 0.02, metric
