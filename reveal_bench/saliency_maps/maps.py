"""Find files of heat maps, match them with images and findings, and read the maps.

================  ====================================================================================================
``.npy``          an array (h, w), also (1, h, w) or (1, 1, h, w); or (n, h, w) with the names of the n findings given
``.npz``          the same under ``map``, or an array per finding under its name; ``prob`` beside it
``.safetensors``  as ``.npz``
``.png .tif``     one channel of 8, 16 or 32 bits
``.pkl``          what CheXlocalize publishes (:mod:`reveal_bench.saliency_maps.pickles`); `prob` may be one per label
================  ====================================================================================================

Maps come from a folder or a list of files; in Python, they may also be files or arrays by image and finding.

A file is called ``<image>_<finding>`` or ``<image>_<finding>_map``, or ``<finding>`` in a folder ``<image>``, or
``<image>`` in a folder ``<finding>``; a file with the maps of several findings is called ``<image>``. Findings may be
spelled as :func:`reveal_bench.findings.canonical_finding` allows.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import read_npy
from reveal_bench.findings import CHEXPERT_LABELS, canonical_finding, nearest_names
from reveal_bench.kinds.images import MOST_PIXELS
from reveal_bench.metrics.heat_maps import checked_map
from reveal_bench.saliency_maps.pickles import MOST_BYTES, read_pickle

ENDINGS = (".npy", ".npz", ".safetensors", ".png", ".tif", ".tiff", ".pkl")
_ARCHIVES = (".npz", ".safetensors")
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A map (h, w) in single precision, and the finding's probability, if the file has one."""

    values: npt.NDArray[np.float32]
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class MapFile:
    """The file with the map of an image and finding; if the file has several maps, `part` is the map's name or index.

    `array` is a map that was given as an array; `path` is then only a name.
    """

    path: Path
    finding: str
    part: str | int | None = None
    array: HeatMap | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class FoundMaps:
    """The maps of a folder, by image and finding.

    Attributes
    ----------
    files : (image, finding) -> file of the map
    elsewhere : files whose names do not begin with an image of the split
    """

    files: Mapping[Pair, MapFile]
    elsewhere: Sequence[Path]


def find_maps(
    root: Path | Sequence[Path], image_ids: Collection[str], findings: Sequence[str], *, names: Sequence[str] = ()
) -> FoundMaps:
    """Return the maps in `root` and its subfolders.

    Parameters
    ----------
    root : folder, or a list of files
    image_ids, findings : images and findings of the split
    names : findings of arrays (n, h, w), in the order of the arrays

    Raises
    ------
    ArgumentError
        If `root` has no map of the split, a finding is unknown, or two files have a map of the same image and finding;
        the message names the files.
    """
    listed = root.rglob("*") if isinstance(root, Path) else root
    canonical = [_canonical(name, findings, "names") for name in names]
    files: dict[Pair, MapFile] = {}
    elsewhere = []
    for path in sorted(path for path in listed if path.suffix.lower() in ENDINGS and path.is_file()):
        matches = list(_maps_of(path, root, image_ids, findings, canonical))
        if not matches:
            elsewhere.append(path)
        for image_id, file in matches:
            before = files.setdefault((image_id, file.finding), file)
            if before is not file:
                both = f"{_below(before.path, root)} and {_below(path, root)}"
                raise ArgumentError("maps", f"must have one map of ({image_id}, {file.finding})", both)
    if not files:
        example = f", such as {_below(elsewhere[0], root)}" if elsewhere else ""
        place = f" in {root}" if isinstance(root, Path) else ""
        rule = f"must have maps of the split called <image>_<finding>, with {', '.join(ENDINGS)}"
        raise ArgumentError("maps", rule, f"{len(elsewhere)} other files{place}{example}")
    return FoundMaps(files, elsewhere)


def _below(path: Path, root: Path | Sequence[Path]) -> Path:
    return path.relative_to(root) if isinstance(root, Path) else path


