"""The cell that an answer names. Anything written like a cell is one here, in the grid or not, until the end.

Conventions
-----------
A cell is looked for in this order; the first place that names one decides, "outside" if it names only cells that the
grid does not have:

=====  ===================================================================  ==========================================
order  place                                                                which, of several cells
=====  ===================================================================  ==========================================
1      a line "Cell: D5" ("Answer: ...", JSON ``{"cell": "D5"}``, a boxed   the last such line; of a list right after
       answer; the words of other languages)                                the colon ("C4, D5", "C4-D5") its last
2      the last line, if it consists of cells                               the last
3      a sentence that states it ("the answer is D5", "most marked in       the last such sentence; its first cell
       D5", "I choose D5")
4      any line that consists of a cell                                     the last such line
5      the opening ("D5. The opacity ...")                                  only if no other line opens with a cell
6      the one cell that is bold, quoted or in backticks                    only if there is exactly one
7      a cell of the prose, outside ranges; no vertebra, lead, rib, format  the last one in the grid
8      a range ("C4 to D5") but for the grid's own ("A1 to H8")             its last
=====  ===================================================================  ==========================================

"Row 5, column D" and "(D, 5)" are D5 everywhere; "5D", "D 5" and full-width letters are read in places 1 and 2.
"Absent" is an answer only where the finding may be absent: said in places 1 and 2, or after the last cell of the prose.
The words of a refusal count where there is no cell. An answer that was cut off counts only if places 1 or 2 were
reached. "Text" is bare (:func:`reveal_bench.models.answer_cells.bare`).

The words of a model's answer, whatever was asked for: its plain text, JSON, refusals, "absent". Nothing is judged.

Conventions
-----------
Functions take text that :func:`without_thinking` and :func:`cleaned` went over, or, where they say so, :func:`bare`
text. Every pattern is bounded, so that time grows with the length of the text and no faster.

What an answer is read as: the one thing that all readers of answers make.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import Box, Point
from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.models.questions import AskSettings, Question

__all__ = [
    "MAX_CHARACTERS",
    "MAX_PROSE",
    "Reply",
    "STATUSES",
    "bare",
    "begins_absent",
    "cleaned",
    "is_refusal",
    "json_values",
    "lines_of",
    "noted",
    "nothing",
    "read_cell",
    "says_absent",
    "statements",
    "without_thinking",
]

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

KEY = (
    r"(?:(?<![A-Za-z])(?:grid[ _]?cell|cell|grid[ _]?coordinates?|coordinates?|answer|zelle|rasterzelle|gitterzelle"
    r"|antwort|cellule|réponse|celda|casilla|respuesta|cella|risposta|célula|resposta)(?![A-Za-z])"
    r"|单元格|格子|答案|セル|答え|回答|셀|정답|ответ|ячейка|الخلية|الإجابة)"
)
"""Words that an answer follows, in several languages; of a cell above all."""

_COLUMN, _ROW = r"\b(?:column|col|spalte|colonne|columna)\b", r"\b(?:row|zeile|reihe|ligne|rangée|fila)\b"
_IS = r"\W{0,6}?(?:is )?\W{0,4}?"
_COLUMN_ROW = re.compile(
    rf"(?i){_COLUMN}{_IS}\b([A-Z])\b\W{{0,6}}(?:and |und |et |in )?\W{{0,3}}{_ROW}{_IS}\b([0-9]{{1,2}})\b"
    rf"|{_ROW}{_IS}\b([0-9]{{1,2}})\b\W{{0,6}}(?:and |und |et |in )?\W{{0,3}}{_COLUMN}{_IS}\b([A-Z])\b"
)
_BRACKETED = re.compile(r"\(\s?([A-Za-z])\s?,\s?([0-9]{1,2})\s?\)")
_JSON_KEY = re.compile(rf"(?i)[\"']{KEY}[\"']\s{{0,3}}[:=]")
_KEY_INSIDE = re.compile(rf"(?i)(?<=[.!?])[ \t]{{1,3}}(?=(?:final )?{KEY}\s{{0,2}}[:=])")

_ABSENT_HERE = re.compile(
    r"(?i)[\W_]*(?:absent|none|null|not (?:present|visible|seen)|n/a|nicht vorhanden|keine?|aucune?|无|不存在|なし)\b"
)
_ABSENT_FIRMLY = re.compile(r"(?i)\bis (?:absent|not (?:present|there))\b|(?:^|\n)\W{0,9}absent\W{0,9}$")
_ABSENT = re.compile(
    r"(?i)(?<!not )\babsente?\b|\bnot (?:present|seen|visible|identified|detected|demonstrated|there)\b"
    r"|\bisn't (?:present|there|visible)\b"
    r"|\bno (?:evidence|signs?|indication|(?:(?:visible|obvious|clear|acute|significant) )?(?:abnormalit|patholog))"
    r"|^\W*none\W*$|nicht (?:vorhanden|nachweisbar|zu sehen)"
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
    """The text without markup; JSON keys, answer tags and LaTeX boxes become lines, "row 5, column D" becomes "D5"."""
    text = re.sub(r"<(answer|cell)>|\\boxed\{", "\nanswer: ", text, flags=re.IGNORECASE)
    text = re.sub(r"</(?:answer|cell)>", "\n", text, flags=re.IGNORECASE)
    text = re.sub(r"\\(?:text|mathrm|mathbf)\{|[*`$#]", "", text)
    text = re.sub(r"(?<=[A-Za-z])_(?=[0-9])", "", text).replace("_", " ")
    text = _KEY_INSIDE.sub("\n", _JSON_KEY.sub("\nanswer:", text))
    text = _BRACKETED.sub(r"(\1\2)", text)
    return _COLUMN_ROW.sub(lambda m: f"{m[1] or m[4]}{m[2] or m[3]}", text)


def says_absent(text: str, finding: str | None, *, after: int | None = None) -> bool:
    """Whether the text says that the finding is not there; in plain terms and at its end if there are cells before."""
    rest = text[after or 0 :]
    denied = rf"\b(?:no|without|(?:not|n't) see)(?: (?:evidence|signs?) of)?(?: \w+)? {re.escape(finding or ' ')}\b"
    return bool((_ABSENT_FIRMLY if after else _ABSENT).search(rest) or re.search(denied, rest, re.IGNORECASE))


def begins_absent(text: str, *, alone: bool = False) -> bool:
    """Whether the text begins with "absent", "none" or the like; with `alone`, whether it has no other word."""
    match = _ABSENT_HERE.match(text)
    return match is not None and not (alone and re.search(r"\w", text[match.end() :]))


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


def lines_of(text: str) -> Iterator[str]:
    """Lines of bare text without their list marks, the empty ones left out."""
    for line in text.split("\n"):
        plain = re.sub(r"^\s*(?:[-+•>|]|\d{1,2}[.)])\s*", "", line).strip(" \t|")
        if plain:
            yield plain


STATUSES = ("answered", "absent", "refused", "unclear", "outside", "cut_off", "empty", "failed")
"""What became of a question; "failed" (no answer came at all) is never the parser's."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer was read as.

    Attributes
    ----------
    status : of :data:`STATUSES`
    cell : name of a cell in the grid
    point : (x, y) in pixels of the full image
    box : [x, y, width, height] in pixels of the full image
    labels : spelt and ordered as the benchmark has them; empty for "none", None where there is no answer
    text : the answer to an open task without thinking, otherwise None
    boxes : of an open task, in pixels of the full images
    note : how the answer was read, if not as asked for, and what of it was passed over; "" if there is nothing to say
    """

    status: str
    cell: str | None = None
    point: Point | None = None
    box: Box | None = None
    labels: tuple[str, ...] | None = None
    text: str | None = None
    boxes: tuple[AnswerBox, ...] = ()
    note: str = ""


def noted(reply: Reply, *notes: str) -> Reply:
    """The reply with more notes; empty ones are left out."""
    return replace(reply, note="; ".join(note for note in (reply.note, *notes) if note))


def nothing(plain: str, question: Question, *, is_absent: bool) -> Reply:
    """The reply for an answer that has none of what was asked for."""
    if is_absent:
        return Reply("unclear", note="says that the finding is absent") if question.present else Reply("absent")
    return Reply("refused" if is_refusal(plain) else "unclear")


_LINE = re.compile(rf"(?i)(?P<lead>[^:=\n.!?]{{0,80}}?)(?P<key>{KEY})[^:=\n.!?0-9]{{0,60}}?\s*(?:[:=]|->|-)")
_KEY_FIRST = re.compile(rf"(?i)\W{{0,12}}{KEY}\W{{0,5}}(?=\w)")
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
    rf"(?i){KEY}[^.!?\n]{{0,60}}?(?:\b(?:is|be|ist|wäre|est|serait|es|è)\b|[:=是为])"
    r"|(?<![A-Za-z])(?:guess|choice|choose|chose|select|pick|go with|settle on|wähle|choisis|elijo"
    r"|most|best|besten|meisten|densest|greatest|clearest|centred|centered|deutlichsten|le plus)(?![A-Za-z])|选择|最"
)
_STATED_AFTER = re.compile(
    r"(?i)\s(?:is|seems|appears|looks|ist|est)\b[^.!?\n]{0,25}\b(?:most|best|densest|clearest|answer)\b"
)
_TURNS = re.compile(r"(?i)\b(?:followed|than|not|then|unlike|over|next|besides|with|nicht|pas|adjacent)\b")
_EMPHASISED = re.compile(r"(?i)(?:\*\*|__|`|\")\s?(?:cell\s)?([A-Za-z])([0-9]{1,2})\s?\.?(?:\*\*|__|`|\")")


_Place = tuple[str, int, int]
"""A cell's name, and where it starts and ends in the text."""


