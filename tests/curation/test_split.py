"""Halves by patient, the rule for choosing a draw, and the files written; degenerate inputs first."""

from __future__ import annotations

import csv
import json
import re
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.split import draw_best, draw_halves, label_columns, split
from reveal_bench.curation.tables import Placed, Selected, read_table
from reveal_bench.dataset.balance import Column
from reveal_bench.sources.mapping import read_mapping
from reveal_bench.sources.source import Problem
from reveal_bench.sources.study_labels import check_columns, labelled_studies
from reveal_bench.tables import scan_table
from tests.curation.made_folder import AO, CM, COPD, done, make_folder, make_folder_to_split


def chosen(n_rare: int, n_others: int, *, patients: Sequence[str] | None = None) -> list[Selected]:
    rows = []
    for i in range(n_rare + n_others):
        labels, reason = ((AO, COPD), "less_common") if i < n_rare else ((AO, CM)[: 1 + i % 2], "most_findings")
        patient = f"p{i:03d}" if patients is None else patients[i]
        rows.append(Selected(f"s{i:03d}", patient, labels, 2 + i % 2, reason))
    return rows


@pytest.mark.parametrize("selected", [[], chosen(1, 0), chosen(0, 3, patients="aaa")])
def test_fewer_than_two_patients_are_refused(selected: list[Selected], tmp_path: Path) -> None:
    with pytest.raises(CurationError, match=r"a split needs studies of at least 2 patients, got [01]$"):
        draw_halves(selected, np.random.default_rng(0))
    with pytest.raises(CurationError, match="at least 2 patients"):
        split(make_folder_to_split(tmp_path / "curation", selected))


