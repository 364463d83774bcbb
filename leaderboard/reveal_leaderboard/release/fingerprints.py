"""Fingerprints of predictions, which identify equal and nearly equal submissions.

Conventions
-----------
`content` is a keyed hash of the exact scored answers. It does not depend on the file's format, order, line ends or
confidences. Nothing is rounded, and thresholds are included: a submission with equal content gets its scores again at
no cost, so any difference that could change a decision must change `content`. `sketch` is a MinHash of the answers as a
set of items (id, finding, answer), with positions in 16ths of the image and probabilities in tenths. Answers that
models give for nearly every case ("absent", or a probability below 0.1) are not items, because otherwise any two models
of rare findings would look alike. Each kind's `marks` module defines answers and items. `content` and `sketch` are
keyed, so that nobody can find predictions in a stolen database by trial. References are not used.

Source: Broder 1997, On the resemblance and containment of documents.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.arrays import Item
from reveal_bench.kinds.parts import Manifest

NEAR = 0.95
"""Smallest fraction of equal answers of near-identical predictions."""
N_HASHES = 128


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Fingerprint of a submission's predictions.

    Attributes
    ----------
    content : 64 hexadecimal digits
    sketch : 128 integers from 0 to 2**32 - 1; empty for predictions without an item
    """

    content: str
    sketch: tuple[int, ...]


def fingerprint(
    predictions: Sequence[Any],
    manifest: Manifest,
    key: bytes,
    *,
    thresholds: float | Mapping[str, float] = 0.5,
) -> Fingerprint:
    """Return the fingerprint of validated predictions.

    Parameters
    ----------
    predictions : predictions that passed the linter
    manifest : manifest of the questions
    key : secret of the installation, at least 16 bytes
    thresholds : probability from which a label counts as positive: one number, or one per label (0.5 for other labels)

    Raises
    ------
    ValueError
        If the key is too short.
    """
    if len(key) < 16:
        raise ValueError(f"`key` must have at least 16 bytes, got {len(key)}")
    marks = KINDS[manifest.kind].release.marks(predictions, manifest, thresholds)
    text = json.dumps([manifest.benchmark, marks.answers], separators=(",", ":"))
    content = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return Fingerprint(content, _sketch(marks.items, key))


def similarity(a: Fingerprint, b: Fingerprint) -> float:
    """Return the estimated proportion of equal answers, in [0, 1]; standard error about 0.015 near 0.95.

    The formula follows from the Jaccard index s / (2 - s) of two equally large sets that share a proportion s of items.
    """
    if not a.sketch or not b.sketch:
        return float(a.sketch == b.sketch)
    jaccard = float(np.mean(np.array(a.sketch) == np.array(b.sketch)))
    return 2 * jaccard / (1 + jaccard)


def is_near(a: Fingerprint, b: Fingerprint, near: float = NEAR) -> bool:
    """Return True if two submissions are equal or differ in less than a fraction 1 - `near` of their answers."""
    return a.content == b.content or similarity(a, b) >= near


def _sketch(items: set[Item], key: bytes) -> tuple[int, ...]:
    if not items:
        return ()
    key = hashlib.sha256(b"sketch\0" + key).digest()
    digests = (hashlib.blake2b(json.dumps(item).encode(), digest_size=8, key=key).digest() for item in items)
    hashes = np.frombuffer(b"".join(digests), np.uint64)
    salts = np.random.default_rng(0).integers(0, 2**64, N_HASHES, np.uint64)
    return tuple(int((_mixed(hashes ^ salt) >> np.uint64(32)).min()) for salt in salts)


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return SplitMix64's finalizer: every bit of the result depends on every bit of `x`."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
