"""List the questions of a split, and define the settings for asking these questions.

Conventions
-----------
Benchmarks of localizations have one question per (image, finding) of the split's public manifest, benchmarks of labels
one per study, and open tasks one per task. No reference is read, so the questions of a private holdout are listed like
any others. The *form* of an answer is a grid cell, a point, a box, boxes with scores, the labels of a study, or text.
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
from reveal_bench.kinds import KINDS, known_kind
from reveal_bench.kinds.folder import AnyFolder, FolderInfo, check_split, open_folder, read_folder_info, split_shards
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
"""Forms of answers with one position, on a square image."""
PLACED: tuple[Form, ...] = ("point", "box", "boxes", "text")
"""Forms of answers that may contain coordinates."""
SQUARE_SIDE, WHOLE_SIDE = 256, 1024
"""Pixels per side of the square for localizations (paper 000, section 3.2), and of the long side of a whole image."""
MIN_SIDE, MAX_SIDE, MAX_SHOTS = 64, 4096, 16
DESCRIBED = ("benchmark", "benchmark_version", "split", "kind", "dataset")
"""The keys of :func:`describe_split`."""
CONFIGS = (*(kind.config for kind in KINDS.values()), "holdout_inputs")
"""Configurations of a dataset folder that have images; the configuration of a private holdout comes last."""
ONE_VIEW = ("PA", "AP", "FRONTAL", "UNKNOWN", "LATERAL")
"""Views in the order of preference, for the one image that represents a study (paper 001, section 3.2)."""
FACTS = ("image_facts", "prior_image_facts")
LATER = {"coordinates", "corners", "views", "control", "system"}
"""Settings that runs of earlier versions do not state, with the values that these runs used."""
IDENTITIES = ("image_id", "pixel_sha256", *FACTS)


@dataclass(frozen=True, slots=True)
class PromptImage:
    """An image in a message: PNG bytes, and the original image's id."""

    image_id: str
    png: bytes


@dataclass(frozen=True, slots=True)
class ShotUsed:
    """An example in a few-shot prompt; a smaller `tier` means an example more similar to the question."""

    image_id: str
    split: str
    tier: int


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the conversation: texts and images in the order in which the model gets them."""

    role: Role
    parts: tuple[str | PromptImage, ...]


class PictureSource(Protocol):
    """A source of images; :class:`reveal_bench.models.pictures.SplitImages` for a dataset folder."""

    def open(self, image_id: str) -> Image:
        """Return an image, grey, of the manifest's size."""
        ...


