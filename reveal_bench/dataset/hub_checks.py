"""Checks of a dataset folder before publication, without network.

:func:`prepare` and :func:`prepare_holdout` run every check and raise all problems together as one
:class:`PublishRefusedError`. For a folder that passes, they return a :class:`Publication` with the checked sha256 of
every file.

Rules beyond :func:`reveal_bench.dataset.validate.validate_folder`:

* only openly licensed or synthetic data may be published in a public repository; no option overrides this;
* a private holdout and a public folder must not go to the same repository;
* in a split with private references, the rows of every table may contain only inputs
  (:mod:`reveal_bench.dataset.tables`);
* a folder with such a split must be compared with its private holdout before it is published in a public repository;
* every picture must show something (:mod:`reveal_bench.dicom.contrast`), unless the maintainer names it;
* every file must be a regular file that ``CHECKSUMS.json`` lists, but no link, hidden file, half-written file or code.

The permissions of a folder are not checked: a umask can give every folder the mode 0700, so the mode proves nothing.

The checks read every Parquet file of the folder, so tables that later versions add are also checked.
:mod:`reveal_bench.dataset.leaks` looks for ids, hashes and references of the holdout in the other tables.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.card import front_matter
from reveal_bench.dataset.citation import ZENODO
from reveal_bench.dataset.layout import CHECKSUMS
from reveal_bench.dataset.tables import (
    IDS,
    MANIFEST,
    DatasetFolder,
    TableFile,
    input_rule,
    open_folder,
    read_table,
    tables_of,
)
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.dataset.validate_rows import CONTRAST
from reveal_bench.files import FOLDER_INFO, file_sha256
from reveal_bench.kinds.folder import FolderInfo, read_folder_info
from reveal_bench.sources.source import Problem
from reveal_bench.words import count_text


def holdout_problems(folder: Path, holdout: Path | None, *, is_public: bool) -> Iterator[Problem]:
    """Yield a problem for references in private splits, and for a holdout that is missing or belongs to another folder.

    Parameters
    ----------
    folder : folder to be published
    holdout : private folder of its holdout
    is_public : True for a public repository, for which the holdout is required
    """
    opened = open_folder(folder)
    for table in tables_of(opened):
        if table.split in opened.private_splits and table.config != MANIFEST:
            yield from _reference_problems(opened, table)
    if holdout is not None:
        yield from _other_holdout_problems(opened, open_folder(holdout))
    elif is_public and opened.private_splits:
        rule, got = "must be given before the folder becomes public", "the holdout was not compared: give --holdout"
        yield Problem(FOLDER_INFO, ", ".join(sorted(opened.private_splits)), "holdout", rule, got)


def _reference_problems(folder: DatasetFolder, table: TableFile) -> Iterator[Problem]:
    """Yield a problem for each column that should be empty because its split has private references.

    Pictures are not read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rule = input_rule(folder)
    counts: Counter[str] = Counter()
    try:
        columns = [name for name in pq.read_schema(table.path).names if name not in folder.kind.table.image_columns]
        for batch in read_table(table, columns):
            for row in batch:
                counts.update(set(rule.faults(row)))
    except (pa.ArrowException, OSError):
        return  # the file is damaged, which `validate_folder` reports
    for column, n_rows in sorted(counts.items()):
        text = "must be empty, because the references of its split are private"
        yield Problem(table.name, None, column, text, f"a value in {count_text(n_rows, 'row')}")


def _other_holdout_problems(public: DatasetFolder, private: DatasetFolder) -> Iterator[Problem]:
    """Yield a problem if `private` is the holdout of another folder, with which no leak could be found."""
    name, info = private.path.name, private.info
    if info.benchmark != public.info.benchmark:
        rule = f"must be {public.info.benchmark}, the benchmark of the public folder"
        yield Problem(f"{name}/{FOLDER_INFO}", None, "benchmark", rule, info.benchmark)
    for split in info.splits:
        manifest = f"manifest/{split}.parquet"
        if not (public.path / manifest).is_file():
            rule = f"must also be a split with a manifest in {public.path.name}"
            yield Problem(f"{name}/{FOLDER_INFO}", split, "splits", rule, "no manifest")
        elif _manifest_ids(public, split) != _manifest_ids(private, split):
            yield Problem(manifest, None, "ids", f"must equal the ids of the manifest in {name}", "others")


def _manifest_ids(folder: DatasetFolder, split: str) -> set[str]:
    """Return the ids in each row of a split's manifest, as texts; empty if a file is damaged."""
    import pyarrow as pa

    try:
        tables = [table for table in tables_of(folder) if (table.config, table.split) == (MANIFEST, split)]
        return {
            repr(sorted(row.items())) for table in tables for batch in read_table(table, list(IDS)) for row in batch
        }
    except (pa.ArrowException, OSError):
        return set()


Progress = Callable[[str, int, int | None], None]
"""Function that is called with (name of the check, done, total or None)."""

CARD = "README.md"
MAX_FILES = 25_000
"""Largest number of large files in one commit on the Hub."""
SHOWN = 30
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_TAG = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?", re.ASCII)
_HALF_WRITTEN = (".part", ".tmp", ".incomplete", ".lock", ".crdownload")


