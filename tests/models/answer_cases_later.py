"""Answers written after the parser: what it first misread, and a choice of what it read "
"at once, by kinds of model."""

from __future__ import annotations

from tests.models.answer_cases import Case

LATER = [
    Case("Thank you for sharing. However, interpreting medical images requires a licensed professional.", "refused"),
    Case("I apologize, but this falls outside of what I can do.", "refused"),
    Case("This is a medical image and I shouldn't offer an interpretation.", "refused"),
    Case("Die Kardiomegalie ist am besten in Zelle E6 zu erkennen, daneben auch in D6.", "E6"),
    Case("我选择E6，因为D6较淡。", "E6"),
    Case("Cell: D5.5", "unclear"),
    Case("Cell: 5, 6", "unclear"),
    Case("Cell: AA5", "unclear"),
    Case("F6, definitely not F7.", "F6"),
    Case("Cell: G9? No: the grid ends at row 8. Cell: G8", "G8"),
    Case("I do not see a pneumothorax on this radiograph.", "absent", present=False),
    Case("B1. There is no evidence of tension.", "B1", present=False),
    Case("1st choice: E6; 2nd choice: F6", "E6"),
    Case("I'm not a doctor, but it looks like F5.", "F5"),
    Case("The lesion (F5) has a spiculated margin. No lesion in C5.", "F5"),
    Case("A1 is the top left cell, H8 the bottom right one.", "unclear"),
    Case("Cell: L12 (near the L1 vertebral body)", "L12", grid=16),
    Case("I7 to K9, densest J8", "J8", grid=16),
]

GPT = [
    Case("**D5**", "D5"),
    Case("Final Answer: **D5**", "D5"),
    Case("The grid cell most representative of the pleural effusion is **G7**.", "G7"),
    Case(
        "The pathology is best localized to **cell F6** (left lower lung zone), with extension into **F7** and **G6**.",
        "F6",
    ),
    Case("Most representative grid cell: **E6**", "E6"),
    Case("Selected cell: E6", "E6"),
    Case("Location: E6", "E6"),
    Case("Best cell → **E6**", "E6"),
    Case("Cell: **E6** (left heart border)\n\n(For research use only; not a diagnosis.)", "E6"),
    Case(
        "I can't identify disease with certainty from this image, but if I must pick one grid "
        "cell, it would be **F6**.",
        "F6",
    ),
    Case(
        "I'm sorry, but I can't provide a medical interpretation of this image. The grid (A1 to "
        "H8) alone is not sufficient.",
        "refused",
    ),
    Case(
        "Sorry, I can't help with diagnosing from this X-ray. If you are studying, look for "
        "blunting of the costophrenic angle, e.g. cell G7.",
        "refused",
    ),
    Case("I’m unable to determine the exact location. However, the most likely cell is G7.", "G7"),
    Case("$$\\boxed{\\text{D5}}$$", "D5"),
    Case("The final answer is $\\boxed{D5}$. I hope it is correct.", "D5"),
    Case("\\boxed{\\textbf{D5}}", "D5"),
    Case("### Final answer\n\n**D5**", "D5"),
    Case("### Final answer\n\n**D5**\n\nThis cell lies over the left hilum; C5 is less involved.", "D5"),
    Case("Step 1. Cells D4, D5 and E5 are hazy.\nStep 2. D5 shows the highest density.\n\n\\[\n\\boxed{D5}\n\\]", "D5"),
]

CLAUDE = [
    Case(
        "Looking at this chest radiograph, I can see increased opacity in the left lower "
        "zone.\n\n**Reasoning:** The left costophrenic angle (G7) is blunted.\n\n**Cell: G7**",
        "G7",
    ),
    Case(
        "I'd localize the consolidation to **F6**, though I'd note that I'm not able to provide a "
        "clinical interpretation.",
        "F6",
    ),
    Case("I need to be careful here: I can't reliably interpret this radiograph. With that caveat, G6.", "G6"),
    Case("<answer>D5</answer>", "D5"),
    Case("<reasoning>Right base, C6 or C7.</reasoning>\n<answer>\nC7\n</answer>", "C7"),
    Case("Here is my answer:\n\n```\nCell: C7\n```", "C7"),
    Case("I don't feel comfortable answering this. A radiologist should look at this picture.", "unclear"),
    Case("Cell: C7\n\nConfidence: low. Alternative: C6", "C7"),
]

