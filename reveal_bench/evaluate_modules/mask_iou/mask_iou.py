"""Mask IoU as a Hugging Face `evaluate` module, with a 95% interval over patients."""

from typing import Any

import datasets
import evaluate

import reveal_bench.masks
import reveal_bench.metrics.bootstrap
import reveal_bench.metrics.inputs
import reveal_bench.metrics.intervals
import reveal_bench.metrics.localization

_DESCRIPTION = """
Mean intersection over union of predicted and reference masks, with a 95% interval over patients. By
default, a case is undefined if either mask is empty: the true-positive slice of CheXlocalize (Saporta et al. 2022).
"""

_INPUTS = """
predictions, references: per case a COCO run-length mask {"size": [height, width], "counts": str}, or an array
    (height, width)
slice: "true_positive" (default) or "all" (a case is undefined only if both masks are empty)
findings, patients (optional): a name per case; without findings, all cases belong to one finding named "all"
all_patients (optional): all patients of the split, needed if some have no case
finding_groups (optional): {name: findings}, such as {"lung": [...]}: adds the macro over the findings of each group
interval: "jackknife" (default; no interval for a finding with fewer than 15 patients), "percentile" or "bca"
n_resamples (1000), seed (0): for "percentile" and "bca"
Returns mask_iou, low, high (macro over findings), n, n_undefined, signature, per_finding; with finding_groups also
    per_group.
"""

_CITATION = """
@article{saporta2022benchmarking, title={Benchmarking saliency methods for chest X-ray interpretation},
  author={Saporta, Adriel and others}, journal={Nature Machine Intelligence}, volume={4}, pages={867--878}, year={2022}}
"""


class MaskIou(reveal_bench.metrics.inputs.CheckedInputs, evaluate.Metric):
    """Metric for the mean IoU of run-length masks."""

    def _info(self) -> evaluate.MetricInfo:
        mask = {"size": datasets.List(datasets.Value("int64")), "counts": datasets.Value("string")}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": mask, "references": mask}),
        )

    def read(self, predictions: Any, references: Any, features: Any) -> reveal_bench.metrics.inputs.Batch:
        """Return the parsed inputs: predicted and reference masks."""
        read_masks = reveal_bench.metrics.inputs.read_masks
        masks = read_masks("predictions", predictions), read_masks("references", references)
        return reveal_bench.metrics.inputs.Batch(*masks, 0)

    def _compute(
        self,
        predictions: list[Any],
        references: list[Any],
        slice: Any = "true_positive",
        findings: list[str] | None = None,
        patients: list[str] | None = None,
        all_patients: list[str] | None = None,
        finding_groups: dict[str, list[str]] | None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        interval: reveal_bench.metrics.intervals.Interval = "jackknife",
    ) -> dict[str, Any]:
        packed = [
            reveal_bench.masks.pack_masks(reveal_bench.metrics.inputs.to_rles(masks))
            for masks in (predictions, references)
        ]
        metric = "mask_iou" if slice == "true_positive" else "mask_iou_all"
        values = reveal_bench.metrics.localization.mask_iou(packed[0], packed[1], slice=slice)
        return reveal_bench.metrics.bootstrap.case_result(
            "mask_iou",
            metric,
            values,
            findings=findings,
            patients=patients,
            all_patients=all_patients,
            finding_groups=finding_groups,
            resampling=reveal_bench.metrics.intervals.Resampling(n_resamples, seed, interval=interval),
        )
