"""Finding prediction files below a path, and reading their bytes within size limits.

Conventions
-----------
A path may be a prediction file, a run folder, or a folder that contains files or run folders. A file that starts with
1f 8b is read as gzip, one that starts with 28 b5 2f fd as zstd, whatever its name. A file compressed twice is refused.
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import FOLDER_INFO
from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import ProblemLog, escape
from reveal_bench.words import count_text

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_RUN = "run.json"
_TRANSCRIPT = "transcript.jsonl"
_RUN_FILE = re.compile(r"predictions(-\d+)?\.jsonl")
_METADATA = "submission.json"
_BESIDE = {_METADATA, _RUN, _TRANSCRIPT, "summary.json", "answers.jsonl"}
"""Names of files that are not predictions but may be in the same folder, for example in a run folder."""
_BESIDE_FILE = re.compile(r".*\.(submission\.json|\w+\.(options\.json|tuning\.csv|gates\.csv))")
"""Names of the metadata of one prediction file, and of the files that `saliency` writes beside its predictions."""
_MOST_NAMED = 5
GO_ON = "repeat its `reveal-bench run` command, which asks only the questions that are left"
"""Remedy for a run that was killed before it wrote its results."""
_COMPRESSED = (".gz", ".zst")
_CHUNK = 1 << 20
_ALWAYS_ALLOWED = 16 * _CHUNK  # bytes that every compressed file may expand to, whatever its ratio
_FIRST_BYTES = 8000
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive (or spreadsheet): unpack it, or save it as CSV UTF-8",
    b"\x80": "perhaps a Python pickle, which is never opened: it can run code",
    b"\x89PNG": "an image",
    b"\xff\xd8": "an image",
    b"BZh": "bzip2: use gzip or zstd",
    b"\xfd7zXZ": "xz: use gzip or zstd",
}
"""First bytes of other files -> what these are, and what to do."""
_NAME_CHARACTERS = 200


def stem_of(path: Path) -> str:
    """Return the file name without the suffix of a prediction format; the whole name if it has none.

    Examples
    --------
    >>> stem_of(Path("runs/model-a.jsonl.gz")), stem_of(Path("notes.txt"))
    ('model-a', 'notes.txt')
    """
    name = path.name
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return path.name


def prediction_file(path: Path) -> Path:
    """Return the prediction file that `path` means: `path` itself, or the only prediction file in a folder.

    A run of several epochs means the file of its first.

    Raises
    ------
    ValueError
        If `path` is a folder without exactly one prediction file.
    """
    if not path.is_dir():
        return path
    matches = _files_of(path)
    if not matches and (path / _RUN).exists():
        raise ValueError(f"{path} must contain predictions, got a run without any: {GO_ON}")
    if (path / FOLDER_INFO).exists():
        raise ValueError(
            f"{path} must be a prediction file or a run folder, got a dataset folder: name the predictions before it"
        )
    if len(matches) != 1:
        got = ", ".join(one.name for one in matches[:_MOST_NAMED]) or "none"
        got += f" and {len(matches) - _MOST_NAMED} more" * (len(matches) > _MOST_NAMED)
        raise ValueError(f"{path} must contain one prediction file, got {got}")
    return matches[0]


def metadata_path(path: Path) -> Path:
    """Return the path of the metadata of a prediction file or run folder, whether or not it exists.

    This is ``STEM.submission.json``, or the folder's ``submission.json`` if it exists and the folder has no other
    prediction file.
    """
    file = prediction_file(path)
    own, shared = file.with_name(f"{stem_of(file)}.{_METADATA}"), file.with_name(_METADATA)
    if own.is_file() or not shared.is_file():
        return own
    return shared if is_run_file(file) or set(_files_of(file.parent)) <= {file} else own


def metadata_beside(path: Path) -> Path | None:
    """Return the file at :func:`metadata_path`, else the folder's ``submission.json``, if any."""
    own = metadata_path(path)
    return next((one for one in (own, own.with_name(_METADATA)) if one.is_file()), None)


