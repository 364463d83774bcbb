"""Sections of the report on the way of the studies: steps, extraction, flow, and what a refresh changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reveal_bench.curation.drawing import Drawing
from reveal_bench.curation.flow import Stage, draw_flow, find_stages, unbalanced
from reveal_bench.curation.page_data import Curated, shown_labels
from reveal_bench.curation.page_html import Section, Table, message, paragraph, section, share, table
from reveal_bench.curation.tables import HALVES
from reveal_bench.findings import REVEAL_LABELS

__all__ = ["draw_extraction", "draw_flow_section", "draw_refresh", "draw_steps", "flow_parts"]

BEFORE_REFRESH = ("extract", "sample", "assign", "import-votes", "consensus", "select", "split")


def draw_steps(curated: Curated) -> Section:
    """Where every step stands, and how it was done."""
    rows: list[tuple[str, ...]] = []
    for step, state in curated.states.items():
        if step == "report":
            continue
        version = "" if state.record is None else state.record.version
        rows.append((step, "not done" if state.status == "open" else state.status, version, state.why))
    heads: tuple[str, ...] = ("Step", "Status", "By reveal-bench", "Why")
    if not any(state.why for state in curated.states.values()):
        heads, rows = heads[:3], [row[:3] for row in rows]
    shown = table(heads, rows, caption="Steps of this curation", n_texts=4)
    seed = paragraph(f"Every random choice comes from the seed {curated.seed} of this curation folder.", is_note=True)
    return section("steps", "What is done", "Curation folder; not in the paper", shown, seed)


def draw_flow_section(curated: Curated) -> Section:
    """Figure 1."""
    refreshed = curated.counts("refresh")
    note = ""
    if refreshed is not None and curated.counts("extract") is None:
        note = message(
            f"This is a refresh of version {refreshed['version_before']}.",
            "The way of its studies is in the report of that curation; what changed is below.",
        )
    counts = {step: curated.counts(step) for step in BEFORE_REFRESH}
    return section("flow", "Flow of studies", "As Figure 1 of paper 004 (REVEAL-CXR)", note, *flow_parts(counts))


def flow_parts(
    counts: Mapping[str, Mapping[str, Any] | None], *, is_public: bool = False
) -> list[str | Drawing | Table]:
    """The diagram, what of it is not done, whether it adds up, and its numbers."""
    stages = find_stages(counts, is_public=is_public)
    parts: list[str | Drawing | Table] = [draw_flow(stages)]
    gaps = unbalanced(stages)
    if gaps:
        parts.append(message("The numbers do not add up.", "; ".join(gaps), is_warning=True))
    open_steps = [step for step in BEFORE_REFRESH if counts.get(step) is None]
    if open_steps:
        parts.append(message("Not all steps are done.", f"Without numbers yet: {', '.join(open_steps)}."))
    return [*parts, Table("flow", ("stage", "what", "studies"), tuple(_flow_rows(stages)))]


def _flow_rows(stages: Sequence[Stage]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for stage in stages:
        rows.append((stage.title, "in", stage.n))
        rows += [(stage.title, f"leaving: {why}", n) for why, n in stage.leaving]
        rows += [(stage.title, half, n) for half, n in stage.halves]
    return rows


def draw_extraction(curated: Curated) -> Section:
    """Engine, quarantine, suggested labels; tokens and cost if a model was asked."""
    key, title, source = "extraction", "Labels read out of reports", "Sections 2.1 and Figure 1 of paper 004"
    counts = curated.counts("extract")
    if counts is None:
        return section(key, title, source, message("Not done.", curated.missing("extract")))
    settings = curated.settings("extract")
    engine = str(settings.get("engine", ""))
    rows: list[tuple[object, ...]] = [
        ("Read by", "labels that came ready with the studies" if engine == "given" else engine),
        ("Studies", f"{counts['studies']:,} of {counts['patients']:,} patients"),
        ("Labels suggested", f"{counts['ok']:,}"),
        ("Quarantined", f"{counts['quarantined']:,}"),
        *_asked(counts.get("engine") or {}),
    ]
    parts: list[str | Table] = [table(("", ""), rows, caption="How the reports were read", n_texts=2)]
    if counts["quarantined"]:
        note = (
            "quarantine.jsonl in the curation folder says of every quarantined report why; it is no part of this page."
        )
        parts.append(paragraph(note, is_note=True))
    by_label = counts["by_label"]
    ordered = sorted(REVEAL_LABELS, key=lambda label: -by_label[label])
    parts.append(
        table(
            ("Label", "Studies"),
            [(label, share(by_label[label], counts["ok"])) for label in ordered],
            caption=f"Suggested labels of {counts['ok']:,} studies",
        )
    )
    parts.append(Table("suggested", ("label", "studies"), tuple((label, by_label[label]) for label in ordered)))
    return section(key, title, source, *parts)


def _asked(counts: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """What a model was asked; of other engines their counts as they are."""
    names = {
        "answers": "Answers used", "refused_answers": "Answers refused",
        "unanswered": "Reports without an answer",
        "answers_without_usage": "Answers without a count of tokens",
        "tokens_in": "Tokens in", "tokens_out": "Tokens out", "cost": "Cost, in the currency of the prices",
        "served_models": "Models that answered",
    }  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for name, value in counts.items():
        shown = value
        if isinstance(value, list):
            shown = ", ".join(str(one) for one in value) or "not said"
        elif isinstance(value, int):
            shown = f"{value:,}"
        elif value is None:
            shown = "unknown: no prices were given" if name == "cost" else "not said"
        rows.append((names.get(name, name.replace("_", " ").capitalize()), shown))
    return rows


def draw_refresh(curated: Curated) -> Section | None:
    """What changed since the version before; None if this curation is no refresh."""
    counts = curated.counts("refresh")
    if counts is None and curated.states["refresh"].status == "open":
        return None
    key, title, source = "refresh", "What this version changes", "Not in the paper"
    if counts is None or curated.diff is None:
        return section(key, title, source, message("Not done.", curated.missing("refresh")))
    corrected = curated.diff["corrected"]
    by_half = {half: [one for one in corrected if one["half"] == half] for half in HALVES}
    rows = [
        ("Labels corrected", *(len(by_half[half]) for half in HALVES)),
        ("Studies added", *(counts["added"][half] for half in HALVES)),
        ("Holdout of before, released now", counts["retired"], -counts["retired"] if counts["retired"] else 0),
        ("Studies now", *(counts["studies"][half] for half in HALVES)),
    ]
    left_out = (
        f"Left out of what was offered: {counts['left_out_released_before']:,} studies of patients who were released"
        f" before, {counts['left_out_in_holdout']:,} of patients in the holdout."
    )
    parts: list[str | Table] = [
        paragraph(f"Version {counts['version']} follows {counts['version_before']}."),
        table(("What", "Released", "Holdout"), rows, caption="Changes per half"),
        paragraph(left_out),
        Table("changes", ("what", *HALVES), tuple(rows)),
    ]
    if corrected:
        lines = [
            (one["study_id"], one["half"], shown_labels(one["labels_before"]), shown_labels(one["labels"]), one["why"])
            for one in corrected
        ]
        heads = ("Study", "Half", "Labels before", "Labels now", "Why")
        parts.append(table(heads, lines, caption=f"{len(lines):,} studies with corrected labels", n_texts=5))
        parts.append(Table("corrected", tuple(head.lower() for head in heads), tuple(lines)))
    return section(key, title, source, *parts)
