"""Measure how time and memory of ``reveal-bench score`` and ``lint`` grow with the number of images.

Findings are scored for 10,000 and 100,000 studies, four for every three patients, with a CSV file of probabilities.

Places are scored for 1,000, 10,000 and 100,000 images of 512 x 512 pixels. Each image has two of 10 findings, drawn as
masks of 20 to 200 columns, all different. The prediction file answers each question with a mask, a point and a score,
about 700 characters. A row states the time of start-up and per image, and the peak memory of the whole process.

``python benchmarks/growth.py FOLDER [N ...]`` writes the datasets to FOLDER, or uses existing ones.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import orjson
import ragged  # in this folder
from goals import format_row

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS, REVEAL_LABELS
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import PackedMasks, Rle, union_masks

SIDE, N_DRAWN = 512, 2
NUMBERS = (1_000, 10_000, 100_000)
NUMBERS_OF_STUDIES = (10_000, 100_000)


def ellipse(rng: np.random.Generator) -> tuple[Rle, tuple[float, float, float, float], int]:
    """Return a random mask, its tight box and its area."""
    n_columns = int(rng.integers(20, 200))
    left, middle = int(rng.integers(0, SIDE - n_columns)), int(rng.integers(120, SIDE - 120))
    half = 1 + np.sqrt(1 - np.linspace(-1, 1, n_columns) ** 2) * rng.uniform(10, 100) + rng.uniform(0, 5, n_columns)
    tall = half.astype(np.int64)
    columns = (left + np.arange(n_columns)) * SIDE + middle
    ends = np.append(np.stack([columns - tall, columns + tall], axis=1).ravel(), SIDE * SIDE).astype(np.int32)
    rle = union_masks(PackedMasks(np.array([[SIDE, SIDE]]), ends, np.array([0, len(ends)])))
    box = float(left), float(middle - tall.max()), float(n_columns), float(2 * tall.max())
    return rle, box, int(2 * tall.sum())


def records(n_images: int) -> Iterator[LocalizationRecord]:
    rng = np.random.default_rng(0)
    for i in range(n_images):
        annotations = []
        for k in range(N_DRAWN):
            rle, box, area = ellipse(rng)
            finding = CHEXLOCALIZE_FINDINGS[(i + 3 * k) % len(CHEXLOCALIZE_FINDINGS)]
            annotations.append(Annotation(finding, "ground_truth", rle, (), box, 1, area))
        yield LocalizationRecord(
            image_id=f"i{i}",
            patient_id=f"p{i * 3 // 4}",
            study_id=f"s{i}",
            view="FRONTAL",
            width=SIDE,
            height=SIDE,
            label_status=dict.fromkeys(CHEXLOCALIZE_FINDINGS, 0) | {a.finding: 1 for a in annotations},
            annotations=tuple(annotations),
        )


def write(folder: Path, n_images: int) -> None:
    """Write a dataset folder and a prediction file."""
    data = folder / f"data-{n_images}"
    build_folder({"test": records(n_images)}, data, BENCHMARKS["chexlocalize"], pixels="withhold", synthetic=True)
    rng = np.random.default_rng(1)
    with (folder / f"predictions-{n_images}.jsonl").open("wb") as file:
        for i in range(n_images):
            for k in range(N_DRAWN):
                rle, box, _ = ellipse(rng)
                line = {
                    "image_id": f"i{i}",
                    "finding": CHEXLOCALIZE_FINDINGS[(i + 3 * k) % len(CHEXLOCALIZE_FINDINGS)],
                    "rle": {"size": [SIDE, SIDE], "counts": rle.counts},
                    "point": [box[0] + box[2] / 2, box[1] + box[3] / 2],
                    "score": float(rng.uniform()),
                }
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def write_studies(folder: Path, n_studies: int) -> None:
    """Write a dataset folder of studies, and a prediction file with probabilities."""
    rng = np.random.default_rng(2)
    present = rng.random((n_studies, len(REVEAL_LABELS))) < rng.uniform(0.02, 0.4, len(REVEAL_LABELS))
    scores = (1 / (1 + np.exp(1.5 - 2 * present - rng.normal(size=present.shape)))).round(5)
    studies = (
        StudyRecord(f"s{i}", f"p{i * 3 // 4}", tuple(compress(REVEAL_LABELS, row)))
        for i, row in enumerate(present.tolist())
    )
    data = folder / f"studies-{n_studies}"
    build_folder({"test": studies}, data, BENCHMARKS["reveal-cxr"], pixels="withhold", synthetic=True)
    with (folder / f"studies-{n_studies}.csv").open("w") as file:
        file.write(",".join(["study_id", *REVEAL_LABELS]) + "\n")
        file.writelines(f"s{i}," + ",".join(map(str, row)) + "\n" for i, row in enumerate(scores.tolist()))


def measure_studies_in(folder: Path, numbers: Sequence[int]) -> Iterator[dict[str, float | str]]:
    for n_studies in numbers:
        if not (folder / f"studies-{n_studies}.csv").exists():
            write_studies(folder, n_studies)
        file, data = folder / f"studies-{n_studies}.csv", folder / f"studies-{n_studies}"
        seconds, mib = ragged.run(["score", str(file), str(data), "--split", "test"])
        yield {"work": f"whole score command, {n_studies:,} studies", "ours_s": seconds, "peak_mib": round(mib)}


def measure_in(folder: Path, numbers: Sequence[int]) -> Iterator[dict[str, float | str]]:
    for n_images in numbers:
        if not (folder / f"predictions-{n_images}.jsonl").exists():
            write(folder, n_images)
        for command in ("lint", "score"):
            file, data = folder / f"predictions-{n_images}.jsonl", folder / f"data-{n_images}"
            seconds, mib = ragged.run([command, str(file), str(data), "--split", "test"])
            work = f"whole {command} command, {n_images:,} images"
            yield {"work": work, "ours_s": seconds, "peak_mib": round(mib)}


def measure() -> Iterator[dict[str, float | str]]:
    with tempfile.TemporaryDirectory() as name:
        yield from measure_studies_in(Path(name), NUMBERS_OF_STUDIES)
        yield from measure_in(Path(name), NUMBERS)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for row in measure_studies_in(place, [int(word) for word in sys.argv[2:]] or NUMBERS_OF_STUDIES):
        print(format_row(row), flush=True)
    for row in measure_in(place, [int(word) for word in sys.argv[2:]] or NUMBERS):
        print(format_row(row), flush=True)
