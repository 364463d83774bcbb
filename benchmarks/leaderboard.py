"""Time upload to score on a leaderboard, against local ``reveal-bench score`` on the same file.

The holdout has size L (668 images of 2320 x 2828 pixels, about 1,534 questions). A server and a worker run on loopback,
and every uploaded file is different. Uploads and commands alternate. Wall time is measured, because an upload consists
of processes that wait for each other. The ratio is command over upload, so the goal of 0.33 allows three times the
command's time. The first round is ignored because it may compile kernels.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from localization import HEIGHT, WIDTH, frontal_image, make_pairs  # in this folder

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord, read_localization
from reveal_bench.masks import Rle, pack_masks

BENCHMARK = "chexlocalize"
N_IMAGES, N_PATIENTS, ROUNDS = 668, 500, 7
START_SECONDS = 180
PLENTY = "[quota]\ntotal = 1000\nper_day = 1000\nboard_total = 1000000\n"
PLENTY += '[exposure]\naccepted_leaks = ["more submissions", "few cases"]\n[release]\nplace_cell = 50\n'


class Board:
    """Folders of a benchmark below `root`: public, private, and one with all references for local scoring."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.public, self.private, self.home = root / "public", root / "private" / "holdout", root / "home"
        self.settings = root / "settings.toml"
        self.settings.write_text(PLENTY, encoding="utf-8")
        self._predictions, references = make_pairs()
        kind = BENCHMARKS[BENCHMARK]
        build_folder(
            {"test": _records(references)}, self.public, kind, pixels="withhold", holdout=self.private, synthetic=True
        )
        records = read_localization(self.private, "holdout")
        build_folder({"test": iter(records)}, self.home, kind, pixels="withhold", synthetic=True)
        self._asked = [(record.image_id, a.finding) for record in records for a in record.annotations]

    def write(self, number: int, *, with_masks: bool = True) -> Path:
        """Return a prediction file whose points depend on `number`."""
        lines = []
        for k, (image_id, finding) in enumerate(self._asked):
            rle = self._predictions[k % len(self._predictions)]
            line = {"image_id": image_id, "finding": finding, "point": [(number * 7 + k) % WIDTH, HEIGHT // 2]}
            lines.append(
                json.dumps({**line, "rle": {"size": [HEIGHT, WIDTH], "counts": rle.counts}} if with_masks else line)
            )
        path = self.root / f"{number}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def _records(references: Sequence[Rle]) -> Iterator[LocalizationRecord]:
    """Return twice the images of size L, so that the holdout has size L."""
    packed = pack_masks(references)
    areas, boxes = packed.areas.tolist(), packed.boxes_xywh().tolist()
    for i in range(2 * N_IMAGES):
        annotations = []
        for k in range(i % N_IMAGES, len(references), N_IMAGES):
            finding, box = CHEXLOCALIZE_FINDINGS[k // N_IMAGES], tuple(boxes[k])
            annotations.append(Annotation(finding, "ground_truth", references[k], (), box, 1, areas[k]))
        yield frontal_image(i, f"p{i * N_PATIENTS // N_IMAGES}", annotations)


def metadata(model: str, organization: str) -> str:
    return json.dumps({"model": {"name": model}, "organization": organization, "kind": "cnn"})


@contextmanager
def program(words: Sequence[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``python -m reveal_leaderboard WORDS`` until the block ends."""
    command = [sys.executable, "-m", "reveal_leaderboard", *map(str, words)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def running(
    board: Board, *, workers: int = 1, options: Sequence[object] = ()
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Run a server and workers; yield the address and the processes, the server first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    shared = ["--data", board.root / "data", "--settings", board.settings, *options]
    with ExitStack() as stack:
        serve = ["serve", *shared, "--benchmark", board.public, "--port", port]
        processes = [stack.enter_context(program(serve, board.root / "server.log"))]
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, processes[0], board.root / "server.log")
        work = ["worker", *shared, "--holdout", f"{BENCHMARK}={board.private}"]
        processes += [stack.enter_context(program(work, board.root / f"worker{n}.log")) for n in range(workers)]
        yield url, processes


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


def upload_seconds(url: str, path: Path, model: str, team: str = "Example Laboratory") -> tuple[float, float]:
    """Return the seconds until an upload is acknowledged, and until it is scored."""
    start = time.perf_counter()
    with path.open("rb") as file:
        form = {"benchmark": BENCHMARK, "metadata": metadata(model, team)}
        answer = httpx.post(f"{url}/api/v1/submissions", data=form, files={"file": (path.name, file)}, timeout=120)
    answer.raise_for_status()
    acknowledged = time.perf_counter() - start
    address = f"{url}/api/v1/submissions/{answer.json()['id']}"
    with httpx.Client(timeout=60) as client:
        while (status := client.get(address).json()["status"]) != "scored":
            if status in ("refused", "failed"):
                raise RuntimeError(f"the submission was {status}")
            time.sleep(0.02)
    return acknowledged, time.perf_counter() - start


def command_seconds(path: Path, home: Path) -> float:
    code = "from reveal_bench.cli import main; main()"
    start = time.perf_counter()
    words = ["score", str(path), str(home), "--split", "test"]
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure() -> list[dict[str, float | str]]:
    with tempfile.TemporaryDirectory() as name:
        board = Board(Path(name))
        with running(board) as (url, _):
            rounds = []
            for number in range(ROUNDS + 1):
                path = board.write(number)
                rounds.append((command_seconds(path, board.home), *upload_seconds(url, path, f"Model {number}")))
    peer_s, acknowledged_s, ours_s = (statistics.median(times) for times in zip(*rounds[1:], strict=True))
    ratio = statistics.median(command / scored for command, _, scored in rounds[1:])
    work = "upload to score on a board, against the score command"
    row: dict[str, float | str] = {"work": work, "ratio": round(ratio, 2), "peer_s": peer_s, "ours_s": ours_s}
    return [{**row, "acknowledged_s": acknowledged_s, "load": round(os.getloadavg()[0], 1)}]


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
