"""Recognise plain text, JSON, refusals and "absent" in answers to any question; :class:`Reply` is a parsed answer.

Conventions
-----------
Functions take text that :func:`without_thinking` and :func:`cleaned` have processed, or, where stated, :func:`bare`
text. Every pattern is bounded, so that parsing takes time linear in the length of the text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

from reveal_bench.kinds.detection.records import ScoredBox
from reveal_bench.kinds.localization.records import Box, Point
from reveal_bench.kinds.questions import Question
from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.models.answer_columns import with_cells_named

MAX_CHARACTERS, MAX_PROSE = 200_000, 20_000
"""Maximum number of an answer's last characters that are read, and of the characters in which prose is searched."""
_MOST_BELOW, _MOST_STATEMENTS, _MOST_LOOSE = 40, 20, 60_000

_THOUGHT_TAG = r"(?:think|thinking|thought|reasoning|seed:think|analysis|scratchpad|reflection)"
# Gemma 4 writes <|channel>thought ... <channel|>; a server that drops Harmony's tokens, "analysis...assistantfinal...".
_THOUGHT = re.compile(
    rf"(?i)(?P<open><(?:{_THOUGHT_TAG}|unused94)>|◁think▷|\[THINK\]|<\|begin_of_thought\|>|<\|channel>thought\b"
    r"|<\|channel\|>(?:analysis|commentary)\b[^<]{0,40}<\|message\|>|\A\s{0,9}(?-i:analysis(?=[A-Z\"']))"
    r"|\A\s{0,9}Thinking\.{3}\s{0,9}\n)"
    rf"|(?P<close></{_THOUGHT_TAG}>|<unused95>|◁/think▷|\[/THINK\]|<\|end_of_thought\|>|<channel\|>"
    r"|<\|channel\|>final\b[^<]{0,40}<\|message\|>|(?-i:assistantfinal)|\n\.{3}\s?done thinking\b\.?)"
)
_BOXED = re.compile(r"(?i)<\|begin_of_box\|>(.{0,400}?)<\|end_of_box\|>", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_TOKENS = re.compile(r"(?i)<\|[^<>|\n]{1,40}\|>|</?(?:s|bos|eos|start_of_turn|end_of_turn|pad)>")
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_SAME_SHAPE = dict(zip("АВЕКМНОРСТХΑΒΕΖΗΙΚΜΝΟΡΤΧ", "ABEKMHOPCTXABEZHIKMNOPTX", strict=True))
_FOREIGN_LETTER = re.compile(rf"(?i)(?<!\w)[{''.join(_SAME_SHAPE)}](?=[0-9]{{1,2}}(?!\w))")
_PLAIN = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | dict.fromkeys("“”„‟«»「」", '"') | dict.fromkeys("‘’‚‛", "'"))

CELL = re.compile(r"(?<![A-Za-z0-9])([A-Za-z])0?([0-9]{1,2})(?![A-Za-z0-9]|\.[0-9])")
"""Pattern of a cell's name: a letter and a number, also outside the grid."""
KEY = (
    r"(?:(?<![A-Za-z])(?:grid[ _]?cell|cell|grid[ _]?coordinates?|coordinates?|answer|decision|verdict"
    r"|conclusion|zelle|rasterzelle|gitterzelle"
    r"|antwort|antwoord|cel|cellule|réponse|celda|casilla|respuesta|cella|risposta|célula|resposta)(?![A-Za-z])"
    r"|单元格|格子|答案|セル|答え|回答|셀|정답|ответ|ячейка|الخلية|الإجابة)"
)
"""Pattern of the words that introduce an answer, usually a cell, in several languages."""

_BRACKETED = re.compile(r"[(\[]\s?[\"']?([A-Za-z])[\"']?\s?,\s?[\"']?([0-9]{1,2})[\"']?\s?[)\]]")
_JSON_KEY = re.compile(rf"(?i)[\"']{KEY}[\"']\s{{0,3}}[:=]")
_KEY_INSIDE = re.compile(rf"(?i)(?<=[.!?])[ \t]{{1,3}}(?=(?:final )?{KEY}\s{{0,2}}[:=])")

