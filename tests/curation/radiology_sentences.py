"""Sentences in the English of chest radiograph reports, with the labels that they say are there.

All were written for this test, none is from a report; the labels were set by hand before the rules were first run on
them. What a sentence leaves open is decided as the rules' policy has it: a hedge about the cause, or "possible",
counts; "cannot be excluded", "rule out", "questionable" and history do not.
"""

from __future__ import annotations

SHORT = {
    "AO": "Airspace opacity",
    "AN": "Aneurysm",
    "CM": "Cardiomegaly",
    "CO": "COPD",
    "HH": "Hiatal hernia",
    "IO": "Interstitial opacity",
    "LM": "Lung mass",
    "LN": "Lung nodule",
    "LA": "Lymphadenopathy",
    "PE": "Pleural effusion",
    "PT": "Pleural thickening",
    "PX": "Pneumothorax",
}

TABLE = """
# Plain statements
AO | There is consolidation in the left lower lobe.
AO | Patchy bibasilar opacities are seen.
AO | Right middle lobe pneumonia.
AO | Linear atelectasis at the left base.
AO | Bibasilar subsegmental atelectasis, left worse than right.
AO | Diffuse ground-glass opacities throughout both lungs.
AO | Air-space disease in the right upper lobe with air bronchograms.
AO | Retrocardiac opacity, likely atelectasis.
AO | Left lower lobe collapse.
AO | Multifocal infiltrates, right greater than left.
AO | Hazy opacification of the right hemithorax.
AO | Pulmonary oedema, mildly worse than yesterday.
AO | Findings compatible with aspiration in the right lower lobe.
AO | Diffuse alveolar haemorrhage is suspected.
AN | Thoracic aortic aneurysm, stable in size.
AN | Aneurysmal dilatation of the descending aorta.
AN | Known ascending aortic aneurysm measuring 5.2 cm.
CM | The heart is mildly enlarged.
CM | Enlarged cardiac silhouette.
CM | Moderate cardiomegaly is unchanged.
CM | Cardiac enlargement is again seen.
CM | The cardiac silhouette remains markedly enlarged.
CM | Stable enlargement of the cardiac silhouette.
CM | The cardiomediastinal silhouette is enlarged.
CM | Cardiothoracic ratio is increased.
CM | Heart size: enlarged.
CM | Cardiac shadow is enlarged, accentuated by the AP projection.
CO | Hyperinflated lungs with flattened hemidiaphragms.
CO | Changes of COPD are present.
CO | Emphysematous changes in the upper lobes.
CO | Lungs are hyperexpanded.
CO | Bullous emphysema, unchanged.
CO | Flattening of the diaphragms in keeping with obstructive airways disease.
HH | Moderate hiatal hernia.
HH | Large hiatus hernia containing an air-fluid level.
HH | Retrocardiac lucency due to a paraesophageal hernia.
HH | Para-oesophageal hernia is again demonstrated.
IO | Diffuse reticular opacities, worse at the bases.
IO | Increased interstitial markings bilaterally.
IO | Kerley B lines are present.
IO | Coarsened interstitial markings suggest fibrosis.
IO | Mild interstitial edema.
IO | Interstitial pneumonia with honeycombing.
IO | Peribronchial cuffing and septal thickening.
IO | Reticulonodular pattern in both lungs.
IO | Prominent interstitial markings in keeping with ILD.
LM | A 5.4 cm mass is present in the right upper lobe.
LM | Spiculated left upper lobe mass, concerning for malignancy.
LM | Mass-like opacity in the right perihilar region.
LM | Large cavitating mass in the left lung.
LN | 8 mm nodule in the left upper lobe.
LN | Multiple bilateral pulmonary nodules.
LN | Nodular opacity projecting over the right sixth rib.
LN | Small round nodule at the right apex, CT recommended.
LN | Innumerable pulmonary metastases.
LA | Bilateral hilar lymphadenopathy.
LA | Enlarged mediastinal lymph nodes.
LA | Right paratracheal adenopathy is noted.
LA | Bulky hilar nodes, likely sarcoidosis.
PE | Small left pleural effusion.
PE | Moderate bilateral effusions, increased.
PE | Blunting of the left costophrenic angle.
PE | The right costophrenic angle is blunted.
PE | Bilateral costophrenic angle blunting.
PE | Layering fluid in the right pleural space.
PE | Right hydrothorax after surgery.
PE | Trace pleural fluid bilaterally.
PE | Left-sided haemothorax.
PT | Biapical pleural thickening.
PT | Calcified pleural plaques, left more than right.
PT | Thickening of the right lateral pleura.
PT | The pleura is thickened along the left chest wall.
PT | Apical pleural scarring is unchanged.
PX | Tiny left apical pneumothorax.
PX | Moderate right PTX with slight mediastinal shift.
PX | Bilateral pneumothoraces, unchanged from prior.
PX | A visceral pleural line is seen at the left apex.
PE PX | Right hydropneumothorax.

# Several in one sentence
CM PE | Cardiomegaly with small bilateral pleural effusions.
AO PE | Left basilar atelectasis and small effusion.
CM IO PE | CHF with cardiomegaly, interstitial edema and effusions.
CM AO PE | The heart is enlarged, there are bilateral effusions, and there is bibasilar consolidation.
CO LN | Emphysema; 1.2 cm nodule in the right upper lobe.
AO PX | Right apical pneumothorax with adjacent atelectasis.
HH AO | Hiatal hernia with adjacent left basilar atelectasis.
LN LM | A 5 cm mass in the right upper lobe and a 9 mm nodule in the left lung.
AO PE | Opacity at the right base represents a combination of pleural effusion and atelectasis.
CM CO AN | Stable cardiomegaly, COPD and thoracic aortic aneurysm.
AO IO | Mixed interstitial and airspace opacities.

# Denials
- | Findings are negative for pneumothorax.
- | The lungs are negative for consolidation.
- | Nil effusion.
- | No pneumothorax.
- | No focal consolidation, pleural effusion, or pneumothorax.
- | There is no evidence of pneumonia or edema.
- | Lungs are clear without infiltrate or effusion.
- | The lungs are free of consolidation and nodules.
- | Negative for pneumothorax.
- | Neither effusion nor pneumothorax is seen.
- | No pleural effusion or pneumothorax is identified.
- | The heart is not enlarged.
- | Cardiac silhouette is not enlarged and the lungs are clear.
- | The costophrenic angles are not blunted.
- | Absence of lymphadenopathy.
- | No hilar or mediastinal lymphadenopathy, no suspicious mass.
- | Pneumothorax is not seen.
- | Pleural effusion is absent.
- | A mass is not identified.
- | Pneumothorax: none.
- | Pleural effusion: No.
- | Effusions: not present.
- | The lungs are not hyperinflated.
- | The aorta is tortuous but not aneurysmal.
- | No new consolidation.
- | Interstitial markings are not increased.
- | No increase in interstitial markings.
- | Without evidence of acute airspace disease.
- | There isn't any pleural effusion.
- | Pneumonia is unlikely.
- | Pneumothorax has been excluded.
- | Lines in place w/o pneumothorax.
- | There is lack of pleural fluid.
- | No cardiomegaly, congestion or effusions.
- | Skin fold mimicking a pneumothorax on the right.
- | Specifically, no consolidation, effusion, pneumothorax, nodule or mass.
- | No infiltrate, no effusion, no PTX.

# Denied and present in one sentence
PE | No pneumothorax, but a small left effusion persists.
CM | No edema or effusion; the heart is enlarged.
AO | Left basilar atelectasis without effusion.
AO | Left lower lobe opacity with no associated effusion or pneumothorax.
CM | The heart is enlarged but the lungs are clear, with no effusion.
PE | No consolidation, however there is a moderate right pleural effusion.
PX | Small apical pneumothorax; no mediastinal shift and no effusion.
PE | No pneumothorax. Small effusion.
CM | No pneumothorax or effusion, moderate cardiomegaly.
PE | No pneumothorax and there is a small right effusion.
CM | No focal consolidation, heart is enlarged.
AO | Clear lungs except for mild bibasilar atelectasis.
AO | No acute abnormality apart from left basal consolidation.
LN | No effusion, although a 6 mm nodule is seen at the left base.
CO | Emphysema without superimposed pneumonia.
PE | Left effusion, the right lung is clear and there is no pneumothorax.
LN | Nodule rather than mass in the left upper lobe.
AO | Atelectasis, less likely early pneumonia.

# Denials that are none
PE | No change in the left pleural effusion.
CM | No significant interval change in cardiomegaly.
PE | No interval increase in the right effusion.
AO PE | The effusion is not significantly changed, with adjacent atelectasis.
AO PE | Not only consolidation but also an effusion is present.
PX | The pneumothorax has not resolved.
PX | Without change in the small apical pneumothorax.
AO PE | The left base is not well seen due to effusion and atelectasis.
LN | No growth of the 5 mm right upper lobe nodule.
AO | No improvement in the bibasilar opacities.
PE | Effusion is not increased.

# Gone, or going
- | The right pneumothorax has resolved.
- | Interval resolution of the left pleural effusion.
- | Previously seen consolidation has cleared.
- | Pulmonary edema is no longer seen.
- | The effusions have completely resolved.
- | Resolved right lower lobe pneumonia.
- | There is no longer a pneumothorax.
- | The heart is no longer enlarged.
- | Left basal opacity seen on the previous film is not visualised today.
- | Interval clearing of the right basilar infiltrate.
- | The effusion and the pneumothorax have resolved.
PE | The left effusion persists while the right effusion has resolved.
AO | Near-complete resolution of the right lower lobe pneumonia.
PX | Decreasing left apical pneumothorax.
PE | Improved but persistent pleural effusions.
AO | Resolving pneumonia in the lingula.
PE | There is a left effusion, and the pneumothorax has resolved.
AO | Partial clearing of the left basal consolidation.

# Hedges
AO | Patchy right basal opacity which may represent pneumonia.
AO | Possible early pneumonia in the left lower lobe.
PE | Probable small left effusion.
AO | Bibasilar opacities, atelectasis versus pneumonia.
LA | Prominent hila suspicious for lymphadenopathy.
PX | Lucency at the right apex concerning for pneumothorax.
- | Pneumonia cannot be excluded.
- | Small effusion cannot be excluded.
- | Correlate clinically to exclude pneumonia.
- | CT is advised to rule out a mass.
AO | Left basilar atelectasis; superimposed infection cannot be excluded.
- | Questionable nodule at the left apex.
- | ? small left effusion
- | Difficult to exclude a tiny apical pneumothorax.
- | If there is concern for pneumothorax, an expiratory film may help.
- | Underlying consolidation is not excluded.
- | Follow-up to evaluate for pneumonia.

# History
- | History of COPD.
- | Patient with a history of pneumonia, lungs now clear.
- | Status post resection of a lung mass.
- | Compared with the prior radiograph, nothing has changed.
PX | Compared to the prior study, the pneumothorax is smaller.
- | Prior pneumothorax, now with fully expanded lung.
PE | Previously described effusion is again seen.

# What only looks like one of the twelve
- | Calcified granuloma in the right upper lobe.
- | Calcified granulomas are benign; no follow-up.
- | Subcutaneous emphysema along the left chest wall.
- | Pericardial effusion cannot be assessed on this film; echocardiography has shown one.
- | No mass effect.
- | Heart size is at the upper limits of normal.
- | Heart size is top normal.
- | Thyroid nodule displacing the trachea.
- | Tortuous, unfolded aorta.
- | Low lung volumes with bronchovascular crowding.
- | Sclerotic bone lesion in the left humerus.
- | Hernia repair clips in the upper abdomen.
- | Nodular goitre.
- | Pulmonary vascular congestion.
- | Prominent hila, likely vascular.
- | Mediastinal mass with widening of the superior mediastinum.
- | Old rib fractures on the left.
- | The patient has a high body mass index.
- | Pneumomediastinum tracks into the neck.
- | Surgical emphysema in the soft tissues.
- | Cystic fibrosis clinic follow-up.
- | Borderline heart size.
- | Cerebral aneurysm clip on the scout image.

# Sizes
LN | A mass of 2.1 cm in the right lower lobe.
LM | Right upper lobe nodule now measuring 4.2 x 3.8 cm.
LN | Rounded opacity measuring 14 mm in the left mid zone.
LM | 36-mm lesion in the right lung.
LN | Nodule in the left lung, exactly 3 cm.
LM | Nodule that has grown from 2.0 cm to 3.5 cm.

# Shorthand
CM AO PE | CM, bibasilar atx, small L pl eff.
AO | LLL PNA.
PE | R pleural eff, unchanged.
AO | RLL consolidation c/w pneumonia.
- | No PTX.
- | R/o PNA.
PE | B/L pleural effusions.
- | Lungs clear. Heart WNL.

# CM is cardiomegaly, or a length
CM | Stable CM, lungs clear.
CM PE | Mild CM with small bilateral effusions.
CM | Lungs are clear. CM again seen.
- | No CM or effusion.
- | ET tube tip is 4 CM above the carina.
- | ET tube tip is four CM above the carina.
- | Feeding tube ends several CM below the diaphragm.
- | Catheter tip withdrawn a few CM since the last film.
- | Line tip lies CM from the cavoatrial junction.
LN | A 2-CM nodule in the lingula.
LN | Nodule of 1.5  CM in the right upper lobe.
LM | Mass of 4 CM x 5 CM in the left upper lobe.
LN | A 3-CM NODULE.
- | SEVERAL CM ABOVE THE CARINA.
- | CM
"""


def sentences(table: str = TABLE) -> list[tuple[str, tuple[str, ...]]]:
    """(sentence, its labels) of every row; a row may go on in the next one, which is indented."""
    rows = []
    for line in table.replace("\n    ", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            codes, _, sentence = line.partition(" | ")
            rows.append((sentence, tuple(SHORT[code] for code in codes.split() if code != "-")))
    return rows
