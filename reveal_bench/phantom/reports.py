"""Free-text reports of synthetic studies, for what reads labels out of prose.

Every label of a study is said to be present, once in the findings and mostly again in the impression; some of the
other labels are denied, told to have resolved, or asked for in the indication, and most are not mentioned. Wording,
order, headings and layout vary. The sides are those that were drawn.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reveal_phrases import BESIDES, DEVICES, INDICATIONS, PHRASES, Phrases
from reveal_bench.phantom.reveal_studies import RevealStudy

__all__ = ["write_report"]

SIZES = ("small", "moderate", "large")
SIZES_OF = {"Cardiomegaly": ("mild", "moderate", "marked"), "Airspace opacity": ("mild", "moderate", "extensive")}
DENIED, GONE = 0.45, 0.06
"""Chance that a label that is absent is denied, or told to be gone."""


def write_report(study: RevealStudy, sides: Mapping[str, str], *, has_devices: bool) -> str:
    """The report of a study.

    Parameters
    ----------
    sides : dict from every label of the study to "right", "left" or "bilateral"
    has_devices : whether tubes or lines are on the film

    Returns
    -------
    str
        Several paragraphs that end in one line feed.
    """
    rng = study.rng(50)
    present = [label for label in REVEAL_LABELS if label in study.labels]
    rng.shuffle(present)
    sizes = {label: str(rng.choice(SIZES_OF.get(label, SIZES))) for label in REVEAL_LABELS}
    findings = [_said(rng, PHRASES[label], sides[label], sizes[label]) for label in present]
    findings += _denials(rng, set(present))
    for sentence in rng.permutation(BESIDES)[: int(rng.integers(0, 3))]:
        findings.insert(int(rng.integers(0, len(findings) + 1)), _filled(str(sentence), _any_side(rng), "small", rng))
    if has_devices:
        findings.insert(0 if rng.random() < 0.6 else len(findings), str(rng.choice(DEVICES)))
    if not findings:
        findings.append("Normal appearance of the chest.")
    return _layout(rng, study, " ".join(findings), _impression(rng, present, sides, sizes))


def _said(rng: np.random.Generator, phrases: Phrases, side: str, size: str) -> str:
    sentences = phrases.both if side == "bilateral" and phrases.both else phrases.one
    return _filled(str(rng.choice(sentences)), side, size, rng)


def _denials(rng: np.random.Generator, present: set[str]) -> list[str]:
    """Sentences about labels that are absent."""
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
    if len(in_one) > 1 and rng.random() < 0.5:  # one denial for several
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
