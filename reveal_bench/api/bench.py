"""A split of a dataset folder, on this machine or on the Hugging Face Hub, to score against.

Nothing is read but ``manifest/benchmark.json`` until it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, overload

from reveal_bench.api.loaded import Loaded, is_loaded, origin_of
from reveal_bench.api.shown import Shown
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds import kind_of
from reveal_bench.kinds.folder import FolderInfo, chosen_split, read_folder_info
from reveal_bench.kinds.kind import Kind, Manifest

__all__ = ["AnyBench", "Bench", "Cases", "References", "as_bench", "load"]

_ON_HUB = re.compile(r"[\w.-]+/[\w.-]+")


class Cases(Shown):
    """What a split asks, one row per question."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The questions: what the manifest tells of an image, study or task, and what is asked of it."""
        kind = self._bench.kind
        return [
            {**{name: value for name, value in entry.items() if name != "asked"}, kind.asked_column: asked}
            for entry in kind.manifest_entries(self._bench.manifest)
            for asked in entry["asked"]
        ]

    @property
    def caption(self) -> str:
        """How many there are, and of what."""
        return f"{len(self.records):,} questions of {self._bench}"


class References(Sequence[Any]):
    """The references of a split, a record each, without pixels."""

    def __init__(self, bench: Bench) -> None:
        self._records = bench.kind.read_records(bench.folder, bench.split)
        self._name = f"<{len(self._records):,} {bench.kind.items} with references: {bench}>"

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._records[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return self._name


@dataclass(frozen=True, repr=False)
class Bench:
    """One split of a dataset folder.

    Attributes
    ----------
    folder : dataset folder
    split : name of the split
    info : what ``manifest/benchmark.json`` says: benchmark, version, grid, findings, splits
    """

    folder: Path
    split: str
    info: FolderInfo

    @cached_property
    def kind(self) -> Kind:
        """The kind of benchmark, which says what is asked and how it is scored."""
        return kind_of(self.info)

    @cached_property
    def manifest(self) -> Manifest:
        """What the split asks; all that a linter may know."""
        manifest: Manifest = self.kind.read_manifest(self.folder, self.split)
        return manifest

    @property
    def cases(self) -> Cases:
        """What is asked, as a table: ``bench.cases.to_pandas()``."""
        return Cases(self)

    @cached_property
    def references(self) -> References:
        """The references, where they are public.

        Raises
        ------
        ValueError
            If those of this split are private.
        """
        return References(self)

    def __str__(self) -> str:
        return f"{self.info.benchmark} {self.info.version}, split {self.split}"

    def __repr__(self) -> str:
        entry = self.info.splits[self.split]
        others = ", ".join(name for name in self.info.splits if name != self.split)
        return "\n".join(
            [
                f"{self} ({self.kind.name})",
                f"  {entry.get(self.kind.counted, '?')} {self.kind.items}, references {entry.get('references', '?')}",
                f"  {len(self.info.findings)} findings: {_cut(', '.join(self.info.findings))}",
                f"  other splits: {others or 'none'}",
                f"  {self.folder}",
            ]
        )


def _cut(text: str, most: int = 76) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


AnyBench: TypeAlias = "str | Path | Bench | Loaded"
"""What a benchmark is given as, see :func:`load`."""


def load(source: AnyBench, split: str | None = None, *, revision: str | None = None) -> Bench:
    """Open a split of a dataset folder.

    Parameters
    ----------
    source : a dataset folder as ``reveal-bench build`` writes it, or ``"owner/name"`` of one on the Hugging Face Hub,
        of which the manifest and the public references are downloaded; or what ``datasets.load_dataset`` returned of
        either, whose folder is found again (:mod:`reveal_bench.api.loaded`) and read
    split : its name; unless given, that of the dataset, "released" where there is one, or the only one
    revision : commit, tag or branch on the Hub; the newest unless given

    Raises
    ------
    ArgumentError
        If there is no such folder or split, `source` is of another type, or a dataset does not lead back to its folder.
    """
    if isinstance(source, Bench):
        return source if split in (None, source.split) else load(source.folder, split)
    if is_loaded(source):
        origin = origin_of(source)
        return load(origin.source, split or origin.split, revision=revision or origin.revision)
    if not isinstance(source, str | Path):
        raise ArgumentError(
            "source",
            "must be a dataset folder, the owner/name of one on the Hugging Face Hub, or what `load_dataset` returned",
            f"{type(source).__module__}.{type(source).__name__}".removeprefix("builtins."),
        )
    folder = Path(source)
    if revision is not None or not folder.exists():
        if not (isinstance(source, str) and _ON_HUB.fullmatch(source)):
            raise ArgumentError("source", "must be a dataset folder that exists", source)
        folder = _download(source, revision)
    return Bench(folder, chosen_split(folder, split), read_folder_info(folder))


def as_bench(bench: AnyBench, split: str | None = None) -> Bench:
    """What a verb was given as its benchmark, opened; raises as :func:`load`."""
    try:
        return load(bench, split)
    except ArgumentError as error:
        if error.argument != "source":
            raise
        raise ArgumentError("bench", error.rule, error.value, error.others) from None


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    from reveal_bench.kinds import KINDS

    wanted = ["manifest/*", *(f"{kind.config}/*" for kind in KINDS.values())]
    try:
        return Path(snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        told = str(error).strip().splitlines()
        raise ArgumentError(
            "source",
            "must be a dataset folder that exists, or a dataset on the Hub that can be read "
            f"({told[0] if told else type(error).__name__})",
            name,
        ) from None
