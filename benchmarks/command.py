"""Time the whole ``reveal-bench score`` command on size L, against a peer that only computes IoU.

The peer does what CheXlocalize's evaluation does for IoU, without start-up: it decodes both masks, combines them with
logical operations, and resamples a pandas table 1,000 times. IoU is measured on every twentieth pair and scaled. The
command lints the file, and computes hit rate, grid hit and both IoUs with intervals. The command is timed for a file of
masks and points, and for masks alone, whose deepest pixels must be computed.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from localization import (  # in this folder
    HEIGHT,
    STRIDE,
    WIDTH,
    cpu_seconds,
    frontal_image,
    make_pairs,
    peer_iou,
)

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import Annotation
from reveal_bench.masks import pack_masks

N_IMAGES, N_RESAMPLES, ROUNDS = 668, 1000, 3
START_UPS = (("reveal_bench", "--help"), ("reveal_leaderboard", "admin", "--help"))


def measure() -> list[dict[str, float | str]]:
    predictions, references = make_pairs()
    few = slice(None, None, STRIDE)
    peer_s = STRIDE * cpu_seconds(lambda: peer_iou(predictions[few], references[few])) + cpu_seconds(pandas_loop)
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, predictions, references)
        for kind in ("masks and points", "masks alone"):
            seconds = statistics.median(command_seconds(folder, kind) for _ in range(ROUNDS + 1))
            work = f"whole score command, {kind}, against IoU alone"
            results.append({"work": work, "ratio": round(peer_s / seconds, 1), "peer_s": peer_s, "ours_s": seconds})
    return results + [start_up(*words) for words in START_UPS]


def start_up(module: str, *words: str) -> dict[str, float | str]:
    """Return the processor time of a command that only prints a list, as a measure of start-up."""
    seconds = statistics.median(processor_seconds([sys.executable, "-m", module, *words]) for _ in range(ROUNDS + 1))
    return {"work": f"{module} {' '.join(words)}", "ours_s": seconds}


def pandas_loop() -> None:
    draws = np.random.RandomState(0)
    table = pd.DataFrame(draws.rand(N_IMAGES, len(CHEXLOCALIZE_FINDINGS)))
    for _ in range(N_RESAMPLES):
        table.iloc[draws.choice(N_IMAGES, N_IMAGES)].mean()


def write(folder: Path, predictions: list, references: list) -> None:
    """Write a dataset folder of 668 images and 1,534 questions, and two prediction files."""
    packed = pack_masks(references)
    areas, boxes = packed.areas.tolist(), packed.boxes_xywh().tolist()
    questions = [(k % N_IMAGES, k // N_IMAGES) for k in range(len(references))]
    by_image: dict[int, list[Annotation]] = {i: [] for i in range(N_IMAGES)}
    lines: dict[str, list[str]] = {"masks and points": [], "masks alone": []}
    for k, (i, j) in enumerate(questions):
        finding = CHEXLOCALIZE_FINDINGS[j]
        box = tuple(boxes[k])
        by_image[i].append(Annotation(finding, "ground_truth", references[k], (), box, 1, areas[k]))  # type: ignore[arg-type]
        rle = {"size": [HEIGHT, WIDTH], "counts": predictions[k].counts}
        line = {"image_id": f"i{i}", "finding": finding, "rle": rle}
        lines["masks alone"].append(json.dumps(line))
        lines["masks and points"].append(json.dumps({**line, "point": [WIDTH // 2, HEIGHT // 2]}))
    records = [frontal_image(i, f"p{i * 500 // N_IMAGES}", annotations) for i, annotations in by_image.items()]
    build_folder(
        {"test": iter(records)}, folder / "data", BENCHMARKS["chexlocalize"], pixels="withhold", synthetic=True
    )
    for kind, text in lines.items():
        (folder / f"{kind}.jsonl").write_text("\n".join(text) + "\n")


def command_seconds(folder: Path, kind: str) -> float:
    """Return the processor time of one run of the command."""
    words = ["score", str(folder / f"{kind}.jsonl"), str(folder / "data"), "--split", "test"]
    return processor_seconds([sys.executable, "-c", "from reveal_bench.cli import main; main()", *words])


def processor_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
