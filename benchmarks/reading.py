"""Time loading a split with ``load_dataset`` and iterating without decoding, against pyarrow on the same files.

The folder has 200 embedded radiographs of 1 MB, as written by `build_folder`. The ratio is pyarrow's time over ours, so
the goal of 0.83 allows 1.2 times pyarrow's time. The first load, which builds the cache of `datasets`, is reported
separately.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from localization import cpu_seconds  # in this folder

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
