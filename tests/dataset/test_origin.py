"""The origin of a dataset in ``croissant.json``: every required field, taken from the card, nothing invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from reveal_bench.benchmarks import BENCHMARKS, Benchmark
from reveal_bench.dataset.card import card_template, with_card
from reveal_bench.dataset.croissant import render_croissant
from reveal_bench.dataset.origin import PROGRAM_PUBLISHED, describe_origin
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.sources.source import Problem
from tests.conftest import ROOT
from tests.dataset.card_folders import findings_folder, reseal, tasks_folder

# Croissant 1.1, "Dataset-level Information": the table "Required" of the section "schema.org/Dataset", and
# `distribution` of the section "Modified and Added Properties".
REQUIRED = {
    "@context", "@type", "conformsTo", "description", "license", "name", "url", "creator", "datePublished",
    "distribution",
}  # fmt: skip
MAKERS = {"url", "creator", "datePublished"}
"""Facts of a user's own dataset that only its makers know."""
OWN = {"own-findings", "own-labels", "own-boxes", "own-boxes-detection", "rexecution"}


def described(benchmark: Benchmark, *, synthetic: bool) -> dict[str, Any]:
    files = {"manifest/test.parquet": ("0" * 64, 1)}
    document: dict[str, Any] = json.loads(
        render_croissant(benchmark, [], version="1.0.0", synthetic=synthetic, files=files)
    )
    return document


@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_required_field_is_there(name: str, synthetic: bool) -> None:
    document = described(BENCHMARKS[name], synthetic=synthetic)
    missing = {field for field in REQUIRED if not document.get(field)}
    assert missing == (MAKERS if name in OWN and not synthetic else set())


def test_a_source_is_described_as_its_card_has_it() -> None:
    document = described(BENCHMARKS["ms-cxr"], synthetic=False)
    assert document["url"] == "https://physionet.org/content/ms-cxr/"
    assert document["datePublished"] == "2022", "the year of the first work that the card cites"
    assert document["creator"][0] == {
        "@type": "sc:Person", "name": "Benedikt Boecking", "givenName": "Benedikt", "familyName": "Boecking",
    }  # fmt: skip
    assert "others" not in {creator["name"] for creator in document["creator"]}
    assert document["prov:wasDerivedFrom"] == [
        {"@id": "https://physionet.org/content/ms-cxr/"},
        {"@id": "https://physionet.org/content/mimic-cxr-jpg/"},
    ]
    # Croissant 1.1, "Fine-Grained Control with ODRL"; the labels come from duo.csv
    offer = document["usageInfo"]
    assert offer["@type"] == ["CreativeWork", "odrl:Offer"]
    permission = offer["odrl:permission"]
    assert permission["odrl:action"] == {"@id": "duo:0000042", "name": "general research use"}
    (constraint,) = permission["odrl:constraint"]
    assert constraint["odrl:rightOperand"] == {"@id": "duo:0000026", "name": "user specific restriction"}
    assert [rule["odrl:action"]["@id"] for rule in offer["odrl:prohibition"]] == ["odrl:distribute"]
    prefixes = {"duo": "http://purl.obolibrary.org/obo/DUO_", "odrl": "http://www.w3.org/ns/odrl/2/"}
    assert {name: document["@context"][name] for name in prefixes} == prefixes


def test_synthetic_data_are_nobody_elses() -> None:
    document = described(BENCHMARKS["ms-cxr"], synthetic=True)
    assert [creator["name"] for creator in document["creator"]] == ["The reveal-bench authors"]
    assert document.keys().isdisjoint({"usageInfo", "prov:wasDerivedFrom"})
    released = yaml.safe_load((ROOT / "CITATION.cff").read_text()).get("date-released", PROGRAM_PUBLISHED)
    assert str(document["datePublished"]) == str(released)[:4]


def own_card(folder: Path, block: str) -> Benchmark:
    text = card_template(BENCHMARKS["own-findings"])
    start, end = text.index("croissant:"), text.index("extra_gated_prompt")
    path = folder / "card.md"
    path.write_text(text[:start] + block + text[end:])
    return with_card(BENCHMARKS["own-findings"], path)


