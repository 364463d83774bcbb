"""Load a leaderboard as on a busy day, with steady submissions and many visitors, and check that no submission is lost.

For five minutes, teams send 60 submissions a minute, all different, to a board of size L (668 images, about 1,534
questions). Meanwhile, 50 visitors request the board's page, the board as JSON and the state of a submission in turn,
with a pause of two seconds after each response. Client, server and worker share this machine, over loopback. The script
then waits until the queue is empty; every acknowledged submission must have been scored.

    python benchmarks/load.py [--minutes 5] [--rate 60] [--viewers 50] [--workers 1] [--postgresql] [--masks]

Files have a point per question, and also a mask with `--masks`. `--postgresql` starts a separate PostgreSQL server in a
temporary folder. The script prints, and writes to ``load.json`` in this folder, the seconds to acknowledgement, to the
score and for visitors' requests (median and 95th percentile), and memory and number of busy processors of each process
tree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from leaderboard import BENCHMARK, Board, metadata, running  # in this folder

HERE = Path(__file__).parent
N_TEAMS = 12
VIEWER_PAUSE = 2.0
DRAIN_SECONDS = 900.0
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Log:
    """Measurements: seconds by type of request, times of submissions, failures and memory."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    scored: dict[str, float] = field(default_factory=dict)
    other_ends: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    peak_mib: dict[str, float] = field(default_factory=dict)

    def note(self, kind: str, start: float) -> None:
        self.seconds.setdefault(kind, []).append(time.perf_counter() - start)


async def submit(client: httpx.AsyncClient, path: Path, number: int, log: Log) -> None:
    content = path.read_bytes()
    path.unlink()
    start = time.perf_counter()
    form = {"benchmark": BENCHMARK, "metadata": metadata(f"Model {number}", f"Laboratory {number % N_TEAMS}")}
    try:
        answer = await client.post("/api/v1/submissions", data=form, files={"file": (path.name, content)}, timeout=120)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        log.failures.append(f"submission {number}: {error!r}"[:300])
        return
    log.note("acknowledged", start)
    log.sent[answer.json()["id"]] = start


async def view(client: httpx.AsyncClient, log: Log, stop: asyncio.Event) -> None:
    for kind in cycle(("page", "board", "status")):
        known = list(log.sent)
        path = {
            "page": "/",
            "board": f"/api/v1/leaderboard?benchmark={BENCHMARK}",
            "status": f"/api/v1/submissions/{known[-1]}" if known else "/api/v1/benchmarks",
        }[kind]
        start = time.perf_counter()
        try:
            (await client.get(path, timeout=60)).raise_for_status()
            log.note(f"viewer's {kind}", start)
        except httpx.HTTPError as error:
            log.failures.append(f"{kind}: {error!r}"[:300])
        try:
            await asyncio.wait_for(stop.wait(), VIEWER_PAUSE)
            return
        except TimeoutError:
            continue


async def follow(client: httpx.AsyncClient, log: Log, stop: asyncio.Event) -> None:
    """Poll the oldest unfinished submission, and record when it is finished."""
    while not stop.is_set():
        open_ones = [name for name in log.sent if name not in log.scored][:3]
        for name in open_ones:
            try:
                status = (await client.get(f"/api/v1/submissions/{name}", timeout=60)).json()["status"]
            except httpx.HTTPError:
                continue
            if status in ("scored", "refused", "failed", "withdrawn"):
                log.scored[name] = time.perf_counter()
                log.other_ends += [] if status == "scored" else [f"{name} {status}"]
        await asyncio.sleep(0.1 if open_ones else 0.3)


async def watch(trees: dict[str, int], log: Log, stop: asyncio.Event) -> None:
    """Record the maximum memory of each process tree."""
    while not stop.is_set():
        for name, root in trees.items():
            log.peak_mib[name] = max(log.peak_mib.get(name, 0.0), memory_mib(root))
        await asyncio.sleep(2)


def descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(place.read_text().rpartition(")")[2].split()[1]), []).append(int(place.parent.name))
        except OSError:
            continue
    processes, new = [root], [root]
    while new:
        new = [child for parent in new for child in parents.get(parent, [])]
        processes += new
    return processes


