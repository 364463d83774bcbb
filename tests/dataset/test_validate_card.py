"""Card, ``eval.yaml`` and ``croissant.json`` against the files, and loading them with `datasets` alone."""

import json

import pytest

from reveal_bench.dataset import validate_card
from reveal_bench.dataset.validate import validate_folder
from tests.dataset.card_folders import edit, faults_of, findings_folder, reseal, tasks_folder


@pytest.fixture
def folder(tmp_path):
    return findings_folder(tmp_path, n=3, holdout=True)


def rewrite(folder, name, old, new):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    reseal(folder)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("\n## Privacy\n", "\n## Private\n", [("README.md", "Privacy", "sections")]),
        ("\nlicense: other\n", "\n", [("README.md", "None", "license")]),
        ("\npretty_name:", "\nnice_name:", [("README.md", "None", "pretty_name")]),
        ("Not for clinical use", "For clinical use", [("README.md", "None", "notice")]),
        ("\n## Summary\n", "\n## Summary\n\n{{n_images}}\n", [("README.md", "None", "places")]),
        ("  default: true\n", "", [("README.md", "None", "configs")]),
        (
            "num_examples: 1\n",
            "num_examples: 8\n",
            [("README.md", "multilabel", "released"), ("README.md", "preview", "released")],
        ),
    ],
)
def test_a_card_with_a_fault(folder, old, new, expected):
    rewrite(folder, "README.md", old, new)
    assert faults_of(folder) == expected


def test_a_card_that_promises_what_is_not_there(folder):
    rewrite(folder, "README.md", "- config_name: holdout_inputs\n  data_files:", "- config_name: inputs\n  data_files:")
    assert [fault for fault in faults_of(folder) if fault[2] == "configs"] == [
        ("README.md", "holdout_inputs", "configs"),
        ("README.md", "inputs", "configs"),
    ]


@pytest.mark.parametrize("text", ["no block", "---\na: [\n---\n", "---\nlicense: mit\n---\n"])
def test_a_card_without_configs(folder, text):
    (folder / "README.md").write_text(text)
    reseal(folder)
    assert ("README.md", "None", "YAML") in faults_of(folder)


def test_no_card_at_all(folder):
    (folder / "README.md").unlink()
    reseal(folder)
    assert ("README.md", "None", "YAML") in faults_of(folder)


def test_an_empty_section_counts_as_missing(folder):
    text = (folder / "README.md").read_text()
    start, end = text.index("## Privacy"), text.index("## Maintenance")
    (folder / "README.md").write_text(text[:start] + "## Privacy\n\n" + text[end:])
    reseal(folder)
    (problem,) = validate_folder(folder, load=False)
    assert str(problem) == "README.md:Privacy: `sections` must have text, got an empty one"


def test_synthetic_data_must_say_so(tmp_path):
    folder = findings_folder(tmp_path, n=2, synthetic=True)
    assert faults_of(folder) == []
    rewrite(folder, "README.md", "SYNTHETIC", "NATURAL")
    assert faults_of(folder) == [("README.md", "None", "notice")]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "f1\n  config: multilabel\n  split: released",
            "f1\n  config: multilabel\n  split: relaesed",
            [("eval.yaml", "reveal_cxr_released_f1", "tasks")],
        ),
        ("f1\n  config: multilabel", "f1\n  config: multi", [("eval.yaml", "reveal_cxr_released_f1", "tasks")]),
        ("released_precision", "released_f1", [("eval.yaml", "reveal_cxr_released_f1", "tasks")]),
        ("evaluation_framework: reveal-bench\n", "", [("eval.yaml", "None", "evaluation_framework")]),
        ("tasks:", "task:", [("eval.yaml", "None", "tasks")]),
        ("  config:", "  konfig:", [("eval.yaml", "None", "tasks")]),
    ],
)
def test_eval_yaml_with_a_fault(folder, old, new, expected):
    rewrite(folder, "eval.yaml", old, new)
    assert faults_of(folder) == expected


