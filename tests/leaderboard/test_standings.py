"""The board as data, from scores and rank documents put into the database directly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.boards.catalogue import Published
from reveal_leaderboard.boards.standings import (
    Standings,
    UnknownVersionError,
    board_metrics,
    filtered,
    sorted_by,
    standings,
)
from reveal_leaderboard.release.release import POLICY, ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import results, scores, submissions, teams, users, versions

from tests.leaderboard.conftest import BENCHMARK, RARE, Board
from tests.leaderboard.databases import DATABASE_SOURCE

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z
OLD, NEW = "1.0.0", "1.1.0"


def score(value: float | None, *, metrics: tuple[str, ...] = ("point_hit", "grid_hit")) -> ReleasedScore:
    """A score with a macro and one finding per metric; 0.1 less for the finding."""
    figures = [
        ReleasedEstimate(
            metric, finding, round(value - less, 2), round(value - less - 0.05, 2), None, n, f"{metric}|b:1000|v:1"
        )
        for metric in metrics
        for finding, less, n in (("macro", 0.0, "9"), ("Edema", 0.1, "30-59"))
        if value is not None
    ]
    return ReleasedScore(tuple(figures), ("Edema",), (RARE,), "note", {"min_cell": POLICY.min_cell})


class Scores:
    """A database into which scores of named submissions can be put; the name is the id."""

    def __init__(self, root: Path, published: Published, kind: str = "sqlite") -> None:
        self.store, self.published, self.n = Store(DATABASE_SOURCE.migrated(kind, root)), published, 0
        with self.store.write() as connection:
            boards.register_version(connection, published.name, published.version, published.split, published.facts())
            user = {"issuer": "local", "subject": "u", "name": "User", "is_admin": False, "created_at": NOON}
            connection.execute(users.insert().values(id="user", **user))

    def add(self, name: str, value: float | None, *, version: str = OLD, **changes: Any) -> None:
        """A scored submission; `changes` are of its row, and `shown_of` and `metrics` of its score."""
        self.n += 1
        released = score(value, **({"metrics": changes.pop("metrics")} if "metrics" in changes else {}))
        shown_of = changes.pop("shown_of", name)
        team = changes.pop("team", f"Team {name}")
        row = {
            "id": name, "benchmark": self.published.name, "version": version, "split": "holdout", "team_id": team[:32],
            "user_id": "user", "model_name": name, "kind": "cnn", "prompt_style": None, "filename": "p", "sha256": name,
            "metadata": {"model": {"name": name, "version": "0.1"}}, "size": 1, "allow_missing": False,
            "status": "scored", "created_at": NOON + self.n, "updated_at": NOON + self.n, "is_chosen": False, **changes,
        }  # fmt: skip
        with self.store.write() as connection:
            if connection.execute(teams.select().where(teams.c.id == team[:32])).one_or_none() is None:
                keys = {"id": team[:32], "name": team, "name_key": team.casefold(), "created_at": NOON}
                connection.execute(teams.insert().values(**keys))
            connection.execute(submissions.insert().values(**row))
            own = {"submission_id": name, "version": version, "part": "public", "released": released.to_json()}
            more = {"shown_of": shown_of, "signature": "s", "reference_hash": "h", "scored_at": NOON}
            connection.execute(scores.insert().values(**own, **more))

    def rank(
        self, *places: tuple[str, int, int, int, str], also: tuple[str, ...] = (), version: str = OLD, **extra: Any
    ) -> None:
        """Put a rank document: (id, rank, low, high, tier) of each; `also` were looked at and not placed; `extra` are
        its other fields."""
        entries = {name: {"rank": r, "rank_low": low, "rank_high": high, "tier": t} for name, r, low, high, t in places}
        document = {"schema": 1, "metric": "point_hit", "entries": entries, "computed_for": [*entries, *also]} | extra
        key = {"kind": "rank", "benchmark": self.published.name, "version": version, "subject": "board"}
        with self.store.write() as connection:
            connection.execute(results.delete().where(results.c.version == version))
            connection.execute(results.insert().values(**key, document=document, computed_at=NOON))

    def show(self, version: str) -> None:
        """Register a version and show it instead of the present one."""
        with self.store.write() as connection:
            facts = {**self.published.facts(), "findings": ["Edema", RARE, "Cardiomegaly"]}
            boards.register_version(connection, self.published.name, version, "holdout", facts)
            connection.execute(versions.update().where(versions.c.version == OLD).values(frozen_at=NOON + 100))
            connection.execute(versions.update().where(versions.c.version == version).values(shown_at=NOON + 100))

    def standings(self, version: str | None = None) -> Standings:
        return standings(self.store, self.published, version)


@pytest.fixture
def added(tmp_path: Path, board: Board) -> Scores:
    return Scores(tmp_path, board.published)


def places(board: Standings) -> list[tuple[str, str, str | None]]:
    return [(entry.model, entry.place, entry.tier) for entry in board.entries]


def test_an_empty_board(added: Scores) -> None:
    board = added.standings()
    assert (board.benchmark, board.title, board.kind, board.version) == (BENCHMARK, "CheXlocalize", "localization", OLD)
    assert (board.entries, board.hidden, board.notes, board.ranked_at) == ((), (), (), None)
    assert board.min_cell == POLICY.min_cell
    assert [metric.name for metric in board.metrics] == ["point_hit", "grid_hit", "mask_iou_all"]
    assert (board.synthetic, board.comparable, board.is_frozen, board.versions) == (True, False, False, (OLD,))


def test_tiers_stand_in_order_and_share_their_ranks(added: Scores) -> None:
    for name, value in (("low", 0.3), ("second", 0.58), ("best", 0.6)):
        added.add(name, value)
    added.rank(("best", 1, 1, 2, "A"), ("second", 1, 1, 2, "A"), ("low", 3, 3, 3, "B"))
    board = added.standings()
    assert places(board) == [("best", "1-2", "A"), ("second", "1-2", "A"), ("low", "3", "B")]
    assert [entry.rank for entry in board.entries] == [1, 1, 3]
    assert (board.ranked_at, board.hidden) == ("2026-11-21T12:00:00Z", (RARE,))
    first = board.entries[0]
    assert (first.team, first.model_version, first.date, first.version) == ("Team best", "0.1", "2026-11-21", OLD)
    figure = first.figure("point_hit", "Edema")
    assert figure.value == 0.5


def test_patients_are_told_where_they_are_fewer_than_images_and_chance_where_it_is_known(added: Scores) -> None:
    added.add("best", 0.6)
    place = ("best", 1, 1, 1, "A")
    added.rank(place)  # as a program before wrote it
    board = added.standings()
    assert board.n_items is not None
    assert (board.n_patients, board.chance) == (None, {})
    for n, n_patients in ((board.n_items - 1, board.n_items - 1), (board.n_items, None)):
        added.rank(place, n_patients=n, chance={"point_hit": 7})
        assert (added.standings().n_patients, added.standings().chance) == (n_patients, {"point_hit": 0.07})


def test_new_entries_come_behind_and_those_without_a_figure_last(added: Scores) -> None:
    for name, value in (("none", None), ("new", 0.9), ("old", 0.2), ("newer", 0.95)):
        added.add(name, value)
    added.rank(("old", 1, 1, 1, "A"), also=("none",))
    board = added.standings()
    new = "new, being placed"
    assert places(board) == [("old", "1", "A"), ("newer", new, None), ("new", new, None), ("none", "not placed", None)]
    assert board.notes == ("2 new entries are being placed.",)


def test_without_a_rank_document_all_are_new(added: Scores) -> None:
    added.add("a", 0.4)
    board = added.standings()
    assert [(entry.is_new, entry.rank) for entry in board.entries] == [(True, None)]
    assert board.notes == ("1 new entry is being placed.",)


@pytest.mark.parametrize(
    "changes",
    [
        {"withdrawn_at": NOON},
        {"hidden_at": NOON, "hidden_why": "spam"},
        {"shown_of": "shown"},
        {"status": "queued"},
        {"version": NEW},
    ],
    ids=["withdrawn", "hidden", "held", "queued", "other-version"],
)
def test_what_is_off_the_board_is_not_in_it(added: Scores, changes: dict[str, Any]) -> None:
    added.add("shown", 0.5)
    added.add("off", 0.7, **changes)
    added.rank(("off", 1, 1, 2, "A"), ("shown", 1, 1, 2, "A"))
    board = added.standings()
    assert places(board) == [("shown", "1-2", "A")]
    assert "off" not in str(board)
    assert board.notes == ("An entry left the board after the ranks were computed; ranks are being computed again.",)


def test_a_frozen_version_says_so_and_keeps_its_own_entries(added: Scores) -> None:
    added.add("a", 0.5)
    added.rank(("a", 1, 1, 1, "A"))
    added.show(NEW)
    added.add("b", 0.6, version=NEW)
    old, new = added.standings(OLD), added.standings(NEW)
    assert (places(old), places(new)) == ([("a", "1", "A")], [("b", "new, being placed", None)])
    assert (old.is_frozen, new.is_frozen) == (True, False)
    assert old.notes == ("Frozen, not the current version, which is 1.1.0.",)
    assert old.versions == new.versions == (NEW, OLD)
    assert [(v.version, v.frozen_at, v.is_current) for v in old.history] == [
        (NEW, None, True),
        (OLD, "2026-11-21T12:01:40Z", False),
    ]
    assert old.findings == added.published.findings
    assert new.findings == ("Edema", RARE, "Cardiomegaly"), "of a folder that is not here, the facts that were kept"


def test_versions_that_were_never_shown_are_nobodys_business(board: Board, tmp_path: Path) -> None:
    added = Scores(tmp_path, board.published, "postgresql")  # which refuses texts with a NUL character
    with added.store.write() as connection:
        boards.register_version(connection, BENCHMARK, NEW, "holdout", {})
    for version in (NEW, "9.9.9", "\0"):
        with pytest.raises(UnknownVersionError) as error:
            added.standings(version)
        assert f"the board of chexlocalize shows or has shown (1.0.0), got {version!r}" in str(error.value)


def test_only_rows_of_the_same_data_are_comparable(added: Scores, tmp_path: Path) -> None:
    real = replace(added.published, info=replace(added.published.info, synthetic=False))
    board = standings(added.store, real)
    assert (board.comparable, board.synthetic) == (True, False)
    assert board.references[0].name == "Human benchmark"
    assert all(row.is_of_test_split for row in board.references)


@pytest.mark.parametrize(
    ("benchmark", "columns"),
    [
        ("chexlocalize", ["point_hit", "grid_hit", "mask_iou_all"]),
        ("vindr-cxr", ["point_hit", "grid_hit", "box_iou"]),
        ("reveal-cxr", ["f1", "recall", "cohen_kappa", "auroc"]),
    ],
)
def test_columns_are_the_released_metrics_the_primary_one_first(benchmark: str, columns: list[str]) -> None:
    assert [metric.name for metric in board_metrics(benchmark)] == columns


def test_published_rows_are_over_all_findings(added: Scores) -> None:
    """Their macros are not comparable with those of a benchmark that asks some of the findings."""
    info = replace(added.published.info, synthetic=False)
    boards_of = [
        standings(added.store, replace(added.published, info=replace(info, not_asked=names))) for names in ((), ("X",))
    ]
    assert [(one.comparable, one.part) for one in boards_of] == [(True, ""), (False, "10 of 11 findings")]


def test_entries_of_another_hit_rate_are_not_placed(added: Scores, tmp_path: Path) -> None:
    """After a change of the setting, an entry is placed only by a score that was released."""
    added.add("points", 0.6, metrics=("point_hit",))
    added.add("cells", 0.3, metrics=("grid_hit",))
    added.rank(("points", 1, 1, 1, "A"))
    (tmp_path / "settings.toml").write_text('[release]\nplace_metric = "grid_hit"\n', encoding="utf-8")
    added.store.settings = load_settings(tmp_path / "settings.toml")
    board = added.standings()
    assert [metric.name for metric in board.metrics] == ["grid_hit", "point_hit", "mask_iou_all"]
    assert places(board) == [("cells", "new, being placed", None), ("points", "not placed", None)]


@pytest.fixture
def three(added: Scores) -> Standings:
    added.add("Alpha Net", 0.3, team="North")
    added.add("Beta LLM", 0.6, team="South", kind="multimodal_llm", prompt_style="few-shot")
    added.add("Gamma Net", None, team="North")
    added.rank(("Beta LLM", 1, 1, 1, "A"), ("Alpha Net", 2, 2, 2, "B"), also=("Gamma Net",))
    return added.standings()


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({}, ["Beta LLM", "Alpha Net", "Gamma Net"]),
        ({"search": "net NORTH"}, ["Alpha Net", "Gamma Net"]),
        ({"search": "few-shot"}, ["Beta LLM"]),
        ({"search": "0.1 gamma"}, ["Gamma Net"]),
        ({"kind": "multimodal_llm"}, ["Beta LLM"]),
        ({"organization": "North", "search": "alpha"}, ["Alpha Net"]),
        ({"organization": "Nor"}, []),
    ],
    ids=["nothing", "words", "prompt", "version", "kind", "team", "part-of-a-team"],
)
def test_filters_keep_places(three: Standings, asked: dict[str, str], left: list[str]) -> None:
    board = filtered(three, **asked)
    assert [entry.model for entry in board.entries] == left
    assert [e for e in three.entries if e.model in left] == list(board.entries)


def test_rows_without_a_figure_sort_last_either_way(three: Standings) -> None:
    def order(finding: str = "macro", *, worst_first: bool = False) -> list[str]:
        return [entry.model for entry in sorted_by(three, "point_hit", finding, worst_first=worst_first).entries]

    assert order() == ["Beta LLM", "Alpha Net", "Gamma Net"]
    assert order(worst_first=True) == ["Alpha Net", "Beta LLM", "Gamma Net"]
    assert order(finding="Edema") == ["Beta LLM", "Alpha Net", "Gamma Net"]
    assert order(finding=RARE) == [entry.model for entry in three.entries]


def test_columns_that_are_not_there_are_refused(three: Standings) -> None:
    with pytest.raises(ValueError, match=r"`metric` must be one of \['point_hit', .*, got 'f1'"):
        sorted_by(three, "f1")
    with pytest.raises(ValueError, match=r"`finding` must be 'macro' or one of .*, got 'Fracture'"):
        sorted_by(three, "point_hit", "Fracture")


def test_times_are_utc() -> None:
    assert iso_time(NOON + 0.9) == "2026-11-21T12:00:00Z"
