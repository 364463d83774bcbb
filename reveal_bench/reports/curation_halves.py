"""Curation report sections that compare the released half with the holdout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reveal_bench.curation.tables import HALVES
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.metrics.intervals import UNDEFINED, Estimate
from reveal_bench.reports.curation_data import Curated
from reveal_bench.reports.figures import ValueBar, bars, forest
from reveal_bench.reports.page import Csv, Note, PageTable, Part, Section, TableBlock, Text, section
from reveal_bench.reports.style import Illustration, number, share
from reveal_bench.sources.mapping import VOCABULARIES
from reveal_bench.words import NBSP, count_text, p_text

RELEASED, HOLDOUT = HALVES
KINDS = ("Released", "Holdout")
TITLES = {
    "age_band": "Age", "sex": "Sex", "race": "Race", "patient_class": "Patient class", "kvp": "KVP",
    "exposure_mas": "Exposure (mAs)",
}  # fmt: skip
TESTS = {"chi-square": "chi-square", "fisher": "Fisher’s exact", "fisher, simulated": "Fisher’s exact, simulated"}
WORDS = {"F": "Female", "M": "Male"}
USUAL = 0.1
"""Standardized differences below this value are usually called small (Austin 2009). No step decides by it."""


def draw_demographics(curated: Curated) -> Section:
    """Return the section with Table 1 (demographics)."""
    key, title, source = "demographics", "Demographics of the two halves", "As Table 1 of paper 004"
    if curated.placed is None:
        return section(key, title, source, Note("Not done.", _no_halves(curated)))
    if not curated.demographics:
        why = "The table of facts was missing, or lacked age_band, sex, race and patient_class."
        return section(key, title, source, Note("No facts about the patients.", why))
    sizes = {half: len(curated.half(half)) for half in HALVES}
    tests = {one["name"]: one for one in (curated.balance or {}).get("facts", ())}
    rows: list[tuple[object, ...]] = []
    plain: list[tuple[object, ...]] = []
    groups, inside = [], []
    for name in curated.demographics:
        groups.append(len(rows))
        rows.append((TITLES[name], "", "", "", *_tested(tests.get(name))))
        released, holdout = (curated.words(name, half) for half in HALVES)
        for word in released:
            inside.append(len(rows))
            a, b = released[word], holdout[word]
            total = share(a + b, sum(sizes.values()))
            rows.append((WORDS.get(word, word).capitalize() if name != "race" or word == "unknown" else word,
                         share(a, sizes[RELEASED]), share(b, sizes[HOLDOUT]), total, "", "", ""))  # fmt: skip
            plain.append((name, word, a, b, a + b))
    heads = ("", f"Released, {n_is(sizes[RELEASED])}", f"Holdout, {n_is(sizes[HOLDOUT])}",
             f"Total, {n_is(sum(sizes.values()))}", "Test", "p value", "Std. diff.")  # fmt: skip
    table = PageTable(heads, rows, caption="Studies and their share of the half", groups=groups, inside=inside)
    note = "Tests and standardized differences are explained below Table S2." if tests else (
        "Not tested in this version; see the balance of its halves below."
    )  # fmt: skip
    file = Csv.of("demographics", ("characteristic", "category", *HALVES, "total"), tuple(plain))
    return section(key, title, source, table, Text(note, is_note=True), file)


def draw_balance(curated: Curated) -> Section:
    """Return the section with Table S2 (acquisition), the rule of the draw and the standardized differences."""
    key, title, source = "balance", "Acquisition and balance of the halves", "As Table S2 of paper 004, section 3"
    balance = curated.balance
    if balance is None:
        return section(key, title, source, Note("Not done.", _not_balanced(curated)))
    facts = [one for one in balance["facts"] if one["name"] not in VOCABULARIES]
    columns_ = [*balance["facts"], *balance["labels"]]
    parts: list[Part] = [*_rule(balance["rule"]), _summary(balance["counts"]), _love(balance)]
    if facts:
        blocks = [_block(one, balance["counts"]) for one in facts]
        parts.append(TableBlock("Acquisition, value by value", blocks))
    else:
        parts.append(Note("No acquisition data.", "The split was made without a table of facts about acquisition."))
    heads = ("column", "category", *HALVES, "standardized_difference", "test", "p_value", "chi_square_p_value",
             "largest_difference")  # fmt: skip
    rows = [
        (one["name"], "(missing)" if category["category"] is None else category["category"], category[RELEASED],
         category[HOLDOUT], category["standardized_difference"], one["test"]["test"], one["test"]["p_value"],
         one["test"]["chi_square_p_value"], _plain(largest_difference(one)))
        for one in columns_ for category in one["categories"]
    ]  # fmt: skip
    return section(key, title, source, *parts, Csv.of("balance", heads, tuple(rows)))


def draw_findings(curated: Curated) -> Section:
    """Return the section with Figures 3 and 4 (prevalence, findings per study)."""
    key, title = "findings", "Findings in the two halves"
    source = "As Figures 3 and 4 of paper 004"
    if curated.placed is None:
        return section(key, title, source, Note("Not done.", _no_halves(curated)))
    sizes = [len(curated.half(half)) for half in HALVES]
    kinds = [f"{kind}, n = {n:,}" for kind, n in zip(KINDS, sizes, strict=True)]
    released, holdout = (curated.prevalence(half) for half in HALVES)
    ordered = sorted(REVEAL_LABELS, key=lambda label: -(released[label] + holdout[label]))
    prevalence = count_bars(
        "prevalence",
        "Studies with each finding",
        "As Figure 3 of paper 004.",
        [(label, (released[label], holdout[label])) for label in ordered],
        kinds,
    )
    fewer, others = (curated.n_findings(half) for half in HALVES)
    per_study = count_bars(
        "findings_per_study",
        "Findings per study",
        "As Figure 4 of paper 004.",
        [(findings_words(n), (fewer[n], others[n])) for n in fewer],
        kinds,
    )
    table = PageTable(
        ("Finding", "Released", "Holdout", "Total"),
        [(label, share(released[label], sizes[0]), share(holdout[label], sizes[1]),
          share(released[label] + holdout[label], sum(sizes))) for label in ordered],
        caption="Studies with each finding and their share",
    )  # fmt: skip
    counted = Csv.of("prevalence", ("label", *HALVES), tuple((one, released[one], holdout[one]) for one in ordered))
    numbers = Csv.of("findings_per_study", ("findings", *HALVES), tuple((n, fewer[n], others[n]) for n in fewer))
    return section(key, title, source, prevalence, table, per_study, counted, numbers)


def count_bars(
    name: str,
    title: str,
    caption: str,
    rows: Sequence[tuple[str, Sequence[int | None]]],
    kinds: Sequence[str],
    *,
    hidden: str = "",
) -> Illustration:
    """Return a bar chart of study counts with a bar per half in each row; a count of None is shown as `hidden`."""
    bar_rows = [(row, [ValueBar(n, hidden if n is None else f"{n:,}") for n in values]) for row, values in rows]
    listed = "; ".join(f"{row}: {' and '.join(bar.words for bar in values)}" for row, values in bar_rows)
    alt = f"Bars of studies. {' and '.join(kinds)}: {listed}."
    return Illustration(name, title, caption, alt, lambda width: bars(bar_rows, width, axis="Studies", kinds=kinds))


def findings_words(n: int | str) -> str:
    """Return a number or range of findings with its noun."""
    return "1 finding" if str(n) == "1" else f"{n} findings"


def largest_difference(one: Mapping[str, Any]) -> float | None:
    """Return a column's largest absolute standardized difference; infinite if the file omits an infinite value."""
    if one["largest_difference"] is not None:
        return float(one["largest_difference"])
    sizes = {half: sum(category[half] for category in one["categories"]) for half in HALVES}
    for category in one["categories"]:
        released, holdout = (category[half] == sizes[half] > 0 for half in HALVES)
        if (released and category[HOLDOUT] == 0 < sizes[HOLDOUT]) or (
            holdout and category[RELEASED] == 0 < sizes[RELEASED]
        ):
            return math.inf
    return None


