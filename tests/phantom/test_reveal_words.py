"""Votes of known agreement, and reports that describe exactly the drawing."""

import itertools
import math
import re
from itertools import islice

import numpy as np
import pytest

from reveal_bench.curation.comments import labels_after
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal_studies import studies
from reveal_bench.phantom.votes import (
    AGREE_IF_RIGHT,
    AGREE_IF_WRONG,
    ANSWERS,
    MOSTLY_IF_RIGHT,
    MOSTLY_IF_WRONG,
    SUGGESTION_RIGHT,
    cast_votes,
    draw_votes,
)

N = 3000


@pytest.fixture(scope="module")
def pool():
    """Return the "Agree All" of three readers, and the correctness of the suggestion, for 3,000 studies."""
    made = [(study, draw_votes(study)) for study in islice(studies("pool", seed=0), N)]
    agree = np.array([[vote.answer == "Agree All" for vote in votes.votes] for _, votes in made])
    right = np.array([set(votes.suggested) == set(study.labels) for study, votes in made])
    return agree, right, made


def joint():
    """Probability of every triple of answers (agrees or not), summed over right and wrong suggestions."""
    for answers in itertools.product((True, False), repeat=3):
        total = 0.0
        for p_right, p_agree in ((SUGGESTION_RIGHT, AGREE_IF_RIGHT), (1 - SUGGESTION_RIGHT, AGREE_IF_WRONG)):
            total += p_right * math.prod(p_agree if answer else 1 - p_agree for answer in answers)
        yield answers, total


def expected_kappa(of):
    """Kappa of the first reader with `of(answers)`, from the joint probabilities: (po - pe) / (1 - pe)."""
    po = sum(p for answers, p in joint() if answers[0] == of(answers))
    first = sum(p for answers, p in joint() if answers[0])
    second = sum(p for answers, p in joint() if of(answers))
    pe = first * second + (1 - first) * (1 - second)
    return (po - pe) / (1 - pe)


def observed_kappa(a, b):
    po = np.mean(a == b)
    pe = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    return (po - pe) / (1 - pe)


def test_kappas_are_those_in_closed_form(pool):
    agree, _, _ = pool
    majority = agree.sum(axis=1) >= 2
    with_majority = expected_kappa(lambda answers: sum(answers) >= 2)
    pairwise = expected_kappa(lambda answers: answers[1])
    assert abs(with_majority - 0.622) < 0.02  # the paper's
    assert abs(observed_kappa(agree.ravel(), np.repeat(majority, 3)) - with_majority) < 0.03
    assert abs(observed_kappa(agree[:, 0], agree[:, 1]) - pairwise) < 0.05
    share = sum(p for answers, p in joint() if sum(answers) >= 2)
    assert abs(share - 0.381) < 0.02  # 381 of 1,000
    assert abs(majority.mean() - share) < 4 * (share * (1 - share) / N) ** 0.5


def test_error_rates_are_the_documented_ones(pool):
    agree, right, made = pool
    for p, rate in (
        (SUGGESTION_RIGHT, right),
        (AGREE_IF_RIGHT, agree[right].ravel()),
        (AGREE_IF_WRONG, agree[~right].ravel()),
    ):
        assert abs(rate.mean() - p) < 4 * (p * (1 - p) / len(rate)) ** 0.5
    for is_right, p in ((True, MOSTLY_IF_RIGHT), (False, MOSTLY_IF_WRONG)):
        other = [
            vote.answer == "Agree Mostly"
            for (_, votes), correct in zip(made, right, strict=True)
            for vote in votes.votes
            if correct == is_right and vote.answer != "Agree All"
        ]
        assert abs(np.mean(other) - p) < 4 * (p * (1 - p) / len(other)) ** 0.5


def test_readers_are_three_of_seventeen_and_say_what_they_would_change(pool):
    _, _, made = pool
    readers = {vote.reader for _, votes in made for vote in votes.votes}
    assert len(readers) == 17
    for _, votes in made[:500]:
        assert len({vote.reader for vote in votes.votes}) == 3
        for vote in votes.votes:
            assert vote.answer in ANSWERS
            if vote.answer == "Agree All":
                assert (vote.comment, vote.labels) == ("", votes.suggested)
            for label in set(vote.labels or votes.suggested) ^ set(votes.suggested):
                assert label.lower() in vote.comment.lower()


