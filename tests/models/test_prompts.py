"""Prompts: the wording is pinned to its version, and images, turns and formats are as requested."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from itertools import product

import pytest
from PIL import Image

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.answers import read_reply
from reveal_bench.models.overlay import Form, shown_png, whole_picture, whole_size
from reveal_bench.models.prompts import VERSION, compose, describe, prompt_text
from reveal_bench.models.questions import AskSettings, Message, PromptImage
from reveal_bench.models.shots import Shot

PIXELS = {"i1": 10, "i2": 90, "p1": 150, "e1": 200, "e2": 230}
FRONTAL, LATERAL = ViewedImage("i1", "AP", (120, 160)), ViewedImage("i2", "LATERAL", (160, 120))
PRIOR = ViewedImage("p1", "UNKNOWN", (160, 120), is_prior=True)
SHA256_OF_VERSION = {"1": "2b6ff4f9fe55968fb9d87db6aa11a35e4a7ec1ed77a215d6d4caf680a8ff7659"}


class Pictures:
    """Grey pictures of one value each."""

    def open(self, image_id: str) -> Image.Image:
        size = {"i2": (120, 160), "p1": (120, 160)}.get(image_id, (160, 120))
        return Image.new("L", size, PIXELS[image_id])


def localization(form: Form, *, view: str = "AP", present: bool = True, image_id: str = "i1") -> Question:
    return Question("q", form, (replace(FRONTAL, view=view, image_id=image_id),), "Pleural Effusion", present)


STUDY = Question("s", "labels", (FRONTAL, LATERAL), present=False, choices=REVEAL_LABELS)
TASK = Question(
    "t",
    "text",
    (FRONTAL, PRIOR),
    prompt="Compare the effusion with the earlier film.",
    indication="Short of breath.",
    requires_boxes=True,
)


def every_text() -> str:
    """The words of every kind of prompt."""
    texts = []
    for form, style, present, view in product(
        ("cell", "point", "box"),
        ("zero-shot", "chain-of-thought"),
        (True, False),
        ("AP", "PA", "LATERAL", "FRONTAL", "UNKNOWN"),
    ):
        for grid in (8, 16):
            settings = AskSettings(form, style, grid)  # type: ignore[arg-type]
            texts.append(describe(settings, localization(form, view=view, present=present)))  # type: ignore[arg-type]
    for question, style in product(
        (STUDY, TASK, replace(TASK, requires_boxes=False, images=(LATERAL,))), ("zero-shot", "chain-of-thought")
    ):
        texts += [describe(AskSettings(question.form, style, side=1024), question)]  # type: ignore[arg-type]
    for style, corners, view in product(("zero-shot", "chain-of-thought"), (False, True), ("AP", "LATERAL")):
        settings = AskSettings("boxes", style, side=1024, corners=corners)  # type: ignore[arg-type]
        texts.append(describe(settings, localization("boxes", view=view, present=False)))
    turns = compose(
        localization("box"), AskSettings("box", "few-shot", shots=1), pictures=Pictures(), shots=[shot("e1", "1 2 3 4")]
    )
    return "\f".join([*texts, *(str(part) for turn in turns for part in turn.parts if isinstance(part, str))])


def shot(image_id: str, answer: str, form: Form = "box") -> Shot:
    return Shot(localization(form, image_id=image_id), "p", "validation", answer, 1)


def words(message: Message) -> str:
    return "\n".join(part for part in message.parts if isinstance(part, str))


def images(message: Message) -> list[str]:
    return [part.image_id for part in message.parts if isinstance(part, PromptImage)]


def test_a_version_has_its_words() -> None:
    """If you change a word, raise `VERSION` (and the default of AskSettings) and add the new checksum here."""
    assert hashlib.sha256(every_text().encode()).hexdigest() == SHA256_OF_VERSION[VERSION]
    assert AskSettings().prompt_version == VERSION


def test_settings_of_another_version_are_refused() -> None:
    with pytest.raises(ValueError, match="`prompt_version` must be '1', the one at hand, got '0'"):
        compose(localization("cell"), AskSettings(prompt_version="0"), pictures=Pictures())


def test_zero_shot_is_a_system_message_and_a_question_with_its_picture() -> None:
    settings = AskSettings()
    system, user = compose(localization("cell"), settings, pictures=Pictures())
    assert (system.role, user.role) == ("system", "user")
    assert images(user) == ["i1"]
    picture = user.parts[0]
    assert isinstance(picture, PromptImage)
    assert picture.png == shown_png(Pictures().open("i1"), form="cell", side=256, grid=8)
    assert user.parts[1] == prompt_text(localization("cell"), settings)


@pytest.mark.parametrize(
    ("view", "words_of_it"),
    [
        ("AP", "Frontal chest radiograph (AP),"),
        ("PA", "Frontal chest radiograph (PA),"),
        ("FRONTAL", "Frontal chest radiograph,"),
        ("LATERAL", "Lateral chest radiograph,"),
        ("UNKNOWN", "Chest radiograph,"),
    ],
)
def test_the_view_is_named_in_words(view: str, words_of_it: str) -> None:
    text = prompt_text(localization("cell", view=view), AskSettings())
    assert text.startswith(words_of_it)
    assert "nknown" not in text
    assert "UNKNOWN" not in text


@pytest.mark.parametrize(("n", "column", "cell"), [(4, "D", "D4"), (8, "H", "H8"), (16, "P", "P16"), (26, "Z", "Z26")])
def test_the_grid_is_described(n: int, column: str, cell: str) -> None:
    text = prompt_text(localization("cell"), AskSettings(grid=n))
    assert f"a grid of {n} x {n} squares" in text
    assert f"A to {column};" in text
    assert f"1 to {n}." in text
    assert f"{cell} the bottom right one" in text


def test_names_in_cells_are_promised_only_where_they_are_drawn() -> None:
    promise = "each cell has its name"
    assert promise in prompt_text(localization("cell"), AskSettings(grid=8))
    assert promise not in prompt_text(localization("cell"), AskSettings(grid=16))
    assert promise in prompt_text(localization("cell"), AskSettings(grid=16, side=512))


@pytest.mark.parametrize("form", ["cell", "point", "box"])
@pytest.mark.parametrize("style", ["zero-shot", "chain-of-thought"])
def test_only_a_finding_that_may_be_absent_may_be_called_so(form: Form, style: str) -> None:
    settings = AskSettings(form, style)  # type: ignore[arg-type]
    present = prompt_text(localization(form), settings)
    perhaps = prompt_text(localization(form, present=False), settings)
    assert "Finding: Pleural Effusion. It is known to be on this film" in present
    assert "absent" not in present
    assert "It may be on this film or not." in perhaps
    assert f'"{form.capitalize()}: absent"' in perhaps


@pytest.mark.parametrize("form", ["point", "box"])
def test_points_and_boxes_are_in_pixels_of_the_picture(form: Form) -> None:
    text = prompt_text(localization(form), AskSettings(form, side=384))
    assert "384 pixels wide and 384 pixels high" in text
    assert "grid" not in text


@pytest.mark.parametrize(
    ("form", "answers", "written"),
    [
        ("cell", ["D5", "A1"], ["Cell: D5", "Cell: A1"]),
        ("point", ["10 20", "255 0"], ["Point: 10, 20", "Point: 255, 0"]),
        ("box", ["10 20 30 40", "0 0 256 256"], ["Box: 10, 20, 30, 40", "Box: 0, 0, 256, 256"]),
    ],
)
def test_few_shot_shows_pictures_and_answers_in_turns(form: Form, answers: list[str], written: list[str]) -> None:
    settings = AskSettings(form, "few-shot", shots=2)
    shots = [shot(image_id, answer, form) for image_id, answer in zip(("e1", "e2"), answers, strict=True)]
    messages = compose(localization(form), settings, pictures=Pictures(), shots=shots)
    assert [message.role for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [images(message) for message in messages] == [[], ["e1"], [], ["e2"], [], ["i1"]]
    assert [words(message) for message in messages[2::2]] == written
    assert words(messages[1]) == words(messages[5]) == prompt_text(localization(form), settings)
    for message in messages[2::2]:
        assert read_reply(words(message), localization(form), settings).status == "answered"


def test_more_examples_than_asked_for_are_refused() -> None:
    with pytest.raises(ValueError, match="`shots` must be at most 0 in style zero-shot, got 1"):
        compose(localization("box"), AskSettings("box"), pictures=Pictures(), shots=[shot("e1", "1 2 3 4")])


def test_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="`question` must have the form 'point' of the settings, got 'cell'"):
        compose(localization("cell"), AskSettings("point"), pictures=Pictures())


def test_labels_show_all_images_of_the_study_and_list_all_labels() -> None:
    _, user = compose(STUDY, AskSettings("labels", side=64), pictures=Pictures())
    assert images(user) == ["i1", "i2"]
    assert all(f"- {label}\n" in words(user) for label in REVEAL_LABELS)
    assert words(user).startswith("Frontal chest radiograph (AP) and lateral chest radiograph of one examination.")
    picture = user.parts[0]
    assert isinstance(picture, PromptImage)
    assert Image.open(io.BytesIO(picture.png)).size == (64, 48)


def test_task_announces_pictures_sizes_and_the_earlier_examination() -> None:
    _, user = compose(TASK, AskSettings("text", side=80), pictures=Pictures())
    assert images(user) == ["i1", "p1"]
    assert user.parts[0] == "Picture 1:"
    assert user.parts[2] == "Picture 2 (earlier examination):"
    text = words(user)
    assert "Picture 1: frontal chest radiograph (AP); 80 pixels wide, 60 pixels high." in text
    assert "chest radiograph, from an earlier examination of the same patient; 60 pixels wide, 80 pixels high." in text
    assert "Reason for the examination: Short of breath." in text
    assert "Task: Compare the effusion with the earlier film." in text
    assert "the patient's right side is on the left of the picture" in text
    assert "Mark what you describe" in text
    assert "Reason" not in prompt_text(replace(TASK, indication=None), AskSettings("text"))


def test_no_frontal_film_no_word_on_its_sides() -> None:
    assert "patient's right" not in prompt_text(replace(TASK, images=(LATERAL,)), AskSettings("text"))


@pytest.mark.parametrize("size", [(120, 160), (2991, 3007), (1, 5000), (1024, 1024), (17, 1025)])
def test_shown_size_is_that_of_the_picture(size: tuple[int, int]) -> None:
    picture = whole_picture(Image.new("L", (size[1], size[0])), side=1024)
    assert whole_size(size, 1024) == (picture.height, picture.width)


@pytest.mark.parametrize("form", ["cell", "point", "box"])
def test_a_prompt_that_is_repeated_is_no_answer(form: Form) -> None:
    """A model that only repeats its prompt has named no position."""
    for style in ("zero-shot", "chain-of-thought"):
        settings = AskSettings(form, style)
        reply = read_reply(prompt_text(localization(form), settings), localization(form), settings)
        assert reply.status != "answered"
