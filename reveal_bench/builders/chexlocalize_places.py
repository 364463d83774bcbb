"""Where the parts of a CheXlocalize download lie: annotations, label files, and CheXpert's pictures.

The annotation files lie in ``CheXlocalize/`` (or directly in the download, as its README lists them), the pictures in
one of these, which may stand beside the annotations, around them, or in a folder of the user's own (`pictures`):

========================================  ==============================================================
``CheXpert/val``, ``CheXpert/test``       as the AIMI download of CheXlocalize has them
``CheXpert-v1.0/valid``                   as CheXpert itself was published, with ``CheXpert-v1.0/valid.csv``
``CheXpert-v1.0 batch 1 (validate & csv)/valid``  as AIMI ships CheXpert now; nested once more when unpacked twice
``CheXpert-v1.0-small/valid``             never used: the masks do not fit pictures of this size
========================================  ==============================================================

A picture is found by the tail of its path, ``patient*/study*/view*_*.jpg``, whatever stands before it. If a picture is
in several places, the first place counts: `pictures`, then the folders above from top to bottom.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.builders.source import Problem

__all__ = ["Download", "Pictures", "find_download", "image_id_of", "index_pictures", "set_aside", "study_of"]

ANNOTATIONS, PICTURES = "CheXlocalize", "CheXpert"
PARTIAL = ".azDownload-"
FOLDERS = {"val": ("val", "valid"), "test": ("test",)}
"""Split as the annotation files name it -> folders of its pictures."""
LABELS = {"val": ("val_labels.csv", "valid.csv"), "test": ("test_labels.csv",)}
HEAT_MAPS = {".npy", ".npz", ".png", ".safetensors"}
"""Heat maps that a program may read; a pickle is none, for opening it can run code."""

_TAIL = re.compile(r"(?:^|/)(patient\d+)/(study\d+)/(view\d+_(?:frontal|lateral))\.jpg$")
_SMALL = re.compile(r"chexpert.*-small", re.IGNORECASE)
_REFERENCE = re.compile(r"(gt|hb)_(annotations|segmentations|salient_pt)_(val|test)\.json")


@dataclass(frozen=True)
class Download:
    """A download that was found.

    Attributes
    ----------
    root : as the user named it
    folder : the innermost folder that holds everything; names in messages are relative to it
    annotations : the folder of the JSON files
    bases : folders in or below which CheXpert may lie, the likeliest first
    """

    root: Path
    folder: Path
    annotations: Path
    bases: tuple[Path, ...]

    def shown(self, path: Path) -> str:
        """A path as messages name it."""
        inner = next((base for base in (self.folder, *self.bases) if path.is_relative_to(base)), path.parent)
        return path.relative_to(inner).as_posix()

    def labels(self, split: str) -> Path | None:
        """The label file of a split, "val" or "test"."""
        return self._first(LABELS[split])

    def groundtruth(self) -> Path | None:
        """The study-level labels of rajpurkarlab/cheXpert-test-set-labels, if somebody put them here."""
        return self._first(("groundtruth.csv",))

    def picture_folders(self, split: str) -> list[Path]:
        """Folders of a split's pictures, those of CheXpert-small last."""
        named = [base for base in self.bases if base.name in FOLDERS[split]]
        below = [path / name for path in self._chexperts() for name in FOLDERS[split] if (path / name).is_dir()]
        return sorted([*named, *below], key=is_small)

    def _first(self, names: Sequence[str]) -> Path | None:
        places = [*self._chexperts(), self.annotations, self.folder]
        return next((place / name for name in names for place in places if (place / name).is_file()), None)

    def _chexperts(self) -> list[Path]:
        """Every folder that may hold ``val``, ``valid`` or ``test``."""
        found: dict[Path, None] = {}
        for base in self.bases:
            level = [base]
            for _ in range(3):
                found.update(dict.fromkeys(level))
                level = [path for folder in level for path in _named_chexpert(folder)]
        return list(found)


