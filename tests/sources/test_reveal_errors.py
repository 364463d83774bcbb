"""Problems of a table, its mapping or a tree of DICOM files name their places, and are raised together."""

import pytest

from reveal_bench.sources.reveal_cxr import inspect, read
from reveal_bench.sources.source import BuildError
from tests.sources.reveal_trees import KEY, MAPPING, TABLE, write_film, write_tree

TABLES = [
    ("COPD", "COPDs", r"table.csv:2: `labels` must be one of the twelve labels, got 'COPDs' \(nearest: 'COPD'\)"),
    ("None", "Pneumnothorax", r"table.csv:3: .* got 'Pneumnothorax' \(nearest: 'Pneumothorax'\)"),
    ("None", "", r'table.csv:3: `labels` must name labels, or "None" for a study without labels, got a blank'),
    ("; COPD", ";; COPD", r"table.csv:2: `labels` must name labels.* got a blank"),
    ("COPD", "None", r'table.csv:2: `labels` must not contain both "None" and a label'),
    ("COPD", "airspace_opacity", r"table.csv:2: `labels` must name each label once, got Airspace opacity again"),
    (
        "1.2.3,",
        "1.2.4,",
        r"table.csv:4: `study` must match one study by StudyInstanceUID, got '1.2.4', which matches none",
    ),
    ("1.2.3,", "1.2.4,", r"c/4.dicom: `study` must have a row in table.csv, got none with StudyInstanceUID 1.2.3"),
    (
        "1.2.3,",
        "1.2.1,",
        r"table.csv:4: `study` must be unique unless .*, got '1.2.1' again, first in row 2",
    ),
    ("1.2.3,", ",", r"table.csv:4: `study` must name the study, got a blank cell"),
    ("1.2.3,lung_nodule,3 of 3,\n", "", r"c/4.dicom: `study` must have a row in table.csv"),
    ("2 of 3", "two", r"table.csv:3: `agree` must be in the mapping's values or one of .*, got 'two'"),
    ("Female", "Femal", r"table.csv:2: `sex` must be in the mapping's values .*, got 'Femal' \(nearest: 'female'\)"),
    (
        "agree,sex",
        "agreed,sex",
        r"mapping.yaml: `column` must be a column of table.csv, got 'agree' \(nearest: 'agreed'\)",
    ),
    ("agree,sex", "Agree,agree ", r"table.csv:1: `columns` must have different names, got Agree, agree more than once"),
    ("agree,sex", "agree,agree", r"table.csv:1: `columns` must have different names, got agree more than once"),
    ("Female", "Female,x", r"table.csv:2: `row` must have 4 cells, like the header, got 5"),
    ("2 of 3,Male", "2 of 3", r"table.csv:3: `row` must have 4 cells, like the header, got 3"),
    ("None", '"None', r"table.csv:3: `file` must be readable as csv in UTF-8, got unexpected end of data"),
    (TABLE, "study,labels,agree,sex\n", r"table.csv: `rows` must contain at least one row, got none"),
    (TABLE, "\n\n", r"table.csv: `file` must have a row of column names, got an empty table"),
]


@pytest.mark.parametrize(("old", "new", "message"), TABLES)
def test_problem_of_a_table_is_named(tmp_path, old, new, message):
    assert old in TABLE
    write_tree(tmp_path, table=TABLE.replace(old, new, 1))
    with pytest.raises(BuildError, match=message):
        read(tmp_path, id_key=KEY)
    assert inspect(tmp_path).problems


