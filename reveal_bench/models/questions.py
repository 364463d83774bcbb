"""What a model is asked: the questions of a split, and the settings that decide how they are put.

Conventions
-----------
There is a question per (image, finding) that the split's public manifest asks, per study for benchmarks of labels, and
per task for open tasks. Nothing here reads a reference: the questions of a private holdout are listed like any others.
The *form* of an answer is a grid cell, a point, a box, the labels of a study, or text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.geometry import MAX_CELLS, Grid
from reveal_bench.kinds.folder import FolderInfo, check_split, read_folder_info, split_shards
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.records import read_manifest
from reveal_bench.models.overlay import Form

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "FORMS",
    "STYLES",
    "DESCRIBED",
    "AskSettings",
    "Message",
    "PictureSource",
    "Question",
    "Shown",
    "Style",
    "ViewedImage",
    "describe_split",
    "list_questions",
]

Style = Literal["zero-shot", "chain-of-thought", "few-shot"]
STYLES: tuple[Style, ...] = ("zero-shot", "chain-of-thought", "few-shot")
FORMS: dict[str, tuple[Form, ...]] = {
    "localization": ("cell", "point", "box"),
    "findings": ("labels",),
    "tasks": ("text",),
}
"""Kind of benchmark -> the forms an answer may have, its default first."""
LOCAL: tuple[Form, ...] = ("cell", "point", "box")
SQUARE_SIDE, WHOLE_SIDE = 256, 1024
"""Pixels: side of the square that a localization is asked on (paper 000, section 3.2), long side of a whole picture."""
MIN_SIDE, MAX_SIDE, MAX_SHOTS = 64, 4096, 16
DESCRIBED = ("benchmark", "benchmark_version", "split", "kind", "dataset")
"""What :func:`describe_split` says."""
CONFIGS = ("localization", "multilabel", "tasks", "holdout_inputs")
"""Where a folder keeps rows with pictures; those of a private holdout in the last."""
FACTS = ("image_facts", "prior_image_facts")
IDENTITIES = ("image_id", "pixel_sha256", *FACTS)


@dataclass(frozen=True, slots=True)
class ViewedImage:
    """An image that a question shows: its view and its (height, width) in pixels; `is_prior` of an earlier study."""

    image_id: str
    view: str
    size: tuple[int, int]
    is_prior: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes
    ----------
    id : unique in the split: ``image_id|finding``, the study's id, or the task's
    form : of the answer
    images : one for a localization, all of a study or task
    finding : of a localization, else None
    present : whether the finding is known to be there (the benchmark asks only for such)
    choices : labels to choose from, for the form "labels"
    prompt, indication : of an open task
    requires_boxes : whether an open task wants boxes
    """

    id: str
    form: Form
    images: tuple[ViewedImage, ...]
    finding: str | None = None
    present: bool = True
    choices: tuple[str, ...] = ()
    prompt: str | None = None
    indication: str | None = None
    requires_boxes: bool = False

    @property
    def image(self) -> ViewedImage:
        """The image of a localization."""
        return self.images[0]

    @property
    def unit(self) -> str:
        """Id of what a prediction is about: the image of a localization, else the study or task."""
        return self.id if self.finding is None else self.image.image_id

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Question:
        """The question whose ``dataclasses.asdict`` went through JSON; KeyError or TypeError if it is not one."""
        images = tuple(ViewedImage(**{**image, "size": tuple(image["size"])}) for image in document["images"])
        return cls(**{**document, "images": images, "choices": tuple(document["choices"])})


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture in a message: PNG bytes, and the image they come from."""

    image_id: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of the conversation: texts and pictures in the order in which the model gets them."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | Shown, ...]


class PictureSource(Protocol):
    """Where pictures come from; :class:`reveal_bench.models.pictures.Pictures` for a dataset folder."""

    def open(self, image_id: str) -> Image:
        """The picture of an image, grey, of the manifest's size."""
        ...


