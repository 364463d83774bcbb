"""Write synthetic images in the layout of the CheXlocalize download.

Names, columns, prefixes, id styles and JSON structures are the real ones (from notes on the download and the README of
rajpurkarlab/cheXlocalize). All data are synthetic, as ``SYNTHETIC.txt`` states. With ``traps``, the folder also has the
difficulties of the real download: a second level of folders, interrupted downloads, pickled heat maps, positives
without a segmentation, missing masks of readers, and a label that contradicts the mask. :data:`TRAPS` lists the
difficulties of single images.

:func:`write_anatomy` writes the anatomy of the images, with which wrong positions can be distinguished from impossible
ones. The file has one JSON object per image and line, with the fields ``image_id``, ``size`` ([height, width]) and
``regions`` (``{"heart": [[x, y], ...], ...}``). Contours are closed, in pixels of the image, with two decimals like the
annotations, and may leave the image. Left and right are sides of the patient. A lung's contour outlines the whole
pleural space, including the part behind the heart.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray
from reveal_bench.files import replacing
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS, CHEXPERT_LABELS
from reveal_bench.masks import empty_rle, rasterize_polygons
from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.curves import Points
from reveal_bench.phantom.findings_drawn import hidden_with
from reveal_bench.phantom.folders import check_sizes, start_folder, write_csv
from reveal_bench.phantom.patients import PhantomFilm, draw_film, films
from reveal_bench.phantom.radiograph import jpeg_bytes, render
from reveal_bench.phantom.readers import perturb, reader_contours, reader_point

TRAPS = (
    "one positive not drawn",
    "no ground truth at all",
    "no reader at all",
    "reader annotation without segmentation",
    "reader annotation without segmentation",
    "reader annotation without segmentation",
    "drawn, but labelled absent",
)
"""The difficulty of the first, second, ... test image with at least two findings."""

NOTICE = """SYNTHETIC DATA

Every picture, label, contour and point below this folder was made by the program reveal_bench.phantom. Nothing comes
from a patient, a reader or a hospital. The folder has the layout of the CheXlocalize download so that tools can be
tried. Scores computed on these data say nothing about a model. Not for clinical use.
"""

Json = dict[str, Any]
Progress = Callable[[int, int], None]


@dataclass
class _Files:
    """The contents of a split's JSON files, filled image by image."""

    gt_annotations: Json = field(default_factory=dict)
    gt_segmentations: Json = field(default_factory=dict)
    hb_annotations: Json = field(default_factory=dict)
    hb_segmentations: Json = field(default_factory=dict)
    hb_points: Json = field(default_factory=dict)
    gradcam_segmentations: Json = field(default_factory=dict)
    labels: list[list[str]] = field(default_factory=list)


