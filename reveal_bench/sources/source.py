"""The interface of every source: its problems, its inspection, its data, and its row of SOURCE_MODULES.

Conventions
-----------
The module of a source has three functions:

* ``detect(root) -> float``: its confidence (0 to 1), judged only by file names, that `root` is its download;
* ``inspect(root) -> Inspection``: files, counts and mismatches, without reading pixels;
* ``read(root, *, pixels, keep_going, **options) -> SourceData``: the records of every split. Everything that can be
  checked without pixels is checked before the first record, and all problems are raised together as one
  :class:`BuildError`. Records carry a :class:`reveal_bench.kinds.images.PictureFile` instead of pixels: the folder
  writer reads the pictures, on all cores, and reports those that it cannot read.

To add a source, follow the steps in :mod:`reveal_bench.sources`.

With ``keep_going=True`` an entry with a problem is left out, and the warnings say which and why.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from reveal_bench.arguments import Problem as Problem  # many import it from here
from reveal_bench.benchmarks import Benchmark
from reveal_bench.files import leads_out, parse_json
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.kinds.tasks.records import TaskRecord
from reveal_bench.table_formats import JSON_BYTES
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from datasets import Features


Form = TypeVar("Form", list[Any], dict[str, Any])
Pixels = Literal["embed", "withhold"]
Record = LocalizationRecord | StudyRecord | TaskRecord

SYNTHETIC_MARKER = "SYNTHETIC.txt"
"""A file of this name at the root of a download says that all of it is synthetic (see :mod:`reveal_bench.phantom`)."""

MOST_PROBLEMS = 100_000
"""Number of problems of a download after which nothing more is read."""
SHOWN = 50
"""Number of problems in the message of a BuildError; its `problems` has all of them."""


class BuildError(ValueError):
    """All problems of a build: `problems` has every one, the message only the first ones.

    `warnings` holds further messages for the user, such as which files were set aside.
    """

    def __init__(self, problems: Iterable[Problem], *, hint: str | None = None, warnings: Sequence[str] = ()) -> None:
        self.problems, self.warnings = list(problems), list(warnings)
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN} more")
        count = count_text(len(self.problems), "problem")
        super().__init__("\n".join([f"{count}:", *lines, *([hint] if hint else [])]))


class DownloadProblems(list[Problem]):
    """The problems of a download; more than :data:`MOST_PROBLEMS` stop the reading with a BuildError."""

    def append(self, problem: Problem) -> None:
        """Add a problem."""
        self.extend((problem,))

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems."""
        super().extend(problems)
        if len(self) > MOST_PROBLEMS:
            raise BuildError(self, hint=f"nothing is read after {MOST_PROBLEMS:,} problems")

    def __iadd__(self, problems: Iterable[Problem]) -> Self:  # type: ignore[override, misc]
        self.extend(problems)
        return self


@dataclass(frozen=True)
class Inspection:
    """The contents of a folder, as far as a source recognises them.

    Attributes
    ----------
    files : dict from role (such as "gt_annotations_test") to path relative to the root
    counts, expected : numbers of this download, and those that the source publishes; `warnings` has the differences
    problems : reasons to stop a build, as far as they are found without reading pixels
    """

    source: str
    root: Path
    files: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    warnings: Sequence[str] = ()
    synthetic: bool = False


class Records:
    """Records of a split that are made during iteration, but whose number is known in advance.

    Parameters
    ----------
    make : called to start over; returns an iterator of records
    n : number of records, if none has a problem
    """

    def __init__(self, make: Callable[[], Iterator[Record]], n: int) -> None:
        self._make, self._n = make, n

    def __iter__(self) -> Iterator[Record]:
        return self._make()

    def __len__(self) -> int:
        return self._n


@dataclass(frozen=True, slots=True)
class Extra:
    """A small table beside the main one, as a config of its own.

    Attributes
    ----------
    config : its name
    features : returns the features; called when needed, because `datasets` is slow to import
    rows : all rows
    key : column with the key of a main row (such as "task_id"), so that each row goes where its main row goes; or None
    split : name of the only split of a table without a `key`; such a table is public
    """

    config: str
    features: Callable[[], Features]
    rows: Sequence[dict[str, Any]]
    key: str | None = None
    split: str | None = None


