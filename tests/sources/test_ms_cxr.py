"""MS-CXR: the twin, both files against each other, version 1.0.0, and everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.phantom import LAYOUTS
from reveal_bench.sources import ms_cxr
from reveal_bench.sources.source import BuildError

HEADS = "dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split\n"
ID = "02aa804e-bde0afdd-112c0b34-7bc16630-4e384014"
OTHER = "f00aa804-bde0afdd-112c0b34-7bc16630-4e384014"
PATH = f"files/p10/p10000032/s50414267/{ID}.jpg"


def line(**changes: Any) -> str:
    values = {
        "dicom_id": ID, "category_name": "Pneumonia", "label_text": "right lower lobe pneumonia", "path": PATH,
        "x": 100, "y": 200, "w": 300, "h": 400, "image_width": 2544, "image_height": 3056, "split": "test",
    } | changes  # fmt: skip
    return ",".join(str(value) for value in values.values()) + "\n"


def write(folder: Path, text: str, name: str = "MS_CXR_Local_Alignment_v1.1.0.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def coco(*boxes: list[float], **changes: Any) -> str:
    """A COCO file with one entry per box for the same picture."""
    image = {"file_name": f"{ID}.jpg", "path": PATH, "width": 2544, "height": 3056}
    annotations = [
        {
            "id": i,
            "image_id": i,
            "category_id": 7,
            "bbox": box,
            "label_text": "right lower lobe pneumonia",
            "split": "test",
        }
        | changes
        for i, box in enumerate(boxes, start=1)
    ]
    images = [{"id": i, **image} for i in range(1, len(boxes) + 1)]
    return json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 7, "name": "Pneumonia"}]})


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ms") / "download"
    LAYOUTS["ms-cxr"](out, n_images=8, seed=1, long_side=160)
    return out


def test_rows_by_hand(tmp_path: Path) -> None:
    rows = HEADS + line() + line(x=350, y=250) + line(category_name="Lung Opacity", label_text="opacity", x=0, y=0)
    source_data = ms_cxr.read(write(tmp_path, rows), pixels="withhold")
    (record,) = source_data.splits["test"]
    assert (record.image_id, record.patient_id, record.study_id) == (ID, "p10000032", "s50414267")
    assert (record.size, record.view, record.picture) == ((3056, 2544), "FRONTAL", None)
    assert record.labels == ["Lung Opacity", "Pneumonia"]
    assert set(record.label_status.values()) == {1, None}  # a category without a phrase was not looked for
    pneumonia = record.reference("Pneumonia")
    assert pneumonia is not None
    assert pneumonia.boxes_xywh == ((100, 200, 300, 400), (350, 250, 300, 400))
    assert pneumonia.bbox_xywh == (100, 200, 550, 450)
    # two boxes of 120,000 pixels that share 50 x 350
    assert (pneumonia.area_px, pneumonia.n_instances) == (240_000 - 17_500, 2)
    assert source_data.warnings == [
        "boxes: the source publishes 1,448, this download has 3",
        "images: the source publishes 1,047, this download has 1",
        "1 image has no picture here, so no hash to verify a copy against",
    ]


def test_phrases_are_a_config_of_their_own(tmp_path: Path) -> None:
    rows = HEADS + line() + line(dicom_id=OTHER, path=PATH.replace(ID, OTHER), split="val", label_text="left")
    source_data = ms_cxr.read(write(tmp_path, rows), pixels="withhold")
    assert list(source_data.splits) == ["validation", "test"]
    (extra,) = source_data.extras
    assert (extra.config, extra.key) == ("phrases", "image_id")
    assert list(extra.rows) == [
        {"image_id": ID, "label": 6, "phrase": "right lower lobe pneumonia", "bbox_xywh": [100, 200, 300, 400]},
        {"image_id": OTHER, "label": 6, "phrase": "left", "bbox_xywh": [100, 200, 300, 400]},
    ]
    assert extra.features()["label"].int2str(6) == "Pneumonia"


def test_the_json_file_will_do_and_a_picture_may_have_several_entries(tmp_path: Path) -> None:
    write(tmp_path, coco([100.7, 200.2, 300, 400.9], [350, 250, 300, 400]), "MS_CXR_Local_Alignment_v1.1.0.json")
    (record,) = ms_cxr.read(tmp_path, pixels="withhold").splits["test"]
    assert record.reference("Pneumonia").boxes_xywh[0] == (100.7, 200.2, 300, 400.9)  # type: ignore[union-attr]
    assert record.reference("Pneumonia").n_instances == 2  # type: ignore[union-attr]


def test_table_equals_the_json_cut_to_whole_pixels(tmp_path: Path) -> None:
    write(tmp_path, HEADS + line())
    write(tmp_path, coco([100.7, 200.2, 300, 400.9]), "MS_CXR_Local_Alignment_v1.1.0.json")
    (record,) = ms_cxr.read(tmp_path, pixels="withhold").splits["test"]
    assert record.reference("Pneumonia").boxes_xywh == ((100, 200, 300, 400),)  # type: ignore[union-attr]
    write(tmp_path, coco([101.7, 200.2, 300, 400.9]), "MS_CXR_Local_Alignment_v1.1.0.json")
    with pytest.raises(BuildError) as caught:
        ms_cxr.read(tmp_path, pixels="withhold")
    name = "MS_CXR_Local_Alignment_v1.1.0"
    phrase = "Pneumonia, 'right lower lobe pneumonia', "
    assert [str(problem) for problem in caught.value.problems] == [
        f"{name}.csv:{ID}: `box` must also be in {name}.json, got {phrase}[100, 200, 300, 400]",
        f"{name}.json:{ID}: `box` must also be in {name}.csv, got {phrase}[101, 200, 300, 400]",
    ]


def test_version_1_0_0_has_no_splits(tmp_path: Path) -> None:
    rows = (HEADS + line()).replace(",split", "").replace(",test", "")
    source_data = ms_cxr.read(write(tmp_path, rows, "MS_CXR_Local_Alignment_v1.0.0.csv"), pixels="withhold")
    assert list(source_data.splits) == ["test"]
    warning = (
        "MS_CXR_Local_Alignment_v1.0.0.csv: no splits (as in version 1.0.0), so all images are in the split 'test'"
    )
    assert warning in source_data.warnings


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (line(category_name="Pneumona"),
         ":2: `category_name` must be one of 8 categories, got 'Pneumona' (nearest: 'Pneumonia')"),
        (line(path=f"files/p10/{ID}.jpg"),
         f":2: `path` must end in p<2 digits>/p<subject>/s<study>/{ID}.jpg, got 'files/p10/{ID}.jpg'"),
        (line(dicom_id=OTHER), f":2: `path` must end in p<2 digits>/p<subject>/s<study>/{OTHER}.jpg, got '{PATH}'"),
        (line(label_text=""), ":2: `label_text` must not be blank, got none"),
        (line(split="tset"), ":2: `split` must be train, val or test, got 'tset'"),
        (line(image_width=0), ":2: `image_width, image_height` must be whole numbers above 0, got '0', '3056'"),
        (line(image_height="30.5"),
         ":2: `image_width, image_height` must be whole numbers above 0, got '2544', '30.5'"),
        (line(x=2300), ":2: `x, y, w, h` must be in the image of 2544 x 3056 pixels, got 2300, 200, 300, 400"),
        (line() + line(image_width=2545), ":3: `size` must be (3056, 2544), as in line 2, got (3056, 2545)"),
        (line() + line(split="train"), ":3: `split` must be test, as in line 2, got train"),
    ],
)  # fmt: skip
def test_what_can_be_wrong_with_a_row(tmp_path: Path, rows: str, problem: str) -> None:
    write(tmp_path, HEADS + rows)
    with pytest.raises(BuildError) as caught:
        ms_cxr.read(tmp_path, pixels="withhold")
    assert [str(p).removeprefix("MS_CXR_Local_Alignment_v1.1.0.csv") for p in caught.value.problems] == [problem]
    good = line(dicom_id=OTHER, path=PATH.replace(ID, OTHER))
    if OTHER not in rows:
        kept = ms_cxr.read(write(tmp_path, HEADS + rows + good), pixels="withhold", keep_going=True)
        assert [record.image_id for record in kept.splits["test"]] == [OTHER]
        assert {row["image_id"] for row in kept.extras[0].rows} == {OTHER}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "`file` must be COCO JSON with images, annotations and categories, got JSONDecodeError: "),
        ("[]", "`file` must be COCO JSON with images, annotations and categories, got TypeError: "),
        ("{}", "`file` must be COCO JSON with images, annotations and categories, got KeyError: 'images'"),
        (coco([1, 2, 3, 4], image_id=9), "1: `annotation` must have a known image_id and category_id, a label_text and "
         "a bbox of four numbers, got KeyError: 9"),
        (coco([1, 2, 3]), "1: `annotation` must have a known image_id and category_id, a label_text and a bbox of "),
        (coco([1, 2, 3, float("inf")]), "1: `x, y, w, h` must be four finite numbers, got '1', '2', '3', 'inf'"),
    ],
)  # fmt: skip
def test_what_can_be_wrong_with_the_json_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BuildError) as caught:
        ms_cxr.read(write(tmp_path, text, "MS_CXR_Local_Alignment_v1.1.0.json"), pixels="withhold")
    message = str(caught.value.problems[0]).removeprefix("MS_CXR_Local_Alignment_v1.1.0.json:").lstrip()
    assert message.startswith(problem)


def test_the_twin_has_pictures_views_and_phrases(twin: Path) -> None:
    inspection = ms_cxr.inspect(twin, pictures=twin / "pictures")
    assert inspection.synthetic
    assert (list(inspection.problems), list(inspection.warnings)) == ([], [])
    assert set(inspection.files) == {"boxes", "coco"}
    source_data = ms_cxr.read(twin, pictures=twin / "pictures")
    records = [record for split in source_data.splits.values() for record in split]
    assert len(records) == inspection.counts["images"]
    assert {record.view for record in records} <= {"AP", "PA"}  # from the metadata
    assert all(record.picture.path.is_file() and record.picture.kind == "picture" for record in records)
    inner = ms_cxr.read(twin, pictures=twin / "pictures" / "files")  # the folder `files` itself will do
    assert [record.picture.path for split in inner.splits.values() for record in split] == [
        record.picture.path for record in records
    ]


@pytest.mark.parametrize(
    ("cells", "view", "raw", "warning"),
    [("AP,", "AP", "AP", ""), ("AP AXIAL,postero-anterior", "AP", "AP AXIAL", ""),
     (" ,postero-anterior", "PA", "postero-anterior", ""),
     (",left lateral", "LATERAL", "left lateral", "with a view that is not frontal (kept): 'left lateral' 1"),
     ("LL,", "LATERAL", "LL", "with a view that is not frontal (kept): 'LL' 1"),
     ("LAO,", "UNKNOWN", "LAO", "with a view that is not frontal (kept): 'LAO' 1"),
     (" , ", "FRONTAL", None, "without a view; their view is set to FRONTAL"),
     (None, "FRONTAL", None, "without a row; their view is set to FRONTAL")],
)  # fmt: skip
def test_views_of_the_metadata(tmp_path: Path, cells: str | None, view: str, raw: str | None, warning: str) -> None:
    """A blank position is replaced by the code; views that are not frontal are kept; warnings count the images."""
    write(tmp_path, HEADS + line())
    table = "dicom_id,subject_id,study_id,ViewPosition,ViewCodeSequence_CodeMeaning\nother,1,2,LATERAL,\n"
    table += f"{ID},10000032,50414267,{cells}\n" if cells else ""
    (tmp_path / "mimic-cxr-2.0.0-metadata.csv").write_text(table, encoding="utf-8")
    source_data = ms_cxr.read(tmp_path, pixels="withhold")
    (record,) = source_data.splits["test"]
    assert (record.view, record.view_raw) == (view, raw)
    warnings = [warning for warning in source_data.warnings if "metadata.csv" in warning]
    assert warnings == [f"mimic-cxr-2.0.0-metadata.csv: 1 image {warning}"] * bool(warning)


def test_pictures_are_hashed_although_withheld(twin: Path) -> None:
    embedded = ms_cxr.read(twin, pictures=twin / "pictures")
    withheld = ms_cxr.read(twin, pixels="withhold", pictures=twin / "pictures")
    assert withheld == embedded
    assert withheld.synthetic
    (bare,) = [w for w in ms_cxr.read(twin, pixels="withhold").warnings if "no hash" in w]
    assert bare.endswith("images have no picture here, so no hash to verify a copy against")


def test_broken_metadata_table_is_not_taken_for_one_without_views(tmp_path: Path) -> None:
    write(tmp_path, HEADS + line())
    (tmp_path / "mimic-cxr-2.0.0-metadata.csv").write_text("dicom_id,view\n", encoding="utf-8")
    with pytest.raises(BuildError, match="`ViewPosition` must be columns, got dicom_id, view"):
        ms_cxr.read(tmp_path, pixels="withhold", keep_going=True)


def test_a_picture_that_is_not_there(twin: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with pytest.raises(BuildError) as caught:
        ms_cxr.read(twin, pictures=tmp_path)
    assert len(caught.value.problems) == ms_cxr.inspect(twin).counts["images"]
    assert "`picture` must exist for " in str(caught.value.problems[0])


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`root` must contain MS_CXR_Local_Alignment_v1.1.0.csv or .json, got "):
        ms_cxr.read(tmp_path)
    write(tmp_path, HEADS + line())
    with pytest.raises(
        ValueError, match="`pictures` must name the MIMIC-CXR-JPG folder unless `pixels` is withhold, got None"
    ):
        ms_cxr.read(tmp_path)
    assert ms_cxr.detect(tmp_path / "MS_CXR_Local_Alignment_v1.1.0.csv") == 1
    assert ms_cxr.detect(tmp_path / "other") == 0
