"""The whole product on synthetic data, on this machine: what ``make demo`` runs.

A synthetic CheXlocalize download becomes a public dataset folder and a private holdout; three models of graded quality
and two baselines predict both halves; their files are scored at home on the released half, and uploaded to a board
whose worker alone knows the holdout. A second dataset, of studies, is built from DICOM files
(:mod:`reveal_leaderboard.demo_studies`). Everything lies in one folder and is made again only when it is missing.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from reveal_bench import client
from reveal_bench.baselines import chance_baseline, fit_location_prior, location_prior_baseline
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.builders import BUILDERS
from reveal_bench.builders.folder import build_folder
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.phantom import model_predictions, write_chexlocalize
from reveal_bench.predictions import predictions_to_jsonl
from reveal_bench.records import LocalizationPrediction, read_localization, read_manifest
from reveal_bench.score_file import score_file
from reveal_leaderboard.demo_studies import STUDIES, prepare_studies, score_studies_at_home

__all__ = ["Demo", "Entrant", "heed_signals"]

BENCHMARK = "chexlocalize"
MARKER = "reveal-demo.json"
START_SECONDS = 120
Say = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """Somebody who submits: `quality` from 0 (blind) to 1 (as good as a reader), None for a baseline."""

    name: str
    kind: str
    quality: float | None
    gives: Literal["cell", "mask", "all"] = "all"

    @property
    def stem(self) -> str:
        """Its file name without ending."""
        return self.name.lower().replace(" ", "-")


ENTRANTS = (
    Entrant("Phantom Net L", "cnn", 0.9),
    Entrant("Phantom Net S", "saliency", 0.55),
    Entrant("Phantom Chat", "multimodal_llm", 0.3, "cell"),
    Entrant("Location prior", "other", None),
    Entrant("Chance", "other", None),
)


class Demo:
    """The demonstration in `root`.

    Parameters
    ----------
    root : folder of everything; made if missing
    n_images : images of the synthetic test split; half of their patients are held out
    say : called with each line for the user
    """

    def __init__(self, root: Path, *, n_images: int, seed: int, say: Say) -> None:
        self.root, self.n_images, self.seed, self.say = root.resolve(), n_images, seed, say
        self.download, self.public = self.root / "download", self.root / "public"
        self.private, self.server = self.root / "private", self.root / "server"
        self.holdout, self.studies = self.private / "holdout", self.root / "studies"
        self.n_studies = max(n_images // 2, 20)
        self.predictions = self.root / "predictions"
        self.children: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Make the world, the dataset and the prediction files, unless they are there already.

        Raises
        ------
        ValueError
            If `root` holds something else, or a demo of another size or seed.
        """
        wanted = {"n_images": self.n_images, "seed": self.seed}
        marker = self.root / MARKER
        if marker.exists():
            made = json.loads(marker.read_text(encoding="utf-8"))
            if made == {}:
                self.say("the demo that is there was interrupted: making it again")
                self.remove()
                return self.prepare()
            if made != wanted:
                raise ValueError(f"{self.root} holds a demo made with {made}, not {wanted}: use --fresh to replace it")
            self.say(f"using the world in {self.root} (--fresh makes a new one)")
            return None
        if self.root.exists() and any(self.root.iterdir()):
            raise ValueError(f"{self.root} is not empty and holds no finished demo: use --fresh to replace it")
        self.root.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}", encoding="utf-8")
        self.say(f"1  drawing {self.n_images} synthetic radiographs with masks and readers")
        write_chexlocalize(self.download, n_images=self.n_images, n_val=40, seed=self.seed, long_side=512)
        self.say("2  building the dataset: released half, and the private half apart")
        self._build()
        self.say("3  predicting both halves: three models, two baselines")
        for split in ("released", "holdout"):
            self._predict(split)
        self.say(f"   and {self.n_studies} studies of DICOM files with labels, built and predicted in the same way")
        prepare_studies(self.studies, n_studies=self.n_studies, seed=self.seed, private=self.private / STUDIES)
        marker.write_text(json.dumps(wanted), encoding="utf-8")
        return None

    def remove(self) -> None:
        """Delete the demo's folder.

        Raises
        ------
        ValueError
            If it does not look like one.
        """
        known = {MARKER, "download", "public", "private", "server", "predictions", "studies", "log.txt"}
        strangers = sorted({path.name for path in self.root.iterdir()} - known) if self.root.exists() else []
        if strangers:
            raise ValueError(f"{self.root} does not look like a demo (it holds {strangers[0]}): not deleted")
        shutil.rmtree(self.root, ignore_errors=True)

    def _build(self) -> None:
        reading = BUILDERS[BENCHMARK].read(self.download, pixels="embed", keep_going=False)
        build_folder(
            reading.splits, self.public, BENCHMARKS[BENCHMARK], holdout=self.holdout, seed=self.seed, synthetic=True
        )

    def _predict(self, split: str) -> None:
        manifest = read_manifest(self.public, split)
        truth = read_localization(self.holdout if split == "holdout" else self.public, split)
        released = read_localization(self.public, "released")
        for k, entrant in enumerate(ENTRANTS):
            made: Sequence[LocalizationPrediction]
            if entrant.quality is not None:
                made = model_predictions(
                    truth, manifest, quality=entrant.quality, kind=entrant.gives, seed=self.seed + k
                )
            elif entrant.name == "Chance":
                made = chance_baseline(manifest, seed=self.seed)
            else:
                made = location_prior_baseline(manifest, fit_location_prior(released, manifest.findings))
            folder = self.predictions / entrant.stem
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{split}.jsonl").write_text(predictions_to_jsonl(made), encoding="utf-8")
            (folder / "submission.json").write_text(json.dumps(_metadata(entrant), indent=2), encoding="utf-8")

    def score_at_home(self) -> None:
        """Score every file on the released half, as its author would."""
        self.say("4  scoring at home on the released half: macro hit rate with its 95 % interval")
        for entrant in ENTRANTS:
            scored = score_file(self.predictions / entrant.stem / "released.jsonl", self.public, "released")
            (macro,) = [e for e in scored.estimates if (e.metric, e.finding) == ("point_hit", MACRO)]
            interval = f"{100 * macro.low:.1f} to {100 * macro.high:.1f}"
            self.say(f"     {entrant.name:<16} {100 * macro.value:5.1f} %  ({interval})")
        self.say("   and the studies: macro AUROC")
        score_studies_at_home(self.studies, self.say)

    def upload(self, url: str) -> None:
        """Send every file for the holdout by the API, and wait for its score."""
        self.say("6  uploading the files for the holdout")
        for entrant in ENTRANTS:
            folder = self.predictions / entrant.stem
            metadata = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
            sent = client.submit(folder / "holdout.jsonl", url=url, benchmark=BENCHMARK, metadata=metadata)
            *_, final = client.follow(sent["id"], url=url)
            self.say(f"     {entrant.name:<16} {final['status']}")

    def show_board(self, url: str) -> None:
        """Print the board as the API gives it."""
        board = client.leaderboard(url=url, benchmark=BENCHMARK)
        self.say(f"7  the board ({board['benchmark']} {board['version']}), macro over the findings shown")
        for row in board["entries"]:
            figure = next((f for f in row["figures"] if (f["metric"], f["finding"]) == ("point_hit", MACRO)), None)
            shown = "not shown" if figure is None else (
                f"{100 * figure['value']:3.0f} %  ({100 * figure['low']:.0f} to {100 * figure['high']:.0f})"
            )  # fmt: skip
            self.say(f"     {row['rank'] or '-':>2}  {row['model']:<16} {shown}")

    def say_what_next(self, url: str) -> None:
        """Tell where to look, and what to try."""
        file = self.predictions / "phantom-chat" / "holdout.jsonl"
        self.say(f"""
The board is at  {url}
Try next:
  - break a line of {file}
    and drop the file on {url}/submit: the linter names line, field and value
  - reveal-bench score {self.predictions / "phantom-chat" / "released.jsonl"} {self.public}
  - reveal-bench report {self.studies / "public"} --out report.html
  - python -c "from datasets import load_dataset; print(load_dataset('{self.public}', split='released'))"
Ctrl-C ends the server and the worker; running this again takes a few seconds.""")

    def watch(self) -> None:
        """Wait until the server or the worker ends, which they should not.

        Raises
        ------
        RuntimeError
            When one of them has.
        """
        while all(child.poll() is None for child in self.children):
            time.sleep(1)
        raise RuntimeError(f"the server or the worker ended by itself; see {self.root / 'log.txt'}")

    @contextmanager
    def running(self, port: int) -> Iterator[str]:
        """Server and worker as processes of their own; yields the address, ends both."""
        port = port if _is_free(port) else _free_port()
        url = f"http://127.0.0.1:{port}"
        self.server.mkdir(parents=True, exist_ok=True)
        commands = (
            ["serve", "--data", self.server, "--benchmark", self.public, "--port", port],
            ["worker", "--data", self.server, "--holdout", f"{BENCHMARK}={self.holdout}"],
        )
        self.say("5  starting the server, which cannot open the holdout, and the worker, which can")
        log = (self.root / "log.txt").open("ab")  # not in the server's folder: it may name the holdout's path
        children = [_start(command, log) for command in commands]
        self.children = children
        try:
            _wait_until_ready(url, children, Path(log.name))
            yield url
        finally:
            for child in children:
                child.terminate()
            for child in children:
                try:
                    child.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    child.kill()
            log.close()


def _metadata(entrant: Entrant) -> dict[str, object]:
    style = "zero-shot" if entrant.kind == "multimodal_llm" else None
    return {
        "model": {"name": entrant.name, "version": "1"},
        "organization": "reveal-bench demo",
        "kind": entrant.kind,
        **({"prompt_style": style} if style else {}),
    }


def _start(command: Sequence[object], log: object) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "reveal_leaderboard", *map(str, command)]
    # Sessions of their own: Ctrl-C reaches the demo alone, which then ends them in order
    return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)  # type: ignore[call-overload,no-any-return]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_ready(url: str, children: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    import httpx

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if any(child.poll() is not None for child in children):
            tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise RuntimeError(f"the leaderboard did not start; the end of {log}:\n{tail}")
        try:
            if httpx.get(f"{url}/readyz", timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.3)
    raise RuntimeError(f"the leaderboard was not ready after {START_SECONDS} s; see {log}")


def heed_signals() -> None:
    """Make Ctrl-C and SIGTERM raise KeyboardInterrupt, even where the shell that started us had them ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
