"""A mapping to start from: what the columns of a table probably mean. Never used by itself: a person reads and saves
it.

Of all tables near the root the one is taken whose rows fit the studies best. What cannot be told is written as ``???``,
which no builder accepts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.findings import REVEAL_LABELS, canonical_finding
from reveal_bench.sources.dicom_tree import StudyTree
from reveal_bench.sources.mapping import KEY_FACTS, VOCABULARIES, folded
from reveal_bench.sources.source import Problem
from reveal_bench.sources.study_labels import ABSENT, PRESENT, age_of, spelled_labels
from reveal_bench.sources.study_table import TABLE_SUFFIXES, StudyTable, read_table

__all__ = ["OPEN", "Guess", "guess_mapping", "tables_below"]

OPEN = "???"
"""Stands for what a person has to fill in."""

DEPTH, MOST_TABLES, SAMPLE = 3, 200, 400
SEPARATORS = (";", "|", ",", "/")
FEW = 12
"""A column with more different texts than this is not a category."""

_WORDS: dict[str, dict[str, str]] = {
    "sex": {"f": "F", "female": "F", "m": "M", "male": "M"},
    "race": {
        "african american": "Black or African American",
        "black": "Black or African American",
        "asian": "Asian",
        "white": "White",
        "caucasian": "White",
        "other": "Other",
    },
    "patient_class": {"i": "inpatient", "o": "outpatient", "e": "emergency", "emergency room": "emergency"},
    "age_band": {},
}
_UNKNOWN_WORDS = ("", "unknown", "not reported", "not available", "n/a", "na", "u", "unk")
_NAMES = {"sex": r"sex|gender", "race": r"race|ethnic", "patient_class": r"class|setting|in.?patient"}


@dataclass
class Guess:
    """A guess at one table: `content` as YAML data, `n_matched` of `n_studies` studies, notes on what is left open."""

    table: StudyTable
    content: dict[str, Any]
    n_matched: int
    n_studies: int
    has_labels: bool
    notes: list[str] = field(default_factory=list)

    @property
    def rank(self) -> tuple[bool, float, int]:
        """The larger the better."""
        share = self.n_matched / max(self.n_studies, 1)
        return self.has_labels, round(share, 2), len(self.content) + len(self.content.get("demographics", ()))

    @property
    def text(self) -> str:
        """The mapping, to be saved and corrected."""
        import yaml

        head = [
            f"# Guessed from {self.table.file}: read every line before you use it.",
            *(f"# {n}" for n in self.notes),
        ]
        return "\n".join(head) + "\n" + yaml.safe_dump(self.content, sort_keys=False, allow_unicode=True, width=110)


def tables_below(root: Path) -> Iterator[Path]:
    """Files at or near `root` that may be a table of studies, the nearest first."""
    found = []
    for folder, subfolders, names in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        subfolders[:] = sorted(n for n in subfolders if not n.startswith(".")) if depth < DEPTH else []
        found += [
            (depth, Path(folder, name))
            for name in sorted(names)
            if not name.startswith((".", "~")) and name.lower().endswith(TABLE_SUFFIXES)
        ]
    yield from (path for _, path in sorted(found, key=lambda entry: entry[0])[:MOST_TABLES])


def guess_mapping(root: Path, tree: StudyTree) -> Guess | None:
    """The best guess at what a table below `root` says of the studies; None if no table matches any."""
    guesses = []
    for path in tables_below(root):
        problems: list[Problem] = []
        try:
            table = read_table(path, path.relative_to(root).as_posix(), problems)
        except ImportError:
            continue
        if table is not None and table.rows:
            guess = _guess(table, tree)
            if guess is not None:
                guesses.append(guess)
    if not guesses:
        return None
    best = max(guesses, key=lambda guess: guess.rank)
    others = [guess.table.file for guess in guesses if guess is not best]
    if others:
        best.notes.append(f"Other tables that match studies: {', '.join(others)}")
    return best


def _guess(table: StudyTable, tree: StudyTree) -> Guess | None:
    cells = {column: [row.text(column) for row in table.rows] for column in table.columns}
    key = _study_key(cells, tree)
    if key is None:
        return None
    column, fact, n_matched = key
    content: dict[str, Any] = {"table": table.file, "study_key": {"column": column, "matches": fact}}
    rest = {name: texts for name, texts in cells.items() if name != column}
    labels, notes, used = _labels(table, rest)
    content["labels"] = labels
    rest = {name: texts for name, texts in rest.items() if name not in used}
    agreement = _agreement(rest)
    if agreement is not None:
        content["agreement"] = agreement
        rest.pop(agreement["column"])
    demographics = _demographics(rest)
    if demographics:
        content["demographics"] = demographics
    if n_matched < len(tree.studies):
        notes.append(f"{column} matches {n_matched:,} of {len(tree.studies):,} studies by {fact}")
    if len(set(cells[column])) < len(cells[column]):
        notes.append(f"{column} has the same value in several rows: a study must stand in one")
        n_matched = 0
    return Guess(table, content, n_matched, len(tree.studies), bool(used), notes)


def _study_key(cells: dict[str, list[str]], tree: StudyTree) -> tuple[str, str, int] | None:
    """The column and the fact that match most studies."""
    best: tuple[int, str, str] | None = None
    for fact in KEY_FACTS:
        by_key: dict[str, str] = {}
        shared: set[str] = set()
        for study in tree.studies.values():
            for key in study.keys(fact):
                if by_key.setdefault(key, study.uid) != study.uid:
                    shared.add(key)
        for column, texts in cells.items():
            matched = len({by_key[text] for text in texts if text in by_key and text not in shared})
            if matched and (best is None or matched > best[0]):
                best = (matched, column, fact)
    return None if best is None else (best[1], best[2], best[0])


def _labels(table: StudyTable, cells: dict[str, list[str]]) -> tuple[dict[str, Any], list[str], set[str]]:
    """How labels are given, notes, and the columns that give them."""
    wide = {}
    for column, texts in cells.items():
        label = canonical_finding(column, REVEAL_LABELS)
        if label is not None and {folded(text) for text in texts[:SAMPLE]} <= PRESENT | ABSENT | {""}:
            wide[column] = label
    if len(wide) > 1:
        missing = [label for label in REVEAL_LABELS if label not in wide.values()]
        notes = [f"No column for {', '.join(missing)}: never present"] if missing else []
        return {"wide": wide}, notes, set(wide)
    for column in cells:
        values = [row.cells[column] for row in table.rows[:SAMPLE]]
        lists = [value for value in values if isinstance(value, list) or value.startswith("[")]
        if (
            lists
            and all(isinstance(value, list) for value in lists)
            and _share(v for value in lists for v in value) > 0.6
        ):
            return {"json": {"column": column}}, [], {column}
        for separator in SEPARATORS:
            entries = [entry.strip() for value in values if isinstance(value, str) for entry in value.split(separator)]
            if any(entries) and _share(entry for entry in entries if entry) > 0.6:
                return {"list": {"column": column, "separator": separator}}, [], {column}
    return {"list": {"column": OPEN, "separator": ";"}}, ["No column of labels was found"], set()


def _share(entries: Iterator[Any]) -> float:
    """How many of `entries` are labels or say that there is none."""
    listed = list(entries)
    _, unknown = spelled_labels(listed)
    return 1 - len(unknown) / len(listed) if listed else 0.0


def _categories(texts: list[str]) -> list[str] | None:
    """The different texts of a column, if they are few."""
    different = sorted(set(texts) - {""})
    return different if 0 < len(different) <= FEW else None


def _agreement(cells: dict[str, list[str]]) -> dict[str, Any] | None:
    for column, texts in cells.items():
        different = _categories(texts)
        if different and re.search(r"agree|consensus", column, re.IGNORECASE) and len(different) <= 4:
            return {"column": column, "values": {text: _agreement_of(text) for text in different}}
    return None


def _agreement_of(text: str) -> str:
    """The first number decides: "2 of 3", "all three", "Agree All: 3/3"."""
    numbers = re.findall(r"\d+|two|three|unanimous", folded(text))
    meaning = {"2": "two_of_three", "two": "two_of_three"}
    meaning |= dict.fromkeys(("3", "three", "unanimous"), "three_of_three")
    return meaning.get(numbers[0], OPEN) if numbers else OPEN


def _demographics(cells: dict[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, texts in cells.items():
        if re.search(r"\bage|age\b|age_", column, re.IGNORECASE) and not {"age", "age_band"} & found.keys():
            given = [text for text in set(texts) if folded(text) not in _UNKNOWN_WORDS]
            if given and all(text in VOCABULARIES["age_band"] for text in given):
                found["age_band"] = {"column": column}
            elif given and all(age_of(text) is not None for text in given):
                found["age"] = {"column": column}
            continue
        for name, pattern in _NAMES.items():
            different = _categories(texts)
            if name not in found and different and re.search(pattern, column, re.IGNORECASE):
                values = _values(different, name)
                found[name] = {"column": column, **({"values": values} if values else {})}
                break
    return found


def _values(texts: list[str], name: str) -> dict[str, str | None]:
    """What the texts mean that are not our own words; null for unknown."""
    own = {folded(word) for word in VOCABULARIES[name]}
    return {
        text: None if folded(text) in _UNKNOWN_WORDS else _WORDS[name].get(folded(text), OPEN)
        for text in texts
        if folded(text) not in own
    }