_ABSENT_HERE = re.compile(
    r"(?i)[\W_]*(?:absent|none|null|not (?:present|visible|seen)|n/a|nicht vorhanden|keine?|aucune?|无|不存在|なし)\b"
)
_ABSENT_FIRMLY = re.compile(r"(?i)\bis (?:absent|not (?:present|there))\b|(?:^|\n)\W{0,9}absent\W{0,9}$")
_ABSENT = re.compile(
    r"(?i)(?<!not )\babsente?\b|\bnot (?:present|seen|visible|identified|detected|demonstrated|there)\b"
    r"|\bisn't (?:present|there|visible)\b"
    r"|\bthere(?:'s| is| are) no (?!image|picture|file|attach|x-ray|radiograph|doubt)"
    r"|\b(?:in any|in either|none|neither) of (?:them|these|those|which)\b"
    r"|\bno (?:evidence|signs?|indication|(?:(?:visible|obvious|clear|acute|significant) )?(?:abnormalit|patholog))"
    r"|\bno (?!image|picture|file|attach|x-ray|radiograph)[^.!?\n]{1,60} (?:is|are|was|were|can be) "
    r"(?:visible|seen|present|identified|detected|evident|apparent|demonstrated)\b"
    r"|^\W*(?:none|no findings?)\W*$|nicht (?:vorhanden|nachweisbar|zu sehen)"
    r"|\bkeine?n? (?:nachweis|hinweis|zeichen|[^.!?\n]{1,40} (?:zu sehen|zu erkennen|sichtbar"
    r"|erkennbar|nachweisbar)\b)"
    r"|\bpas d(?:e\b|')|\baucune?\b|\b(?:não há|no hay)\b|\bno se (?:observa|aprecia|identifica|detecta|ve)\b"
    r"|\bnon (?:si (?:osserva|evidenzia|rileva|vede)|è (?:visibile|presente))|\bnão se (?:observa|identifica|vê)"
    r"|\bgeen [^.!?\n]{1,40}(?:zichtbaar|te zien)|\bing(?:en|et|a) [^.!?\n]{1,40}(?:ses|syns|synlig\w?|kan ses)\b"
    r"|\bнет признаков|\bне (?:виявл|видно|визнача|обнаруж|візуаліз|определя|выявл|визуализ)"
    r"|\bnie (?:widać|stwierdz|uwidoczn)"
    r"|(?:görül|saptan|izlen)m[ae][dm]|không (?:thấy|phát hiện|ghi nhận)|لا (?:يوجد|توجد|يظهر|تظهر|أرى)"
    r"|(?:보이지|관찰되지|확인되지) 않|(?<!수 )없(?:습니다|음)"
    r"|認め(?:られ)?(?:ません|ない)|見(?:られ|え)(?:ません|ない)"
    r"|不存在|未[见見发發]|[没沒]有|なし"
)
_REFUSAL = re.compile(
    r"(?i)(?:\b(?:i|we)\b[^.!?\n]{0,40}|(?:^|\n)\W{0,5})"
    r"(?:\bcan ?not\b|\bcan't\b|\bcould not\b|\bcouldn't\b|\bwon't\b|\bshouldn't\b|\bwill not\b|\bunable\b|\bnot able\b"
    r"|\bnot (?:qualified|permitted|allowed)\b|\bnot have the (?:ability|capability)\b)[^.!?\n]{0,40}"
    r"\b(?:assist|help|comply|provide|give|offer|analy[sz]e|interpret|identify|determine|diagnos\w*|view|see|process"
    r"|fulfil+|answer|say|tell (?:you|which|where|from)|do|perform|evaluate|assess|make|locali[sz]e|locate|complete)\b"
    r"|\brequires? (?:a |an |the )?(?:medical|licen[sc]ed|qualified|trained|expert)|\bplease (?:provide|upload)\b"
    r"|\b(?:i|we) (?:do not|don't) (?:provide|offer|interpret|analy[sz]e|diagnose)\b"
    r"|\boutside (?:of )?(?:what i|my)\b|\bmust decline\b|\bnot (?:be )?appropriate for me\b"
    r"|\b(?:can ?not|can't|won't|will not|rather not|prefer not to) (?:name|pick|choose|select|mark)"
    r" (?:a|any|one|the) (?:\w+ )?(?:cell|square|box|point|spot|location|region)\b"
    r"|\b(?:(?:don't|do not)(?: really)? feel|not) comfortable (?:pinpoint|identify|interpret|diagnos|assess|locat"
    r"|locali[sz]|analy[sz]|pick|nam|choos|select|giv|mak)"
    r"|\bno (?:image|picture|x-ray|radiograph) (?:was|is|has been|were)? ?(?:provided|attached|uploaded|included)"
    r"|\b(?:don't|do not|cannot|can't) see (?:any|an|the|your) (?:image|picture|attachment)"
    r"|tut mir leid|kann[^.\n]{0,60}\bnicht\b|ne (?:peux|puis|suis) pas|désolé|no puedo|lo siento|non posso"
    r"|mi dispiace|não (?:posso|consigo)|无法|不能|抱歉|对不起|でき(?:ません|かねます)"
    r"|申し訳|죄송|수 없습니다|не могу|извините"
    r"|\b(?:kan|mag)(?: ik)?(?: helaas)? (?:geen|niet)\b|het spijt me"
    r"|üzgünüm|yorumlayama|yardımcı olama|لا أستطيع|لا يمكنني|عذرا|nie (?:mogę|jestem w stanie)"
    r"|\bkan (?:jeg |jag )?(?:tyvärr |dessverre |desværre )?(?:inte|ikke)\b|\bavstår\b"
    r"|не можу|вибачте|перепрошую|przepraszam"
    r"|nejsem schop|\bnemohu\b|\bnemůžu\b|\ben (?:voi|pysty)\b|nem tudo[km]|sajnálom|δεν μπορώ|λυπάμαι|\bnu pot\b"
    r"|tidak (?:dapat|bisa)|\bmaaf\b|không thể|xin lỗi|ไม่สามารถ|ขออภัย|क्षमा करें|असमर्थ|नहीं कर सकत"
    r"|দুঃখিত|পারি না|לא יכול|מצטער"
    r"|نمی ?توانم|متأسفم|متاسفم"
)
SAFETY_VERDICT = re.compile(r"\s{0,9}unsafe\s{1,9}S[0-9]{1,2}(?:\s{0,3},\s{0,3}S[0-9]{1,2}){0,20}\s{0,9}")
"""Pattern of an answer that is only the verdict of a safety model (Llama Guard)."""
_SERVICE_ERROR = re.compile(
    r"(?i)\bupstream\b|\bbad gateway\b|\binternal server error\b|\bservice unavailable\b|\brate limit|\bplease retry\b"
    r"|\btry again later\b|\bempty response\b"
)
_QUOTED = r"\"(?:[^\"\\\n]|\\.){0,2000}\"|'[^'\n]{0,2000}'"
_COMMENT = re.compile(rf"({_QUOTED})|//[^\n]*|/\*.{{0,2000}}?\*/|#[^\n]*", re.DOTALL)
_BRACKET_OR_QUOTED = re.compile(rf"{_QUOTED}|[\[\]{{}}]")
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_JSON_OPENING = re.compile(r"\{(?=\s*[\"'}])|\[(?=\s*[\"'\[{\]])")


