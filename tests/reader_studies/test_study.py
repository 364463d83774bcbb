"""Tables of readings, and figures of merit without each patient in turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score, recall_score, roc_auc_score

from reveal_bench.reader_studies.study import FIGURES, figures_of, read_study
from tests.reader_studies.studies import drawn

ORACLES: dict[str, Callable[..., float]] = {
    "auc": roc_auc_score,
    "sensitivity": recall_score,
    "specificity": lambda truth, called: recall_score(truth, called, pos_label=0),
    "accuracy": accuracy_score,
    "kappa": cohen_kappa_score,
    "hit_rate": lambda truth, called: called.mean(),
}


def test_every_figure_of_merit_has_an_oracle() -> None:
    assert ORACLES.keys() == FIGURES.keys()


@pytest.mark.parametrize("merit", FIGURES)
@pytest.mark.parametrize("per_patient", [1, 3])
def test_figures_and_their_covariance_equal_deletion_of_each_patient(
    rng: np.random.Generator, merit: str, per_patient: int
) -> None:
    study = drawn(rng, t=2, r=2, n=36, per_patient=per_patient)
    if merit != "auc":
        study = replace(study, scores=(study.scores > 3).astype(float))
    oracle, patients = ORACLES[merit], np.unique(study.patients)
    figures, covariance = figures_of(study, merit)
    flat = study.scores.reshape(4, -1)
    assert figures.ravel() == pytest.approx([oracle(study.truth, scores) for scores in flat])
    left_out = np.array([
        [oracle(study.truth[study.patients != p], scores[study.patients != p]) for scores in flat] for p in patients
    ])  # fmt: skip
    expected = (len(patients) - 1) * np.cov(left_out.T, bias=True)
    assert covariance == pytest.approx(expected)


ROWS = [
    {"reader": reader, "case": case, "modality": modality, "score": score, "truth": int(case in "ab")}
    for reader in ("R1", "R2")
    for modality in ("CR", "DX")
    for case, score in zip("abcd", (5, 3, 2, 1), strict=True)
]


def test_a_table_is_read_in_its_order() -> None:
    study = read_study(ROWS)
    assert (study.modalities, study.readers, study.cases) == (("CR", "DX"), ("R1", "R2"), ("a", "b", "c", "d"))
    assert study.scores[1, 0].tolist() == [5, 3, 2, 1]
    assert study.truth.tolist() == [1, 1, 0, 0]
    assert study.patients.tolist() == [0, 1, 2, 3]


def test_columns_may_have_other_names_and_be_left_out() -> None:
    rows = [{"who": "R1", "study": case, "p": 0.5, "person": "x"} for case in "ab"]
    study = read_study(rows, {"reader": "who", "case": "study", "score": "p", "patient": "person"})
    assert (study.modalities, study.truth.tolist(), study.patients.tolist()) == (("all",), [-1, -1], [0, 0])


def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    return [row | (values if i == number else {}) for i, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "`rows` must hold a reading, got none"),
        ([{"reader": "R1", "case": "a"}], "must have the columns reader, case, score, got no score among reader, case"),
        (changed(3, score=float("nan")), "must have a number as `score`, in row 4, got nan"),
        (changed(3, score="high"), "must have a number as `score`, in row 4, got 'high'"),
        (changed(3, truth=2), "must have 0 or 1 as `truth`, in row 4, got 2"),
        (changed(4, truth=0), "must give a case one truth, in row 5 case 'a' has another than 1, got 0"),
        (ROWS[:-1], "1 of 16 readings are missing, got none of case 'd' by reader 'R2' with modality 'DX'"),
        ([*ROWS, ROWS[0]], "must hold a reading once, row 17 is row 1 again"),
    ],
)
def test_a_table_that_is_no_study_is_refused(rows: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        read_study(rows)


@pytest.mark.parametrize(
    ("rows", "merit", "told"),
    [
        (ROWS, "f1", "`merit` must be one of auc, sensitivity, specificity, accuracy, kappa, hit_rate, got 'f1'"),
        (ROWS, "kappa", "`score` must be 0 or 1 for kappa, got 5"),
        ([{k: v for k, v in row.items() if k != "truth"} for row in ROWS], "auc", "`truth` must be a column"),
        ([row | {"truth": int(row["case"] == "a")} for row in ROWS], "auc", "1 cases with"),
        ([row | {"truth": 0} for row in ROWS], "auc", "0 cases with"),
        ([row | {"patient": "p"} for row in ROWS], "auc", "must be of at least two patients, got 1"),
    ],
)
def test_a_figure_that_is_undefined_is_refused(rows: list[dict[str, Any]], merit: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        figures_of(read_study(rows), merit)


def test_constant_scores_have_an_area_of_a_half() -> None:
    figures, covariance = figures_of(read_study([row | {"score": 3} for row in ROWS]), "auc")
    assert (figures == 0.5).all()
    assert (covariance == 0).all()
