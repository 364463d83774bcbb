"""The form of a dataset folder: tables that every reader of Parquet reads, previews, and folders of format 1."""

import io
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Features, List
from PIL import Image

from reveal_bench import api
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.attach import attach_images
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.files import FOLDER_INFO
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.localization.records import Annotation
from reveal_bench.kinds.rows import LENGTHS
from reveal_bench.masks import encode_mask
from reveal_bench.reports.version_diff import diff_folders
from reveal_bench.sources.source import BuildError
from tests.dataset.card_folders import (
    edit,
    faults,
    findings_folder,
    localization_folder,
    localized,
    png,
    reseal,
    rows_of,
    tasks_folder,
)
from tests.dataset.conftest import make_record

FOLDERS = {"localization": localization_folder, "multilabel": findings_folder, "tasks": tasks_folder}


def types_in(kind):
    """A type and everything nested in it."""
    yield kind
    for i in range(kind.num_fields):
        yield from types_in(kind.field(i).type)


def features_in(value):
    """Every object of features in JSON."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from features_in(inner)


@pytest.mark.parametrize("config", FOLDERS)
def test_every_reader_of_parquet_reads_the_schema(tmp_path, config):
    """No list has a fixed length (apache/arrow issue 35692), and features are described with the types from before
    `List` (4.0).
    """
    folder = FOLDERS[config](tmp_path)
    for path in folder.rglob("*.parquet"):
        schema = pq.read_schema(path)
        assert not any(pa.types.is_fixed_size_list(kind) for field in schema for kind in types_in(field.type))
    (path,) = folder.glob(f"{config}/test-*.parquet")
    schema = pq.read_schema(path)
    written = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert {part["_type"] for part in features_in(written) if "_type" in part} == {"Value", "ClassLabel", "Image"}
    n_lists = sum(isinstance(feature, list) and len(feature) == 1 for feature in written.values())
    read = Features.from_arrow_schema(schema)
    assert n_lists == sum(isinstance(feature, List) for feature in read.values()) > 2
    assert read.arrow_schema.remove_metadata() == schema.remove_metadata()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda row: row.update(spacing_mm=[0.14]), "spacing_mm"),
        (lambda row: row["annotations"][0].update(bbox_xywh=[2.0, 5.0, 3.0]), "annotations.bbox_xywh"),
        (lambda row: row["annotations"][0].update(boxes_xywh=[[1.0] * 5]), "annotations.boxes_xywh"),
        (lambda row: row["annotations"][0].update(polygons=[[[1.0, 2.0], [1.0]]]), "annotations.polygons"),
        (lambda row: row["annotations"][0]["rle"].update(size=[20]), "annotations.rle.size"),
    ],
)
def test_lists_of_numbers_have_their_length(tmp_path, change, field):
    folder = localization_folder(tmp_path, n=1)
    edit(folder, "localization/test", change)
    assert ("localization", "img0", field) in faults(validate_folder(folder, load=False))


# Format 1


def fixed(name, kind):
    """A type as format 1 had it: lists of numbers have the length of :data:`LENGTHS`."""
    if pa.types.is_struct(kind):
        return pa.struct([(inner.name, fixed(inner.name, inner.type)) for inner in kind])
    if not pa.types.is_list(kind):
        return kind
    is_innermost = not pa.types.is_nested(kind.value_type)
    return pa.list_(fixed(name, kind.value_type), LENGTHS.get(name, (1, -1))[1] if is_innermost else -1)


def as_format_1(folder):
    """Turn a folder into one of format 1; pyarrow 26 and newer reads its lists."""
    if int(pa.__version__.partition(".")[0]) < 26:
        pytest.skip("pyarrow before 26 cannot read format 1")
    for path in folder.glob("preview/*"):
        path.unlink()
    for path in folder.glob("*/*-of-*.parquet"):
        table = pq.read_table(path)
        schema = pa.schema(
            [(field.name, fixed(field.name, field.type)) for field in table.schema], table.schema.metadata
        )
        pq.write_table(pa.Table.from_pylist(table.to_pylist(), schema=schema), path)
    info = folder / FOLDER_INFO
    info.write_text(info.read_text().replace('"schema": 2', '"schema": 1'))
    reseal(folder)
    return folder


@pytest.fixture
def old(tmp_path):
    return as_format_1(localization_folder(tmp_path / "old", n=4, holdout=True, pixels="withhold"))


def test_a_folder_of_format_1_is_read_and_compared(old, tmp_path):
    new = localization_folder(tmp_path / "new", n=4, holdout=True, pixels="withhold")
    assert (read_folder_info(old).format, read_folder_info(new).format) == (1, 2)
    predictions = tmp_path / "p.jsonl"
    lines = [
        {"image_id": row["image_id"], "finding": "Edema", "point": [3, 6]} for row in rows_of(new, "localization/")
    ]
    predictions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = [api.score(predictions, folder, split="released").to_document() for folder in (old, new)]
    hashes = {document.pop("references_sha256") for document in scores}
    assert len(hashes) == 2  # of the bytes of the tables, which differ
    assert scores[0] == scores[1]
    assert len(scores[0]["estimates"]) > 3
    assert diff_folders(old, new).is_empty


def test_a_folder_of_format_1_is_refreshed(old, tmp_path):
    records = [localized(tmp_path / "pictures", i) for i in range(5)]
    out, private = tmp_path / "out", tmp_path / "out-private"
    before = {"previous": old, "previous_holdout": old.parent / "private"}
    build_folder({"test": records}, out, BENCHMARKS["chexlocalize"], holdout=private, **before)
    assert {row["image_id"] for row in rows_of(old, "localization/released")} <= {
        row["image_id"] for row in rows_of(out, "localization/released")
    }
    assert validate_folder(out, holdout=private, load=False) == []


def test_a_folder_of_format_1_is_to_be_built_again_and_checked_for_leaks(old):
    private = old.parent / "private"
    (problem,) = [one for one in validate_folder(old, holdout=private, load=False) if one.file == FOLDER_INFO]
    assert (problem.field, problem.value) == ("schema", "1")
    assert "build the folder again" in problem.rule
    shutil.copy(next(private.glob("localization/*.parquet")), old / "localization" / "released-00001-of-00002.parquet")
    reseal(old)
    leaks = [one for one in validate_folder(old, holdout=private, load=False) if "holdout" in one.rule]
    assert leaks


def test_pixels_attached_to_format_1_give_format_2(old, tmp_path):
    pictures = old.parent / "pictures"
    for path in list(pictures.iterdir()):
        path.rename(path.with_name(f"img{path.name}"))
    attach_images(old, pictures, out=tmp_path / "out")
    assert read_folder_info(tmp_path / "out").format == 2
    assert validate_folder(tmp_path / "out", load=False) == []
    assert len(rows_of(tmp_path / "out", "preview/released")) == 2


def test_a_pyarrow_that_cannot_read_format_1_says_so(old, monkeypatch):
    """pyarrow 25.0 and older raise this where a list of fixed length is null."""

    def fail(*_, **__):
        raise pa.ArrowInvalid("Expected all lists to be of size=2 but index 1 had size=0")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", fail)
    rule = r"released-00000-of-00001\.parquet: pyarrow .* cannot read tables of format 1: install pyarrow 26 or newer"
    with pytest.raises(ValueError, match=rule):
        KINDS["localization"].data.read_records(old, "released")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("3", "got 3: a newer version of"),
        ("true", "got True$"),
        ("2.0", "got 2.0$"),
        ('"2"', "got '2'$"),
        ("null", "got None$"),
    ],
)
def test_another_format_is_refused(tmp_path, schema, words):
    folder = localization_folder(tmp_path, n=1)
    info = folder / FOLDER_INFO
    info.write_text(info.read_text().replace('"schema": 2', f'"schema": {schema}'))
    with pytest.raises(ValueError, match=rf"`schema`, the format of the folder, must be 1 or 2, {words}"):
        read_folder_info(folder)


# Previews


def preview_pixels(row):
    return np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"), int)


def test_a_preview_is_small_and_has_the_reference_outlined(tmp_path):
    """A grey film of 768 x 512 pixels is shown at half its size; its mask covers x 200 to 399 and y 100 to 299."""
    mask = np.zeros((512, 768), bool)
    mask[100:300, 200:400] = True
    drawn = Annotation("Edema", "ground_truth", encode_mask(mask), (), (200, 100, 200, 200), 1, 40_000)
    record = make_record(
        1, width=768, height=512, annotations=(drawn,), points=(), image=png(np.full((512, 768), 100, np.uint8)),
        image_name="img1.png", source_sha256=None,
    )  # fmt: skip
    build_folder({"test": [record]}, tmp_path / "out", BENCHMARKS["chexlocalize"])
    (row,) = rows_of(tmp_path / "out", "preview/test")
    assert (row["image_id"], row["reference"]) == ("img1", "1 Edema")
    pixels = preview_pixels(row)
    assert pixels.shape == (256, 384, 3)
    for y, x in ((50, 150), (51, 150), (148, 150), (100, 100), (100, 198)):  # the two outermost pixels of the mask
        assert abs(pixels[y, x] - (230, 159, 0)).max() < 60, (y, x)  # #E69F00, as JPEG gives it
    for y, x in ((20, 20), (70, 120), (240, 370)):  # outside, inside, outside
        assert abs(pixels[y, x] - 100).max() < 6, (y, x)


@pytest.mark.parametrize("config", FOLDERS)
def test_previews_show_the_public_rows_only_and_are_not_the_default(tmp_path, config):
    folder = FOLDERS[config](tmp_path, n=4, holdout=True)
    key = "image_id" if config == "localization" else f"{'study' if config == 'multilabel' else 'task'}_id"
    released = rows_of(folder, f"{config}/released")
    rows = rows_of(folder, "preview/")
    assert {row[key] for row in rows} == {row[key] for row in released}
    assert len(rows) == sum(
        1 if "image" in row else len(row["image_ids"]) + len(row.get("prior_image_ids", ())) for row in released
    )
    assert [path.name[:8] for path in folder.glob("preview/*")] == ["released"]
    assert not (folder.parent / "private" / "preview").exists()
    assert validate_folder(folder, holdout=folder.parent / "private", load=True) == []
    card = (folder / "README.md").read_text()
    assert f"config_name: {config}\n  data_files" in card
    assert card.count("default: true") == 1
    assert "default" not in card.split("config_name: preview\n  data_files")[1].split("config_name")[0]


def test_a_preview_has_at_most_so_many_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr("reveal_bench.dataset.preview.MOST_PICTURES", 3)
    folder = findings_folder(tmp_path, n=5, version="1.0.1")
    assert [row["image_id"] for row in rows_of(folder, "preview/test")] == ["image-0", "image-10", "image-11"]


def test_no_preview_without_pixels(tmp_path):
    assert not (localization_folder(tmp_path, n=2, pixels="withhold") / "preview").exists()


def spoilt(data, change):
    """A preview with some of its pixels changed, as a JPEG."""
    pixels = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
    change(pixels)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def in_format(data, name, **options):
    buffer = io.BytesIO()
    Image.open(io.BytesIO(data)).save(buffer, name, **options)
    return buffer.getvalue()


PICTURES = {
    "another picture": lambda data: spoilt(data, lambda pixels: pixels.fill(9)),
    "a word in a corner": lambda data: spoilt(data, lambda pixels: pixels[:4, :4].fill(255)),
    "blended with another": lambda data: spoilt(data, lambda pixels: np.copyto(pixels, pixels // 2 + 100)),
    "data after the end": lambda data: data + b"patient 7 has Edema",
    "a comment": lambda data: in_format(data, "JPEG", comment=b"patient 7"),
    "another format": lambda data: in_format(data, "TIFF"),
    "PostScript, which Pillow gives to a program": lambda data: (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 30 20\n%%EOF\n"
    ),
    "no picture": lambda data: b"no picture",
    "a bomb": lambda data: png(np.zeros((1, 1), np.uint8)).replace(b"\0\0\0\1\0\0\0\1", b"\0\0\x75\x30\0\0\x75\x30", 1),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_preview_is_the_picture_that_the_rows_give(tmp_path, name):
    folder = localization_folder(tmp_path, n=1)
    edit(folder, "preview/test", lambda row: row["image"].update(bytes=PICTURES[name](row["image"]["bytes"])))
    assert ("preview", "img0", "image") in faults(validate_folder(folder, load=False))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda row: row.update(image=None), "image"),
        (lambda row: row["image"].update(path="img1 has Edema.jpg"), "image"),
        (lambda row: row.update(reference="1 Edema, and of patient 7 in the holdout"), "reference"),
    ],
)
def test_a_preview_holds_nothing_else(tmp_path, change, field):
    folder = localization_folder(tmp_path, n=1)
    edit(folder, "preview/test", change)
    assert ("preview", "img0", field) in faults(validate_folder(folder, load=False))


@pytest.mark.parametrize("split", ["holdout", "bogus"])
def test_a_preview_of_another_split_is_a_problem_beside_others(tmp_path, split):
    folder = localization_folder(tmp_path, n=4, holdout=True)
    (path,) = folder.glob("preview/released*")
    shutil.copy(path, path.with_name(path.name.replace("released", split)))
    (folder / "eval.yaml").unlink()
    reseal(folder)
    problems = validate_folder(folder, holdout=folder.parent / "private", load=False)
    assert any(one.file.startswith(f"preview/{split}") and one.field == "split" for one in problems)
    assert any(one.file == "eval.yaml" for one in problems)


BLACK = make_record(1, image=png(np.zeros((20, 30), np.uint8)), image_name="img1.png", source_sha256=None)
BOX = Annotation("Edema", "ground_truth", None, (), (9, 9, 5, 5), 1, 25, ((9.0, 9.0, -5.0, -5.0),))
NAN = ((math.nan, 9.0, 5.0, 5.0),)


@pytest.mark.parametrize(
    "changes", [{"width": 0, "height": 0}, {"annotations": (BOX,)}, {"annotations": (replace(BOX, boxes_xywh=NAN),)}]
)
def test_what_cannot_be_drawn_does_not_stop_a_build(tmp_path, changes):
    """The row is written unchanged, and `validate` reports it."""
    record = make_record(
        1, image=png(np.zeros((20, 30), np.uint8)), image_name="img1.png", source_sha256=None, **changes
    )
    build_folder({"test": [record]}, tmp_path / "out", BENCHMARKS["chexlocalize"])
    assert not (tmp_path / "out" / "preview").exists()
    assert "img1" in {one.row for one in validate_folder(tmp_path / "out", load=False)}


def test_a_box_of_three_numbers_stops_a_build_at_its_record(tmp_path):
    broken = replace(BLACK, annotations=(replace(BLACK.annotations[0], bbox_xywh=(2, 5, 3)),))
    with pytest.raises(BuildError, match=r"img1: `annotations.bbox_xywh` must have 4 numbers .*got \[2, 5, 3\]"):
        build_folder({"test": [broken]}, tmp_path / "out", BENCHMARKS["chexlocalize"])
