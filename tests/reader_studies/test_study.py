"""Tables of readings, and figures of merit without each patient in turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score, recall_score, roc_auc_score

import reveal_bench as rb
from reveal_bench.reader_studies.study import FIGURES, beside_readers, figures_of, read_study, two_valued_readings
from tests.reader_studies.studies import drawn


def lroc_area(truth: np.ndarray[Any, Any], scores: np.ndarray[Any, Any], located: np.ndarray[Any, Any]) -> float:
    """Every pair of a case with and one without, one after another."""
    pairs = [
        (float(scores[i] > scores[j]) + float(scores[i] == scores[j]) / 2) * float(located[i])
        for i in np.flatnonzero(truth == 1)
        for j in np.flatnonzero(truth == 0)
    ]
    return float(np.mean(pairs))


ORACLES: dict[str, Callable[..., float]] = {
    "auc": roc_auc_score,
    "sensitivity": recall_score,
    "specificity": lambda truth, called: recall_score(truth, called, pos_label=0),
    "accuracy": accuracy_score,
    "kappa": cohen_kappa_score,
    "hit_rate": lambda truth, called: called.mean(),
}


def test_every_figure_of_merit_has_an_oracle() -> None:
    assert {*ORACLES, "lroc"} == {*FIGURES}


@pytest.mark.parametrize("merit", ORACLES)
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


@pytest.mark.parametrize("merit", ["auc", "kappa"])
def test_readers_of_different_cases_have_figures_of_their_own(rng: np.random.Generator, merit: str) -> None:
    """scikit-learn on what each reader read, whole and without each patient of all readers together."""
    study = drawn(rng, t=2, r=3, n=48, per_patient=2)
    scores = study.scores.copy() if merit == "auc" else (study.scores > 3).astype(float)
    scores[:, 0, 24:], scores[:, 1, :24], scores[:, 2, ::3] = np.nan, np.nan, np.nan
    truth = (np.arange(48) % 4 < 2).astype(np.int64)
    study = replace(study, scores=scores, truth=truth)
    figures, covariance = figures_of(study, merit)
    read = ~np.isnan(scores)

    def of(kept: np.ndarray[Any, Any]) -> list[float]:
        return [
            ORACLES[merit](truth[read[i, j] & kept], scores[i, j, read[i, j] & kept]) for i in (0, 1) for j in range(3)
        ]

    assert figures.ravel() == pytest.approx(of(np.ones(48, bool)))
    left_out = np.array([of(study.patients != p) for p in range(24)])
    assert covariance == pytest.approx(23 * np.cov(left_out.T, bias=True))
    own = np.array([[row for row in range(6) if row % 3 == j] for j in (0, 1)])
    assert np.abs(covariance[np.ix_(own[0], own[1])]).max() < 0.05 * covariance.diagonal().min()  # no common patient


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
    ("rows", "message"),
    [
        ([], "`rows` must have a reading, got none"),
        ([{"reader": "R1", "case": "a"}], "must have the columns reader, case, score, got no score among reader, case"),
        (changed(3, score=float("nan")), "must have a number as `score`, in row 4, got nan"),
        (changed(3, score="high"), "must have a number as `score`, in row 4, got 'high'"),
        (changed(0, truth=" "), "must have a `truth` in every row, got none in row 1"),
        (changed(3, truth=2), "must have 0 or 1 as `truth`, in row 4, got 2"),
        (changed(4, truth=0), "must give each case one truth, but row 5 contradicts the earlier 1 of case 'a', got 0"),
        (ROWS[:-1], "1 of 16 readings are missing, got none of case 'd' by reader 'R2' with modality 'DX'"),
        ([*ROWS, ROWS[0]], "must have each reading once, but row 17 repeats row 1"),
        (
            [{"treatment" if name == "modality" else name: value for name, value in row.items()} for row in ROWS],
            "repeats row 1, and no column `modality` names the modalities",
        ),
    ],
)
def test_a_table_that_is_no_study_is_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_study(rows)


@pytest.mark.parametrize(
    ("rows", "merit", "message"),
    [
        (ROWS, "f1", "`merit` must be one of auc, lroc, sensitivity, specificity, accuracy, kappa, hit_rate, got 'f1'"),
        (ROWS, "kappa", "`score` must be 0 or 1 for kappa, got 5"),
        ([{k: v for k, v in row.items() if k != "truth"} for row in ROWS], "auc", "`truth` must be a column"),
        ([row | {"truth": int(row["case"] == "a")} for row in ROWS], "auc", "1 positive cases"),
        ([row | {"truth": 0} for row in ROWS], "auc", "0 positive cases"),
        ([row | {"patient": "p"} for row in ROWS], "auc", "must have at least two patients, got 1"),
    ],
)
def test_a_figure_that_is_undefined_is_refused(rows: list[dict[str, Any]], merit: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        figures_of(read_study(rows), merit)


def test_constant_scores_have_an_area_of_a_half() -> None:
    figures, covariance = figures_of(read_study([row | {"score": 3} for row in ROWS]), "auc")
    assert (figures == 0.5).all()
    assert (covariance == 0).all()


def test_readers_may_have_read_different_cases_where_that_is_said() -> None:
    rows = [row for row in ROWS if (row["reader"], row["case"]) not in {("R1", "a"), ("R2", "d")}]
    study = read_study(rows, partly_crossed=True)
    assert np.isnan(study.scores[:, :, study.cases.index("a")]).tolist() == [[True, False]] * 2
    with pytest.raises(ValueError, match=r"or `partly_crossed` must be set; 4 of 16 readings are missing"):
        read_study(rows)
    with pytest.raises(ValueError, match=r"with every modality; 1 of 12 readings are missing, got none of case 'c' by"):
        read_study(rows[:-1], partly_crossed=True)


NESTED = [row for row in ROWS if (row["reader"], row["modality"]) in {("R1", "CR"), ("R2", "DX")}]


def test_readers_may_be_nested_in_modalities_where_that_is_said() -> None:
    study = read_study(NESTED, nested=True)
    assert np.isnan(study.scores).all(axis=2).tolist() == [[False, True], [True, False]]
    assert two_valued_readings(study) is None
    with pytest.raises(ValueError, match="every modality, or `nested` must be set, got one modality for each reader"):
        read_study(NESTED)
    with pytest.raises(
        ValueError, match=r"1 of 8 readings are missing, got none of case 'd' by reader 'R2' with .*'DX'"
    ):
        read_study(NESTED[:-1], nested=True)
    assert len(read_study(NESTED[:-1], nested=True, partly_crossed=True).cases) == 4
    with pytest.raises(ValueError, match="readers who read with one of them, got R1"):
        read_study([row for row in ROWS if row["reader"] == "R1" or row["modality"] == "DX"], nested=True)
    with pytest.raises(ValueError, match=r"needs several modalities .*, got one modality"):
        read_study([row for row in ROWS if row["modality"] == "CR"], nested=True)


def test_the_result_of_nested_readers_has_only_their_own_figures() -> None:
    """By hand: every reader of NESTED has an area of 1, and R3 and R4 with reversed scores one of 0."""
    rows = NESTED + [row | {"reader": f"R{int(row['reader'][1]) + 2}", "score": -row["score"]} for row in NESTED]
    more = [row | {"case": row["case"] * 2} for row in rows]
    result = rb.readers(rows + more, nested=True)
    assert {(one["modality"], one["reader"]): one["value"] for one in result.by_reader()} == {
        ("CR", "R1"): 1, ("DX", "R2"): 1, ("CR", "R3"): 0, ("DX", "R4"): 0,
    }  # fmt: skip
    assert result.caption.startswith(
        "AUC of 4 readers, each with one modality, on 8 cases of 8 patients, readers random"
    )
    with pytest.raises(ValueError, match=r"`pilot` must come from a study with two modalities .*, got no interaction"):
        rb.plan_readers(result, difference=0.1)


def test_a_system_must_have_read_what_readers_read() -> None:
    rows = [row for row in ROWS if row["modality"] == "CR" and (row["reader"], row["case"]) != ("R1", "a")]
    study = read_study(rows, partly_crossed=True)
    assert np.isnan(beside_readers(study, "R2").scores[0, 0]).tolist() == np.isnan(study.scores[0, 0]).tolist()
    with pytest.raises(
        ValueError, match=r"every case that another reader read, but 1 are missing, got no reading of .*'a'"
    ):
        beside_readers(study, "R1")


def readings_by(reader: str, scores: tuple[float, ...], **more: Any) -> list[dict[str, Any]]:
    return [
        {"reader": reader, "case": case, "score": score, "truth": int(case in "abc")} | more
        for case, score in zip("abcdef", scores, strict=True)
    ]


GRADED, DECIDED = (0.9, 0.8, 0.3, 0.4, 0.2, 0.1), (1, 1, 0, 1, 0, 0)
"""Scores and decisions on three positive and three negative cases; the decisions have a specificity of 2 / 3."""


@pytest.mark.parametrize("low_high", [(0, 1), (1, 2), (-1, 100)])
def test_decisions_beside_scores_are_noticed(low_high: tuple[int, int]) -> None:
    decided = tuple(low_high[one] for one in DECIDED)
    rows = readings_by("A", decided) + readings_by("model", GRADED) + readings_by("B", decided)
    result = two_valued_readings(read_study(rows))
    assert result is not None
    assert (result.readers, result.others, result.specificity) == (("A", "B"), ("model",), pytest.approx(2 / 3))


def test_decisions_in_one_modality_are_noticed() -> None:
    rows = [row for m, s in (("old", GRADED), ("new", DECIDED)) for row in readings_by("A", s, modality=m)]
    result = two_valued_readings(read_study(rows))
    assert result is not None
    assert (result.readers, result.others) == (("A with new",), ("A with old",))


@pytest.mark.parametrize("scores", [GRADED, DECIDED, (1, 1, 1, 2, 3, 3)])
def test_readings_of_one_scale_are_comparable(scores: tuple[float, ...]) -> None:
    assert two_valued_readings(read_study(readings_by("A", scores) + readings_by("B", scores[::-1]))) is None


def test_the_result_warns_of_areas_of_decisions() -> None:
    rows = readings_by("A", DECIDED) + readings_by("B", DECIDED[::-1]) + readings_by("model", GRADED)
    result = rb.readers(rows, system="model")
    (warning,) = result.warnings
    assert warning.startswith("AUC is not comparable between the scores of model and the readings of A, B, which have")
    assert (
        "sensitivity at the readers' specificity, 0.500 on average (`operating-points --specificity 0.500`)" in warning
    )
    assert "(`curves --reader`)" in warning
    assert result.caption.endswith("; scores are compared with two-valued readings: see `warnings`")
    same = rb.readers([row | {"score": row["score"] > 0.5} for row in rows], system="model", merit="sensitivity")
    assert same.warnings == []


def test_places_count_in_the_lroc_area(rng: np.random.Generator) -> None:
    """Two of four pairs by hand; then every pair, without each patient, of readers and beside a system."""
    cases = [("a", 1, 5.0, 1), ("b", 1, 4.0, 0), ("c", 0, 3.0, None), ("d", 0, 4.5, None)]
    rows = [
        {"reader": reader, "case": case, "truth": truth, "score": score, "located": place}
        for reader in ("R1", "R2", "R3") for case, truth, score, place in cases
    ]  # fmt: skip
    study = read_study(rows)
    assert study.located is not None
    assert study.located[0, 0].tolist() == [True, False, False, False]
    assert figures_of(study, "lroc")[0].tolist() == [[0.5] * 3]
    assert figures_of(study, "auc")[0].tolist() == [[0.75] * 3]
    drawing = drawn(rng, t=1, r=3, n=30, per_patient=2)
    drawing = replace(drawing, located=rng.random(drawing.scores.shape) < 0.7)
    beside = beside_readers(drawing, "r1")
    figures, covariance = figures_of(beside, "lroc")

    def of(kept: np.ndarray[Any, Any]) -> list[float]:
        places = [drawing.located[0, j] for j in (1, 1, 0, 2)] if drawing.located is not None else []
        return [
            lroc_area(drawing.truth[kept], drawing.scores[0, j, kept], place[kept])
            for j, place in zip((1, 1, 0, 2), places, strict=True)
        ]

    assert figures.ravel() == pytest.approx(of(np.ones(30, bool)))
    left_out = np.array([of(drawing.patients != p) for p in range(15)])
    assert covariance == pytest.approx(14 * np.cov(left_out.T, bias=True))


@pytest.mark.parametrize("column", ["patient", "modality"])
@pytest.mark.parametrize("blank", ["", None, float("nan"), "absent"])
@pytest.mark.parametrize("number", [0, 5, 15])
def test_a_blank_cell_is_refused_in_any_row(column: str, blank: Any, number: int) -> None:
    """A blank cell in row 1 once made the whole column absent."""
    rows = [row | {"patient": row["case"]} for row in ROWS]
    rows[number][column] = blank
    if blank == "absent":  # as tables without empty cells have it
        del rows[number][column]
    with pytest.raises(ValueError, match=f"must have a `{column}` in every row, got none in row {number + 1}$"):
        read_study(rows)


def test_blank_cells_are_named_by_their_rows() -> None:
    rows = [row | {"patient": "" if i < 13 else "p"} for i, row in enumerate(ROWS)]
    with pytest.raises(ValueError, match=r"got none in rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 3 more$"):
        read_study(rows)
    assert read_study([row | {"patient": ""} for row in ROWS]).patients.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("order", [1, -1])
def test_places_are_needed_only_in_positive_cases(order: int) -> None:
    """By hand: R1 located one of two findings, both scored above the negative cases, so half of the pairs count."""
    rows = [row | {"located": int(row["case"] == "a") if row["truth"] else ""} for row in ROWS][::order]
    assert figures_of(read_study(rows), "lroc")[0] == pytest.approx(np.full((2, 2), 0.5))
    numbers = [i for i, row in enumerate(rows, start=1) if row["case"] == "b"]
    blank = [row | ({"located": " "} if row["case"] == "b" else {}) for row in rows]
    message = f"must have a `located` in every row with truth 1, got none in rows {', '.join(map(str, numbers))}"
    with pytest.raises(ValueError, match=message):
        read_study(blank)
    with pytest.raises(ValueError, match="`located` must be a column of the table for lroc, got none"):
        figures_of(read_study([row | {"located": ""} for row in rows]), "lroc")


def test_places_are_needed_for_the_lroc_area() -> None:
    with pytest.raises(ValueError, match="`located` must be a column of the table for lroc, got none"):
        figures_of(read_study(ROWS), "lroc")
    with pytest.raises(ValueError, match="must have 0 or 1 as `located`, in row 1, got 'left lung'"):
        read_study([row | {"located": "left lung"} for row in ROWS])
