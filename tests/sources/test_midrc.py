"""MIDRC's layout: manifest, tables per node, archives per series, and labels that must come from another table."""

import csv
import json
import shutil
from itertools import islice

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.phantom import write_reveal
from reveal_bench.phantom.reveal_studies import studies
from reveal_bench.sources import reveal_cxr
from reveal_bench.sources.ids import keyed_id
from reveal_bench.sources.midrc import detect, inspect, read, text_list
from reveal_bench.sources.source import BuildError
from tests.sources.reveal_trees import KEY, decade

N, SEED = 13, 5


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    root = tmp_path_factory.mktemp("midrc") / "download"
    write_reveal(root, n_studies=N, seed=SEED, long_side=64, layout="midrc")
    return root


@pytest.fixture
def download(twin, tmp_path):
    """A copy for a test to damage."""
    shutil.copytree(twin, tmp_path / "d")
    return tmp_path / "d"


def change(path, old, new, count=1):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")


def test_records_are_the_twin_s_truth(twin):
    source_data = read(twin, id_key=KEY)
    made = list(islice(studies(seed=SEED), N))
    for record, study in zip(source_data.splits["test"], made, strict=True):
        assert record.study_id == keyed_id(KEY, "study", study.study_uid)
        assert record.patient_id == keyed_id(KEY, "patient", study.case_id)
        assert record.labels == study.labels
        assert (record.age_band, record.sex, record.race) == (decade(study.age), study.sex, study.race)
        assert record.patient_class == "unknown"
        assert len(record.images) == len(study.images)
    assert "35 of 35" not in "".join(source_data.warnings)
    n_files = sum(len(study.images) for study in made) + 3
    assert f"{n_files} of {n_files} listed files have an md5sum: verified" in source_data.warnings


def test_records_are_those_of_the_plain_layout(twin, tmp_path):
    """The same world as a plain tree: same studies, images and labels, in archives or not."""
    write_reveal(tmp_path / "plain", n_studies=N, seed=SEED, long_side=64)
    plain = reveal_cxr.read(tmp_path / "plain", id_key=KEY).splits["test"]
    facts = [
        [(r.study_id, r.labels, r.agreement, r.age_band, r.views, [i.image_id for i in r.images]) for r in records]
        for records in (plain, read(twin, id_key=KEY).splits["test"])
    ]
    assert facts[0] == facts[1]


def test_folder_with_scores(twin, tmp_path):
    source_data = read(twin, id_key=KEY)
    build_folder(
        source_data.splits, tmp_path / "out", BENCHMARKS["reveal-cxr"], extras=source_data.extras, synthetic=True
    )
    assert len(read_studies(tmp_path / "out", "test")) == N
    import pyarrow.parquet as pq

    rows = pq.read_table(next((tmp_path / "out" / "mrale").glob("test-*.parquet"))).to_pylist()
    with (twin / "mRALE_annotations.csv").open(newline="") as file:
        expected = {
            keyed_id(KEY, "study", row["StudyInstanceUID"]): int(row["mRALE Score"]) for row in csv.DictReader(file)
        }
    assert {row["study_id"]: row["mrale_score"] for row in rows} == expected
    assert len(expected) == 3


def test_inspect_counts(twin):
    inspection = inspect(twin)
    assert list(inspection.problems) == []
    assert inspection.files["manifest"] == "manifest.json"
    assert {inspection.counts[name] for name in ("cases", "listed studies", "studies")} == {N}
    assert inspection.counts["mRALE scores"] == 3
    assert any("entries of the manifest name no file" in text for text in inspection.warnings)


def test_without_labels(download):
    (download / "mapping.yaml").unlink()
    inspection = inspect(download)
    assert any(text.startswith("no mapping: MIDRC has none of the twelve labels") for text in inspection.warnings)
    with pytest.raises(
        ValueError, match="`mapping` must be given, and explain the columns of a table of labels, because MIDRC"
    ):
        read(download, id_key=KEY)


def test_without_a_key(twin):
    with pytest.raises(ValueError, match="`id_key` must be given"):
        read(twin)


def first_archive(root):
    return sorted(root.rglob("*.zip"))[1]


def cut_archive(root):
    path = first_archive(root)
    path.write_bytes(path.read_bytes()[:-40])


def flip_archive(root, name=""):
    """One byte of the archive's stored times: readable, the same size, another md5."""
    path = root / name if name else first_archive(root)
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


def manifest(root, **entry):
    path = root / "manifest.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), entry]))