@dataclass
class SourceData:
    """Records, warnings and further tables that a source reads from a download.

    Attributes
    ----------
    splits : dict from split to its records; records with a length allow a build to show its progress
    warnings : grows while the records are iterated
    extras : further configs
    set_aside : (path relative to the download, reason) of every file that is not part of the dataset
    synthetic : whether the download says that it is synthetic
    benchmark : the records' benchmark if the download names its own findings; otherwise the source's
    ids : (kind, identifier in the download) -> id, for the ids that were made with a secret; private
    unfused : warning to show when readers' boxes are not fused; empty if there is nothing to fuse
    """

    splits: Mapping[str, Iterable[Record]]
    warnings: list[str] = field(default_factory=list)
    extras: Sequence[Extra] = ()
    set_aside: Sequence[tuple[str, str]] = ()
    synthetic: bool = False
    benchmark: Benchmark | None = None
    ids: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    unfused: str = ""


@dataclass(frozen=True, slots=True)
class SourceModule:
    """One row of SOURCE_MODULES; `benchmark` is the key of its benchmark in :data:`reveal_bench.benchmarks.BENCHMARKS`.

    `options` names the further keyword arguments of its `read`, which its `inspect` accepts too, except `id_key`:

    * ``pictures``: Path of a folder with the pictures, for downloads that have only annotations;
    * ``mapping``: Path of a YAML file that says which column means what;
    * ``id_key``: bytes, the secret of the ids (keyed HMAC);
    * ``workers``: int, processes for scanning headers;
    * ``include_secondary``: bool, accept secondary captures as radiographs.
    """

    name: str
    benchmark: str
    holdout_split: str | None
    detect: Callable[[Path], float]
    inspect: Callable[..., Inspection]
    read: Callable[..., SourceData]
    options: tuple[str, ...] = ()


def read_document(path: Path, most_bytes: int = JSON_BYTES) -> str:
    """Return the text of a UTF-8 file of the download that is parsed as a whole.

    Raises
    ------
    OSError
        If it cannot be read, is not a regular file, is larger than `most_bytes`, or a link out of the download.
    UnicodeDecodeError
        If it is not UTF-8.
    """
    status = path.stat()
    if leads_out(path):
        raise OSError("a link out of the download")
    if not stat.S_ISREG(status.st_mode):  # reading from a pipe would wait for ever
        raise OSError("not a regular file")
    if status.st_size > most_bytes:
        raise OSError(f"{status.st_size:,} bytes; at most {most_bytes:,} are read")
    return path.read_text(encoding="utf-8-sig")


def read_json(
    path: Path,
    form: type[Form],
    note: Callable[[Problem], object],
    *,
    file: str = "",
    repeated: list[str] | None = None,
) -> Form:
    """Return the JSON list or object of a UTF-8 file; if the file has a problem, note it and return an empty one.

    Parameters
    ----------
    form : list or dict
    note : called with the problem, if there is one
    file : name for messages; by default the name of `path`
    """
    name = "list" if form is list else "object"
    try:
        content = parse_json(read_document(path), repeated)
    except (OSError, ValueError, RecursionError) as error:
        note(Problem(file or path.name, None, "file", f"must be a JSON {name} in UTF-8", str(error)[:200]))
        return form()
    if not isinstance(content, form):
        got = f"a {type(content).__name__}"
        note(Problem(file or path.name, None, "file", f"must be a JSON {name} in UTF-8", got))
        return form()
    return content


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted; an empty list if it cannot be read."""
    return [path for path in entries_in(folder) if path.is_dir()]


def entries_in(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted; an empty list if it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def is_synthetic(root: Path) -> bool:
    """Return True if a download declares itself synthetic."""
    return ((root if root.is_dir() else root.parent) / SYNTHETIC_MARKER).exists()


def finish(problems: list[Problem], warnings: list[str], *, keep_going: bool) -> None:
    """Raise `problems` together, or turn them into warnings if `keep_going`; then empty the list.

    Raises
    ------
    BuildError
        If there are problems and `keep_going` is False.
    """
    raised, problems[:] = list(problems), []
    if raised and not keep_going:
        raise BuildError(raised, warnings=warnings)
    warnings.extend(f"left out: {problem}" for problem in raised)
