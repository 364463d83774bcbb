"""The point or the box that an answer gives: numbers in pixels of the square picture, mapped to the full image.

Nothing is rescaled: fractions, thousandths and percentages are no pixels. What they look like stands in the note.
"""

from __future__ import annotations

import re

from reveal_bench.records import Box
from reveal_bench.runner.answer_replies import Reply, noted, nothing
from reveal_bench.runner.answer_words import MAX_PROSE, bare, begins_absent, says_absent, statements
from reveal_bench.runner.overlay import SquareView
from reveal_bench.runner.questions import AskSettings, Question

__all__ = ["LEAST_SIDE", "kept_inside", "read_place"]

LEAST_SIDE = 1e-6
"""Pixels; a side that is shorter may round to nothing."""
_NAMES = {"point": ("x", "y"), "box": ("x", "y", "w", "h")}
_SYNONYMS = {
    "left": "x", "top": "y", "width": "w", "height": "h", "xmin": "x1", "ymin": "y1", "xmax": "x2", "ymax": "y2",
    "right": "x2", "bottom": "y2",
}  # fmt: skip
_NUMBER_KEYS = "point|box|bounding box|bbox|coordinates?|answer|location|position|punkt|antwort|réponse|答案|坐标"
_LABEL = r"x_?min|y_?min|x_?max|y_?max|x1|y1|x2|y2|x|y|width|height|left|top|right|bottom|w|h"
_NUMBER = re.compile(
    rf"(?i)(?:(?<![A-Za-z])[\"']?(?P<label>{_LABEL})[\"']?\s{{0,2}}[:=]\s{{0,2}})?"
    r"(?<![A-Za-z0-9.])(?P<number>-?[0-9]{1,7}(?:\.[0-9]{1,12})?)(?![0-9]|\.[0-9]|[eE][-+]?[0-9])(?P<percent>\s?%)?"
)
_BETWEEN = re.compile(r"(?i)\s{0,4}(?:px|pixels?)?\s{0,4}[,;|]?\s{0,8}(?:and|und|et)?\s{0,3}[\"']?")


def read_place(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """The reply to a question whose answer is a point or a box; `plain` is cleaned text."""
    text, names = bare(plain), _NAMES[question.form]
    named = statements(text, _NUMBER_KEYS)
    rests = [rest for rest, _ in named if _number_runs(rest) or begins_absent(rest)]
    if rests:
        runs = _number_runs(rests[-1])[:1]
        is_absent = not runs
    else:
        runs = _number_runs(text)
        if is_cut and len(runs) != 1:
            return Reply("cut_off")
        runs = [run for run in runs if len(run) == len(names)][-1:] or runs[-1:]
        is_absent = says_absent(text, question.finding)
    if not runs:
        return nothing(plain, question, is_absent=is_absent)
    if is_cut and (len(runs[0]) < len(names) or text[-1:].isdigit()):  # a digit may have been to follow
        return Reply("cut_off")
    if re.search(r"\bbox[ _]2d", plain):
        return Reply("unclear", note='"box_2d" is in thousandths, y first: pixels were asked for')
    values, note = _in_order(runs[0], names, corners="bbox_2d" in plain)
    return Reply("unclear", note=note) if values is None else _placed(values, note, question, settings)


def _in_order(
    run: list[tuple[str, float, bool]], names: tuple[str, ...], *, corners: bool
) -> tuple[tuple[float, ...] | None, str]:
    """The numbers of a run as x, y (width, height), and a note."""
    if any(is_percent for _, _, is_percent in run):
        return None, "percentages: pixels were asked for"
    if len(run) != len(names):
        return None, f"{len(run)} numbers, {len(names)} were asked for"
    order = ("x1", "y1", "x2", "y2") if corners else names
    labels = [_SYNONYMS.get(label, label or name) for (label, _, _), name in zip(run, order, strict=True)]
    values = tuple(value for _, value, _ in run)
    by_label = dict(zip(labels, values, strict=True))
    if set(by_label) == set(names):
        return tuple(by_label[name] for name in names), ""
    if set(by_label) == {"x1", "y1", "x2", "y2"}:
        x, y = by_label["x1"], by_label["y1"]
        return (x, y, by_label["x2"] - x, by_label["y2"] - y), "named as corners"
    return None, f"numbers named {', '.join(labels)}"


def _placed(values: tuple[float, ...], note: str, question: Question, settings: AskSettings) -> Reply:
    """A point or box that lies in the square picture, in the full image's pixels."""
    side, view = settings.side, SquareView(question.image.size, settings.side)
    notes = [note, _looks_like(values, side)]
    x, y = values[:2]
    if len(values) == 2:
        inside = 0 <= x < side and 0 <= y < side
        reply = Reply("answered", point=view.to_full(x, y)) if inside else Reply("outside")
        return noted(reply, *notes)
    width, height = values[2:]
    if min(width, height) < LEAST_SIDE:
        return noted(Reply("unclear", note="a box must have a width and a height above 0"), *notes)
    if x < 0 or y < 0 or x + width > side or y + height > side:
        if 0 <= x < width <= side and 0 <= y < height <= side:
            notes.append("corners instead of width and height?")
        return noted(Reply("outside"), *notes)
    full = view.box_to_full((x, y, width, height))
    return noted(Reply("answered", box=kept_inside(full, question.image.size)), *notes)


def _looks_like(values: tuple[float, ...], side: int) -> str:
    """What unit other than pixels the numbers seem to have; they are read as pixels all the same."""
    if all(0 <= value <= 1 for value in values) and any(value % 1 for value in values):
        return "looks like fractions of the side"
    if all(0 <= value <= 1000 for value in values) and max(values) > side:
        return "looks like thousandths of the side, or pixels of another size"
    return ""


def kept_inside(box: Box, size: tuple[int, int]) -> Box:
    """The box without what rounding put beyond the right or lower edge (a few units in the last place)."""
    x, y, width, height = box
    return x, y, min(width, size[1] - x), min(height, size[0] - y)


def _number_runs(text: str) -> list[list[tuple[str, float, bool]]]:
    """Runs of numbers that only separators and labels part: (label or "", number, whether it is a percentage)."""
    runs: list[list[tuple[str, float, bool]]] = []
    end = -1
    for match in _NUMBER.finditer(text, max(0, len(text) - MAX_PROSE)):
        if end < 0 or not _BETWEEN.fullmatch(text[end : match.start()][:40]) or match.start() - end > 39:
            runs.append([])
        runs[-1].append(
            ((match["label"] or "").lower().replace("_", ""), float(match["number"]), bool(match["percent"]))
        )
        end = match.end()
    return runs