def p_value(value: float | None) -> str:
    """Return a p value with three digits."""
    if value is None:
        return "not tested"
    return p_text(value)


def column_name(name: str) -> str:
    """Return the heading for a column of the table of facts."""
    words = TITLES.get(name, name.replace("_", " "))
    return words[:1].upper() + words[1:]


def n_is(n: int) -> str:
    """Return text such as n = 100, without line breaks."""
    return f"n = {n:,}".replace(" ", NBSP)


def _no_halves(curated: Curated) -> str:
    return curated.missing("split") if curated.states["refresh"].status == "open" else curated.missing("refresh")


def _not_balanced(curated: Curated) -> str:
    """Return a note on why this version has no balance table."""
    counts = curated.counts("refresh")
    if counts is None or curated.states["split"].status != "open":
        return curated.missing("split")
    added = counts["added"]
    n_added = sum(added.values())
    if counts["retired"]:
        return (
            f"The holdout is the {n_added:,} studies that this version adds, and all others are released: these"
            " halves were neither balanced nor tested."
        )
    words = (
        "This version is a refresh. Studies of the previous version keep their halves. The previous report shows their"
    )
    words += " balance, with the labels of that version."
    if n_added:
        words += (
            f" The {n_added:,} added studies were divided by one random draw ({added[RELEASED]:,} released,"
            f" {added[HOLDOUT]:,} holdout). Neither the added studies nor the present halves were tested."
        ) if min(added.values()) else (
            f" The additions, {count_text(n_added, 'study')} of one patient, went to the"
            " holdout. The present halves were not tested."
        )  # fmt: skip
    return words


