"""A dataset folder and prediction files -> a gallery folder: films with references, answers and outcomes, to look at.

The folder holds references: it is made only of a split whose references are public, unless its maker says otherwise,
and nobody is shown it by itself.

* ``gallery.json``: benchmark, version, split, `groups`, `systems`, `outcomes` (what a right and a wrong answer are
  called) and `cases`, each with `id`, `images` (ids), `view`, the size of its thumbnail and `results`: for every group
  its number and a character per system: ``+`` right, ``-`` wrong, ``.`` not judged. The page opens with it alone.
* ``cases/N.json``: case number N: `films`, `told`, `marks` by reader, `answers` by system;
* ``films/N-K.jpg``: film K of it, grey, at most `max_side` pixels a side; ``thumbnails/N.jpg``: the first one, small.

Marks are in shares of a film's width and height. A mask is `width`, `height` and `runs`: lengths of runs along the rows
of the mask made smaller, those outside first.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from reveal_bench.kinds import kind_of
from reveal_bench.kinds.cases import Case, CaseAnswer, CaseFilm, Mark
from reveal_bench.kinds.folder import FolderInfo, check_split, read_folder_info, split_shards
from reveal_bench.kinds.kind import Kind
from reveal_bench.masks import Rle, decode_mask, shrink_mask

__all__ = ["CASES", "FILMS", "INDEX", "SCHEMA", "THUMBNAILS", "named_files", "prepare_gallery"]

SCHEMA = 1
INDEX, CASES, FILMS, THUMBNAILS = "gallery.json", "cases", "films", "thumbnails"
THUMBNAIL_PX, MASK_PX = 240, 512
OUTCOMES = {True: "+", False: "-", None: "."}

Progress = Callable[[int, int], None]
Answers = Mapping[str, Sequence[CaseAnswer]]


def prepare_gallery(
    folder: Path,
    split: str,
    predictions: Mapping[str, Path],
    out: Path,
    *,
    max_side: int = 2048,
    most: int | None = None,
    thresholds: float = 0.5,
    private: bool = False,
    progress: Progress | None = None,
) -> int:
    """Make a gallery folder.

    Parameters
    ----------
    folder, split : dataset folder with pictures, and the split whose references it holds
    predictions : name of a system -> its prediction file; what is not answered in it is shown as unanswered
    out : new or empty folder
    max_side : pixels of a film's longer side
    most : cases to show, of those in which there is something to find, evenly spread; all unless said
    thresholds : probability from which a label counts as called (findings)
    private : whether references that are kept private may be shown, to their owner alone

    Returns
    -------
    How many cases are in it.

    Raises
    ------
    LintError
        If a prediction file has errors.
    ValueError
        If the references are private or absent, the folder has no pictures, or `out` is not empty.
    """
    folder, out = Path(folder), Path(out).resolve()
    info = read_folder_info(folder)
    check_split(info, folder, split)
    if not private and info.splits[split].get("references") != "public":
        raise ArgumentError("split", "must be one whose references are public", repr(split))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError("out", "must be a new or empty folder", out)
    kind = kind_of(info)
    records = kind.read_records(folder, split)
    systems = {
        name: _answers(kind, info, folder, split, records, path, thresholds) for name, path in predictions.items()
    }
    cases = _chosen({kind.key_of(record): kind.case(record) for record in records}, most)
    groups = _groups(info, cases, systems)
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # of an attempt that was interrupted
    try:
        entries = _write_cases(new, kind, folder, split, cases, systems, groups, max_side, progress)
        index = {
            "schema": SCHEMA,
            "benchmark": info.benchmark,
            "version": info.version,
            "split": split,
            "synthetic": info.synthetic,
            "kind": kind.name,
            "groups": groups,
            "systems": list(systems),
            "outcomes": kind.outcomes,
            "cases": entries,
        }
        _write_json(new / INDEX, index)
        if out.exists():
            out.rmdir()
        new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return len(entries)


def _chosen(cases: dict[str, Case], most: int | None) -> dict[str, Case]:
    """Those in which there is something to find come first; of them `most`, evenly spread."""
    keys = sorted(cases, key=lambda key: not cases[key].groups)
    if most is not None:
        there = [key for key in keys if cases[key].groups] or keys
        most = min(most, len(there))
        keys = [there[i * len(there) // most] for i in range(most)]
    return {key: cases[key] for key in keys}


def named_files(texts: Sequence[str]) -> dict[str, Path]:
    """NAME=FILE, or a file that is called by its name without ending.

    Raises
    ------
    ValueError
        If a file is missing or a name is there twice.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, _, file = text.rpartition("=")
        path = Path(file)
        name = name or path.stem
        if not path.is_file() or name in found:
            raise ArgumentError("predictions", "must be NAME=FILE of a file, each name once", repr(text))
        found[name] = path
    return found


def _answers(
    kind: Kind, info: FolderInfo, folder: Path, split: str, records: Sequence[Any], path: Path, thresholds: float
) -> Answers:
    """What a prediction file says of every case, with the outcomes of its scored rows."""
    manifest = kind.read_manifest(folder, split)
    protocol = kind.protocol(info, grid=None, thresholds=thresholds)
    report = kind.lint(Path(path), manifest, allow_missing=True)
    if not report.ok:
        raise LintError(report)
    is_scored = kind.scored_by == "program"
    rows = kind.score(report.predictions, records, manifest, protocol) if is_scored else None
    return kind.case_answers(report.predictions, records, rows, protocol)


