"""The questions, their order, and the identity of the data to which answers belong."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.questions import AskSettings, _one_view, describe_split, list_questions
from tests.dataset.card_folders import findings_folder


def edited(folder: Path, pattern: str, column: str) -> None:
    """Write a table anew, its rows in the same order, without the first value of `column`."""
    (path,) = folder.glob(pattern)
    table = pq.read_table(path)
    values = table[column].to_pylist()
    at = table.schema.get_field_index(column)
    changed = [[[] if isinstance(values[0], list) else "other", *values[1:]]]
    field = table.schema.field(at)
    pq.write_table(table.set_column(at, field, pa.chunked_array(changed, field.type)), path)


def test_the_questions_are_the_pairs_of_the_manifest_in_its_order(films: Path) -> None:
    rows = pq.read_table(films / "manifest" / "test.parquet").to_pylist()
    expected = [f"{row['image_id']}|{finding}" for row in rows for finding in row["asked"]]
    asked = list_questions(films, "test", AskSettings())
    assert [question.id for question in asked] == expected
    assert len(set(expected)) == len(expected)
    assert list_questions(films, "test", AskSettings(), limit=3) == asked[:3]
    assert {question.unit for question in asked} == {row["image_id"] for row in rows if row["asked"]}


def test_what_cannot_be_asked_is_said(films: Path) -> None:
    with pytest.raises(ValueError, match="`form` must be one of cell, point, box for chexlocalize, got 'labels'"):
        list_questions(films, "test", AskSettings(form="labels"))
    with pytest.raises(ValueError, match="`limit` must be at least 1, got 0"):
        list_questions(films, "test", AskSettings(), limit=0)
    with pytest.raises(ValueError, match="`split` must be one of the splits"):
        describe_split(films, "nowhere")


def test_split_that_the_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`split` must be one of the splits of .* \(test\), got 'released'"):
        list_questions(findings_folder(tmp_path), "released", AskSettings(form="labels"))


@pytest.mark.parametrize(
    ("pattern", "column", "differs"),
    [
        ("manifest/test.parquet", "asked", True),
        ("localization/test-*.parquet", "pixel_sha256", True),
        ("localization/test-*.parquet", "annotations", False),
        ("localization/validation-*.parquet", "pixel_sha256", False),
        ("manifest/test.parquet", "", False),
    ],
    ids=["a question", "a film", "a reference", "another split", "nothing but the file"],
)
def test_the_digest_is_of_what_is_asked_and_shown(
    films: Path, tmp_path: Path, pattern: str, column: str, differs: bool
) -> None:
    folder = tmp_path / "films"
    shutil.copytree(films, folder)
    before = describe_split(folder, "test")
    assert {name: value for name, value in before.items() if name != "dataset"} == {
        "benchmark": "chexlocalize", "benchmark_version": "1.0.0", "split": "test", "kind": "localization",
    }  # fmt: skip
    if column:
        edited(folder, pattern, column)
    else:
        (path,) = folder.glob(pattern)
        pq.write_table(pq.read_table(path), path, compression="none")
    assert (describe_split(folder, "test") != before) is differs


def test_a_question_comes_back_from_its_document() -> None:
    images = (ViewedImage("a|b", "PA", (3, 4)), ViewedImage("c", "LATERAL", (5, 6), is_prior=True))
    task = Question("t", "text", images, choices=("x", "y"), prompt="?", requires_boxes=True)
    place = Question("a|b|Edema", "cell", images[:1], "Edema")
    for question, unit in ((task, "t"), (place, "a|b")):
        assert Question.from_document(json.loads(json.dumps(asdict(question)))) == question
        assert question.unit == unit


def test_one_view_is_the_pa_else_the_ap_and_that_of_the_study_before(tmp_path: Path) -> None:
    def one_view(*views: str, prior: tuple[str, ...] = ()) -> list[str]:
        now = [ViewedImage(view, view, (8, 8)) for view in views]
        before = [ViewedImage(f"old {view}", view, (8, 8), is_prior=True) for view in prior]
        return [image.image_id for image in _one_view([*now, *before])]

    assert one_view("LATERAL", "AP", "PA") == ["PA"]
    assert one_view("LATERAL", "AP", prior=("LATERAL", "FRONTAL")) == ["AP", "old FRONTAL"]
    assert one_view("LATERAL") == ["LATERAL"]
    folder = findings_folder(tmp_path, n=4)  # every second study has an AP and a lateral film
    of_views = {views: AskSettings.of_folder(folder, views=views) for views in ("all", "one")}
    counts = {views: [len(one.images) for one in list_questions(folder, "test", settings)]
              for views, settings in of_views.items()}  # fmt: skip
    assert counts == {"all": [1, 2, 1, 2], "one": [1, 1, 1, 1]}
    with pytest.raises(ValueError, match=r"`views` is for questions about studies \(labels, text\), got form 'cell'"):
        AskSettings(views="one")
