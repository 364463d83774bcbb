"""Find cells that an answer names by column and row, in words or numbers: "fourth column, row 5" is D5.

Columns and rows count from the left and the top. A text that counts from the right or the bottom stays as it is, and so
does a column that has no letter, such as 0, -4 or 27. In Chinese and Japanese, a bare "8行8列" is the size of the grid,
so numbers need 第, 目 or 左から.
"""

from __future__ import annotations

import re

_NTH = (
    "first|erst|eerst|premi|prim[ea]|pierwsz|перв|перш|첫", "second|zweit|tweed|deuxi|segund|drug[aięą]|втор|друг|두",
    "third|dritt|derd|troisi|terce|terz|trzec|трет|세", "fourt|viert|vierd|quatri|cuart|quart|czwart|четв|네",
    "fift|fünft|vijfd|cinqui|quint|piąt|пят|п'ят|다섯", "sixt|sechst|zesd|sixi|sext|sest|szóst|шест|шост|여섯",
    "sevent|sieb|zevend|septi|séptim|sétim|settim|siódm|седьм|сьом|일곱",
    "eight|acht|huiti|octav|oitav|ottav|ósm|восьм|여덟",
)  # fmt: skip
"""Beginnings of the words for "first" to "eighth" in several languages."""
_HAN = "一二三四五六七八九"
_NUMBER = (  # neither -5 nor 5.5
    r"(?:(?<!\W-)[0-9]{1,2}(?!\.[0-9])(?:st|nd|rd|th|er|[eaªº]|[èe]me|ta|-?[аяийї]{1,2})?\.?"
    rf"|(?:{'|'.join(_NTH)})(?!een)\w{{0,5}})"
)
_COLUMN = (
    r"(?:\b(?:col|(?:col(?:umn|onn|un)|kolumn)[aeęiy]?n?|spalte|kolom|sütun\w{0,3}|cột|стовп\w{1,5}|столб\w{1,4}|sloup\w{1,3}"
    r"|kolonne|oszlop|sarake|coloan\w|στήλη)\b"
    r"|العمود|कॉलम)"
)
_ROW = (
    r"(?:\b(?:row|zeile|reihe|ligne|rangée|fila|linha|riga|rij|rad(?:en)?|wiersz\w{0,2}|satır\w{0,3}|hàng|ряд\w{0,3}|baris"
    r"|řád\w{1,4}|række|sor|rivi|rândul?|γραμμή"
    r"|строк\w)\b|و?الصف|पंक्ति)"
)
_IS = r"\W{0,6}?(?:is |number |thứ |số )?\W{0,4}?"
_FROM = r"(?:from|von|depuis|à partir de|desde|da|dalla|vanaf|od|від|från)(?: the| der| la| a)?"
_FROM_NEAR = (
    rf"(?:counting |counted )?{_FROM} (?:left|top|links|oben|gauche|haut|izquierda|arriba|sinistra|alto|esquerda|cima"
    r"|boven|lewej|góry|vänster)\b|слева|сверху|зліва|згори|[左上]から|从[左上](?:起|往[右下])?数?|왼쪽에서|위에서"
)
_FROM_FAR = re.compile(
    rf"(?i){_FROM} (?:right|bottom|rechts|unten|droite|bas|derecha|abajo|destra|basso|direita|baixo|onder|prawej|dołu"
    r"|höger)\b|справа|снизу|знизу|[右下]から|从[右下]|오른쪽에서|아래에서"
)
_GAP = (
    rf"(?:\W{{0,4}}(?:{_FROM_NEAR}))?(?:\s\([A-Z0-9]\))?\W{{0,6}}(?:(?:and|und|et|in|y|e|en|i|и|і|та|och|ve)\b)?\W{{0,3}}"
    rf"(?:in |of |at )?(?:the |der |die |la |de la |de )?(?:(?:{_FROM_NEAR})\W{{0,3}}(?:it(?:'s| is) )?(?:the )?)?\s?"
)
_AT_COLUMN = rf"(?:{_COLUMN}{_IS}\b([A-Z]|{_NUMBER})(?!\w)|(?<!\w)((?-i:[A-Z])|{_NUMBER})[ -]?{_COLUMN})"
_AT_ROW = rf"(?:{_ROW}{_IS}\b({_NUMBER})(?!\w)|(?<!\w)({_NUMBER})[ -]?{_ROW})"
_HAN_NUMBER = rf"([0-9]{{1,2}}|[{_HAN}])"
_EAST_COLUMN, _EAST_ROW = (
    rf"(?:第?\s?({sure})\s?{noun}|第\s?{_HAN_NUMBER}\s?{noun}|{_HAN_NUMBER}\s?(?:番目の{noun}|{noun}目)"
    rf"|({_NUMBER})\s?번째\s?{noun})"
    for sure, noun in (("[A-Z]", "[列열]"), ("[0-9]{1,2}", "[行행段]"))
)
_CELL = re.compile(
    rf"(?i){_AT_COLUMN}{_GAP}{_AT_ROW}|{_AT_ROW}{_GAP}{_AT_COLUMN}"
    rf"|{_EAST_COLUMN}[의的の]?{_GAP}{_EAST_ROW}|{_EAST_ROW}[의的の]?{_GAP}{_EAST_COLUMN}"
)
_HAS_COLUMN = re.compile(rf"(?i){_COLUMN}|[列열]")
_ROW_FIRST = (5, 6, *range(17, 21))
"""Groups of :data:`_CELL` that are a row before its column."""


def with_cells_named(text: str) -> str:
    """Return bare text with adjacent columns and rows replaced by the cells' names.

    Examples
    --------
    >>> with_cells_named("It is in row 5, column D, the fourth column from the left and the fifth row.")
    'It is in D5, the D5.'
    """
    return _CELL.sub(_name, text) if _HAS_COLUMN.search(text) else text  # the longer pattern takes 100 times as long


def _name(match: re.Match[str]) -> str:
    if _FROM_FAR.search(match.string, max(0, match.start() - 30), match.end() + 30):
        return match[0]
    first, second = (group for group in match.groups() if group)
    column, row = (second, first) if any(match.group(*_ROW_FIRST)) else (first, second)
    if not (len(column) == 1 and column.isascii() and column.isalpha()):
        column = " ABCDEFGHIJKLMNOPQRSTUVWXYZ"[_number(column) :][:1].strip()
    return f"{column.upper()}{_number(row)}" if column else match[0]


def _number(word: str) -> int:
    """Return the number that a word says: "5", "5th", "fifth" or "五"."""
    if digits := re.match(r"[0-9]{1,2}", word):
        return int(digits[0])
    if word in _HAN:
        return _HAN.index(word) + 1
    return next(n for n, stems in enumerate(_NTH, 1) if re.match(stems, word, re.IGNORECASE))
