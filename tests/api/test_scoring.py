"""Scoring functions in Python: predictions in every form get the same scores as the file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import reveal_bench as rb
from reveal_bench.api.result_table import TableResult
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from reveal_bench.kinds.localization.records import read_manifest
from reveal_bench.masks import decode_mask
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset.card_folders import LABELS
from tests.kinds.folders import N_STUDIES, studies, tasks

__all__ = ["studies", "tasks"]

FEW = {"n_resamples": 40}


@pytest.fixture(scope="module")
def places(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a localization folder and a file that points at the same pixel of every image."""
    lines = [
        {"image_id": row.image_id, "finding": finding, "point": [14, 15 + i % 3]}
        for i, row in enumerate(read_manifest(world.folder, "released").rows.values())
        for finding in row.asked
    ]
    path = tmp_path_factory.mktemp("places") / "pointer.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return world.folder, path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_image(lines: list[dict[str, Any]], place: Callable[[Any], Any]) -> dict[str, dict[str, Any]]:
    images: dict[str, dict[str, Any]] = {}
    for line in lines:
        images.setdefault(line["image_id"], {})[line["finding"]] = place(line["point"])
    return images


def flat(lines: list[dict[str, Any]]) -> pd.DataFrame:
    rows = [{"image_id": one["image_id"], "finding": one["finding"], "x": one["point"][0], "y": one["point"][1]}
            for one in lines]  # fmt: skip
    return pd.DataFrame(rows)


PLACES: dict[str, Callable[[Path], Any]] = {
    "text of a path": str,
    "lines": lines_of,
    "numpy numbers": lambda path: [one | {"point": np.array(one["point"], np.int16)} for one in lines_of(path)],
    "points by image": lambda path: by_image(lines_of(path), tuple),
    "arrays by image": lambda path: by_image(lines_of(path), np.array),
    "fields by image": lambda path: by_image(lines_of(path), lambda point: {"point": point}),
    "frame": lambda path: flat(lines_of(path)),
    "frame with ids as index": lambda path: flat(lines_of(path)).set_index(["image_id", "finding"]),
    "frame with a filtered index": lambda path: flat(lines_of(path))[::-1],
    "frame of lists": lambda path: pd.DataFrame(lines_of(path)),
    "categories": lambda path: flat(lines_of(path)).astype({"finding": "category", "x": "Int64"}),
    "arrow": lambda path: pa.Table.from_pandas(flat(lines_of(path))),
    "arrow of lists": lambda path: pa.Table.from_pylist(lines_of(path)),
    "result of a run": lambda path: SimpleNamespace(predictions=lines_of(path)),
}


@pytest.mark.parametrize("form", PLACES)
def test_points_in_every_form_score_like_the_file(places: tuple[Path, Path], form: str) -> None:
    folder, path = places
    expected = rb.score(path, folder, **FEW)
    assert expected.table.query("metric == 'point_hit' and finding == 'macro'").value.item() > 0
    pd.testing.assert_frame_equal(rb.score(PLACES[form](path), folder, **FEW).table, expected.table)


STUDIES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "lines": list,
    "lists": lambda lines: {one["study_id"]: one["labels"] for one in lines},
    "sets": lambda lines: {one["study_id"]: set(one["labels"]) for one in lines},
    "probabilities": lambda lines: {one["study_id"]: {x: float(x in one["labels"]) for x in LABELS} for one in lines},
    "frame": lambda lines: pd.DataFrame(
        [{"study_id": one["study_id"], **{x: int(x in one["labels"]) for x in LABELS}} for one in lines]
    ),
    "frame with ids as index": lambda lines: pd.DataFrame(
        [{"study_id": one["study_id"], **{x: np.float32(x in one["labels"]) for x in LABELS}} for one in lines]
    ).set_index("study_id"),
    "frame of lists": pd.DataFrame,
}


@pytest.mark.parametrize("form", STUDIES)
def test_labels_in_every_form_score_like_the_file(studies: tuple[Path, Path], form: str) -> None:
    folder, files = studies
    lines = lines_of(files / "half.jsonl")
    result = rb.score(STUDIES[form](lines), folder, split="test", **FEW).table.set_index(["metric", "finding"]).value
    expected = rb.score(files / "half.jsonl", folder, split="test", **FEW).table.set_index(["metric", "finding"]).value
    assert result.loc["f1", LABELS[1]] == expected.loc["f1", LABELS[1]] == 0
    shared = expected.index.intersection(result.index)  # probabilities have additional scores
    pd.testing.assert_series_equal(result[shared], expected[shared])


