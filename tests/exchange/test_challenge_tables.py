"""Tables of challenges' participants, each against a slow plain reading of the challenge's rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.challenge_tables import VINBIGDATA_CLASSES
from reveal_bench.kinds.folder import open_folder
from reveal_bench.masks import Rle, decode_mask
from tests.cli.test_score import call

SIDE = 1024


@pytest.fixture(scope="module")
def folder_of(twin_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    root, built = tmp_path_factory.mktemp("challenges"), dict[str, Path]()

    def build(style: str, task: str) -> Path:
        name = f"{style}-{task}"
        if name not in built:
            words = ("--task", task, "--images", "withhold", "--keep-going")
            call("build", twin_of(style), "--out", root / name, *words)
            built[name] = root / name
        return built[name]

    return build


def opened(folder: Path) -> tuple[str, list[str]]:
    """Return the first split of a folder, and its ids."""
    split = next(iter(open_folder(folder).info.splits))
    bench = rb.load(folder, split=split)
    return split, list(bench.manifest.rows)


def boxes_by_rule(image: str, text: str, finding: str | None) -> list[dict[str, Any]]:
    """RSNA 2018: confidence x y width height; VinBigData 2021: class confidence xmin ymin xmax ymax, class 14 none."""
    tokens, lines = text.split(), []
    while tokens:
        if finding is not None:
            score, x, y, width, height = (float(tokens.pop(0)) for _ in range(5))
            lines.append({"image_id": image, "finding": finding, "box": [x, y, width, height], "score": score})
        else:
            number, score, left, top, right, bottom = (float(tokens.pop(0)) for _ in range(6))
            if number != 14:
                box = [left, top, right - left, bottom - top]
                name = VINBIGDATA_CLASSES[int(number)]
                lines.append({"image_id": image, "finding": name, "box": box, "score": score})
    return lines


def mask_by_rule(text: str) -> Any:
    """SIIM-ACR 2019: from the upper left down the columns, skip the first number of pixels, mark the second."""
    pixels, place = np.zeros(SIDE * SIDE, bool), 0
    numbers = [int(token) for token in text.split()]
    for k in range(0, len(numbers), 2):
        place += numbers[k]
        for _ in range(numbers[k + 1]):
            pixels[place] = True
            place += 1
    return pixels.reshape(SIDE, SIDE).T


def written(rng: np.random.Generator, n_classes: int) -> str:
    parts = []
    for _ in range(rng.integers(0, 4)):
        x, y, width, height = rng.integers(1, 60, 4)
        score = f"{rng.random():.3f}"
        if n_classes:
            parts.append(f"{rng.integers(n_classes)} {score} {x} {y} {x + width} {y + height}")
        else:
            parts.append(f"{score} {x} {y} {width} {height}")
    return " ".join(parts)


@pytest.mark.parametrize(
    "heads", ["patientId,PredictionString", "image_id, predictionstring", "ImageId,PredictionString"]
)
def test_prediction_strings_of_rsna(folder_of: Callable[..., Path], tmp_path: Path, heads: str) -> None:
    folder = folder_of("rsna-pneumonia", "detection")
    split, ids = opened(folder)
    rng = np.random.default_rng(0)
    rows = [(image, written(rng, 0)) for image in ids] + [(ids[0], "0.9 10 20 50 60 0.3 100 100 40 40")]
    (tmp_path / "rsna.csv").write_text("\n".join([heads, *(f"{image},{text}" for image, text in rows)]))
    expected = [line for image, text in rows for line in boxes_by_rule(image, text, "Lung Opacity")]
    result = rb.convert(tmp_path / "rsna.csv", folder, split=split)
    assert result.predictions == expected
    notes = "\n".join(result.notes)
    assert "`PredictionString` read as confidence, x, y, width, height of each box, in pixels" in notes
    n_empty = sum(not text for _, text in rows)
    assert f"{n_empty} row" in notes
    out = tmp_path / "out.jsonl"
    call("convert", folder, "--from", "table", "--file", tmp_path / "rsna.csv", "--split", split, "--out", out)
    assert len(out.read_text().splitlines()) == len(expected)


def test_labels_of_rsna_are_boxes_with_the_score_1(folder_of: Callable[..., Path], tmp_path: Path) -> None:
    folder = folder_of("rsna-pneumonia", "detection")
    split, ids = opened(folder)
    head = "patientId,x,y,width,height,Target\n"
    (tmp_path / "labels.csv").write_text(f"{head}{ids[0]},10,20,30,40,1\n{ids[0]},50,60,7,8,1\n{ids[1]},,,,,0\n")
    result = rb.convert(tmp_path / "labels.csv", folder, split=split)
    one = {"image_id": ids[0], "finding": "Lung Opacity", "score": 1.0}
    assert result.predictions == [one | {"box": [10, 20, 30, 40]}, one | {"box": [50, 60, 7, 8]}]
    assert "1 row without a mark" in result.notes
    (tmp_path / "labels.csv").write_text(f"{head}{ids[0]},10,20,30,40,2\n")
    with pytest.raises(ArgumentError, match="must have 0 or 1 as `Target`, got '2' in row 1"):
        rb.convert(tmp_path / "labels.csv", folder, split=split)


def test_challenge_table_is_refused_with_the_remedy_first(folder_of: Callable[..., Path], tmp_path: Path) -> None:
    folder = folder_of("rsna-pneumonia", "detection")
    _, ids = opened(folder)
    (tmp_path / "rsna.csv").write_text(f"patientId,PredictionString\n{ids[0]},0.9 10 20 50 60\n")
    lines = call("score", tmp_path / "rsna.csv", folder, expect=1).stderr.splitlines()
    remedy = f"is this another program's table, or COCO results? `reveal-bench convert {folder} --from table"
    assert lines[1].startswith(remedy)


@pytest.mark.parametrize("as_frame", [False, True])
def test_prediction_strings_of_vinbigdata(folder_of: Callable[..., Path], as_frame: bool) -> None:
    folder = folder_of("vindr-cxr", "detection")
    split, ids = opened(folder)
    rng = np.random.default_rng(1)
    texts = ["14 1.0 0 0 1 1", "7 0.5 1 2 31 42 14 1 0 0 1 1", *(written(rng, 15) for _ in ids)]
    rows = [{"image_id": image, "PredictionString": text} for image, text in zip(ids * 2, texts, strict=False)]
    expected = [line for row in rows for line in boxes_by_rule(row["image_id"], row["PredictionString"], None)]
    result = rb.convert(pd.DataFrame(rows) if as_frame else rows, folder, split=split)
    assert result.predictions == expected
    assert "class numbers read as VinBigData's of 2021, from 0" in result.notes
    n_none = sum(text.split()[k] == "14" for row in rows for text in [row["PredictionString"]]
                 for k in range(0, len(text.split()), 6))  # fmt: skip
    assert f"{n_none} marks of no finding left out; docs/sources.md has their score" in result.notes


def test_classes_of_other_numbers_and_by_name(folder_of: Callable[..., Path]) -> None:
    folder = folder_of("vindr-cxr", "detection")
    split, ids = opened(folder)
    rows = [{"image_id": ids[0], "PredictionString": "0 0.5 1 2 3 4 Cardiomegaly 0.25 5 6 9 9"}]
    lines = rb.convert(rows, folder, split=split, categories=["Nodule/Mass"], first_category=0).predictions
    assert [(line["finding"], line["box"]) for line in lines] == [
        ("Nodule/Mass", [1, 2, 2, 2]), ("Cardiomegaly", [5, 6, 4, 3]),
    ]  # fmt: skip


@pytest.mark.parametrize("task", ["localization", "detection"])
def test_encoded_pixels_of_siim(folder_of: Callable[..., Path], tmp_path: Path, task: str) -> None:
    """Two masks of one image are two detections, but one location."""
    folder = folder_of("siim-acr", task)
    split, ids = opened(folder)
    texts = [(ids[0], "10 3 5 2"), (ids[0], "2000 30 994 40"), (ids[1], "-1"), (ids[2], f"0 {SIDE * SIDE}"),
             (ids[3], f"{SIDE * SIDE - 1} 1")]  # fmt: skip
    rows = "\n".join(f"{image},{text}" for image, text in texts)
    (tmp_path / "siim.csv").write_text(f"ImageId, EncodedPixels\n{rows}\n")
    result = rb.convert(tmp_path / "siim.csv", folder, split=split)
    masks = [(image, mask_by_rule(text)) for image, text in texts if text != "-1"]
    if task == "localization":
        masks = [(ids[0], masks[0][1] | masks[1][1]), *masks[2:]]
    assert [line["image_id"] for line in result.predictions] == [image for image, _ in masks]
    for line, (_, mask) in zip(result.predictions, masks, strict=True):
        assert np.array_equal(decode_mask(Rle((SIDE, SIDE), line["rle"]["counts"])), mask)
        assert line.get("score") == (1.0 if task == "detection" else None)
    assert "1 row without a mark" in result.notes


WRONG: dict[str, tuple[str, str, str]] = {
    "four values": (
        "rsna-pneumonia",
        "0.9 1 2 3",
        "must have 5 values for each box in `PredictionString`, got 4 in row 1",
    ),
    "a class in RSNA's": ("rsna-pneumonia", "1 0.9 1 2 3 4", "must have 5 values for each box"),
    "a word": (
        "rsna-pneumonia",
        "0.9 1 2 x 3",
        "must have numbers for each box in `PredictionString`, got '0.9 1 2 x 3'",
    ),
    "no class in VinBigData's": ("vindr-cxr", "0.9 1 2 3 4", "must have 6 values for each box"),
    "an unknown class": ("vindr-cxr", "15 0.9 1 2 3 4", "must have findings of the benchmark"),
    "nothing marked at all": ("rsna-pneumonia", "", "must have a mark in a row of `PredictionString`, got none"),
    "half a pair": ("siim-acr", "1 2 3", "must be -1 or pairs of gap and length in `EncodedPixels`, got '1 2 3' for "),
    "beyond the image": ("siim-acr", f"1 {SIDE * SIDE}", "must end within 1024 x 1024 = 1048576 pixels"),
    "a blank mask": ("siim-acr", "", "must be -1 or pairs of gap and length"),
    "masks for several findings": ("vindr-cxr", "-1", "must have one finding in its benchmark to have `EncodedPixels`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_cells_that_break_the_format_are_refused(folder_of: Callable[..., Path], case: str) -> None:
    style, text, message = WRONG[case]
    folder = folder_of(style, "detection")
    split, ids = opened(folder)
    column = "EncodedPixels" if style == "siim-acr" or "masks" in case else "PredictionString"
    with pytest.raises(ArgumentError) as caught:
        rb.convert([{"image_id": ids[0], column: text}], folder, split=split)
    assert message in str(caught.value)


def test_a_column_of_ids_may_be_named(folder_of: Callable[..., Path]) -> None:
    folder = folder_of("rsna-pneumonia", "detection")
    split, ids = opened(folder)
    row = {"patientId": ids[0], "PredictionString": "0.9 1 2 3 4"}
    (line,) = rb.convert([row], folder, split=split, columns={"patientId": "image_id"}).predictions
    assert (line["image_id"], line["box"]) == (ids[0], [1, 2, 3, 4])
    (line,) = rb.convert([row | {"patientId": "a", "image_id": ids[1]}], folder, split=split).predictions
    assert line["image_id"] == ids[1]


def test_rows_without_a_mark_must_name_images_of_the_split(folder_of: Callable[..., Path]) -> None:
    folder = folder_of("rsna-pneumonia", "detection")
    split, ids = opened(folder)
    rows = [
        {"patientId": ids[0], "PredictionString": "0.9 1 2 3 4"},
        {"patientId": "elsewhere", "PredictionString": ""},
    ]
    with pytest.raises(ArgumentError, match=r"must have ids of the split, .*got 'elsewhere'"):
        rb.convert(rows, folder, split=split)
    assert len(rb.convert(rows, folder, split=split, leave_out_unknown=True).predictions) == 1
