"""The interface of all sources: functions that every source has, and the types of their results and errors.

Conventions
-----------
The module of a source has three functions:

* ``detect(root) -> float``: confidence (0 to 1) that `root` is a download of this source, from the names of files and
  columns;
* ``inspect(root) -> Inspection``: files, counts and mismatches, without reading pixels;
* ``read(root, *, pixels, keep_going, **options) -> SourceData``: the records of every split. Everything that can be
  checked without pixels is checked before the first record, and all problems are raised together as one
  :class:`BuildError`. Records contain a :class:`reveal_bench.kinds.images.PictureFile` instead of pixels. The writer of
  the dataset folder reads the pictures, on all cores, and reports unreadable pictures.

To add a source, follow the steps in :mod:`reveal_bench.sources`.

With ``keep_going=True`` an entry with a problem is left out, and a warning states the problem.
"""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from reveal_bench.arguments import Problem as Problem  # many modules import it from here
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
"""Name of a file at the root of a download that marks the download as synthetic (see :mod:`reveal_bench.phantom`)."""

MOST_PROBLEMS = 100_000
"""Number of problems of a download after which reading stops."""
SHOWN = 50
"""Number of problems in the message of a :class:`BuildError`; the attribute `problems` has all problems."""


SHOWN_TEXTS = 20
"""Number of texts in a warning about published texts."""
READERS_PUBLISHED = "names of readers are published; use pseudonyms if these are names of persons"

FEW_MISSING = 3
"""Number of missing pictures up to which the message of a :class:`BuildError` has a line for each."""


@dataclass(frozen=True, slots=True)
class MissingPicture(Problem):
    """The problem of an image that has no picture in the download.

    Attributes
    ----------
    image : id of the image, or name of its picture
    states_size : True if only the picture states the image's size, so that builds that withhold images also need it
    """

    image: str = ""
    states_size: bool = False


class BuildError(ValueError):
    """The error of a build; `problems` lists all problems, the message only the first :data:`SHOWN`.

    Many missing pictures are one line of the message. `warnings` contains further messages for the user, such as which
    files were set aside.
    """

    def __init__(self, problems: Iterable[Problem], *, hint: str | None = None, warnings: Sequence[str] = ()) -> None:
        self.problems, self.warnings = list(problems), list(warnings)
        lines = problem_lines(self.problems, merged=True)
        if len(lines) > SHOWN:
            lines[SHOWN:] = [f"... and {len(lines) - SHOWN} more"]
        is_one_line = len(lines) == 1 < len(self.problems) and isinstance(self.problems[0], MissingPicture)
        count = [] if is_one_line else [f"{count_text(len(self.problems), 'problem')}:"]
        super().__init__("\n".join([*count, *lines, *([hint] if hint else [])]))


def problem_lines(problems: Sequence[Problem], *, merged: bool = False) -> list[str]:
    """Return a line for each problem, but one for all missing pictures if they are many.

    If `merged`, problems that differ only in their rows have one line, with the first row.
    """
    missing = list(dict.fromkeys(problem.image for problem in problems if isinstance(problem, MissingPicture)))
    head = []
    if len(missing) > FEW_MISSING:
        head = [f"{len(missing):,} images have no picture here: {', '.join(missing[:FEW_MISSING])}, ..."]
        problems = [problem for problem in problems if not isinstance(problem, MissingPicture)]
    if not merged:
        return [*head, *map(str, problems)]
    alike: dict[Problem, list[Problem]] = {}
    for problem in problems:
        alike.setdefault(replace(problem, row=None), []).append(problem)
    more = (f" (and in {count_text(len(own) - 1, 'more row')})" if len(own) > 1 else "" for own in alike.values())
    return [*head, *(f"{own[0]}{n_more}" for own, n_more in zip(alike.values(), more, strict=True))]


