"""Questions for a model, one at a time; this module reads no references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reveal_bench.findings import Vocabulary, terms_of
from reveal_bench.kinds.folder import AnyFolder, read_rows, split_shards
from reveal_bench.kinds.images import VIEWS

if TYPE_CHECKING:
    from reveal_bench.kinds.detection.records import ScoredBox
    from reveal_bench.kinds.localization.records import Box, Point
    from reveal_bench.kinds.tasks.records import AnswerBox
    from reveal_bench.masks import Rle


@dataclass(frozen=True, slots=True)
class ViewedImage:
    """An image of a question: its view and its (height, width) in pixels; `is_prior` is True for an image of an earlier
    study.
    """

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
    form : form of the answer
    images : one image for a localization, all images of a study or task
    finding : finding to localize, else None
    present : True if the finding is known to be present (the benchmark asks only for present findings)
    choices : labels to choose from, for the form "labels"
    prompt, indication : texts of an open task
    requires_boxes : True if an open task asks for boxes
    """

    id: str
    form: str
    images: tuple[ViewedImage, ...]
    finding: str | None = None
    present: bool = True
    choices: tuple[str, ...] = ()
    prompt: str | None = None
    indication: str | None = None
    requires_boxes: bool = False

    @property
    def image(self) -> ViewedImage:
        """The image of a localization question."""
        return self.images[0]

    @property
    def unit(self) -> str:
        """Id in a prediction: that of the image for localization, otherwise that of the study or task."""
        return self.id if self.finding is None else self.image.image_id

    def document(self) -> dict[str, Any]:
        """Return the question as JSON values, with the terms of its `choices` if they have any."""
        return {**asdict(self), **terms_of(self.choices)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Question:
        """Return the question of a :meth:`document`; raises KeyError, TypeError or ValueError if it is malformed."""
        fields = {name: value for name, value in document.items() if name != "terms"}
        choices = Vocabulary.of(document["choices"], document.get("terms", {}))
        images = tuple(ViewedImage(**{**image, "size": tuple(image["size"])}) for image in document["images"])
        return cls(**{**fields, "images": images, "choices": choices})


class Answer(Protocol):
    """A model's parsed answer to one question, such as :class:`reveal_bench.models.run_folder.QuestionOutcome`.

    Attributes
    ----------
    unit, finding : unit and finding of the question
    cell, point, box, detections, mask, score : locations, and the confidence if the model gives one
    labels, probabilities : answers on the labels of a study
    answer, boxes : text and boxes of an open task
    """

    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def finding(self) -> str | None: ...  # noqa: D102
    @property
    def cell(self) -> str | None: ...  # noqa: D102
    @property
    def point(self) -> Point | None: ...  # noqa: D102
    @property
    def box(self) -> Box | None: ...  # noqa: D102
    @property
    def detections(self) -> tuple[ScoredBox, ...]: ...  # noqa: D102
    @property
    def mask(self) -> Rle | None: ...  # noqa: D102
    @property
    def score(self) -> float | None: ...  # noqa: D102
    @property
    def labels(self) -> tuple[str, ...] | None: ...  # noqa: D102
    @property
    def probabilities(self) -> Mapping[str, float] | None: ...  # noqa: D102
    @property
    def answer(self) -> str | None: ...  # noqa: D102
    @property
    def boxes(self) -> tuple[AnswerBox, ...]: ...  # noqa: D102


def viewed_images(facts: Sequence[Mapping[str, Any]], *, is_prior: bool = False) -> tuple[ViewedImage, ...]:
    """Return the images of a study, from the entries of its column `image_facts`."""
    return tuple(
        ViewedImage(fact["image_id"], VIEWS[fact["view"]], (fact["height"], fact["width"]), is_prior) for fact in facts
    )


def read_inputs(folder: AnyFolder, split: str, config: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return columns of a split's rows from the table of its references, or from the holdout's inputs if references are
    private.
    """
    shards: list[Path] = []
    for name in (config, "holdout_inputs"):
        shards = shards or split_shards(folder, name, split)
    if not shards:
        raise ValueError(f"{folder} holds no inputs of split {split!r}: build it with its pictures, or attach them")
    return [row for shard in shards for row in read_rows(shard, columns)]
