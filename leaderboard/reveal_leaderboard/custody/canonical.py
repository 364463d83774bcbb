"""Canonical predictions: checked predictions as arrays, the only form in which they reach a process with references.

Conventions
-----------
What the arrays are is said by each kind (:mod:`reveal_bench.kinds.canonical`). The digest of the public manifest is in
the file: it can be read with that manifest alone. The reader trusts nothing; :mod:`.arrays` bounds sizes.

A manifest goes to a template as JSON with its kind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.canonical import Arrays, Codec
from reveal_bench.kinds.kind import Manifest
from reveal_leaderboard.custody.arrays import read_arrays, write_arrays
from reveal_leaderboard.custody.limits import BOARD_LIMITS

__all__ = [
    "dump_manifest", "load_manifest", "manifest_digest", "read_canonical", "read_rated", "write_canonical",
]  # fmt: skip

_SHARED = {"manifest": ("u1", 1), "line": ("<i8", 1)}


def write_canonical(
    file: Path | BinaryIO, predictions: Sequence[Any], manifest: Manifest, ratings: Sequence[Any] | None = None
) -> None:
    """Write checked predictions, and what readers gave to them if that is known.

    Raises
    ------
    ValueError
        If they are not of this manifest, findings predictions give labels and probabilities in turn, or a rating is of
        no prediction.
    """
    codec = _codec(manifest)
    shared: Arrays = {
        "manifest": np.frombuffer(manifest_digest(manifest), np.uint8),
        "line": np.array([prediction.line for prediction in predictions], np.int64),
    }
    rated = {} if ratings is None else codec.arrays_of_ratings(ratings, predictions)
    arrays = {**shared, **codec.arrays_of(predictions, manifest), **rated}
    with file.open("wb") if isinstance(file, Path) else nullcontext(file) as stream:
        write_arrays(stream, arrays)


def read_canonical(file: Path | BinaryIO, manifest: Manifest) -> tuple[Any, ...]:
    """Read what :func:`write_canonical` wrote without ratings; equal to what it was given.

    Raises
    ------
    ValueError
        If anything is not as it must be, or the file is of another manifest.
    """
    codec = _codec(manifest)
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as stream:
        arrays = read_arrays(stream, {**_SHARED, **codec.predictions})
    return _predictions(codec, arrays, manifest)


def read_rated(file: BinaryIO, manifest: Manifest) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Read predictions, and their ratings where readers score; raises as :func:`read_canonical`."""
    codec = _codec(manifest)
    arrays = read_arrays(file, {**_SHARED, **codec.predictions, **codec.ratings})
    predictions = _predictions(codec, arrays, manifest)
    return predictions, codec.ratings_from(arrays, predictions)


def _predictions(codec: Codec, arrays: Arrays, manifest: Manifest) -> tuple[Any, ...]:
    if arrays["manifest"].tobytes() != manifest_digest(manifest):
        raise ValueError("the canonical predictions must be of this manifest, got those of another")
    if (arrays["line"] < 0).any():
        raise ValueError("canonical predictions: `line` must not be negative")
    return codec.predictions_from(arrays, manifest, BOARD_LIMITS)


def _codec(manifest: Manifest) -> Codec:
    return KINDS[manifest.kind].codec()


def dump_manifest(manifest: Manifest) -> bytes:
    """A manifest as JSON, for :func:`load_manifest`."""
    return json.dumps({"kind": manifest.kind, "manifest": asdict(manifest)}).encode()  # the order of its rows counts


def load_manifest(data: bytes) -> Manifest:
    """The manifest that :func:`dump_manifest` wrote; equal to it."""
    raw = json.loads(data)
    manifest: Manifest = KINDS[raw["kind"]].codec().manifest_from(raw["manifest"])
    return manifest


def manifest_digest(manifest: Manifest) -> bytes:
    """SHA-256 of all that a manifest says, the order of its rows included, 32 bytes."""
    facts = _codec(manifest).manifest_facts(manifest)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
