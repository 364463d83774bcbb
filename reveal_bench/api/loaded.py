"""Which dataset folder it was that ``datasets.load_dataset`` read.

What it returned knows config, split and a fingerprint, and where its copy is cached. A copy of a repository on the
Hugging Face Hub is filed under its commit, which the Hub's own cache names with the repository; a streamed dataset
names its files. Of a folder on this machine nothing but its name is kept. Such folders are looked for beside and below
the working directory, and taken where `datasets` gives them the same fingerprint: it is of the full path and the
times of the files, so that no other folder has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from reveal_bench.arguments import ArgumentError

if TYPE_CHECKING:
    import datasets

__all__ = ["Loaded", "Origin", "is_loaded", "origin_of"]

Loaded: TypeAlias = "datasets.Dataset | datasets.DatasetDict | datasets.IterableDataset | datasets.IterableDatasetDict"

MARK = "manifest/benchmark.json"
DEEPEST = 2
"""Levels that are looked through below the working directory and below the one that it lies in."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ON_HUB = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)@(?P<commit>[0-9a-f]{40})/.+")
_WHOLE_SPLIT = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a dataset came from.

    Attributes
    ----------
    source : a dataset folder, or the owner/name of one on the Hub
    split : its split; None of a mapping of splits
    revision : commit on the Hub, None of a folder
    """

    source: str
    split: str | None
    revision: str | None = None


def is_loaded(source: object) -> TypeGuard[Loaded]:
    """Whether this is an object of the library `datasets`."""
    return type(source).__module__.partition(".")[0] == "datasets"


def origin_of(loaded: Any) -> Origin:
    """The folder of what ``load_dataset`` returned, streamed or not, of one split or of all.

    Raises
    ------
    ArgumentError
        If it is not a whole split, or does not lead back to a dataset folder.
    """
    splits = list(loaded.values()) if isinstance(loaded, dict) else [loaded]
    if not splits or not all(is_loaded(one) for one in splits):
        raise _refused(loaded, "must be what `load_dataset` returned of a dataset folder")
    one = splits[0]
    split = None if isinstance(loaded, dict) else _split_of(one)
    files = _streamed_files(one)
    for name, commit in _on_hub(one, files):
        return Origin(name, split, commit)
    for folder in _folders(one, files):
        return Origin(str(folder), split)
    rule = (
        "must lead back to its dataset folder, and there is none in or beside the working directory that it was loaded "
    )
    raise _refused(loaded, f"{rule}from; give the path of the folder in its place")


def _split_of(one: datasets.Dataset | datasets.IterableDataset) -> str:
    """Its split, if it has all of its rows."""
    name, known = str(one.split), one.info.splits or {}
    is_whole = bool(_WHOLE_SPLIT.fullmatch(name)) and one.split is not None
    if is_whole and name in known and hasattr(one, "num_rows"):
        is_whole = one.num_rows == known[name].num_examples
    if not is_whole:
        raise _refused(
            one, "must be a whole split as `load_dataset` returned it; a part of one has no references of its own"
        )
    return name


def _streamed_files(one: Any) -> list[str]:
    """The files that a streamed dataset reads; nothing of any other, or of one that is changed on the way."""
    return [str(file) for file in getattr(getattr(one, "_ex_iterable", None), "kwargs", {}).get("files", ())]


def _fingerprint(one: Any) -> str | None:
    """The name of the folder in which `datasets` cached it."""
    return next((Path(file["filename"]).parent.name for file in getattr(one, "cache_files", None) or ()), None)


def _on_hub(one: Any, files: list[str]) -> Iterator[tuple[str, str]]:
    """(owner/name, commit) of what came from the Hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    for file in files:
        if found := _ON_HUB.fullmatch(file):
            yield found["name"], found["commit"]
    commit = _fingerprint(one)
    if commit is not None and _COMMIT.fullmatch(commit):
        for snapshot in Path(HF_HUB_CACHE).glob(f"datasets--*--*/snapshots/{commit}"):
            _, owner, name = snapshot.parent.parent.name.split("--", 2)
            yield f"{owner}/{name}", commit


def _folders(one: Any, files: list[str]) -> Iterator[Path]:
    """Dataset folders on this machine that hold what was loaded."""
    import datasets

    for file in files:
        folder = Path(file).parent.parent
        if (folder / MARK).is_file():
            yield folder
    name, fingerprint = one.info.dataset_name, _fingerprint(one)
    if name is None or fingerprint is None:
        return
    here = Path.cwd()
    for base in (here, here.parent):
        for depth in range(DEEPEST + 1):
            for mark in base.glob("*/" * depth + MARK):
                folder = mark.parent.parent
                if datasets.naming.camelcase_to_snakecase(folder.name) != name:
                    continue
                if datasets.load_dataset_builder(str(folder), one.info.config_name).hash == fingerprint:
                    yield folder


def _refused(value: Any, rule: str) -> ArgumentError:
    kind = type(value)
    name = getattr(getattr(value, "info", None), "dataset_name", None)
    split = f", split {value.split}" if name and value.split is not None else ""
    told = f"a datasets.{kind.__name__}" + (f" of {name!r}{split}" if name else "")
    return ArgumentError("source", rule, told)
