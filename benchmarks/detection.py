"""Measure the speed of detection scoring on a large dataset, against COCO's evaluation.

There are 10,000 images with 20 boxes each and 14 findings, and every score has 1,000 replicates. The peer is COCO's
evaluation, which only computes average precision once, because replicates would take a thousand times as long. The
package matches all boxes and computes 17 scores with replicates. Package and peer are measured alternately in this
process, in CPU seconds; their average precisions must be equal.
"""

from __future__ import annotations

import contextlib
import io
import resource
from typing import Any

import numpy as np
from localization import cpu_seconds  # in this folder
from pycocotools import coco, cocoeval

from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.detection import RANKED, Matched, detection_figures
from reveal_bench.metrics.detection_matching import IOUS, match_marks
from reveal_bench.metrics.intervals import Resampling

N_IMAGES, N_FINDINGS, EACH, N_LESIONS, N_RESAMPLES = 10_000, 14, 20, 20_000, 1000
METRICS = (*RANKED, "rsna_precision", "lesion_sensitivity", "false_alarms")
Array = np.ndarray[Any, np.dtype[Any]]


class Case:
    """Simulated lesions, and boxes of a detector; three in ten boxes are near a lesion."""

    def __init__(self, rng: np.random.Generator) -> None:
        n = N_IMAGES * EACH
        self.image = np.repeat(np.arange(N_IMAGES), EACH)
        self.finding = rng.integers(0, N_FINDINGS, n)
        self.boxes = np.column_stack([rng.random((n, 2)) * 800, 50 + rng.random((n, 2)) * 100])
        self.score = rng.random(n)
        self.lesion_image = np.sort(rng.integers(0, N_IMAGES, N_LESIONS))
        self.lesion_finding = rng.integers(0, N_FINDINGS, N_LESIONS)
        self.lesions = np.column_stack([rng.random((N_LESIONS, 2)) * 800, 50 + rng.random((N_LESIONS, 2)) * 100])
        near = self.lesion_image * EACH + rng.integers(0, EACH, N_LESIONS)
        self.boxes[near] = np.maximum(self.lesions + rng.normal(0, 8, (N_LESIONS, 4)), [0, 0, 1, 1])
        self.finding[near] = self.lesion_finding
        self.score[near] = np.clip(self.score[near] + 0.3, 0, 1)

    def ours(self, n_resamples: int = N_RESAMPLES) -> list[dict[str, tuple[float, Array]]]:
        """Return all scores of all findings with replicates, by this package."""
        counts = resampling_counts(N_IMAGES, Resampling(n_resamples))
        centres = self.boxes[:, :2] + self.boxes[:, 2:] / 2
        cases, lesion_cases = (
            image * N_FINDINGS + finding
            for image, finding in ((self.image, self.finding), (self.lesion_image, self.lesion_finding))
        )
        hits = match_marks(self.boxes, centres, self.score, cases, self.lesions, lesion_cases)
        results = []
        for code in range(N_FINDINGS):
            marks, own = self.finding == code, np.flatnonzero(self.lesion_finding == code)
            place = np.full(N_LESIONS + 1, -1, np.int32)
            place[own] = np.arange(len(own))
            one = Matched(
                np.arange(N_IMAGES), self.image[marks], self.score[marks], place[hits[:, marks]], self.lesion_image[own]
            )
            results.append(detection_figures(one, METRICS, counts))
        return results

    def peer(self) -> list[float]:
        """Return every finding's average precision at an IoU of 0.5, by COCO's evaluation."""
        drawn = [
            {"id": i + 1, "image_id": int(a), "category_id": int(b), "bbox": box, "area": 1.0, "iscrowd": 0}
            for i, (a, b, box) in enumerate(
                zip(self.lesion_image, self.lesion_finding, self.lesions.tolist(), strict=True)
            )
        ]
        marked = [
            {"image_id": int(a), "category_id": int(b), "bbox": box, "score": score}
            for a, b, box, score in zip(self.image, self.finding, self.boxes.tolist(), self.score.tolist(), strict=True)
        ]
        with contextlib.redirect_stdout(io.StringIO()):
            truth = coco.COCO()
            truth.dataset = {
                "images": [{"id": i, "height": 1000, "width": 1000} for i in range(N_IMAGES)],
                "annotations": drawn,
                "categories": [{"id": i, "name": str(i)} for i in range(N_FINDINGS)],
            }
            truth.createIndex()
            run = cocoeval.COCOeval(truth, truth.loadRes(marked), "bbox")
            run.params.iouThrs, run.params.maxDets = np.array(IOUS), [100]
            run.params.areaRng, run.params.areaRngLbl = [[0, 1e10]], ["all"]
            run.evaluate()
            run.accumulate()
        return [float(p) for p in run.eval["precision"][2, :, :, 0, 0].mean(axis=0)]


def measure() -> list[dict[str, float | str]]:
    """Return the row of results for one measurement."""
    case = Case(np.random.default_rng(0))
    np.testing.assert_allclose([one["ap_50"][0] for one in case.ours(1)], case.peer(), atol=1e-9)
    peer_s, ours_s = cpu_seconds(case.peer), min(cpu_seconds(case.ours) for _ in range(2))
    work = "detection: 17 figures, 1,000 replicates, against one run of COCO's"
    return [{"work": work, "ratio": round(peer_s / ours_s, 1), "peer_s": peer_s, "ours_s": ours_s}]


if __name__ == "__main__":
    for row in measure():
        print(row)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
