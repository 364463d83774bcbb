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

COLUMNS = [
    *(
        Case(text, "C6")
        for text in (
            "It sits in the third column from the left and the sixth row from the top.",
            "Counting from the left, it's the third column; counting from the top, it's the sixth row.",
            "6th row, 3rd column",
            "Column 3, row 6.",
            '{"row": 6, "col": 3}',
            "('C', 6)",
            '["C", "6"]',
            "Dritte Spalte von links, sechste Zeile von oben.",
            "Troisième colonne, sixième ligne.",
            "Tercera columna y sexta fila",
            "Terza colonna, sesta riga.",
            "Третий столбец слева, шестая строка сверху.",
            "третій стовпець, шостий рядок",
            "trzecia kolumna, szósty wiersz",
            "3. sütun, 6. satır",
            "cột C, hàng 6",
            "Kolom C, baris 6.",
            "Third column from the left (C), sixth row from the top (6).",
            "العمود C والصف 6",
            "位于第三列第六行的格子。",
            "左から3列目、上から6行目のマスです。",
            "왼쪽에서 세 번째 열, 위에서 여섯 번째 행입니다.",
            "The image is divided into 8 columns and 8 rows. It falls in the third column and sixth row.",
            "图像被分为8行8列。位于第3列第6行。",
        )
    ),
    Case("16th column, 10th row", "P10", grid=16),
    Case("sixteenth column, tenth row", "unclear", grid=16),
    *(
        Case(text, "unclear")
        for text in (
            "third column from the right, sixth row",
            "图像被分为8行8列的网格。",
            "The grid has 8 columns and 8 rows.",
            "(3, 6)",
            "the column of air in row 6",
        )
    ),
]

_THREE = (
    "["
    + ", ".join(
        f'{{"finding": "{finding}", "cell": "{cell}"}}'
        for finding, cell in (("Cardiomegaly", "E6"), ("Pneumothorax", "D5"), ("Edema", "F4"))
    )
    + "]"
)
CHOICES = [
    Case(_THREE, "D5"),
    Case(_THREE[1:-1].replace("}, {", "}\n{"), "D5"),
    Case(_THREE.replace("Pneumothorax", "Consolidation"), "unclear"),
    Case('{"Pneumothorax": "D5", "Cardiomegaly": "E6"}', "D5"),
    Case('{"Edema": "D5", "Cardiomegaly": "E6"}', "unclear"),
    Case("- **Pneumothorax:** D5\n- **Cardiomegaly:** E6", "D5"),
    Case("| Finding | Cell |\n|---|---|\n| Pneumothorax | D5 |\n| Edema | F4 |", "D5"),
    Case('{"C4": 0.15, "D5": 0.75, "B5": 0.10}', "D5"),
    Case('{"C4": "15%", "D5": "75%", "B5": "10%"}', "D5"),
    Case('{"C4": false, "D5": true, "B5": false}', "D5"),
    Case('{"C4": "clear", "D5": "dense", "B5": "clear"}', "unclear"),
    Case('{"primary": "D5", "alternates": ["C4", "B5"]}', "D5"),
    Case('{"cell": "C4"}\n\nSorry, I meant:\n\n{"cell": "D5"}', "D5"),
    Case("My top pick is D5, followed by C7 and B6.", "D5"),
    Case("D5, possibly also B6 or C7.", "D5"),
    Case("I'm maybe 60% sure it's D5. There's an outside chance of C2.", "D5"),
    Case("The finding is in D5. F6 and G6 are clear.", "D5"),
    Case("D5 shows it, whereas F6 looks normal.", "D5"),
    Case("I looked at C3, F3 and F4 and see none in any of them.", "absent", present=False),
    Case("Celda: C6. Perdón, quise decir D5.", "D5"),
    Case("The cell is C6. Sorry, I misread the margin, so it should be D5.", "D5"),
    Case("Cell: D5. Sorry that I can't be more precise than C4 to E6.", "D5"),
    Case("## Pneumothorax\n**Cell:** D5\n\n## Cardiomegaly\n**Cell:** E6", "D5"),
    Case("Pneumothorax: C4\nCardiomegaly: E6\n\nCell: D5", "D5"),
    Case(
        '{"results": {"Pneumothorax": {"cell": "D5", "confidence": 0.7}, "Edema": {"cell": "G7", "confidence": 0.8}}}',
        "D5",
    ),
    Case('[{"rank": 2, "cell": "D6"}, {"rank": 1, "cell": "D5"}]', "D5"),
    Case('[{"cell": "B7", "present": false}, {"cell": "D5", "present": true}]', "D5"),
    Case("B7: no\nD5: yes\nC7: no", "D5"),
    Case("I'd say 80% D5, 20% F7.", "D5"),
    Case("D5: ★★★\nB7: ★", "D5"),
    Case("~~C4~~ D5", "D5"),
    Case("I favour D5 over C3.", "D5"),
    Case("D5 has a pleural line. There is nothing at C3.", "D5"),
    Case("It is in D5. The dense spot at C3 is just a rib crossing.", "D5"),
    Case("The tip is at D5, roughly 3 cm above the carina at E4.", "D5"),
    Case("D5 (bordered by C5 on the left and E5 on the right)", "D5"),
    Case("Die Luft liegt in D5, B7 ist frei.", "D5"),
    Case("El neumotórax se ve en D5; la celda B7 es normal.", "D5"),
    Case("Выпот виден в ячейке D5, в B7 синус свободен.", "D5"),
    Case("Non è B7 ma D5.", "D5"),
    Case("D5です。C3ではありません。", "D5"),
    Case("Célula: F7. Desculpe, o correto é D5.", "D5"),
    Case("A pleural line runs through C4; towards D5 it fades.", "unclear"),
    Case('{"cells": ["C4", "D5"]}', "unclear"),
    Case("It is bilateral; on the left it is in C4, on the right in F4.", "unclear"),
    Case("空洞はD5に最もよく見られます。E6にも少し及びます。", "D5"),
    Case("G6. Let me recount the columns: A, B, C, D — so it's D5.", "D5"),
    Case("Conclusion: B7 is normal, D5 has a line.", "D5"),
    Case("D5. Actually B7 is sharp.", "D5"),
    Case('{"answer": "D5", "edema": "D4", "cardiomegaly": "E6"}', "D5"),
    Case("The finding lies at D5 (upper left). F5 shows normal vessels.", "D5"),
    Case("D5 mostly, a little in C4.", "D5"),
    Case("D5 > C4 > F5", "D5"),
    Case("D5 → most likely\nF5 → less likely", "D5"),
    Case("D5 ✓\nF5 ✗\nB6 ✗", "D5"),
    Case("Hava D5'te, F5'te değil.", "D5"),
    Case("位于D5,F5为血管影。", "unclear"),
    Case("It is not in D4 or E4, where the hilum is; it is in D5.", "D5"),
    Case("**Against C5:** vessels.\n**Against C7:** the diaphragm.\n**Decision:** D5", "D5"),
]

