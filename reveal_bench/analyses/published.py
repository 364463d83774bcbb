"""Scores published in papers, shown next to the submissions of a board and never ranked among them.

Rows of scores are read from ``submissions/reference/<benchmark>/*.json`` (schema:
``submissions/schema/reference.schema.json``). A row that repeats another row's scores is left out.

A row is comparable with a board if it was measured on the split that contains the board's holdout. Rows of other
studies, such as readers' agreement before a benchmark was selected, are shown separately.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reveal_bench.benchmarks import bundled
from reveal_bench.kinds.folder import FolderInfo

REFERENCE_BENCHMARK = "chexlocalize"
GRID = 8
"""Number of cells per side in the published grid hit rates (paper 000, section 3.2)."""
_PARTS_OF_TEST = ("test", "released", "holdout")
_DIVIDED = "test"  # the split from which holdouts are taken
_ORDER = ("human", "cnn", "saliency", "multimodal_llm", "chance")
_SHOWN_AS = {"grid_chance": "grid_hit", "mask_iou": "mask_iou_all"}


@dataclass(frozen=True)
class ReferenceRow:
    """Published scores of one system.

    Attributes
    ----------
    measured_on : "test" or "validation", a split of the benchmark, or "sampled" for scores of other studies
    citation, url, place : the paper, and where it prints the scores
    figures : metric -> finding -> score as a fraction; an expectation by chance is under its metric, and the papers'
        mIoU (true-positive slice) is next to the board's mIoU, as `protocol` explains
    macro : metric -> (fraction, how it was computed)
    """

    name: str
    kind: str
    prompt_style: str | None
    measured_on: str
    citation: str
    url: str
    place: str
    protocol: str
    notes: str
    figures: Mapping[str, Mapping[str, float]]
    macro: Mapping[str, tuple[float, str]]

    @property
    def source(self) -> str:
        """The paper, and where it prints the scores."""
        return f"{self.citation} {self.place}"

    @property
    def is_of_test_split(self) -> bool:
        """True if the scores were measured on the split from which holdouts are taken."""
        return self.measured_on == _DIVIDED

    @property
    def title(self) -> str:
        """Name of the system, followed by the style of its prompt if there is one."""
        return f"{self.name}, {self.prompt_style}" if self.prompt_style else self.name

    @property
    def short_source(self) -> str:
        """Source such as "Gosai et al., Table 2"."""
        return f"{self.citation.split()[0]} et al., {self.place}"


@dataclass(frozen=True)
class OwnScores:
    """Scores of a run by one metric: finding -> score; `grid` is the number of cells per side if the run answers in
    cells.
    """

    label: str
    metric: str
    values: Mapping[str, float]
    grid: int | None = None


@dataclass(frozen=True)
class ReferenceValue:
    """Row of a published system, or of the user's (with an empty `source`): `values` by finding, and their `mean`."""

    system: str
    source: str
    values: Mapping[str, float]
    mean: float


def read_reference_rows(benchmark: str = REFERENCE_BENCHMARK) -> list[ReferenceRow]:
    """Return the rows published for a benchmark, ordered by kind and name; empty if there are none."""
    folder = bundled("submissions") / "reference" / benchmark
    rows = []
    for path in sorted(folder.glob("*.json")):
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["repeats"] is None:
            rows.append(_row(raw))
    return sorted(rows, key=lambda row: (_ORDER.index(row.kind), row.name, row.prompt_style or ""))


def explain_not_comparable(rows: Sequence[ReferenceRow], info: FolderInfo, split: str) -> str:
    """Return the reason why no published row is comparable with scores on a split; "" if a row is comparable."""
    names = "; ".join(dict.fromkeys(row.name for row in rows))
    if info.synthetic:
        return f"Results are published on the real data ({names}), so they are not shown with runs on synthetic data."
    if split not in _PARTS_OF_TEST or not any(row.is_of_test_split for row in rows):
        measured = " and ".join(sorted({row.measured_on for row in rows}))
        return f"Not comparable with split {split}: the published rows ({names}) were measured on the split {measured}."
    return ""


def rows_beside(
    metric: str, own: Sequence[OwnScores], published: Sequence[ReferenceRow]
) -> tuple[list[str], list[ReferenceValue]]:
    """Return (findings, rows): the findings in all rows, and the rows with only these findings, the user's first."""
    lines = [(one.label, "", one.values) for one in own]
    lines += [(row.title, row.short_source, row.figures[metric]) for row in published]
    defined = [{name for name, value in values.items() if not math.isnan(value)} for *_, values in lines]
    findings = [name for name in own[0].values if all(name in known for known in defined)]
    return findings, [
        ReferenceValue(
            system, source, {name: values[name] for name in findings}, _mean([values[name] for name in findings])
        )
        for system, source, values in lines
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _row(raw: Mapping[str, object]) -> ReferenceRow:
    source: Mapping[str, str] = raw["source"]  # type: ignore[assignment]
    figures: Mapping[str, Mapping[str, float]] = raw["figures"]  # type: ignore[assignment]
    printed: Mapping[str, Mapping[str, float]] = raw["printed_macro"]  # type: ignore[assignment]
    return ReferenceRow(
        name=str(raw["name"]),
        kind=str(raw["kind"]),
        prompt_style=None if raw["prompt_style"] is None else str(raw["prompt_style"]),
        measured_on=str(raw["split"]),
        citation=source["citation"],
        url=source["url"],
        place=source["place"],
        protocol=str(raw["protocol"]),
        notes=str(raw["notes"]),
        figures={_SHOWN_AS.get(metric, metric): values for metric, values in figures.items()},
        macro={
            _SHOWN_AS.get(metric, metric): _macro(values, printed.get(metric)) for metric, values in figures.items()
        },
    )


def _macro(values: Mapping[str, float], printed: Mapping[str, float] | None) -> tuple[float, str]:
    if printed is not None:
        return printed["value"], f"printed, {printed['n_findings']} findings"
    return sum(values.values()) / len(values), f"mean of {len(values)} printed"
