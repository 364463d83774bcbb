"""The recipe of docs/challenges.md, on a synthetic repository in the competition's layout."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest
from sklearn.metrics import f1_score, roc_auc_score

from reveal_bench.phantom.competition import COMPETITION_FINDINGS, FURTHER_READERS, SYSTEMS
from reveal_bench.phantom.layouts import LABEL_READERS
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.markdown import block_below

COMMANDS = block_below(ROOT / "docs" / "challenges.md", "CheXpert, 2019", "sh").strip().splitlines()
READERS = {*LABEL_READERS, *FURTHER_READERS}


def columns(path: Path) -> list[list[float]]:
    """Return the values of the competition's findings, by finding."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [[float(row[finding]) for row in rows] for finding in COMPETITION_FINDINGS]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return (folder, what each command printed)."""
    root = tmp_path_factory.mktemp("recipe")
    call("phantom", "REPO", "--style", "chexpert-competition", "--images", 500, "--seed", 1, cwd=root)
    printed = []
    for command in COMMANDS:
        words = shlex.split(command)
        assert words[0] == "reveal-bench"
        fast = ["--resamples", "100", "--json"] if words[1] == "rank" else []
        printed.append(call(*words[1:], *fast, cwd=root).stdout)
    return root, printed


def ranked(printed: str) -> dict[str, float]:
    return {system["name"]: system["value"] for system in json.loads(printed)["systems"]}


def test_recipe_has_at_most_six_commands() -> None:
    assert len(COMMANDS) <= 6


def test_systems_are_ranked_by_the_auroc_of_scikit_learn(followed: tuple[Path, list[str]]) -> None:
    root, printed = followed
    truth = columns(root / "REPO/groundtruth.csv")
    expected = {}
    for name in SYSTEMS:
        scores = columns(root / f"REPO/example_models/predictions/{name}/{name}_predictions.csv")
        areas = [roc_auc_score(one, own) for one, own in zip(truth, scores, strict=True)]
        expected[f"{name}_predictions"] = sum(areas) / len(areas)
    own = ranked(printed[2])
    assert own == pytest.approx(expected, abs=1e-9)
    assert list(own) == sorted(expected, key=lambda name: -expected[name])


def test_readers_are_ranked_beside_decisions(followed: tuple[Path, list[str]]) -> None:
    root, printed = followed
    truth = columns(root / "REPO/groundtruth.csv")
    own = ranked(printed[-1])
    assert set(own) == {f"{name}_decisions" for name in SYSTEMS} | READERS
    paths = {path.stem: path for path in (root / "REPO").rglob("*.csv") if path.stem in own}
    for name, value in own.items():
        pairs = zip(truth, columns(paths[name]), strict=True)
        assert value == pytest.approx(sum(f1_score(one, other) for one, other in pairs) / 5, abs=1e-9)


def test_labelers_need_the_policy_that_the_page_states(followed: tuple[Path, list[str]]) -> None:
    root, _ = followed
    words = ("convert", "chexpert", "--from", "table", "--file", "REPO/labeler", "--out", "labels")
    assert "--blank must state" in call(*words, expect=1, cwd=root).stderr
    call(*words, "--blank", "negative", "--uncertain", "positive", cwd=root)
    with (root / "REPO/labeler/labeler.csv").open() as file:
        first = next(csv.DictReader(file))
    line = json.loads((root / "labels/labeler.jsonl").read_text().splitlines()[0])
    assert set(line["labels"]) == {finding for finding in COMPETITION_FINDINGS if first[finding] in ("1", "-1")}
