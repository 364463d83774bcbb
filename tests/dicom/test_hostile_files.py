"""Files that would hang, grow or crash a reader: pipes, devices, links, damaged elements, damaged archives."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import DicomError, DicomFile, develop_dicom, read_header, scan_tree, write_dicom
from reveal_bench.dicom.dataset import refuse_damage
from reveal_bench.dicom.files import open_archive
from tests.conftest import ROOT
from tests.dicom.conftest import DX, RAMP, Write, reasons_by_path

NO_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
OUT = "a link that leads out of the folder"


def film(path: Path, uid: str = "1.1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"SOPClassUID": DX, "Modality": "DX", "StudyInstanceUID": "1", "SOPInstanceUID": uid}
    write_dicom(path, RAMP, facts, bits_stored=4)
    return path


@NO_PIPES
def test_anything_but_a_regular_file_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film(tmp_path / "good.dcm")
    for name in ("pipe.dcm", "pipe.zip", "pipe"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "linked.zip").symlink_to(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.dcm")
        scan = scan_tree(tmp_path)
    names = ("linked.zip", "pipe", "pipe.dcm", "pipe.zip", "socket.dcm")
    assert reasons_by_path(scan.set_aside, tmp_path) == dict.fromkeys(names, "not a regular file")
    assert [file.path_text(tmp_path) for file, _ in scan.headers] == ["good.dcm"]
    assert (scan.unreadable, scan.others) == ([], [])


@NO_PIPES
def test_pipes_and_devices_that_are_named_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        for read, file in ((develop_dicom, path), (read_header, DicomFile(path, "x")), (open_archive, path)):
            with pytest.raises(DicomError, match=r"^not a regular file$"):
                read(file)


def test_links_that_lead_out_of_the_folder(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "root-2"
    film(root / "a" / "1.dcm")
    film(outside / "2.dcm", "1.2")
    (root / "folder").symlink_to(outside)
    (root / "a" / "file.dcm").symlink_to(outside / "2.dcm")
    (root / "a" / "relative").symlink_to("../../root-2")
    (root / "a" / "nowhere.dcm").symlink_to(tmp_path / "nowhere")
    (root / "within.dcm").symlink_to(root / "folder" / "2.dcm")  # through another link
    (root / "round.dcm").symlink_to("../root/a/1.dcm")  # back again
    scan = scan_tree(root)
    names = ("a/file.dcm", "a/nowhere.dcm", "a/relative", "folder", "within.dcm")
    assert reasons_by_path(scan.set_aside, root) == {
        **dict.fromkeys(names, OUT),
        "round.dcm": "duplicate of a/1.dcm: the same SOPInstanceUID and pixels",
    }
    assert (len(scan.headers), scan.unreadable, scan.others) == (1, [], [])


@pytest.mark.parametrize(
    ("vr", "reason"),
    [
        ("O5", "damaged: pydicom stops with NotImplementedError"),
        ("US", "pixel data with a VR other than OB or OW"),
        ("AT", "pixel data with a VR other than OB or OW"),
        ("LO", "pixel data with a VR other than OB or OW"),
        ("SQ", "."),
    ],
)
def test_pixel_data_in_a_broken_representation(write: Write, vr: str, reason: str) -> None:
    path = write({})
    data = path.read_bytes()
    at = data.rindex(b"\xe0\x7f\x10\x00") + 4
    assert data[at : at + 8] in (b"OB\0\0\x10\0\0\0", b"OW\0\0\x10\0\0\0")
    length = b"\0\0\x10\0\0\0" if vr == "SQ" else b"\x10\0"
    path.write_bytes(data[:at] + vr.encode() + length + data[at + 8 :])
    with pytest.raises(DicomError, match=reason):
        develop_dicom(path)


@pytest.mark.parametrize("transfer_syntax", ["explicit", "implicit", "deflated", "rle"])
def test_damage_anywhere_is_a_dicom_error(write: Write, transfer_syntax: str) -> None:
    rng = np.random.default_rng(3)
    path = write({"Modality": "CR", "WindowCenter": 8, "WindowWidth": 16}, transfer_syntax=transfer_syntax)
    data = path.read_bytes()
    n_refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        for at in rng.integers(128, len(data), 3):
            damaged[at] = rng.integers(0, 256)
        path.write_bytes(damaged)
        for read in (read_header, develop_dicom):
            try:
                read(path)
            except DicomError:
                n_refused += 1
    assert n_refused > 50


def test_errors_of_the_disk_are_not_those_of_a_file() -> None:
    with pytest.raises(OSError, match="No space"), refuse_damage():
        raise OSError(28, "No space left on device")
    with pytest.raises(DicomError, match="damaged: pydicom stops with OSError"), refuse_damage():
        raise OSError("from a parser")
    with pytest.raises(DicomError, match="more bytes than fit into memory"), refuse_damage():
        raise MemoryError


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_anywhere_in_an_archive(tmp_path: Path, method: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("é.dcm", film(tmp_path / "x").read_bytes())
    data, rng = buffer.getvalue(), np.random.default_rng(method)
    (tmp_path / "x").unlink()
    kinds = set()
    for _ in range(150):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), 2) if rng.random() < 0.5 else rng.integers(len(data) - 120, len(data), 2):
            damaged[at] = rng.integers(0, 256)
        (tmp_path / "x.zip").write_bytes(damaged)
        scan = scan_tree(tmp_path)
        kinds |= {reason.split(":")[0] for _, reason in scan.unreadable}
        for file, _ in scan.headers:
            with contextlib.suppress(DicomError):
                develop_dicom(file)
    assert {"not a readable archive", "damaged archive"} <= kinds


KILLED = """
import os, signal, sys, pathlib
from reveal_bench.dicom import scan, scan_tree

def kill(done, n):
    print("scanning", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    scan._CHUNK = 1
    scan_tree(pathlib.Path(sys.argv[1]), workers=2, progress=kill)
"""


@pytest.mark.processes
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    for i in range(6):
        film(tmp_path / "tree" / str(i), f"1.{i}")
    (tmp_path / "script.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "tree")]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        out, _ = started.communicate(timeout=60)  # its output ends when no worker holds it any more
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
    assert (out, started.returncode) == (b"scanning\n", -signal.SIGKILL)
