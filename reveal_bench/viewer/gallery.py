"""Make a gallery folder, which shows images with references, systems' answers and their outcomes in a browser.

The folder contains references. Galleries are only made of splits with public references, unless the owner of private
references requests it. A server only shows a gallery if the settings allow that.

* ``gallery.json`` has benchmark, version, split, `groups` (findings or categories), `systems`, `outcomes` (names of a
  right and a wrong answer), `places` and `cases`. A case has `id`, `images` (ids), `view` and `results`: for every
  group, its number and one character per system, ``+`` for right, ``-`` for wrong, ``.`` for not judged. The page
  only loads this file at the start.
* ``cases/N.json`` has the `films` of case number N, `told` (facts), `marks` by reader, and `answers` by system.
* ``films/N-K.jpg`` is image K of the case, grey, at most `max_side` pixels a side; ``thumbnails/N.jpg`` is the first
  image, small.
* ``places/S-G.jpg`` is a map of the positions that system S marks for group G, over the mean image. The number after
  the last system's means the references. `places` in ``gallery.json`` lists these files with their numbers of cases.

Coordinates of marks are fractions of an image's width and height. A reduced mask is `width`, `height` and `runs`: row
by row, lengths of runs outside and inside the mask in turn, outside first.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.cases import REFERENCE, Case, CaseAnswer, CaseFilm, Mark
from reveal_bench.kinds.folder import AnyFolder, FolderInfo, open_split, split_shards
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.options import ScoringOptions, Thresholds
from reveal_bench.kinds.pictures import StoredPictures
from reveal_bench.masks import Rle, decode_mask, shrink_mask
from reveal_bench.predictions.files import grid_of, prediction_file
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.viewer.positions import LATERAL, answer_maps, draw_map, mean_film
from reveal_bench.words import count_text

SCHEMA = 1
INDEX, CASES, FILMS, THUMBNAILS, PLACES = "gallery.json", "cases", "films", "thumbnails", "places"
FILE = re.compile(rf"(?P<room>{CASES}|{FILMS}|{THUMBNAILS})/(?P<number>\d+)(?:-(?P<film>\d+))?\.(?:json|jpg)")
THUMBNAIL_PX, MASK_PX = 240, 512
BLANK = 24  # grey value of a withheld image, on which marks of every colour are visible
OUTCOMES = {True: "+", False: "-", None: "."}

Progress = Callable[[int, int], None]
Answers = Mapping[str, Sequence[CaseAnswer]]


def prepare_gallery(source: CaseSource, out: Path, *, progress: Progress | None = None) -> int:
    """Write a gallery folder; on failure, write nothing.

    Parameters
    ----------
    source : the files of the gallery
    out : new or empty folder

    Returns
    -------
    The number of cases in the gallery.

    Raises
    ------
    ValueError
        If an image is withheld, or `out` is not empty.
    """
    out = Path(out).resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError("out", "must be a new or empty folder", out)
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # left by an interrupted attempt
    try:
        for name in (CASES, FILMS, THUMBNAILS):
            (new / name).mkdir(parents=True)
        for done, place in enumerate(source.places(), start=1):
            (new / place).write_bytes(source.read(place) or b"")
            if progress is not None:
                progress(done, source.n_files)
        index = source.index | {"places": _write_places(source, new)}
        (new / INDEX).write_bytes(_json(index))
        if out.exists():
            out.rmdir()
        new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return len(source.cases)


class CaseSource:
    """The files of a gallery, each computed when it is read.

    Parameters
    ----------
    folder, split : dataset folder with images, or a part of it, and a split with references
    predictions : name of a system -> its prediction file; questions missing from it are shown as unanswered
    max_side : maximum of an image's longer side in pixels
    most : maximum number of cases, taken evenly from those with a finding first; all by default
    thresholds : probability at or above which a finding counts as predicted, 0.5 by default
    private : allow private references, for their owner only
    blank : show blank frames of the images' sizes instead of withheld images; by default these are refused

    Raises
    ------
    LintError
        If a prediction file has errors.
    ValueError
        If the references are private or absent.
    """

    def __init__(
        self,
        folder: AnyFolder,
        split: str,
        predictions: Mapping[str, Path],
        *,
        max_side: int = 2048,
        most: int | None = None,
        thresholds: Thresholds | None = None,
        private: bool = False,
        blank: bool = False,
    ) -> None:
        folder = open_split(folder, split)
        info = folder.info
        if not private and info.splits[split].get("references") != "public":
            raise ArgumentError("split", "must be one whose references are public", repr(split))
        kind = KINDS[info.kind]
        records = list(kind.data.read_references(folder, split))
        manifest = kind.questions.read_manifest(folder, split)
        options = kind.resolve(ScoringOptions(thresholds=thresholds), info)
        systems = {name: _answers(kind, path, records, manifest, options) for name, path in predictions.items()}
        cases = _select_cases({kind.data.key_of(record): kind.display.case(record) for record in records}, most)
        self.cases = list(cases.values())
        if not all(case.films for case in self.cases):
            raise ArgumentError("folder", "must have images to show", f"none in split {split}")
        self.max_side = max_side
        self.blank = blank
        self.answers = [_answers_to(case, systems) for case in self.cases]
        groups = _groups(info, self.cases, self.answers)
        self._pictures = StoredPictures(kind, split_shards(folder, kind.config, split), set(cases))
        entries = [_entry(case, own, groups) for case, own in zip(self.cases, self.answers, strict=True)]
        self.index: dict[str, Any] = {
            "schema": SCHEMA,
            "benchmark": info.benchmark,
            "version": info.version,
            "split": split,
            "synthetic": info.synthetic,
            "kind": kind.name,
            "groups": groups,
            "systems": list(systems),
            "outcomes": kind.display.outcomes,
            "cases": entries,
        }

    @property
    def n_files(self) -> int:
        """Number of files."""
        return 1 + sum(2 + len(case.films) for case in self.cases)

    def places(self) -> Iterator[str]:
        """Yield the path of every file, case by case, in the order in which images are read fastest."""
        numbers = {case.key: n for n, case in enumerate(self.cases)}
        for key in self._pictures.order:
            number = numbers[key]
            yield f"{CASES}/{number}.json"
            yield f"{THUMBNAILS}/{number}.jpg"
            yield from (f"{FILMS}/{number}-{k}.jpg" for k in range(len(self.cases[number].films)))
        yield INDEX

    def read(self, place: str) -> bytes | None:
        """Return the content of a file by its path in the folder; None if the file does not exist."""
        if place == INDEX:
            return _json(self.index)
        match = FILE.fullmatch(place)
        number = int(match["number"]) if match else len(self.cases)
        if match is None or number >= len(self.cases):
            return None
        case = self.cases[number]
        if match["room"] == CASES:
            document = _document(case, number, self.answers[number])
            n_withheld = len(case.films) - sum(data is not None for data in self._pictures.of(case.key))
            if n_withheld:
                note = f"{count_text(n_withheld, 'image')} withheld", "blank frames of the same size"
                document["told"] = [*document["told"], note]
            return _json(document)
        k, side = int(match["film"] or 0), THUMBNAIL_PX if match["room"] == THUMBNAILS else self.max_side
        if k >= len(case.films):
            return None
        return _film(case, self._pictures.of(case.key), k, side, blank=self.blank)


def _write_places(source: CaseSource, folder: Path) -> list[list[int]]:
    """Draw maps of the positions that systems mark; return [system, group, number of cases] per map."""
    maps = answer_maps(source.cases, source.answers)
    if maps:
        (folder / PLACES).mkdir()
    frontal = [n for n, case in enumerate(source.cases) if case.films[0].view != LATERAL]
    film = mean_film((folder / THUMBNAILS / f"{n}.jpg").read_bytes() for n in frontal)
    names, groups, counts = [*source.index["systems"], REFERENCE], source.index["groups"], []
    for (name, group), (shares, n_cases) in maps.items():
        place = [names.index(name), groups.index(group)]
        (folder / PLACES / f"{place[0]}-{place[1]}.jpg").write_bytes(draw_map(film, shares))
        counts.append([*place, n_cases])
    return counts


def _select_cases(cases: dict[str, Case], most: int | None) -> dict[str, Case]:
    """Return the cases, those with a finding first; with `most`, only that many, evenly spread."""
    keys = sorted(cases, key=lambda key: not cases[key].groups)
    if most is not None:
        there = [key for key in keys if cases[key].groups] or keys
        most = min(most, len(there))
        keys = [there[i * len(there) // most] for i in range(most)]
    return {key: cases[key] for key in keys}


def named_files(texts: Sequence[str]) -> dict[str, Path]:
    """Return name -> file from texts NAME=FILE or FILE; a run folder means its predictions.

    A FILE is named by its stem, or by folder and stem if another FILE has the same stem.

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    ValueError
        If a folder has no single prediction file, or a name is given twice.
    """
    files: dict[str, Path] = {}
    stems = Counter(Path(text).stem for text in texts if "=" not in text)
    for text in texts:
        name, _, file = text.rpartition("=")
        path = Path(file)
        name = name or (path.stem if stems[path.stem] < 2 else f"{path.absolute().parent.name}/{path.stem}")
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        path = prediction_file(path)
        if name in files:
            raise ArgumentError("predictions", "must have different names: give NAME=FILE", repr(name))
        files[name] = path
    return files


def _answers(kind: AnyKind, path: Path, records: Sequence[Any], manifest: Any, options: ScoringOptions) -> Answers:
    """Return case -> answers of a prediction file, with their outcomes."""
    options = replace(options, grid=grid_of(path) or options.grid)
    report = kind.predictions.lint(Path(path), manifest, LintOptions(options.grid, allow_missing=True, any_scale=True))
    if not report.ok:
        raise LintError(report)
    is_scored = kind.scoring.scored_by == "program"
    rows = kind.scoring.score(report.predictions, records, manifest, options) if is_scored else None
    return kind.display.case_answers(report.predictions, records, rows, options)


def _answers_to(case: Case, systems: Mapping[str, Answers]) -> Answers:
    """Return every system's answers to a case, omitting absent groups that no system answers wrongly."""
    own = {name: answers.get(case.key, ()) for name, answers in systems.items()}
    wrong = {one.group for answers in own.values() for one in answers if one.is_hit is not True}
    groups = wrong.union(case.groups)
    return {name: [one for one in answers if one.group in groups] for name, answers in own.items()}


