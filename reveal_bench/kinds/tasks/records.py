"""Records of tasks-type benchmarks, open tasks on studies (paper 001), and how they are read from a dataset folder.

Conventions
-----------
The unit is the task: a prompt on a study, with its images and, for temporal tasks, the images of a prior study. Readers
score a model's answers on six criteria from 1 to 5; *content* is the smallest of process, execution and synthesis and
is always computed, never stored. An *answer* is one model's response to one task, identified by (task_id, model). This
module reads these files of a dataset folder:

* ``tasks/<split>-*.parquet``: the columns of :class:`TaskRecord`;
* ``ratings/<split>-*.parquet``: the columns of :class:`Rating`, one row per answer and reader;
* ``manifest/<split>.parquet`` with ``tasks/`` or, if the references are private, ``holdout_inputs/``: the questions of
  a split (:class:`TaskManifest`), which are all that a linter uses.

:func:`rating_array` converts ratings into the arrays that :mod:`reveal_bench.metrics.ordinal` uses.

Six criteria are each scored from 1 (poor) to 5 (excellent); the first four judge the text, the last two the boxes drawn
on an image. The meaning of each score (:data:`RUBRIC`) follows the published scoring criteria of the ReXecution
framework (paper 001, section 3.3, and its supplement); the wording here is different, and the published text is
decisive if the two differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.folder import AnyFolder, open_split, read_rows, split_shards
from reveal_bench.kinds.images import StudyImage, image_from_facts
from reveal_bench.kinds.localization.records import Box
from reveal_bench.metrics.ordinal import CONTENT_CRITERIA
from reveal_bench.metrics.ordinal import CRITERIA as CRITERIA

Answer = tuple[str, str]
"""(task_id, model)."""

CATEGORIES = ("broad_abnormality", "diagnosis_support", "measurement_temporal")
QUESTION_SCORES = ("clinical_relevance", "answerability", "complexity", "clarity")
TAGS = (
    "anatomical_region", "pathology_type", "imaging_finding", "laterality", "diagnostic_intent", "temporal_context",
    "question_type", "subtype",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReferenceBox:
    """A box of the reference answer, [x, y, width, height] in pixels of image `image_id`."""

    label: str
    bbox_xywh: Box
    image_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task.

    Attributes
    ----------
    images, prior_images : images of the study asked about, and of the study before it (may be empty)
    indication : text of the referring physician, or None
    category : member of :data:`CATEGORIES`; `temporal` if the task needs the prior study
    tags : dict from the names in :data:`TAGS` to tuples of values, which may be empty
    question_scores : dict from the names in :data:`QUESTION_SCORES` to 1..5 or None; None without any score
    risk_flag : True if the question was judged risky, None if unknown
    requires_boxes : True if the answer must localize
    """

    task_id: str
    study_id: str
    patient_id: str
    prompt: str
    category: str
    images: tuple[StudyImage, ...] = ()
    prior_images: tuple[StudyImage, ...] = ()
    indication: str | None = None
    temporal: bool = False
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    question_scores: Mapping[str, int | None] | None = None
    risk_flag: bool | None = None
    requires_boxes: bool = False
    reference_answer: str | None = None
    reference_boxes: tuple[ReferenceBox, ...] = ()


@dataclass(frozen=True, slots=True)
class Rating:
    """One reader's scores (1 to 5, None if not scored) of one model's answer to one task."""

    task_id: str
    model: str
    reader: str
    process: int | None = None
    execution: int | None = None
    synthesis: int | None = None
    language: int | None = None
    image_content: int | None = None
    image_style: int | None = None

    @property
    def content(self) -> int | None:
        """Smallest of process, execution and synthesis; None unless all three have a score (paper 001)."""
        scores: list[int | None] = [getattr(self, name) for name in CONTENT_CRITERIA]
        known = [score for score in scores if score is not None]
        return min(known) if len(known) == len(CONTENT_CRITERIA) else None


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """Public part of one task.

    Attributes
    ----------
    images : image_id -> (height, width) in pixels, first the study's images, then the prior study's
    """

    task_id: str
    category: str
    requires_boxes: bool
    prompt: str
    indication: str | None
    images: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class TaskManifest:
    """The questions of a tasks-type split, in the order of its manifest; `other_tasks` of the split are not asked."""

    kind: ClassVar[str] = "tasks"

    benchmark: str
    version: str
    split: str
    tasks: tuple[TaskQuestion, ...] = field(repr=False)
    other_tasks: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class AnswerBox:
    """A box that an answer draws: `box` is [x, y, width, height] in pixels of image `image_id`."""

    image_id: str
    label: str
    box: Box


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """One model's checked answer to one task; `line` is its line in the file."""

    task_id: str
    answer: str
    boxes: tuple[AnswerBox, ...] = ()
    line: int = 0


