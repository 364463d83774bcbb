"""Annotations of two images by hand: every shape that may be drawn, and ids that no file name can be."""

from __future__ import annotations

import numpy as np

from reveal_bench.kinds.cases import PREDICTION, AnnotatedImage, Annotations, Drawing, StudyLabels
from reveal_bench.masks import encode_mask

NAMES = ("Edema", "Pleural Effusion")
WIDE = AnnotatedImage("p1/s1/é 1", "s1", "p1", 7, 5)
TALL = AnnotatedImage("b", "s2", "p2", 4, 6)
FILMS = {film.image_id: film for film in (WIDE, TALL)}
RING = np.zeros((5, 7), dtype=bool)
RING[1:4, 2:5] = True
RING[2, 3] = False  # a hole, which contours cannot say
CORNER = np.zeros((6, 4), dtype=bool)
CORNER[0, 0] = CORNER[5, 3] = True  # two parts, at both ends of the image

MASKED = Drawing("p1/s1/é 1", "Edema", "ground_truth", encode_mask(RING), points=((3.25, 1.5),))
PARTS = Drawing("b", "Pleural Effusion", "individual:R2", encode_mask(CORNER))
BOXED = Drawing("b", "Edema", "human_benchmark", boxes=((0.5, 1.0, 2.25, 3.5), (1.0, 1.0, 1.0, 1.0)))
OUTLINED = Drawing("b", "Edema", "individual:R2", polygons=(((0.0, 0.0), (3.0, 0.5), (1.5, 4.0)),))
EMPTY = Drawing("b", "Edema", "ground_truth", encode_mask(np.zeros((6, 4), dtype=bool)))
GUESSED = Drawing("p1/s1/é 1", "Pleural Effusion", PREDICTION, encode_mask(RING), score=0.625, cell="D5")
POINTED = Drawing("b", "Edema", PREDICTION, points=((1.5, 2.5), (3.0, 0.25)), score=0.25)
CELLED = Drawing("b", "Pleural Effusion", PREDICTION, cell="A1", score=0.5)
DRAWINGS = (MASKED, PARTS, BOXED, OUTLINED, EMPTY, GUESSED, POINTED, CELLED)

LABELLED = StudyLabels("s1", "ground_truth", {"Edema": 1.0, "Pleural Effusion": 0.0})
JUDGED = StudyLabels("s2", PREDICTION, {"Edema": 0.125, "Pleural Effusion": 0.75}, are_probabilities=True)


def annotations(*drawings: Drawing, studies: tuple[StudyLabels, ...] = ()) -> Annotations:
    return Annotations("demo", "1.0", "test", FILMS, NAMES, drawings, studies)


PICTURES = {image_id: f"{stem}.png" for image_id, stem in annotations().stems.items()}