def test_the_rules_read_the_readers_comments(pool):
    """The comment "Equivocal" from a reader who disagrees names no label, so the list stays unknown."""
    _, _, made = pool
    commented = ((votes.suggested, vote) for _, votes in made for vote in votes.votes if vote.comment)
    asked = [
        (vote, labels_after(vote.comment, suggested, vote.answer.lower().replace(" ", "_")))
        for suggested, vote in islice(commented, 2500)
    ]
    assert len(asked) == 2500
    assert [vote for vote, labels in asked if labels is not None and labels != vote.labels] == []
    assert sum(labels is not None for _, labels in asked) / 2500 >= 0.97


def test_a_benchmark_holds_what_a_majority_accepted():
    made = [(study, draw_votes(study)) for study in islice(studies(seed=0), 400)]
    assert all(votes.suggested == study.labels and votes.n_agree_all >= 2 for study, votes in made)
    # of studies with at least two, a**3 / (a**3 + 3 a**2 (1 - a)) have three
    a = AGREE_IF_RIGHT
    expected = a**3 / (a**3 + 3 * a**2 * (1 - a))
    rate = np.mean([votes.n_agree_all == 3 for _, votes in made])
    assert abs(rate - expected) < 4 * (expected * (1 - expected) / 400) ** 0.5


def test_votes_on_any_suggestion():
    votes = cast_votes(np.random.default_rng(0), ["COPD"], ["COPD"])
    assert len(votes) == 3


WORDS = {
    "Airspace opacity": r"airspace|consolidation|pneumonia|bibasilar opacities|atelectasis",
    "Aneurysm": r"aneurysm",
    "Cardiomegaly": r"cardiomegaly|the heart is|heart size|cardiac (silhouette|size|enlargement)",
    "COPD": r"copd|emphysema|hyperinflat|chronic obstructive|lung volumes",
    "Hiatal hernia": r"hernia|retrocardiac",
    "Interstitial opacity": r"interstitial|reticul",
    "Lung mass": r"\bmass(es)?\b",
    "Lung nodule": r"nodul",
    "Lymphadenopathy": r"lymph|adenopathy|\bhila\b",
    "Pleural effusion": r"effusion|costophrenic",
    "Pleural thickening": r"pleural thickening|thickening of the .* pleura",
    "Pneumothorax": r"pneumothora",
}
DENIED = r"\bno\b|\bnot\b|free of|normal|resol|cleared|longer|unremarkable|negative for|sharp|without"


def sentences(report, labels):
    """Sentences of findings and impression that name a label; a decimal point or a list's number ends none."""
    text = re.split(r"FINDINGS:", report, flags=re.IGNORECASE)[1]
    parts = re.split(r"(?<!\d)\.\s+|\n", text.lower())
    return {label: [part for part in parts if re.search(WORDS[label], part)] for label in labels}


def made_reports(stage, n):
    for study in islice(studies(stage, seed=1), n):
        places = dict.fromkeys(study.labels, ("left", "right", "bilateral")[study.index % 3])
        yield study, write_report(study, places, has_devices=study.index % 2 == 0)


@pytest.mark.parametrize("stage", ["benchmark", "pool"])
def test_reports_say_what_is_there_and_deny_what_is_not(stage):
    denied = 0
    for study, report in made_reports(stage, 400):
        for label, words in sentences(report, REVEAL_LABELS).items():
            if label in study.labels:
                assert any(not re.search(DENIED, part) for part in words), (label, report)
            else:
                wrong = [part for part in words if not re.search(DENIED, part)]
                assert wrong == [], (label, report)
                denied += len(words)
    assert denied > 400


def test_reports_vary():
    texts = [report for _, report in made_reports("benchmark", 300)]
    assert len(set(texts)) == 300
    first = [text.split("\n\n")[-2] for text in texts]
    assert len(set(first)) > 290
    assert {text.split("\n")[0].split(":")[0] for text in texts} == {"EXAMINATION", "Examination"}
    assert sum("omparison" in text or "COMPARISON" in text for text in texts) in range(200, 300)
    assert any("History of COPD" in text for text in texts)
    assert any("granuloma" in text for text in texts)
    assert not any("{" in text or "  " in text for text in texts)
