"""The two forms of the loops over masks, C and numba, on the same masks: every result the same, bit for bit."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw

from reveal_bench import kernels, numba_kernels
from reveal_bench.masks import PackedMasks, Rle, encode_mask, measure_masks, pack_masks, parse_masks
from reveal_bench.metrics.heat_maps import laid_over
from reveal_bench.metrics.localization import mask_iou
from tests.conftest import ROOT, random_masks
from tests.test_masks import hard_masks


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """``_kernels.c``, compiled as it stands here."""
    compiler = shutil.which("cc")
    include = Path(sysconfig.get_path("include"))
    if compiler is None or not (include / "Python.h").exists() or sys.platform != "linux":
        pytest.skip("no C compiler, or no headers of Python")
    made = tmp_path_factory.mktemp("kernels") / "_kernels.abi3.so"
    words = [compiler, "-O3", "-ffp-contract=off", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*words, str(ROOT / "reveal_bench" / "_kernels.c"), "-o", str(made), "-lm"], check=True)
    spec = importlib.util.spec_from_file_location("reveal_bench._kernels", made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(loops: ModuleType, rles: list[Rle], others: list[Rle], patch: pytest.MonkeyPatch) -> list[Any]:
    """What everything that uses the loops makes of two lists of masks of the same sizes."""
    patch.setattr(kernels, "loops", loops)
    masks, other = pack_masks(rles), pack_masks(others)
    everything = np.arange(len(masks))
    positions = (masks.sizes.prod(axis=1) * 7) // 11
    edges = np.arange(5)
    return [
        masks.ends,
        masks.offsets,
        masks.areas,
        measure_masks(rles)[0],
        masks.deepest_xy(everything[::-1]),
        kernels.contains(masks.ends, masks.offsets, everything, positions),
        kernels.intersections(masks.ends, masks.offsets, other.ends, other.offsets),
        mask_iou(masks, other, slice="all"),
        np.frombuffer(b"".join(map(masks.png, range(len(masks)))), np.uint8),
        *(kernels.hit_cells(masks.ends, masks.offsets, masks.sizes, n) for n in (1, 3, 8)),
        *(
            kernels.coverage(masks.ends, *masks.offsets[i : i + 2], height, 2 * width * edges, 2 * height * edges)
            for i, (height, width) in enumerate(masks.sizes[:200].tolist())
        ),
    ]


def test_c_and_numba_agree_on_masks(
    in_c: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = random_masks(rng, 2000) + hard_masks(rng, 1500)
    others = [mask ^ (rng.random(mask.shape) < rng.choice([0, 0.01, 0.5, 1])) for mask in masks]
    rles, other_rles = ([encode_mask(mask) for mask in some] for some in (masks, others))
    by_c, by_numba = (results(loops, rles, other_rles, monkeypatch) for loops in (in_c, numba_kernels))
    assert all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in
               zip(by_c, by_numba, strict=True))  # fmt: skip
    assert by_c[2].tolist() == by_c[3].tolist() == [int(mask.sum()) for mask in masks]
    assert by_c[6].tolist() == [int((a & b).sum()) for a, b in zip(masks, others, strict=True)]


def test_c_and_numba_agree_on_strings_that_are_no_masks(
    in_c: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    alphabet = np.array([chr(code) for code in (*range(48, 112), 0, 47, 112, 233)])
    rles = [
        Rle((7, 9), "".join(rng.choice(alphabet[: rng.choice([20, 64, 68])], rng.integers(0, 9)))) for _ in range(5000)
    ]
    sound = [encode_mask(mask) for mask in random_masks(rng, 800)]
    rles += sound
    for rle in sound:  # one character wrong, or one more or fewer, somewhere among good ones
        k = int(rng.integers(len(rle.counts)))
        changed = rle.counts[:k] + str(rng.choice([*alphabet, ""])) + rle.counts[k + int(rng.integers(2)) :]
        rles.append(Rle(rle.size, changed))
    found, measured = [], []
    for loops in (in_c, numba_kernels):
        monkeypatch.setattr(kernels, "loops", loops)
        found.append(parse_masks(rles))
        measured.append(measure_masks(rles))
    (by_c, problems), (by_numba, other_problems) = found
    assert problems == other_problems == measured[0][1] == measured[1][1]
    assert by_c.areas.tolist() == measured[0][0].tolist() == measured[1][0].tolist()
    assert {problem.rule for problem in problems.values()} >= {
        "rle-alphabet", "rle-truncated", "rle-code", "rle-negative-run", "rle-overflow", "rle-sum",
    }  # fmt: skip
    assert np.array_equal(by_c.ends, by_numba.ends)
    assert np.array_equal(by_c.offsets, by_numba.offsets)


def test_arrays_of_other_kinds_are_taken_as_they_are_meant(in_c: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "loops", in_c)
    packed = pack_masks([encode_mask(np.ones((3, 5))), encode_mask(np.eye(4))])
    strange = PackedMasks(
        np.asfortranarray(packed.sizes), np.repeat(packed.ends, 2)[::2], packed.offsets.astype(np.int32)
    )
    assert strange.areas.tolist() == packed.areas.tolist() == [15, 4]
    assert strange.deepest_xy([0, 1]).tolist() == [[1, 1], [0, 0]]
    with pytest.raises(TypeError, match="argument 1 must have items of 8 bytes"):
        in_c.mask_areas(packed.ends, packed.offsets.astype(np.int32), np.empty(2, np.int64))
    with pytest.raises(TypeError, match="3 arguments are needed"):
        in_c.mask_areas(packed.ends)


def test_the_source_distribution_holds_what_compiles_them() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    hook = targets["wheel"]["hooks"]["custom"]["path"]
    assert (ROOT / hook).exists()
    left_out = targets["sdist"]["exclude"]
    assert f"!/{hook}" in left_out
    assert not any(f"/{hook}".startswith(f"{folder}/") for folder in left_out)  # nothing of such a folder comes back


def test_the_version_is_that_of_the_loops_in_c(in_c: ModuleType) -> None:
    assert in_c.VERSION == kernels.VERSION


def test_weighted_counts_are_the_same_in_c_and_numba(in_c: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for loops in (in_c, numba_kernels):
        monkeypatch.setattr(kernels, "loops", loops)
        rng = np.random.default_rng(5)
        own = []
        for n in (0, 1, 40, 300):
            counts = rng.integers(0, 4, (7, 30)).astype(np.float32)
            units, hits = rng.integers(0, 30, n), rng.random((3, n)) < 0.5
            stops = np.sort(rng.integers(0, n + 1, 12))
            marks = kernels.running_weights(counts, units, np.arange(1, n + 1))
            n_lesions = np.maximum(marks[:, -1] if n else np.ones(7), 1) + rng.integers(0, 9, 7)
            own += [kernels.running_weights(counts, units, stops), marks]
            own.append(kernels.average_precisions(counts, units, hits, np.maximum(marks, 1), n_lesions))
        found.append(own)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert found[0][-1].max() > 0


def test_heat_maps_are_the_same_in_c_and_numba(in_c: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same as numpy's single precision makes them."""
    rng = np.random.default_rng(6)
    shapes = np.concatenate(
        [rng.integers(1, 40, (60, 4)), rng.integers(1, 400, (9, 4)), [[2, 3, 9, 500], [9, 1, 70, 1]]]
    )
    cases = [(np.round(rng.normal(size=(h, w)), 1).astype(np.float32), (a, b)) for h, w, a, b in shapes.tolist()]
    cases.append((np.ones((2, 2), np.float32), (9, 9)))
    for heat, size in cases:
        inside, cuts = rng.random(size) < 0.3, np.sort(rng.normal(size=3)).astype(np.float32)
        reference = pack_masks([encode_mask(inside)])
        found = []
        for loops in (in_c, numba_kernels):
            monkeypatch.setattr(kernels, "loops", loops)
            laid = laid_over(heat, size)
            above = kernels.runs_above(laid.laid, cuts[1])
            counts = kernels.counts_above(laid.laid, cuts, reference.ends)
            filled = kernels.fill_runs(above, size[0])
            found.append([laid.fine(), laid.ends, np.array(laid.place or 0), above, filled, counts])
            if not laid.is_flat:
                found[-1].append(kernels.level_counts(laid.laid, laid.ends))
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)
        fine, ends, place, above, filled, counts, *levels = found[0]
        assert (ends[0], ends[1], int(place)) == (fine.min(), fine.max(), int(fine.argmax()))
        np.testing.assert_array_equal(above, pack_masks([encode_mask(fine > cuts[1])]).ends)
        np.testing.assert_array_equal(filled, pack_masks([encode_mask(contours_filled(fine > cuts[1]))]).ends)
        is_above = fine[None] > cuts[:, None, None]
        np.testing.assert_array_equal(counts, [is_above.sum((1, 2)), (is_above & inside).sum((1, 2))])
        if levels:
            own = (np.float32(255) * ((fine - ends[0]) / (ends[1] - ends[0]))).astype(np.uint8)
            np.testing.assert_array_equal(levels[0], np.bincount(own.ravel(), minlength=256))


def test_masks_are_filled_as_contours_are(in_c: ModuleType, rng: np.random.Generator) -> None:
    for mask in random_masks(rng, 600) + hard_masks(rng, 300):
        ends = pack_masks([encode_mask(mask)]).ends
        expected = pack_masks([encode_mask(contours_filled(mask))]).ends
        np.testing.assert_array_equal(kernels.fill_runs(ends, len(mask)), expected)


def contours_filled(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """As the authors of CheXlocalize do it: OpenCV's contours of more than one point, each filled by Pillow."""
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    canvas = Image.new("L", mask.shape[::-1])
    for contour in contours:
        if len(contour) > 1:
            ImageDraw.Draw(canvas).polygon(contour.ravel().tolist(), outline=1, fill=1)
    return np.asarray(canvas, bool)
