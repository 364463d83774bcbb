"""Curation report sections on step status, label extraction, the flow of studies and changes of a refresh.

The flow is a diagram as in Figure 1 of paper 004, with every number from the counts of the steps. A :class:`Stage`
counts its studies and those that leave before the next stage, so that ``n - leaving == next n``; :func:`unbalanced`
lists the exceptions. A stage whose step is not done has no number and a dashed frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reveal_bench.curation.tables import HALVES
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.reports.curation_data import Curated
from reveal_bench.reports.page import Csv, Note, PageTable, Part, Section, Text, section
from reveal_bench.reports.style import INK, LINE, PANEL, SOFT, WIDE, Illustration, new_figure, share, style, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Counts = Mapping[str, Any]

SMALL = 10
"""Minimum count of studies on the public page where smaller counts could reveal the holdout."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A box of the flow diagram: `n` studies (None if not done), `lines` of text, and `leaving` as (reason, n)."""

    title: str
    n: int | None
    lines: tuple[str, ...] = ()
    leaving: tuple[tuple[str, int], ...] = ()
    halves: tuple[tuple[str, int], ...] = ()
    """(Name, number of studies) of each half, in the last stage only."""


def find_stages(counts: Mapping[str, Counts | None], *, is_public: bool = False) -> list[Stage]:
    """Return the stages from the counts of the steps; None for a step that is not done.

    Parameters
    ----------
    is_public : omit label counts of the selection that could reveal the holdout, and merge the smallest strata. Strata
        are only shown if at least :data:`SMALL` sampled studies were not selected; otherwise, subtracting the released
        half would reveal the holdout's counts
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
    """Return the transitions whose numbers of studies do not add up."""
    gaps = []
    for one, after in pairwise(stages):
        if one.n is not None and after.n is not None and one.n - sum(n for _, n in one.leaving) != after.n:
            gaps.append(f"{one.title} to {after.title}")
    last = stages[-1]
    if last.halves and last.n != sum(n for _, n in last.halves):
        gaps.append(f"{last.title} to its halves")
    return gaps


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
        ("set aside: no usable film", sampled.get("unusable", 0)),
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
        lines.append(f"short of the requested number: {counts['short']:,}")
    return Stage("Sampled for reading", counts["sampled"], tuple(lines))


def _stratum(n: int, one: Counts) -> str:
    short = f", {one['short']:,} short" if one["short"] else ""
    moved = f", {one['from_above']:,} of them requested for higher strata" if one["from_above"] else ""
    return f"{_labels(n)}: {one['drawn']:,} of {one['wanted']:,}{short}{moved}"


def _strata_public(strata: Sequence[tuple[int, Counts]]) -> list[str]:
    """Return the strata; top strata with fewer than SMALL studies are merged with the next lower one."""
    groups = [(n, n, int(one["drawn"])) for n, one in strata]
    while len(groups) > 1 and groups[-1][2] < SMALL:
        (low, _, n), (_, high, more) = groups[-2:]
        groups[-2:] = [(low, high, n + more)]
    return [f"{_labels(a) if a == b else f'{a} to {b} labels'}: {n:,}" for a, b, n in groups]


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
            ("labels confirmed by too few readers", selected["too_few_agree_all"]),
            ("without a label in the majority list", selected["without_labels"]),
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
        ("with a less common finding, randomly omitted", counts["less_common_left_out"]),
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
        lines = (*lines, f"missing from the target: {counts['shortage']:,}")
    halves: tuple[tuple[str, int], ...] = ()
    if divided is not None:
        halves = (("Released", divided["released"]["studies"]), ("Holdout", divided["holdout"]["studies"]))
    return Stage("Selected", counts["selected"], lines, (), halves)


def _agreeing(n: str) -> str:
    return {"0": "no reader agrees to all", "1": "1 reader agrees to all"}.get(n, f"{n} readers agree to all")


def _labels(n: int) -> str:
    return "1 label" if n == 1 else f"{n} labels"


def draw_flow(stages: Sequence[Stage]) -> Illustration:
    """Return a diagram: boxes in a column, leaving studies beside them, and the halves at the bottom."""
    title = "From the reports to the two halves"
    return Illustration("flow", title, "", _stages_text(stages), lambda width: _draw_stages(stages, width))


@dataclass(frozen=True, slots=True)
class _Box:
    """A box to draw, with lines as (text, True if bold); positions in millimetres, y downwards from the top."""

    x: float
    y: float
    width: float
    lines: tuple[tuple[str, bool], ...]
    is_open: bool = False
    is_aside: bool = False

    @property
    def height(self) -> float:
        return 1.15 * LINE * len(self.lines) + 3.2


def _draw_stages(stages: Sequence[Stage], width: float) -> Figure:
    main, gap = (0.56, 10.0) if width == WIDE else (0.54, 4.0)
    main *= width
    boxes: list[_Box] = []
    arrows: list[tuple[float, float, float, float]] = []
    y = 0.5
    for i, stage in enumerate(stages):
        boxes.append(_Box(0.5, y, main - 1, _words(stage, main - 6), is_open=stage.n is None))
        y += boxes[-1].height
        low = y
        leaving = [(why, n) for why, n in stage.leaving if n]
        if leaving:
            side = main + gap
            lines = tuple(
                (line, k == 0)
                for why, n in leaving
                for k, line in enumerate([f"{n:,}", *wrap(why, width - side - 5).split("\n")])
            )
            boxes.append(_Box(side, y + 2.5, width - side - 0.5, lines, is_aside=True))
            low = boxes[-1].y + boxes[-1].height - 1.5
            middle = (boxes[-1].y + low + 1.5) / 2
            arrows.append((main / 2, middle, side, middle))
        if i < len(stages) - 1:
            arrows.append((main / 2, y, main / 2, max(y + 7, low + 4)))
            y = arrows[-1][3]
    half = (main - 4.5) / 2
    for k, (name, n) in enumerate(stages[-1].halves or (("Released", None), ("Holdout", None))):
        x = 0.5 + k * (half + 3.5)
        arrows.append((x + half / 2, y, x + half / 2, y + 7))
        boxes.append(_Box(x, y + 7, half, _words(Stage(name, n), half - 3.4), is_open=n is None))
    height = max(box.y + box.height for box in boxes) + 0.5
    with style():
        figure = new_figure(height, width)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        for box in boxes:
            _draw_box(axes, box)
        for x1, y1, x2, y2 in arrows:
            axes.annotate(
                "", (x2, y2), (x1, y1),
                arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
            )  # fmt: skip
    return figure


def _draw_box(axes: Axes, box: _Box) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle(
            (box.x, box.y), box.width, box.height, facecolor=PANEL if box.is_aside else "white",
            edgecolor=SOFT if box.is_open else INK, linewidth=0.7, linestyle="--" if box.is_open else "-",
        )
    )  # fmt: skip
    for i, (line, is_bold) in enumerate(box.lines):
        place = box.y + 1.6 + 1.15 * LINE * (i + 0.5)
        axes.text(box.x + 2.2, place, line, va="center", fontweight="bold" if is_bold else "normal")


def _words(stage: Stage, width: float) -> tuple[tuple[str, bool], ...]:
    """Return the lines of a box as (text, True if bold)."""
    head = f"{stage.title}: {stage.n:,}" if stage.n is not None else f"{stage.title}: not done"
    lines = [(line, True) for line in wrap(head, width, bold=True).split("\n")]
    return (*lines, *((line, False) for words in stage.lines for line in wrap(words, width).split("\n")))


def _stages_text(stages: Sequence[Stage]) -> str:
    """Return the diagram's alternative text."""
    parts = []
    for stage in stages:
        count = "not done" if stage.n is None else f"{stage.n:,}"
        more = "; ".join([*stage.lines, *(f"leaving, {why}: {n:,}" for why, n in stage.leaving if n)])
        parts.append(f"{stage.title}: {count}{f' ({more})' if more else ''}.")
        parts += [f"{half}: {n:,}." for half, n in stage.halves]
    return " ".join(parts)


