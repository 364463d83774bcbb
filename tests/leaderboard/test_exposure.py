"""The exposure meter, with rows as written by the store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from reveal_leaderboard.release.exposure import Exposure, Group, answer_bits, exposure, label_bits
from reveal_leaderboard.release.fingerprints import fingerprint
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import ReleasePolicy, load_settings
from reveal_leaderboard.store.tables import (
    boards,
    fingerprints,
    members,
    scores,
    shared_cases,
    submissions,
    tables,
    teams,
    users,
    versions,
)

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings import RELEASED_PER_LABEL
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest

BENCHMARK, VERSION = "reveal-cxr", "1.0.0"
KEY = b"0123456789abcdef"
MANIFEST = StudyManifest(BENCHMARK, VERSION, "holdout", ("Edema", "Mass"), tuple(f"s{i}" for i in range(300)))


def make_score(*figures: tuple[str, str, str]) -> ReleasedScore:
    """Return a score of estimates (metric, finding, count range), with a macro that is not counted."""
    made = [
        ReleasedEstimate(metric, finding, 0.5, 0.4, 0.6, n, "")
        for metric, finding, n in (*figures, ("f1", "macro", "2"))
    ]
    return ReleasedScore(tuple(made), ("Edema", "Mass"), (), "", asdict(ReleasePolicy()))


SCORE = make_score(("f1", "Edema", "30-59"), ("recall", "Edema", "30-59"), ("f1", "Mass", "120+"))


class Rows:
    """Writer of teams, submissions and scores."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.n = 0

    def version(self, facts: dict[str, int]) -> None:
        self.connection.execute(
            versions.insert().values(benchmark=BENCHMARK, version=VERSION, split="holdout", facts=facts, added_at=0.0)
        )

    def score(
        self, team: str, *, score: ReleasedScore = SCORE, seed: int | None = None, held: bool = False,
        version: str = VERSION, part: str = "public", hidden: bool = False,
    ) -> None:  # fmt: skip
        if not self.connection.execute(sa.select(teams.c.id).where(teams.c.id == team)).all():
            row = {"id": team, "name": f"Team {team}", "name_key": team, "created_at": 0.0}
            self.connection.execute(teams.insert().values(row))
        self.n += 1
        own = f"sub{self.n}"
        plain = dict.fromkeys(("model_name", "kind", "filename", "sha256"), own)
        facts = {"benchmark": BENCHMARK, "version": VERSION, "split": "holdout", "metadata": {}, "size": 1}
        times = {"created_at": 0.0, "updated_at": 0.0, "hidden_at": 1.0 if hidden else None}
        flags = {"allow_missing": False, "is_chosen": True, "status": "scored"}
        ids = {"id": own, "team_id": team, "user_id": "user"}
        self.connection.execute(submissions.insert().values(**plain, **facts, **times, **flags, **ids))
        released = {"released": score.to_json(), "shown_of": "sub0" if held else own, "signature": ""}
        place = {"submission_id": own, "version": version, "part": part, "reference_hash": "", "scored_at": 0.0}
        self.connection.execute(scores.insert().values(**released, **place))
        rng = np.random.default_rng(self.n if seed is None else seed)
        made = fingerprint(
            [FindingsPrediction(s, ("Edema",)) for s in MANIFEST.studies if rng.random() < 0.5], MANIFEST, KEY
        )
        self.connection.execute(
            fingerprints.insert().values(
                submission_id=own, benchmark=BENCHMARK, version=version, content=made.content, sketch=list(made.sketch)
            )
        )


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'board.db'}")
    tables.create_all(engine)
    with engine.begin() as connection:
        yield Rows(connection)
    engine.dispose()


def read(rows: Rows, settings: str = "") -> Exposure:
    path = None
    if settings:
        path = Path(str(rows.connection.engine.url.database)).with_name("own.toml")
        path.write_text(settings, encoding="utf-8")
    return exposure(rows.connection, BENCHMARK, VERSION, load_settings(path))


def test_a_small_share_of_cases_closes_no_board(rows: Rows) -> None:
    """One team's answer here, and another's on a board with 3 of these 300 studies, which counts as 3% of an answer."""
    rows.version({"n_studies": 300})
    rows.score("a")
    alone = read(rows)
    rows.score("b")
    for table in (submissions, fingerprints):
        key = table.c.id if table is submissions else table.c.submission_id
        rows.connection.execute(table.update().where(key == "sub2").values(benchmark="other"))
    board = {"benchmark": "other", "version": VERSION, "split": "holdout", "facts": {"n_studies": 300}, "added_at": 0.0}
    rows.connection.execute(versions.insert().values(board))
    pair = {"benchmark": BENCHMARK, "version": VERSION, "other": "other", "other_version": VERSION}
    rows.connection.execute(shared_cases.insert().values(**pair, share=0.03))
    both = read(rows)
    assert (both.bits_held, both.level) == (alone.bits_held, "low")
    assert both.share == pytest.approx(1.03 * alone.share)


