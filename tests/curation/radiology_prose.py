"""More sentences with their labels, written after the rules had passed the first table. They are longer and closer to
dictated prose. When the rules were first run on them, 84 of 89 and 59 of 62 were read correctly, and 230 of the 231 of
the first table; the errors have been corrected since.

They are longer and nearer to dictated prose. When the rules were first run on them, 84 of 89 and 59 of 62 were read
right, and 230 of the 231 of the first table; the wrong ones have been corrected since.
"""

from __future__ import annotations

TABLE = """
# Second batch
PE | The left hemidiaphragm is obscured by a moderate effusion with no evidence of loculation.
- | No evidence of acute focal pneumonia, vascular congestion, or pleural effusion.
CM IO | Enlargement of the cardiac silhouette with mild elevation of pulmonary venous pressure and increased
    interstitial markings.
AO PE | Opacification at the left base is consistent with volume loss in the lower lobe and pleural effusion.
PX | In comparison with the study of yesterday, the small right apical pneumothorax persists.
- | In comparison with the earlier study, there is no longer any evidence of pneumothorax.
AO | Increasing opacification at the right base raises the possibility of developing pneumonia.
- | There is no appreciable pleural effusion or pneumothorax.
- | The previously noted right lower lobe opacity has since resolved.
AO | Bibasilar opacities likely reflect atelectasis, though infection is not excluded in the appropriate clinical
    setting.
CM | Mild to moderate cardiomegaly is stable; mediastinal and hilar contours are unremarkable.
CM | Moderate-to-severe enlargement of the heart.
- | Heart size and mediastinal contours are within normal limits; no pulmonary nodule or mass.
- | The cardiomediastinal and hilar contours are normal.
AO | Low lung volumes with crowding and subsegmental atelectasis.
CO | The lungs are hyperinflated, consistent with COPD, but otherwise clear without focal consolidation, effusion or
    pneumothorax.
CO | Lungs remain hyperinflated, with no focal consolidation.
LN | There is a 7-mm nodular opacity in the right lower lung, not seen on the prior study.
PT | Bilateral apical scarring with pleural thickening.
- | No free air below the diaphragm.
HH | Air-filled retrocardiac structure is most likely a hiatal hernia.
AN | The thoracic aorta is aneurysmal and tortuous.
- | The aorta is calcified and tortuous without aneurysm.
AO PE | Persistent left retrocardiac opacity and left-sided effusion.
PE | Small bilateral effusions are present, left greater than right, without pneumothorax.
- | Interval removal of the right chest tube with no pneumothorax.
PX | Interval development of a small left pneumothorax.
PX | Following removal of the chest tube, there is a tiny residual apical pneumothorax.
AO | Confluent airspace opacity in the lingula, new since the prior.
- | Chest tube in place, without residual pneumothorax or effusion.
IO | Chronic interstitial lung disease, not significantly changed.
IO | Subpleural reticulation and traction bronchiectasis.
IO | Interstitial prominence may reflect mild edema.
AO | Perihilar haziness and alveolar oedema.
AO | Asymmetric pulmonary edema, right greater than left.
CM | CTR 0.58.
- | CTR 0.46.
- | Cardiothoracic ratio is not increased.
CM | Cardiothoracic ratio measures 60%.
PE | Meniscus at the left base indicating effusion.
LN | Multiple small nodules, unchanged.
LM | Known right hilar mass with postobstructive changes.
AO LM | Known right hilar mass with postobstructive pneumonia.
LA | Mediastinal widening due to lymphadenopathy.
LA | Hilar and mediastinal lymph nodes are enlarged.
- | No enlarged hilar nodes.
- | Calcified lymph nodes.
PE | The previously seen effusion has increased.
PE AO | There has been interval increase in the right effusion and adjacent atelectasis.
AO | The right lower lobe consolidation has improved but not completely cleared.
PE | Interval decrease in the size of the effusion, which has not resolved.
- | Prior right effusion has resolved.
PX | No tension component to the left pneumothorax.
- | No definite effusion or pneumothorax, although the right costophrenic angle is excluded from the film.
- | Subtle opacity seen previously is no longer apparent.
- | The nodule described on CT is not visible on this radiograph.
PE AO | Complete white-out of the left hemithorax due to effusion and collapse of the left lung.
AO | Plate-like atelectasis at both bases. No consolidation.
- | The lungs are well expanded and clear, and there is no pleural effusion, pneumothorax, or focal airspace
    consolidation.
- | Clear lungs. No consolidation, pneumothorax or pleural effusions. Normal heart.
- | There is neither focal consolidation, pneumothorax nor pleural effusion.
- | No radiographic evidence for pneumonia.
- | Nothing to suggest pneumonia.
- | Lungs: Clear. Pleura: No effusion. Heart: Not enlarged.
CM PE | Heart: Enlarged. Pleura: Small left effusion. Bones: Intact.
- | Lungs: No consolidation. Pneumothorax: Negative.
- | Pneumothorax - none.
- | Pleural spaces are clear, no fluid.
- | No consolidation/effusion/pneumothorax.
PE | Effusion (small, left) is stable.
PX | Pneumothorax (right apical, 1.2 cm) is stable.
LN PX | Right pneumothorax of 2 cm and a nodule in the left lung.
- | Pacemaker leads intact, no evidence of CHF.
- | No overt edema.
- | Free of pneumothorax.
- | The right lung is free of infiltrate and the left lung is also clear.
PE | Pleural effusion is present on the left and absent on the right.
CM | Cardiomegaly. Otherwise no acute findings.
CM | Cardiomegaly, no CHF, no infiltrates.
CM AO | Cardiomegaly and atelectasis, no pneumothorax or effusion.
AO | Suspected left lower lobe pneumonia.
AO | Left lower lobe pneumonia until proven otherwise.
LN | 2 x 1.5 cm spiculated lung lesion.
PT | Calcified plaques of the pleura, consistent with asbestos exposure, pleural plaques.
PT | Left apical pleural cap.
PE | Costophrenic angles are blunted bilaterally.
- | Blunting of the left costophrenic angle is due to scarring.
PT | Chronic blunting of the left costophrenic sulcus from pleural thickening.
PE | Loculated right pleural fluid collection.

# Third batch
CM AO PE | Cardiomediastinal silhouette is stably enlarged. Bibasilar airspace opacities, likely layering effusions
    with compressive atelectasis.
- | The lungs are symmetrically expanded without consolidation, effusion, or pneumothorax. Cardiac size normal.
AO | Streaky opacities at the lung bases, likely atelectatic.
- | No lobar consolidation. No large effusion. No acute osseous abnormality.
PE | Moderate-sized pleural effusion on the right with fluid tracking into the minor fissure.
PX | There's a 1.5-cm right-sided pneumothorax; no shift.
LN | Stable 4 mm left lower lobe nodule dating back to 2015.
LM | 4-cm left suprahilar mass, highly suspicious for bronchogenic carcinoma.
CO | COPD changes. No acute process.
IO | Basilar-predominant fibrotic changes.
- | No pulmonary fibrosis. Mild scoliosis.
HH | There is a moderate-sized hiatal hernia. Otherwise clear.
AN | Descending thoracic aortic aneurysm measuring up to 6 cm.
- | Mild ectasia of the ascending aorta.
LA | Bilateral hilar and right paratracheal lymph node enlargement, compatible with sarcoid.
PT | Bilateral calcified pleural plaques consistent with prior asbestos exposure.
AO | Left lower lobe airspace disease has progressed.
AO | Left basilar opacity, which has improved from the prior exam, likely represents resolving pneumonia.
- | Interval resolution of previously seen bilateral pleural effusions and pulmonary edema.
AO | No significant effusion, but persistent left basilar consolidation.
PE | Persistent small right effusion. Pneumothorax has resolved.
- | No evidence of active tuberculosis.
CM | Cardiac silhouette: moderately enlarged.
- | Cardiac silhouette: normal in size.
CM | Heart is at least moderately enlarged.
CM | Heart size is mild to moderately enlarged.
CM | There is mild-to-moderate enlargement of the cardiac silhouette.
AO | Airspace opacities in the mid and lower lungs have increased in the interval.
AO PE | Large left effusion with compressive atelectasis, no pneumothorax.
- | Linear scarring in the lingula.
- | Old granulomatous disease.
CO AO | Hyperinflation with superimposed right lower lobe pneumonia.
IO | Diffusely increased interstitial markings, chronic.
IO PE | Increased interstitial lung markings with Kerley lines and small effusions, consistent with heart failure.
IO CM | Cardiomegaly with interstitial pulmonary oedema.
- | The patient is status post CABG. Sternal wires are intact.
- | No displaced rib fracture or pneumothorax.
- | No acute rib fracture; no pneumothorax.
PX | Persistent pneumothorax despite the chest tube.
- | Chest tube has been removed without evidence of pneumothorax.
AO | Evolving right upper lobe infiltrate.
AO | Patchy opacity in the RML suspicious for pneumonia versus aspiration.
- | No airspace consolidation or interstitial edema. The pulmonary vasculature is normal.
PE | Stable bilateral pleural effusions without evidence of superimposed pneumonia.
LN | Ill-defined nodular density in the right upper lung; CT chest recommended to exclude malignancy.
LN | Pulmonary nodules are again noted, the largest measuring 1.2 cm.
- | Nipple shadows project over both bases.
PE | Small pleural effusions cannot be excluded on the right; there is a definite effusion on the left.
- | Low suspicion for pneumonia.
- | Low probability of pneumonia.
- | Nonspecific bowel gas pattern. No pneumoperitoneum.
CM PE | Enlarged heart, bilateral pleural effusions, vascular congestion.
- | Resolved effusions.
PX PE | Small left hydropneumothorax, unchanged.
- | Evaluation for pneumothorax is limited. None seen.
- | Previously noted pneumothorax is not appreciated on the current exam.
AO | Worsening multifocal pneumonia, compatible with COVID-19.
- | Mediastinum is not widened; hila are not enlarged.
- | No hilar enlargement.
- | Heart and lungs are normal.
PE | Right-sided pleural effusion has decreased, nearly resolved.
AO | Interval improvement in edema, with residual perihilar opacities.

# Mended since
CM | Prior median sternotomy and moderate cardiomegaly.
CM | Status post CABG and cardiomegaly.
PE | Compared to prior the left effusion is larger.
AO | Scarring from prior pneumonia, with new right basilar consolidation.
- | Scarring from prior pneumonia.
PX | No pneumothorax is seen on the right, a left pneumothorax persists.
"""
