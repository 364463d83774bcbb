"""The same table in every format, and every way to identify studies and their labels."""

import json
import re

import pytest

from reveal_bench.sources.mapping import read_mapping
from reveal_bench.sources.reveal_cxr import read
from reveal_bench.sources.source import BuildError
from reveal_bench.sources.study_labels import age_of
from reveal_bench.tables import scan_table
from tests.sources.reveal_trees import KEY, MAPPING, TABLE, write_film, write_tree

EXPECTED = [
    (("Airspace opacity", "COPD"), "three_of_three", 3, "F"),
    ((), "two_of_three", 2, "M"),
    (("Lung nodule",), "three_of_three", 3, "unknown"),
]
"""Labels of TABLE, read by hand."""


def facts(root, **options):
    records = read(root, id_key=KEY, **options).splits["test"]
    return [(record.labels, record.agreement, record.n_agree_all, record.sex) for record in records]


def cells():
    return [line.split(",") for line in TABLE.splitlines()]


def as_xlsx(path):
    import openpyxl

    book = openpyxl.Workbook()
    for row in cells():
        book.active.append([cell or None for cell in row])
    book.save(path)


def as_jsonl(path):
    head, *rows = cells()
    path.write_text("\n\n".join(json.dumps(dict(zip(head, row, strict=True))) for row in rows), encoding="utf-8")


def as_json(path):
    head, *rows = cells()
    entries = [dict(zip(head, row, strict=True)) for row in rows]
    for entry in entries:
        entry["labels"] = [] if entry["labels"] == "None" else entry["labels"].split("; ")
        entry["sex"] = entry["sex"] or None
    path.write_text(json.dumps(entries), encoding="utf-8")


def text(separator, *, encoding="utf-8"):
    return lambda path: path.write_text(TABLE.replace(",", separator), encoding=encoding)


