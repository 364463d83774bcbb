"""Models that answer in their own coordinate convention: how each writes positions, and runs that determine the
convention.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from reveal_bench.evaluation.score import score_file
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.masks import decode_mask
from reveal_bench.models.answers import Reply, read_reply
from reveal_bench.models.calibration import CalibrationError, CoordinateCalibration, Drawings, calibrate
from reveal_bench.models.coordinates import AUTO, CONVENTIONS, KNOWN_MODELS, convention, known_model
from reveal_bench.models.overlay import SquareView, shown_png
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import prompt_text
from reveal_bench.models.questions import AskSettings, list_questions
from reveal_bench.models.run_folder import read_run
from reveal_bench.models.running import ModelChoice, run_model
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.models.conftest import Truth
from tests.models.endpoint import PlayedModel, played

FILM = ViewedImage("i1", "AP", (512, 768))  # its square begins at x = 128 and is shown at half its size, 256

POINT = (384.0, 128.0)  # (128, 64) of the 256 x 256 that are shown: half of the width, a quarter of the height
BOX = (192.0, 64.0, 128.0, 256.0)  # x 32, y 32, 64 wide and 128 high of the 256: corners (32, 32) and (96, 160)


def read(form: str, text: str, coordinates: str, *, corners: bool = True) -> Reply:
    settings = AskSettings(form, coordinates=coordinates, corners=corners and form == "box")  # type: ignore[arg-type]
    return read_reply(text, Question("q", form, (FILM,), "Pneumothorax"), settings)


@pytest.mark.parametrize(
    ("coordinates", "text", "expected"),
    [
        ("pixels", "Point: 128, 64", POINT),
        ("pixels", "Point: 0.5, 0.25", (129.0, 0.5)),  # a pixel, near the corner
        ("pixels-768", "Point: 384, 192", POINT),
        ("pixels-768", '{"point_2d": [384, 192], "label": "nodule"}', POINT),
        ("pixels-768", "Point: 768, 192", "outside"),
        ("fractions", "Point: 0.5, 0.25", POINT),
        ("fractions", "(0.500, 0.250)", POINT),
        ("fractions", "pyautogui.click(x=0.500, y=0.250)", POINT),
        ("fractions", "Point: 500, 250", "outside"),
        ("fractions", "Point: 1.0, 0.25", (639.99488, 128.0)),  # the prompt says "from 0 to 1"
        ("fractions", "Point: 50%, 25%", "unclear"),
        ("percent", "Point: 50, 25", POINT),
        ("percent", "Point: 50.0%, 25.0%", POINT),
        ("percent", '<point x="50.0" y="25.0" alt="nodule">nodule</point>', POINT),
        ("percent", "Point: x=50, y=25", POINT),
        ("percent", "Point: 500, 250", "outside"),
        ("thousandths-xy", "Point: 500, 250", POINT),
        ("thousandths-xy", '[{"point_2d": [500, 250], "label": "nodule"}]', POINT),
        ("thousandths-xy", "<|box_start|>(500,250)<|box_end|>", POINT),
        ("thousandths-xy", '<point x="50.0" y="25.0" alt="nodule">nodule</point>', "unclear"),
        ("thousandths-xy", '{"box_2d": [500, 250]}', "unclear"),
        ("thousandths-yx", "Point: 250, 500", POINT),
        ("thousandths-yx", '[{"point": [250, 500], "label": "nodule"}]', POINT),
        ("thousandths-yx", "Point: y=250, x=500", POINT),
        ("thousandths-yx", "Point: x=500, y=250", POINT),  # what it names counts
        ("thousandths-yx", "Point: 250, 1001", "outside"),
    ],
)
def test_points_in_each_convention(coordinates: str, text: str, expected: tuple[float, float] | str) -> None:
    reply = read("point", text, coordinates)
    assert reply.point == (None if isinstance(expected, str) else pytest.approx(expected))
    assert reply.status == (expected if isinstance(expected, str) else "answered")


@pytest.mark.parametrize(
    ("coordinates", "text", "is_right"),
    [
        ("pixels", "Box: 32, 32, 96, 160", True),
        ("pixels", '{"bbox_2d": [32, 32, 96, 160]}', True),
        ("pixels", "(32, 32), (96, 160)", True),
        ("pixels", "Box: x=32, y=32, w=64, h=128", True),
        ("pixels", '{"box_2d": [32, 32, 160, 96]}', False),
        ("pixels-768", "<|box_start|>(96,96),(288,480)<|box_end|>", True),
        ("fractions", '{"bbox_2d": [0.125, 0.125, 0.375, 0.625]}', True),
        ("percent", "Box: 12.5, 12.5, 37.5, 62.5", True),
        ("thousandths-xy", "<|ref|>air<|/ref|><|det|>[[125, 125, 375, 625]]<|/det|>", True),
        ("thousandths-xy", '```json\n[{"bbox_2d": [125, 125, 375, 625], "label": "air"}]\n```', True),
        ("thousandths-xy", "<ref>air</ref><box>(125,125),(375,625)</box>", True),
        ("thousandths-xy", "<box>125 125 375 625</box>", True),
        ("thousandths-xy", '[{"box_2d": [125, 125, 625, 375]}]', False),
        ("thousandths-yx", '```json\n[{"box_2d": [125, 125, 625, 375], "label": "air"}]\n```', True),
        ("thousandths-yx", "Box: 125, 125, 625, 375", True),
        ("thousandths-yx", "Box: ymin=125, xmin=125, ymax=625, xmax=375", True),
        ("thousandths-yx", "Box: 625, 125, 125, 375", False),  # its bottom above its top
    ],
)
def test_boxes_in_each_convention(coordinates: str, text: str, is_right: bool) -> None:
    reply = read("box", text, coordinates)
    assert reply.box == (pytest.approx(BOX) if is_right else None)
    assert reply.status == ("answered" if is_right else "unclear")


def test_boxes_with_sizes_in_other_units() -> None:
    assert read("box", "Box: 0.125, 0.125, 0.25, 0.5", "fractions", corners=False).box == pytest.approx(BOX)
    assert read("box", "Box: 125, 125, 500, 250", "thousandths-yx", corners=False).box == pytest.approx(BOX)


WIDE = ViewedImage("i2", "PA", (1024, 2048))  # a task shows it 1,024 wide and 512 high


@pytest.mark.parametrize(
    ("coordinates", "entry"),
    [
        ("pixels", {"x": 256, "y": 256, "w": 512, "h": 128}),
        ("pixels", {"box": [256, 256, 768, 384]}),
        ("pixels-512", {"box": [128, 128, 384, 192]}),
        ("fractions", {"bbox_2d": [0.25, 0.5, 0.75, 0.75]}),
        ("percent", {"x1": 25, "y1": 50, "x2": 75, "y2": 75}),
        ("thousandths-xy", {"bbox": [250, 500, 750, 750]}),
        ("thousandths-yx", {"box_2d": [500, 250, 750, 750]}),
    ],
)
def test_boxes_of_tasks_are_of_each_pictures_own_sides(coordinates: str, entry: dict[str, Any]) -> None:
    settings = AskSettings("text", side=1024, coordinates=coordinates, corners=True)
    text = "Large.\n" + json.dumps({"boxes": [{"image": 1, "label": "heart", **entry}]})
    (box,) = read_reply(text, Question("t", "text", (WIDE,)), settings).boxes
    assert box.box == pytest.approx((512, 512, 1024, 256))


@pytest.mark.parametrize("form", ["point", "box", "boxes", "text"])
@pytest.mark.parametrize("coordinates", [*CONVENTIONS, "pixels-640"])
def test_a_prompt_asks_in_the_convention_that_is_read(form: str, coordinates: str) -> None:
    """A model's example line, with the numbers of a known place, is read as that place."""
    settings = AskSettings(form, side=256, coordinates=coordinates, corners=form != "point")  # type: ignore[arg-type]
    image = ViewedImage("i", "AP", (256, 256))
    asked = Question("q", form, (image,), None if form == "text" else "Edema", prompt="Mark it.", requires_boxes=True)
    text, place = prompt_text(asked, settings), (40.0, 60.0, 90.0, 30.0)
    names = convention(coordinates).names("point" if form == "point" else "box", corners=True)
    numbers = convention(coordinates).written(place[: len(names)], (256, 256), corners=True)
    example = ", ".join(names)
    (line,) = re.findall(r'\{"boxes": \[\{.*\}\]\}' if "boxes" in text else rf"\w+: {example}", text)
    answer = line.replace(example, ", ".join(numbers)).replace('"..."', '"it"').replace("...", "0.5")
    reply = read_reply(answer, asked, settings)
    several = reply.boxes or reply.detections
    got = several[0].box if several else (reply.point or reply.box)
    assert got == pytest.approx(place[: len(names)], abs=0.5)  # half a thousandth of 256, or half a unit of 0.1%