def memory_mib(root: int) -> float:
    """Return the memory of a process tree, counting shared memory once (proportional set size)."""
    total = 0
    for process in descendants(root):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return total / 1024


def processor_seconds(root: int) -> float:
    """Return the processor time of a process tree, including finished children."""
    total = 0
    for process in descendants(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(fields[k]) for k in (11, 12, 13, 14))
    return total / TICK


async def run(url: str, board: Board, trees: dict[str, int], options: argparse.Namespace) -> Log:
    log, stop = Log(), asyncio.Event()
    limits = httpx.Limits(max_connections=options.viewers + 40)
    async with httpx.AsyncClient(base_url=url, limits=limits) as client:
        tasks = [asyncio.create_task(view(client, log, stop)) for _ in range(options.viewers)]
        tasks += [asyncio.create_task(follow(client, log, stop)), asyncio.create_task(watch(trees, log, stop))]
        pace, n = 60 / options.rate, round(options.minutes * options.rate)
        begin, sending = time.perf_counter(), []
        for number in range(n):
            path = await asyncio.to_thread(board.write, number, with_masks=options.masks)
            await asyncio.sleep(max(0.0, begin + number * pace - time.perf_counter()))
            sending.append(asyncio.create_task(submit(client, path, number, log)))
        await asyncio.gather(*sending)
        deadline = time.perf_counter() + DRAIN_SECONDS
        while len(log.scored) < len(log.sent) and time.perf_counter() < deadline:
            await asyncio.sleep(0.5)
        stop.set()
        await asyncio.gather(*tasks)
    return log


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile of durations in seconds."""
    ordered = sorted(values)
    at = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"n": len(ordered), "p50": round(statistics.median(ordered), 3), "p95": round(at, 3)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        board = Board(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        database = stack.enter_context(postgresql()) if options.postgresql else None
        words = ["--database", database] if database else []
        url, processes = stack.enter_context(running(board, workers=options.workers, options=words))
        names = ["server", *(f"worker {n}" for n in range(1, options.workers + 1))]
        trees = {name: process.pid for name, process in zip(names, processes, strict=True)}
        used = {name: processor_seconds(pid) for name, pid in trees.items()}
        own, start, load = time.process_time(), time.perf_counter(), os.getloadavg()[0]
        log = asyncio.run(run(url, board, trees, options))
        wall = time.perf_counter() - start
        used = {name: processor_seconds(pid) - used[name] for name, pid in trees.items()} | {
            "client": time.process_time() - own
        }
    return {
        "options": vars(options),
        "sent": len(log.sent),
        "scored": len(log.scored) - len(log.other_ends),
        "lost": len(log.sent) - len(log.scored),
        "ended otherwise": log.other_ends,
        "failures": {"n": len(log.failures), "first": log.failures[:5]},
        "seconds": {
            **{kind: spread(values) for kind, values in log.seconds.items()},
            "viewers": spread([s for kind, values in log.seconds.items() if "viewer" in kind for s in values]),
            "scored": spread([log.scored[name] - log.sent[name] for name in log.scored]),
        },
        "peak MiB": {name: round(value) for name, value in log.peak_mib.items()},
        "processors busy": {name: round(seconds / wall, 2) for name, seconds in used.items()},
        "processors": os.cpu_count(),
        "wall seconds": round(wall),
        "load average": {"before": round(load, 1), "after": round(os.getloadavg()[0], 1)},
    }


def postgresql() -> Any:
    """Run a separate PostgreSQL server that syncs to disk, as by default; yield the URL of an empty database."""
    from contextlib import contextmanager

    sys.path.insert(0, str(HERE.parent))
    from tests.leaderboard.databases import PostgreSQL

    @contextmanager
    def started() -> Any:
        server = PostgreSQL(durable=True)
        try:
            yield server.url(server.create())
        finally:
            server.remove()

    return started()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rate", type=float, default=60, help="submissions a minute")
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--masks", action="store_true")
    options = parser.parse_args()
    document = measure(options)
    print(json.dumps(document, indent=2))
    path = HERE / "load.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    name = f"{'PostgreSQL' if options.postgresql else 'SQLite'}, workers: {options.workers}"
    name += ", with masks" if options.masks else ""
    path.write_text(json.dumps({**known, name: document}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
