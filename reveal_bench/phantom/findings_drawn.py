"""Draw findings in a synthetic patient: contours, which are the references, and shapes, which make the appearance.

Units and frames are as in :mod:`reveal_bench.phantom.anatomy`. A finding's contours are those that a reader would draw;
its shapes are added to the image. Opacities stay inside the lungs. As in the released CheXlocalize masks, Airspace
Opacity includes opacities that also have a more specific label, and Enlarged Cardiomediastinum includes the heart.

Support devices are tubes, lines and pacemakers. By the instructions for the readers of CheXlocalize (paper 002,
Methods), implanted or invasive devices are outlined, but ECG leads and stickers are not. Some images therefore have
leads and stickers without a contour, and a side marker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.curves import DensityShape, Points, blob, closed_curve, open_curve, strip

OUTLINE = 2.4
"""Width of the contour drawn around a line, as a multiple of the line's width."""


def draw_devices(rng: np.random.Generator, anatomy: Anatomy) -> tuple[list[Points], list[DensityShape]]:
    """Return the contours of the devices and the shapes to draw."""
    contours: list[Points] = []
    shapes: list[DensityShape] = []
    kinds = ["central line", "endotracheal tube", "feeding tube", "chest tube", "pacemaker"]
    chances = np.array([0.34, 0.2, 0.2, 0.12, 0.14])
    for kind in rng.choice(kinds, size=int(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2])), replace=False, p=chances):
        line, width, density = _line(rng, anatomy, str(kind))
        path = anatomy.place(open_curve(line))
        contours.append(strip(path, width * OUTLINE))
        shapes.append(DensityShape(strip(path, width), density, 0.0006, sharp=True))
        if kind == "pacemaker":
            box = anatomy.place(closed_curve(_box(line[0])))
            contours.append(box)
            shapes.append(DensityShape(box, 0.38, 0.0008, sharp=True))
    return contours, shapes


def _line(rng: np.random.Generator, anatomy: Anatomy, kind: str) -> tuple[Points, float, float]:
    """Return a device's path in the local frame, width (long side = 1) and density."""
    side = float(rng.choice([-1.0, 1.0]))
    shake = rng.normal(0, 0.012, (6, 2))
    if anatomy.is_lateral:
        paths = {
            "central line": [(-0.2, -0.3), (-0.1, 0.05), (-0.12, 0.25), (-0.15, 0.45)],
            "endotracheal tube": [(0.02, -0.35), (0.03, -0.1), (0.05, 0.1), (0.06, 0.22)],
            "feeding tube": [(0.12, -0.35), (0.2, 0.1), (0.25, 0.4), (0.2, 0.7), (0.0, 0.95)],
            "chest tube": [(1.2, 0.75), (0.8, 0.65), (0.5, 0.45), (0.35, 0.25)],
            "pacemaker": [(-0.75, 0.12), (-0.45, 0.2), (-0.2, 0.4), (-0.4, 0.72)],
        }
    else:
        paths = {
            "central line": [(side * 0.42, -0.22), (side * 0.25, 0.0), (-0.02, 0.16), (-0.10, 0.28), (-0.11, 0.45)],
            "endotracheal tube": [(0.01, -0.35), (0.0, -0.15), (0.0, 0.05), (0.005, 0.22)],
            "feeding tube": [(0.03, -0.35), (0.02, 0.1), (0.03, 0.5), (0.08, 0.8), (0.22, 0.95), (0.4, 0.98)],
            "chest tube": [(side * 1.25, 0.78), (side * 0.95, 0.66), (side * 0.72, 0.42), (side * 0.5, 0.16)],
            "pacemaker": [(0.72, 0.16), (0.42, 0.1), (0.05, 0.2), (-0.13, 0.45), (-0.02, 0.75), (0.3, 0.88)],
        }
        if kind == "central line" and rng.random() < 0.5:  # a PICC enters from the arm
            paths[kind] = [(side * 1.5, 0.28), (side * 1.1, 0.12), (side * 0.6, 0.06), (-0.02, 0.16), (-0.11, 0.45)]
    widths = {"central line": 0.0035, "endotracheal tube": 0.010, "feeding tube": 0.0055, "chest tube": 0.010}
    path = np.array(paths[kind])
    return path + shake[: len(path)], widths.get(kind, 0.0035), 0.2 if kind != "pacemaker" else 0.3


def _box(centre: Points) -> list[tuple[float, float]]:
    x, y = float(centre[0]), float(centre[1])
    return [
        (x - 0.12, y - 0.05), (x, y - 0.065), (x + 0.12, y - 0.05), (x + 0.14, y), (x + 0.1, y + 0.06),
        (x - 0.02, y + 0.075), (x - 0.12, y + 0.05), (x - 0.14, y),
    ]  # fmt: skip


