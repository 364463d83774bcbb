"""Answers as models write them, and the expected reading of each; written before the parser.

A case is (text, expected): a cell's name for an answered question, else the status. The keywords tell what differs
from an 8 x 8 grid, a finding that is there, and a model that came to its end by itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A reply to a question whose answer is a cell."""

    text: str
    expected: str
    grid: int = 8
    stop: str | None = "stop"
    present: bool = True


def cases(expected: str, *texts: str) -> list[Case]:
    """Texts that are all read as the same."""
    return [Case(text, expected) for text in texts]


_LONG = "The lungs are well expanded and the trachea is in the midline. "

TERSE = [
    *cases("D5", "D5", "D5.", " d5 \n", "Cell: D5", "cell: d5", "Cell: D5."),
    Case("CELL: G2", "G2"),
    Case("Cell - F6", "F6"),
    Case("Cell = F6", "F6"),
    *cases("D5", "Cell D5", "(D5)", "[D5]", '"D5"', "`D5`", "D 5", "D-5", "D, 5", "(D,5)", "(D, 5)", "Cell: (D,5)",
        "Cell: 5D", "D05"),
    *cases("B3", "Answer: B3", "Final answer: B3", "Grid cell: B3", "Grid coordinate: B3"),
    *cases("D5", "column D row 5", "Column D, row 5.", "Row 5, column D", "Column: D\nRow: 5",
        "Cell: column D, row 5", "\u200bD5\u200b", "D5 ", "D5<|im_end|>", "Cell: D5</s>", "Cell: [D5]", "Cell: <D5>",
        "Cell: 'D5'"),
    Case("H8", "H8"),
    Case("A1", "A1"),
]  # fmt: skip

MARKDOWN = [
    *cases("D5", "**D5**", "**Cell: D5**", "**Cell:** D5", "**Cell**: `D5`", "Cell: **D5**",
        "### Final Answer\n\n**D5**"),
    *cases("E6", "## Cell: E6", "> Cell: E6", "- Cell: E6", "Cell:\nE6", "**Final Answer:**\n\nE6"),
    *cases("D5", "$\\boxed{D5}$", "The final answer is $\\boxed{\\text{D5}}$.", "Cell: $D_5$", "Cell: D₅", "__D5__",
        "<answer>D5</answer>", "<cell>D5</cell>"),
    Case("| finding | cell |\n|---|---|\n| Edema | C4 |", "C4"),
    Case("The opacity is seen in **F6**, next to the heart border in F5.", "F6"),
    Case("**C4**: faint haze\n**D5**: dense\n**D6**: faint haze\n\nThe densest is D5.", "D5"),
]  # fmt: skip

JSON = [
    *cases("D5", '{"cell": "D5"}', '{"cell":"d5"}', '```json\n{"cell": "D5"}\n```',
        '```\n{\n  "cell": "D5",\n  "confidence": 0.8\n}\n```', '{"reasoning": "Seen in C4 and D4.", "cell": "D5"}',
        '{"cell": "D5", "reasoning": "Denser than C4."}', '{"row": 5, "column": "D"}', '{"column": "D", "row": "5"}',
        "{'cell': 'D5'}", '{"answer": "D5"}', '["D5"]', '{"grid_cell": "D5"}'),
    Case('{"cell": "K9"}', "outside"),
    Case('{"cell": null}', "unclear"),
    Case('Here is the result:\n```json\n{"cell": "F7"}\n```\nLet me know if you need more.', "F7"),
]  # fmt: skip

SEVERAL = [
    *cases("D5", "C4, D5", "C4 and D5", "Cell: C4, D5", "Cell: C4 or D5", "Cell: C4/D5", "Cells: C4, D4, D5", "C4-D5",
        "Cell: C4-D5", "cells C4 to D5", "Cell: C4 – D5"),
    Case("Cell: C4–C6", "C6"),
    Case("D4 is the densest part of an opacity that spans C4 to D5.", "D4"),
    Case("Cell: D4 (the opacity spans C4-E5)", "D4"),
    Case("Cell: D5 (also faintly in D6)", "D5"),
    Case("Cell: D5, the opacity reaches into D6", "D5"),
    Case("Involved cells: F5, F6, G6\nCell: F6", "F6"),
    Case("I see haze in cells F5, F6 and G6. F6 is the most representative.", "F6"),
    Case("Cell: C4\n\nOn reflection the density is lower.\n\nCell: C5", "C5"),
    Case("Cell: D5\nAlternative cell: E5", "D5"),
    Case("Most likely C4, but D4 cannot be excluded.\nCell: C4", "C4"),
    Case("The shadow extends from B6 through C7.", "C7"),
    Case("C4\nD5", "D5"),
]  # fmt: skip

