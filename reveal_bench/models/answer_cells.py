"""Find the grid cell that a model's answer names. At first, any text written like a cell counts, even outside the grid.

Conventions
-----------
The places below are searched in this order. The first place with a cell decides. The answer is "outside" if it names
only cells that the grid does not have.

=====  ===================================================================  ==========================================
order  place                                                                choice among several cells
=====  ===================================================================  ==========================================
1      a line "Cell: D5" ("Answer: ...", JSON ``{"cell": "D5"}``, a boxed   the last such line; if a list follows the
       answer; the words of other languages), or a correction that names    colon ("C4, D5", "C4-D5"), its last cell
       its cell at once ("Wait, D5"), or states it ("it should be D5")
2      the last line, if it consists of cells                               the last
3      a sentence that states D5 ("the answer is D5", "most marked in       the last such sentence; its first cell
       D5", "I choose D5")
4      any line that consists of a cell                                     the last such line
5      the opening ("D5. The opacity ...")                                  only if no other line opens with a cell
6      the one cell that is bold, quoted or in backticks                    only if there is exactly one
7      a cell in prose outside ranges (no vertebra, lead, rib or example)   the last of a list ("C4 and D5");
                                                                            none of cells in different clauses
8      a range ("C4 to D5") except the grid's own ("A1 to H8")              its last cell
=====  ===================================================================  ==========================================

A ranking in the line or text comes before these choices: a numbered list that begins with cells, a probability beside
every cell, or words such as "primary", "most likely", "less likely" and "than" (:func:`_ranked_first`).

JSON that chooses a cell is replaced by it first, and parts about other findings are left out
(:mod:`reveal_bench.models.answer_choices`).
"Row 5, column D", "fourth column, fifth row" and "(D, 5)" mean D5 everywhere
(:mod:`reveal_bench.models.answer_columns`); "5D", "D 5" and full-width letters are read in places 1 and 2. A cell that
the text calls clear or normal counts only if it is the only one.
"Absent" is an answer only if the finding may be absent, and only in places 1 and 2, or after the last cell of the
prose. Refusal wording counts only if the answer has no cell. If an answer was cut off, only places 1 and 2 are
searched. The search uses bare text (:func:`reveal_bench.models.answer_words.bare`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reveal_bench.geometry import Grid
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answer_choices import with_chosen_cell
from reveal_bench.models.answer_words import (
    CELL,
    KEY,
    MAX_PROSE,
    Reply,
    bare,
    begins_absent,
    is_refusal,
    noted,
    nothing,
    says_absent,
)
from reveal_bench.models.questions import AskSettings

_LINE = re.compile(rf"(?i)(?P<lead>[^:=\n.!?]{{0,80}}?)(?P<key>{KEY})[^:=\n.!?0-9]{{0,60}}?\s*(?:[:=]|->|-)")
_OTHER = re.compile(
    r"(?i)alternativ|second|other|runner|adjacent|neighbo|next|2nd|example|format|such as|e\.g|\blike\b|\bnot\b|instead"
    r"|zweit|nachbar|beispiel|exempl"
)

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
    rf"(?i){CELL.pattern}[ \t]{{0,3}}(?:-|~|to|through|thru|until|bis|à|hasta|至|到|から)[ \t]{{0,3}}(?:cell )?"
    rf"(?:{CELL.pattern.replace('(?<![A-Za-z0-9])', '')}|[0-9]{{1,2}}(?![A-Za-z0-9]))"
    rf"|(?:between|zwischen|entre) {CELL.pattern} (?:and|und|et|y) {CELL.pattern}"
)
_NO_CELL_AFTER = re.compile(
    r"(?i)[\s-]{0,2}(?:[A-Z]?\d{1,2} )?(?:vertebra|spin(?:e|al)\b|dis[ck]s?\b|leads?\b|ribs?\b|nerve|level|dermatome"
    r"|end ?plate|electrode|segment|stage|sound|wirbel)"
)
_NO_CELL_BEFORE = re.compile(
    r"(?i)(?:vertebrae?|vertebral (?:body|level)|leads?|ribs?|vitamin|stage|segment|ha?emoglobin|spine|dis[ck]|sound"
    r"|electrode|icd-?10|wirbel|step|type|grade|section|policy|paragraph|clause|article|appendix|category|table"
    r"|figure|rule)\s$"
)
_CORNER_AFTER = re.compile(r"(?i)\W{1,3}(?:is |in |being |at )?(?:the )?(?:top|upper|bottom|lower)[ -](?:left|right)")
_DENIED_BEFORE = re.compile(
    r"(?i)(?:\b(?:not(?! only| just)|nor|neither|none|nothing|instead of|rather than|no (?!doubt)\w+|nicht|weniger"
    r"|statt|pas|et non|e non|y no|no es|non è|não é|niet|não|не|nie|inte|ikke|bukan|không phải|و?ليست?)|n't)"
    r"\s(?:in |في |at |em |en |dans |na |no |nella |в )?(?:the |der |la |le |de |a )?(?:cell |cel |case |zelle "
    r"|célula |celda |cella |casilla |ячейке |ruta |ô |kotak )?$|不是$|\bwhether\b[^,;.!?]{0,40}$"
)
_IS = r"(?:is|are|ist|sind|est|sont|es|está|è|é|är|looks?|appears?|seems?|remains?|bleibt|reste)"
_DENIED_AFTER = re.compile(
    rf"(?i)(?:(?:, {CELL.pattern}){{0,5}},? (?:and|or|nor|und|et|y|e) (?:cell )?{CELL.pattern})?"
    rf"(?:\s?[:|(-]?\s{{0,3}}(?:{_IS} )?(?:both |all |also |quite |completely |entirely )?"
    r"(?:clear|clean|normal\w?|sharp|unremarkable|spared|lucent|uninvolved|wrong|incorrect|free|frei|unauffällig|libres?|liber[oa]|livre"
    r"|limpi[oa]|vrij|prawidłow\w|wolny|(?:\w{1,12} )?(?:свобод|чист|норм)\w{0,5})"
    r"(?=\W{0,3}(?:$|[.,;|)\n]|and|but|und|et|y))"
    r"|[\"'`*]{1,2} (?:is|was) (?:wrong|incorrect|not)\b"
    rf"|\s{_IS} (?:outside|beyond)\b|\s?[:|(?]\s{{0,3}}(?:no|none|nein|non|negative|absent|false)\b"
    r"|\s(?:do|does|did)(?:n't| not) (?:show|have|contain|look|seem|appear|quite)"
    r"|\s(?:shows?|has|contains) (?:only|no|normal|just|merely)\b|\s?[:|]?\s{0,3}[✗✘❌✖]"
    r"|\s?(?:では(?:なく|あり|ない)|[가이]?\s?아니|(?:'\w{1,4} )?değil|नहीं))"
)
_NONE_AFTER = re.compile(
    r"(?i)[^.!?\n]{0,80}(?:\bno\w{0,5}\b[^.!?\n]{0,40}\b(?:any|either) of (?:them|these|those)\b"
    r"|[.;:,] n(?:one|either) of (?:them|these|those|which|the two)\b)"
)
_EXAMPLE = re.compile(
    r"(?i)such as|would read|e\.g|example|for instance|(?<!looks )\blike\b|format|beispiel|z\.B|exempl"
)

_ROW_COLUMN = re.compile(r"(?i)\b(?:R[0-9]{1,2}[ ,;]{0,3}C[0-9]{1,2}|C[0-9]{1,2}[ ,;]{0,3}R[0-9]{1,2})\b")
_COLUMN_R = 18
"""Number of the column R: in a smaller grid, R5 is row 5."""

_STATING = re.compile(
    rf"(?i){KEY}[^.!?\n]{{0,60}}?(?:\b(?:is|be|ist|wäre|est|serait|es|è)\b|[:=是为])"
    r"|(?<![A-Za-z])(?:guess|choice|choose|chose|select|pick|go with|settle on|wähle|choisis|elijo"
    r"|(?:so|thus|hence|therefore),? (?:it's|it is|it must be)|selected|chosen|se trouve|plutôt|eher|piuttosto"
    r"|most|best|besten|meisten|densest|greatest|clearest|thickest|largest|brightest|strongest|worst|centred"
    r"|centered|deutlichsten|le plus)(?![A-Za-z])|选择|最"
)
_STATED_AFTER = re.compile(
    r"(?i)\s(?:is|seems|appears|looks|ist|est)\b[^.!?\n]{0,25}\b(?:most|better|best|densest|clearest|answer"
    r"|more (?:convincing|conspicuous|likely|obvious|pronounced|suspicious|prominent))\b"
    r"|[にが]?\s?最|\sdoes\b(?! not|n't)|\?\s(?:yes|ja|sí|oui|да|так)\b"
)
_SAID_BEFORE = re.compile(
    r"(?i)\b(?:it|finding|one) (?:is|lies|sits) (?:best |clearly )?(?:seen |visible )?(?:in|at) (?:cell )?$"
)
_ALONE = re.compile(
    r"(?i)\s(?:is|ist|est|es|è|é|shows|has|looks|appears|seems|remains)\b|\s?[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
)
_TURNS = re.compile(r"(?i)\b(?:followed|than|not|then|unlike|over|next|besides|with|nicht|pas|adjacent)\b")
_FIRST_AFTER = re.compile(
    r"(?i)\s?(?:\|[^|\n]{0,60}\|\s?|(?:→|->)\s?)?\(?(?:is )?(?:the )?(?:most|best|primary|main|strongest|highest"
    r"|top choice|first choice|densest)\b|\s?[:|(]\s{0,3}(?:yes|true|positive|present|high|definite)\b"
    r"|\s(?:mostly|mainly|predominantly|primarily)\b|\s?[:|]?\s{0,3}[✓✔✅]"
)
_FIRST_BEFORE = re.compile(
    r"(?i)(?:^|[\n;,.]|\bmy )\s{0,3}(?:primary|main|first|1st|best|top|most likely)\b[^:\n,;]{0,20}[:=]\W{0,4}$"
    r"|\b(?:primary|main|first|best|top|most likely) (?:choice|pick|candidate|cell) (?:is|would be) (?:cell )?$"
    r"|\b(?:most likely|(?:first|top) choice|best guess)(?: in| at)?(?: cell)? $|\[[xX]\]\s?$"
)
_LESSER_AFTER = re.compile(
    r"(?i)\s?(?:(?:→|->)\s?)?\(?(?:possibl[ey]|less|lesser|maybe|perhaps|secondary|second|alternative|unlikely|adjacent"
    r"|(?:as (?:an? |the )?)?(?:runner|alternative|second)|to a lesser)\b"
    r"|\s(?:is|are|was|looks?|seems?|appears?)(?: \w+)? (?:just|only|merely|simply|unlikely"
    r"|(?:probably |likely )?(?:a |an |the )?(?:rib|vessel|nipple|art[ei]fact|overlap|skin fold|hil(?:um|ar)))\b"
    r"|\s(?:can|could) be (?:excluded|ruled out|dismissed|discounted)\b"
)
_LESSER_BEFORE = re.compile(
    r"(?i)(?:less(?:er)? (?:likely|extent|so|degree)|secondar(?:y|ily)|(?:second|third|fourth|2nd|3rd)(?: choice)?"
    r"|alternatively?|(?:possibly|perhaps|maybe)(?: also| even)?|runner-up|followed by|a (?:little|bit)|slightly|partly"
    r"|(?:and|but) also|(?:could|might|may) also be|(?:bordered|bounded|flanked) by"
    r"|(?:small|slight|low|lower|outside|remote|some) (?:chance|probability|possibility) (?:of|for|that it(?:'s| is)))"
    r"\W{0,4}(?:in |at |by |is )?(?:cell )?$"
)
_BESIDE = re.compile(
    r"(?i)\b(?:over|versus|vs\.?|unlike|compared (?:to|with)|near|beside|alongside|next to|adjacent to"
    r"|neighbou?r(?:s|ing)?|(?:extend|reach|spill)\w* (?:in|on)?to|[cm]m (?:above|below|from)[^.,;!?\n]{0,30} at)"
    r" (?:the )?(?:cell )?$"
)
_NEXT = re.compile(rf"(?i)(?: on (?:the|its) (?:left|right))?{_AND.pattern.removeprefix('(?i)')}")
_ALSO_BESIDE = re.compile(r"(?i)\s(?:and|or|nor)\s(?:cell )?")
_CORRECTION = re.compile(
    r"(?i)(?:^|[.!?]\s|。)\W{0,5}(?:(?:correction|edit|wait|actually|on second thought|I meant?"
    r"|let me (?:correct|recount|recheck|re-?examine|reconsider|look again|double-check)"
    r"|scratch that|(?:no|nope|non|nein|nej|nee),)(?!\w)|更正|корекція|поправка"
    r"|(?:sorry|apolog\w{1,5}|my mistake|my apologies|oops|perdón|pardon|désolée?|entschuldigung|scusa\w{0,2}"
    r"|desculp\w)\b(?=[^.!?\n]{0,80}\b(?:misread|should|meant?|mistake|quise|quería|meinte"
    r"|voulais|volevo|quis|queria|corr[ei]\w*)\b))"
)
# A correction names its cell at once, or says "should be D5"; "Wait, E6 is the heart" corrects nothing
_CORRECTED_BEFORE = re.compile(
    r"(?i)(?:^|[:;→]|->|\bshould (?:be|read|say|have (?:been|read|said))\b|\b(?:meant?|it(?:'s| is))\b|应为|应该是)"
    rf"\W{{0,6}}(?:(?:i|we|my|it|that|this|the|an?|new|now|no|yes|not|but|rather|really|actually|sorry|wait|{CELL.pattern}|cell|grid"
    r"|answer|choice|finding|lesion|opacity|abnormality|haze|nodule|mass|density|shadow|is|was|be|in|at|to|say|mean|would"
    r"|should|will|(?<!not )(?:lies|sits|seen|located|centere?d|appears|seems|best|more|mostly)"
    r"|choose|pick|select|go|with|it's|i'd|ich|meinte|quise|quería|decir|je|voulais|volevo|dire|quis|queria|dizer|es|é|è"
    r"|ist|c'est|corr[ei]\w{1,5}|la|le|el|o|il|die|der|das|celda|casilla|zelle|case|cella|célula)\W{1,4}){0,10}$"
)
_CORRECTS_NOTHING = re.compile(
    rf"(?i)(?:(?:,| and| or) {CELL.pattern}){{0,5}}\s"
    r"(?:(?:also|too|merely)\s|(?:(?:still|only|just|clearly)\s)?"
    r"(?:is|are|was|were|has|have|shows?|contains?|looks?|seems?|could|can|may|might)\b"
    r"(?:[^.!?\n]{0,30}\b(?:also|less|only|just|too)\b|(?![^.!?\n]{0,30}\b(?:answer|finding|cell|choice|pick|one|it"
    r"|right|correct|better|best|more|most|denser|hazier|whiter|lesion|opacity|abnormality|nodule|haze)\b)))"
)
_COMPARED = re.compile(
    r"(?i)(?:\bthan\b|\b(?:más|mejor|mayor|plus|mieux|mais|melhor|più|meglio|mehr|besser|stärker|deutlicher|meer|beter)\b"
    r"[^.!?;\n]{0,40}\b(?:que|als|che|dan)\b)[^.!?;\n]{0,12}$"
)
# "C4 is less dense than" D5 makes C4 the lesser cell; "C4 is darker than" D5 says nothing, as the finding may be dark
_LESS_THAN = re.compile(
    r"(?i)(?:(?<!\bno )(?<!\bnot )\b(?:less(?:er)?|fewer|fainter|weaker|smaller|lower(?! than)|thinner|milder|subtler"
    r"|weniger|schwächer|moins|menos|meno|minder)\b(?:(?!\bthan|\bmore\b|[.!?;\n]).){0,40}\b(?:than|als|que|che|dan)\b"
    r"|(?:\bnot|n't) (?:quite |nearly )?(?:as|so)\b[^.!?;\n]{0,30}\bas\b)[^.!?;\n]{0,12}$"
)
_OTHERWISE_THAN = re.compile(
    r"(?i)(?<!which is )\b(?:(?:dark|light|clear|black|sharp|clean|low)er|more (?:lucent|normal|aerated)|better aerated"
    r"|no \w{2,12}er) than\b[^.!?;\n]{0,12}$"
)
# "Compared with D5, C4 is less dense" makes C4 the lesser cell
_LESS_AFTER = re.compile(
    r"(?i),[^.!?;\n]{0,40}\b(?:less|fainter|weaker|smaller|lower|thinner|milder|subtler|darker|lighter|clearer|sharper)\b"
)
# The number of a list before a cell, and the probability after it
_RANK = re.compile(r"(?:(?<=\s)|^)\W{0,3}([0-9])(?:[.):]|\s?\|)\s{0,3}\W{0,3}$")
_DESCENDING = re.compile(
    r"(?i)\b(?:ranked|ranking|(?:in|by) (?:descending |decreasing )?(?:order|likelihood|probability|confidence)"
    r"|most (?:likely )?(?:first|to least)|top[- ]?[2-9])\b[^:.!?\n]{0,40}:\W{0,6}$"
)
_ASCENDING = re.compile(r"(?i)\b(?:ascending|increasing|least (?:likely )?(?:first|to most))\b[^:.!?\n]{0,60}:\W{0,6}$")
_CHANCE = re.compile(
    r"\s{0,3}[:=(|-]?\s{0,3}\(?(?:(0?\.[0-9]{1,6}|1\.0{1,6})(?![0-9])|([0-9]{1,3}(?:\.[0-9]{1,3})?)\s?%|([★⭐●█■]{1,20}))"
)
_CHANCE_BEFORE = re.compile(r"(?<![0-9.])()([0-9]{1,3}(?:\.[0-9]{1,3})?)\s?%\s(?:for |in |at )?()$")
_EMPHASISED = re.compile(r"(?i)(?:\*\*|__|`|\")\s?(?:cell\s)?([A-Za-z])([0-9]{1,2})\s?\.?(?:\*\*|__|`|\")")


_Place = tuple[str, int, int]
"""A cell's name, its start and its end in the text."""