def _groups(info: FolderInfo, cases: Sequence[Case], answers_by_case: Sequence[Answers]) -> list[str]:
    """Return the groups asked, drawn or answered in any case: first the benchmark's, in its order, then others."""
    there = {group: None for case in cases for group in case.named}
    there |= {one.group: None for by_system in answers_by_case for own in by_system.values() for one in own}
    known = [finding for finding in info.findings if finding in there]
    return known + [group for group in there if group not in known]


def _film(case: Case, pictures: Sequence[bytes | None], k: int, max_side: int, *, blank: bool = False) -> bytes:
    """Return image `k` of a case as a grey JPEG without metadata, its longer side at most `max_side` pixels."""
    data = pictures[k] if k < len(pictures) else None
    if data is None and blank:
        film = case.films[k]
        scale = min(1.0, max_side / max(film.width, film.height))
        size = max(1, round(film.width * scale)), max(1, round(film.height * scale))
        return _jpeg(Image.new("L", size, BLANK))
    if data is None:
        raise ValueError(f"the dataset folder must have the image of every case, the image of {case.key} is withheld")
    with Image.open(io.BytesIO(data)) as image:
        image.draft("L", (max_side, max_side))
        grey = image.convert("L")
    grey.info.clear()
    grey.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    return _jpeg(grey)


