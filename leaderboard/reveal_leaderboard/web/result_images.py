"""Badges, preview cards and figures of an entry's result, as :class:`reveal_leaderboard.web.vector_image.VectorImage`.

Scales run from 0 to 100%, for coefficients from -1 to 1, for ratings from 1 to 5. The colours are those of the light
pages, since the background of the site that shows an image is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import with_interval
from reveal_leaderboard.boards.standings import Standings
from reveal_leaderboard.release.release import ReleasedEstimate
from reveal_leaderboard.store.metadata import versioned
from reveal_leaderboard.web.pages.drawing import AGREEMENT, RATING, in_words, percent
from reveal_leaderboard.web.shared_result import Comparator, SharedResult, is_percent
from reveal_leaderboard.web.vector_image import Box, Dot, Line, VectorImage, Words, fitted, width_of

INK, SOFT, GRID, BAR, TEAL, PAGE = "#16202b", "#4c5a69", "#d5dce3", "#7fb7b0", "#0b4f48", "#ffffff"
HEIGHT, LETTERS = 20, 11  # of a badge
MARGIN = 64


def badge(result: SharedResult) -> VectorImage:
    """Return a badge with the benchmark, its version, and the score with its interval."""
    recipe = _recipe(result, "badge")
    rank = f" · rank {result.place.replace('-', '–')}" if result.place else ""
    return _badge(f"{result.benchmark} {result.version}", f"{result.measured}{rank}", TEAL, result.spoken, recipe)


def state_badge(label: str, state: str) -> VectorImage:
    """Return the badge of an entry that has no scores because it is withdrawn or does not exist."""
    return _badge(label, state, SOFT, f"{label}: {state}", {"drawn": "badge", "state": state})


def _badge(label: str, text: str, colour: str, title: str, recipe: Mapping[str, Any]) -> VectorImage:
    middle = round(width_of(label, LETTERS)) + 12
    width = middle + round(width_of(text, LETTERS)) + 12
    image = VectorImage(width, HEIGHT, f"{label}: {text}", title, recipe, ground="#4a5561")
    image.shapes = [
        Box(middle, 0, width - middle, HEIGHT, colour),
        Words(middle / 2, 14, label, LETTERS, PAGE, "middle"),
        Words((middle + width) / 2, 14, text, LETTERS, PAGE, "middle"),
    ]
    return image


def card(result: SharedResult) -> VectorImage:
    """Return the preview image of 1200 x 630 pixels that other sites show with a link."""
    image = VectorImage(1200, 630, f"{result.model}, {result.team}", result.spoken, _recipe(result, "card"))
    wide = image.width - 2 * MARGIN
    image.shapes = [
        Box(0, 0, image.width, 14, TEAL),
        Words(MARGIN, 84, "REVEAL leaderboard", 26, TEAL, is_bold=True),
        Words(image.width - MARGIN, 84, f"{result.benchmark} {result.version}", 26, SOFT, "end"),
        Words(MARGIN, 178, fitted(result.model, 58, wide, is_bold=True), 58, INK, is_bold=True),
        Words(MARGIN, 226, fitted(result.team, 30, wide), 30, SOFT),
        Words(MARGIN, 352, result.value, 96, TEAL, is_bold=True),
    ]
    figure = result.figure
    if figure is not None:
        after = MARGIN + width_of(result.value, 96, is_bold=True) + 36
        if result.interval:
            image.shapes.append(Words(after, 352, f"95% interval {result.interval}", 30, SOFT))
        image.shapes.append(Words(after, 310, f"Macro {result.metric}", 30, INK))
        image.shapes += _card_scale(figure, result.comparators, wide)
    if result.ranked:
        image.shapes.append(Words(MARGIN, 588, result.ranked, 34, INK, is_bold=True))
    image.shapes.append(Words(image.width - MARGIN, 588, f"scored {result.scored_on}", 24, SOFT, "end"))
    return image


def _card_scale(
    figure: ReleasedEstimate, comparators: Sequence[Comparator], wide: float
) -> list[Box | Line | Dot | Words]:
    axis = _axis(figure)

    def at(value: float) -> float:
        return MARGIN + wide * axis.share(value)

    shapes: list[Box | Line | Dot | Words] = [Line(MARGIN, 430, MARGIN + wide, 430, GRID, 3)]
    for k, tick in enumerate(axis.ticks):
        anchor = _end(k, len(axis.ticks))
        shapes += [Line(at(tick), 420, at(tick), 440, GRID, 3), Words(at(tick), 476, axis.say(tick), 22, SOFT, anchor)]
    for other in comparators:
        shapes += [Dot(at(other.value), 430, 11, INK, is_hollow=True)]
        shapes += [Words(at(other.value), 404, other.name, 22, SOFT, "middle")]
    if figure.interval is not None:
        low, high = figure.interval
        shapes.append(Line(at(low), 430, at(high), 430, BAR, 16))
    return [*shapes, Dot(at(figure.value), 430, 15, TEAL)]


@dataclass(frozen=True)
class _FigureRow:
    name: str
    value: float
    interval: tuple[float, float] | None
    words: str
    is_published: bool = False


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]
    unit: str

    def share(self, value: float) -> float:
        """Return the position of a value on its scale, from 0 to 1."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def say(self, tick: float) -> str:
        """Return the label of an axis tick."""
        return f"{100 * tick:.0f}%" if self.unit else f"{tick:g}".replace("-", "−")