def _tested(one: Mapping[str, Any] | None) -> tuple[str, str, str]:
    if one is None:
        return "", "", ""
    return TESTS.get(one["test"]["test"], ""), p_value(one["test"]["p_value"]), _difference(one)


def _difference(one: Mapping[str, Any]) -> str:
    difference = largest_difference(one)
    return "∞" if difference is not None and math.isinf(difference) else number(difference)


def _rule(rule: Mapping[str, Any]) -> list[Part]:
    """Return paragraphs on how the halves were chosen among random draws."""
    values: Sequence[float | None] = rule["values"]
    many = f"{rule['best_of']:,} random draws, " if rule["best_of"] > 1 else "one random draw, "
    words = (
        f"The rule, fixed beforehand: {many}by patient; the best draw by this criterion is taken: {rule['criterion']}. "
        f"Draw {rule['taken']:,} was taken. In this curation folder {rule['draws_looked_at']:,} draws were examined in "
        "all."
    )
    parts: list[Part] = [Text(words)]
    if rule["draws_looked_at"] > rule["best_of"]:
        many = f"{len(rule['history']):,} times, with {rule['draws_looked_at']:,} draws in total"
        parts.append(Note("The split was requested more than once:", f"{many}.", is_warning=True))
    listed = ", ".join("∞ or undefined" if value is None else number(value) for value in values)
    if len(values) > 1:
        parts.append(_draws(values, rule["taken"], listed))
    parts.append(Text(f"Criterion values of the draws, in order: {listed}.", is_note=True))
    rows = tuple((i, value, i == rule["taken"]) for i, value in enumerate(values, start=1))
    return [*parts, Csv.of("draws", ("draw", "largest_difference", "taken"), rows)]


def _draws(values: Sequence[float | None], taken: int, listed: str) -> Illustration:
    """Return a figure of the criterion value of every draw."""
    rows = [
        ("All draws", [(1, _estimate(value)) for value in values if value is not None]),
        ("Taken", [(0, _estimate(values[taken - 1]))]),
    ]
    return Illustration(
        "draws",
        f"The criterion in all {len(values):,} draws",
        f"Draw {taken:,} was taken.",
        f"A mark per draw; number {taken} was taken. Values in order: {listed}.",
        lambda width: forest(rows, width, axis="Largest absolute standardized difference (no unit)"),
    )


