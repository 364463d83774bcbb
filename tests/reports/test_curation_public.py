"""Secrecy of the published page: nothing in it depends on a label of the holdout."""

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
from reveal_bench.curation.tables import Labels, Placed, Sampled, read_table
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.reports.curation import band, make_report, merged_numbers, public_page, shown_values
from reveal_bench.reports.curation_data import Curated, read_curated
from reveal_bench.reports.curation_steps import SMALL, find_stages
from tests.reports import report_folder as made

AO, COPD, HERNIA, MASS = "Airspace opacity", "COPD", "Hiatal hernia", "Lung mass"


@pytest.fixture(scope="module")
def large(curated: CurationFolder) -> Curated:
    """200 and 160 studies instead of thirty, so that there are numbers to show and to hide.

    Released: 120 of airspace opacity alone, 71 with COPD as well, 9 with a hernia alone. Holdout: 87 of lung mass, 73
    of COPD with lung mass. Women are 111 of the released, 83 of the holdout.
    """
    labels: list[tuple[str, Labels]] = [("released", (AO,))] * 120 + [("released", (AO, COPD))] * 71
    labels += [("released", (HERNIA,))] * 9 + [("holdout", (MASS,))] * 87 + [("holdout", (COPD, MASS))] * 73
    placed = [
        Placed(f"study-{i:04d}", f"patient-{i:04d}", own, 3, half, "1.0.0") for i, (half, own) in enumerate(labels)
    ]
    sex = {one.study_id: "F" if i < 111 or 200 <= i < 283 else "M" for i, one in enumerate(placed)}
    return replace(read_curated(curated), placed=placed, demographics={"sex": sex})


@pytest.fixture(scope="module")
def page(large: Curated) -> str:
    """The page that may be published on `large`, with its figures."""
    return public_page(large)


def words_of(page: str) -> str:
    """Return every word of the page's source except its styles."""
    return unescape(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))


def with_other_holdout_labels(curated: Curated, labels: Labels) -> Curated:
    """Return the same curation with other labels of the holdout, and other counts of them."""
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
def test_nothing_depends_on_labels_of_the_holdout(large: Curated, page: str, labels: Labels) -> None:
    assert public_page(with_other_holdout_labels(large, labels)) == page


@pytest.mark.usefixtures("undrawn")
def test_the_page_for_maintainers_depends_on_them(large: Curated) -> None:
    pages = [make_report(one)["index.html"] for one in (large, with_other_holdout_labels(large, (HERNIA,)))]
    assert pages[0] != pages[1]


@pytest.mark.usefixtures("undrawn")
def test_depends_on_the_labels_of_the_released_half(large: Curated) -> None:
    placed = [replace(one, labels=(MASS,)) if one.half == "released" else one for one in large.placed or ()]
    assert public_page(replace(large, placed=placed)) != public_page(large)


@pytest.mark.usefixtures("undrawn")
def test_counts_of_the_holdout_are_nowhere(large: Curated, page: str) -> None:
    index = make_report(large)["index.html"]
    output = set(re.findall(r"(?<![\d.])\d+", re.sub(r"<[^>]*>", " ", words_of(page))))
    for n in ("87", "73", "160"):  # lung mass alone, with COPD, in all
        assert re.search(rf">{n}\b", index)
    assert {"73", "144", "247"} & output == set()  # 71 + 73 with COPD, 87 + 160 label sums
    assert {"191", "71"} <= output  # airspace opacity and COPD of the released half


def test_no_study_patient_or_reader_is_named(curated: CurationFolder) -> None:
    page = words_of(public_page(read_curated(curated)))
    sampled = read_table(curated.path("sample.parquet"), Sampled)
    assert len(sampled) == 60
    for one in sampled:
        assert one.study_id not in page
        assert one.patient_id not in page
    assert not re.search(r"(study|patient)-[a-z]\d", page)
    for reader in made.READERS:
        assert reader not in page
    assert "Reader 3" in page


def test_small_numbers_of_the_released_half_are_not_shown(page: str) -> None:
    page = words_of(page)
    assert f"{HERNIA}: fewer than 10" in page
    assert f"{MASS}: fewer than 10" in page  # none at all looks the same
    assert "1 to 2 findings" not in page
    assert "1 finding: 129; 2 findings: 71" in page  # 120 and 9 have one


@pytest.mark.usefixtures("undrawn")
def test_holdout_comes_in_bands(large: Curated, page: str) -> None:
    output = re.sub(r"<[^>]*>", " ", page).replace("\u00a0", " ")
    assert re.search(r"Male\s+89 \(44", output)
    assert "50 to 75%" in page  # 83 of 160 women
    few = replace(
        large, placed=[one for one in large.placed or () if one.half == "released" or one.study_id < "study-0249"]
    )
    assert "not shown" in public_page(few)


@pytest.mark.usefixtures("undrawn")
def test_rare_values_are_not_named(large: Curated) -> None:
    placed = list(large.placed or ())
    sex = {one.study_id: "other" if i < 3 else "F" for i, one in enumerate(placed)}
    page = words_of(public_page(replace(large, demographics={"sex": sex})))
    assert not re.search(r"<th[^>]*>other</th>", page)
    assert "197" not in re.findall(r"\d+", page)  # would tell of the three