def without_thinking(text: str) -> tuple[str, bool]:
    """Return the answer without its thinking, and True if the answer ends in an unclosed thought.

    Thinking, control characters and the tokens of chat templates are removed. A closing tag without an opening tag
    closes a thought that began with the answer, because some prompt templates contain the opening tag.

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
        else:
            kept.append(text[start : tag.start()])
            start = tag.end()
    if not inside:
        kept.append(text[start:])
    answer = _BOXED.sub(r"<answer>\1</answer>", "\n".join(kept))
    return _CONTROL.sub("", _TOKENS.sub(" ", answer).replace("\r", "\n")).strip(), inside


def cleaned(text: str) -> str:
    """Return the text with full-width letters, dashes, quotes and digits of any script replaced by those of a keyboard.

    A Cyrillic or Greek letter directly before a number is replaced by the Latin letter of the same shape.

    Examples
    --------
    >>> cleaned("Cell: Ｄ５"), cleaned("Ответ: В٣")  # the second letter is Cyrillic, its digit Arabic
    ('Cell: D5', 'Ответ: B3')
    """
    plain = unicodedata.normalize("NFKC", text[-MAX_CHARACTERS:]).translate(_PLAIN)
    plain = _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0])), _UNSEEN.sub("", plain[-MAX_CHARACTERS:]))
    return _FOREIGN_LETTER.sub(lambda letter: _SAME_SHAPE[letter[0].upper()], plain).strip()


def bare(text: str) -> str:
    """Remove markup; JSON keys, answer tags and LaTeX boxes become lines, "row 5, column D" becomes "D5"."""
    text = re.sub(r"<(answer|cell)>|\\boxed\{", "\nanswer: ", text, flags=re.IGNORECASE)
    text = re.sub(r"</(?:answer|cell)>", "\n", text, flags=re.IGNORECASE)
    text = re.sub(r"~~[^~\n]{1,200}~~|<(s|del|strike)>[^<\n]{1,200}</\1>", " ", text)
    text = re.sub(r"\\(?:text|mathrm|mathbf)\{|[*`$#]", "", re.sub(r"\\[ ,;:!]", " ", text))
    text = re.sub(r"(?<=[A-Za-z])\}?_\{?([0-9]{1,2})\}", r"\1", text)
    text = re.sub(r"(?<=[A-Za-z])_(?=[0-9])", "", text).replace("_", " ")
    text = _KEY_INSIDE.sub("\n", _JSON_KEY.sub("\nanswer:", text))
    text = _BRACKETED.sub(r"(\1\2)", text)
    return text[:-MAX_PROSE] + with_cells_named(text[-MAX_PROSE:])


def says_absent(text: str, finding: str | None, *, after: int | None = None) -> bool:
    """Return True if the text denies the finding; if a cell ends at `after`, only plain denials count."""
    rest = text[after or 0 :]
    denied = (
        r"(?:\b(?:no|without|not (?:see|find|detect|identify))|n't (?:see|find|detect|identify))"
        rf"(?: (?:evidence|signs?) of)?(?: \w+){{0,2}} {re.escape(finding or ' ')}(?:e?s)?\b"
    )
    return bool((_ABSENT_FIRMLY if after else _ABSENT).search(rest) or re.search(denied, rest, re.IGNORECASE))


def begins_absent(text: str, *, alone: bool = False) -> bool:
    """Return True if the text begins with "absent", "none" or the like; with `alone`, only if no other word follows."""
    match = _ABSENT_HERE.match(text)
    return match is not None and not (alone and re.search(r"\w", text[match.end() :]))


def is_refusal(text: str) -> bool:
    """Return True if the text has the wording of a refusal, in any of several languages."""
    return bool(_REFUSAL.search(text[:MAX_PROSE]))


def statements(text: str, keys: str) -> list[tuple[str, bool]]:
    """Return (text after the colon, is_last) for each line that begins with one of `keys` (a pattern).

    If the rest of the line is empty, the next nonempty lines are used instead, joined by commas.
    """
    pattern = re.compile(rf"(?i)[^:=\n]{{0,60}}?(?<![A-Za-z])(?:{keys})(?![A-Za-z])[^:=\n]{{0,40}}[:=](.*)")
    lines, results = text.split("\n"), []
    matches = [(i, match) for i, line in enumerate(lines) if (match := pattern.match(line))]
    for i, match in matches[-_MOST_STATEMENTS:]:
        rest, end = match[1], i + 1
        if not re.search(r"\w", rest):
            below = "\n".join(lines[end : end + _MOST_BELOW])
            rest = ", ".join(lines_of(below.lstrip().split("\n\n")[0]))
            end += _MOST_BELOW if rest else 0
        results.append((rest, end >= len(lines)))
    return results


def json_values(text: str) -> list[Any]:
    """Return the JSON objects and lists in a text, in order.

    Examples
    --------
    >>> json_values("Boxes: [{'x': 1,}, // none above\\n {'x': 2}]")
    [[{'x': 1}, {'x': 2}]]
    """
    return [value for value, _, _ in json_spans(text)]


def json_spans(text: str) -> list[tuple[Any, int, int]]:
    """Return (value, start, end) of the JSON objects and lists in a text; only the last 300 opening brackets are tried.

    Trailing commas, single quotes and comments are allowed, as models write them.
    """
    decoder = json.JSONDecoder()
    spans, end, n_loose = list[tuple[Any, int, int]](), 0, 0  # n_loose characters were read as YAML, which is slow
    for opening in [match.start() for match in _JSON_OPENING.finditer(text)][-300:]:
        if opening < end:
            continue
        try:
            value, end = decoder.raw_decode(text, opening)
        except (ValueError, RecursionError):
            closing = _closing_bracket(text, opening)
            if closing is None or n_loose + closing - opening > _MOST_LOOSE:
                continue
            n_loose += closing - opening
            value = _loose_json(text[opening:closing])
            if value is None:
                continue
            end = closing
        spans.append((value, opening, end))
    return spans


def _loose_json(block: str) -> Any:
    """Return the object or list in a block from bracket to bracket, or None.

    It is read as YAML, whose flow style contains loose JSON; blocks with anchors and aliases are not read.
    """
    if "&" in block or "*" in block:
        return None
    try:
        return _typed(yaml.load(_COMMENT.sub(lambda match: match[1] or " ", block), Loader=yaml.BaseLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _closing_bracket(text: str, opening: int) -> int | None:
    """Return the position after the bracket that closes the one at `opening`; brackets in quotes do not count."""
    depth = 0
    for match in _BRACKET_OR_QUOTED.finditer(text, opening, opening + MAX_PROSE):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if depth > 20:
            return None
        if depth == 0:
            return match.end()
    return None


def _typed(value: Any) -> Any:
    """Return a value of YAML, whose scalars are texts, with numbers and constants as JSON has them."""
    if isinstance(value, dict):
        return {str(key): _typed(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_typed(entry) for entry in value]
    try:
        return json.loads(_CONSTANTS.get(value, value))
    except ValueError:
        return value


def lines_of(text: str) -> Iterator[str]:
    """Yield nonempty lines of bare text without their list marks."""
    for line in text.split("\n"):
        plain = re.sub(r"^\s*(?:[-+•>|]|\d{1,2}[.)])\s*", "", line).strip(" \t|")
        if plain:
            yield plain


STATUSES = ("answered", "absent", "refused", "unclear", "outside", "cut_off", "empty", "failed")
"""Outcomes of a question; the parser never returns "failed", which means that no answer came."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed answer.

    Attributes
    ----------
    status : one of :data:`STATUSES`
    cell : name of a cell in the grid
    point : (x, y) in pixels of the full image
    box : [x, y, width, height] in pixels of the full image
    labels : spelt and ordered as in the benchmark; empty for "none", None without an answer
    detections : boxes with scores, in pixels of the full image
    text : the answer to an open task without thinking, otherwise None
    boxes : boxes of the answer to an open task, in pixels of the full images
    note : deviations from the requested format, and ignored parts; "" if there are none
    """

    status: str
    cell: str | None = None
    point: Point | None = None
    box: Box | None = None
    detections: tuple[ScoredBox, ...] = ()
    labels: tuple[str, ...] | None = None
    text: str | None = None
    boxes: tuple[AnswerBox, ...] = ()
    note: str = ""


def probability(value: Any) -> float | None:
    """Return a number of JSON below 10,000, or a text such as "0.8" or "80%", as a number; None for anything else."""
    if isinstance(value, str) and (said := re.fullmatch(r"\s?([0-9]{0,4}\.?[0-9]{1,12})\s?(%?)\s?", value)):
        return float(said[1]) / (100 if said[2] else 1)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 10_000 else None


def noted(reply: Reply, *notes: str) -> Reply:
    """Return the reply with further notes; empty notes are dropped."""
    return replace(reply, note="; ".join(note for note in (reply.note, *notes) if note))


def nothing(plain: str, question: Question, *, is_absent: bool) -> Reply:
    """Return the reply for an answer without the requested content."""
    if is_absent:
        return Reply("unclear", note="says that the finding is absent") if question.present else Reply("absent")
    if is_refusal(plain):
        return Reply("refused")
    is_error = _SERVICE_ERROR.search(plain[:MAX_PROSE])
    return Reply("unclear", note="seems to be an error message of the endpoint" if is_error else "")
