"""Export a board as CSV or Parquet.

Conventions
-----------
There is one row per score, with the columns of :data:`COLUMNS`; the API's JSON
(:class:`reveal_leaderboard.web.api.documents.Board`) has the same content, with one object per entry. Scores are
released fractions, times are UTC. Published rows are included only if they were measured on the dataset from which the
board's holdout was taken.

Texts in CSV cells are escaped against spreadsheet formulas: at the start of a cell and after a separator inside it, an
apostrophe is put before ``= + - @ |``, their full-width forms, tabs and line ends. Numbers are plain. Parquet is for
programs and keeps every text unchanged.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.boards.standings import Standings

COLUMNS: dict[str, tuple[str, str]] = {
    "benchmark": ("string", "name of the benchmark"),
    "version": ("string", "version of the benchmark on which the scores were computed"),
    "rank": ("int32", "rank of the tier, 1 for the best; empty if the entry is not ranked"),
    "rank_low": (
        "int32",
        "best rank in the entry's rank interval; with 95% confidence, the intervals of all entries "
        "contain their true ranks",
    ),
    "rank_high": ("int32", "worst rank in the entry's rank interval"),
    "tier": ("string", "tier, A for the best; entries of a tier do not differ significantly"),
    "is_new": ("bool", "true if the entry was scored after the last ranking, and is not ranked yet"),
    "submission_id": ("string", "id in the entry's permalink; empty for a published row"),
    "model": ("string", "name of the model, or of the published system"),
    "model_version": ("string", "version of the model, as stated by its team"),
    "team": ("string", "organization"),
    "kind": ("string", "multimodal_llm, cnn, saliency, human_reader or other; for a published row also human, chance"),
    "prompt_style": ("string", "style of the prompts for a language model"),
    "date": ("date32", "UTC day on which the entry was sent"),
    "metric": ("string", "name of the metric"),
    "finding": ("string", '"macro" for the mean over the shown findings'),
    "value": ("float64", "rounded fraction, coefficient from -1 to 1, or mean rating from 1 to 5"),
    "low": ("float64", "lower bound of the 95% interval, rounded"),
    "high": ("float64", "upper bound of the 95% interval, rounded"),
    "n": ("string", "range of the number of cases; for a macro, the number of findings"),
    "signature": ("string", "signature of the score: its computation, with the metric's version"),
    "is_reference": ("bool", "true for a row from a paper, which is not ranked"),
    "source": ("string", '"submission", or the paper with its table or figure'),
    "ranked_part": ("string", 'part of the holdout with this score: "public", or "final" once the round is over'),
    "public_value": ("float64", "earlier public score, if this one is final"),
}
"""Column -> (Arrow type, meaning), in order. An empty cell means that the value is unknown or does not apply."""

_START = r"[=+\-@|\uff1d\uff0b\uff0d\uff20\uff5c]"
_AT_START = re.compile(rf"\s*{_START}|[\t\r\n]")
_AFTER_SEPARATOR = re.compile(rf"([;,\t\r\n|]\s*)(?={_START})")


_ENTRY_FIELDS = (
    "submission_id", "model", "model_version", "team", "kind", "prompt_style", "date", "version", "rank", "rank_low",
    "rank_high", "tier", "is_new", "place",
)  # fmt: skip


def to_csv(board: Standings) -> str:
    """Return the board as CSV with a header (RFC 4180): lines end with CR LF, and texts that contain CR or LF are
    quoted.
    """
    return csv_text(_rows(board), COLUMNS)


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]) -> str:
    """Return rows as CSV text with a header; `columns` as :data:`COLUMNS`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue()


def to_parquet(board: Standings) -> bytes:
    """Return the board as a Parquet file.

    Returns
    -------
    bytes
        The file, with the columns of :data:`COLUMNS`; their meanings are in the fields' metadata. The schema's metadata
        has, under ``reveal_leaderboard``, JSON with schema, benchmark, version, split, part, synthetic, is_frozen,
        primary, ranked_at, exported_at (always null, so that equal boards give equal files), and signatures: metric ->
        recipes.
    """
    rows = [
        {**row, "date": None if row.get("date") is None else date.fromisoformat(row["date"])} for row in _rows(board)
    ]
    return parquet_bytes(rows, COLUMNS, {"reveal_leaderboard": json.dumps(_about(board))})


def parquet_bytes(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, tuple[str, str]],
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return rows as a Parquet file; `columns` as :data:`COLUMNS`, `metadata` for its schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field(name, pa.type_for_alias(kind), metadata={"meaning": meaning})
        for name, (kind, meaning) in columns.items()
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields, metadata)), sink)
    return sink.getvalue()


def _about(board: Standings) -> dict[str, Any]:
    signatures: dict[str, set[str]] = {}
    for entry in board.entries:
        for figure in entry.score.figures:
            signatures.setdefault(figure.metric, set()).add(figure.signature)
    names = ("benchmark", "version", "split", "part", "synthetic", "is_frozen", "ranked_at")
    return {
        "schema": board.schema,
        **{name: getattr(board, name) for name in names},
        "primary": board.primary.name,
        "exported_at": None,
        "signatures": {metric: sorted(recipes) for metric, recipes in sorted(signatures.items())},
    }


def _rows(board: Standings) -> Iterator[dict[str, Any]]:
    """Yield one row per score: entries in order, then published rows if they were measured on the same dataset."""
    for entry in board.entries:
        head = {name: getattr(entry, name) for name in _ENTRY_FIELDS if name in COLUMNS}
        head |= {"benchmark": board.benchmark, "is_reference": False, "source": "submission"}
        for figure in entry.score.figures:
            public = entry.public and entry.public.figure(figure.metric, figure.finding)
            parts = {"ranked_part": board.ranked_part, "public_value": public and public.value}
            yield {**head, **asdict(figure), **parts}
    for row in board.comparable_references:
        head = {"benchmark": board.benchmark, "version": board.version, "model": row.name, "kind": row.kind}
        head |= {"prompt_style": row.prompt_style, "is_new": False, "is_reference": True, "source": row.source}
        for metric, values in row.figures.items():
            yield {**head, "metric": metric, "finding": MACRO, "value": row.macro[metric][0]}
            for finding, value in values.items():
                yield {**head, "metric": metric, "finding": finding, "value": value}


def _cell(value: object) -> object:
    """Return a value as a CSV cell: None is empty, booleans are lower case, and texts are escaped by
    :func:`harmless`.
    """
    if isinstance(value, bool):
        return str(value).lower()
    return harmless(value) if isinstance(value, str) else value


def harmless(text: str) -> str:
    """Return the text with apostrophes that stop spreadsheet programs from reading it as a formula."""
    text = _AFTER_SEPARATOR.sub(r"\1'", text)
    return f"'{text}" if _AT_START.match(text) else text
