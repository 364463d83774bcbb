"""What is drawn into a film: one contour with a density."""

from __future__ import annotations

from dataclasses import dataclass

from reveal_bench.phantom.curves import Points

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A closed contour (long side of the picture = 1) that adds `density` to the film.

    `blur` is the width of its edge; `sharp` shapes (devices) are drawn at the picture's full size.
    """

    contour: Points
    density: float
    blur: float = 0.006
    sharp: bool = False
