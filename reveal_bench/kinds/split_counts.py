"""Counts over the rows of one split, made when rows are written or read, for the manifest, the card and the report.

Each kind adds counts that only its rows have, and their words for the card:
:meth:`reveal_bench.kinds.parts.Table.tally`. Coded values are counted by their codes. An image that is shown by several
tasks is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from reveal_bench.kinds.rows import Row
from reveal_bench.printed_tables import PrintedTable

ACQUISITION = ("manufacturer", "model", "detector_type", "kvp")
"""Facts of an image that are counted, if its kind of benchmark has them."""
LONG_VOCABULARY = 20
"""Largest number of findings for which the card has a row for every finding, including those that never occur."""


@dataclass
class Tally:
    """Counts of a split that every kind of benchmark has.

    Attributes
    ----------
    items : name of the rows, such as "images"
    agreement_heads : columns of the card's table of agreement between readers
    vocabularies : demographic column -> names of its codes, the last one "unknown"
    n_rows, n_asked : number of rows, and of the questions they ask
    patients, studies, images : ids
    positives : per finding (code), or category of tasks, rows that have it
    positive_views : per (finding, view), codes of two findings, rows that have both; only if a row is one image
    unlabelled : per finding, rows in which it is labelled neither present nor absent
    pairs : per (finding, finding) with the lower code first, rows that have both
    views, spacings : per image, code of its view and of the source of its spacing
    sizes : (width, height) of every image
    acquisition : per name in ACQUISITION, the values of the images, None if unknown
    demographics : per name in `vocabularies`, rows per code
    extras : config of an extra table -> its rows that belong to this split
    """

    items: ClassVar[str]
    agreement_heads: ClassVar[tuple[str, ...]] = ()
    vocabularies: ClassVar[Mapping[str, Sequence[str]]] = {}

    n_rows: int = 0
    n_asked: int = 0
    patients: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)
    positives: Counter[int] = field(default_factory=Counter)
    positive_views: Counter[tuple[int, int]] = field(default_factory=Counter)
    unlabelled: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    views: Counter[int] = field(default_factory=Counter)
    spacings: Counter[int] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    acquisition: dict[str, Counter[object]] = field(default_factory=lambda: {name: Counter() for name in ACQUISITION})
    extras: Counter[str] = field(default_factory=Counter)
    demographics: dict[str, Counter[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Start a count for each demographic of the kind."""
        self.demographics = {name: Counter() for name in self.vocabularies}

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one row and its questions."""
        self.n_rows += 1
        self.n_asked += len(asked)
        self.patients.add(row["patient_id"])
        self.studies.add(row["study_id"])
        for name, counts in self.demographics.items():
            counts[row[name]] += 1
        for facts in self._images_of(row):
            if facts["image_id"] not in self.images:
                self._add_image(facts)

    def add_extra(self, config: str, row: Row) -> None:
        """Count one row of an extra table, such as a rating, that belongs to this split."""
        self.extras[config] += 1

    @property
    def size(self) -> dict[str, int]:
        """The split's entry in the manifest."""
        # The row count is first and, if rows are images, replaces the number of images
        rows = {f"n_{self.items}": self.n_rows}
        images, patients = len(self.images), len(self.patients)
        return {**rows, "n_images": images, "n_patients": patients, "n_asked": self.n_asked, **rows}

    def findings_text(self, findings: Sequence[str]) -> str:
        """Return counts per finding in Markdown; empty without a fixed set of findings."""
        return ""

    def missing(self, findings: Sequence[str]) -> str:
        """Return a clause on facts that are unknown."""
        return f"nothing is missing in {self.n_rows:,} {self.items}"

    def agreement_cells(self) -> list[object]:
        """Return the cells under `agreement_heads`; empty if nothing is known of agreement."""
        return []

    def categories(self) -> dict[str, object]:
        """Return topic or need of tasks -> number of tasks, or None if it is unknown for all tasks."""
        return {}

    def ratings_text(self) -> str:
        """Return readers' ratings in Markdown; empty without ratings."""
        return ""

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return ()

    def _add_image(self, facts: Mapping[str, object]) -> None:
        self.images.add(str(facts["image_id"]))
        self.views[facts["view"]] += 1  # type: ignore[index]
        self.spacings[facts["spacing_source"]] += 1  # type: ignore[index]
        self.sizes[facts["width"], facts["height"]] += 1  # type: ignore[index]
        for name in ACQUISITION:
            if name in facts:
                self.acquisition[name][facts[name]] += 1


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown; whole numbers with commas."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return PrintedTable(heads, cells).to_markdown(escape=str)


def mean_score(scores: Counter[int]) -> str:
    """Return the mean and the number of scores in words."""
    n = sum(scores.values())
    return f"{sum(score * count for score, count in scores.items()) / n:.2f} (n = {n:,})" if n else "not scored"
