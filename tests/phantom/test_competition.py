"""The recipe of docs/challenges.md, on a synthetic repository in the competition's layout."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score, roc_curve

from reveal_bench.phantom.competition import COMPETITION_FINDINGS, FURTHER_READERS, SYSTEMS
from reveal_bench.phantom.layouts import LABEL_READERS
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.markdown import block_below

PAGE = ROOT / "docs" / "challenges.md"
COMMANDS = block_below(PAGE, "CheXpert, 2019", "sh").strip().splitlines()
PRINTED = block_below(PAGE, "The printed board", "csv")
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


def ranked(printed: str) -> dict[str, dict[str, Any]]:
    return {system["name"]: system for system in json.loads(printed)["systems"]}


def scores_of(root: Path, name: str) -> list[list[float]]:
    return columns(root / f"REPO/example_models/predictions/standard/{name}_predictions.csv")


def test_recipe_has_at_most_six_commands() -> None:
    assert len(COMMANDS) <= 6


def test_systems_are_ranked_by_the_auroc_of_scikit_learn(followed: tuple[Path, list[str]]) -> None:
    root, printed = followed
    truth = columns(root / "REPO/groundtruth.csv")
    expected = {}
    for name in SYSTEMS:
        areas = [roc_auc_score(one, own) for one, own in zip(truth, scores_of(root, name), strict=True)]
        expected[f"{name}_predictions"] = sum(areas) / len(areas)
    own = {name: system["value"] for name, system in ranked(printed[2]).items()}
    assert own == pytest.approx(expected, abs=1e-12)
    assert list(own) == sorted(expected, key=lambda name: -expected[name])


def test_readers_below_the_curves_of_scikit_learn_are_counted(followed: tuple[Path, list[str]]) -> None:
    root, printed = followed
    truth = np.array(columns(root / "REPO/groundtruth.csv"), bool)
    readers = [np.array(columns(path), bool) for path in sorted(root.glob("REPO/radiologists/benchmark*/*.csv"))]
    assert len(readers) == 3
    for name, system in ranked(printed[2]).items():
        n_below = 0
        for finding, own in enumerate(scores_of(root, name.removesuffix("_predictions"))):
            present = truth[finding]
            fpr, tpr, _ = roc_curve(present, own, drop_intermediate=False)
            for called in (reader[finding] for reader in readers):
                at = called[~present].mean()
                n_below += called[present].mean() < np.interp(at + 1e-9, fpr, tpr) - 1e-9
        assert system["readers below"] == pytest.approx(n_below / 5, abs=1e-12)


def test_printed_board_is_shown_beside_the_ranking(followed: tuple[Path, list[str]]) -> None:
    root, _ = followed
    rows = list(csv.DictReader(io.StringIO(PRINTED)))
    assert [float(row["printed AUROC"]) for row in rows] == [0.927, 0.927, 0.926, 0.924]
    lines = [f"{SYSTEMS[i]}_predictions,{line.split(',', 1)[1]}" for i, line in enumerate(PRINTED.splitlines()[1:])]
    (root / "printed.csv").write_text("\n".join([PRINTED.splitlines()[0], *lines, "another,0.9,1"]), encoding="utf-8")
    words = [*shlex.split(COMMANDS[2])[1:6], "--resamples", "100", "--printed", "printed.csv"]
    answer = call(*words, cwd=root)
    assert "another is not among the ranked systems" in answer.stderr
    (row,) = (line.split() for line in answer.stdout.splitlines() if line.startswith("system03"))
    assert row[-2:] == ["0.926", "2.6"]
    (root / "printed.csv").write_text("system,printed\nnobody,1\n", encoding="utf-8")
    assert "must have a ranked system" in call(*words, cwd=root, expect=1).stderr
    (root / "printed.csv").write_text("entry,printed\nnobody,1\n", encoding="utf-8")
    assert "must have a `system` in every row" in call(*words, cwd=root, expect=1).stderr


def test_readers_are_ranked_beside_decisions(followed: tuple[Path, list[str]]) -> None:
    root, printed = followed
    truth = columns(root / "REPO/groundtruth.csv")
    own = ranked(printed[-1])
    assert set(own) == {f"{name}_decisions" for name in SYSTEMS} | READERS
    paths = {path.stem: path for path in (root / "REPO").rglob("*.csv") if path.stem in own}
    for name, system in own.items():
        pairs = zip(truth, columns(paths[name]), strict=True)
        assert system["value"] == pytest.approx(sum(f1_score(one, other) for one, other in pairs) / 5, abs=1e-12)


@pytest.mark.parametrize("uncertain", ["positive", "negative"])
def test_labelers_are_scored_by_the_policy_that_is_stated(followed: tuple[Path, list[str]], uncertain: str) -> None:
    root, _ = followed
    words = ("convert", "chexpert", "--from", "table", "--file", "REPO/labeler", "--out", "labels")
    assert "--blank must state" in call(*words, expect=1, cwd=root).stderr
    call(*words, "--blank", "negative", "--uncertain", uncertain, cwd=root)
    with (root / "REPO/labeler/chexpert_labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    positive = ("1", "-1") if uncertain == "positive" else ("1",)
    truth = columns(root / "REPO/groundtruth.csv")
    expected = [
        f1_score(one, [row[finding] in positive for row in rows])
        for one, finding in zip(truth, COMPETITION_FINDINGS, strict=True)
    ]
    scored = call("score", "labels/chexpert_labels.jsonl", "chexpert", "--json", "--resamples", 20, cwd=root).stdout
    macro = {one["metric"]: one["value"] for one in json.loads(scored)["estimates"] if one["finding"] == "macro"}
    assert macro["f1"] == pytest.approx(sum(expected) / 5, abs=1e-12)
