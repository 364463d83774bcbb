"""The sample: strata, one study per patient, every label, shortages reported; the same whatever the order of rows."""

import json
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.sample import PAPER_STRATA, draw_sample, sample
from reveal_bench.curation.tables import Sampled, Suggestion, in_order, read_table
from reveal_bench.findings import REVEAL_LABELS
from tests.curation.made_folder import done

AO, PE, CM = "Airspace opacity", "Pleural effusion", "Cardiomegaly"


def study(number, labels, patient=None, status="ok"):
    name = f"s{number:05d}"
    return Suggestion(name, patient or f"p{number:05d}", (), in_order(labels), status, "rules")


def drawn(suggestions, strata, seed=0, **options):
    return draw_sample(suggestions, strata, np.random.default_rng(seed), **options)


def pool(n, seed=0):
    """Studies with 0 to 6 labels, every fifth of the patient before it, every 50th quarantined."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        labels = [REVEAL_LABELS[k] for k in rng.permutation(12)[: rng.integers(0, 7)]]
        patient = f"p{i - (i % 5 == 4):05d}"
        made.append(study(i, labels, patient) if i % 50 else study(i, [], patient, "quarantined"))
    return made


DEGENERATE = {
    "nothing suggested": ([], {1: 1}, 0, 1),
    "no labels anywhere": ([study(1, []), study(2, [])], {1: 1}, 0, 1),
    "all quarantined": ([study(1, [], status="quarantined")], {1: 1}, 0, 1),
    "studies without labels are a stratum": ([study(1, []), study(2, [AO])], {0: 1, 1: 1}, 2, 0),
    "one patient with all": ([study(i, [AO], "p") for i in range(9)], {1: 3}, 1, 2),
    "exactly enough": ([study(i, [AO]) for i in range(3)], {1: 3}, 3, 0),
    "one short": ([study(i, [AO]) for i in range(2)], {1: 3}, 2, 1),
    "the wrong stratum does not fill": ([study(i, [AO]) for i in range(9)], {2: 2}, 0, 2),
    "a stratum of size 0": ([study(1, [AO]), study(2, [AO, PE])], {1: 0, 2: 1}, 1, 0),
    "twelve labels": ([study(1, REVEAL_LABELS)], {12: 1}, 1, 0),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_pools(name):
    suggestions, strata, n_sampled, n_short = DEGENERATE[name]
    result = drawn(suggestions, strata)
    assert len(result.sampled) == n_sampled
    assert sum(stratum.short for stratum in result.strata.values()) == n_short


def test_strata_are_filled_and_counts_add_up():
    result = drawn(pool(2000), {1: 40, 2: 40, 3: 30, 4: 10}, min_per_label=5)
    assert Counter(one.stratum for one in result.sampled) == {1: 40, 2: 40, 3: 30, 4: 10}
    assert all(len(one.labels) == one.stratum for one in result.sampled)
    assert len({one.patient_id for one in result.sampled}) == 120
    assert result.n_suggestions == 2000
    assert result.n_quarantined == 40
    left = result.n_quarantined + result.n_outside_strata + len(result.set_aside) + result.n_candidates
    assert left == 2000
    for label, counts in result.labels.items():
        assert counts["drawn"] == sum(label in one.labels for one in result.sampled) >= 5
        assert counts["short"] == 0
    for stratum in result.strata.values():
        assert stratum.wanted + stratum.from_above == stratum.drawn + stratum.short + stratum.passed_down


def test_quarantined_are_never_drawn_and_order_of_rows_does_not_matter():
    suggestions = pool(600)
    result = drawn(suggestions, {1: 60, 2: 60})
    assert result == drawn(suggestions[::-1], {2: 60, 1: 60})
    assert result.sampled != drawn(suggestions, {1: 60, 2: 60}, seed=1).sampled
    bad = {one.study_id for one in suggestions if one.status != "ok"}
    assert len(bad) == 12
    assert not bad & {one.study_id for one in result.sampled}


def test_a_rare_label_is_drawn_though_it_is_one_of_a_thousand():
    suggestions = [study(i, [AO]) for i in range(1000)] + [study(5000, ["Aneurysm"])]
    for seed in range(5):
        result = drawn(suggestions, {1: 2}, seed)
        assert result.labels["Aneurysm"] == {"candidates": 1, "drawn": 1, "short": 0}
        assert result.labels["COPD"] == {"candidates": 0, "drawn": 0, "short": 1}
        assert result.strata[1].drawn == 2


def test_a_study_that_serves_two_short_labels_goes_first():
    """Two places, four labels: only (A, B) together with (C, D) covers all of them, whichever is drawn first."""
    a, b, c, d = REVEAL_LABELS[:4]
    suggestions = [study(1, [a, b]), study(2, [c, d]), study(3, [a, b, c]), study(4, [a])]
    for seed in range(20):
        result = drawn(suggestions, {2: 2}, seed)
        assert {one.study_id for one in result.sampled} == {"s00001", "s00002"}


def test_labels_never_take_more_than_a_stratum_s_size():
    suggestions = [study(i, [label]) for i, label in enumerate(REVEAL_LABELS)]
    result = drawn(suggestions, {1: 4})
    assert len(result.sampled) == 4
    assert sum(counts["short"] for counts in result.labels.values()) == 8


def test_without_a_minimum_a_stratum_is_a_simple_random_sample():
    """Each of 20 studies is drawn with 1/4; 4 standard deviations of 2,000 draws of 5 are 0.039."""
    suggestions = [study(i, [AO] if i else ["Aneurysm"]) for i in range(20)]
    tally = Counter(
        one.study_id for seed in range(2000) for one in drawn(suggestions, {1: 5}, seed, min_per_label=0).sampled
    )
    assert len(tally) == 20
    assert all(abs(n / 2000 - 0.25) < 0.039 for n in tally.values())


def test_the_study_kept_of_a_patient_is_chosen_at_random():
    """Three studies, a third each; 4 standard deviations of 900 are 0.063. The others are named."""
    suggestions = [study(1, [AO], "p"), study(2, [PE, AO], "p"), study(3, [CM], "p")]
    kept = Counter()
    for seed in range(900):
        result = drawn(suggestions, {1: 1, 2: 1}, seed)
        (one,) = result.sampled
        kept[one.study_id] += 1
        assert {other.study_id for other in result.set_aside} == {"s00001", "s00002", "s00003"} - {one.study_id}
        assert {other.kept for other in result.set_aside} == {one.study_id}
    assert all(abs(n / 900 - 1 / 3) < 0.063 for n in kept.values())


def test_shortages_are_passed_down_only_when_asked():
    suggestions = [study(i, [AO, PE, CM]) for i in range(2)] + [study(10 + i, [AO]) for i in range(9)]
    strata = {3: 5, 2: 2, 1: 3}
    plain, filled = drawn(suggestions, strata), drawn(suggestions, strata, fill=True)
    assert {n: (one.drawn, one.short) for n, one in plain.strata.items()} == {1: (3, 0), 2: (0, 2), 3: (2, 3)}
    assert {n: (one.drawn, one.from_above, one.passed_down, one.short) for n, one in filled.strata.items()} == {
        3: (2, 0, 3, 0),
        2: (0, 3, 5, 0),
        1: (8, 5, 0, 0),
    }


def test_what_the_lowest_stratum_lacks_stays_short():
    result = drawn([study(1, [AO])], {2: 2, 1: 2}, fill=True)
    assert (result.strata[1].drawn, result.strata[1].from_above, result.strata[1].short) == (1, 2, 3)


BAD = {
    "no strata": ({}, 1, "`strata` must ask for at least one study"),
    "only empty strata": ({1: 0}, 1, "`strata` must ask for at least one study"),
    "negative size": ({1: 3, 2: -1}, 1, "sizes of at least 0, got -1 for 2 labels"),
    "thirteen labels": ({13: 1}, 1, "must have numbers of labels from 0 to 12, got 13"),
    "negative minimum": ({1: 1}, -1, "`min_per_label` must be at least 0, got -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    strata, minimum, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        drawn([study(1, [AO])], strata, min_per_label=minimum)


def test_a_study_that_is_there_twice_is_refused():
    with pytest.raises(ValueError, match="`study_id` must occur only once, got 's00001'"):
        drawn([study(1, [AO]), study(1, [PE])], {1: 1})


def curation(tmp_path, suggestions, name="c"):
    """A folder in which extract is done."""
    folder = CurationFolder.create(tmp_path / name, name="test", seed=3)
    done(folder, "extract", "suggestions.parquet", suggestions, Suggestion)
    return folder


def test_the_step(tmp_path):
    suggestions = pool(400)
    folder = curation(tmp_path, suggestions)
    record = sample(folder, strata={1: 20, 2: 10, 6: 1000})
    rows = read_table(folder.path("sample.parquet"), Sampled)
    aside = [json.loads(line) for line in folder.path("set_aside.jsonl").read_text().splitlines()]
    counts = record.counts
    assert counts["sampled"] == len(rows) == sum(one["drawn"] for one in counts["strata"].values())
    assert counts["short"] == counts["strata"]["6"]["short"] > 900
    assert counts["patients"] == 320
    assert counts["set_aside"] == len(aside) > 0
    assert not {one["study_id"] for one in aside} & {one.study_id for one in rows}
    assert [one.study_id for one in rows] == sorted(one.study_id for one in rows)
    assert not sample(folder, strata={6: 1000, 2: 10, 1: 20}).is_new
    with pytest.raises(CurationError, match=r"min_per_label was 1, is 2.*--redo"):
        sample(folder, strata={1: 20, 2: 10, 6: 1000}, min_per_label=2)
    assert sample(folder, strata={1: 5}, redo=True).counts["sampled"] == 5


def test_same_bytes_from_rows_in_another_order(tmp_path):
    suggestions = [replace(one, engine="other") for one in pool(300)]
    digests = []
    for name, rows in (("a", suggestions), ("b", suggestions[::-1])):
        folder = curation(tmp_path, rows, name)
        sample(folder, strata={1: 20, 2: 20})
        digests.append(
            [sha256(folder.path(file).read_bytes()).digest() for file in ("sample.parquet", "set_aside.jsonl")]
        )
    assert digests[0] == digests[1]


def test_the_step_needs_extract(tmp_path):
    folder = CurationFolder.create(tmp_path / "new", name="test")
    with pytest.raises(CurationError, match="extract must be done first"):
        sample(folder, strata=PAPER_STRATA)


def test_the_paper_s_strata_are_a_thousand():
    assert sum(PAPER_STRATA.values()) == 1000
