"""Read the images of a dataset folder one at a time, on demand.

Only the columns of ids are read to locate all images. An image is then read with its row group (100 rows or 32 MB in
the folders that this package writes), and the last few groups stay in memory. A larger group, which another program may
have written, is read in batches of a few rows and not kept.

Grey values are those of the stored file, converted by Pillow to 8 bits; the hash `pixel_sha256` of a row is of the same
values. Files of 16 bits, which this package never writes, are scaled so that the darkest value is 0 and the brightest
255.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.folder import check_split, read_folder_info, split_shards
from reveal_bench.models.questions import CONFIGS
from reveal_bench.sources.pictures import grey_of_16_bits

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL.Image import Image

COLUMNS = {"image": None, "images": "image_facts", "prior_images": "prior_image_facts"}
"""Column of images -> column of the images' ids; None if the row's own id is the image's."""
FACTS = ("image_id", "width", "height", "pixel_pipeline")
FORMATS = ("PNG", "JPEG")
WITHHELD = "withheld"
KEPT_BYTES = 96 << 20
"""Maximum bytes of row groups kept in memory; a group of more than half this size is not kept."""
BATCH_ROWS = 4


@dataclass(frozen=True, slots=True)
class _StoredAt:
    """The position of an image: a row of a row group, and an entry of the row's list if `column` has lists."""

    shard: Path
    group: int
    row: int
    column: str
    entry: int | None
    size: tuple[int, int]
    is_withheld: bool


class FolderPictures:
    """The images of all splits of a dataset folder. Several threads may use the object.

    Parameters
    ----------
    folder : dataset folder, public or private
    splits : splits to search, all by default

    Raises
    ------
    ValueError
        If the folder has no images, or two rows contradict each other about an image.
    """

    def __init__(self, folder: Path, splits: Iterable[str] | None = None) -> None:
        self.folder = Path(folder)
        info = read_folder_info(self.folder)
        self._places: dict[str, _StoredAt] = {}
        for split in info.splits if splits is None else splits:
            check_split(info, self.folder, split)
            sizes = _manifest_sizes(self.folder, split)
            for image_id, place in _places(self.folder, split):
                known = self._places.get(image_id, place)
                stated = sizes.get(image_id, known.size)
                if place.size != stated:
                    raise ValueError(f"{image_id} must have one size in {folder}, got {stated} and {place.size}")
                self._places[image_id] = place if known.is_withheld else known
        if all(place.is_withheld for place in self._places.values()):
            named = "" if splits is None else f" of split {', '.join(splits)}"
            raise ValueError(f"{folder} has no pictures{named}: {_REMEDY}")
        self._groups = _Groups()

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the images in the folder, in the order of the folder's files."""
        return tuple(image_id for image_id, place in self._places.items() if not place.is_withheld)

    def open(self, image_id: str) -> Image:
        """Return an image in mode L, with the size stated in the dataset.

        Raises
        ------
        ValueError
            If the folder lacks the image or its pixels, or the file cannot be decoded or has another size.
        """
        place = self._places.get(image_id)
        if place is None:
            raise ArgumentError("image_id", f"must be an image with its picture in {self.folder}", repr(image_id))
        data = None if place.is_withheld else self._groups.picture(place)
        if data is None:
            raise ValueError(f"{self.folder} has no picture of {image_id}: {_REMEDY}")
        try:
            return _decoded(data, place.size)
        except ValueError as error:
            raise ValueError(f"the picture of {image_id} in {place.shard.name} must decode: {error}") from None


class SplitImages(FolderPictures):
    """The images of one split of a dataset folder. Several threads may use the object.

    Parameters
    ----------
    folder : dataset folder, public or private
    split : one of its splits

    Raises
    ------
    ValueError
        If the folder has no such split, or no image of the split.
    """

    def __init__(self, folder: Path, split: str) -> None:
        super().__init__(folder, [split])


_REMEDY = "build it with them, or add them from your own copy of the source with `reveal-bench attach`"