class PublishRefusedError(ValueError):
    """The error of a folder that may not be published; `problems` lists all reasons, the message only the first."""

    def __init__(self, what: str, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN} more")
        count = count_text(len(self.problems), "reason")
        super().__init__("\n".join([f"{what} is not published, for {count}:", *lines]))


@dataclass(frozen=True)
class Publication:
    """A folder that passed all checks for publication.

    Attributes
    ----------
    files : dict from path in the folder (with "/") to checked sha256, including ``CHECKSUMS.json``
    n_bytes : total size of the files
    private : True if the repository must be private
    is_holdout : True for the private folder of a holdout
    gated : True if users must request access, because the card has texts for requests (``extra_gated_*``)
    retires_holdout : True if rows that were private in an earlier version may be public
    """

    folder: Path
    repo_id: str
    tag: str
    info: FolderInfo
    private: bool
    is_holdout: bool
    files: Mapping[str, str]
    n_bytes: int
    gated: bool
    retires_holdout: bool = False


def prepare(
    folder: Path,
    repo_id: str,
    *,
    private: bool,
    tag: str | None = None,
    holdout: Path | None = None,
    retire_holdout: bool = False,
    accepted_films: Collection[str] = (),
    load: bool = True,
    progress: Progress | None = None,
) -> Publication:
    """Check a public dataset folder and list its files for publication.

    Parameters
    ----------
    folder : dataset folder, as :func:`reveal_bench.dataset.build.build_folder` writes it
    repo_id : "organization/name"
    private : True for a private repository, False for a public repository
    tag : "vX.Y.Z"; by default "v" and the folder's version
    holdout : private folder of the dataset's holdout, whose contents must not be in `folder`; required for a public
        repository if the dataset has a holdout
    retire_holdout : True if rows that were private in an earlier version may be released
    accepted_films : ids of images that may show nothing
    load : also load the folder as users will, see :func:`reveal_bench.dataset.validate.validate_folder`
    progress : called with (what, done, total) for the groups of rules and for the rows of each table

    Raises
    ------
    PublishRefusedError
        With every reason.
    ValueError
        If `folder` or `holdout` is not a dataset folder.
    """
    folder, holdout = Path(folder), None if holdout is None else Path(holdout)
    info = read_folder_info(folder)
    checks: dict[str, Callable[[], Iterator[Problem]]] = {
        "names": lambda: _name_problems(info, repo_id, tag),
        "files": lambda: _stray_problems(folder, repo_id),
        "licence": lambda: _licence_problems(folder, info, private=private),
        "holdout": lambda: holdout_problems(folder, holdout, is_public=not private),
        "folder": lambda: _folder_problems(folder, holdout, accepted_films, load=load, progress=progress),
    }
    publication = _prepared(folder, repo_id, tag, info, checks, progress, private=private, is_holdout=False)
    return replace(publication, retires_holdout=retire_holdout)


def prepare_holdout(
    folder: Path,
    repo_id: str,
    *,
    tag: str | None = None,
    accepted_films: Collection[str] = (),
    load: bool = True,
    progress: Progress | None = None,
) -> Publication:
    """Check the private folder of a holdout and list its files for publication; otherwise as :func:`prepare`.

    Raises
    ------
    PublishRefusedError
        With all reasons, such as that the folder contains a split with public references.
    """
    folder = Path(folder)
    info = read_folder_info(folder)
    checks: dict[str, Callable[[], Iterator[Problem]]] = {
        "names": lambda: _name_problems(info, repo_id, tag),
        "files": lambda: _stray_problems(folder, repo_id),
        "kind": lambda: _not_holdout_problems(folder, info),
        "folder": lambda: _folder_problems(folder, None, accepted_films, load=load, progress=progress),
    }
    return _prepared(folder, repo_id, tag, info, checks, progress, private=True, is_holdout=True)


def _folder_problems(
    folder: Path, holdout: Path | None, accepted_films: Collection[str], *, load: bool, progress: Progress | None
) -> Iterator[Problem]:
    """Yield the problems of the folder, and films that show nothing and are not accepted."""
    warnings: list[Problem] = []
    yield from validate_folder(folder, holdout=holdout, load=load, progress=progress, warnings=warnings)
    accepted = {f"{CONTRAST}[{image_id}]" for image_id in accepted_films}
    for warning in warnings:
        if warning.field.startswith(f"{CONTRAST}[") and warning.field not in accepted:
            way_on = "leave it out (`leave_out` in the mapping) or name it with --accept-film"
            yield replace(warning, rule=f"must be that of a radiograph: {way_on}")


