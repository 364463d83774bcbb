"""The way of the studies as a flow diagram, every number from what the steps counted (paper 004, Figure 1).

A :class:`Stage` holds studies; what leaves it before the next one stands beside it, so that ``n - leaving == next n``;
:func:`unbalanced` says where that is not so. A stage whose step is not done has no number and a dashed frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reveal_bench.curation.drawing import LINE, WIDE, Drawing, wrapped, written

__all__ = ["SMALL", "Stage", "draw_flow", "find_stages", "unbalanced"]

Counts = Mapping[str, Any]

SMALL = 10
"""No smaller number of studies is told in public where it could tell of the holdout."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A box: `n` studies (None: not done), lines below, and what leaves between it and the next: (why, studies)."""

    title: str
    n: int | None
    lines: tuple[str, ...] = ()
    leaving: tuple[tuple[str, int], ...] = ()
    halves: tuple[tuple[str, int], ...] = ()
    """Of the last stage: what it was divided into."""


def find_stages(counts: Mapping[str, Counts | None], *, is_public: bool = False) -> list[Stage]:
    """The stages from the counts of the steps; None stands for a step that is not done.

    Parameters
    ----------
    is_public : leave out what tells of the labels of the selection: its halves must not be told from one another;
        the smallest strata are put together, and none are told unless at least :data:`SMALL` of the sampled studies
        were not selected: less the released half, they would be the holdout's
    """
    extracted, sampled, assigned = counts.get("extract"), counts.get("sample"), counts.get("assign")
    votes, agreed = counts.get("import-votes"), counts.get("consensus")
    selected, divided = counts.get("select"), counts.get("split")
    return [
        _reports(extracted),
        _suggested(extracted, sampled),
        _sampled(sampled, selected, is_public=is_public),
        _read(assigned, votes, agreed, selected),
        _eligible(selected, is_public=is_public),
        _selected(selected, divided, is_public=is_public),
    ]


def unbalanced(stages: Sequence[Stage]) -> list[str]:
    """Where a stage less what left it is not the next one."""
    found = []
    for one, after in pairwise(stages):
        if one.n is not None and after.n is not None and one.n - sum(n for _, n in one.leaving) != after.n:
            found.append(f"{one.title} to {after.title}")
    last = stages[-1]
    if last.halves and last.n != sum(n for _, n in last.halves):
        found.append(f"{last.title} to its halves")
    return found


def _reports(counts: Counts | None) -> Stage:
    if counts is None:
        return Stage("Studies with reports", None)
    n_unanswered = (counts.get("engine") or {}).get("unanswered", 0)
    leaving: tuple[tuple[str, int], ...] = (
        ("quarantined: the labels could not be read", counts["quarantined"] - n_unanswered),
    )
    if n_unanswered:
        leaving = (*leaving, ("quarantined: the model gave no answer", n_unanswered))
    return Stage("Studies with reports", counts["studies"], (f"of {counts['patients']:,} patients",), leaving)


def _suggested(counts: Counts | None, sampled: Counts | None) -> Stage:
    if counts is None:
        return Stage("Labels suggested", None)
    if sampled is None:
        return Stage("Labels suggested", counts["ok"])
    leaving = (
        ("with another number of labels than was sampled", sampled["outside_strata"]),
        ("set aside: another study of the same patient", sampled["set_aside"]),
        ("candidates, not drawn", sampled["candidates"] - sampled["sampled"]),
    )
    return Stage("Labels suggested", counts["ok"], (), leaving)


def _sampled(counts: Counts | None, selected: Counts | None, *, is_public: bool) -> Stage:
    if counts is None:
        return Stage("Sampled for reading", None)
    strata = [(int(n), one) for n, one in counts["strata"].items()]
    if not is_public:
        lines = [_stratum(n, one) for n, one in strata]
    else:
        n_others = 0 if selected is None else counts["sampled"] - selected["selected"]
        lines = _strata_public(strata) if n_others >= SMALL else []
    if counts["short"]:
        lines.append(f"short of what was asked for: {counts['short']:,}")
    return Stage("Sampled for reading", counts["sampled"], tuple(lines))


