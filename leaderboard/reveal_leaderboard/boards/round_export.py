"""Export all submissions to a board for its organiser: scores, ranks, metadata, receipts, and files for publication.

Conventions
-----------
The export contains what the board released, at the precision of the board; exact scores never leave the worker. Final
scores and their receipts are included once the board shows them. The export is for the organiser: it contains
addresses, and the scores of withdrawn and hidden entries. The prediction files are those of scored entries that were
neither withdrawn nor hidden, and whose metadata say ``"share_predictions": true``.

`README.md` in the export explains its files and columns. Texts of CSV cells are escaped as in
:mod:`reveal_leaderboard.boards.exports`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.boards.exports import COLUMNS, csv_text, parquet_bytes
from reveal_leaderboard.boards.standings import read_ranking
from reveal_leaderboard.release.receipts import public_keys
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.boards import board_row
from reveal_leaderboard.store.database import iso_time, moment
from reveal_leaderboard.store.scores import StoredReceipt, ranked_part
from reveal_leaderboard.store.store import Score, Store, Submission
from reveal_leaderboard.store.submissions import find_all
from reveal_leaderboard.store.tables import receipts, submissions

SUBMISSIONS: dict[str, tuple[str, str]] = {
    "submission_id": ("string", "id of the submission, also in the name of its receipts and predictions"),
    "team": ("string", "name of the team"),
    "model": ("string", "name of the model"),
    "model_version": COLUMNS["model_version"],
    "kind": ("string", "multimodal_llm, cnn, saliency, human_reader or other"),
    "status": ("string", "scored, queued, scoring, reading (waits for readers), refused, failed or withdrawn"),
    "sent_to": ("string", "version of the benchmark to which the file was sent"),
    "sent_at": ("string", "time of sending, UTC"),
    "updated_at": ("string", "time of the last change of the status, UTC"),
    "withdrawn_at": ("string", "time of withdrawal by the team, UTC"),
    "hidden_at": ("string", "time at which an administrator hid the entry, UTC"),
    "hidden_why": ("string", "reason for hiding"),
    "is_chosen": ("bool", "whether the team chose this submission to represent its model"),
    **{name: COLUMNS[name] for name in ("rank", "rank_low", "rank_high", "tier")},
    "filename": ("string", "name of the file that was sent"),
    "sha256": ("string", "SHA-256 of this file"),
    "size": ("int64", "size of this file in bytes"),
    "allow_missing": ("bool", "whether missing answers were allowed, which count as misses"),
    "contact": ("string", "address for the organiser, not for publication"),
    "metadata": ("string", "submission.json without the contact, as JSON"),
}
FIGURES: dict[str, tuple[str, str]] = {
    "submission_id": ("string", "id of the submission"),
    "version": COLUMNS["version"],
    "part": ("string", 'part of the holdout: "public" while a round runs, "final" for the patients kept until its end'),
    **{name: COLUMNS[name] for name in ("metric", "finding", "value", "low", "high", "n", "signature")},
    "shown_of": ("string", "submission whose scores these are: an earlier one if this one did not exceed it"),
    "scored_at": ("string", "time of scoring, UTC"),
}
"""Column -> (Arrow type, meaning) of both tables."""

_ABOUT = """\
# Submissions to {benchmark}

Written at {at} (UTC), while the board was {state} and showed version {version}. Ranks are by the {part} scores.

For the organiser only: `contact` and the scores of withdrawn or hidden entries are not public.

- `submissions.csv`, `submissions.parquet`: one row per submission, whatever became of it.
- `figures.csv`, `figures.parquet`: one row per released score. Final scores are included once the board shows them.
- `receipts/ID-VERSION-PART.json`: signed receipts of these scores; check one with `reveal-bench verify-receipt`.
  `receipt_keys.json` has the public keys.
- `predictions/`: files as sent, named by id, of scored entries that were neither withdrawn nor hidden and whose
  metadata say `"share_predictions": true`.

