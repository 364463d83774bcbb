"""Pixels come back to a dataset without them: from the right files, verified, or not at all."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from reveal_bench.dataset.attach import AttachLog, attach_images
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.sources.source import BuildError
from tests.dataset.card_folders import (
    findings_folder,
    localization_folder,
    localized,
    pixels,
    png,
    rows_of,
    tasks_folder,
)

MAKERS = {"localization": localization_folder, "multilabel": findings_folder, "tasks": tasks_folder}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Attached datasets go to a `datasets` cache that belongs to this test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def named(folder, root):
    """A download in which every picture has the name of its image."""
    root.mkdir()
    for row in rows_of(folder, "manifest/"):
        for image_id in row.get("image_ids") or [row["image_id"]]:
            number = int(image_id.removeprefix("img").removeprefix("image-"))
            size = (30, 20) if image_id.startswith("img") else (12, 10)
            (root / f"{image_id}.png").write_bytes(png(pixels(number, *size)))
        for image_id in row.get("prior_image_ids") or ():
            (root / f"{image_id}.png").write_bytes(png(pixels(int(image_id.removeprefix("image-")))))
    return root


@pytest.mark.parametrize("config", MAKERS)
def test_a_folder_with_pictures_again(tmp_path, config):
    withheld = MAKERS[config](tmp_path / "withheld", pixels="withhold")
    embedded = MAKERS[config](tmp_path / "embedded")
    log, calls = AttachLog(), []
    attach_images(
        withheld, tmp_path / "withheld" / "pictures", out=tmp_path / "full", log=log,
        progress=lambda *step: calls.append(step),
    )  # fmt: skip
    # by their hashes, because the files are called 0.png, 1.png, ...; a build with pictures has the same tables
    assert log.problems == log.unverified == []
    for table in sorted(embedded.rglob("*.parquet")):
        name = table.relative_to(embedded).as_posix()
        assert rows_of(tmp_path / "full", name.removesuffix(".parquet")) == rows_of(
            embedded, name.removesuffix(".parquet")
        )
    assert (tmp_path / "full" / "README.md").read_text() == (embedded / "README.md").read_text()
    assert validate_folder(tmp_path / "full", load=False) == []
    assert calls[-1][0] == "test"


def test_a_dataset_as_it_is_loaded(tmp_path):
    from datasets import load_dataset

    folder = findings_folder(tmp_path, n=3, pixels="withhold")
    loaded = load_dataset(str(folder), "multilabel", split="test", cache_dir=str(tmp_path / "hf"))
    assert loaded[1]["images"] == [None, None]
    log = AttachLog()
    full = attach_images(loaded, tmp_path / "pictures", log=log)
    assert full.features == loaded.features
    assert np.array_equal(np.asarray(full[1]["images"][1]), pixels(11))
    assert full[1]["image_facts"][1]["pixel_pipeline"] == "original bytes"
    assert log.n_verified == 4


def test_a_selection_of_a_dataset(tmp_path):
    from datasets import load_dataset

    folder = localization_folder(tmp_path, n=4, pixels="withhold")
    loaded = load_dataset(str(folder), "localization", split="test", cache_dir=str(tmp_path / "hf")).select([2])
    full = attach_images(loaded, tmp_path / "pictures")
    assert len(full) == 1
    assert np.array_equal(np.asarray(full[0]["image"]), pixels(2, 30, 20))


def test_a_holdout_is_matched_by_name_and_not_verified(tmp_path):
    folder = findings_folder(tmp_path, pixels="withhold", holdout=True)
    root = named(folder, tmp_path / "download")
    log = AttachLog()
    splits = attach_images(folder, root, log=log)
    held = rows_of(tmp_path / "private", "multilabel/")
    assert log.unverified == [name for row in held for name in row["image_ids"]]
    assert log.n_verified == sum(len(row["image_ids"]) for row in rows_of(folder, "multilabel/"))
    row = splits["holdout"][0]
    assert row["study_id"] == held[0]["study_id"]
    assert np.array_equal(np.asarray(row["images"][0]), pixels(int(row["image_ids"][0].removeprefix("image-"))))
    assert row["labels"] == []
    assert row["label_vector"] is row["patient_id"] is None
    attach_images(folder, root, out=tmp_path / "full")
    assert validate_folder(tmp_path / "full", holdout=tmp_path / "private") == []


def test_a_holdout_without_names_is_missing(tmp_path):
    folder = localization_folder(tmp_path, pixels="withhold", holdout=True)
    with pytest.raises(
        BuildError, match=r"(?s)3 problems:.*`image` must be in the download, found by name, got none of 6"
    ):
        attach_images(folder, tmp_path / "pictures", out=tmp_path / "full")
    assert not (tmp_path / "full").exists()


@pytest.mark.parametrize("path", ["img1.png", "deep/er/img1.png", "files/IMG1.PNG"])
def test_names_are_the_end_of_a_path(tmp_path, path):
    folder = localization_folder(tmp_path, n=2, pixels="withhold")
    root = tmp_path / "download"
    (root / path).parent.mkdir(parents=True)
    (root / path).write_bytes(png(pixels(1, 30, 20)))
    log = AttachLog()
    splits = attach_images(folder, root, keep_going=True, log=log)
    assert [row["image"] is None for row in splits["test"]] == [True, False]
    assert [(p.row, p.field) for p in log.problems] == [("img0", "image")]


def test_an_id_of_folders_and_file(tmp_path, benchmark):
    record = localized(tmp_path / "pictures", 0, image_id="patient1_study1_view1_frontal")
    build_folder({"test": [record]}, tmp_path / "folder", benchmark, pixels="withhold")
    place = tmp_path / "CheXpert" / "test" / "patient1" / "study1"
    place.mkdir(parents=True)
    (place / "view1_frontal.png").write_bytes(png(pixels(0, 30, 20)))
    (tmp_path / "CheXpert" / "view1_frontal.png").write_bytes(b"of another patient")
    log = AttachLog()
    attach_images(tmp_path / "folder", tmp_path / "CheXpert", log=log)
    assert log.n_verified == 1


def test_a_file_of_the_right_name_with_other_content(tmp_path):
    folder = localization_folder(tmp_path, n=2, pixels="withhold")
    root = named(folder, tmp_path / "download")
    (root / "img0.png").write_bytes(png(pixels(77, 30, 20)))
    with pytest.raises(BuildError) as caught:
        attach_images(folder, root)
    (problem,) = caught.value.problems
    (row, _) = rows_of(folder, "localization/")
    assert (problem.file, problem.row, problem.field) == ("img0.png", "img0", "source_sha256")
    assert row["source_sha256"] in problem.rule
    assert len(problem.value) == 64


def test_a_file_found_by_its_hash_is_published_under_the_id_of_its_image(tmp_path):
    folder = localization_folder(tmp_path, n=1, pixels="withhold")
    (tmp_path / "pictures" / "0.png").rename(tmp_path / "pictures" / "Smith_John.png")
    attach_images(folder, tmp_path / "pictures", out=tmp_path / "full")
    (row,) = rows_of(tmp_path / "full", "localization/")
    assert row["image"]["path"] == "img0.png"
    assert validate_folder(tmp_path / "full", load=False) == []


def test_another_file_with_the_same_pixels_will_do(tmp_path):
    folder = localization_folder(tmp_path, n=1, pixels="withhold")
    root = tmp_path / "download"
    root.mkdir()
    Image.fromarray(pixels(0, 30, 20)).save(root / "img0.png", optimize=True, compress_level=0)
    log = AttachLog()
    attach_images(folder, root, log=log)
    assert log.n_verified == 1


def test_of_two_files_of_one_name_the_right_one(tmp_path):
    folder = localization_folder(tmp_path, n=1, pixels="withhold")
    for name, number in (("a", 5), ("b", 0)):
        (tmp_path / "download" / name).mkdir(parents=True)
        (tmp_path / "download" / name / "img0.png").write_bytes(png(pixels(number, 30, 20)))
    splits = attach_images(folder, tmp_path / "download")
    assert np.array_equal(np.asarray(splits["test"][0]["image"]), pixels(0, 30, 20))


def test_pictures_in_an_archive(tmp_path):
    folder = tasks_folder(tmp_path, n=2, pixels="withhold")
    root = tmp_path / "download"
    root.mkdir()
    with zipfile.ZipFile(root / "series.zip", "w") as archive:
        for path in (tmp_path / "pictures").iterdir():
            archive.write(path, f"inner/{path.name}")
    (root / "broken.zip").write_bytes(b"PK no")
    log = AttachLog()
    splits = attach_images(folder, root, log=log)
    assert log.n_verified == 3  # images 0 and 1, and the prior one of task 1
    assert np.array_equal(np.asarray(splits["test"][1]["prior_images"][0]), pixels(101))


def test_broken_picture_is_reported(tmp_path):
    folder = localization_folder(tmp_path, n=1, pixels="withhold")
    root = tmp_path / "download"
    root.mkdir()
    (root / "img0.png").write_bytes(b"PNG?")
    with pytest.raises(BuildError, match=r"img0\.png:img0: `image` must be a readable picture, got not a picture"):
        attach_images(folder, root)


def test_a_holdout_picture_of_another_size(tmp_path):
    folder = localization_folder(tmp_path, n=2, pixels="withhold", holdout=True)
    root = named(folder, tmp_path / "download")
    (held,) = rows_of(tmp_path / "private", "localization/")
    (root / f"{held['image_id']}.png").write_bytes(png(pixels(9, 15, 10)))
    with pytest.raises(BuildError, match=r"`size` must be 30 x 20 pixels, got 15 x 10"):
        attach_images(folder, root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"root": "nowhere"}, "`root` must be a folder"),
        ({"out": "pictures"}, "`out` must be a new or empty folder"),
        ({"out": "folder/inside"}, "must neither be inside `out`"),
    ],
)
def test_bad_arguments(tmp_path, change, message):
    folder = localization_folder(tmp_path, n=2, pixels="withhold", holdout=True)
    arguments = {"root": tmp_path / "pictures", "out": None, **{k: tmp_path / v for k, v in change.items()}}
    with pytest.raises(ValueError, match=message):
        attach_images(folder, arguments["root"], out=arguments["out"])
    with pytest.raises(ValueError, match="must not be the private folder"):
        attach_images(tmp_path / "private", tmp_path / "pictures", out=tmp_path / "new")


def test_a_dataset_of_something_else(tmp_path):
    from datasets import Dataset

    rows = Dataset.from_list([{"a": 1}])
    with pytest.raises(ValueError, match="must have the columns of a main config, got a"):
        attach_images(rows, tmp_path)
    with pytest.raises(ValueError, match="`out` must be None unless"):
        attach_images(rows, tmp_path, out=tmp_path / "new")
