"""Where the holdouts lie, and the vault beside each: known to the worker alone.

Exact figures, the details of incidents, the salt of the reference hash and the key that signs receipts go to the
*vault*, a folder that only the worker's user can read. The data folder, which the server shares, gets released figures.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.records import FolderInfo, Manifest, read_folder_info, read_manifest
from reveal_bench.study_records import StudyManifest, read_study_manifest
from reveal_bench.task_records import TaskManifest, read_task_manifest
from reveal_leaderboard.blobs import write_durably
from reveal_leaderboard.confinement import is_inside, readable_places

__all__ = ["Holdout", "Holdouts", "Vault", "open_holdouts"]

CONFIGS = ("localization", "multilabel", "tasks")
"""Folders of reference files in a dataset folder, by kind of benchmark."""


class Vault:
    """The folder of exact figures and incidents, mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)

    def write_incident(self, subject: str, details: str) -> str:
        """Keep `details` under a new incident number, and return the number."""
        number = f"INC-{secrets.token_hex(4).upper()}"
        text = f"{subject}\n{details}"
        write_durably(self.folder / f"{number}.txt", text.encode("utf-8", "backslashreplace"))
        return number

    def make_salt(self) -> None:
        """A secret made once, so that the public hash of the references confirms nobody's guess at them."""
        path = self.folder / "salt"
        if not path.exists():
            write_durably(path, secrets.token_bytes(32))


@dataclass(frozen=True)
class Holdout:
    """The private references of one version of a benchmark."""

    folder: Path
    info: FolderInfo
    vault: Vault
    _manifests: dict[str, Manifest | StudyManifest | TaskManifest] = field(default_factory=dict, repr=False)

    def manifest(self, split: str) -> Manifest | StudyManifest | TaskManifest:
        """What a file for `split` must predict, read once."""
        if split not in self._manifests:
            if (self.folder / "tasks").is_dir():
                self._manifests[split] = read_task_manifest(self.folder, split)
            else:
                is_of_studies = (self.folder / "multilabel").is_dir()
                read = read_study_manifest if is_of_studies else read_manifest
                self._manifests[split] = read(self.folder, split)
        return self._manifests[split]


Holdouts = dict[tuple[str, str], Holdout]
"""By (benchmark, version)."""


def open_holdouts(folders: Iterable[tuple[str, Path]], *, shared: Iterable[Path], vault: Path | None) -> Holdouts:
    """Check where the holdouts lie, and read what they are.

    Parameters
    ----------
    folders : (benchmark, folder) of every version that is scored
    shared : folders that the server reads and writes
    vault : folder for exact figures; `vault` beside each holdout if None

    Raises
    ------
    ValueError
        If a holdout or vault lies where a server could read it, or is not the benchmark it is said to be.
    """
    shared = list(shared)
    holdouts: Holdouts = {}
    for name, folder in folders:
        private = folder.resolve().parent / "vault" if vault is None else vault
        for what, place in (("holdout", folder), ("vault", private)):
            _check_place(what, place, shared)
        info = read_folder_info(folder)
        absent = [split for split in info.splits if not _reference_files(folder, split)]
        if absent:
            raise ValueError(f"the holdout must hold the references of its split {absent[0]!r}, {folder} does not")
        if info.benchmark != name:
            raise ValueError(f"`holdout` {name!r} must be that benchmark, got a folder of {info.benchmark!r}")
        if (name, info.version) in holdouts:
            raise ValueError(f"`holdout` {name!r} is given twice in version {info.version}")
        holdouts[name, info.version] = Holdout(folder, info, Vault(private))
        holdouts[name, info.version].vault.make_salt()
    return holdouts


def _check_place(what: str, place: Path, shared: Iterable[Path]) -> None:
    for folder in shared:
        if is_inside(place, [folder]) or is_inside(folder, [place]):
            raise ValueError(f"the {what} must lie apart from the data folder, which the server shares: {place}")
    if is_inside(place, readable_places()):
        raise ValueError(f"the {what} must not lie in a folder that the server reads as a program: {place}")


def _reference_files(folder: Path, split: str) -> list[Path]:
    return sorted(path for config in CONFIGS for path in (folder / config).glob(f"{split}-*.parquet"))
