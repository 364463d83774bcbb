"""Images of every kind of dataset: their views, pixel files and known facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

VIEWS = ("AP", "PA", "LATERAL", "FRONTAL", "UNKNOWN")
MOST_PIXELS = 85_000_000
"""Largest number of pixels of a picture: a film of 35 x 43 cm at 50 micrometres has 60 million; Pillow warns above 89
million.
"""
SPACING_SOURCES = ("pixel_spacing", "imager_pixel_spacing", "none")


@dataclass(frozen=True, slots=True)
class PictureFile:
    """The file of an image's pixels on the maintainer's disk, of which only `name` is published.

    Attributes
    ----------
    path : file, or the archive that holds it
    name : file name to publish, without folders
    source_path : path relative to the download, for messages
    kind : {"picture", "dicom", "png16"}
        "picture" is a JPEG or PNG, whose bytes are published unchanged unless it has 16-bit grey values; "png16" is a
        PNG that must have 16 bits, which are converted to 8.
    member : name inside the zip archive `path`, or None
    notes : notes on the header of the file, without values that could identify someone
    """

    path: Path
    name: str
    source_path: str
    kind: Literal["picture", "dicom", "png16"] = "picture"
    member: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedPicture:
    """A picture as it is published.

    Attributes
    ----------
    data : file bytes, or None when pixels are withheld
    name : bare file name
    size : (height, width)
    source_sha256, pixel_sha256 : hashes of the source's file, and of the published grey values
    pipeline : how the pixels were made
    warnings : notes on the file's display settings
    fault : what is wrong with the contrast, such as "every pixel is black"; "" if nothing
    """

    data: bytes | None = field(repr=False)
    name: str
    size: tuple[int, int]
    source_sha256: str
    pixel_sha256: str
    pipeline: str
    warnings: tuple[str, ...] = ()
    fault: str = ""

    def withheld(self) -> PublishedPicture:
        """Return the picture without its bytes; hashes and pipeline still describe how to generate them again."""
        return replace(self, data=None)


@dataclass(frozen=True, slots=True)
class StudyImage:
    """One image of a study, with the facts known of its acquisition.

    Attributes
    ----------
    view, spacing_source : members of `records.VIEWS` and `records.SPACING_SOURCES`; `view_raw` as the source writes it
    manufacturer, model, detector_type : normalised spelling; ``*_raw`` as the source writes it
    kvp, exposure_mas : tube voltage (kV) and exposure (mAs)
    source_sha256, pixel_sha256, pixel_pipeline, picture : as in
        :class:`reveal_bench.kinds.localization.records.LocalizationRecord`
    """

    image_id: str
    view: str
    width: int
    height: int
    view_raw: str | None = None
    manufacturer: str | None = None
    manufacturer_raw: str | None = None
    model: str | None = None
    model_raw: str | None = None
    detector_type: str | None = None
    kvp: float | None = None
    exposure_mas: float | None = None
    spacing_mm: tuple[float, float] | None = None
    spacing_source: str = "none"
    source_sha256: str | None = None
    pixel_sha256: str | None = None
    pixel_pipeline: str = "withheld"
    picture: PictureFile | None = None


def image_from_facts(facts: Mapping[str, Any]) -> StudyImage:
    """Return an image from one entry of the column `image_facts`."""
    spacing = facts["spacing_mm"]
    return StudyImage(
        **{
            **facts,
            "view": VIEWS[facts["view"]],
            "spacing_mm": tuple(spacing) if spacing else None,
            "spacing_source": SPACING_SOURCES[facts["spacing_source"]],
        }
    )


def developed_images(
    images: Sequence[StudyImage], developed: Sequence[PublishedPicture | None]
) -> tuple[StudyImage, ...]:
    """Return images with the facts read from their pixels."""
    known = []
    for image, picture in zip(images, developed, strict=True):
        if picture is None:
            known.append(image)
            continue
        if picture.size != (image.height, image.width):
            got = f"{picture.size[1]} x {picture.size[0]}"
            raise ValueError(f"image {image.image_id} must have {image.width} x {image.height} pixels, got {got}")
        known.append(
            replace(
                image,
                source_sha256=picture.source_sha256,
                pixel_sha256=picture.pixel_sha256,
                pixel_pipeline="withheld" if picture.data is None else picture.pipeline,
            )
        )
    return tuple(known)


def bare_images(entry: Mapping[str, Any], ids: str) -> tuple[StudyImage, ...]:
    """Return the images that a manifest entry names in its field `ids`, with their views if given, without sizes."""
    views = dict(zip(entry.get("image_ids", ()), entry.get("views", ()), strict=False))
    return tuple(StudyImage(image_id, views.get(image_id, "UNKNOWN"), 0, 0) for image_id in entry.get(ids, ()))
