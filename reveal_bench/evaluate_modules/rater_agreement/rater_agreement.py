"""Agreement of two raters as a Hugging Face `evaluate` module, with 95% intervals over patients."""

from typing import Any

import datasets
import evaluate

import reveal_bench.metrics.agreement_estimates
import reveal_bench.metrics.estimates
import reveal_bench.metrics.inputs
import reveal_bench.metrics.intervals
import reveal_bench.metrics.reliability_estimates

_DESCRIPTION = """
Agreement of two raters, or of a model with a consensus: Cohen's kappa (unweighted, linear, quadratic), Gwet's AC1,
percent agreement, the mean absolute difference, Fleiss' kappa, Krippendorff's alpha and intraclass correlations, with
95% intervals over patients.
"""

_INPUTS = """
predictions, references: the ratings of the two raters; per case an integer, or the name of a category
categories (optional): the scale, in order. By default all integers from the smallest to the largest rating, or the
    names that occur; these have no order, so metrics that need one are left out. AC1 depends on the categories
findings, patients (optional): a name per case; without findings, all cases belong to one finding named "all"
all_patients (optional): all patients of the split, needed if some have no case
interval: "jackknife" (default; no interval for a finding with fewer than ten patients, for Cohen's kappa and AC1 12,
    for Fleiss' kappa, alpha and intraclass correlations 15), "percentile" or "bca"
n_resamples (1000), seed (0): for "percentile" and "bca"
Returns cohen_kappa (macro over findings), cohen_kappa_low, cohen_kappa_high, cohen_kappa_n (number of findings with a
    value), and the same for cohen_kappa_linear, cohen_kappa_quadratic, gwet_ac1, percent_agreement,
    mean_absolute_difference, fleiss_kappa (Scott's pi), krippendorff_alpha, krippendorff_alpha_ordinal,
    krippendorff_alpha_interval, and the intraclass correlations icc_1_1, icc_2_1, icc_3_1, icc_1_k,
    icc_2_k and icc_3_k; signatures; per_finding. Kappa is NaN if chance agreement is 1.
"""

_CITATION = """
@article{gwet2008computing,
  title={Computing inter-rater reliability and its variance in the presence of high agreement},
  author={Gwet, Kilem Li}, journal={British Journal of Mathematical and Statistical Psychology}, volume={61},
  pages={29--48}, year={2008}}
"""


class RaterAgreement(reveal_bench.metrics.inputs.CheckedInputs, evaluate.Metric):
    """Metric for kappas, AC1, alpha, intraclass correlations, percent agreement and mean absolute difference of two
    raters.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": datasets.Value(kind), "references": datasets.Value(kind)})
                for kind in ("int64", "string")
            ],
        )

    def read(self, predictions: Any, references: Any, features: Any) -> reveal_bench.metrics.inputs.Batch:
        """Return the parsed inputs: integers or category names."""
        return reveal_bench.metrics.inputs.Batch(
            *reveal_bench.metrics.inputs.read_ratings(predictions, references, features)
        )

    def _compute(
        self,
        predictions: list[Any],
        references: list[Any],
        categories: list[Any] | None = None,
        findings: list[str] | None = None,
        patients: list[str] | None = None,
        all_patients: list[str] | None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        interval: reveal_bench.metrics.intervals.Interval = "jackknife",
    ) -> dict[str, Any]:
        rater_a, rater_b, scale, is_ordered = reveal_bench.metrics.agreement_estimates.code_ratings(
            predictions, references, categories=categories
        )
        options: dict[str, Any] = {
            "n_categories": max(2, len(scale)),
            "is_ordered": is_ordered,
            "findings": findings,
            "patients": patients,
            "all_patients": all_patients,
            "resampling": reveal_bench.metrics.intervals.Resampling(n_resamples, seed, interval=interval),
        }
        estimates = [
            *reveal_bench.metrics.agreement_estimates.estimate_agreement(rater_a, rater_b, **options),
            *reveal_bench.metrics.reliability_estimates.estimate_reliability(
                list(zip(rater_a.tolist(), rater_b.tolist(), strict=True)), **options
            ),
        ]
        return reveal_bench.metrics.estimates.as_flat_result(estimates, groups="per_finding")
