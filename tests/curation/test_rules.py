"""Labels read out of reports: sentences labelled by hand, whole reports, the phantom's reports, and hostile text."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from reveal_bench.curation.report_tables import Quarantined, StudyReport
from reveal_bench.curation.rules import TERMS, Rules, find_findings, mentions
from reveal_bench.curation.sentences import clauses, denials, descriptive_sections, normalised, sentences
from reveal_bench.curation.tables import Finding, Suggestion, labels_of
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal_studies import studies
from tests.curation.radiology_prose import TABLE as PROSE
from tests.curation.radiology_sentences import TABLE
from tests.curation.radiology_sentences import sentences as labelled

N_PHANTOM = 2000


def found_labels(text: str) -> set[str]:
    return set(labels_of(find_findings(text) or ()))


def test_sentences_have_their_labels() -> None:
    rows = {sentence: set(expected) for sentence, expected in (*labelled(TABLE), *labelled(PROSE))}
    assert {sentence: found_labels(sentence) for sentence in rows} == rows


def test_the_tables_are_large_and_have_every_label_often() -> None:
    rows = [*labelled(TABLE), *labelled(PROSE)]
    counts = Counter(label for _, expected in rows for label in expected)
    assert len(rows) >= 150
    assert len({sentence for sentence, _ in rows}) == len(rows)
    assert min(counts[label] for label in REVEAL_LABELS) >= 6
    assert sum(not expected for _, expected in rows) >= 100


def test_precision_and_recall_on_the_phantoms_reports() -> None:
    counts: dict[str, Counter[tuple[bool, bool]]] = {label: Counter() for label in REVEAL_LABELS}
    for study in islice(studies("pool", seed=20261122), N_PHANTOM):
        rng = study.rng(99)
        sides = {label: str(rng.choice(["left", "right", "bilateral"])) for label in study.labels}
        read = found_labels(write_report(study, sides, has_devices=bool(rng.random() < 0.5)))
        for label in REVEAL_LABELS:
            counts[label][label in study.labels, label in read] += 1
    for label, count in counts.items():
        both, found_only, said_only = count[True, True], count[False, True], count[True, False]
        assert both + said_only >= 15, f"{label} is in too few reports to tell"
        assert both / (both + found_only) >= 0.98, f"precision of {label}"
        assert both / (both + said_only) >= 0.98, f"recall of {label}"


# Findings, sides, codes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "finding", "side"),
    [
        ("Small left pleural effusion.", "pleural effusion", "left"),
        ("Effusion on the right.", "pleural effusion", "right"),
        ("Bilateral pleural effusions, left greater than right.", "pleural effusion", "bilateral"),
        ("Consolidation in the RUL.", "consolidation", "right"),
        ("Lingular atelectasis.", "atelectasis", "left"),
        ("Pneumothorax.", "pneumothorax", None),
        ("Right and left basilar opacities.", "airspace opacity", "bilateral"),
        ("Biapical pleural thickening.", "pleural thickening", "bilateral"),
        ("R pneumothorax.", "pneumothorax", "right"),
        ("Cardiomegaly with left effusion.", "cardiomegaly", None),
        ("The left lung is clear, but there is a right nodule.", "nodule", "right"),
    ],
)
def test_side(sentence: str, finding: str, side: str | None) -> None:
    sides = {one.finding: one.side for one in find_findings(sentence) or ()}
    assert sides[finding] == side


def test_codes_are_those_of_icd_10() -> None:
    """From the WHO's public list, chapters X (J), IX (I), XI (K) and XVIII (R)."""
    codes = {term.finding: term.icd10 for term in TERMS if term.finding}
    assert codes["pleural effusion"] == "J90"
    assert codes["pneumothorax"] == "J93.9"
    assert codes["cardiomegaly"] == "I51.7"
    assert codes["hiatal hernia"] == "K44.9"
    assert codes["emphysema"] == "J43.9"
    assert codes["chronic obstructive pulmonary disease"] == "J44.9"
    assert codes["pneumonia"] == "J18.9"
    assert codes["lymphadenopathy"] == "R59.0"
    assert {term.label for term in TERMS} == {*REVEAL_LABELS, None}


