"""Controls: the images shown, the conversion of answers to mirrored images, and that controls identify models that
ignore the image.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.localization.records import Annotation, read_localization
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.masks import decode_mask, pack_masks
from reveal_bench.models.answers import read_reply
from reveal_bench.models.control_pictures import control_pictures
from reveal_bench.models.controls import CONTROLS, mirrored_question, swap_sides
from reveal_bench.models.overlay import SquareView, square_picture
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose, prompt_text
from reveal_bench.models.questions import AskSettings, PromptImage, describe_split, list_questions
from reveal_bench.models.run_folder import (
    CONTROL_RUNS,
    TRANSCRIPT,
    QuestionOutcome,
    RunInfo,
    read_run,
    with_reply,
    write_outputs,
)
from reveal_bench.phantom import write_chexlocalize, write_counterfactuals
from reveal_bench.reports.run_page import write_run_report
from reveal_bench.sources import chexlocalize
from tests.cli.test_score import call
from tests.conftest import ROOT, made_once, nothing_drawn
from tests.models.conftest import Truth, playing

Grey = npt.NDArray[np.float64]
FILM = ViewedImage("i1", "AP", (512, 768))


# Answers to a mirrored film -------------------------------------------------------------------------------------------


def read(form: str, text: str, **changes: Any) -> Any:
    settings = AskSettings(form, control="mirrored", **changes)  # type: ignore[arg-type]
    return read_reply(text, Question("q", form, (FILM,), "Edema"), settings)


def test_places_on_a_mirrored_film_are_mirrored_back() -> None:
    """The film is 768 wide, its square begins at x = 128 and is shown at half its size: x 10 is 148, 620 back."""
    assert read("cell", "Cell: A3").cell == "H3"
    assert read("cell", "Cell: D1", grid=5, side=256).cell == "B1"
    assert read("point", "Point: 10, 20").point == (620.0, 40.0)
    assert read("box", "Box: 10, 20, 30, 40").box == (560.0, 40.0, 60.0, 80.0)  # 768 - 148 - 60
    assert read("point", "Point: 300, 20").status == "outside"


def test_the_left_edge_comes_to_lie_inside() -> None:
    square = replace(FILM, size=(512, 512))
    settings = AskSettings("point", control="mirrored")
    point = read_reply("Point: 0, 0", Question("q", "point", (square,), "Edema"), settings).point
    assert point == (pytest.approx(512), 0)
    assert point[0] < 512


def test_sides_are_exchanged_in_the_words_of_tasks_and_answers() -> None:
    task = Question("t", "text", (FILM,), prompt="Is the left base clear?", indication="Right chest pain, LLL crackles")
    mirrored = mirrored_question(task)
    assert (mirrored.prompt, mirrored.indication) == ("Is the right base clear?", "Left chest pain, RLL crackles")
    asked = AskSettings("text", side=1024, control="mirrored")
    assert "Is the right base clear?" in prompt_text(task, asked)
    answer = 'The LEFT base is hazy.\n{"boxes": [{"image": 1, "label": "left base", "x": 0, "y": 1, "w": 68, "h": 4}]}'
    reply = read_reply(answer, task, asked)
    assert reply.text.startswith("The RIGHT base is hazy.")
    assert [(box.label, box.box) for box in reply.boxes] == [("right base", (700.0, 1.0, 68.0, 4.0))]


@pytest.mark.parametrize("text", ["Left and right, RUL and LLL.", "bright upright leftover", "The LV and RML", ""])
def test_sides_exchanged_twice_are_as_before(text: str) -> None:
    assert swap_sides(swap_sides(text)) == text


def test_words_that_only_hold_a_side_stay() -> None:
    assert swap_sides("bright upright leftover, RML, LV") == "bright upright leftover, RML, LV"


def test_a_paraphrase_has_other_words_and_the_same_demand() -> None:
    for form in ("cell", "point", "box", "labels"):
        asked = Question("q", form, (FILM,), "Edema", choices=("Edema",) if form == "labels" else ())
        plain = prompt_text(asked, AskSettings(form))  # type: ignore[arg-type]
        other = prompt_text(asked, AskSettings(form, control="paraphrase"))  # type: ignore[arg-type]
        assert plain.splitlines()[0] != other.splitlines()[0]
        assert plain.splitlines()[-1] == other.splitlines()[-1]  # how the last line is to look
        assert "Edema" in other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control": "upside-down"}, "`control` must be one of no-image, blank"),
        ({"control": "occluded-finding", "form": "labels", "side": 1024}, "`control` must be one of no-image, blank"),
    ],
)
def test_controls_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AskSettings(**options)


# Images shown ---------------------------------------------------------------------------------------------------------

N_FILMS, SIDE = 40, 128
LOCAL = ("Airspace Opacity", "Atelectasis", "Consolidation", "Edema")
"""Findings that are on either side, and change nothing of the film but where they are."""


@dataclass(frozen=True)
class Phantom:
    """Films with counterfactuals, the questions of their test split, and what each shows under each control."""

    folder: Path
    counterfactuals: Path
    findings: Sequence[str] = LOCAL

    @cached_property
    def questions(self) -> list[Question]:
        every = list_questions(self.folder, "test", AskSettings("point", side=SIDE))
        return [question for question in every if question.finding in self.findings]

    @cached_property
    def prompt_images(self) -> dict[str | None, dict[str, Grey | None]]:
        """Control, None for the film as it is -> question -> the picture in its prompt."""
        return {control: self._under(control) for control in (None, *CONTROLS)}

    def _under(self, control: str | None) -> dict[str, Grey | None]:
        settings, pictures = AskSettings("point", side=SIDE, control=control), FolderPictures(self.folder)
        changed = control_pictures(
            self.folder, "test", settings, pictures, held=pictures.ids, counterfactuals=self.counterfactuals
        )
        patches: dict[str, Grey | None] = {}
        for question in self.questions:
            parts = compose(question, settings, pictures=changed(question))[-1].parts
            (picture, *_) = [part for part in parts if isinstance(part, PromptImage)] or [None]
            decoded = None if picture is None else Image.open(io.BytesIO(picture.png)).convert("L")
            patches[question.id] = None if decoded is None else np.asarray(decoded, float)
        return patches

    @cached_property
    def references(self) -> dict[tuple[str, str], Annotation]:
        return {
            (record.image_id, one.finding): one
            for record in read_localization(self.folder, "test")
            for one in record.annotations
            if one.reader == "ground_truth"
        }

    @cached_property
    def deepest(self) -> dict[str, tuple[int, int]]:
        """Question -> where the pixel deepest in its reference is shown; outside the picture if it is not."""
        masks = pack_masks([self.references[q.unit, q.finding or ""].rle for q in self.questions])
        return {
            question.id: tuple(round(v) for v in SquareView(question.image.size, SIDE).to_view(x + 0.5, y + 0.5))
            for question, (x, y) in zip(self.questions, masks.deepest_xy(range(len(masks))).tolist(), strict=True)
        }


def make_phantom(root: Path, n_films: int) -> None:
    """Films with counterfactuals, below `root`."""
    write_chexlocalize(root / "download", n_images=n_films, n_val=None, seed=7, long_side=256, traps=False)
    write_counterfactuals(root / "without", n_films, seed=7, long_side=256)
    splits = chexlocalize.read(root / "download").splits
    build_folder(splits, root / "public", BENCHMARKS["chexlocalize"], seed=3, synthetic=True)


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Phantom:
    root = made_once(tmp_path_factory, "controls", partial(make_phantom, n_films=N_FILMS))
    return Phantom(root / "public", root / "without")


def test_each_control_shows_what_it_says(phantom: Phantom) -> None:
    for question in phantom.questions[::5]:
        images = {control: pictures[question.id] for control, pictures in phantom.prompt_images.items()}
        film = images[None]
        assert film is not None
        assert images["no-image"] is None
        assert np.ptp(images["blank"]) == 0
        assert np.array_equal(images["paraphrase"], film)
        assert np.abs(images["mirrored"][:, ::-1] - film).max() <= 2  # resampled from the other side
        assert np.abs(images["other-patient"] - film).mean() > 5
        x, y, wide, high = phantom.references[question.unit, question.finding].bbox_xywh
        view = SquareView(question.image.size, SIDE)
        left, top, right, bottom = (round(v) for at in ((x, y), (x + wide, y + high)) for v in view.to_view(*at))
        inside = np.zeros((SIDE, SIDE), bool)
        inside[max(0, top + 1) : max(0, bottom - 1), max(0, left + 1) : max(0, right - 1)] = True
        if inside.any():
            assert np.ptp(images["occluded-finding"][inside]) <= 2
            assert np.array_equal(images["occluded-elsewhere"][inside], film[inside])
        changed = np.abs(images["without-finding"] - film) > 6
        assert changed.any()
        assert changed[inside].sum() >= 0.7 * changed.sum()


def test_the_other_patient_is_the_same_one_each_time(phantom: Phantom) -> None:
    by_film: dict[str, set[bytes]] = defaultdict(set)
    for question in phantom.questions:
        by_film[question.unit].add(phantom.prompt_images["other-patient"][question.id].tobytes())
    assert all(len(others) == 1 for others in by_film.values())


# Who looks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guessing:
    """Return a model that always answers the usual position of the finding, whatever the image."""

    phantom: Phantom

    @cached_property
    def usual(self) -> dict[str, tuple[int, int]]:
        """Finding -> the middle of the block of 16 pixels in which its references are deepest most often."""
        blocks: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        for question in self.phantom.questions:
            x, y = self.phantom.deepest[question.id]
            blocks[question.finding or ""][x // 16 * 16 + 8, y // 16 * 16 + 8] += 1
        return {finding: counts.most_common(1)[0][0] for finding, counts in blocks.items()}

    def point(self, question: Question, _: Grey | None) -> tuple[int, int]:
        return self.usual[question.finding or ""]


@dataclass(frozen=True)
class Looking(Guessing):
    """Return a model that points at the pixel deepest in the reference if the picture shows the finding, mirrored or
    not. Otherwise it gives the usual answer. It looks at a proportion of the questions, the same under every control.

    Where it sees none, it gives the usual answer. It looks at a share of the questions, the same under every control.
    """

    share: float = 0.7

    def point(self, question: Question, picture: Grey | None) -> tuple[int, int]:
        if picture is not None and np.random.default_rng(list(question.id.encode())).random() < self.share:
            x, y = self.phantom.deepest[question.id]
            if self.sees(question, picture):
                return x, y
            if self.sees(question, picture[:, ::-1]):
                return SIDE - x, y
        return super().point(question, picture)

    def sees(self, question: Question, picture: Grey) -> bool:
        """Return True if it is far nearer to the film than to the film without the finding, where both differ."""
        film, without = (self.phantom.prompt_images[control][question.id] for control in (None, "without-finding"))
        assert film is not None
        assert without is not None
        strength = np.abs(film - without)
        where = strength > 6
        return bool(np.abs(picture - film)[where].mean() < 0.3 * strength[where].mean())


def asked(phantom: Phantom, out: Path, model: Guessing) -> None:
    """A run folder of a model, with one for each control, as `run` writes them; without a request."""
    facts, n = describe_split(phantom.folder, "test"), len(phantom.questions)
    for control, pictures in phantom.prompt_images.items():
        settings = AskSettings("point", side=SIDE, control=control)
        exchanges = []
        for question in phantom.questions:
            x, y = model.point(question, pictures[question.id])
            answer = "I cannot tell." if control == "no-image" and out.name == "refuses" else f"Point: {x}, {y}"
            reply = read_reply(answer, question, settings)
            exchanges.append(
                with_reply(QuestionOutcome(question.id, question.unit, "failed", question.finding), reply, text=".")
            )
        info = RunInfo(**facts, n_questions=n, n_asked=n, model=out.name, grid=8, settings=settings)
        write_outputs(out if control is None else out / CONTROL_RUNS / control, exchanges, info)


@pytest.fixture(scope="module")
def report(phantom: Phantom, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a model that looks, one that does not, and one that looks and refuses to answer without a picture."""
    root = tmp_path_factory.mktemp("looks")
    models = {"looks": Looking(phantom), "guesses": Guessing(phantom), "refuses": Looking(phantom)}
    for name, model in models.items():
        asked(phantom, root / name, model)
    runs = [(name, root / name) for name in models]
    with nothing_drawn():
        write_run_report(runs, phantom.folder, root / "report", findings=LOCAL, n_resamples=50)
    return root / "report"


