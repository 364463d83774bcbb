"""METRICS, the table that defines every metric for tests, documents, commands and pages.

The other modules of this package compute the metrics from arrays; a module is imported when :meth:`Metric.resolve`
needs it. Every score is a fraction, except ratings, which keep their scale; undefined values are NaN. Papers: 000 =
arXiv 2509.18015 (grid), 001 = ReXecution, 002 = CheXlocalize (Saporta et al. 2022), 004 = REVEAL-CXR (arXiv
2601.15129).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Literal

__all__ = ["FAMILIES", "METRICS", "Family", "Metric"]

Family = Literal["localization", "lesions", "labels", "agreement", "reliability", "ordinal"]
Better = Literal["higher", "lower", "neither"]

FAMILIES: dict[Family, str] = {
    "localization": "one value per image and finding, for PxAP one per finding",
    "lesions": "one value per finding over all images in which presence and location of the finding are known",
    "labels": "one value per label over all studies; macro is the unweighted mean over the defined labels",
    "agreement": "one value per pair of raters, label or criterion over all cases",
    "reliability": "one value per finding over all cases, for all readers together",
    "ordinal": "one value per model and criterion over all tasks, from integer ratings 1 to 5",
}
"""Family of metrics -> what a value of the family describes."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Row of METRICS.

    Attributes
    ----------
    name, title : str
        Key in METRICS, and title in tables.
    low, high : float
        Range of a defined value; `high` is infinite if it depends on the scale of the ratings, `low` if values have no
        lower bound.
    better : {"higher", "lower", "neither"}
    undefined : str
        Condition under which the value is undefined.
    source : str
        Paper and section.
    formula : str
    oracle : str
        Implementation or values that the tests compare the metric with.
    family : {"localization", "lesions", "labels", "agreement", "reliability", "ordinal"}
    function : str
        Module below `reveal_bench.metrics`, and the public function in it that computes the metric.
    options : mapping
        Keyword arguments of the function for this metric.
    symmetric : bool
        True if exchanging the two inputs does not change the value.
    version : int
        Increased whenever the same input may give another number; part of every signature.
    """

    name: str
    title: str
    low: float
    high: float
    better: Better
    undefined: str
    source: str
    formula: str
    oracle: str
    family: Family
    function: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    symmetric: bool = False
    version: int = 1

    def resolve(self) -> Callable[..., Any]:
        """Return the function that computes this metric, with its options filled in.

        Examples
        --------
        >>> METRICS["exact_match"].resolve()([[1, 0], [0, 1]], [[1, 0], [1, 1]])
        0.5
        """
        module, name = self.function.rsplit(".", 1)
        function = getattr(importlib.import_module(f"reveal_bench.metrics.{module}"), name)
        return partial(function, **self.options) if self.options else function

    @property
    def in_words(self) -> str:
        """Title as written inside a sentence.

        Examples
        --------
        >>> METRICS["point_hit"].in_words, METRICS["ap_50"].in_words, METRICS["cohen_kappa"].in_words
        ('hit rate', 'AP 50', "Cohen's kappa")
        """
        is_name = self.title.startswith(("Cohen", "Dice", "Fleiss", "Gwet", "Hamming", "Hausdorff", "Krippendorff"))
        return self.title if is_name or not self.title[1:2].islower() else self.title[:1].lower() + self.title[1:]

    @property
    def scale(self) -> str:
        """Title with the range of values.

        Examples
        --------
        >>> METRICS["f1"].scale, METRICS["cohen_kappa"].scale, METRICS["false_alarms"].scale
        ('F1 as a fraction from 0 to 1', "Cohen's kappa from -1 to 1", 'False alarms per image from 0 up')
        """
        if self.low == -inf:
            return f"{self.title} up to {self.high:g}"
        fraction = " as a fraction" if (self.low, self.high) == (0, 1) else ""
        return f"{self.title}{fraction} from {self.low:g} {'up' if self.high == inf else f'to {self.high:g}'}"

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as JSON values; `low` or `high` is None if the range has no such bound."""
        bounds = {"low": None if self.low == -inf else self.low, "high": None if self.high == inf else self.high}
        return asdict(self) | bounds | {"options": dict(self.options)}


