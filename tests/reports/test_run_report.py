"""The report as its reader finds it: complete, self-contained, escaped, and with the numbers of `score`."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.analyses.published import OwnScores
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.folder import Selection, open_folder
from reveal_bench.kinds.localization.records import ImageManifest, read_localization
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports import runs as reports
from reveal_bench.reports.page import PAGE, Csv, PageTable, Text
from reveal_bench.reports.run_localization import HitReport
from reveal_bench.reports.run_page import write_run_report
from reveal_bench.reports.run_places import AveragePicture
from reveal_bench.reports.run_report import Options, published_parts
from reveal_bench.reports.runs import open_split
from tests.conftest import World
from tests.reports.conftest import SPLIT, guesses, rows_of, write_run
from tests.reports.html_page import HtmlPage

Paths = dict[str, Path]
TWO = ("Edema", "Cardiomegaly")
HOSTILE = '<script>alert("x")</script> & $y_1$'


pytestmark = pytest.mark.usefixtures("small_pictures")


@pytest.fixture(scope="module")
def report(world: World, run_paths: Paths, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs, the reference is "three"; means are over two findings."""
    out = tmp_path_factory.mktemp("report") / "out"
    runs = [(HOSTILE, run_paths["one"]), *((name, run_paths[name]) for name in ("three", "fine", "few", "points"))]
    warnings = write_run_report(runs, world.folder, out, reference="three", findings=TWO, n_resamples=50, seed=2)
    assert warnings == []
    return out


def test_every_figure_and_table_has_its_files(report: Path) -> None:
    figures = ("error-categories", "grids", "heat-maps-1", "hit-rates", "prompts")
    tables = (
        "commonest-cells", "error-categories", "failures-and-costs", "fallback-rule", "heat-maps", "hit-rates",
        "mean-hit-rates", "runs",
    )  # fmt: skip
    wanted = {f"figures/{name}.{kind}" for name in figures for kind in ("png", "svg")}
    wanted |= {f"tables/{name}.csv" for name in tables} | {PAGE}
    assert {str(path.relative_to(report)) for path in report.rglob("*") if path.is_file()} == wanted


def test_hit_rates_are_those_of_score(report: Path, world: World, run_paths: Paths) -> None:
    rows = [row for row in rows_of(report, "hit-rates") if row["metric"].endswith("_hit")]
    file = run_paths["one"] / "predictions.jsonl"
    scored = score_file(file, world.folder, SPLIT, ScoringOptions(allow_missing=True, n_resamples=50, seed=2))
    for finding in TWO:
        (row,) = (row for row in rows if row["run"] == HOSTILE and row["finding"] == finding)
        (estimate,) = (e for e in scored.estimates if e.metric == "grid_hit" and e.finding == finding)
        assert (float(row["value"]), float(row["low"]), float(row["high"])) == (
            estimate.value, estimate.low, estimate.high
        )  # fmt: skip
        assert (int(row["n"]), row["signature"]) == (estimate.n, estimate.signature)
    by_run = {row["run"]: row for row in rows if row["finding"] == "macro"}
    assert {run: row["metric"] for run, row in by_run.items()} == {
        HOSTILE: "grid_hit", "three": "grid_hit", "fine": "grid_hit", "few": "grid_hit", "points": "point_hit"
    }  # fmt: skip


def as_real(world: World) -> reports.Split:
    opened = reports.open_split(world.folder, [], SPLIT)
    return replace(opened, info=replace(opened.info, synthetic=False))


