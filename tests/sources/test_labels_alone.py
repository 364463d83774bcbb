"""Tables of labels without images: the suggested mapping, the benchmark `own-labels`, and its scores."""

import pytest

from reveal_bench import api
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.sources import BuildError
from reveal_bench.sources.reveal_cxr import read
from tests.cli.test_score import call
from tests.sources.reveal_trees import KEY

ALONE = """exam,patient,sex,fracture,tube,ptx
e1,p1,F,1,0,0
e2,p1,F,0,1,0
e3,p2,M,0,0,1
e4,p3,F,0,0,0
"""


def suggested(folder):
    """The mapping that `inspect` suggests."""
    return call("inspect", folder).stderr.partition("correct it:\n")[2]


def test_a_table_of_labels_alone_is_built_with_the_suggested_mapping(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "labels.csv").write_text(ALONE)
    (tmp_path / "mapping.yaml").write_text(suggested(tmp_path / "set"))
    arguments = ("--mapping", tmp_path / "mapping.yaml", "--id-key", tmp_path / "key", "--out", tmp_path / "out")
    call("build", tmp_path / "set", *arguments)
    info = read_folder_info(tmp_path / "out")
    assert (info.benchmark, info.findings) == ("own-labels", ("fracture", "tube", "ptx"))
    assert "no problems" in call("validate", tmp_path / "out").stdout
    studies = read_studies(tmp_path / "out", "test")
    assert [(study.labels, study.sex, study.images) for study in studies] == [
        (("fracture",), "F", ()),
        (("tube",), "F", ()),
        (("ptx",), "M", ()),
        ((), "F", ()),
    ]
    assert studies[0].patient_id == studies[1].patient_id != studies[2].patient_id
    answers = [{"study_id": study.study_id, "labels": list(study.labels)} for study in studies]
    scores = api.score(answers, tmp_path / "out", split="test").to_pandas()
    assert set(scores[scores["metric"] == "f1"]["value"]) == {1.0}


def test_blank_cells_may_be_unknown(tmp_path):
    """Neither positive nor negative: e2 counts only for the tube, so the tube's F1 has 4 studies, the others' 3."""
    (tmp_path / "set").mkdir()
    table = tmp_path / "set" / "labels.csv"
    table.write_text(ALONE)
    mapping = suggested(tmp_path / "set").replace("labels:\n", 'labels:\n  cells: {"": unknown}\n')
    table.write_text(ALONE.replace("e2,p1,F,0,1,0", "e2,p1,F,,1,"))
    (tmp_path / "mapping.yaml").write_text(mapping)
    arguments = ("--mapping", tmp_path / "mapping.yaml", "--id-key", tmp_path / "key", "--out", tmp_path / "out")
    call("build", tmp_path / "set", *arguments)
    assert "no problems" in call("validate", tmp_path / "out").stdout
    studies = read_studies(tmp_path / "out", "test")
    assert [study.unknown for study in studies] == [(), ("fracture", "ptx"), (), ()]
    answers = [{"study_id": study.study_id, "labels": ["fracture", "tube"]} for study in studies]
    scores = api.score(answers, tmp_path / "out", split="test").to_pandas()
    f1 = scores[scores["metric"] == "f1"].set_index("finding")
    assert (f1.loc["fracture", "value"], f1.loc["fracture", "n"]) == (2 / 4, 3)  # one hit, two false alarms
    assert (f1.loc["tube", "value"], f1.loc["tube", "n"]) == (2 / 5, 4)
    (tmp_path / "mapping.yaml").write_text(mapping.replace("unknown", "maybe"))
    refused = call("build", tmp_path / "set", *arguments[:-1], tmp_path / "other", expect=1).stderr
    assert "must be 'present', 'absent' or 'unknown'" in refused


def test_labels_alone_may_have_the_twelve_findings_readers_and_public_ids(tmp_path):
    (tmp_path / "labels.csv").write_text(
        "Study,Who,Person,Labels\na,R1,p,COPD; Pneumothorax\na,R2,p,COPD\na,R3,p,COPD\n"
        "b,R1,q,none\nb,R2,q,COPD\nb,R3,q,none\n"
    )
    (tmp_path / "mapping.yaml").write_text(
        "table: labels.csv\npictures: none\nstudy_key: {column: Study}\nreader: {column: Who}\n"
        "ids: {study: Study, patient: Person}\nlabels: {list: {column: Labels, separator: ';'}}\n"
    )
    data = read(tmp_path)
    assert [(study.study_id, study.patient_id, study.labels) for study in data.splits["test"]] == [
        ("a", "p", ("COPD",)),
        ("b", "q", ()),
    ]
    assert data.benchmark.name == "own-labels"
    assert len(data.benchmark.findings) == 12


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("study_key: {column: exam, matches: file}", "`study_key.matches` must be left out"),
        ("demographics: {sex: {from: header}}", "`demographics.sex` must name a column"),
        ("pictures: perhaps", "`pictures` must be true or false or none, got perhaps"),
    ],
)
def test_a_mapping_of_labels_alone_names_no_image(tmp_path, line, problem):
    (tmp_path / "labels.csv").write_text(ALONE)
    lines = {
        "table": "table: labels.csv",
        "pictures": "pictures: none",
        "study_key": "study_key: {column: exam}",
        "findings": "findings: [fracture, tube]",
        "labels": "labels: {wide: {fracture: fracture, tube: tube}}",
    }
    lines[line.partition(":")[0]] = line
    (tmp_path / "mapping.yaml").write_text("\n".join(lines.values()))
    with pytest.raises(BuildError) as refused:
        read(tmp_path, id_key=KEY)
    assert problem in str(refused.value)
