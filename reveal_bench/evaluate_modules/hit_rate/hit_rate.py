"""Hit rate as a Hugging Face `evaluate` module: pointing game or grid hits, with a 95% interval over patients."""

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
Proportion of cases whose predicted point or grid cell hits the reference mask, with a 95% interval over patients.
For points, this is the pointing game of CheXlocalize (Saporta et al. 2022). For grid cells, it is the grid hit rate of
arXiv 2509.18015, section 3.3.
"""

_INPUTS = """
predictions: per case a list of points [[x, y], ...] in pixels of the full image, one point [x, y], a mask (its deepest
    pixel is the point) or, if so for all cases, a grid cell such as "D5"; an empty list, "" or None is a missing
    answer and counts as a miss
references: per case a COCO run-length mask {"size": [height, width], "counts": str}, or an array (height, width)
findings, patients (optional): a name per case; without findings, all cases belong to one finding named "all"
all_patients (optional): all patients of the split, needed if some have no case
finding_groups (optional): {name: findings}, such as {"lung": [...]}: adds the macro over the findings of each group
grid: number of grid cells per side (default 8)
interval: "jackknife" (default; no interval with fewer than five patients), "percentile" or "bca"
n_resamples (1000), seed (0): for "percentile" and "bca"
Returns hit_rate, low, high (macro over findings), n, n_undefined, signature, per_finding; with finding_groups also
    per_group.
"""

_CITATION = """
@article{saporta2022benchmarking, title={Benchmarking saliency methods for chest X-ray interpretation},
  author={Saporta, Adriel and others}, journal={Nature Machine Intelligence}, volume={4}, pages={867--878}, year={2022}}
"""


class HitRate(reveal_bench.metrics.inputs.CheckedInputs, evaluate.Metric):
    """Metric for the hit rate of points or grid cells against reference masks."""

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
        """Return the parsed inputs: points or cells as predictions, masks as references."""
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
