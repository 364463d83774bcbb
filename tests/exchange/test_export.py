"""The command ``export``, and the repository's own metadata."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from reveal_bench import run_callable
from reveal_bench.version import __version__
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.dataset.card_folders import localization_folder
from tests.exchange.schemas import CITATION, EVERY_EVAL_EVER
from tests.exchange.test_receipts import KEY, STRANGER, public
from tests.exchange.test_result_forms import SCORE, receipt
from tests.transcripts import plain, steps


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt()))
    return path


FORMS = ["eval-results", "every-eval-ever", "latex", "markdown", "bibtex", "badge", "claim", "tripod-llm"]
URL = "https://board.example.org/entry?id=1"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_receipt(signed: Path, form: str) -> None:
    done = call("export", signed, "--to", form, "--key", public(KEY), "--dataset", "lab/data", "--url", URL)
    assert done.stderr == ""
    assert "0.47" in done.stdout
    if form == "every-eval-ever":
        jsonschema.Draft7Validator(EVERY_EVAL_EVER).validate(json.loads(done.stdout))


def test_a_receipt_is_not_exported_without_a_known_key(signed: Path) -> None:
    done = call("export", signed, "--to", "latex", expect=2)
    assert (done.stdout, "--key is needed to verify a receipt: a file with" in done.stderr) == ("", True)


def test_what_is_refused(signed: Path, tmp_path: Path) -> None:
    done = call("export", signed, "--to", "markdown", "--key", public(STRANGER), expect=1)
    assert (done.stdout, "neither the trusted key" in done.stderr) == ("", True)
    document = json.loads(signed.read_text())
    document["receipt"]["released"]["figures"][0]["value"] = "0.97"
    signed.write_text(json.dumps(document))
    done = call("export", signed, "--to", "markdown", expect=1)
    assert (done.stdout, "was changed" in done.stderr) == ("", True)
    score = tmp_path / "score.json"
    score.write_text(json.dumps(SCORE))
    for form in ("bibtex", "badge"):
        assert "must be a leaderboard's receipt" in call("export", score, "--to", form, "--url", URL, expect=1).stderr
    assert "--dataset is needed" in call("export", score, "--to", "eval-results", expect=2).stderr
    assert "must be a run folder" in call("export", score, "--to", "claim", "--run", tmp_path, expect=1).stderr


def test_facts_of_a_run_folder(tmp_path: Path) -> None:
    data, run, score = localization_folder(tmp_path / "made", n=3), tmp_path / "run", tmp_path / "score.json"
    name, parameters = "Left|corner", {"temperature": 0}
    run_callable(lambda image, finding: {"point": (1.0, 1.0)}, data, "test", name=name, parameters=parameters, out=run)
    score.write_text(call("score", run / "predictions.jsonl", data, "--split", "test", "--json").stdout)
    done = call("export", score, "--to", "tripod-llm", "--run", run, "--folder", data)
    assert "| Left\\|corner, as stated |" in done.stdout
    assert "| temperature 0; epochs 1 |" in done.stdout
    assert "| images 3, patients 3, asked 3, predictions 3, missing 0 |" in done.stdout
    (run / "predictions.jsonl").write_text("")
    assert "--run must contain the predict" in call("export", score, "--to", "claim", "--run", run, expect=1).stderr


def test_the_transcript_of_the_page(signed: Path) -> None:
    (signed.parent / "board.key").write_text(public(KEY) + "\n")
    for step in steps(ROOT / "docs" / "results.md", "An example"):
        printed = call(*shlex.split(step.command)[1:], cwd=signed.parent).stdout
        assert step.matches(printed), f"$ {step.command}\n{plain(printed)}"


def test_the_repository_says_the_same_of_itself_three_times() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    jsonschema.Draft7Validator(CITATION).validate(cff)
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    assert cff["version"] == zenodo["version"] == __version__
    assert cff["title"] == zenodo["title"] == project["name"]
    assert cff["abstract"] == zenodo["description"] == project["description"]
    assert cff["authors"] == zenodo["creators"] == project["authors"]
    assert cff["license"] == zenodo["license"] == project["license"]
    assert cff["keywords"] == zenodo["keywords"] == project["keywords"]
    assert zenodo["upload_type"] == cff["type"] == "software"
