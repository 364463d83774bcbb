"""Measure how much floods of comparisons, or of held connections, delay scoring and other requests on a leaderboard.

Without an argument: 400 anonymous comparisons in 15 seconds beside an upload.

The board has size L as in ``leaderboard.py``, and six entries. Rounds alternate without and with the flood; each
measures the seconds from upload to score of a file with points. The ratio is time without flood over time with flood:
0.83 is a delay of 20%, the allowed maximum. Client, server and worker share this machine.

With a number of seconds: during this time, 1,500 clients hold connections with half-sent headers, bodies that arrive
byte by byte, unread responses, or open event streams. A visitor requests the list of benchmarks once a second. The
script reports the longest response time, failed requests and the growth of the log, for each kind of client in turn.

    python benchmarks/flood.py
    python benchmarks/flood.py 60
"""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, permutations
from pathlib import Path

import httpx

from leaderboard import BENCHMARK, Board, running, upload_seconds  # in this folder

N_ENTRIES, ROUNDS = 6, 5
N_COMPARISONS, SECONDS, N_VISITORS = 400, 15.0, 4


@contextmanager
def flood(url: str, pairs: Sequence[tuple[str, str]], seconds: list[float]) -> Iterator[None]:
    """Request comparisons at this rate until the block ends, and record their durations."""
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


N_HELD = 1500
HEADERS = "Host: 127.0.0.1\r\n"
HOLDING = {
    "half-sent headers": f"GET / HTTP/1.1\r\n{HEADERS}X-Next: ",
    "slow bodies": f"POST /api/v1/lint HTTP/1.1\r\n{HEADERS}Content-Length: 100000\r\n\r\n",
    "unread answers": f"GET /api/v1/openapi.json HTTP/1.1\r\n{HEADERS}\r\n" * 2,
    "event streams": f"GET /gradio_api/queue/data?session_hash=aaaaaa HTTP/1.1\r\n{HEADERS}\r\n",
}
"""First bytes that each client sends. Afterwards, it sends one byte per second and reads nothing."""


def hold(url: str, sent: str, seconds: float) -> dict[str, float | int]:
    """Hold connections open for `seconds`, replacing those that the server closes, and send a request once a second."""
    address = httpx.URL(url)
    held: list[socket.socket] = []
    n_failed, longest, end = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        while len(held) < N_HELD:
            client = socket.create_connection((address.host, address.port or 80), 10)
            client.setblocking(False)
            client.send(sent.encode())
            held.append(client)
        start = time.perf_counter()
        try:
            httpx.get(f"{url}/api/v1/benchmarks", timeout=10).raise_for_status()
        except httpx.HTTPError:
            n_failed += 1
        longest = max(longest, time.perf_counter() - start)
        time.sleep(1)
        held = [
            client for client in held if _drip(client, is_complete=sent.startswith("GET") and sent.endswith("\r\n\r\n"))
        ]
    for client in held:
        client.close()
    return {"longest_s": round(longest, 2), "failed": n_failed}


def _drip(client: socket.socket, *, is_complete: bool) -> bool:
    """Send one more byte unless the request is complete; return False if the server has closed the connection."""
    try:
        if not is_complete:
            client.send(b"a")
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        client.close()
        return False


def measure_held(seconds: float) -> dict[str, dict[str, float | int]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, N_HELD + 500)), hard))
    results = {}
    with tempfile.TemporaryDirectory() as name:
        board = Board(Path(name))
        with running(board, workers=0) as (url, _):
            log = board.root / "server.log"
            for kind, sent in HOLDING.items():
                before = log.stat().st_size
                results[kind] = hold(url, sent, seconds) | {"log_bytes": log.stat().st_size - before}
    return results


if __name__ == "__main__":
    print(json.dumps(measure_held(float(sys.argv[1])) if len(sys.argv) > 1 else measure(), indent=2))