_IOU = "area(A and B) / area(A or B)"
_SKLEARN = "scikit-learn"
_ONE_CLASS = "references of one class"
_CONSTANT = "both raters constant and equal, or no cases"

# Each family has a function that fills in what its rows share; a row is written on two or three lines.
# fmt: off


def _localization(name: str, title: str, undefined: str, source: str, formula: str, oracle: str, function: str,
                  *, better: Better = "higher", symmetric: bool = False, **options: Any) -> Metric:
    return Metric(name, title, 0, 1, better, undefined, source, formula, oracle, "localization", function, options,
                  symmetric)


def _detection(name: str, title: str, source: str, formula: str, oracle: str, *, undefined: str = "no lesion",
               high: float = 1, better: Better = "higher") -> Metric:
    return Metric(name, title, 0, high, better, undefined, source, formula, oracle, "lesions",
                  "detection.detection_figure", {"metric": name})


def _froc(name: str, words: str) -> Metric:
    return _detection(name, f"Sensitivity at {words}", "FROC by the centre of a box; LUNA16",
                      f"sensitivity at {words} false alarms of the finding per image, interpolated linearly", "MONAI")


_PANOPTIC = "(TP + FP / 2 + FN / 2) of masks that score at least the threshold; masks match if their IoU is above 0.5"
_NO_NORMAL = "no lesion, or no image without a lesion"


def _labels(name: str, title: str, undefined: str, formula: str, function: str,
            *, better: Better = "higher", symmetric: bool = False, **options: Any) -> Metric:
    return Metric(name, title, 0, 1, better, undefined, _SKLEARN, formula, "scikit-learn", "labels",
                  f"labels.{function}", options, symmetric)


def _ratios(name: str, title: str, undefined: str, formula: str, function: str, *, symmetric: bool = False
            ) -> tuple[Metric, ...]:
    weighted = "no defined label with a positive reference"
    return (
        _labels(name, title, undefined, f"{formula}, per label", function, symmetric=symmetric),
        _labels(f"{name}_micro", f"{title}, micro", undefined, f"{formula}, all decisions pooled", function,
                symmetric=symmetric, average="micro"),
        _labels(f"{name}_weighted", f"{title}, weighted", weighted, "mean over labels, weighted by positive references",
                function, average="weighted"),
        _labels(f"{name}_samples", f"{title}, samples", undefined, f"{formula}; mean over defined studies", function,
                symmetric=symmetric, average="samples"),
    )


def _agreement(name: str, title: str, low: float, high: float, undefined: str, source: str, formula: str, oracle: str,
               function: str, *, better: Better = "higher", **options: Any) -> Metric:
    return Metric(name, title, low, high, better, undefined, source, formula, oracle, "agreement",
                  f"agreement.{function}", options, symmetric=True)


_ONE_CATEGORY = "all ratings are one category, or no case has two ratings"


def _reliability(name: str, title: str, low: float, undefined: str, source: str, formula: str, oracle: str,
                 function: str, **options: Any) -> Metric:
    return Metric(name, title, low, 1, "higher", undefined, source, formula, oracle, "reliability",
                  f"reliability.{function}", options, symmetric=True)


def _alpha(name: str, title: str, formula: str, level: str) -> Metric:
    return _reliability(name, title, -1, _ONE_CATEGORY, "Krippendorff 2011", formula,
                        "krippendorff; Krippendorff's printed example", "krippendorff_alpha", level=level)


