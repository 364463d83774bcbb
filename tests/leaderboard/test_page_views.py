"""Pages of one entry, of progress, of a balance and About as pure functions: every state, and every text escaped."""

from __future__ import annotations

import html
import re
from dataclasses import asdict, replace

import pytest
from reveal_leaderboard.accounts.invitations import Invitation
from reveal_leaderboard.accounts.people import Actor, Membership, Team, User
from reveal_leaderboard.settings import (
    BenchmarkSettings,
    ExposurePolicy,
    Quota,
    QuotaPolicy,
    ReleasePolicy,
    load_settings,
)
from reveal_leaderboard.store.queue import QueuePosition, WorkerRow
from reveal_leaderboard.store.quota import LedgerEntry, QuotaBalance
from reveal_leaderboard.store.scores import Score
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.web.pages.about import about_view, policy_sentences
from reveal_leaderboard.web.pages.admin import exposure_view, workers_view
from reveal_leaderboard.web.pages.board_notes import rounding
from reveal_leaderboard.web.pages.compare import compare_view
from reveal_leaderboard.web.pages.drawing import draw
from reveal_leaderboard.web.pages.entry import entry_view
from reveal_leaderboard.web.pages.header import header_view
from reveal_leaderboard.web.pages.mine import account_view, submissions_view
from reveal_leaderboard.web.pages.submission_view import balance_view, ledger_view, progress_view, score_view

from reveal_bench.metrics.bootstrap import MACRO
from tests.leaderboard.browser.world import IMAGES, RARE, STUDIES, published, released
from tests.leaderboard.elements import text_of, texts_in
from tests.leaderboard.test_board import XSS, entry

SUBMISSION = Submission(
    benchmark=IMAGES, version="1.0.0", split="holdout", team_id="t", user_id="u", model_name="Net", kind="cnn",
    prompt_style=None, metadata={"model": {"name": "Net", "version": "2"}}, filename="net.jsonl",
    sha256="0" * 64, size=1, id="abc", status="scored", created_at=0.0, is_chosen=True, team="Team",
)  # fmt: skip
BALANCE = QuotaBalance(
    10, 6, 1, 0, 3, 2, 1, 0.0, 400, "Scored submissions left for your team: 3 of 10, 1 of them today."
)


def score(value: float = 0.7, *, version: str = "1.0.0", shown_of: str = "abc", part: str = "public") -> Score:
    return Score("abc", version, part, released(IMAGES, value).to_json(), shown_of, "s", "0" * 64, 0.0)


def test_an_entry_shows_every_finding_with_its_band_and_its_receipt() -> None:
    markup = entry_view(SUBMISSION, [score()], "1.0.0", [(0.0, "scored", "")])
    assert "70 65 to 75" in text_of(markup)
    assert "60-119" in markup
    assert "/api/v1/submissions/abc/receipt?version=1.0.0" in markup
    assert "reveal-bench verify-receipt" in markup
    assert "Versions" not in markup
    assert ">Why<" not in markup


def test_a_frozen_permalink_shows_its_own_figures_and_what_changed() -> None:
    scores = [score(0.7), score(0.6, version="2.0.0")]
    old, new = (entry_view(SUBMISSION, scores, version, []) for version in ("1.0.0", "2.0.0"))
    assert ["70 65 to 75" in text_of(markup.split("</table>")[0]) for markup in (old, new)] == [True, False]
    for markup in (old, new):
        assert "/entry?id=abc&amp;version=1.0.0" in markup
        assert markup.index('<th scope="col">1.0.0</th>') < markup.index('<th scope="col">2.0.0</th>')


def test_final_figures_stand_apart() -> None:
    markup = entry_view(SUBMISSION, [score(), score(0.5, part="final")], "1.0.0", [])
    final = markup.split("Final scores")[1]
    assert "50 45 to 55" in text_of(final)
    assert "/api/v1/submissions/abc/receipt?version=1.0.0&amp;part=final" in final
    assert markup.count("part=final") == 1
    assert "part=final" not in entry_view(SUBMISSION, [score()], "1.0.0", [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "queued"}, "This submission is queued."),
        ({"withdrawn_at": 1.0}, "Its team has withdrawn this entry."),
        ({"hidden_at": 1.0, "hidden_why": "copied"}, "Reason: copied"),
        ({"is_chosen": False}, "Its team shows another submission"),
    ],
    ids=["queued", "withdrawn", "hidden", "other-chosen"],
)
def test_its_own_team_is_told_the_state_of_an_entry(changes: dict[str, object], message: str) -> None:
    assert message in entry_view(replace(SUBMISSION, **changes), [], None, [], is_own=True)  # type: ignore[arg-type]


def test_a_held_score_names_the_one_whose_figures_it_shows() -> None:
    markup = entry_view(SUBMISSION, [score(shown_of="earlier")], "1.0.0", [], is_own=True)
    assert "those of an earlier submission" in markup
    assert "/entry?id=earlier" in markup