MAPPINGS = [
    (MAPPING, "- a\n", r"mapping.yaml: `file` must be a YAML mapping, got something else"),
    (MAPPING, "", r"mapping.yaml: `file` must be a YAML mapping"),
    (MAPPING, "a: [", r"mapping.yaml: `file` must be YAML in UTF-8, got while parsing"),
    (
        "table: table.csv",
        "tabel: table.csv",
        r"`mapping` must only have keys among .*, got 'tabel' \(nearest: 'table'\)",
    ),
    ("table: table.csv", "tabel: table.csv", r"`table` must be text, got none"),
    ("table.csv", "labels.csv", r"labels.csv: `file` must exist, got none"),
    ("StudyInstanceUID", "AccessionNumber", r"`study_key.matches` must be one of .*, got 'AccessionNumber'"),
    (
        "study_key: {column: study",
        "study_key: {column: studie",
        r"must be a column of table.csv, got 'studie' \(nearest: 'study'",
    ),
    ("labels: {list", "labels: {lists", r"`labels` must have one of wide, list, json, got none"),
    ("labels: {list", "labels: {json: {column: labels}, list", r"`labels` must have one of .*, got list, json|wide"),
    (
        'list: {column: labels, separator: ";"}',
        "wide: {COPD: Copdd}",
        r"`labels.wide.COPD` must be one of the twelve labels \(Airspace opacity, .*\), got .* \(nearest: 'COPD'\)",
    ),
    (
        'list: {column: labels, separator: ";"}',
        "wide: {a: COPD, b: copd}",
        r"`labels.wide.b` must be a label of one column",
    ),
    (
        'list: {column: labels, separator: ";"}',
        'list: {column: labels, separator: ""}',
        r"`labels.list.separator` must be",
    ),
    ("three_of_three", "three_of_tree", r"`agreement.values.3 of 3` must be one of .* \(nearest: 'three_of_three'\)"),
    ("Female: F", "Female: f", r"`demographics.sex.values.Female` must be one of F, M, other, unknown, got 'f'"),
    ("demographics: {sex", "demographics: {gender", r"`demographics` must only have keys among age, age_band, sex"),
    (
        "demographics: {sex",
        "demographics: {age: {column: sex}, age_band: {column: sex}, sex",
        r"either `age` or `age_band`, got both",
    ),
    (
        "demographics: {sex",
        "demographics: {age: {from: file}, sex",
        r"`demographics.age.from` must be header, got 'file'",
    ),
    (
        "table: table.csv",
        "table: table.csv\ntable: other.csv",
        r"mapping.yaml:2: `table` must be text and unique",
    ),
    (
        "table: table.csv",
        "table: table.csv\nids: {study: study, patient: agree}",
        r"`study` must be a public id, not a DICOM UID",
    ),
    (
        "table: table.csv",
        "table: table.csv\nrequire_deidentified: maybe",
        r"`require_deidentified` must be true or false",
    ),
    (
        "agreement:",
        "split: {column: agree, values: {3 of 3: all}}\nagreement:",
        r"`split.values.3 of 3` must be the name of",
    ),
    (
        "agreement:",
        "split: {column: agree}\nagreement:",
        r"table.csv:2: `agree` must be the name of a split.* got '3 of 3'",
    ),
    ("agreement: {column: agree", "agreement: {column: [agree]", r"`agreement.column` must be text, got \['agree'\]"),
]


@pytest.mark.parametrize(("old", "new", "message"), MAPPINGS)
def test_problem_of_a_mapping_is_named(tmp_path, old, new, message):
    assert old in MAPPING
    table = TABLE if "ids" not in new else TABLE.replace("1.2.1", "1.2.840.1").replace("1.2.2", "1.2.840.2")
    write_tree(tmp_path, mapping=MAPPING.replace(old, new, 1), table=table)
    with pytest.raises(BuildError, match=message):
        read(tmp_path, id_key=KEY)
    assert inspect(tmp_path).problems


def cut(root):
    whole = (root / "a" / "1.dcm").read_bytes()
    (root / "a" / "1.dcm").write_bytes(whole[:200])


FILES = [
    (cut, r"a/1.dcm: `file` must be readable DICOM"),
    (lambda root: (root / "a" / "x.dcm").write_text("film"), r"a/x.dcm: `file` must be readable DICOM, got not DICOM"),
    (
        lambda root: write_film(root / "5.dcm", "1.2.1", 5, BurnedInAnnotation="YES"),
        r"5.dcm: `BurnedInAnnotation` must not be YES",
    ),
    (
        lambda root: write_film(root / "5.dcm", "1.2.1", 5, patient="X"),
        r"`PatientID` must be the same in all images of a study, got 2 different",
    ),
    (
        lambda root: write_film(root / "5.dcm", "1.2.1", 5, StudyInstanceUID=None),
        r"5.dcm: `StudyInstanceUID` must be in the header, got none",
    ),
    (
        lambda root: write_film(root / "5.dcm", "1.2.1", 5, SOPInstanceUID=None),
        r"5.dcm: `SOPInstanceUID` must be in the header, got none",
    ),
    (lambda root: write_film(root / "5.dcm", "1.2.9"), r"5.dcm: `study` must have a row in table.csv"),
    (
        lambda root: write_film(root / "5.dcm", "1.2.1", value=9),
        r"a/1.dcm: `file` must be readable DICOM, got duplicate of 5.dcm: .* so one of the two files is mislabelled",
    ),
    (
        lambda root: [path.unlink() for path in root.rglob("*") if path.parent.name in "abc"],
        r"`images` must be DICOM radiographs or, if the mapping says .*, PNG and JPEG files",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), FILES)
