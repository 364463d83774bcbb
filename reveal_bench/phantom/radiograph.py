"""Render anatomy and findings as grey values.

Blurred shapes are added up to a map of attenuation at a base size (long side at most 448 pixels). The map is then
resized to the final size, and grain is added. White means dense, as on film. Grey values have 8 bits.
"""

from __future__ import annotations

import io
import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.curves import DensityShape, Points

BASE_SIDE = 448
"""Long side at which soft shapes are drawn, in pixels."""

BONES = {"shoul": 0.13, "scapu": 0.05, "liver": 0.04, "arm": 0.08}
"""Beginning of a structure's name -> density."""

Float = npt.NDArray[np.float32]


class _Canvas:
    """Draws blurred shapes at one size; `side` is the long side in pixels."""

    def __init__(self, anatomy: Anatomy, side: int) -> None:
        self.side = side
        self.size = (max(round(anatomy.width * side), 1), max(round(anatomy.height * side), 1))

    def fill(self, contour: Points, blur: float) -> Float:
        return self.fills([(contour, 1.0)], blur)

    def fills(self, contours: list[tuple[Points, float]], blur: float) -> Float:
        """Return an image of contours, each filled with a value in [0, 1]; later contours cover earlier ones."""
        if not contours:
            return np.zeros(self.size[::-1], np.float32)
        image = Image.new("L", self.size)
        draw = ImageDraw.Draw(image)
        for contour, value in contours:
            draw.polygon([tuple(p) for p in (contour * self.side).tolist()], fill=round(255 * value))
        return self._soft(image, blur)

    def lines(self, lines: list[tuple[Points, float]], blur: float, *, hollow: float = 0.0) -> Float:
        """Return an image of lines, each with a width.

        `hollow` darkens the middle of a line, like a bone with a bright cortex.
        """
        image = Image.new("L", self.size)
        draw = ImageDraw.Draw(image)
        for factor, value in ((1.0, 255), (0.6, round(255 * (1 - hollow)))):
            for line, width in lines:
                points = [tuple(p) for p in (line * self.side).tolist()]
                draw.line(points, fill=value, width=max(round(width * factor * self.side), 1))
            if hollow == 0:
                break
        return self._soft(image, blur)

    def _soft(self, image: Image.Image, blur: float) -> Float:
        """Return blurred grey values in [0, 1]; only the area that the blur reaches is processed."""
        soft = np.zeros(self.size[::-1], np.float32)
        drawn = image.getbbox()
        if drawn is None:
            return soft
        pixels = blur * self.side
        reach = math.ceil(3 * pixels) + 4
        left, top = max(drawn[0] - reach, 0), max(drawn[1] - reach, 0)
        part = image.crop((left, top, min(drawn[2] + reach, image.width), min(drawn[3] + reach, image.height)))
        if blur > 0:
            # three box blurs approximate a Gaussian; one is enough for narrow edges and takes a third of the time
            part = part.filter(ImageFilter.BoxBlur(1.5 * pixels) if pixels < 2.5 else ImageFilter.GaussianBlur(pixels))
        soft[top : top + part.height, left : left + part.width] = np.asarray(part, np.float32) / np.float32(255)
        return soft


def render(
    anatomy: Anatomy, shapes: list[DensityShape], rng: np.random.Generator, size: tuple[int, int]
) -> npt.NDArray[np.uint8]:
    """Return the grey values of an image.

    Parameters
    ----------
    anatomy : contours of the patient
    shapes : findings and devices to draw
    rng : random generator for vessels, grain and exposure
    size : (height, width) of the image in pixels

    Returns
    -------
    uint8 array (height, width)
    """
    height, width = size
    long_side = max(size)
    canvas = _Canvas(anatomy, min(long_side, BASE_SIDE))
    film = _film(anatomy, [shape for shape in shapes if not shape.sharp], canvas, rng)
    if long_side > BASE_SIDE or film.shape != size:
        film = np.asarray(Image.fromarray(film).resize((width, height), Image.Resampling.BICUBIC))
    film = film.copy()
    _add_sharp(film, [shape for shape in shapes if shape.sharp], long_side)
    grain = rng.standard_normal(film.shape, dtype=np.float32)
    film += grain * np.float32(0.011 + 0.006 * rng.random())
    exposure = rng.uniform(0.92, 1.08)
    grey: npt.NDArray[np.uint8] = (np.clip(film * np.float32(exposure), 0, 1) * 255).astype(np.uint8)
    return grey


