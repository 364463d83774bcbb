"""What makes real DICOM collections awkward: rare ways to store a film, files that are no further film, litter."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.phantom.dicom_headers import draw_header
from reveal_bench.phantom.reveal_pixels import draw_storage, stored_values
from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy

if TYPE_CHECKING:
    from reveal_bench.phantom.reveal import Layout

__all__ = ["EXTRA_FILES", "RARE", "write_extra_file", "write_litter"]

RARE: dict[int, dict[str, str]] = {
    0: {"voi": "window", "windows": "3", "function": ""},
    1: {"voi": "both"},
    2: {"meta": "missing", "syntax": "explicit"},
    3: {"voi": "window", "function": "SIGMOID"},
    4: {
        "photometric": "MONOCHROME1", "shape": "INVERSE", "bits": "10", "voi": "window", "rescale": "LOG_E REL",
        "slope": "-1",
    },
    5: {"voi": "neither", "bits": "15", "photometric": "MONOCHROME1"},
    6: {"syntax": "jpeg2000-lossless", "voi": "lut"},
    7: {"meta": "missing", "syntax": "implicit", "voi": "lut"},
    12: {"voi": "window", "function": "LINEAR_EXACT", "bits": "14"},
    13: {"syntax": "rle"},
    14: {"syntax": "jpegls-lossless", "bits": "15"},
}  # fmt: skip
"""Index of a study -> how its films are stored, in names and values of `SHARES`; and their transfer syntax and meta."""

EXTRA_FILES = {
    8: "a secondary capture",
    9: "the same exposure for processing",
    10: "the same file again",
    11: "a derived secondary picture",
}
"""Index of a study, modulo :data:`EVERY` -> file that comes with it and is no further film."""
EVERY = 25
EXTRA = 9
"""Number of the extra file among the images of its study."""

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
DX_FOR_PROCESSING = "1.2.840.10008.5.1.4.1.1.1.1.1"


def write_extra_file(study: RevealStudy, first: Path, layout: Layout) -> int:
    """Write the extra file of a study, if it has one; how many were written."""
    kind = EXTRA_FILES.get(study.index % EVERY)
    if kind is None or (kind == "the same file again" and not first.exists()):
        return 0  # a film that went into an archive lies there once
    image = RevealImage(EXTRA, study.images[0].view, study.images[0].size)
    path = layout.place(study, image)
    if kind == "the same file again":
        shutil.copyfile(first, path)
    else:
        layout.add(study, _write_small_picture(study, image, path, kind), path)
    return 1


def _write_small_picture(study: RevealStudy, image: RevealImage, path: Path, kind: str) -> dict[Any, Any]:
    from reveal_bench.dicom import write_dicom

    rng = study.rng(32)
    attributes = draw_header(study, image, rng)
    if kind == "a secondary capture":
        attributes.update(SOPClassUID=SECONDARY_CAPTURE, Modality="OT", ImageType=["DERIVED", "SECONDARY"])
        attributes.pop("PresentationIntentType", None)
    elif kind == "a derived secondary picture":
        attributes.update(ImageType=["DERIVED", "SECONDARY", "SCREENSHOT"])
    else:
        attributes.update(
            SOPClassUID=DX_FOR_PROCESSING,
            Modality="DX",
            PresentationIntentType="FOR PROCESSING",
            IrradiationEventUID=study.uid("event", 1),
            ImageType=["ORIGINAL", "PRIMARY"],
        )
    storage = draw_storage(rng, force={"bits": "12", "voi": "neither", "photometric": "MONOCHROME1"})
    grey = np.tile(np.linspace(0, 255, 96).astype(np.uint8), (64, 1))
    write_dicom(
        path,
        stored_values(grey, storage, rng),
        {**attributes, **storage.attributes},
        bits_stored=storage.bits_stored,
        photometric=storage.photometric,
    )
    return attributes


def write_litter(root: Path) -> None:
    """What lies about in a folder that people and programs have used."""
    (root / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(60))
    (root / ".DS_Store").write_bytes(bytes(8))
    (root / "readme.txt").write_text("Films in any order; see labels.csv.\n", encoding="utf-8")
    (root / "archive_02.zip.part").write_bytes(b"PK\x03\x04 an interrupted download")
