"""Log loss of stated probabilities of labels, (n_studies, n_labels), with scikit-learn's smallest probability.

:mod:`reveal_bench.analyses.calibration` has further scores of probabilities.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import PROBABILITY_RULE, ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.metrics.agreement import divide
from reveal_bench.metrics.labels import check_pair
from reveal_bench.metrics.resampled import mean_of_defined

LEAST_PROBABILITY = float(np.finfo(np.float64).eps)
"""Smallest probability in :func:`log_loss`, as in scikit-learn: a certain error costs 36.04 instead of infinity."""


def log_loss(
    probabilities: npt.ArrayLike, references: npt.ArrayLike, *, average: Literal["macro"] | None = None
) -> FloatArray:
    """Return the log loss, in nats.

    Parameters
    ----------
    probabilities : float array (n_studies, n_labels) in [0, 1]
    references : bool array (n_studies, n_labels)
    average : None or "macro"

    Returns
    -------
    float array (n_labels,) or number, at least 0; NaN without studies

    Raises
    ------
    ValueError
        If shapes differ, or a probability is outside [0, 1].

    Examples
    --------
    >>> log_loss([[0.8], [0.5]], [[1], [0]]).round(3).tolist()  # (-log 0.8 - log 0.5) / 2
    [0.458]
    """
    if average not in (None, "macro"):
        raise ArgumentError("average", "must be None or 'macro'", repr(average))
    losses = log_losses(probabilities, references)
    means = divide(losses.sum(axis=0), np.full(losses.shape[1], float(len(losses))))
    return means if average is None else mean_of_defined(means)


def log_losses(probabilities: npt.ArrayLike, references: npt.ArrayLike) -> FloatArray:
    """Return -log(probability of the reference) of each study, (n_studies, n_labels); as :func:`log_loss`."""
    of_event = np.asarray(probabilities, np.float64)
    present = check_pair("probabilities", of_event, references)
    outside = of_event[~((of_event >= 0) & (of_event <= 1))]
    if len(outside):
        raise ArgumentError("probabilities", PROBABILITY_RULE, outside[0])
    right = np.where(present, of_event, 1 - of_event)
    losses: FloatArray = np.log(1 / np.maximum(right, LEAST_PROBABILITY))
    return losses
