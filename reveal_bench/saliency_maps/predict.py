"""Make a prediction file from heat maps, one map at a time: point, mask and probability per image and finding.

:class:`MapOptions` determine the predictions; a record beside the prediction file lists these options. Each line is
written at once, so memory use does not grow with the number of maps, and an interrupted run can be resumed with the
same options. Several folders of maps form an ensemble: their maps and probabilities are averaged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import write_whole
from reveal_bench.kinds.localization.records import ImageManifest
from reveal_bench.masks import PackedMasks, empty_rle
from reveal_bench.metrics.heat_maps import LaidMap, laid_over, smoothed
from reveal_bench.saliency_maps.maps import FoundMaps, HeatMap, MapFile, read_map

Pair = tuple[str, str]
Progress = Callable[..., None]
PerFinding = float | Mapping[str, float | None]
Job = tuple[Sequence[MapFile], Pair, tuple[int, int]]
"""A prediction to make: (files of the map, several for an ensemble; (image, finding); (height, width) of the image)."""
Line = dict[str, Any]
Smoothing = Literal["box", "gaussian", "published"]
CutMaps = Callable[[Sequence[Job], "MapOptions"], Iterator[Line]]
"""Function that yields the result of :func:`cut_map` for each job, in order."""


@dataclass(frozen=True)
class MapOptions:
    """Options for turning a map into a prediction.

    Attributes
    ----------
    threshold : "otsu", a number in [0, 1), or None for points only; or a mapping from findings to such values
    fill : whether contours at Otsu's threshold are filled, as published; nothing is filled at fixed thresholds
    gate : probability below which the mask is empty, or None; or a mapping from findings to such values
    smooth : width of the smoothing in pixels of the image; 0 for no smoothing
    smoothing : "box" with sides of `smooth`, "gaussian" with standard deviation `smooth`, or "published", the box of
        the published code, which only changes masks at Otsu's threshold
    """

    threshold: Literal["otsu"] | PerFinding | None = "otsu"
    fill: bool = True
    gate: PerFinding | None = None
    smooth: int = 0
    smoothing: Smoothing = "box"

    def __post_init__(self) -> None:
        if self.threshold != "otsu":
            _check_numbers("threshold", self.threshold, "at least 0 and below 1", lambda value: 0 <= value < 1)
        _check_numbers("gate", self.gate, "at least 0 and at most 1", lambda value: 0 <= value <= 1)
        if isinstance(self.smooth, bool) or not isinstance(self.smooth, int) or self.smooth < 0:
            raise ArgumentError("smooth", "must be a whole number of pixels, or 0 for no smoothing", repr(self.smooth))
        if self.smoothing not in get_args(Smoothing):
            raise ArgumentError("smoothing", f"must be {' or '.join(get_args(Smoothing))}", repr(self.smoothing))
        if self.smoothing == "published" and (self.threshold != "otsu" or not self.smooth):
            rule = "may be 'published' only with `smooth` above 0 and Otsu's threshold"
            raise ArgumentError("smoothing", rule, repr(self.threshold), ("smooth", "threshold"))

    def of(self, finding: str) -> MapOptions:
        """Return the options for one finding, with the finding's threshold and gate."""
        own: dict[str, Any] = {}
        for name, values in self._per_finding().items():
            if finding not in values:
                raise ArgumentError(name, "must have a number for every finding with a map", f"none for {finding}")
            own[name] = values[finding]
        return replace(self, **own) if own else self

    def lacking(self, findings: Collection[str]) -> dict[str, list[str]]:
        """Return option -> the `findings` for which it is None, for options with a number per finding."""
        own = {finding: self.of(finding) for finding in sorted(findings)}
        return {name: [one for one in own if getattr(own[one], name) is None] for name in self._per_finding()}

    def _per_finding(self) -> dict[str, Mapping[str, float | None]]:
        options = {"threshold": self.threshold, "gate": self.gate}
        return {name: own for name, own in options.items() if isinstance(own, Mapping)}


def _check_numbers(name: str, values: PerFinding | str | None, rule: str, is_in: Callable[[float], bool]) -> None:
    for value in values.values() if isinstance(values, Mapping) else [values]:
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_in(value):
            words = "'otsu', " if name == "threshold" else ""
            raise ArgumentError(name, f"must be {words}a number of {rule}, or one for each finding", repr(value))


