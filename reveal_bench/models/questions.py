"""What a model is asked: the questions of a split, and the settings that decide how they are put.

Conventions
-----------
There is a question per (image, finding) that the split's public manifest asks, per study for benchmarks of labels, and
per task for open tasks. Nothing here reads a reference: the questions of a private holdout are listed like any others.
The *form* of an answer is a grid cell, a point, a box, boxes with scores, the labels of a study, or text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import MAX_CELLS, Grid
from reveal_bench.kinds import KINDS, kind_of
from reveal_bench.kinds.folder import FolderInfo, check_split, read_folder_info, split_shards
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.controls import CONTROLS
from reveal_bench.models.coordinates import AUTO, convention
from reveal_bench.models.overlay import Form

if TYPE_CHECKING:
    from PIL.Image import Image

Style = Literal["zero-shot", "chain-of-thought", "few-shot"]
STYLES: tuple[Style, ...] = ("zero-shot", "chain-of-thought", "few-shot")
FORMS: tuple[Form, ...] = get_args(Form)
LOCAL: tuple[Form, ...] = ("cell", "point", "box")
"""Forms of one place, asked for in a square picture."""
PLACED: tuple[Form, ...] = ("point", "box", "boxes", "text")
"""Forms of answers that may hold coordinates."""
SQUARE_SIDE, WHOLE_SIDE = 256, 1024
"""Pixels: side of the square that a localization is asked on (paper 000, section 3.2), long side of a whole picture."""
MIN_SIDE, MAX_SIDE, MAX_SHOTS = 64, 4096, 16
DESCRIBED = ("benchmark", "benchmark_version", "split", "kind", "dataset")
"""What :func:`describe_split` says."""
CONFIGS = (*(kind.config for kind in KINDS.values()), "holdout_inputs")
"""Where a folder keeps rows with pictures; those of a private holdout in the last."""
ONE_VIEW = ("PA", "AP", "FRONTAL", "UNKNOWN", "LATERAL")
"""Which film stands for a study, first to last (paper 001, section 3.2)."""
FACTS = ("image_facts", "prior_image_facts")
LATER = {"coordinates", "corners", "views", "control"}
"""Settings that runs of earlier versions do not state; they had the defaults."""
IDENTITIES = ("image_id", "pixel_sha256", *FACTS)


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture in a message: PNG bytes, and the image they come from."""

    image_id: str
    png: bytes


