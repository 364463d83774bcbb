"""Jobs of the score and rank children: score canonical arrays against a holdout, and rank submissions by rows in the
vault.

Conventions
-----------
Before an answer leaves the child, :mod:`reveal_leaderboard.release.release` or
:mod:`reveal_leaderboard.release.ranking` reduces it to releasable values. Exact rows are written to files of the vault
that the parent opened. These jobs never see an upload: predictions are read by the strict reader of :mod:`.arrays`.

The amount of work does not depend on whether a finding is present, so that durations reveal nothing. Predictions for
questions outside the manifest were removed earlier, and a mask has at most `MOST_MASK_RUNS` runs.

Ranks are computed from exact per-case rows in files of the vault. Numbers are stored as arrays with full precision;
names are JSON text in an array of bytes, to which cases refer by index. A file is named ``<submission
id>.<version>.npz`` and never leaves the vault. The reader checks only indices and lengths, because this package wrote
the files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import open_folder, split_shards
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.parts import Manifest
from reveal_bench.kinds.scored import Rows
from reveal_leaderboard.custody.arrays import list_arrays, read_arrays, read_rated, write_arrays
from reveal_leaderboard.custody.fork_server import Job
from reveal_leaderboard.release.fingerprints import fingerprint
from reveal_leaderboard.release.ranking import rank_document
from reveal_leaderboard.release.release import release, split_final
from reveal_leaderboard.settings import ReleasePolicy


def write_cases(file: BinaryIO, rows: Rows) -> None:
    """Write the per-case rows of a submission."""
    write_arrays(file, KINDS[rows.kind].predictions.codec().arrays_of_rows(rows))


def read_cases(file: BinaryIO) -> Any:
    """Return the rows of a file that :func:`write_cases` wrote; the names of its arrays determine the kind.

    Raises
    ------
    ValueError
        If the file is damaged, or is not a file of rows.
    """
    codecs = [kind.predictions.codec() for kind in KINDS.values()]
    names = set(list_arrays(file))
    codec = next((codec for codec in codecs if set(codec.rows) == names), codecs[0])
    return codec.rows_from(read_arrays(file, codec.rows))


def load_shared(data: bytes) -> None:
    """Return None, because these jobs need no shared document."""


def score(arguments: dict[str, Any], files: list[int], _: Any) -> bytes:
    """Score the canonical arrays in the first file; write exact rows to the second file, and those of the final part to
    the third.

    Returns
    -------
    JSON object with the keys released, final, reference_hash and fingerprint
    """
    folder, split = Path(arguments["holdout"]), arguments["split"]
    policy, key = ReleasePolicy.from_json(arguments["policy"]), bytes.fromhex(arguments["key"])
    with os.fdopen(files[0], "rb", closefd=False) as file:
        rows, manifest, predictions, asked = _score(file, folder, split, arguments["thresholds"])
    patients = rows.patients()
    kept_back = split_final(patients, key, policy.final_share)
    public = rows.of_patients(patients - kept_back) if kept_back else rows
    final = rows.of_patients(kept_back) if kept_back else None
    for handle, part in ((files[1], public), (files[2], final)):
        if part is not None:
            with os.fdopen(handle, "wb", closefd=False) as file:
                write_cases(file, part)
    answer = {
        "released": release(public, policy, part=asked, other=final).to_json(),
        "final": None if final is None else release(final, policy, part=asked, other=public).to_json(),
        "reference_hash": _reference_hash(folder, split, manifest, key),
        "fingerprint": asdict(fingerprint(predictions, manifest, key, thresholds=arguments["thresholds"])),
    }
    return json.dumps(answer, allow_nan=False).encode()


def _score(
    file: BinaryIO, folder: Path, split: str, thresholds: float | dict[str, float]
) -> tuple[Rows, Manifest, tuple[Any, ...], str]:
    opened = open_folder(folder)
    kind = KINDS[opened.info.kind]
    manifest: Manifest = kind.questions.read_manifest(opened, split)
    predictions, ratings = read_rated(file, manifest)
    options = kind.resolve(ScoringOptions(thresholds=thresholds), opened.info)
    rows = kind.scoring.score(predictions, kind.data.read_references(opened, split), manifest, options, ratings)
    return rows, manifest, predictions, opened.part(split, kind.items)


def _reference_hash(folder: Path, split: str, manifest: Manifest, key: bytes) -> str:
    """Return a keyed hash of a split's reference files; without the key, the hash cannot confirm guesses of
    references.
    """
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for shard in split_shards(folder, KINDS[manifest.kind].config, split):
        digest.update(hashlib.sha256(shard.read_bytes()).digest())
    return digest.hexdigest()


def rank(arguments: dict[str, Any], files: list[int], _: Any) -> bytes:
    """Rank the submissions whose rows are in `files`; a last file has the first one's rows on the holdout's other part,
    if there is one.
    """
    rows = [_read(handle) for handle in files]
    systems = dict(zip(arguments["ids"], rows, strict=False))
    other = rows[-1] if len(rows) > len(systems) else None
    policy = ReleasePolicy.from_json(arguments["policy"])
    document = rank_document(systems, policy, paired=arguments["paired"], other=other)
    return json.dumps(document, allow_nan=False).encode()


def _read(handle: int) -> Any:
    with os.fdopen(handle, "rb", closefd=False) as file:
        return read_cases(file)


JOBS: dict[str, Job] = {"score": score, "rank": rank}


def warm_up() -> None:
    """Import and compile everything that scoring needs, by scoring built-in references."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    policy = ReleasePolicy(min_cell=1, bands=(1,), band_resolution=(0.01,), n_resamples=20)
    for rows in (rows for kind in KINDS.values() for rows in kind.predictions.example_rows()):
        release(rows, policy)
        rank_document({"a": rows, "b": rows}, policy)
