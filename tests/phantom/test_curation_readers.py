"""Simulated readers: a vote depends only on seed, study and reader; the exact values are the limits of the votes."""

import csv
import math
from itertools import islice

import numpy as np
import pytest

from reveal_bench.curation.assign import assign, read_readers
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.sample import PAPER_STRATA, sample
from reveal_bench.curation.tables import Assignment, Sampled, Suggestion, Vote, read_table
from reveal_bench.curation.votes import import_votes
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.metrics.agreement import (
    ac1_from_sums,
    kappa_from_tables,
    reader_against_majority,
    reader_sums,
    resample_tables,
)
from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.phantom import votes
from reveal_bench.phantom.curation import READERS, cast, expected_kappa, write_readers, write_votes
from reveal_bench.phantom.reveal_studies import studies
from reveal_bench.phantom.votes import AGREE_IF_RIGHT, AGREE_IF_WRONG, SILENT, SUGGESTION_RIGHT, draw_votes
from tests.curation.made_folder import done
from tests.phantom import expected_agreement as curation_readers
from tests.phantom.expected_agreement import expected_agreement

AO, PE = "Airspace opacity", "Pleural effusion"


def test_the_readers_are_those_of_table_s4():
    assert (len(READERS), sum(READERS.values())) == (17, 3000)
    assert (max(READERS.values()), min(READERS.values())) == (300, 34)
    assert sorted(READERS.values(), reverse=True)[3:6] == [273, 229, 222]