def test_findings_outside_the_twelve_are_told_without_a_label() -> None:
    assert find_findings("Calcified granuloma. Subcutaneous emphysema.") == (
        Finding("granuloma"),
        Finding("subcutaneous emphysema", None, "T79.7"),
    )


def test_a_finding_is_told_once_and_with_its_side() -> None:
    findings = find_findings("FINDINGS: Left effusion. Small left effusion. IMPRESSION: Effusion.")
    assert findings == (Finding("pleural effusion", "left", "J90", "Pleural effusion"),)


# Sections and sentences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("INDICATION: Pneumonia.\n\nFINDINGS: Clear.\n\nIMPRESSION: Nodule.", {"Lung nodule"}),
        ("Indication: effusion?\nFindings:\nCardiomegaly\nImpression:\nEnlarged heart", {"Cardiomegaly"}),
        ("HISTORY: COPD. COMPARISON: Film with pneumothorax. FINDINGS: Normal.", set()),
        ("FINDINGS\nSmall effusion\n\nIMPRESSION\n1. Effusion\n2. No PTX", {"Pleural effusion"}),
        ("CLINICAL INFORMATION: mass.\nREPORT: Clear lungs.", set()),
        ("COMPARISON: None.\n\nThere is a left effusion.\n\nIMPRESSION: As above.", {"Pleural effusion"}),
        ("COMPARISON: Effusion on the prior.\n\nFINDINGS: Normal.", set()),
        ("FINDINGS: Clear.\nRECOMMENDATION: CT for nodule.", set()),
        ("Chest film.\nHeart enlarged.\nNo effusion\nCardiomegaly", {"Cardiomegaly"}),
        ("FINDINGS: There is no evidence of\npneumothorax or\nKerley B lines.", set()),
        ("FINDINGS: No consolidation,\n  effusion or\n  pneumothorax.", set()),
        ("**Findings:** Left effusion\n**Impression:** Effusion", {"Pleural effusion"}),
        ("Lungs: clear. Pleura: no effusion. Heart: enlarged.", {"Cardiomegaly"}),
        ("IMPRESSION: - Nodule\n- No mass\n- Cardiomegaly", {"Lung nodule", "Cardiomegaly"}),
        ("FINDINGS:\r\nLeft effusion.\r\nIMPRESSION:\r\nEffusion.\r\n", {"Pleural effusion"}),
    ],
)
def test_sections(report: str, expected: set[str]) -> None:
    assert found_labels(report) == expected


@pytest.mark.parametrize(
    "report", ["", " \n", "INDICATION: Pneumonia?", "EXAMINATION: Chest.\nHISTORY: COPD.", "...", "FINDINGS:\n"]
)
def test_a_report_that_tells_nothing_has_no_answer(report: str) -> None:
    assert find_findings(report) is None


def test_sentences_are_normalised() -> None:
    assert sentences("1. Oedema w/o PTX.\n2. 3.5-cm mass; r/o CA") == [
        "edema without ptx",
        "3.5 cm mass",
        "rule out ca",
    ]
    assert normalised("Tumour isn't seen (haemothorax)") == "tumor is not seen , hemothorax"
    assert descriptive_sections("Findings: a\n\nTechnique: b\n\nImpression: c") == "a\n\nc"


CAPITALS = (
    "A 3-CM NODULE IN THE RIGHT UPPER LOBE.",
    "NODULE, 1.5  CM.",
    "NODULE OF 3\nCM IN THE LEFT UPPER LOBE.",
    "TIP OF THE TUBE SEVERAL CM ABOVE THE CARINA. LUNG NODULE.",
    "LUNG NODULE. CM.",
)


@pytest.mark.parametrize("report", CAPITALS)
def test_in_capitals_cm_is_centimetres(report: str) -> None:
    assert found_labels(report) == {"Lung nodule"}
    assert found_labels(f"FINDINGS:\n{report}\nIMPRESSION:\n{report}") == {"Lung nodule"}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("Tube tip lies at 3\nCM.", set()),
        ("Tube tip lies several\nCM above the carina.", set()),
        ("Nodule of 2 -\nCM.", {"Lung nodule"}),
        ("No effusion\nCM\nLungs clear", {"Cardiomegaly"}),
        ("1. CM, stable.\n2) CM", {"Cardiomegaly"}),
        ("Tube 3 cm above the carina. CM, unchanged.", {"Cardiomegaly"}),
        ("Tube 3 cm above the carina\nCM, unchanged", {"Cardiomegaly"}),
        ("Findings: CM. In comparison, no change.", {"Cardiomegaly"}),
        ("Tube tip at 3\n- CM, unchanged", {"Cardiomegaly"}),
        ("No CM.", set()),
    ],
)
def test_cm_next_to_lines_and_numbers(report: str, expected: set[str]) -> None:
    assert found_labels(report) == expected


