"""Users' own datasets: the worked examples of docs/sources.md, from files to datasets, scores and answers of models."""

import csv
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import reveal_bench as rb
from reveal_bench import api
from reveal_bench.evaluation.score import score_file
from reveal_bench.findings import Vocabulary
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.cases import label_readings
from reveal_bench.kinds.findings.lint import lint_findings
from reveal_bench.kinds.findings.records import read_studies, read_study_manifest
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.pictures import SplitImages
from reveal_bench.models.prompts import prompt_text
from reveal_bench.models.questions import AskSettings
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.sources import BuildError, own_boxes
from reveal_bench.sources.ids import keyed_id
from reveal_bench.sources.reveal_cxr import read
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.markdown import block_below
from tests.sources.reveal_trees import KEY, write_film, write_tree

PAGE = ROOT / "docs" / "sources.md"
FINDINGS = ("Rib fracture", "Lines and tubes", "Pneumothorax", "No finding")

TABLE, MAPPING = (block_below(PAGE, "Findings of your own", form) for form in ("csv", "yaml"))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The example, built by the command."""
    root = tmp_path_factory.mktemp("own")
    write_tree(root / "set", table=TABLE, mapping=MAPPING, name="labels.csv")
    call("build", root / "set", "--id-key", root / "key", "--out", root / "out")
    return root / "out"


def test_own_findings_are_built_and_scored(own, tmp_path):
    assert read_folder_info(own).benchmark == "own-findings"
    manifest, studies = read_study_manifest(own, "test"), read_studies(own, "test")
    assert manifest.labels == FINDINGS
    assert [study.labels for study in studies] == [
        ("Rib fracture", "Pneumothorax"),
        ("Lines and tubes",),
        ("No finding",),
    ]
    raw_labels = [["rib-fracture"], ["support devices", "PTX"], ["normal"]]
    lines = [{"study_id": s.study_id, "labels": labels} for s, labels in zip(studies, raw_labels, strict=True)]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = lint_findings(path, manifest)
    assert [p.labels for p in report.predictions] == [
        ("Rib fracture",),
        ("Lines and tubes", "Pneumothorax"),
        ("No finding",),
    ]
    f1 = {e.finding: e.value for e in score_file(path, own, split="test").estimates if e.metric == "f1"}
    assert f1 == {"Rib fracture": 1, "Lines and tubes": 1, "Pneumothorax": 0, "No finding": 1, "macro": 0.75}
    path.write_text(json.dumps({"study_id": studies[0].study_id, "labels": ["PTX", "normal"]}) + "\n")
    assert "label-not-alone" in {
        problem.rule for problem in lint_findings(path, manifest, LintOptions(allow_missing=True)).problems
    }
    assert "no problems" in call("validate", own, "--no-load").stdout


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("Findings: Lines and tubes, PTX and Rib fracture", ("Rib fracture", "Lines and tubes", "Pneumothorax")),
        ("Findings: none", ("No finding",)),
        ('{"findings": ["support devices"]}', ("Lines and tubes",)),
        ("Findings: No finding, PTX", None),
    ],
)
def test_models_are_asked_for_own_findings_and_understood(own, text, labels):
    info, settings = read_folder_info(own), AskSettings(form="labels", side=1024)
    asked = next(KINDS["findings"].questions.read(own, "test", info, "labels"))
    asked = Question.from_document(json.loads(json.dumps(asked.document())))  # as logs of runs keep it
    assert "- Lines and tubes\n- Pneumothorax\n- No finding (never together with another)" in prompt_text(
        asked, settings
    )
    assert read_reply(text, asked, settings, stop_reason=None).labels == labels


FAULTS = {
    ("1,0,1,0", "1,0,1,1"): "labels.csv:2: `No finding` must be alone, got Rib fracture, Pneumothorax, No finding",
    ("ptx: PTX", "ptx: PNX"): "mapping.yaml: `labels.wide.ptx` must be one of the mapping's findings (Rib fracture",
    ("[PTX]", "[rib fracture]"): "mapping.yaml: `findings` must have different names, got 'rib fracture' again",
    ("- Rib fracture", "- Rib, broken"): "`findings.name` must begin with a letter or digit",
    ("[PTX]", "PTX"): "`findings.Pneumothorax.synonyms` must be a list of non-empty texts, got PTX",
    ("alone: true", "alone: often"): "`findings.No finding.stands_alone` must be true or false, got often",
}


@pytest.mark.parametrize(("change", "problem"), FAULTS.items())
def test_problem_of_own_findings_is_named(tmp_path, change, problem):
    root = write_tree(tmp_path, table=TABLE.replace(*change), mapping=MAPPING.replace(*change), name="labels.csv")
    with pytest.raises(BuildError, match=re.escape(problem)):
        read(root, id_key=KEY)


READERS, READERS_MAPPING = (block_below(PAGE, "Several readers", form) for form in ("csv", "yaml"))
READERS_MAPPING += "other_studies: left out\n"


def test_rows_of_several_readers_become_a_study(tmp_path):
    write_tree(tmp_path / "set", table=READERS, mapping=READERS_MAPPING, name="labels.csv")
    call("build", tmp_path / "set", "--id-key", tmp_path / "key", "--out", tmp_path / "out")
    studies = read_studies(tmp_path / "out", "test")
    assert [(s.labels, s.n_agree_all, s.agreement) for s in studies] == [
        (("Pneumothorax",), 2, "two_of_three"),
        ((), 2, "two_of_three"),
    ]
    first, second = (s.study_id for s in studies)
    assert label_readings(tmp_path / "out", "test", studies) == {
        "A": {first: ("Pleural effusion", "Pneumothorax"), second: ()},
        "B": {first: ("Pneumothorax",), second: ("COPD",)},
        "C": {first: ("Pneumothorax",), second: ()},
    }


@pytest.mark.parametrize(
    ("rows", "labels", "n", "agreement"),
    [
        ("1.2.1,A,COPD\n1.2.1,B,None\n", (), None, None),  # a half is not more than a half
        ("1.2.1,A,COPD\n1.2.1,B,Aneurysm\n1.2.1,C,None\n", (), 1, None),
        ("1.2.1,A,COPD\n1.2.1,B,COPD\n1.2.1,C,COPD\n", ("COPD",), 3, "three_of_three"),
        ("1.2.1,A,COPD;Aneurysm\n1.2.1,B,COPD\n1.2.1,C,Aneurysm\n", ("Aneurysm", "COPD"), 1, None),
        ("1.2.1,A,COPD\n", ("COPD",), None, None),
    ],
)
def test_labels_and_agreement_are_counted(tmp_path, rows, labels, n, agreement):
    write_tree(tmp_path, table="study,reader,labels\n" + rows, mapping=READERS_MAPPING, name="labels.csv")
    source_data = read(tmp_path, id_key=KEY)
    (study,) = source_data.splits["test"]
    assert (study.labels, study.n_agree_all, study.agreement) == (labels, n, agreement)
    note = "names of readers are published; use pseudonyms if these are names of persons: A"
    assert any(warning.startswith(note) for warning in source_data.warnings)


@pytest.mark.parametrize(
    ("change", "more", "problem"),
    [
        ("1.2.1,A", "", "labels.csv:3: `reader` must be unique among the rows of a study, got 'A' again for '1.2.1'"),
        ("1.2.1,", "", "labels.csv:3: `reader` must not be blank, because it states the reader"),
        (
            "1.2.1,a",
            "",
            "labels.csv:3: `reader` must be spelt the same in all rows of a reader, got 'a', but 'A' in an earlier row",
        ),
        ("1.2.1,B", "agreement: {column: labels}", "`agreement` must be left out if the mapping names a column"),
        ("1.2.1,B", "split: {column: reader}", "labels.csv:3: `split` must be the same in every row of '1.2.1', got B"),
    ],
)
def test_problem_of_rows_of_readers_is_named(tmp_path, change, more, problem):
    write_tree(tmp_path, table=READERS.replace("1.2.1,B", change), mapping=READERS_MAPPING + more, name="labels.csv")
    with pytest.raises(BuildError, match=re.escape(problem)):
        read(tmp_path, id_key=KEY)


PICTURES_MAPPING = """table: labels.csv
pictures: true
study_key: {column: image, matches: MATCHES}
patient_key: {column: patient}
findings: [Fracture, Tube]
labels: {wide: {Fracture: Fracture, Tube: Tube}}
"""


def write_pictures(root, matches, rows):
    """Two films: grey of 8 bits as JPEG, and of 16 bits as PNG."""
    for name, film in (("a/1.jpg", np.full((6, 8), 9, np.uint8)), ("b/2.png", np.full((8, 6), 512, np.uint16))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(film + np.arange(film.shape[1], dtype=film.dtype)).save(root / name)
    (root / "labels.csv").write_text("image,patient,Fracture,Tube\n" + rows)
    (root / "mapping.yaml").write_text(PICTURES_MAPPING.replace("MATCHES", matches))
    return root


@pytest.mark.parametrize(
    ("matches", "rows"), [("file", "a/1.jpg,P,1,0\n2,P,no,yes\n"), ("folder", "a,P,1,0\nb,P,no,yes\n")]
)
def test_studies_may_be_pictures(tmp_path, matches, rows):
    write_pictures(tmp_path / "set", matches, rows)
    ids = tmp_path / "ids.csv"
    call("build", tmp_path / "set", "--id-key", tmp_path / "key", "--out", tmp_path / "out", "--id-table", ids)
    studies = read_studies(tmp_path / "out", "test")
    assert [study.labels for study in studies] == [("Fracture",), ("Tube",)]
    table = {(row["kind"], row["own_id"]): row["id"] for row in csv.DictReader(ids.open())}
    assert table[("study", "b/2.png" if matches == "file" else "b")] == studies[1].study_id
    assert table[("image", "b/2.png")] == studies[1].images[0].image_id
    assert table[("patient", "P")] == studies[1].patient_id
    assert ids.stat().st_mode & 0o077 == 0
    assert studies[0].patient_id == studies[1].patient_id
    assert [(i.width, i.height, i.view) for s in studies for i in s.images] == [(8, 6, "UNKNOWN"), (6, 8, "UNKNOWN")]
    deep = SplitImages(tmp_path / "out", "test").open(studies[1].images[0].image_id)
    assert np.asarray(deep)[0].tolist() == [0, 51, 102, 153, 204, 255]  # from 512 to 517, not all of them white


PICTURE_FAULTS = {
    ("matches: file", "matches: PatientID"): (
        "`study_key.matches` must be file or folder, because pictures have no header"
    ),
    ("pictures: true", "pictures: true\ndemographics: {sex: {from: header}}"): "`demographics.sex` must name a column",
    ("pictures: true\n", ""): "must be DICOM radiographs or, if the mapping says `pictures: true`, PNG and JPEG files",
}


@pytest.mark.parametrize(("change", "problem"), PICTURE_FAULTS.items())
def test_problem_of_studies_of_pictures_is_named(tmp_path, change, problem):
    root = write_pictures(tmp_path, "file", "1,P,1,0\n2,P,0,1\n")
    (root / "mapping.yaml").write_text(PICTURES_MAPPING.replace("MATCHES", "file").replace(*change))
    with pytest.raises(BuildError, match=re.escape(problem)):
        read(root, id_key=KEY)


def test_a_table_of_ids_must_be_private_and_of_use(tmp_path):
    root = write_boxes(tmp_path / "set")  # whose ids are public
    (tmp_path / "key").write_text("secret")
    refused = {
        "out/ids.csv": "must be outside",
        "ids.csv": "already public",
        "key": "must be a new file",
        "no/ids.csv": "in a writable folder",
    }
    for name, message in refused.items():
        place = tmp_path / name
        assert message in call("build", root, "--out", tmp_path / "out", "--id-table", place, expect=1).stderr


def test_a_picture_that_cannot_be_read_is_named(tmp_path):
    root = write_pictures(tmp_path, "file", "1,P,1,0\n2,P,0,1\n")
    (root / "b" / "2.png").write_bytes(b"none")
    with pytest.raises(BuildError, match=r"b/2\.png: `file` must be a PNG or JPEG file, got not a picture"):
        read(root, id_key=KEY)


def test_pictures_that_may_not_be_taken_are_left_or_refused(tmp_path):
    root = write_pictures(tmp_path / "set", "file", "1,P,1,0\n2,P,0,1\n")
    (tmp_path / "3.png").write_bytes((root / "b" / "2.png").read_bytes())
    (root / "3.png").symlink_to(tmp_path / "3.png")
    assert read(root, id_key=KEY).set_aside == [("3.png", "a link that leads out of the folder")]
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("L", (8, 6)).save(root / "a" / "1.jpg", exif=turned)
    refused = call("build", root, "--id-key", tmp_path / "key", "--out", tmp_path / "out", expect=1).stderr
    assert "`file` must be a PNG or JPEG file, got rotated by its metadata (EXIF orientation 6)" in refused


def test_own_findings_and_readers_are_suggested(tmp_path):
    rows = "study,Radiologist,Fracture,Tube\n1.2.1,A,1,0\n1.2.1,B,1,0\n1.2.2,A,0,1\n1.2.3,A,0,0\n"
    write_tree(tmp_path, table=rows, mapping=None, name="labels.csv")
    with pytest.raises(ValueError, match="must explain the columns") as caught:
        read(tmp_path, id_key=KEY)
    (tmp_path / "mapping.yaml").write_text(str(caught.value).partition("correct it:\n")[2])
    assert [study.labels for study in read(tmp_path, id_key=KEY).splits["test"]] == [("Fracture",), ("Tube",), ()]


def test_a_reading_that_is_lost_is_never_passed_over(tmp_path):
    """Two of three readers remain, and their majority differs."""
    root = write_tree(tmp_path, table=READERS + "1.2.2,D\n", mapping=READERS_MAPPING, name="labels.csv")
    with pytest.raises(BuildError, match=r"labels\.csv:8: `row` must have 3 cells"):
        read(root, id_key=KEY, keep_going=True)
    (root / "labels.csv").write_text(READERS.replace("1.2.2,B", "1.2.9,B"))
    warning = "studies have different numbers of readers: 1 has 1, 1 has 2, 1 has 3"
    assert warning in read(root, id_key=KEY, keep_going=True).warnings


def test_a_vocabulary_keeps_its_terms_only_where_it_has_any(own):
    info = read_folder_info(own)
    assert json.loads(info.to_json())["terms"]["Pneumothorax"] == {"synonyms": ["PTX"]}
    assert type(info.findings) is Vocabulary
    with pytest.raises(ValueError, match="`terms` must have findings as keys, got 'Edema'"):
        Vocabulary.of(["COPD"], {"Edema": {}})


def test_synonyms_are_read_in_a_part_of_the_findings(own):
    bench = rb.load(own)
    part = bench.select("PTX")
    assert part.part == f"1 of {len(bench.info.findings)} findings (Pneumothorax)"
    other = next(finding for finding in bench.info.findings if finding != "Pneumothorax")
    answers = {study: {"ptx": i / 10, other: 0.5} for i, study in enumerate(part.manifest.studies)}
    report = rb.lint(answers, part)
    assert report.ok
    assert [problem.rule for problem in report.problems] == ["finding-spelling", "not-asked", "part"]


BOXES, BOX_MAPPING = (block_below(PAGE, "Boxes of your own", form) for form in ("csv", "yaml"))
COCO = {
    "images": [{"id": i, "file_name": f"film{i}.png"} for i in (1, 2, 3)],
    "categories": [{"id": 1, "name": "nodule"}, {"id": 2, "name": "PTX"}],
    "annotations": [
        {"image_id": 1, "category_id": 1, "bbox": [10, 20, 20, 24]},
        {"image_id": 1, "category_id": 2, "bbox": [2, 2, 10, 28]},
        {"image_id": 3, "category_id": 1, "bbox": [40, 40, 10, 20]},
    ],
}


def write_boxes(root, boxes=BOXES, mapping=BOX_MAPPING, suffix=".png"):
    """Three images of 64 x 80 pixels, and the example's files about them."""
    root.mkdir(exist_ok=True)
    for i in (1, 2, 3):
        if suffix == ".png":
            Image.new("L", (64, 80), 40 * i).save(root / f"film{i}.png")
        else:
            write_film(root / f"film{i}{suffix}", f"1.2.{i}", shape=(80, 64))
    (root / "mapping.yaml").write_text(mapping)
    if isinstance(boxes, str):
        (root / "boxes.csv").write_text(boxes)
    return root


