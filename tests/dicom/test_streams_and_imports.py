"""Frame headers of compressed streams; and the package where pydicom is not installed."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reveal_bench.dicom.decode import Frame, read_frame
from tests.conftest import ROOT
from tests.dicom.conftest import Write


@pytest.mark.parametrize("form", ["JPEG", "JPEG2000"])
@pytest.mark.parametrize("progressive", [False, True])
def test_frames_written_by_another_library(form: str, progressive: bool) -> None:
    image = Image.fromarray(np.arange(48 * 64, dtype=np.uint8).reshape(48, 64))
    buffer = io.BytesIO()
    image.save(buffer, form, **({"progressive": progressive} if form == "JPEG" else {"no_jp2": progressive}))
    data = buffer.getvalue()
    assert read_frame(data) == Frame((48, 64), 8, 1, is_complete=True)
    assert read_frame(data + b"\0") == Frame((48, 64), 8, 1, is_complete=True)
    assert read_frame(data[:-20]) == Frame((48, 64), 8, 1, is_complete=False)


def test_colour_and_depth() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 40)).save(buffer, "JPEG")
    assert read_frame(buffer.getvalue()) == Frame((40, 64), 8, 3, is_complete=True)
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((40, 64), np.uint16)).save(buffer, "JPEG2000")
    assert read_frame(buffer.getvalue()) == Frame((40, 64), 16, 1, is_complete=True)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8", b"\xff\xd8\xff", b"\xff\xd8\xff\xc0\x00", b"\xff\x4f\xff\x51", b"RIFF"]
)
def test_no_frame(data: bytes) -> None:
    assert read_frame(data) is None


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        ("import reveal_bench.dicom", ""),
        ("from reveal_bench.dicom import DicomError, DicomFile, Header, PIPELINE, set_aside", ""),
        ("from reveal_bench.dicom import read_header; read_header(path)", "pip install 'reveal-bench[dicom]'"),
        ("from reveal_bench.dicom import develop_dicom; develop_dicom(path)", "pip install 'reveal-bench[dicom]'"),
        ("from reveal_bench.dicom import scan_tree; scan_tree(path.parent)", "pip install 'reveal-bench[dicom]'"),
    ],
)
def test_without_pydicom_the_first_use_says_what_to_install(
    statement: str, printed: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("x") / "x.dcm"
    path.write_bytes(bytes(128) + b"DICM")
    code = f"import sys, pathlib; sys.modules['pydicom'] = None; path = pathlib.Path({str(path)!r})\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode != 0) == bool(printed)
    assert printed in done.stderr


def test_a_folder_called_dl_beside_the_script_does_no_harm(tmp_path: Path, write: Write) -> None:
    path = write({})
    (tmp_path / "dl").mkdir()
    (tmp_path / "script.py").write_text(
        "import sys, pathlib; from reveal_bench.dicom import read_header; read_header(pathlib.Path(sys.argv[1]))\n"
        "import dl; print(dl.__path__)\n"
    )
    command = [sys.executable, str(tmp_path / "script.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "dl") in done.stdout


def test_the_package_itself_is_light() -> None:
    code = "import sys, reveal_bench.dicom as d; d.DicomFile, d.Header; print({'pydicom', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "set()"