def test_a_card_of_ones_own_gives_the_facts(tmp_path: Path) -> None:
    card = own_card(
        tmp_path,
        "croissant:\n  url: https://example.org/set\n  datePublished: 2026-05-01\n"
        "  creator: [{name: Example Hospital, type: Organization, url: https://example.org}]\n",
    )
    assert describe_origin(card, synthetic=False) == {
        "url": "https://example.org/set",
        "creator": [{"@type": "sc:Organization", "name": "Example Hospital", "url": "https://example.org"}],
        "datePublished": "2026-05-01",
        "prov:wasDerivedFrom": [{"@id": "https://example.org/set"}],
        "prov:wasGeneratedBy": describe_origin(BENCHMARKS["nih-boxes"], synthetic=False)["prov:wasGeneratedBy"],
    }


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ("croissant: [1]\n", r"card\.md: `croissant` must be a mapping, got \[1\]"),
        ("croissant: {page: x}\n", "`croissant` must only have the fields url, .*, got 'page'"),
        ("croissant: {url: example.org}\n", "`croissant.url` must be an address"),
        ("croissant: {datePublished: May 2026}\n", "`croissant.datePublished` must be a date, YYYY-MM-DD, or a year"),
        ("croissant: {datePublished: '2026-13-01'}\n", "`croissant.datePublished` must be a date"),
        ("croissant: {creator: [{name: A}]}\n", "`croissant.creator` must list .name, type, url."),
        ("croissant: {derivedFrom: ['x']}\n", "`croissant.derivedFrom` must list addresses"),
        ("croissant: {use: {permission: DUO_1}}\n", "`croissant.use` must have `permission` .DUO_0000004"),
        ("croissant: {use: {modifiers: [DUO_0000046]}}\n", "`croissant.use` must have `permission`"),
        (
            "croissant: {use: {permission: DUO_0000042, modifiers: }}\n",
            r"card\.md: `croissant.use` .*'modifiers': None",
        ),
        ("croissant: {use: {permission: DUO_0000042, modifiers: 5}}\n", "`croissant.use` .*'modifiers': 5"),
        ("croissant: {use: {permission: DUO_0000042, modifiers: [[a]]}}\n", r"`croissant.use` .*'modifiers': \[\["),
        ("croissant: {use: {permission: [DUO_0000042]}}\n", r"`croissant.use` .*'permission': \["),
        ("croissant: {use: {permission: }}\n", "`croissant.use` .*'permission': None"),
        ("croissant: {use: {prohibitions: null}}\n", "`croissant.use` .*'prohibitions': None"),
        ("croissant: {use: {prohibitions: {distribute: 1}}}\n", "`croissant.use` .*'prohibitions': {"),
        ("croissant: {creator: [{name: '', type: Person}]}\n", "`croissant.creator` must list .*'name': ''"),
        ("croissant: {datePublished: '２０２６'}\n", "`croissant.datePublished` must be a date, .*'２０２６'"),
        ("croissant: {datePublished: 2026-02-30}\n", r"card\.md: `croissant.datePublished` must .*'2026-02-30'"),
        ("croissant: false\n", "`croissant` must be a mapping, got False"),
    ],
)
def test_a_wrong_fact_is_refused_by_name(tmp_path: Path, block: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        describe_origin(own_card(tmp_path, block), synthetic=False)


def test_validate_names_a_missing_field_and_the_remedy(tmp_path: Path) -> None:
    folder = findings_folder(tmp_path)
    document = json.loads((folder / "croissant.json").read_text())
    del document["url"], document["license"]
    (folder / "croissant.json").write_text(json.dumps(document))
    reseal(folder)
    warnings: list[Problem] = []
    rule = "must exist, as Croissant 1.1 requires"
    problems = validate_folder(folder, load=False, warnings=warnings)
    assert list(map(str, problems)) == [f"croissant.json: `license` {rule}: build the folder again, got None"]
    remedy = "give `url` in the block `croissant` of your card, and build with --card"
    assert list(map(str, warnings)) == [f"croissant.json: `url` {rule}: {remedy}, got None"]


def test_facts_that_only_the_makers_know_are_warnings(tmp_path: Path) -> None:
    warnings: list[Problem] = []
    assert validate_folder(tasks_folder(tmp_path), load=False, warnings=warnings) == []
    assert {warning.field for warning in warnings} == MAKERS
    rule = "must exist, as Croissant 1.1 requires: give `url` in the block `croissant` of your card, and build with"
    assert warnings[0].rule == f"{rule} --card"
