"""Implement ``rb.saliency``, which makes a prediction file from heat maps, and the tuning of its thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from reveal_bench.api.bench import AnyBench, Bench, as_bench, as_whole_bench
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.localization.records import ImageManifest
from reveal_bench.saliency_maps.cutoffs import GATES, GateRule
from reveal_bench.saliency_maps.cutoffs import tune_gates as gates_of
from reveal_bench.saliency_maps.maps import FoundMaps, find_maps, given_maps
from reveal_bench.saliency_maps.predict import MapOptions, Smoothing, Written, predict_maps
from reveal_bench.saliency_maps.tuning import Tuned, tune_thresholds

if TYPE_CHECKING:
    from reveal_bench.scale.engine import TaskEngine

Maps = str | Path | Sequence[str | Path] | Mapping[tuple[str, str], Any]
"""Types of heat maps: a folder, a list of files, or (image, finding) -> a file, an array, or (array, probability)."""


def saliency(
    maps: str | Path | Sequence[str | Path],
    bench: AnyBench,
    *,
    out: str | Path,
    split: str | None = None,
    threshold: Literal["otsu"] | float | Mapping[str, float | None] | Tuned | None = "otsu",
    fill: bool = True,
    gate: float | Mapping[str, float | None] | Tuned | None = None,
    smooth: int = 0,
    smoothing: Smoothing = "box",
    on_tuned_split: bool = False,
    names: Sequence[str] = (),
    n_processes: int = 1,
    progress: Callable[..., None] | None = None,
    tasks: TaskEngine | None = None,
) -> Written:
    """Write a prediction file from heat maps: points, masks and probabilities (paper 002).

    Parameters
    ----------
    maps : folder of maps, see :mod:`reveal_bench.saliency_maps.maps`; a list of files; or (image, finding) -> a file,
        an array, or a tuple (array, probability). The maps of several folders are averaged
    bench, split : split with the questions to answer
    out : prediction file to write (JSONL), with a record of all options next to it
    threshold : "otsu"; a number in [0, 1), above which a pixel is in the mask; one number per finding; or the result of
        :func:`tune_saliency`. None gives only points; single findings may have None, also if tuning found no threshold
    fill : fill contours of masks at Otsu's threshold, as published
    gate : probability below which a mask is empty: a number, one per finding, or the result of :func:`tune_gates`. None
        gives no gate; single findings may have None, also if tuning found no gate
    smooth : size in pixels of smoothing before thresholding; 0 for none; needs OpenCV
    smoothing : "box" with `smooth` as its side, "gaussian" with `smooth` as its standard deviation, or "published" for
        masks at Otsu's threshold, see :func:`reveal_bench.metrics.heat_maps.smoothed_as_published`
    on_tuned_split : allow a threshold or gate tuned on the predicted split. The score is then too good; the record
        states this, and `score` warns
    names : findings of arrays (n, h, w), in their order
    n_processes : number of processes that read and threshold maps
    progress : called with ("maps", done, total)
    tasks : number of tasks, instead of processes, on one machine or many; see docs/scale.md

    Raises
    ------
    ArgumentError
        If an argument breaks its rule, or the maps do not fit the split.
    ValueError
        If a map is damaged; a repeated call with the same options continues at this map.
    """
    manifest = asked_of(as_bench(bench, split))
    files = [found_maps(one, manifest, names) for one in ([maps] if _is_one(maps) else cast(Sequence[Maps], maps))]
    if not files:
        raise ArgumentError("maps", "must be one folder or several", "none")
    if tasks is not None and any(file.array is not None for one in files for file in one.files.values()):
        raise ArgumentError("maps", "must be files if `tasks` is given", "arrays", ("tasks",))
    tuned = {name: one for name, one in (("threshold", threshold), ("gate", gate)) if isinstance(one, Tuned)}
    for name, tuning in tuned.items():
        if tuning.split == manifest.split and not on_tuned_split:
            rule = "must not be tuned on the predicted split, unless `on_tuned_split` is True"
            raise ArgumentError(name, rule, repr(manifest.split), ("on_tuned_split",))
    mapped = {finding for image, finding in manifest.asked_pairs() if (image, finding) in files[0].files}
    cut = threshold.for_all(mapped) if isinstance(threshold, Tuned) else threshold
    cut_off = gate.for_all(mapped) if isinstance(gate, Tuned) else gate
    options = MapOptions(cut, fill, cut_off, smooth, smoothing)
    record = {name: {"split": tuning.split, "metric": tuning.metric} for name, tuning in tuned.items()}
    cut_maps = None
    if tasks is not None:
        from reveal_bench.scale.maps import TaskMaps

        cut_maps = TaskMaps(tasks)
    path = Path(out)
    how: dict[str, Any] = {"n_processes": n_processes, "progress": progress, "cut_maps": cut_maps}
    return predict_maps(files, manifest, path, options, tuned=record, **how)


def tune_saliency(
    maps: Maps,
    bench: AnyBench,
    *,
    split: str,
    grid: Sequence[float] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    metric: str = "mask_iou",
    names: Sequence[str] = (),
    progress: Callable[..., None] | None = None,
) -> Tuned:
    """Find each finding's threshold with the best mean IoU, or other metric, on a split (paper 002).

    Parameters
    ----------
    maps, bench, names, progress : as in :func:`saliency`
    split : a split with references, other than the predicted one
    grid : thresholds to try
    metric : one of :data:`reveal_bench.saliency_maps.tuning.TUNING_METRICS`; the threshold with its best mean is chosen

    Raises
    ------
    ArgumentError
        As :func:`saliency`; or if no threshold has a value for a finding.
    """
    opened = as_whole_bench(bench, split)
    files = found_maps(maps, asked_of(opened), names)
    records = list(opened.kind.data.read_references(opened.folder, split))
    return tune_thresholds(files, records, split, grid=grid, metric=metric, progress=progress)


def tune_gates(
    maps: Maps,
    bench: AnyBench,
    *,
    split: str,
    rule: GateRule = "ours",
    fill: bool = True,
    grid: Sequence[float] = GATES,
    names: Sequence[str] = (),
    progress: Callable[..., None] | None = None,
) -> Tuned:
    """Find each finding's gate: the best probability below which masks are emptied (paper 002, Extended Data Fig. 4).

    Parameters
    ----------
    maps, bench, fill, names, progress : as in :func:`saliency`; maps must include images with and without a finding,
        and have probabilities
    split : a split with references, other than the predicted one
    rule : "ours" or "published", see :mod:`reveal_bench.saliency_maps.cutoffs`
    grid : probabilities to try

    Raises
    ------
    ArgumentError
        As :func:`saliency`; or if a map has no probability.
    """
    opened = as_whole_bench(bench, split)
    files = found_maps(maps, asked_of(opened), names)
    records = list(opened.kind.data.read_references(opened.folder, split))
    return gates_of(files, records, split, rule=rule, fill=fill, grid=grid, progress=progress)


def asked_of(bench: Bench) -> ImageManifest:
    """Return the manifest of a localization benchmark; raise ArgumentError for other kinds."""
    if not bench.kind.questions.uses_grid:
        raise ArgumentError("bench", "must be a localization benchmark", f"one of {bench.kind.name}")
    return cast(ImageManifest, bench.manifest)


def _is_one(maps: Maps | Sequence[Maps]) -> bool:
    """Return True if the maps are one system's; a list of folders is an ensemble of several."""
    if not isinstance(maps, list | tuple):
        return True
    return len(maps) > 0 and all(isinstance(one, str | Path) and Path(one).is_file() for one in maps)


def found_maps(maps: Maps, manifest: ImageManifest, names: Sequence[str]) -> FoundMaps:
    """Return the maps for a split's questions; raise ArgumentError if there are none, or the folder does not exist."""
    if isinstance(maps, Mapping):
        return given_maps(maps, manifest.rows.keys(), manifest.findings)
    if isinstance(maps, str | Path) and not Path(maps).is_dir():
        raise ArgumentError("maps", "must be a folder of heat maps", str(maps))
    if not isinstance(maps, str | Path) and not (
        isinstance(maps, Sequence) and all(isinstance(one, str | Path) for one in maps)
    ):
        rule = "must be a folder, files, or arrays as {image: {finding: array}}"
        raise ArgumentError("maps", rule, f"a {type(maps).__name__}")
    root = Path(maps) if isinstance(maps, str | Path) else [Path(one).absolute() for one in maps]
    return find_maps(root, manifest.rows.keys(), manifest.findings, names=names)
