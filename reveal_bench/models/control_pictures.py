"""Change the images of a question for a control of :mod:`reveal_bench.models.controls`.

Conventions
-----------
A changed image has the original's size, so that answers about both images have the same coordinates. The other patient,
and the position of a grey patch, depend only on the seed and the question. The patch over a finding covers the box
around the finding's reference, with a margin. The patch elsewhere has the same size, or a smaller one if space is
short, and is in the central square outside that box. Both patches have the middle grey of the original, and are
visible. A model that is drawn to patches therefore gains on the patch over the finding, but loses as much on the patch
elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import Grid
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import read_folder_info, read_rows, split_shards
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.questions import Question
from reveal_bench.masks import Box, pack_masks
from reveal_bench.models.questions import CONFIGS, FACTS, AskSettings, PictureSource
from reveal_bench.models.shots import is_same_view

if TYPE_CHECKING:
    from PIL.Image import Image

GREY = 128
MARGIN = 0.02
"""Margin around the covered box of a finding, as a fraction of the image's long side."""
SHRINKING = (1.0, 0.8, 0.6, 0.4, 0.25)
STEPS = 24
"""Number of positions along each side that are tried for the patch elsewhere."""

Change = Callable[[Question, str, "Image"], "Image"]
"""Function (question, id of one of its images, original image) -> the image shown instead."""


@dataclass(frozen=True, eq=False)
class ControlSource:
    """The changed images of one question, and the unchanged images of its examples."""

    question: Question
    plain: PictureSource
    change: Change

    def open(self, image_id: str) -> Image:
        """Return a grey image of the manifest's size."""
        picture = self.plain.open(image_id)
        if image_id not in {image.image_id for image in self.question.images}:
            return picture
        return self.change(self.question, image_id, picture)


def control_pictures(
    folder: Path,
    split: str,
    settings: AskSettings,
    pictures: PictureSource,
    *,
    held: Sequence[str],
    counterfactuals: Path | None = None,
) -> Callable[[Question], PictureSource]:
    """Return for each question the images that it shows under the control of `settings`.

    Parameters
    ----------
    held : ids of the images in `pictures`
    counterfactuals : folder of the images without one of their findings, ``<image_id>/<finding>.jpg``

    Raises
    ------
    ValueError
        If the references, the other patient or the folder that the control needs are missing.
    """
    change = _change_of(folder, split, settings, pictures, held, counterfactuals)
    return lambda question: pictures if change is None else ControlSource(question, pictures, change)


def _change_of(
    folder: Path,
    split: str,
    settings: AskSettings,
    pictures: PictureSource,
    held: Sequence[str],
    counterfactuals: Path | None,
) -> Change | None:
    if settings.control == "blank":
        return _blank
    if settings.control == "mirrored":
        return _mirrored
    if settings.control == "other-patient":
        return partial(
            _other_patient, patients=_patients(folder, split, set(held)), pictures=pictures, seed=settings.seed
        )
    if settings.control in ("occluded-finding", "occluded-elsewhere"):
        is_beside = settings.control == "occluded-elsewhere"
        return partial(_occluded, boxes=_reference_boxes(folder, split), is_beside=is_beside, seed=settings.seed)
    if settings.control == "without-finding":
        if counterfactuals is None:
            raise ArgumentError("counterfactuals", "must be a folder of images without each finding, as of a phantom")
        return partial(_without_finding, folder=counterfactuals)
    return None


def _blank(_: Question, __: str, picture: Image) -> Image:
    from PIL import Image

    return Image.new("L", picture.size, GREY)


def _mirrored(_: Question, __: str, picture: Image) -> Image:
    from PIL import ImageOps

    return ImageOps.mirror(picture)


def _without_finding(question: Question, image_id: str, picture: Image, *, folder: Path) -> Image:
    from PIL import Image

    path = folder / image_id / f"{question.finding}.jpg"
    try:
        with Image.open(path) as stored:
            counterfactual = stored.convert("L")
    except OSError as error:
        raise ArgumentError("counterfactuals", f"must contain an image for {question.id}", f"{path}: {error}") from None
    if counterfactual.size != picture.size:
        rule = f"must have the size of the originals, {picture.size[0]} x {picture.size[1]}"
        raise ArgumentError("counterfactuals", rule, f"{counterfactual.size[0]} x {counterfactual.size[1]} of {path}")
    return counterfactual


# Another patient ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Viewed:
    image_id: str
    patient: str
    view: str


def _patients(folder: Path, split: str, held: set[str]) -> Mapping[str, _Viewed]:
    """Return image id -> available image of a split; the study (or task) replaces an unknown patient."""
    views = {}
    for config in CONFIGS:
        for shard in split_shards(folder, config, split):
            for viewed in _viewed(shard):
                if viewed.image_id in held:
                    views[viewed.image_id] = viewed
    return views


