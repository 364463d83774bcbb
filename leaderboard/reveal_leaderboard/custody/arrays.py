"""Canonical predictions: files of validated predictions as arrays, the only format that the scoring process reads.

Conventions
-----------
Each kind defines its arrays (:mod:`reveal_bench.kinds.arrays`). The file contains a *stamp*: a digest of the public
manifest, the arrays' names and types, and :data:`FORMAT`. The file can be read only with the same manifest and format;
otherwise the upload must be parsed again. The reader trusts no file. A template receives a manifest as JSON, with the
name of its kind.

The file is numpy's .npz, a zip archive of ``name.npy`` members. It is stored without compression, so that its size
bounds the memory needed. The reader requires exact names, dtypes and numbers of axes, and never unpickles.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.arrays import Arrays, Codec, Fields
from reveal_bench.kinds.parts import Manifest
from reveal_leaderboard.custody.limits import BOARD_LIMITS

FORMAT = 1
"""Increase this number when arrays of the same names and types change their meaning."""

_SHARED = {"stamp": ("u1", 1), "line": ("<i8", 1)}


def write_canonical(
    file: Path | BinaryIO, predictions: Sequence[Any], manifest: Manifest, ratings: Sequence[Any] | None = None
) -> None:
    """Write validated predictions, and readers' ratings if there are any.

    Raises
    ------
    ValueError
        If the predictions are not for this manifest, mix labels and probabilities, or lack a prediction for a rating.
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
    """Return the predictions of a file that :func:`write_canonical` wrote without ratings.

    Raises
    ------
    ValueError
        If an array breaks a rule, or the file is for a different manifest or format.
    """
    codec = _codec(manifest)
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as stream:
        arrays = read_arrays(stream, {**_SHARED, **codec.predictions})
    return _predictions(codec, arrays, manifest)


def read_rated(file: BinaryIO, manifest: Manifest) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return predictions and their ratings, for boards scored by readers; raises as :func:`read_canonical`."""
    codec = _codec(manifest)
    arrays = read_arrays(file, {**_SHARED, **codec.predictions, **codec.ratings})
    predictions = _predictions(codec, arrays, manifest)
    return predictions, codec.ratings_from(arrays, predictions)


def _predictions(codec: Codec[Any, Any, Any], arrays: Arrays, manifest: Manifest) -> tuple[Any, ...]:
    if arrays["stamp"].tobytes() != stamp_of(manifest):
        raise ValueError("canonical predictions are for a different manifest or format")
    if (arrays["line"] < 0).any():
        raise ValueError("canonical predictions: `line` must not be negative")
    return codec.predictions_from(arrays, manifest, BOARD_LIMITS)


def _codec(manifest: Manifest) -> Codec[Any, Any, Any]:
    return KINDS[manifest.kind].predictions.codec()


def dump_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON, for :func:`load_manifest`."""
    return json.dumps({"kind": manifest.kind, "manifest": asdict(manifest)}).encode()  # the order of rows is kept


def load_manifest(data: bytes) -> Manifest:
    """Return the manifest from the JSON of :func:`dump_manifest`."""
    raw = json.loads(data)
    manifest: Manifest = KINDS[raw["kind"]].predictions.codec().manifest_from(raw["manifest"])
    return manifest


def stamp_of(manifest: Manifest) -> bytes:
    """Return the 32 bytes of a SHA-256 over the format and the whole manifest, including the order of its rows."""
    form = json.dumps([FORMAT, _codec(manifest).predictions])
    return hashlib.sha256(form.encode() + dump_manifest(manifest)).digest()


MOST_BYTES = 256 << 20
_HEADER_BYTES = 512  # largest header of a .npy member; numpy writes 128


def write_arrays(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write `arrays` to a file; equal arrays give equal bytes."""
    np.savez(file, **{name: np.ascontiguousarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]


def list_arrays(file: BinaryIO) -> list[str]:
    """Return the names of the arrays in a file; an empty list if the file is not an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile:
        return []


def read_arrays(file: BinaryIO, fields: Fields) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays named in `fields`, read-only; the file must contain exactly these arrays.

    Raises
    ------
    ValueError
        If the file is too large, is not an archive of exactly these arrays, or an array has a wrong dtype or number of
        axes.
    """
    size = file.seek(0, io.SEEK_END)
    if size > MOST_BYTES:
        raise ValueError(f"the arrays may have at most {MOST_BYTES} bytes, got {size}")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if sorted(names) != sorted(f"{name}.npy" for name in fields):
                raise ValueError(f"the arrays must be {sorted(fields)}, got {names[:50]}")
            return {m.filename[:-4]: _read_member(archive, m, *fields[m.filename[:-4]]) for m in members}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"the file must be an archive of arrays: {error}") from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, dtype: str, n_axes: int) -> npt.NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > MOST_BYTES:
        raise ValueError(f"array {member.filename!r} must be stored without compression")
    data = archive.read(member)
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"array {member.filename!r} must have .npy version 1.0")
    shape, is_fortran, stored_dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_HEADER_BYTES)
    if stored_dtype != np.dtype(dtype) or len(shape) != n_axes or (is_fortran and n_axes > 1):
        raise ValueError(
            f"array {member.filename!r} must have dtype {dtype} and {n_axes} axes, got {stored_dtype}, shape {shape}"
        )
    n_items = 1
    for side in shape:
        n_items *= side
    if min(shape, default=0) < 0 or n_items * stored_dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"array {member.filename!r} must have the size of its archive member, got shape {shape}")
    array: npt.NDArray[Any] = np.frombuffer(data, stored_dtype, offset=stream.tell()).reshape(shape)
    return array
