"""Writes the synthetic REVEAL world: DICOM files with realistic headers, labels, votes and reports.

The source's own layout is not public; ``layout="dicom"`` is a plain tree of DICOM files beside one table of labels, as
such sets usually come, ``layout="midrc"`` that of the Medical Imaging and Data Resource Center
(:mod:`reveal_bench.phantom.reveal_midrc`). Everything is synthetic, and ``SYNTHETIC.txt`` says so. ::

    labels.csv  mapping.yaml    what a builder reads: one row per study, and what its columns mean
    images/...                  DICOM files; folder names say nothing about studies
    reports/<study uid>.txt     reports in prose; reports.csv has them with the true labels
    votes.csv                   three readers per study on the suggested labels
    truth.jsonl                 what was drawn: labels, sides, how every film is stored

With ``traps`` some films are stored in ways that are rare (:data:`RARE`), some studies come with files that are no
further films (:data:`EXTRA_FILES`), one in seven lies in a folder with others, and things lie about that are no DICOM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.dicom_headers import draw_header
from reveal_bench.phantom.findings_drawn import Drawn
from reveal_bench.phantom.radiograph import render
from reveal_bench.phantom.reveal_findings import DEVICES, draw_reveal_film, sides
from reveal_bench.phantom.reveal_midrc import MidrcLayout
from reveal_bench.phantom.reveal_pixels import draw_storage, stored_values
from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy, Stage, studies
from reveal_bench.phantom.reveal_tables import Tables
from reveal_bench.phantom.reveal_traps import EXTRA_FILES, RARE, write_extra_file, write_litter
from reveal_bench.phantom.votes import draw_votes

__all__ = ["EXTRA_FILES", "NOTICE", "RARE", "TreeLayout", "reveal_film", "write_reveal"]

NOTICE = """SYNTHETIC DATA

Every picture, header, label, report and vote below this folder was made by the program reveal_bench.phantom. No
patient, no reader and no hospital is behind any of it; names, dates and places in the DICOM headers are invented and
are there to find out whether a program lets them through. Scores computed on it say nothing about a model. Not for
clinical use.
"""

TRANSFER_SYNTAXES = {
    "explicit": 0.70,
    "implicit": 0.14,
    "jpegls-lossless": 0.10,
    "jpeg2000-lossless": 0.04,
    "rle": 0.02,
}
"""Chance of each; chosen."""

Progress = Callable[[int, int], None]
Body = tuple[Anatomy, Drawn]


class Layout(Protocol):
    """Where the files of a download lie."""

    def place(self, study: RevealStudy, image: RevealImage) -> Path:
        """Where a film is to be written; its folder exists."""

    def add(self, study: RevealStudy, attributes: Mapping[str, Any], file: Path) -> str:
        """Take up a film that was written; its path relative to the download."""

    def finish(self) -> None:
        """Complete what lists the files."""


def write_reveal(
    out: Path,
    *,
    n_studies: int = 100,
    seed: int = 0,
    long_side: int = 3056,
    layout: Literal["dicom", "midrc"] = "dicom",
    stage: Stage = "benchmark",
    traps: bool = True,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write a synthetic REVEAL-CXR download; studies stream, so any number of them needs the same memory.

    Parameters
    ----------
    out : new or empty folder
    n_studies : the release has 100; the pool it was chosen from had 13,735
    seed : same seed, same bytes; study k does not depend on `n_studies`
    long_side : long side of the films in pixels; 3056 is that of the commonest real ones
    layout : "dicom", or "midrc" for zip archives per series, a manifest and tables per node
    stage : "benchmark" for what is released, "pool" for what it is chosen from; see :mod:`.reveal_studies`
    traps : also write what makes real downloads awkward
    progress : called with (studies done, studies in all)

    Returns
    -------
    dict with the number of studies, films, and files that are no further films

    Raises
    ------
    ValueError
        If `out` is not empty or an argument breaks its rule.
    ImportError
        If the extra `dicom` is not installed.
    """
    out = Path(out)
    _check(out, n_studies, long_side, layout, stage)
    out.mkdir(parents=True, exist_ok=True)
    (out / "SYNTHETIC.txt").write_text(NOTICE, encoding="utf-8")
    place: Layout = MidrcLayout(out) if layout == "midrc" else TreeLayout(out, traps=traps)
    counts = {"studies": n_studies, "films": 0, "extra files": 0}
    with Tables(out, has_demographics=layout == "dicom") as tables:
        for study, n_done in zip(studies(stage, seed=seed), range(1, n_studies + 1), strict=False):
            bodies = [draw_reveal_film(study, image) for image in study.images]
            facts = [
                _write_film(study, image, body, place, long_side, traps=traps)
                for image, body in zip(study.images, bodies, strict=True)
            ]
            if traps:
                counts["extra files"] += write_extra_file(study, facts[0]["path"], place)
            counts["films"] += len(facts)
            _add_to_tables(tables, study, *bodies[0], facts)
            if progress is not None:
                progress(n_done, n_studies)
    place.finish()
    if traps:
        write_litter(out)
    return counts