# Calibration ----------------------------------------------------------------------------------------------------------


def write_place(place: Sequence[float], size: tuple[int, int], how: str, *, corners: bool = True) -> str:
    """Write a place of a picture as a model with one convention does, independently of the code under test."""
    height, width = size
    x, y, *sides = place
    far = (x + sides[0], y + sides[1]) if sides and corners else tuple(sides)
    full = {"fractions": (1, 1), "percent": (100, 100), "pixels": (width, height), "resized": (768, 768)}
    across, down = full.get(how, (1000, 1000))
    pairs = [(x, y), far] if sides else [(x, y)]
    units = [(a * across / width, b * down / height) for a, b in pairs]
    digits = 4 if how == "fractions" else 1 if how == "percent" else 0
    numbers = [f"{v:.{digits}f}" for a, b in units for v in ((b, a) if how == "thousandths-yx" else (a, b))]
    return ", ".join(numbers)


CONVENTION_OF = {
    "pixels": "pixels",
    "fractions": "fractions",
    "percent": "percent",
    "thousandths-xy": "thousandths-xy",
    "thousandths-yx": "thousandths-yx",
    "resized": "pixels-768",
}
"""Convention of a simulated model -> the convention that calibration reports."""


def answers_of(form: str, side: int, write: Callable[[Sequence[float], tuple[int, int]], str]) -> list[str]:
    """Return one answer per drawing as shown, with the position in its pixels."""
    drawings = Drawings(form)
    texts = []
    for question in drawings.questions:
        scale = side / max(drawings.size)
        place = [scale * value for value in drawings.box(question.id)]
        if form == "point":
            place = [place[0] + place[2] / 2, place[1] + place[3] / 2]
        texts.append(write(place, (round(scale * drawings.size[0]), round(scale * drawings.size[1]))))
    return texts