def _distractors(rng: np.random.Generator, anatomy: Anatomy) -> list[DensityShape]:
    shapes = []
    if anatomy.view == "AP" and rng.random() < 0.4:
        for x, y in ((-0.75, 0.12), (0.78, 0.14), (0.7, 0.9)):
            start = np.array([x, y]) + rng.normal(0, 0.04, 2)
            bend, end = start + rng.normal(0, 0.25, 2), np.add(start, (np.sign(x) * 0.5, 0.9))
            wire = open_curve(np.stack([start, bend, end]))
            shapes.append(DensityShape(strip(anatomy.place(wire), 0.002), 0.13, 0.0008, sharp=True))
            ends = [(start[0] + dx, start[1] + dy) for dx, dy in ((-0.03, 0), (0, -0.02), (0.03, 0), (0, 0.02))]
            shapes.append(DensityShape(anatomy.place(closed_curve(ends)), 0.2, 0.0008, sharp=True))
    if not anatomy.is_lateral:
        x, y, size = anatomy.width * 0.93, anatomy.height * 0.07, 0.028
        strokes = ((x, y - size), (x + size * 0.7, y))  # an "L" on the patient's left
        shapes += [DensityShape(strip(np.array([[x, y], end]), 0.006), 0.5, 0.0006, sharp=True) for end in strokes]
    return shapes


GRID = 256
"""Long side of the raster that keeps contours inside the lungs."""


@dataclass
class Drawn:
    """Contours of each finding, and all shapes to draw into the image."""

    contours: dict[str, list[Points]] = field(default_factory=dict)
    shapes: list[DensityShape] = field(default_factory=list)

    def add(self, finding: str, contour: Points, density: float, blur: float) -> None:
        """Add a contour, and a shape with the same outline."""
        self.contours.setdefault(finding, []).append(contour)
        self.shapes.append(DensityShape(contour, density, blur))


def draw_findings(
    rng: np.random.Generator, anatomy: Anatomy, present: set[str], *, without: frozenset[str] = frozenset()
) -> Drawn:
    """Draw the findings in `present`; heart and mediastinum in `anatomy` must already have their final size.

    Findings in `without` keep their contours but are not drawn; everything else stays the same.
    """
    drawn = Drawn()
    room = _Room(anatomy)
    for finding, draw in _DRAW.items():
        if finding in present:
            n_before = len(drawn.shapes)
            draw(rng, anatomy, room, drawn)
            if finding in without:
                del drawn.shapes[n_before:]
    drawn.shapes += _distractors(rng, anatomy)
    if "Support Devices" in present:
        drawn.contours["Support Devices"], shapes = draw_devices(rng, anatomy)
        drawn.shapes += [] if "Support Devices" in without else shapes
    return drawn


def hidden_with(finding: str) -> frozenset[str]:
    """Return the findings to omit from an image without `finding`: `finding` and its subtypes.

    Examples
    --------
    >>> sorted(hidden_with("Enlarged Cardiomediastinum"))
    ['Cardiomegaly', 'Enlarged Cardiomediastinum']
    """
    cases = {"Airspace Opacity": OPACITIES, "Enlarged Cardiomediastinum": ("Cardiomegaly",)}
    return frozenset((finding, *cases.get(finding, ())))


