"""Access to DICOM files on disk or in zip archives, and recognition of DICOM by the first bytes.

Suffixes are ignored, because files exported by hospitals have the suffixes ``.dcm`` or ``.dicom``, numbers, or none.
Newer collections have one zip archive per series; members are read from the archive and never extracted to disk.
"""

from __future__ import annotations

import functools
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 1 << 29
"""Largest file or archive member that is read: 512 MiB, more than twice the size of 100 million 16-bit pixels."""

NO_REGULAR_FILE = "not a regular file"
"""Reason given for pipes, sockets and devices, which are not opened."""

_PREAMBLE = 128
_EXPLICIT_VRS = frozenset(b"AE AS AT CS DA DS DT FD FL IS LO LT OB OW PN SH SL SQ SS ST TM UI UL UN US UT".split())


class DicomError(ValueError):
    """The error of an unusable file.

    The message has only the reason; the caller adds the name of the file.
    """


@dataclass(frozen=True, slots=True)
class DicomFile:
    """A file on disk, or the `member` of the zip archive at `path`."""

    path: Path
    member: str | None = None

    @classmethod
    def of(cls, file: Path | DicomFile) -> DicomFile:
        """Return `file` if it is a DicomFile, otherwise the DicomFile at the path `file`."""
        return file if isinstance(file, DicomFile) else cls(file)

    def path_text(self, root: Path) -> str:
        """Return the path relative to `root`, with ``/``; for a member of an archive such as ``a/series.zip!1.dcm``."""
        path = self.path.relative_to(root) if self.path.is_relative_to(root) else self.path
        return path.as_posix() if self.member is None else f"{path.as_posix()}!{self.member}"

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file or the archive member for reading.

        Raises
        ------
        DicomError
            If the file or member is missing, unreadable, or larger than :data:`MAX_BYTES`.
        """
        try:
            with self._stream() as stream:
                yield stream
        except FileNotFoundError:
            raise DicomError("no such file") from None
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
            raise DicomError(f"damaged archive: {error}") from None
        except OSError as error:
            raise DicomError(error.strerror or type(error).__name__) from None

    def read(self) -> bytes:
        """Return all bytes of the file; raises the errors of :meth:`open`."""
        with self.open() as stream:
            return stream.read()

    @contextmanager
    def _stream(self) -> Iterator[BinaryIO]:
        if self.member is None:
            _check_size(_status(self.path).st_size)
            with self.path.open("rb") as stream:
                yield stream
        else:
            with _open_member(self.path, self.member) as stream:
                yield stream


def _open_member(path: Path, member: str) -> BinaryIO:
    archive = open_archive(path)
    if member not in archive.NameToInfo:
        raise DicomError("no such member in the archive")
    info = archive.getinfo(member)
    if info.flag_bits & 1:
        raise DicomError("encrypted in its archive")
    _check_size(info.file_size)  # zipfile never yields more bytes than this
    try:
        return archive.open(info)  # type: ignore[return-value]
    except NotImplementedError:
        raise DicomError("compressed in its archive by an unsupported method") from None
    except (UnicodeDecodeError, IndexError, struct.error) as error:  # raised by zipfile for a damaged header
        raise DicomError(f"damaged archive: {type(error).__name__}") from None


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise DicomError(f"{size:,} bytes; at most {MAX_BYTES:,} are read")


def _status(path: Path) -> os.stat_result:
    """Return the status of a regular file; raise an error for anything else, because reading from a pipe could hang."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise DicomError(NO_REGULAR_FILE)
    return status


def open_archive(path: Path) -> zipfile.ZipFile:
    """Return the open archive at `path`; the most recent archives stay open, because reading long directories is slow.

    Raises
    ------
    DicomError
        If `path` is not a regular file or not an archive.
    """
    status = _status(path)
    try:
        return _opened(path, status.st_mtime_ns, status.st_size, os.getpid())
    except OSError:
        raise
    except Exception as error:  # zipfile raises various exceptions for a damaged directory
        raise DicomError(f"not a readable archive: {type(error).__name__}") from None


@functools.lru_cache(maxsize=4)
def _opened(path: Path, modified: int, size: int, process: int) -> zipfile.ZipFile:
    """Open an archive.

    The cache key includes the process id, because a forked process must not share the position in the file.
    """
    return zipfile.ZipFile(path)


def is_dicom(start: bytes) -> bool:
    """Return True if the first 140 bytes of a file look like DICOM.

    In a DICOM file ``DICM`` follows the preamble of 128 bytes. A file without preamble and meta header begins with an
    element of group 0002 or 0008 that has a known VR (explicit VR) or a small length (implicit VR).

    Examples
    --------
    >>> is_dicom(bytes(128) + b"DICM"), is_dicom(b"\\x08\\x00\\x05\\x00CS\\x0a\\x00ISO_IR 100"), is_dicom(b"\\x89PNG")
    (True, True, False)
    """
    if start[_PREAMBLE : _PREAMBLE + 4] == b"DICM":
        return True
    if len(start) < 12:
        return False
    for order in "<>":
        group, element = struct.unpack(f"{order}HH", start[:4])
        if group in (2, 8) and element <= 0x0100:
            (length,) = struct.unpack(f"{order}I", start[4:8])
            return start[4:6] in _EXPLICIT_VRS or length <= 256
    return False