def _stratum(n: int, one: Counts) -> str:
    short = f", {one['short']:,} short" if one["short"] else ""
    moved = f", {one['from_above']:,} of them asked for above" if one["from_above"] else ""
    return f"{_labels(n)}: {one['drawn']:,} of {one['wanted']:,}{short}{moved}"


def _strata_public(strata: Sequence[tuple[int, Counts]]) -> list[str]:
    """Strata of fewer than SMALL together with those below them."""
    groups = [(n, n, int(one["drawn"])) for n, one in strata]
    while len(groups) > 1 and groups[-1][2] < SMALL:
        (low, _, drawn), (_, high, more) = groups[-2:]
        groups[-2:] = [(low, high, drawn + more)]
    return [f"{_labels(a) if a == b else f'{a} to {b} labels'}: {drawn:,}" for a, b, drawn in groups]


def _read(assigned: Counts | None, votes: Counts | None, agreed: Counts | None, selected: Counts | None) -> Stage:
    title = "Assigned to readers" if votes is None else "Read"
    if assigned is None:
        return Stage(title, None)
    lines = [f"{assigned['places']:,} readings assigned to {assigned['readers']:,} readers"]
    if votes is not None:
        missing = f", {votes['missing']:,} missing" if votes["missing"] else ""
        lines.append(f"{votes['votes']:,} votes{missing}")
    if agreed is not None:
        tally = agreed["by_n_agree_all"]
        lines += [f"{_agreeing(n)}: {tally[n]:,}" for n in sorted(tally, key=int, reverse=True)]
        if agreed["studies"] > sum(tally.values()):
            lines.append(f"without any vote: {agreed['studies'] - sum(tally.values()):,}")
    leaving: tuple[tuple[str, int], ...] = ()
    if selected is not None:
        leaving = (
            ("without three votes", selected["not_three_votes"]),
            ("agreed to by too few readers", selected["too_few_agree_all"]),
            ("without a label in the majority’s list", selected["without_labels"]),
        )
    return Stage(title, assigned["studies"], tuple(lines), leaving)


def _eligible(counts: Counts | None, *, is_public: bool) -> Stage:
    if counts is None:
        return Stage("Eligible", None)
    n_left = counts["eligible"] - counts["selected"]
    if is_public:
        return Stage("Eligible", counts["eligible"], (), (("eligible, not selected", n_left),))
    others = counts["eligible"] - counts["less_common"]
    lines = (f"with a less common finding: {counts['less_common']:,}", f"others: {others:,}")
    leaving = (
        ("with a less common finding, left out at random", counts["less_common_left_out"]),
        ("others with fewer findings", others - counts["most_findings"]),
    )
    return Stage("Eligible", counts["eligible"], lines, leaving)


def _selected(counts: Counts | None, divided: Counts | None, *, is_public: bool) -> Stage:
    if counts is None:
        return Stage("Selected", None)
    lines: tuple[str, ...] = ()
    if not is_public:
        rare = counts["less_common"] - counts["less_common_left_out"]
        lines = (f"for a less common finding: {rare:,}", f"for most findings: {counts['most_findings']:,}")
    if counts["shortage"]:
        lines = (*lines, f"short of the target: {counts['shortage']:,}")
    halves: tuple[tuple[str, int], ...] = ()
    if divided is not None:
        halves = (("Released", divided["released"]["studies"]), ("Holdout", divided["holdout"]["studies"]))
    return Stage("Selected", counts["selected"], lines, (), halves)


def _agreeing(n: str) -> str:
    return {"0": "no reader agrees to all", "1": "1 reader agrees to all"}.get(n, f"{n} readers agree to all")


def _labels(n: int) -> str:
    return "1 label" if n == 1 else f"{n} labels"


