"""Shared test set-up: where things are, and a small random world of masks."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

# No test reaches beyond loopback; Hugging Face libraries read these when they are imported.
_CACHE = tempfile.TemporaryDirectory(prefix="reveal-bench-hf-")
os.environ["HF_HOME"] = _CACHE.name
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Gradio settles where it writes when it is imported: a server that is forked later, and confines itself, finds it made.
os.environ["GRADIO_TEMP_DIR"] = f"{_CACHE.name}/gradio"
Path(_CACHE.name, "gradio", "vibe_edit_history").mkdir(parents=True)
# Tests run side by side on every core: threads of the linear algebra would only wait for each other, busily.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.pop("COLUMNS", None)  # xdist sets it in its workers, where a pipe has no width

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
import pytest  # noqa: E402
import typer.testing  # noqa: E402
from hypothesis import settings as hypothesis_settings  # noqa: E402
from xdist.scheduler import LoadFileScheduling  # noqa: E402

from reveal_bench.benchmarks import BENCHMARKS  # noqa: E402
from reveal_bench.dataset.build import build_folder  # noqa: E402
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS  # noqa: E402
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord  # noqa: E402
from reveal_bench.masks import encode_mask  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

pytest.register_assert_rewrite(  # helpers with assertions of their own
    "tests.leaderboard.hostile.understanding",
    "tests.leaderboard.hostile.world",
    "tests.leaderboard.kill.arena",
    "tests.leaderboard.kill.drills",
)

gc.disable()  # until all tests are collected: nothing is freed before, and searching for garbage takes a third longer

# The same examples in every run, however slow the machine; HYPOTHESIS_PROFILE=search looks for new ones.
hypothesis_settings.register_profile("steady", max_examples=60, derandomize=True, deadline=None, database=None)
hypothesis_settings.register_profile("search", max_examples=500, deadline=None)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the test modules of a whole run; each process starts at another module.

    Compiling them takes most of the time in a fresh checkout: so each process compiles a part, and reads the rest. A
    module that cannot be imported is left to the collection, which reports it.
    """
    lane = os.environ.get("PYTEST_XDIST_WORKER")
    if lane is None or session.config.args != session.config.getini("testpaths"):
        return
    modules = sorted(ROOT.glob("tests/**/test_*.py"))
    first = len(modules) * int(lane.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for module in modules[first:] + modules[:first]:
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(module.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that start servers and workers come first: they take longest, and modules are handed out in this order.

    Short ones at the end then fill every process of `make test` to the same minute.
    """
    slow = {item.path for item in items if item.get_closest_marker("processes") is not None}
    items.sort(key=lambda item: item.path not in slow)


class _Lanes(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Return the process that a file's tests run in; all files that ask models share one, because their library takes
    seconds to import.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return "models" if scope.startswith(("tests/models/", "tests/curation/test_draft_ratings")) else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Lanes:
    """Schedule tests by file; called only if tests run in several processes."""
    return _Lanes(config, log)


def pytest_collection_finish() -> None:
    """Freeze all present objects for the run, so that the garbage collector skips them and seldom runs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


# To put a command line together takes longer than most of its commands: each is made once.
typer.testing._get_command = typer.main.get_command = cache(typer.main.get_command)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261121)


def random_masks(rng: np.random.Generator, n: int, *, largest: int = 40) -> list[npt.NDArray[np.bool_]]:
    """Random and degenerate masks: empty, full, one pixel wide, speckled, blobs, blobs at the border."""
    masks = []
    for i in range(n):
        height, width = (int(side) for side in rng.integers(1, largest + 1, 2))
        if i % 10 == 0:
            width = 1
        if i % 15 == 0:
            height = 1
        if i % 3 == 0:
            y, x = np.mgrid[:height, :width]
            centre = rng.uniform(0, height), rng.uniform(0, width)
            mask = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < rng.integers(1, largest**2 // 4)
        else:
            mask = rng.random((height, width)) < rng.choice([0.0, 0.05, 0.3, 0.7, 1.0])
        masks.append(mask)
    return masks


LONGEST_CHILD = 300
"""Seconds after which a child counts as stuck; on a busy machine children need a tenth of it."""


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked copy of this process, which needs no imports; return its exit code, or minus its signal.

    A copy that is stuck, for instance because a thread of the parent held a lock, prints its position and ends.
    """
    child = os.fork()
    if child == 0:
        faulthandler.register(
            signal.SIGALRM, chain=True
        )  # a watchdog would be a second thread, with which no server confines itself
        signal.alarm(LONGEST_CHILD)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def files_of(folder: Path) -> dict[str, bytes]:
    """Path in the folder -> content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class World:
    """A small synthetic benchmark: a public folder, the private one, and their parent."""

    folder: Path
    vault: Path
    root: Path


def random_records(rng: np.random.Generator, n: int) -> list[LocalizationRecord]:
    """Images of two sizes with random squares for findings, two images to a patient."""
    records = []
    for i in range(n):
        height, width = (48, 64) if i % 3 else (64, 48)
        annotations = []
        for finding in CHEXLOCALIZE_FINDINGS:
            if rng.random() < 0.4:
                x, y, side = (int(v) for v in rng.integers(4, 24, 3))
                mask = np.zeros((height, width), bool)
                mask[y : y + side, x : x + side] = True
                annotations.append(annotate(finding, mask))
        present = {annotation.finding for annotation in annotations}
        patient = f"patient{i // 2:05d}"
        records.append(
            LocalizationRecord(
                image_id=f"{patient}_study1_view{i % 2 + 1}_frontal",
                patient_id=patient,
                study_id=f"{patient}_study1",
                view="FRONTAL",
                width=width,
                height=height,
                label_status={finding: int(finding in present) for finding in CHEXLOCALIZE_FINDINGS},
                annotations=tuple(annotations),
            )
        )
    return records


def annotate(finding: str, mask: npt.NDArray[np.bool_]) -> Annotation:
    """A ground-truth annotation with its tight box."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)).tolist() for axis in (1, 0))
    box = (columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0])
    return Annotation(finding, "ground_truth", encode_mask(mask), bbox_xywh=box, n_instances=1, area_px=int(mask.sum()))


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that all processes of a run share; the first process that asks has it written by `make`. No test
    changes it.
    """
    lane = factory.getbasetemp()
    shared = lane.parent if "PYTEST_XDIST_WORKER" in os.environ else lane
    folder = shared / f"shared-{name}"
    with (shared / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(dir=shared)) / name
            make(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for the tests of a module."""
    from tests.leaderboard.browser.browsing import running_browser

    with running_browser() as chromium:
        yield chromium


def draw_small(style: str, root: Path, n: int, *, seed: int) -> None:
    """Write a synthetic download of `n` images, studies or tasks, with small pictures and few further ones."""
    from reveal_bench.phantom import LAYOUTS

    accepted = signature(LAYOUTS[style]).parameters
    options = {name: value for name, value in {"long_side": 64, "n_val": 2}.items() if name in accepted}
    LAYOUTS[style](root, n, seed=seed, **options)


@pytest.fixture(scope="session")
def twin_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Style of a download -> a synthetic one of fifteen films, studies or tasks. No test changes it."""

    def twin(style: str) -> Path:
        return made_once(tmp_path_factory, f"twin-{style}", lambda root: draw_small(style, root, 15, seed=3))

    return twin


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Sixty random images in CheXlocalize's vocabulary, half of their patients held out."""

    def make(root: Path) -> None:
        build_folder(
            {"test": iter(random_records(np.random.default_rng(5), 60))},
            root / "public",
            BENCHMARKS["chexlocalize"],
            pixels="withhold",
            holdout=root / "vault",
            seed=3,
            synthetic=True,
        )

    root = made_once(tmp_path_factory, "world", make)
    return World(root / "public", root / "vault", root)


@contextmanager
def nothing_drawn() -> Iterator[None]:
    """Replace figures by their descriptions, for tests of the text around them: drawing takes longest."""
    from reveal_bench.reports.style import Illustration

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Illustration, "for_page", lambda _: [("wide", "<svg/>")])
        patch.setattr(Illustration, "file", lambda drawn, _: drawn.alt.encode())
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    with nothing_drawn():
        yield


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """moto's server on loopback with one bucket; AWS's variables point there."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket="board")
        yield "board"
    server.stop()