COMPARISONS = [
    Case("C4 is less likely than D5.", "D5"),
    Case("C4 and C5 are less dense than D5.", "D5"),
    Case("It is less visible in C4 than in D5.", "D5"),
    Case("C4 isn't as dense as D5.", "D5"),
    Case("C4 ist weniger dicht als D5.", "D5"),
    Case("Cell: C4 is less likely than D5", "D5"),
    Case("D5 is the answer; C4 is less likely than E5.", "D5"),
    Case("C4 is less dense than D5, which is denser than E5.", "D5"),
    Case("D5 is no less dense than C4.", "D5"),
    Case("C4 is darker than D5.", "unclear"),
    Case("C4 is no denser than D5.", "unclear"),
    Case("The opacity in C4 is lower than in D5.", "unclear"),
    Case("Compared with D5, C4 is fainter.", "unclear"),
]

CORRECTIONS = [
    Case("Cell: D5\nActually, the heart is at C4.", "D5"),
    Case("Cell: D5\nActually I also looked at C4.", "D5"),
    Case("Cell: D5\nActually, C4 also shows a faint shadow.", "D5"),
    Case("Cell: C4\nActually, the pneumothorax sits in D5.", "D5"),
    Case("Cell: D5\nActually, the pneumothorax is not seen in C4.", "D5"),
    Case("Cell: C4\nWait, the mass seems to be in D5.", "D5"),
    Case("Cell: D5\nWait - E6 is the heart.", "D5"),
    Case("Cell: D5\nActually, E6 and F6 contain the heart.", "D5"),
    Case("Cell: D5\nSorry, that should have been shorter. Also look at C4.", "D5"),
    Case("Cell: C4\nActually, looking again, D5 is the better choice.", "D5"),
    Case("Cell: C4\nWait, I counted from the right. It's D5.", "D5"),
    Case("Cell: C4. Correction, not C4 but D5.", "D5"),
    Case("Cell: D5\nLet me double-check: C5 is hilum, E5 is spine. OK.", "D5"),
    Case("Cell: D5\nActually C5 could also be argued.", "D5"),
    Case("C4... no, wait, D5.", "D5"),
    Case("Cell: C4\nCorrection:\nD5", "D5"),
    Case("The answer is one of:\nC4\nD5", "D5"),
    Case("Cell: C4\n\nFinal answer:\n\n**D5**", "D5"),
]