PROSE = [
    Case("The consolidation is most prominent in cell D5.", "D5"),
    Case("The most representative cell is D5.", "D5"),
    Case("I would choose F6.", "F6"),
    Case("The answer is F6", "F6"),
    Case("My best guess would be cell G7, at the left costophrenic angle.", "G7"),
    Case("Based on the image, the Pleural Effusion is located in G7.", "G7"),
    *cases("D5", "D5. The opacity lies beside the heart; E5 is clear.",
        "D5\n\nThe opacity lies beside the heart, next to E5.", "D5 - dense opacity in the right lower zone"),
    Case("The heart spans C5 to F7. The cell is E6.", "E6"),
    Case("Looking at row 6, the left base (G6) is blunted.", "G6"),
    Case("In C4 there is haze. In D5 the density is greatest, so the answer is D5, not C4.", "D5"),
    Case("Grid cell D5 best shows the atelectasis.", "D5"),
    Case("The finding is in the fourth column and fifth row.", "D5"),
    Case("I choose d5 because the border is lost there.", "D5"),
    Case("Location: right lower lobe\nCell: C6", "C6"),
    Case("Cell: C6\nLocation: right lower lobe, near C7", "C6"),
    Case("Cell: E5\n\nReasoning: the cardiac silhouette fills D5 to F7, and its centre is nearest to E5.", "E5"),
    Case("The image shows cardiomegaly. The heart is centred on E6, with its apex in G7.\n\nCell: E6", "E6"),
    *cases("unclear", "The left lower lobe is opaque.", "Right lower zone", "Yes, it is present.", "5", "D"),
]  # fmt: skip

LOOKALIKES = [
    Case("The tube tip projects over the T4 vertebra, in cell D3.", "D3"),
    Case("In cell D3; the tube tip projects at the T4 vertebral body.", "D3"),
    Case("The tip lies in D3, just below the C7 vertebra.", "D3"),
    Case("The tube tip is above the C7 vertebra.", "unclear"),
    Case("The opacity is in F6. Degenerative change at C5-C6 is incidental.", "F6"),
    Case("F6 shows it best. HbA1c is not known and no A1C was given.", "F6"),
    Case("The V1 lead overlies D3, which hides nothing. I select E6.", "E6"),
    Case("There is an ECG lead V1 over the chest and a C-arm shadow.", "unclear"),
    Case("F6 it is; vitamin B12 and CO2 do not matter, nor a 5 cm mass.", "F6"),
    Case("A 5 cm mass is seen in the right upper zone in B2.", "B2"),
    Case("A 5 cm mass is seen in the right upper zone.", "unclear"),
    Case("A 3D reconstruction would help; the best cell is F4.", "F4"),
    Case("ICD-10 J18.9 and J90 would be coded. Cell: F6", "F6"),
    Case("The tumour is stage T2N0M0. Cell: B3", "B3"),
    Case("COVID-19 pattern with FEV1 reduced, Cell: F5", "F5"),
    Case("The S2 sound and the P2 component... Cell: D6", "D6"),
    Case("The grid runs from A1 to H8. The opacity is in F5.", "F5"),
    Case("The opacity is in F5 of the grid (A1 to H8).", "F5"),
    Case("The grid has columns A-H and rows 1-8. I cannot tell more.", "unclear"),
    Case("The heart is enlarged, with a cardiothoracic ratio of 0.6, seen best in E6 on this 8x8 grid.", "E6"),
    Case("The picture is labelled A1 to H8 and shows a normal heart.", "unclear"),
    Case("Cell: C7", "C7"),
    Case("Rib 5 is broken at C5.", "C5"),
    Case("Segment S6 of the left lower lobe, which is cell F5.", "F5"),
]

