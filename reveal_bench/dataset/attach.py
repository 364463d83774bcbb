"""Adding of pictures, from the user's own copy of the source, to a dataset that was published without pixels.

The file of an image is found by its name or, if no name matches, by the sha256 of its bytes, which the dataset states.
A file is accepted if its bytes have the row's `source_sha256`, or if the pixels made from the file have the row's
`pixel_sha256`. Pictures are made from files as in a build: JPEG and 8-bit PNG files are used without their metadata,
DICOM and 16-bit PNG files are converted.

Images of a holdout have no published hash, because anyone with the file could recognise the image. Images of a folder
that was built without pictures have no hash either. Images without a hash are matched only by name, and
:attr:`AttachLog.unverified` lists them.

An image's file is found among the files of a download by its name, or by the sha256 of its bytes.

A file matches an image if the name of the file, or the last parts of its path joined by "_", are the image id:
``train/p1/s2/v3.jpg`` matches ``p1_s2_v3``, ``s2_v3``, ``v3`` and ``v3.jpg``. If several files match, the file with the
right hash is used. Zip archives are searched like folders. Files are only hashed if an image is not found by name, and
each file is hashed once.
"""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.build import replace_targets, workplace
from reveal_bench.dataset.holdout import check_apart, check_name
from reveal_bench.dataset.layout import SHARD_BYTES, FolderWriter
from reveal_bench.dataset.preview import PREVIEW
from reveal_bench.dataset.tables import INPUTS, MANIFEST, DatasetFolder, open_folder, read_table, tables_of
from reveal_bench.dataset.validate_rows import is_name_of
from reveal_bench.files import FILMS
from reveal_bench.kinds.images import PictureFile, PublishedPicture
from reveal_bench.kinds.rows import Row, image_facts_of, of_any_length
from reveal_bench.sources.pictures import GREY_OF_16_BITS, develop
from reveal_bench.sources.source import BuildError, Problem

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, Features

SUFFIXES = {".jpg", ".jpeg", ".png", ".dcm", ".dicom", ".dic", ""}
PARTS = 4
"""Largest number of parts at the end of a path that may form an id."""
HEAD_BYTES = 132


@dataclass(frozen=True, slots=True)
class MatchedPicture:
    """The published version of an image's picture."""

    data: bytes = field(repr=False)
    name: str
    size: tuple[int, int]
    pipeline: str
    is_verified: bool


class SourceFiles:
    """The files under `root` that may be pictures; `progress` is called for each file that is hashed."""

    def __init__(self, root: Path, progress: Callable[[str, int, int | None], None] | None = None) -> None:
        self.root, self._progress = root, progress
        self._named: dict[str, list[PictureFile]] = {}
        self._files: list[PictureFile] = []
        self._hashed: dict[str, PictureFile] | None = None
        self._lock = threading.Lock()
        for file in _pictures_under(root):
            self._files.append(file)
            for name in _names(PurePosixPath(file.source_path)):
                self._named.setdefault(name, []).append(file)

    def find(self, facts: Row) -> MatchedPicture | Problem:
        """Return the picture of an image, or the problem.

        `facts` has image_id, width, height and the two hashes, which may be None.
        """
        image_id, source = facts["image_id"], facts["source_sha256"]
        candidates = self._named.get(image_id.casefold(), [])
        faults = []
        for file in candidates:
            outcome = _checked(file, facts)
            if isinstance(outcome, MatchedPicture):
                return outcome
            faults.append(outcome)
        same = self._by_hash().get(source) if source is not None else None
        if same is not None:
            return _checked(same, facts)
        if faults:
            return faults[0]
        rule = "must be in the download, found by name" + (" or hash" if source is not None else "")
        return Problem(self.root.name, image_id, "image", rule, f"none of {len(self._files):,} files")

    def _by_hash(self) -> dict[str, PictureFile]:
        with self._lock:
            if self._hashed is None:
                self._hashed = {}
                for n_done, file in enumerate(self._files, start=1):
                    self._hashed.setdefault(_sha256(file), file)
                    if self._progress is not None:
                        self._progress("hashing", n_done, len(self._files))
            return self._hashed


