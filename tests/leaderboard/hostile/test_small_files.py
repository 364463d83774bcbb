"""Some hundreds of bad files through the real way in: each is answered as listed, in words, and nothing dies.

How long an answer took is noted with the test's result (`seconds`) and not judged here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from tests.leaderboard.hostile.corpus import Bad
from tests.leaderboard.hostile.documents import DOCUMENTS
from tests.leaderboard.hostile.lines import LINES
from tests.leaderboard.hostile.masks import MASKS
from tests.leaderboard.hostile.parquets import PARQUETS
from tests.leaderboard.hostile.studies import STUDIES
from tests.leaderboard.hostile.tables import TABLES
from tests.leaderboard.hostile.world import TwoBoards
from tests.leaderboard.hostile.wrappings import WRAPPINGS

pytestmark = pytest.mark.processes

CORPUS = (*LINES, *MASKS, *TABLES, *PARQUETS, *DOCUMENTS, *WRAPPINGS, *STUDIES)
ODD = [bad for bad in CORPUS if bad.name.partition(": ")[2].startswith("odd but sound")]


def test_the_corpus_is_large_and_names_its_files_apart() -> None:
    assert sum(bool(bad.rules) for bad in CORPUS) >= 300
    assert len({bad.name for bad in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("bad", CORPUS, ids=lambda bad: bad.name)
def test_a_bad_file_is_answered(
    boards: TwoBoards, bad: Bad, record_testsuite_property: Callable[[str, object], None]
) -> None:
    record_testsuite_property(f"seconds of {bad.name}", round(boards.check(bad), 3))


def test_files_are_the_same_each_time(boards: TwoBoards) -> None:
    for bad in islice(CORPUS, 0, None, 7):
        assert bad.make(boards.site) == bad.make(boards.site)


@pytest.mark.parametrize("bad", ODD, ids=lambda bad: bad.name)
def test_what_is_odd_but_sound_can_be_scored(boards: TwoBoards, bad: Bad) -> None:
    assert boards.score(bad).released.shown