FORMS = {
    "comma.csv": text(","),
    "excel.csv": text(",", encoding="utf-8-sig"),
    "tab.tsv": text("\t"),
    "tab.csv": text("\t"),
    "bar.csv": text("|"),
    "table.xlsx": as_xlsx,
    "table.jsonl": as_jsonl,
    "table.json": as_json,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_the_same(tmp_path, name):
    mapping = MAPPING.replace("table.csv", name)
    if name == "table.json":
        mapping = mapping.replace('list: {column: labels, separator: ";"}', "json: {column: labels}")
    write_tree(tmp_path, table=None, mapping=mapping)
    FORMS[name](tmp_path / name)
    assert facts(tmp_path) == EXPECTED


def test_synonyms_of_labels(tmp_path):
    table = "study,labels\n1.2.1,PTX; effusion\n1.2.2,Erguss\n1.2.3,Normal\n"
    mapping = """table: table.csv
study_key: {column: study}
labels: {list: {column: labels, synonyms: {ERGUSS: effusion, Normal: COPD}}}
"""
    write_tree(tmp_path, table=table, mapping=mapping)
    assert [labels for labels, *_ in facts(tmp_path)] == [
        ("Pleural effusion", "Pneumothorax"),
        ("Pleural effusion",),
        ("COPD",),
    ]
    (tmp_path / "mapping.yaml").write_text(mapping.replace("COPD", "Fracture"), encoding="utf-8")
    with pytest.raises(BuildError, match=r"`labels.list.synonyms.Normal` must be one of the twelve labels .Airspace"):
        read(tmp_path, id_key=KEY)


def test_labels_in_columns_of_their_own(tmp_path):
    table = "study,opac,ptx,copd\n1.2.1,1,0,yes\n1.2.2,0.0,No,false\n1.2.3,-1,,1.0\n"
    mapping = """table: table.csv
study_key: {column: study}
labels:
  wide: {opac: airspace_opacity, ptx: Pneumothorax, copd: COPD}
"""
    write_tree(tmp_path, table=table, mapping=mapping)
    with pytest.raises(BuildError, match=r"2 problems") as error:
        read(tmp_path, id_key=KEY)
    assert [str(problem) for problem in error.value.problems] == [
        "table.csv:4: `opac` must be 1 or 0, yes or no, or a text in the mapping's `cells`, got '-1'",
        "table.csv:4: `ptx` must be 1 or 0, yes or no, or a text in the mapping's `cells`, got a blank cell",
    ]
    (tmp_path / "mapping.yaml").write_text(mapping + '  cells: {"-1": present, "": absent}\n', encoding="utf-8")
    assert [labels for labels, *_ in facts(tmp_path)] == [
        ("Airspace opacity", "COPD"),
        (),
        ("Airspace opacity", "COPD"),
    ]
    (warning,) = (text for text in read(tmp_path, id_key=KEY).warnings if "absent in every study" in text)
    assert warning.startswith("Aneurysm, Cardiomegaly, Hiatal hernia, ")
    assert "COPD" not in warning


def test_json_in_a_cell_of_a_csv(tmp_path):
    table = 'study,labels\n1.2.1,"[""COPD""]"\n1.2.2,[]\n1.2.3,"{""a"": 1}"\n'
    mapping = "table: table.csv\nstudy_key: {column: study}\nlabels: {json: {column: labels}}\n"
    write_tree(tmp_path, table=table, mapping=mapping)
    with pytest.raises(BuildError, match=r"table.csv:4: `labels` must be a JSON list of labels"):
        read(tmp_path, id_key=KEY)
    records = read(tmp_path, id_key=KEY, keep_going=True).splits["test"]
    assert [record.labels for record in records] == [("COPD",), ()]


@pytest.mark.parametrize(
    ("fact", "keys"),
    [
        ("PatientID", ("P1", "P2", "P3")),
        ("SOPInstanceUID", ("1.2.1.1.1", "1.2.2.2.1", "1.2.3.1.1")),
        ("SeriesInstanceUID", ("1.2.1.1", "1.2.2.1", "1.2.3.1")),
        ("file", ("1", "3", "4")),
    ],
)
def test_other_keys_of_a_study(tmp_path, fact, keys):
    table = TABLE
    for i, key in enumerate(keys, start=1):
        table = table.replace(f"1.2.{i},", f"{key},")
    write_tree(tmp_path, table=table, mapping=MAPPING.replace("StudyInstanceUID", fact))
    assert facts(tmp_path) == EXPECTED


def test_two_rows_must_not_mean_one_study(tmp_path):
    table = TABLE.replace("1.2.1,", "1,").replace("1.2.2,", "2,").replace("1.2.3,", "3,")
    write_tree(tmp_path, table=table, mapping=MAPPING.replace("StudyInstanceUID", "file"))
    with pytest.raises(
        BuildError,
        match=r"table.csv:4: `study` must match a study that no earlier row matches, got '3', the study of row 3",
    ):
        read(tmp_path, id_key=KEY)


def test_folder_of_two_studies_is_not_a_key(tmp_path):
    table = TABLE.replace("1.2.1,", "a,").replace("1.2.2,", "b,").replace("1.2.3,", "c,")
    write_tree(tmp_path, table=table, mapping=MAPPING.replace("StudyInstanceUID", "folder"))
    with pytest.raises(
        BuildError, match=r"table.csv:2: `study` must match one study by folder, got 'a'.*, which matches 2"
    ):
        read(tmp_path, id_key=KEY)


def test_a_sheet_must_be_named_where_there_are_several(tmp_path):
    import openpyxl

    write_tree(tmp_path, table=None, mapping=MAPPING.replace("table.csv", "table.xlsx"))
    as_xlsx(tmp_path / "table.xlsx")
    book = openpyxl.load_workbook(tmp_path / "table.xlsx")
    book.create_sheet("notes")
    book.save(tmp_path / "table.xlsx")
    with pytest.raises(
        BuildError, match=r"`sheet` must be named .* or be the only sheet of its workbook, got Sheet, notes"
    ):
        read(tmp_path, id_key=KEY)
    (tmp_path / "mapping.yaml").write_text(
        MAPPING.replace("table: table.csv", "table: table.xlsx\nsheet: Sheet"), encoding="utf-8"
    )
    assert facts(tmp_path) == EXPECTED


def test_numbers_of_a_sheet_keep_their_digits(tmp_path):
    import openpyxl

    book = openpyxl.Workbook()
    for row in (["id", "n", "flag"], [202600111222333, 3.0, True], [20260011122233344, 0.5, None]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    problems = []
    table = scan_table(tmp_path / "t.xlsx", "t.xlsx", problems)
    assert list(table.rows[0].values()) == ["202600111222333", "3", "true"]
    assert [row.number for row in table.rows] == [2, 3]
    assert [str(problem) for problem in problems] == [
        "t.xlsx:3: `cell` must be text if it has more than 15 digits, because a spreadsheet stores only "
        "15 digits of a number, "
        "got 20260011122233340"
    ]


def test_a_row_with_a_line_break_keeps_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"x\ny",1\n\nz,2\n', encoding="utf-8")
    table = scan_table(path, "t.csv", [])
    assert [(row.number, row["a"]) for row in table.rows] == [(2, "x\ny"), (5, "z")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", '{"a": 1}', "`file` must be a JSON list of objects, got dict"),
        (
            "t.json",
            '[{"a": {"b": 1}}]',
            "t.json:1: `a` must be text, a number, true, false, null or a list, got an object",
        ),
        ("t.json", "[1]", "t.json:1: `entry` must be a JSON object, got int"),
        ("t.json", "[]", "`rows` must contain at least one row, got none"),
        ("t.jsonl", '{"a": 1}\n{"a": \n', "t.jsonl:2: `line` must be JSON"),
        ("t.csv", "a;b\n\xff", "t.csv:2: `file` must be UTF-8: save the table as CSV UTF-8, got the byte 0xff"),
        ("t.xlsx", "PK", "must be readable as xlsx, got not an xlsx file"),
        ("t.csv", "", "`file` must have a row of column names, got an empty table"),
    ],
)
def test_folder_without_a_table_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    problems = []
    scan_table(tmp_path / name, name, problems)
    assert message in "\n".join(map(str, problems))


@pytest.mark.parametrize(
    ("n", "agreement", "expected"),
    [
        ("3", "", ("three_of_three", 3)),
        ("2", "2 of 3", ("two_of_three", 2)),
        ("1", "", (None, 1)),
        ("", "", (None, None)),
    ],
)
def test_agreement_and_the_number_of_readers(tmp_path, n, agreement, expected):
    table = f"study,labels,agree,n\n1.2.1,COPD,{agreement},{n}\n1.2.2,COPD,,\n1.2.3,COPD,,\n"
    mapping = MAPPING.split("demographics")[0] + "n_agree_all: {column: n}\n"
    write_tree(tmp_path, table=table, mapping=mapping)
    first = read(tmp_path, id_key=KEY).splits["test"][0]
    assert (first.agreement, first.n_agree_all) == expected


@pytest.mark.parametrize(
    ("n", "message"),
    [("2", "`n` must be 3, because the agreement is three_of_three, got '2'"), ("4", "`n` must be the number")],
)
def test_agreement_that_contradicts(tmp_path, n, message):
    write_tree(
        tmp_path,
        table=f"study,labels,agree,n\n1.2.1,COPD,3 of 3,{n}\n1.2.2,COPD,,\n1.2.3,COPD,,\n",
        mapping=MAPPING.split("demographics")[0] + "n_agree_all: {column: n}\n",
    )
    with pytest.raises(BuildError, match=message):
        read(tmp_path, id_key=KEY)


def test_splits_that_the_source_names(tmp_path):
    table = TABLE.replace("sex\n", "sex,set\n").replace("Female", "Female,Dev").replace("Male\n", "Male,Eval\n")
    table = table.replace("3 of 3,\n", "3 of 3,,Eval\n")
    write_tree(
        tmp_path, table=table, mapping=MAPPING + "split: {column: set, values: {dev: development, eval: test}}\n"
    )
    splits = read(tmp_path, id_key=KEY).splits
    assert {name: len(records) for name, records in splits.items()} == {"development": 1, "test": 2}
    (tmp_path / "mapping.yaml").write_text(MAPPING + "split: {column: set, values: {dev: development}}\n")
    with pytest.raises(BuildError, match=r"table.csv:3: `set` must be in the mapping's values, got 'Eval'"):
        read(tmp_path, id_key=KEY)


def test_age_and_sex_from_the_headers(tmp_path):
    mapping = MAPPING.replace(
        "{sex: {column: sex, values: {Female: F, Male: M}}}", "{age: {from: header}, sex: {from: header}}"
    )
    write_tree(tmp_path, mapping=mapping)
    write_film(tmp_path / "a" / "1.dcm", "1.2.1", PatientAge="094Y", PatientSex="F")
    write_film(tmp_path / "a" / "2.dcm", "1.2.2", PatientAge="018M", PatientSex="O")
    records = read(tmp_path, id_key=KEY).splits["test"]
    assert [(record.age_band, record.sex) for record in records] == [("80+", "F"), ("0-9", "other"), ("unknown",) * 2]
    write_film(tmp_path / "b" / "3", "1.2.2", 2, view="LL", PatientAge="060Y")
    with pytest.raises(
        BuildError, match=r"table.csv:3: `age` must be the same in all headers of study 1.2.2, got 0-9, 60-69"
    ):
        read(tmp_path, id_key=KEY)


@pytest.mark.parametrize(
    ("text", "years"), [("67", 67), ("67.5", 67.5), ("067Y", 67), (">89", 90), ("90+", 90), ("x", None), ("-3", None)]
)
def test_ages(text, years):
    assert age_of(text) == years


def test_public_ids_need_no_secret(tmp_path):
    table = TABLE.replace("study,", "study,sid,pid,")
    for i in (1, 2, 3):
        table = table.replace(f"1.2.{i},", f"1.2.{i},S{i},P-{i // 2},")
    write_tree(tmp_path, table=table, mapping=MAPPING + "ids: {study: sid, patient: pid}\n")
    records = read(tmp_path).splits["test"]
    assert [(record.study_id, record.patient_id) for record in records] == [("S1", "P-0"), ("S2", "P-1"), ("S3", "P-1")]
    assert [image.image_id for image in records[1].images] == ["S2_image1", "S2_image2"]
    (tmp_path / "table.csv").write_text(table.replace("S2", "S1"), encoding="utf-8")
    with pytest.raises(
        BuildError, match=r"table.csv:3: `study_id` must belong to only one study, got 'S1' again, first in row 2"
    ):
        read(tmp_path)


def test_patients_of_the_table(tmp_path):
    """If headers name no patient, each study counts as one, unless the table has patients."""
    write_tree(
        tmp_path,
        table=TABLE.replace("study,", "study,who,")
        .replace(".1,", ".1,A,")
        .replace(".2,", ".2,A,")
        .replace(".3,", ".3,B,"),
    )
    for path, study, number in (
        ("a/1.dcm", "1.2.1", 1),
        ("a/2.dcm", "1.2.2", 1),
        ("b/3", "1.2.2", 2),
        ("c/4.dicom", "1.2.3", 1),
    ):
        write_film(tmp_path / path, study, number, PatientID=None)
    alone = read(tmp_path, id_key=KEY)
    assert len({record.patient_id for record in alone.splits["test"]}) == 3
    assert "3 studies have no patient id, so each counts as a separate patient" in alone.warnings
    (tmp_path / "mapping.yaml").write_text(MAPPING + "patient_key: {column: who}\n", encoding="utf-8")
    patients = [record.patient_id for record in read(tmp_path, id_key=KEY).splits["test"]]
    assert patients[0] == patients[1] != patients[2]


def test_scalars_of_a_mapping_are_text(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(
        MAPPING.replace("3 of 3: three", "1: two_of_three, Yes: three").replace(", 2 of 3: two_of_three", ", no: null")
    )
    assert read_mapping(path).rules["agreement"].values == {"1": "two_of_three", "yes": "three_of_three", "no": None}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.json", '[{"study": "a", "label": "COPD", "label": "None"}]', "the key 'label' is repeated in one object"),
        ("t.jsonl", '{"study": "a"}\n{"study": "b", "study": "c"}\n', "the key 'study' is repeated in one object"),
    ],
)
def test_repeated_key_is_an_error(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    problems = []
    scan_table(tmp_path / name, name, problems)
    assert [problem.value for problem in problems] == [message]


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"study": "a", "comment": "one\u2028two"}\n')
    problems = []
    table = scan_table(tmp_path / "t.jsonl", "t.jsonl", problems)
    assert (problems, len(table.rows)) == ([], 1)


