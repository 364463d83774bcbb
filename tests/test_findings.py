"""findings: vocabularies against the papers."""

from __future__ import annotations

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.findings import (
    CHESTX_DET_FINDINGS,
    CHEXLOCALIZE_FINDINGS,
    GRID_STUDY_FINDINGS,
    MS_CXR_FINDINGS,
    NIH_BOX_FINDINGS,
    PADCHEST_GR_FINDINGS,
    PADCHEST_GR_LABELS,
    PADCHEST_OTHER_LABELS,
    REVEAL_LABELS,
    REVEAL_TERMS,
    RSNA_FINDINGS,
    SIIM_FINDINGS,
    VINBIGDATA_FINDINGS,
    VINDR_CXR_FINDINGS,
    VINDR_GLOBAL_LABELS,
    canonical_finding,
    nearest_names,
)

BOX_VOCABULARIES = (
    NIH_BOX_FINDINGS,
    MS_CXR_FINDINGS,
    RSNA_FINDINGS,
    SIIM_FINDINGS,
    VINDR_CXR_FINDINGS,
    PADCHEST_GR_FINDINGS,
)


def test_sizes_of_the_vocabularies() -> None:
    assert [len(v) for v in (CHEXLOCALIZE_FINDINGS, GRID_STUDY_FINDINGS, REVEAL_LABELS, CHESTX_DET_FINDINGS)] == [
        10,
        9,
        12,
        13,
    ]


def test_sizes_of_the_vocabularies_of_box_sources() -> None:
    # 8 boxed classes (Wang 2017), 8 categories of MS-CXR, one finding each of the two challenges, and VinDr-CXR's
    # "22 local labels and 6 global labels" (Nguyen 2022), of which its Kaggle edition has classes 0 to 13
    sizes = [len(v) for v in BOX_VOCABULARIES[:5]]
    assert sizes == [8, 8, 1, 1, 22]
    assert len(VINDR_GLOBAL_LABELS) == 6
    assert len(VINBIGDATA_FINDINGS) == 14
    assert set(VINBIGDATA_FINDINGS) < set(VINDR_CXR_FINDINGS)
    assert not set(VINDR_GLOBAL_LABELS) & set(VINDR_CXR_FINDINGS)


def test_every_label_of_padchest_is_known_once_or_is_two_findings() -> None:
    grouped = [label for labels in PADCHEST_GR_LABELS.values() for label in labels]
    assert [label for label in set(grouped) if grouped.count(label) > 1] == ["hydropneumothorax"]
    assert not set(grouped) & set(PADCHEST_OTHER_LABELS)
    # "174 different radiographic findings, 19 differential diagnoses" (Bustos 2020)
    assert len(set(grouped) | set(PADCHEST_OTHER_LABELS)) == 174 + 19


def test_no_vocabulary_has_a_name_twice_and_every_benchmark_has_its_own() -> None:
    for benchmark in BENCHMARKS.values():
        folded = [" ".join(name.casefold().split()) for name in benchmark.findings]
        assert len(set(folded)) == len(folded)
    assert {name for name, benchmark in BENCHMARKS.items() if not benchmark.findings} == {
        "rexecution",
        "own-findings",
        "own-labels",
        "own-boxes",
        "own-boxes-detection",
    }
    assert {row.card or name for name, row in BENCHMARKS.items() if row.licence == "open"} == {
        "chestx-det",
        "nih-boxes",
    }


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


@pytest.mark.parametrize("vocabulary", [CHEXLOCALIZE_FINDINGS, REVEAL_LABELS, CHESTX_DET_FINDINGS, *BOX_VOCABULARIES])
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
        ("Infiltrate", NIH_BOX_FINDINGS, "Infiltration"),
        ("Lung Opacity", MS_CXR_FINDINGS, "Lung Opacity"),
        ("lung_opacity", VINDR_CXR_FINDINGS, "Lung Opacity"),
        ("Other disease", VINDR_GLOBAL_LABELS, "Other diseases"),
        ("", CHEXLOCALIZE_FINDINGS, None),
    ],
)
def test_aliases(spelling: str, vocabulary: tuple[str, ...], name: str | None) -> None:
    assert canonical_finding(spelling, vocabulary) == name


def test_nothing_near_is_no_hint() -> None:
    assert nearest_names("zzzz", CHEXLOCALIZE_FINDINGS) == []
