"""Selection of studies for the benchmark, by hand; degenerate inputs first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.curation.folder import CurationError
from reveal_bench.curation.select import LESS_COMMON, choose, select
from reveal_bench.curation.tables import Consensus, Labels, Selected, read_table
from reveal_bench.findings import REVEAL_LABELS
from tests.curation.made_folder import AN, AO, CM, COPD, done, make_folder

PE = "Pleural effusion"


def row(study_id: str, labels: Labels | None, *, n_agree_all: int = 2, n_votes: int = 3) -> Consensus:
    return Consensus(study_id, f"patient of {study_id}", labels or (), n_votes, n_agree_all, 3, labels)


def chosen(
    rows: Sequence[Consensus], target: int = 200, seed: int = 0, **options: Any
) -> tuple[list[str], dict[str, Any]]:
    choice = choose(rows, np.random.default_rng(seed), target=target, **options)
    return [study.study_id for study in choice.selected], choice.counts


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], ""),
        ([row("a", (AO,), n_agree_all=1)], "too_few_agree_all"),
        ([row("a", (AO,), n_votes=2)], "not_three_votes"),  # two of two is not two of three
        ([row("a", (AO,), n_votes=4, n_agree_all=3)], "not_three_votes"),
        ([row("a", None)], "without_labels"),
        ([row("a", ())], "without_labels"),
    ],
)
def test_nothing_to_choose_from(rows: list[Consensus], reason: str) -> None:
    studies, counts = chosen(rows, target=5)
    assert studies == []
    assert (counts["eligible"], counts["selected"], counts["shortage"]) == (0, 0, 5)
    assert counts["cut_off"] is None
    reasons = {name: counts[name] for name in ("not_three_votes", "too_few_agree_all", "without_labels")}
    assert reasons == {**dict.fromkeys(reasons, 0), **({reason: 1} if reason else {})}


def test_the_nine_of_the_paper() -> None:
    assert set(REVEAL_LABELS) - set(LESS_COMMON) == {AO, CM, PE}


def test_less_common_first_then_the_most_findings() -> None:
    rows = [
        row("one", (AO,)),
        row("three", (AO, CM, PE)),
        row("two", (AO, CM), n_agree_all=3),
        row("rare", (COPD,)),
        row("disputed", (AN, COPD), n_agree_all=1),
        row("both", (AN, AO), n_agree_all=3),
    ]
    choice = choose(rows, np.random.default_rng(0), target=4)
    assert {one.study_id for one in choice.selected[:2]} == {"rare", "both"}
    assert choice.selected[2:] == [
        Selected("three", "patient of three", (AO, CM, PE), 2, "most_findings"),
        Selected("two", "patient of two", (AO, CM), 3, "most_findings"),
    ]
    assert choice.counts == {
        "studies": 6,
        "not_three_votes": 0,
        "too_few_agree_all": 1,
        "without_labels": 0,
        "eligible": 5,
        "less_common": 2,
        "less_common_left_out": 0,
        "most_findings": 2,
        "selected": 4,
        "shortage": 0,
        "by_n_labels": {"1": 1, "2": 2, "3": 1},
        "by_n_agree_all": {"2": 2, "3": 2},
        "cut_off": 2,
        "cut_off_left_out": 0,
    }


def test_the_paper_s_numbers() -> None:
    """381 of 1,000 eligible, 123 of them with a less common finding: 77 others make 200."""
    rows = [row(f"x{i:03d}", (AO,), n_agree_all=1) for i in range(619)]
    rows += [row(f"r{i:03d}", (COPD,)) for i in range(123)]
    rows += [row(f"c{i:03d}", (AO, CM) if i < 60 else (AO,)) for i in range(258)]
    studies, counts = chosen(rows)
    assert (counts["eligible"], counts["less_common"], counts["most_findings"], counts["selected"]) == (
        381,
        123,
        77,
        200,
    )
    assert {f"c{i:03d}" for i in range(60)} < set(studies)
    assert (counts["cut_off"], counts["cut_off_left_out"]) == (1, 258 - 77)


def test_more_less_common_ones_than_wanted_are_drawn() -> None:
    from scipy.stats import binomtest

    rows = [row(f"r{i}", (COPD, AN)[: 1 + i % 2]) for i in range(10)] + [row("c", (AO, CM, PE))]
    studies, counts = chosen(rows, target=4)
    assert len(studies) == 4
    assert "c" not in studies
    assert (counts["less_common"], counts["less_common_left_out"], counts["most_findings"]) == (10, 6, 0)
    n_first = sum("r0" in chosen(rows, target=4, seed=seed)[0] for seed in range(400))
    assert binomtest(n_first, 400, 0.4).pvalue > 0.01


def test_ties_are_drawn_and_every_one_has_the_same_chance() -> None:
    from scipy.stats import binomtest

    rows = [row(f"c{i}", (AO, CM)) for i in range(4)]
    n_first = sum("c0" in chosen(rows, target=1, seed=seed)[0] for seed in range(400))
    assert binomtest(n_first, 400, 0.25).pvalue > 0.01


def test_a_shortage_is_counted_and_everything_is_taken() -> None:
    rows = [row("a", (AO,)), row("b", (COPD,))]
    studies, counts = chosen(rows, target=3)
    assert studies == ["b", "a"]
    assert counts["shortage"] == 1


def test_the_order_of_the_rows_does_not_matter(rng: np.random.Generator) -> None:
    rows = [row(f"c{i}", (AO, CM) if i % 3 else (COPD,)) for i in range(30)]
    assert chosen(rows, target=15) == chosen([rows[i] for i in rng.permutation(30)], target=15)


def test_other_less_common_labels_and_more_agreement() -> None:
    rows = [row("a", (AO,)), row("b", (COPD, CM), n_agree_all=3), row("c", (CM,), n_agree_all=3)]
    assert chosen(rows, less_common=[CM], at_least=3)[1]["less_common"] == 2
    assert chosen(rows, less_common=[], at_least=3)[0] == ["b", "c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 0}, "`target` must be at least 1, got 0"),
        ({"at_least": 0}, "`at_least` must be in [1, 3], got 0"),
        ({"at_least": 4}, "`at_least` must be in [1, 3], got 4"),
        ({"less_common": ["Heart"]}, "`less_common`: labels must be among the twelve, got Heart"),
        ({"less_common": "COPD"}, "`less_common` must be a list of labels, got 'COPD'"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        select(make_folder(tmp_path / "curation", [], []), **options)


def test_the_step(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "curation", [], [])
    with pytest.raises(CurationError, match="consensus must be done first"):
        select(folder)
    rows = [row(f"c{i}", (AO, CM) if i % 3 else (COPD,)) for i in range(30)]
    done(folder, "consensus", "consensus.parquet", rows, Consensus)
    record = select(folder, target=15)
    before = folder.path("selection.parquet").read_bytes()
    assert [one.study_id for one in read_table(folder.path("selection.parquet"), Selected)] == [
        one.study_id for one in choose(rows, folder.rng("select"), target=15).selected
    ]
    assert record.counts["selected"] == 15
    assert not select(folder, target=15).is_new
    with pytest.raises(CurationError, match="target was 15, is 16"):
        select(folder, target=16)
    select(folder, target=16, redo=True)
    select(folder, target=15, redo=True)
    assert folder.path("selection.parquet").read_bytes() == before
