"""Word the prompts: the text around the images of a question, and the messages made of text and images.

There are zero-shot, chain-of-thought and few-shot prompts for cells, points and boxes, as compared in paper 000
(section 4, appendix); prompts for the labels of a study, as in paper 004; and prompts for open tasks with boxes, as in
paper 001. The tasks are those of the papers, but the wording is this project's.

Conventions
-----------
Every change of wording changes :data:`VERSION`; a test checks that wording and version agree. Every prompt asks for an
answer whose last line :mod:`reveal_bench.models.answers` reads. A format is explained with the top left cell or with
letters and never with a likely position, because models repeat examples. Coordinates are pixels of the shown image,
unless the settings name another convention of :mod:`reveal_bench.models.coordinates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import contradicting_finding
from reveal_bench.geometry import Grid
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.controls import mirrored_question
from reveal_bench.models.coordinates import AUTO, convention
from reveal_bench.models.overlay import Form, cells_are_named, shown_png, whole_size
from reveal_bench.models.questions import AskSettings, Message, PictureSource, PromptImage

if TYPE_CHECKING:
    from reveal_bench.models.shots import Shot

VERSION = "1"

_SYSTEM = (
    "You take part in a reading test with chest radiographs. Go by what the pictures show. Your answers serve research "
    "on reading machines only; nobody is treated by them, so answer every question as well as you can."
)
_FILMS = {
    "AP": "frontal chest radiograph (AP)",
    "PA": "frontal chest radiograph (PA)",
    "FRONTAL": "frontal chest radiograph",
    "LATERAL": "lateral chest radiograph",
    "UNKNOWN": "chest radiograph",
    "DRAWING": "drawing, not a radiograph",
}
_PRESENT = "Finding: {finding}. It is known to be on this film; only its place is asked for."
_PERHAPS = "Finding: {finding}. It may be on this film or not."

_PLACES = {
    "cell": (
        "{Film}, with a grid of {n} x {n} squares drawn over it. The columns are lettered from the left of the "
        "picture, A to {last_column}; the rows are numbered from its top, 1 to {n}. A cell is called by its column's "
        "letter and its row's number: A1 is the top left cell, {last_cell} the bottom right one. {names}\n\n"
        "{presence}\n\n{Which} cell would you point at to show the finding to a colleague? Decide on one, also where "
        "it fills many."
    ),
    "point": (
        "{Film}. The picture is {side} pixels wide and {side} pixels high; x counts pixels from its left edge and y "
        "from its top edge, both from 0.\n\n{presence}\n\n"
        "{Which} pixel would you point at to show the finding to a colleague? Decide on one that lies on it."
    ),
    "box": (
        "{Film}. The picture is {side} pixels wide and {side} pixels high; x counts pixels from its left edge and y "
        "from its top edge, both from 0.\n\n{presence}\n\n"
        "{Give} the smallest upright rectangle that holds all of the finding: x and y of its top left corner, its "
        "width w and its height h."
    ),
}
_CONVENTION = "For places in the picture, {words}."
_OWN_CONVENTION = "For places in the picture, use the coordinates that you are used to, in the unit and order you know."
_OTHER_PLACES = {
    "point": (
        "{Film}. {convention}\n\n{presence}\n\n"
        "{Which} point would you point at to show the finding to a colleague? Decide on one that lies on it."
    ),
    "box": (
        "{Film}. {convention}\n\n{presence}\n\n"
        "{Give} the smallest upright rectangle that holds all of the finding{sides}."
    ),
}
"""Wording like :data:`_PLACES`, for any convention except pixels of the image with width and height."""
_OTHER_WORDS = {
    "cell": (
        "The picture shows a {film} under a grid of {n} x {n} squares: columns A to {last_column} from left to right, "
        "rows 1 to {n} from top to bottom, so that A1 is in the top left corner and {last_cell} in the bottom right "
        "one. {names}\n\n{presence}\n\n"
        "{Name} the one cell where the finding is seen best, even if it reaches into others."
    ),
    "point": (
        "The picture shows a {film}. {convention}\n\n{presence}\n\n{Name} one point that surely lies on the finding."
    ),
    "box": (
        "The picture shows a {film}. {convention}\n\n{presence}\n\n"
        "{Name} the tightest upright rectangle around the whole finding{sides}."
    ),
}
"""Another wording of :data:`_PLACES`, for the control that changes only the wording."""
_OTHER_PRESENT = "What to find: {finding}. The film does show it; say only where."
_OTHER_PERHAPS = "What to look for: {finding}. The film may show it, or may not."
_OTHER_LABELS = (
    "Below is a list of findings. Say which of them can be seen on the {films} of one examination; it may be several, "
    "or none.\n{choices}"
)
_SIDES = {
    False: ": x and y of its top left corner, its width w and its height h",
    True: ": x1 and y1 of its top left corner, x2 and y2 of its bottom right corner",
}
_MARGIN_NAMES = "Letters and numbers stand in the dark margin."
_CELL_NAMES = "Letters and numbers stand in the dark margin, and each cell has its name in its top left corner."
_LINES = {
    "cell": 'the word "Cell", a colon, and the name of the cell. For the top left cell it would read "Cell: A1"',
    "point": 'the word "Point", a colon, and two whole numbers with a comma between them, as in "Point: x, y"',
    "box": 'the word "Box", a colon, and four whole numbers with commas between them, as in "Box: x, y, w, h"',
    "labels": (
        'the word "Findings", a colon, and the names of those that are there, with commas between them, spelt as in '
        'the list. If none is there, it reads "Findings: none"'
    ),
}
_LONE = " (never together with another)"
_OTHER_LINE = 'the word "{Form}", a colon, and {n} numbers with commas between them, as in "{Form}: {names}"'
_OWN_LINE = 'the word "{Form}", a colon, and its coordinates'
_ABSENT_LINES = {form: f' If the finding is absent, it reads "{form.capitalize()}: absent".' for form in _PLACES}

_ONLY_LINE = "Answer with a single line and nothing else: {line}."
_LAST_LINE = "End with a line of its own: {line}."
_THINK_PLACES = (
    "Work it out in writing before you decide:\n"
    "- what this finding does to a film like this one, and where it is usually met;\n"
    "- what you see in those places here, and in the rest of the picture;\n"
    "- which places come into question, and what speaks for and against each"
)
_THINK_PLACE = f"{_THINK_PLACES};\n- the one you settle on, and why it is better than the runner-up."
_THINK_LABELS = (
    "Work it out in writing before you decide: go through lungs, pleura, heart, mediastinum and vessels, diaphragm and "
    "bones, and say what is abnormal; then take the findings of the list one by one and weigh what speaks for and "
    "against each."
)
_LABELS = (
    "{Films} of one examination. Which of these findings does it show? Any number of them may be there, or none.\n"
    "{choices}"
)
_RIGHT = " On frontal films the patient's right side is on the left of the picture."
_BOXES = (
    "{wish} Put the rectangles after your text, as one JSON block, each with the number of the picture, a short "
    "label, and in pixels of that picture the top left corner x, y (from its top left, from 0), the width w and the "
    'height h:\n```json\n{{"boxes": [{{"image": 1, "label": "...", "x": 0, "y": 0, "w": 0, "h": 0}}]}}\n```\n'
    'If there is nothing to mark: {{"boxes": []}}'
)
_OTHER_BOXES = (
    "{wish} Put the rectangles after your text, as one JSON block, each with the number of the picture, a short label, "
    "and its coordinates{sides}. {convention}\n"
    '```json\n{{"boxes": [{{"image": 1, "label": "...", "box": [{names}]}}]}}\n```\n'
    'If there is nothing to mark: {{"boxes": []}}'
)
_DETECTION = (
    "{Film}, {width} pixels wide and {height} pixels high.{right}\n\n"
    "Finding: {finding}. It may be on this film or not, in one place or in several.\n\n"
    "Find every place where it is, draw the smallest upright rectangle around each, and say how sure you are of it, "
    "from 0 (not at all) to 1 (certain). Give a doubtful place too, with a low number: wrong ones count most where you "
    "were sure."
)
_OTHER_DETECTION = (
    "The picture shows a {film}; its width is {width} pixels, its height {height}.{right}\n\n"
    "What to look for: {finding}. The film may show it once, several times, or not at all.\n\n"
    "Put the tightest upright rectangle around each place where you see it, and a number from 0 (a guess) to 1 (beyond "
    "doubt) that says how sure you are of that place. Places that you doubt belong there too, with small numbers: of "
    "wrong ones, those that you were sure of count most."
)
_DETECTION_BLOCK = (
    "one JSON block, in which `box` holds {names}{sides}, and `score` how sure you are. {convention}\n"
    '```json\n{{"boxes": [{{"box": [{names}], "score": ...}}]}}\n```\n'
    'If the finding is absent: {{"boxes": []}}'
)
_OWN_BLOCK = (
    "one JSON block, in which `box` holds the coordinates of a rectangle, and `score` how sure you are. {convention}\n"
    '```json\n{{"boxes": [{{"box": [...], "score": ...}}]}}\n```\n'
    'If the finding is absent: {{"boxes": []}}'
)
_BOXES_WANTED = "Mark what you describe with rectangles."
_BOXES_WELCOME = "You may mark what you describe with rectangles."


def compose(
    question: Question, settings: AskSettings, *, pictures: PictureSource, shots: Sequence[Shot] = ()
) -> list[Message]:
    """Return the messages that ask a question: the system message, the examples with their answers, and the question.

    Parameters
    ----------
    question : the question, which has the form of answer in `settings`
    settings : style, grid and size of the images
    pictures : source of the images of the question and of the examples
    shots : examples of a few-shot prompt, in the order of the prompt

    Raises
    ------
    ValueError
        If question and settings have different forms of answer, there are more examples than `settings.shots`, or the
        settings belong to another version of the prompts.
    """
    if settings.prompt_version != VERSION:
        raise ArgumentError("prompt_version", f"must be {VERSION!r}, the one at hand", repr(settings.prompt_version))
    if question.form != settings.form:
        raise ArgumentError("question", f"must have the form {settings.form!r} of the settings", repr(question.form))
    if len(shots) > settings.shots:
        raise ArgumentError("shots", f"must be at most {settings.shots} in style {settings.style}", len(shots))
    messages = [Message("system", (_SYSTEM,))]
    for shot in shots:
        messages.append(Message("user", _parts(shot.question, settings, pictures)))
        messages.append(Message("assistant", (_example_answer(shot.answer, settings),)))
    messages.append(Message("user", _parts(question, settings, pictures)))
    if settings.system == "user":
        first = messages[1]
        messages[:2] = [replace(first, parts=(_SYSTEM, *first.parts))]
    return messages


def describe(settings: AskSettings, question: Question) -> str:
    """Return the wording of a question without examples, for docs and dry runs; each image is a line in brackets.

    Examples
    --------
    >>> question = Question("i1|Edema", "cell", (ViewedImage("i1", "AP", (80, 96)),), "Edema")
    >>> print(describe(AskSettings(grid=4), question).splitlines()[3][:59])
    Frontal chest radiograph (AP), with a grid of 4 x 4 squares
    """
    pictures = [f"[picture {image.image_id}]" for image in _shown_images(question)]
    return "\n".join([_SYSTEM, "", *pictures, prompt_text(question, settings)])


def prompt_text(question: Question, settings: AskSettings) -> str:
    """Return the wording of a question with images."""
    if settings.control == "mirrored":
        question = mirrored_question(question)
    if question.form == "text":
        return _task_text(question, settings)
    if question.form == "boxes":
        return _detection_text(question, settings)
    thinks = settings.style == "chain-of-thought"
    if question.form == "labels":
        template, films = _OTHER_LABELS if _is_paraphrased(settings) else _LABELS, _films(question)
        choices = "\n".join(
            f"- {choice}" + _LONE * (choice in contradicting_finding(question.choices)) for choice in question.choices
        )
        body = template.format(films=films, Films=_capital(films), choices=choices)
        line, thinking = _LINES["labels"], _THINK_LABELS
    else:
        body, thinking = _place_text(question, settings), _THINK_PLACE
        line = _line(settings)
    end = (_LAST_LINE if thinks else _ONLY_LINE).format(line=line)
    if question.form in _PLACES and not question.present:
        end += _ABSENT_LINES[question.form]
    return "\n\n".join([body, thinking, end] if thinks else [body, end])


def _place_text(question: Question, settings: AskSettings) -> str:
    grid, is_there = Grid(settings.grid), question.present
    templates, present, perhaps = _PLACES, _PRESENT, _PERHAPS
    if _is_paraphrased(settings):
        templates, present, perhaps = _OTHER_WORDS, _OTHER_PRESENT, _OTHER_PERHAPS
    elif not _is_in_pixels(settings):
        templates = {**_PLACES, **_OTHER_PLACES}
    return templates[question.form].format(
        film=_film(question.image),
        Film=_capital(_film(question.image)),
        n=grid.n,
        last_column=grid.cells[-1][0],
        last_cell=grid.cells[-1],
        side=settings.side,
        names=_CELL_NAMES if cells_are_named(settings.side, grid) else _MARGIN_NAMES,
        presence=(present if is_there else perhaps).format(finding=question.finding),
        Which="Which" if is_there else "If it is there, which",
        Give="Give" if is_there else "If it is there, give",
        Name="Name" if is_there else "If it is there, name",
        convention=_convention_text(settings),
        sides="" if settings.coordinates == AUTO else _SIDES[settings.corners],
    )


def _is_paraphrased(settings: AskSettings) -> bool:
    return settings.control == "paraphrase"


def _is_in_pixels(settings: AskSettings) -> bool:
    """Return True if positions are requested in the default convention."""
    return (settings.coordinates, settings.corners) == ("pixels", False)


def _convention_text(settings: AskSettings) -> str:
    """Return the sentence on the meaning of coordinates, which the prompt puts after the sizes of whole images."""
    if settings.coordinates == AUTO:
        return _OWN_CONVENTION
    chosen = convention(settings.coordinates)
    words, is_square = chosen.words, settings.form in _OTHER_PLACES
    if chosen.full is None and is_square:
        side = chosen.long_side or settings.side
        words += f", in a picture {side} pixels wide and {side} pixels high"
    elif chosen.long_side is not None:
        words += f", in a picture with a long side of {chosen.long_side} pixels"
    return _CONVENTION.format(words=words)


def _line(settings: AskSettings) -> str:
    """Return the format of the last line of an answer."""
    form = settings.form
    if form not in _OTHER_PLACES or _is_in_pixels(settings):
        return _LINES[form]
    if settings.coordinates == AUTO:
        return _OWN_LINE.format(Form=form.capitalize())
    names = convention(settings.coordinates).names(form, corners=settings.corners)
    n = {2: "two", 4: "four"}[len(names)]
    return _OTHER_LINE.format(Form=form.capitalize(), n=n, names=", ".join(names))


def _task_text(question: Question, settings: AskSettings) -> str:
    """Return the wording of an open task: the images, the indication, the task, and the format of boxes."""
    listed = []
    for i, image in enumerate(question.images, start=1):
        height, width = whole_size(image.size, settings.side)
        earlier = ", from an earlier examination of the same patient" if image.is_prior else ""
        listed.append(f"Picture {i}: {_film(image)}{earlier}; {width} pixels wide, {height} pixels high.")
    parts = ["\n".join(listed) + _right(question)]
    if question.indication:
        parts.append(f"Reason for the examination: {question.indication}")
    asks = "Answer this by the pictures" if _is_paraphrased(settings) else "Task"
    parts.append(f"{asks}: {question.prompt}")
    if settings.style == "chain-of-thought":
        parts.append("Before you conclude, write down what you look for, where, and what you see there.")
    wish = _BOXES_WANTED if question.requires_boxes else _BOXES_WELCOME
    return "\n\n".join([*parts, _boxes_text(wish, settings)])


def _detection_text(question: Question, settings: AskSettings) -> str:
    """Return the wording of a question whose answer is any number of boxes with scores."""
    image = question.image
    height, width = whole_size(image.size, settings.side)
    facts = {"film": _film(image), "Film": _capital(_film(image)), "width": width, "height": height}
    body = (_OTHER_DETECTION if _is_paraphrased(settings) else _DETECTION).format(
        **facts, right=_right(question), finding=question.finding
    )
    block = _OWN_BLOCK.format(convention=_convention_text(settings))
    if settings.coordinates != AUTO:
        block = _DETECTION_BLOCK.format(
            names=", ".join(convention(settings.coordinates).names("box", corners=settings.corners)),
            sides=_SIDES[settings.corners],
            convention=_convention_text(settings),
        )
    if settings.style == "chain-of-thought":
        return "\n\n".join([body, f"{_THINK_PLACES}.", f"End with {block}"])
    return "\n\n".join([body, f"Answer with {block}"])


def _boxes_text(wish: str, settings: AskSettings) -> str:
    """Return the format of the boxes of an open task."""
    if _is_in_pixels(settings):
        return _BOXES.format(wish=wish)
    sides, names = "", "..."
    if settings.coordinates != AUTO:
        sides = _SIDES[settings.corners]
        names = ", ".join(convention(settings.coordinates).names("box", corners=settings.corners))
    return _OTHER_BOXES.format(wish=wish, sides=sides, convention=_convention_text(settings), names=names)


def _film(image: ViewedImage) -> str:
    return _FILMS[image.view]


def _right(question: Question) -> str:
    """Return the sentence about the patient's right side; "" unless an image is frontal."""
    return _RIGHT if any(image.view in ("AP", "PA", "FRONTAL") for image in question.images) else ""


