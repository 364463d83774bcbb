"""Files that are large, or grow: in bounded memory each is refused by a rule or given up with a fixed sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.leaderboard.hostile.corpus import Bad
from tests.leaderboard.hostile.studies import LARGE_STUDIES
from tests.leaderboard.hostile.world import TwoBoards
from tests.leaderboard.hostile.wrappings import LARGE_WRAPPINGS

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("bad", [*LARGE_WRAPPINGS, *LARGE_STUDIES], ids=lambda bad: bad.name)
def test_a_large_file_is_answered(
    boards: TwoBoards, bad: Bad, record_testsuite_property: Callable[[str, object], None]
) -> None:
    record_testsuite_property(f"seconds of {bad.name}", round(boards.check(bad), 3))
