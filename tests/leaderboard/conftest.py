"""A small benchmark with one finding too rare to be shown, prediction files for it, and real servers and workers."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import httpx
import numpy as np
import pytest
import reveal_leaderboard.web  # noqa: F401 - before any test imports Gradio, which else writes type stubs
import uvicorn
from reveal_leaderboard.boards.catalogue import Published, read_published
from reveal_leaderboard.custody import Custody

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import (
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
    read_localization,
)
from reveal_bench.masks import encode_mask
from tests.conftest import annotate, made_once
from tests.leaderboard.databases import database_kind, database_url, empty_database_url, engine
from tests.leaderboard.forked import Forked, Process

__all__ = ["database_kind", "database_url", "empty_database_url", "engine"]

BENCHMARK = "chexlocalize"
RARE = "Pneumothorax"
PREVALENCE = dict.fromkeys(CHEXLOCALIZE_FINDINGS, 0.75) | {RARE: 0.1}
METADATA = {
    "model": {"name": "Phantom Pointer", "version": "0.1"},
    "organization": "Example Laboratory",
    "kind": "multimodal_llm",
    "prompt_style": "zero-shot",
}
WAIT_SECONDS = 240
ASKING = 0.3
"""Seconds between two questions to a server."""


@dataclass(frozen=True)
class Board:
    """A benchmark for a leaderboard: its public folder, and the private one in a folder of its own."""

    folder: Path
    holdout: Path

    @property
    def published(self) -> Published:
        return read_published(self.folder, "holdout")

    @property
    def manifest(self) -> ImageManifest:
        manifest = self.published.manifest
        assert isinstance(manifest, ImageManifest)
        return manifest

    @property
    def records(self) -> list[LocalizationRecord]:
        return read_localization(self.holdout, "holdout")


def make_records(n: int, seed: int) -> list[LocalizationRecord]:
    """Images of 64 x 48 pixels with squares for findings, three images to two patients."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(n):
        annotations = []
        for finding, prevalence in PREVALENCE.items():
            if rng.random() < prevalence:
                x, y, side = (int(v) for v in rng.integers(10, 22, 3))
                mask = np.zeros((48, 64), bool)
                mask[y : y + side, x : x + side] = True
                annotations.append(annotate(finding, mask))
        present = {annotation.finding for annotation in annotations}
        patient = f"patient{2 * i // 3:05d}"
        records.append(
            LocalizationRecord(
                image_id=f"{patient}_study1_view{i:03d}",
                patient_id=patient,
                study_id=f"{patient}_study1",
                view="FRONTAL",
                width=64,
                height=48,
                label_status={finding: int(finding in present) for finding in CHEXLOCALIZE_FINDINGS},
                annotations=tuple(annotations),
            )
        )
    return records


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Commands that run inside this process configure its log permanently: undo that, so that no later test is
    affected.
    """
    names = ("", "reveal_leaderboard", "uvicorn", "uvicorn.error", "uvicorn.access")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    logging.captureWarnings(False)
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """120 images of 80 patients, half of them held out. No test changes it."""

    def make(root: Path) -> None:
        build_folder(
            {"test": iter(make_records(120, seed=11))},
            root / "public",
            BENCHMARKS[BENCHMARK],
            pixels="withhold",
            holdout=root / "private" / "references-kept-here",
            seed=3,
            synthetic=True,
        )

    root = made_once(tmp_path_factory, "board", make)
    return Board(root / "public", root / "private" / "references-kept-here")


@pytest.fixture(scope="session")
def custody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Custody]:
    """Templates that serve all tests of this process: each takes seconds to start."""
    with Custody(tmp_path_factory.mktemp("custody")) as custody:
        yield custody


def guesses(manifest: ImageManifest, *, seed: int = 0, masks: bool = True) -> list[LocalizationPrediction]:
    """A square somewhere for every pair that is asked; only its centre without `masks`."""
    rng = np.random.default_rng(seed)
    predictions = []
    for image_id, finding in manifest.asked_pairs():
        x, y = (int(v) for v in rng.integers(8, 24, 2))
        mask = np.zeros((48, 64), bool)
        mask[y : y + 16, x : x + 16] = True
        guess = LocalizationPrediction(image_id, finding, points=((x + 8.0, y + 8.0),))
        predictions.append(replace(guess, mask=encode_mask(mask)) if masks else guess)
    return predictions


@cache
def good_lines(board: Board, seed: int, masks: bool) -> tuple[str, ...]:
    """The lines of a prediction file that passes the linter; most tests of a process want the same few."""
    return tuple(predictions_to_jsonl(guesses(board.manifest, seed=seed, masks=masks)).splitlines())


@pytest.fixture
def write_file(board: Board, tmp_path: Path) -> Callable[..., Path]:
    """Writes a prediction file that passes the linter, with broken lines put in if asked."""

    def write(
        name: str = "good.jsonl", *, seed: int = 0, masks: bool = True, broken: Mapping[int, str] | None = None
    ) -> Path:
        lines = list(good_lines(board, seed, masks))
        for number, line in (broken or {}).items():
            lines[number - 1] = line
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def at_once(work: Callable[[Any], Any], each: Sequence[Any]) -> list[Any]:
    """Run `work` on each item, in threads that start together; return the results. The first error is raised."""
    begin = Barrier(len(each))

    def run(one: Any) -> Any:
        begin.wait()
        return work(one)

    with ThreadPoolExecutor(len(each)) as pool:
        return list(pool.map(run, each))


@contextmanager
def serving(app: Any, port: int | None = None) -> Iterator[str]:
    """The address of an application that a thread of this process serves, until the end of the block."""
    port = port or free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def wait_until(condition: Callable[[], Any], *, seconds: float = WAIT_SECONDS, pause: float = 0.05) -> Any:
    """Poll `condition` until it is true, and return its value.

    Pauses grow with the time waited, up to `pause`: polling takes time from the server that is waited for.
    """
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, f"still not so after {seconds} s: {condition}"
        time.sleep(min(max(waited / 5, 0.02), pause))
    return answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    *arguments: str | Path, log: Path, start: Callable[[Sequence[str], Path], Process] = Forked
) -> Iterator[Process]:
    """``reveal-leaderboard ARGUMENTS`` until the block ends."""
    process = start([str(word) for word in arguments], log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(url: str, process: Process, log: Path) -> None:
    """Wait until a server answers. If it exits first, fail with its log."""

    def answers() -> bool:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/readyz", timeout=30, verify=False).status_code == 200
        return False

    wait_until(answers, pause=ASKING)


@dataclass
class Server:
    """A running server: its address, its data folder, its process and its log."""

    url: str
    data: Path
    process: Process
    log: Path
    board: Board

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=30, verify=False)  # reading certificates takes longer than the rest

    def post(self, file: Path, metadata: Mapping[str, Any] = METADATA, **options: Any) -> httpx.Response:
        fields = {"benchmark": BENCHMARK, "metadata": json.dumps(metadata), **options.pop("fields", {})}
        with file.open("rb") as stream:
            files = {"file": (file.name, stream)}
            where = self.url + "/api/v1/submissions"
            return httpx.post(where, data=fields, files=files, timeout=60, verify=False, **options)

    def worker(self, *options: str) -> AbstractContextManager[Process]:
        holdout = f"{BENCHMARK}={self.board.holdout}"
        arguments = ("worker", "--data", self.data, "--holdout", holdout, *options)
        return running(*arguments, log=self.log.with_name("worker.log"))

    def wait_scored(self, submission_id: str) -> dict[str, Any]:
        def final() -> dict[str, Any] | None:
            document: dict[str, Any] = self.get(f"/api/v1/submissions/{submission_id}").json()
            return document if document["status"] in ("scored", "refused", "failed") else None

        document: dict[str, Any] = wait_until(final, pause=ASKING)
        return document


ACCEPTED = 'accepted_leaks = ["more submissions", "few cases"]\n'
"""Line of the table [exposure] with which a server starts with the small boards of tests."""


@contextmanager
def serve(
    board: Board, root: Path, *options: str, start: Callable[[Sequence[str], Path], Process] = Forked
) -> Iterator[Server]:
    """The real server over `board`, with its data below `root`."""
    port, log, settings = free_port(), root / "server.log", root / "settings.toml"
    text = "[quota]\ntotal = 1000\nper_day = 1000\nboard_total = 1000\n[exposure]\nclose_bits = 1000.0\n"
    text += ACCEPTED
    settings.write_text(text, encoding="utf-8")
    where = ("--data", root / "data", "--settings", settings, "--port", str(port))
    arguments = ("serve", "--benchmark", board.folder, *where, *options)
    with running(*arguments, log=log, start=start) as process:
        server = Server(f"http://127.0.0.1:{port}", root / "data", process, log, board)
        wait_ready(server.url, process, log)
        yield server


@pytest.fixture(scope="module")
def server(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a module."""
    with serve(board, tmp_path_factory.mktemp("server")) as running_server:
        yield running_server
