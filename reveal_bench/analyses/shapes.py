"""Measure shapes of reference masks, and relate shape and confidence to localization (paper 002, Fig. 3, Tables 2, 3).

Conventions
-----------
Every image and finding with a reference mask has one row. OpenCV finds the contours at all levels, with every boundary
point. The area of a contour is that of the polygon through the centres of its pixels.

* `polygons` is the number of drawn contours, which the published code counts as instances. `components` is the number
  of separate parts of the mask, which the paper's text counts. The released polygons of Enlarged Cardiomediastinum
  include the heart's contours; `polygons_without_heart` omits contours that are also drawn for Cardiomegaly.
* `size` is the proportion of the image that the mask covers.
* `elongation` is the longer side of the smallest rectangle around the dominant contour divided by the shorter side.
  `irrectangularity` is the proportion of this rectangle outside the contour. `elongation` and `irrectangularity` are
  undefined if a side is 0, as for a line; the published code then stops with an error.
* The dominant contour has the most boundary points, as in the published code, and may be that of a hole. The fields
  `elongation_by_perimeter` and `irrectangularity_by_perimeter` use the contour with the largest perimeter, as in the
  paper's text.

Regressions pool findings. The cases are pairs of an image and a finding whose reference mask has an instance. The
outcomes are IoU of true positives, hits, and for both the gap (benchmark readers minus model). Cases with an undefined
outcome are omitted. A feature is scaled to [0, 1] over all cases ("minmax", as in the published code and the paper's
Methods), or centred and divided by its standard deviation ("zscore", as in the paper's main text). A constant feature
is not scaled.

Every model has one outcome and is fitted by :mod:`statsmodels`:

* ``published``: ordinary least squares on one feature at a time, with a 95% t interval.
* ``simple``: the same slope with standard errors clustered by patient (t with n_patients - 1 degrees of freedom).
* ``fixed effects``: like ``simple``, with a separate intercept for every finding, so that slopes are within findings.
* ``multiple``: like ``simple`` with all features at once, and with their variance inflation factors.
* ``logistic``: log odds of a hit on one feature at a time, clustered by patient. The model is omitted if the feature
  separates hits from misses.

`p_corrected` is p times the number of features, at most 1 (Bonferroni). Stars mark p below 0.05, 0.01 and 0.001, as in
the paper. Slopes that the cases do not determine are undefined.

Confidence ("model assurance") is related to an outcome by ordinary least squares and Spearman's correlation, per
finding and pooled, with unadjusted p. Spearman's interval is Fisher's with the variance of Bonett and Wright (2000),
Psychometrika 65, ``(1 + rho**2 / 2) / (n - 3)``, and is undefined for 3 cases or fewer. Probabilities are unscaled (as
in the published code), or scaled to [0, 1] per finding (as in the Methods).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from reveal_bench.analyses.confidence import POOLED
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import decode_mask
from reveal_bench.metrics.intervals import UNDEFINED, Estimate
from reveal_bench.metrics.jackknife import Z

FEATURES = ("polygons", "size", "elongation", "irrectangularity")
"""The paper's four features, as named in its published code."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A contour's perimeter and area, and the sides of its smallest rectangle."""

    n_points: int
    perimeter: float
    area: float
    sides: tuple[float, float]

    @property
    def elongation(self) -> float:
        """Longer side over the shorter side; NaN if the shorter side is 0."""
        short, long = sorted(self.sides)
        return long / short if short > 0 else math.nan

    @property
    def irrectangularity(self) -> float:
        """Proportion of the rectangle outside the contour; NaN if a side is 0."""
        of_rectangle = self.sides[0] * self.sides[1]
        return 1 - self.area / of_rectangle if of_rectangle > 0 else math.nan


@dataclass(frozen=True, slots=True)
class MaskShape:
    """Shape of one finding's mask in one image, with the features that the module defines."""

    image_id: str
    patient_id: str
    finding: str
    polygons: int
    polygons_without_heart: int
    components: int
    size: float
    elongation: float
    irrectangularity: float
    elongation_by_perimeter: float
    irrectangularity_by_perimeter: float