def given_maps(maps: Mapping[Any, Any], image_ids: Collection[str], findings: Sequence[str]) -> FoundMaps:
    """Return the maps that a caller passes by image and finding.

    Parameters
    ----------
    maps : (image, finding), or image -> finding, -> a file, an array of a shape that a file may have, or such an array
        and the probability
    image_ids, findings : images and findings of the split; pairs of other images are left out

    Raises
    ------
    ArgumentError
        If a key is not a pair, a finding is unknown or given twice, a map is invalid, or no map belongs to the split.
    """
    files: dict[Pair, MapFile] = {}
    elsewhere = []
    if all(isinstance(own, Mapping) for own in maps.values()):
        maps = {(image, finding): one for image, own in maps.items() for finding, one in own.items()}
    for key, value in maps.items():
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(one, str) for one in key)):
            raise ArgumentError("maps", "must have keys (image, finding)", repr(key))
        image_id, name = key
        if image_id not in image_ids:
            elsewhere.append(Path(f"{image_id}_{name}"))
            continue
        pair = image_id, _canonical(name, findings, "maps")
        if pair in files:
            raise ArgumentError("maps", f"must have one map of {pair}", repr(key))
        files[pair] = _given_map(value, Path("_".join(pair)), pair[1])
    if not files:
        raise ArgumentError("maps", "must have maps of images of the split", f"{len(elsewhere)} of others")
    return FoundMaps(files, elsewhere)


def _given_map(value: Any, place: Path, finding: str) -> MapFile:
    if isinstance(value, str | Path):
        return MapFile(Path(value).absolute(), finding)
    values, probability = value if isinstance(value, tuple) else (value, None)
    file = MapFile(place, finding)
    try:
        heat = HeatMap(checked_map(_flat(values, file)), _checked_probability(probability))
    except ArgumentError as error:
        raise ArgumentError("maps", f"must be maps: {place}", str(error)) from None
    return replace(file, array=heat)


def _maps_of(
    path: Path, root: Path | Sequence[Path], image_ids: Collection[str], findings: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[str, MapFile]]:
    stem = path.stem.removesuffix("_map")
    folder = "" if path.parent == root else path.parent.name
    if stem in image_ids and not canonical_finding(folder, findings):
        for part, finding in _parts_of(path, findings, names):
            yield stem, MapFile(path, finding, part)
        return
    for image_id, finding in ((stem, folder), (folder, stem)):
        if image_id in image_ids:
            yield image_id, MapFile(path, _canonical(finding, findings, "maps", path))
            return
    places = [match.start() for match in re.finditer("_", stem)]
    split = next((at for at in reversed(places) if stem[:at] in image_ids), None)
    if split is not None:
        yield stem[:split], MapFile(path, _canonical(stem[split + 1 :], findings, "maps", path))


def _parts_of(path: Path, findings: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str | int, str]]:
    """Yield (name or index, finding) of each map in a file of several maps."""
    if path.suffix.lower() in _ARCHIVES:
        for name in _names_in(path):
            if name not in ("prob", "probs"):
                yield name, _canonical(name, findings, "maps", path)
        return
    if not names:
        rule = "must come with `names`, the findings of an array of several maps"
        raise ArgumentError("maps", rule, path.name, ("names",))
    yield from enumerate(names)


def _canonical(name: str, findings: Sequence[str], argument: str, path: Path | None = None) -> str:
    canonical = canonical_finding(name, findings)
    if canonical is None:
        near = nearest_names(name, findings)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        place = f"{name!r} in {path}" if path else repr(name)
        raise ArgumentError(argument, f"must name findings of the benchmark: {', '.join(findings)}", place + hint)
    return canonical


def read_map(file: MapFile) -> HeatMap:
    """Read the map of a file.

    Raises
    ------
    ValueError
        If the file is damaged, or has no map (h, w) of finite numbers; the message names the file.
    """
    if file.array is not None:
        return file.array
    if file.path.suffix.lower() not in _READERS:
        raise ValueError(f"{file.path}: must be a file of a heat map, with {', '.join(ENDINGS)}")
    try:
        values, probability = _READERS[file.path.suffix.lower()](file)
        return HeatMap(checked_map(_flat(values, file)), _checked_probability(probability))
    except ArgumentError as error:
        raise ValueError(f"{file.path}: {error}") from None


