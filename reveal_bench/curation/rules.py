"""Extract labels from reports by rules: without model or network, and with the same answer everywhere.

:data:`TERMS` lists the words that radiologists use for the twelve labels, as data (the lists are this project's).
:mod:`reveal_bench.curation.sentences` decides which sections are read, which findings are denied, and which hedged
findings count. A finding that one sentence asserts counts as present, whatever another sentence says. Any edit of the
rules that changes an answer raises the version.

Conventions
-----------
A pattern is a regular expression over normalised text: lower case, American spelling, words separated by one space, no
hyphens (see :mod:`reveal_bench.curation.sentences`). It matches whole words. ``{is}`` represents a few words such as
"remains mildly"; ``{gap}`` represents up to five words. Every repetition is bounded, so matching takes linear time.

A longer match hides the shorter ones within it: "subcutaneous emphysema" hides "emphysema". Some terms exist only to
hide shorter matches: a term without a label is a finding outside the twelve labels, and a term without a finding's name
is no finding.

Decisions on cases that the paper's own examples (paper 004, Box 3 and Table S1) leave open are as follows.

* Atelectasis, pneumonia, infection, aspiration, haemorrhage, collapse, oedema that is not called interstitial, and any
  opacity that is not called reticular, linear, nodular or mass-like are Airspace opacity.
* Interstitial oedema, septal lines, peribronchial cuffing and fibrosis are Interstitial opacity, as is oedema that the
  same sentence names as the cause of an interstitial pattern.
* Emphysema, hyperinflation and flat diaphragms are COPD.
* A blunt costophrenic angle is Pleural effusion, unless it is attributed to scars or thickening.
* A wide or tortuous aorta is not Aneurysm. Heart failure and vascular congestion alone have no label. A granuloma or
  calcified nodule is not Lung nodule, and a mass outside the lung is not Lung mass.
* A nodule or mass with a stated size is classified by its size (:data:`LARGEST_NODULE_CM`).

Each finding has the nearest ICD-10 code of the WHO's edition (2019); a nodule, mass or opacity has R91, abnormal
imaging of the lung.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from reveal_bench.curation.folder import Progress
from reveal_bench.curation.report_tables import Quarantined, StudyReport
from reveal_bench.curation.sentences import (
    POLICY,
    Denial,
    clauses,
    denials,
    descriptive_sections,
    sentences,
    whole_words,
)
from reveal_bench.curation.tables import Finding, Suggestion, labels_of

LARGEST_NODULE_CM = 3.0
"""Lesions up to this size are nodules, larger ones masses (paper 004, Table S1)."""


@dataclass(frozen=True, slots=True)
class Term:
    """A finding, its label, ICD-10 code and patterns; `sized` is True if a stated size decides the label."""

    finding: str
    label: str | None
    icd10: str | None
    patterns: tuple[str, ...]
    sized: bool = False


_AIR, _INTERSTITIAL, _NODULE, _MASS = "Airspace opacity", "Interstitial opacity", "Lung nodule", "Lung mass"
_EFFUSION, _THICK, _AIRLESS = "Pleural effusion", "Pleural thickening", "Pneumothorax"

_OPACITY = "(?:opacit(?:y|ies)|opacification|densit(?:y|ies)|shadow(?:ing|s)?|infiltrates?)"
_HEART = (
    "(?:heart(?: size| shadow| silhouette)?|(?:cardiac|cardio ?pericardial|cardio ?mediastinal)"
    "(?: size| silhouette| shadow| contours?| outline){1,2})"
)
_ANGLE = "(?:costo ?phrenic|cp) (?:angles?|sulcus|sulci|recess(?:es)?)"
_NODES = (
    "(?:(?:hilar|perihilar|mediastinal|right|left|bilateral|paratracheal|subcarinal|intrathoracic|thoracic|and|,|lymph)"
    " ){0,6}nodes?"
)
_MORE = "(?:increased|prominent|coarse|coarsened|thickened|accentuated|exaggerated)"
_DIAPHRAGM = "(?:hemi ?)?diaphragms?"

TERMS: tuple[Term, ...] = (
    Term("atelectasis", _AIR, "J98.1", ("atelecta(?:sis|ses|tic)", "atx")),
    Term(
        "collapse",
        _AIR,
        "J98.1",
        (
            "(?:lobe|lobar|lung|segmental|[rl][uml]l) (?:partial |complete )?collapse",
            "collapse of the (?:[a-z]+ ){0,3}(?:lung|lobe|lingula)",
        ),
    ),
    Term("pneumonia", _AIR, "J18.9", ("(?:broncho ?)?pneumonias?", "pneumonitis", "pna", "infections?", "infectious")),
    Term("aspiration", _AIR, "J69.0", ("aspiration(?: pneumonia| pneumonitis)?(?! of)",)),
    Term("consolidation", _AIR, "R91", ("consolidat(?:ions?|ive|ed|ing)",)),
    Term("pulmonary edema", _AIR, "J81", ("(?:(?:acute|pulmonary|lung|flash) ){0,2}edema",)),
    Term("alveolar edema", _AIR, "J81", ("(?:alveolar|air ?space) (?:pulmonary )?edema",)),
    Term("pulmonary hemorrhage", _AIR, "R04.8", ("(?:pulmonary|alveolar|parenchymal|lung) hemorrhage",)),
    Term("pulmonary contusion", _AIR, "S27.3", ("(?:pulmonary|lung) contusions?",)),
    Term(
        "airspace opacity",
        _AIR,
        "R91",
        (
            f"(?:air ?space|alveolar|parenchymal|acinar) (?:{_OPACITY}|disease|process|filling|changes?)",
            f"(?:air ?space|alveolar)(?= and interstitial {_OPACITY})",
            "opacit(?:y|ies)",
            "opacification",
            "opacified",
            "infiltrat(?:es?|ion|ions)",
            "(?:patchy|confluent|hazy|ill defined|increased|basal|basilar|bibasilar|lung) "
            "(?:densit(?:y|ies)|shadowing)",
            f"ground glass(?: {_OPACITY}| changes?)?",
            "air bronchograms?",
        ),
    ),
    Term("aneurysm", "Aneurysm", "I71.2", ("(?:pseudo ?)?aneurysms?", "aneurysmal(?:ly)?")),
    Term(
        "cardiomegaly",
        "Cardiomegaly",
        "I51.7",
        (
            "cardiomegaly",
            "cardiac enlargement",
            f"{_HEART} (?:: )?{{is}}(?:enlarged|enlarging|dilated|increased|large|globular)",
            f"(?:enlarged|enlarging|dilated|increased|large|globular) (?:and [a-z]+ )?{_HEART}",
            f"(?:enlargement|increase|dilatation) (?:of|in) (?:the |global |overall ){{0,2}}{_HEART}",
            "heart (?:size )?{is}(?:exceeds?|exceeding|more than|greater than|over) (?:[a-z]+ ){0,2}half",
            "(?:cardio ?thoracic ratio|ctr) {is}(?:increased|enlarged|elevated)",
            "(?:cardio ?thoracic ratio|ctr) {is}(?:exceed(?:s|ing)|above|over|more than|greater than|>) "
            "(?:0\\.5\\d?|50)",
            "(?:cardio ?thoracic ratio|ctr) (?:(?:is|of|measures|about|:) ){0,2}"
            "(?:0\\.(?:5[1-9]|[6-9]\\d?)|5[1-9]|[6-9]\\d)",
        ),
    ),
    Term(
        "chronic obstructive pulmonary disease",
        "COPD",
        "J44.9",
        ("copd", "coad", "(?:chronic )?obstructive (?:pulmonary|airways?|lung) disease"),
    ),
    Term(
        "emphysema",
        "COPD",
        "J43.9",
        ("emphysema", "emphysematous", "bullous (?:disease|lung disease|changes?|emphysema)"),
    ),
    Term(
        "hyperinflation",
        "COPD",
        "J44.9",
        (
            "(?:hyper|over) ?(?:inflat(?:ed|ion)|expan(?:ded|sion)|aerat(?:ed|ion))",
            "hyper ?lucent lungs?",
            "air trapping",
            "barrel chest",
            f"flat(?:ten(?:ed|ing))? (?:(?:of|the|both|bilateral|right|left|and) ){{0,4}}{_DIAPHRAGM}",
            f"{_DIAPHRAGM} {{is}}flat(?:tened)?",
            "lung volumes? {is}(?:increased|large|high)",
            "(?:increased|large|high) lung volumes?",
            "(?:increased|enlarged) retro ?sternal (?:air ?space|clear space|lucency)",
        ),
    ),
    Term(
        "hiatal hernia",
        "Hiatal hernia",
        "K44.9",
        ("(?:hiat(?:al|us)|para ?esophageal|sliding) hernias?(?! repair)", "intra ?thoracic stomach"),
    ),
    Term("interstitial edema", _INTERSTITIAL, "J81", ("interstitial (?:pulmonary |lung )?edema",)),
    Term(
        "pulmonary fibrosis",
        _INTERSTITIAL,
        "J84.1",
        ("(?:(?:pulmonary|lung|interstitial|radiation) ){0,2}fibrosis", "fibrotic(?: changes?)?", "honeycomb(?:ing)?"),
    ),
    Term(
        "interstitial opacity",
        _INTERSTITIAL,
        "J84.9",
        (
            f"interstitial (?:lung |pulmonary ){{0,2}}(?:{_OPACITY}|disease|pattern|thickening|prominence|changes?"
            "|process|abnormalit(?:y|ies)|pneumonias?|pneumonitis|coarsening|reticulation|lines)",
            f"interstitial(?= and (?:air ?space|alveolar) (?:{_OPACITY}|edema))",
            f"interstitial (?:lung )?markings? {{is}}{_MORE}",
            f"{_MORE} (?:[a-z]+ ){{0,2}}(?:interstitial (?:lung )?markings?|interstitium)",
            "(?:increase|thickening|prominence|accentuation|coarsening) (?:of|in) (?:[a-z]+ ){0,2}"
            "(?:interstitial (?:lung )?markings?|interstitium)",
            f"reticul(?:ar|ation|ations|o ?nodular)(?: interstitial)?(?: {_OPACITY}| pattern| markings| changes?)?",
            "kerley(?: [abc])?(?: lines?)?",
            "septal (?:thickening|lines?)",
            "peri ?bronchial (?:cuffing|thickening)",
            "ild",
            "lymphangitic (?:spread|carcinomatosis|disease)",
        ),
    ),
    Term(
        "mass",
        _MASS,
        "R91",
        (
            "mass(?:es)?",
            f"mass ?like (?:{_OPACITY}|lesions?|consolidation|area)",
            "(?:lung|pulmonary|bronchogenic|pancoast|superior sulcus) (?:cancers?|carcinomas?|tumors?|neoplasms?)",
        ),
        sized=True,
    ),
    Term(
        "nodule",
        _NODULE,
        "R91",
        (
            "(?:micro ?)?nodules?",
            "nodularity",
            f"nodular (?:{_OPACITY}|lesions?|focus|foci|pattern)",
            "round(?:ed)? (?:lung |pulmonary )?opacit(?:y|ies)",
            "coin lesions?",
            "(?:pulmonary|lung) metasta(?:sis|ses)",
            "metastatic (?:pulmonary|lung) (?:disease|lesions|deposits)",
        ),
        sized=True,
    ),
    Term("lesion", None, "R91", ("lesions?",), sized=True),
    Term(
        "lymphadenopathy",
        "Lymphadenopathy",
        "R59.0",
        (
            "(?:lymph ?)?adenopath(?:y|ies)",
            f"(?:enlarged|enlarging|bulky) {_NODES}",
            f"{_NODES} {{is}}(?:enlarged|bulky)",
            "(?:lymph node|nodal|node) enlargement",
            f"enlargement of (?:the )?{_NODES}",
        ),
    ),
    Term(
        "enlarged hilum",
        "Lymphadenopathy",
        "R59.0",
        (
            "hil(?:a|um) {is}(?:lobulated and )?(?:enlarged|bulky|lobulated|lumpy)",
            "(?:enlarged|bulky|lobulated|lumpy) (?:and [a-z]+ )?(?:(?:right|left|both|bilateral) )?hil(?:a|um)",
            "hilar enlargement",
        ),
    ),
    Term(
        "pleural effusion",
        _EFFUSION,
        "J90",
        (
            "(?:pleural |pl |parapneumonic |subpulmonic )?(?:effusions?|effs?)",
            "pleural(?= (?:and|or) pericardial effusions?)",
            "(?:hydro|chylo) ?thora(?:x|ces)",
            "(?:pleural|fissural) (?:fluid|collections?)",
            "fluid (?:in|within|along) {gap}(?:pleural (?:space|cavity)|pleura|fissures?)",
        ),
    ),
    Term("hemothorax", _EFFUSION, "J94.2", ("hemo ?thora(?:x|ces)", "hemo ?pneumo ?thora(?:x|ces)")),
    Term("empyema", _EFFUSION, "J86.9", ("empyemas?", "pyo ?thora(?:x|ces)")),
    Term("hydropneumothorax", _EFFUSION, "J94.8", ("hydro ?pneumo ?thora(?:x|ces)",)),
    Term(
        "blunt costophrenic angle",
        _EFFUSION,
        "J90",
        (f"blunt(?:ed|ing|s)? {{gap}}{_ANGLE}", f"{_ANGLE} {{is}}blunt(?:ed|ing)"),
    ),
    Term(
        "pleural thickening",
        _THICK,
        "J92.9",
        (
            "(?:pleural|pleuro ?parenchymal)(?: (?:or|and|apical|lateral|parenchymal|based|fissural)){0,3} "
            "(?:thickening|scarring|scars?|plaques?|calcifications?|fibrosis|rind)",
            "thickening (?:of|along) (?:[a-z]+ ){0,3}pleura",
            "(?:thickened|calcified) (?:[a-z]+ ){0,2}pleura",
            "pleura {is}(?:thickened|calcified)",
            "(?<=effusion and )thickening",
            "apical (?:pleural )?(?:caps?|capping)",
            "fibro ?thorax",
        ),
    ),
    Term(
        "pneumothorax",
        _AIRLESS,
        "J93.9",
        (
            "(?:hydro ?|hemo ?)?pneumo ?thora(?:x|ces)",
            "ptx",
            "(?:visceral )?pleural line",
            "air in the pleural (?:space|cavity)",
            "deep sulcus sign",
        ),
    ),
    # Findings outside the twelve labels, and terms that only sound like a finding
    Term("granuloma", None, None, ("(?:calcified )?granulomas?", "calcified (?:lung |pulmonary )?nodules?")),
    Term("subcutaneous emphysema", None, "T79.7", ("(?:subcutaneous|surgical|soft tissue|chest wall) emphysema",)),
    Term("pneumomediastinum", None, "J98.2", ("pneumo ?mediastinum", "(?:mediastinal|interstitial) emphysema")),
    Term("pericardial effusion", None, "I31.3", ("pericardial effusions?",)),
    Term("mediastinal mass", None, "R22.2", ("(?:mediastinal|thymic|paraspinal) mass(?:es)?",)),
    Term("thyroid nodule", None, "E04.1", ("thyroid (?:nodules?|mass(?:es)?)", "nodular goiter")),
    Term("axillary lymphadenopathy", None, "R59.0", ("(?:axillary|cervical|supraclavicular) (?:lymph ?)?adenopathy",)),
    Term("cystic fibrosis", None, "E84.9", ("cystic fibrosis",)),
    Term("heart failure", None, "I50.0", ("chf", "(?:congestive )?(?:heart|cardiac) failure")),
    Term("linear opacity", None, None, ("linear opacit(?:y|ies)",)),
    Term(
        "",
        None,
        None,
        (
            "mass effects?",
            "body mass(?: index)?",
            "(?:breast|soft tissue|chest wall|pleural|pleural based|neck|abdominal|renal|liver|hepatic|adrenal|cardiac"
            "|bone|muscle|axillary) mass(?:es)?",
            "(?:bone|bony|osseous|lytic|sclerotic|blastic|skin|liver|hepatic|soft tissue) (?:[a-z]+ )?lesions?",
            "(?:pleural|skin|subcutaneous|breast|soft tissue) (?:nodules?|nodularity)",
            "pseudo ?nodules?",
            "pleural (?:based )?opacit(?:y|ies)",
            "joint effusions?",
            "(?:soft tissue|subcutaneous|chest wall|peripheral|ankle|leg) edema",
            "(?:cerebral|intracranial|brain|ventricular|septal|splenic) (?:artery )?aneurysms?(?: clips?| coils?)?",
            "aneurysm (?:clips?|coils?|repair)",
            "aneurysmal bone cyst",
            "(?:cuff|balloon) {is}(?:hyper|over) ?inflated",
            "(?:hyper|over) ?inflat(?:ed|ion) (?:of )?(?:(?:the|endotracheal|et|tracheostomy|tube) ){0,4}"
            "(?:cuff|balloon)",
            "(?:needle|thoracic|pleural|bone marrow) aspiration",
        ),
    ),
)
"""All terms; a match inside a longer match is ignored."""

_LINK = (
    "(?:likely|probabl[ey]|possibl[ey]|represents?|representing|consistent|compatible|keeping|suggests?|or|versus|is)"
)

EXPLAINED_AWAY: dict[str, str] = {
    "pulmonary edema": "interstitial|kerley|septal lines?|reticul(?:ar|ation|ations)",
    "nodule": f"{_LINK} (?:[a-z]+ ){{0,4}}(?:granulomas?|nipples?)",
    "enlarged hilum": "vascular|vessels?|arter(?:y|ies|ial)",
    "blunt costophrenic angle": "scar(?:s|ring)?|thickening|fibrosis|fibrotic",
}
"""Finding -> words that, in the same sentence, turn it into another finding."""

SIDED = frozenset((_AIR, _INTERSTITIAL, _MASS, _NODULE, _EFFUSION, _THICK, _AIRLESS, "Lymphadenopathy"))
"""Labels of findings that may have a side."""

_BOTH = (
    "(?:bilateral(?:ly)?|both|bibasilar|bibasal|biapical|b l|(?:left|right) (?:and|greater than|more than|worse than"
)
SIDES: dict[str, str] = {
    "bilateral": _BOTH + "|larger than|>) (?:the )?(?:left|right))",
    "left": "(?:left|lt|l|lul|lll|lingula|lingular)",
    "right": "(?:right|rt|r|rul|rml|rll)",
}
"""Side -> its wording; the first side that matches at a position applies."""


SIGNATURE = "rules|v:3"

_IS = (
    "(?:(?:is|are|was|were|be|been|has|have|had|to|remains?|appears?|looks?|seems?|became|size|not|no|longer|now|again"
    "|still|also|and|stable|stably|unchanged|persistently|mildly|moderately|markedly|slightly|severely|grossly|massively"
    "|minimally|somewhat|mild|moderate|marked|diffusely|bilaterally|both|seen|noted|likely|probably|chronically|at"
    "|least) ){0,6}"
)
_GAP = "(?:[a-z]+ ){0,5}"


@dataclass(frozen=True, slots=True)
class Mention:
    """A term in a normalised sentence, with start and end in characters, and its denial, if any."""

    term: Term
    start: int
    end: int
    denial: Denial | None = None
    side: str | None = None


_PATTERNS = tuple(
    tuple(whole_words(pattern.replace("{is}", _IS).replace("{gap}", _GAP)) for pattern in term.patterns)
    for term in TERMS
)
_AWAY = {finding: re.compile(rf"\b(?:{pattern})\b") for finding, pattern in EXPLAINED_AWAY.items()}
_SIDE = re.compile("|".join(rf"(?P<{side}>(?<![^ ]){pattern}(?![^ ]))" for side, pattern in SIDES.items()))
_SIZE = re.compile(
    r"(?<![^ ])(?<!from )(?<!previously )(?<!formerly )(\d+(?:\.\d+)?)(?: (?:x|by|to) (\d+(?:\.\d+)?)){0,2}"
    r" (cm|mm|centimet(?:er|re)s?|millimet(?:er|re)s?)(?! (?:above|below|from|to) )(?![^ ])"
)


class Rules:
    """A :class:`reveal_bench.curation.report_tables.ReportEngine` that extracts labels by rules.

    A report without any findings or impression is quarantined.
    """

    signature = SIGNATURE

    def settings(self) -> dict[str, Any]:
        """Return the policy on hedges."""
        return {"hedges": POLICY}

    def run(
        self, reports: Iterable[StudyReport], scratch: Path, progress: Progress | None = None
    ) -> Iterator[Suggestion | Quarantined]:
        """Yield one answer per report, in order; `scratch` is unused."""
        listed = list(reports)
        for done, report in enumerate(listed, start=1):
            findings = find_findings(report.text)
            if findings is None:
                yield Quarantined(report.study_id, report.patient_id, "no findings or impression to read", SIGNATURE)
            else:
                labels = labels_of(findings)
                yield Suggestion(report.study_id, report.patient_id, findings, labels, "ok", SIGNATURE)
            if progress is not None:
                progress(done, len(listed))


def find_findings(report: str) -> tuple[Finding, ...] | None:
    """Return the findings asserted in a report, once each, in order; None if no section describes the image.

    Known findings outside the twelve labels are included. A finding that is named both with a side and without one is
    returned only with the side.

    Examples
    --------
    >>> find_findings("Small left effusion. No pneumothorax.")
    (Finding(finding='pleural effusion', side='left', icd10='J90', label='Pleural effusion'),)
    >>> find_findings("INDICATION: Pneumonia?") is None
    True
    """
    text = descriptive_sections(report)
    if not text:
        return None
    findings: dict[Finding, None] = {}
    for sentence in sentences(text):
        for mention in mentions(sentence):
            if mention.denial is None and mention.term.finding:
                term = mention.term
                findings[Finding(term.finding, mention.side, term.icd10, term.label)] = None
    sided = {finding.finding for finding in findings if finding.side is not None}
    return tuple(one for one in findings if one.side is not None or one.finding not in sided)


@lru_cache(maxsize=1 << 14)
def mentions(sentence: str) -> tuple[Mention, ...]:
    """Return the mentions of terms in a normalised sentence, in order, whether denied or not."""
    matches = {
        (match.start(), match.end(), number)
        for number, patterns in enumerate(_PATTERNS)
        for pattern in patterns
        for match in pattern.finditer(sentence)
    }
    kept = _uncovered(matches)
    found_denials = denials(sentence, [(start, end) for start, end, _ in kept])
    listed = [
        Mention(TERMS[number], start, end, denial)
        for (start, end, number), denial in zip(kept, found_denials, strict=True)
    ]
    listed = [replace(one, denial="absent") if _is_explained(one, sentence) else one for one in listed]
    return tuple(_sided(one, sentence) for one in _classified_by_size(listed, sentence))


def _uncovered(matches: set[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the matches that are not inside a longer match."""
    kept: list[tuple[int, int, int]] = []
    furthest = -1
    for start, end, number in sorted(matches, key=lambda one: (one[0], -one[1])):
        if end > furthest or (start, end) == kept[-1][:2]:
            kept.append((start, end, number))
            furthest = end
    return kept