@dataclass(frozen=True)
class AskSettings:
    """All that the messages of a question depend on, besides the data.

    Parameters
    ----------
    form : of the answers; one of :data:`FORMS` of the benchmark's kind
    style : of the prompt
    grid : cells per side
    side : pixels, of the square picture or of the long side of a whole one
    shots : examples of a few-shot prompt; 0 in the other styles
    shots_split : split that the examples come from, if it has enough of them
    seed : of the choice of examples
    detail : how finely an API is asked to look at pictures: "auto", "low" or "high"; thin lines need "high"
    prompt_version : of :mod:`reveal_bench.models.prompts`

    Raises
    ------
    ValueError
        If a setting is out of range.
    """

    form: Form = "cell"
    style: Style = "zero-shot"
    grid: int = 8
    side: int = SQUARE_SIDE
    shots: int = 0
    shots_split: str | None = None
    seed: int = 0
    detail: Literal["auto", "low", "high"] = "high"
    prompt_version: str = "1"

    def __post_init__(self) -> None:
        for name, known in (
            ("form", (*LOCAL, "labels", "text")),
            ("style", STYLES),
            ("detail", ("auto", "low", "high")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name, low, high in (("grid", 1, MAX_CELLS), ("side", MIN_SIDE, MAX_SIDE), ("shots", 0, MAX_SHOTS)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"`{name}` must be a whole number in [{low}, {high}], got {value!r}")
        if (self.style == "few-shot") != (self.shots > 0):
            raise ValueError(f"`shots` must be above 0 in style few-shot and 0 in the others, got {self.shots}")
        if self.style == "few-shot" and self.form not in LOCAL:
            raise ValueError(f"`style` few-shot is for the forms {', '.join(LOCAL)}, got form {self.form!r}")
        if self.form == "cell":
            from reveal_bench.models.overlay import check_side

            check_side(self.side, Grid(self.grid))

    @classmethod
    def of_folder(
        cls,
        folder: Path,
        *,
        form: str | None = None,
        style: str = "zero-shot",
        grid: int | None = None,
        side: int | None = None,
        shots: int = 3,
        shots_split: str | None = None,
        seed: int = 0,
        detail: str = "high",
    ) -> AskSettings:
        """The settings for a dataset folder; None stands for what its benchmark and the papers use.

        Raises
        ------
        ValueError
            If a setting is out of range or not for this kind of benchmark.
        """
        info = read_folder_info(folder)
        forms = FORMS[_kind(info)]
        if form is not None and form not in forms:
            raise ValueError(f"`form` must be one of {', '.join(forms)} for {info.benchmark}, got {form!r}")
        chosen = form or forms[0]
        default_side = SQUARE_SIDE if chosen in LOCAL else WHOLE_SIDE
        few = style == "few-shot"
        return cls(
            form=chosen,
            style=style,  # type: ignore[arg-type]  # checked by the class
            grid=info.grid if grid is None else grid,
            side=default_side if side is None else side,
            shots=shots if few else 0,
            shots_split=_shots_split(folder, info, shots_split) if few else None,
            seed=seed,
            detail=detail,  # type: ignore[arg-type]  # checked by the class
        )

    def document(self) -> dict[str, Any]:
        """The settings as JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AskSettings:
        """The settings that :meth:`document` wrote.

        Raises
        ------
        ValueError
            If a field is unknown, missing or out of range.
        """
        names = {field.name for field in fields(cls)}
        if set(document) != names:
            raise ValueError(f"`settings` must have the fields {sorted(names)}, got {sorted(document)}")
        return cls(**document)


def list_questions(folder: Path, split: str, settings: AskSettings, *, limit: int | None = None) -> list[Question]:
    """The questions of a split, in the order of its manifest; the first `limit` of them if it is given.

    Raises
    ------
    ValueError
        If the folder has no such split, or the form of the answers is not for its kind of benchmark.
    """
    info = read_folder_info(folder)
    kind = _kind(info)
    if settings.form not in FORMS[kind]:
        raise ValueError(f"`form` must be one of {', '.join(FORMS[kind])} for {info.benchmark}, got {settings.form!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be at least 1, got {limit}")
    listed = {"localization": _localizations, "findings": _studies, "tasks": _tasks}[kind](
        folder, split, info, settings
    )
    return list(listed)[:limit]


def describe_split(folder: Path, split: str) -> dict[str, Any]:
    """What answers to a split's questions belong to: benchmark, version, split, kind, and the digest of its data.

    The digest `dataset` is the SHA-256 of the rows of the split's manifest and of the hashes of its images' pixels, as
    far as the folder knows them. Two builds of one version with other films, other questions or other grey values
    differ in it; references have no part in it.

    Raises
    ------
    ValueError
        If the folder has no such split.
    """
    import pyarrow.parquet as pq

    info = read_folder_info(folder)
    check_split(info, folder, split)
    asked = pq.read_table(Path(folder) / "manifest" / f"{split}.parquet").to_pylist()
    shards = [path for config in CONFIGS for path in split_shards(folder, config, split)]
    pixels: set[tuple[str, str]] = set()
    for shard in shards:
        columns = [name for name in IDENTITIES if name in pq.read_schema(shard).names]
        for row in pq.read_table(shard, columns=columns).to_pylist():
            facts = [row] if "pixel_sha256" in row else [fact for name in FACTS for fact in row.get(name) or ()]
            pixels.update((fact["image_id"], fact["pixel_sha256"] or "") for fact in facts)
    told = json.dumps([asked, sorted(pixels)], sort_keys=True)
    return {
        "benchmark": info.benchmark,
        "benchmark_version": info.version,
        "split": split,
        "kind": _kind(info),
        "dataset": hashlib.sha256(told.encode()).hexdigest(),
    }


def _localizations(folder: Path, split: str, info: FolderInfo, settings: AskSettings) -> Iterator[Question]:
    for row in read_manifest(folder, split).rows.values():
        image = ViewedImage(row.image_id, row.view, row.size)
        for finding in row.asked:
            yield Question(f"{row.image_id}|{finding}", settings.form, (image,), finding, info.asks == "present")


def _studies(folder: Path, split: str, info: FolderInfo, settings: AskSettings) -> Iterator[Question]:
    from reveal_bench.kinds.findings.records import read_study_manifest

    facts = {
        row["study_id"]: row["image_facts"] for row in _inputs(folder, split, "multilabel", ("study_id", "image_facts"))
    }
    for study_id in read_study_manifest(folder, split).studies:
        if study_id not in facts:
            raise ValueError(f"{folder} must hold the inputs of every study, those of {study_id!r} are missing")
        yield Question(study_id, settings.form, _images(facts[study_id]), present=False, choices=info.findings)


def _tasks(folder: Path, split: str, info: FolderInfo, settings: AskSettings) -> Iterator[Question]:
    from reveal_bench.kinds.tasks.records import read_task_manifest

    columns = ("task_id", "image_facts", "prior_image_facts")
    facts = {row["task_id"]: row for row in _inputs(folder, split, "tasks", columns)}
    for task in read_task_manifest(folder, split).tasks:
        if task.task_id not in facts:
            raise ValueError(f"{folder} must hold the inputs of every task, those of {task.task_id!r} are missing")
        row = facts[task.task_id]
        images = (*_images(row["image_facts"]), *_images(row["prior_image_facts"], is_prior=True))
        yield Question(
            task.task_id,
            settings.form,
            images,
            prompt=task.prompt,
            indication=task.indication,
            requires_boxes=task.requires_boxes,
        )


def _images(facts: Sequence[Mapping[str, Any]], *, is_prior: bool = False) -> tuple[ViewedImage, ...]:
    return tuple(
        ViewedImage(fact["image_id"], VIEWS[fact["view"]], (fact["height"], fact["width"]), is_prior) for fact in facts
    )


def _inputs(folder: Path, split: str, config: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Columns of a split's rows, from its references' table, or where these are private from that of its inputs."""
    import pyarrow.parquet as pq

    shards: list[Path] = []
    for name in (config, "holdout_inputs"):
        shards = shards or split_shards(folder, name, split)
    if not shards:
        raise ValueError(f"{folder} holds no inputs of split {split!r}: build it with its pictures, or attach them")
    return [row for shard in shards for row in pq.read_table(shard, columns=list(columns)).to_pylist()]


def _kind(info: FolderInfo) -> str:
    if info.benchmark not in BENCHMARKS:
        raise ValueError(f"`benchmark` must be one of {', '.join(BENCHMARKS)}, got {info.benchmark!r}")
    return BENCHMARKS[info.benchmark].kind


def _shots_split(folder: Path, info: FolderInfo, asked_for: str | None) -> str:
    """The split of the examples: as named, else "validation", else the first whose references are in the folder."""
    having = [split for split in info.splits if split_shards(folder, "localization", split)]
    if asked_for is not None:
        if asked_for not in having:
            raise ValueError(f"`shots_split` must have references in {folder} ({', '.join(having)}), got {asked_for!r}")
        return asked_for
    if not having:
        raise ValueError(f"{folder} has no split with references: there is no example to show")
    return "validation" if "validation" in having else having[0]
