"""Confidences of whole systems: scores of each kind, intervals, and refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.stats import t
from sklearn.metrics import brier_score_loss

import reveal_bench as rb
from reveal_bench.analyses.calibration import recalibration
from reveal_bench.analyses.confidence import COVERAGES, judge_confidences
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.scored import Confidences
from reveal_bench.reports.curves import confidence_figures
from reveal_bench.reports.style import PANEL
from tests.cli.test_score import call
from tests.dataset.card_folders import LABELS
from tests.kinds.folders import studies, tasks

__all__ = ["studies", "tasks"]


def make_confidences(n: int = 60, *, rare: int = 3) -> Confidences:
    """Two findings of n studies, two studies a patient; `rare` studies have the second."""
    rng = np.random.default_rng(3)
    p = rng.random((n, 2)).round(2)
    y = np.stack([rng.random(n) < p[:, 0], np.arange(n) < rare], axis=1)
    patients = [f"p{i // 2:02d}" for i in range(n)]
    return Confidences(
        "findings present", True, ("a", "b", "never asked"), ["a", "b"] * n, np.repeat(patients, 2).tolist(),
        frozenset(patients), p.ravel(), y.ravel(), np.maximum(p, 1 - p).ravel(), ((p >= 0.5) == y).ravel(), 4,
    )  # fmt: skip


def test_scores_are_those_of_scikit_learn_and_rare_findings_have_no_interval() -> None:
    own = make_confidences()
    results = judge_confidences(own)
    macro, a, b = results.calibration
    p, y = own.probabilities.reshape(-1, 2), own.happened.reshape(-1, 2)
    for i, one in enumerate((a, b)):
        assert one.brier.value == pytest.approx(brier_score_loss(y[:, i], p[:, i]))
        assert one.excess.value == pytest.approx(p[:, i].mean() - y[:, i].mean())
        assert one.brier_of_rate == pytest.approx(brier_score_loss(y[:, i], np.full(60, y[:, i].mean())))
    assert macro.brier.value == pytest.approx((a.brier.value + b.brier.value) / 2)
    assert a.brier.low < a.brier.value < a.brier.high
    assert math.isnan(b.brier.low)
    assert macro.brier.low < macro.brier.value < macro.brier.high
    # The mean's interval by hand: deletion of each patient of finding a, on the plain scale
    excess = (p[:, 0] - y[:, 0]).reshape(30, 2).sum(axis=1)
    without = (excess.sum() - excess) / 58
    d = without - without.mean()
    total = (d**2).sum()
    freedom = 2 * total**2 / ((d**4).sum() - total**2 / 30)
    reach = t.ppf(0.975, freedom) * math.sqrt(29 / 30 * total)
    assert (a.excess.high - a.excess.low) / 2 == pytest.approx(reach, rel=1e-4)


def test_slopes_are_means_over_findings_that_have_one() -> None:
    own = make_confidences()
    p = own.probabilities.clip(0.01, 0.99)
    own = replace(own, probabilities=p)
    macro, a, b = judge_confidences(own).calibration
    fits = [recalibration(p[i::2], own.happened[i::2]) for i in (0, 1)]
    assert [a.slope.value, b.slope.value] == pytest.approx([fit.slope for fit in fits])
    assert macro.slope.value == pytest.approx(np.mean([fit.slope for fit in fits]))
    assert macro.intercept.value == pytest.approx(np.mean([fit.intercept for fit in fits]))
    assert a.slope.low < a.slope.value < a.slope.high
    assert a.intercept.low < a.intercept.value < a.intercept.high
    assert math.isnan(b.slope.low)  # two patients have the second finding
    assert {row.undefined for row in (macro, a, b)} == {""}
    sure = replace(own, probabilities=np.where(np.arange(120) == 1, 0.0, p))  # one case of the second finding
    macro, a, b = judge_confidences(sure).calibration
    assert math.isnan(b.slope.value)
    assert b.undefined == "a probability is 0 or 1"
    assert macro.slope.value == a.slope.value
    assert (macro.slope.low, macro.slope.high) == (a.slope.low, a.slope.high)


def test_figures_leave_out_findings_without_a_case_and_say_so() -> None:
    """Figures of 3 cases of b are last and grey; findings without a case are named in the caption."""
    own = make_confidences()
    reliability, coverage, benefit = confidence_figures(
        judge_confidences(replace(own, groups=("b", "a", "never asked")))
    )
    n = int(own.happened[::2].sum())
    titles = [f"a (n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{n})", "b (n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3)"]
    for one in (reliability, benefit):
        panels = one.draw(180).axes
        assert [axes.get_title(loc="left") for axes in panels] == titles
        assert [to_hex(axes.get_facecolor()) == PANEL for axes in panels] == [False, True]
        assert one.caption.endswith("n: cases with the finding; grey: fewer than 10. Not drawn: never asked (no case).")
    assert coverage.caption.endswith("n: answers. Not drawn: never asked (no case).")
    *_, benefit = confidence_figures(judge_confidences(make_confidences(rare=0)))
    assert len(benefit.draw(180).axes) == 1
    assert benefit.caption.endswith("Not drawn: b, never asked (no case).")
    nothing = judge_confidences(replace(own, happened=np.zeros(len(own), bool)))
    assert [one.name for one in confidence_figures(nothing)] == ["coverage"]


def test_bins_of_five_patients_have_an_interval_and_marks_are_not_joined() -> None:
    own = make_confidences()
    results = judge_confidences(own, n_bins=20)
    p, patients = own.probabilities[::2], np.array(own.case_patients[::2])
    for one in results.bins["a"]:
        inside = (p >= one.low) & ((p < one.high) | (one.high == 1))
        assert one.n == inside.sum()
        assert one.rate.has_interval == (len(set(patients[inside])) >= 5)
    (figure, *_) = confidence_figures(results)
    assert all(len(set(line.get_xdata())) == 1 for line in figure.draw(180).axes[0].lines[1:])


def test_answers_at_a_coverage_are_the_surest() -> None:
    own = make_confidences()
    results = judge_confidences(own)
    assert len(results.answered) == 3 * len(COVERAGES)
    half = next(one for one in results.answered if one.finding == "a" and one.wanted == 0.5)
    sure, right = own.sureness[::2], own.right[::2]
    chosen = sure >= np.sort(sure)[::-1][29]
    assert (half.n, half.coverage) == (chosen.sum(), chosen.mean())
    assert half.risk.value == pytest.approx(1 - right[chosen].mean())
    whole = next(one for one in results.answered if (one.finding, one.wanted) == ("all", 1.0))
    assert whole.risk.value == pytest.approx(1 - own.right.mean())
    assert results.curves["a"][1][-1] == pytest.approx(1 - right.mean())


def test_command_prints_the_tables_of_the_function(studies, tmp_path) -> None:
    folder, files = studies
    rows = [json.loads(line) for line in (files / "right.jsonl").read_text().splitlines()]
    sure = [
        {"study_id": row["study_id"], "probabilities": {name: 0.9 if name in row["labels"] else 0.2 for name in LABELS}}
        for row in rows
    ]
    file = tmp_path / "sure.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in sure))
    words = ("confidence", file, folder, "--split", "test")
    document = json.loads(call(*words, "--json").stdout)
    assert set(document) == {"schema", "caption", "calibration", "reliability", "coverage", "net_benefit"}
    macro = document["calibration"][0]
    result = rb.confidence(sure, folder, split="test")
    assert macro["brier"] == result.records[0]["brier"]
    # Every answer is right, .1 or .2 away from what happened
    assert all(one["said"] in (0.9, pytest.approx(0.2)) for one in document["reliability"])
    assert {row["risk"] for row in document["coverage"]} == {0}
    assert call(*words, "--format", "csv").stdout == rb.confidence(file, folder, split="test").to_csv()
    # Every answer of 0.9 is right and none of 0.2: a threshold separates, so no slope
    assert {row["slope"] for row in document["calibration"]} == {None}
    assert "a threshold separates the cases with the event from the others" in document["caption"]
    visible = call(*words, "--out", tmp_path / "figures").stdout
    assert "Risk: share of wrong answers among the most confident cases" in visible
    names = ["calibration.csv", "coverage.csv", "coverage.png", "coverage.svg", "net_benefit.csv", "net_benefit.png"]
    names += ["net_benefit.svg", "reliability.csv", "reliability.png", "reliability.svg"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == names
    assert "Net benefit per 100 cases" in (tmp_path / "figures" / "net_benefit.svg").read_text()
    assert len(repr(result).splitlines()) <= 10


def test_confidences_of_places_are_judged_by_hits(world, tmp_path) -> None:
    chance = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--out", chance)
    rows = [json.loads(line) for line in chance.read_text().splitlines()]
    scored = [row | {"score": round(0.1 + 0.8 * i / len(rows), 3)} for i, row in enumerate(rows)]
    result = rb.confidence(scored, world.folder)
    hits = rb.score(chance, world.folder, n_resamples=1).rows.values["point_hit"]
    (whole,) = [row for row in result.coverage.records if row["finding"] == "all" and row["wanted"] == 1]
    assert whole["risk"] == pytest.approx(1 - np.nanmean(hits))
    assert "net_benefit" not in result.tables  # a case is there because its finding is
    assert rb.confidence(scored[:-1] + rows[-1:], world.folder).judged.confidences.n_without_confidence == 1
    with pytest.raises(ArgumentError, match="must have confidences, in the field `score`, got predictions, which"):
        rb.confidence(rows, world.folder)


def test_answers_without_confidences_are_refused(studies, tasks, tmp_path) -> None:
    folder, files = studies
    refused = call("confidence", files / "right.jsonl", folder, "--split", "test", expect=1).stderr
    assert "must have confidences, in the field `probabilities`, got right.jsonl, which has none" in refused
    of_tasks, answers, _ = tasks
    refused = call("confidence", answers / "a.jsonl", of_tasks, "--split", "test", expect=1).stderr
    assert "must have answers with confidences, got tasks" in refused
    outside = call("confidence", files / "right.jsonl", folder, "--split", "test", "--out", folder / "here", expect=1)
    assert "`--out` must be outside dataset folders" in outside.stderr
    with pytest.raises(ArgumentError, match="at least one case"):
        judge_confidences(make_confidences(0))
