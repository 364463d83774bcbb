"""Curation report sections on inter-reader agreement, on labels and on rubric scores.

Label agreement has the pooled kappa, and tables like S3 (labels) and S4 (readers) of paper 004. Agreement of two
readers on rubric scores has the format of Table 3 in paper 001.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reveal_bench.kinds.tasks.records import Rating, rating_array
from reveal_bench.metrics.estimates import POOLED
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reports.curation_data import Curated
from reveal_bench.reports.figures import ForestRow, forest
from reveal_bench.reports.page import Csv, Note, PageTable, Part, Section, Text, section
from reveal_bench.reports.rubric import agreement_table, compare_readers
from reveal_bench.reports.style import Illustration, interval, number, percent

SOURCE = "Section 4.2, Tables S3 and S4 of paper 004; verbal categories of kappa after Landis and Koch (1977)"
WAYS = {
    "two_categories": "“agree all” or not, majority of all readers (as in the paper)",
    "two_categories_against_others": "“agree all” or not, majority of the others",
    "three_categories": "three answers, majority of all readers",
    "three_categories_against_others": "three answers, majority of the others",
}
_WORDS = ((0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"))


def draw_agreement(curated: Curated) -> Section:
    """Return the section on label agreement, which only maintainers may see."""
    key, title = "agreement", "Agreement of the readers"
    agreement = curated.agreement
    if agreement is None:
        return section(key, title, SOURCE, Note("Not done.", curated.missing("consensus")))
    parts: list[Part] = [kappa_sentence(agreement), kappa_table(agreement), share_table(agreement)]
    lists = agreement["counts"]
    parts.append(Text(
        f"{lists['with_majority_list']:,} of {lists['studies']:,} studies have a majority list of labels; in"
        f" {lists['majority_differs_from_suggested']:,} of them the majority list differs from the suggested one."
    ))  # fmt: skip
    labels = _sorted(agreement["labels"])
    parts += [forest_of_labels(labels), _label_table(labels), _label_file(labels), *_readers(agreement["readers"])]
    return section(key, title, SOURCE, *parts)


def kappa_sentence(agreement: Mapping[str, Any]) -> Text:
    """Return a sentence on the pooled kappa and its interval."""
    pooled = agreement["answers"]["two_categories"]
    if pooled["value"] is None:
        return Text("Cohen’s kappa of readers with the majority is undefined because the answers do not vary.")
    words = f"Cohen’s kappa of a reader with the majority of the study’s readers is {interval(pooled)}: "
    words += f"{landis_koch(pooled['value'])} agreement"
    if pooled["low"] is not None and landis_koch(pooled["low"]) != landis_koch(pooled["value"]):
        words += f"; the lower bound of the interval is {landis_koch(pooled['low'])}"
    words += ". Intervals contain 95% of bootstrap replicates over studies"
    return Text(
        words + ". “No spread” means that all replicates had the same value, so that no interval can be computed."
    )


def landis_koch(kappa: float) -> str:
    """Return the word for a kappa, after Landis and Koch (1977, doi:10.2307/2529310).

    Examples
    --------
    >>> landis_koch(0.622), landis_koch(0.59), landis_koch(-0.1)
    ('substantial', 'moderate', 'poor')
    """
    if kappa < 0:
        return "poor"
    return next((word for end, word in _WORDS if kappa <= end), "almost perfect")


def kappa_table(agreement: Mapping[str, Any]) -> PageTable:
    """Return the table of kappa by four definitions of answers and majority."""
    rows = []
    for key, words in WAYS.items():
        one = agreement["answers"][key]
        word = "" if one["value"] is None else landis_koch(one["value"])
        rows.append((words, interval(one), word, f"{one['n']:,}", f"{one['n_undefined']:,}"))
    heads = ("Compared", "Cohen’s kappa [95% interval]", "Word", "Votes", "Without majority")
    caption = (
        "Kappa of a reader’s vote with the majority of at least two votes: studies with two votes count only for the "
        "majority of all readers"
    )
    return PageTable(heads, rows, caption=caption)


def share_table(agreement: Mapping[str, Any]) -> PageTable:
    """Return a table of studies by the number of readers who agreed to all suggested labels."""
    rows = []
    for one in reversed(agreement["shares"]):
        n_studies = "undefined" if one["value"] is None else f"{round(one['value'] * one['n']):,}"
        rows.append((f"{one['finding']} “agree all”", n_studies, f"{interval(one, 1, scale=100)}%"))
    n = max((one["n"] for one in agreement["shares"]), default=0)
    return PageTable(
        ("Readers", "Studies", "Share [95% interval]"),
        rows,
        caption=f"Agreement with the suggested labels, {n:,} studies",
    )


def forest_of_labels(
    labels: Sequence[Mapping[str, Any]], *, name: str = "agreement_labels", with_ac1: bool = True
) -> Illustration:
    """Return the figure of kappa, and optionally AC1, of every label with intervals."""
    rows = []
    for one in labels:
        own = [one[name] for name in ("kappa", "ac1")[: 1 + with_ac1]]
        label = "All labels" if one["label"] == POOLED else str(one["label"])
        rows.append((label, list(enumerate(map(_estimate, own)))))
    kinds = ("Cohen’s kappa", "Gwet’s AC1") if with_ac1 else ("Cohen’s kappa",)
    n = next((one["kappa"]["n"] for one in labels if one["label"] != POOLED), 0)
    listed = "; ".join(f"{row}: {', '.join(number(e.value) for _, e in own)}" for row, own in rows)
    return Illustration(
        name,
        f"Agreement on each label, {n:,} label lists of readers",
        "Lines: 95% intervals.",
        f"{' and '.join(kinds)} per label with 95% intervals. {listed}.",
        lambda width: forest(rows, width, axis=f"{' or '.join(kinds)} (no unit)", kinds=kinds, ends=_scale(rows)),
    )


def _label_table(labels: Sequence[Mapping[str, Any]]) -> PageTable:
    rows = []
    for one in labels:
        name = "All labels" if one["label"] == POOLED else one["label"]
        ratio = number(one["positive_ratio"]["value"])
        rows.append((name, interval(one["kappa"]), interval(one["ac1"]), ratio))
    n = max((one["positive_ratio"]["n"] for one in labels if one["label"] != POOLED), default=0)
    heads = ("Finding", "Cohen’s kappa", "Gwet’s AC1", "Positive ratio")
    return PageTable(heads, rows, caption=f"As Table S3: agreement per label and its share of the {n:,} majority lists")


def _label_file(labels: Sequence[Mapping[str, Any]]) -> Csv:
    ends = ("value", "low", "high")
    names = ("kappa", "ac1", "positive_ratio")
    heads = ("label", *(f"{name}_{end}".removesuffix("_value") for name in names for end in ends), "n_lists")
    rows = tuple(
        (one["label"], *(one[name][end] for name in names for end in ends), one["kappa"]["n"]) for one in labels
    )
    return Csv.of("agreement_labels", heads, rows)


def _readers(readers: Sequence[Mapping[str, Any]]) -> list[Part]:
    ordered = sorted(readers, key=lambda one: (-one["n_studies"], one["reader"]))
    rows = [
        (one["reader"], f"{one['n_studies']:,}", percent(one["agree_all"]["value"]), interval(one["kappa"]))
        for one in ordered
    ]
    heads = ("Reader", "Studies read", "Agreed to all", "Kappa with the others’ majority")
    marks = [(str(one["reader"]), [(0, _estimate(one["kappa"]))]) for one in ordered]
    total = sum(one["n_studies"] for one in ordered)
    drawing = Illustration(
        "agreement_readers",
        f"Kappa of each reader with the majority of the others, {len(ordered):,} readers, {total:,} readings",
        "Lines: 95% intervals.",
        "Kappa per reader with 95% intervals. "
        + "; ".join(f"{reader}: {number(own[0][1].value)}" for reader, own in marks)
        + ".",
        lambda width: forest(marks, width, axis="Cohen’s kappa (no unit)", ends=_scale(marks)),
    )
    file = Csv.of(
        "agreement_readers",
        ("reader", "studies", "agree_all", "kappa", "kappa_low", "kappa_high", "n_compared"),
        tuple(
            (one["reader"], one["n_studies"], one["agree_all"]["value"], *(one["kappa"][end] for end in
             ("value", "low", "high", "n")))
            for one in ordered
        ),
    )  # fmt: skip
    caption = (
        f"As Table S4: studies per reader, {total:,} readings; kappa leaves the reader’s own vote out of the majority"
    )
    return [drawing, PageTable(heads, rows, caption=caption), file]


def _sorted(labels: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the row of all labels together, then the labels in decreasing frequency, as in Table S3."""
    together = [one for one in labels if one["label"] == POOLED]
    others = [one for one in labels if one["label"] != POOLED]
    return together + sorted(others, key=lambda one: -(one["positive_ratio"]["value"] or 0.0))