class DownloadProblems(list[Problem]):
    """A list of the problems of a download; more than :data:`MOST_PROBLEMS` problems raise a BuildError."""

    def append(self, problem: Problem) -> None:
        """Add a problem."""
        self.extend((problem,))

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems."""
        super().extend(problems)
        if len(self) > MOST_PROBLEMS:
            raise BuildError(self, hint=f"reading stops after {MOST_PROBLEMS:,} problems")

    def __iadd__(self, problems: Iterable[Problem]) -> Self:  # type: ignore[override, misc]
        self.extend(problems)
        return self


@dataclass(frozen=True)
class Inspection:
    """Counts, problems and warnings of a download, found without reading pixels.

    Attributes
    ----------
    files : dict from role (such as "gt_annotations_test") to path relative to the root
    counts, expected : counts of this download, and counts that the source publishes; `warnings` states the differences
    problems : problems that would stop a build
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
    """Records of a split, made during iteration; their number is known in advance.

    Parameters
    ----------
    make : returns a new iterator of the records
    n : number of records if none has a problem
    """

    def __init__(self, make: Callable[[], Iterator[Record]], n: int) -> None:
        self._make, self._n = make, n

    def __iter__(self) -> Iterator[Record]:
        return self._make()

    def __len__(self) -> int:
        return self._n


def _own_name(value: Any) -> Collection[str]:
    return (value,)


@dataclass(frozen=True, slots=True)
class FindingColumn:
    """Column of an :class:`Extra` with one finding, or a list of findings, per row.

    Attributes
    ----------
    name : name of the column
    findings_of : function from an entry of the column to its findings; by default, entries are names of findings
    may_be_empty : whether rows without any of the asked findings are kept, such as those of a reader who saw nothing
    """

    name: str
    findings_of: Callable[[Any], Collection[str]] = _own_name
    may_be_empty: bool = False

    def asked(self, rows: Iterable[dict[str, Any]], findings: Collection[str]) -> list[dict[str, Any]]:
        """Return the rows with the entries of only these findings."""
        kept = []
        for row in rows:
            value = row[self.name]
            entries = value if isinstance(value, list) else [value]
            own = [entry for entry in entries if not set(findings).isdisjoint(self.findings_of(entry))]
            if own or self.may_be_empty:
                kept.append(row | {self.name: own if isinstance(value, list) else value})
        return kept


@dataclass(frozen=True, slots=True)
class Extra:
    """A small table beside the main table, published as a separate config.

    Attributes
    ----------
    config : name of the config
    features : returns the features; called when needed, because `datasets` is slow to import
    rows : all rows
    key : column with the keys of rows of the main table, such as "task_id", or None; rows with the same key are
        released or held out together
    split : name of the only split if the table has no `key`; such a table is always public
    findings : column with findings, from which a build with some findings leaves out the others; None without one
    """

    config: str
    features: Callable[[], Features]
    rows: Sequence[dict[str, Any]]
    key: str | None = None
    split: str | None = None
    findings: FindingColumn | None = None


def table_features(**columns: Any) -> Callable[[], Features]:
    """Return a function for :attr:`Extra.features`, which returns the features of these columns.

    A column is the name of a type, such as "string", a tuple of the names that its codes mean, or a list with the
    column of its entries.
    """

    def feature(column: Any) -> Any:
        from datasets import ClassLabel, List, Value

        if isinstance(column, list):
            return List(feature(column[0]))
        return Value(column) if isinstance(column, str) else ClassLabel(names=list(column))

    def features() -> Features:
        from datasets import Features

        return Features({name: feature(column) for name, column in columns.items()})

    return features


@dataclass
class SourceData:
    """Records, warnings and further tables that a source reads from a download.

    Attributes
    ----------
    splits : dict from split to records; if they have a length, a build shows its progress
    warnings : messages for the user; iteration over the records may add further ones
    extras : further tables
    set_aside : (path relative to the download, reason) of files that are not part of the dataset
    left_out : problems because of which entries were left out
    synthetic : True if the download is marked as synthetic
    benchmark : benchmark of the records if the download names its own findings; None for the source's benchmark
    ids : private dict from (kind, identifier in the download) to id, for ids that were made from a secret
    unfused : warning for a build that does not fuse the readers' boxes; empty if there is nothing to fuse
    """

    splits: Mapping[str, Iterable[Record]]
    warnings: list[str] = field(default_factory=list)
    extras: Sequence[Extra] = ()
    set_aside: Sequence[tuple[str, str]] = ()
    left_out: Sequence[Problem] = ()
    synthetic: bool = False
    benchmark: Benchmark | None = None
    ids: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    unfused: str = ""