@pytest.mark.parametrize("how", CONVENTION_OF)
@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("side", [256, 512])
def test_the_convention_of_boxes_is_found(how: str, corners: bool, side: int) -> None:
    settings = AskSettings("box", side=side, coordinates=AUTO)
    calibration = calibrate(
        answers_of("box", side, lambda place, size: write_place(place, size, how, corners=corners)), settings
    )
    assert (calibration.coordinates, calibration.corners) == (CONVENTION_OF[how], corners)
    assert calibration.hits[calibration.key] == 8
    assert CoordinateCalibration.from_document(json.loads(json.dumps(calibration.document()))) == calibration


def test_named_corners_are_asked_for_as_corners() -> None:
    texts = answers_of("box", 256, lambda place, size: json.dumps(
        {"bbox_2d": json.loads(f"[{write_place(place, size, 'thousandths-xy', corners=True)}]")}
    ))  # fmt: skip
    calibration = calibrate(texts, AskSettings("box", coordinates=AUTO))
    assert calibration.hits["thousandths-xy"] == calibration.hits["thousandths-xy corners"] == 8
    assert (calibration.coordinates, calibration.corners) == ("thousandths-xy", True)


def test_stated_corners_are_the_only_ones_tried() -> None:
    texts = answers_of("box", 256, lambda place, size: write_place(place, size, "percent", corners=False))
    with pytest.raises(CalibrationError, match="percent corners 0"):
        calibrate(texts, AskSettings("box", coordinates=AUTO, corners=True))