def write_chexlocalize(
    out: Path,
    n_images: int = 668,
    *,
    n_val: int | None = 234,
    seed: int = 0,
    long_side: int = 2828,
    traps: bool = True,
    pixels: bool = True,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write a synthetic CheXlocalize download.

    Parameters
    ----------
    out : new or empty folder
    n_images, n_val : images of the test and validation split; None or 0 leaves the split out
    seed : equal seeds give equal bytes
    long_side : long side of the images in pixels; real images have 2828
    traps : also write the difficulties of the real download
    pixels : whether to write the images; annotations and labels alone are much faster to write
    progress : called with (images done, all images)

    Returns
    -------
    dict with the number of images, positives and masks per split

    Raises
    ------
    ValueError
        If `out` is not empty or a number is out of range.
    """
    _check_sizes(n_images, n_val, long_side)
    inner = "chexlocalize/chexlocalize" if traps else "."
    root = start_folder(out, NOTICE, inner) / inner
    (root / "CheXlocalize").mkdir()
    (root / "CheXpert").mkdir()
    counts: dict[str, int] = {}
    n_done, n_all = 0, n_images + (n_val or 0)
    for split, n_films in (("val", n_val or 0), ("test", n_images)):
        if n_films == 0:
            continue
        files, pending = _Files(), list(TRAPS) if traps and split == "test" else []
        for film, _ in zip(films(split, seed=seed), range(n_films), strict=False):
            trap = pending.pop(0) if pending and len(film.study.findings) >= 2 else ""
            _write_film(root, film, files, trap, long_side=long_side, pixels=pixels)
            n_done += 1
            if progress is not None:
                progress(n_done, n_all)
        _write_files(root, split, files, traps=traps)
        counts[f"{split} films"] = n_films
        counts[f"{split} masks"] = sum(len(entry) - 1 for entry in files.gt_annotations.values())
    if traps:
        _write_unrelated_files(root)
    return counts


def _check_sizes(n_images: int, n_val: int | None, long_side: int) -> None:
    check_sizes(n_images=n_images, long_side=long_side)
    if (n_val or 0) < 0:
        raise ArgumentError("n_val", "must be at least 0", n_val)


def _write_film(root: Path, film: PhantomFilm, files: _Files, trap: str, *, long_side: int, pixels: bool) -> None:
    size = round(film.size[0] * long_side), round(film.size[1] * long_side)
    anatomy, drawn = draw_film(film)
    path = root / "CheXpert" / film.study.split / film.study.patient / "study1" / f"{film.name}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    if pixels:
        from reveal_bench.phantom.radiograph import jpeg_bytes, render

        path.write_bytes(jpeg_bytes(render(anatomy, drawn.shapes, film.rng(1), size)))
    contours = {name: drawn.contours[name] for name in CHEXLOCALIZE_FINDINGS if name in drawn.contours}
    positives = [name for name in CHEXLOCALIZE_FINDINGS if name in contours]
    if trap == "drawn, but labelled absent":
        positives = positives[:-1]
    files.labels.append(_label_row(film, positives))
    undrawn = list(contours) if trap == "no ground truth at all" else []
    if trap == "one positive not drawn":
        undrawn = list(contours)[-1:]
    truth = {name: polygons for name, polygons in contours.items() if name not in undrawn}
    if truth:
        _add(files.gt_annotations, files.gt_segmentations, film, truth, size, long_side)
    if film.study.split == "test" and contours and trap != "no reader at all":
        _add_reader(film, files, contours, size, long_side, trap)
    if film.study.split == "val" and truth:
        rng = film.rng(3)
        heat = {name: [perturb(rng, polygon, 1.2) for polygon in polygons] for name, polygons in truth.items()}
        _add({}, files.gradcam_segmentations, film, heat, size, long_side)


def _add_reader(
    film: PhantomFilm,
    files: _Files,
    contours: dict[str, list[Points]],
    size: tuple[int, int],
    long_side: int,
    trap: str,
) -> None:
    rng = film.rng(2)
    polygons = {name: reader_contours(rng, truth, name) for name, truth in contours.items()}
    points = {name: [reader_point(rng, truth, name, size=film.size)] for name, truth in contours.items()}
    for name in list(points)[:1]:
        if rng.random() < 0.05:  # the real file has a few findings with several points
            points[name] += [reader_point(rng, contours[name], name, size=film.size)]
    masks = {} if trap == "reader annotation without segmentation" else files.hb_segmentations
    _add(files.hb_annotations, masks, film, polygons, size, long_side)
    files.hb_points[film.image_id] = {
        name: [_pixel(np.array([point]), size, long_side)[0] for point in hits] for name, hits in points.items()
    }


def _add(
    annotations: Json,
    segmentations: Json,
    film: PhantomFilm,
    contours: dict[str, list[Points]],
    size: tuple[int, int],
    long_side: int,
) -> None:
    """Add an image to an annotation file, and to a segmentation file, which has all ten findings."""
    polygons = {name: [_pixel(contour, size, long_side) for contour in outlines] for name, outlines in contours.items()}
    annotations[film.image_id] = {"img_size": list(size), **polygons}
    empty = empty_rle(size)
    rles = {
        name: rasterize_polygons(polygons[name], size) if name in polygons else empty for name in CHEXLOCALIZE_FINDINGS
    }
    segmentations[film.image_id] = {name: {"size": list(rle.size), "counts": rle.counts} for name, rle in rles.items()}


def _pixel(points: Points, size: tuple[int, int], long_side: int) -> list[list[float]]:
    """Return points in pixels with two decimals, inside the image."""
    height, width = size
    inside: list[list[float]] = np.round(np.clip(points * long_side, 0, (width - 1, height - 1)), 2).tolist()
    return inside


def _label_row(film: PhantomFilm, positives: list[str]) -> list[str]:
    study = film.study
    path = f"{study.patient}/study1/{film.name}.jpg"
    present = {"Lung Opacity" if name == "Airspace Opacity" else name for name in positives}
    values = [
        "1.0" if label in present or (label == "No Finding" and not present) else "0.0" for label in CHEXPERT_LABELS
    ]
    if study.split == "test":
        return [f"test/{path}", *values]
    lateral = film.view == "LATERAL"
    facts = [study.sex, str(study.age), "Lateral" if lateral else "Frontal", "" if lateral else film.view]
    return [f"CheXpert-v1.0/valid/{path}", *facts, *values]


def _write_files(root: Path, split: str, files: _Files, *, traps: bool) -> None:
    folder = root / "CheXlocalize"
    named = {f"gt_annotations_{split}": files.gt_annotations, f"gt_segmentations_{split}": files.gt_segmentations}
    if split == "test":
        named["hb_annotations_test"] = files.hb_annotations
        named["hb_segmentations_test"] = files.hb_segmentations
        named["hb_salient_pt_test"] = files.hb_points
    else:
        named["gradcam_segmentations_val"] = files.gradcam_segmentations
    for name, content in named.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    heads, rows = list(CHEXPERT_LABELS), files.labels
    facts = ["Sex", "Age", "Frontal/Lateral", "AP/PA"] if split == "val" else []
    if traps and split == "test":  # the order of the columns differs between the source's files
        i, j = heads.index("Lung Opacity"), heads.index("Lung Lesion")
        heads[i], heads[j] = heads[j], heads[i]
        for row in rows:
            row[1 + i], row[1 + j] = row[1 + j], row[1 + i]
    write_csv(root / "CheXpert" / f"{split}_labels.csv", ["Path", *facts, *heads], rows)


def _write_unrelated_files(root: Path) -> None:
    """Write what else a download may contain: interrupted parts, and pickles that must never be opened."""
    pictures = sorted((root / "CheXpert").rglob("*.jpg"))[:2]
    for i, path in enumerate(pictures):
        part = path.with_name(f".azDownload-{i:08d}-0000-0000-0000-000000000000-{path.name}")
        part.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (root / "CheXlocalize" / ".azDownload-1-gt_annotations_test.json").write_text('{"patient6', encoding="utf-8")
    maps = root / "CheXlocalize" / "gradcam_maps_val"
    maps.mkdir()
    (maps / "patient64541_study1_view1_frontal_Edema_map.pkl").write_bytes(
        b"in the real download a pickle, which can run code: never open it"
    )


SHOWN = {
    "body": "body",
    "heart": "heart",
    "lung": "lung",
    "lung_left": "lung_left",
    "lung_right": "lung_right",
    "mediastinum": "mediastinum",
    "shoulder_-1": "shoulder_right",
    "shoulder_1": "shoulder_left",
    "trachea": "trachea",
}
"""Contour of :class:`~reveal_bench.phantom.anatomy.Anatomy` -> name of the region. Other contours are not written."""


def write_anatomy(path: Path, n_images: int, *, n_val: int | None = None, seed: int = 0, long_side: int = 2828) -> int:
    """Write the anatomy of the images of `write_chexlocalize` with the same arguments, without drawing them.

    Parameters
    ----------
    path : file to write; an existing file is replaced
    n_images, n_val : images of the test and of the validation split
    seed, long_side : as for `write_chexlocalize`

    Returns
    -------
    int, number of lines; validation images come first

    Raises
    ------
    ValueError
        If a number is out of range.
    """
    _check_sizes(n_images, n_val, long_side)
    drawn = (
        _line(film, draw_film(film)[0], long_side)
        for split, n_films in (("val", n_val or 0), ("test", n_images))
        for film in islice(films(split, seed=seed), n_films)
    )
    _write_lines(Path(path), drawn)
    return n_images + (n_val or 0)


def _line(film: PhantomFilm, anatomy: Anatomy, long_side: int) -> str:
    """Return the line of one image, without a line feed."""
    size = [round(side * long_side) for side in film.size]
    regions = {
        SHOWN[name]: (contour * long_side).round(2).tolist()
        for name, contour in sorted(anatomy.contours.items())
        if name in SHOWN
    }
    return json.dumps({"image_id": film.image_id, "size": size, "regions": regions})


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write `lines` to `path`, whole or not at all."""
    with replacing(path) as new, new.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


LABEL_READERS = {"bc4": 0.06, "bc6": 0.10, "bc8": 0.14}
"""Name of a reader's table -> proportion of labels in which the reader is wrong."""
LABEL_PREVALENCE = (0.0, 0.45, 0.25, 0.45, 0.02, 0.13, 0.06, 0.03, 0.28, 0.02, 0.19, 0.01, 0.01, 0.4)


def write_chexpert_labels(
    out: Path,
    n_studies: int = 500,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Write ``groundtruth.csv`` and readers' tables for `n_studies`, and ``valid.csv`` for two fifths of that number.

    Parameters
    ----------
    out : new or empty folder
    progress : called with (studies done, all studies)

    Returns
    -------
    dict with the number of studies per split

    Raises
    ------
    ValueError
        If `out` is not empty, or `n_studies` is below 1.
    """
    if n_studies < 1:
        raise ArgumentError("n_studies", "must be at least 1", n_studies)
    out = start_folder(out, NOTICE)
    rng = label_generator(seed)
    n_valid = 2 * n_studies // 5
    test, valid = (draw_labels(rng, n) for n in (n_studies, n_valid))
    first = max(64741, 64541 + n_valid)  # in the source, the 200 validation patients come first
    names = [f"CheXpert-v1.0/test/patient{first + i}/study1" for i in range(n_studies)]
    _write(out / "groundtruth.csv", ("Study",), ((name,) for name in names), test)
    for reader, share in LABEL_READERS.items():
        votes = with_no_finding(test ^ (rng.random(test.shape) < share))
        _write(out / f"{reader}.csv", ("Study",), ((name,) for name in names), votes)
    facts, rows = [], []
    for i in range(n_valid):
        sex, age = ("Female", "Male")[rng.integers(2)], str(rng.integers(18, 91))
        for k, view in enumerate(("frontal", "lateral")[: 1 + (i % 6 == 0)], start=1):
            path = f"CheXpert-v1.0/valid/patient{64541 + i}/study1/view{k}_{view}.jpg"
            facts.append((path, sex, age, view.capitalize(), "AP" if view == "frontal" else ""))
            rows.append(i)
    _write(out / "valid.csv", ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA"), facts, valid[rows])
    if progress is not None:
        progress(n_studies + n_valid, n_studies + n_valid)
    return {"test": n_studies, "valid": n_valid}


def label_generator(seed: int) -> np.random.Generator:
    """Return the generator of labels, which differs from ``default_rng(seed)`` of those who draw scores for them."""
    return np.random.default_rng([seed, *b"labels"])


def draw_labels(rng: np.random.Generator, n: int) -> BoolArray:
    """Return random labels of CheXpert for `n` studies, (n, 14)."""
    return with_no_finding(rng.random((n, len(CHEXPERT_LABELS))) < LABEL_PREVALENCE)


def with_no_finding(labels: BoolArray) -> BoolArray:
    """Add "No Finding" to studies without findings; support devices do not count as findings."""
    labels = labels.copy()
    labels[:, 0] = ~labels[:, 1:-1].any(axis=1)
    return labels


def _write(path: Path, heads: Sequence[str], keys: Iterable[Sequence[str]], labels: BoolArray) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*heads, *CHEXPERT_LABELS])
        table.writerows([*key, *(f"{float(one)}" for one in row)] for key, row in zip(keys, labels, strict=True))


WITHOUT_NOTICE = (
    "SYNTHETIC DATA: images of a phantom, drawn by a program, each without one of its findings. Not for clinical use.\n"
)


def write_counterfactuals(
    out: Path,
    n_images: int,
    *,
    n_val: int | None = None,
    seed: int = 0,
    long_side: int = 2828,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write every image without each of its findings.

    Parameters
    ----------
    out : new or empty folder
    n_images, n_val, seed, long_side : as for `write_chexlocalize`
    progress : called with (images done, all images)

    Returns
    -------
    int, number of images

    Raises
    ------
    ValueError
        If `out` is not empty or a number is out of range.
    """
    check_sizes(n_images=n_images, long_side=long_side)
    out = start_folder(out, WITHOUT_NOTICE)
    wanted = [("val", n_val or 0), ("test", n_images)]
    every = [film for split, n in wanted for film in islice(films(split, seed=seed), n)]
    n_written = 0
    for n_done, film in enumerate(every, start=1):
        _, drawn = draw_film(film)
        for finding in (name for name in CHEXLOCALIZE_FINDINGS if name in drawn.contours):
            path = out / film.image_id / f"{finding}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_without(film, finding, long_side))
            n_written += 1
        if progress is not None:
            progress(n_done, len(every))
    return n_written


def _without(film: PhantomFilm, finding: str, long_side: int) -> bytes:
    size = round(film.size[0] * long_side), round(film.size[1] * long_side)
    anatomy, drawn = draw_film(film, without=hidden_with(finding))
    return jpeg_bytes(render(anatomy, drawn.shapes, film.rng(1), size))
