"""A small phantom dataset with pictures, and simulated models on loopback that know its truth."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.masks import decode_mask
from reveal_bench.models.overlay import shown_png
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose
from reveal_bench.models.questions import AskSettings, PromptImage, list_questions
from reveal_bench.phantom.layouts import write_chexlocalize
from reveal_bench.sources import chexlocalize
from tests.conftest import made_once
from tests.models.endpoint import PlayedModel, played


@dataclass(frozen=True)
class Truth:
    """The questions of the test split: (question, finding, sha256 of its picture), with right and wrong answers."""

    questions: tuple[tuple[str, str, str], ...]
    right: dict[str, str]
    wrong: dict[str, str]


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 films to ask about (split test) and 12 for examples (split validation), 256 pixels long."""

    def make(root: Path) -> None:
        write_chexlocalize(root / "download", n_images=24, n_val=12, seed=4, long_side=256, traps=False)
        reading = chexlocalize.read(root / "download")
        build_folder(reading.splits, root / "public", BENCHMARKS["chexlocalize"], seed=3, synthetic=True)

    return made_once(tmp_path_factory, "films", make) / "public"


@pytest.fixture(scope="session")
def truth(films: Path) -> Truth:
    """Right and wrong cells by the masks: a mask's largest part is in the right cell, no part is in the wrong one."""
    settings, pictures, grid = AskSettings(), FolderPictures(films), Grid(8)
    records = {record.image_id: record for record in read_localization(films, "test")}
    questions, right, wrong = [], {}, {}

    @cache  # an image is shown for each of its findings
    def sha256_of(image_id: str) -> str:
        png = shown_png(pictures.open(image_id), form="cell", side=settings.side, grid=8)
        return hashlib.sha256(png).hexdigest()

    for question in list_questions(films, "test", settings):
        image_id, finding = question.id.split("|")
        reference = records[image_id].reference(finding)
        assert reference is not None
        assert reference.rle is not None
        mask = decode_mask(reference.rle)
        inside, near = {}, {}
        for cell in grid.cells:
            x, y, width, height = (round(v) for v in grid.box(cell, size=mask.shape))
            inside[cell] = int(mask[y : y + height, x : x + width].sum())
            near[cell] = int(mask[max(0, y - 2) : y + height + 2, max(0, x - 2) : x + width + 2].sum())
        right[question.id] = max(inside, key=lambda cell: inside[cell])
        wrong[question.id] = min(near, key=lambda cell: near[cell])
        assert near[wrong[question.id]] == 0 < inside[right[question.id]]
        questions.append((question.id, finding, sha256_of(image_id)))
    return Truth(tuple(questions), right, wrong)


@contextmanager
def playing(
    truth: Truth, *, error_rate: float = 0.0, faults: Mapping[str, Sequence[str]] | None = None
) -> Iterator[tuple[PlayedModel, set[str]]]:
    """A running model, and the questions that it answers correctly unless a fault prevents it."""
    rng = np.random.default_rng(8)
    hits = {question for question, _, _ in truth.questions if rng.random() >= error_rate}
    answers = {name: (truth.right if name in hits else truth.wrong)[name] for name, _, _ in truth.questions}
    known = {(sha256, finding): question for question, finding, sha256 in truth.questions}
    planned = {question: list(some) for question, some in (faults or {}).items()}
    with played(PlayedModel(known, answers, planned)) as model:
        yield model, hits


@contextmanager
def saying(folder: Path, split: str, answers: Mapping[str, str]) -> Iterator[PlayedModel]:
    """A model that knows the questions of any folder by their last picture, and says of each what `answers` holds."""
    settings, pictures = AskSettings.of_folder(folder), FolderPictures(folder)
    known = {}
    for question in list_questions(folder, split, settings):
        *_, picture, _ = compose(question, settings, pictures=pictures)[-1].parts
        assert isinstance(picture, PromptImage)
        known[hashlib.sha256(picture.png).hexdigest(), question.finding or ""] = question.id
    with played(PlayedModel(known, answers)) as model:
        yield model
