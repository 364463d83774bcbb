"""Dividing a split into a released and a private half, by patient.

The sorted patient ids are permuted with a seed and the first part of the permutation is kept private, so the division
depends on the set of patients, the fraction and the seed, and on nothing else. No patient is in both halves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

__all__ = ["check_apart", "check_name", "divide_patients"]


def divide_patients(patient_ids: Iterable[str], *, fraction: float, seed: int) -> set[str]:
    """The patients of the holdout.

    Parameters
    ----------
    patient_ids : ids, repeated or not
    fraction : share of the patients, in (0, 1); the number is rounded half up and both halves get at least one

    Raises
    ------
    ValueError
        If `fraction` is out of range or there are fewer than two patients.

    Examples
    --------
    >>> sorted(divide_patients("abcd", fraction=0.5, seed=0))
    ['a', 'c']
    """
    if not 0 < fraction < 1:
        raise ValueError(f"`holdout_fraction` must lie in (0, 1), got {fraction}")
    patients = sorted(set(patient_ids))
    if len(patients) < 2:
        raise ValueError(f"a holdout needs at least 2 patients to divide, got {len(patients)}")
    n_private = min(max(math.floor(fraction * len(patients) + 0.5), 1), len(patients) - 1)
    order = np.random.default_rng(seed).permutation(len(patients))
    return {patients[i] for i in order[:n_private]}


def check_name(path: Path, *, what: str, overwrite: bool) -> None:
    """Refuse a target that exists and is not an empty folder.

    Raises
    ------
    ValueError
        If `path` is a file, or a non-empty folder and `overwrite` is False.
    """
    if path.is_dir():
        if not overwrite and any(path.iterdir()):
            raise ValueError(f"`{what}` must be a new or empty folder unless `overwrite` is set, got {path}")
    elif path.exists():
        raise ValueError(f"`{what}` must be a folder, got the file {path}")


def check_apart(out: Path, holdout: Path) -> None:
    """Refuse a private folder inside the public one, or the reverse.

    Raises
    ------
    ValueError
        If one of the folders is, or contains, the other (links resolved).
    """
    public, private = out.resolve(), holdout.resolve()
    if public == private or public in private.parents or private in public.parents:
        raise ValueError(f"`holdout` must be neither inside `out` ({out}) nor around it, got {holdout}")
