"""Set-up of the DICOM tests: small synthetic files, and where the real ones are.

Real files come from ``../shared/data/dicom`` and the PyPI package pydicom-data (both MIT). Where one is missing
its tests are skipped, saying so; every rule is also tested on synthetic files.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.dicom import DicomFile, DicomPng, develop_dicom, write_dicom
from tests.conftest import ROOT

SHARED = ROOT.parent / "shared" / "data" / "dicom"
DX, CR = "1.2.840.10008.5.1.4.1.1.1.1", "1.2.840.10008.5.1.4.1.1.1"
RAMP = np.arange(16, dtype=np.uint16).reshape(4, 4)
"""Stored values 0 to 15, row by row."""

Write = Callable[..., Path]


def pydicom_data() -> Path | None:
    spec = importlib.util.find_spec("data_store")
    return Path(spec.submodule_search_locations[0]) / "data" if spec and spec.submodule_search_locations else None


def real(name: str) -> Path:
    """A real file by name, or skip."""
    for folder in (SHARED, pydicom_data()):
        if folder is not None and (folder / name).exists():
            return folder / name
    pytest.skip(f"{name} is missing: needs ../shared/data or `pip install pydicom-data` (see README)")


def reasons_by_path(entries: list[tuple[DicomFile, str]], root: Path) -> dict[str, str]:
    return {file.path_text(root): reason for file, reason in entries}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write(attributes, pixels=RAMP, bits=4, name="x.dcm", **options)`` -> path of a new file."""

    def _write(
        attributes: dict[Any, Any] | None = None,
        pixels: np.ndarray = RAMP,
        *,
        bits: int = 4,
        name: str = "x.dcm",
        **options: Any,
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_dicom(path, pixels, attributes or {}, bits_stored=bits, **options)
        return path

    return _write


def grey(file: Path | DicomFile) -> tuple[list[int], DicomPng]:
    """The grey levels of a developed file, row by row."""
    levels, developed = grey_bytes(file)
    return list(levels), developed


def grey_bytes(file: Path | DicomFile) -> tuple[bytes, DicomPng]:
    """The same as one byte per pixel, as another library (Pillow) decodes the PNG."""
    import io

    from PIL import Image

    developed = develop_dicom(file)
    with Image.open(io.BytesIO(developed.data)) as image:
        assert (image.mode, image.height, image.width) == ("L", *developed.size)
        return image.tobytes(), developed


@pytest.fixture(autouse=True)
def _no_warning_leaves() -> Iterator[None]:
    """pydicom warns about other people's files; users of this package must not see these warnings."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # what the garbage collector finds meanwhile is of other tests
        warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        yield
