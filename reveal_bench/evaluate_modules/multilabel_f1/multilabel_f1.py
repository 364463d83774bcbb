"""F1 and related scores of several labels per study as a Hugging Face `evaluate` module, with 95% intervals over
patients.
"""

import collections.abc
from typing import Any

import datasets
import evaluate

import reveal_bench.metrics.bootstrap
import reveal_bench.metrics.estimates
import reveal_bench.metrics.inputs
import reveal_bench.metrics.intervals

_DESCRIPTION = """
F1, precision and recall (per label, macro, micro, weighted and samples), specificity, negative predictive value,
balanced accuracy and Matthews' correlation (per label and macro), exact match and Hamming loss of the labels of
studies, with 95% intervals over patients. Scores are computed as in scikit-learn, except that a score with denominator
0 is undefined (NaN) instead of 0 and excluded from macros, such as the F1 of a label that occurs in neither references
nor predictions.
"""

_INPUTS = """
predictions, references: per study a list of label names (empty if nothing is found), or a vector of 0 and 1
labels (optional): all labels, in order; by default the names that occur, sorted. Without it, labels that occur in no
    study are unknown, and the Hamming loss is higher
patients (optional): a name per study; by default, every study is a patient
all_patients (optional): all patients of the split, needed if some have no study
finding_groups (optional): {name: labels}, such as {"head": [...], "tail": [...]}: adds the macros over each group
interval: "jackknife" (default; no interval with fewer than five patients, for F1 eight, for kappa and MCC 12),
    "percentile" or "bca"
n_resamples (1000), seed (0): for "percentile" and "bca"
Returns f1 (macro), f1_low, f1_high, f1_n (number of labels with a value), and the same for precision and recall;
    f1_micro, f1_weighted, f1_samples and so on, specificity, npv, balanced_accuracy, mcc and cohen_kappa (macros),
    exact_match and hamming_loss, each with _low, _high, _n; signatures; per_label; with finding_groups also per_group,
    the macros of each group.
"""

_CITATION = """
@article{pedregosa2011scikit, title={Scikit-learn: Machine Learning in {P}ython}, author={Pedregosa, F. and others},
  journal={Journal of Machine Learning Research}, volume={12}, pages={2825--2830}, year={2011}}
"""


class MultilabelF1(reveal_bench.metrics.inputs.CheckedInputs, evaluate.Metric):
    """Metric for F1, precision, recall, specificity, NPV, exact match and Hamming loss of label sets."""

    def _info(self) -> evaluate.MetricInfo:
        kinds = datasets.List(datasets.Value("string")), datasets.List(datasets.Value("int64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[datasets.Features({"predictions": kind, "references": kind}) for kind in kinds],
        )

    def read(self, predictions: Any, references: Any, features: Any) -> reveal_bench.metrics.inputs.Batch:
        """Return the parsed inputs: label names or vectors."""
        return reveal_bench.metrics.inputs.Batch(
            *reveal_bench.metrics.inputs.read_labels(predictions, references, features)
        )

    def _compute(
        self,
        predictions: list[Any],
        references: list[Any],
        labels: list[str] | None = None,
        patients: list[str] | None = None,
        all_patients: list[str] | None = None,
        finding_groups: dict[str, list[str]] | None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        interval: reveal_bench.metrics.intervals.Interval = "jackknife",
    ) -> dict[str, Any]:
        predicted, actual, names = reveal_bench.metrics.inputs.label_matrix(predictions, references, labels=labels)

        def estimate(some: collections.abc.Sequence[str]) -> list[reveal_bench.metrics.intervals.Estimate]:
            columns = [names.index(name) for name in some]
            return reveal_bench.metrics.estimates.estimate_labels(
                predicted[:, columns],
                actual[:, columns],
                labels=some,
                patients=patients,
                all_patients=all_patients,
                resampling=reveal_bench.metrics.intervals.Resampling(n_resamples, seed, interval=interval),
            )

        macros = reveal_bench.metrics.bootstrap.macros_over_groups(finding_groups, names, estimate)
        return reveal_bench.metrics.estimates.as_flat_result(estimate(names), groups="per_label", macros=macros)
