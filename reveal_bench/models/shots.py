"""Choose few-shot examples: images that a prompt shows, with their answers, before the question.

Conventions
-----------
An example shows the finding of the question. Candidates are used in the order of four tiers.

1. Same view, from `settings.shots_split` (the validation split).
2. Same view, from any other split with references in the folder, including the question's own.
3. Another or unknown view, from `settings.shots_split`.
4. Another or unknown view, from any other split.

Tiers 1 and 2 are from paper 000 (appendix, "Few shot selection"). This project added tiers 3 and 4, because lateral
images of rare findings would otherwise get no examples. Each example states its tier, so that a report can exclude the
added tiers.

Views are compared as written, except that FRONTAL (the only frontal view in the test splits of CheXlocalize) equals
both AP and PA. AP and PA are different views. UNKNOWN equals no view, not even UNKNOWN.

The image of the question, other images of its patient or study, and images with the same pixels are never examples, as
far as patient, study and pixels are known. For a private holdout without images, only studies are known; by
construction its patients are in no other split. A patient provides at most one example of a question, because two
images of a patient show a finding at the same position.

The choice depends only on the seed, the question's id and the candidates, not on the order or number of questions:
candidates of a tier are ranked by a hash of seed, question and image. Therefore the first k examples stay the same when
more than k are requested.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import Grid
from reveal_bench.kinds.folder import FolderInfo, read_folder_info, read_rows, split_shards
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.records import READERS, read_manifest
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.masks import Box, PackedMasks, Rle, encode_mask, pack_masks, pack_regions
from reveal_bench.metrics.localization import cell_coverage, point_hit
from reveal_bench.models.overlay import SquareView
from reveal_bench.models.questions import AskSettings, ShotUsed

_AT_ONCE = 32
"""Number of rows of references that are unpacked together; a row has up to a few megabytes of text."""
_WHO = ("image_id", "patient_id", "study_id", "pixel_sha256")
_COLUMNS = ("image_id", "patient_id", "view", "height", "width", "annotations")


@dataclass(frozen=True, slots=True)
class Shot:
    """An example: a question with a known answer.

    Attributes
    ----------
    answer : cell such as "D5", or "x y", or "x y width height" in whole pixels of the square image
    tier : 1 to 4, as in the module's docstring
    """

    question: Question
    patient_id: str
    split: str
    answer: str
    tier: int

    @property
    def used(self) -> ShotUsed:
        """The example as stated in transcripts and logs."""
        return ShotUsed(self.question.image.image_id, self.split, self.tier)


@dataclass(frozen=True, slots=True)
class _Identity:
    """Ids and digest of an image, none of which a question and its examples may share; None means unknown."""

    study_id: str
    patient_id: str | None = None
    pixel_sha256: str | None = None

    def overlaps(self, other: _Identity) -> bool:
        return (
            self.study_id == other.study_id
            or (self.patient_id is not None and self.patient_id == other.patient_id)
            or (self.pixel_sha256 is not None and self.pixel_sha256 == other.pixel_sha256)
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    image: ViewedImage
    split: str
    patient_id: str
    answer: str


def is_same_view(a: str, b: str) -> bool:
    """Return True if two views count as one in the choice of examples.

    Examples
    --------
    >>> is_same_view("AP", "FRONTAL"), is_same_view("AP", "PA"), is_same_view("UNKNOWN", "UNKNOWN")
    (True, False, False)
    """
    if "UNKNOWN" in (a, b):
        return False
    return a == b or ("FRONTAL" in (a, b) and {a, b} <= {"AP", "PA", "FRONTAL"})


class ShotPool:
    """All examples of a dataset folder with their answers; masks are read once and not kept.

    Parameters
    ----------
    folder : dataset folder of a benchmark of localizations
    settings : number and source of examples, and the form of answers

    Raises
    ------
    ValueError
        If `settings.shots_split` has no references in the folder.
    """

    def __init__(self, folder: Path, settings: AskSettings) -> None:
        self._settings = settings
        self._examples: dict[str, list[_Candidate]] = {}
        self._who: dict[str, _Identity] = {}
        if settings.shots == 0:
            return
        folder = Path(folder)
        info = read_folder_info(folder)
        self._present = info.asks == "present"
        shards = {split: split_shards(folder, "localization", split) for split in info.splits}
        having = [split for split in info.splits if shards[split]]
        if settings.shots_split not in having:
            rule = f"must be a split with references in {folder} ({', '.join(having) or 'none'})"
            raise ValueError(f"`shots_split` {rule}, got {settings.shots_split!r}")
        self._who = _identities(folder, info)
        for split in having:
            for finding, example in _read_examples(shards[split], split, info, settings):
                self._examples.setdefault(finding, []).append(example)

    def pick(self, question: Question) -> tuple[Shot, ...]:
        """Return `settings.shots` examples of a question, lowest tier first; fewer if candidates run out.

        Raises
        ------
        ValueError
            If the question is not about an image of the folder, or not about a finding.
        """
        if self._settings.shots == 0:
            return ()
        if question.finding is None:
            raise ArgumentError("question", "must be about a finding to have examples", repr(question.id))
        asked = question.image
        if asked.image_id not in self._who:
            raise ArgumentError("question", "must be about an image of the folder", repr(asked.image_id))
        who = self._who[asked.image_id]
        allowed = [
            example
            for example in self._examples.get(question.finding, ())
            if example.image.image_id != asked.image_id and not self._who[example.image.image_id].overlaps(who)
        ]
        allowed.sort(key=lambda example: (self._tier(asked.view, example), self._rank(question, example)))
        by_patient: dict[str, Shot] = {}
        for example in allowed:
            if len(by_patient) == self._settings.shots:
                break
            if example.patient_id not in by_patient:
                by_patient[example.patient_id] = self._shot(question, example)
        return tuple(by_patient.values())

    def _shot(self, question: Question, example: _Candidate) -> Shot:
        example_question = Question(
            f"{example.image.image_id}|{question.finding}",
            self._settings.form,
            (example.image,),
            question.finding,
            self._present,
        )
        tier = self._tier(question.image.view, example)
        return Shot(example_question, example.patient_id, example.split, example.answer, tier)

    def _tier(self, view: str, example: _Candidate) -> int:
        near = 1 if is_same_view(view, example.image.view) else 3
        return near + (example.split != self._settings.shots_split)

    def _rank(self, question: Question, example: _Candidate) -> bytes:
        text = f"{self._settings.seed}\n{question.id}\n{example.image.image_id}"
        return hashlib.sha256(text.encode()).digest()


def _identities(folder: Path, info: FolderInfo) -> dict[str, _Identity]:
    """Return image id -> identity: the study from the manifests, and patient and pixels if tables have them."""
    who = {
        row.image_id: _Identity(row.study_id)
        for split in info.splits
        for row in read_manifest(folder, split).rows.values()
    }
    for config in ("localization", "holdout_inputs"):
        for shard in sorted((folder / config).glob("*.parquet")):
            for row in read_rows(shard, list(_WHO)):
                who[row["image_id"]] = _Identity(row["study_id"], row["patient_id"], row["pixel_sha256"])
    return who


def _read_examples(
    shards: Sequence[Path], split: str, info: FolderInfo, settings: AskSettings
) -> Iterator[tuple[str, _Candidate]]:
    """Yield every finding with reference pixels inside the central square, with its answer."""
    import pyarrow.parquet as pq

    for shard in shards:
        file = pq.ParquetFile(shard)
        leaves = [file.schema.column(i).path for i in range(len(file.schema))]
        columns = [path for path in leaves if path.split(".")[0] in _COLUMNS and ".polygons." not in path]
        for batch in file.iter_batches(batch_size=_AT_ONCE, columns=columns):
            drawn = [
                (row, annotation)
                for row in batch.to_pylist()
                for annotation in row["annotations"]
                if READERS[annotation["reader"]] == "ground_truth" and annotation["area_px"] > 0
            ]
            sizes = [(row["height"], row["width"]) for row, _ in drawn]
            regions = pack_regions([_region(annotation) for _, annotation in drawn], sizes)
            for i, (row, annotation) in enumerate(drawn):
                answer = _answer(regions, i, annotation["bbox_xywh"], settings)
                if answer is not None:
                    image = ViewedImage(row["image_id"], VIEWS[row["view"]], sizes[i])
                    yield info.findings[annotation["label"]], _Candidate(image, split, row["patient_id"], answer)


def _region(annotation: Mapping[str, Any]) -> Rle | list[Box]:
    rle = annotation["rle"]
    if rle is None:
        return [(x, y, width, height) for x, y, width, height in annotation["boxes_xywh"]]
    height, width = rle["size"]
    return Rle((height, width), rle["counts"])


def _answer(regions: PackedMasks, index: int, around: Sequence[float], settings: AskSettings) -> str | None:
    """Return the answer for region `index` with tight box `around`; None if the region is outside the square."""
    if settings.form == "cell":
        return _best_cell(regions, index, Grid(settings.grid))
    height, width = (int(side) for side in regions.sizes[index])
    view = SquareView((height, width), settings.side)
    visible = _visible(regions, index)
    if visible is None:
        return None
    numbers = _point(visible, view) if settings.form == "point" else _box(around, view)
    return " ".join(map(str, numbers))


def _best_cell(regions: PackedMasks, index: int, grid: Grid) -> str | None:
    """Return the most covered cell; in a tie, the cell with the deepest pixel, or else the first by rows."""
    covered = cell_coverage(regions, index, grid)
    if not covered.any():
        return None
    best = [grid.name(int(column), int(row)) for row, column in np.argwhere(covered == covered.max())]
    x, y = regions.deepest_xy([index])[0].tolist()
    height, width = (int(side) for side in regions.sizes[index])
    deepest = grid.cell_at(x + 0.5, y + 0.5, size=(height, width))
    return deepest if deepest in best else best[0]


def _visible(regions: PackedMasks, index: int) -> PackedMasks | None:
    """Return the pixels of region `index` whose centres are in the central square; None if there are none."""
    height, width = (int(side) for side in regions.sizes[index])
    left, top, side = Grid(1).square((height, width))
    columns = slice(math.ceil(left - 0.5), math.ceil(left - 0.5) + int(side))
    rows = slice(math.ceil(top - 0.5), math.ceil(top - 0.5) + int(side))
    one = regions.take([index])
    x, y, box_width, box_height = one.boxes_xywh()[0].tolist()
    if columns.start <= x and x + box_width <= columns.stop and rows.start <= y and y + box_height <= rows.stop:
        return one
    cut = np.zeros((height, width), bool)
    cut[rows, columns] = one.dense(0)[rows, columns]
    return pack_masks([encode_mask(cut)]) if cut.any() else None


def _point(visible: PackedMasks, view: SquareView) -> tuple[int, int]:
    """Return the region's deepest pixel as a whole pixel of the square image.

    Of the pixels around the exact position, the nearest in the region is returned, because rounding in a coarse image
    may miss a thin line.
    """
    x, y = visible.deepest_xy([0])[0].tolist()
    exact_x, exact_y = view.to_view(x + 0.5, y + 0.5)
    near = [
        (column, row)
        for column in range(math.floor(exact_x) - 1, math.floor(exact_x) + 3)
        for row in range(math.floor(exact_y) - 1, math.floor(exact_y) + 3)
        if 0 <= column < view.side and 0 <= row < view.side
    ]
    near.sort(key=lambda point: (point[0] - exact_x) ** 2 + (point[1] - exact_y) ** 2)
    hits = point_hit([[view.to_full(*point)] for point in near], visible.take([0] * len(near)))
    return near[int(np.argmax(hits))]  # the first hit, or the nearest pixel if none hits


def _box(around: Sequence[float], view: SquareView) -> tuple[int, int, int, int]:
    """Return a box cut to the square image, in whole pixels of that image, at least one pixel wide and high."""
    x, y, width, height = around
    corners = view.to_view(x, y), view.to_view(x + width, y + height)
    (left, right), (top, bottom) = (_whole_span(corners[0][axis], corners[1][axis], view.side) for axis in (0, 1))
    return left, top, right - left, bottom - top


def _whole_span(low: float, high: float, side: int) -> tuple[int, int]:
    first = min(max(math.floor(low + 0.5), 0), side - 1)
    return first, max(min(math.floor(high + 0.5), side), first + 1)
