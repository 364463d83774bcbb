"""Validation of the rows of a dataset folder: values by the type of their column, pictures and masks.

A fault is (field, rule, value). Values are checked first: if :func:`value_faults` finds a fault in a row, no other rule
is applied to the row. The rules of a kind of benchmark (:meth:`reveal_bench.kinds.parts.Table.row_faults`) can
therefore assume that every code has a name and that no list is missing.

Pictures must be decodable and have the stated size and hashes. The same pixels (sha256 of the decoded grey values) in
rows of different splits are a problem, because facts about one row would reveal the other. Within a split they cause a
warning, because some sources have the same picture under two names.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reveal_bench.dataset.tables import IDS, INPUTS, TableFile
from reveal_bench.dicom.contrast import contrast_fault, counts_within_border
from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import MAY_BE_NULL, Fault, Row, length_faults
from reveal_bench.masks import Rle, parse_masks
from reveal_bench.sources.pictures import FORMATS, ORIGINAL, without_metadata
from reveal_bench.sources.source import Problem

GROUND_TRUTH = READERS.index("ground_truth")
ID = re.compile(r"[\w.+-]+")
OPTIONAL_CODES = {"agreement"}
NEEDED = {"width", "height", "x", "y", "area_px", "n_instances", "counts"}
"""Names of numbers and texts that must have a value."""
QUANTITIES = ("kvp", "exposure_mas")
CONTRAST = "contrast"
"""Field of a warning about a picture that shows nothing, followed by the image id in brackets."""
NULL_ENTRIES = ("label_vector",)
"""Lists whose entries may be null."""


def value_faults(row: Row, features: Mapping[str, Any], *, is_input: bool = False) -> Iterator[Fault]:
    """Yield a fault for each unknown code, missing required value and non-finite number, at any depth.

    Parameters
    ----------
    features : Features of the table; columns without a feature are ignored
    is_input : True if the row may lack columns that would reveal references
    """
    for name, feature in features.items():
        if name in row:
            yield from _faults(row[name], feature, name, is_input)
    yield from length_faults(row)


def _faults(value: Any, feature: Any, place: str, may_lack: bool) -> Iterator[Fault]:
    from datasets import ClassLabel, List

    if isinstance(feature, List):
        yield from _list_faults(value, feature, place, may_lack)
    elif isinstance(feature, Mapping):
        for inner, kind in feature.items() if value is not None else ():
            yield from _faults(value.get(inner), kind, f"{place}.{inner}", may_lack)
    elif value is None:
        name = place.rpartition(".")[2]
        is_needed = name not in OPTIONAL_CODES if isinstance(feature, ClassLabel) else name in NEEDED
        if is_needed and not may_lack:
            yield place, "must have a value", "null"
    elif isinstance(feature, ClassLabel):
        if not 0 <= value < len(feature.names):
            yield place, f"must be a code from 0 to {len(feature.names) - 1}", str(value)
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, "must be finite", str(value)


def _list_faults(value: Any, feature: Any, place: str, may_lack: bool) -> Iterator[Fault]:
    if value is None and place.rpartition(".")[2] not in MAY_BE_NULL and not may_lack:
        yield place, "must be a list, which may be empty", "null"
    for entry in value or ():
        if entry is None and place not in NULL_ENTRIES and _is_entry(feature.feature):
            yield place, "must not contain null", "null"
        else:
            yield from _faults(entry, feature.feature, place, may_lack)


def _is_entry(feature: Any) -> bool:
    """Return True if entries of a list must not be null.

    Null is allowed for pictures, which may be withheld; a null code is reported as a missing value.
    """
    from datasets import ClassLabel, Image

    return not isinstance(feature, Image | ClassLabel)


def id_faults(row: Row, *, is_input: bool = False) -> Iterator[Fault]:
    """Yield a fault for each id that is missing or contains characters other than letters, digits and `_ . + -`."""
    for column in IDS:
        if column not in row or (is_input and column == "patient_id" and row[column] is None):
            continue
        value = row[column]
        for text in (value or ()) if column.endswith("_ids") else [value]:
            if text is None or not ID.fullmatch(text):
                yield column, "must be an id of letters, digits and `_ . + -`", repr(text)


def quantity_faults(row: Row) -> Iterator[Fault]:
    """Yield a fault for each physical quantity of a row or of its pictures that is not positive."""
    places = [("", row)]
    for column in ("image_facts", "prior_image_facts"):
        places += [(f"{column}[{facts['image_id']}].", facts) for facts in row.get(column) or ()]
    for place, facts in places:
        for name in QUANTITIES:
            if facts.get(name) is not None and not facts[name] > 0:
                yield f"{place}{name}", "must be positive", str(facts[name])
        if facts.get("spacing_mm") is not None and not all(value > 0 for value in facts["spacing_mm"]):
            yield f"{place}spacing_mm", "must be positive", str(facts["spacing_mm"])


DECODED = (*FORMATS, "BMP", "GIF", "JPEG2000", "PPM", "TIFF", "WEBP")
"""Formats of pictures that are decoded and compared with the holdout.