@dataclass
class Pictures:
    """The pictures of a split by image id, and what else there is to say of where they lie."""

    paths: dict[str, Path] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def is_small(path: Path) -> bool:
    """Whether a folder is part of CheXpert-small."""
    return any(_SMALL.fullmatch(part) for part in path.parts)


def find_download(root: Path, pictures: Path | None = None) -> Download | None:
    """The download at `root`: there, or in chexlocalize folders below it, two at most."""
    root = Path(root)
    folder, outer = root, [root]
    for _ in range(3):
        for place in (folder / ANNOTATIONS, folder):
            if any(place.glob("gt_*.json")):
                own = [] if pictures is None else [Path(pictures)]
                folder = place.parent if place.name == ANNOTATIONS else place
                return Download(root, folder, place, tuple(dict.fromkeys([*own, folder, *reversed(outer)])))
        inner = [path for path in _folders(folder) if path.name.casefold() == "chexlocalize"]
        if len(inner) != 1:
            return None
        folder = inner[0]
        outer.append(folder)
    return None


def image_id_of(path: str) -> str | None:
    """Id of a picture from the tail of its path, whatever stands before it.

    Examples
    --------
    >>> image_id_of("CheXpert-v1.0/valid/patient64541/study1/view1_frontal.jpg")
    'patient64541_study1_view1_frontal'
    """
    match = _TAIL.search(path)
    return None if match is None else "_".join(match.groups())


def study_of(image_id: str) -> str:
    """Id of an image's study.

    Examples
    --------
    >>> study_of("patient64541_study1_view1_frontal")
    'patient64541_study1'
    """
    return image_id.rsplit("_", 2)[0]


def index_pictures(download: Download, split: str, problems: list[Problem]) -> Pictures:
    """Pictures of a split; partial downloads are passed over, CheXpert-small is refused where it is all there is."""
    index = Pictures()
    folders = download.picture_folders(split)
    usable = [folder for folder in folders if not is_small(folder)]
    if folders and not usable:
        rule = "must be the full-size pictures of CheXpert: masks do not fit CheXpert-small"
        problems.append(Problem(download.shown(folders[0]), None, "folder", rule, folders[0].parent.name))
    for folder in usable:
        here = _index_folder(download, folder, problems)
        again = len(here.keys() & index.paths.keys())
        if again:
            index.warnings.append(f"{again:,} pictures in {download.shown(folder)} are used from another folder")
        index.paths = here | index.paths
    return index


def _index_folder(download: Download, folder: Path, problems: list[Problem]) -> dict[str, Path]:
    pictures: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.jpg")):
        if path.name.startswith("."):
            continue
        name = download.shown(path)
        image_id = image_id_of(name)
        if image_id is None:
            problems.append(Problem(name, None, "path", "must end in patient*/study*/view*_frontal|lateral.jpg", name))
        elif image_id in pictures:
            other = download.shown(pictures[image_id])
            problems.append(Problem(name, image_id, "path", "must be the only picture of its id", f"also {other}"))
        else:
            pictures[image_id] = path
    return pictures


def set_aside(download: Download) -> list[tuple[str, str]]:
    """(path, reason) of what lies beside the references: interrupted downloads, heat maps, a model's masks."""
    aside = []
    places = dict.fromkeys([download.annotations, *download.picture_folders("val"), *download.picture_folders("test")])
    for place in places:
        aside += [(download.shown(path), "interrupted download") for path in sorted(place.rglob(f"{PARTIAL}*"))]
    for path in sorted(download.annotations.iterdir()):
        if path.is_dir() and "map" in path.name.casefold():
            aside += list(_heat_maps(download, path))
        elif path.suffix == ".json" and not path.name.startswith(".") and _REFERENCE.fullmatch(path.name) is None:
            aside.append((download.shown(path), "a model's masks, no references"))
    return aside


def _heat_maps(download: Download, folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".pkl":
            yield download.shown(path), "pickled heat map, never opened: a pickle can run code"
        elif path.suffix in HEAT_MAPS:
            yield download.shown(path), "heat map of a model, no reference"


def _named_chexpert(folder: Path) -> list[Path]:
    return [path for path in _folders(folder) if path.name.casefold().startswith("chexpert")]


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
