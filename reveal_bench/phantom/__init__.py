"""Synthetic radiographs, masks, readers and model outputs, seeded: the demo's and the tests' world.

Everything here is made up and says so. A film is drawn from smooth contours of a body (:mod:`.anatomy`), findings are
drawn into it with exact outlines (:mod:`.findings_drawn`, :mod:`.devices`) and rendered (:mod:`.radiograph`); a second
reader disagrees by a known amount (:mod:`.readers`); :func:`write_chexlocalize` writes all of it in the layout of the
real download, and :func:`model_predictions` answers a manifest as a model of some quality would.
"""

from __future__ import annotations

from reveal_bench.phantom.layouts import TRAPS, write_chexlocalize
from reveal_bench.phantom.models import model_predictions

__all__ = ["TRAPS", "model_predictions", "write_chexlocalize"]