@dataclass(frozen=True)
class Written:
    """The prediction file that was written, and counts of its predictions.

    Attributes
    ----------
    path, record : the prediction file, and the file of its options
    n_predictions : number of lines
    n_empty : lines with an empty mask
    n_constant : maps that are constant and have no point
    n_unsigned : maps without a negative value
    missing : (image, finding) pairs of the questions without a map or, if only points are written, with a constant map
    n_left : number of unused maps: maps of the split that no question asks for, and files of other images
    lacking : option -> findings with maps for which the option is None although others have a number
    """

    path: Path
    record: Path
    n_predictions: int
    n_empty: int
    n_constant: int
    n_unsigned: int
    missing: Sequence[Pair] = field(repr=False)
    n_left: int
    lacking: Mapping[str, Sequence[str]]


def predict_maps(
    folders: Sequence[FoundMaps],
    manifest: ImageManifest,
    out: Path,
    options: MapOptions,
    *,
    tuned: Mapping[str, Mapping[str, str]] | None = None,
    n_processes: int = 1,
    progress: Progress | None = None,
    cut_maps: CutMaps | None = None,
) -> Written:
    """Write the prediction file of one or several folders of maps.

    Parameters
    ----------
    folders : maps of each folder, all with the same pairs (image, finding)
    manifest : questions of the split
    out : prediction file (JSONL); next to it are ``<out>.options.json`` and, during writing, ``<out>.part``
    tuned : option -> split and metric with which the option was tuned; this is only recorded
    n_processes : number of processes that read and cut maps
    progress : called with ("maps", number done, total)
    cut_maps : function used instead of processes, such as :class:`reveal_bench.scale.maps.TaskMaps`; the output is the
        same

    Raises
    ------
    ArgumentError
        If the maps lack something that an option needs, or the folders of an ensemble differ.
    ValueError
        If a map is damaged; the message names its file. Lines written before the error are kept, and the next run
        resumes after them.
    """
    asked_pairs = manifest.asked_pairs()
    known = set(folders[0].files)
    for other in folders[1:]:
        differ = sorted(known ^ set(other.files))
        if differ:
            rule = f"must all have the same maps, but {differ[0]} is missing in one folder ({len(differ)} in all)"
            raise ArgumentError("ensemble", rule)
    pairs = [pair for pair in asked_pairs if pair in known]
    lacking = options.lacking({finding for _, finding in pairs})
    record = {
        "options": _plain(options),
        "tuned": dict(tuned or {}),
        "maps": [_root(one) for one in folders],
        "benchmark": manifest.benchmark,
        "version": manifest.version,
        "split": manifest.split,
        "pairs": len(pairs),
    }
    part = out.with_name(f"{out.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    done = _done_before(part, record)
    jobs = [([one.files[pair] for one in folders], pair, manifest.rows[pair[0]].size) for pair in pairs[done:]]
    lines = _lines(jobs, options, n_processes) if cut_maps is None else cut_maps(jobs, options)
    with part.open("a", encoding="utf-8") as file:
        for i, line in enumerate(lines, start=done + 1):
            file.write(json.dumps(line) + "\n")
            if i % 50 == 0:
                file.flush()
            if progress is not None:
                progress("maps", i, len(pairs))
    return _finished(part, out, record, asked_pairs, pairs, folders, lacking)


def _root(maps: FoundMaps) -> str:
    """Return the folder of the maps, or a hash of arrays; a run resumes only if this text is the same."""
    arrays = [file.array.values for _, file in sorted(maps.files.items()) if file.array is not None]
    if arrays:
        digest = hashlib.sha256()
        for values in arrays:
            digest.update(repr(values.shape).encode() + values.tobytes())
        return f"arrays, sha256 {digest.hexdigest()}"
    return os.path.commonpath([file.path.parent for file in maps.files.values()])


def _plain(options: MapOptions) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in asdict(options).items()}


def _done_before(part: Path, record: Mapping[str, Any]) -> int:
    """Return the number of complete lines of an earlier run, or discard its lines if it had other options."""
    mark = json.dumps({"record": record}) + "\n"
    if part.is_file():
        with part.open("r+b") as file:  # read line by line, because the file may exceed memory
            if file.readline() == mark.encode():
                n, end = 0, file.tell()
                for line in file:
                    if line.endswith(b"\n"):
                        n, end = n + 1, end + len(line)
                file.truncate(end)
                return n
    part.write_text(mark, encoding="utf-8")
    return 0