@dataclass(frozen=True, slots=True)
class _Cells:
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


def read_cell(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """The reply to a question whose answer is a cell; `plain` is cleaned text.

    Examples
    --------
    >>> question = Question("i1|Edema", "cell", (), "Edema")
    >>> read_cell("It spans C4 to E6 and is densest in D5.", question, AskSettings(), is_cut=False).cell
    'D5'
    """
    grid, text = Grid(settings.grid), bare(plain)
    statement = _stated(text, is_cut=is_cut)
    if statement and is_cut and _may_go_on(statement, text, grid):
        statement = None
    if statement:
        return _of_cells(statement, question, grid)
    if is_cut:
        return Reply("cut_off")
    text = text[-MAX_PROSE:]
    mention = _mentioned(text, plain, grid.cells)
    is_sure = mention is not None and mention.is_sure
    is_absent = says_absent(text, question.finding, after=mention.end if mention and is_sure else None)
    denied = (is_absent and not question.present) or (not is_sure and is_refusal(plain))
    return (
        nothing(plain, question, is_absent=is_absent) if denied or not mention else _of_cells(mention, question, grid)
    )


def _may_go_on(statement: _Cells, text: str, grid: Grid) -> bool:
    """Whether a cell at the very end of a cut answer may be the beginning of another one ("D1" of "D12")."""
    name = statement.names[-1] if statement.names else ""
    return len(name) == 2 and int(name[1]) * 10 <= grid.n and text.upper().endswith(name)


def _of_cells(found: _Cells, question: Question, grid: Grid) -> Reply:
    if found.is_absent:
        return nothing("", question, is_absent=True)
    known = frozenset(grid.cells)
    inside = [name for name in found.names if name in known]
    distinct = list(dict.fromkeys(found.names))
    notes = [] if found.how in ("a line", "the last line") else [f"read from {found.how}"]
    if len(distinct) > 1:
        others = ", ".join([name for name in distinct if name not in inside[-1:]][:10])
        notes.append(f"{len(distinct)} cells named, passed over: {others}")
    if found.reversed_order:
        notes.append("written with the row first")
    if inside:
        return Reply("answered", cell=inside[-1], note="; ".join(notes))
    return Reply("outside", note="; ".join([f"{distinct[-1]} is not in the {grid.n} x {grid.n} grid", *notes]))


def _stated(text: str, *, is_cut: bool = False) -> _Cells | None:
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


def _mentioned(text: str, marked: str, known: Sequence[str]) -> _Cells | None:
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
        return _Cells((name,), "a sentence that states it", end)
    own = [line for line in map(_lone, text.split("\n")) if line and in_grid.intersection(line.names)]
    if own:
        return replace(own[-1], how="a line of its own", end=end)
    opening = re.match(rf"\W{{0,5}}{_TOKEN.pattern}(?:\.| -)\s", text)
    if opening and len(re.findall(rf"(?m)^\W{{0,5}}{_TOKEN.pattern}", text)) == 1:
        return _Cells((f"{opening[1].upper()}{opening[2]}",), "the opening", end)
    emphasised = {f"{m[1].upper()}{m[2]}" for m in _EMPHASISED.finditer(marked)} & {name for name, _, _ in cells}
    if len(emphasised) == 1:
        return _Cells((emphasised.pop(),), "the one that is emphasised", end)
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


def _after_key(rest: str) -> _Cells | None:
    """What a line says after its key: the list of cells that it begins with, "absent", or the cells of its prose."""
    listed = _list(rest)
    if listed:
        return listed
    if begins_absent(rest):
        return _Cells((), "a line", is_absent=True)
    cells, ranged = _prose(rest, "")
    return _cells(cells or ranged, "a line") if cells or ranged else None


def _lone(line: str) -> _Cells | None:
    """A line that consists of cells, or of "absent", and nothing else."""
    key = _KEY_FIRST.match(line)
    rest = line[key.end() :] if key else line.lstrip(" \t-|>")
    listed = _list(rest)
    if listed and not re.search(r"\w", rest[listed.end :]):
        return _Cells(listed.names, "the last line", reversed_order=listed.reversed_order)
    return _Cells((), "the last line", is_absent=True) if begins_absent(rest, alone=True) else None


def _list(text: str) -> _Cells | None:
    names, end, turned = [], 0, False
    while match := _ITEM.match(text, end):
        column = match["column"] or match["column2"] or match["column3"]
        names.append(f"{column.upper()}{match['row'] or match['row2'] or match['row3']}")
        end, turned = match.end(), turned or bool(match["row3"])
        separator = _AND.match(text, end)
        if not separator or not _ITEM.match(text, separator.end()):
            break
        end = separator.end()
    return _Cells(tuple(names), "a line", end, reversed_order=turned) if names else None


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
        sentence = re.split(r"(?<!\be\.g)[.!?]\s|\n", before)[-1]
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


def _cells(found: list[_Place], how: str) -> _Cells:
    return _Cells(tuple(name for name, _, _ in found), how, found[-1][2])