def _flat(values: Any, file: MapFile) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if isinstance(file.part, int):
        if array.ndim != 3 or file.part >= len(array):
            raise ArgumentError("map", "must be an array (n, h, w) with a map for each of `names`", array.shape)
        return np.asarray(array[file.part])
    while array.ndim > 2 and len(array) == 1:
        array = array[0]
    return array


def _checked_probability(value: Any) -> float | None:
    if value is None:
        return None
    number = np.asarray(value, np.float64)
    if number.size != 1 or not 0 <= float(number.ravel()[0]) <= 1:
        raise ArgumentError("prob", "must be a number in [0, 1]", repr(value)[:80])
    return float(number.ravel()[0])


def _read_npy(file: MapFile) -> tuple[Any, Any]:
    with _damage(file.path), file.path.open("rb") as stream:
        return read_npy(stream, _checked_size(file.path.stat().st_size)), None


def _read_archive(file: MapFile) -> tuple[Any, Any]:
    names = _names_in(file.path)
    name = file.part if isinstance(file.part, str) else "map"
    if name not in names:
        raise ArgumentError("map", f"must exist under {name!r}", ", ".join(names))
    with_probability = file.part is None and "prob" in names
    return _array_in(file.path, name), _array_in(file.path, "prob") if with_probability else None


def _names_in(path: Path) -> list[str]:
    """Return the names of the arrays in an archive."""
    with _damage(path):
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return [name.removesuffix(".npy") for name in archive.namelist()]
        with _safetensors(path) as archive:
            return list(archive.keys())


def _array_in(path: Path, name: str) -> npt.NDArray[Any]:
    with _damage(path):
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                # zipfile never unpacks more than the stated size.
                size = _checked_size(archive.getinfo(f"{name}.npy").file_size)
                with archive.open(f"{name}.npy") as stream:
                    return read_npy(stream, size)
        with _safetensors(path) as archive:
            _checked_size(math.prod(archive.get_slice(name).get_shape()))
            return np.asarray(archive.get_tensor(name))


def _safetensors(path: Path) -> Any:
    try:
        from safetensors import safe_open
    except ImportError:
        raise ImportError("safetensors files need safetensors: pip install 'reveal-bench[saliency]'") from None
    return safe_open(path, framework="numpy")


def _checked_size(n_bytes: int) -> int:
    if n_bytes > MOST_BYTES:
        raise ValueError(f"{n_bytes:,} bytes; at most {MOST_BYTES:,} are read")
    return n_bytes


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Convert any exception that a damaged file causes to an ArgumentError."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # zipfile, numpy and safetensors raise many kinds
        raise ArgumentError("map", "must be a complete file of numeric arrays", f"{path.name}: {error}") from None


def _read_picture(file: MapFile) -> tuple[Any, Any]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file.path, formats=("PNG", "TIFF")) as picture:
            if len(picture.getbands()) != 1 or picture.mode == "P":
                raise ArgumentError("map", "must be a picture of one channel", picture.mode)
            if picture.width * picture.height > MOST_PIXELS:
                size = f"{picture.width} x {picture.height}"
                raise ArgumentError("map", f"must have at most {MOST_PIXELS:,} pixels", size)
            return np.asarray(picture), None
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ArgumentError("map", "must be a complete picture", str(error)) from None


def _read_pkl(file: MapFile) -> tuple[Any, Any]:
    contents = read_pickle(file.path)
    if "map" not in contents:
        raise ArgumentError("map", "must be a key of the pickle", ", ".join(map(str, contents))[:80])
    probability: Any = contents.get("prob")
    if probability is not None and np.size(probability) == len(CHEXPERT_LABELS):
        name = "Lung Opacity" if file.finding == "Airspace Opacity" else file.finding
        if name not in CHEXPERT_LABELS:
            raise ArgumentError("prob", "must be a number for a finding that CheXpert lacks", file.finding)
        probability = np.ravel(probability)[CHEXPERT_LABELS.index(name)]
    return contents["map"], probability


_READERS = {
    ".npy": _read_npy, ".npz": _read_archive, ".safetensors": _read_archive, ".png": _read_picture,
    ".tif": _read_picture, ".tiff": _read_picture, ".pkl": _read_pkl,
}  # fmt: skip