def _lines(jobs: Sequence[Job], options: MapOptions, n_processes: int) -> Iterator[Line]:
    """Yield the line of each map, in order; each process works on at most a few maps at a time."""
    make = partial(cut_map, options=options)
    if n_processes == 1:
        yield from map(make, jobs)
        return
    with ProcessPoolExecutor(n_processes) as pool:
        rest = iter(jobs)
        while batch := list(islice(rest, 16 * n_processes)):
            yield from pool.map(make, batch, chunksize=4)


def cut_map(job: Job, options: MapOptions) -> Line:
    """Return the fields of a prediction; ``_`` has flags for a constant map, an unsigned map and an empty mask."""
    files, (image_id, finding), size = job
    heat = _mean([read_map(file) for file in files], files)
    line: Line = {"image_id": image_id, "finding": finding}
    values = heat.values
    if options.smooth and options.smoothing != "published":
        values = smoothed(values, size, options.smooth, gaussian=options.smoothing == "gaussian")
    laid = laid_over(values, size)
    point = laid.point()
    if point is not None:
        line["point"] = list(point)
    notes = {"constant": point is None, "unsigned": bool(heat.values.min() >= 0)}
    own = options.of(finding)
    if own.threshold is not None:
        mask = _mask(laid, own, heat, files[0])
        rle = empty_rle(size) if mask is None else mask.rle(0)
        line["rle"] = {"size": list(size), "counts": rle.counts}
        notes["empty"] = mask is None or not mask.areas.any()
    if heat.probability is not None:
        line["score"] = heat.probability
    return line | {"_": notes}


def _mask(laid: LaidMap, own: MapOptions, heat: HeatMap, file: MapFile) -> PackedMasks | None:
    """Return the mask of a map under the finding's options; None if the gate empties the mask."""
    if own.gate is not None:
        if heat.probability is None:
            raise ArgumentError("gate", "must be used with maps that have a probability", file.path)
        if heat.probability < cast(float, own.gate):
            return None
    if own.threshold == "otsu":
        published = own.smooth if own.smoothing == "published" else 0
        return laid.above_otsu(fill=own.fill, published_smoothing=published)
    return laid.above(cast(float, own.threshold))


def _mean(heats: Sequence[HeatMap], files: Sequence[MapFile]) -> HeatMap:
    if len(heats) == 1:
        return heats[0]
    shapes = {heat.values.shape for heat in heats}
    if len(shapes) > 1:
        raise ArgumentError("ensemble", f"must have maps of the same shape as {files[0].path}", sorted(shapes))
    probabilities = [heat.probability for heat in heats if heat.probability is not None]
    probability = float(np.mean(probabilities)) if len(probabilities) == len(heats) else None
    return HeatMap(np.mean([heat.values for heat in heats], axis=0, dtype=np.float32), probability)


def _finished(
    part: Path,
    out: Path,
    record: dict[str, Any],
    asked_pairs: Sequence[Pair],
    pairs: Sequence[Pair],
    folders: Sequence[FoundMaps],
    lacking: Mapping[str, Sequence[str]],
) -> Written:
    """Rename the complete ``.part`` file to the prediction file, and write the record of options beside it."""
    counts = {"n_predictions": 0, "n_empty": 0, "n_constant": 0, "n_unsigned": 0}
    answered = set()
    digest = hashlib.sha256()
    whole = out.with_name(f"{out.name}.whole")
    with part.open(encoding="utf-8") as lines, whole.open("w", encoding="utf-8") as file:
        next(lines)
        for text in lines:
            line = json.loads(text)
            notes = line.pop("_")
            counts["n_constant"] += notes["constant"]
            counts["n_unsigned"] += notes["unsigned"]
            counts["n_empty"] += notes.get("empty", False)
            if "point" not in line and "rle" not in line:
                continue
            counts["n_predictions"] += 1
            answered.add((line["image_id"], line["finding"]))
            written = json.dumps(line) + "\n"
            digest.update(written.encode())
            file.write(written)
    os.replace(whole, out)
    path = out.with_name(f"{out.name}.options.json")
    write_whole(path, json.dumps(record | counts | {"sha256": digest.hexdigest()}, indent=2) + "\n")
    part.unlink()
    n_left = sum(len(one.files) - len(pairs) + len(one.elsewhere) for one in folders)
    missing = [pair for pair in asked_pairs if pair not in answered]
    return Written(out, path, **counts, missing=missing, n_left=n_left, lacking=lacking)