@pytest.mark.parametrize("form", ["point", "boxes", "text"])
@pytest.mark.parametrize("how", [name for name in CONVENTION_OF if name != "resized"])
def test_the_convention_of_other_forms_is_found(form: str, how: str) -> None:
    def write(place: Sequence[float], size: tuple[int, int]) -> str:
        numbers = write_place(place, size, how)
        boxes = json.dumps({"boxes": [{"image": 1, "label": "it", "score": 0.5, "box": json.loads(f"[{numbers}]")}]})
        return f"Point: {numbers}" if form == "point" else f"Seen.\n{boxes}"

    settings = AskSettings(form, side=300, coordinates=AUTO)  # type: ignore[arg-type]
    calibration = calibrate(answers_of(form, 300, write), settings)
    assert (calibration.coordinates, calibration.corners) == (how, form != "point")


def test_two_wrong_answers_of_eight_are_borne_and_three_are_not() -> None:
    texts = answers_of("point", 256, lambda place, size: write_place(place, size, "percent"))
    settings = AskSettings("point", coordinates=AUTO)
    assert calibrate(["I cannot see it.", "", *texts[2:]], settings).coordinates == "percent"
    with pytest.raises(CalibrationError, match=r"no convention fits: .*percent 5.*6 are needed") as raised:
        calibrate(["I cannot see it.", "", "", *texts[3:]], settings)
    assert "I cannot see it." in str(raised.value)


@pytest.mark.parametrize(
    ("form", "answer", "seen"),
    [
        ("box", "<loc{y:04d}><loc{x:04d}><loc{y2:04d}><loc{x2:04d}> rectangle", "is in 1,024 bins, y first). Name a"),
        (
            "box",
            "<object><patch_index_0{x:03d}><patch_index_0{x2:03d}></object>",
            "is in patches of the image). Name a",
        ),
        ("box", "Box: {cx}, {cy}, {w}, {h}", "(centre, width and height of a box in pixels). Name a"),
        ("boxes", '[{{"bbox_2d": [{x}, {y}, {x2}, {y2}]}}]', "(passed over a box without a score from 0 to 1). Name a"),
        ("box", "In the corner.", '"In the corner.". Name a'),
    ],
)
def test_a_format_that_no_convention_has_is_named(form: str, answer: str, seen: str) -> None:
    def write(place: Sequence[float], _: tuple[int, int]) -> str:
        x, y, w, h = map(round, place)
        return answer.format(x=x, y=y, w=w, h=h, x2=x + w, y2=y + h, cx=x + w / 2, cy=y + h / 2)

    with pytest.raises(CalibrationError) as raised:
        calibrate(answers_of(form, 256, write), AskSettings(form, side=256, coordinates=AUTO))  # type: ignore[arg-type]
    assert seen in str(raised.value)


@pytest.mark.parametrize("seed", range(20))
def test_guesses_fit_no_convention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    settings = AskSettings("point", coordinates=AUTO)
    with pytest.raises(CalibrationError):
        calibrate(answers_of("point", 256, lambda *_: f"Point: {rng.integers(256)}, {rng.integers(256)}"), settings)
    with pytest.raises(CalibrationError):
        calibrate(answers_of("point", 256, lambda *_: "Point: 128, 128"), settings)


# Runs -----------------------------------------------------------------------------------------------------------------

HIT_RATE, ASKED = 0.7, 25


