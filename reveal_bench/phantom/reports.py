"""Write free-text reports of synthetic studies, from which labels can be extracted.

Every label of a study is asserted once in the findings and usually again in the impression. Some of the other labels
are denied, reported as resolved, or asked about in the indication, and most are not mentioned. Wording, order, headings
and layout vary. The sides are those on which findings are drawn.

All sentences were written for this project; none is from a report. For each label, sentences describe the finding, name
it in the impression, deny it, or report that it has resolved. ``{side}`` is "right", "left" or "bilateral"; ``{size}``
is an adjective of amount. Sentences that fit only one side, or only both sides, have separate keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reveal_studies import RevealStudy


@dataclass(frozen=True, slots=True)
class Phrases:
    """Sentences about a label.

    `one` is for one side, `both` for both sides, `short` for the impression, `absent` and `gone` for denials.
    """

    one: tuple[str, ...]
    both: tuple[str, ...]
    short: tuple[str, ...]
    absent: tuple[str, ...]
    gone: tuple[str, ...] = ()


PHRASES: dict[str, Phrases] = {
    "Airspace opacity": Phrases(
        one=(
            "There is {size} patchy airspace opacity in the {side} lung.",
            "{Size} consolidation is present in the {side} mid and lower zone.",
            "Confluent density in the {side} lung obscures the vessels and may represent pneumonia.",
            "{Side} lower lobe atelectasis is noted.",
        ),
        both=(
            "Patchy airspace opacities are seen in both lungs.",
            "Multifocal consolidation involves the right and the left lung.",
            "There are {size} bibasilar opacities, atelectasis or infection.",
        ),
        short=("{side} airspace disease", "{side} lung consolidation", "{side} airspace opacities"),
        absent=(
            "The lungs are free of consolidation.",
            "No focal airspace opacity.",
            "There is no evidence of pneumonia.",
        ),
        gone=("The {side} basal consolidation of the previous film has cleared completely.",),
    ),
    "Aneurysm": Phrases(
        one=(
            "The aortic arch is markedly dilated with a calcified wall, in keeping with an aneurysm.",
            "Aneurysmal enlargement of the thoracic aorta is again noted.",
            "A convex bulge at the aortic knob measures more than 5 cm, suspicious for thoracic aortic aneurysm.",
        ),
        both=(),
        short=("thoracic aortic aneurysm", "aneurysmal dilatation of the aorta"),
        absent=("The thoracic aorta is of normal calibre.", "The aorta is calcified but not aneurysmal."),
    ),
    "Cardiomegaly": Phrases(
        one=(
            "The heart is enlarged.",
            "The cardiac silhouette is {size}ly enlarged.",
            "There is {size} cardiomegaly.",
            "Transverse heart size exceeds half of the thoracic width.",
        ),
        both=(),
        short=("cardiomegaly", "enlarged cardiac silhouette", "{size} cardiac enlargement"),
        absent=(
            "Heart size is normal.",
            "The cardiac silhouette is not enlarged.",
            "Cardiac size is within normal limits.",
        ),
    ),
    "COPD": Phrases(
        one=(
            "The lungs are hyperinflated with flattening of both hemidiaphragms.",
            "Hyperexpanded, lucent lungs suggest emphysema.",
            "Flat diaphragms and sparse peripheral vessels are consistent with chronic obstructive pulmonary disease.",
        ),
        both=(),
        short=("emphysema", "COPD", "hyperinflated lungs"),
        absent=("The lungs are not hyperinflated.", "Lung volumes are normal."),
    ),
    "Hiatal hernia": Phrases(
        one=(
            "A rounded retrocardiac density with an air-fluid level represents a hiatal hernia.",
            "{Size} hiatal hernia.",
            "Gas-containing structure behind the heart, compatible with a hiatus hernia.",
        ),
        both=(),
        short=("hiatal hernia", "{size} hiatus hernia"),
        absent=("No retrocardiac density.",),
    ),
    "Interstitial opacity": Phrases(
        one=(
            "Reticular interstitial opacities are present.",
            "There is diffuse thickening of the interstitial markings.",
            "Coarse interstitial markings, predominantly in the lung bases.",
            "Fine reticulation in keeping with interstitial disease or interstitial oedema.",
        ),
        both=(),
        short=("interstitial opacities", "interstitial lung disease", "interstitial pattern, oedema or fibrosis"),
        absent=("Interstitial markings are not increased.", "No interstitial abnormality."),
        gone=("Interstitial oedema seen earlier is no longer visible.",),
    ),
    "Lung mass": Phrases(
        one=(
            "There is a mass of about {mass_cm} cm in the {side} lung.",
            "A large rounded {side} lung mass is suspicious for malignancy.",
            "{Side} pulmonary mass, {mass_cm} cm in diameter.",
        ),
        both=("Masses are present in both lungs.",),
        short=("{side} lung mass", "{side} pulmonary mass, further work-up advised"),
        absent=("No pulmonary mass.", "There is no suspicious mass."),
    ),
    "Lung nodule": Phrases(
        one=(
            "A nodule of {nodule_mm} mm projects over the {side} lung.",
            "{Side} pulmonary nodule, about {nodule_mm} mm.",
            "There is a small round nodular density in the {side} lung.",
        ),
        both=("Small nodules project over both lungs.", "Bilateral pulmonary nodules of up to {nodule_mm} mm."),
        short=("{side} pulmonary nodule", "{side} lung nodule, CT recommended"),
        absent=("No nodule is seen.", "There is no pulmonary nodule."),
    ),
    "Lymphadenopathy": Phrases(
        one=(
            "Both hila are lobulated and enlarged, in keeping with lymphadenopathy.",
            "Hilar and right paratracheal lymph nodes are enlarged.",
            "Prominent, lumpy hila suggest adenopathy.",
        ),
        both=(),
        short=("hilar lymphadenopathy", "mediastinal and hilar adenopathy"),
        absent=("The hila are unremarkable.", "No hilar or mediastinal lymphadenopathy."),
    ),
    "Pleural effusion": Phrases(
        one=(
            "There is a {size} {side} pleural effusion.",
            "Blunting of the {side} costophrenic angle by a {size} effusion.",
            "{Size} {side} effusion with a meniscus at the lateral wall.",
        ),
        both=(
            "{Size} bilateral pleural effusions.",
            "Both costophrenic angles are blunted by {size} pleural effusions.",
        ),
        short=("{side} pleural effusion", "{size} {side} pleural effusion"),
        absent=("No pleural effusion.", "The costophrenic angles are sharp.", "There is no effusion."),
        gone=("The {side} pleural effusion seen previously has resolved.",),
    ),
    "Pleural thickening": Phrases(
        one=(
            "{Side} pleural thickening is noted.",
            "There is {side} apical or lateral pleural thickening, likely chronic.",
            "Irregular thickening of the {side} pleura.",
        ),
        both=("Pleural thickening on both sides.",),
        short=("{side} pleural thickening", "chronic {side} pleural thickening"),
        absent=("No pleural thickening.",),
    ),
    "Pneumothorax": Phrases(
        one=(
            "There is a {size} {side} pneumothorax.",
            "A visceral pleural line is visible on the {side}, in keeping with pneumothorax.",
            "{Size} {side} apicolateral pneumothorax without mediastinal shift.",
        ),
        both=("Bilateral pneumothoraces.",),
        short=("{side} pneumothorax", "{size} {side} pneumothorax"),
        absent=("No pneumothorax.", "There is no pneumothorax.", "No pneumothorax is identified."),
        gone=(
            "The {side} pneumothorax has resolved after drainage.",
            "Interval resolution of the {side} pneumothorax.",
        ),
    ),
}

INDICATIONS = (
    "Shortness of breath.",
    "Cough and fever, pneumonia?",
    "Chest pain, rule out pneumothorax.",
    "Follow-up.",
    "Hypoxia.",
    "Line placement.",
    "History of COPD, worsening dyspnoea.",
    "Evaluate for effusion.",
    "Altered mental status.",
    "Preoperative.",
)
"""Indications.

