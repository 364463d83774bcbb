"""Sets of one's own: the worked examples of docs/sources.md, from files to datasets, scores and answers of models."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reveal_bench.cli import app
from reveal_bench.evaluation.score import score_file
from reveal_bench.findings import Vocabulary
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.records import read_studies, read_study_manifest
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.prompts import prompt_text
from reveal_bench.models.questions import AskSettings
from reveal_bench.predictions import lint_findings
from reveal_bench.sources import BuildError
from reveal_bench.sources.reveal_cxr import read
from tests.sources.reveal_trees import KEY, write_tree

DOCS = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
FINDINGS = ("Rib fracture", "Lines and tubes", "Pneumothorax", "No finding")


def example(heading, form):
    """The first block of a form below a heading of docs/sources.md."""
    section = re.split(rf"^#+ {heading}$", DOCS, flags=re.MULTILINE)[1]
    return re.search(rf"```{form}\n(.*?)```", section, re.DOTALL)[1]


TABLE, MAPPING = (example("Findings of your own", form) for form in ("csv", "yaml"))


def run(*arguments):
    """A command that succeeds."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The example, built by the command."""
    root = tmp_path_factory.mktemp("own")
    write_tree(root / "set", table=TABLE, mapping=MAPPING, name="labels.csv")
    run("build", root / "set", "--id-key", root / "key", "--out", root / "out")
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
    said = [["rib-fracture"], ["support devices", "PTX"], ["normal"]]
    lines = [{"study_id": s.study_id, "labels": labels} for s, labels in zip(studies, said, strict=True)]
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
    assert "label-not-alone" in {problem.rule for problem in lint_findings(path, manifest, allow_missing=True).problems}
    assert "no problems" in run("validate", own, "--no-load").output


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
    asked = next(KINDS["findings"].questions(own, "test", info, "labels"))
    asked = Question.from_document(json.loads(json.dumps(asked.document())))  # as logs of runs keep it
    assert "- Lines and tubes\n- Pneumothorax\n- No finding (never together with another)" in prompt_text(
        asked, settings
    )
    assert read_reply(text, asked, settings, stop_reason=None).labels == labels


FAULTS = {
    ("1,0,1,0", "1,0,1,1"): "labels.csv:2: `No finding` must stand alone, got Rib fracture, Pneumothorax, No finding",
    ("ptx: PTX", "ptx: PNX"): "mapping.yaml: `labels.wide.ptx` must be one of the mapping's findings (Rib fracture",
    ("[PTX]", "[rib fracture]"): "mapping.yaml: `findings` must have names that differ, got 'rib fracture' again",
    ("- Rib fracture", "- Rib, broken"): "`findings.name` must begin with a letter or digit",
    ("[PTX]", "PTX"): "`findings.Pneumothorax.synonyms` must be a list of texts, got PTX",
    ("alone: true", "alone: often"): "`findings.No finding.stands_alone` must be true or false, got often",
}


@pytest.mark.parametrize(("change", "problem"), FAULTS.items())
def test_what_is_wrong_with_own_findings_is_named(tmp_path, change, problem):
    root = write_tree(tmp_path, table=TABLE.replace(*change), mapping=MAPPING.replace(*change), name="labels.csv")
    with pytest.raises(BuildError, match=re.escape(problem)):
        read(root, id_key=KEY)


def test_a_vocabulary_keeps_its_terms_only_where_it_has_any(own):
    info = read_folder_info(own)
    assert json.loads(info.to_json())["terms"]["Pneumothorax"] == {"synonyms": ["PTX"]}
    assert type(info.findings) is Vocabulary
    with pytest.raises(ValueError, match="`terms` must be of findings, got 'Edema'"):
        Vocabulary.of(["COPD"], {"Edema": {}})