BEFORE_REFRESH = ("extract", "sample", "assign", "import-votes", "consensus", "select", "split")


def draw_steps(curated: Curated) -> Section:
    """Return the section with the status of every step."""
    rows: list[tuple[str, ...]] = []
    for step, state in curated.states.items():
        if step == "report":
            continue
        version = "" if state.record is None else state.record.version
        rows.append((step, "not done" if state.status == "open" else state.status, version, state.why))
    heads: tuple[str, ...] = ("Step", "Status", "By reveal-bench", "Why")
    if not any(state.why for state in curated.states.values()):
        heads, rows = heads[:3], [row[:3] for row in rows]
    table = PageTable(heads, rows, caption="Steps of this curation")
    seed = Text(f"Every random choice uses the seed {curated.seed} of this curation folder.", is_note=True)
    return section("steps", "What is done", "Curation folder; not in the paper", table, seed)


def draw_flow_section(curated: Curated) -> Section:
    """Return the section with Figure 1, the flow of studies."""
    refreshed = curated.counts("refresh")
    notes: list[Part] = []
    if refreshed is not None and curated.counts("extract") is None:
        notes.append(Note(
            f"This is a refresh of version {refreshed['version_before']}.",
            "The report of that curation shows how its studies were chosen; the changes are below.",
        ))  # fmt: skip
    counts = {step: curated.counts(step) for step in BEFORE_REFRESH}
    return section("flow", "Flow of studies", "As Figure 1 of paper 004 (REVEAL-CXR)", *notes, *flow_parts(counts))


def flow_parts(counts: Mapping[str, Mapping[str, Any] | None], *, is_public: bool = False) -> list[Part]:
    """Return the flow diagram, warnings about missing steps and inconsistent sums, and a file of the numbers."""
    stages = find_stages(counts, is_public=is_public)
    parts: list[Part] = [draw_flow(stages)]
    gaps = unbalanced(stages)
    if gaps:
        parts.append(Note("The numbers do not add up.", "; ".join(gaps), is_warning=True))
    open_steps = [step for step in BEFORE_REFRESH if counts.get(step) is None]
    if open_steps:
        parts.append(Note("Not all steps are done.", f"No numbers yet for: {', '.join(open_steps)}."))
    return [*parts, Csv.of("flow", ("stage", "what", "studies"), tuple(_flow_rows(stages)))]