Some ask about absent findings or mention past findings, which are not findings of the image.
"""

BESIDES = (
    "A calcified granuloma in the {side} upper zone is unchanged and benign.",
    "Degenerative changes of the thoracic spine.",
    "Old healed rib fractures on the {side}.",
    "The trachea is midline.",
    "The patient is rotated.",
    "Inspiration is shallow.",
    "The bones are osteopenic.",
    "Surgical clips project over the {side} axilla.",
)
"""Sentences that are true of any image and do not name a label.

A granuloma does not count as a nodule, as in paper 004 (Box 3).
"""

DEVICES = (
    "Lines and tubes are in standard position.",
    "The central line ends in the superior vena cava.",
    "Support devices are unchanged in position.",
    "Endotracheal tube and enteric tube are appropriately placed.",
)


SIZES = ("small", "moderate", "large")
SIZES_OF = {"Cardiomegaly": ("mild", "moderate", "marked"), "Airspace opacity": ("mild", "moderate", "extensive")}
DENIED, GONE = 0.45, 0.06
"""Probability that an absent label is denied, or reported as resolved."""


def write_report(study: RevealStudy, sides: Mapping[str, str], *, has_devices: bool) -> str:
    """Return the report of a study.

    Parameters
    ----------
    sides : dict from every label of the study to "right", "left" or "bilateral"
    has_devices : whether the image shows tubes or lines

    Returns
    -------
    str
        Several paragraphs ending in one line feed.
    """
    rng = study.rng(50)
    present = [label for label in REVEAL_LABELS if label in study.labels]
    rng.shuffle(present)
    sizes = {label: str(rng.choice(SIZES_OF.get(label, SIZES))) for label in REVEAL_LABELS}
    findings = [_phrase_sentence(rng, PHRASES[label], sides[label], sizes[label]) for label in present]
    findings += _denials(rng, set(present))
    for sentence in rng.permutation(BESIDES)[: int(rng.integers(0, 3))]:
        findings.insert(int(rng.integers(0, len(findings) + 1)), _filled(str(sentence), _any_side(rng), "small", rng))
    if has_devices:
        findings.insert(0 if rng.random() < 0.6 else len(findings), str(rng.choice(DEVICES)))
    if not findings:
        findings.append("Normal appearance of the chest.")
    return _layout(rng, study, " ".join(findings), _impression(rng, present, sides, sizes))


def _phrase_sentence(rng: np.random.Generator, phrases: Phrases, side: str, size: str) -> str:
    sentences = phrases.both if side == "bilateral" and phrases.both else phrases.one
    return _filled(str(rng.choice(sentences)), side, size, rng)


def _denials(rng: np.random.Generator, present: set[str]) -> list[str]:
    """Return sentences about absent labels."""
    denied, sentences = [], []
    for label in REVEAL_LABELS:
        if label in present:
            continue
        chance = rng.random()
        if chance < GONE and PHRASES[label].gone:
            sentences.append(_filled(str(rng.choice(PHRASES[label].gone)), _any_side(rng), "small", rng))
        elif chance < DENIED:
            denied.append(label)
    in_one = [label for label in denied if label in ("Pleural effusion", "Pneumothorax", "Lung mass", "Lung nodule")]
    if len(in_one) > 1 and rng.random() < 0.5:  # one sentence denies several labels
        names = [label.lower() for label in in_one]
        sentences.append(f"{rng.choice(['No', 'There is no', 'Negative for'])} {', '.join(names[:-1])} or {names[-1]}.")
        denied = [label for label in denied if label not in in_one]
    sentences += [str(rng.choice(PHRASES[label].absent)) for label in denied]
    rng.shuffle(sentences)
    return sentences


def _impression(
    rng: np.random.Generator, present: list[str], sides: Mapping[str, str], sizes: Mapping[str, str]
) -> list[str]:
    if not present:
        return [
            str(rng.choice(["No acute cardiopulmonary abnormality.", "Normal chest radiograph.", "No acute disease."]))
        ]
    points: list[str] = []
    for label in present:
        if not points or rng.random() < 0.85:
            phrase = _filled(str(rng.choice(PHRASES[label].short)), sides[label], sizes[label], rng)
            change = str(rng.choice(["", "", "", ", unchanged", ", increased since the prior film", ", new"]))
            points.append(f"{phrase[0].upper()}{phrase[1:]}{change}.")
    return points


def _layout(rng: np.random.Generator, study: RevealStudy, findings: str, impression: list[str]) -> str:
    views = {image.view for image in study.images}
    if "LATERAL" in views:
        exam = "Chest radiograph, frontal and lateral views"
    else:
        exam = (
            f"Portable {'AP' if 'AP' in views else 'PA'} chest radiograph" if "AP" in views else "PA chest radiograph"
        )
    comparison = str(rng.choice(["None.", "Prior chest radiograph.", "Chest radiograph of the day before."]))
    heads = ["EXAMINATION", "INDICATION", "COMPARISON", "FINDINGS", "IMPRESSION"]
    if rng.random() < 0.3:
        heads = [head.capitalize() for head in heads]
    numbered = len(impression) > 1 and rng.random() < 0.6
    conclusion = (
        "\n".join(f"{i}. {point}" for i, point in enumerate(impression, 1)) if numbered else " ".join(impression)
    )
    texts = [f"{exam}.", str(rng.choice(INDICATIONS)), comparison, findings, conclusion]
    joint = "\n" if rng.random() < 0.5 else " "
    sections = [f"{head}:{joint}{text}" for head, text in zip(heads, texts, strict=True)]
    if rng.random() < 0.15:
        del sections[2]
    return "\n\n".join(sections) + "\n"


def _filled(sentence: str, side: str, size: str, rng: np.random.Generator) -> str:
    values = {
        "side": side,
        "Side": side.capitalize(),
        "size": size,
        "Size": size.capitalize(),
        "mass_cm": f"{rng.uniform(3.6, 6):.1f}",
        "nodule_mm": str(rng.integers(8, 28)),
    }
    return sentence.format(**values)


def _any_side(rng: np.random.Generator) -> str:
    return str(rng.choice(["right", "left"]))
