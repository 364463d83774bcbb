"""Functions that read a dataset folder: ``manifest/benchmark.json`` with its protocol and splits, and table rows."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.files import FOLDER_INFO
from reveal_bench.findings import (
    FindingGroups,
    Vocabulary,
    canonical_finding,
    check_finding_groups,
    select_names,
    terms_of,
)
from reveal_bench.words import count_text

FORMAT = 2
"""Version of the dataset folder's format. Tables of format 1 have lists of fixed length; if such a list is null,
pyarrow before 26 cannot read the column (apache/arrow issue 35692)."""
_OLD_PYARROW = "Expected all lists to be of size="
_MOST_NAMED = 3  # findings whose names fit into a title
_ROWS_AT_ONCE = 64  # the masks of one row take up to a megabyte
DEFAULT_SPLIT = "released"
AnyFolder: TypeAlias = "os.PathLike[str]"
"""The path of a dataset folder, or a :class:`OpenFolder`."""


@dataclass(frozen=True)
class FolderInfo:
    """Content of ``manifest/benchmark.json``; `synthetic` is True if a program generated the whole dataset.

    In the file, other names of the `findings` are in the optional field `terms`, and `format` is called `schema`. The
    fields `finding_groups`, with groups of findings that have their own macros, and `not_asked`, with findings that the
    build left out, are optional, too.
    """

    benchmark: str
    version: str
    synthetic: bool
    asks: str
    grid: int
    findings: tuple[str, ...]
    splits: Mapping[str, Mapping[str, Any]]
    format: int = FORMAT
    finding_groups: FindingGroups = field(default_factory=dict)
    not_asked: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Name of the kind of benchmark; a benchmark that is not in BENCHMARKS counts as localization."""
        known = BENCHMARKS.get(self.benchmark)
        return "localization" if known is None else known.kind

    def to_json(self) -> str:
        """Return the file's text."""
        fields = {name: getattr(self, name) for name in _REQUIRED}
        if self.finding_groups:
            fields["finding_groups"] = self.finding_groups
        if self.not_asked:
            fields["not_asked"] = self.not_asked
        return json.dumps({"schema": self.format, **fields, **terms_of(self.findings)}, indent=2) + "\n"


_REQUIRED = [name for name in FolderInfo.__dataclass_fields__ if name not in ("format", "finding_groups", "not_asked")]


@dataclass(frozen=True, slots=True)
class Selection:
    """Part of a split that is asked and scored.

    Attributes
    ----------
    findings : findings asked, in the benchmark's order; None for all
    keys : ids of the images, studies or tasks asked; None for all
    pairs : pairs (image_id, finding) asked, if only some findings of an image are asked; None for no such limit
    """

    findings: tuple[str, ...] | None = None
    keys: frozenset[str] | None = None
    pairs: frozenset[tuple[str, str]] | None = None

    def has(self, key: str) -> bool:
        """Return True if the image, study or task with this id is asked."""
        return self.keys is None or key in self.keys

    def findings_of(self, key: str, findings: Sequence[str]) -> list[str]:
        """Return those of the `findings` that are asked about an image."""
        if not self.has(key):
            return []
        chosen = findings if self.findings is None else [one for one in findings if one in self.findings]
        return [one for one in chosen if self.pairs is None or (key, one) in self.pairs]


WHOLE_SPLIT = Selection()
"""The selection of everything."""


@dataclass(frozen=True)
class OpenFolder(os.PathLike[str]):
    """Dataset folder with its info, which is read only once; accepted wherever the path of a dataset folder is.

    Manifests and references read from the folder contain only the part of a split in `selection`.
    """

    path: Path
    info: FolderInfo
    selection: Selection = WHOLE_SPLIT

    def __fspath__(self) -> str:
        return str(self.path)

    __str__ = __fspath__

    @property
    def findings(self) -> tuple[str, ...]:
        """The findings asked, in the benchmark's order."""
        return self.info.findings if self.selection.findings is None else self.selection.findings

    def part(self, split: str, items: str) -> str:
        """Return a text that names the asked part of a split, such as "1 of 14 findings (Edema)"; empty if it is whole.

        Findings that the build left out count as not asked. More than three findings, and selected ids or questions,
        are named by a digest, so that two parts of the same size differ.

        Parameters
        ----------
        items : name of the rows in ``manifest/benchmark.json``, such as "images"
        """
        keys, pairs = self.selection.keys, self.selection.pairs
        whole = len(self.info.findings) + len(self.info.not_asked)
        are_some = self.selection.findings is not None or bool(self.info.not_asked)
        few = ", ".join(self.findings) if len(self.findings) <= _MOST_NAMED else f"names {_digest(self.findings)}"
        parts = [f"{len(self.findings)} of {count_text(whole, 'finding')} ({few})"] if are_some else []
        if keys is not None:
            counts = self.info.splits[split]
            digest = _digest(keys if pairs is None else map("|".join, pairs))
            if pairs is not None:
                parts.append(f"{len(pairs):,} of {counts['n_asked']:,} questions")
            parts.append(f"{len(keys):,} of {counts[f'n_{items}']:,} {items} (ids {digest})")
        return ", ".join(parts)


def _digest(names: Iterable[str]) -> str:
    return sha256("\n".join(sorted(names)).encode()).hexdigest()[:8]


