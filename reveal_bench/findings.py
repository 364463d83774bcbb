"""Vocabularies of the benchmarks, as data.

Conventions
-----------
A *finding* (or pathology, or label) is named by one canonical string, exactly as its benchmark prints it.
:func:`canonical_finding` turns a tolerated spelling into the canonical one; it never guesses.

Sources
-------
* CheXlocalize: Saporta et al. 2022 (paper 002), Table 1; spelling of the released JSON files.
* REVEAL-CXR: arXiv 2601.15129 (paper 004), Table S1: definitions and RadLex / SNOMED CT / LOINC codes. Where the
  table prints no code (pleural effusion, pleural thickening, pneumothorax are missing from it), there is none here.
* ChestX-Det: labels of the annotation file of Deepwise-AILab/ChestX-Det-Dataset.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "CHESTX_DET_FINDINGS",
    "CHEXLOCALIZE_FINDINGS",
    "GRID_STUDY_FINDINGS",
    "REVEAL_LABELS",
    "REVEAL_TERMS",
    "LabelTerm",
    "canonical_finding",
    "nearest_names",
]

CHEXLOCALIZE_FINDINGS: tuple[str, ...] = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Lesion",
    "Airspace Opacity",
    "Edema",
    "Consolidation",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Support Devices",
)
"""The ten findings of paper 002, in the order of its published code."""

GRID_STUDY_FINDINGS: tuple[str, ...] = tuple(name for name in CHEXLOCALIZE_FINDINGS if name != "Support Devices")
"""The nine pathologies of paper 000 (section 3.1): all of the above but Support Devices."""

CHESTX_DET_FINDINGS: tuple[str, ...] = (
    "Atelectasis",
    "Calcification",
    "Cardiomegaly",
    "Consolidation",
    "Diffuse Nodule",
    "Effusion",
    "Emphysema",
    "Fibrosis",
    "Fracture",
    "Mass",
    "Nodule",
    "Pleural Thickening",
    "Pneumothorax",
)
"""The thirteen classes of ChestX-Det, alphabetical."""


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """One REVEAL-CXR label with its definition and codes (paper 004, Table S1); ``None`` where none is printed."""

    name: str
    definition: str | None = None
    radlex: str | None = None
    snomed: str | None = None
    loinc: str | None = None


REVEAL_TERMS: tuple[LabelTerm, ...] = (
    LabelTerm(
        "Airspace opacity",
        "Lung density that hides the vessels because fluid, pus, blood or cells fill the alveoli",
        "RID28663",
        "301857004",
        "LP38249-9",
    ),
    LabelTerm(
        "Aneurysm",
        "Focal widening of an artery or the aorta to more than 1.5 times its normal diameter",
        "RID28677",
        "233985008",
        "LP38233-3",
    ),
    LabelTerm(
        "Cardiomegaly",
        "Enlarged heart shadow: cardiothoracic ratio above 0.5 on a PA film",
        "RID35639",
        "8186001",
        "LP38234-1",
    ),
    LabelTerm(
        "COPD",
        "Chronic airflow limitation with its radiographic signs: hyperinflation, flat diaphragm, sparse vessels",
        "RID43230",
        "13645005",
        "LP38235-8",
    ),
    LabelTerm(
        "Hiatal hernia",
        "Stomach protruding into the thorax through the oesophageal hiatus",
        "RID5671",
        "39839004",
        "LP38237-4",
    ),
    LabelTerm(
        "Interstitial opacity",
        "Linear, reticular or reticulonodular densities from a thickened or fibrotic interstitium",
        "RID28664",
        "301858009",
        "LP38250-7",
    ),
    LabelTerm("Lung mass", "Focal opacity in the lung larger than 3 cm", "RID43235", "126713003", "LP38248-1"),
    LabelTerm(
        "Lung nodule", "Round or irregular opacity in the lung of at most 3 cm", "RID12780", "39607008", "LP38246-5"
    ),
    LabelTerm(
        "Lymphadenopathy",
        "Enlarged hilar or mediastinal lymph nodes, usually above 1 cm in the short axis",
        "RID5694",
        "30746006",
        "LP38238-2",
    ),
    LabelTerm("Pleural effusion"),
    LabelTerm("Pleural thickening"),
    LabelTerm("Pneumothorax"),
)

REVEAL_LABELS: tuple[str, ...] = tuple(term.name for term in REVEAL_TERMS)
"""The twelve labels of paper 004, alphabetical."""

_ALIASES = {
    "lung opacity": "airspace opacity",  # CheXpert's CSV and CheXlocalize's JSON name the same finding differently
    "enlarged cardiom": "enlarged cardiomediastinum",
    "enlarged cardiomeiastinum": "enlarged cardiomediastinum",
    "effusion": "pleural effusion",
    "support device": "support devices",
    "chronic obstructive pulmonary disease": "copd",
}


def _folded(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split()).rstrip(".")


def canonical_finding(name: str, vocabulary: Iterable[str]) -> str | None:
    """The canonical spelling of `name` in `vocabulary`, or None when it is not one of its findings.

    Case, spaces, underscores and hyphens do not matter, and the alias table (such as "Lung Opacity" for
    "Airspace Opacity") applies when the name itself is unknown.

    Examples
    --------
    >>> canonical_finding("lung_opacity", CHEXLOCALIZE_FINDINGS)
    'Airspace Opacity'
    >>> canonical_finding("Effusion", CHESTX_DET_FINDINGS)
    'Effusion'
    >>> canonical_finding("Pneumonia", CHEXLOCALIZE_FINDINGS) is None
    True
    """
    by_folded = {_folded(known): known for known in vocabulary}
    folded = _folded(name)
    return by_folded.get(folded) or by_folded.get(_ALIASES.get(folded, ""))


def nearest_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Up to `most` members of `known` that look like `name`, best first, for the hint of an error message.

    Examples
    --------
    >>> nearest_names("Cardiomegally", CHEXLOCALIZE_FINDINGS)
    ['Cardiomegaly']
    """
    by_folded = {_folded(entry): entry for entry in known}
    return [by_folded[match] for match in difflib.get_close_matches(_folded(name), list(by_folded), n=most)]