def drawn(records):
    return [(r.image_id, r.label_status, [(a.finding, a.boxes_xywh) for a in r.annotations]) for r in records]


DRAWN = [
    ("film1", {"Nodule": 1, "Pneumothorax": 1}, [("Nodule", ((10, 20, 20, 24),)), ("Pneumothorax", ((2, 2, 10, 28),))]),
    ("film2", {"Nodule": 0, "Pneumothorax": 0}, []),
    ("film3", {"Nodule": 1, "Pneumothorax": 0}, [("Nodule", ((40, 40, 10, 20),))]),
]
FRACTIONS = """image,finding,x,y,w,h
film1,Nodule,0.15625,0.25,0.3125,0.3
film1,PTX,0.03125,0.025,0.15625,0.35
film2,No finding,,,,
film3,Nodule,0.625,0.5,0.15625,0.25
"""
AS_FRACTIONS = BOX_MAPPING.replace("xyxy: [x1, y1, x2, y2]", "xywh: [x, y, w, h]").replace("pixels", "normalised")


def test_boxes_of_a_table_of_fractions_of_parquet_and_of_coco_are_the_same(tmp_path):
    sets = {"a": (BOXES, BOX_MAPPING, ".png"), "b": (FRACTIONS, AS_FRACTIONS, ".dcm")}
    for name, one in sets.items():
        assert drawn(own_boxes.read(write_boxes(tmp_path / name, *one)).splits["test"]) == DRAWN
    coco = write_boxes(
        tmp_path / "coco", None, "boxes: boxes.json\nids: public\n" + BOX_MAPPING.splitlines()[-2] + "\n"
    )
    (coco / "boxes.json").write_text(json.dumps(COCO))
    assert drawn(own_boxes.read(coco).splits["test"]) == DRAWN
    parquet = write_boxes(tmp_path / "parquet", None, BOX_MAPPING.replace("boxes.csv", "boxes.parquet"))
    rows = list(csv.DictReader(BOXES.splitlines()))
    pq.write_table(pa.Table.from_pylist(rows), parquet / "boxes.parquet")
    assert drawn(own_boxes.read(parquet).splits["test"]) == DRAWN