@dataclass(frozen=True, slots=True)
class _NamedCells:
    """Names of cells such as "D5" in a part of an answer, in order; `is_absent` is True if the part says "absent".

    `how` describes the part; `end` is the position in the text after the last cell. `is_sure` is False if the cells are
    only the bounds of a range, or none of them is in the grid. `reversed_order` is True if a cell is written with the
    row first, as "5D". `is_answer` is False if the cells are in several clauses and nothing tells which one is meant.
    """

    names: tuple[str, ...]
    how: str
    end: int = 0
    is_absent: bool = False
    is_sure: bool = True
    reversed_order: bool = False
    is_answer: bool = True


def read_cell(plain: str, question: Question, settings: AskSettings, is_cut: bool) -> Reply:
    """Return the reply to a question whose answer is a cell; `plain` is cleaned text.

    Examples
    --------
    >>> question = Question("i1|Edema", "cell", (), "Edema")
    >>> read_cell("It spans C4 to E6 and is densest in D5.", question, AskSettings(), is_cut=False).cell
    'D5'
    """
    grid = Grid(settings.grid)
    if grid.n < _COLUMN_R and (numbered := _ROW_COLUMN.search(bare(plain))):
        reply = read_cell(_ROW_COLUMN.sub("...", plain), question, settings, is_cut)
        return noted(reply, f'passed over "{numbered[0]}": columns have letters')
    plain, note = with_chosen_cell(plain, question.finding or "")
    return noted(_read_words(plain, question, grid, is_cut), note)


