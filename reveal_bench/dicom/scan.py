"""Search of a folder for radiographs: every file is a radiograph with a header, set aside, unreadable, or not DICOM.

Files are recognised by content, not by suffix.

The results are sorted by path, whatever the number of workers. The members of zip archives (suffix ``.zip``) are read,
but not archives within archives. Hidden files and unfinished downloads are ignored. Links are followed if they stay
within the folder, and each folder is visited once. Only regular files are opened, because reading from a pipe or device
might never end.

Headers determine which files are original projection radiographs, which are duplicates, and which are not known to be
de-identified. Every file that is set aside is listed with a reason. BodyPartExamined only causes a warning, because it
is often wrong (chest radiographs labelled EXTREMETY, sic).
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

from reveal_bench.dicom.files import NO_REGULAR_FILE, DicomError, DicomFile, is_dicom, open_archive
from reveal_bench.dicom.header import CHEST, Header, read_header
from reveal_bench.dicom.pixels import develop_dicom

MAX_MEMBERS = 1_000_000
"""Largest number of members of an archive; a larger archive is not read."""

_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".aria2", ".tmp", "~")

LEFT_OUT = "named by the maintainer under `leave_out` in the mapping"

Entries = list[tuple[DicomFile, str]]
"""List of (file, reason)."""


def walk(root: Path, aside: Entries, unreadable: Entries, leave_out: Collection[str] = ()) -> Iterator[DicomFile]:
    """Yield every file below `root` that may be opened, in arbitrary order.

    Parameters
    ----------
    aside : list
        Receives (file, reason) of links that lead out of `root`, of files that are not regular files, and of those
        whose path below `root` is in `leave_out`.
    unreadable : list
        Receives (file, reason) of folders that cannot be listed and of broken links.
    """

    def note(error: OSError) -> None:
        unreadable.append((DicomFile(Path(error.filename)), error.strerror or type(error).__name__))

    real_root, seen, left_out = root.resolve(), set(), frozenset(leave_out)
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=note):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            subfolders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        subfolders[:] = [
            name
            for name in subfolders
            if not _is_passed_over(name) and not _leads_out(Path(folder, name), real_root, aside)
        ]
        for path in (Path(folder, name) for name in names if not _is_passed_over(name)):
            if _leads_out(path, real_root, aside) or not _is_regular(path, aside, unreadable):
                continue
            is_archive = path.name.lower().endswith(".zip")
            for file in _members(path, unreadable) if is_archive else (DicomFile(path),):
                if file.path_text(root) in left_out:
                    aside.append((file, LEFT_OUT))
                else:
                    yield file


def _leads_out(path: Path, real_root: Path, aside: Entries) -> bool:
    """Return True if a link leads out of the folder, after adding the link to `aside`."""
    if not path.is_symlink():
        return False  # the parent folder was already checked
    try:
        is_out = not path.resolve().is_relative_to(real_root)
    except (OSError, RuntimeError):  # links that refer to each other
        return False
    if is_out:
        aside.append((DicomFile(path), "a link that leads out of the folder"))
    return is_out


def _is_regular(path: Path, aside: Entries, unreadable: Entries) -> bool:
    """Return True for a regular file; otherwise add the file to `aside` or `unreadable`."""
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        unreadable.append((DicomFile(path), "no such file"))
        return False
    except OSError as error:
        unreadable.append((DicomFile(path), error.strerror or type(error).__name__))
        return False
    if not is_regular:
        aside.append((DicomFile(path), NO_REGULAR_FILE))
    return is_regular


def _members(path: Path, unreadable: Entries) -> Iterator[DicomFile]:
    try:
        names = [name for name in open_archive(path).NameToInfo if not name.endswith("/")]
    except DicomError as error:
        unreadable.append((DicomFile(path), str(error)))
        return
    except OSError as error:
        unreadable.append((DicomFile(path), error.strerror or type(error).__name__))
        return
    if len(names) > MAX_MEMBERS:
        unreadable.append((DicomFile(path), f"contains {len(names):,} files; at most {MAX_MEMBERS:,} are read"))
        return
    for name in names:
        if not any(_is_passed_over(part) for part in name.split("/")):
            yield DicomFile(path, name)


def _is_passed_over(name: str) -> bool:
    return name.startswith((".", "__MACOSX")) or name.lower().endswith(_UNFINISHED)


_SUFFIXES = (".dcm", ".dicom", ".dic")
_CHUNK = 32
Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Scan:
    """The files below `root`. Every file that is neither hidden nor unfinished is in exactly one list.

    Attributes
    ----------
    root : Path
    headers : list of (DicomFile, Header)
        Original projection radiographs, without duplicates.
    set_aside : list of (DicomFile, str)
        (file, reason) of readable files that are not original radiographs, of duplicates, of files that are not regular
        files, and of links out of the folder.
    unreadable : list of (DicomFile, str)
        (file, reason) of files that are DICOM by name or content, but are unreadable or contradict another file.
    others : list of DicomFile
        Files that are not DICOM by content or name.
    """

    root: Path
    headers: list[tuple[DicomFile, Header]] = field(default_factory=list)
    set_aside: list[tuple[DicomFile, str]] = field(default_factory=list)
    unreadable: list[tuple[DicomFile, str]] = field(default_factory=list)
    others: list[DicomFile] = field(default_factory=list)


def scan_tree(
    root: Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    include_secondary: bool = False,
    leave_out: Collection[str] = (),
) -> Scan:
    """Return all files below `root`, with the headers of radiographs.

    Parameters
    ----------
    root : Path
        A folder.
    workers : int
        Number of reading processes; with more than one, the calling script needs the ``__main__`` guard of
        `multiprocessing`.
    progress : callable, optional
        Called with (files done, files in all) after every few files.
    include_secondary : bool
        See :func:`set_aside`.
    leave_out : collection of str
        Paths below `root` of files that are set aside unread; ``a/series.zip!1.dcm`` is a member of an archive.

    Raises
    ------
    NotADirectoryError
        If `root` is not a folder.
    ImportError
        If pydicom is not installed.
    """
    if not root.is_dir():
        raise NotADirectoryError(f"`root` must be a folder, got {root}")
    scan = Scan(root)
    files = sorted(walk(root, scan.set_aside, scan.unreadable, leave_out), key=_place)
    done, candidates = 0, []
    for chunk in in_chunks(_examine_all, files, workers):
        for file, result in chunk:
            if isinstance(result, Header):
                candidates.append((file, result))
            elif result is None:
                scan.others.append(file)
            else:
                scan.unreadable.append((file, result))
        done += len(chunk)
        if progress is not None:
            progress(done, len(files))
    _sort_out(scan, candidates, include_secondary)
    return scan


def in_chunks(read: Callable[[list[Item]], Found], items: Sequence[Item], workers: int) -> Iterator[Found]:
    """Yield the results of `read` for chunks of `items`, in order.

    If there are many items, `workers` processes read.
    """
    chunks = [list(items[start : start + _CHUNK]) for start in range(0, len(items), _CHUNK)]
    if workers <= 1 or len(chunks) < 2:
        yield from map(read, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(chunks)), context, initializer=_start_worker) as pool:
        yield from pool.map(read, chunks)


def _start_worker() -> None:
    """Make a worker process ignore Ctrl-C, which the parent handles, and end when the parent ends or is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _examine_all(files: list[DicomFile]) -> list[tuple[DicomFile, Header | str | None]]:
    return [(file, _examine(file)) for file in files]


