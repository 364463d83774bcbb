"""Run folders and prediction files over the small random world of :mod:`tests.conftest`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.curation.folder import CurationFolder
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, read_manifest
from reveal_bench.models.prices import Prices
from reveal_bench.models.questions import AskSettings
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, write_outputs
from reveal_bench.reports import style
from reveal_bench.reports.curation import report
from tests.conftest import World, made_once
from tests.dataset.conftest import benchmark  # noqa: F401  (a fixture)
from tests.reports import report_folder

SPLIT = "released"


def rows_of(report: Path, name: str) -> list[dict[str, str]]:
    """A table of a report, as its CSV has it."""
    with (report / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def small_pictures() -> Iterator[None]:
    """Figures of few pixels: a report then takes a second or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "DPI", 30)
        yield


@pytest.fixture(scope="session")
def manifest(world: World) -> ImageManifest:
    return read_manifest(world.folder, SPLIT)


def guesses(manifest: ImageManifest, seed: int, *, grid: int = 8, every: int = 9) -> dict[tuple[str, str], str]:
    """Cells near the middle, where the random squares are; each `every`-th question stays without an answer."""
    rng = np.random.default_rng(seed)
    cells = [cell for cell in Grid(grid).cells if all(grid / 8 <= k < 5 * grid / 8 for k in Grid(grid).parse(cell))]
    pairs = manifest.asked_pairs()
    return {pair: cells[int(rng.integers(len(cells)))] for i, pair in enumerate(pairs) if i % every}


def write_run(
    out: Path,
    manifest: ImageManifest,
    answers: Sequence[dict[tuple[str, str], str]],
    *,
    grid: int = 8,
    **changes: object,
) -> Path:
    """A run folder with the cells of each epoch; pairs without a cell were refused."""
    n = len(manifest.asked_pairs())
    settings = AskSettings(grid=grid)
    info = RunInfo("chexlocalize", manifest.version, SPLIT, "localization", n, n, "model-a", grid, settings)
    info = replace(info, epochs=len(answers), prices=Prices.from_text("2", "10"), **changes)  # type: ignore[arg-type]
    exchanges = [
        QuestionOutcome(
            f"{image_id}|{finding}",
            image_id,
            "answered" if (image_id, finding) in cells else "refused",
            finding,
            epoch=epoch,
            text="…",
            cell=cells.get((image_id, finding)),
            tokens_in=100,
            tokens_cached=0,
            tokens_out=5,
        )
        for epoch, cells in enumerate(answers, start=1)
        for image_id, finding in manifest.asked_pairs()
    ]
    write_outputs(out, exchanges, info)
    return out


def write_points(path: Path, manifest: ImageManifest, seed: int) -> Path:
    """A prediction file with a point per question."""
    rng = np.random.default_rng(seed)
    predictions = [
        LocalizationPrediction(image_id, finding, points=((float(x), float(y)),))
        for (image_id, finding), (x, y) in zip(
            manifest.asked_pairs(), rng.uniform(4, 40, (len(manifest.asked_pairs()), 2)).round(1), strict=True
        )
    ]
    path.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def run_paths(tmp_path_factory: pytest.TempPathFactory, manifest: ImageManifest) -> dict[str, Path]:
    """Runs by name: "one" epoch, "three" epochs, "fine" on 16 x 16 cells, "few"-shot, and a file of "points"."""
    root = tmp_path_factory.mktemp("runs")
    few = AskSettings(style="few-shot", shots=3)
    return {
        "one": write_run(root / "one", manifest, [guesses(manifest, 1)]),
        "three": write_run(root / "three", manifest, [guesses(manifest, s) for s in (2, 3, 4)], model="model-b"),
        "fine": write_run(root / "fine", manifest, [guesses(manifest, 5, grid=16)], grid=16),
        "few": write_run(root / "few", manifest, [guesses(manifest, 6)], settings=few),
        "points": write_points(root / "points.jsonl", manifest, 7),
    }


@pytest.fixture(scope="session")
def curated(tmp_path_factory: pytest.TempPathFactory) -> CurationFolder:
    """The small curation with all steps and its report."""

    def make(root: Path) -> None:
        root.mkdir()
        report(report_folder.whole(root))

    return CurationFolder(made_once(tmp_path_factory, "curation", make) / "curation")