def test_final_scores_count_once_the_board_shows_them(rows: Rows) -> None:
    """The submission is one answer about the public patients, and one about the others."""
    rows.version({"n_studies": 300})
    rows.score("a")
    row = rows.connection.execute(sa.select(scores)).one()._mapping
    rows.connection.execute(scores.insert().values({**row, "part": "final"}))
    board = {"benchmark": BENCHMARK, "version": VERSION, "state": "open", "why": "", "changed_at": 0.0}
    rows.connection.execute(boards.insert().values(board))
    public = read(rows)
    rows.connection.execute(boards.update().values(state="closed"))
    both = read(rows)
    assert (both.n_scored, both.bits_held) == (public.n_scored, public.bits_held) == (1, public.bits_held)
    assert both.share == pytest.approx(2 * public.share)


def test_bits_of_answers_by_hand() -> None:
    few = ReleasedEstimate("f1", "Edema", 0.5, None, None, "30-59", "")
    many = ReleasedEstimate("point_hit", "Edema", 0.5, None, None, "120+", "")
    area = ReleasedEstimate("mask_iou_all", "Edema", 0.5, None, None, "120+", "")
    again = ReleasedEstimate("recall", "Edema", 0.5, None, None, "30-59", "")
    assert answer_bits([few], 668) == pytest.approx(math.log2(11))  # 0.0, 0.1 ... 1.0
    assert answer_bits([few, again], 668) == pytest.approx(math.log2(60))  # 0 to 59: one count decides both
    fine = ReleasePolicy(band_resolution=(0.01, 0.01, 0.01))
    assert answer_bits([few], None, fine) == pytest.approx(math.log2(60))
    assert answer_bits([many], 668) == pytest.approx(math.log2(151))  # 51 values, and 100 edges of a macro's 0.01
    assert answer_bits([many, area], 668) == pytest.approx(2 * math.log2(151))
    assert answer_bits([], 668) == 0
    # The average of grid hits has another 100 edges. With fewer than 50 cases only averages count, in steps of 0.1
    assert answer_bits([many], 668, n_averages=1) == pytest.approx(math.log2(251))
    assert answer_bits([], 668, n_averages=1) == pytest.approx(math.log2(11))
    assert answer_bits([], 668, n_averages=2) == pytest.approx(math.log2(21))


def test_bits_in_labels_by_hand() -> None:
    few = ReleasedEstimate("f1", "Edema", 0.5, None, None, "30-59", "")
    assert label_bits([few], 100) == pytest.approx(math.log2(math.comb(100, 30)))  # fewer than with 50 or 59
    assert label_bits([few], 668) == pytest.approx(math.log2(math.comb(668, 30)))
    assert label_bits([few], None) == pytest.approx(math.log2(math.comb(60, 30)))
    point = ReleasedEstimate("point_hit", "Edema", 0.5, None, None, "60-119", "")
    box = ReleasedEstimate("box_iou", "Edema", 0.5, None, None, "60-119", "")
    assert label_bits([point], 668) == 60  # one bit per case: is a known place right
    policy = ReleasePolicy(place_cell=50)
    assert label_bits([point, box], 668, policy) == 75  # overlap needs 2.5 times the 30 cases that a hit rate does
    assert (
        label_bits([ReleasedEstimate("box_iou", "Edema", 0.5, None, None, "30-59", "")], 668) == 30
    )  # released by an earlier rule
    assert (
        label_bits([ReleasedEstimate("point_hit", "Edema", 0.5, None, None, "30-59", "")], 668, policy) == 50
    )  # fewer cases have no score
    assert label_bits([], 668) == 30


def of_places(*figures: tuple[str, str, str], **policy: int) -> ReleasedScore:
    made = [ReleasedEstimate(metric, finding, 0.5, 0.4, 0.6, n, "") for metric, finding, n in figures]
    return ReleasedScore(tuple(made), ("Edema", "Mass"), (), "", policy)


