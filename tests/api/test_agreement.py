"""``rb.agreement``: all pairs of readers, checked by hand and against scikit-learn, and its errors."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import reveal_bench as rb
from reveal_bench.api.reader_agreement import AGREEMENT_METRICS
from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import app
from reveal_bench.cli.analyses import AgreementMetric

Rows = list[dict[str, Any]]


def rating_rows(reader: str, scores: str) -> Rows:
    """Return one row per case; a dot marks a case that the reader did not rate."""
    return [
        {"reader": reader, "case": f"c{i}", "score": score} for i, score in enumerate(scores.split()) if score != "."
    ]


def test_two_readers_by_hand() -> None:
    # A calls 10 of 20 cases and B calls 5 others. Chance is 1/2 1/4 + 1/2 3/4 = 1/2 and agreement is 5/20, so kappa is
    # -1/2, its minimum. The interval is Wilson's for 0 in three quarters of the 15 called cases, on a scale of 3/2.
    # C shares only the first 11 cases with A and with B, fewer than 12.
    a, b = rating_rows("A", "yes " * 10 + "no " * 10), rating_rows("B", "no " * 10 + "yes " * 5 + "no " * 5)
    result = rb.agreement([*a, *b, *rating_rows("C", "yes " * 11)])
    first, second, third = result.pairs
    square = norm.ppf(0.975) ** 2
    assert (first.reader_a, first.reader_b, first.n, first.estimate.value) == ("A", "B", 20, -0.5)
    assert (first.estimate.low, first.estimate.high) == pytest.approx((-0.5, -0.5 + 1.5 * square / (11.25 + square)))
    assert (second.n, second.estimate.value) == (11, 0)  # C always says yes, so the agreement of 10/11 equals chance
    assert (third.n, third.estimate.value) == (11, 0)
    assert math.isnan(second.estimate.low)
    assert math.isnan(third.estimate.low)
    assert result.caption.endswith("over patients; none if too few patients support a score")
    assert result.printed_rows()[1] == {"reader": "A", "and": "C", "n": "11", "value": "0.000", "95% interval": ""}


@pytest.mark.parametrize(("metric", "weights"), [("cohen_kappa", None), ("cohen_kappa_quadratic", "quadratic")])
def test_findings_and_numbers_equal_scikit_learn(metric: str, weights: str | None, rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score

    scores = rng.integers(1, 5, (3, 2, 40))  # readers, findings, cases of 20 patients
    table = [
        {"rater": f"R{r}", "case": i, "score": str(scores[r, f, i]), "patient": i // 2, "finding": name}
        for r in range(3)
        for f, name in enumerate(("Edema", "Mass"))
        for i in range(40)
    ]
    result = rb.agreement(table, metric=metric, columns={"reader": "rater"})
    assert (result.n_cases, result.n_patients, result.categories) == (40, 20, (1, 2, 3, 4))
    assert [pair.finding for pair in result.pairs] == ["macro", "Edema", "Mass"] * 3
    for pair in result.pairs:
        a, b = (int(name[1:]) for name in (pair.reader_a, pair.reader_b))
        each = [cohen_kappa_score(scores[a, f], scores[b, f], weights=weights) for f in (0, 1)]
        expected = {"macro": np.mean(each), "Edema": each[0], "Mass": each[1]}
        assert pair.estimate.value == pytest.approx(expected[pair.finding])
        assert pair.estimate.low < pair.estimate.value < pair.estimate.high
        assert pair.n == 40


def test_readers_without_a_common_case_have_no_agreement() -> None:
    result = rb.agreement([*rating_rows("A", "1 2 . ."), *rating_rows("B", ". . 1 2")])
    (pair,) = result.pairs
    assert pair.n == 0
    assert math.isnan(pair.estimate.value)
    assert result.printed_rows()[0]["value"] == "-"


def test_cases_of_an_undefined_kappa_are_counted() -> None:
    rows = [{"reader": reader, "case": case, "score": 1} for reader in "ab" for case in "xyz"]
    for metric in ("cohen_kappa", "fleiss_kappa"):
        (record,) = rb.agreement(rows, metric=metric).records
        assert record["n"] == 3
        assert math.isnan(record["value"])


def test_command_and_function_agree(tmp_path: Path) -> None:
    rows = [*rating_rows("A", "low high " * 8), *rating_rows("B", "low mid " * 8)]
    file = tmp_path / "ratings.csv"
    with file.open("w", newline="") as written:
        table = csv.DictWriter(written, ["reader", "case", "score"])
        table.writeheader()
        table.writerows(rows)
    options = ["--metric", "cohen_kappa_linear", "--categories", "low,mid,high", "--format", "csv"]
    done = CliRunner().invoke(app, ["agreement", str(file), *options], catch_exceptions=False)
    expected = rb.agreement(rows, metric="cohen_kappa_linear", categories=["low", "mid", "high"])
    assert done.output == expected.to_csv()
    assert get_args(AgreementMetric) == AGREEMENT_METRICS


def test_all_readers_together_of_a_printed_example(tmp_path: Path) -> None:
    # Krippendorff 2011, section C: four observers, 12 units, 7 ratings missing; the last unit has one rating
    rows = [
        *rating_rows("A", "1 2 3 3 2 1 4 1 2 . . ."),
        *rating_rows("B", "1 2 3 3 2 2 4 1 2 5 . 3"),
        *rating_rows("C", ". 3 3 3 2 3 4 2 2 5 1 ."),
        *rating_rows("D", "1 2 3 3 2 4 4 1 2 5 1 ."),
    ]
    for metric, value in (("", 0.743), ("_ordinal", 0.815), ("_interval", 0.849)):
        result = rb.agreement(rows, metric=f"krippendorff_alpha{metric}")
        (row,) = result.together
        assert not result.pairs
        assert (row.n_readers, row.n, round(row.estimate.value, 3)) == (4, 11, value)
    assert result.printed_rows() == [{"readers": "4", "n": "11", "value": "0.849", "95% interval": ""}]
    assert "interval of 4 readers together, 12 cases of 12 patients: " in result.caption
    assert rb.agreement(rows, metric="icc_2_1").together[0].n == 8  # those that all four rated
    file = tmp_path / "ratings.csv"
    file.write_text("reader,case,score\n" + "".join(f"{r['reader']},{r['case']},{r['score']}\n" for r in rows))
    words = ["agreement", str(file), "--metric", "krippendorff_alpha_interval", "--format", "json"]
    document = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)
    assert set(document) == {"schema", "metric", "categories", "together"}
    assert document["together"][0]["value"] == row.estimate.value


def test_findings_of_all_readers_have_a_macro(rng: np.random.Generator) -> None:
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    truth = rng.integers(0, 3, (60, 1))
    scores = {name: np.where(rng.random((60, 3)) < 0.8, truth, rng.integers(0, 3, (60, 3))) for name in ("a", "b")}
    rows = [
        {"reader": f"R{r}", "case": i, "score": ("no", "maybe", "yes")[own[i, r]], "finding": name}
        for name, own in scores.items()
        for i in range(60)
        for r in range(3)
    ]
    macro, a, b = rb.agreement(rows, metric="fleiss_kappa").together
    expected = [fleiss_kappa(aggregate_raters(own, n_cat=3)[0]) for own in scores.values()]
    assert [a.estimate.value, b.estimate.value] == pytest.approx(expected, abs=1e-12)
    assert (macro.finding, macro.estimate.value, macro.n) == ("macro", pytest.approx(np.mean(expected)), 60)
    assert macro.estimate.low < macro.estimate.value < macro.estimate.high
    with pytest.raises(ArgumentError, match="`categories` must be given in their order for icc_2_1"):
        rb.agreement(rows, metric="icc_2_1")


TWO = [*rating_rows("A", "yes no"), *rating_rows("B", "no no")]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "`table` must contain at least one rating, got none"),
        (rating_rows("A", "1 2"), {}, "`table` must have at least two readers, got A"),
        ([{"reader": "A", "case": "c"}], {}, "`table` must have the columns reader, case, score, got no score"),
        ([*TWO, TWO[1]], {}, "`table` must have each rating once, but row 5 repeats one, got ('A', 'c1', 'all')"),
        ([*TWO, TWO[1] | {"score": ""}], {}, "`table` must have a `score` in row 5, got none"),
        ([*TWO, {"reader": "A", "case": "c2", "score": 0.5}], {}, "`table[5].score` must be a category"),
        ([*TWO, {"reader": "A ", "case": "c2", "score": "NA"}], {}, "`table[5].score` must be a category"),
        (
            [row | {"patient": row["reader"]} for row in TWO],
            {},
            "`table` must give each case one patient, but row 3 gives case 'c0' another than 'A', got 'B'",
        ),
        (TWO, {"metric": "f1"}, "`metric` must be one of cohen_kappa, "),
        (TWO, {"metric": "cohen_kappa_linear"}, "`categories` must be given in their order for cohen_kappa_linear"),
        (TWO, {"categories": ["yes"]}, "`categories` must include every score in the table, such as 'no', got ['yes']"),
        (TWO, {"columns": {"rater": "R"}}, "`columns` must name reader, case, score, patient, finding, got ['rater']"),
    ],
)
def test_bad_input_is_refused(rows: Rows, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        rb.agreement(rows, **options)
    assert str(caught.value).startswith(message)
