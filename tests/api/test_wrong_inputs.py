"""Common mistakes in inputs: an error or a warning names the rule, the value and the next step."""

from __future__ import annotations

import gzip
import json
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