"""


@dataclass(frozen=True, slots=True)
class ExportCounts:
    """Numbers of exported rows and files."""

    submissions: int
    figures: int
    receipts: int
    predictions: int


def export_round(store: Store, blobs: Blobs, benchmark: str, folder: Path) -> ExportCounts:
    """Write the submissions to a board, of all versions, to a new folder; an interrupted export leaves no folder.

    Raises
    ------
    LookupError
        If the board does not exist, or the file of a submission that allows publication is missing.
    ValueError
        If `folder` exists.
    """
    if folder.exists():
        raise ValueError(f"`out` must be a new folder, got {folder}, which exists")
    with store.read() as connection:
        board = board_row(connection, benchmark)
        part = ranked_part(connection, benchmark, board.version)
        ranking, _ = read_ranking(connection, benchmark, board.version, part)
        sent = sorted(find_all(connection, submissions.c.benchmark == benchmark), key=lambda one: one.created_at)
        signed = _receipts(connection, benchmark)
        keys = [asdict(key) for key in public_keys(connection)]
        at = iso_time(moment(connection))
    rows = [_submission(one, ranking.get("entries", {}).get(one.id, {})) for one in sent]
    shown = [score for one in sent for score in store.scores_of(one.id)]  # without final scores before the round's end
    figures = [row for score in shown for row in _figures(score)]
    keys_shown = {(score.submission_id, score.version, score.part) for score in shown}
    signed = [one for one in signed if (one.submission_id, one.version, one.part) in keys_shown]
    about = _ABOUT.format(benchmark=benchmark, at=at, state=board.state, version=board.version, part=part)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        made.mkdir(mode=0o700)
        for name, columns, table in (("submissions", SUBMISSIONS, rows), ("figures", FIGURES, figures)):
            (made / f"{name}.csv").write_text(csv_text(table, columns), encoding="utf-8", newline="")
            (made / f"{name}.parquet").write_bytes(parquet_bytes(table, columns))
            about += f"## Columns of {name}\n\n{_explained(columns)}\n"
        (made / "README.md").write_text(about, encoding="utf-8")
        (made / "receipt_keys.json").write_text(json.dumps(keys, indent=2) + "\n", encoding="utf-8")
        _write_receipts(made / "receipts", signed)
        n_shared = _copy_predictions(made / "predictions", sent, blobs)
        made.rename(folder)
    return ExportCounts(len(rows), len(figures), len(signed), n_shared)


def _receipts(connection: sa.Connection, benchmark: str) -> list[StoredReceipt]:
    query = sa.select(receipts).join(submissions, submissions.c.id == receipts.c.submission_id)
    rows = connection.execute(query.where(submissions.c.benchmark == benchmark).order_by(receipts.c.id))
    return [StoredReceipt(**row._mapping) for row in rows]


def _submission(one: Submission, place: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in one.metadata.items() if name != "contact"}
    times = {name: getattr(one, name) for name in ("updated_at", "withdrawn_at", "hidden_at")}
    same = ("team", "kind", "status", "hidden_why", "is_chosen", "filename", "sha256", "size", "allow_missing")
    return {
        "submission_id": one.id,
        "model": one.model_name,
        "model_version": one.metadata.get("model", {}).get("version"),
        "sent_to": one.version,
        "sent_at": iso_time(one.created_at),
        "contact": one.metadata.get("contact"),
        "metadata": json.dumps(metadata, ensure_ascii=False, sort_keys=True),
        **{name: None if at is None else iso_time(at) for name, at in times.items()},
        **{name: getattr(one, name) for name in same},
        **{name: place.get(name) for name in ("rank", "rank_low", "rank_high", "tier")},
    }


def _figures(score: Score) -> Iterator[dict[str, Any]]:
    head = {name: getattr(score, name) for name in ("submission_id", "version", "part", "shown_of")}
    for figure in score.released["figures"]:
        yield {**figure, **head, "scored_at": iso_time(score.scored_at)}


def _explained(columns: Mapping[str, tuple[str, str]]) -> str:
    return "".join(f"- `{name}`: {meaning}\n" for name, (_, meaning) in columns.items())


def _write_receipts(folder: Path, signed: Sequence[StoredReceipt]) -> None:
    folder.mkdir()
    for one in signed:
        text = json.dumps(one.to_file(), indent=2) + "\n"
        (folder / f"{one.submission_id}-{one.version}-{one.part}.json").write_text(text, encoding="utf-8")


def _copy_predictions(folder: Path, sent: Sequence[Submission], blobs: Blobs) -> int:
    """Copy the files that may be published; return their number."""
    entries = [one for one in sent if one.status == "scored" and one.withdrawn_at is None and one.hidden_at is None]
    shared = [one for one in entries if one.metadata.get("share_predictions")]
    folder.mkdir()
    for one in shared:
        try:
            with blobs.open_local(one.sha256) as file:
                shutil.copyfile(file, folder / f"{one.id}{Path(one.filename).suffix}")
        except FileNotFoundError:
            raise LookupError(f"the file of submission {one.id} must be stored, but {one.sha256} is missing") from None
    return len(shared)
