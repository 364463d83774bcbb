"""Findings of the benchmarks, with synonyms and codes, and recognition of their spellings.

Conventions
-----------
A *finding* (also called pathology or label) has one canonical name, exactly as its benchmark prints it.
:func:`canonical_finding` converts accepted spellings to this name; it never guesses.

Sources
-------
* CheXlocalize: Saporta et al. 2022 (paper 002), Table 1; spelling of the released JSON files.
* CheXpert: the fourteen observations of its tables of labels (Irvin et al. 2019), in their order.
* REVEAL-CXR: arXiv 2601.15129 (paper 004), Table S1: definitions and RadLex / SNOMED CT / LOINC codes. Findings without
  a code in that table (pleural effusion, pleural thickening, pneumothorax) have no code here either.
* ChestX-Det: labels of the annotation file of Deepwise-AILab/ChestX-Det-Dataset.
* NIH boxes: labels of ``BBox_List_2017.csv``, with "Infiltrate" spelt as in the collection's own list of 14 labels.
* MS-CXR, RSNA Pneumonia, SIIM-ACR: categories of the annotation files.
* VinDr-CXR: the 22 local labels, which are drawn as boxes (Nguyen et al. 2022).
* PadChest-GR: groups of PadChest's labels (Bustos et al. 2020); the grouping is this project's, see
  :data:`PADCHEST_GR_LABELS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self

from reveal_bench.arguments import ArgumentError

FindingGroups = Mapping[str, Sequence[str]]
"""Name of a group -> its findings."""
_RESERVED = ("macro", "all")  # names of averages in tables of scores

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
"""The nine pathologies of paper 000 (section 3.1): CHEXLOCALIZE_FINDINGS without Support Devices."""

CHESTX_DET_FINDINGS: tuple[str, ...] = (
    "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "Diffuse Nodule", "Effusion", "Emphysema",
    "Fibrosis", "Fracture", "Mass", "Nodule", "Pleural Thickening", "Pneumothorax",
)  # fmt: skip
"""The thirteen classes of ChestX-Det, alphabetical."""

NIH_BOX_FINDINGS: tuple[str, ...] = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
)
"""The eight classes with boxes in NIH ChestX-ray14."""

MS_CXR_FINDINGS: tuple[str, ...] = (
    "Atelectasis",
    "Cardiomegaly",
    "Consolidation",
    "Edema",
    "Lung Opacity",
    "Pleural Effusion",
    "Pneumonia",
    "Pneumothorax",
)
"""The eight categories of MS-CXR."""

RSNA_FINDINGS: tuple[str, ...] = ("Lung Opacity",)
"""The finding of the RSNA pneumonia challenge: opacities suspicious of pneumonia."""

SIIM_FINDINGS: tuple[str, ...] = ("Pneumothorax",)

VINDR_CXR_FINDINGS: tuple[str, ...] = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Clavicle fracture", "Consolidation", "Edema",
    "Emphysema", "Enlarged PA", "ILD", "Infiltration", "Lung Opacity", "Lung cavity", "Lung cyst", "Mediastinal shift",
    "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax", "Pulmonary fibrosis",
    "Rib fracture",
)  # fmt: skip
"""The 22 local labels of VinDr-CXR, alphabetical."""

VINDR_GLOBAL_LABELS: tuple[str, ...] = (
    "COPD",
    "Lung tumor",
    "Pneumonia",
    "Tuberculosis",
    "Other diseases",
    "No finding",
)
"""The 6 labels of VinDr-CXR that describe the whole image and have no location."""

VINBIGDATA_FINDINGS: tuple[str, ...] = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis",
)  # fmt: skip
"""Classes 0 to 13 of the Kaggle edition of VinDr-CXR, whose class 14 is "No finding"."""

PADCHEST_GR_LABELS: dict[str, tuple[str, ...]] = {
    "Adenopathy": ("adenopathy",),
    "Alveolar pattern": ("alveolar pattern", "consolidation", "air bronchogram"),
    "Aortic atheromatosis": ("aortic atheromatosis",),
    "Aortic elongation": (
        "aortic elongation", "ascendent aortic elongation", "descendent aortic elongation", "supra aortic elongation",
    ),
    "Aortic enlargement": ("aortic button enlargement", "aortic aneurysm"),
    "Artificial heart valve": (
        "artificial heart valve", "artificial aortic heart valve", "artificial mitral heart valve",
    ),
    "Atelectasis": (
        "atelectasis", "atelectasis basal", "laminar atelectasis", "lobar atelectasis", "round atelectasis",
        "segmental atelectasis", "total atelectasis",
    ),
    "Azygos lobe": ("azygos lobe",),
    "Bone lesion": ("sclerotic bone lesion", "blastic bone lesion", "lytic bone lesion", "bone metastasis"),
    "Bronchiectasis": ("bronchiectasis",),
    "Calcification": (
        "calcified densities", "calcified adenopathy", "calcified mediastinal adenopathy", "calcified fibroadenoma",
        "heart valve calcified",
    ),
    "Cardiomegaly": ("cardiomegaly",),
    "Cavitation": ("cavitation", "abscess", "cyst", "air fluid level"),
    "Central venous catheter": (
        "central venous catheter", "central venous catheter via jugular vein",
        "central venous catheter via subclavian vein", "central venous catheter via umbilical vein",
        "reservoir central venous catheter",
    ),
    "Chest drain tube": ("chest drain tube",),
    "Costophrenic angle blunting": ("costophrenic angle blunting",),
    "Edema": ("pulmonary edema", "kerley lines", "vascular redistribution", "central vascular redistribution"),
    "Electrical device": ("electrical device", "single chamber device", "dual chamber device", "pacemaker", "dai"),
    "Emphysema": ("emphysema", "bullas"),
    "Endotracheal tube": ("endotracheal tube", "tracheostomy tube"),
    "Fibrosis": ("pulmonary fibrosis", "fibrotic band", "asbestosis signs", "post radiotherapy changes"),
    "Fissure thickening": ("fissure thickening", "major fissure thickening", "minor fissure thickening"),
    "Fracture": ("fracture", "rib fracture", "callus rib fracture", "clavicle fracture", "humeral fracture"),
    "Goiter": ("goiter",),
    "Granuloma": ("granuloma", "calcified granuloma"),
    "Hemidiaphragm elevation": ("hemidiaphragm elevation", "diaphragmatic eventration"),
    "Hiatal hernia": ("hiatal hernia",),
    "Hilar enlargement": (
        "hilar enlargement", "vascular hilar enlargement", "hilar congestion", "pulmonary artery enlargement",
    ),
    "Hyperinflation": ("hyperinflated lung", "air trapping", "flattened diaphragm"),
    "Increased density": ("increased density",),
    "Infiltrates": ("infiltrates",),
    "Interstitial pattern": (
        "interstitial pattern", "reticular interstitial pattern", "reticulonodular interstitial pattern",
        "ground glass pattern", "miliary opacities", "bronchovascular markings",
    ),
    "Kyphosis": ("kyphosis",),
    "Mass": ("mass", "pulmonary mass", "pleural mass", "mediastinal mass", "breast mass", "soft tissue mass"),
    "Mediastinal enlargement": (
        "mediastinal enlargement", "superior mediastinal enlargement", "mediastinic lipomatosis",
    ),
    "Mediastinal shift": ("mediastinal shift", "tracheal shift", "azygoesophageal recess shift"),
    "NSG tube": ("NSG tube",),
    "Nodule": ("nodule", "multiple nodules", "lung metastasis"),
    "Osteosynthesis material": ("osteosynthesis material", "bone cement"),
    "Pleural effusion": (
        "pleural effusion", "loculated pleural effusion", "loculated fissural effusion", "empyema",
        "hydropneumothorax",
    ),
    "Pleural thickening": (
        "pleural thickening", "apical pleural thickening", "calcified pleural thickening", "pleural plaques",
        "calcified pleural plaques",
    ),
    "Pneumonia": ("pneumonia", "atypical pneumonia"),
    "Pneumothorax": ("pneumothorax", "hydropneumothorax"),
    "Prosthesis": ("prosthesis", "humeral prosthesis", "mammary prosthesis", "endoprosthesis", "aortic endoprosthesis"),
    "Pseudonodule": ("pseudonodule", "nipple shadow", "end on vessel"),
    "Scoliosis": ("scoliosis",),
    "Sternotomy": ("sternotomy",),
    "Subcutaneous emphysema": ("subcutaneous emphysema",),
    "Suture material": ("suture material", "metal"),
    "Tuberculosis": ("tuberculosis", "tuberculosis sequelae"),
    "Vertebral compression": ("vertebral compression", "vertebral anterior compression", "vertebral fracture"),
    "Vertebral degenerative changes": ("vertebral degenerative changes", "axial hyperostosis"),
    "Volume loss": ("volume loss", "hypoexpansion", "hypoexpansion basal"),
}  # fmt: skip
"""Finding -> labels of PadChest that count as this finding.