def reveal_film(study: RevealStudy, image: RevealImage, long_side: int) -> npt.NDArray[np.uint8]:
    """Grey levels of a film, as every viewer should show it."""
    return _develop(study, image, draw_reveal_film(study, image), long_side)


class TreeLayout:
    """A tree of DICOM files whose folders tell nothing."""

    def __init__(self, root: Path, *, traps: bool) -> None:
        self.root, self.traps = root, traps

    def place(self, study: RevealStudy, image: RevealImage) -> Path:
        """Where a film is to be written; its folder exists."""
        if self.traps and study.index % 7 == 3:  # one folder for many studies, files without a suffix
            path = self.root / "images" / "loose" / f"IM{study.index:06d}{image.number}"
        else:
            batch, case = f"batch{study.index // 100 + 1:03d}", f"{study.index % 100:02d}"
            path = self.root / "images" / batch / case / f"film{image.number}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, study: RevealStudy, attributes: Mapping[str, Any], file: Path) -> str:
        """The film's path relative to the download."""
        return file.relative_to(self.root).as_posix()

    def finish(self) -> None:
        """Nothing lists the files."""


def _check(out: Path, n_studies: int, long_side: int, layout: str, stage: str) -> None:
    if n_studies < 1 or not 64 <= long_side <= 8192:
        raise ValueError(f"`n_studies`, `long_side` must be >= 1 and in [64, 8192], got {n_studies}, {long_side}")
    if layout not in ("dicom", "midrc"):
        raise ValueError(f"`layout` must be 'dicom' or 'midrc', got {layout!r}")
    if stage not in ("benchmark", "pool"):
        raise ValueError(f"`stage` must be 'benchmark' or 'pool', got {stage!r}")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"`out` must be a new or empty folder, got {out}")


def _develop(study: RevealStudy, image: RevealImage, body: Body, long_side: int) -> npt.NDArray[np.uint8]:
    anatomy, drawn = body
    size = round(image.size[0] * long_side), round(image.size[1] * long_side)
    return render(anatomy, drawn.shapes, study.rng(20, image.number), size)


def _write_film(
    study: RevealStudy, image: RevealImage, body: Body, layout: Layout, long_side: int, *, traps: bool
) -> dict[str, Any]:
    """Write one film; what was done."""
    from reveal_bench.dicom import write_dicom

    rng = study.rng(31, image.number)
    rare = RARE.get(study.index, {}) if traps else {}
    storage = draw_storage(rng, force={name: value for name, value in rare.items() if name not in ("syntax", "meta")})
    syntax = rare.get("syntax") or str(rng.choice(list(TRANSFER_SYNTAXES), p=list(TRANSFER_SYNTAXES.values())))
    grey = _develop(study, image, body, long_side)
    attributes = {**draw_header(study, image, rng), **storage.attributes}
    path = layout.place(study, image)
    write_dicom(
        path,
        stored_values(grey, storage, rng),
        attributes,
        bits_stored=storage.bits_stored,
        photometric=storage.photometric,
        transfer_syntax=syntax,
        meta_header=rare.get("meta") != "missing",
    )
    return {
        "path": path,
        "file": layout.add(study, attributes, path),
        "sop_uid": attributes["SOPInstanceUID"],
        "view": image.view,
        "view_position": attributes.get("ViewPosition"),
        "height": grey.shape[0],
        "width": grey.shape[1],
        "transfer_syntax": syntax,
        "stored": dict(storage.choices),
    }


def _add_to_tables(
    tables: Tables, study: RevealStudy, anatomy: Anatomy, drawn: Drawn, facts: list[dict[str, Any]]
) -> None:
    found = {label: sides(anatomy, drawn.contours[label]) for label in study.labels}
    images = [{name: value for name, value in fact.items() if name != "path"} for fact in facts]
    tables.add(study, draw_votes(study), found, images, has_devices=DEVICES in drawn.contours)