def _viewed(shard: Path) -> Iterator[_Viewed]:
    import pyarrow.parquet as pq

    known = set(pq.read_schema(shard).names)
    wanted = [name for name in ("patient_id", "study_id", "task_id", "image_id", "view", *FACTS) if name in known]
    for row in read_rows(shard, wanted):
        patient = next(str(row[name]) for name in wanted if row[name])
        facts = [row] if "image_id" in row else [fact for name in FACTS for fact in row.get(name) or ()]
        yield from (_Viewed(fact["image_id"], patient, VIEWS[fact["view"]]) for fact in facts)


def _other_patient(
    question: Question,
    image_id: str,
    picture: Image,
    *,
    patients: Mapping[str, _Viewed],
    pictures: PictureSource,
    seed: int,
) -> Image:
    """Return another patient's image, in the same view if possible; the choice depends only on seed and question."""
    from PIL import Image, ImageOps

    mine = {patients[image.image_id].patient for image in question.images}
    others = [viewed for viewed in patients.values() if viewed.patient not in mine]
    if not others:
        raise ArgumentError(
            "control", "must have another patient to show", "other-patient for a split with one patient"
        )
    view = patients[image_id].view
    alike = [one for one in others if one.view == view or is_same_view(one.view, view)]
    chosen = min(alike or others, key=lambda one: _rank(seed, question.unit, one))
    return ImageOps.fit(pictures.open(chosen.image_id), picture.size, Image.Resampling.LANCZOS)


def _rank(seed: int, unit: str, viewed: _Viewed) -> tuple[bytes, str]:
    """Rank by patient, so that one other patient supplies all images of a study if that patient has such views."""
    return hashlib.sha256(f"{seed}\n{unit}\n{viewed.patient}".encode()).digest(), viewed.image_id


# Patches --------------------------------------------------------------------------------------------------------------


def _reference_boxes(folder: Path, split: str) -> Mapping[tuple[str, str], Box]:
    """Return (image, finding) -> the box around the reference; findings without a box are left out."""
    info = read_folder_info(folder)
    if not split_shards(folder, KINDS[info.kind].config, split):
        raise ArgumentError("control", "must work without references, which this folder lacks", "an occluded film")
    boxes = {}
    for record in KINDS[info.kind].data.read_references(folder, split):
        for one in record.annotations:
            if one.reader != "ground_truth" or one.area_px == 0:
                continue
            box = one.bbox_xywh if one.rle is None else tuple(pack_masks([one.rle]).boxes_xywh()[0].tolist())
            if box is not None:
                boxes[record.image_id, one.finding] = box
    return boxes


def _occluded(
    question: Question,
    image_id: str,
    picture: Image,
    *,
    boxes: Mapping[tuple[str, str], Box],
    is_beside: bool,
    seed: int,
) -> Image:
    box = boxes.get((image_id, question.finding or ""))
    if box is None:  # the finding is absent, so nothing is covered
        return picture
    patch = _with_margin(box, picture.size)
    if is_beside:
        rng = np.random.default_rng(list(hashlib.sha256(f"{seed}\n{question.id}".encode()).digest()[:8]))
        beside = _beside(patch, picture.size, rng)
        if beside is None:
            return picture
        patch = beside
    covered = picture.copy()
    covered.paste(int(np.median(np.asarray(picture))), patch)
    return covered


def _with_margin(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the patch as (left, top, right, bottom) in whole pixels of an image of `size` (width, height)."""
    x, y, wide, high = box
    margin = MARGIN * max(size)
    return (
        max(0, round(x - margin)),
        max(0, round(y - margin)),
        min(size[0], round(x + wide + margin)),
        min(size[1], round(y + high + margin)),
    )


def _beside(
    patch: tuple[int, int, int, int], size: tuple[int, int], rng: np.random.Generator
) -> tuple[int, int, int, int] | None:
    """Return a patch beside `patch`, of the same size or the largest that fits; None if no patch fits."""
    left, top, right, bottom = patch
    x0, y0, side = Grid(1).square((size[1], size[0]))
    for scale in SHRINKING:
        wide, high = min(side, scale * (right - left)), min(side, scale * (bottom - top))
        places = [
            (round(x), round(y), round(x + wide), round(y + high))
            for x in np.linspace(x0, x0 + side - wide, STEPS)
            for y in np.linspace(y0, y0 + side - high, STEPS)
            if x + wide + 1 <= left or x >= right + 1 or y + high + 1 <= top or y >= bottom + 1
        ]
        if places:
            return places[int(rng.integers(len(places)))]
    return None
