"""Prediction files for the hospital's boards, and submission metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds.findings.lint import findings_to_jsonl
from reveal_bench.kinds.findings.records import FindingsPrediction
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.masks import Rle, encode_mask
from tests.leaderboard.leak.hospital import LABELS, SIZE, Hospital

BoolArray = npt.NDArray[np.bool_]


def metadata(team: str, model: str = "Model", **more: Any) -> dict[str, Any]:
    return {"model": {"name": model}, "organization": team, "kind": "cnn", **more}


def square(x: int, y: int, side: int = 14) -> Rle:
    mask = np.zeros(SIZE, bool)
    mask[y : y + side, x : x + side] = True
    return encode_mask(mask)


def asked(hospital: Hospital) -> list[tuple[str, str]]:
    """Return all pairs (image, finding) in the order of the records; the board asks for all."""
    return [(record.image_id, finding) for record in hospital.images for finding in record.label_status]


def points(hospital: Hospital, *, skill: float, seed: int) -> bytes:
    """Return a point and a square per question; a proportion `skill` of them is at the finding, if present."""
    rng = np.random.default_rng(seed)
    centres = {
        (record.image_id, point.finding): (int(point.x) + 12, int(point.y) + 10)
        for record in hospital.images
        for point in record.points
    }
    lines = []
    for pair in asked(hospital):
        x, y = (int(v) for v in rng.integers(0, 20, 2))
        if rng.random() < skill and pair in centres:
            x, y = centres[pair][0] - 7, centres[pair][1] - 7
        x, y = min(max(x, 0), SIZE[1] - 15), min(max(y, 0), SIZE[0] - 15)
        lines.append(LocalizationPrediction(*pair, points=((x + 7.0, y + 7.0),), mask=square(x, y)))
    return predictions_to_jsonl(lines).encode()


def present(hospital: Hospital) -> BoolArray:
    """Return the secret labels, (n_studies, n_labels)."""
    return np.array([[label in record.labels for label in LABELS] for record in hospital.studies])


def probabilities(hospital: Hospital, *, skill: float, seed: int) -> bytes:
    """Return probabilities with four decimals, higher by `skill` where the label is present."""
    rng = np.random.default_rng(seed)
    values = np.clip(rng.normal(0.45 + skill * (present(hospital) - 0.5), 0.2), 0.01, 0.99).round(4)
    return of_values(hospital, values)


def of_values(hospital: Hospital, values: npt.NDArray[np.float64]) -> bytes:
    """Return a file of probabilities (n_studies, n_labels)."""
    rows = zip(hospital.studies, values.tolist(), strict=True)
    predictions = [FindingsPrediction(s.study_id, None, dict(zip(LABELS, row, strict=True))) for s, row in rows]
    return findings_to_jsonl(predictions).encode()


def of_calls(hospital: Hospital, calls: BoolArray) -> bytes:
    """Return a file of labels from `calls` (n_studies, n_labels)."""
    rows = zip(hospital.studies, calls, strict=True)
    predictions = [
        FindingsPrediction(s.study_id, tuple(label for label, is_called in zip(LABELS, row, strict=True) if is_called))
        for s, row in rows
    ]
    return findings_to_jsonl(predictions).encode()


def with_line(content: bytes, number: int, change: Callable[[str], str]) -> bytes:
    """Return `content` with one line, counted from 1, changed."""
    lines = content.decode().splitlines()
    lines[number - 1] = change(lines[number - 1])
    return ("\n".join(lines) + "\n").encode()


def figures(document: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return metric -> finding -> value from a submission's document."""
    values: dict[str, dict[str, float]] = {}
    for figure in (document["score"] or {"figures": []})["figures"]:
        values.setdefault(figure["metric"], {})[figure["finding"]] = figure["value"]
    return values