Pillow would start other programs for some other formats.
"""
WITHHELD = "withheld"
UNKNOWN_FORM = "cannot identify image file"
FILE_NAME = re.compile(r"(?P<stem>.+)\.(png|jpe?g)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """Facts about a picture that its checks need and that are slow to compute.

    Attributes
    ----------
    path : name of the file in the row
    n_bytes, sha256 : size and SHA-256 of the file
    n_besides : number of bytes of metadata
    size, pixels, contrast : results of :func:`picture_hash`
    error : reason why the file is not a picture, or None; with an error, `n_besides`, `size`, `pixels` and `contrast`
        are meaningless
    """

    path: str
    n_bytes: int
    sha256: str
    n_besides: int = 0
    size: tuple[int, int] = (0, 0)
    pixels: str = ""
    contrast: str = ""
    error: str | None = None


def inspect_picture(picture: Row) -> PictureFacts:
    """Decode a picture, a dict with "bytes" and "path", and return facts about it."""
    data, path = picture["bytes"] or b"", picture["path"] or ""
    digest = hashlib.sha256(data).hexdigest()
    try:
        size, pixels, contrast = picture_hash(data)
        n_besides = len(data) - len(without_metadata(data))
    except ValueError as error:
        return PictureFacts(path, len(data), digest, error=str(error))
    return PictureFacts(path, len(data), digest, n_besides, size, pixels, contrast)


@dataclass
class PictureChecks:
    """Check of the pictures of rows, which remembers where pixels were first seen.

    Attributes
    ----------
    places : dict from sha256 of pixels to (split, image id, file) where the pixels were first seen
    files : dict from sha256 of a picture's file to (split, image id, file) where the file was first seen
    faults : dict from sha256 of pixels to what is wrong with their contrast
    inputs : dict from image id to (file, sha256 of pixels) of the pictures in a holdout's inputs
    seen : names of the tables whose pictures were checked
    n_withheld, n_verifiable : number of withheld pictures in rows with references, and number of these with the hash of
        the file
    """

    places: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    files: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    n_withheld: int = 0
    n_verifiable: int = 0

    def check(self, row: Row, key: str, table: TableFile, warnings: list[Problem]) -> Iterator[Problem]:
        """Yield the problems of the pictures in a row of the main config or of inputs."""
        self.seen.add(table.name)
        for is_one_of_many, picture, facts in pictures_of(row):
            which = f"[{facts['image_id']}]" if is_one_of_many else ""
            pixels = facts["pixel_sha256"]
            if picture is None:
                if table.config != INPUTS:  # inputs have no hash by design
                    self.n_withheld += 1
                    self.n_verifiable += facts["source_sha256"] is not None
                if facts["pixel_pipeline"] != WITHHELD:
                    rule = f"must be '{WITHHELD}' if the image is missing"
                    yield Problem(table.name, row[key], f"pixel_pipeline{which}", rule, repr(facts["pixel_pipeline"]))
            else:
                pixels, seen = None, picture if isinstance(picture, PictureFacts) else inspect_picture(picture)
                self.files.setdefault(seen.sha256, (table.split, facts["image_id"], table.name))
                if seen.contrast:
                    self.faults[seen.pixels] = seen.contrast
                    field, rule = f"{CONTRAST}[{facts['image_id']}]", "should be that of a radiograph"
                    warnings.append(Problem(table.name, row[key], field, rule, seen.contrast))
                for fault in _picture_faults(seen, facts):
                    if isinstance(fault, str):
                        pixels = fault
                        if table.config == INPUTS:
                            self.inputs.setdefault(facts["image_id"], []).append((table.name, pixels))
                    else:
                        yield Problem(table.name, row[key], f"{fault[0]}{which}", *fault[1:])
            if pixels is not None:
                yield from self._seen(pixels, facts["image_id"], row[key], table, warnings)

    def unverifiable(self, place: str) -> Iterator[Problem]:
        """Yield a problem if pictures are withheld and none has a hash with which users could verify their copies."""
        if self.n_withheld and not self.n_verifiable:
            rule = "should be given if pictures are withheld"
            yield Problem(place, None, "source_sha256", rule, "no hash, so users cannot verify their own copies")

    def _seen(
        self, pixels: str, image_id: str, row_key: str, table: TableFile, warnings: list[Problem]
    ) -> Iterator[Problem]:
        split, before, file = self.places.setdefault(pixels, (table.split, image_id, table.name))
        seen = f"the pixels of {before}{self.fault_of(pixels)}"
        if split != table.split:
            rule = "must belong to pixels that are in no other split"
            yield Problem(table.name, row_key, "pixel_sha256", rule, f"{seen} in {file}")
        elif before != image_id:
            warnings.append(Problem(table.name, row_key, "pixel_sha256", "should belong to only one image", seen))

    def fault_of(self, pixels: str) -> str:
        """Return words for what is wrong with pixels that show nothing; "" for others."""
        return f" (which show nothing: {self.faults[pixels]})" if pixels in self.faults else ""


def pictures_of(row: Row) -> Iterator[tuple[bool, Row | PictureFacts | None, Row]]:
    """Yield (True if the row has several pictures, picture or None if withheld, facts) of each picture of a row."""
    if "image" in row:
        yield False, row["image"], row
        return
    for column, facts in (("images", "image_facts"), ("prior_images", "prior_image_facts")):
        pairs = zip(row.get(column) or (), row.get(facts) or (), strict=False)
        for picture, entry in pairs:
            yield True, picture, entry


def _picture_faults(picture: PictureFacts, facts: Row) -> Iterator[tuple[str, str, str] | str]:
    """Yield (field, rule, value) of each fault and, if the picture can be decoded, the hash of its pixels."""
    path, size, pixels = picture.path, picture.size, picture.pixels
    if "/" in path or "\\" in path:
        yield "image.path", "must be a file name without folders", repr(path)
    elif path and not is_name_of(path, facts["image_id"] or ""):
        yield "image.path", f"must be {facts['image_id']} or the end of it, with .png or .jpg", repr(path)
    if picture.error is not None:
        yield "image", "must be a picture", f"{picture.n_bytes} bytes: {picture.error}"
        return
    yield pixels
    if picture.n_besides:
        yield "image", "must only contain a picture", f"{picture.n_besides:,} bytes of metadata"
    if size != (facts["width"], facts["height"]):
        yield "image size", f"must be {facts['width']} x {facts['height']}", f"{size[0]} x {size[1]}"
    if facts["pixel_sha256"] not in (None, pixels):
        yield "pixel_sha256", f"must be {pixels}, the hash of the decoded picture", facts["pixel_sha256"]
    if facts["pixel_pipeline"] == WITHHELD:
        yield "pixel_pipeline", "must say how the pixels were made", repr(WITHHELD)
    source = facts["source_sha256"] if facts["pixel_pipeline"] == ORIGINAL else None
    if source is not None and picture.sha256 != source:
        yield "source_sha256", "must be the hash of the image bytes", source


def is_name_of(path: str, image_id: str) -> bool:
    """Return True if the stem of a file name is the image id or the end of it."""
    match = FILE_NAME.fullmatch(path)
    return match is not None and image_id.endswith(match["stem"])


def picture_hash(data: bytes) -> tuple[tuple[int, int], str, str]:
    """Return ((width, height), sha256 of the 8-bit grey values row by row, fault of the contrast or "") of a picture.

    Raises
    ------
    ValueError
        If the bytes are not a complete picture.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=DECODED) as image:
            grey = image.convert("L")
            fault = contrast_fault(counts_within_border(np.asarray(grey)))
            return (image.width, image.height), hashlib.sha256(grey.tobytes()).hexdigest(), fault
    except UnidentifiedImageError:  # its message has an address in memory
        raise ValueError(UNKNOWN_FORM) from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


