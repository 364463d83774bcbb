"""The table of all benchmarks: their questions, metrics, and the sources from which they are built.

A benchmark's *protocol* is everything other than the data on which a score depends: the findings, the grid, the
metrics, and whether models are asked for all findings or only for findings known to be present (paper 000, section 3.2,
and the true-positive slice of paper 002). The choices that the papers leave open are made here and recorded with every
score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import (
    CHESTX_DET_FINDINGS,
    CHEXLOCALIZE_FINDINGS,
    CHEXPERT_LABELS,
    MS_CXR_FINDINGS,
    NIH_BOX_FINDINGS,
    PADCHEST_GR_FINDINGS,
    REVEAL_LABELS,
    RSNA_FINDINGS,
    SIIM_FINDINGS,
    VINDR_CXR_FINDINGS,
)

Kind = Literal["localization", "findings", "tasks", "detection"]
Asks = Literal["present", "all"]


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of download from which a benchmark is built, with the facts that other modules need.

    Its module is ``reveal_bench.sources.<name>`` (with underscores). The facts are repeated here so that help texts and
    tables need not import that module.

    Attributes
    ----------
    name : str
        Value of ``--source``.
    section : str
        Heading of the source in docs/sources.md.
    holds : str
        Description of the references in the table of docs/sources.md; empty for the default text of the kind.
    holdout_split : str
        Split that a build divides to draw a holdout.
    options : tuple of str
        Further keyword arguments of the source's `read`, see :class:`reveal_bench.sources.source.SourceModule`.
    styles : dict from style of ``reveal-bench phantom`` to "module:function" in :mod:`reveal_bench.phantom`
    """

    name: str
    section: str
    holds: str
    holdout_split: str = "test"
    options: tuple[str, ...] = ("pictures",)
    styles: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark with its protocol and its sources; an entry of BENCHMARKS.

    Attributes
    ----------
    name : str
        Key in BENCHMARKS, and name for ``reveal-bench build``.
    title, source : str
        Full name, and paper or download on which the benchmark is based, for display.
    kind : {"localization", "findings", "tasks", "detection"}
    findings : tuple of str
        Findings, in the order of tables; empty for tasks, and for users' own datasets, which define their findings.
    asks : {"present", "all"}
        Whether the manifest asks only for findings that are present, or for every finding of every image.
    metrics : tuple of str
        Reported metrics, the primary metric first; empty for tasks, whose answers readers rate.
    grid : int
        Cells per side for the metric `grid_hit` of localization benchmarks.
    licence : {"restricted", "open"}
        "restricted" if the source forbids redistribution of its labels or pixels.
    sources : tuple of Source
        Kinds of downloads from which the benchmark can be built.
    has_pictures : bool
        True if rows have pictures; False for a benchmark that consists only of labels.
    card : str
        Name of the benchmark whose card in dataset_cards/ is used, or path of a card (.md); empty for the benchmark's
        own card.
    note : str
        Further sentence of the card on how the references were made.
    finding_groups : dict from a name to findings, or "prevalence"
        Groups of findings that are stored in dataset folders, see :mod:`reveal_bench.kinds.finding_groups`.
    not_asked : tuple of str
        Further findings, which a build left out; prediction files may answer them, and the answers are left out, too.
    """

    name: str
    title: str
    source: str
    kind: Kind
    findings: tuple[str, ...]
    asks: Asks
    metrics: tuple[str, ...]
    grid: int = 8
    licence: Literal["restricted", "open"] = "restricted"
    sources: tuple[Source, ...] = ()
    has_pictures: bool = True
    card: str = ""
    note: str = ""
    finding_groups: Mapping[str, tuple[str, ...]] | str = field(default_factory=dict, hash=False)
    not_asked: tuple[str, ...] = ()


LOCALIZATION_METRICS = ("point_hit", "grid_hit", "mask_iou", "mask_iou_all")
BOX_METRICS = ("point_hit", "grid_hit", "box_iou")
"""Sentence for the cards of datasets whose references are boxes, not masks."""
DETECTION_METRICS = ("ap_50", "cpm", "wafroc", "lesion_sensitivity", "false_alarms", "ap")
LABEL_METRICS = ("f1", "precision", "recall", "specificity", "npv", "cohen_kappa", "auroc", "average_precision")

DICOM_OPTIONS = ("pictures", "workers")
STUDY_OPTIONS = ("mapping", "id_key", "workers", "include_secondary")

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
            sources=(
                Source(
                    "chexlocalize",
                    section="CheXlocalize",
                    holds="masks and readers",
                    styles={"chexlocalize": "layouts:write_chexlocalize"},
                ),
            ),
        ),
        Benchmark(
            name="chestx-det",
            title="ChestX-Det",
            source="Deepwise-AILab/ChestX-Det-Dataset, annotations under Apache-2.0",
            kind="localization",
            findings=CHESTX_DET_FINDINGS,
            asks="present",
            metrics=LOCALIZATION_METRICS,
            licence="open",
            sources=(
                Source(
                    "chestx-det",
                    section="ChestX-Det",
                    holds="polygons",
                    styles={"chestx-det": "sources:write_chestx_det"},
                ),
            ),
        ),
        Benchmark(
            name="nih-boxes",
            title="NIH ChestX-ray14 boxes",
            source="Wang et al. 2017, BBox_List_2017.csv; no restriction on use",
            kind="localization",
            findings=NIH_BOX_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            licence="open",
            sources=(
                Source(
                    "nih-boxes",
                    section="NIH ChestX-ray14 boxes",
                    holds="boxes",
                    styles={"nih-boxes": "sources:write_nih_boxes"},
                ),
            ),
        ),
        Benchmark(
            name="ms-cxr",
            title="MS-CXR",
            source="Boecking et al. 2022, PhysioNet, on pictures of MIMIC-CXR-JPG",
            kind="localization",
            findings=MS_CXR_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            sources=(
                Source("ms-cxr", section="MS-CXR", holds="boxes of phrases", styles={"ms-cxr": "sources:write_ms_cxr"}),
            ),
        ),
        Benchmark(
            name="vindr-cxr",
            title="VinDr-CXR",
            source="Nguyen et al. 2022, PhysioNet, or its Kaggle edition (VinBigData)",
            kind="localization",
            findings=VINDR_CXR_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            sources=(
                Source(
                    "vindr-cxr",
                    section="VinDr-CXR",
                    holds="boxes of several readers",
                    options=DICOM_OPTIONS,
                    styles={"vindr-cxr": "sources:write_vindr_cxr", "vinbigdata": "sources:write_vinbigdata"},
                ),
            ),
        ),
        Benchmark(
            name="rsna-pneumonia",
            title="RSNA Pneumonia",
            source="Shih et al. 2019, Kaggle: RSNA Pneumonia Detection Challenge, stage 2",
            kind="localization",
            findings=RSNA_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            sources=(
                Source(
                    "rsna-pneumonia",
                    section="RSNA Pneumonia",
                    holds="boxes",
                    holdout_split="train",
                    options=DICOM_OPTIONS,
                    styles={"rsna-pneumonia": "sources:write_rsna_pneumonia"},
                ),
            ),
        ),
        Benchmark(
            name="siim-acr",
            title="SIIM-ACR Pneumothorax",
            source="Kaggle: SIIM-ACR Pneumothorax Segmentation",
            kind="localization",
            findings=SIIM_FINDINGS,
            asks="present",
            metrics=LOCALIZATION_METRICS,
            sources=(
                Source(
                    "siim-acr",
                    section="SIIM-ACR Pneumothorax",
                    holds="masks",
                    holdout_split="train",
                    options=DICOM_OPTIONS,
                    styles={"siim-acr": "sources:write_siim_acr"},
                ),
            ),
        ),
        Benchmark(
            name="padchest-gr",
            title="PadChest-GR",
            source="Castro et al. 2024 (arXiv 2411.05085), BIMCV",
            kind="localization",
            findings=PADCHEST_GR_FINDINGS,
            asks="present",
            metrics=BOX_METRICS,
            sources=(
                Source(
                    "padchest-gr",
                    section="PadChest-GR",
                    holds="boxes of sentences",
                    styles={"padchest-gr": "sources:write_padchest_gr"},
                ),
            ),
        ),
        Benchmark(
            name="reveal-cxr",
            title="REVEAL-CXR",
            source="arXiv 2601.15129 (paper 004): released half by RSNA, or any study tree labelled the same way",
            kind="findings",
            findings=REVEAL_LABELS,
            asks="all",
            metrics=LABEL_METRICS,
            sources=(
                Source(
                    "reveal-cxr",
                    section="REVEAL-CXR, and sets made like it",
                    holds="",
                    options=STUDY_OPTIONS,
                    styles={"reveal-cxr": "reveal:write_reveal", "reveal-pool": "curation:write_curation_world"},
                ),
                Source(
                    "midrc", section="MIDRC", holds="", options=STUDY_OPTIONS, styles={"midrc": "reveal:write_midrc"}
                ),
            ),
        ),
        Benchmark(
            name="chexpert",
            title="CheXpert",
            source=(
                "Irvin et al. 2019: tables of labels of the validation and test sets, and labels of individual readers"
            ),
            kind="findings",
            findings=CHEXPERT_LABELS,
            asks="all",
            metrics=LABEL_METRICS,
            sources=(
                Source(
                    "chexpert-labels",
                    section="CheXpert's tables of labels",
                    holds="only labels, also of individual readers",
                    options=("blank", "uncertain", "findings"),
                    styles={
                        "chexpert-labels": "layouts:write_chexpert_labels",
                        "chexpert-competition": "competition:write_competition",
                    },
                ),
            ),
            has_pictures=False,
        ),
        Benchmark(
            name="own-findings",
            title="Own findings",
            source="your own studies, with findings that your mapping names",
            kind="findings",
            findings=(),
            asks="all",
            metrics=LABEL_METRICS,
        ),
        Benchmark(
            name="own-labels",
            title="Own labels",
            source="a table of labels of your own studies, without images",
            kind="findings",
            findings=(),
            asks="all",
            metrics=LABEL_METRICS,
            has_pictures=False,
            card="own-findings",
        ),
        Benchmark(
            name="own-boxes",
            title="Own boxes",
            source="your own pictures, with boxes of findings that your mapping names",
            kind="localization",
            findings=(),
            asks="present",
            metrics=BOX_METRICS,
            sources=(
                Source(
                    "own-boxes",
                    section="Boxes of your own",
                    holds="boxes, and readers",
                    options=("pictures", "mapping", "id_key", "workers"),
                ),
            ),
        ),
        Benchmark(
            name="rexecution",
            title="ReXecution",
            source="paper 001; your own tasks, answers and ratings on pictures of MIMIC-CXR-JPG",
            kind="tasks",
            findings=(),
            asks="all",
            metrics=(),
            sources=(
                Source(
                    "rexecution",
                    section="ReXecution-style tasks",
                    holds="",
                    styles={"rexecution": "rexecution:write_rexecution"},
                ),
            ),
        ),
    )
}
"""Name of a benchmark -> benchmark, in the order of tables."""


def detection_of(benchmark: Benchmark) -> Benchmark:
    """Return the detection benchmark on a localization benchmark's images; it asks for every finding in every image."""
    return replace(
        benchmark,
        name=f"{benchmark.name}-detection",
        title=f"{benchmark.title}, detection",
        kind="detection",
        asks="all",
        metrics=DETECTION_METRICS,
        sources=(),
        card=benchmark.name,
    )