def test_published_rows_stand_beside_what_they_can_be_compared_with(world: World, run_paths: Paths) -> None:
    opened = as_real(world)
    runs = reports.load_runs([(name, run_paths[name]) for name in ("three", "fine", "points")], opened)
    made = HitReport(opened, runs, Options(0, findings=TWO, resampling=Resampling(20)))
    (section,) = made.published_sections()
    cells, points = (
        {(row["system"], row["finding"]): float(row["value"]) for row in csv.DictReader(text.splitlines())}
        for text in (table.csv.text for table in section.parts if isinstance(table, PageTable) and table.csv)
    )
    assert cells["GPT-5, few-shot", "Edema"] == 0.747  # paper 000, Table 2
    assert cells["GPT-5, few-shot", "Cardiomegaly"] == 0.846
    assert cells["GPT-5, few-shot", "mean"] == pytest.approx((0.747 + 0.846) / 2)
    assert cells["three", "Edema"] == made.scores.estimates(0)["Edema"].value
    assert ("fine", "Edema") not in cells  # on 16 x 16 cells
    assert {("points", "mean"), ("Human benchmark", "mean"), ("Grad-CAM", "mean")} <= points.keys()
    output = [part.words for part in section.parts if isinstance(part, Text)]
    assert output == ["Not comparable: fine, because their grid is not the 8 × 8 grid of the published rows."]
    captions = [part.caption for part in section.parts if isinstance(part, PageTable)]
    assert all(f"these runs answer its subset released, {len(opened.records)} images" in text for text in captions)


def test_why_nothing_published_stands_beside_is_said(world: World) -> None:
    own = [OwnScores("mine", "grid_hit", {"Edema": 0.5}, 8)]
    opened = as_real(world)
    (output,) = published_parts(own, replace(opened, name="validation"))
    assert isinstance(output, Text)
    assert "Not comparable with split validation: the published rows (Human benchmark" in output.words
    (output,) = published_parts(own, replace(opened, info=replace(opened.info, synthetic=True)))
    assert isinstance(output, Text)
    assert "not shown with runs on synthetic data" in output.words
    assert list(published_parts(own, replace(opened, info=replace(opened.info, benchmark="vindr-cxr")))) == []


def test_differences_are_from_the_reference(report: Path) -> None:
    rows = {(row["run"], row["grid"]): row for row in rows_of(report, "mean-hit-rates")}
    mean = {key: float(row["mean_hit_rate"]) for key, row in rows.items()}
    assert float(rows["few", "8"]["difference"]) == pytest.approx(mean["few", "8"] - mean["three", "8"])
    assert rows["three", "8"]["difference"] == ""
    assert {key for key in rows if key[0] == "chance"} == {("chance", "8"), ("chance", "16"), ("chance", "")}
    assert (rows["chance", "8"]["protocol"], rows["chance", ""]["protocol"]) == ("cell", "point")


def test_costs_and_failures_are_counted(report: Path, manifest: ImageManifest) -> None:
    n = len(manifest.asked_pairs())
    refused = math.ceil(n / 9)
    rows = {row["run"]: row for row in rows_of(report, "failures-and-costs")}
    assert set(rows) == {HOSTILE, "three", "fine", "few"}
    assert (int(rows["three"]["asked"]), int(rows["three"]["refused"])) == (3 * n, 3 * refused)
    assert rows[HOSTILE]["answered"] == str(n - refused)
    assert float(rows["few"]["cost"]) == pytest.approx(n * (100 * 2 + 5 * 10) / 1_000_000)


def test_heat_maps_add_up_to_the_answers(report: Path, world: World, manifest: ImageManifest) -> None:
    rows = rows_of(report, "heat-maps")
    views = {record.image_id: record.view for record in read_localization(world.folder, SPLIT)}
    asked = [pair for pair in manifest.asked_pairs() if pair[1] == "Edema" and views[pair[0]] != "LATERAL"]
    answered = [pair for pair in asked if pair in guesses(manifest, 1)]
    total = sum(float(row["share"]) for row in rows if row["run"] == HOSTILE and row["finding"] == "Edema")
    assert total == pytest.approx(len(answered) / len(asked))
    assert {row["n"] for row in rows if row["finding"] == "Edema"} == {str(len(asked))}


def test_error_categories_add_up_to_one(report: Path) -> None:
    rows = [row for row in rows_of(report, "error-categories") if row["finding"] == "Edema" and row["share"]]
    for run, epoch in {(row["run"], row["epoch"]) for row in rows}:
        assert sum(float(r["share"]) for r in rows if (r["run"], r["epoch"]) == (run, epoch)) == pytest.approx(1)
    assert {row["epoch"] for row in rows if row["run"] == "three"} == {"1", "2", "3"}


