"""Each vote's labels and each study's majority, by hand; degenerate inputs first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reveal_bench.curation.consensus import consensus, find_consensus, majority_labels, revise_votes
from reveal_bench.curation.folder import CurationError
from reveal_bench.curation.tables import Consensus, Labels, Revision, Vote, read_table
from tests.curation.made_folder import AN, AO, CM, COPD, Stub, make_folder, study

NOBODY = Stub({})


@pytest.mark.parametrize(
    ("lists", "labels", "tied"),
    [
        ([], None, ()),
        ([(AO,)], None, ()),  # one list is not a majority
        ([(), ()], (), ()),  # two readers see none of the twelve
        ([(), (AO,)], (), (AO,)),  # a tie
        ([(AO,), (AO,)], (AO,), ()),
        ([(AO, COPD), (AO, AN)], (AO,), (AN, COPD)),
        ([(AO,), (AN,), (CM,)], (), ()),  # three readers, three answers
        ([(COPD, AO), (AO,), (COPD,)], (AO, COPD), ()),  # the order of the twelve
        ([(AO,), (AO,), (), ()], (), (AO,)),  # two of four
        ([(AO,), (AO,), (AO,), ()], (AO,), ()),
    ],
)
def test_majority_of_lists(lists: list[Labels], labels: Labels | None, tied: Labels) -> None:
    assert majority_labels(lists) == (labels, tied)


@pytest.mark.parametrize(
    ("vote", "labels", "source"),
    [
        (Vote("a", "r", "agree_all"), (AO, AN), "agreed"),
        (Vote("a", "r", "agree_all", "looks fine"), (AO, AN), "agreed"),  # who agrees to all changes nothing
        (Vote("a", "r", "agree_all", "", (AO, AN)), (AO, AN), "agreed"),
        (Vote("a", "r", "agree_mostly"), None, "nothing"),
        (Vote("a", "r", "disagree", " \n"), None, "nothing"),
        (Vote("a", "r", "disagree", "", ()), (), "reader"),
        (Vote("a", "r", "agree_mostly", "also COPD", (COPD, AO)), (AO, COPD), "reader"),  # by hand before the comment
        (Vote("a", "r", "disagree", "no aneurysm"), (AO,), "rules"),
        (Vote("a", "r", "disagree", "hm"), None, "nothing"),
    ],
)
def test_what_a_vote_amounts_to(vote: Vote, labels: Labels | None, source: str) -> None:
    stub = Stub({"no aneurysm": (AO,), "hm": None})
    assert revise_votes([study("a", AO, AN)], [vote], stub) == [Revision("a", "r", labels, source)]
    assert stub.asked == ([(vote, (AO, AN))] if vote.comment in stub.labels else [])


def test_revisions_come_in_the_order_of_the_votes_whatever_the_order_of_answers() -> None:
    votes = [
        Vote("b", "r1", "disagree", "no aneurysm"),
        Vote("a", "r1", "agree_all"),
        Vote("a", "r2", "agree_mostly", "hm"),
    ]
    sampled = [study("a", AO), study("b", AO, AN)]
    progress: list[tuple[int, int]] = []
    stub = Stub({"no aneurysm": (AO,), "hm": None}, backwards=True)
    revisions = revise_votes(sampled, votes, stub, progress=lambda done, total: progress.append((done, total)))
    assert [(one.study_id, one.reader, one.labels) for one in revisions] == [
        ("b", "r1", (AO,)),
        ("a", "r1", (AO,)),
        ("a", "r2", None),
    ]
    assert progress == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([Vote("x", "r", "agree_all")], "the vote of 'r' on 'x' must be on a sampled study"),
        ([Vote("a", "r", "Agree All")], "must be one of agree_all, agree_mostly, disagree, got 'Agree All'"),
        ([Vote("a", "r", "agree_all", "", (CM,))], f"must not agree to all of {AO} and name {CM}"),
        ([Vote("a", "r", "agree_all", "", ())], f"must not agree to all of {AO} and name no label"),
        (
            [Vote("a", "r", "disagree"), Vote("a", "r", "agree_all")],
            "must vote once on a study, got a second vote of 'r' on 'a'",
        ),
        ([Vote("a", "r", "disagree", "c"), Vote("a", "r", "disagree", "c")], "must vote once on a study"),
        ([Vote("a", "r", "disagree", "", ("Heart",))], "labels must be among the twelve, got Heart"),
    ],
)
def test_votes_that_do_not_fit_are_refused(votes: list[Vote], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        revise_votes([study("a", AO)], votes, Stub({"c": None}))


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], "must answer every comment, got no answer to ('a', 'r')"),
        (
            [("a", "r", None), ("a", "r", None)],
            "must answer each comment once, got an unrequested or second answer to ('a', 'r')",
        ),
        ([("a", "s", None)], "got an unrequested or second answer to ('a', 's')"),
        (
            [("a", "r", (COPD, AO))],
            "must give labels in the order of REVEAL_LABELS, got COPD, Airspace opacity for 'a'",
        ),
        ([("a", "r", ("Heart",))], "labels must be among the twelve, got Heart"),
    ],
)
def test_a_reviser_answers_each_comment_once(answers: list[tuple[str, str, Labels | None]], message: str) -> None:
    class Bad(Stub):
        def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
            return (Revision(*answer, "rules") for answer in answers)

    with pytest.raises(ValueError, match=re.escape(message)):
        revise_votes([study("a", AO)], [Vote("a", "r", "disagree", "c")], Bad({}))


def test_consensus_of_studies_by_hand() -> None:
    sampled = [study("b", AO, CM), study("a", AO), study("c"), study("d", COPD)]
    votes = [Vote("a", f"r{i}", "agree_all") for i in range(3)]
    votes += [Vote("b", "r0", "agree_all"), Vote("b", "r1", "disagree", "", (AO,)), Vote("b", "r2", "agree_mostly")]
    votes += [Vote("d", "r1", "disagree", "", ())]
    rows, ties = find_consensus(sampled, votes, revise_votes(sampled, votes, NOBODY))
    assert rows == [
        Consensus("b", "patient of b", (AO, CM), 3, 1, 2, (AO,)),  # of two lists one has the heart
        Consensus("a", "patient of a", (AO,), 3, 3, 3, (AO,)),
        Consensus("c", "patient of c", (), 0, 0, 0, None),  # nobody voted
        Consensus("d", "patient of d", (COPD,), 1, 0, 1, None),
    ]
    assert ties == {"tied_labels": 1, "studies_with_a_tie": 1}


def test_the_step_writes_three_files_and_counts_add_up(tmp_path: Path) -> None:
    sampled = [study("a", AO), study("b", AO, CM), study("c", COPD)]
    votes = [Vote("a", f"r{i}", "agree_all") for i in range(3)]
    votes += [Vote("b", "r0", "agree_all"), Vote("b", "r1", "disagree", "no heart"), Vote("b", "r2", "agree_mostly")]
    folder = make_folder(tmp_path / "curation", sampled, votes)
    record = consensus(folder, revise=Stub({"no heart": (AO,)}), n_resamples=20)
    assert record.counts == {
        "studies": 3,
        "votes": 6,
        "answers": {"agree_all": 4, "agree_mostly": 1, "disagree": 1},
        "by_n_votes": {"0": 1, "3": 2},
        "by_n_agree_all": {"1": 1, "3": 1},
        "by_n_lists": {"0": 1, "2": 1, "3": 1},
        "by_source": {"agreed": 4, "nothing": 1, "rules": 1},
        "with_majority_list": 2,
        "majority_differs_from_suggested": 1,
        "tied_labels": 1,
        "studies_with_a_tie": 1,
    }
    assert [row.study_id for row in read_table(folder.path("consensus.parquet"), Consensus)] == ["a", "b", "c"]
    assert len(read_table(folder.path("revisions.parquet"), Revision)) == 6
    agreement = json.loads(folder.path("agreement.json").read_text(encoding="utf-8"))
    assert agreement["counts"] == record.counts
    assert {reader["reader"]: reader["n_studies"] for reader in agreement["readers"]} == {"r0": 2, "r1": 2, "r2": 2}


def test_again_nothing_is_done_and_another_reviser_must_be_wanted(tmp_path: Path) -> None:
    votes = [Vote("a", "r0", "agree_all"), Vote("a", "r1", "disagree", "c")]
    folder = make_folder(tmp_path / "curation", [study("a", AO)], votes)
    first = consensus(folder, revise=Stub({"c": (AO,)}), n_resamples=10)
    files = {name: folder.path(name).read_bytes() for name in first.outputs}
    stub = Stub({"c": ()})
    assert not consensus(folder, revise=stub, n_resamples=10).is_new
    assert not stub.asked
    stub.signature = "stub v2"
    with pytest.raises(CurationError, match=re.escape("revise was 'stub v1', is 'stub v2': do it again with --redo")):
        consensus(folder, revise=stub, n_resamples=10)
    assert consensus(folder, revise=stub, n_resamples=10, redo=True).counts["tied_labels"] == 1
    consensus(folder, revise=Stub({"c": (AO,)}), n_resamples=10, redo=True)
    assert {name: folder.path(name).read_bytes() for name in first.outputs} == files


def test_what_a_reviser_counts_is_recorded(tmp_path: Path) -> None:
    class Counting(Stub):
        def counts(self) -> dict[str, int]:
            return {"tokens": 10 * len(self.asked)}

    folder = make_folder(tmp_path / "curation", [study("a", AO)], [Vote("a", "r", "disagree", "c")])
    record = consensus(folder, revise=Counting({"c": ()}), n_resamples=10)
    assert record.counts["reviser"] == {"tokens": 10}
    assert "reviser" not in json.loads(folder.path("agreement.json").read_text(encoding="utf-8"))["counts"]


def test_the_rules_are_the_default(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "curation", [study("a", AO)], [Vote("a", "r", "disagree", "Also cardiomegaly.")])
    consensus(folder, n_resamples=10)
    assert read_table(folder.path("revisions.parquet"), Revision) == [Revision("a", "r", (AO, CM), "rules")]


def test_a_reviser_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "curation", [study("a", AO)], [Vote("a", "r", "disagree", "c")])
    with pytest.raises(KeyError, match="c"):
        consensus(folder, revise=Stub({}), n_resamples=10)
    assert folder.record("consensus") is None
    assert not folder.path("revisions.parquet").exists()


def test_resamples_are_checked(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "curation", [study("a", AO)], [])
    with pytest.raises(ValueError, match="`n_resamples` must be at least 1, got 0"):
        consensus(folder, revise=NOBODY, n_resamples=0)