def test_films_are_found_by_uid_whatever_their_files_are_called(tmp_path):
    boxes = "image,finding,x1,y1,x2,y2\n1.2.1.1.1,Nodule,10,20,30,44\n1.2.2.1.1,PTX,2,2,12,30\n"
    mapping = BOX_MAPPING.replace("matches: file", "matches: SOPInstanceUID").replace("ids: public\n", "")
    (tmp_path / "boxes.csv").write_text(boxes)
    (tmp_path / "mapping.yaml").write_text(mapping)
    for folder in ("1", "2"):
        write_film(tmp_path / folder / "film.dcm", f"1.2.{folder}", shape=(80, 64))
    records = own_boxes.read(tmp_path, id_key=KEY).splits["test"]
    assert [[a.finding for a in record.annotations] for record in records] == [["Nodule"], ["Pneumothorax"]]
    write_film(tmp_path / "3" / "film.dcm", "1.2.2", shape=(80, 64))
    with pytest.raises(
        BuildError,
        match=(
            r"`picture` must be the only file with its name, got 2/film.dcm and "
            r"3/film.dcm"
        ),
    ):
        own_boxes.read(tmp_path, id_key=KEY)


def test_own_boxes_become_localization_and_detection(tmp_path):
    root = write_boxes(tmp_path / "set")
    for task in ("localization", "detection"):
        call("build", root, "--out", tmp_path / task, "--task", task)
        assert "no problems" in call("validate", tmp_path / task, "--no-load").stdout
    path = tmp_path / "p.jsonl"
    boxes = [("film1", "PTX", [2, 2, 10, 28]), ("film3", "nodule", [0, 0, 5, 5])]
    lines = [json.dumps({"image_id": i, "finding": f, "box": b, "score": 0.5}) + "\n" for i, f, b in boxes]
    path.write_text("".join(lines))
    estimates = score_file(path, tmp_path / "detection", "test", ScoringOptions(allow_missing=True)).estimates
    ap = {e.finding: e.value for e in estimates if e.metric == "ap_50"}
    assert ap == {"Nodule": 0, "Pneumothorax": 1, "macro": 0.5}