def _jpeg(grey: Image.Image) -> bytes:
    buffer = io.BytesIO()
    grey.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _entry(case: Case, answers: Mapping[str, Sequence[CaseAnswer]], groups: Sequence[str]) -> dict[str, Any]:
    images = [film.image_id for film in case.films]
    results = _results(case, answers, groups)
    return {"id": case.key, "images": images, "view": case.films[0].view, "results": results}


def _results(case: Case, answers: Mapping[str, Sequence[CaseAnswer]], groups: Sequence[str]) -> list[list[Any]]:
    """Return [group number, one character per system] for every group asked, drawn or answered."""
    by_system = [{one.group: OUTCOMES[one.is_hit] for one in own} for own in answers.values()]
    there = {*case.named, *(group for outcomes in by_system for group in outcomes)}
    return [
        [n, "".join(outcomes.get(group, ".") for outcomes in by_system)]
        for n, group in enumerate(groups)
        if group in there
    ]


def _document(case: Case, number: int, answers: Mapping[str, Sequence[CaseAnswer]]) -> dict[str, Any]:
    return {
        "id": case.key,
        "films": [{"file": f"{FILMS}/{number}-{k}.jpg", **asdict(film)} for k, film in enumerate(case.films)],
        "told": case.facts,
        "groups": case.groups,
        "marks": {name: [_mark(mark, case.films) for mark in marks] for name, marks in case.marks.items()},
        "answers": {name: [_answer(one, case.films) for one in own] for name, own in answers.items()},
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
    """Return a mask, reduced to at most MASK_PX pixels a side, as run lengths along its rows."""
    height, width = rle.size
    scale = min(1.0, MASK_PX / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    flat = shrink_mask(decode_mask(rle), size).ravel()
    edges = np.flatnonzero(np.diff(flat, prepend=np.False_))
    return {"width": size[0], "height": size[1], "runs": np.diff([0, *edges, len(flat)]).tolist()}


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n").encode()
