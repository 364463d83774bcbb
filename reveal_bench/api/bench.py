"""Open a split of a dataset folder, on this machine or on the Hugging Face Hub, for scoring.

Only ``manifest/benchmark.json`` is read at once; other files are read when first used.

A dataset from ``datasets.load_dataset`` leads back to its source. If a dataset comes from a repository on the Hugging
Face Hub, its cached copy is named by the commit, and the Hub's cache by the repository; a streamed dataset has the
paths of its files. If a dataset comes from a folder on this machine, only the folder's name is known. Folders with this
name are searched beside and below the working directory. The right folder has the same fingerprint, which `datasets`
computes from the full path and file times and which is therefore unique.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, overload

from reveal_bench.api.result_table import TableResult
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import (
    WHOLE_SPLIT,
    FolderInfo,
    OpenFolder,
    Selection,
    chosen_split,
    open_folder,
    select_findings,
)
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.parts import Manifest

if TYPE_CHECKING:
    import datasets
    import pandas as pd

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class Cases(TableResult):
    """The questions of a split as a table."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """One row per question: the manifest's fields of its image, study or task, and the finding asked about."""
        kind = self._bench.kind
        return [
            {**{name: value for name, value in entry.items() if name != "asked"}, kind.questions.asked_column: asked}
            for entry in kind.questions.manifest_entries(self._bench.manifest)
            for asked in entry["asked"]
        ]

    @property
    def caption(self) -> str:
        """Number of questions, and the split."""
        return f"{len(self.records):,} questions of {self._bench}"


class References(Sequence[Any]):
    """The references of a split, as a sequence of records without pixels."""

    def __init__(self, bench: Bench) -> None:
        self._records = bench.kind.data.read_records(bench.dataset, bench.split)
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

    def to_pandas(self) -> pd.DataFrame:
        """Return the references as a DataFrame with a column for each field of the records."""
        import pandas as pd

        return pd.DataFrame(self._records)

    table = property(to_pandas)

    def __repr__(self) -> str:
        return self._name