THRESHOLDS: dict[str, Callable[[dict[str, float]], Any]] = {
    "float32": lambda cuts: {name: np.float32(cut) for name, cut in cuts.items()},
    "float32 vector": lambda cuts: np.array(list(cuts.values()), np.float32),
    "list": lambda cuts: list(cuts.values()),
    "list of float64": lambda cuts: [np.float64(cut) for cut in cuts.values()],
    "series": lambda cuts: pd.Series(cuts)[::-1],
}


@pytest.mark.parametrize("form", THRESHOLDS)
def test_thresholds_are_numbers_of_any_library(studies: tuple[Path, Path], form: str) -> None:
    folder, files = studies
    bench = rb.load(folder, split="test")
    cuts = {name: 0.25 if i % 2 else 0.75 for i, name in enumerate(bench.findings)}  # exact in float32
    rows = {one["study_id"]: {name: float(name in one["labels"]) / 2 for name in bench.findings}
            for one in lines_of(files / "half.jsonl")}  # fmt: skip
    expected = rb.score(rows, bench, thresholds=cuts, **FEW)
    assert {row.value for row in expected.table.query("metric == 'f1' and finding != 'macro'").itertuples()} > {0.0}
    scored = rb.score(rows, bench, thresholds=THRESHOLDS[form](cuts), **FEW)
    assert scored.to_json() == expected.to_json()
    assert rb.score(rows, bench, thresholds=np.float32(0.5), **FEW).to_json() == rb.score(rows, bench, **FEW).to_json()
    with pytest.raises(ArgumentError, match=f"must be one number, or one for each of {len(cuts)} findings, got 1 num"):
        rb.score(rows, bench, thresholds=[0.5])


def test_unanswered_studies_are_counted_beside_the_scores(studies: tuple[Path, Path], tmp_path: Path) -> None:
    folder, files = studies
    right = files / "right.jsonl"
    lines = right.read_text().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text("".join(lines[3:]))
    shutil.copy(right, tmp_path)
    few = ("--allow-missing", "--resamples", 20)
    text = f"part.jsonl: no answer to 3 of {len(lines)} questions"
    for words in (("score", tmp_path / "part.jsonl"), ("compare", right, tmp_path / "part.jsonl")):
        assert text in call(*words, folder, *few).stdout
    assert text.replace(".jsonl", "") in call("rank", tmp_path, folder, *few).stdout
    assert "no answer" not in call("score", right, folder, "--resamples", 20).stdout


def test_vectors_of_studies_are_refused_with_their_remedy(studies: tuple[Path, Path]) -> None:
    bench = rb.load(studies[0])
    vector = np.full(len(bench.findings), 0.3)
    for answer in (vector, vector.tolist(), tuple(vector), 0.3):
        with pytest.raises(ArgumentError, match=r"rb\.convert\(array, bench, labels=bench\.findings, ids=ids\)"):
            rb.score(dict.fromkeys(bench.ids, answer), bench)
    done = rb.convert(np.tile(vector, (len(bench.ids), 1)), bench, labels=bench.findings, ids=bench.ids)
    assert rb.lint(done, bench).ok


def test_findings_that_one_system_never_names_are_told_in_every_form(studies: tuple[Path, Path]) -> None:
    """The file "half" never names the second of the two labels in "right", and has no precision there."""
    folder, files = studies
    right, half, few = files / "right.jsonl", files / "half.jsonl", {"metric": "precision", "n_resamples": 20}
    compared = rb.compare(right, half, folder, **few)
    ranked = rb.rank({"right": right, "half": half}, folder, finding_groups=[f"one={LABELS[0]}"], **few)
    told = f"over the 1 finding with a score of %s; %s has none for {LABELS[1]}"
    for result, text in (
        (compared, f"Precision: both macros are {told % ('A and B', 'B')}"),
        (ranked, f"Precision: macros are {told % ('every system', 'half')}"),
    ):
        assert result.remarks == [text]
        assert all(text in shown for shown in (repr(result), result.to_markdown(), result.to_latex()))
    assert rb.compare(right, right, folder, **few).remarks == []
    assert ranked.of_group("one").remarks == []
    printed = call("rank", files, folder, "--metric", "precision", "--resamples", 20).stdout
    assert printed.splitlines()[-1].startswith("Precision: macros are over the 1 finding")