@pytest.fixture(scope="module")
def places(films: Path, truth: Truth) -> dict[str, tuple[tuple[float, float], tuple[float, float], str]]:
    """Question -> a point deep in the reference and one far from it, in pixels shown, and the digest of its picture."""
    records = {record.image_id: record for record in read_localization(films, "test")}
    pictures, grid = FolderPictures(films), Grid(8)
    matches = {}
    for question in list_questions(films, "test", AskSettings("point")):
        reference = records[question.unit].reference(question.finding or "")
        assert reference is not None
        assert reference.rle is not None
        mask, cell = decode_mask(reference.rle), np.zeros(question.image.size, bool)
        x, y, width, height = (round(v) for v in grid.box(truth.right[question.id], size=mask.shape))
        cell[y : y + height, x : x + width] = True
        row, column = np.unravel_index(np.argmax(distance_transform_edt(mask & cell)), mask.shape)
        far = grid.box(truth.wrong[question.id], size=mask.shape)
        view = SquareView(question.image.size, 256)
        png = shown_png(pictures.open(question.unit), form="point", side=256, grid=8)
        matches[question.id] = (
            view.to_view(column + 0.5, row + 0.5),
            view.to_view(far[0] + far[2] / 2, far[1] + far[3] / 2),
            hashlib.sha256(png).hexdigest(),
        )
    return matches


@contextmanager
def pointing(places: dict[str, Any], how: str) -> Iterator[tuple[PlayedModel, set[str]]]:
    """A model that points in one convention whatever it is asked for, and the questions that it answers rightly."""

    def write(place: Sequence[float], size: tuple[int, int]) -> str:
        return "In the lower zone, I think." if how == "words" else f"Point: {write_place(place, size, how)}"

    rng, drawings = np.random.default_rng(5), Drawings("point")
    hits = {question for question in places if rng.random() < HIT_RATE}
    names = [question.id for question in drawings.questions]
    answers = dict(zip(names, answers_of("point", 256, write), strict=True))
    answers |= {name: write(right if name in hits else wrong, (256, 256)) for name, (right, wrong, _) in places.items()}
    known = {(digest, question.split("|")[1]): question for question, (_, _, digest) in places.items()}
    for name in names:
        png = shown_png(drawings.open(name), form="point", side=256, grid=8)
        known[hashlib.sha256(png).hexdigest(), "bright rectangle"] = name
    with played(PlayedModel(known, answers)) as model:
        yield model, hits


@pytest.mark.parametrize("how", ["thousandths-yx", "resized"])  # exchanged and not, and of another size
def test_under_auto_a_model_reaches_its_hit_rate_whatever_its_convention(
    how: str, films: Path, places: dict[str, Any], tmp_path: Path
) -> None:
    settings = AskSettings("point", coordinates=AUTO)
    with pointing(places, how) as (model, hits):
        for _ in range(2):  # the second time neither drawings nor questions are asked
            run_model(films, "test", tmp_path / "run", settings, ModelChoice("chat", model.url), limit=ASKED)
            assert len(model.asked) == 8 + ASKED
    info = read_run(tmp_path / "run").info
    assert info.settings == replace(settings, coordinates=CONVENTION_OF[how])
    assert info.calibration is not None
    assert info.calibration.coordinates == CONVENTION_OF[how]
    assert len(info.calibration.answers) == 8
    scored = score_file(tmp_path / "run" / "predictions.jsonl", films, "test", ScoringOptions(allow_missing=True))
    rates = [e for e in scored.estimates if e.metric == "point_hit" and e.n and e.finding != "macro"]
    meant = hits.intersection(list(places)[:ASKED])
    assert sum(e.value * e.n for e in rates) == pytest.approx(len(meant))
    assert HIT_RATE - 0.2 < len(meant) / ASKED < HIT_RATE + 0.2