def _read_words(plain: str, question: Question, grid: Grid, is_cut: bool) -> Reply:
    """Return the reply in a text whose JSON with a choice of cells has been replaced by the chosen cell."""
    text = bare(plain)
    statement = _stated(text, question.finding or "finding", is_cut=is_cut)
    if statement and is_cut and _may_go_on(statement, text, grid):
        statement = None
    if statement:
        return _reply(statement, question, grid)
    if is_cut:
        return Reply("cut_off")
    text = text[-MAX_PROSE:]
    mention = _mentioned(text, plain, grid.cells)
    is_sure = mention is not None and mention.is_sure
    is_absent = says_absent(text, question.finding, after=mention.end if mention and is_sure else None)
    denied = (is_absent and not question.present) or (not is_sure and is_refusal(plain))
    return nothing(plain, question, is_absent=is_absent) if denied or not mention else _reply(mention, question, grid)


def _may_go_on(statement: _NamedCells, text: str, grid: Grid) -> bool:
    """Return True if the last cell of a truncated answer may itself be truncated ("D1" from "D12")."""
    name = statement.names[-1] if statement.names else ""
    return len(name) == 2 and int(name[1]) * 10 <= grid.n and text.upper().endswith(name)


def _reply(named: _NamedCells, question: Question, grid: Grid) -> Reply:
    if named.is_absent:
        return nothing("", question, is_absent=True)
    known = frozenset(grid.cells)
    inside = [name for name in named.names if name in known]
    distinct = list(dict.fromkeys(named.names))
    if not named.is_answer:
        return Reply("unclear", note=f"{len(distinct)} cells in prose, none of them stated: {', '.join(distinct[:10])}")
    notes = [] if named.how in ("a line", "the last line") else [f"read from {named.how}"]
    if len(distinct) > 1:
        others = ", ".join([name for name in distinct if name not in inside[-1:]][:10])
        notes.append(f"{len(distinct)} cells named, passed over: {others}")
    if named.reversed_order:
        notes.append("written with the row first")
    if inside:
        return Reply("answered", cell=inside[-1], note="; ".join(notes))
    return Reply("outside", note="; ".join([f"{distinct[-1]} is not in the {grid.n} x {grid.n} grid", *notes]))


