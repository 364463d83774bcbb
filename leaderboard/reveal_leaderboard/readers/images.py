"""Convert DICOM, PNG and JPEG files for the browser: 16-bit pixel values and display settings, without other metadata.

Conventions
-----------
A :class:`GreyImage` has unsigned 16-bit `values`; the window applies to ``slope * value + intercept`` (for DICOM, the
modality value). A modality table is applied here, since it is not a linear function. The initial display uses the
file's window or VOI table, otherwise the full range of the stored bits (:mod:`reveal_bench.dicom.display`). `presets`
are all ways that the file offers, `padding` is the range of values that are not part of the image, and `spacing` is in
mm, between rows and between columns. Values are sent (:func:`packed`) as gzip-compressed differences along each row,
modulo 65,536, with all high bytes before all low bytes. This halves the size of a 12-bit radiograph, and the browser
needs no decoder.

PNG and JPEG (8 or 16 bit; colour becomes luminance) are for datasets without DICOM. Their metadata are dropped. A file
whose metadata mark the image as rotated is refused.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from reveal_leaderboard.readers.notes import reader_notes
from reveal_leaderboard.readers.store import ItemImage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from reveal_bench.dicom.display import DisplaySettings, Plan

MAX_KEPT_BYTES = 256 << 20
MAX_PIXELS = 100_000_000
UNTURNED = (None, 1)


class ImageError(ValueError):
    """An image cannot be shown; the message is the reason, without a path."""


@dataclass(frozen=True, slots=True)
class GreyImage:
    """A grey image with 16-bit values; `facts` are the display settings for the browser."""

    values: npt.NDArray[np.uint16] = field(repr=False)
    facts: dict[str, Any]


def read_image(data: bytes) -> GreyImage:
    """Read a DICOM, PNG or JPEG file.

    Raises
    ------
    ImageError
        If the file contains no readable grey image.
    """
    from reveal_bench.dicom.files import DicomError, is_dicom

    if data[:8] == b"\x89PNG\r\n\x1a\n" or data[:2] == b"\xff\xd8":
        return _of_picture_file(data)
    try:
        return _of_dicom(data)
    except DicomError as error:
        what = str(error) if is_dicom(data[:132]) else "not a DICOM, PNG or JPEG file"
        raise ImageError(what) from None


def packed(values: npt.NDArray[np.uint16]) -> bytes:
    """Return the values in the format in which they are sent to the browser.

    >>> import gzip, numpy as np
    >>> gzip.decompress(packed(np.array([[1, 258, 2]], dtype=np.uint16))).hex()  # 1, +257, -256
    '0001ff010100'
    """
    import numpy as np

    steps = values.copy()
    steps[:, 1:] -= values[:, :-1]
    planes = np.concatenate([(steps >> 8).astype(np.uint8).ravel(), (steps & 0xFF).astype(np.uint8).ravel()])
    coder = zlib.compressobj(level=1, wbits=31)
    return coder.compress(planes.tobytes()) + coder.flush()


class ImageCache:
    """Images below `root`, read on request; the last images are cached in packed format."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root).resolve()
        self._kept: OrderedDict[ItemImage, tuple[dict[str, Any], bytes]] = OrderedDict()
        self._lock = Lock()
        self._n_bytes = 0

    def get(self, film: ItemImage) -> tuple[dict[str, Any], bytes]:
        """Return the display settings and the packed values of an image.

        Raises
        ------
        ImageError
            If the image cannot be shown.
        """
        with self._lock:
            if film in self._kept:
                self._kept.move_to_end(film)
                return self._kept[film]
        picture = read_image(self._read(film))
        packed_image = picture.facts, packed(picture.values)
        with self._lock:
            if film not in self._kept:
                self._kept[film] = packed_image
                self._n_bytes += len(packed_image[1])
            while self._n_bytes > MAX_KEPT_BYTES and len(self._kept) > 1:
                _, (_, old) = self._kept.popitem(last=False)
                self._n_bytes -= len(old)
        return packed_image

    def _read(self, film: ItemImage) -> bytes:
        from reveal_bench.dicom.files import DicomError, DicomFile

        path = (self.root / film.file).resolve()
        if not path.is_relative_to(self.root):
            raise ImageError("the file is outside the image folder")
        try:
            return DicomFile(path, film.member).read()
        except DicomError as error:
            raise ImageError(str(error)) from None


def _of_dicom(data: bytes) -> GreyImage:
    from reveal_bench.dicom.pixels import read_pixels

    picture = read_pixels(data)
    settings = picture.choice.display
    values, slope, intercept = _values(picture.patterns, settings)
    height, width = picture.size
    facts = {"height": height, "width": width, "slope": slope, "intercept": intercept, "invert": settings.invert}
    notes = {"padding": _padding(picture.plan, settings), "notes": reader_notes(picture.warnings)}
    spacing = {"spacing": picture.spacing_mm, "at_detector": picture.spacing_source == "imager_pixel_spacing"}
    return GreyImage(values, facts | notes | spacing | _start(settings) | _presets(picture.plan, settings))


