"""Check whether public files of one dataset folder reveal references that another dataset folder holds out.

Conventions
-----------
A public file with a held-out case reveals references of the case in two situations: the file belongs to a split with
public references; or it is a manifest that asks only for present findings (``asks = "present"``) while the benchmark
with the holdout asks for all findings. Cases are recognised by the ids of their patients, studies and images and by the
bytes of their pictures, if the folders contain them.

Ids of held-out patients are only in the private folder. Ids are equal if they differ only in case, in the suffix of an
image file, or in the spaces, slashes, underscores and hyphens between their parts. Cases with equal ids are assumed to
be the same. A case cannot be recognised if two builds gave it different ids and different picture files.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reveal_bench.dataset.tables import INPUTS, MANIFEST, DatasetFolder, open_folder
from reveal_bench.files import FOLDER_INFO
from reveal_bench.kinds.folder import read_folder_info, split_shards
from reveal_bench.words import count_text

MANIFEST_WORD = "the manifest"
ID_COLUMNS = {
    "patient": ("patient_id",), "study": ("study_id",), "image": ("image_id", "image_ids", "prior_image_ids"),
}  # fmt: skip
_SEPARATORS = re.compile(r"[\s_/\\-]+")
_IMAGE_FILE = re.compile(r"\.(jpe?g|png|dcm|dicom)$")

Digests = Mapping[str, set[str]]
"""Kind of :data:`ID_COLUMNS` -> digests of ids; "picture" -> digests of the bytes of pictures."""


class OverlapError(ValueError):
    """The error of a holdout whose references a public folder reveals."""


@dataclass(frozen=True)
class Overlap:
    """References of a holdout that the public folder of another benchmark or version reveals.

    Attributes
    ----------
    holdout : (benchmark, version) of the holdout
    other : (benchmark, version) of the folder that reveals references
    sentence : description of the overlap, for the middle of a message
    """

    holdout: tuple[str, str]
    other: tuple[str, str]
    sentence: str


@dataclass(frozen=True)
class SharedHoldout:
    """Cases that a holdout and `other`, a (benchmark, version), both hold out: `n` of the holdout's `n_held`."""

    other: tuple[str, str]
    n: int
    n_held: int
    kind: str

    @property
    def sentence(self) -> str:
        """Description of the common cases."""
        cases = count_text(self.n_held, f"held-out {self.kind}")
        return f"{self.n} of {cases} are also held out in {' '.join(self.other)}"


@dataclass(frozen=True)
class FolderCases:
    """Cases of a version of a benchmark, from its public folder, its private folder or both.

    Attributes
    ----------
    asks : findings that the manifest asks for, {"present", "all"}
    held_out : digests of the cases whose references are private
    revealing : dict from name of a split or manifest that reveals references to digests of its cases
    """

    benchmark: str
    version: str
    asks: str
    held_out: Digests = field(default_factory=dict)
    revealing: Mapping[str, Digests] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """(benchmark, version)."""
        return self.benchmark, self.version

    def merged(self, other: FolderCases) -> FolderCases:
        """Return the union of the cases of two folders of the same version, such as its public and private folder."""
        revealing = {
            place: _union(self.revealing.get(place, {}), other.revealing.get(place, {}))
            for place in {**self.revealing, **other.revealing}
        }
        return replace(self, held_out=_union(self.held_out, other.held_out), revealing=revealing)


def _union(a: Digests, b: Digests) -> Digests:
    return {kind: a.get(kind, set()) | b.get(kind, set()) for kind in {**a, **b}}


def read_cases(folder: Path, key: bytes = b"", *, with_public: bool = True) -> FolderCases:
    """Return the cases of a public or private dataset folder, with ids hashed under `key`.

    Without `with_public`, public splits, which may contain many pictures, are not read.

    Raises
    ------
    ValueError
        If `folder` is not a dataset folder.
    """
    opened = open_folder(folder)
    info = opened.info
    cases = FolderCases(info.benchmark, info.version, info.asks)
    for split, entry in info.splits.items():
        if entry.get("references") == "public" and with_public:
            paths = [_manifest(opened, split), *split_shards(folder, opened.kind.config, split)]
            places = {f"the public split {split!r}": _digests_of(opened, paths, key)}
            cases = cases.merged(replace(cases, held_out={}, revealing=places))
        elif entry.get("references") == "private":
            held_out = held_out_digests(folder, split, key)
            places = {MANIFEST_WORD: held_out} if info.asks == "present" else {}
            cases = cases.merged(replace(cases, held_out=held_out, revealing=places))
    return cases


def held_out_digests(folder: Path, split: str, key: bytes = b"") -> Digests:
    """Return the digests of a private split's cases, from its manifest and any inputs or references in the folder."""
    opened = open_folder(folder)
    inputs = sorted((folder / INPUTS).glob(f"{split}-*.parquet"))
    references = split_shards(folder, opened.kind.config, split)
    return _digests_of(opened, [_manifest(opened, split), *inputs, *references], key)