def test_readers_boxes_stay_apart_and_ids_are_hashes(tmp_path):
    mapping = BOX_MAPPING.replace("ids: public", "reader: {column: who}")
    boxes = BOXES + "film3.png,Bea,nodule,41,40,51,60\n"
    root = write_boxes(tmp_path, boxes, mapping)
    with pytest.raises(ValueError, match=r"`id_key` must be given .a secret from which ids are made. unless"):
        own_boxes.read(root)
    source_data = own_boxes.read(root, id_key=KEY)
    first, _, third = source_data.splits["test"]
    assert source_data.warnings[-1].endswith("if these are names of persons: Ada, Bea")
    assert first.image_id == keyed_id(KEY, "image", "film1")
    assert first.picture.name == f"{first.image_id}.png"
    assert (first.label_status, third.label_status) == (
        {"Nodule": None, "Pneumothorax": None}, {"Nodule": 1, "Pneumothorax": 0},
    )  # fmt: skip
    assert [(a.reader, a.reader_id) for a in third.annotations] == [("individual", "Ada"), ("individual", "Bea")]
    (root / "mapping.yaml").write_text(mapping.replace("{column: who}", "{column: who, reference: Bea}"))
    records = own_boxes.read(root, id_key=KEY).splits["test"]
    assert [record.label_status["Nodule"] for record in records] == [0, 0, 1]
    assert [(a.reader, a.reader_id) for a in records[2].annotations] == [("ground_truth", None), ("individual", "Ada")]