def _summary(counts: Mapping[str, Any]) -> Text:
    words = (
        f"{counts['columns_below_0.05']:,} of {counts['columns_tested']:,} tested columns have a p value below 0.05; "
        "the tests do not influence the split. Tables with expected counts of at least 5 are tested by chi-square, "
        "others by Fisher’s exact test, beyond two by two by simulation. A standardized difference is a difference of "
        "proportions (for numeric columns, of means) divided by the pooled standard deviation. The largest one over a "
        "column's categories is shown."
    )
    if counts["studies_without_facts"]:
        words += f" The table of facts lacks {counts['studies_without_facts']:,} studies."
    return Text(words)


def _love(balance: Mapping[str, Any]) -> Illustration:
    """Return a figure of absolute standardized differences, for facts and for labels, each in decreasing order."""

    def size(one: Mapping[str, Any]) -> float:
        value = largest_difference(one)
        return -1.0 if value is None else value

    facts, labels = (sorted(balance[part], key=size, reverse=True) for part in ("facts", "labels"))
    names = {"n_labels": "Number of findings", "n_agree_all": "Readers who agreed to all labels"}
    rows = [(column_name(one["name"]), [(0, _estimate(largest_difference(one)))]) for one in facts]
    rows += [(names.get(one["name"], one["name"]), [(1, _estimate(largest_difference(one)))]) for one in labels]
    finite = [size(one) for one in [*facts, *labels] if math.isfinite(size(one))]
    step = 0.1 if max(finite, default=0) <= 1 else 0.5
    end = max(math.ceil(max(finite, default=0) / step + 0.2), 3) * step
    n = balance["counts"]["studies"]
    sizes = ((row, own[0][1].value) for row, own in rows)
    listed = "; ".join(f"{row}: {'infinite' if value == math.inf else number(value)}" for row, value in sizes)
    return Illustration(
        "balance",
        f"Balance of the two halves, {n:,} studies",
        f"Differences below {USUAL} are usually called small.",
        f"Absolute standardized difference per characteristic and finding. {listed}.",
        lambda width: forest(
            rows,
            width,
            axis="Absolute standardized difference (no unit)",
            kinds=("acquisition, demographics", "findings"),
            ends=(0.0, end),
            rule=(USUAL, f"{USUAL}"),
        ),
    )


def _block(one: Mapping[str, Any], counts: Mapping[str, Any]) -> PageTable:
    """Return a table of counts of one column by value and half."""
    test = one["test"]
    simulated = f" {test['n_simulated']:,} times" if test["n_simulated"] else ""
    if test["test"] == "none":
        caption = f"{column_name(one['name'])}: not tested, because it has one value"
    else:
        caption = f"{column_name(one['name'])}: p = {p_value(test['p_value'])} ({TESTS[test['test']]}{simulated})"
        if test["test"] != "chi-square":
            caption += f", chi-square p = {p_value(test['chi_square_p_value'])}"
    rows = [
        ("missing" if category["category"] is None else category["category"], f"{category[RELEASED]:,}",
         f"{category[HOLDOUT]:,}", number(category["standardized_difference"], 2))
        for category in one["categories"]
    ]  # fmt: skip
    if one["is_number"]:
        means = (number(one["mean_released"], 2), number(one["mean_holdout"], 2))
        rows.append(("mean", *means, number(one["standardized_mean_difference"], 2)))
    sizes = [f"{counts[half]['studies']:,}" for half in HALVES]
    heads = ("Value", f"Released ({sizes[0]})", f"Holdout ({sizes[1]})", "Std. diff.")
    return PageTable(heads, rows, caption=caption)


def _estimate(value: float | None) -> Estimate:
    return UNDEFINED if value is None else Estimate(value)


def _plain(value: float | None) -> object:
    return "infinite" if value is not None and math.isinf(value) else value