def draw_flow(stages: Sequence[Stage], *, name: str = "flow") -> Drawing:
    """Boxes below one another, what leaves beside them; :attr:`Stage.halves` at the foot."""

    def draw(width: int) -> tuple[str, float]:
        main = 390.0 if width == WIDE else 192.0
        side_left = main + (44 if width == WIDE else 14)
        shapes, y = [], 1.0
        for i, stage in enumerate(stages):
            box, height = _box(1, y, main - 2, _words(stage, main), is_open=stage.n is None)
            shapes.append(box)
            y += height
            is_last = i == len(stages) - 1
            leaving = [(why, n) for why, n in stage.leaving if n]
            gap = 30.0
            if leaving:
                words = [
                    (line, i == 0)
                    for why, n in leaving
                    for i, line in enumerate([f"{n:,}", *wrapped(why, width - side_left - 18)])
                ]
                side, tall = _box(side_left, y + 10, width - side_left - 1, words, is_aside=True)
                gap = max(gap, tall + 20)
                shapes.append(side)
                shapes.append(_arrow(main / 2, y + 10 + tall / 2, side_left - 1, y + 10 + tall / 2))
            if not is_last:
                shapes.append(_arrow(main / 2, y, main / 2, y + gap - 1))
                y += gap
        halves, y = _halves(stages[-1], main, width, y)
        return "".join([*shapes, halves]), y + 2

    return Drawing(name, "From the reports to the two halves", _described(stages), draw)


def _halves(stage: Stage, main: float, width: int, y: float) -> tuple[str, float]:
    wide = (main - 16) / 2
    shapes, bottom = [], y
    named = stage.halves or (("Released", None), ("Holdout", None))
    for k, (half, n) in enumerate(named):
        x = 1 + k * (wide + 14)
        words = _words(Stage(half, n), wide)
        box, height = _box(x, y + 30, wide, words, is_open=n is None)
        shapes += [_arrow(x + wide / 2, y, x + wide / 2, y + 29), box]
        bottom = y + 30 + height
    return "".join(shapes), bottom


def _words(stage: Stage, width: float) -> list[tuple[str, bool]]:
    """Lines of a box, and whether they are bold."""
    head = f"{stage.title}: {stage.n:,}" if stage.n is not None else f"{stage.title}: not done"
    lines = [(line, True) for line in wrapped(head, width - 26)]
    return lines + [(line, False) for words in stage.lines for line in wrapped(words, width - 20)]


def _box(
    x: float,
    y: float,
    width: float,
    words: Sequence[tuple[str, bool]],
    *,
    is_open: bool = False,
    is_aside: bool = False,
) -> tuple[str, float]:
    height = LINE * len(words) + 14
    kind = "box" + " open" * is_open + " aside" * is_aside
    lines = "".join(
        written(x + 9, y + 19 + LINE * i, line, css_class="bold" if is_bold else "")
        for i, (line, is_bold) in enumerate(words)
    )
    frame = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="4" class="{kind}"/>'
    return frame + lines, height


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line with a head; it goes down or to the right."""
    head = f"M{x2:.1f} {y2:.1f}l-4 -7h8z" if x1 == x2 else f"M{x2:.1f} {y2:.1f}l-7 -4v8z"
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="line"/>'
        f'<path d="{head}" fill="currentColor" class="line" style="fill:var(--ink)"/>'
    )


def _described(stages: Sequence[Stage]) -> str:
    """The diagram in words."""
    parts = []
    for stage in stages:
        shown = "not done" if stage.n is None else f"{stage.n:,}"
        more = "; ".join([*stage.lines, *(f"leaving, {why}: {n:,}" for why, n in stage.leaving if n)])
        parts.append(f"{stage.title}: {shown}{f' ({more})' if more else ''}.")
        parts += [f"{half}: {n:,}." for half, n in stage.halves]
    return " ".join(parts)
