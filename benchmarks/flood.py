"""Measure how visitors who compare delay scoring: 400 anonymous comparisons in 15 seconds beside an upload.

A board of size L as in ``leaderboard.py``, with six entries; rounds in turn without and with the flood, each the
seconds from upload to score of a file with points. The ratio is quiet by flooded: 0.83 is a delay of 20%, the promised
maximum. Client, server and worker share this machine.

    python benchmarks/flood.py
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, permutations
from pathlib import Path

import httpx

from leaderboard import BENCHMARK, Board, running, upload_seconds  # the benchmark beside this one

N_ENTRIES, ROUNDS = 6, 5
N_COMPARISONS, SECONDS, N_VISITORS = 400, 15.0, 4


@contextmanager
def flood(url: str, pairs: Sequence[tuple[str, str]], seconds: list[float]) -> Iterator[None]:
    """Ask for comparisons at that rate until the block ends, and note how long each took."""
    stop = threading.Event()

    def visit(own: Iterator[tuple[str, str]]) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            for a, b in own:
                start = time.perf_counter()
                client.get("/api/v1/compare", params={"a": a, "b": b}).raise_for_status()
                seconds.append(time.perf_counter() - start)
                if stop.wait(max(0.0, N_VISITORS * SECONDS / N_COMPARISONS - seconds[-1])):
                    return

    visitors = [
        threading.Thread(target=visit, args=(islice(cycle(pairs), k, None, N_VISITORS),)) for k in range(N_VISITORS)
    ]
    for visitor in visitors:
        visitor.start()
    try:
        yield
    finally:
        stop.set()
        for visitor in visitors:
            visitor.join()


def measure() -> dict[str, float | int]:
    with tempfile.TemporaryDirectory() as name:
        board = Board(Path(name))
        with running(board) as (url, _):
            for number in range(N_ENTRIES):
                upload_seconds(url, board.write(number, with_masks=False), "Model", f"Laboratory {number}")
            document = httpx.get(f"{url}/api/v1/leaderboard", params={"benchmark": BENCHMARK}).json()
            pairs = list(permutations([entry["submission_id"] for entry in document["entries"]], 2))
            quiet, flooded, asked = [], [], []
            for number in range(N_ENTRIES, N_ENTRIES + 2 * ROUNDS, 2):
                first, second = (board.write(number + k, with_masks=False) for k in (0, 1))
                quiet.append(upload_seconds(url, first, f"Model {number}")[1])
                with flood(url, pairs, asked):
                    time.sleep(1)
                    flooded.append(upload_seconds(url, second, f"Model {number + 1}")[1])
    asked.sort()
    return {
        "quiet_s": round(statistics.median(quiet), 2),
        "flooded_s": round(statistics.median(flooded), 2),
        "ratio": round(statistics.median(quiet) / statistics.median(flooded), 2),
        "comparisons": len(asked),
        "comparison_p95_s": round(asked[int(0.95 * len(asked))], 3),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