def test_page_is_well_formed_and_holds_all_it_shows(report: Path) -> None:
    text = (report / PAGE).read_text(encoding="utf-8")
    page = HtmlPage(text)
    assert not re.search(r"""(src|href)=["']?\s*(https?:)?//""", text)
    assert "@import" not in text
    assert page.all("script") == page.all("link") == []
    spoken = [attrs["aria-label"] or "" for _, attrs in page.tags if attrs.get("role") == "img"]
    assert len(set(spoken)) == 5  # hit rates, errors, heat maps, grids, prompts
    assert all(len(words) > 40 for words in spoken)
    assert not page.all("img")
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))
    for link in page.all("a"):
        target = link["href"] or ""
        assert (
            (report / target).is_file()
            if target[0] != "#"
            else target[1:] in [one["id"] for one in page.all("section")]
        )


def test_labels_are_shown_and_never_run(report: Path) -> None:
    text = (report / PAGE).read_text(encoding="utf-8")
    assert "<script" not in text
    assert HOSTILE in "".join(HtmlPage(text).texts)
    assert "<script" not in (report / "figures" / "hit-rates.svg").read_text(encoding="utf-8")


def test_page_says_what_it_is_made_of(report: Path, world: World) -> None:
    assert "Mean grid hit rate or hit rate (%)" in (report / PAGE).read_text(encoding="utf-8")
    text = " ".join(HtmlPage((report / PAGE).read_text(encoding="utf-8")).texts)
    recipe = "b:50|seed:2|unit:patient|i:jackknife|v:1"
    for part in ("synthetic stand-in for CheXlocalize", "chexlocalize 1.0.0, split released", "Not for clinical use",
                 f"grid_hit|{recipe}", f"point_hit|{recipe}",
                 "plain background", "95% intervals by the jackknife over patients",
                 "resampled with replacement 50 times"):  # fmt: skip
        assert part in text
    assert str(world.folder) not in text