def test_where_no_convention_fits_nothing_is_asked(films: Path, places: dict[str, Any], tmp_path: Path) -> None:
    asked = ("run", films, "--split", "test", "--answer", "point", "--model", "chat", "--out", tmp_path / "run")
    with pointing(places, "words") as (model, _):
        stderr = call(*asked, "--coordinates", "auto", "--endpoint", model.url, expect=1).stderr
        assert len(model.asked) == 8
    assert "no convention fits" in stderr
    assert "In the lower zone" in stderr
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_command_says_what_it_found(films: Path, places: dict[str, Any], tmp_path: Path) -> None:
    asked = ("run", films, "--split", "test", "--answer", "point", "--model", "gemini-3", "--limit", 3)
    with pointing(places, "thousandths-yx") as (model, _):
        auto = ("--coordinates", "auto", "--endpoint", model.url, "--out", tmp_path / "run")
        done = call(*asked, *auto, "--price-in", "1", "--price-out", "2")
        drawn, ours = (sum(t_in for t_in, _, _ in some) for some in (model.usage[:8], model.usage[8:]))
        written, own = (sum(t_out for _, _, t_out in some) for some in (model.usage[:8], model.usage[8:]))
        counts = (
            f"tokens: {drawn:,} in ({sum(cached for _, cached, _ in model.usage[:8])} of them cached), {written} out"
        )
        costs = [Decimal(f"{n_in + 2 * n_out}e-6").normalize() for n_in, n_out in ((drawn, written), (ours, own))]
        assert f"coordinates: thousandths-yx, by 8 of 8 drawings; {counts}; cost {costs[0]:f}\n" in done.stdout
        assert f"out; cost {costs[1]:f}\n" in done.stdout
        assert f"total cost: {sum(costs).normalize():f}\n" in done.stdout
        stderr = call(*asked, "--endpoint", model.url, "--out", tmp_path / "other").stderr
        assert "Gemini is known to answer in thousandths-yx (https://docs.cloud.google.com/" in stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--coordinates", "inches"), "--coordinates must be one of pixels, fractions, percent"),
        (("--coordinates", "pixels-5"), "--coordinates must be one of pixels"),
        (("--coordinates", "percent", "--answer", "cell"), "is for answers with coordinates"),
        (("--corners", "--answer", "cell"), "--corners is for answers with coordinates"),
        (("--coordinates", "auto", "--dry-run", "x"), "`--coordinates` must name a convention with `--dry-run`"),
    ],
)
def test_conventions_that_cannot_be_are_refused(films: Path, options: tuple[str, ...], message: str) -> None:
    assert message in call("run", films, "--split", "test", "--answer", "point", *options, expect=1).stderr


def test_runs_of_before_read_as_in_pixels() -> None:
    document = AskSettings("box").document()
    for name in ("coordinates", "corners"):
        del document[name]
    assert AskSettings.from_document(document) == AskSettings("box")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("google/gemini-2.5-pro", "thousandths-yx"),
        ("Qwen/Qwen2.5-VL-72B-Instruct", "pixels-N"),
        ("qwen2-vl-7b", "thousandths-xy"),
        ("openrouter/qwen/qwen3-vl-235b", "thousandths-xy"),
        ("allenai/Molmo-7B-D-0924", "percent"),
        ("allenai/Molmo2-8B", None),
        ("moonshotai/Kimi-VL-A3B-Instruct", "fractions"),
        ("deepseek-ai/deepseek-vl2-small", "thousandths-xy"),
        ("zai-org/GLM-4.5V", "thousandths-xy"),
        ("zai-org/glm-4v-9b", None),
        ("OpenGVLab/InternVL3-8B", "thousandths-xy"),
        ("openai/gpt-5", None),
    ],
)
def test_known_models_are_known_by_name(model: str, expected: str | None) -> None:
    known = known_model(model)
    assert (None if known is None else known.coordinates) == expected


def test_the_document_lists_the_known_models() -> None:
    rows = [line for line in (ROOT / "docs" / "asking.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    for known in KNOWN_MODELS:
        (row,) = [row for row in rows if row.startswith(f"| {known.family} |")]
        assert f"`{known.coordinates}`" in row
        assert known.source in row
