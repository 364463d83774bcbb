"""Benchmarks that ask some of a download's findings: records, readers, manifests and prediction files."""

from __future__ import annotations

import csv
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

import reveal_bench as rb
from reveal_bench.api.bench import as_whole_bench
from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS, own_benchmark
from reveal_bench.dataset.asked_findings import ask_findings, asked_records
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.findings import (
    CHEXPERT_LABELS,
    MS_CXR_FINDINGS,
    PADCHEST_GR_LABELS,
    VINDR_CXR_FINDINGS,
    Vocabulary,
    canonical_finding,
)
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import read_folder_info, read_rows
from reveal_bench.phantom import LAYOUTS
from reveal_bench.phantom.layouts import write_chexpert_labels
from tests.cli.test_score import call
from tests.conftest import random_records

FIVE = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
"""The findings of the CheXpert competition, in the order of CheXpert's tables."""


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return (download, dataset folder) of 40 studies, asked for five findings."""
    root = tmp_path_factory.mktemp("five")
    write_chexpert_labels(root / "raw", 40, seed=3)
    asked = "Pleural effusion, EDEMA, Cardiomegaly, Consolidation, Atelectasis"
    call("build", root / "raw", "--out", root / "data", "--findings", asked, "--finding-groups", "lung=Edema,Fracture")
    return root / "raw", root / "data"


def test_folder_has_only_the_asked_findings(five: tuple[Path, Path]) -> None:
    raw, folder = five
    info = read_folder_info(folder)
    assert info.findings == FIVE
    assert set(info.not_asked) == {*CHEXPERT_LABELS} - {*FIVE}
    assert info.finding_groups == {"lung": ("Edema",)}
    assert info.splits["test"]["n_asked"] == 5 * 40
    assert "that this dataset does not ask: No Finding, Enlarged Card" in (folder / "README.md").read_text()
    assert validate_folder(folder) == []
    bench = rb.load(folder, split="test")
    rows = {row["Study"]: row for row in csv.DictReader((raw / "groundtruth.csv").open())}
    reader = {row["Study"]: row for row in csv.DictReader((raw / "bc6.csv").open())}
    readings = KINDS["findings"].readers.readings(folder, "test", bench.references)
    for study in bench.references:
        (row,) = (name for name in rows if name.endswith(study.study_id.replace("_", "/")))
        assert list(study.labels) == [label for label in FIVE if rows[row][label] == "1.0"]
        assert list(readings["bc6"][study.study_id]) == [label for label in FIVE if reader[row][label] == "1.0"]


def test_answers_on_further_findings_are_left_out_by_count(five: tuple[Path, Path]) -> None:
    raw, folder = five
    present = [list(map(float, list(row.values())[1:])) for row in csv.DictReader((raw / "bc6.csv").open())]
    truth = [list(map(float, list(row.values())[1:])) for row in csv.DictReader((raw / "groundtruth.csv").open())]
    bench = rb.load(folder, split="test")
    answers = {
        study.study_id: dict(zip(CHEXPERT_LABELS, row, strict=True))
        for study, row in zip(bench.references, present, strict=True)
    }
    scored = rb.score(answers, bench, n_resamples=20)
    (warning,) = (problem for problem in scored.scored.report.problems if problem.rule == "not-asked")
    assert warning.message.startswith("answers on 9 findings that are not asked were left out")
    columns = [CHEXPERT_LABELS.index(label) for label in FIVE]
    oracle = f1_score(np.array(truth)[:, columns], np.array(present)[:, columns], average="macro")
    table = scored.to_pandas()
    (macro,) = table[(table["metric"] == "f1") & (table["finding"] == "macro")]["value"]
    assert macro == pytest.approx(oracle, abs=1e-12)
    with pytest.raises(ValueError, match="is not a label of chexpert"):
        rb.score({key: own | {"Hernia": 1} for key, own in answers.items()}, bench)


def test_scores_name_the_part_that_the_build_asked(five: tuple[Path, Path]) -> None:
    bench = rb.load(five[1], split="test")
    answers = {study.study_id: study.labels for study in bench.references}
    of_two = bench.select(FIVE[:2], limit=39)
    assert of_two.part.startswith("2 of 14 findings (Cardiomegaly, Edema), 39 of 40 studies")
    scored = rb.score(answers, bench, n_resamples=20)
    assert "5 of 14 findings" in scored.caption
    names = sha256("\n".join(sorted(FIVE)).encode()).hexdigest()[:8]
    assert scored.to_document()["protocol"]["part"] == f"5 of 14 findings (names {names})"
    assert all(f"|part:5 of 14 findings (names {names})|" in one.signature for one in scored.scored.estimates)
    assert bench.select(FIVE[:4]).part != bench.select(FIVE[1:]).part, "parts of the same size differ"
    assert rb.lint(answers, bench).problems == (), "the folder is whole to lint"
    with pytest.raises(ArgumentError, match="must be omitted for a selection of questions"):
        rb.score(answers, bench, published=True)
    assert as_whole_bench(bench) is bench, "a build's part is whole to functions that do not take a selection"
    with pytest.raises(ArgumentError, match="must be a whole split here"):
        as_whole_bench(of_two)


def test_only_asked_labels_need_a_policy(tmp_path: Path) -> None:
    """A blank in a column that is not asked leaves no study out."""
    write_chexpert_labels(tmp_path / "raw", 3)
    lines = (tmp_path / "raw/groundtruth.csv").read_text().splitlines()
    lines[1] = lines[1].rpartition(",")[0] + ","  # Support Devices
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    call("build", tmp_path / "mine.csv", "--out", tmp_path / "data", "--findings", ",".join(FIVE))
    assert read_folder_info(tmp_path / "data").splits["test"]["n_studies"] == 3
    assert "--blank" in call("build", tmp_path / "mine.csv", "--out", tmp_path / "all", expect=1).stderr


def test_images_are_asked_for_some_findings(tmp_path: Path) -> None:
    benchmark = ask_findings(BENCHMARKS["chexlocalize"], ["edema", "Atelectasis"])
    records = {"test": random_records(np.random.default_rng(1), 8)}
    asked = asked_records(records, benchmark)
    build_folder(asked, tmp_path / "data", benchmark, pixels="withhold", workers=1)
    assert validate_folder(tmp_path / "data") == []
    bench = rb.load(tmp_path / "data")
    assert bench.info.findings == ("Edema", "Atelectasis")
    pairs = [(row.image_id, finding) for row in bench.manifest.rows.values() for finding in row.asked]
    drawn = [(r.image_id, f) for r in records["test"] for f in ("Edema", "Atelectasis") if r.reference(f) is not None]
    assert sorted(pairs) == sorted(drawn)
    answers = [{"image_id": r.image_id, "finding": f, "point": [1, 1]} for r in records["test"] for f in r.labels]
    report = rb.lint(answers, bench)
    assert report.ok, report.render()
    (warning,) = (problem for problem in report.problems if problem.rule == "not-asked")
    assert warning.message.startswith(f"{len(answers) - len(pairs)} predictions answer pairs that are not asked")


def test_groups_and_synonyms_name_findings() -> None:
    own = own_benchmark(
        "own-findings", Vocabulary.of(["Tube", "Pneumothorax"], {"Pneumothorax": {"synonyms": ["PTX"]}})
    )
    asked = ask_findings(own, "ptx")
    assert (asked.findings, asked.not_asked) == (("Pneumothorax",), ("Tube",))
    assert canonical_finding("PTX", asked.findings) == "Pneumothorax"
    assert ask_findings(own, ["Tube", "PTX"]).not_asked == ()


@pytest.mark.parametrize(
    ("name", "findings", "message"),
    [
        ("chexpert", "Hernia", "`findings` must be findings of chexpert, got 'Hernia'"),
        ("chexpert", "", "`findings` must be findings of chexpert, got ''"),
        ("rexecution", "Edema", "`findings` must be left out: rexecution has no findings, got Edema"),
    ],
)
def test_unknown_findings_are_refused(name: str, findings: str, message: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        ask_findings(BENCHMARKS[name], findings)
    assert str(refused.value) == message


def test_folder_info_keeps_the_order_and_is_json(five: tuple[Path, Path]) -> None:
    info = read_folder_info(five[1])
    assert json.loads(info.to_json())["not_asked"] == [label for label in CHEXPERT_LABELS if label not in FIVE]


def extra_rows(tmp_path: Path, style: str, findings: str, config: str) -> list[dict[str, Any]]:
    """Return the rows of a further table in a folder that was built from a source's twin with some findings."""
    LAYOUTS[style](tmp_path / "raw", n_images=12, seed=1, long_side=96)
    how = ("--images", "withhold", "--keep-going")  # VinDr-CXR's twin has an image without pixels
    call("build", tmp_path / "raw", "--out", tmp_path / "data", *how, "--findings", findings)
    return [row for path in sorted((tmp_path / "data" / config).glob("*.parquet")) for row in read_rows(path)]