GEMINI = [
    Case('```json\n{\n  // most involved cell\n  "cell": "D5", // left hilum\n  "confidence": 0.8,\n}\n```', "D5"),
    Case('```json\n[{"cell": "D5", "label": "Edema"}]\n```', "D5"),
    Case('{"answer": {"cell": "D5"}}', "D5"),
    Case("{'cell': 'D5'}", "D5"),
    Case('{"column": "D", "row": 5}', "D5"),
    Case(
        "Here's a breakdown of the image:\n\n*   **Right lung:** clear.\n*   **Left lung:** "
        "opacity in F6 and F7.\n\nTherefore, the best cell is **F6**.",
        "F6",
    ),
    Case(
        "Okay, I've reviewed the image.\n\n**Cell: G2**\n\n**Important Disclaimer:** I am an AI "
        "and cannot provide medical advice, diagnosis, or treatment.",
        "G2",
    ),
    Case("| Cell | Finding |\n|---|---|\n| C4 | clear |\n| F6 | dense |\n\nAnswer: F6", "F6"),
    Case("| Item | Value |\n|---|---|\n| Cell | D5 |\n| Confidence | high |", "D5"),
    Case("| Cell | D5 |", "D5"),
]

MEDGEMMA = [
    Case(
        "<unused94>thought\n1. The image shows A1 to H8.\n2. Heart covers D5 to F7.\nI will go with E6.\n<unused95>E6",
        "E6",
    ),
    Case("thought\nThe heart covers D5-F7.\nCell: E6", "E6"),
    Case(
        "Based on the chest X-ray, the cardiomegaly is most prominent in the region encompassing **E5, E6, and E7**.",
        "E5",
    ),
    Case("The enlarged cardiac silhouette is seen in cells D5, D6, E5, E6. The most representative cell is E6", "E6"),
    Case("F7\n\nF7\n\nF7", "F7"),
]

QWEN = [
    Case(
        "<think>\nLet me see. The opacity seems in C5... So answer C5? Wait, check "
        "D5.\n</think>\n\n<answer>D5</answer>",
        "D5",
    ),
    Case("The answer is (D, 5).", "D5"),
    Case("答案是D5。", "D5"),
    Case("根据图像，病变位于右下肺野，对应网格单元格 C6。", "C6"),
    Case("胸腔积液最明显的区域是 G7 单元格。", "G7"),
    Case("最终答案：\\boxed{G7}", "G7"),
    Case("很抱歉，我不能对医学影像进行诊断。", "refused"),
]

LLAVA = [
    Case(
        "The pleural effusion is located in the left lower lobe of the lung, which is represented "
        "by the cell G7 in the grid.",
        "G7",
    ),
    Case(
        "The chest X-ray shows a pneumothorax in the upper right corner, which corresponds to column 'B' and row '2'.",
        "B2",
    ),
    Case("D5</s>", "D5"),
    Case("ASSISTANT: D5", "D5"),
    Case('the atelectasis is in the cell labeled "C6"', "C6"),
]

GERMAN = [
    Case("Die wahrscheinlichste Zelle ist **F6**.", "F6"),
    Case("Antwort: Zelle F6 (linkes Unterfeld)", "F6"),
    Case("Ich kann keine medizinische Diagnose stellen. Am ehesten passt jedoch Zelle F6.", "F6"),
    Case("Leider kann ich dieses Bild nicht befunden.", "refused"),
]

OTHERS = [
    Case("Cell: D5 or E5?", "E5"),
    Case("Cell: **D**5", "D5"),
    Case("Cell: D₅", "D5"),
    Case("My answer: D5!", "D5"),
    Case("D5\n\nLet me know if you would like a further explanation of E5 or F5!", "D5"),
    Case("Answer: D5\n\nExplanation: D5 is in row 5, column D.", "D5"),
    Case("Final answer: D5 (not D6).", "D5"),
    Case("I would estimate the cell as E6.", "E6"),
    Case("There is no visible abnormality in this image.", "absent", present=False),
    Case("I see no pneumothorax; the lungs are fully expanded. Cell: absent", "absent", present=False),
    Case("Although subtle, the pneumothorax is present at B1; no pleural line on the left.", "B1", present=False),
    Case("Cell: N/A", "absent", present=False),
    Case("The grid ends at P16. Cell: L10", "L10", grid=16),
    Case("The answer is (L, 10).", "L10", grid=16),
]

GROUPS = {
    "later": LATER,
    "gpt": GPT,
    "claude": CLAUDE,
    "gemini": GEMINI,
    "medgemma": MEDGEMMA,
    "qwen": QWEN,
    "llava": LLAVA,
    "german": GERMAN,
    "others": OTHERS,
}
CASES = {f"{group}-{i:02d}": case for group, cases in GROUPS.items() for i, case in enumerate(cases)}
