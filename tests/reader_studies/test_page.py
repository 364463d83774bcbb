"""docs/readers.md: the table that it writes, and the output of its commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import reveal_bench as rb
from reveal_bench.api.conversion import rows_of
from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import app
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reader_studies.analysis import Difference
from reveal_bench.reader_studies.study import figures_of, read_study
from tests.conftest import ROOT
from tests.markdown import blocks
from tests.transcripts import plain, steps

PAGE = ROOT / "docs" / "readers.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("readers")
    (code,) = blocks(PAGE, "python")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        exec(code.text, {})
    return path


def test_the_transcript_is_what_is_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    headings = ["Reader studies", "A system beside readers", "Planning a study", "How far readers agree"]
    headings.append("All readers together")
    matches = [step for heading in headings for step in steps(PAGE, heading)]
    assert len(matches) == 8
    for step in matches:
        done = CliRunner().invoke(app, shlex.split(step.command)[1:], catch_exceptions=False)
        output = f"$ {step.command}\n--- page\n{step.output}\n--- printed\n{plain(done.output)}"
        assert step.matches(done.output), output


def test_command_and_function_say_the_same(folder: Path) -> None:
    result = rb.readers(folder / "readings.csv", margin=0.05)
    done = CliRunner().invoke(app, ["readers", str(folder / "readings.csv"), "--format", "csv", "--margin", "0.05"])
    assert done.output == result.to_csv()
    assert len(repr(result).splitlines()) <= 10
    assert len(result.by_reader()) == 8
    (difference,) = [row for row in result.records if row["what"] == "difference"]
    assert difference["value"] == pytest.approx(result.records[0]["value"] - result.records[1]["value"])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-0.04, 0.1, "non-inferior"), (-0.05, 0.1, "not shown"), (-0.2, -0.05, "inferior"), (0.0, 0.0, "-")],
)
def test_the_verdict_is_read_off_the_interval(low: float, high: float, expected: str) -> None:
    assert Difference("a", "b", Estimate(0.0, low, high), 0.01, 5.0, 0.5).against(0.05) == expected


def test_json_is_strict_where_degrees_of_freedom_are_infinite(folder: Path) -> None:
    done = CliRunner().invoke(app, ["readers", str(folder / "readings.csv"), "--fixed-readers", "--json"])
    assert "Infinity" not in done.output
    assert '"freedom": null' in done.output


def test_a_margin_below_zero_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`margin` must be above 0, got -0\.1"):
        rb.readers(folder / "readings.csv", margin=-0.1)


def test_a_table_with_gaps_is_analysed_where_that_is_said(folder: Path) -> None:
    """With fixed readers, the difference has the jackknife's variance of the difference of means, except that a
    negative cov_2 - cov_3 counts as 0.
    """
    rows = (folder / "readings.csv").read_text(encoding="utf-8").splitlines()
    gaps = folder / "gaps.csv"
    gaps.write_text("\n".join(row for row in rows if not row.startswith(("R1,case1,", "R2,case7"))), encoding="utf-8")
    done = CliRunner().invoke(app, ["readers", str(gaps), "--partly-crossed", "--fixed-readers"])
    assert done.output.startswith("AUC of 4 readers on 80 cases of 80 patients, 69 to 80 by each, readers fixed")
    result = rb.readers(gaps, partly_crossed=True, readers_are="fixed")
    _, matrix = figures_of(read_study(rows_of(gaps), partly_crossed=True), "auc")
    contrast = np.repeat([1, -1], 4) / 4
    (difference,) = result.analysis.differences
    below = min(result.components["cov_2"] - result.components["cov_3"], 0)
    assert below < 0
    assert difference.error**2 == pytest.approx(contrast @ matrix @ contrast - 2 * 3 / 4 * below)
    with pytest.raises(ArgumentError, match=r"in which every reader read every case, .* got 69 or more of 80"):
        rb.plan_readers(gaps, difference=0.05)