def shapes_of(records: Iterable[LocalizationRecord]) -> list[MaskShape]:
    """Return the shapes of all non-empty ground-truth masks, in the order of the records.

    Raises
    ------
    ImportError
        If OpenCV is missing, which the extra [saliency] installs.
    """
    return [
        _shape(record, annotation)
        for record in records
        for annotation in record.annotations
        if annotation.reader == "ground_truth" and annotation.rle is not None and annotation.area_px > 0
    ]


def _shape(record: LocalizationRecord, annotation: Annotation) -> MaskShape:
    assert annotation.rle is not None
    mask = decode_mask(annotation.rle)
    x, y, width, height = (int(side) for side in annotation.bbox_xywh or (0, 0, mask.shape[1], mask.shape[0]))
    n_components, outlines = outline_of(mask[y : y + height, x : x + width])
    published = max(outlines, key=lambda one: one.n_points)  # the first maximum, like argmax
    longest = max(outlines, key=lambda one: one.perimeter)
    heart = record.reference("Cardiomegaly") if annotation.finding == "Enlarged Cardiomediastinum" else None
    of_heart = set(heart.polygons) if heart is not None else set()
    return MaskShape(
        image_id=record.image_id,
        patient_id=record.patient_id,
        finding=annotation.finding,
        polygons=annotation.n_instances,
        polygons_without_heart=annotation.n_instances - sum(polygon in of_heart for polygon in annotation.polygons),
        components=n_components,
        size=annotation.area_px / mask.size,
        elongation=published.elongation,
        irrectangularity=published.irrectangularity,
        elongation_by_perimeter=longest.elongation,
        irrectangularity_by_perimeter=longest.irrectangularity,
    )


