"""Common mistakes in inputs: an error or a warning names the rule, the value and the next step."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.evaluation.score import LintError
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset.card_folders import LABELS
from tests.kinds.folders import N_STUDIES, studies

__all__ = ["studies"]

CONVERT = "`reveal-bench convert FOLDER --from table"


@pytest.fixture(scope="module")
def lines(world: World) -> list[dict[str, Any]]:
    """Return one point for every question."""
    asked = rb.load(world.folder).manifest.asked_pairs()
    return [
        {"image_id": image, "finding": finding, "point": [14, 15 + i % 9]} for i, (image, finding) in enumerate(asked)
    ]


def table(lines: list[dict[str, Any]], **columns: Any) -> pd.DataFrame:
    return pd.DataFrame([{"image_id": one["image_id"], "finding": one["finding"]} for one in lines]).assign(**columns)


def jsonl(lines: list[dict[str, Any]], **fields: Any) -> bytes:
    return "".join(json.dumps(one | fields) + "\n" for one in lines).encode()


def coded(**options: Any) -> Callable[[list[dict[str, Any]]], bytes]:
    return lambda lines: bytes(table(lines, x=14, y=15).to_csv(**({"index": False} | options)).encode())


PLACES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes], tuple[str, ...]]] = {
    "nothing": ("a.jsonl", lambda lines: b"", ("the file contains no predictions",)),
    "gzip of a picture": ("a.jsonl.gz", lambda lines: gzip.compress(b"\x89PNG\r\n\x1a\n"), ("an image", CONVERT)),
    "a gzip that is cut": ("a.jsonl.gz", lambda lines: gzip.compress(jsonl(lines))[:40], ("the original again",)),
    "a spreadsheet": ("a.xlsx", lambda lines: b"PK\x03\x04....", ("save it as CSV",)),
    "a pickle": ("a.pkl", lambda lines: b"\x80\x04....", ("which is never opened",)),
    "UTF-16": ("a.csv", lambda lines: "image_id,x".encode("utf-16"), ("save it as UTF-8",)),
    "decimal commas": (
        "a.csv",
        lambda lines: table(lines, x=14.5, y=15).to_csv(index=False, sep=";", decimal=",").encode(),
        ('x: must have a decimal point, not a decimal comma, got "14,5"',),
    ),
    "an index column": ("a.csv", coded(index=True), ("df.to_csv(..., index=False)", CONVERT)),
    "records of pandas": (
        "a.json",
        lambda lines: table(lines, x=14, y=15).to_json(orient="records").encode(),
        ("x: is not a field", CONVERT),
    ),
    "corners": (
        "a.csv",
        lambda lines: table(lines, xmin=1, ymin=2, xmax=9, ymax=9).to_csv(index=False).encode(),
        ("a.csv:1", 'got "xmin"', CONVERT),
    ),
    "numbers for images": (
        "a.csv",
        lambda lines: table(lines, x=14, y=15).assign(image_id=range(len(lines))).to_csv(index=False).encode(),
        ("a.csv:2", "is not an image of chexlocalize released", "ids of this split look like patient", CONVERT),
    ),
    "shares": ("a.jsonl", lambda lines: jsonl(lines, point=[0.4, 0.5]), ("look normalised", "pixels", CONVERT)),
    "names of files": (
        "a.jsonl",
        lambda lines: jsonl([one | {"image_id": one["image_id"] + ".jpg"} for one in lines]),
        ("a.jsonl:1", "image_id: is not an image", "did you mean patient"),
    ),
    "another spelling": (
        "a.jsonl",
        lambda lines: jsonl(lines, finding="Oedma"),
        ('got "Oedma"', "did you mean Edema?"),
    ),
    "outside": ("a.jsonl", lambda lines: jsonl(lines, point=[9999, 5]), ("must be inside the image", "got [9999, 5]")),
    "NaN": (
        "a.jsonl",
        lambda lines: jsonl(lines, point=[float("nan"), 5]),
        ("a.jsonl:1", "point[0]: must be a finite number, got nan"),
    ),
    "a text for a point": ("a.jsonl", lambda lines: jsonl(lines, point="14,15"), ('must be [x, y], got "14,15"',)),
    "a mask on its side": (
        "a.jsonl",
        lambda lines: jsonl(lines, rle={"size": [64, 48], "counts": [0, 64 * 48]}),
        ("rle.size: must be the image's [height, width] = [48, 64], got [64, 48]", "height comes first"),
    ),
    "twice": (
        "a.jsonl",
        lambda lines: jsonl([*lines, lines[0]]),
        ("already predicted in line 1", "several points go in `points`"),
    ),
    "some left out": ("a.jsonl", lambda lines: jsonl(lines[2:]), ("2 of", "have no prediction", "`--allow-missing`")),
}


@pytest.mark.parametrize("case", PLACES)
def test_wrong_point_file_is_reported(world: World, lines: list[dict[str, Any]], tmp_path: Path, case: str) -> None:
    name, make, message = PLACES[case]
    path = tmp_path / name
    path.write_bytes(make(lines))
    report = rb.lint(path, world.folder)
    assert report.ok == (case == "shares")
    assert [part for part in message if part not in report.render()] == []
    printed = call("lint", path, world.folder, expect=0 if report.ok else 1).stdout
    assert [part for part in message if part not in printed] == []
    if not report.ok:
        with pytest.raises(LintError, match=f"^{name} was not scored"):
            rb.score(path, world.folder)


def wide(**columns: Any) -> pd.DataFrame:
    frame = pd.DataFrame({"study_id": [f"study-{i}" for i in range(N_STUDIES)]} | dict.fromkeys(LABELS, 0.2))
    return frame.assign(**columns)


STUDIES: dict[str, tuple[pd.DataFrame, tuple[str, ...]]] = {
    "rounding": (wide(**dict.fromkeys(LABELS, 1.0000001)), ("must be in [0, 1], got 1.0000001", "clip")),
    "CheXpert's uncertain": (wide(**{LABELS[1]: -1}), ("CheXpert's -1? an uncertain label needs a probability",)),
    "an index column": (wide().reset_index(names=""), ("df.to_csv(..., index=False)", CONVERT)),
    "a label less": (wide().drop(columns=LABELS[0]), (f'must hold every label; 1 missing, got ["{LABELS[0]}"]',)),
    "numbers for studies": (wide(study_id=range(N_STUDIES)), ("ids of this split look like study-0",)),
    "a long table": (
        wide().melt(id_vars="study_id", var_name="label", value_name="probability"),
        ('got "label"', "already predicted in line 2", CONVERT),
    ),
}


@pytest.mark.parametrize("case", STUDIES)
def test_wrong_label_table_is_reported(studies: tuple[Path, Path], tmp_path: Path, case: str) -> None:
    frame, message = STUDIES[case]
    frame.to_csv(tmp_path / "a.csv", index=False)
    report = rb.lint(tmp_path / "a.csv", studies[0])
    assert not report.ok
    assert [part for part in message if part not in report.render()] == []
    assert "COCO's numeric ids" not in report.render()
    printed = call("lint", tmp_path / "a.csv", studies[0], expect=1).stdout  # the only split, also for the command
    assert [part for part in message if part not in printed] == []


def test_other_kinds_of_file_are_refused(world: World, lines: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    for inputs, message in (
        (world.folder, "got a dataset folder: name the predictions before it"),
        (tmp_path / "run", "got a run without any: repeat its `reveal-bench run` command"),
        ({lines[0]["image_id"]: [14, 15]}, r"as {image: {finding: \(x, y\)}}, got list for 'patient"),
        (np.zeros((2, 2)), "got a numpy.ndarray"),
    ):
        with pytest.raises(ValueError, match=message):
            rb.score(inputs, world.folder)
    with pytest.raises(ValueError, match=r"is not a dataset folder: it has no manifest/benchmark\.json"):
        rb.load(tmp_path / "run")


REFUSED: dict[str, tuple[Callable[[pd.DataFrame, rb.api.Bench], Any], str]] = {
    "several systems": (lambda p, b: rb.score({"A": p, "B": p}, b), "one system: `rank` takes several by name"),
    "readers of none": (lambda p, b: rb.curves(p, b, readers=True), "a dataset folder that has readings of single"),
    "a number of readers": (lambda p, b: rb.rank({"A": p}, b, readers=5), "`readers` must map names to predictions"),
    "one table beside": (lambda p, b: rb.curves(p, b, beside=p), "or be a list of predictions, got a pandas.DataFrame"),
    "one name twice": (lambda p, b: rb.curves(p, b, beside=[p], name="other 1"), "other systems, got 'other 1'"),
    "two files of one name": (
        lambda p, b: rb.curves(p, b, beside=[Path("x/a.csv"), Path("y/a.csv")]),
        "`beside` must map names to predictions if file names are equal, got 'a'",
    ),
    "cuts of logits": (lambda p, b: rb.score(p, b, thresholds=-3.7), "in [0, 1], because the scores are probabilities"),
    "a metric of one": (
        lambda p, b: rb.compare(p, p - 1, b, metric="F1"),
        "`metric` must be one that both systems have: auroc, average_precision, got 'F1', which b lacks (18 scores "
        "outside [0, 1]",
    ),
    "a metric of none": (
        lambda p, b: rb.score(p - 1, b, metric="F1"),
        "one that the system has: auroc, average_precision, got",
    ),
    "a figure": (lambda p, b: rb.curves(p, b, n_resamples=2).write("a.pdf"), "`out` must be a folder, into which"),
    "a method of pandas": (lambda p, b: b.cases.head(), "'head'; `.table` is a DataFrame, which has it"),
    "a wrong name": (lambda p, b: b.cases.heads, "'Cases' object has no attribute 'heads'"),
    "a selection": (lambda p, b: rb.compare(p, p, b, findings=["Edema"]), "did you mean `bench.select(findings)` as"),
    "other thresholds": (lambda p, b: rb.compare(p, p, b, thresholds=0.3), "mean `score(..., thresholds=...)` as"),
    "a plural": (
        lambda p, b: rb.score(p, b, metrics="F1"),
        "score() has no argument `metrics`; did you mean `metric`?",
    ),
    "replicates": (lambda p, b: rb.score(p, b, n_boot=9), "no argument `n_boot`; did you mean `n_resamples`?"),
    "anything": (lambda p, b: rb.curves(p, b, colour=1), "no argument `colour`; it has predictions, bench, split, th"),
    "a table as a run": (lambda p, b: rb.report({"A": p}, b, out="a"), "prediction files (`rb.convert(table, bench).w"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_the_form_that_works(studies: tuple[Path, Path], case: str) -> None:
    attempt, message = REFUSED[case]
    table = wide().set_index("study_id").rename_axis(None)
    table.iloc[0] = 0.7
    with pytest.raises((ValueError, TypeError, AttributeError), match=re.escape(message)):
        attempt(table, rb.load(studies[0]))


def test_natural_forms_of_arguments_work(studies: tuple[Path, Path]) -> None:
    """A tuning is accepted as thresholds.

    One of two studies with Mass scores higher than all others, so Mass has an F1 of 2 / (2 + 1).
    """
    bench, table = rb.load(studies[0]), wide().set_index("study_id").rename_axis(None)
    table.iloc[0] = 0.7
    result = rb.curves(table, bench, n_resamples=2, beside=[table])
    assert isinstance(result, rb.api.FindingCurves)
    assert list(result.beside) == ["other 1"]
    logits = table.where(table > 0.5, -0.8)
    tuning = rb.tune_thresholds(logits, bench, metric="f1", otherwise=-0.3)
    f1 = {one.finding: one.value for one in rb.score(logits, bench, thresholds=tuning).estimates if one.metric == "f1"}
    assert f1["Mass"] == pytest.approx(2 / 3)
    left_out = rb.compare(table, logits, bench).remarks
    assert left_out[0].startswith("not compared, because b lacks them: F1; Precision; ")
    assert rb.compare(table, logits, bench, metric="AUROC").remarks == []
    assert bench.references.to_pandas().study_id.tolist() == [f"study-{i}" for i in range(N_STUDIES)]


def test_caption_is_as_wide_as_the_terminal(studies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    scores = rb.score(wide(), rb.load(studies[0]))
    lines = repr(scores).splitlines()
    n = next(i for i, line in enumerate(lines) if line.startswith("metric"))
    assert max(map(len, lines[:n])) <= 40
    assert " ".join(lines[:n]) == scores.caption