def with_columns(curated: Curated, *names: str) -> Curated:
    """Add a table of facts with these columns, each with one value, "Q. Worth <name>", that all studies share."""
    assert curated.balance is not None
    facts = []
    for name in names:
        one = copy.deepcopy(next(one for one in curated.balance["facts"] if one["name"] == "kvp"))
        category = {**one["categories"][0], "category": f"Q. Worth {name}", "released": 200, "holdout": 160}
        facts.append({**one, "name": name, "categories": [category]})
    return replace(curated, balance={**curated.balance, "facts": facts})


@pytest.mark.usefixtures("undrawn")
def test_columns_that_are_no_acquisition_are_left_out(large: Curated) -> None:
    page = words_of(public_page(with_columns(large, "physician", "Referring physician", "site", "kvp")))
    assert "Q. Worth kvp" in page
    assert "Q. Worth" not in page.replace("Q. Worth kvp", "")
    assert not re.search("physician|site", page, re.IGNORECASE)
    assert "3 other columns of the table of facts: omitted from this page." in page


@pytest.mark.usefixtures("undrawn")
def test_one_column_left_out_is_one(large: Curated) -> None:
    page = words_of(public_page(replace(with_columns(large, "physician"), demographics={})))
    assert "1 other column of the table of facts: omitted from this page." in page
    assert "Nothing is known of patients" not in page
    assert "omitted from this page" not in words_of(public_page(with_columns(large, "kvp")))


@pytest.mark.parametrize(
    "name",
    ["Manufacturer", "model", "Detector Type", "view position", "KVP", "exposure_mAs", "Distance source_to detector",
     "DistanceSourceToPatient", "pixel spacing"],
)  # fmt: skip
@pytest.mark.usefixtures("undrawn")
def test_acquisition_is_shown_however_it_is_written(name: str, large: Curated) -> None:
    page = words_of(public_page(with_columns(large, name)))
    assert f"Q. Worth {name}" in page
    assert "omitted from this page" not in page


def with_counts(curated: Curated, step: str, **changes: Any) -> Curated:
    record = curated.states[step].record
    assert record is not None
    state = replace(curated.states[step], record=replace(record, counts={**record.counts, **changes}))
    return replace(curated, states={**curated.states, step: state})


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("n_selected", "are_told"), [(30, True), (50, True), (51, False), (60, False)])
def test_strata_are_not_told_when_nearly_all_were_selected(
    n_selected: int, are_told: bool, curated: CurationFolder
) -> None:
    """60 were sampled, 20 with 1 label and 40 with 2: less the released half, that is the holdout's."""
    page = words_of(public_page(with_counts(read_curated(curated), "select", selected=n_selected)))
    assert ("1 label: 20" in page) is are_told
    assert ("2 labels: 40" in page) is are_told


def test_strata_are_not_told_before_there_is_a_selection(curated: CurationFolder) -> None:
    sampled = read_curated(curated).counts("sample")
    assert find_stages({"sample": sampled}, is_public=True)[2].lines == ("short of the requested number: 10",)
    assert find_stages({"sample": sampled})[2].lines[0] == "1 label: 20 of 20"


def test_what_was_not_answered_is_not_called_unreadable() -> None:
    counts = {"studies": 9, "patients": 9, "quarantined": 5, "ok": 4, "engine": {"unanswered": 3}}
    assert find_stages({"extract": counts})[0].leaving == (
        ("quarantined: the labels could not be read", 2),
        ("quarantined: the model gave no answer", 3),
    )


@pytest.mark.parametrize(
    ("model", "published_name"),
    [
        ("/data/h1/secret-lab/llama-3", "llama-3"),
        ("/data/secret|lab/llama-3/", "llama-3"),
        ("~/secret/llama-3", "llama-3"),
        ("./secret/llama-3", "llama-3"),
        ("C:\\secret\\llama-3.gguf", "llama-3.gguf"),
        ("models/secret/llama-3", "llama-3"),
        ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B"),
        ("phantom-1", "phantom-1"),
        ("ft:phantom:x", "ft:phantom:x"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_models_are_named_without_a_path(model: str, published_name: str, curated: CurationFolder) -> None:
    known = read_curated(curated)
    state = known.states["extract"]
    assert state.record is not None
    settings = {**state.record.settings, "engine": f"{model}|calls:two|prompts:1|settings:0123abcd"}
    state = replace(state, record=replace(state.record, settings=settings))
    page = words_of(public_page(replace(known, states={**known.states, "extract": state})))
    assert f"extracted from the reports by {published_name}|calls:two|prompts:1|settings:0123abcd:" in page
    assert "secret" not in page


@pytest.mark.usefixtures("undrawn")
def test_before_there_are_halves(curated: CurationFolder) -> None:
    page = words_of(public_page(replace(read_curated(curated), placed=None, balance=None)))
    assert "The studies have not been divided into halves yet." in page


@pytest.mark.parametrize(
    ("counts", "values", "rest"),
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
def test_shown_values(counts: Mapping[str, int], values: list[str], rest: int) -> None:
    assert shown_values(counts) == (values, rest)


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
    [(0, 100, "under 10%"), (9, 100, "under 10%"), (10, 100, "10 to 25%"), (49, 100, "25 to 50%"),
     (74, 100, "50 to 75%"), (100, 100, "75% or more"), (10, 49, "not shown")],
)  # fmt: skip
def test_bands(n: int, of: int, words: str) -> None:
    assert band(n, of) == words