def test_average_hits_count_with_and_without_a_finding_score(rows: Rows) -> None:
    macros = [("point_hit", "macro", "2"), ("grid_hit", "macro", "2")]
    rows.score("A", score=of_places(("point_hit", "Edema", "120+"), *macros, place_cell=50))
    # Edema, 120 cases: 50 + 1 values and 100 of each average. Mass, 30 cases: two averages of 10 values and 0
    edema, mass = math.log2(251) / 120, math.log2(21) / 30
    meter = read(rows)
    assert mass > edema
    assert (meter.finding, meter.share) == ("Mass", pytest.approx(mass))
    rows.score("B", score=of_places(("point_hit", "Edema", "120+"), ("point_hit", "macro", "1")))
    assert read(rows).share == pytest.approx((math.log2(21) + math.log2(11)) / 30)


def test_score_before_the_rule_may_show_a_finding_of_30_cases(rows: Rows) -> None:
    rows.score("A", score=of_places(("point_hit", "Edema", "30-59"), ("point_hit", "macro", "1"), place_cell=50))
    assert read(rows).finding == "Mass"
    for held, policy in ((50.0, {"place_cell": 50}), (30.0, {})):
        score = replace(
            of_places(("point_hit", "Edema", "30-59"), ("point_hit", "macro", "1"), **policy), shown=("Edema",)
        )
        rows.connection.execute(scores.update().values(released=score.to_json()))
        meter = read(rows)
        assert (meter.finding, meter.bits_held) == ("Edema", held)


def test_nothing_scored() -> None:
    engine = sa.create_engine("sqlite://")
    tables.create_all(engine)
    with engine.begin() as connection:
        meter = exposure(connection, BENCHMARK, VERSION, load_settings())
    assert (meter.n_scored, meter.level, meter.finding, meter.share) == (0, "low", None, 0)
    assert (
        meter.sentence == "0 of 150 submissions are used, by 0 teams. Nothing was released. Nothing needs to be done."
    )


def test_the_most_exposed_finding_and_group(rows: Rows) -> None:
    rows.version({"n_studies": 668})
    for _ in range(3):
        rows.score("A")
    rows.score("B")
    meter = read(rows, "[exposure]\ncolluding = 1\n")
    # F1 and recall of Edema together identify a count of 0 to 59; F1 of Mass is one of 101 values.
    edema = 3 * math.log2(60) / math.log2(math.comb(668, 30))
    mass = 3 * math.log2(101) / math.log2(math.comb(668, 120))
    assert edema > mass
    assert (meter.finding, meter.group) == ("Edema", Group(("Team A",), 3, 0))
    assert meter.share == pytest.approx(edema)  # not rounded: page and sentence round it alike
    assert meter.by_team == (("Team A", 3), ("Team B", 1))
    assert meter.level == "low"
    assert "Team A could know 10% of the information in the labels of Edema" in meter.sentence
    assert meter.groups[0].n_shown == 3


def test_held_score_reveals_one_bit(rows: Rows) -> None:
    rows.version({"n_studies": 668})
    rows.score("A")
    for _ in range(4):
        rows.score("A", held=True)
    meter = read(rows)
    assert meter.group == Group(("Team A",), 1, 4)
    assert meter.bits_out == round(math.log2(60) + 4, 1)


def test_teams_with_near_identical_predictions_count_as_one(rows: Rows) -> None:
    rows.version({"n_studies": 668})
    for team, seed in (("A", 1), ("A", 2), ("B", 2), ("B", 3), ("C", 3), ("D", 4)):
        rows.score(team, seed=seed)
    meter = read(rows)
    assert meter.groups == (Group(("Team A", "Team B", "Team C"), 5, 0), Group(("Team D",), 1, 0))
    assert "4 teams together could know" in meter.sentence
    alone = read(rows, "[exposure]\ncolluding = 1\n")
    assert "3 teams together could know" in alone.sentence


@pytest.mark.parametrize(("is_admin", "n_groups"), [(False, 1), (True, 2)])
def test_teams_that_share_a_member_count_as_one(rows: Rows, is_admin: bool, n_groups: int) -> None:
    for team in "AB":
        rows.score(team)
    person = {"id": "p", "issuer": "i", "subject": "s", "name": "P", "is_admin": is_admin, "created_at": 0.0}
    rows.connection.execute(users.insert().values(**person))
    for team in "AB":
        rows.connection.execute(members.insert().values(team_id=team, user_id="p", role="member", since=0.0))
    assert len(read(rows).groups) == n_groups