def _draw_edema(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    for x, y in [(0.0, 0.5)] if anatomy.is_lateral else [(-0.45, 0.5), (0.48, 0.52)]:
        centre = (x + rng.normal(0, 0.03), y + rng.normal(0, 0.03))
        radii = (rng.uniform(0.30, 0.38), rng.uniform(0.33, 0.43))
        drawn.add("Edema", room.blob(rng, centre, radii, wobble=0.12), rng.uniform(0.10, 0.15), 0.035)


def _draw_consolidation(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    for side in _sides(rng, anatomy, both=0.3):
        centre = (side * rng.uniform(0.4, 0.65), rng.choice([0.3, 0.66], p=[0.3, 0.7]) + rng.normal(0, 0.05))
        radii = (rng.uniform(0.27, 0.38), rng.uniform(0.17, 0.28))
        drawn.add("Consolidation", room.blob(rng, centre, radii, wobble=0.2), rng.uniform(0.20, 0.28), 0.012)


def _draw_atelectasis(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    for side in _sides(rng, anatomy, both=0.55):
        centre = (side * rng.uniform(0.42, 0.6), rng.uniform(0.66, 0.78))
        radii = (rng.uniform(0.32, 0.42), rng.uniform(0.09, 0.17))
        drawn.add("Atelectasis", room.blob(rng, centre, radii, wobble=0.15), rng.uniform(0.12, 0.2), 0.008)


def _draw_lesion(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    for _ in range(1 + int(rng.random() < 0.3)):
        centre = (rng.choice([-1, 1]) * rng.uniform(0.35, 0.75), rng.uniform(0.2, 0.7))
        radius = rng.uniform(0.08, 0.19)
        radii = (radius, radius * anatomy.scale[0] / anatomy.scale[1])
        drawn.add("Lung Lesion", room.blob(rng, centre, radii, wobble=0.06), rng.uniform(0.18, 0.26), 0.004)


def _draw_opacity(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    named = [contour for finding in OPACITIES for contour in drawn.contours.get(finding, ())]
    if not named or rng.random() < 0.3:
        for side in _sides(rng, anatomy, both=0.35):
            centre = (side * rng.uniform(0.38, 0.68), rng.uniform(0.3, 0.72))
            radii = (rng.uniform(0.2, 0.32), rng.uniform(0.13, 0.24))
            drawn.add("Airspace Opacity", room.blob(rng, centre, radii, wobble=0.22), rng.uniform(0.11, 0.19), 0.02)
    drawn.contours.setdefault("Airspace Opacity", []).extend(named)


def _draw_effusion(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    for name in _lungs(rng, anatomy, both=0.45):
        drawn.add("Pleural Effusion", _effusion(rng, anatomy, name), rng.uniform(0.27, 0.33), 0.006)


def _draw_pneumothorax(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    air, edge = _pneumothorax(rng, anatomy, _lungs(rng, anatomy, both=0.0)[0])
    drawn.add("Pneumothorax", air, -0.07, 0.003)
    drawn.shapes.append(DensityShape(strip(edge, 0.0035), 0.16, 0.001))


def _draw_heart(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    drawn.contours["Cardiomegaly"] = [anatomy.contours["heart"]]


def _draw_mediastinum(rng: np.random.Generator, anatomy: Anatomy, room: _Room, drawn: Drawn) -> None:
    drawn.contours["Enlarged Cardiomediastinum"] = [_cardiomediastinum(anatomy)]


OPACITIES = ("Edema", "Consolidation", "Lung Lesion", "Atelectasis")
"""Opacities with a more specific label; they are drawn before Airspace Opacity, which includes them."""

_DRAW: dict[str, Callable[[np.random.Generator, Anatomy, _Room, Drawn], None]] = {
    "Edema": _draw_edema,
    "Consolidation": _draw_consolidation,
    "Atelectasis": _draw_atelectasis,
    "Lung Lesion": _draw_lesion,
    "Airspace Opacity": _draw_opacity,
    "Pleural Effusion": _draw_effusion,
    "Pneumothorax": _draw_pneumothorax,
    "Cardiomegaly": _draw_heart,
    "Enlarged Cardiomediastinum": _draw_mediastinum,
}


def _sides(rng: np.random.Generator, anatomy: Anatomy, *, both: float) -> list[int]:
    if not anatomy.is_lateral and rng.random() < both:
        return [-1, 1]
    return [int(rng.choice([-1, 1]))]


def _lungs(rng: np.random.Generator, anatomy: Anatomy, *, both: float) -> list[str]:
    names = list(anatomy.lungs)
    if len(names) == 1 or rng.random() < both:
        return names
    return [names[int(rng.integers(2))]]


class _Room:
    """A raster of the lungs next to the heart, used to keep contours inside the lungs."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        image = Image.new("1", (round(anatomy.width * GRID) + 1, round(anatomy.height * GRID) + 1))
        draw = ImageDraw.Draw(image)
        for lung in anatomy.lungs.values():
            draw.polygon([tuple(p) for p in (lung * GRID).tolist()], fill=1)
        if not anatomy.is_lateral:
            draw.polygon([tuple(p) for p in (anatomy.contours["heart"] * GRID).tolist()], fill=0)
        self.inside = np.asarray(image)

    def blob(
        self, rng: np.random.Generator, centre: tuple[float, float], radii: tuple[float, float], *, wobble: float
    ) -> Points:
        """Return an irregular contour around a local `centre`, pulled in where it would leave the lungs."""
        middle = self._nearest_inside(self.anatomy.place([centre])[0])
        contour = blob(rng, middle, np.array(radii) * self.anatomy.scale, wobble=wobble)
        steps = np.linspace(0, 1, 33)[1:]
        rays = middle + (contour - middle)[:, None, :] * steps[None, :, None]
        inside = self._is_inside(rays)
        reach = np.where(inside.all(axis=1), 1.0, steps[np.maximum(np.argmin(inside, axis=1) - 1, 0)])
        smooth = (np.roll(reach, 1) + 2 * reach + np.roll(reach, -1)) / 4
        fitted: Points = middle + (contour - middle) * np.minimum(reach, smooth)[:, None]
        return fitted

    def _is_inside(self, points: Points) -> npt.NDArray[np.bool_]:
        cells = np.rint(points * GRID).astype(int)
        height, width = self.inside.shape
        x, y = np.clip(cells[..., 0], 0, width - 1), np.clip(cells[..., 1], 0, height - 1)
        is_inside: npt.NDArray[np.bool_] = self.inside[y, x]
        return is_inside

    def _nearest_inside(self, point: Points) -> Points:
        ys, xs = np.nonzero(self.inside)
        cells = np.stack([xs, ys], axis=1) / GRID
        distance = np.linalg.norm(cells - point, axis=1)
        nearest: Points = (
            point if distance.min() < 1 / GRID else cells[np.argmin(distance)] * 0.7 + 0.3 * cells.mean(axis=0)
        )
        return nearest if self._is_inside(nearest) else cells[np.argmin(distance)]


def _effusion(rng: np.random.Generator, anatomy: Anatomy, name: str) -> Points:
    """Return an effusion: the lowest part of a lung, up to a meniscus that is higher at the outer wall."""
    lung = anatomy.local_lungs[name]
    level = rng.uniform(0.55, 0.8)
    outer = lung[:, 0] if anatomy.is_lateral else np.abs(lung[:, 0])

    def meniscus(x: Points) -> Points:
        rise: Points = level + 0.22 * np.clip(0.95 - x, 0, 1) ** 1.5
        return rise

    below = np.flatnonzero(lung[:, 1] > meniscus(outer))
    base = lung[below.min() : below.max() + 1]
    top_outer = np.linspace(outer[below.max()], outer[below.min()], 12)[1:-1]
    sign = 1.0 if anatomy.is_lateral else np.sign(lung[:, 0].mean())
    top = np.stack([sign * top_outer, np.minimum(meniscus(top_outer), 1.0)], axis=1)
    return anatomy.place(np.concatenate([base, top]))


def _pneumothorax(rng: np.random.Generator, anatomy: Anatomy, name: str) -> tuple[Points, Points]:
    """Return a pneumothorax: the air between a lung's outer border and the collapsed lung, and that lung's edge."""
    lung = anatomy.contours[name]
    outer = lung[:24] if anatomy.is_lateral else lung[5 : int(rng.integers(32, 44))]
    middle = lung.mean(axis=0)
    depth = rng.uniform(0.2, 0.38) * np.sin(np.pi * np.linspace(0, 1, len(outer))) ** 0.7
    edge = outer + (middle - outer) * depth[:, None]
    return np.concatenate([outer, edge[::-1]]), edge


def _cardiomediastinum(anatomy: Anatomy) -> Points:
    """Return a common outline of heart and mediastinum, determined row by row, and slightly wider than both."""
    parts = [anatomy.contours["heart"], anatomy.contours["mediastinum"]]
    rows, left, right = [], [], []
    top, bottom = min(part[:, 1].min() for part in parts), max(part[:, 1].max() for part in parts)
    for y in np.linspace(top, bottom, 60):
        crossings = [x for part in parts for x in _crossings(part, y)]
        if crossings:
            rows.append(y)
            left.append(min(crossings))
            right.append(max(crossings))
    margin = 0.008
    lefts, rights = np.array(left), np.array(right)
    # Each row gets the largest width of itself and its neighbours, so that straight edges cut nothing off.
    for step in (1, -1):
        lefts = np.minimum(lefts, _shifted(lefts, step))
        rights = np.maximum(rights, _shifted(rights, step))
    ys = np.array(rows)
    ys[0], ys[-1] = top - margin, bottom + margin
    return np.concatenate([np.stack([lefts - margin, ys], axis=1), np.stack([rights + margin, ys], axis=1)[::-1]])


def _shifted(values: Points, step: int) -> Points:
    padded = np.concatenate([values[:1], values, values[-1:]])
    return padded[2:] if step == 1 else padded[:-2]


def _crossings(contour: Points, y: float) -> list[float]:
    a, b = contour, np.roll(contour, -1, axis=0)
    crosses = (a[:, 1] <= y) != (b[:, 1] <= y)
    a, b = a[crosses], b[crosses]
    xs = a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
    return [float(x) for x in xs]
