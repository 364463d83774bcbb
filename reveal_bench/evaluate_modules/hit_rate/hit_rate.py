"""Hit rate as a Hugging Face `evaluate` module: pointing game or grid hits, with intervals by patient."""

from typing import Any

import datasets
import evaluate

import reveal_bench.geometry
import reveal_bench.masks
import reveal_bench.metrics.bootstrap
import reveal_bench.metrics.inputs
import reveal_bench.metrics.intervals
import reveal_bench.metrics.localization

_DESCRIPTION = """
Share of cases whose predicted point, or grid cell, is a hit on the reference mask, with a 95% interval over patients.
Points: the pointing game of CheXlocalize (Saporta et al. 2022). Cells: the grid hit rate of
arXiv 2509.18015, section 3.3.
"""

_INPUTS = """
predictions: per case a list of points [[x, y], ...] in pixels of the full image, one point [x, y], a mask (its deepest
    pixel is the point), or, for all cases, a cell "D5"; an empty list, "" or None is absent, which is a miss
references: per case a COCO run-length mask {"size": [height, width], "counts": str}, or an array (height, width)
findings, patients (optional): a name per case; without findings all cases are one finding "all"
all_patients (optional): every patient of the split, when some have no case
finding_groups (optional): {name: findings}, such as {"lung": [...]}: the macro over these findings alone
grid: cells per side for cells (default 8); n_resamples (1000), seed (0)
interval: "jackknife" (default; none below five patients), "percentile" or "bca"
Returns hit_rate, low, high (macro over findings), n, n_undefined, signature, per_finding; with
    finding_groups, per_group.
"""

_CITATION = """
@article{saporta2022benchmarking, title={Benchmarking saliency methods for chest X-ray interpretation},
  author={Saporta, Adriel and others}, journal={Nature Machine Intelligence}, volume={4}, pages={867--878}, year={2022}}
"""


class HitRate(reveal_bench.metrics.inputs.CheckedInputs, evaluate.Metric):
    """Hit rate of points or grid cells against reference masks."""

    def _info(self) -> evaluate.MetricInfo:
        references = {"size": datasets.List(datasets.Value("int64")), "counts": datasets.Value("string")}
        points = datasets.List(datasets.List(datasets.Value("float64")))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": kind, "references": references})
                for kind in (points, datasets.Value("string"))
            ],
            reference_urls=["https://arxiv.org/abs/2509.18015"],
        )

    def read(self, predictions: Any, references: Any, features: Any) -> reveal_bench.metrics.inputs.Batch:
        """Return one batch: points or cells, and masks."""
        masks = reveal_bench.metrics.inputs.read_masks("references", references)
        places, kind = reveal_bench.metrics.inputs.read_places(predictions, features)
        return reveal_bench.metrics.inputs.Batch(places, masks, kind)

    def _compute(
        self,
        predictions: list[Any],
        references: list[Any],
        findings: list[str] | None = None,
        patients: list[str] | None = None,
        all_patients: list[str] | None = None,
        finding_groups: dict[str, list[str]] | None = None,
        grid: int = 8,
        n_resamples: int = 1000,
        seed: int = 0,
        interval: reveal_bench.metrics.intervals.Interval = "jackknife",
    ) -> dict[str, Any]:
        masks = reveal_bench.masks.pack_masks(reveal_bench.metrics.inputs.to_rles(references))
        if isinstance(predictions[0], str):
            cells = [[cell] if cell else [] for cell in predictions]
            metric = "grid_hit"
            values = reveal_bench.metrics.localization.grid_hit(cells, masks, grid=reveal_bench.geometry.Grid(grid))
        else:
            metric = "point_hit"
            values = reveal_bench.metrics.localization.point_hit(predictions, masks)
        return reveal_bench.metrics.bootstrap.case_result(
            "hit_rate",
            metric,
            values,
            findings=findings,
            patients=patients,
            all_patients=all_patients,
            finding_groups=finding_groups,
            resampling=reveal_bench.metrics.intervals.Resampling(n_resamples, seed, interval=interval),
        )
