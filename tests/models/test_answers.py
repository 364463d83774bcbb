"""Parsing of answers: a table of real wordings, hand-made points, boxes and labels, and random text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.geometry import Grid
from reveal_bench.kinds.detection.records import ScoredBox
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.answer_words import STATUSES
from reveal_bench.models.answers import Reply, read_reply
from reveal_bench.models.questions import AskSettings
from tests.models import answer_cases_later
from tests.models.answer_cases import CASES, Case

WIDE = ViewedImage("i1", "AP", (512, 768))  # its square begins at x = 128 and is shown at half its size
FORMS = ("cell", "point", "box", "boxes", "labels", "text")


def question(form: str, *, present: bool = True, requires_boxes: bool = False) -> Question:
    images = (WIDE, ViewedImage("i2", "LATERAL", (2048, 1024))) if form == "text" else (WIDE,)
    choices = REVEAL_LABELS if form == "labels" else ()
    return Question("q", form, images, "Pneumothorax", present, choices, requires_boxes=requires_boxes)  # type: ignore[arg-type]


def read(form: str, text: str, *, stop: str | None = None, present: bool = True, side: int | None = None) -> Reply:
    side = side or (1024 if form in ("boxes", "labels", "text") else 256)
    asked = question(form, present=present)
    return read_reply(text, asked, AskSettings(form=form, side=side), stop_reason=stop)  # type: ignore[arg-type]


ALL = CASES | answer_cases_later.CASES


def read_cell(case: Case) -> str:
    reply = read_reply(
        case.text, question("cell", present=case.present), AskSettings(grid=case.grid), stop_reason=case.stop
    )
    assert (reply.status == "answered") == (reply.cell is not None), case
    return reply.cell or reply.status


def test_cells() -> None:
    assert {name: read_cell(case) for name, case in ALL.items()} == {name: case.expected for name, case in ALL.items()}


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("Cell: D5", ""),
        ("C4, D5", "2 cells named, passed over: C4"),
        ("Cell: 5D", "written with the row first"),
        ("The haze is in F6.", "read from prose"),
        ("C4 to D5 is hazy", "read from a range; 2 cells named, passed over: C4"),
        ("Cell: K9", "K9 is not in the 8 x 8 grid"),
        ("Cell: none", "says that the finding is absent"),
    ],
)
def test_note_tells_what_was_passed_over(text: str, note: str) -> None:
    assert read("cell", text).note == note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Point: 128, 64", (384.0, 128.0)),
        ("**Point:** (128, 64)", (384.0, 128.0)),
        ("Point: x=128, y=64", (384.0, 128.0)),
        ("Point: 128 px, 64 px", (384.0, 128.0)),
        ('{"x": 128, "y": 64}', (384.0, 128.0)),
        ('{"y": 64, "x": 128}', (384.0, 128.0)),
        ('```json\n{"point": [128, 64]}\n```', (384.0, 128.0)),
        ("Point:\n128, 64", (384.0, 128.0)),
        ("128, 64", (384.0, 128.0)),
        ("The nodule of 12 mm is at (128, 64) in the 256 x 256 picture.", (384.0, 128.0)),
        ("Looking at 3 zones.\nPoint: 10, 20\nNo.\nPoint: 128, 64", (384.0, 128.0)),
        ("Point: 0, 0", (128.0, 0.0)),
        ("Point: 0.5, 0.25", (129.0, 0.5)),
        ("Point: 255.5, 255", (639.0, 510.0)),
        ("Point: 256, 10", "outside"),
        ("Point: -1, 10", "outside"),
        ("Point: 512, 700", "outside"),
        ("Point: 50%, 25%", "unclear"),
        ("Point: x=128, 64", (384.0, 128.0)),
        ("Point: y=64, 128", "unclear"),
        ("Point: 12", "unclear"),
        ("Point: 10, 20, 30, 40", "unclear"),
        ("In the left lower lobe.", "unclear"),
        ("Point: 1e999, 4", "unclear"),
        ("I'm sorry, I can't help with that.", "refused"),
        ("Point: absent", "unclear"),
        ("<answer>(128, 64)</answer>", (384.0, 128.0)),
        ("x: 128\ny: 64", (384.0, 128.0)),
        ("坐标：(128, 64)", (384.0, 128.0)),
        ("Punkt: 128,5; 64,5", "unclear"),
        ('<point x="50.0" y="25.0" alt="nodule">nodule</point>', "unclear"),  # of a model that means percent
    ],
)
def test_point(text: str, expected: tuple[float, float] | str) -> None:
    reply = read("point", text)
    assert (reply.point or reply.status) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Box: 10, 20, 30, 40", (148.0, 40.0, 60.0, 80.0)),
        ("Box: [10, 20, 30, 40]", (148.0, 40.0, 60.0, 80.0)),
        ("Box: x=10, y=20, w=30, h=40", (148.0, 40.0, 60.0, 80.0)),
        ('{"x": 10, "y": 20, "width": 30, "height": 40}', (148.0, 40.0, 60.0, 80.0)),
        ('{"h": 40, "w": 30, "y": 20, "x": 10}', (148.0, 40.0, 60.0, 80.0)),
        ('{"x1": 10, "y1": 20, "x2": 40, "y2": 60}', (148.0, 40.0, 60.0, 80.0)),
        ('[{"bbox_2d": [10, 20, 40, 60], "label": "Pneumothorax"}]', (148.0, 40.0, 60.0, 80.0)),
        ("Box: 0, 0, 256, 256", (128.0, 0.0, 512.0, 512.0)),
        ("Box: 100, 100, 200, 200", "outside"),
        ("Box: 10, 20, 0, 40", "unclear"),
        ("Box: 255.999999999, 20, 0.000000001, 40", "unclear"),
        ("Box: 10, 20, -30, 40", "unclear"),
        ("Box: 10, 20", "unclear"),
        ('[{"box_2d": [10, 20, 40, 60]}]', "unclear"),
        ("Box: (10, 20), (40, 60)", "unclear"),
        ("<loc0080><loc0040><loc0240><loc0160> effusion", "unclear"),
        ("**Box:** 10, 20, 30, 40 (x, y, width, height)", (148.0, 40.0, 60.0, 80.0)),
    ],
)
def test_box(text: str, expected: tuple[float, ...] | str) -> None:
    reply = read("box", text)
    assert (reply.box or reply.status) == expected


@pytest.mark.parametrize(
    ("form", "text", "note"),
    [
        ("point", "Point: 0.45, 0.6", "looks like fractions of the side"),
        ("point", "Point: 450, 600", "looks like thousandths of the side, or pixels of another size"),
        (
            "box",
            "Box: 100, 100, 200, 200",
            "reaches 44 pixels beyond the edge of the picture of 256 x 256; corners instead of width and height?",
        ),
        ("box", '{"x1": 10, "y1": 20, "x2": 40, "y2": 60}', "named as corners"),
    ],
)
def test_other_units_are_noted_and_not_rescaled(form: str, text: str, note: str) -> None:
    assert read(form, text).note == note


@pytest.mark.parametrize(
    ("form", "text", "status"),
    [
        ("point", "Point: 120, 8", "cut_off"),  # or the beginning of 85
        ("point", "Point: 120, 85\nBecause", "answered"),
        ("point", "The nodule lies at 120 in", "cut_off"),
        ("box", "Box: 10, 20, 30", "cut_off"),
        ("labels", "Findings: Cardiomegaly", "cut_off"),
        ("labels", "Findings: Cardiomegaly\n\nThe heart", "answered"),
        ("labels", "The heart is large and", "cut_off"),
        ("text", "The heart is large and", "cut_off"),
        ("text", 'Large heart.\n```json\n{"boxes": []}\n```', "answered"),
    ],
)
def test_cut_off(form: str, text: str, status: str) -> None:
    assert read(form, text, stop="max_tokens").status == status


def test_point_and_box_may_be_absent_where_the_finding_may_be() -> None:
    for form in ("point", "box"):
        assert read(form, f"{form.capitalize()}: absent", present=False).status == "absent"
        assert read(form, "There is no pneumothorax.", present=False).status == "absent"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Findings: Cardiomegaly, COPD", ("Cardiomegaly", "COPD")),
        ("Findings: COPD; cardiomegaly.", ("Cardiomegaly", "COPD")),
        ("**Findings:** Pleural effusion and Pneumothorax", ("Pleural effusion", "Pneumothorax")),
        ("Findings:\n- Cardiomegaly\n- COPD", ("Cardiomegaly", "COPD")),
        ("**Findings:**\n\n1. Cardiomegaly\n2. COPD\n\nThis is no advice.", ("Cardiomegaly", "COPD")),
        ("Cardiomegaly\nCOPD", ("Cardiomegaly", "COPD")),
        ("The study shows:\n* Cardiomegaly\n* Lung nodule", ("Cardiomegaly", "Lung nodule")),
        ('["COPD", "Cardiomegaly"]', ("Cardiomegaly", "COPD")),
        ('```json\n{"labels": ["COPD"]}\n```', ("COPD",)),
        ('{"reasoning": "Flat diaphragm.", "findings": ["COPD"]}', ("COPD",)),
        ('{"Cardiomegaly": true, "COPD": false}', ("Cardiomegaly",)),
        ('{"Cardiomegaly": "present", "COPD": "absent"}', ("Cardiomegaly",)),
        ("Findings: effusion", ("Pleural effusion",)),  # an alias of reveal_bench.findings
        ("Findings: Pleural effusion (left), COPD", ("COPD", "Pleural effusion")),
        ("Findings: Lung opacity", ("Airspace opacity",)),
        ("Findings: COPD, COPD", ("COPD",)),
        ("Findings: Cardiomegaly, no pleural effusion", ("Cardiomegaly",)),
        ("Findings: none", ()),
        ("None", ()),
        ("none of these.", ()),
        ('{"findings": []}', ()),
        ("Findings: no acute abnormality", ()),
        ("The heart is large.\n\nFindings: Cardiomegaly", ("Cardiomegaly",)),
        ("<think>Findings: COPD</think>Findings: Cardiomegaly", ("Cardiomegaly",)),
        ("Findings: Cardiomegaly, Broken rib", "unclear"),
        ("Findings: none, COPD", "unclear"),
        ("There is no pneumothorax and the heart is of normal size.", "unclear"),
        ("No pneumothorax.", "unclear"),
        ("...", "unclear"),
        ("I cannot interpret medical images.", "refused"),
        ("- Cardiomegaly: yes\n- COPD: no", ("Cardiomegaly",)),
        ("| Finding | Present |\n|---|---|\n| Cardiomegaly | yes |\n| COPD | no |", ("Cardiomegaly",)),
        ("Cardiomegaly: absent\nCOPD: absent", ()),
        ("None of the listed findings are present.", ()),
        ("\\boxed{Cardiomegaly}", ("Cardiomegaly",)),
        ("Findings: Cardiomegaly (mild), possible COPD", "unclear"),
        ("", "empty"),
    ],
)
def test_labels(text: str, expected: tuple[str, ...] | str) -> None:
    reply = read("labels", text)
    assert (reply.status if reply.labels is None else reply.labels) == expected


def test_unknown_label_is_named() -> None:
    assert read("labels", "Findings: Cardiomegaly, Broken rib").note == "no labels of the benchmark: Broken rib"


def boxes(*entries: object) -> str:
    return "The heart is large. ½ of it ...\n```json\n" + json.dumps({"boxes": entries}) + "\n```"


def test_text_is_whole_and_its_boxes_are_in_pixels_of_the_full_images() -> None:
    lateral = {"image": 2, "label": "heart", "x": 10, "y": 20, "w": 502, "h": 1004}  # to its corner, shown 512 x 1024
    text = boxes({"image": 1, "label": "left lung", "x": 1, "y": 2, "w": 3, "h": 4}, lateral)
    reply = read("text", f"<think>hm</think>{text}")
    assert (reply.status, reply.text, reply.note) == ("answered", text, "")
    assert [(box.image_id, box.label, box.box) for box in reply.boxes] == [
        ("i1", "left lung", (1.0, 2.0, 3.0, 4.0)),  # smaller than the side: shown as it is
        ("i2", "heart", (20.0, 40.0, 1004.0, 2008.0)),
    ]


GOOD = {"image": 1, "label": "heart", "x": 1, "y": 2, "w": 3, "h": 4}


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"w": 0}, "outside the picture of 768 x 512 pixels"),
        ({"w": 1e-9}, "outside the picture"),
        ({"x": 774}, "outside the picture"),
        ({"x": -9}, "outside the picture"),
        ({"y": "two"}, "x, y, w and h must be numbers"),
        ({"h": True}, "x, y, w and h must be numbers"),
        ({"h": float("nan")}, "x, y, w and h must be numbers"),
        ({"h": 10**400}, "x, y, w and h must be numbers"),
        ({"image": 3}, "`image` must be a number from 1 to 2"),
        ({"image": None}, "`image` must be a number from 1 to 2"),
        ({"label": " "}, "a label of 1 to 200 plain characters"),
        ({"label": "a\nb"}, "a label of 1 to 200 plain characters"),
        ({"label": "a" * 201}, "a label of 1 to 200 plain characters"),
    ],
)
def test_malformed_box_is_noted_and_the_others_stay(change: dict[str, object], note: str) -> None:
    reply = read("text", boxes(GOOD, GOOD | change))
    assert (len(reply.boxes), reply.status) == (1, "answered")
    assert note in reply.note


ONE, TWO = {"box": [96, 64, 192, 128], "score": 0.9}, {"box": [0, 0, 48, 64], "score": 0.25}
PASSED = "passed over a box without a score from 0 to 1"


@pytest.mark.parametrize(
    ("text", "status", "n", "note"),
    [
        (boxes(ONE, TWO), "answered", 2, ""),
        (json.dumps([ONE, TWO]), "answered", 2, ""),
        (json.dumps({"boxes": [{"x": 96, "y": 64, "w": 192, "h": 128, "confidence": 0.9}]}), "answered", 1, ""),
        ("First " + boxes(TWO) + "\nBut no:\n" + boxes(ONE), "answered", 1, ""),
        (boxes(ONE, TWO | {"score": 90}), "answered", 1, PASSED),
        (boxes(ONE, TWO | {"score": True}), "answered", 1, PASSED),
        (boxes(ONE, {"box": TWO["box"]}), "answered", 1, PASSED),
        (boxes(ONE, TWO | {"box": [760, 0, 48, 64]}), "answered", 1, "outside the picture of 768 x 512 pixels"),
        (boxes(ONE, TWO | {"box": [0, 0, 48]}), "answered", 1, "3 numbers, 4 were asked for"),
        (boxes(ONE, "left"), "answered", 1, "passed over a box that is a str, no object with a score"),
        (boxes({"box": TWO["box"]}), "unclear", 0, PASSED),
        (boxes(*[ONE] * 101), "answered", 100, "101 boxes, the first 100 were read"),
        (boxes(), "absent", 0, ""),
        ("[]", "absent", 0, ""),
        ("There is no pneumothorax.", "absent", 0, ""),
        ("I cannot help with medical images.", "refused", 0, ""),
        ("Box: 96, 64, 192, 128", "unclear", 0, ""),
    ],
)
def test_boxes_with_scores(text: str, status: str, n: int, note: str) -> None:
    """An image of 1,536 x 1,024 pixels is shown 768 wide: a box of the answer is twice as large in the original."""
    asked = replace(question("boxes", present=False), images=(ViewedImage("i", "PA", (1024, 1536)),))
    reply = read_reply(text, asked, AskSettings("boxes", side=768))
    assert (reply.status, len(reply.detections)) == (status, n)
    assert note in reply.note
    assert bool(note) == bool(reply.note)
    if n:
        assert reply.detections[0] == ScoredBox((192.0, 128.0, 384.0, 256.0), 0.9)


def test_boxes_that_are_cut_off_are_no_answer() -> None:
    assert read("boxes", boxes(ONE, TWO)[:-12], stop="length").status == "cut_off"
    assert read("boxes", boxes(ONE, TWO), stop="length").status == "answered"


def test_missing_boxes_are_noted_where_the_task_wants_them() -> None:
    asked = question("text", requires_boxes=True)
    assert read_reply("Clear.", asked, AskSettings(form="text")).note == "no boxes, though the task asks for them"
    assert read_reply('Clear. {"boxes": []}', asked, AskSettings(form="text")).note == ""


def test_a_text_that_no_file_may_hold_is_no_answer() -> None:
    assert read("text", "a" * 20_000).status == "answered"
    assert read("text", "a" * 20_001).note == "longer than the 20,000 characters allowed"
    assert read("text", "a" * 20_001).status == "unclear"


def test_a_box_never_leaves_the_image_by_rounding() -> None:
    image = ViewedImage("i1", "PA", (2991, 3007))
    asked = Question("t", "text", (image,))
    for x in range(1, 1024, 37):
        text = json.dumps({"boxes": [{"label": "a", "x": x, "y": 0, "w": 1024 - x, "h": 1}]})
        (box,) = read_reply(text, asked, AskSettings(form="text", side=1024)).boxes
        assert box.box[0] + box.box[2] <= 3007
        assert box.box[0] + box.box[2] == pytest.approx(3007)


@given(
    st.one_of(st.text(max_size=200), st.text(alphabet='ABDH0158 \n:,-*{}[]"()<>/.cellthinkboxanswer', max_size=200)),
    st.sampled_from(FORMS),
    st.sampled_from((1, 4, 8, 16, 26)),
    st.sampled_from((None, "stop", "max_tokens", "content_filter")),
    st.booleans(),
)
def test_any_text_is_read(text: str, form: str, n: int, stop: str | None, present: bool) -> None:
    asked = question(form, present=present)
    reply = read_reply(text, asked, AskSettings(form=form, grid=n), stop_reason=stop)  # type: ignore[arg-type]
    assert reply.status in STATUSES[:-1]
    if reply.status == "absent":
        assert not present
    if reply.cell is not None:
        assert reply.cell in Grid(n).cells
    if reply.point is not None:
        assert 128 <= reply.point[0] < 640
        assert 0 <= reply.point[1] < 512
    assert set(reply.labels or ()) <= set(REVEAL_LABELS)


@pytest.mark.parametrize(
    "unit",
    [
        "D5 ", "C4-", "cell ", "cell:\n", "point:\n", "\n", "{", "[", "[1,", '{"a":', '"cell": ', "<think>", "</think>",
        "**", "i can't ", "column D ", "A1 to ", "1, ", "no ", "\\boxed{", "answer is not ", "\ufdfa",
    ],
)  # fmt: skip
def test_long_text_comes_to_an_end(unit: str) -> None:
    for form in ("cell", "point", "labels"):
        assert read(form, unit * (20_000 // len(unit))).status in STATUSES


def test_of_a_very_long_answer_the_end_is_read() -> None:
    reply = read("cell", "Cell: C4\n" * 40_000 + "x" * 10 + "\nCell: D5")
    assert reply.cell == "D5"
    assert reply.note == "only the last 200,000 characters were read"
