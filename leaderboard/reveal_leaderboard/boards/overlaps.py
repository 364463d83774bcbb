"""Other boards' public files that reveal a board's references.

Conventions
-----------
A file reveals references of a held-out case if it contains the case and either belongs to a split whose references are
public, or is a manifest that asks only for findings that are present (``asks = "present"``) while this board asks for
all. Cases are recognised by the ids of their studies and images and by the bytes of their pictures, where the public
folders have them. Nothing recognises a case if two builds gave it different ids and different picture files, and equal
ids are always taken for the same case.

Other versions of a board's own benchmark are left out: a version that retires a holdout publishes it on purpose, and
:mod:`reveal_leaderboard.boards.refresh` freezes the retired version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.dataset.tables import INPUTS, MANIFEST, open_folder
from reveal_bench.kinds.folder import FolderInfo, split_shards
from reveal_bench.words import count_text

MANIFEST_WORD = "the manifest"

Digests = dict[str, set[str]]
"""Kind of :data:`ID_COLUMNS`, or "picture" -> digests of ids, or of the bytes of pictures."""
ID_COLUMNS = {"study": ("study_id",), "image": ("image_id", "image_ids", "prior_image_ids")}


class OverlapError(ValueError):
    """Error for a board whose references another board's public folder reveals."""


@dataclass(frozen=True)
class Overlap:
    """References of a board that another board's public folder reveals.

    Attributes
    ----------
    other : name of the other board
    sentence : the overlap as a clause
    """

    other: str
    sentence: str


def find_overlap(board: Digests, asks: str, other: FolderInfo, revealing: Mapping[str, Digests]) -> Overlap | None:
    """Return the overlap of another board's folder with a board's held-out cases, at the place with the most; or None.

    Parameters
    ----------
    board, asks : the held-out cases, and which findings their manifest asks for
    other, revealing : the other folder, and the result of :func:`find_revealing_digests` for it
    """
    most = None
    for where, digests in revealing.items():
        if where == MANIFEST_WORD and asks == "present":
            continue  # the board's own manifest says as much
        for kind, held in board.items():
            n = len(held & digests[kind])
            if n > (most[0] if most else 0):
                most = n, f"{n} of {count_text(len(held), f'held-out {kind}')}", where
    if most is None:
        return None
    return Overlap(other.benchmark, f"{most[2]} of {other.benchmark} {other.version} reveals references of {most[1]}")


def find_revealing_digests(folder: Path, info: FolderInfo) -> dict[str, Digests]:
    """Return place -> digests of the cases there, for the places of a public folder that reveal references."""
    opened = open_folder(folder)
    revealing = {}
    for split, entry in info.splits.items():
        if entry.get("references") == "public":
            shards = split_shards(folder, opened.kind.config, split)  # a server may have the manifests alone
            paths = [_manifest(folder, split), *shards]
            revealing[f"the public split {split!r}"] = digests_of(paths, opened.kind.table.image_columns)
        elif info.asks == "present":
            revealing[MANIFEST_WORD] = held_out_digests(folder, split)
    return revealing


def digests_of(paths: Iterable[Path], picture_columns: Iterable[str]) -> Digests:
    """Return the digests of all ids and pictures in Parquet files."""
    import pyarrow.parquet as pq

    columns = {**ID_COLUMNS, "picture": tuple(picture_columns)}
    digests: Digests = {kind: set() for kind in columns}
    for path in paths:
        file = pq.ParquetFile(path)
        present = {kind: [name for name in names if name in file.schema_arrow.names] for kind, names in columns.items()}
        for batch in file.iter_batches(batch_size=16, columns=[name for names in present.values() for name in names]):
            for kind, names in present.items():
                for name in names:
                    values = (leaf for value in batch[name].to_pylist() for leaf in _leaves(value))
                    digests[kind].update(_digest(value) for value in values)
    return digests


def held_out_digests(folder: Path, split: str) -> Digests:
    """Return the digests of a scored split, from its manifest and, if they are public, its inputs."""
    opened = open_folder(folder)
    inputs = sorted((folder / INPUTS).glob(f"{split}-*.parquet"))
    return digests_of([_manifest(folder, split), *inputs], opened.kind.table.image_columns)


def _manifest(folder: Path, split: str) -> Path:
    return folder / MANIFEST / f"{split}.parquet"


def _leaves(value: Any) -> Iterator[str | bytes]:
    """Yield the ids, or the bytes of the pictures, in a cell."""
    if isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)
    elif isinstance(value, dict):
        if value.get("bytes"):
            yield value["bytes"]
    elif value:
        yield value


def _digest(value: str | bytes) -> str:
    """Return the digest of a picture, or of an id whatever its case and the blanks around it."""
    data = value if isinstance(value, bytes) else value.strip().casefold().encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()