@pytest.mark.parametrize(
    ("changes", "waiting", "message"),
    [
        ({"status": "queued"}, QueuePosition(3, 120.0), ["position 3", "It should start in about 2 minutes"]),
        ({"status": "queued"}, QueuePosition(1, None), ["position 1", "is not known yet"]),
        ({"status": "scoring"}, None, ["Scoring in progress"]),
        ({"status": "scored"}, None, ["Net is scored", "/entry?id=abc"]),
        (
            {"status": "failed", "incident": "INC-7"},
            None,
            ["The submission failed", "INC-7", "Nothing was charged", "✕"],
        ),
        ({"status": "refused"}, None, ["was refused", "the reason"]),
        ({"status": "withdrawn"}, None, ["You withdrew this submission. Nothing was charged"]),
    ],
    ids=["queued", "unknown-start", "scoring", "scored", "failed", "refused", "withdrawn"],
)
def test_every_state_of_progress_is_told_in_words(
    changes: dict[str, object], waiting: QueuePosition | None, message: list[str]
) -> None:
    markup = progress_view(replace(SUBMISSION, **changes), waiting, score(), "the reason")  # type: ignore[arg-type]
    assert [words for words in message if words not in markup] == []
    assert ("70 65 to 75" in text_of(markup)) is (changes["status"] == "scored")


def test_workers_that_were_not_seen_for_a_day_are_only_counted() -> None:
    now, hour = 1e6, 3600.0
    seen = {"new": now, "silent": now - 23 * hour, "gone": now - 25 * hour, "long gone": 0.0}
    message = text_of(workers_view([WorkerRow(name, [], 0.0, at, "none", None) for name, at in seen.items()], now))
    assert [name in message for name in seen] == [True, True, False, False]
    assert "2 more, not seen in the last day." in message


def test_a_balance_is_a_sentence() -> None:
    markup = balance_view(BALANCE, "Team")
    assert "3 of 10 left for this holdout version; today 1 left. 1 in progress." in text_of(markup)


def test_a_spent_balance_says_until_when() -> None:
    markup = balance_view(replace(BALANCE, left_today=0, next_at=86400.0, why="Today's are used."), "Team")
    assert "Next available:" in markup
    assert "1970-01-02 00:00 UTC" in markup
    assert "Today's are used." in html.unescape(markup)


def test_the_ledger_counts_as_its_lines_say() -> None:
    def line(i: int, kind: str, amount: int) -> LedgerEntry:
        return LedgerEntry(i, "t", IMAGES, "1.0.0", "abc", 1, kind, amount, XSS, "user:u", float(i))

    rows = [line(1, "reserved", 1), line(2, "charged", 0), line(3, "reserved", 1), line(4, "refunded", -1)]
    markup = ledger_view([*rows, line(5, "granted", -2)], BALANCE)
    numbers = [text for text in texts_in(markup, "td") if re.fullmatch(r"[+−]?\d+", text)]
    # newest first: granted +2 leaves 1 used, then the refund, the second and the first of two sent
    assert numbers == ["+2", "1", "+1", "1", "−1", "2", "0", "1", "−1", "1"]
    assert "<img" not in markup


def test_about_prints_the_figures_in_force() -> None:
    settings = BenchmarkSettings(
        ReleasePolicy(min_cell=41, ladder_step=0.03), QuotaPolicy(7, 3, 77), ExposurePolicy(), "Cite me", XSS
    )
    message = " ".join(policy_sentences(settings, Quota(7, 3, 77), "point_hit"))
    for figure in (
        "at least 41 cases",
        "exceeds the team’s best by more than 3 points.",
        "7 scored submissions",
        "3 a day",
        "77 for all",
        "fewer than 350 cases count only in averages",
        "2 points",
    ):
        assert figure in message
    assert "of 10 points from 60 cases, 2 points" in rounding(asdict(ReleasePolicy(place_cell=60)), "point_hit")
    assert "of 10 points from 30 cases, 5 points" in rounding(asdict(ReleasePolicy()), "f1")
    boards = [published(IMAGES), published(STUDIES)]
    toml = load_settings().to_toml()
    markup = about_view(boards, {one.name: settings for one in boards}, {IMAGES: ("paused", XSS)}, ["landlock-4"], toml)
    assert "once the maintainers have approved it" in markup
    assert 'new_teams = "asked"' in html.unescape(markup)
    assert "a new team may submit at once" in about_view([], {}, {}, [], toml, new_teams="open")
    assert "min_cell = 30" in markup
    assert "Cite me" in markup
    assert "landlock-4" in markup
    assert "paused" in markup
    assert "Cohen's kappa" in html.unescape(markup)
    assert "<img" not in markup
    assert "No worker is running" in about_view([], {}, {}, [], toml)