def outline_of(mask: BoolArray) -> tuple[int, list[Outline]]:
    """Return the number of 8-connected components, and the contours in OpenCV's order."""
    cv2 = _opencv()
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    cut = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    padded = np.pad(cut.astype(np.uint8), 1)
    n_labels, _ = cv2.connectedComponents(padded, connectivity=8)
    contours, _ = cv2.findContours(padded, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    outlines = []
    for contour in contours:
        _, sides, _ = cv2.minAreaRect(contour)
        perimeter, area = cv2.arcLength(contour, True), cv2.contourArea(contour)
        outlines.append(Outline(len(contour), float(perimeter), float(area), (float(sides[0]), float(sides[1]))))
    return n_labels - 1, outlines


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError("shapes of masks need OpenCV: pip install 'reveal-bench[saliency]'") from error
    return cv2


Scale = Literal["minmax", "zscore", "raw"]
MODELS = ("published", "simple", "fixed effects", "multiple", "logistic")
_LEAST = 3  # minimum number of cases, and of patients, for a slope's standard error


@dataclass(frozen=True, slots=True)
class Slope:
    """A regression coefficient; NaN if undefined.

    Attributes
    ----------
    outcome, feature, model : `model` is one of :data:`MODELS`
    estimate : slope; for logistic models the log of an odds ratio
    p, p_corrected, stars : see the module
    inflation : variance inflation factor, in multiple regression only
    n, n_patients : numbers of cases and patients
    """

    outcome: str
    feature: str
    model: str
    estimate: Estimate
    p: float
    p_corrected: float
    stars: str
    inflation: float
    n: int
    n_patients: int


@dataclass(frozen=True, slots=True)
class Assurance:
    """Slope and rank correlation of an outcome with the score.

    Attributes
    ----------
    outcome : str
    finding : name of the finding, or "all" for all findings pooled
    n : number of cases
    slope, slope_p, rho, rho_p : NaN if undefined
    """

    outcome: str
    finding: str
    n: int
    slope: Estimate
    slope_p: float
    rho: Estimate
    rho_p: float


def stars(p: float) -> str:
    """Return significance stars: * below 0.05, ** below 0.01, *** below 0.001.

    Examples
    --------
    >>> [stars(p) for p in (0.2, 0.04, 0.009, 0.0001)]
    ['', '*', '**', '***']
    """
    return "*" * sum(p < level for level in (0.05, 0.01, 0.001))


def scaled(values: FloatArray, scale: Scale) -> FloatArray:
    """Return scaled `values`; NaN and constant values are unchanged.

    Examples
    --------
    >>> scaled(np.array([1.0, 2.0, 5.0]), "minmax").tolist()
    [0.0, 0.25, 1.0]
    """
    if scale not in ("minmax", "zscore", "raw"):
        raise ArgumentError("scale", "must be 'minmax', 'zscore' or 'raw'", repr(scale))
    defined = values[~np.isnan(values)]
    if scale == "raw" or not len(defined) or defined.min() == defined.max():
        return values
    by_range = scale == "minmax"
    centre, unit = (defined.min(), np.ptp(defined)) if by_range else (defined.mean(), defined.std(ddof=1))
    result: FloatArray = (values - centre) / unit
    return result


def regress(
    outcomes: Mapping[str, FloatArray],
    features: Mapping[str, FloatArray],
    findings: Sequence[str],
    patients: Sequence[str],
    *,
    scale: Scale = "minmax",
) -> list[Slope]:
    """Fit all regression models of every outcome.

    Parameters
    ----------
    outcomes, features : name -> float array (n_cases,), NaN if undefined; outcomes with only 0 and 1 are hits
    findings, patients : the finding and patient of each case
    scale : scaling of the features, over all cases

    Raises
    ------
    ImportError
        If statsmodels is missing, which the extra [report] installs.
    """
    x = {name: scaled(values, scale) for name, values in features.items()}
    of_finding, of_patient = np.array(findings), np.array(patients)
    slopes = []
    for outcome, y in outcomes.items():
        for model in MODELS:
            is_hit = bool(np.isin(y[~np.isnan(y)], (0.0, 1.0)).all())
            if model == "logistic" and not is_hit:
                continue
            groups = [tuple(x)] if model == "multiple" else [(name,) for name in x]
            for names in groups:
                columns = np.column_stack([x[name] for name in names])
                known = ~np.isnan(y) & ~np.isnan(columns).any(axis=1)
                data = _RegressionCases(columns[known], y[known], of_finding[known], of_patient[known])
                slopes += data.slopes(outcome, model, names, len(x))
    return slopes


@dataclass(frozen=True)
class _RegressionCases:
    """Cases of one regression: features (n, n_features), outcomes, findings and patients (n,)."""

    x: FloatArray
    y: FloatArray
    findings: Any
    patients: Any

    def slopes(self, outcome: str, model: str, names: Sequence[str], n_tests: int) -> list[Slope]:
        n_patients = len(np.unique(self.patients))
        fitted = self._fit(model, n_patients)
        rows = []
        for i, name in enumerate(names):
            estimate, p = (UNDEFINED, math.nan) if fitted is None else fitted[i]
            inflation = self._inflation(i) if model == "multiple" and fitted is not None else math.nan
            corrected = min(1.0, n_tests * p) if p == p else math.nan
            counts = len(self.y), n_patients
            rows.append(Slope(outcome, name, model, estimate, p, corrected, stars(corrected), inflation, *counts))
        return rows

    def _fit(self, model: str, n_patients: int) -> list[tuple[Estimate, float]] | None:
        design = np.column_stack([self.x, self._intercepts(model)])
        n, k = design.shape
        if n <= max(k, _LEAST) or n_patients < _LEAST or np.linalg.matrix_rank(design) < k:
            return None
        of_patient = np.unique(self.patients, return_inverse=True)[1]
        clustered = {"cov_type": "cluster", "cov_kwds": {"groups": of_patient}, "use_t": True}
        if model == "logistic":
            if separable(self.x[:, 0], self.y == 1):
                return None
            result = _model("Logit")(self.y, design).fit(disp=0, **clustered)
        else:
            result = _model("OLS")(self.y, design).fit(**({} if model == "published" else clustered))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a perfect fit has no standard error
            bounds, p = result.conf_int(), result.pvalues
        slopes = zip(result.params, bounds, p, strict=True)
        return [(Estimate(float(v), float(b[0]), float(b[1])), float(p)) for v, b, p in slopes][: self.x.shape[1]]

    def _intercepts(self, model: str) -> FloatArray:
        if model != "fixed effects":
            return np.ones((len(self.y), 1))
        known = np.unique(self.findings)
        belongs: BoolArray = self.findings[:, None] == known[None, :]
        return belongs.astype(np.float64)

    def _inflation(self, i: int) -> float:
        from statsmodels.stats.outliers_influence import variance_inflation_factor

        design = np.column_stack([np.ones(len(self.y)), self.x])
        return float(variance_inflation_factor(design, i + 1))


def separable(x: FloatArray, hit: BoolArray) -> bool:
    """Return True if a threshold on `x` separates hits from misses, so that the logistic slope is infinite.

    Examples
    --------
    >>> separable(np.array([1.0, 2.0, 3.0]), np.array([False, False, True]))
    True
    >>> separable(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    False
    """
    if hit.all() or not hit.any():
        return True
    of_hits, of_misses = x[hit], x[~hit]
    return bool(of_hits.min() >= of_misses.max() or of_hits.max() <= of_misses.min())


def assurances(
    outcomes: Mapping[str, FloatArray],
    scores: FloatArray,
    findings: Sequence[str],
    *,
    order: Sequence[str],
    scale: Scale = "raw",
) -> list[Assurance]:
    """Return each outcome's slope and correlation with the score, per finding in `order`, then pooled.

    Parameters
    ----------
    outcomes : name -> float array (n_cases,), NaN if undefined
    scores : float array (n_cases,), NaN if missing
    findings : the finding of each case
    scale : scaling of the scores, per finding: "raw" or "minmax"
    """
    of_finding = np.array(findings)
    names = [name for name in order if not np.isnan(scores[of_finding == name]).all()]
    x = scores.copy()
    for name in names:
        x[of_finding == name] = scaled(scores[of_finding == name], scale)
    rows = []
    for outcome, y in outcomes.items():
        for name in [*names, POOLED]:
            known = ~np.isnan(y) & ~np.isnan(x) & ((of_finding == name) | (name == POOLED))
            rows.append(_assurance(outcome, name, x[known], y[known]))
    return rows


def _assurance(outcome: str, finding: str, x: FloatArray, y: FloatArray) -> Assurance:
    n = len(x)
    if n < _LEAST or x.min() == x.max() or y.min() == y.max():
        return Assurance(outcome, finding, n, UNDEFINED, math.nan, UNDEFINED, math.nan)
    from scipy.stats import spearmanr

    result = _model("OLS")(y, np.column_stack([x, np.ones(n)])).fit()
    low, high = result.conf_int()[0]
    rho, p = spearmanr(x, y)
    rho_low = rho_high = math.nan
    if n > 3 and abs(rho) < 1:
        middle, half = math.atanh(rho), Z * math.sqrt((1 + rho**2 / 2) / (n - 3))
        rho_low, rho_high = math.tanh(middle - half), math.tanh(middle + half)
    slope = Estimate(float(result.params[0]), float(low), float(high))
    correlation = Estimate(float(rho), rho_low, rho_high)
    return Assurance(outcome, finding, n, slope, float(result.pvalues[0]), correlation, float(p))


def _model(name: Literal["OLS", "Logit"]) -> Any:
    """Return a model of statsmodels without loading ``statsmodels.api``, which takes 30 MiB more."""
    try:
        from statsmodels.discrete.discrete_model import Logit
        from statsmodels.regression.linear_model import OLS
    except ImportError as error:
        raise ImportError("regressions need statsmodels: pip install 'reveal-bench[report]'") from error
    return {"OLS": OLS, "Logit": Logit}[name]