def read_task_manifest(folder: AnyFolder, split: str) -> TaskManifest:
    """Read the questions of a tasks-type split: its manifest, and the prompts and image sizes of its inputs.

    Raises
    ------
    ValueError
        If the folder has no such split, is of another kind of benchmark, or lacks the inputs of a task.
    """
    import pyarrow.parquet as pq

    opened = open_split(folder, split)
    info, folder = opened.info, opened.path
    path = folder / "manifest" / f"{split}.parquet"
    if "task_id" not in pq.read_schema(path).names:
        raise ValueError(f"{folder} is not a tasks-type dataset: its manifest has no column task_id")
    config = "tasks" if split_shards(folder, "tasks", split) else "holdout_inputs"
    rows = {row["task_id"]: row for row in _rows(folder, split, config, leave_out=("images", "prior_images"))}
    tasks, others = [], []
    for entry in read_rows(path):
        if not opened.selection.has(entry["task_id"]):
            others.append(entry["task_id"])
            continue
        row = rows.get(entry["task_id"])
        if row is None:
            raise ValueError(f"{folder} must hold the inputs of every task, got none of {entry['task_id']!r}")
        facts = (*row["image_facts"], *row["prior_image_facts"])
        sizes = {fact["image_id"]: (fact["height"], fact["width"]) for fact in facts}
        about = entry["category"], bool(entry["requires_boxes"]), row["prompt"], row["indication"]
        tasks.append(TaskQuestion(entry["task_id"], *about, sizes))
    return TaskManifest(info.benchmark, info.version, split, tuple(tasks), tuple(others))


def read_tasks(folder: AnyFolder, split: str) -> list[TaskRecord]:
    """Read the tasks of `split`, without pixels, in file order.

    Raises
    ------
    ValueError
        If the folder has no such split, or contains only its manifest because its references are private.
    """
    selection = open_split(folder, split).selection
    rows = _rows(folder, split, "tasks", leave_out=("images", "prior_images"))
    return [_task(row) for row in rows if selection.has(row["task_id"])]


def read_ratings(folder: AnyFolder, split: str) -> list[Rating]:
    """Read the readers' ratings of `split`, in file order.

    Raises
    ------
    ValueError
        If the folder has no such split, or no ratings for it.
    """
    return [Rating(**row) for row in _rows(folder, split, "ratings")]


def rated_answers(ratings: Iterable[Rating]) -> list[Answer]:
    """Return the answers that were rated, each once, in the order of `ratings`.

    Examples
    --------
    >>> rated_answers([Rating("t1", "m", "r1"), Rating("t1", "m", "r2"), Rating("t2", "m", "r1")])
    [('t1', 'm'), ('t2', 'm')]
    """
    return list(dict.fromkeys((rating.task_id, rating.model) for rating in ratings))


def rating_array(ratings: Iterable[Rating], *, reader: str, answers: Sequence[Answer]) -> npt.NDArray[np.float64]:
    """Return the scores that one reader gave to `answers`, for the functions of :mod:`reveal_bench.metrics.ordinal`.

    Parameters
    ----------
    ratings : ratings of any readers; only the ratings by `reader` count
    reader : name of the reader
    answers : (task_id, model) of each row of the result, such as :func:`rated_answers` returns

    Returns
    -------
    float array (n_answers, 6), columns as in :data:`reveal_bench.metrics.ordinal.CRITERIA`, NaN if the reader gave no
    score

    Raises
    ------
    ValueError
        If `reader` rated nothing, or rated an answer twice.

    Examples
    --------
    >>> ratings = [Rating("t1", "m", "r1", process=5, execution=2)]
    >>> rating_array(ratings, reader="r1", answers=[("t1", "m")])[0, :3].tolist()
    [5.0, 2.0, nan]
    """
    of_reader: dict[Answer, Rating] = {}
    readers = set()
    for rating in ratings:
        readers.add(rating.reader)
        if rating.reader != reader:
            continue
        answer = (rating.task_id, rating.model)
        if answer in of_reader:
            raise ArgumentError(
                "ratings", "must hold one rating per answer and reader", f"two of {answer} by {reader!r}"
            )
        of_reader[answer] = rating
    if not of_reader:
        known = ", ".join(sorted(readers)) or "none"
        raise ArgumentError("reader", f"must be one of the readers of the ratings ({known})", repr(reader))
    array = np.full((len(answers), len(CRITERIA)), np.nan)
    for i, answer in enumerate(answers):
        own_rating = of_reader.get(answer)
        if own_rating is not None:
            array[i] = [
                np.nan if score is None else score for score in (getattr(own_rating, name) for name in CRITERIA)
            ]
    return array


