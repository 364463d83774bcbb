"""Assignments: one is found whenever one exists, no reader gets a study twice or too many, the choice is random;
otherwise the error names the number missing.
"""

from collections import Counter, defaultdict
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveal_bench.curation.assign import assign, draw_assignment, loads, read_readers
from reveal_bench.curation.folder import CurationError
from reveal_bench.curation.sample import sample
from reveal_bench.curation.tables import Assignment, read_table
from reveal_bench.sources.source import BuildError
from tests.curation.test_sample import curation, pool

TABLE_S4 = [300, 300, 300, 273, 229, 222, 213, 203, 177, 151, 140, 133, 121, 94, 57, 53, 34]
"""Studies finished per radiologist (paper 004, Table S4)."""


def readers(capacities):
    return {f"r{i:02d}": capacity for i, capacity in enumerate(capacities)}


def studies(n):
    return [f"s{i:04d}" for i in range(n)]


def drawn(n, capacities, seed=0, **options):
    return draw_assignment(studies(n), readers(capacities), np.random.default_rng(seed), **options)


def check(assignments, n, capacities, per_study, most):
    """Check the rules of every assignment."""
    by_study, by_reader = defaultdict(list), defaultdict(list)
    for one in assignments:
        by_study[one.study_id].append(one.reader)
        by_reader[one.reader].append(one.position)
    assert sorted(by_study) == studies(n)
    assert all(len(readers) == len(set(readers)) == per_study for readers in by_study.values())
    for reader, positions in by_reader.items():
        assert positions == list(range(1, len(positions) + 1))
        assert len(positions) <= min(readers(capacities)[reader], most)


