"""Time the whole ``reveal-bench score`` command on ragged masks of size L, and its parts.

Size L has 668 images of 2320 x 2828 pixels, 10 findings and 1,534 questions. A file in CheXlocalize's format predicts a
mask for every finding of every image, 6,680 masks with about 35 MB in total. All masks differ. Each is the union of a
few blobs with irregular upper and lower edges, like thresholded saliency maps. References have similar outlines, with
contours.

The peer decodes both masks of every question and computes their intersection over union, without reading files; it is
measured on every twentieth question and scaled. The command lints and scores the whole file.

Run alone, ``python benchmarks/ragged.py FOLDER`` writes dataset and predictions to FOLDER, or uses existing ones.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from goals import format_row  # in this folder
from localization import HEIGHT, N_PAIRS, ROUNDS, STRIDE, WIDTH, cpu_seconds, frontal_image, peer_iou

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import Annotation, Polygons, read_localization
from reveal_bench.masks import PackedMasks, Rle, pack_masks, union_masks
from reveal_bench.metrics.localization import mask_iou

N_IMAGES, N_PATIENTS = 668, 500
EVERY_VERTEX = 4  # number of columns between vertices of a contour

Edges = np.ndarray[Any, np.dtype[np.int64]]


def blob(rng: np.random.Generator) -> tuple[int, Edges, Edges]:
    """Return an irregular ellipse: its first column, and per column the upper edge and the (excluded) lower edge."""
    columns = int(rng.uniform(200, 1100))
    left = int(rng.uniform(100, WIDTH - 100 - columns))
    across = np.linspace(-1, 1, columns + 2)[1:-1]
    half = rng.uniform(100, 500) * np.sqrt(1 - across**2)
    middle = rng.uniform(600, HEIGHT - 600)
    steps = rng.normal(0, 10, (2, columns))
    low, high = (np.cumsum(walk) - np.linspace(0, 1, columns) * walk.sum() for walk in steps)
    top = np.clip(middle - half + low, 0, HEIGHT - 2).astype(np.int64)
    bottom = np.clip(np.maximum(middle + half + high, top + 1), 1, HEIGHT).astype(np.int64)
    return left, top, bottom


def blob_ends(left: int, top: Edges, bottom: Edges) -> Edges:
    columns = (left + np.arange(len(top))) * HEIGHT
    edges = np.stack([columns + top, columns + bottom], axis=1).ravel()
    return np.append(edges, HEIGHT * WIDTH)


def contour(left: int, top: Edges, bottom: Edges) -> tuple[tuple[float, float], ...]:
    x = (left + np.arange(len(top)))[::EVERY_VERTEX].tolist()
    upper, lower = top[::EVERY_VERTEX].tolist(), bottom[::EVERY_VERTEX].tolist()
    there = [(float(column), float(row)) for column, row in zip(x, upper, strict=True)]
    back = [(float(column), float(row)) for column, row in zip(x, lower, strict=True)]
    return (*there, *back[::-1])


def ragged(rng: np.random.Generator) -> tuple[Rle, Polygons]:
    """Return a mask of one to five blobs, and the blobs' contours."""
    blobs = [blob(rng) for _ in range(rng.integers(1, 6))]
    ends = [blob_ends(*one) for one in blobs]
    offsets = np.cumsum([0, *map(len, ends)])
    sizes = np.tile([HEIGHT, WIDTH], (len(ends), 1))
    union = union_masks(PackedMasks(sizes, np.concatenate(ends).astype(np.int32), offsets))
    return union, tuple(contour(*one) for one in blobs)


def write(folder: Path) -> None:
    """Write a dataset folder and a prediction file."""
    rng = np.random.default_rng(16)
    asked: dict[int, list[Annotation]] = {i: [] for i in range(N_IMAGES)}
    for k in range(N_PAIRS):
        rle, polygons = ragged(rng)
        packed = pack_masks([rle])
        box = tuple(packed.boxes_xywh()[0].tolist())
        finding = CHEXLOCALIZE_FINDINGS[k // N_IMAGES]
        asked[k % N_IMAGES].append(
            Annotation(finding, "ground_truth", rle, polygons, box, len(polygons), int(packed.areas[0]))  # type: ignore[arg-type]
        )
    records = (frontal_image(i, f"p{i * N_PATIENTS // N_IMAGES}", annotations) for i, annotations in asked.items())
    build_folder({"test": records}, folder / "data", BENCHMARKS["chexlocalize"], pixels="withhold", synthetic=True)
    predicted = {
        f"i{i}": {
            finding: {"size": [HEIGHT, WIDTH], "counts": ragged(rng)[0].counts} for finding in CHEXLOCALIZE_FINDINGS
        }
        for i in range(N_IMAGES)
    }
    (folder / "masks.json").write_bytes(orjson.dumps(predicted))


def questions(folder: Path) -> tuple[list[Rle], list[Rle]]:
    """Return the predicted and reference masks of all questions, in the order of the references."""
    predicted = orjson.loads((folder / "masks.json").read_bytes())
    predictions, references = [], []
    for record in read_localization(folder / "data", "test"):
        for annotation in record.annotations:
            assert annotation.rle is not None
            mask = predicted[record.image_id][annotation.finding]
            predictions.append(Rle(tuple(mask["size"]), mask["counts"]))
            references.append(annotation.rle)
    return predictions, references


LAUNCHER = """
import resource, subprocess, sys
command = [sys.executable, "-c", "from reveal_bench.cli import main; main()", *sys.argv[1:]]
subprocess.run(command, check=True, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""
"""Source of a small process that starts the command: a child's peak memory includes its parent's at the start."""


def run(words: list[str]) -> tuple[float, float]:
    """Return the processor seconds and peak memory (MiB) of one run of the command."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", LAUNCHER, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds, mib = map(float, done.stdout.split())
    return seconds, mib


def measure_in(folder: Path) -> list[dict[str, float | str]]:
    predictions, references = questions(folder)
    few = slice(None, None, STRIDE)
    packed = pack_masks(predictions)
    parts: dict[str, Callable[[], object]] = {
        "IoU of ragged masks": lambda: mask_iou(pack_masks(predictions), pack_masks(references), slice="all"),
        "deepest pixels of ragged masks": lambda: packed.deepest_xy(range(len(packed))),
    }
    file, data = str(folder / "masks.json"), str(folder / "data")
    commands = {
        "whole score command, ragged masks": ["score", file, data, "--split", "test"],
        "lint command, ragged masks": ["lint", file, data, "--split", "test"],
    }

    def peer_s() -> float:
        return STRIDE * cpu_seconds(lambda: peer_iou(predictions[few], references[few]))

    results = []
    for name, work in parts.items():
        work()
        results.append(row(name, [(peer_s(), cpu_seconds(work)) for _ in range(ROUNDS)]))
    for name, words in commands.items():
        run(words)
        runs = [(peer_s(), *run(words)) for _ in range(ROUNDS)]
        peak = {"peak_mib": round(statistics.median(mib for _, _, mib in runs))}
        results.append(row(name, [(peer, ours) for peer, ours, _ in runs]) | peak)
    return results


def row(work: str, pairs: list[tuple[float, float]]) -> dict[str, float | str]:
    peers, ours = zip(*pairs, strict=True)
    ratio = round(statistics.median(p / o for p, o in pairs), 1)
    return {"work": work, "ratio": ratio, "peer_s": statistics.median(peers), "ours_s": statistics.median(ours)}


def measure() -> list[dict[str, float | str]]:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return measure_in(Path(name))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not (place / "masks.json").exists():
        write(place)
    for row in measure_in(place):
        print(format_row(row))