DEGENERATE = {
    "no study": ([], 3),
    "no reader": ([((AO,), (AO,))], 0),
    "one reader": ([((AO,), (AO,))], 1),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_nothing_is_expected_of_nothing(name):
    pairs, n_readers = DEGENERATE[name]
    with pytest.raises(ValueError, match=f"got {len(pairs)} studies and {n_readers} readers"):
        expected_agreement(pairs, n_readers=n_readers)


def test_no_assignments_no_votes():
    assert cast([], {}, {}, 0) == []
    with pytest.raises(KeyError, match="s1"):
        cast([("s1", "a")], {"s1": ()}, {}, 0)


def test_a_vote_depends_on_seed_study_and_reader_alone():
    pairs = [(f"s{i}", f"r{k}") for i in range(30) for k in range(3)]
    labels = {f"s{i}": (AO,) for i in range(30)}
    truth = {f"s{i}": (AO,) if i % 2 else (PE,) for i in range(30)}
    rows = cast(pairs, labels, truth, 7)
    assert rows[::-1] == cast(pairs[::-1], labels, truth, 7)
    assert rows[5:6] == cast(pairs[5:6], labels, truth, 7)
    assert [row["answer"] for row in rows] != [row["answer"] for row in cast(pairs, labels, truth, 8)]
    assert [(row["study"], row["reader"]) for row in rows] == pairs
    answers = {study: [row["answer"] for row in rows if row["study"] == study] for study in labels}
    assert sum(len(set(three)) > 1 for three in answers.values()) > 10  # readers differ


def test_rates_are_those_stated():
    """4,000 votes on right and on wrong suggestions; 4 standard deviations of a share are below 0.032."""
    for truth, rate in (((AO,), AGREE_IF_RIGHT), ((AO, PE), AGREE_IF_WRONG)):
        pairs = [(f"s{i}", "r") for i in range(4000)]
        rows = cast(pairs, {study: (AO,) for study, _ in pairs}, {study: truth for study, _ in pairs}, 1, by_hand=True)
        assert abs(sum(row["answer"] == "Agree All" for row in rows) / 4000 - rate) < 0.032
        others = [row for row in rows if row["answer"] != "Agree All"]
        assert abs(sum(not row["comment"] for row in others) / len(others) - SILENT) < 4 * math.sqrt(0.21 / len(others))
        assert all(bool(row["labels"]) == bool(row["comment"]) for row in others)
        assert not any(row["labels"] or row["comment"] for row in rows if row["answer"] == "Agree All")


def test_by_hand_adds_labels_and_changes_nothing_else():
    pairs = [(f"s{i}", "r") for i in range(50)]
    labels, truth = {study: (AO,) for study, _ in pairs}, {study: () for study, _ in pairs}
    written, not_written = (cast(pairs, labels, truth, 1, by_hand=by_hand) for by_hand in (True, False))
    assert [{**row, "labels": ""} for row in written] == not_written
    assert {row["labels"] for row in written} == {"", "None", AO}


def test_agreement_at_the_model_s_own_mixture():
    """By hand: P(at least 2 of 3) = a^3 + 3 a^2 (1 - a), 0.832352 at 0.74 and 0.123904 at 0.22; with 38% right 0.3931.
    The table of 100 such studies, in hundredths: 3 a^3 + 6 a^2 b and so on; its kappa is 0.63, as the model says."""
    pairs = [((AO,), (AO,))] * 38 + [((AO,), ())] * 62
    expected = expected_agreement(pairs)
    assert SUGGESTION_RIGHT == 0.38
    assert expected.share_agreed == pytest.approx(0.38 * 0.832352 + 0.62 * 0.123904)
    assert expected.kappa == pytest.approx(0.63, abs=0.005)
    both = 0.38 * (3 * 0.74**3 + 6 * 0.74**2 * 0.26) + 0.62 * (3 * 0.22**3 + 6 * 0.22**2 * 0.78)
    reader, majority = 3 * (0.38 * 0.74 + 0.62 * 0.22), 3 * expected.share_agreed
    agreement = (both + 3 - reader - majority + both) / 3
    chance = reader * majority / 9 + (1 - reader / 3) * (1 - majority / 3)
    assert expected.kappa == pytest.approx((agreement - chance) / (1 - chance))
    assert expected_kappa(pairs) == pytest.approx((agreement - chance) / (1 - chance))


@pytest.fixture
def coins(monkeypatch):
    """Readers who never agree, see an opacity with probability one half and everything else correctly."""
    for name, value in {
        "AGREE_IF_RIGHT": 0.0, "AGREE_IF_WRONG": 0.0, "OPACITY_MISREAD": 0.5, "OTHER_MISSED": 0.0, "SILENT": 0.0,
    }.items():  # fmt: skip
        monkeypatch.setattr(curation_readers, name, value)
    return monkeypatch


def test_three_coins(coins):
    """2 of 8 outcomes are unanimous, and in 6 two of three are with the majority: agreement 3/4, chance 1/2, kappa 1/2.
    Two coins agree half the time, as chance has it: AC1 0."""
    expected = expected_agreement([((AO,), (PE,)), ((PE,), (AO,))], lists="by_hand")
    assert expected.label_kappas[AO] == pytest.approx(0.5)
    assert expected.label_ac1[AO] == pytest.approx(0)
    assert (expected.label_kappas[PE], expected.label_ac1[PE]) == (1, 1)
    assert math.isnan(expected.label_kappas["COPD"])  # nobody has it: chance agreement is 1
    assert expected.label_ac1["COPD"] == 1  # AC1's chance is 0 then
    assert (expected.share_agreed, expected.share_with_list) == (0, 1)
    assert math.isnan(expected.kappa)


@pytest.mark.parametrize(("ties", "kappa"), [("left_out", 0.75), ("absent", 0.5)])
def test_coins_of_whom_half_are_silent(coins, ties, kappa):
    """Three lists with 1/8, two with 3/8; two lists tie half the time.

    Left out: agreement (2 x 1.125 / 8 + 2 x 2/4 x 3/8) / (3 x 1/8 + 2 x 1/2 x 3/8) = 0.875, chance 1/2. Absent: the
    ties add 1/2 x 3/8 to both of the majority's "no": agreement 0.75, chance 1/2.
    """
    coins.setattr(curation_readers, "SILENT", 0.5)
    expected = expected_agreement([((AO,), (AO,)), ((PE,), (AO,))], lists="by_hand", ties=ties)
    assert expected.share_with_list == pytest.approx(0.5)
    assert expected.label_kappas[AO] == pytest.approx(kappa)


def test_a_comment_that_changes_nothing_tells_no_list(coins):
    """Suggested and true: opacity. Half of the readers see just that, and say so; the lists that comments tell all lack
    it, and are at least two in half of all studies. Where approval tells a list, too, unknown are those who doubt (one
    of three wordings) and disagree (1/4): 1/24."""
    expected = expected_agreement([((AO,), (AO,))], lists="changes")
    assert expected.share_with_list == pytest.approx(0.5)
    assert math.isnan(expected.label_kappas[AO])
    assert expected_agreement([((AO,), (AO,))], lists="by_hand").share_with_list == 1
    with_approval = expected_agreement([((AO,), (AO,))], lists="comments").share_with_list
    assert with_approval == pytest.approx((23 / 24) ** 3 + 3 * (23 / 24) ** 2 / 24)


def test_who_always_agrees(monkeypatch):
    monkeypatch.setattr(curation_readers, "AGREE_IF_RIGHT", 1.0)
    expected = expected_agreement([((AO,), (AO,)), ((), ())])
    assert (expected.share_agreed, expected.share_with_list, expected.label_kappas[AO]) == (1, 1, 1)


def is_known(row, labels, lists):
    """Return True if the list of a reader who does not agree is known."""
    if set(row["labels"].split("; ")) != set(labels):
        return bool(row["labels"])
    only_doubts = row["comment"].startswith("Equivocal") and row["answer"] == "Disagree"
    return lists == "by_hand" or (lists == "comments" and not only_doubts)


def codes(rows, suggested, lists_known):
    """(studies, 3 readers) of "agree all", and (studies, 3, 12) of lists, from rows of `cast(by_hand=True)`."""
    places = {study: i for i, study in enumerate(suggested)}
    agreed = np.full((len(places), 3), -1)
    lists = np.full((len(places), 3, 12), -1)
    for row in rows:
        i = places[row["study"]]
        k = int(np.flatnonzero(agreed[i] == -1)[0])
        agreed[i, k] = row["answer"] == "Agree All"
        own = suggested[row["study"]] if agreed[i, k] else tuple(row["labels"].split("; "))
        if not agreed[i, k] and not is_known(row, suggested[row["study"]], lists_known):
            continue
        lists[i, k] = [label in own for label in REVEAL_LABELS]
    return agreed, lists


@pytest.fixture(scope="module")
def readings():
    """Suggested labels, truth, and three votes on each."""
    some = [(study, draw_votes(study).suggested) for study in islice(studies("pool", seed=4), 1500)]
    truth = {study.study_uid: study.labels for study, suggested in some if suggested}
    suggested = {study.study_uid: labels for study, labels in some if labels}
    pairs = [(study, f"r{k}") for study in suggested for k in range(3)]
    return suggested, truth, cast(pairs, suggested, truth, 5, by_hand=True)


@pytest.mark.parametrize("lists_known", ["by_hand", "comments", "changes"])
def test_estimates_lie_around_the_exact_values(readings, lists_known):
    """1,500 studies of the pool with a label suggested, three readers each; four standard errors of the bootstrap."""
    suggested, truth, rows = readings
    expected = expected_agreement([(suggested[study], truth[study]) for study in suggested], lists=lists_known)
    agreed, lists = codes(rows, suggested, lists_known)
    n = len(suggested)
    assert abs((agreed.sum(axis=1) >= 2).mean() - expected.share_agreed) < 4 * math.sqrt(0.24 / n)
    with_list = ((lists[:, :, 0] >= 0).sum(axis=1) >= 2).mean()
    assert abs(with_list - expected.share_with_list) < 4 * math.sqrt(0.25 / n)
    lists[(lists[:, :, 0] >= 0).sum(axis=1) < 2] = -1  # nobody to agree with
    counts = resampling_counts(n, Resampling(300))
    for votes_cast, kappas, ac1 in (
        (agreed, expected.kappa, expected.ac1),
        (lists, list(expected.label_kappas.values()), list(expected.label_ac1.values())),
    ):
        tables = reader_against_majority(votes_cast, n_categories=2).tables
        spread = np.nanstd(kappa_from_tables(resample_tables(counts, tables)), axis=0)
        assert np.all(np.abs(kappa_from_tables(tables.sum(axis=0)) - kappas) < 4 * spread)
        sums = reader_sums(votes_cast, n_categories=2)
        spread = np.nanstd(ac1_from_sums(resample_tables(counts, sums)), axis=0)
        assert np.all(np.abs(ac1_from_sums(sums.sum(axis=0)) - ac1) < 4 * spread)


def test_votes_go_through_every_step(tmp_path):
    """Sample, assign, read, import: at a tenth of the paper's size."""
    some = [(study, draw_votes(study).suggested) for study in islice(studies("pool", seed=0), 1400)]
    folder = CurationFolder.create(tmp_path / "c", name="small")
    rows = [Suggestion(one.study_uid, one.case_id, (), suggested, "ok", "given") for one, suggested in some]
    done(folder, "extract", "suggestions.parquet", rows, Suggestion)
    sample(folder, strata={n: size // 10 for n, size in PAPER_STRATA.items()})
    write_readers(tmp_path / "readers.csv")
    assert read_readers(tmp_path / "readers.csv") == READERS
    assign(folder, tmp_path / "readers.csv")
    pairs = [(one.study_id, one.reader) for one in read_table(folder.path("assignments.parquet"), Assignment)]
    truth = {one.study_uid: one.labels for one, _ in some}
    sampled = read_table(folder.path("sample.parquet"), Sampled)
    suggested = {one.study_id: one.labels for one in sampled}
    voted = cast(pairs, suggested, truth, 0, by_hand=True)
    write_votes(tmp_path / "votes.csv", voted)
    with (tmp_path / "votes.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == voted
    record = import_votes(folder, tmp_path / "votes.csv")
    assert record.counts["studies_by_votes"] == {"0": 0, "1": 0, "2": 0, "3": len(sampled)}
    imported = read_table(folder.path("votes.parquet"), Vote)
    assert len(imported) == 3 * len(sampled) == 3 * 98
    by_pair = {(row["study"], row["reader"]): row for row in voted}
    for vote in imported:
        row = by_pair[vote.study_id, vote.reader]
        assert vote.answer == row["answer"].lower().replace(" ", "_")
        assert vote.comment == row["comment"]
        assert ("; ".join(vote.labels) or "None" if vote.labels is not None else "") == row["labels"]


def test_the_model_s_numbers_are_those_of_the_votes_module():
    agreeing = ("AGREE_IF_RIGHT", "AGREE_IF_WRONG", "MOSTLY_IF_RIGHT", "MOSTLY_IF_WRONG")
    for name in (*agreeing, "OPACITY_MISREAD", "OTHER_MISSED", "SILENT"):
        assert getattr(curation_readers, name) == getattr(votes, name)
