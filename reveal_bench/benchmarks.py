"""What each benchmark asks, in one table.

A benchmark's *protocol* is everything that a number depends on besides the data: the findings asked, whether only
findings known to be present are asked (paper 000, section 3.2, and the true-positive slice of paper 002) or all of
them, the grid, and the metrics. Options that the papers leave open are written down here and travel with every score.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reveal_bench.findings import (
    CHESTX_DET_FINDINGS,
    CHEXLOCALIZE_FINDINGS,
    MS_CXR_FINDINGS,
    NIH_BOX_FINDINGS,
    PADCHEST_GR_FINDINGS,
    REVEAL_LABELS,
    RSNA_FINDINGS,
    SIIM_FINDINGS,
    VINDR_CXR_FINDINGS,
)

__all__ = ["BENCHMARKS", "Benchmark", "bundled"]

Kind = Literal["localization", "findings", "tasks"]
Asks = Literal["present", "all"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One row of BENCHMARKS.

    Attributes
    ----------
    name : str
        Key of the table and of ``reveal-bench build``.
    title, source : str
        For people: full name, and paper or download it comes from.
    kind : {"localization", "findings", "tasks"}
    findings : tuple of str
        Vocabulary, in the order of tables; none for tasks.
    asks : {"present", "all"}
        Whether the manifest asks only for findings that are present, or for every finding of every image.
    metrics : tuple of str
        Reported metrics, the primary one first; none for tasks, which readers rate.
    grid : int
        Cells per side for `grid_hit`; of no meaning but for localization.
    licence : {"restricted", "open"}
        Whether the source forbids redistribution of its labels or pixels.
    """

    name: str
    title: str
    source: str
    kind: Kind
    findings: tuple[str, ...]
    asks: Asks
    metrics: tuple[str, ...]
    grid: int
    licence: Literal["restricted", "open"]


LOCALIZATION_METRICS = ("point_hit", "grid_hit", "mask_iou", "mask_iou_all")
BOX_METRICS = ("point_hit", "grid_hit", "box_iou")
"""Where the references are boxes: a mask is not compared with a box."""
LABEL_METRICS = ("f1", "precision", "recall", "cohen_kappa", "auroc", "average_precision")

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="chexlocalize",
            title="CheXlocalize",
            source="Saporta et al. 2022 (paper 002); prompting protocol of paper 000",
            kind="localization",
            findings=CHEXLOCALIZE_FINDINGS,
            asks="present",
            metrics=LOCALIZATION_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="chestx-det",
            title="ChestX-Det",
            source="Deepwise-AILab/ChestX-Det-Dataset, annotations under Apache-2.0",
            kind="localization",
            findings=CHESTX_DET_FINDINGS,
            asks="present",
            metrics=LOCALIZATION_METRICS,
            grid=8,
            licence="open",
        ),
        Benchmark(
            name="nih-boxes",
            title="NIH ChestX-ray14 boxes",
            source="Wang et al. 2017, BBox_List_2017.csv; no restriction on use",
            kind="localization",
            findings=NIH_BOX_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            grid=8,
            licence="open",
        ),
        Benchmark(
            name="ms-cxr",
            title="MS-CXR",
            source="Boecking et al. 2022, PhysioNet, on pictures of MIMIC-CXR-JPG",
            kind="localization",
            findings=MS_CXR_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="vindr-cxr",
            title="VinDr-CXR",
            source="Nguyen et al. 2022, PhysioNet, or its Kaggle edition (VinBigData)",
            kind="localization",
            findings=VINDR_CXR_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="rsna-pneumonia",
            title="RSNA Pneumonia",
            source="Shih et al. 2019, Kaggle: RSNA Pneumonia Detection Challenge, stage 2",
            kind="localization",
            findings=RSNA_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="siim-acr",
            title="SIIM-ACR Pneumothorax",
            source="Kaggle: SIIM-ACR Pneumothorax Segmentation",
            kind="localization",
            findings=SIIM_FINDINGS,
            asks="present",
            metrics=LOCALIZATION_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="padchest-gr",
            title="PadChest-GR",
            source="Castro et al. 2024 (arXiv 2411.05085), BIMCV",
            kind="localization",
            findings=PADCHEST_GR_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="reveal-cxr",
            title="REVEAL-CXR",
            source="arXiv 2601.15129 (paper 004): released half by RSNA, or any study tree labelled the same way",
            kind="findings",
            findings=REVEAL_LABELS,
            asks="all",
            metrics=LABEL_METRICS,
            grid=8,
            licence="restricted",
        ),
        Benchmark(
            name="rexecution",
            title="ReXecution",
            source="paper 001; the tasks, answers and ratings are the user's own, on pictures of MIMIC-CXR-JPG",
            kind="tasks",
            findings=(),
            asks="all",
            metrics=(),
            grid=8,
            licence="restricted",
        ),
    )
}


def bundled(name: str) -> Path:
    """Folder of the project's data files: "dataset_cards" or "submissions".

    They lie beside the package in a checkout and inside it in an installed wheel.

    Raises
    ------
    FileNotFoundError
        If neither place has it.
    """
    package = Path(__file__).parent
    for place in (package / name, package.parent / name):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the folder {name!r} is missing from this installation of reveal-bench")