def select_findings(
    names: Sequence[str] | str, benchmark: str, groups: FindingGroups, asked: Sequence[str]
) -> tuple[str, ...]:
    """Return those of the `asked` findings that are named, directly or by a group, in their order.

    Parameters
    ----------
    names : findings in any known spelling and names of groups; a text may contain several, separated by commas
    benchmark : name of the benchmark, for messages

    Raises
    ------
    ArgumentError
        If a name is unknown or names no finding in `asked`, or no name is given.
    """
    texts = names.split(",") if isinstance(names, str) else names
    if not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError("findings", "must be names of findings", repr(names))
    wanted = [text.strip() for text in texts]
    chosen: set[str] = set()
    for name in wanted:
        finding = canonical_finding(name, asked)
        members = groups.get(name, ()) if finding is None else (finding,)
        if not set(members) & set(asked):
            known = f", or groups ({', '.join(groups)})" if groups else ""
            raise ArgumentError("findings", f"must be findings of {benchmark}{known}", repr(name))
        chosen |= set(members)
    if not chosen:
        raise ArgumentError("findings", "must name at least one finding", repr(names))
    return select_names(asked, chosen)


def open_folder(folder: AnyFolder) -> OpenFolder:
    """Return `folder` with its info, reading it if necessary; raises the errors of :func:`read_folder_info`."""
    return folder if isinstance(folder, OpenFolder) else OpenFolder(Path(folder), read_folder_info(folder))


def open_split(folder: AnyFolder, split: str) -> OpenFolder:
    """Return `folder` with its info, after checking that it has `split`.

    Raises
    ------
    ValueError
        If it is not a dataset folder, or has no such split.
    """
    opened = open_folder(folder)
    check_split(opened.info, opened.path, split)
    return opened


def read_folder_info(folder: AnyFolder) -> FolderInfo:
    """Read ``manifest/benchmark.json``.

    Raises
    ------
    ValueError
        If the folder is not a dataset folder of this package.
    """
    path = Path(folder) / FOLDER_INFO
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not a dataset folder: it has no {FOLDER_INFO}") from None
    except ValueError as error:
        raise ValueError(f"{path}: must be JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: must hold one JSON object, got {type(raw).__name__}")
    raw["format"] = version = raw.pop("schema", None)
    if type(version) is not int or version not in (1, FORMAT):
        is_newer = type(version) is int and version > FORMAT
        remedy = ": a newer version of reveal-bench built the folder" if is_newer else ""
        raise ValueError(f"{path}: `schema`, the format of the folder, must be 1 or {FORMAT}, got {version!r}{remedy}")
    terms = raw.pop("terms", {})
    groups = raw.pop("finding_groups", None)
    not_asked = tuple(raw.pop("not_asked", ()))
    if set(raw) != {*_REQUIRED, "format"}:
        raise ValueError(f"{path}: the fields must be {sorted([*_REQUIRED, 'format'])}, got {sorted(raw)}")
    findings = Vocabulary.of(raw["findings"], terms) if terms else tuple(raw["findings"])
    try:
        groups = {} if groups is None else check_finding_groups(groups, findings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return FolderInfo(**{**raw, "findings": findings, "finding_groups": groups, "not_asked": not_asked})


def check_split(info: FolderInfo, folder: AnyFolder, split: str, *, argument: str = "split") -> None:
    """Raise ValueError unless the folder has `split`; the message names `argument` and the folder's splits."""
    if split not in info.splits:
        known = ", ".join(info.splits)
        raise ArgumentError(argument, f"must be one of the splits of {folder} ({known})", repr(split))


def chosen_split(folder: AnyFolder, split: str | None = None) -> str:
    """Return `split` if the folder has it; None means the only split, or "released" if there are several.

    Raises
    ------
    ValueError
        If `folder` is not a dataset folder, or has no such split.
    """
    info = open_folder(folder).info
    if split is None:
        split = next(iter(info.splits)) if len(info.splits) == 1 else DEFAULT_SPLIT
        if split not in info.splits:
            raise ArgumentError("split", f"must be given: {folder} has {', '.join(info.splits)}")
    check_split(info, folder, split)
    return split


def split_shards(folder: AnyFolder, config: str, split: str) -> list[Path]:
    """Return the Parquet files of one config of a split, in order; empty if they are missing or private."""
    return sorted((Path(folder) / config).glob(f"{split}-*.parquet"))


def read_rows(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    leave_out: Collection[str] = (),
    at_once: int = _ROWS_AT_ONCE,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one Parquet file; see :func:`read_batches`."""
    for batch in read_batches(path, columns, leave_out=leave_out, at_once=at_once):
        yield from batch


def read_batches(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    leave_out: Collection[str] = (),
    at_once: int = _ROWS_AT_ONCE,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of one Parquet file, a few at a time.

    Parameters
    ----------
    columns : columns to read; all by default
    leave_out : columns, or their fields such as ``annotations.polygons``, that are not read
    at_once : number of rows in memory

    Raises
    ------
    OSError, pyarrow.ArrowException
        If the file is damaged.
    ValueError
        If pyarrow is too old for a table of format 1.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:  # `pq.read_table` loads pyarrow.dataset, and with it pandas
        if leave_out:
            leaves = [file.schema.column(i).path for i in range(len(file.schema))]
            columns = [leaf for leaf in leaves if not any(_is_part(leaf, left) for left in leave_out)]
        try:
            for batch in file.iter_batches(at_once, columns=columns, use_threads=False):
                yield batch.to_pylist()
        except pa.ArrowInvalid as error:
            if _OLD_PYARROW not in str(error):
                raise
            remedy = "install pyarrow 26 or newer, or build the folder again"
            raise ValueError(f"{path}: pyarrow {pa.__version__} cannot read tables of format 1: {remedy}") from error
    pa.default_memory_pool().release_unused()  # otherwise, Arrow keeps tens of MiB of buffers used for decoding


def _is_part(leaf: str, field: str) -> bool:
    """Return True if a schema leaf belongs to `field`. Unlike a leaf, `field` has no parts for list levels."""
    named = [part for part in leaf.split(".") if part not in ("list", "element", "item")]
    return named[: field.count(".") + 1] == field.split(".")