@dataclass(frozen=True)
class AskSettings:
    """All settings, apart from the data, on which the messages of a question depend.

    Parameters
    ----------
    form : form of the answers, one of those that the benchmark's kind allows
    style : style of the prompt
    grid : cells per side
    side : pixels per side of the square image, or of the long side of a whole image
    shots : number of examples of a few-shot prompt; 0 in the other styles
    shots_split : preferred split of the examples, if the split has enough
    seed : seed for the choice of examples
    detail : resolution requested from an API: "auto", "low" or "high"; thin lines need "high"; "auto" is the default of
        APIs and is not sent to an endpoint
    coordinates, corners : the convention for positions (:mod:`reveal_bench.models.coordinates`); `coordinates` may be
        "auto" only where a model is calibrated
    views : images of a study in the prompt: "all", or "one" image, PA or else AP, and one image of the previous study
        if the question has a previous study (as paper 001 asked a model that accepts one image)
    system : where the system text is: in a "message" of its own, or in the "user" message, for models without that role
    control : a change that tests whether the model looks at the image, one of
        :data:`reveal_bench.models.controls.CONTROLS`
    prompt_version : version of :mod:`reveal_bench.models.prompts`

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
    system: Literal["message", "user"] = "message"
    prompt_version: str = "1"

    def __post_init__(self) -> None:
        for name, known in (
            ("form", FORMS),
            ("style", STYLES),
            ("detail", ("auto", "low", "high")),
            ("views", ("all", "one")),
            ("system", ("message", "user")),
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
        system: str = "message",
    ) -> AskSettings:
        """Return the settings for a dataset folder; None means the value of its benchmark and the papers.

        Boxes are requested as x, y, width and height in pixels, but as corners in every other convention, because
        models with such a convention use corners.

        Raises
        ------
        ValueError
            If a setting is out of range or unsuitable for this kind of benchmark.
        """
        info = read_folder_info(folder)
        forms = known_kind(info).questions.forms
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
            system=system,  # type: ignore[arg-type]  # checked by the class
        )

    def document(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AskSettings:
        """Return the settings that :meth:`document` of this or an earlier version wrote; missing ones get defaults.

        Raises
        ------
        ValueError
            If a field is unknown, missing or out of range.
        """
        names = {field.name for field in fields(cls)}
        if not names - LATER <= set(document) <= names:
            raise ArgumentError("settings", f"must have the fields {sorted(names)}", sorted(document))
        return cls(**document)


def list_questions(folder: AnyFolder, split: str, settings: AskSettings, *, limit: int | None = None) -> list[Question]:
    """Return the questions of a split or of its selected part, or the first `limit`, in the order of the manifest.

    Raises
    ------
    ValueError
        If the folder has no such split, its kind of benchmark does not allow this form of answers, or findings are
        selected though each question is about all.
    """
    info = read_folder_info(folder)
    kind = known_kind(info)
    if settings.form not in kind.questions.forms:
        rule = f"must be one of {', '.join(kind.questions.forms)} for {info.benchmark}"
        raise ArgumentError("form", rule, repr(settings.form))
    if limit is not None and limit < 1:
        raise ArgumentError("limit", "must be at least 1", limit)
    check_split(info, folder, split)
    listed = list(kind.questions.read(folder, split, info, settings.form))[:limit]
    selected = open_folder(folder).selection.findings
    if selected is not None and any(question.finding is None for question in listed):
        raise ArgumentError("findings", "is only for questions about one finding", ", ".join(selected))
    return listed if settings.views == "all" else [replace(one, images=_one_view(one.images)) for one in listed]


def _check_control(control: str, form: str) -> None:
    known = [name for name, one in CONTROLS.items() if form in (*LOCAL, "boxes") or not one.of_places]
    if control not in known:
        raise ArgumentError("control", f"must be one of {', '.join(known)} for form {form!r}", repr(control))


def _one_view(images: Sequence[ViewedImage]) -> tuple[ViewedImage, ...]:
    """Return one image of the study, and one of any earlier study: in each, the first in the order of ONE_VIEW."""
    parts = [[image for image in images if image.is_prior == is_prior] for is_prior in (False, True)]
    return tuple(min(part, key=lambda image: ONE_VIEW.index(image.view)) for part in parts if part)


def describe_split(folder: Path, split: str) -> dict[str, Any]:
    """Return the identity of a split's questions: benchmark, version, split, kind, and the digest of its data.

    The digest `dataset` is the SHA-256 of the rows of the split's manifest and of its images' pixel hashes, if the
    folder has images. The digest differs between two builds of a version whose images, questions or grey values differ;
    references do not affect it.

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
    rows = json.dumps([asked, sorted(pixels)], sort_keys=True)
    return {
        "benchmark": info.benchmark,
        "benchmark_version": info.version,
        "split": split,
        "kind": known_kind(info).name,
        "dataset": hashlib.sha256(rows.encode()).hexdigest(),
    }


def _shots_split(folder: Path, info: FolderInfo, asked_for: str | None) -> str:
    """Return the split of the examples: the named split, else "validation", else the first split with references."""
    having = [split for split in info.splits if split_shards(folder, "localization", split)]
    if asked_for is not None:
        if asked_for not in having:
            raise ArgumentError(
                "shots_split",
                f"must have references on images in {folder} ({', '.join(having) or 'no split does'})",
                repr(asked_for),
            )
        return asked_for
    if not having:
        rule = "have a split with references on images"
        raise ValueError(f"examples show findings on images: {folder} must {rule}; `--prompt zero-shot` needs none")
    return "validation" if "validation" in having else having[0]