def jpeg_bytes(grey: npt.NDArray[np.uint8], *, quality: int = 90) -> bytes:
    """Return grey values as a JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _film(anatomy: Anatomy, shapes: list[DensityShape], canvas: _Canvas, rng: np.random.Generator) -> Float:
    c = anatomy.contours
    body = canvas.fill(c["body"], 0.010)
    lungs = canvas.fills([(contour, 1.0) for contour in anatomy.lungs.values()], 0.006)
    middle = canvas.fills([(c["mediastinum"], 0.35 if anatomy.is_lateral else 0.75), (c["heart"], 0.85)], 0.007)
    clouds = _clouds(canvas, rng)
    film = 0.58 * body - 0.44 * lungs * (1 - middle)
    film += 0.07 * _spine(anatomy, canvas)
    film += (0.03 + 0.06 * lungs) * canvas.lines(anatomy.lines["posterior_ribs"], 0.0022, hollow=0.35)
    film += 0.05 * lungs * canvas.lines(anatomy.lines["anterior_ribs"], 0.004, hollow=0.3)
    film += 0.10 * canvas.lines(anatomy.lines["clavicles"], 0.0025, hollow=0.3)
    film -= 0.09 * canvas.fills([(c["trachea"], 0.6), (c["stomach"], 1.0)], 0.006)
    film += (
        body
        * canvas.fills([(contour, 5 * BONES[name[:5]]) for name, contour in c.items() if name[:5] in BONES], 0.005)
        / 5
    )
    film += 0.08 * canvas.fills([(contour, 1.0) for name, contour in c.items() if name.startswith("breast")], 0.02)
    airless = canvas.fills([(shape.contour, 1.0) for shape in shapes if shape.density < 0], 0.004)
    film += lungs * (1 - airless) * (1 - 0.7 * middle) * _vessels(anatomy, canvas, rng) + 0.025 * clouds * body
    airy = 0.25 + 0.75 * lungs * (1 - middle)  # dense regions brighten little
    for shape in shapes:
        texture = airy * (1 + 0.22 * clouds[::-1]) if shape.density > 0 else 1.0
        film += np.float32(shape.density) * canvas.fill(shape.contour, shape.blur) * texture
    across = np.linspace(-1, 1, film.shape[1], dtype=np.float32)[None, :]
    toned: Float = 0.03 + 0.97 * np.clip(film * (1 - 0.10 * across**2), 0, 1.2)
    return toned


def _spine(anatomy: Anatomy, canvas: _Canvas) -> Float:
    """Return an image of the spine: a band with paler gaps between the vertebrae."""
    line, width = anatomy.lines["spine"][0]
    band = canvas.lines([(line, width)], 0.004)
    steps = np.linspace(0, len(line) - 1, 26)
    index = np.arange(len(line))
    along = np.stack([np.interp(steps, index, line[:, k]) for k in (0, 1)], axis=1)
    tangent = np.gradient(along, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    across = np.stack([-tangent[:, 1], tangent[:, 0]], axis=1) * width / 2
    gaps = [(np.stack([p - a, p + a]), 0.012) for p, a in zip(along, across, strict=True)]
    pedicles = [
        (np.stack([p + s * 0.6 * a, p + s * 0.6 * a + t * 0.012]), 0.014)
        for p, a, t in zip(along[:-1] + np.diff(along, axis=0) / 2, across, tangent, strict=False)
        for s in (-1, 1)
    ]
    column: Float = band * (1 - 0.5 * canvas.lines(gaps, 0.003)) + 0.35 * canvas.lines(pedicles, 0.003)
    return column


def _vessels(anatomy: Anatomy, canvas: _Canvas, rng: np.random.Generator) -> Float:
    """Return an image of pulmonary vessels, which branch from the hila and become thinner and fainter outwards."""
    hila = [(-0.17, 0.42), (0.19, 0.40)] if not anatomy.is_lateral else [(0.1, 0.42), (0.05, 0.45)]
    thick: list[tuple[Points, float]] = []
    thin: list[tuple[Points, float]] = []
    for hilum_x, hilum_y in hila:
        side = np.sign(hilum_x)
        for _ in range(13):
            angle = rng.uniform(-1.35, 1.45)
            turn = 1.0 if not anatomy.is_lateral else rng.choice([-1.0, 1.0])
            direction = np.array([side * turn * np.cos(angle), 0.85 * np.sin(angle)])
            start = np.array([hilum_x, hilum_y]) + rng.normal(0, 0.02, 2)
            bend = rng.normal(0, 0.05, (3, 2))
            length = rng.uniform(0.25, 0.5)
            points = [start, *(start + direction * length * t + bend[i] * t for i, t in enumerate((0.35, 0.7, 1.0)))]
            width = rng.uniform(0.006, 0.013)
            thick.append((anatomy.place(np.array(points[:2])), width))
            thick.append((anatomy.place(np.array(points[1:3])), width * 0.65))
            thin.append((anatomy.place(np.array(points[2:])), width * 0.4))
            for _ in range(3):
                origin = points[int(rng.integers(1, 3))]
                fork = direction @ _turned(rng.normal(0, 0.6)) * rng.uniform(0.12, 0.28)
                thin.append((anatomy.place(np.array([origin, origin + fork])), width * 0.35))
    blobs = [(anatomy.place(np.array([h, (h[0] * 1.25, h[1] + 0.1)])), 0.035) for h in hila]
    tree: Float = (
        0.085 * canvas.lines(thick, 0.002) + 0.06 * canvas.lines(thin, 0.0015) + 0.13 * canvas.lines(blobs, 0.012)
    )
    return tree


def _turned(angle: float) -> Points:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _clouds(canvas: _Canvas, rng: np.random.Generator) -> Float:
    """Return a smooth random texture with mean about 0 and amplitude about 1."""
    width, height = canvas.size
    total = np.zeros((height, width), np.float32)
    for cells, weight in ((9, 0.6), (28, 0.45)):
        coarse = rng.standard_normal((max(cells * height // max(canvas.size), 2), cells)).astype(np.float32)
        total += weight * np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    return total


def _add_sharp(film: Float, shapes: list[DensityShape], side: int) -> None:
    """Draw devices at the image's final size, processing only the box around each device."""
    height, width = film.shape
    for shape in shapes:
        points = shape.contour * side
        margin = 3
        left, top = (max(int(v) - margin, 0) for v in points.min(axis=0))
        right, bottom = int(points[:, 0].max()) + margin + 1, int(points[:, 1].max()) + margin + 1
        right, bottom = min(right, width), min(bottom, height)
        if right <= left or bottom <= top:
            continue
        image = Image.new("L", (right - left, bottom - top))
        ImageDraw.Draw(image).polygon([tuple(p) for p in (points - (left, top)).tolist()], fill=255)
        image = image.filter(ImageFilter.GaussianBlur(max(shape.blur * side, 0.4)))
        film[top:bottom, left:right] += np.float32(shape.density / 255) * np.asarray(image, np.float32)