BOX_FAULTS = {
    ("30,44", "90,44"): "boxes.csv:2: `x1, y1, x2, y2` must be in the image of 64 x 80 pixels, got 10, 20, 90, 44",
    (",PTX,2", ",PNX,2"): "boxes.csv:3: `finding` must be one of the mapping's findings, got 'PNX'",
    ("film3.png", "film4.png"): "boxes.csv:5: `picture` must exist for film4, got no such file",
    ("40,40", "a,40"): "boxes.csv:5: `x1, y1, x2, y2` must be four finite numbers, got 'a', '40', '50', '60'",
    ("coordinates: pixels", ""): "mapping.yaml: `coordinates` must be 'pixels' or 'normalised', got None",
    ("in the table", "some"): "mapping.yaml: `images` must be 'in the table', 'all pictures', or a mapping",
    ("images: in the table\n", ""): "boxes.csv:4: `finding` must name a finding unless the mapping says with `images`",
    ("[x1, y1, x2, y2]", "[x1, y1]"): (
        "mapping.yaml: `xyxy` or `xywh` must list four columns, and the other key must be left out"
    ),
    ("column: image", "column: img"): "mapping.yaml: `column` must be a column of boxes.csv, got 'img'",
    (
        "film3.png,Ada",
        "film1.png,Ada,Nodule,10,20,30,44\nfilm3.png,Ada",
    ): "boxes.csv:5: `x1, y1, x2, y2` must not repeat an ",
    (
        "film3.png,Ada",
        "film3.png,Ada,,,,,\nfilm3.png,Ada",
    ): "boxes.csv:5: `finding` must not be blank, because this image's",
    (
        "10,20,30,44",
        ".1,.2,.3,.4",
    ): "if the numbers are fractions of width and height, set `coordinates: normalised`, got .1, .2, .3, .4",
}


