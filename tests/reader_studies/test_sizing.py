"""Power and sizes of planned reader studies: RJafroc's printed results with Van Dyke's study as the pilot, and
simulation.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import app
from reveal_bench.reader_studies.analysis import Components
from reveal_bench.reader_studies.sizing import Pilot, Target, fewest_cases, power_of

VAN_DYKE = {
    "variance": 8.0228827e-4, "cov_1": 3.4661371e-4, "cov_2": 3.4407485e-4, "cov_3": 2.3902837e-4,
    "interaction": 0.0002004025, "n_cases": 114,
}  # fmt: skip
"""Printed by MRMCaov and RJafroc: five readers, 114 cases (Van Dyke et al. 1993)."""
DIFFERENCE = 0.043800322


def pilot() -> Pilot:
    numbers = {name: value for name, value in VAN_DYKE.items() if name != "n_cases"}
    return Pilot(Components(**numbers, reader=math.nan), 114)


def test_power_of_van_dyke_is_what_is_printed() -> None:
    """RJafrocBook, chapters on sizes: its noncentrality is of F, the square of ours."""
    result = power_of(pilot(), Target(DIFFERENCE), n_readers=6, n_cases=112)
    assert result.power == pytest.approx(0.5555789, abs=1e-7)
    assert result.noncentrality**2 == pytest.approx(4.80, abs=0.005)
    assert result.freedom == pytest.approx(23.1, abs=0.05)
    assert result.n_readings == 2 * 6 * 112
    result = power_of(pilot(), Target(DIFFERENCE), n_readers=10, n_cases=163)
    assert (result.noncentrality**2, result.power) == pytest.approx((8.1269825, 0.8015625), abs=2e-6)
    of_cases = power_of(pilot(), Target(DIFFERENCE, cases_are="fixed"), n_readers=10, n_cases=53)
    assert (of_cases.noncentrality**2, of_cases.power) == pytest.approx((10.048716, 0.8049666), abs=2e-6)
    assert of_cases.freedom == 9
    of_readers = power_of(pilot(), Target(DIFFERENCE, readers_are="fixed"), n_readers=10, n_cases=133)
    assert of_readers.noncentrality**2 == pytest.approx(7.9873835, abs=3e-6)
    assert of_readers.power == pytest.approx(0.8011167, abs=0.006)  # printed with 132 degrees of freedom, ours infinite


@pytest.mark.parametrize(
    ("n_readers", "n_cases", "power"),
    [(4, 1089, 0.8), (5, 344, 0.801), (6, 251, 0.801), (7, 211, 0.801), (8, 188, 0.801), (9, 173, 0.801),
     (10, 163, 0.802), (15, 137, 0.802), (30, 116, 0.802), (100, 103, 0.8)],
)  # fmt: skip
def test_cases_needed_are_those_printed(n_readers: int, n_cases: int, power: float) -> None:
    result = fewest_cases(pilot(), Target(DIFFERENCE), n_readers=n_readers)
    assert (result.n_cases, round(result.power, 3)) == (n_cases, power)


def test_more_power_needs_more_cases_and_three_readers_never_reach_it() -> None:
    result = fewest_cases(pilot(), Target(DIFFERENCE), n_readers=10, power=0.9)
    assert (result.n_cases, result.power) == (236, pytest.approx(0.9003501, abs=5e-8))
    none = fewest_cases(pilot(), Target(DIFFERENCE), n_readers=3)
    assert (none.n_cases, none.n_readings) == (None, None)
    assert none.power == power_of(pilot(), Target(DIFFERENCE), n_readers=3, n_cases=2000).power < 0.8


def test_non_inferiority_holds_in_simulated_studies(rng: np.random.Generator) -> None:
    """Mean squares and differences of many studies drawn from the model: the share whose interval is above -margin."""
    from scipy.stats import t

    n_studies, r, n, margin, difference = 40_000, 6, 150, 0.05, -0.005
    planned = power_of(pilot(), Target(difference, margin=margin), n_readers=r, n_cases=n)
    share = 114 / n
    shared = share * (VAN_DYKE["cov_2"] - VAN_DYKE["cov_3"])
    own = VAN_DYKE["interaction"] + share * (VAN_DYKE["variance"] - VAN_DYKE["cov_1"]) - shared
    # Differences of a reader: variance 2 own of the reader alone, 2 shared of all readers together
    of_readers = np.sqrt(2 * own) * rng.standard_normal((n_studies, r))
    differences = difference + of_readers + np.sqrt(2 * shared) * rng.standard_normal((n_studies, 1))
    mean_square = differences.var(axis=1, ddof=1) / 2
    error = mean_square + r * shared
    freedom = error**2 / (mean_square**2 / (r - 1))
    low = differences.mean(axis=1) - t.ppf(0.975, freedom) * np.sqrt(2 * error / r)
    assert np.mean(low > -margin) == pytest.approx(planned.power, abs=0.02)
    assert planned.error == pytest.approx(np.sqrt(2 * (own + r * shared) / r))


def table(rng: np.random.Generator) -> list[dict[str, Any]]:
    truth = np.arange(60) % 2
    return [
        {"reader": f"R{r}", "case": f"c{i}", "modality": m, "truth": int(one), "score": float(one + rng.normal())}
        for r in range(4) for m in ("a", "b") for i, one in enumerate(truth)
    ]  # fmt: skip


def test_table_result_and_components_plan_the_same(rng: np.random.Generator) -> None:
    rows = table(rng)
    study = rb.readers(rows)
    plans = [rb.plan_readers(inputs, difference=0.08, n_readers=8) for inputs in (rows, study, study.components)]
    assert plans[0].records == plans[1].records == plans[2].records
    assert plans[0].records[0]["power"] >= 0.8
    asked = rb.plan_readers(study, difference=0.08, n_readers=8, n_cases=[plans[0].records[0]["n_cases"] - 1])
    assert asked.records[0]["power"] < 0.8


def test_the_command_takes_what_the_analysis_tells(tmp_path: Path, rng: np.random.Generator) -> None:
    file = tmp_path / "readings.json"
    file.write_text(json.dumps(table(rng)), encoding="utf-8")
    invoke = CliRunner().invoke
    output = json.loads(invoke(app, ["readers", str(file), "--json"]).output)["components"]
    inputs = [word for name, value in output.items() for word in ("--component", f"{name}={value!r}")]
    words = ["--difference", "0.08", "--readers", "3,8", "--format", "csv"]
    assert (
        invoke(app, ["plan-readers", *inputs, *words]).output == invoke(app, ["plan-readers", str(file), *words]).output
    )
    plan = rb.plan_readers(VAN_DYKE, difference=DIFFERENCE, n_readers=[3, 4])
    assert [row["cases"] for row in plan.printed_rows()] == ["over 2,000", "1,089"]
    assert "None" not in plan.to_latex()


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (VAN_DYKE, {}, "`difference` must be the true difference .* such as 0.05, or `margin` must be given"),
        (VAN_DYKE, {"difference": 0}, "got 0.0"),
        (VAN_DYKE, {"difference": "much"}, "`difference` must be a number, got 'much'"),
        (VAN_DYKE, {"margin": -1}, "`margin` must be above 0, got -1.0"),
        (VAN_DYKE, {"margin": 0.05, "difference": -0.05}, "`difference` must be above minus the margin"),
        (VAN_DYKE, {"difference": 0.1, "n_readers": 1}, "`n_readers` must be at least 2 if readers are random"),
        (VAN_DYKE, {"difference": 0.1, "n_readers": [4.5]}, "`n_readers` must be whole numbers from 1 .*, got 4.5"),
        (VAN_DYKE, {"difference": 0.1, "n_readers": []}, "`n_readers` must be whole numbers"),
        (VAN_DYKE, {"difference": 0.1, "n_cases": 1}, "`n_cases` must be at least 2, got 1"),
        (VAN_DYKE, {"difference": 0.1, "n_cases": 9, "power": 0.8}, "`power` must be omitted if `n_cases` is given"),
        (VAN_DYKE, {"difference": 0.1, "power": 80}, "`power` must be between 0 and 1, such as 0.8, got 80"),
        (VAN_DYKE, {"difference": 0.1, "readers_are": "fixed", "cases_are": "fixed"}, "otherwise nothing varies"),
        ({"variance": 1}, {"difference": 0.1}, "or a mapping with a number for each of variance, .*, got no cov_1"),
        (VAN_DYKE | {"cov": 1}, {"difference": 0.1}, "got cov$"),
        (VAN_DYKE | {"cov_1": 1}, {"difference": 0.1}, "`pilot` must have a variance above cov_1"),
        (VAN_DYKE | {"cov_1": None}, {"difference": 0.1}, r"`pilot\[cov_1\]` must be a number, got nan"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(inputs: dict[str, float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        rb.plan_readers(inputs, **options)


def test_one_modality_is_no_pilot(rng: np.random.Generator) -> None:
    with pytest.raises(ArgumentError, match=r"two modalities and two or more readers, .* got no interaction"):
        rb.plan_readers([row for row in table(rng) if row["modality"] == "a"], difference=0.1)


def test_a_study_beside_a_system_is_planned_with_the_readings_of_readers(rng: np.random.Generator) -> None:
    rows = [row for row in table(rng) if row["modality"] == "a"]
    study = rb.readers(rows, system="R3")
    assert study.analysis.modalities == ("R3", "readers")
    assert study.caption.startswith("AUC of 3 readers and R3 on 60 cases")
    options: dict[str, Any] = {"difference": 0.1, "n_readers": 6, "n_cases": 100}
    plans = [rb.plan_readers(rows, system="R3", **options), rb.plan_readers(study, **options)]
    assert plans[0].records == plans[1].records
    assert plans[0].records[0]["n_readings"] == 600