A finding is a PadChest label for something that has a location in a frontal image, together with the labels for its
subtypes (a laminar atelectasis is an atelectasis). "hydropneumothorax" counts as two findings.
"""

PADCHEST_GR_FINDINGS: tuple[str, ...] = tuple(PADCHEST_GR_LABELS)

PADCHEST_OTHER_LABELS: tuple[str, ...] = (
    "COPD signs", "Chilaiditi sign", "abnormal foreign body", "catheter", "cervical rib", "chronic changes",
    "costochondral junction hypertrophy", "dextrocardia", "double J stent", "esophagic dilatation", "exclude",
    "external foreign body", "gastrostomy tube", "gynecomastia", "heart insufficiency", "lepidic adenocarcinoma",
    "lipomatosis", "lung vascular paucity", "lymphangitis carcinomatosa", "mastectomy", "nephrostomy tube",
    "non axial articular degenerative changes", "normal", "obesity", "osteopenia", "osteoporosis", "pectum carinatum",
    "pectum excavatum", "pericardial effusion", "pneumomediastinum", "pneumoperitoneo", "pulmonary artery hypertension",
    "pulmonary hypertension", "pulmonary venous hypertension", "respiratory distress", "right sided aortic arch",
    "sternoclavicular junction hypertrophy", "subacromial space narrowing", "suboptimal study", "surgery",
    "surgery breast", "surgery heart", "surgery humeral", "surgery lung", "surgery neck", "thoracic cage deformation",
    "unchanged", "ventriculoperitoneal drain tube",
)  # fmt: skip
"""PadChest labels that are not findings here: they describe the whole study, have no location, or are too rare."""


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """A REVEAL-CXR label with its definition and codes (paper 004, Table S1); a code that the table lacks is None."""

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

CHEXPERT_LABELS: tuple[str, ...] = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation",
    "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices",
)  # fmt: skip
"""The fourteen labels of CheXpert, in the order of the columns of its tables."""

REVEAL_LABELS: tuple[str, ...] = tuple(term.name for term in REVEAL_TERMS)
"""The twelve labels of paper 004, alphabetical."""

_ALIASES = {
    "lung opacity": "airspace opacity",  # CheXpert's CSV and CheXlocalize's JSON name the same finding differently
    "enlarged cardiom": "enlarged cardiomediastinum",
    "enlarged cardiomeiastinum": "enlarged cardiomediastinum",
    "effusion": "pleural effusion",
    "infiltrate": "infiltration",  # NIH's list of boxes and its list of labels differ
    "other disease": "other diseases",  # VinDr-CXR's test and training labels differ
    "support device": "support devices",
    "chronic obstructive pulmonary disease": "copd",
    "hiatus hernia": "hiatal hernia",
    "ptx": "pneumothorax",
}


def _folded(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split()).rstrip(".")


@lru_cache(maxsize=64)
def _by_folded(vocabulary: tuple[str, ...]) -> dict[str, str]:
    return {_folded(known): known for known in vocabulary}


class Vocabulary(tuple[str, ...]):
    """Findings of a user's own dataset, in the order of tables, with synonyms.

    Attributes
    ----------
    terms : dict from finding to ``{"synonyms": [other names], "stands_alone": True}``, with both keys optional; a
        finding that stands alone, such as "No finding", excludes all others
    synonyms : dict from a folded synonym to its finding
    alone : findings that exclude all others

    Examples
    --------
    >>> own = Vocabulary.of(["Pneumothorax", "No finding"], {"Pneumothorax": {"synonyms": ["PTX"]}})
    >>> own, canonical_finding("ptx", own)
    (('Pneumothorax', 'No finding'), 'Pneumothorax')
    """

    terms: Mapping[str, Mapping[str, Any]] = {}
    synonyms: Mapping[str, str] = {}
    alone: frozenset[str] = frozenset()

    @classmethod
    def of(cls, findings: Iterable[str], terms: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return a vocabulary of `findings`, with `terms` as in the attribute.

        Raises
        ------
        ValueError
            If a key of `terms` is not a finding, or a name is repeated.
        """
        made = cls(findings)
        if unknown := [name for name in terms if name not in made]:
            raise ArgumentError("terms", "must have findings as keys", hint(unknown[0], made))
        means: dict[str, str] = {}
        for name, finding in ((name, f) for f in made for name in (f, *terms.get(f, {}).get("synonyms", ()))):
            if _folded(name) in means:
                raise ArgumentError("findings", "must have different names", f"{name!r} again")
            means[_folded(name)] = finding
        made.terms, made.synonyms = terms, means
        made.alone = frozenset(name for name, term in terms.items() if term.get("stands_alone"))
        return made