def _axis(figure: ReleasedEstimate) -> _Axis:
    if is_percent(figure):
        return _Axis(0, 1, (0, 0.25, 0.5, 0.75, 1), "%")
    if figure.metric == RATING:
        return _Axis(1, 5, (1, 2, 3, 4, 5), "")
    if figure.metric == AGREEMENT or METRICS[figure.metric].low < 0:
        return _Axis(-1, 1, (-1, -0.5, 0, 0.5, 1), "")
    return _Axis(0, 1, (0, 0.25, 0.5, 0.75, 1), "%")


def entry_figure(result: SharedResult, metric: str | None = None) -> VectorImage | None:
    """Return a figure of an entry's scores per finding by one metric (default: the ranked one), or None without any."""
    primary = result.figure
    metric = metric or (None if primary is None else primary.metric)
    rows, first = [], None
    for finding in (MACRO, *result.score.shown):
        figure = None if metric is None else result.score.figure(metric, finding)
        if figure is not None:
            first = first or figure
            rows.append(_row("Macro" if finding == MACRO else finding, figure))
            if finding == MACRO and primary is not None and metric == primary.metric:
                rows += [_published(other) for other in result.comparators]
    if first is None:
        return None
    title = f"{result.model}, {result.team}: {METRICS[first.metric].title} by finding"
    return _plot(title, rows, _axis(first), _recipe(result, "findings of one entry", first))


def board_figure(board: Standings) -> VectorImage | None:
    """Return a figure of the ranked macros of all entries on a board; None if no entry has one."""
    rows, first = [], None
    for entry in board.entries:
        figure = entry.figure(board.primary.name)
        if figure is not None:
            first = first or figure
            place = f"{entry.place.replace('-', '–')}  " if entry.rank_low is not None else ""
            rows.append(_row(f"{place}{versioned(entry.model, entry.model_version)}, {entry.team}", figure))
    if first is None:
        return None
    recipe = {
        "benchmark": board.benchmark, "version": board.version, "split": board.split, "metric": first.metric,
        "signature": first.signature, "receipt_sha256": None, "drawn": "macros of all entries of a board",
        "date": (board.ranked_at or "")[:10] or None,
    }  # fmt: skip
    return _plot(f"{board.title} {board.version}: macro {board.primary.in_words}", rows, _axis(first), recipe)


def _row(name: str, figure: ReleasedEstimate) -> _FigureRow:
    text = in_words(figure)
    return _FigureRow(name, figure.value, figure.interval, with_interval(text.value, text.interval))


def _published(other: Comparator) -> _FigureRow:
    return _FigureRow(other.name.lower(), other.value, None, percent(other.value), is_published=True)


WIDE, LEFT, MOST_LEFT, RIGHT, STEP, TOP = 960, 300, 520, 130, 30, 64


def _plot(title: str, rows: Sequence[_FigureRow], axis: _Axis, recipe: Mapping[str, Any]) -> VectorImage:
    """Return an image with one row per score on a common scale, and a line of provenance at the bottom."""
    bottom = TOP + STEP * len(rows)
    right = max(RIGHT, 28 + max(width_of(row.words, 14) for row in rows))
    x0 = min(max(LEFT, 32 + max(width_of(row.name, 14) for row in rows)), MOST_LEFT)
    description = f"{title}. " + "; ".join(f"{row.name} {row.words}" for row in rows) + "."
    image = VectorImage(WIDE, bottom + 62, title, description, recipe)
    put = image.shapes.append

    def at(value: float) -> float:
        return round(x0 + (WIDE - x0 - right) * axis.share(value), 1)

    put(Words(16, 32, fitted(title, 18, WIDE - 32, is_bold=True), 18, INK, is_bold=True))
    for tick in axis.ticks:
        put(Line(at(tick), TOP - 10, at(tick), bottom, GRID))
        put(Words(at(tick), bottom + 18, axis.say(tick), 12, SOFT, "middle"))
    for k, row in enumerate(rows):
        y = TOP + STEP * k + 8
        if row.interval is not None:
            low, high = row.interval
            put(Line(at(low), y, at(high), y, BAR, 6))
        colour = INK if row.is_published else TEAL
        put(Dot(at(row.value), y, 5, colour, is_hollow=row.is_published, hint=f"{row.name}: {row.words}"))
        put(Words(x0 - 16, y + 5, fitted(row.name, 14, x0 - 32), 14, INK, "end"))
        put(Words(WIDE - 16, y + 5, row.words, 14, INK, "end"))
    parts = (recipe["benchmark"], recipe["version"], recipe["split"], recipe["signature"], recipe["date"])
    put(Words(16, bottom + 46, fitted(" · ".join(str(part) for part in parts if part), 11, WIDE - 32), 11, SOFT))
    return image


def _end(k: int, n: int) -> Any:
    return "start" if k == 0 else "end" if k == n - 1 else "middle"


def _recipe(result: SharedResult, content: str, figure: ReleasedEstimate | None = None) -> dict[str, Any]:
    figure = figure or result.figure
    return {
        "benchmark": result.benchmark,
        "version": result.version,
        "split": result.split,
        "entry": result.submission_id,
        "metric": None if figure is None else figure.metric,
        "signature": None if figure is None else figure.signature,
        "receipt_sha256": result.receipt or None,
        "drawn": content,
        "date": result.scored_on,
    }
