"""Macros over groups of findings, by hand on six studies, and the forms in which groups are given."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reveal_bench as rb
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import check_finding_groups
from reveal_bench.kinds.finding_groups import groups_by_prevalence, parse_finding_groups
from reveal_bench.kinds.folder import FolderInfo, read_folder_info
from reveal_bench.metrics.bootstrap import MACRO
from tests.cli.test_score import call
from tests.dataset.card_folders import FINDINGS as STUDIES
from tests.dataset.card_folders import LABELS, reseal, study
from tests.kinds.folders import studies  # noqa: F401

FINDINGS = ("Edema", "Mass", "Nodule")


def test_head_medium_and_tail_end_at_10_and_1_percent() -> None:
    """100 of 1,000 are 10 %, 99 are less; 10 are 1 %, 9 are less."""
    positives = {"a": 500, "b": 100, "c": 99, "d": 10, "e": 9, "f": 0}
    groups = groups_by_prevalence(positives, 1000)
    assert groups == {"head": ("a", "b"), "medium": ("c", "d"), "tail": ("e", "f")}
    assert groups_by_prevalence({"a": 5}, 10) == {"head": ("a",)}


def test_groups_are_read_from_texts_files_and_mappings(tmp_path: Path) -> None:
    expected = {"rare": ("Mass", "Nodule"), "common": ("Edema",)}
    file = tmp_path / "groups.json"
    file.write_text(json.dumps({"rare": ["Nodule", "mass"], "common": ["Edema"]}))
    for given in (["rare=nodule, Mass", "common=Edema"], str(file), [str(file)], file, expected):
        assert parse_finding_groups(given, FINDINGS) == expected
    assert parse_finding_groups("common=Edema", FINDINGS) == {"common": ("Edema",)}
    assert parse_finding_groups(["prevalence"], FINDINGS) == "prevalence"
    assert parse_finding_groups({}, FINDINGS) == {}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (["rare=Fracture"], r"`finding_groups\['rare'\]` must only have findings of the benchmark .*, got 'Fracture'"),
        (["rare=Mass,mass"], r"`finding_groups\['rare'\]` must name each finding once"),
        (["rare=Mass", "rare=Edema"], "must name each group once, got 'rare=Edema'"),
        (["macro=Mass"], "must have names that are neither findings nor 'macro' or 'all', got macro"),
        (["Edema=Mass"], "must have names that are neither findings"),
        ({"rare": []}, "must have a non-empty list of findings for 'rare', got \\[\\]"),
        ({"rare": "Mass"}, "must have a non-empty list of findings for 'rare', got 'Mass'"),
        ("no-such-file.json", "must be 'prevalence', a JSON file, a mapping of names to findings, or NAME=FINDING"),
        (["rare=Mass", "prevalence"], "must be 'prevalence', a JSON file"),
        (3, "must be 'prevalence', a JSON file, .*, got 3"),
    ],
)
def test_unsuitable_groups_are_refused(given: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_finding_groups(given, FINDINGS)


def test_damaged_files_of_groups_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    for text, rule in (("{", "must be JSON"), ("[]", "must hold one JSON object")):
        file.write_text(text)
        with pytest.raises(ValueError, match=rule):
            parse_finding_groups(str(file), FINDINGS)
    with pytest.raises(ValueError, match="must map names to lists of findings"):
        check_finding_groups(["Edema"], FINDINGS)  # type: ignore[arg-type]


def macros(records: list[dict[str, Any]], metric: str = "recall") -> dict[str, float]:
    return {one["finding"]: one["value"] for one in records if one["metric"] == metric and MACRO in one["finding"]}


def test_scores_have_the_macro_of_each_group(studies) -> None:  # noqa: F811
    """All six studies have the first label and two have the second, which the file never names."""
    folder, files = studies
    groups = {"first": [LABELS[0]], "both": list(LABELS[:2])}
    scored = rb.score(files / "half.jsonl", folder, finding_groups=groups)
    assert macros(scored.records) == {"macro": 0.5, "macro first": 1.0, "macro both": 0.5}
    document = scored.to_document()["finding_groups"]
    assert document["both"]["findings"] == list(LABELS[:2])
    assert {e["finding"] for e in document["both"]["estimates"]} == {MACRO}
    assert {row["finding"]: row["n"] for row in scored.printed_rows() if row["metric"] == "Recall"}[
        "macro both"] == "2 findings"  # fmt: skip
    assert "finding_groups" not in rb.score(files / "half.jsonl", folder).to_document()


def test_the_macro_of_a_group_is_that_of_its_findings_alone(studies) -> None:  # noqa: F811
    folder, files = studies
    scored = rb.score(files / "half.jsonl", folder, finding_groups={"both": LABELS[:2]}).scored
    alone = [e for e in scored.rows.estimates(scored.resampling, groups=LABELS[:2]) if e.finding == MACRO]
    assert [repr(e) for e in scored.finding_groups["both"]] == [repr(e) for e in alone]


def test_groups_by_prevalence_are_of_the_whole_folder(studies) -> None:  # noqa: F811
    """6 of 6 studies have the first label, 2 of 6 the second, none any other."""
    folder, files = studies
    scored = rb.score(files / "half.jsonl", folder, finding_groups="prevalence").scored
    groups = scored.options.finding_groups
    assert groups == {"head": LABELS[:2], "tail": tuple(f for f in scored.rows.groups if f not in LABELS[:2])}


def test_systems_are_compared_and_ranked_by_groups(studies) -> None:  # noqa: F811
    folder, files = studies
    groups = {"first": [LABELS[0]], "second": [LABELS[1]]}
    compared = rb.compare(files / "half.jsonl", files / "right.jsonl", folder, metric="recall", finding_groups=groups)
    assert macros(compared.records) == {"macro": -0.5, "macro first": 0.0, "macro second": -1.0}
    assert [one.finding for one in compared.comparisons][:3] == ["macro", "macro first", "macro second"]
    ranking = rb.rank(files, folder, metric="recall", finding_groups={**groups, "absent": [LABELS[2]]})
    values = {name: [one.estimate.value for one in ranked] for name, ranked in ranking.by_group.items()}
    assert values == {"first": [1.0, 1.0], "second": [1.0, 0.0]}
    assert ranking.of_group("second").records[1]["value"] == 0.0


def test_a_folder_states_its_groups(studies, tmp_path: Path) -> None:  # noqa: F811
    folder, files = studies
    info = read_folder_info(folder)
    assert "finding_groups" not in info.to_json()
    own = FolderInfo(**{**vars(info), "finding_groups": {"second": (LABELS[1],)}})
    copy = tmp_path / "folder"
    shutil.copytree(folder, copy)
    (copy / "manifest" / "benchmark.json").write_text(own.to_json())
    reseal(copy)
    assert read_folder_info(copy).finding_groups == {"second": (LABELS[1],)}
    text = call("score", files / "half.jsonl", copy).stdout
    assert "macros over groups of findings" in text
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("second")] == [["second", "1", "finding"]]
    document = json.loads(call("rank", files, copy, "--metric", "recall", "--json").stdout)
    assert [one["value"] for one in document["finding_groups"]["second"]] == [1.0, 0.0]
    assert macros(rb.score(files / "half.jsonl", copy, finding_groups={}).records) == {"macro": 0.5}
    call("report", files / "half.jsonl", "--folder", copy, "--out", tmp_path / "pages")
    (page,) = (tmp_path / "pages").glob("*.html")
    assert "Mean scores of groups of findings" in page.read_text()
    assert f"second: {LABELS[1]}." in page.read_text()
    wrong = (copy / "manifest" / "benchmark.json").read_text().replace('"second"', '"macro"')
    (copy / "manifest" / "benchmark.json").write_text(wrong)
    with pytest.raises(ValueError, match=r"benchmark\.json: `finding_groups` must have names"):
        read_folder_info(copy)


def test_a_build_states_groups_by_the_prevalence_of_public_splits(tmp_path: Path) -> None:
    """The second label is in 1 of 10 released studies, which is 10 %, and in all of the holdout; the third in none."""
    released = [study(tmp_path / "pictures", i, LABELS[:2] if i == 0 else LABELS[:1], 1) for i in range(10)]
    holdout = [study(tmp_path / "pictures", i, LABELS[1:], 1) for i in range(10, 14)]
    benchmark = replace(STUDIES, finding_groups="prevalence")
    splits, private = {"released": released, "holdout": holdout}, tmp_path / "private"
    info = build_folder(
        splits, tmp_path / "out", benchmark, holdout=private, holdout_split="holdout", pixels="withhold"
    )
    assert info.finding_groups == {"head": LABELS[:2], "tail": LABELS[2:]}
    assert read_folder_info(tmp_path / "out").finding_groups == info.finding_groups
    assert read_folder_info(private).finding_groups == {}