def test_clauses_end_where_another_statement_begins() -> None:
    text = "no effusion , heart is enlarged but lungs are clear and there is a nodule"
    assert [text[a:b].strip() for a, b in clauses(text)] == [
        "no effusion",
        "heart is enlarged",
        "lungs are clear",
        "there is a nodule",
    ]


def test_denials_have_two_kinds() -> None:
    text = "no effusion but pneumonia can not be excluded"
    assert denials(text, [(3, 11), (16, 25)]) == ["absent", "doubtful"]
    assert [(one.term.finding, one.denial) for one in mentions(text)] == [
        ("pleural effusion", "absent"),
        ("pneumonia", "doubtful"),
    ]


# The engine -----------------------------------------------------------------------------------------------------------


def test_engine_answers_every_report_and_guesses_none(tmp_path: Path) -> None:
    reports = [
        StudyReport("s1", "p1", "Left effusion."),
        StudyReport("s2", "p1", "HISTORY: COPD."),
        StudyReport("s3", "p2", "Clear."),
    ]
    progress: list[tuple[int, int]] = []
    answers = list(Rules().run(reports, tmp_path, lambda done, total: progress.append((done, total))))
    effusion = Finding("pleural effusion", "left", "J90", "Pleural effusion")
    assert answers == [
        Suggestion("s1", "p1", (effusion,), ("Pleural effusion",), "ok", "rules|v:3"),
        Quarantined("s2", "p1", "no findings or impression to read", "rules|v:3"),
        Suggestion("s3", "p2", (), (), "ok", "rules|v:3"),
    ]
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert Rules().signature == "rules|v:3"
    assert "possible" in Rules().settings()["hedges"]["counts"]


HOSTILE = {
    "one word": "a" * 100_000,
    "negations": "no " * 33_000,
    "blunting": "blunting of the left " * 5_000,
    "commas": "no effusion, small " * 5_000,
    "ands": "and is and " * 9_000,
    "heart is": "the heart is " + "mildly " * 14_000,
    "hyphens": "-" * 100_000,
    "newlines": "a\n" * 50_000,
    "blank lines": "\n" * 100_000,
    "headings": "FINDINGS: " * 10_000,
    "half headings": "findings" + " " * 99_000,
    "sizes": "1.5 x " * 16_000 + "cm nodule",
    "digits": "9" * 100_000 + " cm mass",
    "spaces": "mass" + " " * 100_000 + "effusion",
    "questions": "? " * 50_000,
    "nodes": "enlarged " + "hilar and " * 10_000 + "nodes",
    "pleural": "pleural or " * 9_000 + "thickening",
    "exotic": "ﬁ\u0130ß\u200b\U0001d7d8\x00" * 16_000,
    "brackets": "([/" * 33_000,
    "stars": "* " * 50_000,
    "lengths": "a CM " * 20_000,
    "lengths and blanks": "CM" + " " * 50_000 + "3" + " " * 50_000 + "CM a",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_to_its_end(text: str) -> None:
    """Each has 100 KB; a pattern that takes quadratic time or worse would run for minutes."""
    marked = f"Cardiomegaly.\n\n{text}\n\nFINDINGS: Pneumothorax."
    assert "Pneumothorax" in found_labels(marked)


def test_any_text_gives_labels_or_none() -> None:
    pieces = ["no", "not", "but", "and", ",", ".", "?", ":", "with", "left", "mass", "3", "cm", "effusion", "is"]
    pieces += ["enlarged", "heart", "resolved\n", "FINDINGS:"]
    rng = random.Random(3)
    for _ in range(300):
        text = " ".join(rng.choices(pieces, k=rng.randrange(0, 30)))
        findings = find_findings(text)
        assert findings is None or {one.label for one in findings} <= {*REVEAL_LABELS, None}
        assert findings == find_findings(text)
