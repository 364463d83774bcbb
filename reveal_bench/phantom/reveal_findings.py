"""Draw the twelve labels of REVEAL-CXR in a synthetic patient: contours, shapes, and changes to the body.

:mod:`reveal_bench.phantom.findings_drawn` draws five labels; this module draws the others. Units and frames are as in
:mod:`reveal_bench.phantom.anatomy`: contours in the image (long side = 1), positions in the local frame of the thorax,
whose half width of 1 represents about 15 cm, so a nodule of 3 cm has a radius of 0.1.

All frontal images of a study show the same patient with the same findings, as do all lateral images.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reveal_bench.findings import REVEAL_LABELS, canonical_finding
from reveal_bench.phantom.anatomy import Anatomy, draw_anatomy
from reveal_bench.phantom.curves import DensityShape, Points, blob, closed_curve, is_inside, strip
from reveal_bench.phantom.findings_drawn import Drawn, draw_findings
from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy

FRONTAL, LATERAL = 10, 11
"""Purposes of random numbers, for :meth:`RevealStudy.rng`."""

NODULE_RADIUS, MASS_RADIUS = (0.045, 0.09), (0.13, 0.21)
"""Ranges of radii of nodules and masses in the local frame, for diameters of 1.4 to 2.7 cm, and of 4 to 6 cm."""

DEVICES = "Support Devices"
DEVICE_CHANCE = 0.55
"""Probability of tubes and lines in bedside images; tubes and lines are not a label, but are in most such images."""

_ELSEWHERE = {
    "Airspace Opacity": "Airspace opacity",
    "Cardiomegaly": "Cardiomegaly",
    "Pleural Effusion": "Pleural effusion",
    "Pneumothorax": "Pneumothorax",
}
"""Finding that :func:`draw_findings` draws -> label."""


def draw_reveal_film(study: RevealStudy, image: RevealImage) -> tuple[Anatomy, Drawn]:
    """Return (body, drawing) of the patient in one projection; the drawing has `contours` by label.

    If there are tubes or lines, `contours` also has the key "Support Devices".
    """
    rng = study.rng(LATERAL if image.view == "LATERAL" else FRONTAL)
    labels = set(study.labels)
    heart = rng.uniform(1.25, 1.5) if "Cardiomegaly" in labels else rng.uniform(0.86, 1.0)
    wide = 1.18 if labels & {"Aneurysm", "Lymphadenopathy"} else 1.0
    anatomy = draw_anatomy(rng, *image.size, image.view, heart=heart, mediastinum=wide)
    if "COPD" in labels:
        _hyperinflate(anatomy, slim=0.82 if "Cardiomegaly" not in labels else 1.0)
    present = {there for there, label in _ELSEWHERE.items() if label in labels}
    at_bedside = study.patient_class != "outpatient"
    if at_bedside and study.rng(FRONTAL, 1).random() < DEVICE_CHANCE:
        present.add(DEVICES)
    drawing = draw_findings(rng, anatomy, present)
    drawn = Drawn(shapes=list(drawing.shapes))
    for name, contours in drawing.contours.items():
        drawn.contours[canonical_finding(name, REVEAL_LABELS) or name] = contours
    for label, draw in _DRAW.items():
        if label in labels:
            draw(rng, anatomy, drawn)
    return anatomy, drawn


def sides(anatomy: Anatomy, contours: list[Points]) -> str:
    """Return the patient's side of a finding in a frontal image: "right", "left" or "bilateral"."""
    names = {"left" if contour[:, 0].mean() > anatomy.centre[0] else "right" for contour in contours}
    return names.pop() if len(names) == 1 else "bilateral"


def _hyperinflate(anatomy: Anatomy, *, slim: float) -> None:
    """Change the body for COPD: long lungs, flat and low diaphragms, and a narrow vertical heart."""
    floor = 0.99 if not anatomy.is_lateral else 0.97
    for name, lung in anatomy.local_lungs.items():
        x, y = lung[:, 0], lung[:, 1]
        low = np.clip((y - 0.70) / 0.14, 0, 1)
        flat = y + 0.75 * low * np.maximum(floor - y, 0)
        anatomy.local_lungs[name] = np.stack([x, flat * 1.03], axis=1)
        anatomy.contours[name] = anatomy.place(anatomy.local_lungs[name])
    heart = _local(anatomy, anatomy.contours["heart"])
    heart[:, 1] = np.where(heart[:, 1] > 0.45, 0.45 + (heart[:, 1] - 0.45) * 1.2, heart[:, 1])
    heart[:, 0] *= slim
    anatomy.contours["heart"] = anatomy.place(heart)
    anatomy.contours["stomach"] = anatomy.contours["stomach"] + (0.0, 0.10 * anatomy.scale[1])
    if "liver" in anatomy.contours:
        anatomy.contours["liver"] = anatomy.place([(-1.1, 1.08), (-0.5, 1.01), (0.05, 1.06), (0.2, 1.6), (-1.1, 1.6)])


