"""``rb.readings``: what readers and a system said of the same studies, for ``rb.readers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reveal_bench.api.bench import Bench, as_bench
from reveal_bench.api.given import name_of
from reveal_bench.api.shown import Shown
from reveal_bench.api.verbs import ONE_REPLICATE, readings_kept, score_given
from reveal_bench.evaluation.readings_table import ReadingRow, readings_of

__all__ = ["ReadingsTable", "readings"]


@dataclass(frozen=True, repr=False)
class ReadingsTable(Shown):
    """What readers and a system said of the same studies, and the truth: a table for `rb.readers`.

    Attributes
    ----------
    rows : reader, case, patient, finding, score and truth
    system : the name of the system among the readers
    n_left_out : studies that not every reader had read
    """

    rows: Sequence[ReadingRow]
    system: str
    n_left_out: int

    @property
    def caption(self) -> str:
        """Whose readings of how many cases."""
        readers = dict.fromkeys(row.reader for row in self.rows)
        n_cases = len({row.case for row in self.rows})
        left_out = f"; studies left out that not every reader read: {self.n_left_out:,}" if self.n_left_out else ""
        return f"{n_cases:,} cases read by {', '.join(readers)}{left_out}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows."""
        return [asdict(row) for row in self.rows]


def readings(
    predictions: Any,
    bench: str | Path | Bench,
    *,
    split: str | None = None,
    finding: str | None = None,
    thresholds: float | Mapping[str, float] = 0.5,
    allow_missing: bool = False,
    name: str | None = None,
) -> ReadingsTable:
    """What the readers whom a dataset folder keeps and a system said of the same studies, for `rb.readers`.

    Parameters
    ----------
    predictions, bench, split, allow_missing : as of :func:`~reveal_bench.api.verbs.lint`
    finding : label whose readings are given; by default all, every study and label a case
    thresholds : probability from which the system says that a label is present: one number, or one per label
    name : of the system; by default that of the file

    Raises
    ------
    LintError
        If the predictions have errors; its `report` lists all of them.
    ArgumentError
        If the folder keeps no readers of labels, the label is unknown, or a reader has the system's name.
    """
    system = name_of(predictions, "system") if name is None else name
    opened = as_bench(bench, split)
    options: dict[str, Any] = {**ONE_REPLICATE, "thresholds": thresholds, "strata": False}
    scored = score_given(predictions, opened, "predictions", system, None, allow_missing, None, options)
    records, kept = readings_kept(opened)
    rows, n_left_out = readings_of(opened.kind, kept, scored, records, system, finding)
    return ReadingsTable(rows, system, n_left_out)