def test_a_row_counts_the_studies_with_its_label(studies: tuple[Path, Path]) -> None:
    folder, files = studies
    counted = f"{N_STUDIES // 3} of {N_STUDIES}"
    rows = rb.score(files / "half.jsonl", folder, split="test", **FEW).printed_rows()
    assert [row["n"] for row in rows if (row["metric"], row["finding"]) == ("F1", LABELS[1])] == [counted]
    printed = call("score", files / "half.jsonl", folder, "--split", "test", "--resamples", 40).stdout.splitlines()
    assert [line for line in printed if line.startswith(LABELS[1]) and f" {counted} " in line]


def test_tasks_with_a_table_or_a_list_of_ratings(tasks: tuple[Path, Path, Path]) -> None:
    from reveal_bench.sources.rexecution_files import read_ratings_table

    folder, files, ratings = tasks
    answers = {one["task_id"]: one["answer"] for one in lines_of(files / "a.jsonl")}
    listed = pd.read_csv(ratings).to_dict("records")
    for table in (ratings, read_ratings_table(ratings), pd.read_csv(ratings), listed):
        result = rb.score(answers, folder, split="test", ratings=table, name="a", **FEW)
        assert result.table.query("metric == 'rubric_mean' and finding == 'macro'").value.item() == 4.5
    ranking = rb.rank({"b": files / "b.jsonl", "a": answers}, folder, split="test", ratings=ratings, n_resamples=40)
    assert list(ranking.table.name) == ["a", "b"]
    with pytest.raises(ArgumentError, match="`ratings` must have ratings of 'predictions'"):
        rb.score(answers, folder, split="test", ratings=ratings)


def test_masks_as_arrays(world: World) -> None:
    records = rb.load(world.folder).references
    shapes = [
        {"image_id": record.image_id, "finding": annotation.finding, "mask": decode_mask(annotation.rle)}
        for record in records
        for annotation in record.annotations
    ]
    result = rb.score(shapes, world.folder, **FEW)
    macro = result.table.query("metric == 'mask_iou' and finding == 'macro'")
    assert (macro.value.item(), macro.n.item()) == (1, 10)


