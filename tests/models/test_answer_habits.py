"""Replies in the habits of particular models and servers: thinking, rankings, tags, loose JSON, other scripts.

The picture is 1,000 x 1,000 pixels, so that its thousandths are its pixels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.answer_words import json_values
from reveal_bench.models.answers import Reply, read_reply
from reveal_bench.models.questions import AskSettings

SAVED = Path(__file__).parents[3] / "shared/data/cases/asking/replies_read_as_meant.jsonl"
IMAGE = ViewedImage("i1", "AP", (1000, 1000))
BOX, POINT, SCORED = [250, 500, 250, 250], [250, 500], [[250, 500, 250, 250, 0.8]]


def read(form: str, text: str, coordinates: str = "pixels", *, corners: bool = False, present: bool = True) -> Reply:
    side = 1024 if form == "boxes" else 256
    question = Question("q", form, (IMAGE,), "Nodule", present)  # type: ignore[arg-type]
    settings = AskSettings(form=form, side=side, coordinates=coordinates, corners=corners)  # type: ignore[arg-type]
    return read_reply(text, question, settings)


def value(reply: Reply) -> Any:
    if reply.detections:
        return [[*scored.box, scored.score] for scored in reply.detections]
    place = reply.point or reply.box
    return list(place) if place else reply.cell or reply.status


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|channel>thought\nAnswer: C4<channel|>Cell: D5", "D5"),  # Gemma 4
        ("<|channel>thought\nAnswer: C4", "cut_off"),
        ("analysisIt spans C4 to E6.assistantfinal**Cell: D5**", "D5"),  # Harmony without its tokens
        ("analysisIt is in C4. So the answer is C4", "cut_off"),
        ("Analysis: the haze is in D5.", "D5"),  # a heading, not a channel
        ("<analysis>Cell: C4</analysis>\nCell D5", "D5"),
        ("<scratchpad>Cell: C4</scratchpad>D5", "D5"),
        ("Thinking...\nCell: C4?\n...done thinking.\n\nD5", "D5"),  # Ollama's terminal
        ("<answer>The cell is <|begin_of_box|>D5<|end_of_box|>, near E5", "D5"),  # GLM
        ("1. D5\n2. E5\n3. D6", "D5"),
        ("1. D5 2. E5", "D5"),
        ("Cell: 1. D5 2. E5", "D5"),
        ("1. The haze begins in C4.\n2. It is densest in D5.", "D5"),  # steps, no ranking
        ("D5: 0.7, E5: 0.2, D6: 0.1", "D5"),
        ("E5 (20%), D5 (80%)", "D5"),
        ("Primary: D5\nSecondary: E5", "D5"),
        ("D5 (most likely), E5 (possible)", "D5"),
        ("E5 (possible), D5 (most likely)", "D5"),
        ("D5, and to a lesser extent E5", "D5"),
        ("Cell: D5, E5 (less likely)", "D5"),
        ("C4, D5", "D5"),  # without a ranking, the last
        ("| Cell | Probability |\n|---|---|\n| D5 | 75% |\n| E5 | 25% |", "D5"),
        ("C5 and D5 are both hazy, D5 more so than C5.", "D5"),
        ("Answer: C6\n\nCorrection: I misread the column, the answer should be D5.", "D5"),
        ("Cell: C6\nWait, the heart is on the other side: D5.", "D5"),
        ("B3. Wait, it is one row lower. Correction: D5.", "D5"),
        ("The haze involves D5 more than D4 or E5.", "D5"),
        ("Se ve mejor en D5 que en E5.", "D5"),
        ("Besser als in C5 sieht man es in D5.", "D5"),
        ('{"candidates": [{"cell": "C5", "p": 0.2}, {"cell": "D5", "p": 0.6}, {"cell": "E5", "p": 0.2}]}', "D5"),
        ("Rõ nhất ở ô D5, không phải ô E5.", "D5"),
        ("Cell: D5\nActually no other cell is affected.", "D5"),
        ("\\[\\boxed{\\mathrm{D}_{5}}\\]", "D5"),
        ("La case est D5 et non E5.", "D5"),
        ("La plus visible dans la case D5, et non dans la case E5.", "D5"),
        ("Am besten in Zelle D5, nicht in der Zelle E5.", "D5"),
        ("Het antwoord is cel D5, niet E5.", "D5"),
        ("A célula é D5, não E5.", "D5"),
        ("ячейка D5, а не E5", "D5"),
        ("Ответ: В3", "B3"),  # a Cyrillic letter
        ("Απάντηση: Ε6", "E6"),  # a Greek letter
        ("الخلية: D٥", "D5"),
        ("セル：Ｄ５", "D5"),
        ("第5行D列", "D5"),
        ("D列5行", "D5"),
        ("العمود D، الصف ٥", "D5"),
        ("कॉलम D, पंक्ति 5 में", "D5"),
        ("coluna D, linha 5", "D5"),
        ("R5 C4", "unclear"),  # row 5, column 4
        ("I cannot assist. See section C4 of the policy.", "refused"),
        ("I am unable to help (policy B2).", "refused"),
        ("Sorry, ik kan geen medische beelden interpreteren.", "refused"),
        ("Üzgünüm, tıbbi görüntüleri yorumlayamam.", "refused"),
        ("عذراً، لا أستطيع تفسير الصور الطبية.", "refused"),
        ("I don't feel comfortable interpreting films. Whether it lies in D5 is for a doctor to say.", "refused"),
        ("unsafe\nS6", "refused"),  # Llama Guard
    ],
)
def test_cells(text: str, expected: str) -> None:
    assert value(read("cell", text)) == expected


@pytest.mark.parametrize(
    ("form", "coordinates", "text", "expected", "note"),
    [
        ("box", "thousandths-xy", "effusion<loc_250><loc_500><loc_500><loc_750>", BOX, ""),  # Florence-2
        ("box", "pixels", "effusion<loc_250><loc_500><loc_500><loc_750>", "unclear", "is in thousandths-xy"),
        ("box", "pixels", "<loc0512><loc0256><loc0768><loc0512> effusion", "unclear", "1,024 bins"),  # PaliGemma
        ("box", "pixels", "<object><patch_index_0520><patch_index_0783></object>", "unclear", "patches"),  # Kosmos-2
        ("point", "thousandths-xy", '<points coords="1 1 250 500">nodule</points>', POINT, ""),  # Molmo 2
        ("point", "percent", "<point x='25.0' y='50.0' alt='n'>n</point>", POINT, ""),  # Molmo
        ("point", "fractions", '<point x="25.0" y="50.0" alt="n">n</point>', "unclear", "is in percent"),
        ("box", "pixels", '{"x_min": 64, "y_min": 128, "x_max": 128, "y_max": 192}', BOX, "named as corners"),
        ("box", "pixels", '{"left": 64, "top": 128, "right": 128, "bottom": 192}', BOX, "named as corners"),
        ("box", "pixels", '{"cx": 96, "cy": 160, "w": 64, "h": 64}', BOX, "named by its centre"),
        ("box", "thousandths-xy", '{"bbox_2d": ["250", "500", "500", "750"]}', BOX, ""),
        ("box", "thousandths-xy", '[{"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [250, 500, 500, 750]}]', BOX, "2 boxes"),
        ("box", "thousandths-xy", '[{"bbox_2d": [1, 2, 3, 4]},\n{"bbox_2d": [250, 500, 500, 750]}]', BOX, "2 boxes"),
        (
            "box",
            "thousandths-xy",
            '[{"bbox_2d": [250, 500, 500, 750], "label": "nodule"}, {"bbox_2d": [1, 2, 3, 4], "label": "heart"}]',
            BOX,
            "2 boxes named, passed over: 1",
        ),
        ("point", "pixels", '[{"point_2d": [10, 20]}, {"point_2d": [64, 128]}]', POINT, "2 points"),
        ("point", "pixels", "Points: (10, 20), (64, 128)", POINT, "2 points"),
        ("point", "fractions", "(.25, .5)", POINT, ""),
        ("point", "thousandths-xy", "Point: 1000, 500", [999.99, 500], ""),
        ("point", "thousandths-xy", "Point: 1001, 500", "outside", ""),
        ("box", "thousandths-xy", '{"bbox_2d": [250, 500, 500, 1004]}', [250, 500, 250, 500], "clipped"),
        ("box", "thousandths-xy", '{"bbox_2d": [250, 500, 500, 1011]}', "outside", "beyond the edge"),
        ("box", "pixels", "(64, 128) to (128, 192)", BOX, "named as corners"),
        ("box", "pixels", "(64, 128) in the top left to (128, 192) in the bottom right", BOX, "named as corners"),
        ("box", "pixels", "Top-left corner (64, 128), width 64, height 64.", BOX, ""),
        ("box", "pixels", "centred at (96, 160), 64 wide and 64 high", BOX, "named by its centre"),
        ("box", "pixels", '{"top_left": [64, 128], "bottom_right": [128, 192]}', BOX, "named as corners"),
        ("box", "pixels", "It goes from x=64, y=128 to x=128, y=192.", BOX, "named as corners"),
        ("box", "pixels", "(64, 128) and (128, 192)", "unclear", "2 numbers"),
        ("box", "pixels", "Centre (96, 160), width 64, height 64", BOX, "named by its centre"),
        ("box", "pixels", "from x=64 to x=128 and from y=128 to y=192", BOX, "named as corners"),
        ("box", "pixels", "- Top-left: (64, 128)\n- Bottom-right: (128, 192)", BOX, "named as corners"),
        ("box", "thousandths-yx", "Top-left (500, 250), bottom-right (750, 500)", BOX, ""),
        ("box", "pixels", "левый верхний угол (64, 128), правый нижний (128, 192)", BOX, "named as corners"),
        ("box", "pixels", "It spans x from 64 to 128 and y from 128 to 192.", BOX, "named as corners"),
        ("box", "pixels", "x: 64-128\ny: 128-192", BOX, "named as corners"),
        ("box", "pixels", "It starts at (64, 128), 64 px wide and 64 px high.", BOX, ""),
        ("point", "pixels", "64 pixels from the left and 128 pixels from the top.", POINT, ""),
        ("point", "percent", "50% down from the top and 25% across from the left.", POINT, ""),
        ("point", "pixels", "1.2.64 pixels from the left and 128 pixels from the top", "unclear", "1 numbers"),
        ("point", "pixels", "25% from the left and 50% from the top", "unclear", "percentages"),
        ("point", "fractions", "0.25 of the width and 0.5 of the height", POINT, ""),
        ("point", "pixels", "x is about 64 and y ≈ 128 (±5 pixels)", POINT, ""),
        ("point", "pixels", "\\boxed{(64,\\, 128)}", POINT, ""),
    ],
)
def test_places(form: str, coordinates: str, text: str, expected: Any, note: str) -> None:
    reply = read(form, text, coordinates, corners=form == "box" and "thousandths" in coordinates)
    assert value(reply) == (pytest.approx(expected) if isinstance(expected, list) else expected)
    assert note in reply.note
    assert note or not reply.note


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        ('```json\n{"boxes": [{"box": [250, 500, 250, 250], "score": 0.8,},]}\n```', SCORED, ""),
        ("{'boxes': [{'box': [250, 500, 250, 250], 'score': 0.8}]}", SCORED, ""),
        ('{"boxes": [ // the nodule\n{"box": [250, 500, 250, 250], "score": 0.8} # sure\n]}', SCORED, ""),
        ('{"boxes": [{"box": [250, 500, 250, 250], "score": "0.8"}]}', SCORED, ""),
        ('{"box": [250, 500, 250, 250], "score": "80%"}', SCORED, ""),
        (
            '{"box": [250, 500, 250, 250], "score": 0.8}\n{"box": [10, 20, 30, 40], "score": 0.3}',
            [*SCORED, [10, 20, 30, 40, 0.3]],
            "",
        ),
        ('{"detections": [{"bbox": [250, 500, 250, 250], "confidence": 0.8}]}', SCORED, ""),
        ('{"nodule": [{"box": [250, 500, 250, 250], "score": 0.8}]}', SCORED, ""),
        ('{"heart": [{"box": [250, 500, 250, 250], "score": 0.8}]}', "unclear", ""),
        (
            '{"boxes": [{"xmin": 250, "ymin": 500, "xmax": 500, "ymax": 750, "score": 0.8}]}',
            SCORED,
            "named as corners",
        ),
        ('{"boxes": [{"box": {"x": 250, "y": 500, "w": 250, "h": 250}, "score": 0.8}]}', SCORED, ""),
        ('{"boxes": [{"box": [800, 500, 203, 250], "score": 0.8}]}', [[800, 500, 200, 250, 0.8]], "reaches 3 pixels"),
        ('{"boxes": [{"box": [800, 500, 213, 250], "score": 0.8}]}', "unclear", "outside the picture"),
        ('{"boxes": [{"box": [250, 500, 250, 250], "score": 0.8}, {"box": [10, 2', "unclear", "broken JSON"),
        ("[[250, 500, 500, 750]]", "unclear", "no object with a score"),
        ("There are no nodules visible on this radiograph.", "absent", ""),
        ("[OmniRoute] Upstream returned an empty response. Please retry.", "unclear", "error message"),
    ],
)
def test_boxes(text: str, expected: Any, note: str) -> None:
    reply = read("boxes", text, present=False)
    assert value(reply) == expected
    assert note in reply.note
    assert note or not reply.note


@pytest.mark.parametrize("text", ["Não há evidência de nódulo.", "No hay evidencia de nódulo.", "Нет признаков узла."])
def test_absences(text: str) -> None:
    assert read("cell", text, present=False).status == "absent"


def test_loose_json_has_a_budget() -> None:
    """Reading YAML takes long, so only 60,000 characters of a reply are tried."""
    block = "{'boxes': [" + "'none'," * 2_500 + "]}"
    assert len(json_values(block * 2)) == 2
    assert len(json_values(block * 10)) == 60_000 // len(block)


def test_aliases_of_yaml_are_not_expanded() -> None:
    bomb = "{'a': &a [1, 1, 1], 'boxes': [*a, *a]}"
    assert value(read("boxes", bomb, present=False)) == "unclear"


@pytest.mark.skipif(not SAVED.exists(), reason="needs ../shared/data: see README")
def test_saved_cells_are_read_as_meant() -> None:
    cases = [case for case in map(json.loads, SAVED.read_text().splitlines()) if case["form"] == "cell"]
    plain = [case for case in cases if len(case["want"]) == 2]
    replies = {
        case["id"]: read_reply(
            case["text"],
            Question("q", "cell", (IMAGE,), "Nodule", case["present"]),
            AskSettings(grid=case["grid"]),
            stop_reason=case["stop"],
        ).cell
        for case in plain
    }
    assert replies == {case["id"]: case["want"] for case in plain}