def _checked(file: PictureFile, facts: Row) -> MatchedPicture | Problem:
    """Return the file's picture if its hashes and size match `facts`, otherwise the problem."""
    image_id, source, pixels = facts["image_id"], facts["source_sha256"], facts["pixel_sha256"]
    try:
        made = develop(_with_kind(file))
    except ValueError as error:
        return Problem(file.source_path, image_id, "image", "must be a readable picture", str(error))
    if source is not None and made.source_sha256 != source and made.pixel_sha256 != pixels:
        rule = f"must be {source}, as the dataset states"
        return Problem(file.source_path, image_id, "source_sha256", rule, made.source_sha256)
    if pixels is not None and made.pixel_sha256 != pixels:
        rule = f"must be {pixels} after {made.pipeline!r}"
        return Problem(file.source_path, image_id, "pixel_sha256", rule, made.pixel_sha256)
    return _of_size(file, facts, made, is_verified=source is not None or pixels is not None)


def _of_size(file: PictureFile, facts: Row, made: PublishedPicture, *, is_verified: bool) -> MatchedPicture | Problem:
    height, width = made.size
    if facts["width"] is not None and (width, height) != (facts["width"], facts["height"]):
        rule = f"must be {facts['width']} x {facts['height']} pixels"
        return Problem(file.source_path, facts["image_id"], "size", rule, f"{width} x {height}")
    data = made.data or b""
    name = made.name
    if not is_name_of(name, facts["image_id"]):  # the name of the file may contain a patient's name
        name = facts["image_id"] + (".png" if data.startswith(b"\x89PNG") else ".jpg")
    return MatchedPicture(data, name, made.size, made.pipeline, is_verified)


def _pictures_under(root: Path) -> Iterator[PictureFile]:
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root).as_posix()
        if any(part.startswith(".") for part in PurePosixPath(relative).parts) or not path.is_file():
            continue
        if path.suffix.lower() == ".zip":
            yield from _members(path, relative)
        elif path.suffix.lower() in SUFFIXES:
            yield PictureFile(path, path.name, relative)


def _members(archive: Path, archive_name: str) -> Iterator[PictureFile]:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [entry.filename for entry in opened.infolist() if not entry.is_dir()]
    except (OSError, zipfile.BadZipFile):
        return  # not a zip archive: images expected in it are reported as missing
    folder = PurePosixPath(archive_name).parent
    for name in names:
        member = PurePosixPath(name)
        if member.suffix.lower() in SUFFIXES:
            yield PictureFile(archive, member.name, (folder / member).as_posix(), member=name)


def _names(path: PurePosixPath) -> Iterator[str]:
    yield path.name.casefold()
    stem = (*path.parts[:-1], path.name[: len(path.name) - len(path.suffix)])
    for n in range(1, min(PARTS, len(stem)) + 1):
        yield "_".join(stem[-n:]).casefold()


def _with_kind(file: PictureFile) -> PictureFile:
    """Return the file with its kind (DICOM, 16-bit PNG or other picture), recognised by its first bytes."""
    head = _head(file)
    if head[128:132] == b"DICM" or file.path.suffix.lower() in (".dcm", ".dicom", ".dic"):
        return replace(file, kind="dicom")
    is_png16 = head.startswith(b"\x89PNG\r\n\x1a\n") and head[24:26] == GREY_OF_16_BITS
    return replace(file, kind="png16" if is_png16 else "picture")


def _head(file: PictureFile) -> bytes:
    try:
        if file.member is None:
            with file.path.open("rb") as opened:
                return opened.read(HEAD_BYTES)
        with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as member:
            return member.read(HEAD_BYTES)
    except (OSError, KeyError, zipfile.BadZipFile):
        return b""  # `develop` says why


def _sha256(file: PictureFile) -> str:
    try:
        if file.member is None:
            with file.path.open("rb") as opened:
                return hashlib.file_digest(opened, "sha256").hexdigest()
        with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as member:
            return hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, KeyError, zipfile.BadZipFile):
        return ""


Progress = Callable[[str, int, int | None], None]
BATCH_ROWS = 8
GROUPS = {"images": "image_facts", "prior_images": "prior_image_facts"}
"""Name of a column of pictures -> name of the column with facts about these pictures."""