def test_phrases_of_other_findings_are_left_out(tmp_path: Path) -> None:
    chosen = ("Pneumonia", "Pneumothorax")
    rows = extra_rows(tmp_path, "ms-cxr", ",".join(chosen), "phrases")
    tables = [csv.DictReader(path.open()) for path in (tmp_path / "raw").rglob("*Alignment*.csv")]
    drawn = [row["label_text"] for table in tables for row in table if row["category_name"] in chosen]
    assert drawn
    assert sorted(row["phrase"] for row in rows) == sorted(drawn)
    assert {MS_CXR_FINDINGS[row["label"]] for row in rows} <= set(chosen)


def test_sentences_of_other_findings_are_left_out_with_their_boxes(tmp_path: Path) -> None:
    finding = "Cardiomegaly"
    rows = extra_rows(tmp_path, "padchest-gr", finding, "sentences")
    (reports,) = (tmp_path / "raw").rglob("grounded_reports_*.json")
    sentences = [one for study in json.loads(reports.read_text()) for one in study["findings"]]
    named = [one for one in sentences if not set(one.get("labels") or ()).isdisjoint(PADCHEST_GR_LABELS[finding])]
    assert 0 < len(named) < len(sentences)
    assert sorted(row["sentence_en"] for row in rows) == sorted(one["sentence_en"] for one in named)
    assert {label for row in rows for label in row["labels"]} <= {*PADCHEST_GR_LABELS[finding]}


def test_image_labels_are_those_of_the_asked_findings_and_keep_every_reader(tmp_path: Path) -> None:
    rows = extra_rows(tmp_path, "vindr-cxr", "Cardiomegaly", "image_labels")
    paths = sorted((tmp_path / "raw").rglob("image_labels_*.csv"))
    there = {row["image_id"] for row in rows}
    ones = [row["Cardiomegaly"] for path in paths for row in csv.DictReader(path.open()) if row["image_id"] in there]
    label = VINDR_CXR_FINDINGS.index("Cardiomegaly")
    assert sorted(row["labels"] for row in rows) == [[]] * (len(rows) - ones.count("1")) + [[label]] * ones.count("1")
    assert 0 < ones.count("1") < len(rows)