SPOILT = [
    (lambda root: first_archive(root).unlink(), r"`file_name` must be in the download, got '999999-"),
    (cut_archive, r"`file_size` must be [\d,]+ bytes, got [\d,]+ in 999999-"),
    (flip_archive, r"`md5sum` must be [0-9a-f]{32}, got [0-9a-f]{32} in 999999-"),
    (lambda root: manifest(root, file_name="x.zip"), r"manifest.json:\d+: `entry` must be an object with `object_id`"),
    (
        lambda root: manifest(root, object_id="a", file_name="../../etc/passwd"),
        r"`file_name` must be in the download",
    ),
    (
        lambda root: (root / "manifest.json").write_text("{}"),
        r"manifest.json: `file` must be a JSON list in UTF-8, got a dict",
    ),
    (lambda root: (root / "manifest.json").write_text("["), r"manifest.json: `file` must be a JSON list in UTF-8"),
    (
        lambda root: change(root / "case.tsv", "Male", "Mael"),
        r"case.tsv:\d+: `sex` must be one of .* got 'Mael' \(nearest: 'male'\)",
    ),
    (
        lambda root: change(root / "case.tsv", "White", "Whiet"),
        r"case.tsv:\d+: `race` must be one of .*got 'Whiet' \(nearest: 'white'\)",
    ),
    (
        lambda root: change(root / "case.tsv", "*submitter_id", "*submitter"),
        r"case.tsv: `columns` must have `submitter_id`",
    ),
    (
        lambda root: change(root / "case.tsv", "999999-000001", "999999-000000"),
        r"case.tsv:3: `submitter_id` must be present and unique",
    ),
    (
        lambda root: change(root / "imaging_study.tsv", "['999999-000002']", "['999999-000002'"),
        r"imaging_study.tsv:4: `case_ids` must name only one case",
    ),
    (
        lambda root: change(root / "imaging_study.tsv", "['999999-000002']", "[__import__('os')]"),
        r"imaging_study.tsv:4: `case_ids` must name only one case",
    ),
    (lambda root: change(root / "mRALE_annotations.csv", "mRALE Score", "Score"), r"`columns` must have `mRALE Score`"),
    (
        lambda root: (root / "mRALE_annotations.csv").write_text("StudyInstanceUID,mRALE Score\n1.2,25\n"),
        r"`mRALE Score` must be a whole number from 0 to 24, got '25'",
    ),
    (
        lambda root: change(root / "labels.csv", "2.25.", "2.26."),
        r"labels.csv:2: `StudyInstanceUID` must match one study",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT)
def test_problem_is_named_with_its_place(download, spoil, message):
    spoil(download)
    with pytest.raises(BuildError, match=message):
        read(download, id_key=KEY)


def test_md5_is_verified_when_building_alone(download):
    flip_archive(download)
    assert list(inspect(download).problems) == []


def test_md5_of_a_series_table_counts_if_the_manifest_has_none(download):
    path = download / "manifest.json"
    entries = json.loads(path.read_text())
    assert any("md5sum" in entry for entry in entries)
    path.write_text(json.dumps([{key: entry[key] for key in entry if key != "md5sum"} for entry in entries]))
    flip_archive(download, next(entry["file_name"] for entry in entries if entry.get("file_name", "").endswith(".zip")))
    with pytest.raises(BuildError, match=r"_series_file.tsv:\d+: `md5sum` must be [0-9a-f]{32}, got [0-9a-f]{32} in"):
        read(download, id_key=KEY)


def test_tables_that_do_not_cover_the_images_are_counted(download):
    lines = (download / "imaging_study.tsv").read_text().splitlines(keepends=True)
    (download / "imaging_study.tsv").write_text("".join(lines[:-2]))
    source_data = read(download, id_key=KEY)
    assert any(
        text.startswith("2 studies with images are not in the table imaging_study") for text in source_data.warnings
    )
    assert [record.age_band for record in source_data.splits["test"]][-2:] == ["unknown", "unknown"]


def test_ages_above_89_are_a_flag(download):
    lines = (download / "imaging_study.tsv").read_text().splitlines()
    head = lines[0].split("\t")
    cells = lines[1].split("\t")
    cells[head.index("age_at_imaging")], cells[head.index("age_at_imaging_gt89")] = "", "Yes"
    (download / "imaging_study.tsv").write_text("\n".join([lines[0], "\t".join(cells), *lines[2:]]) + "\n")
    assert read(download, id_key=KEY).splits["test"][0].age_band == "80+"


def test_demographics_of_the_mapping_come_first(download):
    rows = (download / "labels.csv").read_text().splitlines()
    (download / "labels.csv").write_text("\n".join([rows[0] + ",who", *(row + ",other" for row in rows[1:])]) + "\n")
    with (download / "mapping.yaml").open("a") as file:
        file.write("demographics: {sex: {column: who}}\n")
    assert {record.sex for record in read(download, id_key=KEY).splits["test"]} == {"other"}


def test_uids_stay_text(download):
    """Identifiers of digits and points would be changed by conversion to a number."""
    uids = {study.study_uid for study in islice(studies(seed=SEED), N)}
    with (download / "imaging_study.tsv").open(newline="") as file:
        assert {row["*study_uid"] for row in csv.DictReader(file, delimiter="\t")} == uids


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("['a', 'b']", ["a", "b"]),
        ("a", ["a"]),
        ("", []),
        ("[]", []),
        ("[1]", None),
        ("[open('x')]", None),
        ("[" * 500, None),
    ],
)
def test_literal_lists(cell, expected):
    assert text_list(cell) == expected


def test_detection(twin, tmp_path):
    assert detect(twin) == 0.9
    assert detect(twin) > reveal_cxr.detect(twin)
    (tmp_path / "manifest.json").write_text("[]")
    assert detect(tmp_path) == 0.0


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"`root` must hold tables of MIDRC \(imaging_study, "):
        inspect(tmp_path)
    for function in (inspect, read):
        with pytest.raises(ValueError, match="`root` must be a folder with tables of MIDRC"):
            function(tmp_path / "nothing")
