"""The pieces of the pages: escaping, numbers, plots. Expected figures are worked out by hand in the tests."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reveal_leaderboard.web.pages import drawing, plots
from reveal_leaderboard.web.pages.plots import Day, HeatRow, PlotRow
from reveal_leaderboard.web.pages.submission_view import duration
from reveal_leaderboard.web.pages.submit import LINT_ROWS_SHOWN, lint_view

from reveal_bench.predictions import LintProblem, LintReport
from tests.leaderboard.api_app import lint_of
from tests.leaderboard.elements import Elements, texts_in

HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "<script>x()</script>",
            '" onmouseover="x()',
            "'><img src=x onerror=x()>",
            "</td></tr></table>",
            "javascript:x()",
        ]
    ),
)


def names(markup: str) -> list[str]:
    """The elements of a fragment; none has an attribute of its own making."""
    document = Elements(markup)
    assert document.strange == []
    return document.names


def piece(macro: str, *values: object) -> str:
    """A piece of the pages."""
    return drawing.draw("pieces.html", macro, *values)


@given(HOSTILE)
def test_no_text_makes_an_element_or_an_attribute(hostile: str) -> None:
    assert names(drawing.message("bad", hostile, hostile)) == ["div", "strong"] + ["p"] * bool(hostile)
    assert names(piece("badge", hostile)) == ["span"]
    assert names(drawing.page_head(hostile, hostile))[:2] == ["header", "h1"]
    assert names(drawing.link("/entry", hostile, id=hostile)) == ["a"]
    assert names(piece("action", hostile, "act", hostile, hostile)) == ["button"]
    assert names(piece("none_cell", hostile, hostile)) == ["td", "span"]
    assert names(piece("detail", hostile, "")) == ["details", "summary"]
    assert set(names(piece("outside_link", hostile))) <= {"a"}


@given(HOSTILE)
def test_reports_and_plots_hold_only_their_own_elements(hostile: str) -> None:
    problem = LintProblem("error", hostile, 3, hostile, hostile, hostile, hostile, hostile)
    report = lint_of(LintReport(hostile, hostile, 1, (problem,), (), (), {hostile: {hostile: 1}}))
    faults = (LintProblem("error", "f", 3, "a", "r", "m", "m", "h"),)
    plain = lint_of(LintReport("f", "jsonl", 1, faults, (), (), {"a": {"b": 1}}))
    assert names(lint_view(report)) == names(lint_view(plain)) or not hostile
    mark = PlotRow(hostile, 0.5, (0.4, 0.6), note=hostile, key=hostile)
    row = HeatRow(hostile, hostile, {hostile: mark}, key=hostile)
    days = [Day(f"2026-01-0{k}", hostile, 0.5) for k in (1, 2)]
    for markup in (
        plots.forest([mark], metric="f1", title=hostile),
        plots.heat_map([row], [hostile], title=hostile),
        plots.best_over_time(days, better="higher", title=hostile),
    ):
        assert not {"script", "img"} & set(Elements(markup).names)
        assert "<script" not in markup


@pytest.mark.parametrize(
    ("fraction", "displayed"),
    [(0.0, "0"), (-0.0, "0"), (0.005, "0"), (0.015, "2"), (1.0, "100"), (-0.08, "−8"), (-0.001, "0"), (0.465, "46")],
)
def test_percents_are_whole_with_a_true_minus_and_no_minus_zero(fraction: float, displayed: str) -> None:
    assert drawing.percent(fraction) == displayed


@pytest.mark.parametrize(
    ("url", "is_link"),
    [
        ("https://example.org/a", True),
        ("http://example.org", False),
        ("javascript:alert(1)", False),
        ("//example.org", False),
        (" https://example.org", False),
        ("", False),
    ],
)
def test_only_https_addresses_become_links(url: str, is_link: bool) -> None:
    assert ("<a " in piece("outside_link", url)) is is_link


def test_a_moment_is_shown_in_utc_and_readable_by_machines() -> None:
    assert drawing.when(0) == '<time datetime="1970-01-01T00:00:00Z">1970-01-01 00:00 UTC</time>'
    assert drawing.when(None) == "–"


@pytest.mark.parametrize(("low", "high", "style"), [(0.5, 0.7, "left:50%;width:20%"), (0.4, 0.4, "left:40%;width:1%")])
def test_an_interval_is_drawn_where_it_lies_and_never_vanishes(low: float, high: float, style: str) -> None:
    assert style in piece("interval_bar", 0.6, low, high)


def test_a_value_below_the_scale_is_drawn_at_its_end() -> None:
    # kappa reaches -1, the line starts at 0
    assert "left:0.0%" in piece("interval_bar", -0.2, -0.4, 0.1)
    assert "left:0%;width:10%" in piece("interval_bar", -0.2, -0.4, 0.1)


def test_every_table_names_itself_and_can_be_scrolled_by_keyboard() -> None:
    markup = drawing.draw("submission.html", "changes", [], ["A & B"])
    assert 'role="region" aria-label="Changes" tabindex="0"' in markup
    assert '<th scope="col">A &amp; B</th>' in markup


def test_a_forest_has_a_row_of_text_per_mark() -> None:
    marks = [PlotRow("Net", 0.78, (0.73, 0.82)), PlotRow("Readers", 0.9, kind="human")]
    markup = plots.forest(marks, metric="f1", title="Macro")
    assert markup.count("<li ") == 2
    assert "78<small>73 to 82</small>" in markup
    assert 'x1="73.0%" x2="82.0%"' in markup  # the interval on a scale from 0 to 100%
    assert 'svg x="90.0%"' in markup
    assert markup.count("<circle") == 1  # shape tells a submission from readers, not colour alone
    assert markup.count("<rect") == 1
    kappa = plots.forest([PlotRow("Net", -0.1, (-0.2, 0.05))], metric="cohen_kappa", title="Kappa")
    assert "−10<small>−20 to 5</small>" in kappa
    assert 'x1="40.0%" x2="52.5%"' in kappa  # of a scale from -100 to 100%
    assert texts_in(kappa, "text") == ["−100", "−50", "0", "50", "100%"]


def test_a_heat_map_has_a_figure_and_its_interval_in_every_cell() -> None:
    edema, mass = PlotRow("Net", 0.78, (0.73, 0.82)), PlotRow("Net", 0.1)
    rows = [
        HeatRow("Net", "North", {"Edema": edema, "Mass": mass}),
        HeatRow("Chance", "reference", {"Edema": PlotRow("Chance", 0.13)}, "chance"),
    ]
    markup = plots.heat_map(rows, ["Edema", "Mass", "Nothing"], title="By finding")
    assert texts_in(markup, "td") == ["78", "10", "13", "–"]  # chance has no mass
    assert re.findall(r'title="([^"]*)"', markup)[:2] == ["Net, Edema: 78%, 73 to 82%", "Net, Mass: 10%"]
    assert "Nothing" not in markup


def test_the_best_over_time_is_a_line_of_steps() -> None:
    days = [
        Day("2026-01-11", "Second", 0.4), Day("2026-01-01", "First", 0.5), Day("2026-01-21", "Third", 0.7),
    ]  # fmt: skip
    markup = plots.best_over_time(days, better="higher", title="Best")
    assert 'aria-label="Best: 2026-01-01 First 50%; 2026-01-21 Third 70%"' in markup  # the second was not a record
    # 580 wide from 40; 100% is at 10 and 0% at 180
    assert 'd="M40.0 95.0H330.0V95.0H620.0V61.0"' in markup
    assert markup.count("<circle") == 2
    lower = plots.best_over_time(days, better="lower", title="Best")
    assert 'd="M40.0 95.0H330.0V112.0H620.0V112.0"' in lower
    assert plots.best_over_time(days[:1], better="higher", title="Best") == ""


def test_nothing_to_plot_is_nothing() -> None:
    row = HeatRow("Net", "North", {})
    assert plots.forest([], metric="f1", title="x") == plots.heat_map([row], ["Edema"], title="x") == ""


def test_a_difference_is_drawn_round_zero_in_the_middle() -> None:
    markup = drawing.draw("plots.html", "difference", 0.1, 0.05, 0.2, 0.2)
    assert 'x1="62.5%" x2="100.0%"' in markup  # 50 + 50 * 0.05 / 0.2, and the end of the scale
    assert 'svg x="75.0%"' in markup


def test_a_report_shows_errors_first_and_says_how_many_are_left_out() -> None:
    errors = [
        LintProblem("error", "f", line, "", "r", "", f"error {line}", "see `points`")
        for line in range(1, LINT_ROWS_SHOWN + 2)
    ]
    warning = LintProblem("warning", "f", 1, "", "r", "", "only a warning")
    markup = lint_view(lint_of(LintReport("f", "jsonl", 60, (warning, *errors), (), (), {})))
    assert len(re.findall(r"error \d", markup)) == LINT_ROWS_SHOWN
    assert "only a warning" not in markup
    assert "see <code>points</code>" in markup
    assert f"Showing {LINT_ROWS_SHOWN} of {LINT_ROWS_SHOWN + 2}, errors first." in markup
    assert re.search(r'role="alert".*cannot be sent', markup)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "in a moment"), (12, "in about 10 seconds"), (89, "in about 90 seconds"), (120, "in about 2 minutes"),
     (61 * 60, "in about 61 minutes"), (2 * 3600, "in about 2 hours")],
)  # fmt: skip
def test_waiting_times_are_told_no_finer_than_they_are_known(seconds: float, words: str) -> None:
    assert duration(seconds) == words
