"""What is drawn is what was given: heights, places and marks are read back from the figures."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import ImageColor

from reveal_bench.reports import figure_style
from reveal_bench.reports.bars import (
    CATEGORY_PAINTS,
    BarSeries,
    Group,
    HeatColumn,
    PromptScore,
    error_bars,
    grouped_bars,
    heat_maps,
    prompt_scores,
)
from reveal_bench.reports.figure_style import missing_glyphs, paints, render, wrap
from reveal_bench.reports.run_figures import ErrorShares, draw_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = [Group(f"g{i}", f"Group {i}") for i in range(7)]
VALUES = {group.key: 0.1 * (i + 1) for i, group in enumerate(GROUPS)}


def series(label: str, factor: float, **changes: object) -> BarSeries:
    look = paints(2)[0]
    values = {key: factor * value for key, value in VALUES.items()}
    given = {"values": values, "deviations": dict.fromkeys(VALUES, 0.05), "chance": dict.fromkeys(VALUES, 0.02)}
    return BarSeries(label, look, **{**given, **changes})  # type: ignore[arg-type]


def heights(figure: Figure, label: str) -> list[float]:
    from matplotlib.container import BarContainer

    bars = [
        c for axes in figure.axes for c in axes.containers if isinstance(c, BarContainer) and c.get_label() == label
    ]
    return [float(bar.get_height()) for container in bars for bar in container]


def reaches(figure: Figure) -> list[tuple[float, float]]:
    """(low, high) of every error bar in black, in percent."""
    from matplotlib.container import ErrorbarContainer

    found = []
    for axes in figure.axes:
        for container in axes.containers:
            if isinstance(container, ErrorbarContainer):
                (lines,) = container[2]
                if lines.get_linewidth()[0] < 1:
                    found += [(float(s[0][1]), float(s[1][1])) for s in lines.get_segments()]
    return found


def test_bars_are_as_high_as_their_values() -> None:
    figure = grouped_bars(GROUPS, [series("a", 1.0), series("b", 0.5)])
    assert heights(figure, "a") == pytest.approx([100 * v for v in VALUES.values()])
    assert heights(figure, "b") == pytest.approx([50 * v for v in VALUES.values()])
    assert [len(axes.get_xticklabels()) for axes in figure.axes] == [4, 3]  # rows of at most five, filled evenly


def test_error_bars_reach_one_deviation_and_stay_between_0_and_100() -> None:
    figure = grouped_bars(GROUPS[:3], [series("a", 1.0, values={"g0": 0.5, "g1": 0.02, "g2": 0.99})])
    assert np.allclose(reaches(figure), [(45, 55), (0, 7), (94, 100)])


def test_undefined_values_draw_no_bar_and_no_error_bar() -> None:
    figure = grouped_bars(GROUPS[:2], [series("a", 1.0, values={"g0": math.nan, "g1": 0.4})])
    assert [math.isnan(h) for h in heights(figure, "a")] == [True, False]
    assert len(reaches(figure)) == 1


def test_chance_is_one_line_over_neighbours_of_one_level() -> None:
    other = series("c", 1.0, chance=dict.fromkeys(VALUES, 0.3))
    none = series("d", 1.0, chance={})
    figure = grouped_bars(GROUPS[:1], [series("a", 1.0), series("b", 1.0), other, none])
    black = [line for line in figure.axes[0].lines if line.get_color() == figure_style.INK and line.is_dashed()]
    assert [float(np.asarray(line.get_ydata())[0]) for line in black] == pytest.approx([2, 30])
    lengths = [float(np.ptp(np.asarray(line.get_xdata(), float))) for line in black]
    assert lengths[0] > 1.9 * lengths[1]


def test_shares_are_stacked_end_to_end() -> None:
    shares = {"run": {"g0": {"full_hit": 0.5, "position": 0.3, "no_answer": 0.2}}, "other": {}}
    figure = error_bars(GROUPS[:1], shares)
    first = [(bar.get_x(), bar.get_width()) for c in figure.axes[0].containers for bar in list(c)[:1]]
    assert np.allclose(first, [(0, 50), (50, 30), (80, 20)])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["run", "other"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["full hit", "position error", "no answer"]


def test_prompts_stand_at_their_values_in_the_line_of_their_model() -> None:
    from matplotlib.container import ErrorbarContainer

    scores = [PromptScore("m", "zero-shot", 0.4, 0.3, 0.6), PromptScore("n", "few-shot", 0.5, 0.45, 0.55)]
    axes = prompt_scores(scores, chance=0.1).axes[0]
    marks = [c[0] for c in axes.containers if isinstance(c, ErrorbarContainer)]
    assert [float(np.asarray(mark.get_xdata())[0]) for mark in marks] == pytest.approx([40, 50])
    assert [round(float(np.asarray(mark.get_ydata())[0])) for mark in marks] == [0, 1]
    ends = [c[2][0].get_segments()[0][:, 0].tolist() for c in axes.containers if isinstance(c, ErrorbarContainer)]
    assert np.allclose(ends, [(30, 60), (45, 55)])


def test_heat_maps_have_a_panel_per_pair_and_name_the_largest_share() -> None:
    columns = [HeatColumn("truth", {"g0": np.eye(2) / 2}), HeatColumn("run", {})]
    figure = heat_maps(GROUPS[:1], columns, None, note="nothing behind")
    assert len(figure.axes) == 3  # two panels and the scale
    assert figure.axes[0].get_xlabel() == "max 50 %"
    assert [text.get_text() for text in figure.axes[1].texts] == ["no image"]
    assert [text.get_text() for text in figure.texts] == ["nothing behind"]
    with pytest.raises(ValueError, match="`columns` must be at most 7, got 8"):
        heat_maps(GROUPS[:1], columns * 4, None)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figure_gives_the_same_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_style, "DPI", 40)
    first, second = (render(grouped_bars(GROUPS[:2], [series("a", 1.0)]), kind) for _ in range(2))
    assert first == second
    assert b"matplotlib.org" not in first  # names neither the program nor, below, a date
    assert not re.search(rb"20\d\d-\d\d-\d\d", first)


def test_svg_keeps_text_and_a_label_is_no_formula() -> None:
    text = render(grouped_bars(GROUPS[:1], [series("cost $5 and $6 <b>", 1.0)]), "svg").decode()
    assert "cost $5 and $6 &lt;b&gt;" in text
    assert "<b>" not in text
    assert "font-family: 'DejaVu Sans', Verdana, sans-serif" in text


def test_figures_leave_the_settings_of_the_caller_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    render(grouped_bars(GROUPS[:1], [series("a", 1.0)]), "svg")
    assert dict(matplotlib.rcParams) == before


def test_twelve_series_look_different_and_neighbours_differ_in_grey() -> None:
    looks = paints(12)
    assert len(set(looks)) == 12
    grey = [np.dot(ImageColor.getrgb(look.colour)[:3], (0.299, 0.587, 0.114)) for look in looks[:6]]
    assert min(abs(np.diff(grey))) > 35
    assert min(np.diff(sorted(grey))) > 12
    assert len({(look.colour, look.hatch) for _, look in CATEGORY_PAINTS.values()}) == len(CATEGORY_PAINTS)


def test_characters_that_the_font_lacks_are_found() -> None:
    assert missing_glyphs(["plain – text ×", "模型 A", "型"]) == "型模"


def test_errors_fill_as_many_figures_as_pages() -> None:
    shares = {f"run {i}": {g.key: {"full_hit": 0.25, "no_answer": 0.75} for g in GROUPS} for i in range(12)}
    keys = [group.key for group in GROUPS]
    drawn = list(draw_errors(ErrorShares(shares, dict.fromkeys(keys, 4), reviewed=False), keys))
    assert [one.name for one in drawn] == ["error-categories-1", "error-categories-2"]
    assert [len(one.figure.axes) for one in drawn] == [6, 1]
    assert all(one.figure.get_size_inches()[1] * 25.4 < 250 for one in drawn)
    assert "run 3: 25.0\u00a0%" in drawn[0].alt


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("", 5, [""]),
        ("Edema", 17, ["Edema"]),
        ("Enlarged Cardiomediastinum", 17, ["Enlarged", "Cardiomediastinum"]),
        ("a-very-long-model-name", 10, ["a-very-", "long-", "model-name"]),
        ("x" * 25, 10, ["x" * 9 + "-", "x" * 9 + "-", "x" * 7]),
        ("meta/llama_vision", 8, ["meta/", "llama_", "vision"]),
    ],
)
def test_names_are_wrapped(name: str, width: int, lines: list[str]) -> None:
    assert wrap(name, width).split("\n") == lines
