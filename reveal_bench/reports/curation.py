"""Last curation step: report all finished steps with the tables and figures of paper 004.

``report/index.html`` is for the maintainers because it shows label counts of the holdout. ``report/public.html`` may be
published. The same folder has the figures of ``index.html`` as SVG and its numbers as CSV. No step reads the report.
The report is rewritten whenever anything has changed, and obsolete figures are removed. If the curation folder has
``ratings.csv``, the report adds Table 3 of paper 001.

What the public page withholds
------------------------------
About the holdout, the page shows the number of studies, and demographics and acquisition in coarse bands. Nothing is
shown about holdout labels. The page also omits numbers that would reveal holdout labels together with the released
half, such as totals of both halves by label, by number of labels or by less common findings, standardized differences,
and criterion values of the draws. No study, patient or reader is named. Counts below :data:`SMALL` studies of a half
are hidden: rare values are merged into "others". If "others" still has fewer studies, the next rarest value joins it.
Kappas of single labels cover all studies that were read, holdout included. Only labels with at least :data:`SMALL`
released studies have a kappa, in alphabetical order, because any other selection or order would reveal holdout counts.
From the table of facts, only demographics and :data:`ACQUISITION` are shown because other columns may name a physician,
a site or a day. If a model is given by a path, only the last component is shown.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from reveal_bench.curation.folder import CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import HALVES
from reveal_bench.files import file_sha256
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.reports.curation_agreement import (
    SOURCE,
    draw_agreement,
    draw_rubric,
    forest_of_labels,
    kappa_sentence,
    kappa_table,
    share_table,
)
from reveal_bench.reports.curation_data import RATINGS_NAME, READS, Curated, read_curated
from reveal_bench.reports.curation_halves import (
    TITLES,
    WORDS,
    column_name,
    count_bars,
    draw_balance,
    draw_demographics,
    draw_findings,
    findings_words,
)
from reveal_bench.reports.curation_steps import (
    BEFORE_REFRESH,
    SMALL,
    draw_extraction,
    draw_flow_section,
    draw_refresh,
    draw_steps,
    flow_parts,
)
from reveal_bench.reports.page import (
    Csv,
    Note,
    Page,
    PageTable,
    Part,
    Section,
    TableBlock,
    Text,
    page_files,
    render_page,
    section,
)
from reveal_bench.reports.style import check_extra, interval, share
from reveal_bench.sources.mapping import VOCABULARIES
from reveal_bench.sources.rexecution_files import read_ratings_table

PLACE = "report"
PUBLIC_NAME = "public.html"

LEAST_FOR_BANDS = 50
"""Minimum size of a holdout, in studies, for showing its proportions in bands."""
BANDS = ((0.1, "under 10%"), (0.25, "10 to 25%"), (0.5, "25 to 50%"), (0.75, "50 to 75%"))
ACQUISITION = (
    "manufacturer", "model", "detector_type", "view_position", "kvp", "exposure_mas", "distance_source_to_detector",
    "distance_source_to_patient", "pixel_spacing",
)  # fmt: skip
"""Acquisition columns shown from the table of facts. Case, blanks and underscores in their names are ignored."""
RELEASED, HOLDOUT = HALVES
FEW = f"fewer than {SMALL}"


def report(folder: CurationFolder, *, redo: bool = False, progress: Progress | None = None) -> StepRecord:
    """Write the report of the finished curation steps.

    Parameters
    ----------
    redo : write it again even if it is up to date
    progress : called once, at the end

    Returns
    -------
    StepRecord
        Its counts are `done`, the names of the reported steps, and `files`, the number of files.

    Raises
    ------
    BuildError
        With all problems of ``ratings.csv``.
    ImportError
        Without the extra [report].
    """
    check_extra()
    curated = read_curated(folder)
    done = [step for step, state in curated.states.items() if state.status == "done" and step != "report"]
    ratings = folder.path(RATINGS_NAME)
    files = make_report(curated, ratings if ratings.is_file() else None)

    def work(scratch: Path) -> Mapping[str, Any]:
        (scratch / PLACE).mkdir(exist_ok=True)
        for name, content in files.items():
            (scratch / PLACE / name).write_text(content, encoding="utf-8", newline="")
        if progress is not None:
            progress(len(files), len(files))
        return {"done": done, "files": len(files)}

    before = folder.record("report")
    settings = {"content": _digest(files)}
    reads = sorted({name for step in done for name in READS[step]})
    outside = {"ratings": ratings} if ratings.is_file() else {}
    record = folder.run(
        "report",
        settings,
        work,
        reads=reads,
        files=outside,
        writes=[f"{PLACE}/{name}" for name in files],
        redo=redo or not _is_of(before, settings, {name: folder.path(name) for name in reads} | outside),
    )
    for name in set() if before is None else before.outputs.keys() - record.outputs.keys():
        folder.path(name).unlink(missing_ok=True)
    return record


def make_report(curated: Curated, ratings: Path | None = None) -> dict[str, str]:
    """Return name -> content of every file of the report."""
    page = _page(curated, _sections(curated, ratings))
    files = page_files(page, "index.html", is_flat=True) | {PUBLIC_NAME: public_page(curated)}
    return {name: text if isinstance(text, str) else text.decode("utf-8") for name, text in files.items()}


def _sections(curated: Curated, ratings: Path | None) -> list[Section]:
    sections = [
        draw_steps(curated),
        draw_flow_section(curated),
        draw_extraction(curated),
        draw_agreement(curated),
        draw_demographics(curated),
        draw_balance(curated),
        draw_findings(curated),
    ]
    refreshed = draw_refresh(curated)
    sections += [] if refreshed is None else [refreshed]
    return sections if ratings is None else [*sections, draw_rubric(read_ratings_table(ratings))]


def _page(curated: Curated, sections: list[Section]) -> Page:
    notice = Note(
        "Not for publication.",
        f"This page shows label counts of the holdout. Publish {PUBLIC_NAME} instead.",
        is_warning=True,
    )
    version = f" of version {curated.version}" if curated.version else ""
    lead = f"Curation report{version}, for its maintainers: the tables and figures of paper 004 (REVEAL-CXR)."
    return Page(f"How “{curated.name}” was made", lead, sections, [notice])


def _is_of(record: StepRecord | None, settings: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
    """Return True if a report was made from exactly these inputs."""
    if record is None or record.settings != settings:
        return False
    return record.inputs == {name: file_sha256(path) for name, path in inputs.items()}


def _digest(files: Mapping[str, str]) -> str:
    """Return a hash of the report that changes with its counts and with the program version."""
    return sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


# The page that may be published --------------------------------------------------------------------------------------


def public_page(curated: Curated) -> str:
    """Return the page as HTML."""
    notice = Note(
        "This page shows nothing of the holdout on which a model could be tuned.",
        f"No number here depends on holdout labels; counts below {SMALL} studies of a half are hidden.",
    )
    version = f", version {curated.version}" if curated.version else ""
    sections = [_flow(curated), _extraction(curated), _agreement(curated), _who(curated), _findings(curated)]
    changes = _changes(curated)
    return render_page(
        Page(
            f"How the benchmark “{curated.name}” was made",
            f"Curation report{version}. Figures and tables are as in REVEAL-CXR (paper 004), for this benchmark.",
            [*sections, *([] if changes is None else [changes])],
            [notice],
        )
    )


def shown_values(counts: Mapping[str, int]) -> tuple[list[str], int]:
    """Return values with at least :data:`SMALL` studies, most common first, and the number of studies with other
    values.

    The rarest listed value joins the others until they have no study, at least SMALL studies, or all studies.

    Examples
    --------
    >>> shown_values({"F": 50, "M": 45, "unknown": 5})
    (['F'], 50)
    """
    listed = [value for value, n in counts.items() if n >= SMALL]
    listed.sort(key=lambda value: -counts[value])
    rest = sum(n for n in counts.values() if n < SMALL)
    while 0 < rest < SMALL and listed:
        rest += counts[listed.pop()]
    return listed, rest


def merged_numbers(counts: Mapping[int, int]) -> list[tuple[str, int]]:
    """Return (range of numbers of findings, studies) pairs; neighbours are merged until each has :data:`SMALL` studies.

    Examples
    --------
    >>> merged_numbers({1: 12, 2: 40, 3: 37, 4: 6, 5: 1})
    [('1', 12), ('2', 40), ('3 to 5', 44)]
    """
    groups = [(n, n, counts[n]) for n in sorted(counts)]
    while len(groups) > 1 and any(n < SMALL for *_, n in groups):
        i = min(range(len(groups)), key=lambda i: groups[i][2])
        near = [k for k in (i - 1, i + 1) if 0 <= k < len(groups)]
        k = min(near, key=lambda k: groups[k][2])
        a, b = sorted((i, k))
        groups[a : b + 1] = [(groups[a][0], groups[b][1], groups[a][2] + groups[b][2])]
    return [(str(low) if low == high else f"{low} to {high}", n) for low, high, n in groups]


def band(n: int, of: int) -> str:
    """Return a coarse band, such as "75% or more", for the proportion `n` / `of` of the holdout."""
    if of < LEAST_FOR_BANDS:
        return "not shown"
    return next((words for end, words in BANDS if n / of < end), "75% or more")


def _flow(curated: Curated) -> Section:
    counts = {step: curated.counts(step) for step in BEFORE_REFRESH}
    parts = [part for part in flow_parts(counts, is_public=True) if not isinstance(part, Csv)]
    return section("flow", "Flow of studies", "As Figure 1 of paper 004 (REVEAL-CXR)", *parts)


def _extraction(curated: Curated) -> Section:
    key, title, source = "extraction", "Labels extracted from reports", "Section 2.1 of paper 004"
    counts = curated.counts("extract")
    if counts is None:
        return section(
            key,
            title,
            source,
            Note("Not done here.", "The labels were suggested in another curation, or are still missing."),
        )
    engine = str(curated.settings("extract").get("engine", ""))
    read = (
        "Labels were supplied with the studies"
        if engine == "given"
        else f"Labels were extracted from the reports by {_without_path(engine)}"
    )
    words = f"{read}: {counts['ok']:,} of {counts['studies']:,} studies have suggested labels, or none of the twelve."
    return section(key, title, source, Text(words))


def _without_path(engine: str) -> str:
    """Return an engine's signature; a model path is shortened to its last component, owner/name is not."""
    model, bar, rest = engine.rpartition("|calls:")
    if not bar or re.fullmatch(r"[^/\\.~][^/\\:]*(?:/[^/\\]+)?", model):
        return engine
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1] + bar + rest


