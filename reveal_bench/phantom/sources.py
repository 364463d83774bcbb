"""Synthetic downloads of the further localization sources, each in the layout of the real one.

:data:`SOURCES` maps the name of a source to the function that writes its twin: names, columns, id styles and traps are
the real ones, films and boxes are drawn. What a real download lacks and its builder takes as ``pictures`` (MS-CXR,
ChestX-Det) goes to the folder ``pictures`` beside it.
"""

from __future__ import annotations

from reveal_bench.phantom.source_films import Writer
from reveal_bench.phantom.source_nih import write_chestx_det, write_nih_boxes, write_rsna_pneumonia, write_siim_acr
from reveal_bench.phantom.source_padchest import write_padchest_gr
from reveal_bench.phantom.source_physionet import write_ms_cxr, write_vinbigdata, write_vindr_cxr

__all__ = ["SOURCES"]

SOURCES: dict[str, Writer] = {
    "chestx-det": write_chestx_det,
    "nih-boxes": write_nih_boxes,
    "ms-cxr": write_ms_cxr,
    "vindr-cxr": write_vindr_cxr,
    "vinbigdata": write_vinbigdata,
    "rsna-pneumonia": write_rsna_pneumonia,
    "siim-acr": write_siim_acr,
    "padchest-gr": write_padchest_gr,
}
"""Name -> ``write(out, *, n_images, seed, long_side, traps=True, progress=None)``; `progress` gets (done, all)."""
