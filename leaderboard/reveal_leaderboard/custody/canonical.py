"""Canonical predictions: checked predictions as arrays, the only form in which they reach a process with references.

Conventions
-----------
What the arrays are is said by each kind (:mod:`reveal_bench.kinds.canonical`). A *stamp* is in the file: a digest of
the public manifest, of the arrays' names and types, and of :data:`FORMAT`. The file can be read with that manifest and
by that format alone; one with another stamp must be made anew from the upload. The reader trusts nothing;
:mod:`.arrays` bounds sizes.

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
    "FORMAT", "dump_manifest", "load_manifest", "read_canonical", "read_rated", "stamp_of", "write_canonical",
]  # fmt: skip

FORMAT = 1
"""To be raised when arrays of the same names and types come to mean something else."""

_SHARED = {"stamp": ("u1", 1), "line": ("<i8", 1)}


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
        "stamp": np.frombuffer(stamp_of(manifest), np.uint8),
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
        If anything is not as it must be, or the file is of another manifest or format.
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
    if arrays["stamp"].tobytes() != stamp_of(manifest):
        raise ValueError("the canonical predictions must be of this manifest and format, got those of another")
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


def stamp_of(manifest: Manifest) -> bytes:
    """SHA-256 of the format and of all that a manifest says, the order of its rows included, 32 bytes."""
    form = json.dumps([FORMAT, _codec(manifest).predictions])
    return hashlib.sha256(form.encode() + dump_manifest(manifest)).digest()