def find_overlap(holdout: FolderCases, other: FolderCases) -> Overlap | None:
    """Return the overlap by which `other` reveals references of most cases of a holdout, or None."""
    most: tuple[int, str, str] | None = None
    for place, digests in other.revealing.items():
        if place == MANIFEST_WORD and holdout.asks == "present":
            continue  # the holdout's own manifest reveals the same
        for kind, held in holdout.held_out.items():
            n = len(held & digests.get(kind, set()))
            if n > (most[0] if most else 0):
                most = n, f"{n} of {count_text(len(held), f'held-out {kind}')}", place
    if most is None:
        return None
    _, cases, place = most
    sentence = f"{place} of {other.benchmark} {other.version} reveals references of {cases}"
    return Overlap(holdout.key, other.key, sentence)


def find_shared(holdout: FolderCases, other: FolderCases) -> SharedHoldout | None:
    """Return how many cases of a holdout `other` also holds out, or None without such cases."""
    counts = {kind: len(held & other.held_out.get(kind, set())) for kind, held in holdout.held_out.items()}
    kind = max(counts, key=lambda name: counts[name], default="")
    if not counts.get(kind):
        return None
    return SharedHoldout(other.key, counts[kind], len(holdout.held_out[kind]), kind)


def check_build(
    built: Collection[Path], beside: Collection[Path], retires: bool = False, accepted: Collection[str] = ()
) -> list[str]:
    """Check that a finished build and other dataset folders of the same operator reveal no held-out references.

    Parameters
    ----------
    built : public folder of the build and, with a holdout, its private folder
    beside : the other folders, public or private
    retires : True if the build intentionally publishes the holdout of earlier versions of its benchmark
    accepted : names of benchmarks for which an overlap is accepted

    Returns
    -------
    A sentence for each other benchmark that holds out some of the cases

    Raises
    ------
    OverlapError
        If the build reveals references that another folder holds out, or if another folder reveals references that the
        build holds out.
    """
    if not beside or not any(_holds_out(folder) for folder in (*built, *beside)):
        return []  # nothing can be revealed
    new = _merged(read_cases(folder) for folder in built)
    shared = []
    for other in cases_by_version(beside):
        if other.benchmark != new.benchmark and (common := find_shared(new, other)):
            shared.append(f"{common.sentence}. Serve both benchmarks from one database, so that they share budgets")
        if other.benchmark in accepted:
            continue
        is_earlier = other.benchmark == new.benchmark
        reverse = None if retires and is_earlier else find_overlap(other, new)
        for overlap in (find_overlap(new, other), reverse):
            if overlap is not None:
                raise OverlapError(
                    f"{' '.join(overlap.holdout)} must hold out references that other folders do not reveal, but "
                    f"{overlap.sentence}. Hold out other patients, or accept the overlap with "
                    f"--accept-overlap {other.benchmark}"
                )
    return shared


def dataset_folders_beside(*targets: Path | None) -> list[Path]:
    """Return the dataset folders beside `targets` (in the same parent folders)."""
    known = {target.resolve() for target in targets if target is not None}
    parents = dict.fromkeys(target.parent for target in known)
    folders = (path for parent in parents if parent.is_dir() for path in sorted(parent.iterdir()))
    return [path for path in folders if path not in known and (path / FOLDER_INFO).is_file()]


def cases_by_version(folders: Iterable[Path], key: bytes = b"") -> list[FolderCases]:
    """Return the cases of several folders, with folders of the same version merged."""
    cases: dict[tuple[str, str], FolderCases] = {}
    for folder in folders:
        read = read_cases(folder, key)
        cases[read.key] = cases[read.key].merged(read) if read.key in cases else read
    return list(cases.values())


def _holds_out(folder: Path) -> bool:
    return any(entry.get("references") == "private" for entry in read_folder_info(folder).splits.values())


def _merged(cases: Iterable[FolderCases]) -> FolderCases:
    first, *others = cases
    for other in others:
        first = first.merged(other)
    return first


def _digests_of(opened: DatasetFolder, paths: Iterable[Path], key: bytes) -> Digests:
    """Return the digests of all ids and pictures in the Parquet files `paths`."""
    import pyarrow.parquet as pq

    columns = {**ID_COLUMNS, "picture": tuple(opened.kind.table.image_columns)}
    digests: dict[str, set[str]] = {kind: set() for kind in columns}
    for path in paths:
        file = pq.ParquetFile(path)
        present = {kind: [name for name in names if name in file.schema_arrow.names] for kind, names in columns.items()}
        for batch in file.iter_batches(batch_size=16, columns=[name for names in present.values() for name in names]):
            for kind, names in present.items():
                for name in names:
                    values = (leaf for value in batch[name].to_pylist() for leaf in _leaves(value))
                    digests[kind].update(_digest(value, key) for value in values)
    return digests


def _manifest(opened: DatasetFolder, split: str) -> Path:
    return opened.path / MANIFEST / f"{split}.parquet"


def _leaves(value: Any) -> Iterator[str | bytes]:
    """Yield the ids or the bytes of the pictures in a cell."""
    if isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)
    elif isinstance(value, dict):
        if value.get("bytes"):
            yield value["bytes"]
    elif value:
        yield value


def _digest(value: str | bytes, key: bytes) -> str:
    """Return the digest of a picture, or of an id under a key of at most 64 bytes; equal ids have equal digests."""
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    plain = _IMAGE_FILE.sub("", unicodedata.normalize("NFKC", value).strip().casefold())
    return hashlib.blake2b(_SEPARATORS.sub(" ", plain).encode(), digest_size=16, key=key).hexdigest()
