"""Choose among the cells of JSON, or of a list of findings, before an answer's words are read.

Conventions
-----------
If entries or parts each name a finding, the one about the question's finding counts; without such a one, they name no
cell. If cells have probabilities, the most probable cell counts, and no cell if two share the highest probability or
the units differ. A single cell takes precedence over lists of cells. Entries without such a choice stay as they are.
"""

from __future__ import annotations

import re
from typing import Any

from reveal_bench.findings import CHEXPERT_LABELS, REVEAL_LABELS, VINDR_CXR_FINDINGS, canonical_finding
from reveal_bench.models.answer_columns import with_cells_named
from reveal_bench.models.answer_words import CELL, KEY, json_spans, probability

_KNOWN = (*CHEXPERT_LABELS, *VINDR_CXR_FINDINGS, *REVEAL_LABELS)
_NAME_KEYS = ("finding", "label", "pathology", "disease", "abnormality", "condition", "diagnosis", "name")
_CHANCES = ("p", "prob", "probability", "confidence", "score", "likelihood", "present", "positive", "selected", "match")
_RANKS = ("rank", "order", "priority")
_SPARE_KEY = re.compile(
    r"(?i)altern|second|other|runner|adjacent|neighbo|next|also|exclu|reject|ruled|least|start|end|from|to$|example"
)
_FINDING_LINE = re.compile(r"(?m)^[\s|>*#+•\d.)-]{0,12}(?P<name>[A-Za-z][A-Za-z /_]{2,40}?)[\s*_`]{0,4}(?:[:|=→-]|$)")


# A line "Pneumonia: B2", with the lines that continue its sentence
_PART_LINE = re.compile(r"[\W\d]{0,12}[\w /]{3,41}[^\w\n]{0,5}[:|=→-][^\w\n]{0,5}\w[^\n]*(?:\n[ \t]{0,9}[a-z][^\n]*)*")
_ANSWER_LINE = re.compile(rf"(?im)^\W{{0,9}}(?:final )?{KEY}\W{{0,5}}[:=]")


def with_chosen_cell(plain: str, finding: str) -> tuple[str, str]:
    """Return the text with "Cell: D5" instead of JSON that chooses D5, without parts on other findings; and a note.

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
    if not spans:
        return _without_other_findings(plain, finding)
    note = ""
    for value, start, end in reversed(spans):
        named = list(dict.fromkeys(_cells_in(value)))
        if len(named) > 1 and (chosen := _chosen(value, finding)) is not None:
            others = ", ".join([name for name in named if name != chosen][:10])
            note = f"{len(named)} cells, passed over: {others}"
            plain = f"{plain[:start]}\n{f'Cell: {chosen}' if chosen else ''}\n{plain[end:]}".strip()
    return plain, note


def _without_other_findings(plain: str, finding: str) -> tuple[str, str]:
    """Return the text without its parts that begin with the name of another finding; and a note on their cells.

    Nothing is left out if fewer than two parts have cells or are about the finding, or if only the last part has a
    line such as "Cell: D5", which answers the question. If no part about the finding has a cell, the text after the
    last part counts.
    """
    lines = [line for line in _FINDING_LINE.finditer(plain) if canonical_finding(line["name"], (finding, *_KNOWN))]
    starts = [line.start() for line in lines]
    parts = [plain[start:end] for start, end in zip(starts, [*starts[1:], len(plain)], strict=False)]
    has_answer = [bool(_ANSWER_LINE.search(part)) for part in parts]
    is_own = [canonical_finding(line["name"], (finding,)) is not None for line in lines]
    rest = _after_part(parts[-1]) if parts and not is_own[-1] else ""
    named = [bool(_cells_of(part.removesuffix(rest))) for part in parts]
    if sum(map(any, zip(is_own, named, strict=True))) < 2 or (has_answer[-1] and not any(has_answer[:-1])):
        return plain, ""
    own = "".join(part for part, is_kept in zip(parts, is_own, strict=True) if is_kept)
    text = plain[: starts[0]] + own + ("" if _cells_of(own) else rest)
    left = [cell for cell in _cells_of(plain) if cell not in _cells_of(text)]
    return text.strip(), f"{len(_cells_of(plain))} cells, passed over: {', '.join(left[:10])}" if left else ""


def _after_part(part: str) -> str:
    """Return what follows the line "Pneumonia: B2", or the first paragraph with a cell below "Pneumonia"."""
    line, cell = _PART_LINE.match(part), CELL.search(part)
    if line:
        return part[line.end() :]
    return part[cell.end() :].partition("\n\n")[2] if cell else ""


def _cells_of(text: str) -> list[str]:
    """Return the different cells in a text."""
    return list(dict.fromkeys(f"{match[1].upper()}{match[2]}" for match in CELL.finditer(text)))


def _chosen(value: Any, finding: str) -> str | None:
    """Return the cell that a JSON value chooses; "" if it excludes all its cells, None if it has no choice."""
    if isinstance(value, list):
        return _chosen_entry(value, finding) if all(isinstance(entry, dict) for entry in value) else None
    if not isinstance(value, dict):
        return None
    if len(chances := [(chance, cell) for key, chance in value.items() if (cell := _cell(key))]) > 1:
        return _most_likely(chances)
    if len(about := [key for key in value if canonical_finding(key, (finding, *_KNOWN)) and _cells_in(value[key])]) > 1:
        own = [cell for key in about if canonical_finding(key, (finding,)) for cell in _cells_in(value[key])]
        rest = [cell for key in value if key not in about and (cell := _cell(value[key]))]
        return own[0] if len(own) == 1 else None if own else rest[0] if len(rest) == 1 else ""
    single = {key: cell for key, entry in value.items() if (cell := _cell(entry)) and not _SPARE_KEY.search(key)}
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
    ranks = [next((probability(entry[key]) for key in _RANKS if key in entry), None) for entry in entries]
    chances = [next((entry[key] for key in _CHANCES if key in entry), None) for entry in entries]
    if all(rank is not None for rank in ranks):
        chances = [None if rank is None else -rank for rank in ranks]
    has_chances = all(cells) and all(chance is not None for chance in chances)
    return _most_likely(list(zip(chances, cells, strict=True))) if has_chances else None


def _most_likely(cells: list[tuple[Any, str]]) -> str:
    """Return the cell with the highest probability; "" if a cell has none, two share the highest, or units differ."""
    known = sorted((chance, cell) for value, cell in cells if (chance := _chance(value)) is not None)
    units = {str(value).endswith("%") for value, _ in cells}
    is_sure = len(known) == len(cells) > 1 == len(units) and known[-2][0] < known[-1][0]
    return known[-1][1] if is_sure else ""


def _chance(value: Any) -> float | None:
    """Return a probability; a truth value is 0 or 1."""
    said = {"yes": True, "true": True, "no": False, "false": False}.get(str(value).lower(), value)
    return float(said) if isinstance(said, bool) else probability(said)


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