def _rows(folder: AnyFolder, split: str, config: str, *, leave_out: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    open_split(folder, split)
    shards = split_shards(folder, config, split)
    if not shards:
        raise ValueError(f"{folder} holds no {config} of split {split!r}: none were built, or they are private")
    return [row for shard in shards for row in read_rows(shard, leave_out=leave_out)]


def _task(row: dict[str, Any]) -> TaskRecord:
    scores = row["question_scores"]
    return TaskRecord(
        task_id=row["task_id"],
        study_id=row["study_id"],
        patient_id=row["patient_id"],
        prompt=row["prompt"],
        category=CATEGORIES[row["category"]],
        images=tuple(image_from_facts(facts) for facts in row["image_facts"]),
        prior_images=tuple(image_from_facts(facts) for facts in row["prior_image_facts"]),
        indication=row["indication"],
        temporal=row["temporal"],
        tags={name: tuple(row["tags"][name]) for name in TAGS},
        question_scores=None if scores is None else {name: scores[name] for name in QUESTION_SCORES},
        risk_flag=row["risk_flag"],
        requires_boxes=row["requires_boxes"],
        reference_answer=row["reference_answer"],
        reference_boxes=tuple(
            ReferenceBox(box["label"], tuple(box["bbox_xywh"]), box["image_id"]) for box in row["reference_boxes"]
        ),
    )


class RubricEntry(NamedTuple):
    """Return the meaning of a `score` (1 to 5) of `criterion`."""

    criterion: str
    score: int
    description: str


_MEANINGS = {
    "process": (
        "Did not grasp what was asked, or looked only at things that have nothing to do with it.",
        "A shallow or narrow look; places or kinds of finding that decide the question were left out.",
        "The heart of the question is covered in part; several regions or kinds of finding that matter were left out.",
        "Nearly everything that matters was looked for; one small gap, or something covered only by implication.",
        "Every region and kind of finding that matters to the question was looked for, and this is spelled out.",
    ),
    "execution": (
        "Most of what is reported is invented, beside the point, or the opposite of what the image shows.",
        "Several findings are wrong or without support in the image and change how it reads; clearly saw what the "
        "question suggested.",
        "Part is right, but there is one grave or a number of small inventions or omissions; probably led by the "
        "question.",
        "One small invention or omission that changes nothing for the patient; perhaps led by the question.",
        "All that is reported, normal regions included, is there and well described; nothing is invented or left out, "
        "and nothing suggests that the question led the reading.",
    ),
    "synthesis": (
        "No reasoning to speak of, or reasoning that contradicts itself from end to end.",
        "Conclusions do not follow from the findings, or the findings are misunderstood.",
        "The argument has holes, is much too sure or too unsure, or leaves out what makes the case difficult.",
        "Sound on the whole; a few shortcuts or assumptions, no grave error of logic.",
        "The findings are weighed as a careful clinician would, with as much doubt as the case deserves.",
    ),
    "language": (
        "So confusing or wrong that the meaning is lost or turned around.",
        "Often ambiguous or misleading; details that matter are hard to make out.",
        "Vague in places; the reader has to guess part of what is meant.",
        "Clear, with a few clumsy phrases or one that could be misread.",
        "Clear and exact throughout; it can be read in one way only.",
    ),
    "image_content": (
        "Boxes or their labels are so wrong that nobody could use the picture.",
        "Most boxes or labels are wrong; one or two are right.",
        "Some boxes are right; one or two lie clearly off their target, or their labels are unclear.",
        "One small flaw: a box somewhat off, or a label that is not quite clear.",
        "Each box lies on its target and each label names what the box holds.",
    ),
    "image_style": (
        "What is drawn has little to do with the text, or what should be drawn is missing; the picture confuses.",
        "Many boxes do not belong to the text or mark irrelevant places, or the decisive findings are not marked.",
        "Several findings of the text have no box, or several boxes have no place in the answer.",
        "One small mismatch between text and boxes, such as a minor finding without a box.",
        "What the text reports is marked, and nothing else is.",
    ),
}

RUBRIC: tuple[RubricEntry, ...] = tuple(
    RubricEntry(criterion, score, description)
    for criterion, descriptions in _MEANINGS.items()
    for score, description in enumerate(descriptions, start=1)
)
"""Thirty entries: criteria in the order of tables, scores ascending within each criterion."""


def meaning(criterion: str, score: int) -> str:
    """Return the meaning of a `score` of `criterion`.

    Raises
    ------
    ValueError
        If the criterion is unknown or the score is not 1, 2, 3, 4 or 5.

    Examples
    --------
    >>> meaning("image_style", 5)
    'What the text reports is marked, and nothing else is.'
    """
    for entry in RUBRIC:
        if (entry.criterion, entry.score) == (criterion, score):
            return entry.description
    known = ", ".join(_MEANINGS)
    raise ArgumentError(
        "criterion", f"must be one of {known} and `score` from 1 to 5", f"{criterion!r} and {score!r}", ("score",)
    )