def _groups(info: FolderInfo, cases: Mapping[str, Case], systems: Mapping[str, Answers]) -> list[str]:
    """What is asked or answered of the cases shown: in the order of the benchmark's findings, others after them."""
    there = {group: None for case in cases.values() for group in case.groups}
    there |= {one.group: None for answers in systems.values() for key in cases for one in answers.get(key, ())}
    known = [finding for finding in info.findings if finding in there]
    return known + [group for group in there if group not in known]


def _write_cases(
    out: Path,
    kind: Kind,
    folder: Path,
    split: str,
    cases: Mapping[str, Case],
    systems: Mapping[str, Answers],
    groups: Sequence[str],
    max_side: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    for name in (CASES, FILMS, THUMBNAILS):
        (out / name).mkdir(parents=True)
    entries: dict[str, dict[str, Any]] = {}
    numbers = {key: n for n, key in enumerate(cases)}
    for key, pictures in _pictures(kind, folder, split, numbers):
        case, number = cases[key], numbers[key]
        given = {name: list(answers.get(key, ())) for name, answers in systems.items()}
        size = _write_films(out, number, case, pictures, max_side)
        _write_json(out / CASES / f"{number}.json", _document(case, number, given))
        entries[key] = {
            "id": key,
            "images": [film.image_id for film in case.films],
            "view": case.films[0].view,
            "thumbnail": size,
            "results": _results(case, given, groups),
        }
        if progress is not None:
            progress(len(entries), len(cases))
    return [entries[key] for key in cases]


def _pictures(
    kind: Kind, folder: Path, split: str, chosen: Mapping[str, int]
) -> Iterator[tuple[str, list[bytes | None]]]:
    """Key and pictures of the rows `chosen`, each row's in the order of its films; a row group is in memory at once."""
    import pyarrow.parquet as pq

    for shard in split_shards(folder, kind.config, split):
        with pq.ParquetFile(shard) as file:
            for number in range(file.num_row_groups):
                keys = file.read_row_group(number, columns=[kind.key]).column(kind.key).to_pylist()
                places = [i for i, key in enumerate(keys) if key in chosen]
                if places:
                    table = file.read_row_group(number, columns=[kind.key, *kind.image_columns])
                    for row in table.take(places).to_pylist():
                        cells = [row[name] for name in kind.image_columns]
                        flat = [one for cell in cells for one in (cell if isinstance(cell, list) else [cell])]
                        yield row[kind.key], [None if one is None else one["bytes"] for one in flat]


def _write_films(
    out: Path, number: int, case: Case, pictures: Sequence[bytes | None], max_side: int
) -> tuple[int, int]:
    """Write the films and the thumbnail of a case; the thumbnail's width and height."""
    if len(pictures) != len(case.films) or None in pictures or not pictures:
        raise ValueError(f"the dataset folder must hold every picture to be looked at, that of {case.key} is withheld")
    small = None
    for k, data in enumerate(pictures):
        with Image.open(io.BytesIO(data or b"")) as image:
            grey = image.convert("L")
        grey.info.clear()
        grey.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
        grey.save(out / FILMS / f"{number}-{k}.jpg", "JPEG", quality=90)
        small = small or grey
    assert small is not None
    small.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX), Image.Resampling.LANCZOS)
    small.save(out / THUMBNAILS / f"{number}.jpg", "JPEG", quality=80)
    return small.size


def _results(case: Case, given: Mapping[str, Sequence[CaseAnswer]], groups: Sequence[str]) -> list[list[Any]]:
    """[number of the group, a character per system] of every group asked or answered."""
    by_system = [{one.group: OUTCOMES[one.is_hit] for one in answers} for answers in given.values()]
    there = {*case.groups, *(group for found in by_system for group in found)}
    return [
        [n, "".join(found.get(group, ".") for found in by_system)] for n, group in enumerate(groups) if group in there
    ]


def _document(case: Case, number: int, given: Mapping[str, Sequence[CaseAnswer]]) -> dict[str, Any]:
    return {
        "id": case.key,
        "films": [{"file": f"{FILMS}/{number}-{k}.jpg", **asdict(film)} for k, film in enumerate(case.films)],
        "told": case.told,
        "groups": case.groups,
        "marks": {name: [_mark(mark, case.films) for mark in marks] for name, marks in case.marks.items()},
        "answers": {name: [_answer(one, case.films) for one in answers] for name, answers in given.items()},
    }


def _answer(answer: CaseAnswer, films: Sequence[CaseFilm]) -> dict[str, Any]:
    marks = [_mark(mark, films) for mark in answer.marks]
    return {"group": answer.group, "result": OUTCOMES[answer.is_hit], "words": answer.words, "marks": marks}


def _mark(mark: Mark, films: Sequence[CaseFilm]) -> dict[str, Any]:
    film = films[mark.film]
    width, height = film.width, film.height
    corners = [(x / width, y / height, (x + wide) / width, (y + high) / height) for x, y, wide, high in mark.boxes]
    return {
        "film": mark.film,
        "group": mark.group,
        "masks": [_mask(rle) for rle in mark.masks],
        "boxes": [[round(share, 5) for share in box] for box in corners],
        "points": [[round(x / width, 5), round(y / height, 5)] for x, y in mark.points],
    }


def _mask(rle: Rle) -> dict[str, Any]:
    """A mask of at most MASK_PX pixels a side, as lengths of runs along its rows."""
    height, width = rle.size
    scale = min(1.0, MASK_PX / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    flat = shrink_mask(decode_mask(rle), size).ravel()
    edges = np.flatnonzero(np.diff(flat, prepend=np.False_))
    return {"width": size[0], "height": size[1], "runs": np.diff([0, *edges, len(flat)]).tolist()}


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
