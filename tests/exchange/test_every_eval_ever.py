"""Records of Every Eval Ever: valid by its own schemas, never finer than the release, and deterministic."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reveal_bench.exchange.every_eval_ever import Evaluation, every_eval_ever
from reveal_bench.exchange.facts import Result, of_receipt, of_score
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.dataset.card_folders import findings_folder, localization_folder, rows_of
from tests.exchange.schemas import CASE, EVERY_EVAL_EVER
from tests.exchange.test_result_forms import SCORE, figure, receipt

SHARED = ROOT.parent / "shared" / "data"
PUBLISHED = SHARED / "schemas" / "every_eval_ever-0.3.0.schema.json"
UUID_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def record(result: Result, **facts: Any) -> dict[str, Any]:
    made = every_eval_ever(result, Evaluation(1_800_000_000.7, **facts)).document
    jsonschema.Draft7Validator(EVERY_EVAL_EVER).validate(made)
    return made


def test_the_record_of_a_receipt() -> None:
    signed = receipt(figure(), figure(finding="Edema", n="60-119"), figure(metric="grid_hit", low=None, high=None))
    made = record(of_receipt(signed), organization="Example board", dataset="lab/data", url="https://board.example.org")
    assert made["evaluation_id"] == "chexlocalize/Model A/1800000000"
    assert made["source_metadata"]["additional_details"]["receipt_sha256"] == signed["hash"]
    macro, edema, bare = made["evaluation_results"]
    assert macro["score_details"]["uncertainty"] == {
        "confidence_interval": {
            "lower": 0.42, "upper": 0.52, "confidence_level": 0.95,
            "method": "percentile bootstrap, 1000 resamples of patients, seed 0",
        },
        "num_bootstrap_samples": 1000,
    }  # fmt: skip
    assert edema["score_details"]["details"]["n"] == "60-119", "a band, which is not a number"
    assert "uncertainty" not in bare["score_details"]
    assert bare["metric_config"]["metric_name"] == "Grid hit rate"
    assert macro["source_data"]["hf_repo"] == "lab/data"


def test_the_record_of_a_score_document() -> None:
    made = record(of_score(SCORE, "Model A"))
    assert [entry["evaluation_result_id"] for entry in made["evaluation_results"]] == ["f1/macro", "f1/Edema"]
    assert made["evaluation_results"][0]["score_details"]["score"] == 0.61249
    uncertainty = made["evaluation_results"][1]["score_details"]["uncertainty"]
    assert (uncertainty["num_samples"], uncertainty["num_bootstrap_samples"]) == (90, 500)
    method = "bias-corrected and accelerated bootstrap, 500 resamples of studies, seed 3"
    assert uncertainty["confidence_interval"]["method"] == method
    assert made["source_metadata"]["source_organization_name"] == "not recorded"
    with pytest.raises(ValueError, match="`model` must be given"):
        every_eval_ever(of_score(SCORE), Evaluation(0))


def test_a_chance_rate_that_is_neither_better_nor_worse_is_in_the_record() -> None:
    (entry,) = record(of_receipt(receipt(figure(metric="grid_chance"))))["evaluation_results"]
    assert entry["metric_config"]["additional_details"]["better"] == "neither"


def test_required_facts_of_the_model_are_there_as_0_3_0_names_them() -> None:
    # eval.schema.json 0.3.0, $defs/model_info: required, and the values of both enums
    made = record(of_score(SCORE, "acme/model"), deployment="self_deployed", availability="open_weights")
    assert made["schema_version"] == "0.3.0"
    assert made["model_info"]["additional_details"] == {
        "deployment_type": "self_deployed",
        "model_availability": "open_weights",
    }
    unsaid = record(of_receipt(receipt()))["model_info"]["additional_details"]
    assert unsaid == {
        "deployment_type": "unknown",
        "model_availability": "unknown",
        "submitted_by": unsaid["submitted_by"],
    }


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="needs the schema beside the repository, in ../shared/data")
def test_the_schema_that_tests_use_is_the_published_one_and_refuses_the_old_record() -> None:
    published = jsonschema.Draft7Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")))
    published.validate(record(of_receipt(receipt())))
    old = json.loads((SHARED / "cases" / "eee_0_3_0" / "record.json").read_text(encoding="utf-8"))
    assert {error.message for error in published.iter_errors(old)} == {"'additional_details' is a required property"}


def test_an_unbounded_metric_has_the_registrys_word_for_infinity() -> None:
    (entry,) = record(of_receipt(receipt(figure(metric="false_alarms"))))["evaluation_results"]
    assert (entry["metric_config"]["max_score"], entry["metric_config"]["lower_is_better"]) == ("Infinity", True)
    assert "metric_unit" not in entry["metric_config"]
    (entry,) = record(of_receipt(receipt(figure())))["evaluation_results"]
    assert entry["metric_config"]["metric_unit"] == "proportion"


def test_the_same_result_is_the_same_file(tmp_path: Path) -> None:
    score = tmp_path / "score.json"
    score.write_text(json.dumps(SCORE))
    words = ("export", score, "--to", "every-eval-ever", "--model", "acme/model", "--out", tmp_path / "registry")
    (first,) = call(*words).stdout.split()
    text = Path(first).read_bytes()
    (second,) = call(*words).stdout.split()
    assert (second, Path(second).read_bytes()) == (first, text)
    path = Path(first).relative_to(tmp_path / "registry")
    assert path.parent == Path("data/reveal-cxr/acme/model")
    assert UUID_4.fullmatch(path.stem), "the registry refuses UUIDs of another version"
    os.utime(score, (0, 0))  # as after a copy: the record's moment is another, its name is not
    assert call(*words).stdout.split() == [first]
    assert json.loads(Path(first).read_text())["retrieved_timestamp"] == "0"


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("Model A", "--developer must be given, because the registry's paths contain the model's developer"),
        ("/model", "names that can be folders on every system, got ''"),
        ("acme/..", "names that can be folders on every system"),
        ("con/model", "names that can be folders on every system"),
    ],
)
def test_a_record_needs_a_developer_and_safe_names(tmp_path: Path, model: str, named: str) -> None:
    score = tmp_path / "score.json"
    score.write_text(json.dumps(SCORE))
    done = call("export", score, "--to", "every-eval-ever", "--model", model, "--out", tmp_path, expect=1)
    assert named in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_developer_is_that_of_the_models_name() -> None:
    result = of_score(SCORE, "acme/model")
    assert record(result)["model_info"]["developer"] == "acme"
    assert record(result, developer="acme") == record(result)
    with pytest.raises(ValueError, match="`developer` must be the developer in the model's name, 'acme', got 'other'"):
        record(result, developer="other")
    named = every_eval_ever(of_score(SCORE, "Model A"), Evaluation(0, developer="lab"))
    assert (named.document["model_info"]["developer"], named.folder) == ("lab", "data/reveal-cxr/lab/Model A")
    assert "developer" not in record(of_score(SCORE, "Model A"))["model_info"]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A synthetic folder, predictions of it (a hit, a point outside, none), and their score document."""
    root = tmp_path_factory.mktemp("scored")
    folder = localization_folder(root / "made", n=3, synthetic=True)
    (row, other, _) = rows_of(folder, "localization/")
    x, y, width, height = row["annotations"][0]["bbox_xywh"]
    points = {row["image_id"]: [x + width / 2, y + height / 2], other["image_id"]: [0.0, 0.0]}
    predictions = root / "predictions.jsonl"
    predictions.write_text(
        "".join(
            json.dumps({"image_id": image, "finding": "Edema", "point": point}) + "\n"
            for image, point in points.items()
        )
    )
    score = root / "score.json"
    score.write_text(call("score", predictions, folder, "--split", "test", "--allow-missing", "--json").stdout)
    return folder, predictions, score