@dataclass(frozen=True, repr=False)
class Bench:
    """One split of a dataset folder, to score predictions against.

    Attributes
    ----------
    folder : dataset folder
    split : name of the split
    info : content of ``manifest/benchmark.json``: benchmark, version, grid, findings, splits
    selection : questions that are asked and scored, see :meth:`select`
    """

    folder: Path
    split: str
    info: FolderInfo
    selection: Selection = WHOLE_SPLIT

    def select(
        self,
        findings: Sequence[str] | str | None = None,
        *,
        ids: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Bench:
        """Return the benchmark restricted to some questions, to score predictions that only answer these.

        Scores and comparisons only use the selected questions. Titles, JSON and signatures name the selection.
        Leaderboards do not accept predictions for a selection.

        Parameters
        ----------
        findings : names of findings or of the folder's groups of findings, also separated by commas
        ids : ids of images, studies or tasks
        limit : number of the first images, studies or tasks of the manifest, or of `ids`

        Raises
        ------
        ArgumentError
            If a finding or an id is unknown, or nothing is selected.

        Examples
        --------
        >>> five = bench.select("Atelectasis, Cardiomegaly, Consolidation, Edema, Pleural Effusion")  # doctest: +SKIP
        >>> rb.score("scores.csv", five)  # doctest: +SKIP
        """
        part = self
        if findings is not None:
            chosen = select_findings(findings, self.info.benchmark, self.info.finding_groups, self.dataset.findings)
            if len(chosen) < len(self.dataset.findings):
                part = replace(self, selection=replace(self.selection, findings=chosen))
        if ids is not None:
            part = part._of_ids(self._check_ids(ids))
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise ArgumentError("limit", "must be a whole number of at least 1", repr(limit))
            first = part.ids if ids is None else [key for key in dict.fromkeys(ids) if key in part.ids]
            part = part._of_ids(first[:limit])
        if not part.ids:
            raise ArgumentError("findings", f"must be asked in {self}", repr(findings))
        return part

    @property
    def ids(self) -> list[str]:
        """Ids of the images, studies or tasks asked about, in the manifest's order."""
        entries = self.kind.questions.manifest_entries(self.manifest)
        return list(dict.fromkeys(entry[self.kind.key] for entry in entries if entry["asked"]))

    def _check_ids(self, ids: Iterable[str]) -> list[str]:
        wanted = list(ids)
        if isinstance(ids, str) or not wanted or not all(isinstance(key, str) for key in wanted):
            raise ArgumentError("ids", f"must be a list of ids of {self.kind.items}", repr(ids))
        known = set(self.ids)
        unknown = [key for key in wanted if key not in known]
        if unknown:
            raise ArgumentError("ids", f"must be asked in {self}", repr(unknown[0]))
        return wanted

    def _of_ids(self, ids: Iterable[str]) -> Bench:
        """Return the benchmark with only these ids; itself if they are all that is asked."""
        keys = frozenset(ids) & set(self.ids)
        if keys == set(self.ids):
            return self
        return replace(self, selection=replace(self.selection, keys=keys))

    @property
    def part(self) -> str:
        """Description of the selection, such as "1 of 14 findings (Edema)"; empty for a whole split."""
        return self.dataset.part(self.split, self.kind.items)

    @property
    def dataset(self) -> OpenFolder:
        """The dataset folder with its info and the selection."""
        return OpenFolder(self.folder, self.info, self.selection)

    @property
    def findings(self) -> tuple[str, ...]:
        """Names of the findings, labels or categories asked, in the benchmark's order."""
        return self.dataset.findings

    @cached_property
    def kind(self) -> AnyKind:
        """The kind of benchmark, which defines questions and scores."""
        return KINDS[self.info.kind]

    @cached_property
    def manifest(self) -> Manifest:
        """Questions of the split, without references: all that the linter may use."""
        manifest: Manifest = self.kind.questions.read_manifest(self.dataset, self.split)
        return manifest

    @property
    def cases(self) -> Cases:
        """Questions of the split as a table: ``bench.cases.to_pandas()``."""
        return Cases(self)

    @cached_property
    def references(self) -> References:
        """References of the split, if public.

        Raises
        ------
        ValueError
            If the references of this split are private.
        """
        return References(self)

    def __str__(self) -> str:
        part = f", {self.part}" if self.part else ""
        return f"{self.info.benchmark} {self.info.version}, split {self.split}{part}"

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


def _cut(text: str) -> str:
    return text if len(text) <= 76 else f"{text[:73]}..."


AnyBench: TypeAlias = "str | Path | Bench | Loaded"
"""Types that functions accept as a benchmark; see :func:`load`."""


def load(source: AnyBench, split: str | None = None, *, revision: str | None = None) -> Bench:
    """Open a split of a dataset folder.

    Parameters
    ----------
    source : a dataset folder as ``reveal-bench build`` writes it, or ``"owner/name"`` of one on the Hugging Face Hub,
        whose manifest and public references are downloaded; or a dataset that ``datasets.load_dataset`` returned for
        either of these
    split : name of the split; by default the dataset's own split, otherwise "released" or the only split
    revision : commit, tag or branch on the Hub; by default the newest

    Raises
    ------
    ArgumentError
        If the folder or split does not exist, `source` has another type, or a dataset does not lead back to its folder.
    """
    if isinstance(source, Bench):
        if split in (None, source.split):
            return source
        if source.selection != WHOLE_SPLIT:
            raise ArgumentError("split", f"must be omitted, or that of the selection, {source.split!r}", repr(split))
        return load(source.folder, split)
    if _is_loaded(source):
        origin = _origin_of(source)
        return load(origin.source, split or origin.split, revision=revision or origin.revision)
    if not isinstance(source, str | Path):
        raise ArgumentError(
            "source",
            "must be a dataset folder, the owner/name of one on the Hugging Face Hub, or what `load_dataset` returned",
            f"{type(source).__module__}.{type(source).__name__}".removeprefix("builtins."),
        )
    folder = Path(source)
    if revision is not None or not folder.exists():
        if not (isinstance(source, str) and _HUB_NAME.fullmatch(source)):
            raise ArgumentError("source", "must be an existing dataset folder", source)
        folder = _download(source, revision)
    dataset = open_folder(folder)
    return Bench(folder, chosen_split(dataset, split), dataset.info)


def as_whole_bench(bench: AnyBench, split: str | None = None, *, runs: Iterable[Any] = (), instead: str = "") -> Bench:
    """Return an argument `bench` as :func:`as_bench` does, and refuse a part of a split; say what to do `instead`."""
    opened = as_bench(bench, split, runs=runs)
    if opened.selection != WHOLE_SPLIT:
        raise ArgumentError("bench", f"must be a whole split here{instead}", str(opened))
    return opened


def as_bench(bench: AnyBench, split: str | None = None, *, runs: Iterable[Any] = ()) -> Bench:
    """Return the argument `bench` of a function as a :class:`Bench`; errors are those of :func:`load`.

    If `bench` is a folder and `split` is None, the run folders in `runs`, if any, determine the split.
    """
    from reveal_bench.predictions.files import split_of_runs

    if split is None and isinstance(bench, str | Path):
        split = split_of_runs(runs)
    try:
        return load(bench, split)
    except ArgumentError as error:
        if error.argument != "source":
            raise
        raise ArgumentError("bench", error.rule, error.value, error.others) from None


def as_asked_bench(bench: AnyBench, split: str | None = None, *, runs: Collection[Any]) -> Bench:
    """Return `bench` as :func:`as_bench` does, restricted to the questions that all runs among `runs` asked.

    Raises
    ------
    ArgumentError
        As :func:`as_bench`, or if no question was asked by all runs.
    """
    from reveal_bench.predictions.files import questions_of_runs

    opened = as_bench(bench, split, runs=runs)
    parts = questions_of_runs(runs, opened.split, opened.kind.key)
    if not parts:
        return opened
    from reveal_bench.evaluation.asked_part import select_asked

    return replace(opened, selection=select_asked(opened.dataset, opened.split, parts).selection)


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = ["manifest/*", *(f"{kind.config}/*" for kind in KINDS.values())]
    try:
        return Path(snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        lines = str(error).strip().splitlines()
        raise ArgumentError(
            "source",
            "must be an existing dataset folder, or a readable dataset on the Hub "
            f"({lines[0] if lines else type(error).__name__})",
            name,
        ) from None


Loaded: TypeAlias = "datasets.Dataset | datasets.DatasetDict | datasets.IterableDataset | datasets.IterableDatasetDict"

MARK = "manifest/benchmark.json"
DEEPEST = 2
"""Number of folder levels searched below the working directory and below its parent."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_FILE = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)@(?P<commit>[0-9a-f]{40})/.+")
_WHOLE_SPLIT = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class _Origin:
    """Folder or repository from which a dataset was loaded.

    Attributes
    ----------
    source : a dataset folder, or the owner/name of one on the Hub
    split : split of the dataset; None for a mapping of splits
    revision : commit on the Hub; None for a folder
    """

    source: str
    split: str | None
    revision: str | None = None


def _is_loaded(source: object) -> TypeGuard[Loaded]:
    """Return True if `source` is an object of the library `datasets`."""
    return type(source).__module__.partition(".")[0] == "datasets"


def _origin_of(loaded: Any) -> _Origin:
    """Return the origin of a dataset, or of a mapping of splits, that ``load_dataset`` returned.

    Raises
    ------
    ArgumentError
        If the dataset is not a whole split, or its folder cannot be found.
    """
    splits = list(loaded.values()) if isinstance(loaded, dict) else [loaded]
    if not splits or not all(_is_loaded(one) for one in splits):
        raise _refused(loaded, "must be what `load_dataset` returned for a dataset folder")
    one = splits[0]
    split = None if isinstance(loaded, dict) else _split_of(one)
    files = _streamed_files(one)
    for name, commit in _on_hub(one, files):
        return _Origin(name, split, commit)
    for folder in _folders(one, files):
        return _Origin(str(folder), split)
    rule = "must lead back to its dataset folder, which is not in or beside the working directory"
    raise _refused(loaded, f"{rule}; give the path of the folder instead")


def _split_of(one: datasets.Dataset | datasets.IterableDataset) -> str:
    """Return the name of a dataset's split; ArgumentError unless the dataset has all rows of the split."""
    name, known = str(one.split), one.info.splits or {}
    is_whole = bool(_WHOLE_SPLIT.fullmatch(name)) and one.split is not None
    if is_whole and name in known and hasattr(one, "num_rows"):
        is_whole = one.num_rows == known[name].num_examples
    if not is_whole:
        raise _refused(one, "must be a whole split as `load_dataset` returned it; a part of a split cannot be scored")
    return name


def _streamed_files(one: Any) -> list[str]:
    """Return the files that a streamed dataset reads; empty for other datasets and for processed streams."""
    listed = getattr(getattr(one, "_ex_iterable", None), "kwargs", {}).get("files", ())
    # Before 4.5, `datasets` lists an iterable of files instead of each file
    return [str(file) for entry in listed for file in ([entry] if isinstance(entry, str) else entry)]


def _fingerprint(one: Any) -> str | None:
    """Return the name of the folder in which `datasets` cached a dataset; None if the dataset is not cached."""
    return next((Path(file["filename"]).parent.name for file in getattr(one, "cache_files", None) or ()), None)


def _on_hub(one: Any, files: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (owner/name, commit) of a dataset from the Hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    for file in files:
        if match := _HUB_FILE.fullmatch(file):
            yield match["name"], match["commit"]
    commit = _fingerprint(one)
    if commit is not None and _COMMIT.fullmatch(commit):
        for snapshot in Path(HF_HUB_CACHE).glob(f"datasets--*--*/snapshots/{commit}"):
            _, owner, name = snapshot.parent.parent.name.split("--", 2)
            yield f"{owner}/{name}", commit


def _folders(one: Any, files: list[str]) -> Iterator[Path]:
    """Yield the folders on this machine from which a dataset may have been loaded."""
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
    description = f"a datasets.{kind.__name__}" + (f" of {name!r}{split}" if name else "")
    return ArgumentError("source", rule, description)
