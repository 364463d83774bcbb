"""What the published page does not tell: nothing in it depends on a label of the holdout."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.page_data import Curated, read_curated
from reveal_bench.curation.page_public import SMALL, band, merged_numbers, public_page, shown_values
from reveal_bench.curation.report import make_report
from reveal_bench.curation.tables import Labels, Placed, Sampled, read_table
from reveal_bench.findings import REVEAL_LABELS
from tests.curation import report_folder as made

AO, COPD, HERNIA, MASS = "Airspace opacity", "COPD", "Hiatal hernia", "Lung mass"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> CurationFolder:
    return made.whole(tmp_path_factory.mktemp("public"))


@pytest.fixture(scope="module")
def large(folder: CurationFolder) -> Curated:
    """200 and 160 studies in place of the thirty, so that there is something to show and to hide.

    Released: 120 of airspace opacity alone, 71 with COPD as well, 9 with a hernia alone. Holdout: 87 of lung mass, 73
    of COPD with lung mass. Women are 111 of the released, 83 of the holdout.
    """
    labels: list[tuple[str, Labels]] = [("released", (AO,))] * 120 + [("released", (AO, COPD))] * 71
    labels += [("released", (HERNIA,))] * 9 + [("holdout", (MASS,))] * 87 + [("holdout", (COPD, MASS))] * 73
    placed = [
        Placed(f"study-{i:04d}", f"patient-{i:04d}", own, 3, half, "1.0.0") for i, (half, own) in enumerate(labels)
    ]
    sex = {one.study_id: "F" if i < 111 or 200 <= i < 283 else "M" for i, one in enumerate(placed)}
    return replace(read_curated(folder), placed=placed, demographics={"sex": sex})


def words_of(page: str) -> str:
    """Everything that a reader of the source could read, but for style."""
    return unescape(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))


def with_other_holdout_labels(curated: Curated, labels: Labels) -> Curated:
    """The same curation but for the labels of the holdout, and everything that was counted of them."""
    placed = [
        replace(one, labels=labels, n_agree_all=2) if one.half == "holdout" else one for one in curated.placed or ()
    ]
    states = dict(curated.states)
    changed: dict[str, dict[str, Any]] = {
        "extract": {"by_label": Counter(dict.fromkeys(REVEAL_LABELS, 5)), "by_n_labels": {"7": 87}},
        "select": {"by_n_labels": {"7": 30}, "by_n_agree_all": {"2": 30}, "less_common": 3, "most_findings": 27,
                   "cut_off": 1, "cut_off_left_out": 9},
    }  # fmt: skip
    for step, changes in changed.items():
        record = states[step].record
        assert record is not None
        states[step] = replace(states[step], record=replace(record, counts={**record.counts, **changes}))
    balance: dict[str, Any] = copy.deepcopy(dict(curated.balance or {}))
    for one in balance["labels"]:
        one["test"]["p_value"], one["largest_difference"] = 0.001, 3.21
        for category in one["categories"]:
            category["holdout"] += 1
    balance["rule"]["values"] = [9.87] * len(balance["rule"]["values"])
    balance["counts"]["columns_below_0.05"] = 14
    return replace(curated, placed=placed, states=states, balance=balance)


@pytest.mark.parametrize("labels", [(), (HERNIA,), REVEAL_LABELS], ids=["none", "hernia", "all"])
def test_nothing_depends_on_labels_of_the_holdout(large: Curated, labels: Labels) -> None:
    other = with_other_holdout_labels(large, labels)
    assert public_page(other) == public_page(large)
    assert make_report(other)["index.html"] != make_report(large)["index.html"]


def test_depends_on_the_labels_of_the_released_half(large: Curated) -> None:
    placed = [replace(one, labels=(MASS,)) if one.half == "released" else one for one in large.placed or ()]
    assert public_page(replace(large, placed=placed)) != public_page(large)


def test_counts_of_the_holdout_are_nowhere(large: Curated) -> None:
    index = make_report(large)["index.html"]
    told = set(re.findall(r"(?<![\d.])\d+", re.sub(r"<[^>]*>", " ", words_of(public_page(large)))))
    for n in ("87", "73", "160"):  # lung mass alone, with COPD, in all
        assert re.search(rf">{n}\b", index)
    assert {"73", "144", "247"} & told == set()  # 71 + 73 with COPD, 87 + 160 label sums
    assert {"191", "71"} <= told  # airspace opacity and COPD of the released half


def test_no_study_patient_or_reader_is_named(folder: CurationFolder) -> None:
    page = words_of(make_report(read_curated(folder))["public.html"])
    sampled = read_table(folder.path("sample.parquet"), Sampled)
    assert len(sampled) == 60
    for one in sampled:
        assert one.study_id not in page
        assert one.patient_id not in page
    assert not re.search(r"(study|patient)-[a-z]\d", page)
    for reader in made.READERS:
        assert reader not in page
    assert "Reader 3" in page


def test_small_numbers_of_the_released_half_are_not_shown(large: Curated) -> None:
    page = words_of(public_page(large))
    assert f"{HERNIA}: fewer than 10" in page
    assert f"{MASS}: fewer than 10" in page  # none at all looks the same
    assert "1 to 2 findings" not in page
    assert "1 findings: 129; 2 findings: 71" in page  # 120 and 9 have one


def test_holdout_comes_in_bands(large: Curated) -> None:
    page = public_page(large)
    assert 'Male</th><td class="n">89 (44' in page.replace("\u00a0", " ")
    assert "50 to 75 %" in page  # 83 of 160 women
    few = replace(
        large, placed=[one for one in large.placed or () if one.half == "released" or one.study_id < "study-0249"]
    )
    assert "not shown" in public_page(few)


def test_rare_values_are_not_named(large: Curated) -> None:
    placed = list(large.placed or ())
    sex = {one.study_id: "other" if i < 3 else "F" for i, one in enumerate(placed)}
    page = words_of(public_page(replace(large, demographics={"sex": sex})))
    assert "other</th>" not in page.replace("all others", "")
    assert "197" not in re.findall(r"\d+", page)  # would tell of the three


def test_before_there_are_halves(folder: CurationFolder) -> None:
    page = words_of(public_page(replace(read_curated(folder), placed=None, balance=None)))
    assert "There are no halves yet." in page


@pytest.mark.parametrize(
    ("counts", "shown", "rest"),
    [
        ({}, [], 0),
        ({"F": 50, "M": 50}, ["F", "M"], 0),
        ({"F": 50, "M": 45, "unknown": 5}, ["F"], 50),  # 5 would be 100 - 50 - 45
        ({"a": 60, "b": 30, "c": 6, "d": 4}, ["a", "b"], 10),
        ({"a": 60, "b": 30, "c": 6, "d": 3}, ["a"], 39),
        ({"a": 9, "b": 0}, [], 9),
        ({"a": 100, "b": 0}, ["a"], 0),
    ],
    ids=["none", "two", "complement", "enough together", "too few together", "all few", "one"],
)
def test_shown_values(counts: Mapping[str, int], shown: list[str], rest: int) -> None:
    assert shown_values(counts) == (shown, rest)


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        ({}, []),
        ({2: 3}, [("2", 3)]),
        ({1: 50, 2: 50}, [("1", 50), ("2", 50)]),
        ({1: 16, 2: 40, 3: 37, 4: 6, 5: 1}, [("1", 16), ("2", 40), ("3 to 5", 44)]),
        ({0: 1, 1: 30, 2: 4, 3: 30}, [("0 to 1", 31), ("2 to 3", 34)]),
        ({1: 4, 2: 4}, [("1 to 2", 8)]),
    ],
    ids=["none", "one", "enough", "tail", "both ends", "too few"],
)
def test_merged_numbers(counts: Mapping[int, int], groups: list[tuple[str, int]]) -> None:
    assert merged_numbers(counts) == groups
    assert len(groups) < 2 or min(n for _, n in groups) >= SMALL


@pytest.mark.parametrize(
    ("n", "of", "words"),
    [(0, 100, "under 10 %"), (9, 100, "under 10 %"), (10, 100, "10 to 25 %"), (49, 100, "25 to 50 %"),
     (74, 100, "50 to 75 %"), (100, 100, "75 % or more"), (10, 49, "not shown")],
)  # fmt: skip
def test_bands(n: int, of: int, words: str) -> None:
    assert band(n, of) == words