def _examine(file: DicomFile) -> Header | str | None:
    """Return for each file the header, the reason why it is unreadable, or None if the file is not DICOM."""
    is_named_so = (file.member or file.path.name).lower().endswith(_SUFFIXES)
    try:
        with file.open() as stream:
            start = stream.read(140)
        if not is_named_so and not is_dicom(start):
            return None
        return read_header(file)
    except DicomError as error:
        return str(error)


def _sort_out(scan: Scan, candidates: list[tuple[DicomFile, Header]], include_secondary: bool) -> None:
    """Sort the candidates into the lists `headers`, `set_aside` and `unreadable` of `scan`."""
    originals = []
    for file, header in candidates:
        reason = set_aside(header, include_secondary=include_secondary)
        if reason is None:
            originals.append((file, header))
        else:
            scan.set_aside.append((file, reason))
    duplicates = {d.file: d for d in find_duplicates(originals, _hashes_of_repeated(originals))}
    for file, header in originals:
        duplicate = duplicates.get(file)
        if duplicate is None:
            scan.headers.append((file, header))
        else:
            target = scan.unreadable if duplicate.is_conflict else scan.set_aside
            target.append((file, f"duplicate of {duplicate.of.path_text(scan.root)}: {duplicate.reason}"))
    for entries in (scan.set_aside, scan.unreadable):
        entries.sort(key=lambda entry: _place(entry[0]))