def test_a_comparison_says_which_differences_are_told_apart() -> None:
    row = {"metric": "point_hit", "finding": "macro", "a": 0.7, "b": 0.6, "value": 0.1, "low": 0.05, "high": 0.2,
           "told_apart": True}  # fmt: skip
    none = {**row, "finding": "Edema", "value": 0.0, "low": None, "high": None, "told_apart": False}
    markup = compare_view({"rows": [row, none], "note": XSS}, entry("A", 0.7), entry(XSS, 0.6))
    assert "1 of 2 differences significant" in markup
    assert "+5 to +20" in markup
    assert "+10" in text_of(markup)
    assert "no interval, see below" in text_of(markup)
    assert "<img" not in markup
    assert "no shown score in common" in compare_view({"rows": [], "note": ""}, entry("A", 0.7), entry("B", 0.6))


@pytest.mark.parametrize(
    ("tiers", "is_apart", "message"),
    [
        (("A", "B"), False, "Yet the tiers differ"),
        (("A", "A"), True, "Yet both entries are in one tier"),
        (("A", "B"), True, None),
    ],
)
def test_a_comparison_explains_tiers_that_say_something_else(
    tiers: tuple[str, str], is_apart: bool, message: str | None
) -> None:
    row = {"metric": "point_hit", "finding": "macro", "a": 0.7, "b": 0.6, "value": 0.1, "low": 0.01, "high": 0.2,
           "told_apart": is_apart}  # fmt: skip
    a, b = (replace(entry("Net", 0.7), rank=1, rank_low=1, rank_high=2, tier=tier) for tier in tiers)
    markup = compare_view({"rows": [row], "note": ""}, a, b)
    assert ("Yet " in markup) is (message is not None)
    assert message is None or message in markup


def test_a_figure_without_spread_claims_no_interval() -> None:
    everywhere = score(1.0).released
    figures = [dict(figure, low=1.0, high=1.0, value=1.0) for figure in everywhere["figures"]]
    held = replace(score(), released={**everywhere, "figures": figures})
    markup = entry_view(SUBMISSION, [held], "1.0.0", [])
    assert "no variation" in markup
    assert "100 to 100" not in markup


def test_texts_of_people_are_escaped_on_every_page() -> None:
    user, team, other = User("u", "local", "s", XSS), Team("t", XSS), User("v", "x", "y", XSS)
    invitation = Invitation("i", team, other, "reader", XSS, 0.0, 0.0)
    actor = Actor(user, (Membership(team, "owner"),), frozenset(("read", "submit")), "session")
    hostile = replace(
        SUBMISSION, model_name=XSS, team=XSS, filename=XSS, split=XSS, prompt_style=XSS, kind=XSS,
        metadata={"model": {"version": XSS}, "training_data": XSS, "links": {"code": XSS}, "parameters": {XSS: XSS}},
    )  # fmt: skip
    for markup in (
        entry_view(hostile, [score()], "1.0.0", [(0.0, XSS, XSS)], is_own=True),
        progress_view(replace(hostile, status="failed", incident=XSS), None, None, XSS),
        submissions_view([hostile], waiting={}, reasons={}, may_change=True),
        account_view(actor, is_local=False) + account_view(actor, is_local=True),
        draw("mine.html", "team", actor.memberships[0], [(user, "owner"), (other, "reader")], [invitation], user),
        draw("mine.html", "invited", [invitation]),
        header_view(actor),
        balance_view(BALANCE, XSS),
    ):
        assert "<img" not in markup
        assert "<script" not in markup
        assert "&lt;img" in markup


def test_an_exposure_without_a_ceiling_is_told_in_words() -> None:
    from reveal_leaderboard.release.exposure import Exposure, Group

    group = Group((XSS, "Twin"), 3, 1)
    meter = Exposure(4, 500, ((XSS, 4),), (group,), "Edema", group, 8.0, 0.0, float("inf"), "close", XSS)
    markup = exposure_view(IMAGES, meter)
    assert "more than all" in markup
    assert "3 scores shown, 1 held back" in markup
    assert "<img" not in markup


def test_what_is_not_shown_is_told_once_in_words() -> None:
    markup = entry_view(SUBMISSION, [score()], "1.0.0", [])
    for finding in published(IMAGES).findings[-RARE:]:
        assert f">{finding}</th>" not in markup
        assert markup.count(finding) == 1


def test_figures_that_are_averages_alone_have_no_empty_rows() -> None:
    """Boards of detection have such scores; averages over other findings name their number of findings."""
    whole = released(IMAGES, 0.7)
    macro = next(figure for figure in whole.figures if figure.finding == MACRO)
    averages = tuple(replace(macro, metric=metric, n=n) for metric, n in (("ap_50", "7"), ("cpm", "5")))
    markup = score_view(replace(whole, figures=averages), {"ap_50": "AP 50", "cpm": "CPM"})
    assert markup.count("<tr>") == 2
    assert "7 findings; CPM: 5" in text_of(markup)
    assert f"Only as an average: AP 50, CPM, over {', '.join(whole.shown)}." in text_of(markup)