def _icc(name: str, title: str, low: float, form: str, formula: str) -> Metric:
    undefined = "fewer than two cases or readers, or denominator not above 0"
    return _reliability(name, title, low, undefined, "Shrout and Fleiss 1979; McGraw and Wong 1996", formula,
                        "pingouin; Shrout and Fleiss's example", "intraclass_correlation", form=form)


def _ordinal(name: str, title: str, low: float, high: float, undefined: str, section: str, formula: str, function: str,
             *, better: Better = "higher") -> Metric:
    return Metric(name, title, low, high, better, undefined, f"paper 001, {section}", formula, "arithmetic", "ordinal",
                  f"ordinal.{function}")


_ROWS = (
    _localization("point_hit", "Hit rate", "reference mask empty", "paper 002, Methods (pointing game)",
                  "1 if any predicted point is in the reference mask, else 0", "dense masks",
                  "localization.point_hit"),
    _localization("point_chance", "Chance hit", "reference mask empty", "expected value of `point_hit`",
                  "share of the image's pixels that are in the reference mask", "dense masks",
                  "localization.point_chance", better="neither"),
    _localization("grid_hit", "Grid hit rate", "no cell has any coverage", "paper 000, section 3.3",
                  "1 if the mask covers >= 1/2 of a predicted cell (any part, if no cell is covered by 1/2), else 0",
                  "dense masks, exact fractions", "localization.grid_hit"),
    _localization("grid_chance", "Chance grid hit", "no cell has any coverage", "paper 000, section 4.1",
                  "(cells that would be hits) / n^2", "dense masks, exact fractions", "localization.grid_chance",
                  better="neither"),
    _localization("mask_iou", "mIoU", "either mask empty", "paper 002, Methods (true-positive slice)",
                  _IOU, "pycocotools, dense masks", "localization.mask_iou", symmetric=True),
    _localization("mask_iou_all", "mIoU, all", "both masks empty", "paper 002, Extended Data Fig. 4",
                  f"{_IOU}; 0 if only one mask is empty", "pycocotools, dense masks", "localization.mask_iou",
                  symmetric=True, slice="all"),
    _localization("box_iou", "Box IoU", "reference empty, or no area in both", "boxes; tight box of a reference mask",
                  _IOU, "pycocotools, arithmetic", "localization.box_iou"),
    _localization("tolerant_hit", "Hit within a tolerance", "reference mask empty", "TorchRay (Fong et al. 2019)",
                  "1 if the map's largest pixel is in the reference or at most 15 pixels from it, else 0",
                  "a plain loop", "map_scores.tolerant_hit"),
    _localization("energy_inside", "Energy inside", "reference empty, or no positive value in the map",
                  "Score-CAM (Wang et al. 2020)", "positive mass of the map inside the reference / in the whole map",
                  "arithmetic", "map_scores.energy_inside"),
    _localization("pixel_average_precision", "Pixel average precision", "reference mask empty", _SKLEARN,
                  "mean, over pixels of the reference, of the precision among all pixels with at least the same value",
                  "scikit-learn", "map_scores.pixel_average_precision"),
    _localization("pooled_pixel_ap", "PxAP, pooled", "no pixel in any reference",
                  "Choe et al. 2020: all images of a finding",
                  "average precision of the pixels of all images together, each map scaled from its minimum to its "
                  "maximum, at thresholds 0, 0.001, ..., 1", "a plain loop",
                  "map_scores.pooled_pixel_average_precision"),
    _localization("grounding_iou", "mIoU at 0.1 to 0.5", "reference mask empty", "BioViL (Boecking et al. 2022)",
                  "mean IoU of the pixels above 0.1, 0.2, 0.3, 0.4 and 0.5 on the map's own scale", "a plain loop",
                  "map_scores.grounding_iou"),
    replace(_localization("contrast_to_noise", "CNR",
                          "reference empty or whole image; unequal constants inside and outside",
                          "BioViL (Boecking et al. 2022)", "|mean inside - mean outside| / sqrt(variance inside + "
                          "variance outside); 0 for a constant map", "a plain loop", "map_scores.contrast_to_noise"),
            high=inf),
    _localization("dice", "Dice", "both masks empty", "Dice 1945", "2 area(A and B) / (area(A) + area(B))",
                  "dense masks", "mask_agreement.dice", symmetric=True),
    _localization("siim_dice", "SIIM-ACR Dice", "never", "SIIM-ACR challenge 2019: mean over all images",
                  "as Dice; 1 if both masks are empty", "dense masks", "mask_agreement.dice", symmetric=True,
                  empty=1.0),
    _localization("boundary_iou", "Boundary IoU", "both masks empty", "Cheng et al. 2021",
                  "IoU of the parts of both masks within 2% of the image's diagonal from their own boundary",
                  "a plain loop", "mask_agreement.boundary_iou", symmetric=True),
    _localization("surface_distance", "Normalised surface distance", "both masks empty", "Nikolov et al. 2018",
                  "proportion of both boundaries within a tolerance (2 pixels) of the other boundary", "MONAI",
                  "mask_agreement.surface_distance", symmetric=True),
    Metric("hausdorff_95", "Hausdorff 95", 0, inf, "lower", "both masks empty", "pixels, or mm with a spacing",
           "larger of the 95th percentiles of distances from each boundary to the other; infinite if one mask is empty",
           "MONAI", "localization", "mask_agreement.hausdorff_95", symmetric=True),
    _localization("pixel_sensitivity", "Pixel sensitivity", "no positive pixel in the reference",
                  "pixel-wise, per image", "area(A and B) / area(B), B the reference", "dense masks",
                  "pixelwise.sensitivity"),
    _localization("pixel_specificity", "Pixel specificity", "no negative pixel in the reference",
                  "pixel-wise, per image", "1 - area(A not B) / area(not B), B the reference", "dense masks",
                  "pixelwise.specificity"),

    _detection("ap_50", "AP 50", "COCO",
               "mean over the recalls 0, 0.01, ..., 1 of the best precision at this recall or a higher one, hits by "
               "IoU of 0.5 or more", "pycocotools"),
    _detection("cpm", "CPM", "LUNA16 (Setio et al. 2017)",
               "mean of the sensitivities at 1/8, 1/4, 1/2, 1, 2, 4 and 8 false alarms of the finding per image",
               "MONAI"),
    _detection("wafroc", "wAFROC area", "Chakraborty 2017, chapter 14",
               "P(score of a lesion > highest false alarm of an image without lesions) + P(equal) / 2, with equal "
               "weight for each image with lesions", "a plain loop", undefined=_NO_NORMAL),
    _detection("lesion_sensitivity", "Lesion sensitivity", "at a threshold fixed beforehand",
               "lesions found by marks that score at least the threshold / lesions", "a plain loop"),
    _detection("pq", "Panoptic quality", "Kirillov et al. 2019", f"sum of IoU of TP / {_PANOPTIC}", "panoptica",
               undefined="no lesion and no mark"),
    _detection("sq", "Segmentation quality", "Kirillov et al. 2019", "mean IoU of TP", "panoptica",
               undefined="no mark that matches"),
    _detection("rq", "Recognition quality", "Kirillov et al. 2019", f"TP / {_PANOPTIC}", "panoptica",
               undefined="no lesion and no mark"),
    _detection("false_alarms", "False alarms per image", "at a threshold fixed beforehand",
               "marks of the finding that score at least the threshold and hit no lesion / images", "a plain loop",
               undefined="no image", high=inf, better="lower"),
    _detection("ap", "AP 50 to 95", "COCO", "as AP 50, mean over IoU of 0.5, 0.55, ..., 0.95", "pycocotools"),
    _detection("ap_40", "AP 40", "COCO's rule, at 0.4", "as AP 50, hits by IoU of 0.4 or more", "pycocotools"),
    _detection("voc_ap_40", "VOC AP 40", "VinBigData 2021: PASCAL VOC 2010 at 0.4",
               "area under the best precision at each recall or a higher one; a mark hits the lesion of largest IoU if "
               "this is above 0.4 and no earlier mark hit it", "a plain loop"),
    _detection("voc_ap_50", "VOC AP 50", "PASCAL VOC 2010 (Everingham et al. 2015)", "as VOC AP 40, IoU above 0.5",
               "a plain loop"),
    *(_froc(f"froc_{name}", shown) for name, shown in (("0125", "1/8"), ("025", "1/4"), ("05", "1/2"), ("1", "1"),
                                                       ("2", "2"), ("4", "4"), ("8", "8"))),
    _detection("afroc", "AFROC area", "Chakraborty 2017, chapter 13",
               "as wAFROC, but with equal weight for each lesion", "a plain loop", undefined=_NO_NORMAL),
    _detection("lroc", "LROC area", "Swensson 1996",
               "P(highest mark of an image with lesions hits, and scores above the highest mark of an image without) "
               "+ P(equal) / 2",
               "a plain loop", undefined=_NO_NORMAL),
    _detection("image_auroc", "Image AUROC", "object-CXR 2020; NODE21 2021",
               "AUROC of the highest mark of the finding on each image, 0 without a mark", "scikit-learn",
               undefined=_NO_NORMAL),
    _detection("rsna_precision", "RSNA precision", "RSNA Pneumonia Detection Challenge 2018",
               "TP / (TP + FP + FN) of marks at the threshold or above, mean over IoU 0.4 to 0.75 and over images",
               "a plain loop", undefined="no image with a lesion or a mark"),

    *_ratios("f1", "F1", "no positive in either one", "2 TP / (2 TP + FP + FN)", "multilabel_f1", symmetric=True),
    *_ratios("precision", "Precision", "no positive prediction", "TP / (TP + FP)", "precision"),
    *_ratios("recall", "Recall", "no positive reference", "TP / (TP + FN)", "recall"),
    _labels("specificity", "Specificity", "no negative reference", "TN / (TN + FP), per label", "specificity"),
    _labels("npv", "NPV", "no negative prediction", "TN / (TN + FN), per label", "npv"),
    _labels("balanced_accuracy", "Balanced accuracy", _ONE_CLASS, "(recall + specificity) / 2, per label",
            "balanced_accuracy"),
    replace(_labels("mcc", "MCC", "decisions or references of one class",
                    "Matthews' correlation: (TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)), per label",
                    "mcc", symmetric=True), low=-1),
    _labels("exact_match", "Exact match", "no studies", "studies with all labels right / studies", "exact_match",
            symmetric=True),
    _labels("hamming_loss", "Hamming loss", "no studies", "wrong decisions / decisions", "hamming_loss",
            better="lower", symmetric=True),
    _labels("auroc", "AUROC", _ONE_CLASS, "P(score of a positive > score of a negative) + P(equal) / 2", "auroc"),
    _labels("average_precision", "Average precision", _ONE_CLASS,
            "mean, over the positives, of the precision among cases that score at least as high", "average_precision"),
    replace(_labels("log_loss", "Log loss", "no studies",
                    "mean of -log(probability of the reference); probabilities are at least 2.2e-16", "",
                    better="lower"), high=inf, function="probabilities.log_loss"),

    _agreement("cohen_kappa", "Cohen's kappa", -1, 1, _CONSTANT, "Cohen 1960; paper 004, section 4.2",
               "1 - observed disagreement / disagreement expected by chance", "scikit-learn", "cohen_kappa"),
    _agreement("cohen_kappa_linear", "Cohen's kappa, linear", -1, 1, _CONSTANT, "Cohen 1968",
               "as Cohen's kappa, with a disagreement of i and j costing |i - j|", "scikit-learn", "cohen_kappa",
               weights="linear"),
    _agreement("cohen_kappa_quadratic", "Cohen's kappa, quadratic", -1, 1, _CONSTANT, "Cohen 1968; paper 001, Table 3",
               "as Cohen's kappa, with a disagreement of i and j costing (i - j)^2", "scikit-learn", "cohen_kappa",
               weights="quadratic"),
    _agreement("gwet_ac1", "Gwet's AC1", -1, 1, "no cases", "Gwet 2008; paper 004, Table S3",
               "(agreement - e) / (1 - e), e = sum of p (1 - p) / (k - 1)", "irrCAC, to its digits", "gwet_ac1"),
    _agreement("percent_agreement", "Agreement", 0, 1, "no cases", "proportion of cases", "equal ratings / cases",
               "arithmetic", "percent_agreement"),
    _agreement("mean_absolute_difference", "MAD", 0, inf, "no cases", "paper 001, Table 3",
               "mean |a - b|, in steps of the scale: at most k - 1", "arithmetic", "mean_absolute_difference",
               better="lower"),

    _reliability("fleiss_kappa", "Fleiss' kappa", -1, _ONE_CATEGORY, "Fleiss 1971",
                 "(agreement of pairs - e) / (1 - e), e = sum of p^2", "statsmodels; Fleiss's printed example",
                 "fleiss_kappa"),
    _alpha("krippendorff_alpha", "Krippendorff's alpha", "1 - observed disagreement / disagreement expected by chance",
           "nominal"),
    _alpha("krippendorff_alpha_ordinal", "Krippendorff's alpha, ordinal",
           "as nominal alpha, with a disagreement costing (difference of mean ranks)^2", "ordinal"),
    _alpha("krippendorff_alpha_interval", "Krippendorff's alpha, interval",
           "as nominal alpha, with a disagreement of i and j costing (i - j)^2", "interval"),
    _icc("icc_1_1", "ICC(1,1), ICC(1)", -1, "1,1", "(MSB - MSW) / (MSB + (k - 1) MSW), mean squares between and within "
         "cases"),
    _icc("icc_2_1", "ICC(2,1), ICC(A,1)", -inf, "2,1", "(MSB - MSE) / (MSB + (k - 1) MSE + k (MSR - MSE) / n), mean "
         "squares between cases, of readers and of error"),
    _icc("icc_3_1", "ICC(3,1), ICC(C,1)", -1, "3,1", "(MSB - MSE) / (MSB + (k - 1) MSE)"),
    _icc("icc_1_k", "ICC(1,k), ICC(k)", -inf, "1,k", "(MSB - MSW) / MSB"),
    _icc("icc_2_k", "ICC(2,k), ICC(A,k)", -inf, "2,k", "(MSB - MSE) / (MSB + (MSR - MSE) / n)"),
    _icc("icc_3_k", "ICC(3,k), ICC(C,k)", -inf, "3,k", "(MSB - MSE) / MSB"),

    _ordinal("content", "Content", 1, 5, "one of the three scores is missing", "section 3.3",
             "min(process, execution, synthesis), per task", "content_score"),
    _ordinal("rubric_mean", "Mean score", 1, 5, "no task rated", "Table 1", "mean over tasks", "rubric_summary"),
    _ordinal("rubric_sd", "SD of scores", 0, 8**0.5, "fewer than two tasks rated", "Table 1",
             "sqrt(sum (x - mean)^2 / (n - 1)): at most sqrt(8), for one 1 and one 5", "rubric_summary",
             better="neither"),
    _ordinal("share_of_5", "Scores of 5", 0, 1, "no task rated", "Table 2", "scores of 5 / n", "rubric_summary"),
    _ordinal("share_below_3", "Scores below 3", 0, 1, "no task rated", "Table 2", "scores < 3 / n",
             "rubric_summary", better="lower"),
)
# fmt: on

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}