def test_problem_of_a_tree_is_named(tmp_path, spoil, message):
    spoil(write_tree(tmp_path))
    with pytest.raises(BuildError, match=message):
        read(tmp_path, id_key=KEY)


def test_all_problems_come_together(tmp_path):
    write_tree(tmp_path, table=TABLE.replace("COPD", "COPDs").replace("Male", "Mle").replace("1.2.3", "1.2.7"))
    write_film(tmp_path / "5.dcm", "1.2.2", 5, BurnedInAnnotation="YES")
    with pytest.raises(BuildError, match="5 problems") as error:
        read(tmp_path, id_key=KEY)
    places = {(problem.file, problem.row) for problem in error.value.problems}
    assert places == {("table.csv", 2), ("table.csv", 3), ("table.csv", 4), ("5.dcm", None), ("c/4.dicom", None)}


def test_markers_of_deidentification_warn_or_are_required(tmp_path):
    write_tree(tmp_path)
    write_film(tmp_path / "5.dcm", "1.2.1", 5, PatientIdentityRemoved=None)
    warnings = read(tmp_path, id_key=KEY).warnings
    assert any(text.startswith("1 image: PatientIdentityRemoved is absent") for text in warnings)
    (tmp_path / "mapping.yaml").write_text(MAPPING + "require_deidentified: true\n", encoding="utf-8")
    with pytest.raises(
        BuildError, match=r"5.dcm: `PatientIdentityRemoved` must be YES, as the mapping requires, got none"
    ):
        read(tmp_path, id_key=KEY)


def test_keep_going_leaves_out_problems_with_a_warning(tmp_path):
    write_tree(tmp_path, table=TABLE.replace("COPD", "COPDs"))
    write_film(tmp_path / "5.dcm", "1.2.2", 5, BurnedInAnnotation="YES")
    (tmp_path / "broken.dcm").write_bytes(b"")
    source_data = read(tmp_path, id_key=KEY, keep_going=True)
    assert [record.labels for record in source_data.splits["test"]] == [("Lung nodule",)]
    left_out = [text for text in source_data.warnings if text.startswith("left out: ")]
    assert [text.split("`")[1] for text in left_out] == ["file", "BurnedInAnnotation", "labels"]
    assert [problem.field for problem in source_data.left_out] == ["file", "BurnedInAnnotation", "labels"]


def test_nothing_left_is_an_error_even_then(tmp_path):
    write_tree(tmp_path, table=TABLE.replace("1.2.", "9.9."))
    with pytest.raises(BuildError, match="`rows` must include a study without a problem, got none"):
        read(tmp_path, id_key=KEY, keep_going=True)


def test_without_mapping_or_key(tmp_path):
    write_tree(tmp_path, mapping=None)
    with pytest.raises(ValueError, match="`mapping` must explain the columns of the table, got none") as error:
        read(tmp_path, id_key=KEY)
    assert "table: table.csv" in str(error.value)
    (tmp_path / "mapping.yaml").write_text(MAPPING, encoding="utf-8")
    with pytest.raises(
        ValueError,
        match=(
            r"`id_key` must be given .a secret from which ids are made. unless the mapping "
            r"names"
        ),
    ):
        read(tmp_path)


def test_folder_without_radiographs_is_not_a_download(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError, match="`root` must contain DICOM radiographs and a table of labels, or a table of labels and"
    ):
        inspect(tmp_path)
    for function in (inspect, read):
        with pytest.raises(ValueError, match="`root` must be a folder with DICOM radiographs"):
            function(tmp_path / "nothing")
