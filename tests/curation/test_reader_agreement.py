"""Agreement of readers against hand arithmetic, scikit-learn and the closed form of simulated readers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from reveal_bench.curation.consensus import ConsensusAgreement, find_consensus, measure_agreement, revise_votes
from reveal_bench.curation.tables import Sampled, Vote, json_ready
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.votes import (
    AGREE_IF_RIGHT,
    AGREE_IF_WRONG,
    SUGGESTION_RIGHT,
    cast_votes,
)
from tests.curation.made_folder import AN, AO, COPD, Stub, study

ANSWERS = {"A": "agree_all", "M": "agree_mostly", "D": "disagree"}


def measured(
    sampled: Sequence[Sampled], votes: Sequence[Vote], *, merge_mostly: bool = True, n_resamples: int = 200
) -> ConsensusAgreement:
    revisions = revise_votes(sampled, votes, Stub({}))
    rows, _ = find_consensus(sampled, votes, revisions)
    return measure_agreement(rows, votes, revisions, merge_mostly=merge_mostly, n_resamples=n_resamples)


def answered(*studies: str) -> tuple[list[Sampled], list[Vote]]:
    """ "AMD" is a study on which readers r0, r1 and r2 answered so; "." is not a vote."""
    votes = [
        Vote(f"s{i}", f"r{place}", ANSWERS[letter])
        for i, letters in enumerate(studies)
        for place, letter in enumerate(letters)
        if letter != "."
    ]
    return [study(f"s{i}", AO) for i in range(len(studies))], votes


@pytest.mark.parametrize(
    ("studies", "kappa", "n", "n_undefined"),
    [
        (("...",), math.nan, 0, 0),  # nobody voted
        (("A..",), math.nan, 0, 1),  # a single vote has no majority
        (("AD.",), math.nan, 0, 2),  # a tie
        (("AAA",), math.nan, 3, 0),  # everybody always agrees: chance agreement is 1
        (("AAA", "DDD"), 1, 6, 0),
        (("AAA", "DDM"), 1, 6, 0),  # mostly counts as a disagreement
        (("AAD", "DDA"), 1 / 3, 6, 0),  # agree 4 of 6, both say A in 3 of 6: (4/6 - 1/2) / (1/2)
        (("AAD", "A.D"), 0, 3, 2),  # votes A A D, majority A A A: agree 2/3 = chance
    ],
)
def test_degenerate_answers(studies: tuple[str, ...], kappa: float, n: int, n_undefined: int) -> None:
    estimates = measured(*answered(*studies)).answers["two_categories"]
    assert estimates.value == pytest.approx(kappa, abs=1e-12, nan_ok=True)
    assert (estimates.n, estimates.n_undefined) == (n, n_undefined)


def test_three_categories_and_the_majority_of_the_others_by_hand() -> None:
    answers = measured(*answered("AMD", "AAM", "MMD")).answers
    # s0 has no majority. Pairs (vote, majority): (A A) (A A) (M A); (M M) (M M) (D M). Agree 4/6.
    # Votes: A 2, M 3, D 1 of 6; majority: A 3, M 3, D 0: chance (2*3 + 3*3) / 36 = 15/36.
    assert answers["three_categories"].value == pytest.approx((4 / 6 - 15 / 36) / (21 / 36))
    assert (answers["three_categories"].n, answers["three_categories"].n_undefined) == (6, 3)
    # On two categories against the others alone. s0, A D D: the first sees D D, the others a tie. s1, A A D: the third
    # sees A A. s2, D D D: all see D D. Pairs: (A D) (D A) and 3 (D D): agree 3/5, chance (1*1 + 4*4) / 25 = 17/25.
    others = answers["two_categories_against_others"]
    assert others.value == pytest.approx((3 / 5 - 17 / 25) / (8 / 25))
    assert (others.n, others.n_undefined) == (5, 4)


def test_shares_of_studies_by_hand() -> None:
    agreement = measured(*answered("AAA", "AAD", "DDD", "MAA", "..."))
    assert {one.finding: (one.value, one.n) for one in agreement.shares} == {
        "0": (0.25, 4),
        "1": (0, 4),
        "2": (0.5, 4),
        "3": (0.25, 4),
    }


def test_labels_by_hand() -> None:
    sampled = [study("a", COPD), study("b", AO), study("c", AN)]
    votes = [Vote("a", f"r{i}", "agree_all") for i in range(2)] + [Vote("a", "r2", "disagree", "", ())]
    votes += [Vote("b", f"r{i}", "disagree", "", ()) for i in range(3)]
    votes += [Vote("c", "r0", "disagree", "", (COPD,)), Vote("c", "r1", "disagree")]  # one list: no majority
    table = {row.label: row for row in measured(sampled, votes).labels}
    assert list(table) == ["all", *REVEAL_LABELS]
    copd = table[COPD]
    # Pairs (reader, majority): (1 1) (1 1) (0 1) and 3 (0 0). Agree 5/6; chance 2/6 * 3/6 + 4/6 * 3/6 = 1/2.
    assert copd.kappa.value == pytest.approx(2 / 3)
    assert (copd.kappa.n, copd.kappa.n_undefined) == (6, 0)
    # Pairs of readers: 1/3 and 1 of them agree, in the mean 2/3. Share of yes (2/3 + 0) / 2 = 1/3: chance 2/3 * 2/3.
    assert copd.ac1.value == pytest.approx((2 / 3 - 4 / 9) / (5 / 9))
    assert copd.ac1.n == 2
    assert (copd.positive_ratio.value, copd.positive_ratio.n) == (0.5, 2)
    assert math.isnan(table[AO].kappa.value)  # nobody saw one
    assert (table[AO].ac1.value, table[AO].positive_ratio.value) == (1, 0)
    # All together: 71 of 72 agree, readers said yes to 2 of them, the majority to 3.
    chance = (2 * 3 + 70 * 69) / 72**2
    assert table["all"].kappa.value == pytest.approx((71 / 72 - chance) / (1 - chance))
    assert table["all"].positive_ratio.value == pytest.approx(1 / 24)


def test_a_tie_is_left_out_of_kappa_and_absent_in_the_ratio() -> None:
    sampled = [study("a", AO, COPD), study("b", AO)]
    votes = [Vote("a", "r0", "agree_all"), Vote("a", "r1", "disagree", "", (AO,)), Vote("a", "r2", "disagree")]
    votes += [Vote("b", f"r{i}", "disagree", "", ()) for i in range(2)]
    table = {row.label: row for row in measured(sampled, votes).labels}
    assert (table[COPD].kappa.n, table[COPD].kappa.n_undefined, table[COPD].positive_ratio.value) == (2, 2, 0)
    assert (table[AO].kappa.n, table[AO].kappa.value, table[AO].positive_ratio.value) == (4, 1, 0.5)
    assert table["all"].kappa.n_undefined == 2


def test_readers_by_hand() -> None:
    agreement = measured(*answered("AAD", "DDD", "DAA", "AA.", "A.."))
    assert [(one.reader, one.n_studies, one.agree_all.value) for one in agreement.readers] == [
        ("r0", 5, 3 / 5),
        ("r1", 4, 3 / 4),
        ("r2", 3, 1 / 3),
    ]
    r0, r1, r2 = (one.kappa for one in agreement.readers)
    # r0: s0 the others tie; s1 (D D); s2 (D A); s3 and s4 have fewer than two others. Agree 1/2 = chance 1 * 1/2.
    assert (r0.n, r0.n_undefined, r0.value) == (2, 3, 0)
    # r1: s0 ties, s1 (D D), s2 ties (r0 D, r2 A): one pair, chance agreement 1.
    assert (r1.n, r1.n_undefined) == (1, 3)
    assert math.isnan(r1.value)
    # r2: s0 (D A), s1 (D D), s2 ties.
    assert (r2.n, r2.n_undefined, r2.value) == (2, 1, 0)


@pytest.mark.parametrize("merge_mostly", [True, False])
def test_kappas_equal_scikit_learn_on_random_votes(merge_mostly: bool, rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score

    letters = np.array(list("AMD"))
    sampled, votes = answered(*("".join(letters[rng.choice(3, 3, p=[0.5, 0.2, 0.3])]) for _ in range(80)))
    agreement = measured(sampled, votes, merge_mostly=merge_mostly)
    answers = [{v.reader: v.answer for v in votes if v.study_id == one.study_id} for one in sampled]
    if merge_mostly:
        answers = [{reader: str(answer == "agree_all") for reader, answer in one.items()} for one in answers]
    pairs: dict[str, list[tuple[str, str]]] = {"own": [], "r0": [], "r1": [], "r2": []}
    for one in answers:
        for reader, answer in one.items():
            for name, voters in (("own", list(one)), (reader, [other for other in one if other != reader])):
                most, n = Counter(one[voter] for voter in voters).most_common(1)[0]
                if n >= 2:
                    pairs[name].append((answer, most))
    key = "two_categories" if merge_mostly else "three_categories"
    assert agreement.answers[key].value == pytest.approx(cohen_kappa_score(*zip(*pairs["own"], strict=True)))
    for row in agreement.readers:
        assert row.kappa.value == pytest.approx(cohen_kappa_score(*zip(*pairs[row.reader], strict=True)))
        assert row.kappa.n == len(pairs[row.reader])


def test_the_interval_covers_the_closed_form_of_simulated_readers() -> None:
    """Readers whose error rates are known: kappa of a vote with the majority by summing over all eight outcomes."""
    table = np.zeros((2, 2))
    for p_right, agree in ((SUGGESTION_RIGHT, AGREE_IF_RIGHT), (1 - SUGGESTION_RIGHT, AGREE_IF_WRONG)):
        for votes in product((0, 1), repeat=3):
            chance = p_right * math.prod(agree if vote else 1 - agree for vote in votes)
            for vote in votes:
                table[vote, int(sum(votes) >= 2)] += chance / 3
    by_chance = float(table.sum(axis=0) @ table.sum(axis=1))
    expected = (float(np.trace(table)) - by_chance) / (1 - by_chance)
    assert expected == pytest.approx(0.63, abs=0.005)  # as the simulation says of itself; paper 004: 0.622

    rng = np.random.default_rng(5)
    sampled = [study(f"s{i}", AO) for i in range(1000)]
    cast: list[Vote] = []
    for one in sampled:
        truth = one.labels if rng.random() < SUGGESTION_RIGHT else (AO, COPD)
        for cast_vote in cast_votes(rng, one.labels, truth):
            answer = cast_vote.answer.casefold().replace(" ", "_")
            cast.append(Vote(one.study_id, cast_vote.reader, answer, "", cast_vote.labels))
    estimates = measured(sampled, cast, n_resamples=1000).answers["two_categories"]
    assert estimates.low < expected < estimates.high
    assert 0.02 < estimates.high - estimates.low < 0.1  # paper 004: 0.590 to 0.651
    assert estimates.signature == "cohen_kappa|b:1000|seed:0|unit:study|v:1"


def test_the_order_of_studies_changes_no_value_and_that_of_votes_nothing(rng: np.random.Generator) -> None:
    letters = np.array(list("AMD"))
    sampled, votes = answered(*("".join(letters[rng.choice(3, 3)]) for _ in range(20)))
    shuffled = [votes[i] for i in rng.permutation(len(votes))]
    assert json_ready(measured(sampled, votes)) == json_ready(measured(sampled, shuffled))
    turned = measured(sampled[::-1], votes)
    assert turned.answers["two_categories"].value == measured(sampled, votes).answers["two_categories"].value


def test_a_document_has_null_for_undefined() -> None:
    document = json_ready(measured(*answered("A..")))
    text = json.dumps(document, allow_nan=False)
    assert document["answers"]["two_categories"]["value"] is None
    assert '"value": null' in text


def test_no_study_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        measure_agreement([], [], [])