def _agreement(curated: Curated) -> Section:
    key, title = "agreement", "Agreement of the readers"
    agreement = curated.agreement
    if agreement is None:
        return section(key, title, SOURCE, Note("Not done here.", "This curation has no votes so far."))
    parts: list[Part] = [kappa_sentence(agreement), kappa_table(agreement), share_table(agreement)]
    parts += _labels(curated, agreement["labels"])
    ordered = sorted(agreement["readers"], key=lambda one: (-one["n_studies"], one["reader"]))
    rows = [
        (f"Reader {i}", f"{one['n_studies']:,}", interval(one["kappa"], 2)) for i, one in enumerate(ordered, start=1)
    ]
    heads = ("Reader", "Studies read", "Kappa with the others’ majority")
    parts.append(PageTable(heads, rows, caption="As Table S4: studies per reader, most studies first"))
    return section(key, title, SOURCE, *parts)


def _labels(curated: Curated, labels: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return a table of kappa per label, for labels with at least :data:`SMALL` released studies."""
    released = curated.prevalence(RELEASED)
    shown_labels = [
        one for one in labels if released.get(one["label"], 0) >= SMALL and one["kappa"]["value"] is not None
    ]
    if not shown_labels:
        return [
            Text(
                f"Agreement on a single label is shown from {SMALL} released studies with the label on: no label has "
                "so many."
            )
        ]
    rows = [(one["label"], interval(one["kappa"], 2)) for one in shown_labels]
    caption = (
        f"As Table S3: labels with at least {SMALL} released studies; kappa is computed on all studies that were read"
    )
    drawing = forest_of_labels(shown_labels, name="agreement_labels", with_ac1=False)
    return [drawing, PageTable(("Finding", "Cohen’s kappa"), rows, caption=caption)]


def _who(curated: Curated) -> Section:
    """Return Tables 1 and S2 with counts for the released half and bands for the holdout."""
    key, title, source = (
        "halves",
        "Demographics and acquisition of the two halves",
        "As Tables 1 and S2 of paper 004, the holdout in bands",
    )
    if curated.placed is None:
        return section(key, title, source, Note("Not done.", "The studies have not been divided into halves yet."))
    sizes = {half: len(curated.half(half)) for half in HALVES}
    parts: list[Part] = [Text(f"Released: {sizes[RELEASED]:,} studies. Holdout: {sizes[HOLDOUT]:,} studies.")]
    blocks = []
    for name in curated.demographics:
        counts = [curated.words(name, half) for half in HALVES]
        blocks.append(_block(TITLES[name], counts[0], counts[1], sizes))
    balance = curated.balance or {"facts": (), "rule": None}
    facts = [one for one in balance["facts"] if one["name"] not in VOCABULARIES]
    shown_facts = [one for one in facts if _folded(one["name"]) in map(_folded, ACQUISITION)]
    for one in shown_facts:
        counts = [{_value(two["category"]): int(two[half]) for two in one["categories"]} for half in HALVES]
        blocks.append(_block(column_name(one["name"]), counts[0], counts[1], sizes))
    if blocks:
        parts.append(TableBlock("", blocks))
    elif not facts:
        parts.append(Note("No facts about patients and acquisition.", "The split was made without such a table."))
    n_left_out = len(facts) - len(shown_facts)
    if n_left_out:
        which = "1 other column" if n_left_out == 1 else f"{n_left_out:,} other columns"
        parts.append(Text(f"{which} of the table of facts: omitted from this page.", is_note=True))
    if balance["rule"] is not None:
        parts.append(Text(_rule(balance)))
    return section(key, title, source, *parts)


def _folded(name: str) -> str:
    return re.sub(r"[\s_]", "", name.casefold())


def _block(name: str, released: Mapping[str, int], holdout: Mapping[str, int], sizes: Mapping[str, int]) -> PageTable:
    values, rest = shown_values(released)
    rows = [
        (WORDS.get(value, value), share(released[value], sizes[RELEASED]), band(holdout[value], sizes[HOLDOUT]))
        for value in values
    ]
    if rest:
        n_others = sum(n for value, n in holdout.items() if value not in values)
        of = share(rest, sizes[RELEASED]) if rest >= SMALL else FEW
        rows.append(("all others" if values else "any", of, band(n_others, sizes[HOLDOUT])))
    return PageTable((name, "Released", "Holdout"), rows, caption=name, is_caption_shown=False)


def _rule(balance: Mapping[str, Any]) -> str:
    """Return the rule of the split and the number of significant tests; p values would reveal too much."""
    tested = [one["test"]["p_value"] for one in balance["facts"] if one["test"]["p_value"] is not None]
    below = sum(p < 0.05 for p in tested)
    rule = balance["rule"]
    of_many = f"the best of {rule['best_of']:,} random draws" if rule["best_of"] > 1 else "one random draw"
    words = f"The halves are {of_many}, by patient; the rule was fixed beforehand."
    if tested:
        words += f" {below:,} of {len(tested):,} characteristics differ between the halves with a p value below 0.05."
    return words


def _findings(curated: Curated) -> Section:
    key, title = "findings", "Findings of the released half"
    source = "As Figures 3 and 4 of paper 004, without the holdout"
    own = curated.half(RELEASED)
    if curated.placed is None or not own:
        return section(key, title, source, Note("Not done.", "The released half does not exist yet."))
    counts = curated.prevalence(RELEASED)
    ordered = sorted(REVEAL_LABELS, key=lambda label: -(counts[label] if counts[label] >= SMALL else 0))
    shown_counts = {label: counts[label] if counts[label] >= SMALL else None for label in ordered}
    kinds = [f"Released, n = {len(own):,}"]
    prevalence = count_bars(
        "prevalence",
        "Released studies with each finding",
        "As Figure 3 of paper 004.",
        [(label, (n,)) for label, n in shown_counts.items()],
        kinds,
        hidden=FEW,
    )
    groups = merged_numbers(Counter(len(one.labels) for one in own))
    per_study = count_bars(
        "findings_per_study",
        "Findings per released study",
        "As Figure 4 of paper 004.",
        [(findings_words(numbers), (n if n >= SMALL else None,)) for numbers, n in groups],
        kinds,
        hidden=FEW,
    )
    return section(key, title, source, prevalence, per_study)


def _changes(curated: Curated) -> Section | None:
    counts = curated.counts("refresh")
    if counts is None:
        return None
    added = ", ".join(f"{counts['added'][half]:,} to the {half} half" for half in HALVES)
    words = (
        f"Version {counts['version']} follows {counts['version_before']}: the labels of {counts['corrected']:,} studies"
        f" were corrected, and studies were added: {added}."
    )
    if counts["retired"]:
        words += f" The previous holdout, {counts['retired']:,} studies, is released now."
    return section("changes", "What this version changes", "Not in the paper", Text(words))


def _value(category: str | None) -> str:
    return "missing" if category is None else category