@pytest.mark.parametrize(("change", "problem"), BOX_FAULTS.items())
def test_problem_of_own_boxes_is_named(tmp_path, change, problem):
    root = write_boxes(tmp_path, BOXES.replace(*change), BOX_MAPPING.replace(*change))
    with pytest.raises(BuildError, match=re.escape(problem)):
        own_boxes.read(root)


@pytest.mark.parametrize(
    ("change", "reader", "problem"),
    [
        (("Ada", "Ada"), "Adda", "mapping.yaml: `reader.reference` must be one of Ada, got 'Adda'"),
        (
            ("film3.png,Ada", "film3.png,ada"),
            "Ada",
            "boxes.csv:5: `who` must be spelt as in",
        ),
        (("film3.png,Ada", "film1.png,Ada,,,,,\nfilm3.png,Ada"), "Ada", "because the same reader's box is in line 2"),
    ],
)
def test_readers_names_are_checked(tmp_path, change, reader, problem):
    mapping = f"{BOX_MAPPING}reader: {{column: who, reference: {reader}}}\n"
    with pytest.raises(BuildError, match=re.escape(problem)):
        own_boxes.read(write_boxes(tmp_path, BOXES.replace(*change), mapping))


def test_boxes_without_a_reference_reader_are_a_warning_unless_fused(tmp_path):
    root = write_boxes(tmp_path / "set", mapping=BOX_MAPPING + "reader: {column: who}\n")
    build = "build", root, "--overwrite", "--out", tmp_path / "out", "--task", "detection"
    assert "no reader is the reference" in call(*build).stderr
    assert "no reader is the reference" not in call(*build, "--fuse", "majority").stderr
    (root / "boxes.csv").write_text(BOXES.replace("film2.png,Ada,,,,,\n", ""))
    assert "no row says that a reader drew no box" in call(*build).stderr