class _Groups:
    """Columns of images by row group; the latest columns stay in memory, up to :data:`KEPT_BYTES` in all."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, int, str], pa.ChunkedArray] = OrderedDict()
        self._lock = threading.Lock()

    def picture(self, place: _StoredAt) -> bytes | None:
        """Return the bytes of an image file; None if the row has no file."""
        key = (place.shard, place.group, place.column)
        with self._lock:
            column, row = self._kept.get(key), place.row
            if column is None:
                column, row = self._read(place)
            else:
                self._kept.move_to_end(key)
            cell: Any = column[row].as_py()
        if cell is not None and place.entry is not None:
            cell = cell[place.entry] if place.entry < len(cell) else None
        return None if cell is None else cell["bytes"]

    def _read(self, place: _StoredAt) -> tuple[pa.ChunkedArray, int]:
        """Return a group's column, or only a few of its rows, and the index of the requested row among these rows."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(place.shard) as file:
            if _column_bytes(file, place) > KEPT_BYTES // 2:
                batches = file.iter_batches(BATCH_ROWS, row_groups=[place.group], columns=[place.column])
                first = 0
                for batch in batches:
                    if place.row < first + batch.num_rows:
                        return batch.column(0), place.row - first
                    first += batch.num_rows
            column = file.read_row_group(place.group, columns=[place.column]).column(0)
        while self._kept and sum(kept.nbytes for kept in self._kept.values()) + column.nbytes > KEPT_BYTES:
            self._kept.popitem(last=False)
        self._kept[(place.shard, place.group, place.column)] = column
        return column, place.row


def _column_bytes(file: pq.ParquetFile, place: _StoredAt) -> int:
    group = file.metadata.row_group(place.group)
    leaves = (group.column(i) for i in range(group.num_columns))
    return sum(leaf.total_uncompressed_size for leaf in leaves if leaf.path_in_schema.split(".")[0] == place.column)


def _manifest_sizes(folder: Path, split: str) -> dict[str, tuple[int, int]]:
    """Return image id -> (height, width) from the public manifest of a localization split; empty for other kinds."""
    import pyarrow.parquet as pq

    path = folder / "manifest" / f"{split}.parquet"
    if not {"image_id", "height", "width"} <= set(pq.read_schema(path).names):
        return {}
    rows = pq.read_table(path, columns=["image_id", "height", "width"]).to_pylist()
    return {row["image_id"]: (row["height"], row["width"]) for row in rows}


def _places(folder: Path, split: str) -> Iterator[tuple[str, _StoredAt]]:
    """Yield (image id, position) of every image of a split, in the order of the files."""
    import pyarrow.parquet as pq

    for config in CONFIGS:
        for shard in split_shards(folder, config, split):
            with pq.ParquetFile(shard) as file:
                columns = [column for column in COLUMNS if column in file.schema_arrow.names]
                for group in range(file.num_row_groups):
                    for column in columns:
                        yield from _places_of_group(file, shard, group, column)


def _places_of_group(file: pq.ParquetFile, shard: Path, group: int, column: str) -> Iterator[tuple[str, _StoredAt]]:
    facts_column = COLUMNS[column]
    wanted = list(FACTS) if facts_column is None else [facts_column]
    for number, row in enumerate(file.read_row_group(group, columns=wanted).to_pylist()):
        entries = [(None, row)] if facts_column is None else list(enumerate(row[facts_column] or ()))
        for entry, facts in entries:
            size, is_withheld = (facts["height"], facts["width"]), facts["pixel_pipeline"] == WITHHELD
            yield facts["image_id"], _StoredAt(shard, group, number, column, entry, size, is_withheld)


def _decoded(data: bytes, size: tuple[int, int]) -> Image:
    """Decode a grey image from a file's bytes after checking that it has `size` (height, width)."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if (image.height, image.width) != size:
                stated, got = f"{size[1]} x {size[0]}", f"{image.width} x {image.height}"
                raise ValueError(f"the manifest states {stated} pixels, it has {got}")
            is_deep = image.mode.startswith(("I", "F"))
            grey = Image.fromarray(grey_of_16_bits(image)) if is_deep else image.convert("L")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else str(error)
        raise ValueError(f"{len(data)} bytes: {reason}") from None
    grey.info = {}
    return grey
