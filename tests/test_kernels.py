"""The loops over masks, marks and heat maps, compiled and in numpy, against plain Python, OpenCV and each other."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import struct
import subprocess
import tomllib
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw

from reveal_bench.masks import (
    PackedMasks,
    Rle,
    encode_mask,
    kernels,
    measure_masks,
    numpy_kernels,
    pack_masks,
    parse_masks,
)
from reveal_bench.metrics.heat_maps import laid_over
from tests.conftest import ROOT, random_masks
from tests.test_masks import hard_masks


class ServedLoops:
    """The compiled loops in another process, which may emulate another platform: ``.ci/serve_library.c``."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(self._run, name)

    def _run(self, name: str, *arguments: npt.NDArray[Any] | int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = struct.pack("<q", len(name)) + name.encode() + struct.pack("<q", len(arguments))
        for value in arguments:
            if isinstance(value, np.ndarray):
                request += struct.pack("<qqq", value.nbytes, value.size, value.shape[-1]) + value.tobytes()
            else:
                request += struct.pack("<qqq", -1, value, 0)
        self._process.stdin.write(request)
        self._process.stdin.flush()
        assert self._process.stdout.read(8) == struct.pack("<q", 0)
        for value, kind in zip(arguments, kernels._ARGUMENTS[name], strict=True):
            if isinstance(value, np.ndarray):
                content = self._process.stdout.read(value.nbytes)
                if kind.isupper():
                    value[...] = np.frombuffer(content, value.dtype).reshape(value.shape)


LIBRARY = Path(kernels.__file__).with_name("libkernels.so")
SERVER = os.environ.get("REVEAL_LIBRARY_SERVER", "")
COMPILED = ServedLoops(SERVER) if SERVER else kernels.Loops(LIBRARY)
FUNCTIONS = {
    name: function
    for name, function in inspect.getmembers(kernels, inspect.isfunction)
    if not name.startswith("_") and function.__module__ == kernels.__name__ and name != "choose_loops"
}


@pytest.fixture(autouse=True)
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call in this file runs the compiled and the numpy loop, and the results must have the same bytes."""
    for name, function in FUNCTIONS.items():
        monkeypatch.setattr(kernels, name, compared(function, monkeypatch))


def compared(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        results = []
        for loops in (numpy_kernels, COMPILED):
            monkeypatch.setattr(kernels, "loops", loops)
            results.append(function(*arguments))
        in_numpy, compiled = (result if isinstance(result, tuple) else (result,) for result in results)
        for one, other in zip(in_numpy, compiled, strict=True):
            assert (type(one), np.shape(one)) == (type(other), np.shape(other)), function.__name__
            assert np.asarray(one).dtype == np.asarray(other).dtype
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), (function.__name__, one, other)
        return results[1]

    return run


def decoded(rle: Rle) -> str | list[int]:
    """The runs of a COCO string, read by its definition, or the first rule that it breaks."""
    runs: list[int] = []
    total, place = 0, 0
    while place < len(rle.counts):
        value = n = 0
        while True:
            if n == 7:
                return "rle-code"
            if place == len(rle.counts):
                return "rle-truncated"
            code = ord(rle.counts[place]) - 48
            if not 0 <= code < 64:
                return "rle-alphabet"
            value |= (code & 0x1F) << 5 * n
            place, n = place + 1, n + 1
            if not code & 0x20:
                break
        value -= (code & 0x10) << 5 * n - 4
        value += runs[-2] if len(runs) > 2 else 0
        if value < 0:
            return "rle-negative-run"
        runs.append(value)
        total += value
        if total > rle.size[0] * rle.size[1]:
            return "rle-overflow"
    return runs if total == rle.size[0] * rle.size[1] else "rle-sum"


def test_strings_are_read_by_the_definition(rng: np.random.Generator) -> None:
    alphabet = np.array([chr(code) for code in (*range(48, 112), 0, 47, 112, 233)])
    rles = [
        Rle((7, 9), "".join(rng.choice(alphabet[: rng.choice([20, 64, 68])], rng.integers(0, 9)))) for _ in range(5000)
    ]
    sound = [encode_mask(mask) for mask in random_masks(rng, 800) + hard_masks(rng, 300)]
    rles += sound
    for rle in sound:  # one character wrong, or one more or fewer, somewhere among good ones
        k = int(rng.integers(len(rle.counts)))
        changed = rle.counts[:k] + str(rng.choice([*alphabet, ""])) + rle.counts[k + int(rng.integers(2)) :]
        rles.append(Rle(rle.size, changed))
    packed, problems = parse_masks(rles)
    areas, again = measure_masks(rles)
    expected = [decoded(rle) for rle in rles]
    rules = {i: rule for i, rule in enumerate(expected) if isinstance(rule, str)}
    assert {i: problem.rule for i, problem in problems.items()} == rules
    assert problems == again
    assert set(rules.values()) >= {
        "rle-alphabet", "rle-truncated", "rle-code", "rle-negative-run", "rle-overflow", "rle-sum",
    }  # fmt: skip
    foreground = [0 if isinstance(runs, str) else sum(runs[1::2]) for runs in expected]
    assert packed.areas.tolist() == areas.tolist() == foreground


def test_intersections_are_those_of_the_pixels(rng: np.random.Generator) -> None:
    masks = random_masks(rng, 300) + hard_masks(rng, 300)
    others = [mask ^ (rng.random(mask.shape) < rng.choice([0, 0.01, 0.5, 1])) for mask in masks]
    a, b = (pack_masks([encode_mask(mask) for mask in some]) for some in (masks, others))
    common = kernels.intersections(a.ends, a.offsets, b.ends, b.offsets)
    assert common.tolist() == [int((one & other).sum()) for one, other in zip(masks, others, strict=True)]


def test_arrays_of_other_kinds_are_taken_as_they_are_meant() -> None:
    packed = pack_masks([encode_mask(np.ones((3, 5))), encode_mask(np.eye(4))])
    strange = PackedMasks(
        np.asfortranarray(packed.sizes), np.repeat(packed.ends, 2)[::2], packed.offsets.astype(np.int32)
    )
    assert strange.areas.tolist() == packed.areas.tolist() == [15, 4]
    assert strange.deepest_xy([0, 1]).tolist() == [[1, 1], [0, 0]]


def test_a_loop_refuses_what_it_would_misread() -> None:
    areas, offsets, ends = np.empty(2, np.int64), np.array([0, 2, 4]), np.array([0, 4, 0, 4], np.int32)
    kernels.loops.mask_areas(ends, offsets, areas)
    assert areas.tolist() == [4, 4]
    fixed = areas.copy()
    fixed.flags.writeable = False
    for wrong in ((ends, offsets.astype(np.int32), areas), (ends[::2], offsets, areas), (ends, offsets, fixed)):
        with pytest.raises(TypeError, match="must be a contiguous array of kind"):
            kernels.loops.mask_areas(*wrong)
    with pytest.raises(TypeError, match="argument 1 must be an array of kind 'q', got 3"):
        kernels.loops.mask_areas(ends, 3, areas)
    with pytest.raises(ValueError, match="zip"):
        kernels.loops.mask_areas(ends)


def test_each_compiled_loop_has_a_numpy_loop() -> None:
    for name, kinds in kernels._ARGUMENTS.items():
        assert len(inspect.signature(getattr(numpy_kernels, name)).parameters) == len(kinds), name


def test_numpy_is_used_with_a_warning_if_no_library_loads(tmp_path: Path) -> None:
    damaged = tmp_path / "reveal_bench" / "masks" / "libkernels.so"
    damaged.parent.mkdir(parents=True)
    for problem in ("No such file|cannot open shared object file", "file too short|invalid ELF header"):
        with pytest.warns(RuntimeWarning, match=rf"slow numpy loops \(same results\): .*({problem}).*compiles it"):
            assert kernels.choose_loops(damaged) is numpy_kernels
        damaged.touch()


def test_checkout_without_compiled_loops_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    message = "reads this checkout instead of .*: work in another folder, or "
    message += re.escape(f"compile it here: `pip install --editable {tmp_path}`")
    with pytest.warns(RuntimeWarning, match=message):
        kernels.choose_loops(tmp_path / "reveal_bench" / "masks" / "libkernels.so")


def test_numpy_is_used_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVEAL_KERNELS", "numpy")
    with pytest.warns(RuntimeWarning, match="REVEAL_KERNELS=numpy"):
        assert kernels.choose_loops(LIBRARY) is numpy_kernels
    monkeypatch.setenv("REVEAL_KERNELS", "fast")
    with pytest.raises(ImportError, match="REVEAL_KERNELS must be empty or 'numpy', got 'fast'"):
        kernels.choose_loops(LIBRARY)


def test_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "VERSION", 8)
    with pytest.raises(ImportError, match=r"libkernels\.so: version must be 8, got 7\. Install reveal-bench again"):
        kernels.choose_loops(LIBRARY)


def test_pixels_and_cells_are_those_of_the_masks(rng: np.random.Generator) -> None:
    masks = random_masks(rng, 150) + hard_masks(rng, 150)
    packed = pack_masks([encode_mask(mask) for mask in masks])
    arrays = packed.ends, packed.offsets
    which = rng.integers(0, len(masks), 500)
    x, y = (rng.integers(0, packed.sizes[which, axis]) for axis in (1, 0))
    inside = kernels.contains(*arrays, which, x * packed.sizes[which, 0] + y)
    assert inside.tolist() == [bool(masks[i][v, u]) for i, u, v in zip(which, x, y, strict=True)]
    deepest = kernels.deepest_pixels(*arrays, packed.sizes, np.arange(len(masks)))
    assert (deepest[:, 0] >= 0).tolist() == [bool(mask.any()) for mask in masks]
    for n in (1, 3, 14):
        hits = kernels.hit_cells(*arrays, packed.sizes, n)
        assert not hits[packed.areas == 0].any()
    for i, mask in enumerate(masks):
        start, stop = packed.offsets[i : i + 2].tolist()
        cell = 2 * min(mask.shape) - 1  # sixths of a pixel, so that edges of cells are inside pixels
        edges = 1 + cell * np.arange(4)
        areas = kernels.coverage(packed.ends, start, stop, len(mask), edges, edges)
        fine = np.kron(mask, np.ones((6, 6), np.int64))[1 : edges[-1], 1 : edges[-1]]
        np.testing.assert_array_equal(areas, fine.reshape(3, cell, 3, cell).sum((1, 3)))
        rows = kernels.filtered_rows(packed.ends[start:stop], *mask.shape)
        bits = np.unpackbits(rows[:, 1:].cumsum(0, dtype=np.uint8), axis=1)[:, : mask.shape[1]]
        np.testing.assert_array_equal(bits, mask)


def test_characters_are_counted(rng: np.random.Generator) -> None:
    for size in (0, 1, 5000, 40_000):
        text = rng.integers(60, 70, size).astype(np.uint8).tobytes()
        assert kernels.count_characters(text, b"@Az") == [text.count(one) for one in (b"@", b"A", b"z")]


def test_the_source_distribution_holds_what_compiles_them() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    hook = targets["wheel"]["hooks"]["custom"]["path"]
    assert (ROOT / hook).exists()
    left_out = targets["sdist"]["exclude"]
    assert f"!/{hook}" in left_out
    assert not any(f"/{hook}".startswith(f"{folder}/") for folder in left_out)  # nothing of such a folder comes back


@pytest.mark.parametrize("n", [0, 1, 40, 300])
def test_weighted_counts_are_those_of_numpy(n: int) -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 4, (7, 30)).astype(np.float32)
    units, hits = rng.integers(0, 30, n), rng.random((3, n)) < 0.5
    stops = np.sort(rng.integers(0, n + 1, 12))
    weights = counts[:, units].astype(float)
    sums = kernels.running_weights(counts, units, stops)
    np.testing.assert_array_equal(sums, [[row[:stop].sum() for stop in stops] for row in weights])
    marks = np.maximum(weights.cumsum(1), 1)
    n_lesions = np.maximum(weights.sum(1), 1) + rng.integers(0, 9, 7)
    precisions = kernels.average_precisions(counts, units, hits, marks, n_lesions)
    for r, row in np.ndindex(
        precisions.shape
    ):  # COCO's: at each recall the best precision at that recall or a higher one
        true_positives = (weights[r] * hits[row]).cumsum()
        reaching = [
            (true_positives / marks[r])[true_positives / n_lesions[r] >= recall].max(initial=0)
            for recall in np.linspace(0, 1, 101)
        ]
        assert precisions[r, row] == pytest.approx(np.mean(reaching), abs=1e-12)


def test_heat_maps_are_those_of_single_precision() -> None:
    rng = np.random.default_rng(6)
    shapes = np.concatenate(
        [rng.integers(1, 40, (60, 4)), rng.integers(1, 400, (9, 4)), [[2, 3, 9, 500], [9, 1, 70, 1]]]
    )
    cases = [(np.round(rng.normal(size=(h, w)), 1).astype(np.float32), (a, b)) for h, w, a, b in shapes.tolist()]
    cases.append((np.ones((2, 2), np.float32), (9, 9)))
    for heat, size in cases:
        inside, cuts = rng.random(size) < 0.3, np.sort(rng.normal(size=3)).astype(np.float32)
        reference = pack_masks([encode_mask(inside)])
        laid = laid_over(heat, size)
        fine, ends, place = laid.fine(), laid.ends, laid.place or 0
        above = kernels.runs_above(laid.laid, cuts[1])
        counts = kernels.counts_above(laid.laid, cuts, reference.ends)
        filled = kernels.fill_runs(above, size[0])
        assert (ends[0], ends[1], int(place)) == (fine.min(), fine.max(), int(fine.argmax()))
        np.testing.assert_array_equal(above, pack_masks([encode_mask(fine > cuts[1])]).ends)
        np.testing.assert_array_equal(filled, pack_masks([encode_mask(contours_filled(fine > cuts[1]))]).ends)
        is_above = fine[None] > cuts[:, None, None]
        np.testing.assert_array_equal(counts, [is_above.sum((1, 2)), (is_above & inside).sum((1, 2))])
        if not laid.is_flat:
            own = (np.float32(255) * ((fine - ends[0]) / (ends[1] - ends[0]))).astype(np.uint8)
            np.testing.assert_array_equal(
                kernels.level_counts(laid.laid, ends), np.bincount(own.ravel(), minlength=256)
            )


def test_masks_are_filled_as_contours_are(rng: np.random.Generator) -> None:
    for mask in random_masks(rng, 600) + hard_masks(rng, 300):
        ends = pack_masks([encode_mask(mask)]).ends
        expected = pack_masks([encode_mask(contours_filled(mask))]).ends
        np.testing.assert_array_equal(kernels.fill_runs(ends, len(mask)), expected)


def test_a_corridor_is_outside_through_all_its_turns() -> None:
    spiral = np.zeros((61, 61), bool)
    spiral[0] = True
    for ring in range(0, 30, 2):  # walls of one pixel, two apart
        spiral[ring : 61 - ring, 60 - ring] = spiral[60 - ring, ring : 61 - ring] = True
        spiral[ring + 2 : 61 - ring, ring] = spiral[ring + 2, ring : 59 - ring] = True
    closed = spiral.copy()
    closed[1, 0] = True
    for mask, n_pixels in ((spiral, int(spiral.sum())), (closed, 61 * 61)):
        filled = kernels.fill_runs(pack_masks([encode_mask(mask)]).ends, 61)
        assert np.diff(filled)[::2].sum() == n_pixels
        np.testing.assert_array_equal(filled, pack_masks([encode_mask(contours_filled(mask))]).ends)


def test_numpy_loops_need_bounded_memory() -> None:
    full = pack_masks([encode_mask(np.ones((1500, 1500), bool))])
    text = np.frombuffer(b"[]," * 2_000_000, np.uint8)
    counts, deepest = np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    cases: list[tuple[Callable[[], None], float]] = [
        (lambda: numpy_kernels.count_characters(text, np.frombuffer(b"[", np.uint8), counts), 2 * len(text)),
        (
            lambda: numpy_kernels.deepest_pixels(full.ends, full.offsets, full.sizes, np.array([0]), deepest),
            17 * 1500**2,
        ),
    ]
    for run, most_bytes in cases:
        tracemalloc.start()
        try:
            run()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < most_bytes
    assert (counts.tolist(), deepest.tolist()) == ([2_000_000], [[749, 749]])


def contours_filled(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """As the authors of CheXlocalize do it: OpenCV's contours of more than one point, each filled by Pillow."""
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    canvas = Image.new("L", mask.shape[::-1])
    for contour in contours:
        if len(contour) > 1:
            ImageDraw.Draw(canvas).polygon(contour.ravel().tolist(), outline=1, fill=1)
    return np.asarray(canvas, bool)
