"""Draw images for the synthetic downloads of other sources: pixels, and boxes of the drawn findings.

Coordinates are pixels of the written image. A box belongs to one contour and has the corners [left, top, right,
bottom].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from reveal_bench.phantom.curves import Points
from reveal_bench.phantom.folders import check_sizes, start_folder
from reveal_bench.phantom.patients import PhantomFilm, draw_film, films
from reveal_bench.phantom.radiograph import render

FRAME = 1024
"""Side in pixels of the square images of NIH ChestX-ray14 and the datasets derived from it."""

NOTICE = """SYNTHETIC DATA

Every picture, label, box, sentence and reader below this folder was made by the program reveal_bench.phantom. Nothing
comes from a patient, a reader or a hospital. The folder has the layout of the download named {source!r} so that tools
can be tried. Scores computed on these data say nothing about a model. Not for clinical use.
"""

Corners = tuple[float, float, float, float]
Grey = npt.NDArray[np.uint8]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Picture:
    """One frontal image.

    Attributes
    ----------
    number : 0-based number among the images of the download
    film : patient, view and random numbers
    grey : uint8 array (height, width)
    contours : by finding of CheXlocalize, each a float array (n, 2) of (x, y)
    """

    number: int
    film: PhantomFilm
    grey: Grey
    contours: dict[str, list[Points]]

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return int(self.grey.shape[0]), int(self.grey.shape[1])

    def boxes(self, finding: str) -> list[Corners]:
        """Return the boxes of the contours of a finding, inside the image."""
        height, width = self.size
        boxes = []
        for contour in self.contours.get(finding, ()):
            left, top = np.clip(contour.min(axis=0), 0, (width - 2, height - 2)).tolist()
            right, bottom = np.clip(contour.max(axis=0), (left + 2, top + 2), (width, height)).tolist()
            boxes.append((left, top, right, bottom))
        return boxes


def draw_pictures(
    n_images: int,
    *,
    seed: int,
    long_side: int,
    frame: int | None = None,
    ensure: str | None = None,
    progress: Progress | None = None,
) -> Iterator[Picture]:
    """Yield the first `n_images` frontal images of the synthetic patients, in order.

    Parameters
    ----------
    long_side : long side in pixels of the drawing
    frame : side of the square to which every image is resized; None for no resizing
    ensure : finding that every fourth image must have, for sources that are enriched for this finding
    """
    frontal = (film for film in films("test", seed=seed) if film.view != "LATERAL")
    for number, film in zip(range(n_images), frontal, strict=False):
        if ensure is not None and number % 4 == 0:
            film = replace(film, study=replace(film.study, findings=film.study.findings | {ensure}))
        if frame is not None:
            film = replace(film, size=(1.0, 1.0))
            long_side = min(long_side, frame)
        size = round(film.size[0] * long_side), round(film.size[1] * long_side)
        anatomy, drawn = draw_film(film)
        grey = render(anatomy, drawn.shapes, film.rng(1), size)
        scale = float(long_side)
        if frame is not None:
            grey = np.asarray(Image.fromarray(grey).resize((frame, frame), Image.Resampling.BICUBIC))
            scale = float(frame)
        contours = {name: [contour * scale for contour in outlines] for name, outlines in drawn.contours.items()}
        yield Picture(number, film, grey, contours)
        if progress is not None:
            progress(number + 1, n_images)


def start_download(out: Path, source: str, *, n_images: int, long_side: int) -> Path:
    """Create the folder of a download, with a notice that its contents are synthetic.

    Raises
    ------
    ValueError
        If `out` is not empty or a number is out of range.
    """
    check_sizes(n_images=n_images, long_side=long_side)
    return start_folder(out, NOTICE.format(source=source))
