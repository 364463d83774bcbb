"""Hundreds of bad files through the real upload: each gets the listed answer in readable words, and no process dies.

One or two of each rule are read in a confined child, the others by the same code in this process. Files that are large,
or grow, are all read in children: in bounded memory each is refused by a rule or given up with a fixed sentence. How
long a child took is noted with the test's result (`seconds`) and not judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pytest

from tests.leaderboard.conftest import Board
from tests.leaderboard.hostile.corpus import BROKE_OFF, TOO_LARGE, Bad
from tests.leaderboard.hostile.documents import DOCUMENTS
from tests.leaderboard.hostile.lines import LINES
from tests.leaderboard.hostile.masks import MASKS
from tests.leaderboard.hostile.parquets import PARQUETS
from tests.leaderboard.hostile.studies import LARGE_STUDIES, STUDIES
from tests.leaderboard.hostile.tables import TABLES
from tests.leaderboard.hostile.world import TwoBoards, two_boards
from tests.leaderboard.hostile.wrappings import LARGE_WRAPPINGS, WRAPPINGS

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def boards(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBoards]:
    with two_boards(board, tmp_path_factory.mktemp("hostile")) as world:
        yield world


CORPUS = (*LINES, *MASKS, *TABLES, *PARQUETS, *DOCUMENTS, *WRAPPINGS, *STUDIES)
ODD = [bad for bad in CORPUS if bad.name.partition(": ")[2].startswith("odd but sound")]


def of_each_rule(corpus: Iterable[Bad]) -> Iterator[Bad]:
    """The first sound file, the first file of each rule, and all that a child may give up."""
    seen_rules: set[str] = set()
    for bad in corpus:
        rules = bad.rules or {"sound"}
        if rules - seen_rules or rules & {TOO_LARGE, BROKE_OFF}:
            yield bad
        seen_rules |= rules


CONFINED = {bad.name for board in ("images", "studies") for bad in of_each_rule(b for b in CORPUS if b.board == board)}
CONFINED |= {"studies: CSV: a cell of 200 kB"}  # the longest cell is Python's, of the whole process


def test_the_corpus_is_large_and_names_its_files_apart() -> None:
    assert sum(bool(bad.rules) for bad in CORPUS) >= 300
    assert len({bad.name for bad in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("bad", [bad for bad in CORPUS if bad.name in CONFINED], ids=lambda bad: bad.name)
def test_a_bad_file_is_answered_by_a_confined_child(
    boards: TwoBoards, bad: Bad, record_testsuite_property: Callable[[str, object], None]
) -> None:
    record_testsuite_property(f"seconds of {bad.name}", round(boards.check(bad), 3))


@pytest.mark.parametrize("kind", ["images", "studies"])
def test_bad_files_are_answered_by_the_same_code(boards: TwoBoards, kind: str) -> None:
    """The other files in one test, because each takes less time than a test's overhead."""
    for bad in CORPUS:
        if bad.board == kind and bad.name not in CONFINED:
            try:
                boards.check(bad, is_confined=False)
            except AssertionError as error:
                raise AssertionError(bad.name) from error


def test_files_are_the_same_each_time(boards: TwoBoards) -> None:
    for bad in islice(CORPUS, 0, None, 7):
        assert bad.make(boards.site) == bad.make(boards.site)


@pytest.mark.parametrize("bad", ODD, ids=lambda bad: bad.name)
def test_what_is_odd_but_sound_passes_the_reader_beside_the_references(boards: TwoBoards, bad: Bad) -> None:
    report, predictions = boards.read_again(bad)
    assert len(predictions) == report.n_predictions


@pytest.mark.parametrize("bad", [*LARGE_WRAPPINGS, *LARGE_STUDIES], ids=lambda bad: bad.name)
def test_a_large_file_is_answered(
    boards: TwoBoards, bad: Bad, record_testsuite_property: Callable[[str, object], None]
) -> None:
    record_testsuite_property(f"seconds of {bad.name}", round(boards.check(bad), 3))