def _stated(text: str, finding: str, *, is_cut: bool = False) -> _NamedCells | None:
    """Return the answer in the last line such as "Cell: D5", otherwise in the last line if it contains nothing else.

    `text` is bare. If the answer was cut off, the last line counts only if there is no other line.
    """
    lines = [line for line in text.split("\n") if line.strip(" \t\"'.-|>~{}[]()")]
    lone = [line if _lone(line) else "" for line in [*lines[1:], "", ""]]
    lines = [
        f"{line} {lone[i]}" if line.rstrip().endswith(":") and lone[i] and not lone[i + 1] else line
        for i, line in enumerate(lines)
    ]
    for line in reversed(lines):
        if correction := _correction(line[-MAX_PROSE:], finding):
            return correction
        match = _LINE.match(line)
        if not match or _OTHER.search(match["lead"] + line[match.end("key") : match.end()]):
            continue
        if after := _ranked_line(line) or _after_key(line[match.end() :]):
            return after
    if not lines or (is_cut and len(lines) > 1):
        return None
    return _lone(lines[-1])


def _correction(line: str, finding: str) -> _NamedCells | None:
    """Return the cells that follow a line's last word of correction, or that the correction states."""
    name = "|".join(map(re.escape, (finding, *finding.split()[-1:])))
    ends = [match.end() for match in _CORRECTION.finditer(line)]
    text = re.sub(rf"(?i)\b(?:{name})\b", "finding", line[ends[-1] :]) if ends else ""
    cells = [cell for cell in _prose(text, "")[0] if not _DENIED_AFTER.match(text, cell[2])]
    if cells and (stated := _stated_in_prose(text, cells)):
        return _NamedCells((stated,), "a correction")
    at_once = [
        _CORRECTED_BEFORE.search(text[:start]) and not _CORRECTS_NOTHING.match(text, end) for _, start, end in cells
    ]
    return (_ranked_first(text, cells) or _cells(cells, "a correction")) if any(at_once) else None