def _flow_rows(stages: Sequence[Stage]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for stage in stages:
        rows.append((stage.title, "in", stage.n))
        rows += [(stage.title, f"leaving: {why}", n) for why, n in stage.leaving]
        rows += [(stage.title, half, n) for half, n in stage.halves]
    return rows


def draw_extraction(curated: Curated) -> Section:
    """Return the section on label extraction: engine, quarantined reports, suggested labels, and a model's cost."""
    key, title, source = "extraction", "Labels extracted from reports", "Sections 2.1 and Figure 1 of paper 004"
    counts = curated.counts("extract")
    if counts is None:
        return section(key, title, source, Note("Not done.", curated.missing("extract")))
    settings = curated.settings("extract")
    engine = str(settings.get("engine", ""))
    rows: list[tuple[object, ...]] = [
        ("Read by", "labels supplied with the studies" if engine == "given" else engine),
        ("Studies", f"{counts['studies']:,} of {counts['patients']:,} patients"),
        ("Labels suggested", f"{counts['ok']:,}"),
        ("Quarantined", f"{counts['quarantined']:,}"),
        *_engine_rows(counts.get("engine") or {}),
    ]
    parts: list[Part] = [PageTable(("", ""), rows, caption="How the reports were read")]
    if counts["quarantined"]:
        note = (
            "quarantine.jsonl in the curation folder states why each report was quarantined; this page omits the "
            "reasons."
        )
        parts.append(Text(note, is_note=True))
    by_label = counts["by_label"]
    ordered = sorted(REVEAL_LABELS, key=lambda label: -by_label[label])
    parts.append(
        PageTable(
            ("Label", "Studies"),
            [(label, share(by_label[label], counts["ok"])) for label in ordered],
            f"Suggested labels of {counts['ok']:,} studies",
        )
    )
    parts.append(Csv.of("suggested", ("label", "studies"), tuple((label, by_label[label]) for label in ordered)))
    return section(key, title, source, *parts)


def _engine_rows(counts: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Return table rows on a model's usage, or on the counts of an engine without a model."""
    names = {
        "answers": "Answers used", "refused_answers": "Answers refused",
        "unanswered": "Reports without an answer",
        "answers_without_usage": "Answers without a token count",
        "tokens_in": "Tokens in", "tokens_out": "Tokens out", "cost": "Cost, in the currency of the prices",
        "served_models": "Models that answered",
    }  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for name, value in counts.items():
        text = value
        if isinstance(value, list):
            text = ", ".join(str(one) for one in value) or "not said"
        elif isinstance(value, int):
            text = f"{value:,}"
        elif value is None:
            text = "unknown: no prices were given" if name == "cost" else "not said"
        rows.append((names.get(name, name.replace("_", " ").capitalize()), text))
    return rows


def draw_refresh(curated: Curated) -> Section | None:
    """Return the section on changes since the previous version; None if the curation is no refresh."""
    counts = curated.counts("refresh")
    if counts is None and curated.states["refresh"].status == "open":
        return None
    key, title, source = "refresh", "What this version changes", "Not in the paper"
    if counts is None or curated.diff is None:
        return section(key, title, source, Note("Not done.", curated.missing("refresh")))
    corrected = curated.diff["corrected"]
    by_half = {half: [one for one in corrected if one["half"] == half] for half in HALVES}
    rows = [
        ("Labels corrected", *(len(by_half[half]) for half in HALVES)),
        ("Studies added", *(counts["added"][half] for half in HALVES)),
        ("Earlier holdout, now released", counts["retired"], -counts["retired"] if counts["retired"] else 0),
        ("Studies now", *(counts["studies"][half] for half in HALVES)),
    ]
    left_out = (
        f"Omitted candidates: {counts['left_out_released_before']:,} studies of patients with released studies, "
        f"{counts['left_out_in_holdout']:,} of patients in the holdout."
    )
    parts: list[Part] = [
        Text(f"Version {counts['version']} follows {counts['version_before']}."),
        PageTable(("What", "Released", "Holdout"), rows, caption="Changes per half"),
        Text(left_out),
        Csv.of("changes", ("what", *HALVES), tuple(rows)),
    ]
    if corrected:
        lines = [
            (
                one["study_id"],
                one["half"],
                ", ".join(one["labels_before"]) or "none",
                ", ".join(one["labels"]) or "none",
                one["why"],
            )
            for one in corrected
        ]
        heads = ("Study", "Half", "Labels before", "Labels now", "Why")
        parts.append(PageTable(heads, lines, caption=f"{len(lines):,} studies with corrected labels"))
        parts.append(Csv.of("corrected", tuple(head.lower() for head in heads), tuple(lines)))
    return section(key, title, source, *parts)
