"""A small benchmark with pictures, half of it held out, and two systems that answer its released half."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.localization.records import LocalizationRecord, read_localization
from reveal_bench.masks import Rle, decode_mask
from reveal_bench.sources import SOURCE_MODULES
from reveal_bench.viewer.gallery import CaseSource, prepare_gallery


@dataclass(frozen=True)
class GallerySample:
    """Dataset folders, the prediction files by system, and the gallery made of them.

    The system "Right" points at the middle of every reference's first box, "Wrong" at the corner (0.5, 0.5).
    """

    public: Path
    private: Path
    files: dict[str, Path]
    gallery: Path

    @property
    def records(self) -> list[LocalizationRecord]:
        return read_localization(self.public, "released")


def make_gallery_sample(root: Path, download: Path) -> GallerySample:
    """Build the dataset of a synthetic `download`, the two files, and their gallery in `root`."""
    public, private = root / "public", root / "private"
    splits = SOURCE_MODULES["chexlocalize"].read(download, pixels="embed", keep_going=False).splits
    build_folder(splits, public, BENCHMARKS["chexlocalize"], holdout=private, seed=1, synthetic=True)
    lines: dict[str, list[str]] = {"Right": [], "Wrong": []}
    for record in read_localization(public, "released"):
        for finding in record.asked("present"):
            reference = record.reference(finding)
            assert reference is not None
            assert reference.rle is not None
            x, y = inside(reference.rle)
            for name, point in (("Right", [x, y]), ("Wrong", [0.5, 0.5])):
                entry = {"image_id": record.image_id, "finding": finding, "point": point}
                lines[name].append(json.dumps(entry))
    files = {name: root / f"{name}.jsonl" for name in lines}
    for name, path in files.items():
        path.write_text("\n".join(lines[name]) + "\n", encoding="utf-8")
    prepare_gallery(CaseSource(public, "released", files), root / "gallery")
    return GallerySample(public, private, files, root / "gallery")


def inside(rle: Rle) -> tuple[float, float]:
    """A point in the first pixel of a mask, as (x, y)."""
    row, column = np.argwhere(decode_mask(rle))[0].tolist()
    return column + 0.5, row + 0.5
