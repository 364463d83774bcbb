"""Readers' comments: a table set by hand before the rules were first run on it; the simulated
readers' comments are in :mod:`tests.phantom.test_reveal_words`."""

from __future__ import annotations

import pytest

from reveal_bench.curation.comments import labels_after, revise_by_rules
from reveal_bench.curation.tables import Revision, Vote
from tests.curation.radiology_sentences import SHORT

TABLE = """
# Paper 004, Box 4, the two examples
AO IO | D | No pneumonia | nothing
AO | D | also cardiomegaly and pleural effusions | AO CM PE
# Additions
AO | D | Add effusion | AO PE
AO | M | Also left pleural effusion. | AO PE
- | D | There is also a nodule | LN
AO | D | Missing cardiomegaly and COPD | AO CM CO
CM | D | missed the pneumothorax | CM PX
CM | M | also emphysema | CM CO
CM | M | Pleural effusion, lung nodule | CM LN PE
CM | M | + effusion | CM PE
PE | D | 5 cm mass in the left lung | LM PE
PE | M | + PTX | PE PX
# Removals
AO PE | D | No effusion | AO
AO PE | M | I do not see pleural effusion | AO
AO PE | D | I don't see an effusion. | AO
AO PE CM | D | Would remove airspace opacity and cardiomegaly | PE
AO PE | D | Effusion is not convincing | AO
AO PE | D | pleural effusion should be removed | AO
AO | D | Would remove airspace opacity. | -
AO CM | D | Disagree with cardiomegaly | AO
AO CM | M | heart size is normal | AO
AO CM | D | lungs are clear | CM
PE | D | CP angles are sharp | -
AO PE | M | Agree except effusion | AO
AO CO | D | COPD is wrong | AO
PE PX | D | no PTX seen | PE
AO PE | D | Normal chest | -
AO | D | No findings. | -
CM | D | Overcalled cardiomegaly | -
# Both
AO PE | D | No effusion. Add nodule | AO LN
AO PE | D | No effusion but cardiomegaly | AO CM
LN | D | mass rather than nodule | LM
LM | D | this is a nodule, not a mass | LN
LN | D | change nodule to mass | LM
AO PE CM | D | only cardiomegaly | CM
AO PE | D | Remove effusion, add pleural thickening | AO PT
AO PE CM | D | No airspace opacity, pleural effusion. Also COPD | CM CO
# Uncertain
AO | M | possible effusion | AO
AO PE | M | effusion is questionable | AO
AO PE | M | effusion? | AO
AO LN | M | Equivocal nodule | AO
CM | D | maybe a nodule, also effusion | CM PE
AO | D | ? pneumothorax | AO
AO PE | M | Small effusion cannot be excluded | AO
# Contradictions and nothing
AO | D | No pneumothorax | nothing
AO CM | D | No nodule and no mass | nothing
AO | D | poor quality film | nothing
AO | D | | nothing
AO | D | see above | nothing
AO | D | n/a | nothing
AO PE | D | airspace opacity | nothing
AO | D | No pneumothorax, add effusion | AO PE
AO PE | D | No atelectasis | nothing
# A second batch, written after the rules had been seen to work on the first
AO PE | D | there's no effusion | AO
AO PE | D | only airspace opacity, no effusion | AO
AO PE | M | would not call effusion | AO
AO CM | M | heart is not enlarged | AO
AO IO | D | interstitial opacity only | IO
AO | D | also heart is enlarged and there is a hiatal hernia | AO CM HH
AO LN | D | nodule is a granuloma | AO
AO LN | D | nodule is nipple shadow | AO
PE | D | this is pleural thickening, not effusion | PT
PE | D | effusion is actually pleural thickening | PT
AO PE | M | Agree with airspace opacity, do not agree with effusion | AO
AO PE | M | agree w/ AO but no effusion | AO
AO PE | D | delete pleural effusion; add cardiomegaly | AO CM
AO | D | would add cardiomegaly, possible nodule | AO CM
AO PE | D | Effusion not seen | AO
AO PE | D | Effusions not definite | AO
CM | D | no cardiomegaly, lungs clear | -
CM AO | M | borderline cardiomegaly | AO
AO PE | M | bad film | nothing
AO PE | D | I disagree | nothing
CO | D | no hyperinflation | nothing
AN | D | aorta is tortuous, not aneurysmal | -
LA | D | hila are normal, no adenopathy | -
PX | D | skin fold, no pneumothorax | -
AO | M | more on the left | nothing
AO PE | D | Remove both | nothing
AO PE | M | Missed right upper lobe nodule. No effusion | AO LN
# Approval
AO PE | M | Labels are fine, film is rotated | AO PE
AO PE | D | Labels are fine | AO PE
AO | M | Subtle, but plausible. | AO
AO | M | Equivocal | AO
AO | D | Equivocal | nothing
AO | D | Not plausible | nothing
AO PE | M | effusion is small | AO PE
"""

ANSWERS = {"M": "agree_mostly", "D": "disagree"}


def labels(codes: str) -> tuple[str, ...]:
    return tuple(label for code, label in SHORT.items() if code in codes.split())


def cases() -> list[tuple[str, str, str, str]]:
    rows = [line for line in TABLE.splitlines() if line.strip() and not line.startswith("#")]
    return [(a.strip(), b.strip(), c.strip(), d.strip()) for a, b, c, d in (row.split("|") for row in rows)]


def test_comments_change_the_labels() -> None:
    after = [labels_after(comment, labels(suggested), ANSWERS[answer]) for suggested, answer, comment, _ in cases()]
    expected = [None if text == "nothing" else labels(text) for *_, text in cases()]
    assert list(zip(cases(), after, strict=True)) == list(zip(cases(), expected, strict=True))


def test_reviser_answers_every_vote_in_order() -> None:
    effusion = ("Pleural effusion",)
    votes = [
        (Vote("s1", "anna", "disagree", "no effusion"), effusion),
        (Vote("s2", "anna", "disagree", "poor film"), effusion),
        (Vote("s1", "bert", "agree_mostly", "also COPD"), effusion),
    ]
    assert list(revise_by_rules(votes)) == [
        Revision("s1", "anna", (), "rules"),
        Revision("s2", "anna", None, "nothing"),
        Revision("s1", "bert", ("COPD", "Pleural effusion"), "rules"),
    ]
    assert revise_by_rules.signature == "rules|v:3"


@pytest.mark.parametrize(
    "comment", ["no " * 33_000, "? " * 50_000, "remove add " * 9_000, "effusion is wrong, " * 5_000]
)
def test_hostile_comment(comment: str) -> None:
    assert labels_after(f"{comment}. Add nodule", ("COPD",), "disagree") is not None
