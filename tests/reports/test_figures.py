"""Figures draw their data: heights, positions and marks are read back from the figures."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import ImageColor

from reveal_bench.metrics.intervals import UNDEFINED, Estimate
from reveal_bench.reports import style
from reveal_bench.reports.figures import BarGroup, ValueBar, bars, dashed_line, forest, panels
from reveal_bench.reports.run_errors import CATEGORY_PAINTS, ErrorShares, draw_errors, error_bars
from reveal_bench.reports.run_hits import BarSeries, grouped_bars
from reveal_bench.reports.run_places import HeatColumn, heat_maps
from reveal_bench.reports.style import NARROW, WIDE, cut, missing_glyphs, paints, render, width_of, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = [BarGroup(f"g{i}", f"BarGroup {i}") for i in range(7)]
VALUES = {group.key: 0.1 * (i + 1) for i, group in enumerate(GROUPS)}


def series(label: str, factor: float, **changes: object) -> BarSeries:
    look = paints(2)[0]
    values = {key: factor * value for key, value in VALUES.items()}
    inputs = {"values": values, "deviations": dict.fromkeys(VALUES, 0.05), "chance": dict.fromkeys(VALUES, 0.02)}
    return BarSeries(label, look, **{**inputs, **changes})  # type: ignore[arg-type]


def heights(figure: Figure, label: str) -> list[float]:
    from matplotlib.container import BarContainer

    bars = [
        c for axes in figure.axes for c in axes.containers if isinstance(c, BarContainer) and c.get_label() == label
    ]
    return [float(bar.get_height()) for container in bars for bar in container]


def reaches(figure: Figure) -> list[tuple[float, float]]:
    """(low, high) of every error bar in black, in percent."""
    from matplotlib.container import ErrorbarContainer

    result = []
    for axes in figure.axes:
        for container in axes.containers:
            if isinstance(container, ErrorbarContainer):
                (lines,) = container[2]
                if lines.get_linewidth()[0] < 1:
                    result += [(float(s[0][1]), float(s[1][1])) for s in lines.get_segments()]
    return result


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
    black = [line for line in figure.axes[0].lines if line.get_color() == style.INK and line.is_dashed()]
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


def test_marks_stand_at_their_values_in_the_line_of_their_row() -> None:
    rows = [
        ("m", [(0, Estimate(0.4, 0.3, 0.6)), (1, Estimate(0.5, 0.45, 0.55))]),
        ("n", [(0, UNDEFINED), (1, Estimate(math.inf))]),
    ]
    figure = forest(rows, WIDE, axis="Rate", scale=100, kinds=("a", "b"), ends=(0, 80), rule=(10, "chance"))
    axes = figure.axes[0]
    lines = [(np.asarray(line.get_xdata()).tolist(), float(np.asarray(line.get_ydata())[0])) for line in axes.lines]
    marks = [(xs[0], round(y)) for xs, y in lines if len(xs) == 1]
    assert marks == [(40, 0), (50, 0), (80, 1)]  # infinite values are at the end of the scale
    assert np.allclose([xs for xs, _ in lines if len(xs) == 2], [[30, 60], [45, 55], [10, 10]])
    hollow = [line.get_color() == "white" for line in axes.lines if len(np.asarray(line.get_xdata())) == 1]
    assert hollow == [False, False, True]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "hollow: no interval", "chance"]
    assert [text.get_text().strip() for text in axes.texts] == ["undefined"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["m", "n"]
    many = forest([("m", [(k, Estimate(0.5, 0.4, 0.6)) for k in range(30)])], WIDE, axis="Rate").axes[0].lines[1::2]
    assert len({(line.get_marker(), line.get_color()) for line in many}) == 30


def test_rows_of_bars_say_their_numbers() -> None:
    rows = [
        ("COPD", [ValueBar(12, "12"), ValueBar(None, "fewer than 10")]),
        ("Mass", [ValueBar(5, "5", (3, 8)), ValueBar(0, "0")]),
    ]
    axes = bars(rows, WIDE, axis="Studies", kinds=("Released", "Holdout")).axes[0]
    assert [bar.get_width() for container in axes.containers for bar in container] == [12, 5, 0]
    assert [text.get_text() for text in axes.texts] == ["12", "fewer than 10", "5", "0"]
    assert axes.get_xlim() == (0, 12)
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines] == [[3, 8]] * 2  # dark on white
    alone = bars([("Effusion", [ValueBar(0, "fewer than 10")])], WIDE, axis="Studies").axes[0]
    assert alone.get_xlim() == (0, 1)  # a scale of 1e-9 was written beside it


def test_heat_maps_have_a_panel_per_pair_and_name_the_largest_share() -> None:
    columns = [HeatColumn("truth", {"g0": np.eye(2) / 2}), HeatColumn("run", {})]
    figure = heat_maps(GROUPS[:1], columns, None, note="nothing behind")
    assert len(figure.axes) == 3  # two panels and the scale
    assert figure.axes[0].get_xlabel() == "max 50%"
    assert [text.get_text() for text in figure.axes[1].texts] == ["no image"]
    assert [text.get_text() for text in figure.texts] == ["nothing behind"]
    with pytest.raises(ValueError, match="`columns` must be at most 7, got 8"):
        heat_maps(GROUPS[:1], columns * 4, None)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figure_gives_the_same_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "DPI", 40)
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
    drawn = list(draw_errors(ErrorShares(shares, dict.fromkeys(keys, 4)), keys))
    assert [one.name for one in drawn] == ["error-categories-1", "error-categories-2"]
    figures = [one.draw(WIDE) for one in drawn]
    assert [len(figure.axes) for figure in figures] == [6, 1]
    assert all(figure.get_size_inches()[1] * 25.4 < 250 for figure in figures)
    assert "run 3: 25.0%" in drawn[0].alt


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("", 12, [""]),
        ("Edema", 30, ["Edema"]),
        ("Enlarged Cardiomediastinum", 32, ["Enlarged", "Cardiomediastinum"]),
        ("a-very-long-model-name", 18, ["a-very-long-", "model-", "name"]),
        ("meta/llama_vision", 13, ["meta/", "llama_", "vision"]),
    ],
)
def test_names_are_wrapped(name: str, width: int, lines: list[str]) -> None:
    assert wrap(name, width).split("\n") == lines


HOSTILE = (
    "<script>alert('me & you')</script>",
    "Doctor-" + "long" * 30,
    "\ud800" * 40,
    "",
    "漢" * 60,
    "$x_1$ a b c " * 9,
)


@pytest.mark.parametrize("words", [*HOSTILE, "Interstitial opacity", "W" * 50, "a b " * 20])
def test_lines_are_no_wider_than_asked(words: str) -> None:
    assert all(width_of(line) <= 12 for line in wrap(words, 12).split("\n"))
    visible = wrap(words, 12, most=2).split("\n")
    assert len(visible) <= 2
    assert all(width_of(line) <= 12 for line in (*visible, cut(words, 12)))


def boxes(figure: Figure) -> list[tuple[str, float, float, float, float]]:
    """Every text that is drawn, with its box in pixels: left, low, right, high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    visible = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    ticks = {id(label) for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())}
    every_tick = {
        id(label) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) for label in (tick.label1, tick.label2)
    }  # fmt: skip
    left_over = every_tick - ticks  # of ticks that matplotlib keeps for later
    result = []
    for text in visible:
        if id(text) not in left_over:
            box = text.get_window_extent(canvas.get_renderer())
            result.append((text.get_text(), box.x0, box.y0, box.x1, box.y1))
    return result