@dataclass(frozen=True, slots=True)
class ShotUsed:
    """An example that a few-shot prompt showed; `tier` says how near to the question it could be chosen."""

    image_id: str
    split: str
    tier: int


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of the conversation: texts and pictures in the order in which the model gets them."""

    role: Role
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
    form : of the answers; one of the forms of the benchmark's kind
    style : of the prompt
    grid : cells per side
    side : pixels, of the square picture or of the long side of a whole one
    shots : examples of a few-shot prompt; 0 in the other styles
    shots_split : split that the examples come from, if it has enough of them
    seed : of the choice of examples
    detail : how finely an API is asked to look at pictures: "auto", "low" or "high"; thin lines need "high"
    coordinates, corners : how places are asked for and read, see :mod:`reveal_bench.models.coordinates`; the first may
        be "auto" where a model is calibrated, and nowhere else
    views : films of a study that are shown: "all"; or "one", the PA, else the AP, and beside it the one of the study
        before where the question has one (as paper 001 asked a model that takes one picture)
    control : what is changed to see whether the model looks, one of :data:`reveal_bench.models.controls.CONTROLS`
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
    coordinates: str = "pixels"
    corners: bool = False
    views: Literal["all", "one"] = "all"
    control: str | None = None
    prompt_version: str = "1"

    def __post_init__(self) -> None:
        for name, known in (
            ("form", FORMS),
            ("style", STYLES),
            ("detail", ("auto", "low", "high")),
            ("views", ("all", "one")),
        ):
            if getattr(self, name) not in known:
                raise ArgumentError(name, f"must be one of {', '.join(known)}", repr(getattr(self, name)))
        for name, low, high in (("grid", 1, MAX_CELLS), ("side", MIN_SIDE, MAX_SIDE), ("shots", 0, MAX_SHOTS)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ArgumentError(name, f"must be a whole number in [{low}, {high}]", repr(value))
        if (self.style == "few-shot") != (self.shots > 0):
            raise ArgumentError("shots", "must be above 0 in style few-shot and 0 in the others", self.shots)
        if self.style == "few-shot" and self.form not in LOCAL:
            raise ValueError(f"`style` few-shot is for the forms {', '.join(LOCAL)}, got form {self.form!r}")
        if self.coordinates != AUTO:
            convention(self.coordinates)
        if (self.coordinates, self.corners) != ("pixels", False) and self.form not in PLACED:
            argument = "corners" if self.coordinates == "pixels" else "coordinates"
            rule = f"is for answers with coordinates ({', '.join(PLACED)})"
            raise ArgumentError(argument, rule, f"form {self.form!r}")
        if self.views != "all" and self.form in (*LOCAL, "boxes"):
            raise ArgumentError("views", "is for questions about studies (labels, text)", f"form {self.form!r}")
        if self.control is not None:
            _check_control(self.control, self.form)
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
        coordinates: str = "pixels",
        corners: bool | None = None,
        views: str = "all",
    ) -> AskSettings:
        """The settings for a dataset folder; None stands for what its benchmark and the papers use.

        Boxes are asked for as x, y, width and height in pixels, and as corners in every other convention, as the models
        do that have one.

        Raises
        ------
        ValueError
            If a setting is out of range or not for this kind of benchmark.
        """
        info = read_folder_info(folder)
        forms = kind_of(info, known_only=True).questions.forms
        if form is not None and form not in forms:
            raise ArgumentError("form", f"must be one of {', '.join(forms)} for {info.benchmark}", repr(form))
        chosen = form or forms[0]
        default_side = SQUARE_SIDE if chosen in LOCAL else WHOLE_SIDE
        few = style == "few-shot"
        return cls(
            form=chosen,  # type: ignore[arg-type]  # one of the kind's
            style=style,  # type: ignore[arg-type]  # checked by the class
            grid=info.grid if grid is None else grid,
            side=default_side if side is None else side,
            shots=shots if few else 0,
            shots_split=_shots_split(folder, info, shots_split) if few else None,
            seed=seed,
            detail=detail,  # type: ignore[arg-type]  # checked by the class
            coordinates=coordinates,
            corners=chosen in PLACED[1:] and coordinates not in ("pixels", AUTO) if corners is None else corners,
            views=views,  # type: ignore[arg-type]  # checked by the class
        )

    def document(self) -> dict[str, Any]:
        """The settings as JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AskSettings:
        """The settings that :meth:`document` wrote, or an earlier version of it, without what it did not know.

        Raises
        ------
        ValueError
            If a field is unknown, missing or out of range.
        """
        names = {field.name for field in fields(cls)}
        if not names - LATER <= set(document) <= names:
            raise ArgumentError("settings", f"must have the fields {sorted(names)}", sorted(document))
        return cls(**document)


def list_questions(folder: Path, split: str, settings: AskSettings, *, limit: int | None = None) -> list[Question]:
    """The questions of a split, in the order of its manifest; the first `limit` of them if it is given.

    Raises
    ------
    ValueError
        If the folder has no such split, or the form of the answers is not for its kind of benchmark.
    """
    info = read_folder_info(folder)
    kind = kind_of(info, known_only=True)
    if settings.form not in kind.questions.forms:
        rule = f"must be one of {', '.join(kind.questions.forms)} for {info.benchmark}"
        raise ArgumentError("form", rule, repr(settings.form))
    if limit is not None and limit < 1:
        raise ArgumentError("limit", "must be at least 1", limit)
    listed = list(kind.questions.read(folder, split, info, settings.form))[:limit]
    return listed if settings.views == "all" else [replace(one, images=_one_view(one.images)) for one in listed]


def _check_control(control: str, form: str) -> None:
    known = [name for name, one in CONTROLS.items() if form in (*LOCAL, "boxes") or not one.of_places]
    if control not in known:
        raise ArgumentError("control", f"must be one of {', '.join(known)} for form {form!r}", repr(control))


def _one_view(images: Sequence[ViewedImage]) -> tuple[ViewedImage, ...]:
    """One film of the study and, where there is an earlier study, one of that: the first in the order of ONE_VIEW."""
    parts = [[image for image in images if image.is_prior == is_prior] for is_prior in (False, True)]
    return tuple(min(part, key=lambda image: ONE_VIEW.index(image.view)) for part in parts if part)


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
        "kind": kind_of(info, known_only=True).name,
        "dataset": hashlib.sha256(told.encode()).hexdigest(),
    }


def _shots_split(folder: Path, info: FolderInfo, asked_for: str | None) -> str:
    """The split of the examples: as named, else "validation", else the first whose references are in the folder."""
    having = [split for split in info.splits if split_shards(folder, "localization", split)]
    if asked_for is not None:
        if asked_for not in having:
            raise ArgumentError(
                "shots_split", f"must have references in {folder} ({', '.join(having)})", repr(asked_for)
            )
        return asked_for
    if not having:
        raise ValueError(f"{folder} has no split with references: there is no example to show")
    return "validation" if "validation" in having else having[0]