def test_cases_of_a_released_split(scored: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, predictions, score = scored
    words = ("export", score, "--to", "every-eval-ever", "--model", "acme/model", "--out", tmp_path)
    done = call(*words, "--folder", folder, "--predictions", predictions)
    aggregate, samples = map(Path, done.stdout.split())
    assert samples.name == f"{aggregate.stem}_samples.jsonl"
    made = json.loads(aggregate.read_text())
    jsonschema.Draft7Validator(EVERY_EVAL_EVER).validate(made)
    lines = samples.read_text().splitlines()
    assert made["detailed_evaluation_results"] == {
        "format": "jsonl",
        "file_path": samples.relative_to(tmp_path).as_posix(),
        "hash_algorithm": "sha256",
        "checksum": hashlib.sha256(samples.read_bytes()).hexdigest(),
        "total_rows": len(lines),
    }
    cases = [json.loads(line) for line in lines]
    for case in cases:
        jsonschema.Draft7Validator(CASE).validate(case)
        assert (case["evaluation_id"], case["model_id"]) == (made["evaluation_id"], "acme/model")
        assert case["input"]["reference"] == [], "references stay where they are"
    hits = [case for case in cases if case["evaluation_result_id"] == "point_hit/Edema"]
    assert [case["evaluation"] for case in hits] == [
        {"score": 1.0, "is_correct": True},
        {"score": 0.0, "is_correct": False},
        {"score": 0.0, "is_correct": False},
    ]
    value = {entry["evaluation_result_id"]: entry for entry in made["evaluation_results"]}["point_hit/Edema"]
    assert value["score_details"]["score"] == pytest.approx(1 / 3), "the mean of the cases"
    assert "error" in hits[2], "nobody answered it"
    before = {file: file.read_bytes() for file in (aggregate, samples)}
    (alone,) = map(Path, call(*words).stdout.split())
    assert alone != aggregate, "a record without cases has other content"
    assert "detailed_evaluation_results" not in json.loads(alone.read_text())
    assert {file: file.read_bytes() for file in before} == before
    again = call(*words, "--folder", folder, "--predictions", predictions).stdout.split()
    assert again == [str(aggregate), str(samples)]


def test_cases_that_may_not_be_public_are_refused(scored: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, predictions, score = scored
    result = of_score(json.loads(score.read_text()), "acme/model")
    with pytest.raises(ValueError, match="a receipt releases scores but no cases"):
        every_eval_ever(of_receipt(receipt()), Evaluation(0), folder=folder, predictions=predictions)
    restricted = localization_folder(tmp_path / "real", n=3)
    with pytest.raises(ValueError, match="the source's terms forbid passing cases on, got chexlocalize"):
        every_eval_ever(result, Evaluation(0), folder=restricted, predictions=predictions)
    other = tmp_path / "other.jsonl"
    other.write_text("")
    with pytest.raises(ValueError, match="`predictions` must be those of the result, with SHA-256"):
        every_eval_ever(result, Evaluation(0), folder=folder, predictions=other)


def test_cases_of_a_part_are_refused_and_its_record_names_the_part(
    scored: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    folder, predictions, _ = scored
    ids, score = tmp_path / "ids.txt", tmp_path / "score.json"
    ids.write_text(rows_of(folder, "localization/")[0]["image_id"] + "\n")
    words = ("score", predictions, folder, "--split", "test", "--allow-missing", "--json", "--subset", ids)
    score.write_text(call(*words).stdout)
    result = of_score(json.loads(score.read_text()), "acme/model")
    assert record(result)["source_metadata"]["additional_details"]["asked"].startswith("1 of 3 images (ids ")
    with pytest.raises(ValueError, match="`predictions` must be left out: the scores are of a part of the split, got "):
        every_eval_ever(result, Evaluation(0), folder=folder, predictions=predictions)


def test_scores_that_are_no_means_over_cases_have_none(tmp_path: Path) -> None:
    folder = findings_folder(tmp_path / "made", n=3, synthetic=True)
    predictions, score = tmp_path / "predictions.jsonl", tmp_path / "score.json"
    studies = [row["study_id"] for row in rows_of(folder, "multilabel/")]
    lines = [json.dumps({"study_id": study, "labels": ["Edema"]}) + "\n" for study in studies]
    predictions.write_text("".join(lines))
    score.write_text(call("score", predictions, folder, "--split", "test", "--json").stdout)
    result = of_score(json.loads(score.read_text()), "acme/model")
    with pytest.raises(
        ValueError, match="`predictions` must belong to a benchmark that counts hits per case, got reveal-cxr"
    ):
        every_eval_ever(result, Evaluation(0), folder=folder, predictions=predictions)


@pytest.mark.skipif("REVEAL_EEE" not in os.environ, reason="needs every-eval-ever in its own environment")
def test_the_registrys_own_program_finds_the_files_valid(scored: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """By hand: ``REVEAL_EEE=V/bin/every_eval_ever``, of a Python 3.12 environment with every-eval-ever==0.3.0."""
    folder, predictions, score = scored
    facts = ("--deployment", "self_deployed", "--availability", "open_weights", "--dataset", "our-lab/cl")
    words = ("export", score, "--to", "every-eval-ever", "--model", "acme/model", "--out", tmp_path, *facts)
    files = call(*words, "--folder", folder, "--predictions", predictions).stdout.split()
    program = Path(os.environ["REVEAL_EEE"]).absolute()
    done = subprocess.run(
        [program, "validate", *(Path(file).relative_to(tmp_path) for file in files)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