def select_names(vocabulary: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the findings of `vocabulary` in `names`, in its order, with their terms.

    Examples
    --------
    >>> own = Vocabulary.of(["Pneumothorax", "No finding"], {"Pneumothorax": {"synonyms": ["PTX"]}})
    >>> canonical_finding("ptx", select_names(own, {"Pneumothorax"}))
    'Pneumothorax'
    """
    chosen = tuple(finding for finding in vocabulary if finding in names)
    if not isinstance(vocabulary, Vocabulary):
        return chosen
    return Vocabulary.of(chosen, {name: term for name, term in vocabulary.terms.items() if name in names})


def terms_of(vocabulary: Iterable[str]) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """Return ``{"terms": ...}`` for a vocabulary with terms, to be stored next to its findings; else {}."""
    return {"terms": vocabulary.terms} if isinstance(vocabulary, Vocabulary) and vocabulary.terms else {}


def contradicting_finding(vocabulary: Iterable[str]) -> frozenset[str]:
    """Return the findings of `vocabulary` that exclude all others; empty without terms."""
    return vocabulary.alone if isinstance(vocabulary, Vocabulary) else frozenset()


def conflict(findings: Iterable[str], vocabulary: Iterable[str]) -> str | None:
    """Return a finding that excludes all others (by `vocabulary`) although `findings` contains others, or None."""
    names = set(findings)
    return min(names & contradicting_finding(vocabulary), default=None) if len(names) > 1 else None


def canonical_finding(name: str, vocabulary: Iterable[str]) -> str | None:
    """Return the canonical spelling of `name` in `vocabulary`, or None if `name` is not a finding of the vocabulary.

    Case, spaces, underscores and hyphens do not matter. If the name is unknown, the synonyms of a :class:`Vocabulary`
    and a table of aliases are used (such as "Lung Opacity" for "Airspace Opacity").

    Examples
    --------
    >>> canonical_finding("lung_opacity", CHEXLOCALIZE_FINDINGS)
    'Airspace Opacity'
    >>> canonical_finding("Effusion", CHESTX_DET_FINDINGS)
    'Effusion'
    >>> canonical_finding("Pneumonia", CHEXLOCALIZE_FINDINGS) is None
    True
    """
    by_folded, folded = _by_folded(tuple(vocabulary)), _folded(name)
    synonyms = vocabulary.synonyms if isinstance(vocabulary, Vocabulary) else {}
    return by_folded.get(folded) or synonyms.get(folded) or by_folded.get(_ALIASES.get(folded, ""))


def check_finding_groups(groups: Mapping[str, Any], findings: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return a dict from group name to canonical findings of the group, in the order of `findings`.

    Raises
    ------
    ArgumentError
        If the name of a group is reserved, or a group is empty, has an unknown finding, or has a finding twice.
    """
    if not isinstance(groups, Mapping):
        raise ArgumentError("finding_groups", "must map names to lists of findings", repr(groups))
    checked = {}
    for name, members in groups.items():
        where = f"finding_groups[{name!r}]"
        if not isinstance(name, str) or not name.strip() or name in (*_RESERVED, *findings):
            raise ArgumentError(
                "finding_groups", "must have names that are neither findings nor 'macro' or 'all'", name
            )
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            raise ArgumentError("finding_groups", f"must have a non-empty list of findings for {name!r}", repr(members))
        known = {member: canonical_finding(member, findings) for member in map(str, members)}
        if unknown := [member for member, finding in known.items() if finding is None]:
            raise ValueError(
                f"`{where}` must only have findings of the benchmark ({', '.join(findings)}), got {unknown[0]!r}"
            )
        if len(set(known.values())) < len(members):
            raise ValueError(f"`{where}` must name each finding once, got {list(members)}")
        checked[name] = tuple(finding for finding in findings if finding in known.values())
    return checked


@dataclass(frozen=True, slots=True)
class LabelPolicy:
    """Meaning of blank and uncertain (-1) cells in a table of labels; None if it is not stated.

    Attributes
    ----------
    blank : {"missing", "negative"} or None
    uncertain : {"missing", "positive", "negative"} or None
    """

    blank: Literal["missing", "negative"] | None = None
    uncertain: Literal["missing", "positive", "negative"] | None = None

    def value(self, text: str, got: str | None = None) -> float | None:
        """Return the value of a label cell: 1 present, 0 absent, NaN missing; None if `text` is no label.

        Raises
        ------
        ArgumentError
            If the meaning of a blank or uncertain cell is not stated; the message states what it `got`.

        Examples
        --------
        >>> policy = LabelPolicy(blank="negative", uncertain="missing")
        >>> policy.value("1.0"), policy.value(""), policy.value("-1.0"), policy.value("2")
        (1.0, 0.0, nan, None)
        """
        text = text.strip()
        if text == "":
            if self.blank is None:
                raise ArgumentError("blank", "must state the meaning of blank cells: missing or negative", got)
            return _MEANINGS[self.blank]
        if text in ("-1", "-1.0"):
            if self.uncertain is None:
                rule = "must state the meaning of uncertain cells (-1): missing, positive or negative"
                raise ArgumentError("uncertain", rule)
            return _MEANINGS[self.uncertain]
        return {"0": 0.0, "0.0": 0.0, "1": 1.0, "1.0": 1.0}.get(text)


_MEANINGS = {"missing": float("nan"), "positive": 1.0, "negative": 0.0}


def nearest_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return up to `most` members of `known` that are similar to `name`, the most similar first.

    Examples
    --------
    >>> nearest_names("Cardiomegally", CHEXLOCALIZE_FINDINGS)
    ['Cardiomegaly']
    """
    by_folded = {_folded(entry): entry for entry in known}
    return [by_folded[match] for match in difflib.get_close_matches(_folded(name), list(by_folded), n=most)]


def hint(name: str, known: Iterable[str]) -> str:
    """Return `name` in quotes for an error message, with the most similar member of `known`, if there is a similar one.

    Examples: ``'Cardiomegally' (nearest: 'Cardiomegaly')``, ``'Kyphosis'``.
    """
    near = nearest_names(name, known, most=1)
    return f"{name!r}" + (f" (nearest: {near[0]!r})" if near else "")
