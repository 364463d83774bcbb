"""The board's page as a pure function of standings: content, order, and the view in its address."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reveal_leaderboard.boards.standings import BoardEntry, Standings, board_metrics
from reveal_leaderboard.web.pages import board_notes
from reveal_leaderboard.web.pages.board_view import OVERVIEW, View, column_groups, render
from reveal_leaderboard.web.pages.first_sentences import board_opening

from reveal_bench.benchmarks import BENCHMARKS
from tests.leaderboard.browser.world import IMAGES, RARE, STUDIES, released
from tests.leaderboard.elements import text_of

XSS = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>${window.broken=1}{{window.broken=1}}'


def entry(name: str, value: float, *, benchmark: str = IMAGES, **fields: Any) -> BoardEntry:
    metrics = fields.pop("metrics", ())
    score = released(benchmark, value, metrics=metrics)
    values = {"team": "Team", "kind": "cnn", "prompt_style": None, "date": "2026-11-22", **fields}
    return BoardEntry(submission_id=name, model=name, model_version="1", version="1.0.0", score=score, **values)


def standings(*entries: BoardEntry, benchmark: str = IMAGES, **fields: object) -> Standings:
    asked = BENCHMARKS[benchmark]
    board = Standings(
        benchmark=benchmark,
        title=asked.title,
        kind=asked.kind,
        version="1.0.0",
        split="holdout",
        metrics=board_metrics(benchmark),
        findings=asked.findings,
        hidden=asked.findings[-RARE:],
        min_cell=30,
        entries=entries,
        references=(),
        synthetic=True,
        comparable=False,
    )
    return replace(board, **fields)  # type: ignore[arg-type]


def placed(name: str, value: float, low: int, high: int, tier: str, **fields: Any) -> BoardEntry:
    return entry(name, value, rank=low, rank_low=low, rank_high=high, tier=tier, **fields)


BOARD = standings(
    placed("Best", 0.8, 1, 1, "A"),
    placed("Twin", 0.6, 2, 3, "B", kind="saliency", team="Other"),
    placed("Twain", 0.58, 2, 3, "B"),
    entry("Fresh", 0.9, is_new=True),
)


def order(markup: str) -> list[str]:
    """Models in the order in which the table shows them."""
    table = markup.split("</table>")[0]
    return list(dict.fromkeys(re.findall(r'href="/entry\?id=(\w+)"', table)))


def test_a_row_says_its_rank_range_and_tier_and_a_new_one_is_told_as_new() -> None:
    markup = render(BOARD)
    text = text_of(markup)
    assert [name for name in ("2–3", "rank between 2 and 3, tier B", "rank 1, tier A") if name not in text] == []
    assert 'title="new, being placed"' in markup
    assert order(markup) == ["Best", "Twin", "Twain", "Fresh"]
    assert board_notes.RANK_SENTENCE in markup


def test_figures_come_as_percents_with_their_interval() -> None:
    # released() puts 5 points to both sides of a macro
    text = text_of(render(standings(placed("Best", 0.6, 1, 1, "A"))))
    assert "60 55 to 65" in text
    assert "mean over findings ↑ higher is better" in text


def test_chance_stands_in_the_head_the_first_sentence_and_on_every_bar() -> None:
    board = replace(BOARD, chance={"point_hit": 0.12}, n_items=204, n_patients=150)
    markup = render(board)
    assert "mean over findings chance 12 ↑ higher is better" in text_of(markup)
    assert markup.count('<u style="left:12%"></u>') == len(BOARD.entries)
    first = text_of(board_opening(board))
    assert first.count("204 held-out images of 150 patients") == first.count("Chance: 12%.") == 1
    assert "<u " not in render(BOARD)


@pytest.mark.parametrize(
    ("view", "expected", "state"),
    [
        (View(), ["Best", "Twin", "Twain", "Fresh"], "ascending"),
        (View(sort="rank", descending=True), ["Twain", "Twin", "Best", "Fresh"], "descending"),
        (View(sort="point_hit:macro", descending=True), ["Fresh", "Best", "Twin", "Twain"], "descending"),
        (View(sort="point_hit:macro"), ["Twain", "Twin", "Best", "Fresh"], "ascending"),
        (View(sort="model"), ["Best", "Fresh", "Twain", "Twin"], "ascending"),
        (View(sort="no such column"), ["Best", "Twin", "Twain", "Fresh"], None),
    ],
    ids=["rank", "rank-down", "figure-down", "figure-up", "model", "unknown"],
)
def test_rows_are_sorted_as_asked_and_the_column_says_so(view: View, expected: list[str], state: str | None) -> None:
    markup = render(BOARD, view)
    assert order(markup) == expected
    heads = re.findall(r'aria-sort="(ascending|descending)"', markup)
    assert heads == ([] if state is None else [state])


def test_a_row_without_the_figure_is_last_in_both_directions() -> None:
    points = entry("Points", 0.9, metrics=("point_hit",))
    board = standings(points, entry("Masks", 0.5), entry("More", 0.7))
    for descending in (True, False):
        assert order(render(board, View(sort="mask_iou_all:macro", descending=descending)))[-1] == "Points"
    assert 'title="not in the file, or not shown: see the entry&#39;s page">n/a' in render(board)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (View(search="TWI"), ["Twin"]),
        (View(search="tw other"), ["Twin"]),
        (View(kind="saliency"), ["Twin"]),
        (View(organization="Team"), ["Best", "Twain", "Fresh"]),
        (View(search="nobody"), []),
    ],
    ids=["search", "words", "kind", "organization", "nothing"],
)
def test_rows_are_filtered_and_counted(view: View, expected: list[str]) -> None:
    markup = render(BOARD, view)
    assert order(markup) == expected
    assert f"{len(expected)} of 4 scored submissions" in markup
    assert ("No entry matches." in markup) is (not expected)


def test_the_columns_of_a_metric_are_its_shown_findings_and_the_others_are_named_once() -> None:
    markup = render(BOARD, View(columns="point_hit"))
    assert "sort=point_hit%3AEdema" in markup
    for hidden in BOARD.hidden:
        assert f"sort=point_hit%3A{hidden}" not in markup
    assert f"): {', '.join(BOARD.hidden)}.</p>" in markup
    assert "sort=date" not in markup


def test_a_metric_without_any_figure_is_no_choice_and_no_column() -> None:
    board = standings(entry("Points", 0.9, metrics=("point_hit",)))
    assert column_groups(board) == {OVERVIEW: "Overview", "point_hit": "Hit rate"}
    markup = render(board)
    assert "sort=mask_iou_all" not in markup
    assert "Macro mIoU, all" in markup.split("Columns omitted")[1]


def test_a_board_of_studies_shows_the_metrics_of_labels() -> None:
    board = standings(entry("Reader", 0.6, benchmark=STUDIES), benchmark=STUDIES)
    markup = render(board)
    assert "Macro F1" in markup
    assert "mIoU" not in markup
    assert "Airspace opacity" in render(board, View(columns="f1"))


def test_an_empty_board_invites() -> None:
    markup = render(standings())
    assert "No submission is scored yet." in markup
    assert 'href="/submit"' in markup
    assert "<svg" not in markup


def test_reference_rows_stand_apart_unranked_with_their_source() -> None:
    from reveal_bench.analyses.published import read_reference_rows

    rows = tuple(read_reference_rows(IMAGES))
    markup = render(standings(placed("Best", 0.8, 1, 1, "A"), references=rows, synthetic=False, comparable=True))
    group = markup.split("for reference, not ranked")[1].split("</tbody>")[0]
    assert "Saporta et al. 2022" in group
    assert group.count(">not ranked") == group.count("<tr>")
    assert "Hollow square: human readers" in markup


@pytest.mark.parametrize("synthetic", [True, False])
def test_on_other_data_the_published_rows_are_called_not_comparable(synthetic: bool) -> None:
    from reveal_bench.analyses.published import read_reference_rows

    markup = render(replace(BOARD, references=tuple(read_reference_rows(IMAGES)), synthetic=synthetic))
    before, after = markup.split("<details", 1)[0], markup.rsplit("<details", 1)[1]
    assert "Human benchmark" not in before
    assert f"not comparable with {'this synthetic benchmark' if synthetic else 'CheXlocalize'}" in after


def test_texts_of_submitters_are_escaped_in_every_view() -> None:
    board = standings(entry(XSS, 0.6, team=XSS, prompt_style=XSS, is_new=True), notes=(XSS,))
    for columns in column_groups(board):
        markup = render(board, View(columns=columns, search="img"))
        assert "<img" not in markup
        assert "<script" not in markup
        assert "&lt;img" in markup


texts = st.text(max_size=20)


@given(st.builds(View, texts, texts, texts, texts, texts, st.booleans()))
def test_an_address_keeps_the_view_and_an_unknown_one_draws_the_board(view: View) -> None:
    assert View.from_query(view.to_query()) == view
    assert BOARD.title in text_of(render(BOARD, view))


def test_a_default_view_leaves_the_address_bare() -> None:
    assert View().to_query() == {}
    assert View.from_query({"sort": "date", "descending": "1", "benchmark": "x"}) == View(sort="date", descending=True)


@pytest.mark.parametrize(
    ("column", "first"), [("point_hit:macro", True), ("date", True), ("model", False), ("rank", False)]
)
def test_a_click_sorts_from_the_best_end_and_a_second_one_turns_it(column: str, first: bool) -> None:
    once = View(sort="elsewhere").sorted_by(column)
    assert (once.sort, once.descending) == (column, first)
    assert once.sorted_by(column).descending is not first


def test_rank_changes_are_told_in_words_with_names_only_for_what_is_on_the_board() -> None:
    changes = {
        "old": "1.0.0",
        "new": "2.0.0",
        "changes": [
            {"submission_id": "a", "before": 3, "after": 1},
            {"submission_id": "b", "before": 1, "after": 2},
            {"submission_id": "c", "before": 2, "after": None},
        ],
    }
    markup = board_notes.moves(changes, {"a": "Net, Team", "b": "<b>, Team"})
    assert "▲ up 2" in markup
    assert "▼ down 1" in markup
    assert "no longer listed" in markup
    assert "&lt;b&gt;, Team" in markup
    assert "an entry that left the board" in markup
    assert board_notes.moves({**changes, "changes": []}, {}) == ""


def test_the_style_sheet_and_the_script_ask_nobody_else() -> None:
    folder = Path(board_notes.__file__).parent
    for name in ("style.css", "site.js"):
        assert not re.search(
            r"https?:|//[a-z]|@import|url\(", (folder / name).read_text(encoding="utf-8").replace("// ", "")
        )