def test_images_that_may_show_a_name_are_refused(tmp_path):
    root = write_boxes(tmp_path, suffix=".dcm")
    write_film(root / "film1.dcm", "1.2.1", shape=(80, 64), PatientIdentityRemoved="NO")
    assert any("1 image: PatientIdentityRemoved is NO" in text for text in own_boxes.read(root).warnings)
    write_film(root / "film2.dcm", "1.2.2", shape=(80, 64), BurnedInAnnotation="YES")
    with pytest.raises(BuildError, match=r"film2\.dcm: `BurnedInAnnotation` must not be YES"):
        own_boxes.read(root)


IMAGES = "image,patient_id,split\nfilm1.png,P,train\nfilm2.png,P,train\nfilm3.png,Q,test\n"
OF_IMAGES = BOX_MAPPING.replace("in the table", "{table: images.csv, column: image, patient: patient_id, split: split}")


@pytest.mark.parametrize(
    ("images", "problem"),
    [
        (IMAGES, None),
        (IMAGES.replace("Q", "P"), "images.csv:4: `split` must be train, as in earlier rows of this patient, got test"),
        (IMAGES.replace("Q", ""), "images.csv:4: `patient_id` must name the image's patient, got a blank"),
    ],
)
@pytest.mark.parametrize("form", ["table", "COCO"])
def test_a_table_says_patients_and_splits(tmp_path, images, problem, form):
    mapping = OF_IMAGES if form == "table" else "boxes: boxes.json\n" + "\n".join(OF_IMAGES.splitlines()[-3:])
    root = write_boxes(tmp_path, mapping=mapping)
    (root / "images.csv").write_text(images)
    (root / "boxes.json").write_text(json.dumps(COCO))
    if problem is not None:
        with pytest.raises(BuildError, match=re.escape(problem)):
            own_boxes.read(root)
        return
    splits = own_boxes.read(root).splits
    assert {split: [(r.image_id, r.patient_id) for r in records] for split, records in splits.items()} == {
        "train": [("film1", "P"), ("film2", "P")], "test": [("film3", "Q")],
    }  # fmt: skip
    assert not any("is not read" in text for text in own_boxes.read(root).warnings)
    (root / "mapping.yaml").write_text(mapping.replace(", split: split", ""))
    assert any("images.csv: the column 'split' is not read" in text for text in own_boxes.read(root).warnings)


COCO_FAULTS = {
    ("images", 0, "width"): (
        "65",
        "boxes.json:images[0]: `width, height` must be 64 x 80, the size of the picture, got 65",
    ),
    ("images", 1, "file_name"): (
        "film1.png",
        "boxes.json:images[1]: `file_name` must be listed once, but is also at images[0]",
    ),
    ("images", 1, "id"): (1, "boxes.json:images[1]: `id` must be unique among images, got 1"),
    ("annotations", 1, "id"): (1, "boxes.json:annotations[1]: `id` must be unique among annotations, got 1"),
    ("annotations", 1, "iscrowd"): (1, "boxes.json:annotations[1]: `iscrowd` must be 0"),
    ("annotations", 1, "category_id"): (
        9,
        "boxes.json:annotations[1]: `category_id` must be the id of a category, got 9",
    ),
    ("annotations", 1, "image_id"): (9, "boxes.json:annotations[1]: `image_id` must be the id of an image, got 9"),
}


