"""Published rows of findings-type benchmarks; rows of CheXlocalize are in tests/evaluation/test_reference_rows.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped, unused-ignore]

from reveal_bench.analyses.published import read_reference_rows
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.metrics import METRICS

SUBMISSIONS = Path(__file__).resolve().parents[2] / "submissions"

# Paper 004, Table S3, typed apart from the file: Cohen's kappa and Gwet's AC1 in thousandths.
TABLE_S3 = """
airspace opacity 484 501; pleural effusion 756 667; cardiomegaly 759 633; interstitial opacity 746 759; copd 759 955;
pleural thickening 744 948; lung nodule 709 959; lung mass 801 979; aneurysm 651 965; pneumothorax 753 982;
hiatal hernia 809 988; lymphadenopathy 634 984
"""


def test_the_radiologists_of_paper_004() -> None:
    (row,) = read_reference_rows("reveal-cxr")
    printed = {" ".join(words[:-2]): words[-2:] for words in (part.split() for part in TABLE_S3.split(";"))}
    assert len(printed) == len(REVEAL_LABELS) == 12
    for label in REVEAL_LABELS:
        values = [row.figures[metric][label] for metric in ("cohen_kappa", "gwet_ac1")]
        assert [round(1000 * value) for value in values] == [int(text) for text in printed[label.lower()]]
    assert (row.kind, row.measured_on, row.is_of_test_split) == ("human", "sampled", False)
    mean, origin = row.macro["cohen_kappa"]
    assert mean == pytest.approx(8.605 / 12)
    assert origin == "mean of 12 printed"
    assert row.source.endswith("Table S3")


def test_paper_004_says_so_of_its_labels() -> None:
    # Section 4.2: nine findings have a kappa above 0.7; hiatal hernia has the highest, airspace opacity is lowest.
    (row,) = read_reference_rows("reveal-cxr")
    kappa = row.figures["cohen_kappa"]
    assert sum(value > 0.7 for value in kappa.values()) == 9
    assert (max(kappa, key=lambda label: kappa[label]), min(kappa, key=lambda label: kappa[label])) == (
        "Hiatal hernia",
        "Airspace opacity",
    )


@pytest.mark.parametrize("path", sorted(SUBMISSIONS.glob("reference/*/*.json")), ids=lambda path: path.stem)
def test_rows_follow_the_schema_and_their_folder(path: Path) -> None:
    schema = json.loads((SUBMISSIONS / "schema" / "reference.schema.json").read_text(encoding="utf-8"))
    raw = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(raw)
    assert raw["benchmark"] == path.parent.name
    assert path.stem.startswith(raw["source"]["paper"])
    assert set(raw["figures"]) <= set(METRICS)


def test_the_schema_names_the_labels() -> None:
    schema = json.loads((SUBMISSIONS / "schema" / "reference.schema.json").read_text(encoding="utf-8"))
    assert tuple(schema["$defs"]["label"]["enum"]) == REVEAL_LABELS
    row = json.loads((SUBMISSIONS / "reference" / "reveal-cxr" / "004-single-radiologists.json").read_text())
    row["figures"]["cohen_kappa"]["Airspace Opacity"] = 0.5  # CheXlocalize's spelling
    errors = [error.message for error in Draft202012Validator(schema).iter_errors(row)]
    assert len(errors) == 1
    assert errors[0].startswith("'Airspace Opacity' is not one of ['Airspace opacity', ")


def test_readers_come_first_and_reprints_are_left_out() -> None:
    rows = read_reference_rows()
    assert [row.kind for row in rows][:1] == ["human"]
    assert [row.kind for row in rows][-1:] == ["chance"]
    assert sum(row.kind == "human" for row in rows) == 1, "paper 000 prints the row of paper 002 again"
    assert all(row.is_of_test_split for row in rows)


def test_a_benchmark_without_published_rows_has_none() -> None:
    assert read_reference_rows("vindr-cxr") == []