EQUIPMENT = """equipment:
  manufacturer: {values: {acme  dr. smith: Acme Imaging, Nobody: null}}
  model: {values: {Room 3: null}}
"""


def test_equipment_is_renamed_or_left_out(tmp_path):
    write_tree(tmp_path, mapping=MAPPING + EQUIPMENT)
    write_film(tmp_path / "a" / "1.dcm", Manufacturer="Acme Dr. Smith", ManufacturerModelName="ROOM 3")
    write_film(tmp_path / "c" / "4.dicom", "1.2.3", Manufacturer="Kodak", ManufacturerModelName="DRX-1")

    def published(source_data):
        images = [record.images[0] for record in source_data.splits["test"]]
        return {(image.manufacturer, image.manufacturer_raw, image.model, image.model_raw) for image in images}

    source_data = read(tmp_path, id_key=KEY)
    nothing = (None, None, None, None)
    assert published(source_data) == {
        ("ACME", "Acme Imaging", None, None), nothing, ("KODAK", "Kodak", "DRX-1", "DRX-1"),
    }  # fmt: skip
    assert "mapping.yaml: `equipment.manufacturer.values` has 'nobody', which is in no header of these studies" in (
        source_data.warnings
    )
    assert source_data.warnings[-1].endswith("rarest first: Acme Imaging, DRX-1, Kodak")
    left_out = MAPPING + "equipment: {manufacturer: left out, model: left out}\n"
    (tmp_path / "mapping.yaml").write_text(left_out, encoding="utf-8")
    assert published(read(tmp_path, id_key=KEY)) == {nothing}


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("model: none", "`equipment.model` must be 'left out' or a mapping with values, got none"),
        ("model: {values: {A: [1]}}", "`equipment.model.values.A` must be text, got ['1']"),
        ("room: left out", "`equipment` must only have keys among manufacturer, model, got 'room'"),
    ],
)
def test_problem_of_equipment_is_named(tmp_path, rule, problem):
    write_tree(tmp_path, mapping=f"{MAPPING}equipment: {{{rule}}}\n")
    with pytest.raises(BuildError, match=re.escape(f"mapping.yaml: {problem}")):
        read(tmp_path, id_key=KEY)
