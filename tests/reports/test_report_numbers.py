"""The numbers of a report, computed again in plain numpy: 48 pixels make 8 cells of 6 x 6 pixels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports.run_hits import hit_runs, score_runs
from reveal_bench.reports.runs import load_runs, open_split
from tests.conftest import World

FINDINGS = ("Edema", "Cardiomegaly", "Atelectasis")
N_RESAMPLES, SEED = 80, 4
FloatArray = npt.NDArray[np.float64]


def hit_map(mask: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Hit cells (8, 8) of a mask of 48 x 64 or 64 x 48 pixels: half of the cell, or any of it if no cell has half."""
    height, width = mask.shape
    top, left = (height - 48) // 2, (width - 48) // 2
    cells = mask[top : top + 48, left : left + 48].reshape(8, 6, 8, 6).mean(axis=(1, 3))
    return cells >= 0.5 if (cells >= 0.5).any() else cells > 0


def replicates(values: FloatArray, patients: list[str], everyone: list[str]) -> FloatArray:
    """Means of resampled patients: NaN where none that is drawn has a case."""
    draws = np.random.default_rng(SEED).integers(0, len(everyone), (N_RESAMPLES, len(everyone)))
    by_patient = [np.flatnonzero(np.array(patients) == name) for name in everyone]
    result = [np.concatenate([by_patient[k] for k in draw]) for draw in draws]
    return np.array([values[cases].mean() if len(cases) else np.nan for cases in result])


def test_rates_chance_deviations_and_differences(world: World, run_paths: dict[str, Path]) -> None:
    from pycocotools import mask as coco

    runs = [("one", run_paths["one"]), ("three", run_paths["three"])]
    opened = open_split(world.folder, runs)
    scores = score_runs(
        hit_runs(load_runs(runs, opened), opened), opened, findings=FINDINGS, resampling=Resampling(N_RESAMPLES, SEED)
    )
    everyone = sorted({record.patient_id for record in opened.records})
    files = [sorted(path.glob("predictions*.jsonl")) for _, path in runs]
    answers = [{(p["image_id"], p["finding"]): p["cell"] for p in map(json.loads, first.open())} for first, *_ in files]
    values: dict[tuple[int | str, str], tuple[float, FloatArray]] = {}
    for finding in FINDINGS:
        cases = [
            (record, hit_map(coco.decode({"size": list(one.rle.size), "counts": one.rle.counts.encode()})))
            for record in opened.records
            for one in record.annotations
            if one.finding == finding and one.rle is not None
        ]
        cases = [(record, hits) for record, hits in cases if hits.any()]
        patients = [record.patient_id for record, _ in cases]
        for i, epoch in enumerate(answers):
            cells = [epoch.get((record.image_id, finding)) for record, _ in cases]
            hit = np.array([float(cell is not None and hits[int(cell[1]) - 1, ord(cell[0]) - 65])
                            for cell, (_, hits) in zip(cells, cases, strict=True)])  # fmt: skip
            values[i, finding] = (hit.mean(), replicates(hit, patients, everyone))
        chance = np.array([hits.mean() for _, hits in cases])
        values["chance", finding] = (chance.mean(), replicates(chance, patients, everyone))
    macros = {}
    for key in (0, 1, "chance"):
        parts = [values[key, finding] for finding in FINDINGS]
        macros[key] = np.mean([value for value, _ in parts]), np.nanmean([draws for _, draws in parts], axis=0)
        values[key, MACRO] = macros[key]
    for (key, finding), (value, draws) in values.items():
        is_chance, i = key == "chance", 0 if key == "chance" else int(key)
        estimate = scores.estimates(i, chance=is_chance)[finding]
        assert estimate.value == pytest.approx(value)
        assert scores.deviations(i, chance=is_chance)[finding] == pytest.approx(np.nanstd(draws, ddof=1))
    assert scores.difference(0, 1).value == pytest.approx(macros[0][0] - macros[1][0])
