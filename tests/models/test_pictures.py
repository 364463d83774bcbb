"""pictures: every image of a folder is read as it was stored, whatever its kind; missing ones are reported."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.folder import FolderInfo, chosen_split
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.models import pictures
from reveal_bench.models.pictures import FolderPictures, SplitImages
from tests.conftest import random_records

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FACTS = pa.struct(
    [("image_id", pa.string()), ("height", pa.int32()), ("width", pa.int32()), ("pixel_pipeline", pa.string())]
)
SCHEMAS = {
    "localization": pa.schema([("image", PICTURE), *FACTS]),
    "multilabel": pa.schema(
        [("study_id", pa.string()), ("images", pa.list_(PICTURE)), ("image_facts", pa.list_(FACTS))]
    ),
    "tasks": pa.schema(
        [
            ("task_id", pa.string()),
            ("images", pa.list_(PICTURE)),
            ("image_facts", pa.list_(FACTS)),
            ("prior_images", pa.list_(PICTURE)),
            ("prior_image_facts", pa.list_(FACTS)),
        ]
    ),
}


def grey_of(number: int, size: tuple[int, int] = (6, 9)) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, size).astype(np.uint8)


def file_of(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def stored(number: int) -> dict[str, Any]:
    return {"bytes": file_of(Image.fromarray(grey_of(number))), "path": f"i{number}.png"}


def facts(number: int, *, size: tuple[int, int] = (6, 9), pipeline: str = "original bytes") -> dict[str, Any]:
    return {"image_id": f"i{number}", "height": size[0], "width": size[1], "pixel_pipeline": pipeline}


def make_folder(root: Path, shards: dict[str, list[dict[str, Any]]], *, group_rows: int = 2) -> Path:
    """A folder of which `shards` says: "config/split-00000-of-00001" -> rows; its manifests have no sizes."""
    splits = {name.split("/")[1].split("-")[0]: {} for name in shards}
    (root / "manifest").mkdir(parents=True)
    info = FolderInfo("chexlocalize", "1.0.0", True, "present", 8, ("Edema",), {**splits, "closed": {}})
    (root / "manifest" / "benchmark.json").write_text(info.to_json(), encoding="utf-8")
    for split in info.splits:
        pq.write_table(pa.table({"study_id": ["s"]}), root / "manifest" / f"{split}.parquet")
    for name, rows in shards.items():
        config = name.split("/")[0]
        kind = config if config in SCHEMAS else ("localization" if "image_id" in rows[0] else "multilabel")
        (root / config).mkdir(exist_ok=True)
        table = pa.Table.from_pylist(rows, schema=SCHEMAS[kind])
        pq.write_table(table, root / f"{name}.parquet", row_group_size=group_rows)
    return root


def flat(*numbers: int, **about: Any) -> list[dict[str, Any]]:
    return [{"image": stored(number), **facts(number, **about)} for number in numbers]


def one(root: Path, data: bytes | None, **about: Any) -> SplitImages:
    """The pictures of a folder with one image, whose file is `data`."""
    row = {"image": None if data is None else {"bytes": data, "path": "i1.png"}, **facts(1, **about)}
    return SplitImages(make_folder(root, {"localization/test-00000-of-00001": [row]}), "test")


def same(image: Image.Image, number: int) -> bool:
    return image.mode == "L" and np.array_equal(np.asarray(image), grey_of(number))


def test_images_come_from_any_shard_and_row_group(tmp_path: Path) -> None:
    shards = {
        "localization/test-00000-of-00002": flat(1, 2, 3, 4, 5),
        "localization/test-00001-of-00002": flat(6, 7),
        "localization/validation-00000-of-00001": flat(8),
        "holdout_inputs/holdout-00000-of-00001": flat(9, 10, 11),
    }
    folder = make_folder(tmp_path / "public", shards)
    assert SplitImages(folder, "test").ids == ("i1", "i2", "i3", "i4", "i5", "i6", "i7")
    assert SplitImages(folder, "holdout").ids == ("i9", "i10", "i11")
    every = FolderPictures(folder)
    assert every.ids == tuple(f"i{number}" for number in range(1, 12))
    for number in (7, 1, 5, 11, 8, 2, 9):
        assert same(every.open(f"i{number}"), number)
    with pytest.raises(ValueError, match=r"`image_id` must be an image with its picture in .*, got 'i8'"):
        SplitImages(folder, "test").open("i8")


def test_studies_and_tasks_keep_their_images_in_lists(tmp_path: Path) -> None:
    studies = [
        {"study_id": "s1", "images": [stored(1), stored(2)], "image_facts": [facts(1), facts(2)]},
        {"study_id": "s2", "images": [], "image_facts": []},
        {"study_id": "s3", "images": [stored(3)], "image_facts": [facts(3)]},
    ]
    folder = make_folder(
        tmp_path / "studies",
        {"multilabel/test-00000-of-00001": studies[:2], "holdout_inputs/holdout-00000-of-00001": studies[2:]},
    )
    assert SplitImages(folder, "test").ids == ("i1", "i2")
    assert same(SplitImages(folder, "test").open("i2"), 2)
    assert same(SplitImages(folder, "holdout").open("i3"), 3)

    # the image of one task is the earlier one of the next, and withheld in one of the two rows
    task = {"images": [stored(4)], "image_facts": [facts(4)], "prior_images": None, "prior_image_facts": None}
    withheld = {"prior_images": None, "prior_image_facts": [facts(4, pipeline="withheld"), facts(6)]}
    tasks = [
        {"task_id": "t1", "images": [stored(5)], "image_facts": [facts(5)], **withheld},
        {"task_id": "t2", **task},
    ]
    images = SplitImages(make_folder(tmp_path / "tasks", {"tasks/test-00000-of-00001": tasks}), "test")
    assert set(images.ids) == {"i4", "i5", "i6"}
    assert same(images.open("i4"), 4)
    with pytest.raises(ValueError, match="has no picture of i6: build it with them"):
        images.open("i6")  # its row says it is there, its list is null


def ramp16() -> Image.Image:
    return Image.fromarray((np.arange(54, dtype=np.uint16) * 500 + 1000).reshape(6, 9))


@pytest.mark.parametrize(
    ("image", "kind", "expected"),
    [
        (Image.fromarray(grey_of(1)), "PNG", grey_of(1)),
        (Image.new("L", (9, 6), 120), "JPEG", np.full((6, 9), 120)),
        (Image.new("RGB", (9, 6), (200, 100, 50)), "PNG", np.full((6, 9), 124)),  # 0.299, 0.587, 0.114
        (Image.new("RGBA", (9, 6), (80, 80, 80, 0)), "PNG", np.full((6, 9), 80)),
        (Image.new("1", (9, 6), 1), "PNG", np.full((6, 9), 255)),
        (Image.new("L", (9, 6), 33).convert("P"), "PNG", np.full((6, 9), 33)),
        (ramp16(), "PNG", np.rint(np.arange(54) * 255 / 53).reshape(6, 9)),  # darkest 0, brightest 255
        (Image.new("I;16", (9, 6), 40000), "PNG", np.zeros((6, 9))),
    ],
    ids=["grey", "jpeg", "rgb", "alpha", "bits", "palette", "16 bits", "16 bits of one value"],
)
def test_every_kind_of_file_becomes_8_bit_grey(
    tmp_path: Path, image: Image.Image, kind: str, expected: npt.NDArray[Any]
) -> None:
    opened = one(tmp_path / "f", file_of(image, kind)).open("i1")
    assert (opened.mode, opened.size, opened.info) == ("L", (9, 6), {})
    assert np.asarray(opened).tolist() == expected.astype(int).tolist()


BOMB = "a bomb, which takes a second to make"


@pytest.mark.parametrize(
    ("data", "about", "message"),
    [
        (b"no picture", {}, "the picture of i1 in test-00000-of-00001.parquet must decode: 10 bytes: not a picture"),
        (b"", {}, "must decode: 0 bytes: not a picture"),
        (file_of(Image.fromarray(grey_of(1)))[:70], {}, "the picture of i1 in .* must decode: 70 bytes"),
        (file_of(Image.new("L", (9, 6)), "GIF"), {}, "not a picture"),
        (file_of(Image.fromarray(grey_of(1, (9, 6)))), {}, "the manifest states 9 x 6 pixels, it has 6 x 9"),
        (BOMB, {"size": (20000, 20000)}, "must decode: .* decompression bomb"),
        (BOMB, {}, "must decode"),
        (None, {}, "has no picture of i1: build it with them, or add them .* `reveal-bench attach`"),
    ],
    ids=["text", "nothing", "cut off", "gif", "turned", "bomb", "small bomb", "null"],
)
def test_what_is_no_picture_is_said(tmp_path: Path, data: Any, about: dict[str, Any], message: str) -> None:
    if data == BOMB:
        data = file_of(Image.new("1", (20000, 20000)))
    with pytest.raises(ValueError, match=message):
        one(tmp_path / "f", data, **about).open("i1")


def test_a_folder_without_pictures_says_how_to_get_them(tmp_path: Path) -> None:
    remedy = "build it with them, or add them from your own copy of the source with `reveal-bench attach`"
    bare = [{**row, "image": None} for row in flat(1, 2, pipeline="withheld")]
    names = ("localization/released-00000-of-00001", "holdout_inputs/holdout-00000-of-00001")
    folder = make_folder(tmp_path / "bare", {names[0]: bare[:1], names[1]: bare[1:]})
    for split in ("released", "holdout"):
        with pytest.raises(ValueError, match=f"has no pictures of split {split}: {remedy}"):
            SplitImages(folder, split)
    with pytest.raises(ValueError, match=f"has no pictures: {remedy}"):
        FolderPictures(folder)
    shards = {
        "localization/a-00000-of-00001": flat(1),
        "localization/b-00000-of-00001": flat(2, pipeline="withheld"),
    }
    folder = make_folder(tmp_path / "half", shards)
    assert FolderPictures(folder).ids == ("i1",)  # images in the folder can be used
    with pytest.raises(ValueError, match="has no picture of i2"):
        FolderPictures(folder).open("i2")
    with pytest.raises(ValueError, match="has no pictures of split closed"):
        SplitImages(folder, "closed")
    with pytest.raises(ValueError, match=r"`split` must be one of the splits of .* \(a, b, closed\), got 'c'"):
        SplitImages(folder, "c")
    with pytest.raises(ValueError, match=r"`split` must be given: .* has a, b, closed"):
        chosen_split(folder)


def test_two_sizes_of_one_image_are_refused(tmp_path: Path) -> None:
    shards = {"localization/a-00000-of-00001": flat(1), "localization/b-00000-of-00001": flat(1, size=(9, 6))}
    with pytest.raises(ValueError, match=r"i1 must have one size in .*, got \(6, 9\) and \(9, 6\)"):
        FolderPictures(make_folder(tmp_path / "two", shards))
    folder = make_folder(tmp_path / "manifest", {"localization/a-00000-of-00001": flat(1)})
    pq.write_table(pa.table({"image_id": ["i1"], "height": [6], "width": [10]}), folder / "manifest" / "a.parquet")
    with pytest.raises(ValueError, match=r"i1 must have one size in .*, got \(6, 10\) and \(6, 9\)"):
        SplitImages(folder, "a")


def test_a_folder_as_it_is_built_shows_its_released_and_its_held_out_films(tmp_path: Path) -> None:
    def pictured(record: LocalizationRecord, value: int) -> LocalizationRecord:
        data = file_of(Image.new("L", (record.width, record.height), value))
        return replace(record, image=data, image_name=f"{record.image_id}.png", pixel_pipeline="original bytes")

    records = [pictured(record, 10 * i) for i, record in enumerate(random_records(np.random.default_rng(2), 8))]
    values = {record.image_id: 10 * i for i, record in enumerate(records)}
    public, vault = tmp_path / "public", tmp_path / "vault"
    build_folder({"test": iter(records)}, public, BENCHMARKS["chexlocalize"], holdout=vault, seed=1, synthetic=True)
    released, held_out, every = (
        SplitImages(public, "released"),
        SplitImages(public, "holdout"),
        FolderPictures(public),
    )
    assert set(released.ids) | set(held_out.ids) == set(every.ids) == set(values)
    assert not set(released.ids) & set(held_out.ids)
    with pytest.raises(ValueError, match="has no pictures of split holdout"):
        SplitImages(vault, "holdout")  # it keeps the references alone
    for image_id, value in values.items():
        assert every.open(image_id).getextrema() == (value, value)


@pytest.mark.parametrize("kept_bytes", [0, 4000, 1 << 20], ids=["none kept", "two groups kept", "all kept"])
def test_threads_get_what_they_ask_for_within_the_memory_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(pictures, "KEPT_BYTES", kept_bytes)
    folder = make_folder(tmp_path / "f", {"localization/test-00000-of-00001": flat(*range(60))}, group_rows=10)
    images = SplitImages(folder, "test")
    asked = np.random.default_rng(0).integers(0, 60, 200).tolist()
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda number: images.open(f"i{number}"), asked))
    assert all(same(image, number) for image, number in zip(opened, asked, strict=True))
    kept = images._groups._kept.values()
    assert sum(column.nbytes for column in kept) <= kept_bytes
    # a group of ten pictures takes 1,430 bytes in memory
    assert len(kept) == {0: 0, 4000: 2, 1 << 20: 6}[kept_bytes]