def grid_of(inputs: Any, asked: int | None = None) -> int | None:
    """Return the cells per side that a run, or the ``submission.json`` of a file, states; `asked` if it states none.

    Raises
    ------
    ArgumentError
        If `asked` differs from the stated number.
    """
    stated = _stated_grid(inputs)
    if stated is not None and asked not in (None, stated):
        rule = f"must be {stated}, the grid of {inputs if isinstance(inputs, str | Path) else 'the run'}, or left out"
        raise ArgumentError("grid", rule, asked)
    return asked if stated is None else stated


def _stated_grid(inputs: Any) -> int | None:
    if not isinstance(inputs, str | Path):
        return getattr(getattr(inputs, "info", None), "grid", None)
    own = metadata_path(Path(inputs))
    try:
        grid = json.loads(own.read_text(encoding="utf-8"))["grid"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return grid if type(grid) is int else None


def split_of_runs(inputs: Iterable[Any]) -> str | None:
    """Return the split that the runs among `inputs` answered; None if no input is a run folder or a file in one.

    Raises
    ------
    ArgumentError
        If the runs answered different splits.
    """
    runs = [_run_of(Path(one)) for one in inputs if isinstance(one, str | Path)]
    splits = {str(run["split"]) for run in runs if run is not None}
    if len(splits) > 1:
        raise ArgumentError("split", "must be the same for all runs", ", ".join(sorted(splits)))
    return next(iter(splits), None)


def is_run_file(path: Path) -> bool:
    """Return True if `path` is a prediction file in a run folder."""
    return _RUN_FILE.fullmatch(path.name) is not None and (path.parent / _RUN).is_file()


Questions: TypeAlias = frozenset[tuple[str, str | None]]
"""(id, finding) of questions; the finding is None if a question is about all findings."""


def questions_of_runs(inputs: Iterable[Any], split: str, key: str) -> list[Questions]:
    """Return the questions that each run asked, answered or not, without runs that asked none.

    Parameters
    ----------
    inputs : paths of run folders or of prediction files, results of runs; inputs that are no run are ignored
    split : split to score; runs of other splits are ignored
    key : name of the field with the id of an image, study or task

    Raises
    ------
    ValueError
        If a run's transcript is damaged; the message names file and line.
    """
    parts = []
    for one in inputs:
        if isinstance(one, str | Path):
            parts.append(_read_questions(Path(one), split, key))
        elif getattr(one, "exchanges", None) is not None and one.info.split == split:
            parts.append(frozenset((outcome.unit, outcome.finding) for outcome in one.exchanges))
    return [part for part in parts if part]


def shortest_runs(runs: Mapping[str, Any], split: str, key: str) -> str:
    """Return a sentence on the runs that asked the fewest questions; empty if no run asked fewer than another.

    Parameters
    ----------
    runs : name -> input of :func:`questions_of_runs`
    """
    counts = {name: sum(map(len, questions_of_runs([one], split, key))) for name, one in runs.items()}
    fewest = min((n for n in counts.values() if n), default=0)
    names = [name for name, n in counts.items() if n == fewest]
    if len(names) == len(counts):
        return ""
    them = "it" if len(names) == 1 else "them"
    return f"{', '.join(names)} asked only {count_text(fewest, 'question')}: leave {them} out to score more"


def epoch_of(path: Path) -> tuple[int, int]:
    """Return the epoch of a run's prediction file, and its run's number of epochs; (1, 1) for other files."""
    match, run = _RUN_FILE.fullmatch(path.name), _run_of(path)
    if match is None or run is None:
        return 1, 1
    return int((match[1] or "-1")[1:]), int(run.get("epochs", 1))


def form_of_run(path: Path) -> str:
    """Return the form of answers that the run with this prediction file asked for; empty if it is unknown."""
    settings = (_run_of(path) or {}).get("settings")
    return str(settings.get("form", "")) if isinstance(settings, dict) else ""


def question_statuses(path: Path, split: str, key: str) -> dict[tuple[str, str], str]:
    """Return the questions that a run asked for one of its prediction files -> status; empty for other files.

    A question is an id and a finding, or an id and "" if it is about all findings.
    """
    epoch, _ = epoch_of(path)
    return {
        (one[key], one.get("finding") or ""): str(one.get("status"))
        for one in _read_outcomes(path, split, key)
        if one.get("epoch", 1) == epoch
    }


def _read_questions(path: Path, split: str, key: str) -> Questions:
    """Return the questions in a run's transcript; none if `path` is not a run folder or its prediction file."""
    return frozenset((one[key], one.get("finding")) for one in _read_outcomes(path, split, key))


def _read_outcomes(path: Path, split: str, key: str) -> list[dict[str, Any]]:
    """Return the lines of a run's transcript; none if `path` is not a run folder or its prediction file."""
    run = _run_of(path) if path.is_dir() or _RUN_FILE.fullmatch(path.name) else None
    transcript = (path if path.is_dir() else path.parent) / _TRANSCRIPT
    if run is None or run["split"] != split or not transcript.is_file():
        return []
    outcomes = []
    for number, line in enumerate(transcript.read_bytes().splitlines(), start=1):
        try:
            outcome = json.loads(line)
            _ = outcome[key], outcome.get("finding")
            outcomes.append(outcome)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, KeyError) and any(name.endswith("_id") for name in outcome):  # of another kind
                rule = f"must be a run on this benchmark, whose questions have `{key}`"
                raise ValueError(f"{transcript.parent} {rule}, got a run on {run['benchmark']}") from None
            raise ValueError(f"{transcript}:{number}: not a line of a transcript: {error!r}") from None
    return outcomes


