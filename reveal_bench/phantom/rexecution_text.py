"""Word questions about synthetic studies: prompts, indications, tags and reference answers.

A *topic* is a question that a radiologist might ask an assistant. The reference answer is filled in from the drawing,
so it never contradicts the image. Findings are named as in :mod:`reveal_bench.phantom.patients`; positions are those in
the frontal image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts about a drawing.

    `places` maps a finding to positions such as "right lower zone", one per contour; the widths of heart and chest
    are relative to the image's width.
    """

    places: Mapping[str, Sequence[str]]
    view: str
    heart: float
    chest: float


@dataclass(frozen=True, slots=True)
class Course:
    """The drawn areas of a finding in the earlier and the present study; 0 means absent."""

    before: float
    now: float

    def describe(self) -> str:
        """Return the finding's course in words; a change of less than a quarter of the area counts as unchanged."""
        if self.before == self.now == 0:
            return "absent on both studies"
        if self.before == 0:
            return "new since the earlier study"
        if self.now == 0:
            return "no longer seen"
        ratio = self.now / self.before
        return "larger than before" if ratio > 1.25 else "smaller than before" if ratio < 0.8 else "about as before"


@dataclass(frozen=True, slots=True)
class Topic:
    """One kind of question.

    Attributes
    ----------
    findings : findings that the topic is about, all of which the reference answer mentions
    prompts, indications : texts to choose from
    verdicts : last sentence of the answer if none of `findings` was drawn, and if some of them were
    tags : tags that cannot be derived from the other fields
    temporal : whether the question compares `findings[0]` with an earlier study
    """

    name: str
    category: str
    findings: tuple[str, ...]
    prompts: tuple[str, ...]
    indications: tuple[str, ...]
    verdicts: tuple[str, str]
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    temporal: bool = False


BOX = "Put a labelled box around each finding you name; if there is nothing to mark, say so."
"""Last sentence of a prompt whose answer must localize findings."""

# fmt: off
TOPICS: tuple[Topic, ...] = (
    Topic(
        "pleura", "broad_abnormality", ("Pleural Effusion", "Pneumothorax"),
        ("Go round the pleura on both sides and report everything abnormal, with side and extent.",
         "Is any part of the pleural space abnormal? Describe fluid and air separately for each side."),
        ("___-year-old with pain on breathing.", "Dyspnoea after a fall; fluid or air?"),
        ("The pleural spaces are clear.", "The rest of the pleura is clear."),
        {"anatomical_region": ("Pleura",), "pathology_type": ("Effusion", "Pneumothorax"), "laterality": ("Bilateral",),
         "diagnostic_intent": ("Detection",), "subtype": ("Descriptive",)},
    ),
    Topic(
        "devices", "broad_abnormality", ("Support Devices", "Pneumothorax"),
        ("List all tubes, lines and implanted devices and look for complications of placing them.",
         "Which devices does this patient have, and has any of them done harm?"),
        ("Intensive care, routine film after line change.", "Check position of ___ after placement."),
        ("No device and no complication is seen.", "Nothing else suggests a complication."),
        {"anatomical_region": ("Devices", "Mediastinum"), "pathology_type": ("Device position",),
         "diagnostic_intent": ("Detection", "Safety"), "subtype": ("Enumeration",)},
    ),
    Topic(
        "lungs", "broad_abnormality",
        ("Airspace Opacity", "Lung Lesion", "Edema", "Consolidation", "Atelectasis"),
        ("Describe every opacity of the lungs by side, zone, extent and texture.",
         "Report all parenchymal abnormalities in order of importance, and what each may stand for."),
        ("Cough for three weeks.", "___-year-old, fever and raised white count."),
        ("Both lungs are clear.", "The remaining lung is clear."),
        {"anatomical_region": ("Lung fields",), "pathology_type": ("Opacity",),
         "diagnostic_intent": ("Detection", "Characterisation"), "subtype": ("Descriptive",)},
    ),
    Topic(
        "mediastinum", "broad_abnormality", ("Cardiomegaly", "Enlarged Cardiomediastinum"),
        ("Assess heart and mediastinum: size, outline and any widening.",
         "Describe all abnormalities of the cardiac and mediastinal silhouette."),
        ("Hypertension; heart size?", "Chest pain radiating to the back."),
        ("Heart and mediastinum are of normal size.", "Their outline is otherwise regular."),
        {"anatomical_region": ("Cardiac silhouette", "Mediastinum"), "pathology_type": ("Enlargement",),
         "diagnostic_intent": ("Detection",), "subtype": ("Descriptive",)},
    ),
    Topic(
        "heart failure", "diagnosis_support", ("Edema", "Pleural Effusion", "Cardiomegaly"),
        ("Collect what speaks for and what against heart failure on this film, and weigh it.",
         "Could this be decompensated heart failure? Name each sign you looked for, found or not, and how sure you "
         "are."),
        ("Shortness of breath, swollen legs. Failure?", "___ with known cardiomyopathy, worse since yesterday."),
        ("Nothing here supports heart failure.", "Together this makes heart failure more likely; the film alone does "
         "not prove it."),
        {"anatomical_region": ("Cardiac silhouette", "Lung fields", "Pleura"), "pathology_type": ("Heart failure",),
         "diagnostic_intent": ("Evidence gathering",), "subtype": ("Reasoning",)},
    ),
    Topic(
        "pneumonia", "diagnosis_support", ("Consolidation", "Airspace Opacity", "Pleural Effusion"),
        ("Is there pneumonia? Give the evidence, the alternatives, and the one you think most likely.",
         "Give a differential diagnosis of any airspace opacity you see and argue for one."),
        ("Fever and productive cough, rule out pneumonia.", "Immunosuppressed, new oxygen requirement."),
        ("There is no sign of pneumonia.", "Infection is possible; collapse and oedema are the alternatives to "
         "exclude."),
        {"anatomical_region": ("Lung fields", "Pleura"), "pathology_type": ("Pneumonia",),
         "diagnostic_intent": ("Differential diagnosis",), "subtype": ("Reasoning",)},
    ),
    Topic(
        "collapse", "diagnosis_support", ("Atelectasis", "Pleural Effusion"),
        ("Tell collapse from fluid at the lung bases and say on what you base it.",
         "Which signs of volume loss are there, and what may cause it?"),
        ("Day 3 after abdominal surgery, saturation falling.", "Reduced breath sounds at the bases."),
        ("Neither collapse nor fluid is seen.", "The cause cannot be told from one film."),
        {"anatomical_region": ("Lung fields", "Diaphragm"), "pathology_type": ("Atelectasis", "Effusion"),
         "diagnostic_intent": ("Differential diagnosis",), "subtype": ("Reasoning",)},
    ),
    Topic(
        "malignancy", "diagnosis_support", ("Lung Lesion", "Pleural Effusion", "Enlarged Cardiomediastinum"),
        ("Look for evidence of lung cancer, its spread included, and say what to do next.",
         "Is a malignant process likely? Weigh each focal lesion, node or effusion you find."),
        ("Weight loss, 40 pack years.", "Haemoptysis; ___ in the past."),
        ("There is no evidence of malignancy on this film.", "CT is needed before anything is concluded."),
        {"anatomical_region": ("Lung fields", "Hilar regions", "Mediastinum"), "pathology_type": ("Malignancy",),
         "diagnostic_intent": ("Evidence gathering", "Management"), "subtype": ("Reasoning",)},
    ),
    Topic(
        "heart size", "measurement_temporal", ("Cardiomegaly",),
        ("Measure the cardiothoracic ratio: give both diameters in pixels, the ratio, and whether it is abnormal for "
         "this projection.",),
        ("Preoperative film.", "Murmur; heart size?"),
        ("The heart is not enlarged for the projection.", "The heart is enlarged."),
        {"anatomical_region": ("Cardiac silhouette",), "pathology_type": ("Cardiomegaly",),
         "diagnostic_intent": ("Measurement",), "subtype": ("Quantitative",)},
    ),
    *(
        Topic(
            f"{finding} over time", category, (finding,), (f"{prompt}",), indications,
            ("Nothing has to be followed.", "It should be followed."),
            {"anatomical_region": (region,), "pathology_type": (finding,), "diagnostic_intent": ("Follow-up",),
             "subtype": ("Comparison",)},
            temporal=True,
        )
        for finding, category, region, prompt, indications in (
            ("Pleural Effusion", "measurement_temporal", "Pleura",
             "Compare the pleural fluid with the earlier study: has it grown, shrunk or moved?",
             ("Effusion, after drainage.", "Follow-up of known effusion.")),
            ("Airspace Opacity", "measurement_temporal", "Lung fields",
             "How have the opacities of the lungs changed since the earlier study?",
             ("Pneumonia under treatment, day ___.", "No better on antibiotics.")),
            ("Pneumothorax", "measurement_temporal", "Pleura",
             "Measure any pneumothorax and compare it with the earlier study.",
             ("Chest drain removed.", "Known pneumothorax, progression?")),
            ("Airspace Opacity", "diagnosis_support", "Lung fields",
             "Is there an opacity that was not there on the earlier study? Give its differential diagnosis.",
             ("Aspiration last night?", "Sudden desaturation.")),
        )
    ),
)
# fmt: on