def _place(file: DicomFile) -> tuple[Path, str]:
    return file.path, file.member or ""


def _hashes_of_repeated(headers: list[tuple[DicomFile, Header]]) -> dict[DicomFile, str]:
    """Return pixel hashes of files that share a SOPInstanceUID; a scan does not need those of other files.

    If all files of a group have the same bytes, nothing is decoded, and the hash of the bytes is used instead.
    """
    groups: dict[str, list[DicomFile]] = {}
    for file, header in headers:
        if header.sop_uid is not None:
            groups.setdefault(header.sop_uid, []).append(file)
    hashes: dict[DicomFile, str] = {}
    for group in groups.values():
        if len(group) > 1:
            digests = {file: hashlib.sha256(file.read()).hexdigest() for file in group}
            hashes |= digests if len(set(digests.values())) == 1 else _pixel_hashes(group)
    return hashes


def _pixel_hashes(files: list[DicomFile]) -> dict[DicomFile, str]:
    hashes = {}
    for file in files:
        with suppress(DicomError):  # such a file is compared by its header
            hashes[file] = develop_dicom(file).pixel_sha256
    return hashes


_STORAGE = "1.2.840.10008.5.1.4.1.1."
_RADIOGRAPHS = {_STORAGE + "1", _STORAGE + "1.1", _STORAGE + "1.1.1"}
"""Computed Radiography; Digital X-Ray for presentation and for processing (PS3.4 B.5)."""

_OTHER_CLASSES = (
    ("1.2.840.10008.1.3.10", "a DICOMDIR, the index of a storage medium"),
    (_STORAGE + "7", "a secondary capture (SOP class)"),
    (_STORAGE + "11", "a presentation state, not a picture"),
    (_STORAGE + "88", "a structured report or key object selection, not a picture"),
    (_STORAGE + "104", "an encapsulated document, not a picture"),
)
_MODALITIES = ("CR", "DX")
_CLEAN_PIXELS = "113101"


def set_aside(header: Header, *, include_secondary: bool = False) -> str | None:
    """Return the reason why a file is not an original projection radiograph, or None if it is.

    Parameters
    ----------
    header : Header
    include_secondary : bool
        Accept secondary captures whose modality is CR, DX or missing, because some public collections (RSNA Pneumonia,
        SIIM-ACR) were re-saved as secondary captures.

    Notes
    -----
    A missing SOP class or modality is accepted, because de-identification often removes it. So is modality CR with the
    SOP class of DX.
    """
    is_secondary = (header.sop_class or "").startswith(_STORAGE + "7")
    if header.sop_class and header.sop_class not in _RADIOGRAPHS and not (is_secondary and include_secondary):
        return _class_reason(header.sop_class)
    if header.modality and header.modality not in _MODALITIES:
        return f"the modality is neither CR nor DX, got {header.modality}"
    if not header.has_pixels:
        return "no pixel data, or the file is truncated before them"
    if not header.rows or not header.columns:
        return "no picture, because Rows or Columns are missing"
    if header.photometric and not header.photometric.startswith("MONOCHROME"):
        return f"a colour picture, got {header.photometric}"
    if header.image_type[:2] == ("DERIVED", "SECONDARY") and not include_secondary:
        return "derived secondary picture (ImageType)"
    if "LOCALIZER" in header.image_type:
        return "localizer (ImageType)"
    return None