def _run_of(path: Path) -> dict[str, Any] | None:
    """Return ``run.json`` of a run folder or of a file in one; None if reveal-bench did not write that file."""
    record = (path if path.is_dir() else path.parent) / _RUN
    if not record.is_file():
        return None
    try:
        document = json.loads(record.read_text(encoding="utf-8"))
    except ValueError:
        return None
    is_ours = (
        isinstance(document, dict) and {"benchmark", "benchmark_version", "split", "n_questions"} <= document.keys()
    )
    return document if is_ours else None


def prediction_files(directory: Path) -> dict[str, Path]:
    """Return name -> prediction file; the name is the file's without suffixes, or that of the sub-folder with the file.

    Raises
    ------
    ValueError
        If `directory` is not a folder, has no prediction file, or has two prediction files with the same name.
    """
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    files: dict[str, Path] = {}
    for entry in sorted(directory.iterdir()):
        matches = _files_of(entry) if entry.is_dir() else list(filter(_is_prediction_file, [entry]))
        if len(matches) > 1:
            raise ValueError(f"{entry} must contain one prediction file, got {', '.join(one.name for one in matches)}")
        for path in matches:
            name = entry.name if entry.is_dir() else stem_of(path)
            if name in files:
                raise ValueError(
                    f"{directory} must contain one prediction file for {name!r}, got {files[name]} and {path}"
                )
            files[name] = path
    if not files:
        raise ValueError(f"{directory} must contain prediction files ({', '.join(SUFFIXES)}), got none")
    return files


def folders_without_predictions(directory: Path) -> dict[Path, str]:
    """Return folder in `directory` without a prediction file -> what to do if it is a run folder, otherwise ""."""
    return {
        entry: f", because its run was killed: {GO_ON}" * (entry / _RUN).exists()
        for entry in sorted(directory.iterdir())
        if entry.is_dir() and not entry.name.startswith(".") and not _files_of(entry)
    }


def _files_of(folder: Path) -> list[Path]:
    """Return the prediction files in a folder, of a run of several epochs only the first."""
    files = sorted(filter(_is_prediction_file, folder.iterdir()))
    return files[:1] if files and all(map(is_run_file, files)) else files


def _is_prediction_file(path: Path) -> bool:
    is_other = path.name in _BESIDE or _BESIDE_FILE.fullmatch(path.name)
    return path.is_file() and not is_other and stem_of(path) != path.name


