"""Scores of a training loop, which must be those of the same predictions in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from tests.api.test_number_ids import folders
from tests.kinds.folders import studies

__all__ = ["folders", "studies"]

FEW: dict[str, Any] = {"n_resamples": 1, "strata": False}


class Tensor:
    """Tensor with the methods of torch that are used; numpy cannot read it before `detach` and `cpu`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Any:
        return self._array


def test_fifty_epochs_have_the_scores_of_their_tables(studies: tuple[Path, Path], rng: np.random.Generator) -> None:
    bench = rb.load(studies[0], split="test")
    ids = list(bench.ids)
    metric = rb.Accumulator(bench, **FEW)
    for epoch in range(50):
        metric.reset()
        scores = rng.random((len(ids), len(bench.findings)), np.float32)
        for start in range(0, len(ids), 3):
            batch = scores[start : start + 3]
            metric.update(Tensor(batch) if epoch % 2 else batch, ids[start : start + 3])
        if epoch % 10 < 2:
            table = pd.DataFrame(scores, ids, bench.findings)
            assert metric.compute().to_json() == rb.score(table, bench, **FEW).to_json()
    with pytest.raises(ArgumentError, match=r"`ids` must not repeat: call `reset\(\)` before each epoch, got"):
        metric.update(scores[:1], ids[:1])


OUTPUT = {
    "boxes": np.array([[10, 20, 110, 140], [1, 2, 30, 40]], np.float32),
    "labels": np.array([1, 2]),
    "scores": np.array([0.5, 0.25], np.float32),
}
EMPTY = {"boxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, int), "scores": np.zeros(0, np.float32)}
LINES = [
    {"image_id": "36199", "finding": "Effusion", "box": [10.0, 20.0, 100.0, 120.0], "score": 0.5},
    {"image_id": "36199", "finding": "Nodule", "box": [1.0, 2.0, 29.0, 38.0], "score": 0.25},
]
"""The boxes by hand: width 110 - 10 and 30 - 1, height 140 - 20 and 40 - 2."""
NAMES = ["Effusion", "Nodule"]


def test_lists_of_torchvision_dictionaries_are_read(folders: dict[str, Path]) -> None:
    bench = rb.load(folders["detection"])
    listed = rb.convert([OUTPUT, EMPTY], bench, ids=["36199", "40"], categories=NAMES)
    assert listed.predictions == LINES
    assert rb.convert({"36199": OUTPUT, "40": EMPTY}, bench, categories=NAMES).predictions == LINES
    metric = rb.Accumulator(bench, categories=NAMES, allow_missing=True, **FEW)
    metric.update([EMPTY], ["40"])
    metric.update([OUTPUT], ["36199"])
    assert metric.compute().to_json() == rb.score(LINES, bench, allow_missing=True, **FEW).to_json()
    with pytest.raises(ArgumentError, match="`ids` must be the ids of 1 images, got 2"):
        metric.update([OUTPUT], ["41", "42"])


@pytest.mark.parametrize("n", [1, 2])
def test_torchvision_dictionaries_without_ids_get_a_hint(folders: dict[str, Path], n: int) -> None:
    with pytest.raises(LintError, match=r"rb\.convert\(outputs, bench, ids=image_ids, categories=names\)"):
        rb.score([OUTPUT] * n, folders["detection"])


@pytest.mark.parametrize("background", ["__background__", "Background"])
def test_categories_with_the_background_need_first_category_zero(folders: dict[str, Path], background: str) -> None:
    bench = rb.load(folders["detection"])
    message = r"`categories` must not start with the background.*unless `first_category` is 0"
    with pytest.raises(ArgumentError, match=message):
        rb.convert([OUTPUT], bench, ids=["36199"], categories=[background, *NAMES])
    with pytest.raises(ArgumentError, match=message):
        rb.Accumulator(bench, categories=[background, *NAMES])
    done = rb.convert([OUTPUT], bench, ids=["36199"], categories=[background, *NAMES], first_category=0)
    assert done.predictions == LINES
    rows = [{"image_id": "36199", "category_id": 14, "bbox": [1, 2, 3, 4], "score": 0.5}]
    with pytest.raises(
        ArgumentError, match="`categories` name the numbers 0 to 1, and may name one 'No finding', got 14"
    ):
        rb.convert(rows, bench, categories=NAMES, first_category=0)


def test_rows_without_finding_and_position_mark_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'image_id,finding,bbox,score\n36199,Effusion,"[np.float64(10.0), np.float64(20.0), 100.0, 120.0]",0.5\n40,,,\n'
    )
    done = rb.convert(tmp_path / "a.csv", folders["detection"])
    assert done.predictions == LINES[:1]
    assert "1 row of no finding mark nothing" in done.notes