def _mentioned(text: str, marked: str, known: Sequence[str]) -> _NamedCells | None:
    """Return the cells named in prose; `marked` is the text with markup, and `known` lists the grid's cells in order.

    A range from the first to the last cell of the grid is the grid itself and names no cell.
    """
    named, ranged = _prose(text, known[-1])
    in_grid = frozenset(known)
    cells = [cell for cell in named if cell[0] in in_grid]
    if not cells:
        rest = ranged or [cell for cell in named if text[cell[1]].isupper()]
        return replace(_cells(rest, "a range" if ranged else "prose"), is_sure=False) if rest else None
    end = cells[-1][2]
    if len(cells) > 1 and (first := _ranked_first(text, cells)):
        return first
    if name := _stated_in_prose(text, cells):
        return _NamedCells((name,), "a sentence that states it", end)
    own = [line for line in map(_lone, text.split("\n")) if line and in_grid.intersection(line.names)]
    if own:
        return replace(own[-1], how="a line of its own", end=end)
    opening = re.match(rf"\W{{0,5}}{CELL.pattern}(?:\.| -)\s", text)
    if opening and len(re.findall(rf"(?m)^\W{{0,5}}{CELL.pattern}", text)) == 1:
        return _NamedCells((f"{opening[1].upper()}{opening[2]}",), "the opening", end)
    emphasised = {f"{m[1].upper()}{m[2]}" for m in _EMPHASISED.finditer(marked)} & {name for name, _, _ in cells}
    if len(emphasised) == 1:
        return _NamedCells((emphasised.pop(),), "the one that is emphasised", end)
    return _unranked(text, cells, "prose")


