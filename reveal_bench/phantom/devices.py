"""Support devices: tubes, lines, pacemakers, and things that are none.

As the readers of CheXlocalize were told (paper 002, Methods), implanted or invasive devices are outlined and ECG leads
and stickers are not: those are drawn into some films without a contour, and so is the side marker.
"""

from __future__ import annotations

import numpy as np

from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.curves import Points, closed_curve, open_curve, strip
from reveal_bench.phantom.shapes import Shape

__all__ = ["draw_devices"]

OUTLINE = 2.4
"""Width of a drawn contour around a line, in widths of the line."""


def draw_devices(rng: np.random.Generator, anatomy: Anatomy, *, asked: bool) -> tuple[list[Points], list[Shape]]:
    """Contours of the devices (none unless `asked`) and the shapes to draw, distractors included."""
    contours: list[Points] = []
    shapes = _distractors(rng, anatomy)
    if not asked:
        return contours, shapes
    kinds = ["central line", "endotracheal tube", "feeding tube", "chest tube", "pacemaker"]
    chances = np.array([0.34, 0.2, 0.2, 0.12, 0.14])
    for kind in rng.choice(kinds, size=int(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2])), replace=False, p=chances):
        line, width, density = _line(rng, anatomy, str(kind))
        path = anatomy.place(open_curve(line))
        contours.append(strip(path, width * OUTLINE))
        shapes.append(Shape(strip(path, width), density, 0.0006, sharp=True))
        if kind == "pacemaker":
            box = anatomy.place(closed_curve(_box(line[0])))
            contours.append(box)
            shapes.append(Shape(box, 0.38, 0.0008, sharp=True))
    return contours, shapes


def _line(rng: np.random.Generator, anatomy: Anatomy, kind: str) -> tuple[Points, float, float]:
    """Path in the local frame, width (long side = 1) and density of one device."""
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
        if kind == "central line" and rng.random() < 0.5:  # a PICC comes from the arm
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


def _distractors(rng: np.random.Generator, anatomy: Anatomy) -> list[Shape]:
    shapes = []
    if anatomy.view == "AP" and rng.random() < 0.4:
        for x, y in ((-0.75, 0.12), (0.78, 0.14), (0.7, 0.9)):
            start = np.array([x, y]) + rng.normal(0, 0.04, 2)
            bend, end = start + rng.normal(0, 0.25, 2), np.add(start, (np.sign(x) * 0.5, 0.9))
            wire = open_curve(np.stack([start, bend, end]))
            shapes.append(Shape(strip(anatomy.place(wire), 0.002), 0.13, 0.0008, sharp=True))
            ends = [(start[0] + dx, start[1] + dy) for dx, dy in ((-0.03, 0), (0, -0.02), (0.03, 0), (0, 0.02))]
            shapes.append(Shape(anatomy.place(closed_curve(ends)), 0.2, 0.0008, sharp=True))
    if not anatomy.is_lateral:
        x, y, size = anatomy.width * 0.93, anatomy.height * 0.07, 0.028
        strokes = ((x, y - size), (x + size * 0.7, y))  # an "L" on the patient's left
        shapes += [Shape(strip(np.array([[x, y], end]), 0.006), 0.5, 0.0006, sharp=True) for end in strokes]
    return shapes