OUTSIDE = [
    *cases("outside", "K9", "Cell: K9", "Cell: I5", "Cell: D9", "Cell: D0", "D10", "The opacity is in cell J4.",
        "C4 is hazy.\nCell: J4", "Column K, row 3"),
    Case("Cell: D5", "outside", grid=4),
    Case("Cell: M12", "M12", grid=16),
    Case("m12", "M12", grid=16),
    Case("Cell: P16", "P16", grid=16),
    Case("Cell: Q3", "outside", grid=16),
    Case("Cell: P17", "outside", grid=16),
    Case("Cell: D5", "D5", grid=16),
    Case("Cell: L1", "L1", grid=16),
    Case("The density near the L1 vertebra is bowel gas. The effusion is in M12.", "M12", grid=16),
    Case("Cell: (M, 12)", "M12", grid=16),
    Case("Z26", "Z26", grid=26),
    Case("Cell: A1", "A1", grid=1),
]  # fmt: skip

THINKING = [
    Case("<think>C4 looks dense, but D5 more so.</think>D5", "D5"),
    Case("<think>C4 or D5? Cell: C4 perhaps.</think>\n\nCell: D5", "D5"),
    Case("<thinking>\nMaybe H1.\n</thinking>\n\n**Cell: G6**", "G6"),
    Case("So the answer should be C4... no.</think>\nCell: D5", "D5"),
    Case("<think>The opacity in C4 is", "cut_off", stop="max_tokens"),
    Case("<think>The opacity in C4 is", "cut_off"),
    Case("<think>It is C4.</think>", "empty"),
    Case("<think>a<think>b</think>C4</think>D5", "D5"),
    Case("<unused94>thought\nThe user wants a cell. Cell: C4?<unused95>Cell: D5", "D5"),
    Case("<|channel|>analysis<|message|>Maybe C4.<|end|><|start|>assistant<|channel|>final<|message|>Cell: D5", "D5"),
    Case("<reasoning>Perhaps C4</reasoning> D5", "D5"),
    Case("◁think▷Perhaps C4◁/think▷ D5", "D5"),
    Case("<think></think>\n\nCell: B7", "B7"),
]

CHAINS = [
    Case(
        "1. The picture is a frontal radiograph.\n2. Cells with signs: F5, F6, G6.\n3. F6 is densest.\n\nCell: F6",
        "F6",
    ),
    Case(
        "Step 1: I look at the lungs. Step 2: In F5 there is haze; in G6 blunting. Step 3: G6 is clearest.\nCell: G6.",
        "G6",
    ),
    Case("I will end with a line such as Cell: D5.\n\nThe haze is in B6.\n\nCell: B6", "B6"),
    Case("The required format is 'Cell: D5'. The haze is in B6.", "B6"),
    Case("**Step 1:** ...\n* C4: clear\n* D4: clear\n* E6: enlarged heart\n\n**Final answer: E6**", "E6"),
    Case(
        "### Analysis\n- **F6**: dense\n- **G6**: faint\n\n### Conclusion\nCell: F6\n\nThis is no medical advice.", "F6"
    ),
    Case(
        "Okay, let's localize the edema.\n\n**1. Observations**\n\n* **B4:** haze\n* **G4:** haze\n\n"
        "**2. Conclusion**\n\nThe haze is most marked in the right perihilar area.\n\n**Cell: C4**\n\n"
        "**Disclaimer:** I am an AI and cannot provide medical advice. Please consult a radiologist.",
        "C4",
    ),
    Case(_LONG * 40 + "\nCell: D5", "D5"),
    Case("Considering all cells, the final answer is:\n\nD5", "D5"),
    Case("Therefore, the single best cell would be F6, since F5 is fainter.", "F6"),
]

CUT = [
    Case(_LONG + "In C4 there is haze, in D5", "cut_off", stop="max_tokens"),
    Case(_LONG, "cut_off", stop="length"),
    Case(_LONG + "\nCell: D5", "D5", stop="max_tokens"),
    Case("D5", "D5", stop="length"),
    Case(_LONG + "\nCell: ", "cut_off", stop="max_tokens"),
    Case(_LONG + "\nCell: D", "cut_off", stop="max_tokens"),
    Case("", "cut_off", stop="max_tokens"),
    Case("Cell: D5\n\nReasoning: the left lower zone of", "D5", stop="max_tokens"),
    Case('{"cell": "D5", "reasoning": "the left', "D5", stop="length"),
    Case(_LONG + "\nCell: D1", "cut_off", stop="max_tokens", grid=16),
    Case(_LONG + "\nC4: haze\nD5", "cut_off", stop="model_length"),
]

EMPTY = [
    Case("", "empty"),
    Case("  \n\t ", "empty"),
    Case("\u200b", "empty"),
    Case("...", "unclear"),
    Case("**", "unclear"),
    Case("", "empty", stop=None),
    Case("", "refused", stop="content_filter"),
    Case("The opac", "refused", stop="content_filter"),
]

