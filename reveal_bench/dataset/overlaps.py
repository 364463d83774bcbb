"""Public files of one dataset folder that reveal references another one holds out.

Conventions
-----------
A file reveals references of a held-out case if it contains the case and either belongs to a split whose references are
public, or is a manifest that asks only for findings that are present (``asks = "present"``) while the other benchmark
asks for all. Cases are recognised by the ids of their patients, studies and images and by the bytes of their pictures,
where the folders have them. A public folder does not name the patients of its holdout; the private folder does.

Two spellings of an id are the same if they differ only in case, in the ending of an image's file, or in the spaces,
slashes, underscores and hyphens between its parts. Equal ids are always taken for the same case. Nothing recognises a
case if two builds gave it different ids and different picture files.
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
"""Kind of :data:`ID_COLUMNS`, or "picture" -> digests of ids, or of the bytes of pictures."""


class OverlapError(ValueError):
    """Error for a holdout whose references a public folder reveals."""


@dataclass(frozen=True)
class Overlap:
    """References of a holdout that the public folder of another benchmark or version reveals.

    Attributes
    ----------
    holdout : (benchmark, version) of the holdout
    other : (benchmark, version) whose folder reveals its references
    sentence : the overlap as a clause
    """

    holdout: tuple[str, str]
    other: tuple[str, str]
    sentence: str


@dataclass(frozen=True)
class SharedHoldout:
    """Cases of a holdout that `other`, as (benchmark, version), holds out, too: `n` of `n_held` of one kind."""

    other: tuple[str, str]
    n: int
    n_held: int
    kind: str

    @property
    def sentence(self) -> str:
        """The common cases as a clause."""
        cases = count_text(self.n_held, f"held-out {self.kind}")
        return f"{self.n} of {cases} are held out in {' '.join(self.other)}, too"


@dataclass(frozen=True)
class FolderCases:
    """Cases of a benchmark's version, from its public folder, its private folder or both.

    Attributes
    ----------
    asks : which findings its manifest asks for, {"present", "all"}
    held_out : digests of the cases whose references are private
    revealing : place -> digests of the cases there, for the places of the public folder that reveal references
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
        """Return the cases of two folders of the same version, such as the public and the private one."""
        revealing = {
            place: _union(self.revealing.get(place, {}), other.revealing.get(place, {}))
            for place in {**self.revealing, **other.revealing}
        }
        return replace(self, held_out=_union(self.held_out, other.held_out), revealing=revealing)


def _union(a: Digests, b: Digests) -> Digests:
    return {kind: a.get(kind, set()) | b.get(kind, set()) for kind in {**a, **b}}


def read_cases(folder: Path, key: bytes = b"", *, with_public: bool = True) -> FolderCases:
    """Read the cases of a public or private dataset folder; ids are hashed under `key`.

    Public splits are read only `with_public`: they may contain many pictures.

    Raises
    ------
    ValueError
        If it is not a dataset folder.
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
    """Return the digests of a private split, from its manifest and any inputs or references in the folder."""
    opened = open_folder(folder)
    inputs = sorted((folder / INPUTS).glob(f"{split}-*.parquet"))
    references = split_shards(folder, opened.kind.config, split)
    return _digests_of(opened, [_manifest(opened, split), *inputs, *references], key)


def find_overlap(holdout: FolderCases, other: FolderCases) -> Overlap | None:
    """Return how another folder reveals references of a holdout, by the place with the most cases; or None."""
    most: tuple[int, str, str] | None = None
    for place, digests in other.revealing.items():
        if place == MANIFEST_WORD and holdout.asks == "present":
            continue  # the holdout's own manifest says as much
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
    """Return how many cases of a holdout another one holds out, too; None if there are none."""
    counts = {kind: len(held & other.held_out.get(kind, set())) for kind, held in holdout.held_out.items()}
    kind = max(counts, key=lambda name: counts[name], default="")
    if not counts.get(kind):
        return None
    return SharedHoldout(other.key, counts[kind], len(holdout.held_out[kind]), kind)


def check_build(
    built: Collection[Path], beside: Collection[Path], retires: bool = False, accepted: Collection[str] = ()
) -> list[str]:
    """Check a finished build against other dataset folders of the same operator, public or private.

    Parameters
    ----------
    built : its public folder and, if it has a holdout, the private one
    beside : the other folders
    retires : True if it publishes the holdout of earlier versions of its benchmark on purpose
    accepted : benchmarks whose overlap is allowed

    Returns
    -------
    a sentence for each other benchmark that holds out some of the same cases

    Raises
    ------
    OverlapError
        If the build reveals references that another folder holds out, or the reverse.
    """
    if not beside or not any(_holds_out(folder) for folder in (*built, *beside)):
        return []  # nothing can be revealed
    new = _merged(read_cases(folder) for folder in built)
    shared = []
    for other in cases_by_version(beside):
        if other.benchmark != new.benchmark and (common := find_shared(new, other)):
            shared.append(f"{common.sentence}: serve both from one database, so that budgets count on both")
        if other.benchmark in accepted:
            continue
        is_earlier = other.benchmark == new.benchmark
        reverse = None if retires and is_earlier else find_overlap(other, new)
        for overlap in (find_overlap(new, other), reverse):
            if overlap is not None:
                raise OverlapError(
                    f"{' '.join(overlap.holdout)} must hold out references that no other folder reveals, but "
                    f"{overlap.sentence}. Hold out other patients, or accept it with --accept-overlap {other.benchmark}"
                )
    return shared


def dataset_folders_beside(*targets: Path | None) -> list[Path]:
    """Return the dataset folders in the parent folders of `targets`, without the targets themselves."""
    known = {target.resolve() for target in targets if target is not None}
    parents = dict.fromkeys(target.parent for target in known)
    folders = (path for parent in parents if parent.is_dir() for path in sorted(parent.iterdir()))
    return [path for path in folders if path not in known and (path / FOLDER_INFO).is_file()]


def cases_by_version(folders: Iterable[Path], key: bytes = b"") -> list[FolderCases]:
    """Read several folders by :func:`read_cases`, and merge the folders of the same version."""
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
    """Return the digests of all ids and pictures in Parquet files."""
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
    """Yield the ids, or the bytes of the pictures, in a cell."""
    if isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)
    elif isinstance(value, dict):
        if value.get("bytes"):
            yield value["bytes"]
    elif value:
        yield value


def _digest(value: str | bytes, key: bytes) -> str:
    """Return the digest of a picture, or of an id under a key of at most 64 bytes, however the id is spelt."""
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    plain = _IMAGE_FILE.sub("", unicodedata.normalize("NFKC", value).strip().casefold())
    return hashlib.blake2b(_SEPARATORS.sub(" ", plain).encode(), digest_size=16, key=key).hexdigest()
