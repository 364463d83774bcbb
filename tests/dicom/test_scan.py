"""Scanning real-world trees: no suffixes, archives, partial downloads, duplicates; every file is accounted for once."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import DicomError, DicomFile, Scan, develop_dicom, read_header, scan_tree, write_dicom
from reveal_bench.dicom import files as dicom_files
from reveal_bench.dicom.files import is_dicom
from tests.dicom.conftest import DX, RAMP, reasons_by_path


def film(path: Path, uid: str, pixels: np.ndarray = RAMP, **attributes: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"SOPClassUID": DX, "Modality": "DX", "StudyInstanceUID": uid.split(".")[0], "SOPInstanceUID": uid}
    write_dicom(path, pixels, {**facts, **attributes}, bits_stored=4)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small export with all that exports have."""
    root = tmp_path / "export"
    film(root / "b" / "1.dcm", "1.1")
    film(root / "b" / "2.dicom", "1.2", RAMP[::-1])
    film(root / "a" / "IM0001", "2.1", RAMP.T)
    shutil.copy(root / "b" / "1.dcm", root / "b" / "1 (copy).dcm")
    film(root / "c" / "conflict.dcm", "1.2", RAMP.T)
    film(root / "c" / "capture.dcm", "3.1", SOPClassUID="1.2.840.10008.5.1.4.1.1.7")
    (root / "c" / "broken.dcm").write_bytes(b"no DICOM at all")
    (root / "c" / "empty.dcm").write_bytes(b"")
    (root / "labels.csv").write_text("study,label\n")
    (root / "c" / "thumb.png").write_bytes(b"\x89PNG" + bytes(200))
    for passed_over in (".azDownload-1.dcm", "x.dcm.part", "x.dcm.crdownload", ".hidden/1.dcm", "__MACOSX/._1.dcm"):
        film(root / passed_over, "9.9")
    film(tmp_path / "z1", "4.1", RAMP + 0)
    film(tmp_path / "z2", "4.2", RAMP[:, ::-1])
    with zipfile.ZipFile(root / "c" / "series.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "z1", "inner/one")
        archive.write(tmp_path / "z2", "inner/two.dcm")
        archive.writestr("inner/readme.txt", "text")
        archive.writestr("__MACOSX/inner/._one", "junk")
    (root / "c" / "broken.zip").write_bytes(b"PK\x03\x04 cut off")
    return root


def check(scan: Scan, root: Path) -> None:
    assert [file.path_text(root) for file, _ in scan.headers] == [
        "a/IM0001", "b/1 (copy).dcm", "b/2.dicom", "c/series.zip!inner/one", "c/series.zip!inner/two.dcm",
    ]  # fmt: skip
    assert reasons_by_path(scan.set_aside, root) == {
        "b/1.dcm": "duplicate of b/1 (copy).dcm: the same SOPInstanceUID and pixels",
        "c/capture.dcm": "a secondary capture (SOP class)",
    }
    assert reasons_by_path(scan.unreadable, root) == {
        "c/broken.dcm": "not DICOM",
        "c/broken.zip": "not a readable archive: BadZipFile",
        "c/conflict.dcm": (
            "duplicate of b/2.dicom: the same SOPInstanceUID but different pixels, so one of the two files "
            "is mislabelled"
        ),
        "c/empty.dcm": "an empty file",
    }
    assert [file.path_text(root) for file in scan.others] == [
        "c/series.zip!inner/readme.txt",
        "c/thumb.png",
        "labels.csv",
    ]


def test_every_file_is_accounted_for(root: Path) -> None:
    calls: list[tuple[int, int]] = []
    check(scan_tree(root, progress=lambda done, n: calls.append((done, n))), root)
    assert calls == [(13, 13)]


@pytest.mark.processes
def test_workers_change_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reveal_bench.dicom import scan

    monkeypatch.setattr(scan, "_CHUNK", 2)
    check(scan_tree(root, workers=2), root)


def test_headers_and_pixels_of_members_are_those_of_the_file(root: Path, tmp_path: Path) -> None:
    member = DicomFile(root / "c" / "series.zip", "inner/one")
    assert read_header(member) == read_header(tmp_path / "z1")
    assert develop_dicom(member) == develop_dicom(tmp_path / "z1")


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "real"
    film(root / ".store" / "1", "1.1")
    film(root / ".store" / "deep" / "2", "1.2", RAMP.T)
    (root / "one.dcm").symlink_to(root / ".store" / "1")
    (root / "data").symlink_to(root / ".store" / "deep")
    (root / ".store" / "deep" / "loop").symlink_to(root)
    (root / "gone.dcm").symlink_to(root / "nothing")
    (root / "itself.dcm").symlink_to(root / "itself.dcm")
    (tmp_path / "linked").symlink_to(root)
    scan = scan_tree(tmp_path / "linked")  # that the root is a link does not matter
    assert [file.path_text(scan.root) for file, _ in scan.headers] == ["data/2", "one.dcm"]
    assert reasons_by_path(scan.unreadable, scan.root) == {
        "gone.dcm": "no such file",
        "itself.dcm": "Too many levels of symbolic links",
    }
    assert scan.set_aside == []


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    scan = scan_tree(tmp_path)
    assert (scan.headers, scan.set_aside, scan.unreadable, scan.others) == ([], [], [], [])
    with pytest.raises(NotADirectoryError, match="`root` must be a folder"):
        scan_tree(tmp_path / "none")


def test_members_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.dcm", bytes(2_000_000))
    with pytest.raises(DicomError, match="no such member in the archive"):
        read_header(DicomFile(path, "other.dcm"))
    monkeypatch.setattr(dicom_files, "MAX_BYTES", 1_000_000)
    assert path.stat().st_size < 10_000
    assert reasons_by_path(scan_tree(tmp_path).unreadable, tmp_path) == {
        "x.zip!bomb.dcm": "2,000,000 bytes; at most 1,000,000 are read"
    }


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.dcm", bytes(200))
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag in the local header, and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert reasons_by_path(scan_tree(tmp_path).unreadable, tmp_path) == {"x.zip!a.dcm": "encrypted in its archive"}


def test_a_damaged_member(tmp_path: Path) -> None:
    film(tmp_path / "one", "1.1")
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "one", "one.dcm")
    data = bytearray(path.read_bytes())
    data[data.index(b"DICM") - 20] ^= 0xFF  # within the preamble: only the checksum tells
    path.write_bytes(data)
    with pytest.raises(DicomError, match="damaged archive: Bad CRC-32"):
        develop_dicom(DicomFile(path, "one.dcm"))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (bytes(128) + b"DICM", True),
        (b"\x08\x00\x05\x00CS\x0a\x00ISO_IR 100", True),  # explicit
        (b"\x08\x00\x08\x00\x16\x00\x00\x00ORIGINAL\\PRIMARY", True),  # implicit
        (b"\x00\x08\x00\x05CS\x00\x0aISO_IR 100", True),  # big-endian
        (b"\x02\x00\x00\x00UL\x04\x00\x00\x00\x00\x00", True),  # meta header without preamble
        (b"", False),
        (b"\x08\x00", False),
        (b"\x08\x00\x05\x00\xff\xff\xff\xff\x00\x00\x00\x00", False),
        (b"PK\x03\x04" + bytes(200), False),
        (b"\xff\xd8\xff\xe0" + bytes(200), False),
        (b"patient,label\n1,2\n", False),
        (bytes(200), False),
    ],
)
def test_dicom_is_recognised_by_content(start: bytes, expected: bool) -> None:
    assert is_dicom(start) is expected