@pytest.fixture(scope="module")
def rows(report: Path) -> dict[tuple[str, str], dict[str, str]]:
    """(run, control) -> its row of the report's table."""
    lines = list(csv.DictReader((report / "tables" / "controls.csv").open(encoding="utf-8")))
    assert [row["control"] for row in lines] == [*CONTROLS] * 3
    return {(row["run"], row["control"]): row for row in lines}


@pytest.mark.parametrize("name", [name for name, control in CONTROLS.items() if control.falls])
def test_a_model_that_looks_is_told_from_one_that_does_not(rows: dict[tuple[str, str], Any], name: str) -> None:
    assert float(rows["looks", name]["high"]) < 0
    assert float(rows["looks", name]["same_answers"]) < 0.6
    guesses = rows["guesses", name]
    assert [float(guesses[of]) for of in ("difference", "p", "same_answers")] == [0, 1, 1]
    assert (guesses["low"], guesses["high"]) == ("", "")


def test_what_should_not_matter_does_not_to_a_model_that_looks(rows: dict[tuple[str, str], Any]) -> None:
    for name in ("paraphrase", "occluded-elsewhere"):
        assert float(rows["looks", name]["difference"]) == 0
    assert float(rows["looks", "paraphrase"]["same_answers"]) == 1
    assert float(rows["guesses", "mirrored"]["high"]) < 0
    assert float(rows["looks", "mirrored"]["difference"]) > float(rows["guesses", "mirrored"]["high"])


