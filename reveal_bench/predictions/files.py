"""Finding of prediction files: a path may be a file, a run folder, or a folder of either."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import FOLDER_INFO

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_RUN = "run.json"
_BESIDE = {"submission.json", _RUN, "transcript.jsonl", "summary.json", "answers.jsonl"}
"""Names of other files that may be next to predictions, for example in a run folder."""
_MOST_NAMED = 5
_COMPRESSED = (".gz", ".zst")


def stem_of(path: Path) -> str:
    """Return the file name without the ending of a format; the whole name if it has no such ending.

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
    """Return `path` if it is a file; if it is a folder, such as a run folder, the only prediction file in it.

    Raises
    ------
    ValueError
        If it is a folder that does not contain exactly one prediction file.
    """
    if not path.is_dir():
        return path
    matches = sorted(filter(_is_prediction_file, path.iterdir()))
    if not matches and (path / _RUN).exists():
        raise ValueError(f"{path} must hold predictions, got a run without any: repeat its `reveal-bench run` command")
    if (path / FOLDER_INFO).exists():
        raise ValueError(
            f"{path} must be a prediction file or a run folder, got a dataset folder: name the predictions before it"
        )
    if len(matches) != 1:
        got = ", ".join(one.name for one in matches[:_MOST_NAMED]) or "none"
        got += f" and {len(matches) - _MOST_NAMED} more" * (len(matches) > _MOST_NAMED)
        raise ValueError(f"{path} must hold one prediction file, got {got}")
    return matches[0]


def split_of_runs(inputs: Iterable[Any]) -> str | None:
    """Return the split of the runs among `inputs`, which are run folders or files in them; None if there are none.

    Raises
    ------
    ArgumentError
        If the runs answered different splits.
    """
    paths = [Path(one) for one in inputs if isinstance(one, str | Path)]
    splits = {_split_of((path if path.is_dir() else path.parent) / _RUN) for path in paths} - {None}
    if len(splits) > 1:
        raise ArgumentError("split", "must be the same for all runs", ", ".join(sorted(map(str, splits))))
    return next(iter(splits), None)


def _split_of(record: Path) -> str | None:
    """Return the split in a run's record; None if another program wrote the file of this name."""
    if not record.is_file():
        return None
    try:
        document = json.loads(record.read_text(encoding="utf-8"))
    except ValueError:
        return None
    is_ours = (
        isinstance(document, dict) and {"benchmark", "benchmark_version", "split", "n_questions"} <= document.keys()
    )
    return str(document["split"]) if is_ours else None


def prediction_files(directory: Path) -> dict[str, Path]:
    """Return name -> prediction file; a file's name is without endings, the name for a sub-folder is the folder's.

    Raises
    ------
    ValueError
        If `directory` is not a folder, has no prediction file, or has two of the same name.
    """
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    files: dict[str, Path] = {}
    for entry in sorted(directory.iterdir()):
        matches = sorted(filter(_is_prediction_file, entry.iterdir() if entry.is_dir() else [entry]))
        if len(matches) > 1:
            raise ValueError(f"{entry} must hold one prediction file, got {', '.join(path.name for path in matches)}")
        for path in matches:
            name = entry.name if entry.is_dir() else stem_of(path)
            if name in files:
                raise ValueError(
                    f"{directory} must hold one prediction file for {name!r}, got {files[name]} and {path}"
                )
            files[name] = path
    if not files:
        raise ValueError(f"{directory} must hold prediction files ({', '.join(SUFFIXES)}), got none")
    return files


def _is_prediction_file(path: Path) -> bool:
    return path.is_file() and path.name not in _BESIDE and stem_of(path) != path.name
