"""Build 10,000 studies by the process pool and by datatrove tasks, kill one worker, and check that the bytes are equal.

    python benchmarks/scale.py [--studies 10000] [--workers 4] [--long-side 128] [--task-size 256] [--download FOLDER]

A phantom of DICOM studies (REVEAL-CXR's layout) is drawn once and built three times, each in a separate process: by the
pool; by tasks, one of which is killed with SIGKILL while running; and by repeating the second command, which finds
everything done. Then the folder is validated by the pool and by tasks. The script prints, and writes to ``scale.json``
in this folder, the seconds, studies per second and processor seconds of each run, the memory of the largest process,
written bytes, and how often each task was started. Finally, 10,000 and 100,000 studies without images are built by
tasks, to measure the main process's time per study, which does not depend on the number of machines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread
from typing import Any

HERE = Path(__file__).parent
COMMAND = "from reveal_bench.cli import main; main()"


def run(*words: object, meanwhile: Any = None) -> dict[str, float]:
    """Run a command of reveal-bench; return its cost."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    if meanwhile is not None:
        meanwhile()
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, words
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "largest_mib": round(used.ru_maxrss / 1024)}


def tree(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def size_mb(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


class Killer:
    """Kill the process of the first task that starts once half of the tasks are done."""

    def __init__(self, storage: Path, n_tasks: int) -> None:
        self.stage, self.n_tasks, self.killed, self.is_over = storage / "rows-test", n_tasks, "", Event()

    def watch(self) -> None:
        Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.killed and not self.is_over.wait(0.02):
            done = {path.stem for path in (self.stage / "done").glob("*.json")}
            at_work = [path.name for path in (self.stage / "starts").glob("*") if path.name[:5] not in done]
            if len(done) >= self.n_tasks // 2 and at_work:
                time.sleep(0.5)  # let the task process some of its studies
                process = at_work[0].split("-")[-2]
                os.kill(int(process), signal.SIGKILL)
                began = [path.name.split("-") for path in (self.stage / "starts").glob(f"*-{process}-*")]
                self.killed = max(began, key=lambda parts: int(parts[-1]))[
                    0
                ]  # the process may already have started its next task


def measure(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    download, key = options.download or root / "download", root / "key"
    if options.download is None:
        run("phantom", download, "--style", "reveal-cxr", "--images", options.studies, "--long-side", options.long_side)
    pool, out, storage = root / "pool", root / "out", root / "storage"
    build = ("build", download, "--id-key", key, "--holdout-fraction", "0.5", "--workers", options.workers)
    tasks = ("--engine", "datatrove", "--storage", storage, "--task-size", options.task_size)
    n_tasks = -(-options.studies // options.task_size)
    result: dict[str, Any] = {"studies": options.studies, "workers": options.workers, "task_size": options.task_size}
    result["pool"] = run(*build, "--out", pool, "--holdout", root / "pool-private")
    killer = Killer(storage, n_tasks)
    by_tasks = (*build, "--out", out, "--holdout", root / "out-private", *tasks)
    result["datatrove, one killed"] = run(*by_tasks, meanwhile=killer.watch)
    killer.is_over.set()
    starts = Counter(path.name[:5] for path in (storage / "rows-test" / "starts").glob("*"))
    result["tasks"] = len(starts)
    result["tasks started twice"] = sorted(name for name, n in starts.items() if n > 1)
    result["task killed"] = killer.killed
    same = [tree(root / f"pool{end}") == tree(root / f"out{end}") for end in ("", "-private")]
    result["equal bytes"] = all(same)
    result["again"] = run(*by_tasks, "--overwrite")
    again = Counter(path.name[:5] for path in (storage / "rows-test" / "starts").glob("*"))
    result["tasks started again"] = again.total() - starts.total()
    check = ("validate", out, "--holdout", root / "out-private", "--no-load")
    result["validate, pool"] = run(*check)
    result["validate, datatrove"] = run(*check, "--engine", "datatrove", "--workers", options.workers)
    result["mb"] = {
        name: size_mb(path) for name, path in (("download", download), ("folder", out), ("storage", storage))
    }
    for what in ("pool", "datatrove, one killed"):
        result[what]["studies_per_second"] = round(options.studies / result[what]["seconds"], 1)
    return result


def rows_alone(n: int) -> dict[str, float]:
    """Build studies without images by tasks, in a separate process, to measure the cost per study."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, "--rows-alone", str(n)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return {"seconds": round(time.perf_counter() - start, 1), "largest_mib": round(used.ru_maxrss / 1024)}


def build_rows(n: int) -> None:
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_bench.dataset.build import build_folder
    from reveal_bench.kinds.findings.records import StudyRecord
    from reveal_bench.kinds.images import StudyImage
    from reveal_bench.scale.build import TaskBuild
    from reveal_bench.scale.engine import TaskEngine

    benchmark = BENCHMARKS["reveal-cxr"]

    def records() -> Any:
        for i in range(n):
            image = StudyImage(f"image-{i}", "AP", 20, 24)
            yield StudyRecord(
                f"study-{i}", f"patient-{i // 2}", (benchmark.findings[i % 12],), "two_of_three", (image,)
            )

    with tempfile.TemporaryDirectory() as name, TaskEngine(f"{name}/tasks", work="rows", workers=2) as tasks:
        splits = {"test": records()}
        build_folder(splits, Path(name) / "out", benchmark, pixels="withhold", synthetic=True, engine=TaskBuild(tasks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--task-size", type=int, default=256)
    parser.add_argument("--long-side", type=int, default=128)
    parser.add_argument("--download", type=Path, help="existing phantom download with this many studies")
    parser.add_argument("--rows-alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rows_alone is not None:
        build_rows(options.rows_alone)
        return
    root = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        result = measure(options, root)
    finally:
        shutil.rmtree(root)
    result["rows alone"] = {str(n): rows_alone(n) for n in (options.studies, 10 * options.studies)}
    result["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
    text = json.dumps(result, indent=2)
    print(text)
    (HERE / "scale.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