@pytest.mark.parametrize(
    ("n_rare", "n_others"), [(2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (5, 4), (123, 77), (200, 0), (0, 200), (4, 7)]
)
def test_both_groups_are_halved(n_rare: int, n_others: int) -> None:
    selected, n = chosen(n_rare, n_others), n_rare + n_others
    for seed in range(20):
        is_holdout = draw_halves(selected, np.random.default_rng(seed))
        assert is_holdout.sum() in (n // 2, n - n // 2)
        assert is_holdout[:n_rare].sum() in (n_rare // 2, n_rare - n_rare // 2)


def test_every_study_and_every_pair_have_their_chance() -> None:
    from scipy.stats import binomtest

    selected, n = chosen(3, 3), 1000
    draws = np.array([draw_halves(selected, np.random.default_rng(seed)) for seed in range(n)])
    for i in range(6):
        assert binomtest(int(draws[:, i].sum()), n, 0.5).pvalue > 0.001
    # Two of three studies are in one half: a pair is together in one of three draws.
    assert binomtest(int((draws[:, 0] == draws[:, 1]).sum()), n, 1 / 3).pvalue > 0.001
    # One of the rare is left over with its half, so the others make up for it.
    assert (draws.sum(axis=1) == 3).all()


def test_a_patient_is_in_one_half() -> None:
    selected = chosen(4, 8, patients=["a", "b", "b", "c", "a", "a", "d", "e", "e", "f", "g", "h"])
    for seed in range(30):
        is_holdout = draw_halves(selected, np.random.default_rng(seed))
        halves: dict[str, set[bool]] = {}
        for study, half in zip(selected, is_holdout, strict=True):
            halves.setdefault(study.patient_id, set()).add(bool(half))
        assert all(len(names) == 1 for names in halves.values())
        assert 5 <= is_holdout.sum() <= 7


def test_the_best_of_more_draws_by_hand() -> None:
    """Four studies, two women: a draw that separates the women has difference 0, another has an infinite one."""
    selected = chosen(0, 4)
    sex = Column("sex", ("F", "F", "M", "M"))
    rngs = [np.random.default_rng(seed) for seed in range(12)]
    draws = draw_best(selected, [sex], rngs)
    halves = [draw_halves(selected, np.random.default_rng(seed)) for seed in range(12)]
    parts = [bool(half[0] != half[1]) for half in halves]
    assert 0 < sum(parts) < 12
    assert draws.values == [0 if is_parted else np.inf for is_parted in parts]
    assert draws.taken == parts.index(True) + 1
    assert draws.is_holdout.tolist() == halves[parts.index(True)].tolist()


def test_columns_of_labels() -> None:
    columns = {column.name: column.texts for column in label_columns(chosen(1, 2))}
    assert len(columns) == 14
    assert columns[COPD] == ("present", "absent", "absent")
    assert columns["n_labels"] == ("2", "2", "1")
    assert columns["n_agree_all"] == ("2", "3", "2")


def write_facts(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [["study", "sex", "age_band", "Manufacturer", "kVp"]]
    for i in range(199):  # the last study has no row
        kvp = str(rng.choice(["85", "110", "120"]))
        rows.append([f"s{i:03d}", "f" if i % 2 else "M", "80+" if i % 3 else "", f"Maker {rng.integers(3)}", kvp])
    return write_facts(tmp_path / "facts.csv", [*rows, ["other", "F", "", "", ""]])


@pytest.fixture
def folder(tmp_path: Path) -> CurationFolder:
    return make_folder_to_split(tmp_path / "curation", chosen(123, 77))


def balance_of(folder: CurationFolder) -> dict[str, Any]:
    balance: dict[str, Any] = json.loads(folder.path("balance.json").read_text(encoding="utf-8"))
    return balance


def test_the_step_at_the_paper_s_size(folder: CurationFolder, facts: Path) -> None:
    progress: list[tuple[int, int]] = []
    record = split(folder, facts, best_of=3, progress=lambda done, total: progress.append((done, total)))
    assert progress == [(1, 3), (2, 3), (3, 3)]
    placed = read_table(folder.path("split.parquet"), Placed)
    assert Counter(study.half for study in placed) == {"released": 100, "holdout": 100}
    assert {study.since for study in placed} == {"1.0.0"}
    n_rare = {half: record.counts[half]["less_common"] for half in ("released", "holdout")}
    assert sorted(n_rare.values()) == [61, 62]
    assert record.counts["studies_without_facts"] == 1
    assert record.counts["facts_of_other_studies"] == 1
    balance = balance_of(folder)
    assert [one["name"] for one in balance["facts"]] == ["sex", "age_band", "Manufacturer", "kVp"]
    sex, age, _, kvp = balance["facts"]
    halves = {study.study_id: study.half for study in placed}
    men = [f"s{i:03d}" for i in range(0, 199, 2)]
    assert {one["category"]: (one["released"], one["holdout"]) for one in sex["categories"]}["M"] == tuple(
        sum(halves[study] == half for study in men) for half in ("released", "holdout")
    )
    assert [one["category"] for one in age["categories"]] == ["80+", None]
    assert (sex["is_number"], kvp["is_number"], sex["mean_released"]) == (False, True, None)
    assert len(balance["labels"]) == 14
    rule = balance["rule"]
    assert (rule["best_of"], len(rule["values"])) == (3, 3)
    assert rule["values"][rule["taken"] - 1] == min(rule["values"])
    largest = max(one["largest_difference"] for one in (*balance["facts"], *balance["labels"]))
    assert largest == pytest.approx(min(rule["values"]))


def test_draws_of_a_smaller_number_are_among_those_of_a_larger_and_all_are_counted(folder: CurationFolder) -> None:
    first = split(folder)
    one = balance_of(folder)["rule"]
    files = {name: folder.path(name).read_bytes() for name in first.outputs}
    assert not split(folder).is_new
    with pytest.raises(CurationError, match="best_of was 1, is 5: do it again with --redo"):
        split(folder, best_of=5)
    split(folder, best_of=5, redo=True)
    five = balance_of(folder)["rule"]
    assert five["values"][:1] == one["values"]
    assert (one["draws_looked_at"], five["draws_looked_at"]) == (1, 6)
    assert [entry["best_of"] for entry in five["history"]] == [1, 5]
    split(folder, redo=True)
    again = balance_of(folder)["rule"]
    assert again["draws_looked_at"] == 7
    assert folder.path("split.parquet").read_bytes() == files["split.parquet"]
    folder.path("split.parquet").unlink()  # damaged: repeating the same split is not another look
    split(folder)
    assert balance_of(folder)["rule"] == again


def test_another_selection_is_another_look(folder: CurationFolder) -> None:
    split(folder)
    done(folder, "select", "selection.parquet", chosen(10, 10), Selected, redo=True)
    record = split(folder, redo=True)
    assert (record.counts["studies"], record.counts["draws_looked_at"]) == (20, 2)


def test_an_edited_mapping_stays_or_is_refused(folder: CurationFolder, facts: Path) -> None:
    split(folder)
    mapping = folder.path("benchmark/mapping.yaml")
    mapping.write_text(edited := mapping.read_text() + "equipment: {model: left out}\n")
    split(folder, best_of=5, redo=True)
    assert mapping.read_text() == edited
    with pytest.raises(CurationError, match=r"mapping\.yaml was edited: rename it, repeat the step, and edit the new"):
        split(folder, facts, columns=["sex"], redo=True)
    mapping.unlink()
    with pytest.raises(CurationError, match=r"split is damaged \(benchmark/mapping\.yaml is missing\): do it again"):
        folder.need("split")
    split(folder, facts, columns=["sex"], redo=True)
    assert "sex: {column: sex}" in mapping.read_text()


def test_the_same_seed_gives_the_same_files_and_another_one_others(tmp_path: Path, facts: Path) -> None:
    trees = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = make_folder_to_split(tmp_path / name, chosen(123, 77), seed=seed)
        record = split(folder, facts, columns=["sex"])
        trees.append({output: folder.path(output).read_bytes() for output in record.outputs})
    assert trees[0] == trees[1]
    assert trees[0]["split.parquet"] != trees[2]["split.parquet"]


def test_a_builder_reads_the_two_files(folder: CurationFolder, facts: Path) -> None:
    split(folder, facts, study_key="folder")
    problems: list[Problem] = []
    mapping = read_mapping(folder.path("benchmark/mapping.yaml"))
    table = scan_table(folder.path("benchmark") / mapping.table, "labels.csv", problems)
    assert table is not None
    assert check_columns(mapping, table, problems)
    studies, _ = labelled_studies(mapping, table, problems)
    assert problems == []
    assert mapping.key_matches == "folder"
    placed = {study.study_id: study for study in read_table(folder.path("split.parquet"), Placed)}
    assert len(studies) == len(placed) == 200
    for study in studies:
        source = placed[study.key]
        assert (study.labels, study.split, study.patient_key) == (source.labels, source.half, source.patient_id)
        assert study.agreement == {2: "two_of_three", 3: "three_of_three"}.get(source.n_agree_all or 0)
    sexes = Counter(study.facts.get("sex") for study in studies)
    assert sexes == {"F": 99, "M": 100, None: 1}
    mode = folder.path("benchmark/labels.csv").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([["id", "sex"], ["s000", "F"]], None, "`column` must be a column of facts.csv, got 'study'"),
        ([["study", "sex"], ["s000", "F"]], ["sx"], "'sx' (nearest: 'sex')"),
        ([["study", "sex"], ["s000", "F"]], ["sex", "sex"], "`columns` must be named once, got 'sex' again"),
        ([["study", "sex"], ["s000", "F"]], ["study"], "`columns` must be named once, got 'study' again"),
        ([["study", "sex"], ["s000", "Fem"]], None, "facts.csv:2: `sex` must be blank or one of F, M, other"),
        ([["study", "kvp"], ["s000", "1"], ["s000", "2"]], None, "'s000' again, first in row 2"),
        ([["study", "kvp"], ["x", "1"]], None, "must name a selected study, got none of 1 rows"),
        ([["study", "kvp"]], None, "must contain at least one row"),
    ],
)
def test_facts_that_do_not_fit_are_refused(
    folder: CurationFolder, tmp_path: Path, rows: list[list[str]], columns: list[str] | None, message: str
) -> None:
    path = write_facts(tmp_path / "facts.csv", rows)
    with pytest.raises(ValueError, match=re.escape(message)):
        split(folder, path, columns=columns)
    assert folder.record("split") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"best_of": 0}, "`best_of` must be at least 1, got 0"),
        ({"version": "1.0"}, "`version` must have the form 1.2.3, got '1.0'"),
        ({"study_key": "AccessionNumber"}, "`study_key` must be one of StudyInstanceUID, "),
        ({"columns": ["sex"]}, "`columns` must be a list of columns of `facts`, got ['sex']"),
    ],
)
def test_arguments_are_checked(folder: CurationFolder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        split(folder, **options)


def test_the_selection_must_be_done(tmp_path: Path) -> None:
    with pytest.raises(CurationError, match="select must be done first"):
        split(make_folder(tmp_path / "curation", [], []))