PARTS = [
    Case("Cardiomegaly: E6\nPneumonia: B2\n\nThe requested finding is in D5.", "D5"),
    Case("Cardiomegaly: E6\nPneumonia: B2\n\nThis is no medical advice.", "unclear"),
    Case("Pneumothorax: none\nLung nodule: B2", "unclear"),
    Case("- Pneumothorax: a fine pleural line.\n- Consolidation: none.\nLocation: D5", "D5"),
    Case("**Pneumothorax**\nThe air spans C4 to D5.\n**Cardiomegaly**\nE6", "D5"),
    Case("Pneumothorax: D5\nCardiomegaly: E6\n\nThe heart (E6) is large.", "D5"),
    Case("**Cardiomegaly**\n\nThe heart is large.\nIt spans D6 to F6.\n\n**Pneumonia**\n\nB2\n\nD5", "D5"),
]

NUMBERS = [
    Case('{"D5": 1' + "0" * 400 + ', "C4": 0.2}', "unclear"),
    Case('[{"cell": "D5", "score": 0.8}, {"cell": "C4", "score": 1' + "0" * 400 + "}]", "unclear"),
    Case('{"D5": "80%", "C4": 20}', "unclear"),
    Case('{"D5": 0.3, "C4": 0.3}', "unclear"),
    Case('[{"cell": "D5", "present": false}, {"cell": "C4", "present": false}]', "unclear"),
    Case('[{"cell": "D5", "present": "yes"}, {"cell": "C4", "present": "no"}]', "D5"),
    Case("row 5, column 40", "unclear"),
    Case('{"column": -4, "row": 5}', "unclear"),
    Case('{"column": 4, "row": 5.5}', "unclear"),
    Case("column - 4, row 5", "D5"),
]

REFUSALS = [
    Case(text, "refused")
    for text in (
        "Вибачте, але я не можу інтерпретувати медичні знімки.",
        "Tyvärr kan jag inte tolka medicinska bilder.",
        "Xin lỗi, tôi không thể chẩn đoán hình ảnh y tế.",
        "Omlouvám se, ale nemohu interpretovat lékařské snímky.",
        "Valitettavasti en voi tulkita lääketieteellisiä kuvia.",
        "দুঃখিত, আমি চিকিৎসা চিত্র বিশ্লেষণ করতে পারি না।",
        "Λυπάμαι, δεν μπορώ να ερμηνεύσω ιατρικές εικόνες.",
        "मैं चिकित्सा छवियों का विश्लेषण नहीं कर सकता।",
        "I'd rather not mark a cell here; a radiologist should decide.",
        "No image is visible, so I cannot provide an answer.",
    )
] + [
    Case(text, "absent", present=False)
    for text in (
        "No fracture is visible on this radiograph.",
        "I don't see a pneumothorax.",
        "No finding.",
        "Es ist kein Pneumothorax zu erkennen.",
        "Вогнищевих утворень не виявлено.",
        "Không thấy tràn khí màng phổi.",
        "No se observa neumotórax.",
        "気胸は認められません。",
    )
]

RANKINGS = [
    Case("Most likely D5; second choice E5; third F5.", "D5"),
    Case("Ranked cells: D5, E5, F5", "D5"),
    Case("Cells in order of likelihood: D5, E5, F5", "D5"),
    Case("The candidates, in descending order of probability: C4, C5 and D5.", "C4"),
    Case("Ranked from least to most likely: D5, E5, F5", "F5"),
    Case("Top 3: D5, E5, F6", "D5"),
    Case("| Rank | Cell |\n|---|---|\n| 1 | D5 |\n| 2 | E5 |", "D5"),
    Case("D5 is most likely, then E5; third is F5.", "D5"),
    Case("D5, with E5 as a runner-up", "D5"),
    Case('Cell: "D5" is wrong, I pick E6', "E6"),
    Case("I ranked the cells by brightness; the answer is E4.", "E4"),
    Case("Cells: D5, E5", "E5"),
]

GROUPS = {
    "rankings": RANKINGS,
    "columns": COLUMNS,
    "choices": CHOICES,
    "comparisons": COMPARISONS,
    "corrections": CORRECTIONS,
    "parts": PARTS,
    "numbers": NUMBERS,
    "refusals": REFUSALS,
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