def _class_reason(sop_class: str) -> str:
    for prefix, reason in _OTHER_CLASSES:
        if sop_class == prefix or sop_class.startswith(f"{prefix}."):
            return reason
    return f"the SOP class is not that of a radiograph, got {sop_class}"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A `file` that repeats the picture of the file `of`; in a conflict, the files share a UID but differ."""

    file: DicomFile
    of: DicomFile
    reason: str
    is_conflict: bool = False


def find_duplicates(
    headers: Sequence[tuple[DicomFile, Header]], pixel_sha256: Mapping[DicomFile, str] | None = None
) -> list[Duplicate]:
    """Return the files that repeat another file; the first file of each group is kept.

    Parameters
    ----------
    headers : sequence of (file, header)
        The files in order of preference.
    pixel_sha256 : mapping, optional
        Hash of the 8-bit pixels of some or all files.

    Returns
    -------
    list of Duplicate
        The duplicates, in the order of `headers`, each file at most once. The first rule that applies counts:

        1. Same SOPInstanceUID as an earlier file: a duplicate if the pixels (without hashes, all header values) agree;
          otherwise a conflict, because one of the two files is mislabelled.
        2. FOR PROCESSING picture with a FOR PRESENTATION picture of the same exposure in the study: the latter is kept.
          The exposure is the same if the latter names the file as its source, or if the exposure keys are equal, or if
          view, kVp and mAs are equal.
        3. Same pixels as an earlier file of the study.
    """
    hashes = pixel_sha256 or {}
    presentations: dict[str | None, list[tuple[DicomFile, Header]]] = {}
    for file, header in headers:
        if header.intent == "PRESENTATION":
            presentations.setdefault(header.study_uid, []).append((file, header))
    by_uid: dict[str, tuple[DicomFile, Header]] = {}
    by_pixels: dict[tuple[str | None, str], DicomFile] = {}
    duplicates = []
    for file, header in headers:
        duplicate = _same_uid(file, header, by_uid, hashes)
        if duplicate is None and header.intent == "PROCESSING":
            duplicate = _processed_elsewhere(file, header, presentations.get(header.study_uid, ()))
        if duplicate is None and file in hashes:
            first = by_pixels.setdefault((header.study_uid, hashes[file]), file)
            duplicate = None if first == file else Duplicate(file, first, "the same pixels in the same study")
        if duplicate is not None:
            duplicates.append(duplicate)
    return duplicates


def _same_uid(
    file: DicomFile, header: Header, by_uid: dict[str, tuple[DicomFile, Header]], hashes: Mapping[DicomFile, str]
) -> Duplicate | None:
    if header.sop_uid is None:
        return None
    first, its_header = by_uid.setdefault(header.sop_uid, (file, header))
    if first == file:
        return None
    if file in hashes and first in hashes:
        agree, what = hashes[file] == hashes[first], "pixels"
    else:
        agree, what = header == its_header, "header facts"
    if agree:
        return Duplicate(file, first, f"the same SOPInstanceUID and {what}")
    return Duplicate(
        file, first, f"the same SOPInstanceUID but different {what}, so one of the two files is mislabelled", True
    )


def _processed_elsewhere(
    file: DicomFile, header: Header, presentations: Iterable[tuple[DicomFile, Header]]
) -> Duplicate | None:
    for other, processed in presentations:
        why = _same_exposure(header, processed)
        if why:
            return Duplicate(file, other, f"FOR PROCESSING; the same exposure ({why}) is present FOR PRESENTATION")
    return None


def _same_exposure(raw: Header, processed: Header) -> str | None:
    if raw.sop_uid is not None and raw.sop_uid in processed.source_uids:
        return "named as source"
    if raw.exposure_key is not None and processed.exposure_key is not None:
        return "same exposure key" if raw.exposure_key == processed.exposure_key else None
    settings = (raw.kvp, raw.exposure_mas)
    same = None not in settings and settings == (processed.kvp, processed.exposure_mas) and raw.view == processed.view
    return "same view, kVp and mAs" if same else None


def film_notes(header: Header) -> tuple[str, ...]:
    """Return notes on header statements that you can check by viewing the film."""
    notes = []
    if header.body_part not in (None, *CHEST):
        part = "an unlisted value" if header.body_part == "OTHER" else header.body_part
        notes.append(f"BodyPartExamined is {part}, not CHEST; it is often wrong")
    if header.coded_view is not None:
        notes.append(f"the view is {header.view}, but its codes or the orientation say {header.coded_view}")
    if header.view == "UNKNOWN":
        notes.append("the view is unknown: no known ViewPosition, code or orientation")
    return tuple(notes)


def header_warnings(header: Header) -> list[str]:
    """Return warnings on what a publisher must check before publishing pixels or values of this file.

    The attributes of de-identification are those of DICOM PS3.15 Annex E. They are no proof, because a tool may have
    set them wrongly.
    """
    warnings = []
    if header.deidentified is None:
        warnings.append("PatientIdentityRemoved is absent, so the file does not state that it was de-identified")
    elif not header.deidentified:
        warnings.append("PatientIdentityRemoved is NO, so the file was not de-identified")
    elif not header.deid_methods:
        warnings.append("PatientIdentityRemoved is YES, but no coded method is stated")
    if header.burned_in:
        warnings.append("BurnedInAnnotation is YES, so the pixels contain text that may identify the patient")
    elif _CLEAN_PIXELS not in header.deid_methods:
        value = "absent" if header.burned_in is None else "NO"
        warnings.append(f"no stated method cleaned the pixels (113101); BurnedInAnnotation {value} is no proof")
    return warnings
