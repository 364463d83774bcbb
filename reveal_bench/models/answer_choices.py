"""Choose among the cells of JSON, or of a list of findings, before an answer's words are read.

Conventions
-----------
Of entries that each name a finding, the one about the question's finding counts; if none is, they name no cell. Of
cells with probabilities, the most probable counts; of one cell beside lists of cells, the one. Entries without such a
choice stay as they are.
"""

from __future__ import annotations

import re
from typing import Any

from reveal_bench.findings import CHEXPERT_LABELS, REVEAL_LABELS, VINDR_CXR_FINDINGS, canonical_finding
from reveal_bench.models.answer_columns import with_cells_named
from reveal_bench.models.answer_words import CELL, json_spans, probability

_KNOWN = (*CHEXPERT_LABELS, *VINDR_CXR_FINDINGS, *REVEAL_LABELS)
_NAME_KEYS = ("finding", "label", "pathology", "disease", "abnormality", "condition", "diagnosis", "name")
_CHANCES = ("p", "prob", "probability", "confidence", "score", "likelihood")
_SPARE_KEY = re.compile(
    r"(?i)altern|second|other|runner|adjacent|neighbo|next|also|exclu|reject|ruled|least|start|end|from|to$|example"
)
_FINDING_LINE = re.compile(
    r"(?m)^[\s|>*+•\d.)-]{0,12}(?P<name>[A-Za-z][A-Za-z /_]{2,40}?)[\s*_`]{0,4}[:|=→-][^\n]{0,200}"
)


def with_chosen_cell(plain: str, finding: str) -> tuple[str, str]:
    """Return the text with "Cell: D5" instead of JSON, or of lines on findings, that choose D5; and a note on the rest.

    Examples
    --------
    >>> with_chosen_cell('[{"finding": "Edema", "cell": "D5"}, {"finding": "Nodule", "cell": "B2"}]', "Edema")
    ('Cell: D5', '2 cells, passed over: B2')
    """
    spans = json_spans(plain)
    if len(spans) > 1 and all(isinstance(value, dict) for value, _, _ in spans):  # JSON lines
        whole = [value for value, _, _ in spans]
        if _chosen_entry(whole, finding) is not None:
            spans = [(whole, spans[0][1], spans[-1][2])]
    lines = [line for line in _FINDING_LINE.finditer(plain) if canonical_finding(line["name"], _KNOWN)]
    if not spans and lines:
        said = {line["name"]: cell[0] for line in lines if (cell := CELL.search(line[0]))}
        spans = [(said, lines[0].start(), lines[-1].end())]
    note = ""
    for value, start, end in reversed(spans):
        named = list(dict.fromkeys(_cells_in(value)))
        if len(named) > 1 and (chosen := _chosen(value, finding)) is not None:
            others = ", ".join([name for name in named if name != chosen][:10])
            note = f"{len(named)} cells, passed over: {others}"
            plain = f"{plain[:start]}\n{f'Cell: {chosen}' if chosen else ''}\n{plain[end:]}".strip()
    return plain, note


def _chosen(value: Any, finding: str) -> str | None:
    """Return the cell that a JSON value chooses; "" if it excludes all its cells, None if it has no choice."""
    if isinstance(value, list):
        return _chosen_entry(value, finding) if all(isinstance(entry, dict) for entry in value) else None
    if not isinstance(value, dict):
        return None
    if (
        len(
            chances := [
                (float(chance) if isinstance(chance, bool) else probability(chance), cell)
                for key, chance in value.items()
                if (cell := _cell(key))
            ]
        )
        > 1
    ):
        return _most_likely(chances) or ""
    single = {key: cell for key, entry in value.items() if (cell := _cell(entry)) and not _SPARE_KEY.search(key)}
    if len(single) > 1 and any(canonical_finding(key, (finding, *_KNOWN)) for key in single):
        return next((single[key] for key in single if canonical_finding(key, (finding,))), "")
    if len(single) == 1:
        return next(iter(single.values()))
    inner = [choice for entry in value.values() if (choice := _chosen(entry, finding)) is not None]
    return inner[0] if len(inner) == 1 and not single else None


def _chosen_entry(entries: list[dict[str, Any]], finding: str) -> str | None:
    """Return the cell of the entry about the finding, or of the most probable entry; "" and None as above."""
    names = [next((str(entry[key]) for key in _NAME_KEYS if key in entry), "") for entry in entries]
    if len(set(names)) > 1 and any(canonical_finding(name, (finding, *_KNOWN)) for name in names):
        own = [entry for entry, name in zip(entries, names, strict=True) if canonical_finding(name, (finding,))]
        cells = [cell for entry in own for cell in _cells_in(entry)]
        return "" if not own else cells[0] if len(cells) == 1 else None
    cells = [next((cell for value in (entry, *entry.values()) if (cell := _cell(value))), "") for entry in entries]
    chances = [next((probability(entry[key]) for key in _CHANCES if key in entry), None) for entry in entries]
    return _most_likely(list(zip(chances, cells, strict=True))) if all(cells) else None


def _most_likely(cells: list[tuple[float | None, str]]) -> str | None:
    """Return the cell with the highest probability; None if a cell has none, or several have the highest."""
    known = sorted((chance, cell) for chance, cell in cells if chance is not None)
    is_sure = len(known) == len(cells) > 1 and known[-2][0] < known[-1][0]
    return known[-1][1] if is_sure else None


def _cell(value: Any) -> str:
    """Return the cell that a JSON value is: "D5", ["D", 5] or {"column": "D", "row": 5}; otherwise ""."""
    if isinstance(value, dict):
        value = with_cells_named(f"column {value.get('column', value.get('col'))}, row {value.get('row')}")
    elif isinstance(value, list) and len(value) == 2:
        value = f"{value[0]}{value[1]}"
    match = CELL.fullmatch(value.strip()) if isinstance(value, str) else None
    return f"{match[1].upper()}{match[2]}" if match else ""


def _cells_in(value: Any) -> list[str]:
    """Return all cells in a JSON value, in order, keys included."""
    if cell := _cell(value):
        return [cell]
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [cell for entry in inner for cell in _cells_in(entry)]