DRAWN_BY_INSTANCE = (
    "chestx-det",
    "nih-boxes",
    "ms-cxr",
    "vindr-cxr",
    "rsna-pneumonia",
    "siim-acr",
    "padchest-gr",
    "own-boxes",
)
"""Localization benchmarks whose sources draw each instance separately, so that they also have a detection benchmark."""

BENCHMARKS |= {entry.name: entry for entry in map(detection_of, map(BENCHMARKS.__getitem__, DRAWN_BY_INSTANCE))}


def own_benchmark(name: str, findings: tuple[str, ...]) -> Benchmark:
    """Return the benchmark for a user's own dataset with the given findings."""
    return replace(BENCHMARKS[name], findings=findings)


def of_task(benchmark: Benchmark, task: str | None) -> Benchmark:
    """Return the benchmark for `task` on the same images and findings; `benchmark` itself if `task` is not given.

    Raises
    ------
    ValueError
        If the benchmark does not have the task.
    """
    if task in (None, benchmark.kind):
        return benchmark
    counterpart = BENCHMARKS.get(f"{benchmark.name}-{task}")
    if counterpart is None:
        kinds = [benchmark.kind, *(other.kind for other in BENCHMARKS.values() if other.card == benchmark.name)]
        tasks = dict.fromkeys(kinds)
        raise ArgumentError("task", f"must be {' or '.join(tasks)} for {benchmark.title}", repr(task))
    return replace(counterpart, findings=benchmark.findings)


SOURCES: dict[str, tuple[Source, Benchmark]] = {
    source.name: (source, benchmark) for benchmark in BENCHMARKS.values() for source in benchmark.sources
}
"""Name of a source -> (source, benchmark that is built from it)."""


def bundled(name: str) -> Path:
    """Return the project's folder "dataset_cards" or "submissions".

    In a checkout the folder is next to the package, in an installed wheel inside the package.

    Raises
    ------
    FileNotFoundError
        If the folder is in neither place.
    """
    package = Path(__file__).parent
    for place in (package / name, package.parent / name):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the folder {name!r} is missing from this installation of reveal-bench")
