"""Draw the body of a synthetic patient in one projection, as smooth contours.

The long side of the image is 1, and (x, y) are measured from the top left corner. The patient's right is on the left of
a frontal image. In the local frame of the thorax, x runs from -1 to 1 over the width of the thorax, and y from 0 (apex
of the lungs) to 1 (costophrenic angles). :meth:`Anatomy.place` maps local positions to the image.

Proportions are those of an adult in textbooks (heart about 45% of the thorax on PA, more on AP); no patient was
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from reveal_bench.phantom.curves import Points, closed_curve, open_curve


@dataclass(frozen=True)
class Anatomy:
    """Contours and lines of one projection.

    Attributes
    ----------
    height, width : size in units of the long side
    view : "AP", "PA" or "LATERAL"
    centre, scale, tilt : position of the thorax's local frame in the image
    contours : name -> closed outline: body, heart, mediastinum, lung_*, ...
    local_lungs : outlines of the lungs in the local frame, from the apex along the outer border to the base
    lines : name -> open lines with width: ribs, clavicles, ...
    """

    height: float
    width: float
    view: str
    centre: tuple[float, float]
    scale: tuple[float, float]
    tilt: float
    contours: dict[str, Points] = field(default_factory=dict)
    local_lungs: dict[str, Points] = field(default_factory=dict)
    lines: dict[str, list[tuple[Points, float]]] = field(default_factory=dict)

    @property
    def is_lateral(self) -> bool:
        """True for a lateral image."""
        return self.view == "LATERAL"

    @property
    def lungs(self) -> dict[str, Points]:
        """Contours of the lungs: two in a frontal image, one in a lateral image."""
        return {name: contour for name, contour in self.contours.items() if name.startswith("lung")}

    def place(self, points: Sequence[Sequence[float]] | Points) -> Points:
        """Map local (x, y) to image (x, y)."""
        local = np.asarray(points, float) * self.scale
        turn = np.array([[np.cos(self.tilt), -np.sin(self.tilt)], [np.sin(self.tilt), np.cos(self.tilt)]])
        placed: Points = local @ turn.T + self.centre
        return placed


def draw_anatomy(
    rng: np.random.Generator, height: float, width: float, view: str, *, heart: float = 1.0, mediastinum: float = 1.0
) -> Anatomy:
    """Draw a random patient; `heart` and `mediastinum` widen the heart and the upper mediastinum (1 is normal)."""
    short = min(height, width)
    centre = (width / 2 + rng.normal(0, 0.012), height * rng.uniform(0.10, 0.15))
    if view == "LATERAL":
        scale = (0.37 * short * rng.uniform(0.93, 1.05), (height - centre[1]) * rng.uniform(0.76, 0.86))
        anatomy = Anatomy(height, width, view, centre, scale, rng.normal(0, 0.02))
        _draw_lateral(anatomy, rng, heart, mediastinum)
        return anatomy
    scale = (0.455 * short * rng.uniform(0.93, 1.05), (height - centre[1]) * rng.uniform(0.80, 0.90))
    scale = (scale[0], min(scale[1], 1.95 * scale[0]))
    anatomy = Anatomy(height, width, view, centre, scale, rng.normal(0, 0.02))
    _draw_frontal(anatomy, rng, heart * (1.08 if view == "AP" else 1.0), mediastinum)
    return anatomy


# fmt: off
def _draw_frontal(anatomy: Anatomy, rng: np.random.Generator, heart: float, mediastinum: float) -> None:
    contours, place = anatomy.contours, anatomy.place
    far = 3.0
    sides = 1.16 + rng.uniform(0, 0.12)
    right_body = [(0.36, -far), (0.33, -0.3), (0.44, -0.16), (0.85, -0.08), (1.35, 0.0), (1.75, 0.22), (1.9, 0.7)]
    if anatomy.view == "PA":
        right_body = [(0.36, -far), (0.33, -0.3), (0.44, -0.16), (0.9, -0.06), (1.35, 0.08), (1.32, 0.3), (sides, 0.5)]
    right_body += [(right_body[-1][0], 1.0), (right_body[-1][0] + 0.05, far)]
    contours["body"] = place(_mirrored(open_curve(right_body)))
    dome_right, dome_left = rng.normal(0.845, 0.02), rng.normal(0.875, 0.02)
    anatomy.local_lungs["lung_right"] = closed_curve(_lung(rng, dome_right)) * (-1, 1)
    anatomy.local_lungs["lung_left"] = closed_curve(_lung(rng, dome_left))
    contours.update({name: place(lung) for name, lung in anatomy.local_lungs.items()})
    contours["heart"] = place(closed_curve(_heart(rng, heart, min(dome_left, dome_right) + 0.06)))
    m = 0.145 * mediastinum * rng.uniform(0.95, 1.1)
    knob = m + 0.05 + 0.03 * rng.random()
    contours["mediastinum"] = place(
        closed_curve(
            [
                (-m * 0.8, -0.02), (-m, 0.15), (-m * 1.05, 0.32), (-m * 1.1, 0.5), (-m, 0.62), (m, 0.62),
                (m * 1.2, 0.48), (m * 1.25, 0.38), (knob, 0.28), (knob * 0.95, 0.2), (m, 0.12), (m * 0.8, -0.02),
            ]
        )
    )
    contours["trachea"] = place(
        [
            (-0.04, -0.3), (-0.035, 0.28), (-0.16, 0.4), (-0.12, 0.42), (0, 0.33), (0.13, 0.43), (0.17, 0.41),
            (0.035, 0.28), (0.04, -0.3),
        ]
    )
    contours["stomach"] = place(_ellipse(0.48 + rng.normal(0, 0.04), dome_left + 0.11, 0.17, 0.045))
    contours["liver"] = place(
        [(-1.1, dome_right + 0.08), (-0.5, dome_right - 0.01), (0.05, dome_right + 0.07), (0.2, 1.6), (-1.1, 1.6)]
    )
    if rng.random() < 0.45:
        size = rng.uniform(0.32, 0.42)
        contours["breast_right"] = place(_ellipse(-0.62, 0.72, size, size * 0.75))
        contours["breast_left"] = place(_ellipse(0.62, 0.73, size, size * 0.75))
    for side in (-1, 1):
        contours[f"shoulder_{side}"] = place(np.array(_ellipse(1.22, 0.10, 0.15, 0.085)) * (side, 1))
        scapula = [(1.02, 0.08), (0.86, 0.16), (0.82, 0.34), (0.93, 0.52), (0.99, 0.34)]
        out = 0.16 if anatomy.view == "PA" else 0.0
        contours[f"scapula_{side}"] = place(np.add(closed_curve(scapula), (out, 0.0)) * (side, 1))
    _frontal_lines(anatomy, rng)


def _lung(rng: np.random.Generator, dome: float) -> list[tuple[float, float]]:
    wide = rng.normal(0.0, 0.012)
    return [
        (0.15, 0.10), (0.25, 0.025), (0.42, 0.0), (0.60, 0.055), (0.77 + wide, 0.19), (0.88 + wide, 0.38),
        (0.95 + wide, 0.60), (0.985, 0.80), (0.97, 0.965), (0.90, 0.955), (0.74, dome + 0.03), (0.50, dome),
        (0.28, dome + 0.035), (0.10, dome + 0.075), (0.10, 0.7), (0.11, 0.4), (0.13, 0.2),
    ]


def _heart(rng: np.random.Generator, size: float, floor: float) -> list[tuple[float, float]]:
    s = size * rng.uniform(0.95, 1.05)
    right, left = 0.27 * (0.5 + 0.5 * s), 0.56 * s
    top = 0.47 - 0.04 * (s - 1)
    return [
        (-0.10, top), (-0.20, top + 0.08), (-right, top + 0.2), (-right * 0.96, floor - 0.1), (-right * 0.6, floor),
        (0.0, floor + 0.03), (left * 0.55, floor + 0.035), (left * 0.92, floor - 0.005), (left, floor - 0.08),
        (left * 0.88, floor - 0.17), (left * 0.62, top + 0.15), (0.25, top + 0.04), (0.12, top - 0.03),
    ]


def _frontal_lines(anatomy: Anatomy, rng: np.random.Generator) -> None:
    place, rib_width = anatomy.place, 0.052 * anatomy.scale[1]
    posterior, anterior = [], []
    for i in range(10):
        y = -0.02 + 0.092 * i
        reach = float(np.interp(y + 0.12, [0, 0.1, 0.25, 0.45, 0.7, 1.0], [0.55, 0.72, 0.86, 0.95, 1.0, 1.01]))
        drop = 0.06 + 0.017 * i
        for side in (-1, 1):
            back = [
                (0.09, y), (0.25, y - 0.03), (0.55 * reach, y), (0.85 * reach, y + drop * 0.7),
                (reach, y + drop * 1.5),
            ]
            posterior.append((place(open_curve(np.array(back) * (side, 1))), rib_width * (0.8 + 0.02 * i)))
            if i < 7:
                front = [
                    (reach, y + drop * 1.5),
                    (0.93 * reach, y + drop * 2.3),
                    (0.65 * reach, y + drop * 3.1),
                    (0.42, y + drop * 3.1),
                ]
                anterior.append((place(open_curve(np.array(front) * (side, 1))), rib_width * 1.1))
    anatomy.lines.update(posterior_ribs=posterior, anterior_ribs=anterior)
    lift = rng.normal(0, 0.012)
    anatomy.lines["clavicles"] = [
        (
            place(
                open_curve(
                    np.array(
                        [
                            (0.07, 0.15), (0.22, 0.115 + lift), (0.5, 0.035 + lift),
                            (0.8, lift), (1.12, 0.03 + lift),
                        ]
                    )
                    * (side, 1)
                )
            ),
            0.05 * anatomy.scale[1],
        )
        for side in (-1, 1)
    ]
    anatomy.lines["spine"] = [(place([(0.0, -0.6), (0.0, 1.6)]), 0.26 * anatomy.scale[0])]


def _draw_lateral(anatomy: Anatomy, rng: np.random.Generator, heart: float, mediastinum: float) -> None:
    contours, place = anatomy.contours, anatomy.place
    dome = rng.normal(0.80, 0.02)
    contours["body"] = place(
        open_curve(
            [
                (-0.25, -3), (-0.28, -0.32), (-0.75, -0.1), (-1.12, 0.3), (-1.2, 0.7), (-1.15, 3), (1.35, 3),
                (1.3, 0.7), (1.22, 0.25), (0.95, -0.1), (0.55, -0.35), (0.5, -3),
            ]
        )
    )
    anatomy.local_lungs["lung"] = closed_curve(
        [
            (-0.1, 0.03), (0.15, 0.0), (0.5, 0.08), (0.78, 0.3), (0.88, 0.6), (0.86, 0.9), (0.8, 0.99),
            (0.62, 0.93), (0.35, dome + 0.03), (0.0, dome), (-0.4, dome + 0.03), (-0.68, dome + 0.1),
            (-0.8, 0.8), (-0.84, 0.6), (-0.78, 0.38), (-0.6, 0.18), (-0.35, 0.07),
        ]
    )
    contours["lung"] = place(anatomy.local_lungs["lung"])
    s = heart * rng.uniform(0.95, 1.05)
    middle = (-0.33 + 0.12 * (s - 1), 0.655 - 0.06 * (s - 1))
    contours["heart"] = place(closed_curve(_ellipse(*middle, 0.40 * s, 0.185 * s, tilt=0.35)))
    m = mediastinum * rng.uniform(0.95, 1.05)
    contours["mediastinum"] = place(
        closed_curve(
            [
                (-0.28 * m, 0.08), (-0.42 * m, 0.3), (-0.35, 0.5), (0.05, 0.58), (0.25 * m, 0.45), (0.3 * m, 0.3),
                (0.16 * m, 0.1),
            ]
        )
    )
    contours["trachea"] = place([(-0.05, -0.3), (0.0, 0.3), (0.03, 0.36), (0.1, 0.36), (0.11, 0.3), (0.05, -0.3)])
    contours["stomach"] = place(_ellipse(-0.1, dome + 0.1, 0.2, 0.045))
    contours["arm"] = place(
        closed_curve([(-0.6, -0.5), (0.2, -0.3), (0.9, -0.1), (1.3, 0.05), (1.7, -0.4), (1.0, -0.8)])
    )
    place_width = 0.05 * anatomy.scale[1]
    ribs = []
    for i in range(9):
        y = 0.0 + 0.1 * i
        rib = [(0.86, y + 0.02), (0.4, y - 0.01 + 0.012 * i), (-0.2, y + 0.11 + 0.02 * i), (-0.62, y + 0.26 + 0.02 * i)]
        ribs.append((place(open_curve(rib)), place_width * 0.8))
        ribs.append((place(open_curve(np.add(rib, (0.02, 0.035)))), place_width * 0.7))
    anatomy.lines["posterior_ribs"] = ribs
    anatomy.lines["anterior_ribs"] = []
    anatomy.lines["clavicles"] = [(place(open_curve([(-0.56, 0.1), (-0.78, 0.35), (-0.88, 0.65)])), place_width * 0.9)]
    spine = open_curve([(0.42, -0.5), (0.5, -0.1), (0.74, 0.2), (0.86, 0.55), (0.8, 0.95), (0.62, 1.5)])
    anatomy.lines["spine"] = [(place(spine), 0.27 * anatomy.scale[0])]


def _ellipse(x: float, y: float, rx: float, ry: float, *, tilt: float = 0.0, n: int = 24) -> list[tuple[float, float]]:
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    dx, dy = rx * np.cos(angles), ry * np.sin(angles) + tilt * ry * np.cos(angles)
    return [(x + float(a), y + float(b)) for a, b in zip(dx, dy, strict=True)]


def _mirrored(right: Points) -> Points:
    return np.concatenate([right, (right * (-1, 1))[::-1]])