def _unranked(text: str, cells: list[_Place], how: str) -> _NamedCells:
    """Return cells that nothing ranks; those of several clauses, in contrast to those of one list, are no answer."""
    gaps = [text[a[2] : b[1]] for a, b in pairwise(cells) if a[0] != b[0]]
    is_clause = bool(gaps) and gaps[-1].strip() == "," and _ALONE.match(text, cells[-1][2])
    is_said = [cell for cell in cells if _SAID_BEFORE.search(_before(text, cell[1]))] == cells[-1:]
    apart = not is_said and (is_clause or any(not _AND.fullmatch(gap) for gap in gaps))
    return replace(_cells(cells, how), is_answer=not apart)


def _stated_in_prose(text: str, cells: list[_Place]) -> str | None:
    """Return the cell of the last sentence that states one ("the answer is D5", "I choose D5", "D5 is the densest")."""
    known = {start: name for name, start, _ in cells}
    for statement in reversed(list(_STATING.finditer(text))):
        token = CELL.search(text, statement.end(), statement.end() + 50)
        if token is None or token.start() not in known:
            continue
        between = text[statement.end() : token.start()]
        lead = text[max(0, statement.start() - 30) : statement.start()].rpartition(".")[2]
        if not (re.search(r"[.!?\n。]", between) or _TURNS.search(between) or _OTHER.search(lead + statement[0])):
            return known[token.start()]
    after = [name for name, _, end in cells if _STATED_AFTER.match(text, end)]
    return after[-1] if after else None