REFUSALS = [
    *cases("refused", "I'm sorry, but I can't assist with that.",
        "I’m sorry, I can’t help with identifying abnormalities in medical images.",
        "I cannot provide medical diagnoses. Please consult a qualified radiologist.",
        "I'm unable to analyze medical images.", "As an AI language model, I am not able to interpret radiographs.",
        "Sorry, I can't determine the location from this image.", "I do not have the ability to view images.",
        "I can't comply with this request.", "Unfortunately, I am not qualified to interpret this X-ray.",
        "I won't be able to give a diagnosis here.", "I must decline to interpret this image.",
        "It would not be appropriate for me to interpret this radiograph.",
        "I don't see any image attached. Could you upload it?", "No image was provided.",
        "I can't say which of the cells A1 to H8 shows it.",
        "I'm sorry, I can't do this. An answer would look like 'Cell: D5'."),
    Case("I can't give a diagnosis, but the opacity is in D5.", "D5"),
    Case("I cannot provide medical advice. For study purposes:\n\nCell: D5", "D5"),
    Case("I cannot be certain, but F6 seems best.", "F6"),
    *cases("refused", "Es tut mir leid, aber ich kann medizinische Bilder nicht beurteilen.",
        "Das kann ich leider nicht beantworten.", "Je suis désolé, mais je ne peux pas analyser d'images médicales.",
        "Lo siento, no puedo ayudar con eso.", "抱歉，我无法分析医学影像。", "对不起，我不能提供诊断。",
        "申し訳ありませんが、医療画像を解釈することはできません。"),
]  # fmt: skip

LANGUAGES = [
    *cases("D5", "Zelle: D5", "Die Zelle ist D5.", "Antwort: D5"),
    Case("Der Befund liegt am ehesten in Feld F6.", "F6"),
    Case("Spalte D, Zeile 5", "D5"),
    Case("Die Verschattung reicht von C4 bis D5, am deutlichsten ist sie in D4.", "D4"),
    Case("Cellule : D5", "D5"),
    Case("Réponse : F6", "F6"),
    Case("La cellule la plus représentative est F6.", "F6"),
    Case("L'opacité s'étend de C4 à D5. Cellule : C5", "C5"),
    *cases("D5", "单元格：D5", "答案：Ｄ５", "最明显的位置是D5格。"),
    Case("病变位于C4至D5之间，最显著的是D4。", "D4"),
    *cases("D5", "セル：D5", "Celda: D5", "Ответ: D5", "D５", "정답: D5", "الخلية: D5"),
]  # fmt: skip

ABSENT = [
    Case("absent", "absent", present=False),
    Case("Absent.", "absent", present=False),
    Case("Cell: absent", "absent", present=False),
    Case("**Cell: absent**", "absent", present=False),
    Case("Cell: none", "absent", present=False),
    Case("There is no pneumothorax, neither in B2 nor in G2. The finding is absent.", "absent", present=False),
    Case("No evidence of Pneumothorax.", "absent", present=False),
    Case("The finding is not present.", "absent", present=False),
    Case('{"cell": "absent"}', "absent", present=False),
    Case('{"cell": null}', "absent", present=False),
    Case("Cell: D5", "D5", present=False),
    Case("It is not absent: Cell: D5", "D5", present=False),
    Case("No sign of it on the right. On the left it is seen in G2.", "G2", present=False),
    Case("I can't assist with that.", "refused", present=False),
    Case("Breath sounds may be absent, but G2 shows the pleural line.", "G2", present=False),
    Case("Nicht vorhanden", "absent", present=False),
    Case("Cell: absent", "unclear"),
    Case("The finding is not present.", "unclear"),
    Case("None", "unclear"),
    Case("There is no pneumothorax in this image.", "unclear"),
]

GROUPS = {
    "terse": TERSE,
    "markdown": MARKDOWN,
    "json": JSON,
    "several": SEVERAL,
    "prose": PROSE,
    "lookalikes": LOOKALIKES,
    "outside": OUTSIDE,
    "thinking": THINKING,
    "chains": CHAINS,
    "cut": CUT,
    "empty": EMPTY,
    "refusals": REFUSALS,
    "languages": LANGUAGES,
    "absent": ABSENT,
}
CASES = {f"{group}-{i:02d}": case for group, cases in GROUPS.items() for i, case in enumerate(cases)}