@pytest.mark.parametrize(("place", "change"), COCO_FAULTS.items())
def test_problem_of_a_coco_file_is_named(tmp_path, place, change):
    (key, i, name), (value, problem) = place, change
    content = json.loads(json.dumps(COCO))
    content["images"][0] |= {"width": 64, "height": 80}
    content["annotations"][0] |= {"id": 1, "iscrowd": 0}
    content[key][i][name] = value
    root = write_boxes(
        tmp_path, None, "boxes: boxes.json\nids: public\nfindings: [Nodule, {name: Pneumothorax, synonyms: [PTX]}]\n"
    )
    (root / "boxes.json").write_text(json.dumps(content))
    with pytest.raises(BuildError, match=re.escape(problem)):
        own_boxes.read(root)


def test_numbers_that_may_be_percentages_are_a_warning(tmp_path):
    root = write_boxes(tmp_path)
    for i in (1, 2, 3):
        Image.new("L", (200, 220), 40 * i).save(root / f"film{i}.png")
    assert any("boxes.csv: no box coordinate is above 100" in text for text in own_boxes.read(root).warnings)


def test_readers_count_where_they_read_and_drew_nothing(tmp_path):
    """Bea reads the films 1 and 2 and finds nothing in 2, where a system is wrong; Ada reads all three."""
    rows = "film1.png,Bea,Nodule,10,20,30,44\nfilm2.png,Bea,normal,,,,\n"
    root = write_boxes(tmp_path / "set", BOXES + rows, OF_IMAGES + "reader: {column: who}\n")
    (root / "images.csv").write_text(IMAGES.replace("train", "test"))
    call("build", root, "--out", tmp_path / "out", "--task", "detection")
    assert "no problems" in call("validate", tmp_path / "out", "--no-load").stdout
    lines = [("film1", [10, 20, 20, 24], 0.5), ("film2", [10, 20, 20, 24], 0.9), ("film3", [40, 40, 10, 20], 0.8)]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(
        json.dumps({"image_id": i, "finding": "Nodule", "box": box, "score": score}) + "\n" for i, box, score in lines
    ))  # fmt: skip
    scores = api.score(path, tmp_path / "out", readers=True, allow_missing=True)
    values = {row.reference: (row.n, row.estimate.value) for row in scores.readers.references}
    # Ada: nodules in 1 and 3, by score wrong, right, right: precision 2/3 at both, and a pneumothorax that was missed
    # Bea: a nodule in 1; by score wrong, right: 1/2
    assert values == {
        "reader Ada": (3, pytest.approx((2 / 3 + 0) / 2)),
        "reader Bea": (2, pytest.approx(1 / 2)),
        "at least one": (3, pytest.approx((2 / 3 + 0) / 2)),
        "more than half": (3, pytest.approx(2 / 3)),
        "all": (3, pytest.approx(2 / 3)),
        "others than Ada": (2, pytest.approx(1 / 2)),
        "others than Bea": (2, pytest.approx((1 / 2 + 0) / 2)),
    }


def test_a_reader_who_drew_nothing_of_what_others_drew_missed_it(tmp_path):
    rows = "film1,Bea,Nodule,10,20,30,44\nfilm3,Bea,,,,,\nfilm1,Cy,Nodule,10,20,30,44\nfilm3,Cy,Nodule,40,40,50,60\n"
    root = write_boxes(tmp_path / "set", BOXES + rows, BOX_MAPPING + "reader: {column: who, reference: Ada}\n")
    call("build", root, "--out", tmp_path / "out")
    path = tmp_path / "p.jsonl"
    lines = [("film1", [10, 20, 20, 24]), ("film3", [40, 40, 10, 20])]
    path.write_text("".join(json.dumps({"image_id": i, "finding": "Nodule", "box": box}) + "\n" for i, box in lines))
    scores = api.score(path, tmp_path / "out", readers=True, allow_missing=True, metric="box_iou")
    values = {row.reference: (row.n, row.estimate.value, row.reader_value) for row in scores.readers.references}
    assert values["others than Bea"] == (2, 1, 0.5)  # Cy drew both nodules, Bea one of them
