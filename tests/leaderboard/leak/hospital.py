"""A hospital with secrets: two benchmarks with canaries in all private data.

All text in a holdout, in its vault and in their folders is or contains a *marker* that occurs nowhere else: ids of
patients, device data in headers, names of readers, hashes of files, numbers with eight odd decimals and even the
outlines, which share a bar code at the right edge. Image and study ids are public because the manifest contains them.
The localization benchmark asks for every finding of every image, so its labels are secret also. In its second version
some labels differ.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.records import StudyRecord, read_studies
from reveal_bench.kinds.images import StudyImage
from reveal_bench.kinds.localization.records import LocalizationRecord, SalientPoint, read_localization
from reveal_bench.masks import encode_mask
from tests.conftest import annotate

IMAGES, STUDIES = "chexlocalize", "reveal-cxr"
FIRST, SECOND = "1.0.0", "1.1.0"
LABELS = BENCHMARKS[STUDIES].findings
SIZE = (48, 64)
BARS = np.random.default_rng(77).random((48, 6)) < 0.5
ODD = "28394716"
"""Decimals of every secret coordinate."""
RARE = 0.1


def _markers(*names: str) -> dict[str, str]:
    rng = random.Random(20261122)
    letters = "abcdefghijkmnpqrstuvwxyz"
    return {name: "".join(rng.choice(letters) for _ in range(14)) for name in names}


MARKERS = _markers(
    "patient", "header of an image", "reader", "header of a study", "maker", "device", "folder of holdouts",
    "folder of vaults", "file in a holdout", "text in a damaged file",
)  # fmt: skip
HASH = "".join(random.Random(4).choice("0123456789abcdef") for _ in range(20))
"""Common start of all secret hashes."""


@dataclass(frozen=True)
class Hospital:
    """The folders, all below `root`; `common` is the prevalence of every label except the first."""

    root: Path
    n_images: int = 160
    n_studies: int = 160
    common: float = 0.5
    versions: tuple[str, ...] = field(default=(FIRST, SECOND))

    def public(self, name: str, version: str = FIRST) -> Path:
        return self.root / "public" / f"{name}-{version}"

    def holdout(self, name: str, version: str = FIRST) -> Path:
        return self.root / MARKERS["folder of holdouts"] / f"{name}-{version}" / "references"

    @property
    def vault(self) -> Path:
        return self.root / MARKERS["folder of vaults"] / "vault"

    @property
    def holdouts(self) -> list[tuple[str, Path]]:
        """All pairs (benchmark, folder), as in the settings of a worker."""
        return [(IMAGES, self.holdout(IMAGES, version)) for version in self.versions] + [
            (STUDIES, self.holdout(STUDIES))
        ]

    @property
    def publics(self) -> list[Path]:
        return [self.public(IMAGES, version) for version in self.versions] + [self.public(STUDIES)]

    @cached_property
    def images(self) -> list[LocalizationRecord]:
        """The held-out references, first version."""
        return read_localization(self.holdout(IMAGES), "holdout")

    @cached_property
    def studies(self) -> list[StudyRecord]:
        return read_studies(self.holdout(STUDIES), "holdout")

    def build(self) -> Hospital:
        """Write all folders."""
        before: dict[str, Any] = {}
        for number, version in enumerate(self.versions):
            records = make_images(self.n_images, changed=10 * number)
            self._build(IMAGES, records, version, asks="all", **before)
            before = {
                "previous": self.public(IMAGES, version),
                "previous_holdout": self.holdout(IMAGES, version),
            }
        self._build(STUDIES, make_studies(self.n_studies, self.common), FIRST)
        for _, folder in self.holdouts:
            (folder / f"{MARKERS['file in a holdout']}.txt").write_text("notes of the maintainer")
        return self

    def _build(self, name: str, records: list[Any], version: str, **options: Any) -> None:
        build_folder(
            {"test": iter(records)},
            self.public(name, version),
            BENCHMARKS[name],
            version=version,
            pixels="withhold",
            holdout=self.holdout(name, version),
            seed=3,
            synthetic=True,
            **options,
        )

    def damage(self, name: str, version: str = FIRST) -> None:
        """Overwrite the references with unreadable bytes that contain a canary."""
        shard = self._shard(name, version)
        shutil.copy(shard, self.root / "undamaged")
        shard.write_bytes(b"PAR1" + MARKERS["text in a damaged file"].encode() * 9 + b"PAR1")

    def repair(self, name: str, version: str = FIRST) -> None:
        shutil.copy(self.root / "undamaged", self._shard(name, version))

    def _shard(self, name: str, version: str) -> Path:
        config = "localization" if name == IMAGES else "multilabel"
        (shard,) = (self.holdout(name, version) / config).glob("holdout-*.parquet")
        return shard


def make_images(n: int, *, changed: int = 0) -> list[LocalizationRecord]:
    """Return images of at most 120 patients; the first `changed` images have all labels inverted."""
    rng = np.random.default_rng(5)
    records = []
    for i in range(n):
        present = rng.random(len(CHEXLOCALIZE_FINDINGS)) < [RARE, *[0.5] * (len(CHEXLOCALIZE_FINDINGS) - 1)]
        corners = rng.integers(4, 20, (len(present), 2))
        present ^= i < changed
        annotations: list[Any] = []
        points = []
        for finding, is_there, (x, y) in zip(CHEXLOCALIZE_FINDINGS, present, corners, strict=True):
            if is_there:
                drawn = annotate(finding, _blob(int(x), int(y)))
                annotations += [drawn, replace(drawn, reader="individual", reader_id=f"{MARKERS['reader']}-{i % 3}")]
                points.append(SalientPoint(finding, "human_benchmark", float(f"{x}.{ODD}"), float(f"{y}.{ODD}")))
        records.append(
            LocalizationRecord(
                image_id=f"image-{i:04d}",
                patient_id=f"{MARKERS['patient']}{2 * i // 3:04d}",
                study_id=f"study-{i:04d}",
                view="FRONTAL",
                width=SIZE[1],
                height=SIZE[0],
                label_status=dict(zip(CHEXLOCALIZE_FINDINGS, map(int, present), strict=True)),
                annotations=tuple(annotations),
                points=tuple(points),
                view_raw=f"AP {MARKERS['header of an image']}",
                source_sha256=f"{HASH}{i:044x}",
                pixel_sha256=f"{HASH}{i + 9000:044x}",
            )
        )
    return records


def _blob(x: int, y: int) -> Any:
    """Return a disc of radius 12 with the bar code at the right edge."""
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    mask = (columns - x - 12) ** 2 + (rows - y - 10) ** 2 < 144
    mask[:, -6:] = BARS
    return mask


def bar_code() -> str:
    """Return the common end of the run-length text of all outlines."""
    texts = [encode_mask(_blob(x, y)).counts for x, y in ((4, 4), (19, 9), (12, 17))]
    shared = 0
    while len({text[-shared - 1 :] for text in texts}) == 1:
        shared += 1
    return texts[0][-shared:]


def make_studies(n: int, common: float) -> list[StudyRecord]:
    """Return studies of one image, two per patient; the first label is rare."""
    rng = np.random.default_rng(6)
    records = []
    for i in range(n):
        present = rng.random(len(LABELS)) < [RARE, *[common] * (len(LABELS) - 1)]
        image = StudyImage(
            f"picture-{i:04d}", "AP", SIZE[1], SIZE[0],
            view_raw=f"AP {MARKERS['header of a study']}", manufacturer="Example",
            manufacturer_raw=f"Example {MARKERS['maker']}", model="E1", model_raw=f"E1 {MARKERS['device']}",
            kvp=float(f"90.{ODD}"), source_sha256=f"{HASH}{i:044x}",
        )  # fmt: skip
        labels = tuple(label for label, is_there in zip(LABELS, present, strict=True) if is_there)
        patient = f"{MARKERS['patient']}s{i // 2:04d}"
        records.append(StudyRecord(f"exam-{i:04d}", patient, labels, "three_of_three", (image,), 3))
    return records