def test_teams_with_one_submitter_count_as_one(rows: Rows) -> None:
    for team in "AB":
        rows.score(team)
    person = {"id": "user", "issuer": "i", "subject": "s", "name": "P", "is_admin": False, "created_at": 0.0}
    rows.connection.execute(users.insert().values(**person))
    assert len(read(rows).groups) == 1


def test_the_same_predictions_sent_again_are_not_counted(rows: Rows) -> None:
    for team, seed in (("A", 1), ("A", 1), ("B", 1), ("B", 2), ("A", 1)):
        rows.score(team, seed=seed)
    meter = read(rows)
    assert (meter.n_scored, meter.by_team) == (3, (("Team B", 2), ("Team A", 1)))


def test_empty_predictions_do_not_make_two_teams_one(rows: Rows) -> None:
    for team in "AB":
        rows.score(team)
    rows.connection.execute(fingerprints.update().values(sketch=[], content="0" * 64))
    assert len(read(rows).groups) == 2


def test_hidden_scores_count_but_other_versions_and_parts_do_not(rows: Rows) -> None:
    rows.score("A", hidden=True)
    rows.score("A", version="0.9.0")
    rows.score("A", part="final")
    assert read(rows).n_scored == 1


def test_fingerprints_of_another_version_link_no_teams(rows: Rows) -> None:
    for team in "AB":
        rows.score(team, seed=1)
    rows.connection.execute(fingerprints.update().values(version="0.9.0"))
    assert len(read(rows).groups) == 2
    assert read(rows).n_scored == 2


SMALL = "[exposure]\nwatch_bits = 0.05\nclose_bits = {close}\n"


@pytest.mark.parametrize(("close", "level"), [(0.5, "watch"), (0.09, "close")])
def test_levels_by_bits(rows: Rows, close: float, level: str) -> None:
    rows.version({"n_studies": 668})
    for _ in range(3):
        rows.score("A")
    assert read(rows, SMALL.format(close=close)).level == level  # the share is 0.10


@pytest.mark.parametrize(("total", "level"), [(9, "low"), (8, "watch"), (4, "close")])
def test_levels_by_used_quota(rows: Rows, total: int, level: str) -> None:
    for team in "ABCD":
        rows.score(team)
    meter = read(rows, f"[exposure]\ncolluding = 1\n[quota]\ntotal = 3\nboard_total = {total}\n")
    assert (meter.n_scored, meter.board_total, meter.level) == (4, total, level)


def test_five_groups_with_most_answers_are_combined(rows: Rows) -> None:
    rows.version({"n_studies": 668})
    for team, n in (("A", 3), ("B", 2), ("C", 2), ("D", 1), ("E", 1), ("F", 1), ("G", 1)):
        for _ in range(n):
            rows.score(team)
    meter = read(rows)
    assert meter.group is not None
    assert (meter.group.teams[:3], len(meter.group.teams)) == (("Team A", "Team B", "Team C"), 5)
    assert (meter.group.n_shown, meter.group.n_held) == (9, 0)
    assert meter.bits_out == round(9 * math.log2(60), 1)
    assert "5 teams together could know" in meter.sentence


def test_five_teams_with_spent_quotas_are_noticed_one_is_not(rows: Rows) -> None:
    """With 300 studies. On the smallest holdout, of 100, the answer of one team is also below "watch"."""
    everything = make_score(*((metric, "Edema", "30-59") for metric in RELEASED_PER_LABEL))
    rows.version({"n_studies": 300})
    for team in "ABCDE":
        for _ in range(KINDS["findings"].release.most_answers):
            rows.score(team, score=everything)
        if team == "A":
            assert read(rows).level == "low"
            rows.connection.execute(versions.update().values(facts={"n_studies": 100}))
            assert read(rows).level == "low"
            rows.connection.execute(versions.update().values(facts={"n_studies": 300}))
    assert read(rows).level == "watch"


def test_detection_macros_count_for_the_smallest_finding(rows: Rows) -> None:
    """30 of 300 images are positive. A macro over two findings in steps of 0.01 equals a score in steps of 0.02."""
    macros = [ReleasedEstimate(metric, "macro", 0.5, 0.4, 0.6, "2", "") for metric in ("ap_50", "cpm")]
    rows.version({"n_images": 300})
    rows.score("a", score=ReleasedScore(tuple(macros), ("Edema", "Mass"), (), "", asdict(ReleasePolicy())))
    meter = read(rows)
    assert meter.share == pytest.approx(2 * math.log2(51) / math.log2(math.comb(300, 30)), abs=1e-3)
    assert "of the information in the labels of one finding" in meter.sentence