def test_masks_of_detectors_are_read_or_named_as_left_out(folders: dict[str, Path]) -> None:
    masks = np.zeros((2, 1, 1024, 1024), np.float32)
    masks[0, 0, 20:140, 10:110], masks[0, 0, 0, 0] = 0.5, 0.49
    output = OUTPUT | {"masks": masks}
    bench = rb.load(folders["localization"])
    done = rb.convert([output], bench, ids=["36199"], categories=NAMES)
    assert "masks have the pixels of at least 0.5" in done.notes
    pixels = np.zeros((1024, 1024), bool)
    pixels[20:140, 10:110] = True
    table = pd.DataFrame([{"image_id": 36199, "finding": "Effusion", "score": 0.5, "mask": pixels}])
    (prediction,) = rb.lint(table, bench, allow_missing=True).predictions
    for mask in (pixels, pixels.astype(np.float32)):
        (mapped,) = rb.lint({"36199": {"Effusion": mask}}, bench, allow_missing=True).predictions
        assert mapped.mask == prediction.mask
    assert rb.lint(done, bench, allow_missing=True).predictions[0].mask == prediction.mask
    metric = rb.Accumulator(bench, categories=NAMES, allow_missing=True, **FEW)
    metric.update([output | {"masks": masks[:, 0]}], ["36199"])
    assert metric.compute().to_json() == rb.score(done, bench, allow_missing=True, **FEW).to_json()
    boxes = rb.convert([output], rb.load(folders["detection"]), ids=["36199"], categories=NAMES)
    assert boxes.predictions == LINES
    assert "columns left out because they are not scored: masks" in boxes.notes


def test_lines_and_mappings_are_added_without_ids(folders: dict[str, Path]) -> None:
    metric = rb.Accumulator(folders["detection"], allow_missing=True, **FEW)
    metric.update(LINES[:1])
    metric.update({"36199": {"Nodule": [([1, 2, 29, 38], 0.25)]}})
    assert metric.compute().to_json() == rb.score(LINES, folders["detection"], allow_missing=True, **FEW).to_json()
    with pytest.raises(ArgumentError, match="unless `ids` are given, got ndarray"):
        metric.update(np.zeros((1, 2)))


def test_an_epoch_without_any_box_has_the_scores_of_misses(folders: dict[str, Path]) -> None:
    metric = rb.Accumulator(folders["detection"], categories=NAMES, **FEW)
    with pytest.raises(LintError, match="no predictions"):
        metric.compute()
    metric.update([EMPTY, EMPTY], ["36199", "40"])
    scored = metric.compute().scored
    assert {one.value for one in scored.estimates if one.metric == "ap_50" and one.finding in NAMES} == {0.0}
    assert scored.report.n_questions == len(rb.load(folders["detection"]).cases.records)
    for repeated in (["36199"], ["41", "41"]):  # a second epoch counted every box twice
        with pytest.raises(ArgumentError, match=f"`ids` must not repeat.*, got '{repeated[0]}'"):
            metric.update([OUTPUT] * len(repeated), repeated)
    metric.reset()
    metric.update([OUTPUT], ["36199"])
    assert metric.compute().to_json() == rb.score(LINES, folders["detection"], **FEW).to_json()
    selected = rb.score(LINES, folders["detection"], metric="Lesion sensitivity, AP 50", **FEW)
    every = rb.score(LINES, folders["detection"], **FEW).records
    names = list(dict.fromkeys(row["metric"] for row in selected.records))
    assert str([row for name in names for row in every if row["metric"] == name]) == str(selected.records)  # with NaN
    assert names == ["lesion_sensitivity", "ap_50"]
    metric.reset()
    with pytest.raises(LintError, match="no predictions"):
        metric.compute()


def test_unknown_options_are_refused_before_the_training(folders: dict[str, Path]) -> None:
    with pytest.raises(TypeError, match="n_resample'"):
        rb.Accumulator(folders["detection"], n_resample=3)


class Half(Tensor):
    """Tensor of bfloat16, which numpy cannot read."""

    def cpu(self) -> Half:
        return self

    def __array__(self, *_: Any) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")

    def float(self) -> Any:
        return self._array


