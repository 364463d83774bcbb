"""Read the counts and files of a curation's finished steps for its report.

A step that is open, stale or damaged counts as not done; :meth:`Curated.missing` returns the reason as a sentence. This
module only reads files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reveal_bench.curation.folder import CurationFolder, StepState
from reveal_bench.curation.tables import HALVES, Placed, read_table
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.sources.mapping import VOCABULARIES
from reveal_bench.tables import read_table as read_input_table

RATINGS_NAME = "ratings.csv"
READS = {
    "extract": ("suggestions.parquet", "quarantine.jsonl"),
    "sample": ("sample.parquet",),
    "assign": ("assignments.parquet",),
    "import-votes": ("votes.parquet",),
    "consensus": ("agreement.json",),
    "select": ("selection.parquet",),
    "split": ("split.parquet", "balance.json", "benchmark/labels.csv"),
    "refresh": ("split.parquet", "labels_diff.json", "benchmark/labels.csv"),
}
"""Step -> files of the step that the report reads."""


@dataclass(frozen=True, slots=True)
class Curated:
    """Counts and files of all finished steps of a curation.

    Attributes
    ----------
    agreement, balance, diff : the JSON files of consensus, split and refresh
    placed : the studies of the benchmark; None before they are divided into halves
    demographics : column (age_band, sex, race, patient_class, as far as known) -> study -> value
    """

    name: str
    seed: int
    states: Mapping[str, StepState]
    agreement: Mapping[str, Any] | None = None
    balance: Mapping[str, Any] | None = None
    diff: Mapping[str, Any] | None = None
    placed: Sequence[Placed] | None = None
    demographics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def counts(self, step: str) -> Mapping[str, Any] | None:
        """Return the counts of a step; None if the step is not done."""
        state = self.states[step]
        return state.record.counts if state.status == "done" and state.record is not None else None

    def settings(self, step: str) -> Mapping[str, Any]:
        """Return the settings with which a finished step ran."""
        record = self.states[step].record
        return {} if record is None else record.settings

    def missing(self, *steps: str) -> str:
        """Return one sentence for each of `steps` that is not done."""
        parts = []
        for step in steps:
            state = self.states[step]
            if state.status == "open":
                parts.append(f"The step “{step}” is not done yet.")
            elif state.status != "done":
                parts.append(f"The step “{step}” is {state.status} ({state.why}): run it again, then the report.")
        return " ".join(parts)

    @property
    def version(self) -> str:
        """Version of the benchmark, "" before it exists."""
        refreshed = self.counts("refresh")
        if refreshed is not None:
            return str(refreshed["version"])
        return str(self.settings("split").get("version", "")) if self.counts("split") is not None else ""

    def half(self, half: str) -> list[Placed]:
        """Return the studies of one half."""
        return [one for one in self.placed or () if one.half == half]

    def prevalence(self, half: str) -> dict[str, int]:
        """Return label -> number of studies of a half with that label."""
        own = self.half(half)
        return {label: sum(label in one.labels for one in own) for label in REVEAL_LABELS}

    def n_findings(self, half: str) -> dict[int, int]:
        """Return number of labels -> number of studies of a half, from the benchmark's fewest to its most labels."""
        numbers = [len(one.labels) for one in self.placed or ()]
        own = [len(one.labels) for one in self.half(half)]
        return {n: own.count(n) for n in range(min(numbers, default=0), max(numbers, default=-1) + 1)}

    def words(self, characteristic: str, half: str) -> dict[str, int]:
        """Return value -> number of studies of a half for a demographic column, without values that neither half has.

        A blank is "unknown". The oldest ages come first, as in Table 1 of paper 004.
        """
        own = [self.demographics[characteristic].get(one.study_id) or "unknown" for one in self.half(half)]
        of_both = {self.demographics[characteristic].get(one.study_id) or "unknown" for one in self.placed or ()}
        order = [word for word in VOCABULARIES[characteristic] if word in of_both]
        if characteristic == "age_band":
            order = [word for word in reversed(order) if word != "unknown"] + ["unknown"] * ("unknown" in order)
        return {word: own.count(word) for word in order}


def read_curated(folder: CurationFolder) -> Curated:
    """Read the finished steps of `folder`."""
    states = {state.step: state for state in folder.states()}
    done = {step for step, state in states.items() if state.status == "done"}
    placing = next((step for step in ("refresh", "split") if step in done), None)
    return Curated(
        name=folder.name,
        seed=folder.seed,
        states=states,
        agreement=_json(folder, "agreement.json") if "consensus" in done else None,
        balance=_json(folder, "balance.json") if "split" in done else None,
        diff=_json(folder, "labels_diff.json") if "refresh" in done else None,
        placed=None if placing is None else _placed(folder),
        demographics={} if placing is None else _demographics(folder),
    )


def _json(folder: CurationFolder, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(folder.path(name).read_text(encoding="utf-8"))
    return document


def _placed(folder: CurationFolder) -> list[Placed]:
    placed = read_table(folder.path("split.parquet"), Placed)
    assert all(one.half in HALVES for one in placed)
    return placed


def _demographics(folder: CurationFolder) -> dict[str, dict[str, str]]:
    table = read_input_table(folder.path("benchmark/labels.csv"))
    return {name: {row["study_id"]: row[name] for row in table.rows} for name in VOCABULARIES if name in table}
