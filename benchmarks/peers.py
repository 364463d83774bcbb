"""Time the IoU of ragged masks of size L, against other libraries that compare run lengths.

The peers are in a separate environment (``make .venv-coco/.installed``). A process there reads the run-length strings
of all 1,534 questions. For each library name that it receives, it replies with the processor seconds and the sum of
IoUs, which must equal the package's. pycocotools and libraries with the same interface compare dictionaries. Package
and peers are measured alternately, several times.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import orjson
import ragged  # in this folder

from reveal_bench.masks import Rle, pack_masks
from reveal_bench.metrics.localization import mask_iou

PEERS = ("pycocotools", "faster-coco-eval", "hotcoco", "rlemasklib")
PYTHON = Path(os.environ.get("REVEAL_COCO_PYTHON", ".venv-coco/bin/python"))

ASKED = """
import json, sys, time
import faster_coco_eval.core.mask, hotcoco.mask, pycocotools.mask, rlemasklib
with open(sys.argv[1], "rb") as file:
    pairs = json.load(file)
for pair in pairs:
    for mask in pair:
        mask["counts"] = mask["counts"].encode()
mirrors = {
    "pycocotools": pycocotools.mask, "faster-coco-eval": faster_coco_eval.core.mask, "hotcoco": hotcoco.mask
}
for line in sys.stdin:
    name = line.strip()
    before = time.process_time()
    if name in mirrors:
        iou = mirrors[name].iou
        total = sum(iou([a], [b], [0])[0][0] for a, b in pairs)
    else:
        total = sum(rlemasklib.iou(pair) for pair in pairs)
    print(time.process_time() - before, total, flush=True)
"""


def measure_in(folder: Path, predictions: list[Rle], references: list[Rle]) -> list[dict[str, float | str]]:
    pairs = [
        [{"size": list(mask.size), "counts": mask.counts} for mask in pair]
        for pair in zip(predictions, references, strict=True)
    ]
    (folder / "pairs.json").write_bytes(orjson.dumps(pairs))
    command = [str(PYTHON), "-c", ASKED, str(folder / "pairs.json")]
    total = 0.0

    def ours() -> None:
        nonlocal total
        total = float(np.sum(mask_iou(pack_masks(predictions), pack_masks(references), slice="all")))

    results = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in PEERS:
            times = []
            for _ in range(ragged.ROUNDS):
                process.stdin.write(f"{name}\n")
                process.stdin.flush()
                seconds, value = map(float, process.stdout.readline().split())
                times.append((seconds, ragged.cpu_seconds(ours)))
                assert abs(value - total) < 1e-6, (name, value, total)
            results.append(ragged.row(f"IoU of ragged masks, against {name}", times))
        process.stdin.close()
    return results


def measure() -> list[dict[str, float | str]]:
    with tempfile.TemporaryDirectory() as name:
        ragged.write(Path(name))
        return measure_in(Path(name), *ragged.questions(Path(name)))