@dataclass(frozen=True, slots=True)
class MaskFacts:
    """The mask in a picture: digest and number of foreground pixels, or the fault (rule, value)."""

    digest: str = ""
    n_pixels: int = 0
    fault: tuple[str, str] | None = None


def inspect_mask(picture: Row) -> MaskFacts:
    """Decode the picture of a mask, and return facts about it."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(picture["bytes"]), formats=DECODED) as image:
            # black and white: one bit per pixel, or eight bits in folders of earlier versions
            values = np.asarray(image.convert("L") if image.mode == "1" else image)
    except UnidentifiedImageError:  # its message has an address in memory
        return MaskFacts(fault=("must be a picture", UNKNOWN_FORM))
    except (OSError, TypeError, SyntaxError, Image.DecompressionBombError) as error:
        return MaskFacts(fault=("must be a picture", str(error)))
    if values.ndim != 2 or not ((values == 0) | (values == 255)).all():
        return MaskFacts(fault=("must only contain 0 and 255", f"mode {image.mode}"))
    return MaskFacts(_digest(values > 0), int((values > 0).sum()))


@dataclass
class DrawnMasks:
    """Check of the masks of a localization dataset, and of their pictures in the config `masks`.

    Attributes
    ----------
    digests : dict from (split, image id, label) to digest, for non-empty ground-truth masks whose picture has not been
        checked yet
    """

    digests: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def check(self, rows: Sequence[Row], table: TableFile, findings: Sequence[str]) -> Iterator[Problem]:
        """Yield a problem for each mask that is malformed, or contradicts the picture size, its area or its box."""
        pairs = [(row, a) for row in rows for a in row["annotations"] if a["rle"] is not None]
        rles = [Rle(tuple(a["rle"]["size"]), a["rle"]["counts"]) for _, a in pairs]
        masks, broken = parse_masks(rles)
        areas, boxes = masks.areas, masks.boxes_xywh()
        for i, (row, annotation) in enumerate(pairs):
            name = f"annotations[{findings[annotation['label']]}, {READERS[annotation['reader']]}]"
            for suffix, rule, value in _mask_faults(row, annotation, broken.get(i), int(areas[i]), boxes[i]):
                yield Problem(table.name, row["image_id"], f"{name}.{suffix}", rule, value)
            if i not in broken and annotation["reader"] == GROUND_TRUTH and areas[i] > 0:
                self.digests[table.split, row["image_id"], annotation["label"]] = _digest(masks.dense(i))

    def check_picture(self, row: Row, table: TableFile, findings: Sequence[str]) -> Iterator[Problem]:
        """Yield a problem unless a row of the config `masks` shows a ground-truth mask that no earlier row shows."""
        expected = self.digests.pop((table.split, row["image_id"], row["label"]), None)
        name = f"mask[{findings[row['label']]}]"
        if expected is None:
            rule = "must be a ground-truth mask of the main config and occur only once"
            yield Problem(table.name, row["image_id"], name, rule, "another or a second picture")
            return
        seen = row["mask"] if isinstance(row["mask"], MaskFacts) else inspect_mask(row["mask"])
        if seen.fault is not None:
            yield Problem(table.name, row["image_id"], name, *seen.fault)
        elif seen.digest != expected:
            rule = "must show the mask of the main config"
            yield Problem(table.name, row["image_id"], name, rule, f"another mask, of {seen.n_pixels} pixels")

    def unseen(self, splits: set[str], findings: Sequence[str]) -> Iterator[Problem]:
        """Yield a problem for each ground-truth mask of `splits` without a picture in the config `masks`."""
        for split, image_id, label in self.digests:
            if split in splits:
                rule = "must have a picture for every ground-truth mask"
                yield Problem(f"masks/{split}", image_id, f"mask[{findings[label]}]", rule, "none")


def _mask_faults(row: Row, annotation: Row, broken: Any, area: int, box: Any) -> Iterator[tuple[str, str, str]]:
    if broken is not None:
        yield "rle", "must be a well-formed mask", str(broken)
        return
    size = (row["height"], row["width"])
    if tuple(annotation["rle"]["size"]) != size:
        yield "rle.size", f"must be {size}", str(tuple(annotation["rle"]["size"]))
    if annotation["area_px"] != area:
        yield "area_px", f"must be {area}", str(annotation["area_px"])
    tight = None if area == 0 else [float(value) for value in box]
    if annotation["bbox_xywh"] != tight:
        yield "bbox_xywh", f"must be {tight}", str(annotation["bbox_xywh"])


def _digest(mask: Any) -> str:
    return hashlib.sha256(repr(mask.shape).encode() + np.packbits(mask).tobytes()).hexdigest()