def test_a_guess_hits_what_is_always_in_the_same_place(phantom: Phantom) -> None:
    """Hearts are left out above because a guess loses nothing there with any image."""
    every = replace(phantom, findings=(*LOCAL, "Cardiomegaly", "Enlarged Cardiomediastinum"))
    guess, hits = Guessing(every), defaultdict(list)
    for question in every.questions:
        x, y = SquareView(question.image.size, SIDE).to_full(*guess.point(question, None))
        rle = every.references[question.unit, question.finding or ""].rle
        assert rle is not None
        hits["local" if question.finding in LOCAL else "heart"].append(decode_mask(rle)[int(y), int(x)])
    assert np.mean(hits["heart"]) >= 0.95
    assert np.mean(hits["local"]) <= 0.75


def test_a_hundred_questions_tell_who_looks(phantom: Phantom) -> None:
    """docs/asking.md says 97 and 0 of 100 trials; of 12, 8 would be few."""
    spec = importlib.util.spec_from_file_location("controls_power", ROOT / "benchmarks" / "controls_power.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = simulation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulation)
    power = simulation.power(simulation.world_of(phantom), len(LOCAL), n_trials=12)
    falls = [control.falls for control in CONTROLS.values()]
    assert (power["looks at 70%"][falls] >= 8 / 12).all()
    assert (power["usual place"][falls] == 0).all()
    assert (power["looks at 70%"][[name in ("occluded-elsewhere", "paraphrase") for name in CONTROLS]] == 0).all()


def test_the_report_says_who_looks(report: Path) -> None:
    page = (report / "report.html").read_text(encoding="utf-8")
    assert "Do models use the image?" in page
    assert "falls, but should not" in page
    assert "no fall is shown" in page  # of a guess whose answers stay the same


def test_a_control_without_any_answer_is_said(report: Path, rows: dict[tuple[str, str], Any]) -> None:
    refused = rows["refuses", "no-image"]
    assert (refused["answered"], refused["same_answers"], refused["score"]) == ("0", "", "")
    assert "nothing answered" in (report / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
def test_controls_of_another_run_are_refused(phantom: Phantom, report: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(report.parent / "guesses", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / CONTROL_RUNS / "blank")
    shutil.copytree(tmp_path / "run" / CONTROL_RUNS / "mirrored", tmp_path / "run" / CONTROL_RUNS / "blank")
    with pytest.raises(ValueError, match=r"blank: must have the same settings as .* --control blank"):
        write_run_report([("", tmp_path / "run")], phantom.folder, tmp_path / "report", n_resamples=50)


@pytest.mark.usefixtures("undrawn")
def test_unfinished_controls_are_left_out_but_paid(phantom: Phantom, report: Path, tmp_path: Path) -> None:
    import shutil

    held = tmp_path / "run" / CONTROL_RUNS
    shutil.copytree(report.parent / "guesses", tmp_path / "run")
    (held / "blank" / TRANSCRIPT).unlink()  # killed
    lines = (held / "no-image" / TRANSCRIPT).read_text().splitlines(keepends=True)
    (held / "no-image" / TRANSCRIPT).write_text("".join(lines[1:]))  # interrupted, or of a pilot
    warnings = write_run_report([("", tmp_path / "run")], phantom.folder, tmp_path / "report", n_resamples=50)
    left_out = [warning for warning in warnings if "is left out, because it is not finished" in warning]
    assert [warning.split(" of ")[0] for warning in left_out] == ["control no-image", "control blank"]
    assert left_out[0].endswith("repeat the `run` command with --control no-image")
    compared, paid = (
        list(csv.DictReader((tmp_path / "report" / "tables" / name).open()))
        for name in ("controls.csv", "failures-and-costs.csv")
    )
    assert [row["control"] for row in compared] == [*CONTROLS][2:]
    costs = {row["run"].partition(", ")[2]: row for row in paid}
    assert [*costs] == ["", "control no-image", *(f"control {name}" for name in [*CONTROLS][2:])]
    assert costs["control no-image"]["not_asked"] == "1"


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_asks_again_under_controls(films: Path, truth: Truth, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("run", films, "--split", "test", "--limit", 3, "--model", "chat", "--out", out)
    with playing(truth) as (model, _):
        done = call(*words, "--endpoint", model.url, "--control", "paraphrase", "--control", "paraphrase")
        assert len(model.asked) == 6
        call(*words, "--endpoint", model.url, "--control", "paraphrase")
        assert len(model.asked) == 6
        new = (*words[:-1], tmp_path / "new", "--endpoint", model.url)
        refused = call(*new, "--control", "paraphrase", "--control", "sideways", expect=1).stderr
        assert len(model.asked) == 6
    assert "control paraphrase: 3 of 3 answered; tokens: " in done.stdout
    assert f"compare controls: reveal-bench report {out} --folder {films} --out REPORT\n" in done.stdout
    assert "--control must be one of no-image, blank" in refused
    assert read_run(out).info.settings == AskSettings()
    assert read_run(out / CONTROL_RUNS / "paraphrase").info.settings == AskSettings(control="paraphrase")
    lacking = call(*words[:-1], tmp_path / "other", "--endpoint", "http://127.0.0.1:9/v1", expect=1)
    assert lacking.stderr


def test_a_film_without_its_findings_is_the_same_elsewhere(phantom: Phantom) -> None:
    """To the last grey value, as far as the picture's compression lets it: blocks of 8 that no finding touches."""
    pictures = FolderPictures(phantom.folder)
    question = next(q for q in phantom.questions if q.finding == "Atelectasis")
    film = np.asarray(square_picture(pictures.open(question.unit), side=256).convert("L"), float)
    path = phantom.counterfactuals / question.unit / f"{question.finding}.jpg"
    with Image.open(path) as stored:
        without = np.asarray(square_picture(stored.convert("L"), side=256).convert("L"), float)
    assert np.array_equal(film[:64], without[:64])  # the apices
    assert not np.array_equal(film, without)


def test_the_document_says_how_to_read_each_control() -> None:
    text = (ROOT / "docs" / "asking.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for name in CONTROLS:
        assert any(row.startswith(f"| `{name}` |") for row in rows), name