def _draw_copd(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    """Draw the lungs of COPD, with hardly any vessels in the outer parts."""
    for name, lung in anatomy.local_lungs.items():
        drawn.contours.setdefault("COPD", []).append(anatomy.contours[name])
        middle = np.add(lung.mean(axis=0), (0.0, -0.12))
        for grow in (0.9, 0.72):
            hollow = middle + (lung - middle) * (grow, grow * 0.8) + rng.normal(0, 0.008, lung.shape)
            drawn.shapes.append(DensityShape(anatomy.place(hollow), -0.028, 0.03))


def _draw_interstitial(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    """Draw a net of fine lines over a faint veil, in both bases or everywhere."""
    top = rng.uniform(0.5, 0.6) if rng.random() < 0.6 else rng.uniform(0.12, 0.25)
    for lung in anatomy.local_lungs.values():
        shrunk = lung.mean(axis=0) + (lung - lung.mean(axis=0)) * 0.94
        region = np.stack([shrunk[:, 0], np.maximum(shrunk[:, 1], top)], axis=1)
        drawn.add("Interstitial opacity", anatomy.place(region), rng.uniform(0.03, 0.05), 0.03)
        for _ in range(3):
            net = strip(_wander(rng, region), rng.uniform(0.006, 0.010))
            drawn.shapes.append(DensityShape(anatomy.place(net), rng.uniform(0.055, 0.08), 0.0014))


def _wander(rng: np.random.Generator, region: Points) -> Points:
    """Return a line through random points of a region, 420 per unit of area, from each point to the nearest one."""
    low, high = region.min(axis=0), region.max(axis=0)
    tried = rng.uniform(low, high, (int(420 * np.prod(high - low)), 2))
    fading = rng.random(len(tried)) < (tried[:, 1] - low[1]) / 0.15  # fewer points towards the upper edge
    points = tried[is_inside(tried, region) & fading]
    order, left = [0], np.ones(len(points), bool)
    left[0] = False
    while left.any():
        distance = np.where(left, np.linalg.norm(points - points[order[-1]], axis=1), np.inf)
        order.append(int(np.argmin(distance)))
        left[order[-1]] = False
    line: Points = points[order]
    return line


def _draw_nodule(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    for _ in range(1 + int(rng.random() < 0.25)):
        contour = _round(rng, anatomy, rng.uniform(*NODULE_RADIUS), wobble=0.05)
        drawn.add("Lung nodule", contour, rng.uniform(0.2, 0.27), 0.004)


def _draw_mass(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    contour = _round(rng, anatomy, rng.uniform(*MASS_RADIUS), wobble=0.09)
    drawn.add("Lung mass", contour, rng.uniform(0.24, 0.31), 0.005)


def _round(rng: np.random.Generator, anatomy: Anatomy, radius: float, *, wobble: float) -> Points:
    """Return a round opacity in a lung, clear of the heart."""
    side = float(rng.choice([-1.0, 1.0]))
    if anatomy.is_lateral:
        place = (rng.uniform(0.1, 0.5), rng.uniform(0.28, 0.55))
    elif side < 0:
        place = (-rng.uniform(0.40, 0.66), rng.uniform(0.22, 0.66))
    else:
        place = (rng.uniform(0.42, 0.64), rng.uniform(0.20, 0.44))
    radii = (radius, radius * anatomy.scale[0] / anatomy.scale[1])
    return anatomy.place(blob(rng, place, radii, wobble=wobble))


def _draw_aneurysm(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    """Draw a wide aortic arch that bulges to the left, with a thin rim of calcium."""
    wide = rng.uniform(0.17, 0.23)
    tall = wide * anatomy.scale[0] / anatomy.scale[1] * 1.25
    x, y = (0.2, 0.27) if not anatomy.is_lateral else (0.12, 0.26)
    bulge = anatomy.place(blob(rng, (x, y), (wide, tall), wobble=0.03))
    descending = closed_curve([(x - 0.1, y), (x + wide * 0.85, y), (x + wide * 0.5, y + 0.42), (x - 0.12, y + 0.42)])
    drawn.add("Aneurysm", bulge, 0.30, 0.004)
    drawn.shapes.append(DensityShape(anatomy.place(descending), 0.12, 0.01))
    rim = np.linspace(-1.2, 0.5, 16)
    calcium = np.stack([x + 0.95 * wide * np.cos(rim), y + 0.95 * tall * np.sin(rim)], axis=1)
    drawn.shapes.append(DensityShape(strip(anatomy.place(calcium), 0.003), 0.22, 0.0012))


def _draw_hernia(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    """Draw a hernia: stomach behind the heart, a round density with gas above a fluid level."""
    wide = rng.uniform(0.19, 0.25)
    tall = wide * anatomy.scale[0] / anatomy.scale[1]
    x, y = (rng.uniform(0.02, 0.14), 0.80) if not anatomy.is_lateral else (0.3, 0.76)
    sac = blob(rng, (x, y), (wide, tall), wobble=0.04)
    drawn.add("Hiatal hernia", anatomy.place(sac), 0.30, 0.004)
    level, inner = y - 0.1 * tall, (sac - (x, y)) * 0.84 + (x, y)
    gas = np.where((inner[:, 1] < level)[:, None], inner, np.stack([inner[:, 0], np.full(len(inner), level)], axis=1))
    drawn.shapes.append(DensityShape(anatomy.place(gas), -0.26, 0.004))


def _draw_nodes(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    """Draw lobulated hila, and a bulging stripe next to the trachea."""
    places = [(-0.2, 0.43), (0.23, 0.41), (-0.17, 0.24)] if not anatomy.is_lateral else [(0.08, 0.42)]
    for x, y in places:
        lobes = [(x + dx, y + dy) for dx, dy in ((0, -0.045), (np.sign(x) * 0.045, 0.012), (0, 0.06))]
        for centre in lobes:
            radius = rng.uniform(0.065, 0.095)
            radii = (radius, radius * anatomy.scale[0] / anatomy.scale[1])
            drawn.add("Lymphadenopathy", anatomy.place(blob(rng, centre, radii, wobble=0.06)), 0.19, 0.004)


def _draw_thickening(rng: np.random.Generator, anatomy: Anatomy, drawn: Drawn) -> None:
    """Draw a rind along the outer wall of a lung, or a cap over its apex."""
    names = list(anatomy.local_lungs)
    name = names[int(rng.integers(len(names)))]
    lung = anatomy.contours[name]
    apex, wall = (slice(8, 30), slice(8, 30)) if anatomy.is_lateral else (slice(4, 22), slice(24, 46))
    outer = lung[apex if rng.random() < 0.3 else wall]
    depth = rng.uniform(0.15, 0.22) * np.sin(np.pi * np.linspace(0.04, 0.96, len(outer))) ** 0.5
    depth *= 1 + 0.25 * np.sin(np.linspace(0, rng.uniform(8, 14), len(outer)))
    edge = outer + (lung.mean(axis=0) - outer) * depth[:, None]
    drawn.add("Pleural thickening", np.concatenate([outer, edge[::-1]]), rng.uniform(0.28, 0.34), 0.0035)


_DRAW: dict[str, Callable[[np.random.Generator, Anatomy, Drawn], None]] = {
    "COPD": _draw_copd,
    "Interstitial opacity": _draw_interstitial,
    "Lung nodule": _draw_nodule,
    "Lung mass": _draw_mass,
    "Aneurysm": _draw_aneurysm,
    "Hiatal hernia": _draw_hernia,
    "Lymphadenopathy": _draw_nodes,
    "Pleural thickening": _draw_thickening,
}


def _local(anatomy: Anatomy, points: Points) -> Points:
    """Map image (x, y) to local (x, y), which is the inverse of :meth:`Anatomy.place`."""
    turn = np.array([[np.cos(anatomy.tilt), -np.sin(anatomy.tilt)], [np.sin(anatomy.tilt), np.cos(anatomy.tilt)]])
    local: Points = ((points - anatomy.centre) @ turn) / anatomy.scale
    return local