def _is_explained(mention: Mention, sentence: str) -> bool:
    pattern = _AWAY.get(mention.term.finding)
    return pattern is not None and pattern.search(sentence) is not None


def _classified_by_size(listed: list[Mention], sentence: str) -> list[Mention]:
    """Classify nodules and masses by their sizes; every size belongs to the nearest finding."""
    largest: dict[int, float] = {}
    for match in _SIZE.finditer(sentence):
        if not listed:
            break
        nearest = min(range(len(listed)), key=lambda number: _distance(listed[number], match.start(), match.end()))
        unit = 10.0 if match[3].startswith("m") else 1.0
        largest[nearest] = max(float(match[1]), float(match[2] or 0)) / unit
    return [_sized(one, largest.get(number)) for number, one in enumerate(listed)]


def _sized(mention: Mention, cm: float | None) -> Mention:
    if not mention.term.sized or cm is None:
        return mention
    finding, label = ("nodule", "Lung nodule") if cm <= LARGEST_NODULE_CM else ("mass", "Lung mass")
    return replace(mention, term=replace(mention.term, finding=finding, label=label))


def _sided(mention: Mention, sentence: str) -> Mention:
    """Return the mention with the nearest side in its clause; sides before the mention are preferred."""
    if mention.term.label not in SIDED:
        return mention
    start, end = next(clause for clause in clauses(sentence) if mention.start < clause[1])
    named = [*_SIDE.finditer(sentence, start, end)]
    if not named:
        return mention
    best = min(named, key=lambda match: _distance(mention, match.start(), match.end()))
    return replace(mention, side=best.lastgroup)


def _distance(mention: Mention, start: int, end: int) -> int:
    """Return the characters between a mention and a position; positions after it count as slightly farther."""
    if start >= mention.end:
        return start - mention.end + 2
    return max(mention.start - end, 0)