@dataclass
class AttachLog:
    """The outcome of :func:`attach_images`: images that were verified, not verified or left out.

    Attributes
    ----------
    n_verified : images whose file has the hash that the dataset states
    unverified : ids of images that were matched only by name
    problems : images that were left out (with `keep_going`)
    """

    n_verified: int = 0
    unverified: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def attach_images(
    dataset: Dataset | Path | str,
    root: Path,
    *,
    out: Path | None = None,
    keep_going: bool = False,
    progress: Progress | None = None,
    log: AttachLog | None = None,
) -> Dataset | DatasetDict | None:
    """Add the pictures of a download to a dataset without pixels.

    Parameters
    ----------
    dataset : rows of a main config as `datasets` loads them, or a dataset folder
    root : folder of the download, searched with all its subfolders and zip archives
    out : new dataset folder to write, with the pictures embedded; only for a dataset folder
    keep_going : leave out images that are missing or do not match, instead of failing
    progress : called with (what, images done, images in all)
    log : filled with the outcome for each image

    Returns
    -------
    The dataset with pictures: a Dataset if `dataset` is one; for a folder a DatasetDict of its main config, in which a
    split with private references contains only pictures and the values of its manifest. None if `out` is written.

    Raises
    ------
    BuildError
        With every image that is missing or does not match, unless `keep_going`; then nothing is written.
    ValueError
        If `root` is not a folder, `out` exists and is not empty, or `dataset` is neither a Dataset nor a folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise ArgumentError("root", "must be a folder", root)
    job = _Job(SourceFiles(root, progress), keep_going, progress, AttachLog() if log is None else log)
    if not isinstance(dataset, str | Path):
        if out is not None:
            raise ArgumentError("out", "must be None unless `dataset` is a dataset folder", None, ("dataset",))
        return job.dataset(dataset)
    folder = open_folder(Path(dataset))
    if out is None:
        return job.folder_splits(folder)
    if folder.is_private:
        raise ArgumentError(
            "dataset", "must not be the private folder of a holdout when `out` is given", folder.path, ("out",)
        )
    check_name(out, what="out", overwrite=False)
    check_apart(folder.path, out)
    with workplace(out) as place:
        job.write(folder, place.folder)
        job.finish()
        replace_targets([place])
    return None


@dataclass
class _Job:
    """One run that finds, checks and embeds pictures in threads: decoding and hashing release Python's global lock."""

    files: SourceFiles
    keep_going: bool
    progress: Progress | None
    log: AttachLog

    def finish(self) -> None:
        """Raise the problems of images unless `keep_going`."""
        if self.log.problems and not self.keep_going:
            raise BuildError(self.log.problems)

    def dataset(self, rows: Dataset) -> Dataset:
        """Return the Dataset `rows` with pictures."""
        features = rows.features
        if not ("image" in features and "pixel_sha256" in features) and "image_facts" not in features:
            raise ArgumentError("dataset", "must have the columns of a main config", ", ".join(features))
        tables = rows.with_format("arrow").iter(batch_size=BATCH_ROWS)
        plain = (row for table in tables for row in table.to_pylist())
        made = _on_disk(self.attached(plain, "images", len(rows)), features)
        self.finish()
        return made

    def folder_splits(self, folder: DatasetFolder) -> DatasetDict:
        """Return all splits of a folder's main config, with pictures."""
        from datasets import DatasetDict

        features = folder.kind.table.features(folder.benchmark)
        made = {split: _on_disk(rows, features) for split, rows in self._splits(folder)}
        self.finish()
        return DatasetDict(made)

    def write(self, folder: DatasetFolder, out: Path) -> None:
        """Write the dataset folder `out`, with pictures."""
        info, kind = folder.info, folder.kind
        asks: Any = info.asks
        writer = FolderWriter(
            out, folder.benchmark, version=info.version, asks=asks, embed=True, max_shard_bytes=SHARD_BYTES
        )
        features = kind.table.features(folder.benchmark)
        for split, rows in self._splits(folder):
            if info.splits[split]["references"] == "private":
                manifest = list(_rows_of(folder, MANIFEST, split))
                size = {name: n for name, n in info.splits[split].items() if name != "references"}
                shards = writer.shards(INPUTS, split, features)
                for row in rows:
                    shards.add(row)
                writer.close_shards(INPUTS, split, shards, features)
                writer.add_manifest(split, manifest, size, references="private")
                continue
            split_writer = writer.split(split)
            for row in rows:
                split_writer.add(row, folder.kind.questions.asked_of(row, info.findings, info.asks))
            writer.close_split(split, split_writer)
        for config, split, side in _side_tables(folder):
            if config != kind.table.side_config:
                writer.add_table(config, split, side, _rows_of(folder, config, split))
                continue
            shards = writer.shards(config, split, side)  # masks are pictures, so their rows are read one by one
            for row in _rows_of(folder, config, split):
                shards.add(row)
            writer.close_shards(config, split, shards, side)
        films = folder.path / FILMS
        writer.finish(synthetic=info.synthetic, films=films.read_text(encoding="utf-8") if films.is_file() else "")

    def _splits(self, folder: DatasetFolder) -> Iterator[tuple[str, Iterator[Row]]]:
        kind = folder.kind
        configs = {table.config for table in tables_of(folder)}
        for split, entry in folder.info.splits.items():
            n_rows = entry[kind.counted]
            if entry["references"] == "public" or folder.is_private:
                yield split, self.attached(_rows_of(folder, kind.config, split), split, n_rows)
            elif INPUTS in configs:
                yield split, self.attached(_rows_of(folder, INPUTS, split), split, n_rows)
            else:
                inputs = (_input_row(row, folder) for row in _rows_of(folder, MANIFEST, split))
                yield split, self.attached(inputs, split, n_rows)

    def attached(self, rows: Iterator[Row], what: str, n_rows: int) -> Iterator[Row]:
        """Yield the rows with their pictures; only a few rows are in memory at a time."""
        done = 0
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for batch in _batches(rows):
                outcomes = iter(list(pool.map(self._one, [facts for row in batch for facts in image_facts_of(row)])))
                for row in batch:
                    yield self._with_pictures(row, outcomes)
                done += len(batch)
                if self.progress is not None:
                    self.progress(what, done, n_rows)

    def _one(self, facts: Row) -> MatchedPicture | Problem:
        return self.files.find(facts)

    def _with_pictures(self, row: Row, outcomes: Iterator[MatchedPicture | Problem]) -> Row:
        if "image" in row:
            picture, facts = self._picture(row, next(outcomes))
            return {**row, **facts, "image": picture}
        new = dict(row)
        for column, facts_column in GROUPS.items():
            pairs = [self._picture(entry, next(outcomes)) for entry in row.get(facts_column) or ()]
            if facts_column in row:
                new[column] = [picture for picture, _ in pairs]
                new[facts_column] = [
                    {**entry, **facts} for entry, (_, facts) in zip(row[facts_column], pairs, strict=True)
                ]
        return new

    def _picture(self, facts: Row, outcome: MatchedPicture | Problem) -> tuple[Row | None, Row]:
        """Return (picture, changed facts) of an image; (None, {}) after noting a problem."""
        if isinstance(outcome, Problem):
            self.log.problems.append(outcome)
            return None, {}
        if outcome.is_verified:
            self.log.n_verified += 1
        else:
            self.log.unverified.append(facts["image_id"])
        height, width = outcome.size
        known = {"pixel_pipeline": outcome.pipeline, "width": width, "height": height}
        return {"bytes": outcome.data, "path": outcome.name}, known