def _ranked_line(line: str) -> _NamedCells | None:
    """Return the cells of a line such as "Ranked cells: D5, E5", the first of them last; None for other lines."""
    cells = _prose(line[:MAX_PROSE], "")[0] if _DESCENDING.search(line.partition(":")[0] + ":") else []
    ranked = _ranked_first(line, cells) if len(cells) > 1 else None
    return None if ranked is None else replace(ranked, how="a line")


def _after_key(rest: str) -> _NamedCells | None:
    """Parse the text after a line's key: the cells at its beginning, "absent", or the cells in its prose."""
    listed = _list(rest)
    cells, ranged = _prose(rest[:MAX_PROSE], "")
    is_ranked = not listed or len(listed.names) > 1 or _LESS_THAN.search(_before(rest, cells[-1][1] if cells else 0))
    if len(cells) > 1 and is_ranked and (first := _ranked_first(rest, cells)):
        return replace(first, how="a line")
    named = CELL.search(rest)
    is_denied = bool(named and cells and cells[0][1] > named.start() and _DENIED_AFTER.match(rest, named.end()))
    if listed and not is_denied:
        return listed
    if begins_absent(rest):
        return _NamedCells((), "a line", is_absent=True)
    return _unranked(rest, cells or ranged, "a line") if cells or ranged else None


def _ranked_first(text: str, cells: list[_Place]) -> _NamedCells | None:
    """Return the cells with the one that the text ranks first at the end; None if the text has no ranking."""
    best = _first_by_number(text, cells) if len(cells) > 1 else None
    if best is None:
        best = _first_by_words(text, cells)
    if best is None:
        return None
    others = [name for i, (name, _, _) in enumerate(cells) if i != best]
    return _NamedCells((*others, cells[best][0]), "a ranking", cells[-1][2])


def _first_by_number(text: str, cells: list[_Place]) -> int | None:
    """Return the index of the cell numbered 1 in a numbered list of cells, or of the most probable cell; or None."""
    marks = [_RANK.search(_before(text, start)) for _, start, _ in cells]
    if [int(mark[1]) if mark else 0 for mark in marks] == list(range(1, len(cells) + 1)):
        return 0
    head = text[max(0, cells[0][1] - 120) : cells[0][1]]
    if all(_AND.fullmatch(text[a[2] : b[1]]) for a, b in pairwise(cells)):
        if _ASCENDING.search(head):
            return len(cells) - 1
        if _DESCENDING.search(head):
            return 0
    if all(re.fullmatch(r"\s?[>≥]\s?", text[a[2] : b[1]]) for a, b in pairwise(cells)):
        return 0
    for chances in (
        [_CHANCE.match(text, end) for *_, end in cells],
        [_CHANCE_BEFORE.search(_before(text, start)) for _, start, _ in cells],
    ):
        values = [float(m[1]) if m[1] else float(m[2]) / 100 if m[2] else len(m[3]) for m in chances if m]
        if len(values) == len(cells):
            return values.index(max(values))
    return None