def _scale(rows: Sequence[ForestRow]) -> tuple[float, float]:
    """Return the bounds of an axis: 0, or a round number below a negative minimum, and 1."""
    lowest = min([0.0, *(end for _, own in rows for _, e in own for end in (e.value, e.low) if not np.isnan(end))])
    return next(end for end in (0.0, -0.2, -0.4, -0.6, -0.8, -1.0) if end <= lowest or end == -1.0), 1.0


def _estimate(one: Mapping[str, Any]) -> Estimate:
    value, low, high = (np.nan if one[name] is None else float(one[name]) for name in ("value", "low", "high"))
    return Estimate(value, low, high)


def draw_rubric(ratings: Sequence[Rating]) -> Section:
    """Return the section on rubric scores, comparing every reader with the one who rated the most answers."""
    counts = Counter(one.reader for one in ratings)
    readers = sorted(counts, key=lambda reader: (-counts[reader], reader))
    answers = sorted({(one.task_id, one.model) for one in ratings})
    scores = {reader: rating_array(ratings, reader=reader, answers=answers) for reader in readers}
    pairs = [(readers[0], other, np.stack([scores[readers[0]], scores[other]])) for other in readers[1:]]
    records = [record for pair in pairs for record in compare_readers(*pair)]
    heads = ("first", "second", "criterion", "kappa", "mad", "mean_first", "sd_first", "mean_second", "sd_second", "n")
    columns = ("cohen_kappa_quadratic", "mean_absolute_difference", "mean_a", "sd_a", "mean_b", "sd_b")
    rows = [
        (one["reader_a"], one["reader_b"], one["criterion"], *(round(one[name], 6) for name in columns), one["n"])
        for one in records
    ]
    file = Csv.of("rubric", heads, rows)
    parts: list[Part] = [agreement_table("rubric", records, file.text)]
    if len(readers) < 2:
        parts = [Text("Only one reader rated answers, so agreement is undefined."), file]
    return section("rubric", "Rubric scores of two readers", "As Table 3 of paper 001 (ReXecution)", *parts)
