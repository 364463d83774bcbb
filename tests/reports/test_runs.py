"""Runs of a report: their numbers equal the output of `score`; runs that do not belong together are refused."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.evaluation.score import LintError, score_file
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, read_localization
from reveal_bench.kinds.localization.scoring import resample_systems, score_localization
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports.run_hits import HitRun, core_runs, hit_runs, macro_of, score_runs
from reveal_bench.reports.runs import Split as Answered
from reveal_bench.reports.runs import load_runs, open_split, short_names
from tests.conftest import World, random_records
from tests.reports.conftest import SPLIT, guesses, write_run

Paths = dict[str, Path]


def named(*paths: Path) -> list[tuple[str, Path]]:
    return [("", path) for path in paths]


def loaded_hits(runs: list[tuple[str, Path]], opened: Answered) -> list[HitRun]:
    return hit_runs(load_runs(runs, opened), opened)


def test_numbers_are_those_of_score_file(world: World, run_paths: Paths) -> None:
    runs = named(run_paths["one"], run_paths["fine"], run_paths["points"])
    opened = open_split(world.folder, runs)
    scores = score_runs(loaded_hits(runs, opened), opened, resampling=Resampling(200, 3))
    files = [run_paths["one"] / "predictions.jsonl", run_paths["fine"] / "predictions.jsonl", run_paths["points"]]
    for i, (file, grid, metric) in enumerate(
        zip(files, (8, 16, 8), ("grid_hit", "grid_hit", "point_hit"), strict=True)
    ):
        options: dict[str, Any] = {"n_resamples": 200, "seed": 3}
        scored = score_file(file, world.folder, SPLIT, ScoringOptions(grid=grid, allow_missing=True, **options))
        wanted = {e.finding: e for e in scored.estimates if e.metric == metric}
        level = "point_chance" if metric == "point_hit" else "grid_chance"
        chance = {e.finding: e for e in scored.estimates if e.metric == level}
        assert [e.metric for e in scored.estimates if e.finding == MACRO][:2] == [metric, level]
        for result, expected in ((scores.estimates(i), wanted), (scores.estimates(i, chance=True), chance)):
            np.testing.assert_equal(
                {name: asdict(e) for name, e in result.items()}, {name: asdict(e) for name, e in expected.items()}
            )


def test_deviations_are_those_of_the_replicates(world: World, run_paths: Paths) -> None:
    runs = named(run_paths["one"])
    opened = open_split(world.folder, runs)
    (run,) = loaded_hits(runs, opened)
    scores = score_runs([run], opened, resampling=Resampling(100, 1))
    rows = score_localization(run.predictions[0], opened.records, findings=opened.info.findings)
    draws = Resampling(100, 1, interval="percentile")
    (means,) = resample_systems([rows], draws, metrics=["grid_hit"], findings=scores.findings)
    replicates = means["grid_hit"].replicates
    assert scores.deviations(0)[MACRO] == pytest.approx(np.nanmean(replicates, axis=1).std(ddof=1))
    for column, finding in enumerate(scores.findings):
        assert scores.deviations(0)[finding] == pytest.approx(np.nanstd(replicates[:, column], ddof=1))


def test_first_epoch_is_scored_as_score_does(world: World, run_paths: Paths) -> None:
    runs = named(run_paths["three"])
    opened = open_split(world.folder, runs)
    (run,) = loaded_hits(runs, opened)
    scores = score_runs([run], opened, resampling=Resampling(10))
    each = [
        score_file(
            run_paths["three"] / f"predictions-{k}.jsonl",
            world.folder,
            SPLIT,
            ScoringOptions(allow_missing=True, n_resamples=10),
        )
        for k in (1, 2, 3)
    ]
    for finding, estimate in scores.estimates(0).items():
        (value,) = (e.value for e in each[0].estimates if e.metric == "grid_hit" and e.finding == finding)
        assert estimate.value == pytest.approx(value)
    macros = [next(e.value for e in s.estimates if e.metric == "grid_hit" and e.finding == MACRO) for s in each]
    assert [macro_of(rows, "grid_hit", scores.findings) for rows in run.epochs] == pytest.approx(macros)


def test_difference_is_paired(world: World, run_paths: Paths) -> None:
    runs = [("a", run_paths["one"]), ("b", run_paths["one"]), ("c", run_paths["three"])]
    opened = open_split(world.folder, runs)
    scores = score_runs(loaded_hits(runs, opened), opened, resampling=Resampling(50))
    same, other = scores.difference(0, 1), scores.difference(0, 2)
    assert (same.value, same.has_interval) == (0.0, False)  # the same answers
    assert other.value == scores.estimates(0)[MACRO].value - scores.estimates(2)[MACRO].value
    assert other.low < other.high


def test_differences_are_of_one_metric(world: World, manifest: ImageManifest, run_paths: Paths, tmp_path: Path) -> None:
    """Answers that name cells beside their points count by their cells; other points meet the centres of cells."""
    pairs = manifest.asked_pairs()
    priors = [LocalizationPrediction(*pair, points=((10.0, 10.0),), cell="B2") for pair in pairs]
    both = tmp_path / "both.jsonl"
    both.write_text(predictions_to_jsonl(priors), encoding="utf-8")
    runs = named(run_paths["one"], both, run_paths["points"])
    opened = open_split(world.folder, runs)
    scores = score_runs(loaded_hits(runs, opened), opened, resampling=Resampling(10))
    files = run_paths["one"] / "predictions.jsonl", both, run_paths["points"]
    options = ScoringOptions(allow_missing=True, n_resamples=10)
    of_file = [
        {e.metric: e.value for e in score_file(file, world.folder, SPLIT, options).estimates if e.finding == MACRO}
        for file in files
    ]
    assert [run.metric for run in scores.runs] == ["grid_hit", "grid_hit", "point_hit"]
    cells, points = ([one[metric] for one in of_file] for metric in ("grid_hit", "point_hit"))
    assert scores.difference(0, 1).value == pytest.approx(cells[0] - cells[1])
    assert scores.difference(0, 2).value == pytest.approx(points[0] - points[2])


def test_a_run_without_any_answer_misses_everything(world: World, manifest: ImageManifest, tmp_path: Path) -> None:
    path = write_run(tmp_path / "none", manifest, [{}])
    opened = open_split(world.folder, named(path))
    (run,) = loaded_hits(named(path), opened)
    scores = score_runs([run], opened, resampling=Resampling(10))
    assert run.protocol == "cell"
    assert run.n_missing == len(manifest.asked_pairs())
    assert {e.value for e in scores.estimates(0).values()} == {0.0}
    assert scores.estimates(0)[MACRO].n == len(scores.findings)


@pytest.mark.parametrize(
    ("chosen", "labels", "short"),
    [
        (("one", "three"), ["model-a", "model-b"], ["model-a", "model-b"]),
        (("one", "few"), ["model-a, zero-shot", "model-a, few-shot"], ["model-a, zero-shot", "model-a, few-shot"]),
        (
            ("one", "fine", "points"),
            ["model-a, zero-shot, 8 × 8", "model-a, zero-shot, 16 × 16", "points"],
            ["model-a, zero-shot, 8 × 8", "model-a, zero-shot, 16 × 16", "points"],
        ),
    ],
    ids=["models", "styles", "grids"],
)
def test_labels_are_as_short_as_they_can_be(
    world: World, run_paths: Paths, chosen: tuple[str, ...], labels: list[str], short: list[str]
) -> None:
    runs = named(*(run_paths[name] for name in chosen))
    loaded = load_runs(runs, open_split(world.folder, runs))
    assert [run.label for run in loaded] == labels
    assert short_names(loaded) == short


def test_given_labels_stay_and_core_runs_leave_out_other_grids_and_styles(world: World, run_paths: Paths) -> None:
    runs = [(name, run_paths[name]) for name in ("one", "few", "fine", "three", "points")]
    opened = open_split(world.folder, runs)
    loaded = loaded_hits(runs, opened)
    assert [run.label for run in loaded] == ["one", "few", "fine", "three", "points"]
    assert core_runs(loaded, 8) == [0, 3, 4]
    assert core_runs(loaded, 16) == [2]
    assert short_names([loaded[i] for i in (0, 3)]) == ["one", "three"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmark": "vindr-cxr"}, "`benchmark` must be 'chexlocalize', as in the report, got 'vindr-cxr'"),
        ({"benchmark_version": "9.9.9"}, "`benchmark_version` must be '1.0.0', as in the report, got '9.9.9'"),
        ({"split": "holdout"}, "`split` must be 'released', as in the report, got 'holdout'"),
    ],
    ids=["benchmark", "version", "split"],
)
def test_runs_of_something_else_are_refused(
    world: World, manifest: ImageManifest, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_run(tmp_path / "run", manifest, [guesses(manifest, 1)], **changes)
    opened = open_split(world.folder, named(path), SPLIT)
    with pytest.raises(ValueError, match=message):
        load_runs(named(path), opened)


def test_what_cannot_be_a_report_is_refused(world: World, run_paths: Paths, tmp_path: Path) -> None:
    one = run_paths["one"]
    opened = open_split(world.folder, named(one))
    with pytest.raises(ValueError, match="`runs` must be 1 to 12 runs, got 0"):
        load_runs([], opened)
    with pytest.raises(ValueError, match="`runs` must be 1 to 12 runs, got 13"):
        load_runs([(str(i), one) for i in range(13)], opened)
    with pytest.raises(ValueError, match="unique labels, got 'x' twice: name runs by LABEL=PATH"):
        load_runs([("x", one), ("x", run_paths["three"])], opened)
    with pytest.raises(ValueError, match=r"it has no run\.json"):
        load_runs(named(tmp_path), opened)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"image_id": "nobody", "finding": "Edema", "cell": "A1"}\n', encoding="utf-8")
    with pytest.raises(LintError, match=r"bad\.jsonl was not scored"):
        load_runs(named(bad), opened)
    with pytest.raises(ValueError, match="`findings` must be among"):
        score_runs(loaded_hits(named(one), opened), opened, findings=["Fracture"])


@pytest.mark.parametrize("label", [" ", "a\nb", "\x00", "\u202eabc", "\ud800", "x" * 201], ids=ascii)
def test_a_label_that_cannot_be_printed_is_refused(world: World, run_paths: Paths, label: str) -> None:
    opened = open_split(world.folder, named(run_paths["one"]))
    with pytest.raises(ValueError, match="a label must be 1 to 200 printable characters, got"):
        load_runs([(label, run_paths["one"])], opened)


def test_a_damaged_run_folder_is_refused(world: World, manifest: ImageManifest, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest, [guesses(manifest, 1)])
    (run / "predictions.jsonl").unlink()
    opened = open_split(world.folder, named(run))
    with pytest.raises(ValueError, match=r"predictions\.jsonl is missing: the run folder is damaged"):
        load_runs(named(run), opened)
    with pytest.raises(ValueError, match="nowhere is neither a run folder nor a prediction file"):
        load_runs(named(tmp_path / "nowhere"), opened)


def test_a_private_holdout_without_references_is_refused(world: World, run_paths: Paths) -> None:
    with pytest.raises(ValueError, match="holds no references of split 'holdout': they are private"):
        open_split(world.folder, named(run_paths["points"]), "holdout")


def test_runs_of_two_splits_need_the_split_named(
    world: World, manifest: ImageManifest, run_paths: Paths, tmp_path: Path
) -> None:
    other = write_run(tmp_path / "other", manifest, [guesses(manifest, 1)], split="holdout")
    with pytest.raises(ValueError, match="all runs of a report must answer one split, got holdout, released"):
        open_split(world.folder, named(run_paths["one"], other))


def test_prediction_files_alone_are_of_the_released_or_the_only_split(world: World, run_paths: Paths) -> None:
    assert open_split(world.folder, named(run_paths["points"])).name == "released"
    assert len(open_split(world.folder, named(run_paths["points"])).records) == len(
        read_localization(world.folder, "released")
    )


def test_prediction_files_of_several_splits_need_the_split_named(tmp_path: Path) -> None:
    records = random_records(np.random.default_rng(2), 6)
    build_folder(
        {"test": iter(records[:4]), "train": iter(records[4:])},
        tmp_path / "folder",
        BENCHMARKS["chexlocalize"],
        pixels="withhold",
        synthetic=True,
    )
    with pytest.raises(ValueError, match="`split` must be given: one of test, train"):
        open_split(tmp_path / "folder", [("", tmp_path / "p.jsonl")])
    assert len(open_split(tmp_path / "folder", [("", tmp_path / "p.jsonl")], "train").records) == 2
