"""Time reading a split back: ``load_dataset`` and iterating without decoding, against pyarrow alone on the same files.

200 radiographs of 1 MB embedded in a folder as `build_folder` writes it. The ratio is peer by ours, so 0.83 is the goal
of 1.2 times pyarrow's time; the first load, which `datasets` spends on its cache, is reported separately.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from localization import cpu_seconds  # the benchmark beside this one

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.localization.records import LocalizationRecord

N_IMAGES, IMAGE_BYTES, ROUNDS = 200, 1 << 20, 5


def write_folder(folder: Path) -> None:
    benchmark = BENCHMARKS["chexlocalize"]
    rng = np.random.default_rng(0)
    status = dict.fromkeys(benchmark.findings, 0)
    records = (
        LocalizationRecord(
            f"image{i}", f"p{i}", f"s{i}", "AP", 64, 64, status, image=rng.bytes(IMAGE_BYTES), image_name=f"{i}.jpg"
        )
        for i in range(N_IMAGES)
    )
    build_folder({"test": records}, folder, benchmark, synthetic=True)


def measure() -> list[dict[str, float | str]]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as place:
        folder, cache = Path(place) / "folder", Path(place) / "cache"
        write_folder(folder)
        shards = sorted((folder / "localization").glob("*.parquet"))

        def peer() -> None:
            n_bytes = 0
            for shard in shards:
                for batch in pq.ParquetFile(shard).iter_batches(batch_size=16):
                    n_bytes += sum(len(row["image"]["bytes"]) for row in batch.to_pylist())
            assert n_bytes == N_IMAGES * IMAGE_BYTES

        def ours() -> None:
            loaded = datasets.load_dataset(str(folder), "localization", split="test", cache_dir=str(cache))
            loaded = loaded.cast_column("image", datasets.Image(decode=False))
            assert sum(len(row["image"]["bytes"]) for row in loaded) == N_IMAGES * IMAGE_BYTES

        first = cpu_seconds(ours)
        peer()
        times = [(cpu_seconds(peer), cpu_seconds(ours)) for _ in range(ROUNDS)]
    ratio = statistics.median(p / o for p, o in times)
    work = f"reading {N_IMAGES} MB of images back with load_dataset"
    return [{"work": work, "ratio": round(ratio, 2), "ours_s": times[0][1], "first_load_s": first}]
