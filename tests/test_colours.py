"""One design: reports, cases, board, standalone pages and pictures to share have the same colours by name."""

from __future__ import annotations

import re

import pytest
from reveal_leaderboard.web import result_images

from reveal_bench.reports import style
from tests.conftest import ROOT

BOARD = "leaderboard/reveal_leaderboard/web/pages/style.css"
SHEETS = {
    "reveal_bench/reports/templates/report.css": {
        "ink": "ink", "soft": "soft", "line": "line", "panel": "band", "link": "link", "warn": "busy", "paper": "page",
    },
    "reveal_bench/viewer/static/gallery.css": {
        "ink": "ink", "soft": "soft", "line": "line", "band": "band", "link": "link", "good": "good", "bad": "bad",
        "chosen": "tier",
    },
    "leaderboard/reveal_leaderboard/web/templates/page.css": {"ink": "ink", "soft": "soft", "link": "link"},
}  # fmt: skip
"""Sheet -> its name of a colour -> the board's. The background of cases and of standalone pages is Gradio's."""


def colours(path: str) -> list[dict[str, str]]:
    """Name -> colour, in light and in dark."""
    text = (ROOT / path).read_text(encoding="utf-8")
    blocks = re.findall(r"(?::root|\.dark) \{([^}]*--[^}]*)\}", text)
    palettes = [dict(re.findall(r"--(?:rv-)?([\w-]+): (#[0-9a-f]{6})\b", block)) for block in blocks]
    assert len(palettes) == 2, path
    return palettes


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_sheet_has_the_colours_of_the_board(sheet: str) -> None:
    for own, board in zip(colours(sheet), colours(BOARD), strict=True):
        names = SHEETS[sheet]
        assert {name: own[name] for name in names} == {name: board[of] for name, of in names.items()}


def test_figures_and_pictures_to_share_have_the_light_ones() -> None:
    light, _ = colours(BOARD)
    assert tuple(light[n] for n in ("ink", "soft", "line", "band")) == (style.INK, style.SOFT, style.RULE, style.PANEL)
    drawn = (result_images.INK, result_images.SOFT, result_images.GRID, result_images.BAR, result_images.TEAL)
    assert drawn == tuple(light[name] for name in ("ink", "soft", "line", "bar", "tick"))


def test_dark_series_of_figures_have_a_form_for_dark_pages() -> None:
    sheet = (ROOT / "reveal_bench/reports/templates/report.css").read_text(encoding="utf-8")
    assert [colour for colour in style.DARK if f'[fill="{colour}"]' not in sheet] == []
