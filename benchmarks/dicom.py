"""Time the conversion of DICOM radiographs to 8-bit PNG, against pydicom, against decoding alone, and in two processes.

The image is RG1 of pydicom-data (15 bits, 3.6 megapixels, 7 MB raw), stored uncompressed and as JPEG 2000. If
pydicom-data is missing, noise over a ramp of the same size is used. The peer with pydicom uses `pixel_array`,
`apply_modality_lut`, `apply_voi_lut` and Pillow's PNG; the minimal peer decodes, truncates to 8 bits and encodes with
OpenCV. All are measured alternately, as the median of five rounds of CPU seconds in one process. Two processes are
compared with one by wall time, which is only reliable on an idle machine.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import pydicom
from localization import ROUNDS, cpu_seconds  # in this folder
from PIL import Image
from pydicom.pixels import apply_modality_lut, apply_voi_lut

from reveal_bench.dicom import develop_dicom, write_dicom

N_FILES = 24


def films(folder: Path) -> dict[str, Path]:
    """Return name -> file of one image, stored uncompressed and as JPEG 2000."""
    spec = importlib.util.find_spec("data_store")
    if spec and spec.submodule_search_locations:
        data = Path(spec.submodule_search_locations[0]) / "data"
        return {"native": data / "RG1_UNCR.dcm", "JPEG 2000": data / "RG1_J2KR.dcm"}
    ramp = np.linspace(900, 26000, 1841)[None, :] + np.random.default_rng(0).normal(0, 40, (1955, 1841))
    paths = {"native": folder / "n.dcm", "JPEG 2000": folder / "j.dcm"}
    for path, syntax in zip(paths.values(), ("explicit", "jpeg2000-lossless"), strict=True):
        facts = {"WindowCenter": 15000, "WindowWidth": 30000}
        pixels = ramp.astype(np.uint16)
        write_dicom(path, pixels, facts, bits_stored=15, photometric="MONOCHROME1", transfer_syntax=syntax)
    return paths


def by_pydicom(path: Path) -> bytes:
    dataset = pydicom.dcmread(path)
    pixels = apply_voi_lut(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    levels = np.rint(255 - pixels / (2**dataset.BitsStored - 1) * 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "PNG")
    return buffer.getvalue()


def bare_minimum(path: Path) -> bytes:
    dataset = pydicom.dcmread(path)
    dataset.pixel_array_options(decoding_plugin="pylibjpeg" if "J2K" in path.name or path.stem == "j" else "")
    return cv2.imencode(".png", (dataset.pixel_array >> 7).astype(np.uint8))[1].tobytes()


def seconds(work: Callable[[Path], object], path: Path) -> float:
    return cpu_seconds(lambda: work(path))


def in_processes(files: list[Path]) -> float:
    """Return the median ratio of wall times, one process over two, after warm-up."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as one, ProcessPoolExecutor(2, spawn) as two:
        ratios = []
        for _ in range(ROUNDS):
            times = []
            for pool in (one, two):
                list(pool.map(develop_dicom, files[:4]))
                start = time.perf_counter()
                list(pool.map(develop_dicom, files))
                times.append(time.perf_counter() - start)
            ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def measure() -> list[dict[str, float | str]]:
    results: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = films(folder)
        for kind, path in paths.items():
            for label, peer in (("pydicom and Pillow", by_pydicom), ("decode + cv2 PNG alone", bare_minimum)):
                times = [(seconds(peer, path), seconds(develop_dicom, path)) for _ in range(ROUNDS)]
                ratio = statistics.median(p / o for p, o in times)
                work = f"DICOM ({kind}) to PNG, against {label}"
                results.append({"work": work, "ratio": round(ratio, 2), "peer_s": times[0][0], "ours_s": times[0][1]})
        files = [Path(shutil.copy(paths["native"], folder / f"{i}.dcm")) for i in range(N_FILES)]
        results.append({"work": "DICOM to PNG, two processes against one", "ratio": round(in_processes(files), 2)})
    return results