def open_source(path: Path, limits: Limits, name: str | None = None) -> tuple[ProblemLog, bytes | None]:
    """Open a file and return a log for its problems, and its bytes.

    Returns
    -------
    log : ProblemLog
    data : bytes, decompressed and without a byte order mark; None if the file is refused, with the reason in `log`

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    log = ProblemLog(escape(name if name is not None else Path(path).name)[:_NAME_CHARACTERS], limits.problems)
    return log, _read(Path(path), limits, log)


def _read(path: Path, limits: Limits, log: ProblemLog) -> bytes | None:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size  # the size of a pipe is 0
        data = file.read(size) if 0 < size <= limits.file_bytes else b""
        while size == 0 and len(data) <= limits.file_bytes and (chunk := file.read(_CHUNK)):
            data += chunk
    if max(size, len(data)) > limits.file_bytes:
        log.refuse("file-size", f"the file must have at most {limits.file_bytes} bytes", value=max(size, len(data)))
        return None
    expand = _expander(data)
    if expand is None:
        return _without_mark(data, log)
    expanded = _expanded(expand, data, limits, log)
    if expanded is not None and _expander(expanded) is not None:
        log.refuse("compression", "the file is compressed twice", hint="compress once")
        return None
    return None if expanded is None else _without_mark(expanded, log)


def _without_mark(data: bytes, log: ProblemLog) -> bytes | None:
    if data.startswith(b"\xef\xbb\xbf"):
        log.warning("byte-order-mark", "the file begins with a byte order mark, which was skipped", hint="plain UTF-8")
        return data[3:]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:2]:  # a mark, or the other byte of an ASCII letter
        log.refuse("encoding", "the file must be UTF-8; its first bytes are those of UTF-16", hint="save it as UTF-8")
        return None
    if not data or data.isspace():
        log.refuse("empty-file", "the file contains no predictions")
        return None
    what = next((what for mark, what in _FOREIGN.items() if data.startswith(mark)), None)
    if what is None and not data.startswith(b"PAR1") and _is_noise(data):
        what = "save it as JSON lines or CSV in UTF-8"
    if what is not None:
        start = data[:8].decode("latin-1")
        log.refuse("format", "the file must be text, such as JSON lines or CSV", value=start, hint=what)
        return None
    return data


def _is_noise(data: bytes) -> bool:
    """Return True if the first bytes cannot be text in any usual encoding."""
    start = data[:_FIRST_BYTES]
    n_other = sum(byte >= 0x80 or byte < 0x09 for byte in start)
    if 0 not in start and n_other < 0.3 * len(start):  # text in Latin-1 has fewer
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _expander(data: bytes) -> Callable[[bytes], Iterator[bytes]] | None:
    if data.startswith(b"\x1f\x8b"):
        return _gunzip
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd
    return None


def _expanded(expand: Callable[[bytes], Iterator[bytes]], data: bytes, limits: Limits, log: ProblemLog) -> bytes | None:
    allowed = min(limits.expanded_bytes, max(_ALWAYS_ALLOWED, limits.expansion * len(data)))
    chunks = []
    n_bytes = 0
    try:
        for chunk in expand(data):
            chunks.append(chunk)
            n_bytes += len(chunk)
            if n_bytes > allowed:
                log.refuse(
                    "expanded-size",
                    f"a compressed file of {len(data)} bytes may expand to at most {allowed} bytes",
                    hint="if the content is right, send it uncompressed",
                )
                return None
    except (OSError, zlib.error, EOFError) as error:
        log.refuse("compression", f"the compressed file is damaged: {error}", hint="compress the original again")
        return None
    return b"".join(chunks)


def _gunzip(data: bytes) -> Iterator[bytes]:
    import gzip

    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _unzstd(data: bytes) -> Iterator[bytes]:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def read_ids(file: Path) -> list[str]:
    """Return the ids in a text file, one on each line, without blank lines.

    Raises
    ------
    ArgumentError
        If the file is no text, or has no id.
    """
    try:
        ids = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise ArgumentError("subset", "must be a text file with an id on each line", str(file)) from None
    if not ids:
        raise ArgumentError("subset", "must have at least one id", f"none in {file}")
    return ids
