"""Readers who stop early: their unread studies go to other readers, votes stay, and nobody gets a study twice or too
many.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveal_bench.curation.assign import draw_assignment, reassign
from reveal_bench.curation.tables import Assignment


def listed(**lists):
    """Assignments from reader="ABC": one letter a study."""
    return [Assignment(reader, i, study) for reader, own in lists.items() for i, study in enumerate(own, start=1)]


def lists(assignments):
    studies = {}
    for one in assignments:
        assert one.position == len(studies.setdefault(one.reader, [])) + 1
        studies[one.reader].append(one.study_id)
    return {reader: "".join(own) for reader, own in studies.items()}


def run(assignments, votes, capacities, stopped, seed=0, **options):
    pairs = {(study, reader) for reader, own in votes.items() for study in own}
    return reassign(assignments, pairs, capacities, stopped, np.random.default_rng(seed), **options)


CASES = {
    "nobody stops": (listed(a="AB", b="AB"), {}, {"a": 2, "b": 2}, [], {"a": "AB", "b": "AB"}, ""),
    "all was read": (listed(a="AB", b="AB"), {"a": "AB"}, {"b": 9}, ["a"], {"a": "AB", "b": "AB"}, ""),
    "half was read": (listed(a="AB", b="C"), {"a": "A"}, {"b": 2}, ["a"], {"a": "A", "b": "CB"}, ""),
    "what is read stays before": (listed(a="ABC", b="D"), {"a": "B"}, {"b": 1, "c": 2}, ["a"], None, ""),
    "nobody has room": (listed(a="AB", b="CD"), {"a": "A"}, {"b": 2}, ["a"], {"a": "A", "b": "CD"}, "B"),
    "nobody is left": (listed(a="AB"), {}, {}, ["a"], {}, "AB"),
    "all others know it": (listed(a="A", b="A"), {}, {"b": 9}, ["a"], {"b": "A"}, "A"),
    "most is a limit, too": (listed(a="A", b="B"), {}, {"b": 9}, ["a"], {"b": "B"}, "A"),
    "somebody new": (listed(a="A"), {}, {"c": 1}, ["a"], {"c": "A"}, ""),
    "two stop with the same study": (listed(a="A", b="A"), {}, {"c": 1, "d": 1}, ["a", "b"], {"c": "A", "d": "A"}, ""),
    "a reader who stops and had nothing": (listed(a="A"), {}, {"a": 1, "b": 3}, ["b"], {"a": "A"}, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    assignments, votes, capacities, stopped, expected, missing = CASES[name]
    options = {"most": 1} if name.startswith("most") else {}
    result = run(assignments, votes, capacities, stopped, **options)
    assert "".join(result.missing) == missing
    if expected is not None:
        assert lists(result.assignments) == expected
    else:
        assert lists(result.assignments)["a"] == "B"
        assert sorted(lists(result.assignments)["c"]) == ["A", "C"]


def test_unread_studies_move_up_where_the_only_room_does_not_fit():
    """Only c has room, and c knows A: so b takes A and gives C, not yet read, to c."""
    before = listed(a="A", b="BC", c="A")
    result = run(before, {"b": "B"}, {"b": 2, "c": 2}, ["a"])
    assert lists(result.assignments) == {"b": "BA", "c": "AC"}
    assert (result.missing, result.n_moved) == ((), 2)
    stuck = run(before, {"b": "BC"}, {"b": 2, "c": 2}, ["a"])  # b has read both
    assert (stuck.missing, stuck.n_moved) == (("A",), 0)


def test_who_has_most_room_gets_it():
    result = run(listed(a="ABCD"), {}, {"b": 1, "c": 9, "d": 8}, ["a"])
    n_each = {reader: len(own) for reader, own in lists(result.assignments).items()}
    assert n_each in ({"c": 3, "d": 1}, {"c": 2, "d": 2})  # 9 and 8, 8 and 8, then one of them, then the other


def test_order_of_input_does_not_matter():
    before = draw_assignment(list("ABCDEFGH"), dict.fromkeys("uvwxyz", 4), np.random.default_rng(0))
    capacities = dict.fromkeys("wxyz", 8)
    one = run(before, {"u": before[0].study_id}, capacities, ["u", "v"])
    other = run(before[::-1], {"u": before[0].study_id}, dict(reversed(capacities.items())), ["v", "u"])
    assert one == other
    assert one != run(before, {"u": before[0].study_id}, capacities, ["u", "v"], seed=1)


@given(
    n=st.integers(1, 7),
    n_readers=st.integers(3, 6),
    slack=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    n_stopped=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_as_many_as_possible_find_a_reader(n, n_readers, slack, n_stopped, seed):
    """The number of readings that can stay where they are is a maximum flow, computed by scipy's linear programming:
    x[s, r] in [0, 1] is 1 if r has s, fixed if r has read it; the sum over r is at most 3, the sum over s at most the
    capacity.
    """
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    names = [f"r{i}" for i in range(n_readers)]
    studies = [f"s{i}" for i in range(n)]
    before = draw_assignment(studies, dict.fromkeys(names, n), rng)
    votes = {(one.study_id, one.reader) for one in before if rng.random() < 0.5}
    stopped = names[:n_stopped]
    had = Counter(one.reader for one in before)
    capacities = {name: had[name] + extra for name, extra in zip(names, slack, strict=False)}
    result = reassign(before, votes, capacities, stopped, rng)
    after = {(one.study_id, one.reader) for one in result.assignments}
    assert votes <= after
    assert len(after) == len(result.assignments) == 3 * n - len(result.missing)
    assert all((study, reader) in votes for study, reader in after if reader in stopped)
    for name, n_after in Counter(one.reader for one in result.assignments).items():
        assert name in stopped or n_after <= capacities[name]
    bounds = [
        (1, 1) if (study, name) in votes else (0, 0 if name in stopped else 1) for study in studies for name in names
    ]
    per_study = np.kron(np.eye(n), np.ones(n_readers))
    per_reader = np.kron(np.ones(n), np.eye(n_readers))
    limits = [*[3] * n, *capacities.values()]
    best = linprog(-np.ones(n * n_readers), A_ub=np.vstack([per_study, per_reader]), b_ub=limits, bounds=bounds)
    assert len(after) == round(-best.fun)


BAD = {
    "a vote of nobody": (
        {"z": "A"},
        {"a": 2, "b": 2},
        [],
        "`votes` must be for assigned studies, got 'A' of 'z'",
    ),
    "a vote not assigned": ({"a": "C"}, {"a": 2, "b": 2}, [], "`votes` must be .* got 'C' of 'a'"),
    "no capacity": ({}, {"a": 2}, [], "`capacities` must have every reader who continues, .* got 'b'"),
    "an unknown one stops": ({}, {"a": 2, "b": 2}, ["x"], "got 'x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    votes, capacities, stopped, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        run(listed(a="AB", b="C"), votes, capacities, stopped)