TIGHT = {
    "three readers read all": (5, [5, 5, 5], 3, 300),
    "one study": (1, [1, 1, 1], 3, 300),
    "one study, many readers": (1, [9] * 17, 3, 300),
    "some readers have no room": (4, [0, 4, 4, 4, 0], 3, 300),
    "one reads all, the others share": (6, [6, 6, 1, 1, 1, 1, 1, 1], 3, 300),
    "each reads one": (3, [1] * 9, 3, 300),
    "capacities above the studies": (7, [1000, 1000, 1000], 3, 300),
    "most is the limit": (10, [1000] * 6, 3, 5),
    "one reader per study": (8, [3, 5], 1, 300),
    "five readers per study": (9, [9, 9, 9, 9, 8, 1], 5, 300),
    "paper's Table S4": (1000, TABLE_S4, 3, 300),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", TIGHT)
def test_feasible_cases_are_solved(name, seed):
    n, capacities, per_study, most = TIGHT[name]
    check(drawn(n, capacities, seed, per_study=per_study, most=most), n, capacities, per_study, most)


def test_the_assignments_of_the_paper_leave_no_slack():
    assert sum(TABLE_S4) == 3000
    assert loads(1000, readers(TABLE_S4), np.random.default_rng(0)) == readers(TABLE_S4)


@given(
    n=st.integers(1, 12),
    capacities=st.lists(st.integers(0, 14), min_size=1, max_size=8),
    per_study=st.integers(1, 4),
    most=st.integers(1, 14),
)
def test_solved_exactly_when_capacities_suffice(n, capacities, per_study, most):
    """A study needs different readers, so a reader counts at most once a study; that this suffices is McNaughton's
    rule of 1959 (or Gale and Ryser's theorem with equal rows)."""
    offered = sum(min(capacity, most, n) for capacity in capacities)
    if offered >= per_study * n:
        check(drawn(n, capacities, per_study=per_study, most=most), n, capacities, per_study, most)
    else:
        with pytest.raises(CurationError, match=f"{per_study * n - offered:,} are missing"):
            drawn(n, capacities, per_study=per_study, most=most)


MISSING = {
    "two readers": (
        10,
        [10, 10],
        "3 readers for each of 10 studies are 30 assignments; the 2 readers can take 20.* 10 are",
    ),
    "one assignment too few": (1000, [*TABLE_S4[:-1], 33], "can take 2,999, at most 300 each.*: 1 are missing"),
    "capacity that is no use": (5, [1000, 5], "the 2 readers can take 10.*: 5 are missing"),
    "nobody": (1, [0, 0], "the 0 readers can take 0.*: 3 are missing"),
}


@pytest.mark.parametrize("name", MISSING)
def test_infeasible_says_what_is_missing(name):
    n, capacities, message = MISSING[name]
    with pytest.raises(CurationError, match=message):
        drawn(n, capacities)


def test_slack_is_shared_evenly():
    """Water level: 3 x 10 assignments over capacities 2, 4, 30, 30, 30 are 2 + 4 + 8 + 8 + 8."""
    assert loads(10, readers([2, 4, 30, 30, 30]), np.random.default_rng(0)) == readers([2, 4, 8, 8, 8])
    rest = Counter(tuple(loads(5, readers([9] * 4), np.random.default_rng(seed)).values()) for seed in range(40))
    assert {tuple(sorted(load)) for load in rest} == {(3, 4, 4, 4)}
    assert len(rest) == 4  # who reads less is random


def test_order_of_input_does_not_matter_and_seed_does():
    names = readers([60, 40, 80, 50, 70])
    one = draw_assignment(studies(100), names, np.random.default_rng(1))
    other = draw_assignment(studies(100)[::-1], dict(reversed(names.items())), np.random.default_rng(1))
    assert one == other != draw_assignment(studies(100), names, np.random.default_rng(2))


def test_pairs_of_readers_meet_at_random():
    """Six readers with 100 of 200 studies each: two of them meet in 200 x 3 x 2 / (6 x 5) = 40 studies. In random
    designs with these margins the standard deviation is below the binomial's, 200 x 0.2 x 0.8 = 5.7**2; without
    swaps neighbours would meet 100 times or never."""
    together = Counter()
    by_study = defaultdict(list)
    for one in drawn(200, [100] * 6):
        by_study[one.study_id].append(one.reader)
    for three in by_study.values():
        together.update((a, b) for a in three for b in three if a < b)
    assert len(together) == 15
    assert all(abs(n - 40) < 4 * 5.7 for n in together.values())


def test_lists_are_in_random_order():
    lists = defaultdict(list)
    for one in drawn(300, [300] * 3):
        lists[one.reader].append(one.study_id)
    for own in lists.values():
        assert sorted(own) == studies(300)
        assert abs(np.corrcoef([int(name[1:]) for name in own], range(300))[0, 1]) < 4 / np.sqrt(300)
    assert len({tuple(own) for own in lists.values()}) == 3


@pytest.mark.parametrize("options", [{"per_study": 0}, {"most": 0}])
def test_bad_arguments(options):
    with pytest.raises(ValueError, match="must be at least 1"):
        drawn(3, [3, 3, 3], **options)
    with pytest.raises(ValueError, match="`studies` must name each study once"):
        draw_assignment(["a", "a"], readers([2, 2, 2]), np.random.default_rng(0))


def written(tmp_path, text, name="readers.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


BAD_TABLES = {
    "empty": ("", ["`file` must have a row of column names"]),
    "no readers": ("reader,capacity\n", ["`rows` must contain at least one"]),
    "no capacity": ("reader\na\n", ["`columns` must be reader and capacity, got reader"]),
    "one column more": ("reader,capacity,email\na,1,x\n", ["got reader, capacity, email"]),
    "blank reader": (
        "reader,capacity\n,3\n",
        ["readers.csv:2: `reader` must be a name in printable characters, got a blank cell"],
    ),
    "a reader of two lines": (
        'reader,capacity\n"Ada\nBen",3\n',
        [r"readers.csv:2: `reader` must be a name in printable characters, got 'Ada.*Ben'"],
    ),
    "twice": (
        "reader,capacity\na,1\nA,2\n",
        ["readers.csv:3: `reader` must occur only once, got 'A' again, first in row 2"],
    ),
    "words": ("reader,capacity\na,many\nb,-1\nc,1.5\nd,\n", ["2: `capacity`", "3: .*'-1'", "4: .*'1.5'", "5: .*blank"]),
    "other digits": ("reader,capacity\na,٣\n", ["`capacity` must be a whole number of studies of at least 0"]),
    "a cell too few": ("reader,capacity\na\n", ["readers.csv:2: `row` must have 2 cells"]),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_of_readers(tmp_path, name):
    text, messages = BAD_TABLES[name]
    for message in messages:
        with pytest.raises(BuildError, match=message):
            read_readers(written(tmp_path, text))


def test_a_missing_table(tmp_path):
    with pytest.raises(BuildError, match="`file` must exist"):
        read_readers(tmp_path / "readers.csv")


def test_readers_are_read_strictly_but_for_blanks_around(tmp_path):
    assert read_readers(written(tmp_path, "capacity;reader\n 12 ; Ann \n0;Bob\n")) == {"Ann": 12, "Bob": 0}


def test_the_step(tmp_path):
    folder = curation(tmp_path, pool(200))
    sample(folder, strata={1: 10, 2: 10})
    path = written(tmp_path, "reader,capacity\nann,20\nbob,20\ncyd,15\ndan,5\neve,0\n")
    record = assign(folder, path)
    rows = read_table(folder.path("assignments.parquet"), Assignment)
    assert record.counts["places"] == len(rows) == 60
    assert record.counts["capacity"] == 60
    assert record.counts["by_reader"] == {"ann": 20, "bob": 20, "cyd": 15, "dan": 5, "eve": 0}
    digest = sha256(folder.path("assignments.parquet").read_bytes()).hexdigest()
    assert not assign(folder, path).is_new
    written(tmp_path, "reader,capacity\ndan,5\neve,0\ncyd,15\nbob,20\nann,20\n")
    with pytest.raises(CurationError, match="readers has changed: do it again with --redo"):
        assign(folder, path)
    assert assign(folder, path, redo=True).outputs["assignments.parquet"] == digest
    with pytest.raises(CurationError, match="10 are missing"):
        assign(folder, path, most=15, redo=True)
    assert sha256(folder.path("assignments.parquet").read_bytes()).hexdigest() == digest
