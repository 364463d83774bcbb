"""What stands in a model's answer: cells, numbers, JSON, refusals. No question is known here, and nothing is judged.

Conventions
-----------
Functions take text that :func:`without_thinking` and :func:`cleaned` went over, or, where they say so, :func:`bare`
text. A *cell* here is anything written like one, in the grid or not.
Every pattern is bounded, so that time grows with the length of the text and no faster.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = [
    "MAX_CHARACTERS", "MAX_PROSE", "Cells", "bare", "begins_absent", "cleaned", "is_refusal", "json_values", "lines_of",
    "mentioned", "number_runs", "says_absent", "stated", "statements", "without_thinking",
]  # fmt: skip

MAX_CHARACTERS, MAX_PROSE = 200_000, 20_000
"""Of a longer answer only the end is read, and of longer prose only the end."""
_MOST_BELOW, _MOST_STATEMENTS = 40, 20

_THOUGHT = re.compile(
    r"(?i)(?P<open><(?:think|thinking|thought|reasoning|seed:think|unused94)>|◁think▷|\[THINK\]|<\|begin_of_thought\|>"
    r"|<\|channel\|>(?:analysis|commentary)\b[^<]{0,40}<\|message\|>)"
    r"|(?P<close></(?:think|thinking|thought|reasoning|seed:think)>|<unused95>|◁/think▷|\[/THINK\]"
    r"|<\|end_of_thought\|>|<\|channel\|>final\b[^<]{0,40}<\|message\|>)"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_TOKENS = re.compile(r"(?i)<\|[^<>|\n]{1,40}\|>|</?(?:s|bos|eos|start_of_turn|end_of_turn|pad)>")
_PLAIN = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | dict.fromkeys("“”„‟«»「」", '"') | dict.fromkeys("‘’‚‛", "'"))

_KEY = (
    r"(?:(?<![A-Za-z])(?:grid[ _]?cell|cell|grid[ _]?coordinates?|coordinates?|answer|zelle|rasterzelle|gitterzelle"
    r"|antwort|cellule|réponse|celda|casilla|respuesta|cella|risposta|célula|resposta)(?![A-Za-z])"
    r"|单元格|格子|答案|セル|答え|回答|셀|정답|ответ|ячейка|الخلية|الإجابة)"
)
_LINE = re.compile(rf"(?i)(?P<lead>[^:=\n.!?]{{0,80}}?)(?P<key>{_KEY})[^:=\n.!?0-9]{{0,60}}?\s*(?:[:=]|->|-)")
_KEY_FIRST = re.compile(rf"(?i)\W{{0,12}}{_KEY}\W{{0,5}}(?=\w)")
_OTHER = re.compile(
    r"(?i)alternativ|second|other|runner|adjacent|neighbo|next|2nd|example|format|such as|e\.g|\blike\b|\bnot\b|instead"
    r"|zweit|nachbar|beispiel|exempl"
)

_TOKEN = re.compile(r"(?<![A-Za-z0-9])([A-Za-z])0?([0-9]{1,2})(?![A-Za-z0-9]|\.[0-9])")
_END = r"(?=\s{0,3}(?:$|\.(?![0-9])|[;)\]}>\"'|\n]|[-,(]\s))"
_OPENING = r"[\s\"'(\[{<]{0,6}(?:(?:the|grid|cell|in|at|is|zelle|feld|case)\s){0,3}[\"'(\[{<]{0,3}"
_ITEM = re.compile(
    rf"(?i){_OPENING}(?:(?P<column>[A-Za-z])0?(?P<row>[0-9]{{1,2}})(?![A-Za-z0-9]|\.[0-9])"
    rf"|(?P<column2>[A-Za-z])\s{{0,2}}[-,/:.]?\s{{0,2}}0?(?P<row2>[0-9]{{1,2}}){_END}"
    rf"|(?P<row3>[0-9]{{1,2}})\s?(?P<column3>[A-Za-z]){_END})"
)
_AND = re.compile(
    r"(?i)[\s\"')\]}>]{0,4}(?:,|;|/|&|\+|-|、|和|或|至|到|と|(?:and|or|to|through|und|oder|bis|et|ou|à|y|o|e)(?=\s))"
    r"(?:\s?(?:and|or|und|oder|et|ou)(?=\s))?\s{0,3}"
)
_RANGE = re.compile(
    rf"(?i){_TOKEN.pattern}[ \t]{{0,3}}(?:-|~|to|through|thru|until|bis|à|hasta|至|到|から)[ \t]{{0,3}}(?:cell )?"
    rf"(?:{_TOKEN.pattern.replace('(?<![A-Za-z0-9])', '')}|[0-9]{{1,2}}(?![A-Za-z0-9]))"
    rf"|(?:between|zwischen|entre) {_TOKEN.pattern} (?:and|und|et|y) {_TOKEN.pattern}"
)
_NO_CELL_AFTER = re.compile(
    r"(?i)[\s-]{0,2}(?:[A-Z]?\d{1,2} )?(?:vertebra|spin(?:e|al)\b|dis[ck]s?\b|leads?\b|ribs?\b|nerve|level|dermatome"
    r"|end ?plate|electrode|segment|stage|sound|wirbel)"
)
_NO_CELL_BEFORE = re.compile(
    r"(?i)(?:vertebrae?|vertebral (?:body|level)|leads?|ribs?|vitamin|stage|segment|ha?emoglobin|spine|dis[ck]|sound"
    r"|electrode|icd-?10|wirbel|step|type|grade)\s$"
)
_CORNER_AFTER = re.compile(r"(?i)\W{1,3}(?:is |in |being |at )?the (?:top|upper|bottom|lower)[ -](?:left|right)")
_DENIED_BEFORE = re.compile(
    r"(?i)\b(?:not|nor|neither|instead of|rather than|no \w+|nicht|weniger|statt|pas)\s(?:in |at )?(?:cell )?$|不是$"
)
_EXAMPLE = re.compile(
    r"(?i)such as|would read|e\.g|example|for instance|(?<!looks )\blike\b|format|beispiel|z\.B|exempl"
)

_STATING = re.compile(
    rf"(?i){_KEY}[^.!?\n]{{0,60}}?(?:\b(?:is|be|ist|wäre|est|serait|es|è)\b|[:=是为])"
    r"|(?<![A-Za-z])(?:guess|choice|choose|chose|select|pick|go with|settle on|wähle|choisis|elijo"
    r"|most|best|besten|meisten|densest|greatest|clearest|centred|centered|deutlichsten|le plus)(?![A-Za-z])|选择|最"
)
_STATED_AFTER = re.compile(
    r"(?i)\s(?:is|seems|appears|looks|ist|est)\b[^.!?\n]{0,25}\b(?:most|best|densest|clearest|answer)\b"
)
_TURNS = re.compile(r"(?i)\b(?:followed|than|not|then|unlike|over|next|besides|with|nicht|pas|adjacent)\b")
_EMPHASISED = re.compile(r"(?i)(?:\*\*|__|`|\")\s?(?:cell\s)?([A-Za-z])([0-9]{1,2})\s?\.?(?:\*\*|__|`|\")")
_COLUMN, _ROW = r"\b(?:column|col|spalte|colonne|columna)\b", r"\b(?:row|zeile|reihe|ligne|rangée|fila)\b"
_IS = r"\W{0,6}?(?:is )?\W{0,4}?"
_COLUMN_ROW = re.compile(
    rf"(?i){_COLUMN}{_IS}\b([A-Z])\b\W{{0,6}}(?:and |und |et |in )?\W{{0,3}}{_ROW}{_IS}\b([0-9]{{1,2}})\b"
    rf"|{_ROW}{_IS}\b([0-9]{{1,2}})\b\W{{0,6}}(?:and |und |et |in )?\W{{0,3}}{_COLUMN}{_IS}\b([A-Z])\b"
)
_JSON_KEY = re.compile(rf"(?i)[\"']{_KEY}[\"']\s{{0,3}}[:=]")

_KEY_INSIDE = re.compile(rf"(?i)(?<=[.!?])[ \t]{{1,3}}(?=(?:final )?{_KEY}\s{{0,2}}[:=])")

_ABSENT_HERE = re.compile(
    r"(?i)[\W_]*(?:absent|none|null|not (?:present|visible|seen)|n/a|nicht vorhanden|keine?|aucune?|无|不存在|なし)\b"
)
_ABSENT_FIRMLY = re.compile(r"(?i)\bis (?:absent|not (?:present|there))\b|(?:^|\n)\W{0,9}absent\W{0,9}$")
_ABSENT = re.compile(
    r"(?i)(?<!not )\babsente?\b|\bnot (?:present|seen|visible|identified|detected|demonstrated|there)\b"
    r"|\bisn't (?:present|there|visible)\b"
    r"|\bno (?:evidence|signs?|indication)\b|^\W*none\W*$|nicht (?:vorhanden|nachweisbar|zu sehen)"
    r"|\bkeine? (?:nachweis|hinweis|zeichen)|\bpas de\b|\baucune?\b|不存在|未见|没有|なし"
)
_REFUSAL = re.compile(
    r"(?i)(?:\b(?:i|we)\b[^.!?\n]{0,40}|(?:^|\n)\W{0,5})"
    r"(?:\bcan ?not\b|\bcan't\b|\bcould not\b|\bcouldn't\b|\bwon't\b|\bshouldn't\b|\bwill not\b|\bunable\b|\bnot able\b"
    r"|\bnot (?:qualified|permitted|allowed)\b|\bnot have the (?:ability|capability)\b)[^.!?\n]{0,40}"
    r"\b(?:assist|help|comply|provide|give|offer|analy[sz]e|interpret|identify|determine|diagnos\w*|view|see|process"
    r"|fulfil+|answer|say|tell (?:you|which|where|from)|do|perform|evaluate|assess|make|locali[sz]e|locate|complete)\b"
    r"|\brequires? (?:a |an |the )?(?:medical|licen[sc]ed|qualified|trained|expert)|\bplease (?:provide|upload)\b"
    r"|\boutside (?:of )?(?:what i|my)\b|\bmust decline\b|\bnot (?:be )?appropriate for me\b"
    r"|\bno (?:image|picture|x-ray|radiograph) (?:was|is|has been|were)? ?(?:provided|attached|uploaded|included)"
    r"|\b(?:don't|do not|cannot|can't) see (?:any|an|the|your) (?:image|picture|attachment)"
    r"|tut mir leid|kann[^.\n]{0,60}\bnicht\b|ne (?:peux|puis|suis) pas|désolé|no puedo|lo siento|non posso"
    r"|mi dispiace|não posso|无法|不能|抱歉|对不起|できません|申し訳|죄송|수 없습니다|не могу|извините"
)

_JSON_OPENING = re.compile(r"\{(?=\s*[\"}])|\[(?=\s*[\"{\]])")
_LABEL = r"x_?min|y_?min|x_?max|y_?max|x1|y1|x2|y2|x|y|width|height|left|top|right|bottom|w|h"
_NUMBER = re.compile(
    rf"(?i)(?:(?<![A-Za-z])[\"']?(?P<label>{_LABEL})[\"']?\s{{0,2}}[:=]\s{{0,2}})?"
    r"(?<![A-Za-z0-9.])(?P<number>-?[0-9]{1,7}(?:\.[0-9]{1,12})?)(?![0-9]|\.[0-9]|[eE][-+]?[0-9])(?P<percent>\s?%)?"
)
_BETWEEN = re.compile(r"(?i)\s{0,4}(?:px|pixels?)?\s{0,4}[,;|]?\s{0,8}(?:and|und|et)?\s{0,3}[\"']?")


_Place = tuple[str, int, int]
"""A cell's name, and where it starts and ends in the text."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells that a part of an answer names, in its order, capital letters first; `is_absent` if it says "absent".

    `how` tells where they stand, `end` where the last cell of the text ends; `is_sure` unless they are but the ends of
    a range, or none of them is in the grid; `reversed_order` if one is written "5D".
    """

    names: tuple[str, ...]
    how: str
    end: int = 0
    is_absent: bool = False
    is_sure: bool = True
    reversed_order: bool = False


def without_thinking(text: str) -> tuple[str, bool]:
    """What the model says in the end, and whether it ends in a thought that is not closed.

    Besides thinking, control characters and the tokens of chat templates are left out. A closing tag that nothing
    opened closes a thought that began with the answer (the opening tag is then a part of the template).

    Examples
    --------
    >>> without_thinking("<think>C4?</think>Cell: D5<|im_end|>")
    ('Cell: D5', False)
    """
    kept: list[str] = []
    start, opened, inside = 0, False, False
    text = text[-MAX_CHARACTERS:]
    for tag in _THOUGHT.finditer(text):
        if tag["open"]:
            if not inside:
                kept.append(text[start : tag.start()])
            opened = inside = True
        elif inside or not opened:
            if not opened:
                kept.clear()
            opened, inside, start = True, False, tag.end()
    if not inside:
        kept.append(text[start:])
    return _CONTROL.sub("", _TOKENS.sub(" ", "\n".join(kept)).replace("\r", "\n")).strip(), inside


def cleaned(text: str) -> str:
    """The text in plain characters: full-width letters, dashes and quotes of all kinds as those of a keyboard.

    Examples
    --------
    >>> cleaned("Cell: Ｄ５")
    'Cell: D5'
    """
    plain = unicodedata.normalize("NFKC", text[-MAX_CHARACTERS:]).translate(_PLAIN)
    return _UNSEEN.sub("", plain[-MAX_CHARACTERS:]).strip()


def bare(text: str) -> str:
    """The text without markup; JSON keys, answer tags and LaTeX boxes become lines, "column D, row 5" becomes "D5"."""
    text = re.sub(r"<(answer|cell)>|\\boxed\{", "\nanswer: ", text, flags=re.IGNORECASE)
    text = re.sub(r"</(?:answer|cell)>", "\n", text, flags=re.IGNORECASE)
    text = re.sub(r"\\(?:text|mathrm|mathbf)\{|[*`$#]", "", text)
    text = re.sub(r"(?<=[A-Za-z])_(?=[0-9])", "", text).replace("_", " ")
    text = _KEY_INSIDE.sub("\n", _JSON_KEY.sub("\nanswer:", text))
    return _COLUMN_ROW.sub(lambda m: f"{m[1] or m[4]}{m[2] or m[3]}", text)


def stated(text: str, *, is_cut: bool = False) -> Cells | None:
    """What a line such as "Cell: D5" states (the last such line), else what the last line consists of.

    `text` is bare. Of an answer that is cut off, the last line counts only if it is all there is.
    """
    lines = [line for line in text.split("\n") if line.strip(" \t\"'.-|>~{}[]()")]
    for line in reversed(lines):
        match = _LINE.match(line)
        while match and _OTHER.search(match["lead"] + match[0][match.end("key") - match.start() :]):
            match = None
        if match:
            found = _after_key(line[match.end() :])
            if found:
                return found
    if not lines or (is_cut and len(lines) > 1):
        return None
    return _lone(lines[-1])


def mentioned(text: str, marked: str, known: Sequence[str]) -> Cells | None:
    """What prose names; `marked` is the same text with its markup, `known` the grid's cells in their order.

    A range from the first to the last cell of the grid is the grid itself and names nothing.
    """
    found, ranged = _prose(text, known[-1])
    in_grid = frozenset(known)
    cells = [cell for cell in found if cell[0] in in_grid]
    if not cells:
        rest = ranged or [cell for cell in found if text[cell[1]].isupper()]
        return replace(_cells(rest, "a range" if ranged else "prose"), is_sure=False) if rest else None
    end = cells[-1][2]
    if name := _stated_in_prose(text, cells):
        return Cells((name,), "a sentence that states it", end)
    own = [line for line in map(_lone, text.split("\n")) if line and in_grid.intersection(line.names)]
    if own:
        return replace(own[-1], how="a line of its own", end=end)
    opening = re.match(rf"\W{{0,5}}{_TOKEN.pattern}(?:\.| -)\s", text)
    if opening and len(re.findall(rf"(?m)^\W{{0,5}}{_TOKEN.pattern}", text)) == 1:
        return Cells((f"{opening[1].upper()}{opening[2]}",), "the opening", end)
    emphasised = {f"{m[1].upper()}{m[2]}" for m in _EMPHASISED.finditer(marked)} & {name for name, _, _ in cells}
    if len(emphasised) == 1:
        return Cells((emphasised.pop(),), "the one that is emphasised", end)
    return _cells(cells, "prose")


def _stated_in_prose(text: str, cells: list[_Place]) -> str | None:
    """The cell of the last sentence that states one ("the answer is D5", "I choose D5", "D5 is the densest")."""
    known = {start: name for name, start, _ in cells}
    for statement in reversed(list(_STATING.finditer(text))):
        token = _TOKEN.search(text, statement.end(), statement.end() + 50)
        if token is None or token.start() not in known:
            continue
        between = text[statement.end() : token.start()]
        lead = text[max(0, statement.start() - 30) : statement.start()].rpartition(".")[2]
        if not (re.search(r"[.!?\n]", between) or _TURNS.search(between) or _OTHER.search(lead + statement[0])):
            return known[token.start()]
    after = [name for name, _, end in cells if _STATED_AFTER.match(text, end)]
    return after[-1] if after else None


def says_absent(text: str, finding: str | None, *, after: int | None = None) -> bool:
    """Whether the text says that the finding is not there; in plain terms and at its end if there are cells before."""
    rest = text[after or 0 :]
    denied = rf"\b(?:no|without|(?:not|n't) see)(?: (?:evidence|signs?) of)?(?: \w+)? {re.escape(finding or ' ')}\b"
    return bool((_ABSENT_FIRMLY if after else _ABSENT).search(rest) or re.search(denied, rest, re.IGNORECASE))


def begins_absent(text: str) -> bool:
    """Whether the text begins with "absent", "none" or the like."""
    return bool(_ABSENT_HERE.match(text))


def is_refusal(text: str) -> bool:
    """Whether the text has the words of a refusal, in any of several languages."""
    return bool(_REFUSAL.search(text[:MAX_PROSE]))


def statements(text: str, keys: str) -> list[tuple[str, bool]]:
    """What follows the colon in lines that begin with one of `keys` (a pattern), and whether the text ends with it.

    If nothing follows in the line, the next lines that are not empty are taken instead, joined by commas.
    """
    pattern = re.compile(rf"(?i)[^:=\n]{{0,60}}?(?<![A-Za-z])(?:{keys})(?![A-Za-z])[^:=\n]{{0,40}}[:=](.*)")
    lines, found = text.split("\n"), []
    matches = [(i, match) for i, line in enumerate(lines) if (match := pattern.match(line))]
    for i, match in matches[-_MOST_STATEMENTS:]:
        rest, end = match[1], i + 1
        if not re.search(r"\w", rest):
            below = "\n".join(lines[end : end + _MOST_BELOW])
            rest = ", ".join(lines_of(below.lstrip().split("\n\n")[0]))
            end += _MOST_BELOW if rest else 0
        found.append((rest, end >= len(lines)))
    return found


def number_runs(text: str) -> list[list[tuple[str, float, bool]]]:
    """Runs of numbers that only separators and labels part: (label or "", number, whether it is a percentage)."""
    runs: list[list[tuple[str, float, bool]]] = []
    end = -1
    for match in _NUMBER.finditer(text, max(0, len(text) - MAX_PROSE)):
        if end < 0 or not _BETWEEN.fullmatch(text[end : match.start()][:40]) or match.start() - end > 39:
            runs.append([])
        runs[-1].append(
            ((match["label"] or "").lower().replace("_", ""), float(match["number"]), bool(match["percent"]))
        )
        end = match.end()
    return runs


def json_values(text: str, most: int = 300) -> list[Any]:
    """The JSON objects and lists in a text, in its order; of very many opening brackets the last `most` are tried."""
    decoder = json.JSONDecoder()
    values, end = [], 0
    for opening in [match.start() for match in _JSON_OPENING.finditer(text)][-most:]:
        if opening < end:
            continue
        try:
            value, end = decoder.raw_decode(text, opening)
        except (ValueError, RecursionError):
            continue
        values.append(value)
    return values


def _after_key(rest: str) -> Cells | None:
    """What a line says after its key: the list of cells that it begins with, "absent", or the cells of its prose."""
    listed = _list(rest)
    if listed:
        return listed
    if _ABSENT_HERE.match(rest):
        return Cells((), "a line", is_absent=True)
    cells, ranged = _prose(rest, "")
    return _cells(cells or ranged, "a line") if cells or ranged else None


def _lone(line: str) -> Cells | None:
    """A line that consists of cells, or of "absent", and nothing else."""
    key = _KEY_FIRST.match(line)
    rest = line[key.end() :] if key else line.lstrip(" \t-|>")
    listed = _list(rest)
    if listed and not re.search(r"\w", rest[listed.end :]):
        return Cells(listed.names, "the last line", reversed_order=listed.reversed_order)
    absent = _ABSENT_HERE.match(rest)
    return Cells((), "the last line", is_absent=True) if absent and not re.search(r"\w", rest[absent.end() :]) else None


def _list(text: str) -> Cells | None:
    names, end, turned = [], 0, False
    while match := _ITEM.match(text, end):
        column = match["column"] or match["column2"] or match["column3"]
        names.append(f"{column.upper()}{match['row'] or match['row2'] or match['row3']}")
        end, turned = match.end(), turned or bool(match["row3"])
        separator = _AND.match(text, end)
        if not separator or not _ITEM.match(text, separator.end()):
            break
        end = separator.end()
    return Cells(tuple(names), "a line", end, reversed_order=turned) if names else None


def _prose(text: str, last_cell: str) -> tuple[list[_Place], list[_Place]]:
    """(name, start, end) of the cells in prose outside ranges, and in ranges; what only looks like one is left out."""
    spans: dict[int, bool] = {}
    for span in _RANGE.finditer(text):
        inner = [f"{m[1].upper()}{m[2]}" for m in _TOKEN.finditer(text, span.start(), span.end())]
        whole = inner == ["A1", last_cell]
        spans |= {m.start(): whole for m in _TOKEN.finditer(text, span.start(), span.end())}
    cells, ranged = [], []
    for match in _TOKEN.finditer(text):
        before = text[max(0, match.start() - 60) : match.start()]
        sentence = re.split(r"[.!?]\s|\n", before)[-1]
        if _NO_CELL_AFTER.match(text, match.end()) or _NO_CELL_BEFORE.search(before):
            continue
        if _DENIED_BEFORE.search(before) or _EXAMPLE.search(sentence):
            continue
        found = (f"{match[1].upper()}{match[2]}", match.start(), match.end())
        if found[0] in ("A1", last_cell) and _CORNER_AFTER.match(text, match.end()):  # how the grid is lettered
            continue
        if match.start() not in spans:
            cells.append(found)
        elif not spans[match.start()]:
            ranged.append(found)
    return cells, ranged


def _cells(found: list[_Place], how: str) -> Cells:
    return Cells(tuple(name for name, _, _ in found), how, found[-1][2])


def lines_of(text: str) -> Iterator[str]:
    """Lines of bare text without their list marks, the empty ones left out."""
    for line in text.split("\n"):
        plain = re.sub(r"^\s*(?:[-+•>|]|\d{1,2}[.)])\s*", "", line).strip(" \t|")
        if plain:
            yield plain