def check_texts(figure: Figure) -> None:
    """Nothing is cut by the edge, and no text overlaps another."""
    width, height = figure.get_size_inches() * figure.dpi
    result = boxes(figure)
    assert result
    for text, left, low, right, high in result:
        assert min(left, low) >= -0.5, text
        assert (right <= width + 0.5, high <= height + 0.5) == (True, True), text
    for i, (one, left, low, right, high) in enumerate(result):
        for other, other_left, other_low, other_right, other_high in result[i + 1 :]:
            apart = right <= other_left + 1 or other_right <= left + 1 or high <= other_low + 1 or other_high <= low + 1
            assert apart, (one, other)


FINDINGS = ("Enlarged Cardiomediastinum", "Lung Lesion", "Pneumothorax", "Support Devices", "Airspace Opacity", "Edema")
LABELS = ("model-a, zero-shot, 8 × 8", "chance", "A model with a name that is rather long, few-shot, 16 × 16", "x" * 90)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_is_cut_or_lies_on_another(width: float) -> None:
    groups = [BarGroup(name, name, ("n = 1,234",)) for name in FINDINGS]
    values = {name: 0.2 + 0.1 * i for i, name in enumerate(FINDINGS)}
    inputs = [BarSeries(label, look, values, {}, values) for label, look in zip(LABELS, paints(4), strict=True)]
    check_texts(grouped_bars(groups, inputs, width))
    shares = {label: {name: {"full_hit": 0.5, "anatomy": 0.5} for name in FINDINGS} for label in LABELS}
    check_texts(error_bars(groups, shares, width))
    rows = [(name, [(0, Estimate(0.5, 0.4, 0.6)), (1, UNDEFINED)]) for name in (*FINDINGS, *HOSTILE)]
    check_texts(forest(rows, width, axis="a long name of an axis " * 3, kinds=LABELS[:2], ends=(-0.2, 1)))
    counts = [
        (name, [ValueBar(1234.0, "1,234 · 28.0%"), ValueBar(None, "fewer than 10")]) for name in (*FINDINGS, *HOSTILE)
    ]
    n_cases = {name: 10**i for i, name in enumerate((*FINDINGS, *HOSTILE))}
    check_texts(
        panels(
            list(n_cases),
            width,
            lambda axes, name: None,
            "a long name of an axis " * 3,
            "Precision (%)",
            n_cases=n_cases,
            below=dict.fromkeys(FINDINGS, "AP 12.3, 45.6, 78.9, 100.0"),
            series=list(zip(LABELS[:3], paints(3), strict=True)),
            marks=[dashed_line("chance")],
        )
    )
    check_texts(bars(counts, width, axis="Studies", kinds=("Released, n = 60", "Holdout, n = 60")))


def test_no_text_of_heat_maps_is_cut_or_lies_on_another() -> None:
    groups = [BarGroup(name, name, ("n = 1,234",)) for name in FINDINGS[:5]]
    columns = [
        HeatColumn(label, {name: np.eye(8) for name in FINDINGS}) for label in ("Ground truth", *LABELS, *LABELS[:2])
    ]
    check_texts(heat_maps(groups, columns, None, note="Fewer than 10 patients: plain background."))