def topics_of(category: str, *, temporal: bool) -> list[Topic]:
    """Return a category's topics that do, or do not, compare with an earlier study."""
    return [topic for topic in TOPICS if topic.category == category and topic.temporal == temporal]


def prompt_text(topic: Topic, rng: np.random.Generator) -> tuple[str, str | None, bool]:
    """Return (prompt, indication, whether the prompt asks for boxes); a tenth of the studies have no indication."""
    prompt = topic.prompts[int(rng.integers(len(topic.prompts)))]
    indication = topic.indications[int(rng.integers(len(topic.indications)))]
    boxes, known, apart = rng.random(3) < (0.85, 0.9, 0.3)
    if boxes:
        prompt += ("\n" if apart else " ") + BOX
    return prompt, indication if known else None, bool(boxes)


def answer_text(topic: Topic, seen: Seen, comparison: Course | None) -> str:
    """Return the reference answer: measurements, positions or absence of each finding of the topic, and a verdict."""
    widths = f"{seen.heart:.3f} and {seen.chest:.3f} of the film's width"
    lines = [
        f"{seen.view} film; heart and chest measure {widths} (cardiothoracic ratio {seen.heart / seen.chest:.2f})."
    ]
    for finding in topic.findings:
        places = sorted(set(seen.places.get(finding, ())) - {""})
        if finding in seen.places:
            lines.append(f"{finding}: {', '.join(places) if places else 'present'}.")
        else:
            lines.append(f"No {finding.lower()}.")
    if comparison is not None:
        lines.append(f"{topic.findings[0]} is {comparison.describe()}.")
    present = any(finding in seen.places for finding in topic.findings)
    return " ".join([*lines, topic.verdicts[present]])


def tag_values(topic: Topic) -> dict[str, tuple[str, ...]]:
    """Return tag -> values, for the question without its answer; more than four values become "Multiple"."""
    tags = {
        **topic.tags,
        "imaging_finding": topic.findings,
        "temporal_context": ("Follow-up",) if topic.temporal else ("Current study",),
        "question_type": ("Open-ended",),
    }
    return {name: values if len(values) <= 4 else ("Multiple",) for name, values in tags.items()}