def _first_by_words(text: str, cells: list[_Place]) -> int | None:
    """Return the index of the only cell called the first, or of the last cell not called a lesser one; or None."""
    leading, lesser = list[int](), list[int]()
    joins: re.Pattern[str] | None = None  # what joins a cell to the lesser one before it
    for i, (_, start, end) in enumerate(cells):
        before = _before(text, start)
        if _LESSER_BEFORE.search(before):
            joins = _NEXT
        elif _OTHERWISE_THAN.search(before) or (_BESIDE.search(before) and _LESS_AFTER.match(text, end)):
            return None
        elif i and _LESS_THAN.search(before):
            first = max((j for j in range(1, i) if not _AND.fullmatch(text, cells[j - 1][2], cells[j][1])), default=0)
            lesser += range(first, i)
        elif _BESIDE.search(before) or _COMPARED.search(before):
            joins = _ALSO_BESIDE
        elif not (joins and joins.fullmatch(text, cells[i - 1][2], start)):
            joins = None
        if joins or _LESSER_AFTER.match(text, end):
            lesser.append(i)
        if _FIRST_AFTER.match(text, end) or _FIRST_BEFORE.search(before):
            leading.append(i)
    if len(leading) == 1:
        return leading[0]
    others = [i for i in range(len(cells)) if i not in lesser]
    is_one = others and _unranked(text, [cells[i] for i in others], "").is_answer
    return others[-1] if lesser and is_one else None


def _before(text: str, start: int) -> str:
    """Return the 80 characters before a cell."""
    return text[max(0, start - 80) : start]


def _lone(line: str) -> _NamedCells | None:
    """Parse a line that consists only of cells, or only of "absent"."""
    rest = line.lstrip(" \t-|>")
    listed = _list(rest)
    if listed and not re.search(r"[\w★⭐●█■✓✔✅✗✘❌✖]", rest[listed.end :]):
        return _NamedCells(listed.names, "the last line", reversed_order=listed.reversed_order)
    return _NamedCells((), "the last line", is_absent=True) if begins_absent(rest, alone=True) else None


def _list(text: str) -> _NamedCells | None:
    names, end, turned = [], 0, False
    while match := _ITEM.match(text, end):
        column = match["column"] or match["column2"] or match["column3"]
        names.append(f"{column.upper()}{match['row'] or match['row2'] or match['row3']}")
        end, turned = match.end(), turned or bool(match["row3"])
        separator = _AND.match(text, end)
        if not separator or not _ITEM.match(text, separator.end()):
            break
        end = separator.end()
    return _NamedCells(tuple(names), "a line", end, reversed_order=turned) if names else None


def _prose(text: str, last_cell: str) -> tuple[list[_Place], list[_Place]]:
    """Return the cells in prose outside ranges and the cells in ranges, without texts that only look like cells."""
    spans: dict[int, bool] = {}
    for span in _RANGE.finditer(text):
        inner = [f"{m[1].upper()}{m[2]}" for m in CELL.finditer(text, span.start(), span.end())]
        whole = inner == ["A1", last_cell]
        spans |= {m.start(): whole for m in CELL.finditer(text, span.start(), span.end())}
    cells, ranged, denied = list[_Place](), list[_Place](), list[_Place]()
    for match in CELL.finditer(text):
        before = text[max(0, match.start() - 60) : match.start()]
        sentence = re.split(r"(?<!\be\.g)[.!?]\s|\n", before)[-1]
        if _NO_CELL_AFTER.match(text, match.end()) or _NO_CELL_BEFORE.search(before):
            continue
        if _DENIED_BEFORE.search(before) or _EXAMPLE.search(sentence) or _NONE_AFTER.match(text, match.end()):
            continue
        cell = (f"{match[1].upper()}{match[2]}", match.start(), match.end())
        if cell[0] in ("A1", last_cell) and _CORNER_AFTER.match(text, match.end()):  # this only describes the grid
            continue
        if match.start() not in spans:
            (denied if _DENIED_AFTER.match(text, match.end()) else cells).append(cell)
        elif not spans[match.start()]:
            ranged.append(cell)
    return cells or denied, ranged  # "is clear" may also mean that the finding is


def _cells(places: list[_Place], how: str) -> _NamedCells:
    return _NamedCells(tuple(name for name, _, _ in places), how, places[-1][2])
