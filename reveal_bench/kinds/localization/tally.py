"""What is counted over the rows of a localization benchmark, of which each is an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tally import LONG_VOCABULARY, Tally, markdown_table, percent

__all__ = ["LocalizationTally"]


@dataclass
class LocalizationTally(Tally):
    """A row is an image.

    Attributes
    ----------
    drawn, masks : per (finding, reader), images with a non-empty drawing, and those of them with a mask, not just boxes
    instances : per finding, contours or boxes of the ground truth
    points, not_drawn : per finding, images with a point, and images where it is present but was not drawn
    readers_per_image : how many individual readers drew something -> images
    reader_ids : the individual readers
    """

    items: ClassVar[str] = "images"
    agreement_heads: ClassVar[tuple[str, ...]] = (
        "individual readers",
        "readers who drew something on how many images",
    )

    drawn: Counter[tuple[int, str]] = field(default_factory=Counter)
    masks: Counter[tuple[int, str]] = field(default_factory=Counter)
    instances: Counter[int] = field(default_factory=Counter)
    points: Counter[int] = field(default_factory=Counter)
    not_drawn: Counter[int] = field(default_factory=Counter)
    readers_per_image: Counter[int] = field(default_factory=Counter)
    reader_ids: set[str] = field(default_factory=set)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one image and the findings asked of it."""
        super().add(row, asked)
        self.positives.update(row["labels"])
        self.pairs.update(combinations(sorted(row["labels"]), 2))
        self.not_drawn.update(row["missing"])
        self.points.update({point["label"] for point in row["points"]})
        statuses = (row["label_status"] or {}).values()
        self.unlabelled.update(code for code, status in enumerate(statuses) if status not in (0, 1))
        drawn = [a for a in row["annotations"] if a["area_px"] > 0]
        self.drawn.update({(a["label"], READERS[a["reader"]]) for a in drawn})
        self.masks.update({(a["label"], READERS[a["reader"]]) for a in drawn if a["rle"] is not None})
        for annotation in row["annotations"]:
            if READERS[annotation["reader"]] == "ground_truth":
                self.instances[annotation["label"]] += annotation["n_instances"]
        readers = {a["reader_id"] for a in row["annotations"]} - {None}
        self.readers_per_image[len(readers)] += 1
        self.reader_ids |= readers

    def findings_text(self, findings: Sequence[str]) -> str:
        """Present, drawn and not drawn, per finding."""
        n = len(findings)

        def by(reader: str) -> list[int]:
            return [self.drawn[i, reader] for i in range(n)]

        drawn = self._what_is_drawn()
        columns: dict[str, list[object]] = {
            "finding": list(findings),
            "present": [self.positives[i] for i in range(n)],
            "of images": [percent(self.positives[i], self.n_rows) for i in range(n)],
            drawn: list(by("ground_truth")),
            "instances": [self.instances[i] for i in range(n)],
            "not drawn": [self.not_drawn[i] for i in range(n)],
            "unlabelled": [self.unlabelled[i] for i in range(n)],
            "benchmark readers": list(by("human_benchmark")),
            "benchmark points": [self.points[i] for i in range(n)],
            "individual readers": list(by("individual")),
        }
        always = {"finding", "present", "of images", drawn, "not drawn"}
        kept = {name: cells for name, cells in columns.items() if name in always or any(cells)}
        rows = list(zip(*kept.values(), strict=True))
        if n <= LONG_VOCABULARY:
            return markdown_table(list(kept), rows)
        used = [bool(self.positives[i]) or any(self.drawn[i, reader] for reader in READERS) for i in range(n)]
        never = ", ".join(name for name, is_used in zip(findings, used, strict=True) if not is_used)
        table = markdown_table(list(kept), [row for row, is_used in zip(rows, used, strict=True) if is_used])
        return f"{table}\n\nNever present or drawn in this split: {never or 'none'}."

    def missing(self, findings: Sequence[str]) -> str:
        """Findings without a drawing."""
        total = sum(self.not_drawn.values())
        each = ", ".join(f"{findings[i]} {n:,}" for i, n in sorted(self.not_drawn.items()) if n)
        return f"{total:,} times a finding is present without a ground-truth drawing" + (f" ({each})" if each else "")

    def agreement_cells(self) -> list[object]:
        """The individual readers, and how many of them drew on how many images."""
        spread = ", ".join(f"{n} on {count:,}" for n, count in sorted(self.readers_per_image.items()))
        return [len(self.reader_ids), spread] if self.reader_ids else []

    def _what_is_drawn(self) -> str:
        """Masks or boxes: of the ground truth, and where there is none, of all readers."""
        truth = {place for place in self.drawn if place[1] == "ground_truth"} or set(self.drawn)
        n_drawn, n_masks = (sum(counts[place] for place in truth) for counts in (self.drawn, self.masks))
        if n_drawn == 0:
            return "drawn"
        return "masks" if n_drawn == n_masks else ("masks or boxes" if n_masks else "boxes")

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return (row,)