def _values(patterns: npt.NDArray[Any], settings: DisplaySettings) -> tuple[npt.NDArray[np.uint16], float, float]:
    """Return the bit patterns as unsigned values, and the slope and intercept that give the modality values."""
    import numpy as np

    from reveal_bench.dicom.display import Lut, Rescale

    low = settings.stored_range[0]
    mask = (1 << settings.bits_stored) - 1
    # A signed value plus half of its range has the same bit pattern with the highest bit flipped.
    unsigned = ((patterns & mask) ^ (-low if settings.is_signed else 0)).astype(np.uint16)
    if isinstance(settings.modality, Lut):
        table = settings.modality
        index = np.clip(unsigned.astype(np.int64) + low - table.first, 0, len(table.entries) - 1)
        return table.entries[index].astype(np.uint16), 1.0, 0.0
    slope, intercept = (
        (settings.modality.slope, settings.modality.intercept) if isinstance(settings.modality, Rescale) else (1, 0)
    )
    return unsigned, float(slope), float(intercept + slope * low)


def _padding(plan: Plan, settings: DisplaySettings) -> list[int] | None:
    """Return the lowest and highest value of padding as sent to the browser; None without padding."""
    import numpy as np

    if plan.padding is None:
        return None
    least, most = settings.stored_range
    low, high = max(plan.padding[0], least), min(plan.padding[1], most)
    if low > high:
        return None
    bounds, _, _ = _values(np.array([low, high]), settings)
    return [int(bounds.min()), int(bounds.max())]


def _presets(plan: Plan, settings: DisplaySettings) -> dict[str, Any]:
    """Return all ways of display that the file offers, and the position of the initial one among them."""
    ways = [voi.way for voi in plan.vois]
    if not any(way is settings.voi for way in ways):
        ways.append(settings.voi)
    presets: list[dict[str, Any]] = []
    for number, way in enumerate(ways, start=1):
        name = "Full range" if way is None else f"File {number}" if number <= len(plan.vois) else "Image range"
        presets.append({"name": name} | _start(replace(settings, voi=way)))
    return {"presets": presets, "preset": next(n for n, way in enumerate(ways) if way is settings.voi)}


def _start(settings: DisplaySettings) -> dict[str, Any]:
    """Return the initial display: a window, or a table of 8-bit grey levels with its equivalent window."""
    from reveal_bench.dicom.display import Lut, Window

    low, high = settings.modality_range
    if isinstance(settings.voi, Window):
        window = {"center": settings.voi.center, "width": settings.voi.width, "function": settings.voi.function}
    elif isinstance(settings.voi, Lut):
        n = len(settings.voi.entries)
        window = {"center": settings.voi.first + (n - 1) / 2, "width": float(max(n - 1, 1)), "function": "LINEAR_EXACT"}
        return {"window": window, "range": [low, high], "table": _table(settings, settings.voi)}
    else:
        window = {"center": (low + high) / 2, "width": high - low, "function": "LINEAR_EXACT"}
    return {"window": window, "range": [low, high], "table": None}


def _table(settings: DisplaySettings, voi: Any) -> str:
    """Return the grey level of every value after a VOI table, before inversion, as base64 of bytes."""
    import numpy as np

    from reveal_bench.dicom.display import Lut, Rescale

    values = np.arange(1 << 16, dtype=np.float64)
    if not isinstance(settings.modality, Lut):
        values += settings.stored_range[0]
    if isinstance(settings.modality, Rescale):
        values = values * settings.modality.slope + settings.modality.intercept
    index = np.clip(np.floor(values) - voi.first, 0, len(voi.entries) - 1).astype(np.intp)
    greys = np.rint(voi.entries[index] / ((1 << voi.bits) - 1) * 255).astype(np.uint8)
    return base64.b64encode(greys.tobytes()).decode("ascii")


def _of_picture_file(data: bytes) -> GreyImage:
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(f"{image.height} x {image.width} pixels; at most {MAX_PIXELS:,} are read")
            if image.getexif().get(0x0112) not in UNTURNED:
                raise ImageError("image marked as rotated: rotate its pixels first")
            is_deep = image.mode in ("I;16", "I;16B", "I")
            values = np.asarray(image if is_deep else image.convert("L"))
    except ImageError:
        raise
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"the image cannot be read: {type(error).__name__}") from None
    if values.min(initial=0) < 0 or values.max(initial=0) > 65_535:
        raise ImageError("values must be from 0 to 65,535")
    high = 65_535.0 if is_deep else 255.0
    facts = {"height": values.shape[0], "width": values.shape[1], "slope": 1.0, "intercept": 0.0, "invert": False}
    window = {"center": high / 2, "width": high, "function": "LINEAR_EXACT"}
    start = {"window": window, "range": [0.0, high], "table": None}
    presets = {"presets": [{"name": "Full range"} | start], "preset": 0}
    unknown: dict[str, Any] = {"padding": None, "notes": [], "spacing": None, "at_detector": False}
    return GreyImage(values.astype(np.uint16), facts | unknown | presets | start)
