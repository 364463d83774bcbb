"""The board as data: what the page draws, the API answers and the exports hold.

Conventions
-----------
Everything here is made of released figures (rounded, small cells hidden) and of published reference rows. Rows are
ranked by the released macro of the primary metric; equal figures share a rank, and a row without one comes last,
unranked. Nothing finer than the released figure breaks a tie: the order of equal rows is that of their arrival.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reveal_bench.metrics import METRICS, Metric
from reveal_leaderboard.intake import Published
from reveal_leaderboard.references import REFERENCE_BENCHMARK, ReferenceRow, read_reference_rows
from reveal_leaderboard.release import POLICY, Figure, ReleasedScore
from reveal_leaderboard.store import Score, Store, Submission

__all__ = ["METRIC_NAMES", "Entry", "Standings", "iso_time", "standings", "to_csv", "to_json"]

METRIC_NAMES = ("point_hit", "grid_hit", "mask_iou_all")
PRIMARY = METRIC_NAMES[0]


@dataclass(frozen=True)
class Entry:
    """One scored submission on the board."""

    rank: int | None
    submission_id: str
    model: str
    model_version: str
    team: str
    kind: str
    prompt_style: str | None
    date: str
    score: ReleasedScore

    def figure(self, metric: str, finding: str = "macro") -> Figure | None:
        """One released figure, if it is shown."""
        return self.score.figure(metric, finding)


@dataclass(frozen=True)
class Standings:
    """A board: its entries in order, and the published rows beside them.

    Attributes
    ----------
    hidden : findings too small to be shown
    synthetic : whether the benchmark's data are made up
    comparable : whether the reference rows were measured on the data that this split is a part of
    """

    benchmark: str
    version: str
    split: str
    metrics: tuple[Metric, ...]
    findings: tuple[str, ...]
    hidden: tuple[str, ...]
    min_cell: int
    entries: tuple[Entry, ...]
    references: tuple[ReferenceRow, ...]
    synthetic: bool
    comparable: bool


def standings(store: Store, published: Published) -> Standings:
    """The board of one benchmark at its present version."""
    manifest = published.manifest
    scored = store.scored(manifest.benchmark, manifest.version, manifest.split)
    entries = _ranked([_entry(submission, score) for submission, score in scored])
    hidden = {finding for entry in entries for finding in entry.score.hidden}
    return Standings(
        benchmark=manifest.benchmark,
        version=manifest.version,
        split=manifest.split,
        metrics=tuple(METRICS[name] for name in METRIC_NAMES),
        findings=manifest.findings,
        hidden=tuple(finding for finding in manifest.findings if finding in hidden),
        min_cell=POLICY.min_cell,
        entries=tuple(entries),
        references=tuple(read_reference_rows()),
        synthetic=published.info.synthetic,
        comparable=manifest.benchmark == REFERENCE_BENCHMARK and not published.info.synthetic,
    )


def _entry(submission: Submission, score: Score) -> Entry:
    return Entry(
        rank=None,
        submission_id=submission.id,
        model=submission.model_name,
        model_version=str(submission.metadata.get("model", {}).get("version", "")),
        team=submission.team,
        kind=submission.kind,
        prompt_style=submission.prompt_style,
        date=iso_time(submission.created_at)[:10],
        score=ReleasedScore.from_json(score.released),
    )


def _ranked(entries: list[Entry]) -> list[Entry]:
    def value(entry: Entry) -> float:
        figure = entry.figure(PRIMARY)
        return -1.0 if figure is None else figure.value

    in_order = sorted(entries, key=value, reverse=True)
    better = [sum(value(other) > value(entry) for other in in_order) for entry in in_order]
    return [
        Entry(**{**entry.__dict__, "rank": n_better + 1 if value(entry) >= 0 else None})
        for entry, n_better in zip(in_order, better, strict=True)
    ]


def iso_time(moment: float) -> str:
    """Seconds since 1970 as UTC text, such as 2026-11-21T23:05:00Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_json(board: Standings) -> dict[str, Any]:
    """The board as plain JSON values; figures are fractions."""
    entries = [
        {
            **{name: value for name, value in entry.__dict__.items() if name != "score"},
            "figures": entry.score.to_json()["figures"],
            "hidden": list(entry.score.hidden),
        }
        for entry in board.entries
    ]
    references = [{**row.__dict__, "macro": {m: v for m, (v, _) in row.macro.items()}} for row in board.references]
    return {
        "benchmark": board.benchmark,
        "version": board.version,
        "split": board.split,
        "synthetic": board.synthetic,
        "metrics": [{"name": m.name, "title": m.title, "better": m.better} for m in board.metrics],
        "findings": list(board.findings),
        "hidden": list(board.hidden),
        "entries": entries,
        "references": references if board.comparable else [],
    }


_CSV_HEAD = (
    *("rank", "submission_id", "model", "model_version", "team", "kind", "prompt_style", "date"),
    *("metric", "finding", "value", "low", "high", "n", "source"),
)


def to_csv(board: Standings) -> str:
    """The board as CSV, one line per figure; no cell can be taken for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_HEAD)
    for e in board.entries:
        head = [e.rank, e.submission_id, e.model, e.model_version, e.team, e.kind, e.prompt_style, e.date]
        for f in e.score.figures:
            _write(writer, [*head, f.metric, f.finding, f.value, f.low, f.high, f.n, "submission"])
    for row in board.references if board.comparable else ():
        head = [None, None, row.name, None, None, row.kind, row.prompt_style, None]
        for metric, values in row.figures.items():
            for finding, value in values.items():
                _write(writer, [*head, metric, finding, value, None, None, None, f"{row.citation} {row.place}"])
    return text.getvalue()


def _write(writer: Any, cells: list[Any]) -> None:
    writer.writerow([_neutral(cell) if isinstance(cell, str) else cell for cell in cells])


def _neutral(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "|", "\t", "\r", "\n")) else text
