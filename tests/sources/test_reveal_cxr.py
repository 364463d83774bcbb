"""A synthetic REVEAL-CXR download, end to end: the records that the source reads, and what a dataset folder contains
and omits.
"""

import io
import json
import shutil
import subprocess
import sys
from itertools import islice
from zipfile import ZipFile

import numpy as np
import openpyxl
import pyarrow.parquet as pq
import pydicom
import pytest
from PIL import Image
from pydicom.fileset import FileSet

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.findings.records import AGREEMENTS, read_studies
from reveal_bench.phantom import write_reveal
from reveal_bench.phantom.dicom_headers import identifiers
from reveal_bench.phantom.reveal import reveal_film
from reveal_bench.phantom.reveal_studies import studies
from reveal_bench.sources import BuildError
from reveal_bench.sources.ids import keyed_id
from reveal_bench.sources.reveal_cxr import detect, inspect, read
from tests.cli.test_score import call
from tests.sources.conftest import SEED, SIDE, N
from tests.sources.reveal_trees import KEY, MAPPING, TABLE, decade, everything, write_film, write_tree


@pytest.fixture(scope="module")
def built(reveal_download, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "folder"
    source_data = read(reveal_download, id_key=KEY)
    build_folder(
        source_data.splits,
        out,
        BENCHMARKS["reveal-cxr"],
        extras=source_data.extras,
        synthetic=True,
        holdout_split="test",
    )
    return out


VIEW_OF = {"AP": "AP", "PA": "PA", "POSTERO ANTERIOR": "PA"} | dict.fromkeys(
    ("LL", "RL", "LATERAL", "LARGE LATERAL"), "LATERAL"
)


def test_records_are_the_twin_s_truth(reveal_download, truth):
    records = read(reveal_download, id_key=KEY).splits["test"]
    assert len(records) == N
    for record, study in zip(records, truth, strict=True):
        assert record.study_id == keyed_id(KEY, "study", study["study_uid"])
        assert record.patient_id == keyed_id(KEY, "patient", study["case_id"])
        assert list(record.labels) == study["labels"]
        assert record.n_agree_all == study["n_agree_all"]
        assert AGREEMENTS.index(record.agreement) == study["n_agree_all"] - 2
        assert record.age_band == decade(study["age"])
        assert (record.sex, record.race, record.patient_class) == (study["sex"], study["race"], study["patient_class"])
        by_id = {image.image_id: image for image in record.images}
        for film in study["images"]:
            image = by_id[keyed_id(KEY, "image", film["sop_uid"])]
            assert (image.height, image.width) == (film["height"], film["width"])
            if film["view_position"]:
                assert (image.view, image.view_raw) == (VIEW_OF[film["view_position"]], film["view_position"])
        assert len(by_id) == len(study["images"])


def test_facts_of_images_are_those_that_pydicom_reads(reveal_download, truth):
    import pydicom

    images = {
        image.image_id: image for record in read(reveal_download, id_key=KEY).splits["test"] for image in record.images
    }
    for film in (film for study in truth for film in study["images"]):
        image = images[keyed_id(KEY, "image", film["sop_uid"])]
        dataset = pydicom.dcmread(reveal_download / film["file"], force=True, stop_before_pixels=True)
        assert (image.manufacturer_raw, image.model_raw) == (
            dataset.Manufacturer,
            dataset.ManufacturerModelName.strip(),
        )
        assert image.kvp == float(dataset.KVP)
        spacing = dataset.get("PixelSpacing")
        if spacing is not None and float(spacing[0]) > 0:
            assert (image.spacing_mm, image.spacing_source) == (tuple(map(float, spacing)), "pixel_spacing")
        else:
            assert image.spacing_mm == tuple(map(float, dataset.ImagerPixelSpacing))
            assert image.spacing_source == "imager_pixel_spacing"


def test_files_other_than_radiographs_are_set_aside_with_a_reason(reveal_download):
    reasons = dict(read(reveal_download, id_key=KEY).set_aside)
    assert {path.split("/")[-1]: reason.split(":")[-1].strip() for path, reason in reasons.items()} == {
        "film9.dcm": reasons["images/batch001/11/film9.dcm"],
        "IM0000109": "the same SOPInstanceUID and pixels",
    }
    assert reasons["images/batch001/08/film9.dcm"] == "a secondary capture (SOP class)"
    assert (
        "the same exposure (same exposure key) is present FOR PRESENTATION" in reasons["images/batch001/09/film9.dcm"]
    )
    assert len(reasons) == 4
    warnings = read(reveal_download, id_key=KEY).warnings
    (warning,) = (
        text for text in warnings if text.startswith("manufacturer and model are published as in the headers")
    )
    assert "Carestream Health" in warning


def test_a_medium_with_a_dicomdir_and_objects_without_pixels_is_built(tmp_path):
    """Two indices, one of pydicom and one by hand without its class, and what a PACS exports beside films."""
    root = write_tree(tmp_path / "films", mapping=MAPPING)
    ids = {"StudyDate": "20200101", "StudyTime": "10", "StudyID": "1", "SeriesNumber": "1", "PatientName": "X"}
    write_film(tmp_path / "one.dcm", "1.2.4", **ids)
    media = FileSet()
    media.add(tmp_path / "one.dcm")
    media.write(tmp_path / "medium")
    shutil.copy(tmp_path / "medium" / "DICOMDIR", root / "DICOMDIR")
    index = b"\x02\0\x10\0UI\x14\x001.2.840.10008.1.2.1\0" + b"\x04\0\x12\x12US\2\0\0\0"
    (root / "a" / "DICOMDIR").write_bytes(bytes(128) + b"DICM" + index)
    objects = {"sr": "88.11", "key": "88.59", "presentation": "11.1", "pdf": "104.1", "film": "1"}
    for number, (name, sop_class) in enumerate(objects.items(), 5):
        path = root / "a" / f"{name}.dcm"
        write_film(path, "1.2.1", number, SOPClassUID=f"1.2.840.10008.5.1.4.1.1.{sop_class}")
        dataset = pydicom.dcmread(path)
        del dataset.PixelData
        dataset.save_as(path)

    assert "files set aside    7" in call("inspect", root).stdout
    call("build", root, "--out", tmp_path / "out", "--id-key", tmp_path / "key", "--log", tmp_path / "log.jsonl")
    log = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    no_pixels = "no pixel data, or the file is truncated before them"
    assert {entry["file"]: entry["rule"] for entry in log if entry["what"] in ("set aside", "problem")} == {
        "DICOMDIR": "a DICOMDIR, the index of a storage medium",
        "a/DICOMDIR": no_pixels,
        "a/sr.dcm": "a structured report or key object selection, not a picture",
        "a/key.dcm": "a structured report or key object selection, not a picture",
        "a/presentation.dcm": "a presentation state, not a picture",
        "a/pdf.dcm": "an encapsulated document, not a picture",
        "a/film.dcm": no_pixels,
    }


@pytest.mark.parametrize(
    ("film", "mapping"),
    [
        ("b/3.dcm", ""),
        ("b.zip!b/3.dcm", ""),
        ("b/3.png", "pictures: true\n"),
    ],
)
def test_films_that_the_mapping_leaves_out(tmp_path, film, mapping):
    """The second film of a study, damaged, in a folder, in an archive, and as a picture: its study stays."""
    table = TABLE.replace("1.2.1,", "a,").replace("1.2.2,", "b,").replace("1.2.3,", "c,")
    root = write_tree(tmp_path, table=table, mapping=None)
    (root / "b" / "3").unlink()
    (root / "a" / "2.dcm").rename(root / "b" / "2.dcm")
    if mapping:
        for path in (*root.glob("?/*.dcm"), *root.glob("?/*.dicom")):
            Image.new("L", (8, 6), 9).save(path.with_suffix(".png"))
            path.unlink()
    if "!" in film:
        with ZipFile(root / "b.zip", "w") as archive:
            archive.writestr("b/3.dcm", b"damaged")
    else:
        (root / film).write_bytes(b"damaged")
    head = MAPPING.replace("StudyInstanceUID", "folder") + mapping

    def build(leave_out):
        (root / "mapping.yaml").write_text(f"{head}leave_out: {leave_out}\n", encoding="utf-8")
        return read(root, id_key=KEY)

    assert [len(record.images) for record in build(f"['{film}']").splits["test"]] == [1, 1, 1]
    assert dict(build(f"['{film}']").set_aside)[film] == "named by the maintainer under `leave_out` in the mapping"
    with pytest.raises(BuildError, match=r"mapping.yaml: `leave_out` must be files below the download, got 'b/4'"):
        build(f"['{film}', b/4]")
    with pytest.raises(BuildError, match=r"`leave_out` must be a list of files below the download, got b/3"):
        build("b/3")


def test_secondary_captures_are_taken_if_asked(tmp_path):
    write_tree(tmp_path)
    resaved = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7", "ImageType": ["DERIVED", "SECONDARY"]}
    write_film(tmp_path / "a" / "1.dcm", "1.2.1", **resaved)
    write_film(tmp_path / "a" / "5.dcm", "1.2.1", 2, **{**resaved, "Modality": "OT"})

    with pytest.raises(BuildError, match=r"must match one study by StudyInstanceUID, got '1\.2\.1', which") as refused:
        read(tmp_path, id_key=KEY)
    way_on = "--include-secondary (`include_secondary=True`) accepts secondary captures of modality CR, DX or none"
    assert way_on in refused.value.warnings
    assert way_on in inspect(tmp_path).warnings
    source_data = read(tmp_path, id_key=KEY, include_secondary=True)
    assert [len(record.images) for record in source_data.splits["test"]] == [1, 2, 1]
    assert dict(source_data.set_aside) == {"a/5.dcm": "the modality is neither CR nor DX, got OT"}
    warning = (
        "1 secondary captures are accepted as radiographs; before publishing, check that none shows a patient's name"
    )
    assert warning in source_data.warnings
    assert inspect(tmp_path, include_secondary=True).counts["images"] == 4


def test_frontal_images_come_first(tmp_path):
    write_tree(tmp_path)
    write_film(tmp_path / "0.dcm", "1.2.2", 0, view="LATERAL")
    write_film(tmp_path / "9.dcm", "1.2.2", 9, view="PA")
    record = read(tmp_path, id_key=KEY).splits["test"][1]
    assert record.views == ("AP", "PA", "LATERAL", "LATERAL")
    assert [image.picture.source_path for image in record.images] == ["a/2.dcm", "9.dcm", "0.dcm", "b/3"]


def test_unknown_views_and_detectors_are_not_passed_on(tmp_path):
    write_tree(tmp_path)
    write_film(tmp_path / "a" / "1.dcm", "1.2.1", view="MRS SMITH", DetectorType="ROOM 7")
    image = read(tmp_path, id_key=KEY).splits["test"][0].images[0]
    assert (image.view, image.view_raw, image.detector_type) == ("UNKNOWN", None, None)


def test_films_inside_archives(tmp_path):
    root = write_tree(tmp_path / "d")
    shutil.make_archive(str(root / "films"), "zip", root / "c")
    shutil.rmtree(root / "c")
    image = read(root, id_key=KEY).splits["test"][2].images[0]
    assert (image.picture.path.name, image.picture.member, image.view) == ("films.zip", "4.dicom", "PA")


def test_the_folder_holds_films_that_look_as_they_were_rendered(built):
    rows = pq.read_table(next((built / "multilabel").glob("test-*.parquet"))).to_pylist()
    by_id = {entry["image_id"]: (row["images"][i], entry) for row in rows for i, entry in enumerate(row["image_facts"])}
    for study in islice(studies(seed=SEED), N):
        for image in study.images:
            picture, facts = by_id[keyed_id(KEY, "image", study.uid("image", image.number))]
            pixels = np.asarray(Image.open(io.BytesIO(picture["bytes"])))
            assert np.abs(pixels.astype(int) - reveal_film(study, image, SIDE)).max() <= 1
            assert picture["path"] == f"{facts['image_id']}.png"
            assert facts["pixel_pipeline"].startswith("dicom-v2: ")


def test_the_folder_is_read_back_as_it_was(reveal_download, built, truth):
    back = read_studies(built, "test")
    assert [list(record.labels) for record in back] == [study["labels"] for study in truth]
    records = read(reveal_download, id_key=KEY).splits["test"]
    for record, again in zip(records, back, strict=True):
        assert (record.study_id, record.age_band, record.views) == (again.study_id, again.age_band, again.views)


def test_plain_datasets_loads_it(built, truth):
    program = f"""
import sys; sys.modules["reveal_bench"] = None
from datasets import load_dataset
studies = load_dataset({str(built)!r}, "multilabel", split="test")
names = studies.features["labels"].feature.names
print([[names[code] for code in row] for row in studies["labels"]])
print(studies[0]["images"][0].size, studies[0]["images"][0].mode, sum(map(sum, studies["label_vector"])))
terms = load_dataset({str(built)!r}, "labels", split="terms")
print(len(terms), terms[0]["name"], terms[0]["radlex"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    labels, picture, terms = done.stdout.splitlines()
    assert labels == str([study["labels"] for study in truth])
    first = truth[0]["images"][0]
    n_labels = sum(len(study["labels"]) for study in truth)
    assert picture == f"({first['width']}, {first['height']}) L {n_labels}"
    assert terms == "12 Airspace opacity RID28663"


def test_nothing_of_a_header_leaks(reveal_download, built):
    """Names, texts, dates, numbers, UIDs and private elements of every film; the paths and names of its files."""
    forbidden = {"Leakington", "LEAK", "batch001", "film1.dcm", "IM00000", str(reveal_download), "truth.jsonl"}
    for study in islice(studies(seed=SEED), N):
        for image in study.images:
            forbidden |= set(identifiers(study, image))
    assert len(forbidden) > 150
    contents = [path.read_bytes() for path in built.rglob("*") if path.is_file()]
    for path in built.rglob("*.parquet"):
        table = pq.read_table(path)
        contents += [*everything(table.to_pylist()), str(table.schema.metadata).encode()]
    leaks = {text for text in forbidden for content in contents if text.encode() in content}
    # the name of the source in the published card is not a leak, nor are digits of a time inside a hash
    assert leaks == set()


def test_a_holdout_keeps_labels_and_patients_apart(reveal_download, tmp_path):
    source_data = read(reveal_download, id_key=KEY)
    build_folder(
        source_data.splits, tmp_path / "public", BENCHMARKS["reveal-cxr"], extras=source_data.extras, synthetic=True,
        holdout=tmp_path / "vault", holdout_split="test", seed=1,
    )  # fmt: skip
    released, held = read_studies(tmp_path / "public", "released"), read_studies(tmp_path / "vault", "holdout")
    assert len(released) + len(held) == N
    assert not {record.patient_id for record in released} & {record.patient_id for record in held}
    inputs = pq.read_table(next((tmp_path / "public" / "holdout_inputs").glob("*.parquet"))).to_pylist()
    assert {row["study_id"] for row in inputs} == {record.study_id for record in held}
    assert all(row["labels"] == [] and row["images"][0]["bytes"] for row in inputs)


def test_ids_follow_the_secret(reveal_download):
    first, again, other = (read(reveal_download, id_key=key).splits["test"] for key in (KEY, KEY, bytes(32)))
    assert [record.study_id for record in first] == [record.study_id for record in again]
    ids = [
        {record.study_id for record in records} | {record.patient_id for record in records}
        for records in (first, other)
    ]
    assert not ids[0] & ids[1]


def test_a_collision_of_ids_is_a_problem(reveal_download, monkeypatch):
    from reveal_bench.sources import ids

    monkeypatch.setattr(ids, "DIGITS", 1)
    with pytest.raises(ValueError, match=r"`(study|image|patient)_id` must differ for different identifiers"):
        read(reveal_download, id_key=KEY)


def test_inspect_counts_and_suggests(reveal_download, tmp_path):
    inspection = inspect(reveal_download)
    assert (inspection.source, inspection.synthetic, list(inspection.problems)) == ("reveal-cxr", True, [])
    assert inspection.files == {"mapping": "mapping.yaml", "table": "labels.csv"}
    n_images = sum(len(study.images) for study in islice(studies(seed=SEED), N))
    assert inspection.counts == {
        "studies": N, "images": n_images, "files set aside": 4, "rows of the table": N, "rows with a study": N,
    }  # fmt: skip
    shutil.copytree(reveal_download, tmp_path / "copy")
    (tmp_path / "copy" / "mapping.yaml").unlink()
    without = inspect(tmp_path / "copy")
    assert "table" not in without.files
    (text,) = (warning for warning in without.warnings if warning.startswith("no mapping"))
    assert "# Other tables that match studies: reports.csv, votes.csv" in text


def test_a_saved_suggestion_reads_the_same(reveal_download, tmp_path):
    shutil.copytree(reveal_download, tmp_path / "copy")
    (tmp_path / "copy" / "mapping.yaml").unlink()
    with pytest.raises(ValueError, match=r"`mapping` must explain the columns of the table") as error:
        read(tmp_path / "copy", id_key=KEY)
    saved = tmp_path / "own.yaml"
    saved.write_text(str(error.value).split("correct it:\n")[1], encoding="utf-8")

    def facts(source_data):
        return [
            (r.study_id, r.labels, r.agreement, r.n_agree_all, r.age_band, r.sex, r.race, r.patient_class)
            for r in source_data.splits["test"]
        ]

    assert facts(read(tmp_path / "copy", id_key=KEY, mapping=saved)) == facts(read(reveal_download, id_key=KEY))


def test_a_guess_leaves_open_what_it_cannot_tell(tmp_path):
    table = "uid,wide1,sex,agreement\n1.2.1,x,Femme,yes\n1.2.2,y,Homme,no\n1.2.3,z,,no\n"
    write_tree(tmp_path, table=table, mapping=None)
    (text,) = (warning for warning in inspect(tmp_path).warnings if warning.startswith("no mapping"))
    assert "# No column with labels was recognised" in text
    assert "Femme: ???" in text
    own = tmp_path / "mapping.yaml"
    own.write_text(text.split("correct it:\n")[1], encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"`agreement.values.yes` must be one of two_of_three, three_of_three, got '\?\?\?'"
    ):
        read(tmp_path, id_key=KEY)


def test_guess_of_columns_per_label(tmp_path):
    table = "study_uid,Airspace_Opacity,copd,Pleural Effusion\n1.2.1,1,0,0\n1.2.2,0,1,1\n1.2.3,0,0,0\n"
    write_tree(tmp_path, table=table, mapping=None)
    write_film(tmp_path / "a" / "1.dcm", "1.2.1", PatientAge="094Y", PatientSex="F")
    (text,) = (warning for warning in inspect(tmp_path).warnings if warning.startswith("no mapping"))
    assert (
        "  wide:\n    Airspace_Opacity: Airspace opacity\n    copd: COPD\n    Pleural Effusion: Pleural effusion\n"
        in text
    )
    assert "# No column for Aneurysm, Cardiomegaly" in text
    assert "demographics:\n  age:\n    from: header\n  sex:\n    from: header\n" in text


def test_table_of_labels_is_guessed_before_table_of_boxes(tmp_path):
    readers = "study_uid,reader,COPD,Aneurysm\n" + "".join(f"1.2.{i},{r},1,0\n" for i in (1, 2, 3) for r in "ABC")
    write_tree(tmp_path, table=readers, mapping=None)
    boxes = "study_uid,finding,x\n" + "1.2.1,COPD,3\n1.2.1,Aneurysm,4\n1.2.2,COPD,3\n1.2.3,COPD,3\n"
    (tmp_path / "boxes.csv").write_text(boxes, encoding="utf-8")
    (text,) = (warning for warning in inspect(tmp_path).warnings if warning.startswith("no mapping"))
    assert "# Guessed from table.csv" in text
    assert text.endswith("reader:\n  column: reader\n")


def test_sheet_of_a_workbook_is_guessed(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["what"])
    sheet = book.create_sheet("Reader A")
    for row in (("study", "labels"), ("1.2.1", "COPD"), ("1.2.2", "PTX"), ("1.2.3", "None")):
        sheet.append(row)
    book.save(write_tree(tmp_path, table=None, mapping=None) / "labels.xlsx")
    (text,) = (warning for warning in inspect(tmp_path).warnings if warning.startswith("no mapping"))
    (tmp_path / "mapping.yaml").write_text(text[text.index("table:") :], encoding="utf-8")
    assert "sheet: Reader A\nstudy_key:" in text
    assert [record.labels for record in read(tmp_path, id_key=KEY).splits["test"]] == [
        ("COPD",), ("Pneumothorax",), (),
    ]  # fmt: skip


def test_no_table_that_fits(tmp_path):
    write_tree(tmp_path, table="id,labels\n7,COPD\n", mapping=None)
    with pytest.raises(
        ValueError,
        match=(
            r"any of the 3 studies: none of table\.csv\. A column must contain one of "
            r"Study"
        ),
    ):
        read(tmp_path, id_key=KEY)


def test_published_counts_are_compared_if_the_download_claims_to_be_it(tmp_path):
    mine, claimed, named = (tmp_path / name for name in ("mine", "claimed", "REVEAL-CXR_released"))
    for root, mapping in ((mine, MAPPING), (claimed, MAPPING + "source: REVEAL-CXR\n"), (named, MAPPING)):
        write_tree(root, mapping=mapping)
    expected = [
        "studies: the source publishes 100, this download has 3",
        "images: the source publishes 109, this download has 4",
    ]
    for root, texts in ((mine, []), (claimed, expected), (named, expected)):
        assert [text for text in inspect(root).warnings if "publishes" in text] == texts
    (named / "SYNTHETIC.txt").write_text("")
    assert not any("published" in text for text in inspect(named).warnings)


@pytest.mark.parametrize(
    ("name", "mapping", "table", "expected"),
    [("d", MAPPING, True, 0.6), ("d", None, True, 0.3), ("reveal_cxr", None, True, 0.5), ("d", None, False, 0.0)],
)
def test_detection(tmp_path, name, mapping, table, expected):
    root = write_tree(tmp_path / name, mapping=mapping, **({} if table else {"table": None}))
    assert detect(root) == pytest.approx(expected)
    assert detect(tmp_path / "nothing") == 0.0


def test_more_workers_read_the_same(reveal_download):
    assert read(reveal_download, id_key=KEY, workers=2).splits == read(reveal_download, id_key=KEY).splits


def test_a_pool_has_studies_without_labels_and_without_agreement(tmp_path):
    """Before any selection: patients with several studies, suggestions that nobody confirmed."""
    write_reveal(tmp_path / "pool", n_studies=14, seed=2, long_side=64, stage="pool", traps=False)
    truth = [json.loads(line) for line in (tmp_path / "pool" / "truth.jsonl").read_text().splitlines()]
    records = read(tmp_path / "pool", id_key=KEY).splits["test"]
    assert [list(record.labels) for record in records] == [study["suggested"] for study in truth]
    agreement = {0: None, 1: None, 2: "two_of_three", 3: "three_of_three"}
    assert [record.agreement for record in records] == [agreement[study["n_agree_all"]] for study in truth]
    assert len({record.patient_id for record in records}) == 12  # the 6th and the 12th study are further ones
    assert not all(record.labels for record in records)


def test_wrong_key_column_is_one_problem(tmp_path):
    """The nearest spelling is looked up for a few rows, not for thousands."""
    rows = "".join(f"file{i},COPD,3 of 3,\n" for i in range(300))
    mapping = MAPPING.replace("StudyInstanceUID", "folder")
    write_tree(tmp_path, table="study,labels,agree,sex\n" + rows, mapping=mapping)
    write_film(tmp_path / "files" / "5.dcm", "1.2.4")
    with pytest.raises(ValueError, match="304 problems") as error:
        read(tmp_path, id_key=KEY)
    texts = [str(problem) for problem in error.value.problems]
    assert sum("which matches none" in text for text in texts) == 300
    assert 0 < sum("(nearest" in text for text in texts) <= 20
