"""Spellings met in real headers (view counts of the REVEAL-CXR supplement, the OpenI header table) -> one word."""

from __future__ import annotations

import pytest

from reveal_bench.dicom.header import canonical_manufacturer, canonical_model, canonical_view


@pytest.mark.parametrize(
    ("raw", "view"),
    [
        ("AP", "AP"), ("PA", "PA"), ("pa ", "PA"), ("POSTERO ANTERIOR", "PA"), ("POSTERO_ANTERIOR", "PA"),
        ("Antero-Posterior", "AP"), ("LL", "LATERAL"), ("RL", "LATERAL"), ("LATERAL", "LATERAL"),
        ("LARGE LATERAL", "LATERAL"), ("LAT", "LATERAL"), ("", "UNKNOWN"), (None, "UNKNOWN"),
        # not what they sound like: decubitus and oblique films
        ("LLD", "UNKNOWN"), ("LATERAL DECUBITUS", "UNKNOWN"), ("LLO", "UNKNOWN"), ("RPO", "UNKNOWN"),
        ("LAO", "UNKNOWN"),
        ("AP LORDOTIC", "UNKNOWN"), ("FRONTAL", "UNKNOWN"), ("APA", "UNKNOWN"), ("X", "UNKNOWN"),
    ],
)  # fmt: skip
def test_view_position(raw: str | None, view: str) -> None:
    assert canonical_view(raw) == view


@pytest.mark.parametrize(
    ("position", "codes", "orientation", "view"),
    [
        ("", ["R-10206"], [], "AP"),
        ("", ["R-10214"], [], "PA"),
        ("", ["272479007"], [], "PA"),
        ("", ["399173006"], ["L", "F"], "LATERAL"),
        ("PA", ["R-10206"], ["A", "F"], "PA"),  # the position decides
        ("OBLIQUE", ["399348003"], [], "AP"),
        ("", ["R-10206", "R-10214"], [], "UNKNOWN"),  # two views
        ("", ["399135007"], ["A", "F"], "UNKNOWN"),  # left anterior oblique
        ("", [], ["A", "F"], "LATERAL"),
        ("", [], ["P", "F"], "LATERAL"),
        ("", [], ["L", "F"], "UNKNOWN"),  # frontal: AP and PA are hung alike
        ("", [], ["PL", "F"], "UNKNOWN"),  # oblique
        ("", [], ["A", "R"], "UNKNOWN"),
        ("", [], ["A"], "UNKNOWN"),
        ("LLD", [], ["A", "F"], "UNKNOWN"),  # a position that says something else
    ],
)
def test_codes_and_orientation(position: str, codes: list[str], orientation: list[str], view: str) -> None:
    assert canonical_view(position, codes, orientation) == view


def test_codes_are_those_of_the_standard() -> None:
    """Against pydicom's copy of PS3.16 CID 4010 and its SNOMED mapping."""
    from pydicom.sr.codedict import codes

    views = codes.cid4010
    for concept, view in (
        (views.AnteroPosterior, "AP"),
        (views.PosteroAnterior, "PA"),
        (views.LateralProjection, "LATERAL"),
        (views.LeftLateral, "LATERAL"),
        (views.RightLateral, "LATERAL"),
        (views.LeftAnteriorOblique, "UNKNOWN"),
        (views.Frontal, "UNKNOWN"),
    ):
        assert canonical_view(None, [concept.value]) == view, concept


@pytest.mark.parametrize(
    ("house", "spellings"),
    [
        ("CARESTREAM", ["CARESTREAM", "Carestream", "CARESTREAM HEALTH", "Carestream Health", " carestream  health "]),
        ("FUJIFILM", ["FUJI PHOTO FILM CO. LTD.", "FUJI PHOTO FILM Co., ltd.", "FUJIFILM Corporation", "FujiFilm"]),
        ("GE", ["GE Healthcare", "GE MEDICAL SYSTEMS", '"GE Healthcare"', "General Electric Medical Systems"]),
        ("PHILIPS", ["Philips Medical Systems", "Philips", "PHILIPS MEDICAL SYSTEMS, DMC GmbH"]),
        ("SIEMENS", ["SIEMENS", "Siemens Healthineers", "Siemens Healthcare GmbH"]),
        ("CANON", ["Canon Inc.", "CANON", "Canon Medical Systems"]),
        ("AGFA", ["Agfa", "AGFA HealthCare N.V.", "Agfa-Gevaert AG"]),
        ("KODAK", ["KODAK", "Eastman Kodak Company"]),
        ("KONICA MINOLTA", ["KONICA MINOLTA", "Konica Minolta, Inc."]),
        ("SAMSUNG", ["Samsung Electronics", "SAMSUNG"]),
        ("ACME RAYS", ["Acme Rays Inc.", "ACME RAYS"]),
        ("IMAGING", ["Imaging Systems"]),  # never stripped to nothing
    ],
)
def test_manufacturers(house: str, spellings: list[str]) -> None:
    assert {canonical_manufacturer(spelling) for spelling in spellings} == {house}


def test_models_differ_by_case_and_quotes_only() -> None:
    assert {canonical_model(raw) for raw in ("DRX-REVOLUTION", "DRX-Revolution", '"DRX-Revolution" ')} == {
        "DRX-REVOLUTION"
    }
    assert canonical_model("DRX-1") != canonical_model("DRX 1")


@pytest.mark.parametrize("nothing", [None, "", "  ", '""'])
def test_nothing_stays_nothing(nothing: str | None) -> None:
    assert canonical_manufacturer(nothing) is None
    assert canonical_model(nothing) is None