def test_eval_yaml_must_name_something(folder):
    (folder / "eval.yaml").write_text("name: a\ndescription: b\nevaluation_framework: c\ntasks: []\n")
    reseal(folder)
    assert faults_of(folder) == [("eval.yaml", "None", "tasks")]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("cff-version: 1.2.0", "cff-version: 1.1.0", "cff-version"),
        ("authors:", "writers:", "authors"),
        ("version: 1.0.0", "version: 1.0.1", "version"),
        ("title:", "title: [", "YAML"),
    ],
)
def test_a_citation_file_with_a_fault(folder, old, new, field):
    text = (folder / "CITATION.cff").read_text()
    (folder / "CITATION.cff").write_text(text.replace(old, new, 1) if field != "version" else text.replace(old, new))
    reseal(folder)
    assert faults_of(folder) == [("CITATION.cff", "None", field)]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"dataset"', '"software"', "upload_type"),
        ('"version": "1.0.0"', '"version": "1.0.1"', "version"),
        ('"creators"', '"authors"', "creators"),
        ("{", "[", "YAML"),
    ],
)
def test_a_file_for_zenodo_with_a_fault(folder, old, new, field):
    text = (folder / ".zenodo.json").read_text()
    (folder / ".zenodo.json").write_text(text.replace(old, new, 1))
    reseal(folder)
    assert faults_of(folder) == [(".zenodo.json", "None", field)]


def test_a_folder_from_before_citation_files_has_none(folder):
    for name in ("CITATION.cff", ".zenodo.json"):
        (folder / name).unlink()
    change_croissant(folder, lambda d: [drop(d, "distribution", name) for name in ("CITATION.cff", ".zenodo.json")])
    assert faults_of(folder) == []


def change_croissant(folder, change):
    path = folder / "croissant.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    reseal(folder)


def drop(document, kind, name):
    document[kind] = [entry for entry in document[kind] if entry["@id"] != name]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.update({"rai:dataBiases": ""}), ("None", "rai:dataBiases")),
        (lambda d: d.update(conformsTo="http://mlcommons.org/croissant/1.0"), ("None", "conformsTo")),
        (lambda d: drop(d, "distribution", "manifest/holdout.parquet"), ("manifest/holdout.parquet", "distribution")),
        (lambda d: d["distribution"][0].update(sha256="0" * 64), (".zenodo.json", "sha256")),
        (lambda d: d["distribution"][0].update({"@id": "x.md"}), ("x.md", "distribution")),
        (lambda d: drop(d, "recordSet", "holdout_inputs"), ("holdout_inputs", "recordSet")),
        (lambda d: d.pop("recordSet"), ("None", "file")),
    ],
)
def test_a_croissant_with_a_fault(folder, change, expected):
    change_croissant(folder, change)
    assert ("croissant.json", *expected) in faults_of(folder)


def test_mlcroissant_sees_more(folder, monkeypatch):
    change_croissant(folder, lambda d: d["recordSet"][1]["field"][1].pop("dataType"))
    assert faults_of(folder) == []
    (problem,) = validate_folder(folder)
    assert (problem.file, problem.field, problem.rule) == (
        "croissant.json",
        "file",
        "must be valid according to mlcroissant",
    )
    assert "dataType" in problem.value
    monkeypatch.setattr(validate_card, "find_spec", lambda _: None)
    assert validate_folder(folder) == []


@pytest.mark.parametrize("text", ["[", "[]", '{"@type": "sc:Dataset"}'])
def test_no_croissant_at_all(folder, text):
    (folder / "croissant.json").write_text(text)
    reseal(folder)
    assert ("croissant.json", "None", "file") in faults_of(folder, load=True)


def test_a_private_folder_needs_neither_sections_nor_croissant(folder, tmp_path):
    assert faults_of(tmp_path / "private") == []
    assert not (tmp_path / "private" / "croissant.json").exists()


def test_what_does_not_load_is_found(tmp_path):
    folder = tasks_folder(tmp_path, n=2)
    rewrite(folder, "README.md", "num_examples: 2", "num_examples: 3")
    rules = [(p.row, p.field, p.rule) for p in validate_folder(folder)]
    assert ("tasks", "test", "must state 2 rows, as in the files") in rules
    assert ("tasks", "test", "must load with load_dataset") in rules or ("tasks", "test", "must load 3 rows") in rules
    edit(folder, "ratings/test", lambda row: None)
    (folder / "ratings" / "test-00000-of-00001.parquet").unlink()
    reseal(folder)
    assert ("README.md", "ratings", "test") in faults_of(folder, load=True)


def test_large_splits_are_streamed(folder, monkeypatch):
    monkeypatch.setattr(validate_card, "LOAD_BYTES", 0)
    promise, _ = validate_card.read_promise(folder)
    assert list(validate_card.load_problems(folder, promise)) == []
    promise.rows["multilabel"]["released"] += 1
    (problem,) = validate_card.load_problems(folder, promise)
    assert (problem.row, problem.field) == ("multilabel", "released")