def test_bfloat16_is_read_without_loss(studies: tuple[Path, Path]) -> None:
    bench = rb.load(studies[0], split="test")
    ids = list(bench.ids)
    scores = np.tile(np.array([0.25, 0.5, 0.75], np.float32), (len(ids), 1))[:, : len(bench.findings)]
    metric = rb.Accumulator(bench, **FEW)
    metric.update(Half(scores), ids)
    assert metric.compute().to_json() == rb.score(pd.DataFrame(scores, ids, bench.findings), bench, **FEW).to_json()


def test_tables_are_read_by_their_names(studies: tuple[Path, Path], rng: np.random.Generator) -> None:
    bench = rb.load(studies[0], split="test")
    ids, findings = list(bench.ids), list(bench.findings)
    table = pd.DataFrame(rng.random((len(ids), len(findings))), ids, findings)
    expected = rb.score(table, bench, **FEW).to_json()
    reversed_columns = table[findings[::-1]]
    named = table.rename_axis("study_id").reset_index()
    for predictions, stated in (
        (reversed_columns, ids),
        (reversed_columns, None),
        (named[::-1], None),
        (reversed_columns.reset_index(drop=True), ids),
        (table[::-1].rename_axis("study"), ids[::-1]),
        (dict(reversed_columns), ids),
        (pd.DataFrame(table.to_numpy()), ids),
    ):
        metric = rb.Accumulator(bench, **FEW)
        metric.update(predictions, stated)
        assert metric.compute().to_json() == expected


WRONG_TABLES: dict[str, tuple[Any, str]] = {
    "rows in another order": (lambda table: table[::-1], "`ids` must be omitted, or equal the index"),
    "row numbers after filtering": (
        lambda table: table.set_axis([f"{i + 9}" for i in range(len(table))]),
        r"'9' in row 1\. For an index without ids: df\.reset_index\(drop=True\)",
    ),
    "a further column": (lambda table: table.assign(path="a.png"), "and columns of findings, got path"),
    "a NaN": (
        lambda table: table.mask(table == table.iloc[1, 0]),
        r"bench\.select\(findings=\.\.\.\), got nan in row 2 \(.*\), '",
    ),
    "a NaN in an array": (
        lambda table: table.mask(table == table.iloc[1, 0]).to_numpy(),
        r"set allow_missing=True, or .*, got nan in row 2 \(.*\), '",
    ),
    "answers by id": (lambda table: table.to_dict("index"), "must map findings to columns of equal length if `ids`"),
    "a row less": (lambda table: table[1:], "`ids` must be the ids of"),
}


@pytest.mark.parametrize("wrong", WRONG_TABLES)
def test_tables_that_contradict_their_ids_are_refused(studies: tuple[Path, Path], wrong: str) -> None:
    bench = rb.load(studies[0], split="test")
    ids = list(bench.ids)
    shape = len(ids), len(bench.findings)
    table = pd.DataFrame(np.arange(shape[0] * shape[1]).reshape(shape) / 1000, ids, bench.findings)
    make, message = WRONG_TABLES[wrong]
    with pytest.raises(ArgumentError, match=message):
        rb.Accumulator(bench, **FEW).update(make(table), ids)


def test_convert_refuses_labels_and_ids_that_contradict_a_table(studies: tuple[Path, Path]) -> None:
    bench = rb.load(studies[0], split="test")
    ids, findings = list(bench.ids), list(bench.findings)
    table = pd.DataFrame(np.full((len(ids), len(findings)), 0.5), ids, findings)
    with pytest.raises(ArgumentError, match="`labels` must be omitted, or equal the table's columns"):
        rb.convert(table, bench, labels=findings[::-1], ids=ids)
    with pytest.raises(ArgumentError, match="`ids` must be omitted, or equal the index"):
        rb.convert(table, bench, ids=ids[::-1])
    assert len(rb.convert(table, bench, labels=findings, ids=ids).lines) == len(ids)


class Number:
    """Tensor of one number, as a DataLoader makes from an id."""

    ndim = 0

    def __init__(self, value: int) -> None:
        self._value = value

    def size(self) -> tuple[()]:
        return ()

    def item(self) -> int:
        return self._value


@pytest.mark.parametrize("id_type", [int, float, Number, np.int64])
def test_detectors_accept_ids_that_became_numbers(folders: dict[str, Path], id_type: Any) -> None:
    bench = rb.load(folders["detection"])
    ids = [id_type(36199), id_type(40)]
    assert rb.convert([OUTPUT, EMPTY], bench, ids=ids, categories=NAMES).predictions == LINES
    metric = rb.Accumulator(bench, categories=NAMES, allow_missing=True, **FEW)
    metric.update([OUTPUT, EMPTY], ids)
    assert metric.compute().to_json() == rb.score(LINES, bench, allow_missing=True, **FEW).to_json()
