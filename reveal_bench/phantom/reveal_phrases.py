"""Sentences for synthetic radiology reports. All of them were written for this project; none is from a report.

Per label: how it is described, how it is named in the impression, how it is denied, and how it is told to be gone.
``{side}`` is "right", "left" or "bilateral"; ``{size}`` an adjective of amount; sentences that would sound wrong for
one of the sides are under another key.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BESIDES", "DEVICES", "INDICATIONS", "PHRASES", "Phrases"]


@dataclass(frozen=True, slots=True)
class Phrases:
    """`one` and `both`: sentences for one side and for both; `short`: for the impression; `absent`, `gone`: denials."""

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
"""Some ask for what is not there, or tell of what was: neither is a finding of the film."""

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
"""True of any film and none of the labels; a granuloma is no nodule here, as paper 004 has it (Box 3)."""

DEVICES = (
    "Lines and tubes are in standard position.",
    "The central line ends in the superior vena cava.",
    "Support devices are unchanged in position.",
    "Endotracheal tube and enteric tube are appropriately placed.",
)
