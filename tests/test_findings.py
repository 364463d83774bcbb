"""findings: vocabularies against the papers."""

from __future__ import annotations

import pytest

from reveal_bench.findings import (
    CHESTX_DET_FINDINGS,
    CHEXLOCALIZE_FINDINGS,
    GRID_STUDY_FINDINGS,
    REVEAL_LABELS,
    REVEAL_TERMS,
    canonical_finding,
    nearest_names,
)


def test_sizes_of_the_vocabularies() -> None:
    assert [len(v) for v in (CHEXLOCALIZE_FINDINGS, GRID_STUDY_FINDINGS, REVEAL_LABELS, CHESTX_DET_FINDINGS)] == [
        10,
        9,
        12,
        13,
    ]


def test_codes_stand_where_table_s1_prints_them_and_nowhere_else() -> None:
    coded = {term.name for term in REVEAL_TERMS if term.radlex or term.snomed or term.loinc}
    assert set(REVEAL_LABELS) - coded == {"Pleural effusion", "Pleural thickening", "Pneumothorax"}
    by_name = {term.name: term for term in REVEAL_TERMS}
    # three rows typed from paper 004, Table S1
    assert (by_name["COPD"].radlex, by_name["COPD"].snomed, by_name["COPD"].loinc) == (
        "RID43230",
        "13645005",
        "LP38235-8",
    )
    assert by_name["Lung nodule"].radlex == "RID12780"
    assert by_name["Hiatal hernia"].snomed == "39839004"


@pytest.mark.parametrize("vocabulary", [CHEXLOCALIZE_FINDINGS, REVEAL_LABELS, CHESTX_DET_FINDINGS])
def test_every_name_is_canonical_in_any_case(vocabulary: tuple[str, ...]) -> None:
    for name in vocabulary:
        assert canonical_finding(name, vocabulary) == name
        assert canonical_finding(f"  {name.upper().replace(' ', '_')} ", vocabulary) == name


@pytest.mark.parametrize(
    ("spelling", "vocabulary", "name"),
    [
        ("Lung Opacity", CHEXLOCALIZE_FINDINGS, "Airspace Opacity"),
        ("Enlarged Cardiom.", CHEXLOCALIZE_FINDINGS, "Enlarged Cardiomediastinum"),
        ("Effusion", CHEXLOCALIZE_FINDINGS, "Pleural Effusion"),
        ("Effusion", CHESTX_DET_FINDINGS, "Effusion"),
        ("Lung Opacity", CHESTX_DET_FINDINGS, None),
        ("", CHEXLOCALIZE_FINDINGS, None),
    ],
)
def test_aliases(spelling: str, vocabulary: tuple[str, ...], name: str | None) -> None:
    assert canonical_finding(spelling, vocabulary) == name


def test_nothing_near_is_no_hint() -> None:
    assert nearest_names("zzzz", CHEXLOCALIZE_FINDINGS) == []
