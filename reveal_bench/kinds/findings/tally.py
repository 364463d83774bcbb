"""What is counted over the rows of a benchmark of findings, of which each is a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from reveal_bench.kinds.findings.records import AGE_BANDS, AGREEMENTS, PATIENT_CLASSES, RACES, SEXES
from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tally import Tally, markdown_table, percent

__all__ = ["FindingsTally"]


@dataclass
class FindingsTally(Tally):
    """A row is a study with one or more images.

    Attributes
    ----------
    n_labels, n_images_per_study : how many studies have so many labels, or images
    agreement : studies per value, None where it is unknown
    """

    items: ClassVar[str] = "studies"
    agreement_heads: ClassVar[tuple[str, ...]] = (*(name.replace("_", " ") for name in AGREEMENTS), "unknown")
    vocabularies: ClassVar[Mapping[str, Sequence[str]]] = {
        "age_band": AGE_BANDS,
        "sex": SEXES,
        "race": RACES,
        "patient_class": PATIENT_CLASSES,
    }

    n_labels: Counter[int] = field(default_factory=Counter)
    n_images_per_study: Counter[int] = field(default_factory=Counter)
    agreement: Counter[int | None] = field(default_factory=Counter)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one study and the labels asked of it."""
        super().add(row, asked)
        labels = sorted(row["labels"])
        self.positives.update(labels)
        self.pairs.update(combinations(labels, 2))
        self.n_labels[len(labels)] += 1
        self.n_images_per_study[len(row["image_ids"])] += 1
        self.agreement[row["agreement"]] += 1

    def findings_text(self, findings: Sequence[str]) -> str:
        """Studies per label, and labels and images per study."""
        rows = [[name, self.positives[i], percent(self.positives[i], self.n_rows)] for i, name in enumerate(findings)]
        labels = ", ".join(f"{n} in {count:,}" for n, count in sorted(self.n_labels.items()))
        images = ", ".join(f"{n} in {count:,}" for n, count in sorted(self.n_images_per_study.items()))
        table = markdown_table(["label", "studies", "of studies"], rows)
        return f"{table}\n\nLabels per study: {labels}. Images per study: {images}."

    def missing(self, findings: Sequence[str]) -> str:
        """Studies without a known agreement or demographics, and labels that no study has."""
        never = [name for i, name in enumerate(findings) if self.positives[i] == 0]
        unknown = {"agreement": self.agreement[None]}
        unknown |= {name: self.demographics[name][len(values) - 1] for name, values in self.vocabularies.items()}
        parts = [f"{name.replace('_', ' ')} unknown in {n:,} of {self.n_rows:,}" for name, n in unknown.items() if n]
        parts += [f"no study with {', '.join(never)}"] if never else []
        return "; ".join(parts) or super().missing(findings)

    def agreement_cells(self) -> list[object]:
        """Studies per agreement."""
        return [*(self.agreement[code] for code in range(len(AGREEMENTS))), self.agreement[None]]

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return list(row["image_facts"])