def test_functions_and_commands_return_the_same(places: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = places
    other = tmp_path / "other.jsonl"
    other.write_text(path.read_text().replace("[14, 15]", "[20, 20]"))
    words = (folder, "--resamples", 80, "--json")
    options: dict[str, Any] = {"n_resamples": 80}
    scored = rb.score(path, folder, **options)
    assert json.loads(call("score", path, *words).stdout) == scored.to_document()
    assert json.loads(call("lint", path, folder, "--json").stdout)["ok"]
    assert rb.lint(path, folder).ok
    compared = rb.compare(path, lines_of(other), folder, **options)
    assert json.loads(call("compare", path, other, *words).stdout)["comparisons"] == compared.records
    systems = {"pointer": lines_of(path), "other": flat(lines_of(other))}
    ranking = rb.rank(systems, folder, **options)
    for place in (path, other):
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / place.name).write_text(place.read_text())
    systems_printed = json.loads(call("rank", tmp_path / "files", *words).stdout)["systems"]
    assert [{k: v for k, v in one.items() if k != "file"} for one in systems_printed] == ranking.records
    assert call("score", path, *words[:-1], "--format", "csv").stdout == scored.to_csv()
    assert call("compare", path, other, *words[:-1], "--format", "markdown").stdout.splitlines()[0] == (
        "| metric | finding | A | B | A {-} B | 95% interval | p |".replace("{-}", "-")
    )
    judged = rb.compare(path, other, folder, margin=0.2, equivalence=True, **options)
    printed = call("compare", path, other, *words, "--margin", 0.2, "--equivalence").stdout
    assert json.loads(printed)["comparisons"] == judged.records
    assert judged.verdicts[0] in call("compare", path, other, *words[:-1], "--margin", 0.2, "--equivalence").stdout
    for wrong, rule in (
        ({"margin": 0.1, "relative": True}, "must not be given with a relative decrease"),
        ({"equivalence": True}, "must be given with a `margin`"),
        ({"margin": "5%"}, "must be a number above 0"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            rb.compare(path, other, folder, **wrong)
    old = {"interval": "percentile"}
    by_percentile = json.loads(call("compare", path, other, *words, "--interval", "percentile").stdout)["comparisons"]
    assert by_percentile == rb.compare(path, other, folder, **options, **old).records
    assert by_percentile != compared.records
    assert r"\begin{tabular}" in call("rank", tmp_path / "files", *words[:-1], "--format", "latex").stdout
    both = call("score", path, *words[:-1], "--json", "--format", "csv", expect=1)
    assert "give one of --json and --format csv" in both.stderr


def test_results_have_a_short_representation(places: tuple[Path, Path]) -> None:
    folder, path = places
    bench = rb.load(folder)
    result = rb.score(path, bench, **FEW)
    report = rb.lint(path, bench)
    results: list[TableResult] = [
        result, bench.cases, rb.compare(path, path, bench, **FEW), rb.rank({"a": path, "b": path}, bench, **FEW)
    ]  # fmt: skip
    for one in (*results, bench, bench.references, report, result.scored, result.rows):
        assert len(repr(one).splitlines()) <= 10, one
        assert len(repr(one)) < 1500
    for table in results:
        assert table._repr_html_().count("<tr>") == min(len(table.records), 20) + 1
        assert len(table.to_pandas()) == len(table.records) == len(json.loads(table.to_json()))
        assert table.to_csv().count("\n") == len(table.records) + 1
        assert table.to_latex().count(r"\\") == len(table.records) + 1
    assert len(bench.cases.records) == len(lines_of(path))
    assert list(result.table.columns) == ["metric", "finding", "value", "low", "high", "n", "n_undefined", "flag"]
    assert result.rows.to_pandas().columns[0] == "image_id"
    bare = result.table.value.notna() & result.table.low.isna()
    assert (result.table.flag.str.endswith(("patients", "its scale")) == bare).all()
    assert "fewer than 15 supporting patients" in set(result.table.flag)
    macro = result.table.iloc[0]
    assert f"| {100 * macro.value:.1f} | {100 * macro.low:.1f} to {100 * macro.high:.1f} |" in result.to_markdown()


def test_comparisons_keep_the_names_of_scores(places: tuple[Path, Path]) -> None:
    folder, path = places
    lines = lines_of(path)
    mine = rb.score(lines, folder, name="My CNN", **FEW)
    compared = rb.compare(mine, rb.score(lines[::-1], folder, **FEW), folder, metric="Hit rate", n_resamples=10)
    assert compared.caption.startswith("A My CNN, B b on ")
    assert "A My CNN, B b on" in compared.to_latex()


POINT: dict[str, Any] = {"image_id": "patient00002_study1_view1_frontal", "finding": "Edema", "point": [1, 2]}
WRONG: dict[str, tuple[Any, str]] = {
    "a number": (5, "got an int"),
    "nothing": (None, "got a NoneType"),
    "bytes": (b"{}", "got a bytes"),
    "an array": (np.zeros((2, 2)), "`convert` makes predictions from an array, got a numpy.ndarray"),
    "a list of numbers": ([1], "got a list of an int"),
    "a list of texts": (["a.jsonl"], "got a list of a str"),
    "an object in a field": (
        [POINT | {"score": object()}],
        "must contain only texts, numbers, lists and mappings, got an obj",
    ),
    "a column twice": (pd.DataFrame([[1, 2]], columns=["x", "x"]), "must have each column once, got 'x' twice"),
    "mixed types": (pd.DataFrame({"image_id": ["a", 5]}), "must have values of one type in each column"),
    "a probability": ({POINT["image_id"]: {"Edema": np.float32(0.25)}}, "a probability alone has no place, got 0.25"),
    "probabilities": (pd.DataFrame({"Edema": [0.25]}, [POINT["image_id"]]), "alone has no place, got 0.25"),
    "no id": (
        pd.DataFrame({"finding": ["Edema"], "point": [[1, 2]]}),
        "must have the column `image_id` (`rb.convert` reads other names)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_input_other_than_predictions_is_refused(world: World, case: str) -> None:
    inputs, message = WRONG[case]
    with pytest.raises(ArgumentError, match="`predictions` must") as caught:
        rb.score(inputs, world.folder)
    assert message in str(caught.value)


LINTED: dict[str, tuple[Any, str, str]] = {
    "no predictions": ([], "empty-file", "the file contains no predictions"),
    "not a number": ([POINT | {"point": [float("nan"), 2]}], "not-finite", "must be a finite number, got nan"),
    "an unknown column": (flat([POINT]).assign(extra=1), "unknown-column", "extra"),
    "an index that was written": (flat([POINT]).assign(**{"Unnamed: 0": 0}), "unknown-column", "Unnamed: 0"),
    "text for a number": (flat([POINT]).astype({"x": str}), "column-type", "must contain numbers"),
    "a point of three": ({POINT["image_id"]: {"Edema": (1, 2, 3)}}, "wrong-type", "point"),
    "a cell outside": ({POINT["image_id"]: {"Edema": "Z9"}}, "cell", "Z9"),
    "an unknown finding": ([POINT | {"finding": "Oedma"}], "unknown-finding", "Edema"),
    "an unknown image": ([POINT | {"image_id": "who"}], "unknown-image", "who"),
}


@pytest.mark.parametrize("case", LINTED)
def test_wrong_predictions_are_refused_by_the_file_rules(world: World, case: str) -> None:
    inputs, rule, message = LINTED[case]
    report = rb.lint(inputs, world.folder, allow_missing=True)
    assert any(problem.rule == rule and message in problem.to_line(report.format) for problem in report.problems)
    with pytest.raises(LintError, match="was not scored") as caught:
        rb.score(inputs, world.folder, allow_missing=True)
    assert any(
        problem.rule == rule and problem.to_line(report.format) in str(caught.value) for problem in report.problems
    )


def test_message_names_the_split_of_an_unknown_id(places: tuple[Path, Path]) -> None:
    folder, path = places
    report = rb.lint(path, folder, split="holdout", allow_missing=True)
    messages = {problem.to_line(report.format) for problem in report.problems if problem.rule == "unknown-image"}
    assert messages
    assert all("it belongs to split 'released'" in one for one in messages)


def test_unusable_benchmark_is_refused(world: World, tmp_path: Path) -> None:
    for bench, message in (
        (tmp_path / "nowhere", "must be an existing dataset folder"),
        ("no such name", "must be an existing dataset folder, got no such name"),
        (5, "got int"),
    ):
        with pytest.raises(ArgumentError, match=r"`source` must be an? .*dataset folder") as caught:
            rb.load(bench)  # type: ignore[arg-type]
        assert message in str(caught.value)
        with pytest.raises(ArgumentError, match=r"`bench` must be an? .*dataset folder"):
            rb.score([], bench)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"`split` must be one of the splits of .*\(released, holdout\)"):
        rb.load(world.folder, "test")
    with pytest.raises(ValueError, match="holdout"):
        _ = rb.load(world.folder, "holdout").references


def test_loaded_dataset_leads_back_to_its_folder(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.chdir(world.folder.parent)
    (tmp_path / world.folder.name).symlink_to(world.folder)
    source = str(world.folder)

    def loaded(split: str | None = "released", **options: Any) -> Any:
        return datasets.load_dataset(source, "localization", split=split, cache_dir=str(tmp_path / "cache"), **options)

    for right in (loaded(), loaded(None), loaded(streaming=True), loaded().remove_columns("image_id")):
        assert rb.load(right) == rb.load(world.folder)
    assert rb.load(loaded(), "holdout").split == "holdout"
    for wrong, message in (
        (loaded("released[:2]"), f"must be a whole split .*got a datasets.Dataset of '{world.folder.name}'"),
        (loaded().select(range(2)), "must be a whole split"),
        (loaded(streaming=True).take(2), "must lead back"),
        (datasets.Dataset.from_dict({"a": [1]}), "must be a whole split .*got a datasets.Dataset$"),
        (datasets.DatasetDict(), "must be what `load_dataset` returned"),
    ):
        with pytest.raises(ArgumentError, match=f"`bench` {message}"):
            rb.score([], wrong)
    rows = loaded()
    monkeypatch.chdir(tmp_path)  # here the name is a link to the same folder
    assert rb.load(rows).folder.resolve() == world.folder.resolve()
    (tmp_path / world.folder.name).unlink()
    monkeypatch.chdir(tmp_path / "cache")
    with pytest.raises(ArgumentError, match="give the path of the folder instead"):
        rb.load(rows)


def test_report_uses_the_split_of_an_opened_benchmark(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reveal_bench.reports import run_page

    def write(_runs: Any, folder: Path, _out: Path, *, split: str | None, **_: Any) -> list[str]:
        return [str(folder), str(split)]

    monkeypatch.setattr(run_page, "write_run_report", write)
    for bench, split in ((rb.load(world.folder, "holdout"), "holdout"), (world.folder, "None")):
        assert rb.report(["run"], bench, out=tmp_path).warnings == (str(world.folder), split)


def test_a_metric_has_its_name_and_its_title(places: tuple[Path, Path]) -> None:
    folder, path = places
    named, titled = (rb.compare(path, path, folder, metric=metric, **FEW) for metric in ("point_hit", "hit rate"))
    assert named.records == titled.records
    with pytest.raises(ArgumentError, match=r"`metric` must be one that applies: point_hit, .*, got 'accuracy'"):
        rb.compare(path, path, folder, metric="accuracy", **FEW)


def test_public_names_exist_and_are_listed() -> None:
    assert {"load", "score", "lint", "compare", "rank", "report", "__version__"} <= set(dir(rb))
    for name in dir(rb):
        assert getattr(rb, name) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_resamples": 0}, "`n_resamples` must be a whole number of at least 1, got 0"),
        ({"n_resamples": 2.5}, "`n_resamples` must be a whole number of at least 1, got 2.5"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0, got -1"),
        ({"interval": "bayes"}, "`interval` must be 'jackknife' or 'percentile' or 'bca' or 'chexlocalize'"),
        ({"unit": "study"}, "`unit` must be 'patient' or 'image' for a benchmark of localization, got 'study'"),
        ({"unit": None}, "`unit` must be 'patient' or 'image' for a benchmark of localization, got None"),
        ({"grid": 0}, "`grid` must be in [1, 26], got 0"),
        ({"ratings": 5}, "`ratings` must be a table, its path, the path of a dataset folder with ratings, or a list"),
    ],
)
def test_wrong_option_is_refused(places: tuple[Path, Path], options: dict[str, Any], message: str) -> None:
    folder, path = places
    with pytest.raises(ArgumentError, match=re.escape(message)):
        rb.score(path, folder, **options)


def test_numpy_integers_are_accepted(places: tuple[Path, Path]) -> None:
    folder, path = places
    result = rb.score(path, folder, n_resamples=np.int64(40), seed=np.int64(0))
    assert result.to_json() == rb.score(path, folder, **FEW).to_json()


def test_soft_masks_and_wrong_systems_are_refused(world: World, places: tuple[Path, Path]) -> None:
    last = np.arange(48 * 64).reshape(48, 64) == 48 * 64 - 1
    for mask, value in (
        (np.full((48, 64), 0.5), r"0\.5"), (np.uint8(255) * last, "255"),
        (np.full((48, 64), None), "an array of object"), ([[0], [0, 1]], "rows of different lengths"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=f"`mask` must be an array of bool, or of 0 and 1.*, got {value}"):
            rb.score([POINT | {"mask": mask}], world.folder, allow_missing=True)
    with pytest.raises(ArgumentError, match=r"with 1 to 268435456 pixels, got \(20000, 20000\)"):
        rb.score([POINT | {"mask": np.broadcast_to(np.uint8(1), (20_000, 20_000))}], world.folder)
    for systems, message in (({}, "got none"), ([places[1]], "got a list")):
        with pytest.raises(ArgumentError, match=f"`systems` must be a mapping of names .*{message}"):
            rb.rank(systems, world.folder)  # type: ignore[arg-type]