def _films(question: Question) -> str:
    """Return a description of a study's images: "frontal chest radiograph (PA) and lateral chest radiograph"."""
    names = [_film(image) for image in question.images]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown_images(question: Question) -> tuple[ViewedImage, ...]:
    return question.images[:1] if question.form in _PLACES else question.images


def _parts(question: Question, settings: AskSettings, pictures: PictureSource) -> tuple[str | PromptImage, ...]:
    """Return the images of a question, then the text; in an open task, each image follows its number."""
    parts: list[str | PromptImage] = []
    if settings.control == "no-image":
        return (prompt_text(question, settings),)
    source: Any = pictures  # an object hashed by identity, as a cache key
    for i, image in enumerate(_shown_images(question), start=1):
        if question.form == "text":
            parts.append(f"Picture {i}{' (earlier examination)' if image.is_prior else ''}:")
        png = _shown_png(source, image.image_id, question.form, settings.side, settings.grid)
        parts.append(PromptImage(image.image_id, png))
    return (*parts, prompt_text(question, settings))


@lru_cache(maxsize=64)
def _shown_png(pictures: Any, image_id: str, form: Form, side: int, grid: int) -> bytes:
    """Return a shown image as PNG; cached because an image is shown for each of its findings, and in examples."""
    return shown_png(pictures.open(image_id), form=form, side=side, grid=Grid(grid))


def _example_answer(answer: str, settings: AskSettings) -> str:
    """Return the answer of an example, a cell or pixels of the image, in the format that the prompt requests.

    Examples
    --------
    >>> _example_answer("D5", AskSettings()), _example_answer("10 20 30 40", AskSettings("box"))
    ('Cell: D5', 'Box: 10, 20, 30, 40')
    >>> _example_answer("64 128", AskSettings("point", coordinates="thousandths-yx"))
    'Point: 500, 250'
    """
    parts: Sequence[str] = answer.split()
    if settings.form in _OTHER_PLACES and settings.coordinates != AUTO:
        size, place = (settings.side, settings.side), [float(part) for part in parts]
        parts = convention(settings.coordinates).written(place, size, corners=settings.corners)
    return f"{settings.form.capitalize()}: {', '.join(parts)}"
