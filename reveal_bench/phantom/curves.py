"""Make smooth curves, strips, and contours with a density; points are float arrays (n, 2) of (x, y) in any unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

Points = npt.NDArray[np.float64]


def closed_curve(corners: ArrayLike) -> Points:
    """Return the closed Catmull-Rom curve through `corners`, with six points per corner."""
    p = np.asarray(corners, float)
    return _catmull_rom(np.roll(p, 1, axis=0), p, np.roll(p, -1, axis=0), np.roll(p, -2, axis=0), 6)


def open_curve(corners: ArrayLike) -> Points:
    """Return the open Catmull-Rom curve through `corners`, of which there are at least two."""
    p = np.asarray(corners, float)
    padded = np.concatenate([[2 * p[0] - p[1]], p, [2 * p[-1] - p[-2]]])
    curve = _catmull_rom(padded[:-3], padded[1:-2], padded[2:-1], padded[3:], 8)
    return np.concatenate([curve, p[-1:]])


def _catmull_rom(p0: Points, p1: Points, p2: Points, p3: Points, steps: int) -> Points:
    t = (np.arange(steps) / steps)[None, :, None]
    a, b, c, d = (p[:, None, :] for p in (p0, p1, p2, p3))
    curve = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    flat: Points = curve.reshape(-1, 2)
    return flat


def strip(line: Points, width: float) -> Points:
    """Return the outline of a strip of `width` along a line."""
    along = np.gradient(line, axis=0)
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) * width / 2
    return np.concatenate([line + across, (line - across)[::-1]])


def blob(rng: np.random.Generator, centre: ArrayLike, radii: ArrayLike, *, wobble: float = 0.15) -> Points:
    """Return an irregular ellipse; `wobble` is the size of the irregularities relative to the radius."""
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    bumps = sum(rng.normal() / k * np.cos(k * angles + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 4, 5))
    radius = np.maximum(1 + wobble * np.asarray(bumps), 0.3)
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1) * radius[:, None]
    turn = rng.uniform(-0.5, 0.5)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    points: Points = np.asarray(centre, float) + (unit * np.asarray(radii, float)) @ rotation.T
    return points


def area(contour: Points) -> float:
    """Return the area inside a closed contour that does not cross itself."""
    x, y = contour[:, 0], contour[:, 1]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def is_inside(points: Points, contour: Points) -> npt.NDArray[np.bool_]:
    """Return, for each point, True if the point is in a closed contour, by the even-odd rule for edges to its right."""
    a, b = contour, np.roll(contour, -1, axis=0)
    x, y = points[:, :1], points[:, 1:]
    crosses = (a[:, 1] > y) != (b[:, 1] > y)
    with np.errstate(divide="ignore", invalid="ignore"):
        edge_x = a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
    inside: npt.NDArray[np.bool_] = np.count_nonzero(crosses & (edge_x > x), axis=1) % 2 == 1
    return inside


@dataclass(frozen=True, slots=True)
class DensityShape:
    """A closed contour (long side of the image = 1) that adds `density` to the image.

    `blur` is the width of the edge; `sharp` shapes (devices) are drawn at the image's full size.
    """

    contour: Points
    density: float
    blur: float = 0.006
    sharp: bool = False