def _prepared(
    folder: Path,
    repo_id: str,
    tag: str | None,
    info: FolderInfo,
    checks: Mapping[str, Callable[[], Iterator[Problem]]],
    progress: Progress | None,
    *,
    private: bool,
    is_holdout: bool,
) -> Publication:
    problems: list[Problem] = []
    for n_done, check in enumerate(checks.values(), start=1):
        # two checks may find the same problem, which is reported once
        known = {(problem.file, problem.row, problem.field) for problem in problems}
        problems += [problem for problem in check() if (problem.file, problem.row, problem.field) not in known]
        if progress is not None:
            progress("rules", n_done, len(checks))
    if problems:
        raise PublishRefusedError(str(folder), problems)
    files = {**_listed(folder), CHECKSUMS: file_sha256(folder / CHECKSUMS)}
    n_bytes = sum((folder / name).stat().st_size for name in files)
    block, _ = front_matter(_card(folder))
    gated = any(name.startswith("extra_gated_") for name in block)
    return Publication(
        folder, repo_id, _tag(info, tag), info, private, is_holdout, dict(sorted(files.items())), n_bytes, gated
    )


def _tag(info: FolderInfo, tag: str | None) -> str:
    return tag if tag is not None else f"v{info.version}"


def _listed(folder: Path) -> dict[str, str]:
    """Return a dict from file to sha256, as ``CHECKSUMS.json`` lists them; `validate_folder` reports its problems."""
    try:
        listed = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(name): str(value) for name, value in listed.items()} if isinstance(listed, dict) else {}


def _name_problems(info: FolderInfo, repo_id: str, tag: str | None) -> Iterator[Problem]:
    if not _REPO_ID.fullmatch(repo_id) or "--" in repo_id or ".." in repo_id or repo_id.endswith(".git"):
        yield Problem(
            "the Hub", None, "repo_id", "must be 'organization/name' of letters, digits, - _ .", repr(repo_id)
        )
    if not _TAG.fullmatch(_tag(info, tag)):
        where = FOLDER_INFO if tag is None else "the Hub"
        yield Problem(where, None, "tag", "must be 'v' and a version X.Y.Z", repr(_tag(info, tag)))


def _stray_problems(folder: Path, repo_id: str) -> Iterator[Problem]:
    listed = _listed(folder)
    script = repo_id.split("/")[-1] + ".py"
    for place, directories, names in os.walk(folder):
        for path in [Path(place) / name for name in sorted(directories + names)]:
            relative = path.relative_to(folder).as_posix()
            got = _stray(path, script, is_listed=relative in listed or relative == CHECKSUMS or path.is_dir())
            if got is not None:
                yield Problem(CHECKSUMS, relative, "files", "must be regular data files that CHECKSUMS.json lists", got)
        directories[:] = [name for name in directories if not name.startswith(".")]
    if len(listed) >= MAX_FILES:
        rule = f"must be fewer than {MAX_FILES:,}, the limit of a commit: write larger shards"
        yield Problem(CHECKSUMS, None, "files", rule, f"{len(listed):,}")


def _stray(path: Path, script: str, *, is_listed: bool) -> str | None:
    """Return the problem of a file or folder in the dataset folder, or None."""
    if path.is_symlink():
        return "a link"
    if path.name.startswith(".") and path.name != ZENODO:
        return "a hidden file or folder"
    if path.name == script:
        return "a script with the repository's name, which breaks load_dataset"
    if path.suffix == ".py":
        return "code"
    if path.name.endswith(_HALF_WRITTEN):
        return "a half-written file"
    if not (path.is_file() or path.is_dir()):
        return "neither a file nor a folder"
    return None if is_listed else "a file that is not listed"


def _licence_problems(folder: Path, info: FolderInfo, *, private: bool) -> Iterator[Problem]:
    benchmark = BENCHMARKS.get(info.benchmark)
    if benchmark is None:
        rule = f"must be one of {', '.join(BENCHMARKS)}, because only their licences are known"
        yield Problem(FOLDER_INFO, None, "benchmark", rule, repr(info.benchmark))
    elif not (private or info.synthetic or benchmark.licence == "open"):
        rule = (
            f"must be openly licensed for a public repository, but the terms of {benchmark.title} forbid redistribution"
        )
        yield Problem(FOLDER_INFO, None, "benchmark", rule, f"{info.benchmark}, {benchmark.licence}")
    if _is_private_card(folder):
        rule = "must not belong to a private holdout, which only `publish_holdout` publishes"
        yield Problem(CARD, None, "license_name", rule, "'private'")
    elif info.synthetic and "SYNTHETIC" not in _card(folder):
        yield Problem(
            CARD, None, "notice", "must contain the word SYNTHETIC, because the data are synthetic", "no such word"
        )


def _not_holdout_problems(folder: Path, info: FolderInfo) -> Iterator[Problem]:
    for split, entry in info.splits.items():
        if entry.get("references") != "private":
            rule = "must be 'private' in the folder of a holdout; use `publish` for public folders"
            yield Problem(FOLDER_INFO, split, "references", rule, repr(entry.get("references")))
    if not _is_private_card(folder):
        yield Problem(CARD, None, "license_name", "must be 'private' in the card of a holdout", "another card")


def _card(folder: Path) -> str:
    try:
        return (folder / CARD).read_text(encoding="utf-8")
    except OSError:
        return ""


def _is_private_card(folder: Path) -> bool:
    try:
        block, _ = front_matter(_card(folder))
    except ValueError:
        return False
    return block.get("license_name") == "private"