def _batches(rows: Iterator[Row], size: int = BATCH_ROWS) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _rows_of(folder: DatasetFolder, config: str, split: str) -> Iterator[Row]:
    for table in tables_of(folder):
        if table.config == config and table.split == split:
            for batch in read_table(table):
                yield from batch


def _side_tables(folder: DatasetFolder) -> Iterator[tuple[str, str, Features]]:
    """Yield (config, split, Features) of every table except the main config, inputs, manifests and previews."""
    import pyarrow.parquet as pq
    from datasets import Features

    seen = set()
    for table in tables_of(folder):
        place = (table.config, table.split)
        if table.config not in (folder.kind.config, INPUTS, MANIFEST, PREVIEW) and place not in seen:
            seen.add(place)
            written = Features.from_arrow_schema(pq.read_schema(table.path))
            yield *place, Features({name: of_any_length(feature) for name, feature in written.items()})


def _input_row(entry: Row, folder: DatasetFolder) -> Row:
    """Return a row of the main config that has only the values of a row of the manifest."""
    record = folder.kind.data.bare_record(entry, folder.benchmark.findings)
    n_pictures = len(folder.kind.data.pictures(record))
    row = folder.kind.table.blank(folder.kind.table.row(record, folder.benchmark, [None] * n_pictures))
    for facts in (*row.get("image_facts", ()), *row.get("prior_image_facts", ())):
        facts.update(width=None, height=None)
    return {**row, "patient_id": None, **({"prompt": None} if "prompt" in row else {})}


def _on_disk(rows: Iterator[Row], features: Features) -> Dataset:
    """Return a Dataset of `rows`, stored in the cache of `datasets` because pictures may exceed the memory."""
    import datasets
    from datasets.arrow_writer import ArrowWriter

    place = Path(datasets.config.HF_DATASETS_CACHE) / "reveal_bench_attached" / uuid.uuid4().hex
    place.mkdir(parents=True)
    file = str(place / "rows.arrow")
    with ArrowWriter(path=file, features=features, writer_batch_size=BATCH_ROWS) as writer:
        for row in rows:
            writer.write(row)
        writer.finalize()
    return datasets.Dataset.from_file(file)