def test_the_same_runs_give_the_same_bytes_and_leftovers_go(world: World, run_paths: Paths, tmp_path: Path) -> None:
    runs = [("", run_paths["one"]), ("", run_paths["points"])]
    out = [tmp_path / name for name in ("a", "b")]
    (out[1] / "figures").mkdir(parents=True)
    (out[1] / "figures" / "grids.png").write_bytes(b"of an earlier report")
    (out[1] / "notes.txt").write_text("mine", encoding="utf-8")
    for place in out:
        write_run_report(runs, world.folder, place, findings=TWO[:1], n_resamples=20)
    first, second = ({p.relative_to(o): p.read_bytes() for p in o.rglob("*") if p.is_file()} for o in out)
    assert second.pop(Path("notes.txt")) == b"mine"
    assert first == second
    assert "For points, the cell is the one that contains the point" in (out[0] / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_selected_findings_are_those_picked(world: World, run_paths: Paths, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_resamples": 10}
    write_run_report([("", run_paths["one"])], world.folder, tmp_path / "picked", findings=TWO[:1], **options)
    part = replace(open_folder(world.folder), selection=Selection(findings=tuple(TWO[:1])))
    write_run_report([("", run_paths["one"])], part, tmp_path / "selected", **options)
    picked, selected = (
        [(row["metric"], row["finding"], row["value"]) for row in rows_of(tmp_path / name, "hit-rates")]
        for name in ("picked", "selected")
    )
    assert selected == picked
    page = (tmp_path / "picked" / PAGE).read_text(encoding="utf-8")
    assert re.findall(r"(?i)(\w+) hit rate", page)
    assert set(re.findall(r"(?i)(\w+) hit rate", page)) <= {"grid", "Grid"}, "cells have grid hit rates"


def test_what_a_reader_must_know_is_said(world: World, manifest: ImageManifest, tmp_path: Path) -> None:
    n, few = len(manifest.asked_pairs()), dict(list(manifest.rows.items())[:9])
    asked = replace(manifest, rows=few)
    path = write_run(tmp_path / "short", asked, [guesses(asked, 1)], n_questions=n, limit=len(asked.asked_pairs()))
    warnings = write_run_report([("s", path)], world.folder, tmp_path / "out", findings=TWO[:1], n_resamples=20)
    (warning,) = warnings
    part = f"9 of {len(manifest.rows)} images (ids "
    assert warning.startswith(f"scores are over the questions that s asked: {part}")
    page = (tmp_path / "out" / PAGE).read_text(encoding="utf-8")
    assert f"split released, {part}" in page
    assert "on 9 images of" in page
    (row,) = rows_of(tmp_path / "out", "runs")
    assert int(row["n_missing"]) == sum(pair not in guesses(asked, 1) for pair in asked.asked_pairs())


def test_what_makes_no_report_is_refused(world: World, run_paths: Paths, tmp_path: Path) -> None:
    runs = [("one", run_paths["one"])]
    with pytest.raises(ValueError, match=r"`reference` must be the label of a run \(one\), got 'two'"):
        write_run_report(runs, world.folder, tmp_path / "out", reference="two")
    for inside in (world.folder, world.folder / "reports"):
        with pytest.raises(ValueError, match="`out` must not be in the dataset folder"):
            write_run_report(runs, world.folder, inside)
    with pytest.raises(ValueError, match="is not a dataset folder"):
        write_run_report(runs, tmp_path / "nothing", tmp_path / "out")
    with pytest.raises(ValueError, match="they are private"):
        write_run_report(runs, world.folder, tmp_path / "out", split="holdout")
    assert not (tmp_path / "out").exists()


def test_csv_leaves_undefined_empty_and_defuses_formulas() -> None:
    assert Csv.of("t", ("a", "b", "c"), [(math.nan, None, '=1+"1"'), (0.1, -1, "x,y")]).text == (
        'a,b,c\n,,"\'=1+""1"""\n0.1,-1,"x,y"\n'
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cell_that_begins_a_formula_gets_an_apostrophe(start: str) -> None:
    """The six beginnings that OWASP lists for CSV injection."""
    quote = '"' if start == "\r" else ""
    assert Csv.of("t", ("a",), [(f"{start}1",)]).text == f"a\n{quote}'{start}1{quote}\n"


def test_csv_cell_ends_no_row() -> None:
    """A carriage return outside quotes ends a row, and a formula could begin the next."""
    assert Csv.of("t", ("a", "b"), [("x\r=1", "y\r\n=2"), ("z\n=3", "\n")]).text == (
        'a,b\n"x\r=1","y\r\n=2"\n"z\n=3","\n"\n'
    )


@pytest.mark.usefixtures("undrawn")
def test_no_patient_is_shown_or_named(
    report: Path, world: World, run_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name for r in read_localization(world.folder, SPLIT) for name in (r.image_id, r.patient_id)}
    texts = [path.read_text(encoding="utf-8") for path in report.rglob("*.*") if path.suffix != ".png"]
    assert not [name for name in names for text in texts if name in text]
    film = AveragePicture(np.zeros((256, 256)), n=40, n_patients=9)
    monkeypatch.setattr("reveal_bench.reports.run_localization.average_picture", lambda *_, **__: film)
    visible = {}
    for synthetic in (True, False):
        opened = open_split(world.folder, [("", run_paths["one"])])
        opened = replace(opened, info=replace(opened.info, synthetic=synthetic))
        monkeypatch.setattr("reveal_bench.reports.run_page.open_split", lambda *_, world=opened: world)
        out = tmp_path / str(synthetic)
        write_run_report([("", run_paths["one"])], world.folder, out, findings=TWO[:1], n_resamples=20)
        visible[synthetic] = (out / PAGE).read_text(encoding="utf-8")
    assert "over the average of the 40 frontal images" in visible[True]
    assert "over a plain background because there are fewer than 10 patients" in visible[False]


def test_run_settings_reach_the_table(report: Path) -> None:
    rows = {row["run"]: row for row in rows_of(report, "runs")}
    assert rows["few"]["style"] == "few-shot"
    assert rows["few"]["settings"].startswith("3 shots")
    assert (rows["fine"]["grid"], rows["fine"]["hit_metric"]) == ("16", "grid_hit")
    assert len(rows["three"]["sha256"].split()) == 3