@dataclass(frozen=True, slots=True)
class SourceModule:
    """Functions of a source; `benchmark` is the name of its benchmark in :data:`reveal_bench.benchmarks.BENCHMARKS`.

    `options` lists the further keyword arguments of `read`, which `inspect` also accepts except for `id_key`:

    * ``pictures``: Path of a folder with the pictures, for downloads that have only annotations;
    * ``mapping``: Path of a YAML file that explains the columns of a table;
    * ``id_key``: bytes, the secret from which ids are made (HMAC);
    * ``workers``: int, number of processes that read headers;
    * ``include_secondary``: bool, True to accept secondary captures as radiographs;
    * ``blank``, ``uncertain``: the meaning of blank and uncertain (-1) labels, see
      :class:`reveal_bench.findings.LabelPolicy`;
    * ``findings``: tuple of str, the only findings whose labels are read.
    """

    name: str
    benchmark: str
    holdout_split: str | None
    detect: Callable[[Path], float]
    inspect: Callable[..., Inspection]
    read: Callable[..., SourceData]
    options: tuple[str, ...] = ()


def read_document(path: Path, most_bytes: int = JSON_BYTES) -> str:
    """Return the whole text of a UTF-8 file of a download.

    Raises
    ------
    OSError
        If the file cannot be read, is not a regular file, is larger than `most_bytes`, or is a link out of the
        download.
    UnicodeDecodeError
        If the file is not UTF-8.
    """
    status = path.stat()
    if leads_out(path):
        raise OSError("a link out of the download")
    if not stat.S_ISREG(status.st_mode):  # reading from a pipe could wait for ever
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
    """Return the JSON list or object in a UTF-8 file; after a problem, note it and return an empty list or object.

    Parameters
    ----------
    form : expected type, list or dict
    note : called with the problem, if any
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
    """Return the sorted subfolders of a folder; [] if the folder cannot be read."""
    return [path for path in entries_in(folder) if path.is_dir()]


def entries_in(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder; [] if the folder cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def published_texts(note: str, texts: Iterable[str | None]) -> list[str]:
    """Return a warning with texts of the download that are published, the rarest first; [] without any text.

    Examples
    --------
    >>> published_texts("names of readers are published", ["A", "B", "A", None])
    ['names of readers are published: B, A']
    """
    counts = Counter(filter(None, texts))
    rarest = sorted(counts, key=lambda text: (counts[text], text))
    more = f" and {len(rarest) - SHOWN_TEXTS:,} more" if len(rarest) > SHOWN_TEXTS else ""
    return [f"{note}: {', '.join(rarest[:SHOWN_TEXTS])}{more}"] if rarest else []


def is_synthetic(root: Path) -> bool:
    """Return True if a download is marked as synthetic."""
    return ((root if root.is_dir() else root.parent) / SYNTHETIC_MARKER).exists()


def set_aside_lines(set_aside: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason why files were set aside, with the first file and the number of further files.

    Examples
    --------
    >>> set_aside_lines([("a.pkl", "a heat map"), ("b.txt", "notes"), ("c.pkl", "a heat map")])
    ['set aside: a.pkl and 1 more file: a heat map', 'set aside: b.txt: notes']
    """
    files: dict[str, list[str]] = {}
    for file, reason in set_aside:
        files.setdefault(re.sub(r"^duplicate of .*?: ", "a duplicate: ", reason), []).append(file)
    more = {reason: f" and {count_text(len(own) - 1, 'more file')}" * (len(own) > 1) for reason, own in files.items()}
    return [f"set aside: {own[0]}{more[reason]}: {reason}" for reason, own in files.items()]


def finish(problems: list[Problem], warnings: list[str], *, keep_going: bool) -> list[Problem]:
    """Raise one error with all `problems`, or warn of them and return them if `keep_going`; `problems` is emptied.

    Raises
    ------
    BuildError
        If there are problems and `keep_going` is False.
    """
    raised, problems[:] = list(problems), []
    if raised and not keep_going:
        raise BuildError(raised, warnings=warnings)
    warnings.extend(f"left out: {line}" for line in problem_lines(raised))
    return raised
