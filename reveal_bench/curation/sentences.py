"""Extract a report's sentences about the image, normalise them for pattern matching, and find what they deny.

Sections and sentences
----------------------
The findings, the impression and similar sections are read; indication, history, comparison, technique and
recommendation are not. A report without headings is read as a whole. If no section is called findings, the second and
later paragraphs below any other heading are read as well, because many reports put the findings there without a
heading.

Normalised text is in lower case and American spelling; words, numbers and ``, : ? >`` are separated by one space; a
hyphen becomes a space; a bracket, slash or dash becomes a comma. CM is read as cardiomegaly unless it may mean
centimetres: in a text all in capitals, after a number, or before a word such as "above".

Denials
-------
A sentence denies a finding if it negates the finding, says that it resolved, only asks about it, or refers to the past.
A word with such an effect is a trigger. Within a clause, a trigger of the kind that comes before a finding denies what
follows, and a trigger of the kind that comes after a finding denies what precedes. Triggers that only ask ("rule out")
or refer to the past reach only to the next comma or "with". A clause ends at words such as "but", and where a new
statement begins after a comma, "and" or "with". A new statement has its own verb, or begins after a denial with a word
such as "small" or "stable" ("no pneumothorax, small effusion", but not in "no large effusion, new consolidation or
edema").

Findings that are not denied count as present. The policy on hedges follows: "may represent", "possible", "probable",
"suspicious for" and "versus" count; "cannot be excluded", "rule out", "questionable", "borderline", a question mark and
history do not.

Triggers, pseudo-triggers and scopes follow NegEx (Chapman et al. 2001); rules and words are this project's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Literal

MOST_CHARACTERS = 600
"""Maximum length of a sentence, in characters."""

DESCRIPTIVE = (
    "findings?",
    "impressions?",
    "conclusions?",
    "opinion",
    "interpretation",
    "results?",
    "observations?",
    "(?:final |preliminary )?report",
    "summary",
    "diagnosis",
    "addendum",
    "findings ?(?:and|/|&) ?impression",
)
OTHER = (
    "indications?",
    "(?:clinical |patient |medical )?history",
    "clinical (?:findings|information|details|indication|data|question)",
    "reason for (?:the )?(?:exam|examination|study|test)",
    "comparisons?",
    "techniques?",
    "procedure",
    "exam(?:ination)?",
    "study",
    "views?",
    "recommendations?",
    "notifications?",
    "communication",
    "(?:electronically )?signed(?: by)?",
    "dictated(?: by)?",
    "attending",
    "date",
)
_HEAD = re.compile(
    rf"(?<![^\W_])({'|'.join((*DESCRIPTIVE, *OTHER))})(?![^\W_])"
    r"(?:[ \t*]{0,9}(?P<mark>:)[ \t*]{0,9}|[ \t*]{0,9}(?P<end>\n|\Z))?",
    re.IGNORECASE,
)
_DESCRIPTIVE = re.compile("|".join(DESCRIPTIVE), re.IGNORECASE)
_LEADING = re.compile(r"[\s*#]{0,20}\Z")

_SPELLINGS = (
    (re.compile(r"oedema"), "edema"),
    (re.compile(r"oesoph"), "esoph"),
    (re.compile(r"haem(?=o|a)"), "hem"),
    (re.compile(r"tumour"), "tumor"),
    (re.compile(r"goitre"), "goiter"),
    (re.compile(r"n['’]t\b"), " not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\bw/o\b"), "without"),
    (re.compile(r"\bw/"), "with "),
    (re.compile(r"\br/o\b"), "rule out"),
    (re.compile(r"\bs/p\b"), "status post"),
    (re.compile(r"\bc/w\b"), "consistent with"),
    (re.compile(r"\bh/o\b"), "history of"),
    (re.compile(r"\bb/l\b"), "bilateral"),
    (re.compile(r"\band/or\b"), "or"),
    (re.compile(r"[()\[\]/]| [-–—]{1,3} |[–—]"), " , "),
)
_DOTTED = re.compile(r"\b(approx|ca|vs|resp|incl|cf|Dr)\.")
_CM = re.compile(r"\bCM\b(?!\s{1,9}(?i:above|below|from|to|in|x|proximal|distal)\b)")
_NUMBER = r"(?:\d|\b(?:several|few|half|one|two|three|four|five|six|seven|eight|nine|ten)\b)"
_COUNTED = re.compile(_NUMBER, re.IGNORECASE)
_COUNTED_JUST_BEFORE = re.compile(rf"{_NUMBER}[ \t]{{0,9}}-?[ \t]{{0,9}}\n?[ \t]{{0,9}}\Z", re.IGNORECASE)
_END = re.compile(r"[.!?;]\s|\n")
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[,:?>]")

_CONNECTING = re.compile(
    r"(?:\b(?:or|and|of|the|a|an|no|with|without|in|to|for|is|are|by|at)|,)\s{0,9}\Z", re.IGNORECASE
)
_BREAK = re.compile(r"(?<=[.!;])\s+|(?<=\w\?)\s+")
_BULLET = re.compile(r"\s{0,20}(?:[-*•]|\(?\d{1,2}[.)])\s+")


def descriptive_sections(report: str) -> str:
    r"""Return the parts of a report that describe the image; "" if there are none.

    Examples
    --------
    >>> descriptive_sections("INDICATION: Pneumonia? FINDINGS: Clear lungs. IMPRESSION: Normal.")
    'Clear lungs.\n\nNormal.'
    """
    text = "\n".join(line.strip() for line in report.splitlines())
    heads = [match for match in _HEAD.finditer(text) if _is_head(match, text)]
    has_findings = any(match[1].casefold().startswith("finding") for match in heads)
    parts = [] if has_findings else [text[: heads[0].start()] if heads else text]
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
        body = text[head.end() : end].strip()
        if _DESCRIPTIVE.fullmatch(head[1]):
            parts.append(body)
        elif not has_findings:
            parts += re.split(r"\n\n+", body)[1:]
    return "\n\n".join(part.strip() for part in parts if re.search(r"\w", part))


def _is_head(match: re.Match[str], text: str) -> bool:
    """Return True if a match is a heading: at a line start, or with a colon after a sentence or in capitals."""
    before = text[max(0, match.start() - 20) : match.start()]
    line_start = before.rpartition("\n")[2] if "\n" in before or match.start() <= 20 else "x"
    is_first = _LEADING.match(line_start) is not None
    if match["mark"]:
        return is_first or match[1].isupper() or before.rstrip().endswith((".", ";", "!", "?"))
    return is_first and (
        match["end"] is not None or (match[1].isupper() and _DESCRIPTIVE.fullmatch(match[1]) is not None)
    )


def sentences(text: str) -> list[str]:
    """Return normalised sentences and list entries; wrapped lines are joined.

    Texts of more than :data:`MOST_CHARACTERS` are not sentences and are cut at a blank, which bounds the time.
    """
    entries: list[list[str]] = []
    if any(map(str.islower, text)):
        text = _CM.sub(_spelled_out, text)
    for line in map(str.strip, text.split("\n")):
        entry = _BULLET.sub("", line, count=1)
        goes_on = bool(entries and entries[-1][-1] and entry) and entry == line
        if goes_on and (not entry[0].isupper() or _CONNECTING.search(entries[-1][-1][-30:])):
            entries[-1].append(entry)
        else:
            entries.append([entry])
    pieces = (normalised(part) for entry in entries for part in _BREAK.split(" ".join(entry)))
    return [
        piece
        for one in pieces
        if one
        for piece in ([one] if len(one) <= MOST_CHARACTERS else wrap(one, MOST_CHARACTERS))
    ]


def _spelled_out(cm: re.Match[str]) -> str:
    """Return "Cardiomegaly" for "CM" (capitalised: it may begin a line), but "CM" after a number in its sentence."""
    before = cm.string[max(0, cm.start() - MOST_CHARACTERS) : cm.start()]
    own_sentence = _BULLET.sub("", _END.split(before)[-1], count=1)
    is_length = _COUNTED_JUST_BEFORE.search(before[-30:]) or _COUNTED.search(own_sentence)
    return cm[0] if is_length else "Cardiomegaly"


def normalised(sentence: str) -> str:
    """Return text in the normalised form that patterns match.

    Examples
    --------
    >>> normalised("Small L-sided pleural oedema/effusion (1.5-cm), w/o PTX.")
    'small l sided pleural edema , effusion , 1.5 cm , without ptx'
    """
    sentence = _DOTTED.sub(r"\1", sentence).casefold()
    for pattern, plain in _SPELLINGS:
        sentence = pattern.sub(plain, sentence)
    text = " ".join(_TOKEN.findall(sentence))
    return re.sub(r"(?: ,){2,}", " ,", text).strip(" ,")


Span = tuple[int, int]
Denial = Literal["absent", "doubtful"]

KINDS: dict[str, Denial] = {
    "asked_before": "doubtful",
    "asked_after": "doubtful",
    "absent_before": "absent",
    "gone_after": "absent",
}
"""Kind of trigger -> its effect on a finding; pseudo-triggers have no effect."""

POLICY = {
    "counts": ["may represent", "possible", "probable", "suspicious for", "versus", "improving", "partly resolved"],
    "does not count": ["cannot be excluded", "rule out", "questionable", "borderline", "?", "unlikely", "history of"],
}
"""The policy on hedges, recorded with the settings of a curation."""

_SEEN = (
    "(?:seen|identified|visuali[sz]ed|evident|present|appreciated|demonstrated|detected|visible|apparent|noted|observed"
    "|found|suspected|recogni[sz]ed|shown)"
)
_BE = "(?:is|are|was|were|be|been|being|has|have|had|appears?|seems?|remains?)"
_SOFT = (
    "(?:(?:now|since|fully|completely|entirely|clearly|definitely|also|again|yet|essentially|subsequently|felt to be) )"
)
_MOVED = (
    "(?:chang(?:e|es|ed)|increas(?:e|es|ed)|decreas(?:e|es|ed)|differen(?:ce|t)|improve(?:ment|d)?|progress(?:ion|ed)"
    "|worsen(?:ing|ed)?|growth|grown|enlargement|reduction)"
)
_GRADE = "(?:(?:significantly|substantially|appreciably|markedly|much|significant|substantial|appreciable|marked|major"
_GRADE += "|definite|interval|real|overall|further|any|relevant|gross|obvious|or) )"

PSEUDO = (
    f"(?:no|not|without) {_GRADE}{{0,3}}{_MOVED}(?: (?:in|of|to|from|since))?",
    f"not {_SOFT}{{0,2}}(?:resolved|cleared|disappeared)",
    "not (?:only|just|necessarily)",
    "no (?:doubt|question)",
    "no tension(?: component| physiology)?(?: (?:to|of|in))?",
    f"not (?:well|optimally|clearly|fully|adequately|completely) (?:{_SEEN}|evaluated|assessed|included|delineated)",
    "not (?:included|imaged|fully included)",
    "(?:near|nearly|almost|partial|partially|incomplete|incompletely|mostly|largely) (?:complete |completely )?"
    "(?:resolution|clearing|resolved|cleared)(?: of)?",
    "(?:compared (?:to|with)|comparison (?:to|with)|since|than|relative to|on|in) (?:the |a )?prior",
    "(?:prior|previous) (?:chest )?(?:film|films|exam|exams|examination|examinations|radiographs?|study|studies|ct"
    "|x ray|x rays|imaging|image|images|one)",
)
"""Wording that looks like a trigger but denies nothing."""

ASKED_AFTER = (
    "(?:can|could|may|might) not (?:be )?(?:\\w+ly )?(?:be )?(?:excluded|ruled out)",
    f"{_BE} not {_SOFT}{{0,1}}(?:excluded|ruled out)",
    "(?:should|must|to) be (?:excluded|ruled out)",
    "\\?$",
)
"""Triggers that follow a finding and mean that the finding may or may not be present."""

GONE_AFTER = (
    f"{_BE} {_SOFT}{{0,2}}(?:resolved|cleared|gone|disappeared|absent|excluded|ruled out|negative(?! for\\b))",
    f"{_BE} {_SOFT}{{0,2}}(?:(?:very|highly|thought) ){{0,2}}unlikely(?! to\\b)",
    f"(?:{_BE} )?(?:not|no longer|never) {_SOFT}{{0,2}}{_SEEN}"
    "(?! (?:to|(?:on|in) (?:the |any )?(?:prior|previous|earlier|last|old))\\b)",
    "(?:resolved|cleared|absent|none|nil|unlikely|negative)$",
    ":(?= (?:there (?:is|are) )?(?:no|none|nil|not|absent|negative|without|normal|clear|resolved)\\b)",
)
"""Triggers that follow a finding and mean that the finding is absent or has resolved."""

ASKED_BEFORE = (
    "(?:to |must |please )?(?:rule out|exclude)",
    "(?:can|could) not (?:\\w+ly )?(?:exclude|rule out)",
    "difficult to (?:exclude|rule out)",
    "(?:evaluate|evaluation|assess|assessment|screen|screening|look|looking|surveillance) for",
    "query",
    "\\?",
    "if",
    "questionable",
    "equivocal",
    "doubtful",
    "borderline",
    "less likely",
    "(?:at )?risk (?:of|for)",
    "clinical (?:concern|suspicion) (?:for|of)",
    "(?:history|hx) of",
    "status post",
    "prior",
)
"""Triggers that precede a finding and mean that the finding is only asked about, or was present in the past."""

ABSENT_BEFORE = (
    "no",
    "nil",
    "not",
    "without",
    "never",
    "nothing",
    "none of",
    "neither",
    "nor",
    "no longer",
    "negative for",
    "(?:free|clear|devoid|absence|lack) of",
    "(?:resolution|clearing|disappearance) of",
    "resolved",
    "rather than",
    "instead of",
    "mimic(?:s|king)?",
    "simulat(?:es|ing)",
    "mistaken for",
    "unlikely",
    "(?:low|little) (?:suspicion|probability|likelihood|concern) (?:for|of)",
    "fail(?:s|ed) to (?:show|demonstrate|reveal)",
    "excludes?",
)
"""Triggers that precede a finding and mean that the finding is absent."""

_ENDINGS = (
    "but|however|although|though|whereas|while|yet|except(?: for)?|apart from|aside from|other than"
    "|with the exception of|nevertheless|nonetheless|despite"
)
_VERB = "\\b(?:is|are|was|were|has|have|had|remains?|appears?|persists?|shows?|demonstrates?|represents?|measures?)\\b"
_CUES = (
    "small|moderate|large|tiny|trace|mild|mildly|minimal|minor|marked|severe|extensive|stable|unchanged|persistent"
    "|persisting|increased|increasing|improved|improving|decreased|decreasing|worsening|worsened|new|there|a|an"
    "|multiple|several|few|left|right|bilateral|again|also|add|plus|possible|probable|likely|known|chronic|patchy|slight"
)


def _any(patterns: Sequence[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def whole_words(pattern: str) -> re.Pattern[str]:
    """Return `pattern`, limited to matches of whole words in a normalised sentence."""
    return re.compile(f"(?<![^ ])(?:{pattern})(?![^ ])")


_TRIGGER = whole_words(
    f"(?P<pseudo>{_any(PSEUDO)})|(?P<asked_after>{_any(ASKED_AFTER)})|(?P<gone_after>{_any(GONE_AFTER)})"
    f"|(?P<asked_before>{_any(ASKED_BEFORE)})|(?P<absent_before>{_any(sorted(ABSENT_BEFORE, key=len, reverse=True))})"
)
_ENDING = whole_words(_ENDINGS)
_CANDIDATE = whole_words("(?P<comma>,(?: and)?(?! (?:or|nor)\\b))|(?P<and>and)|(?P<with>with)")
_HAS_VERB = re.compile(_VERB)
_OWN_VERB = re.compile(f"(?!which|that|who)\\S.*?{_VERB}")
_PERCEIVED = re.compile(f"{_VERB}(?: \\w+){{0,2}} {_SEEN}")
_CUE = re.compile(f"(?:the )?(?:{_CUES})\\b")
_DENIES = whole_words("no|not|without|neither|never|(?:negative|free|clear|absence|lack) (?:of|for)")
_NARROW_END, _AND_END = re.compile(" , | with "), re.compile(" , | with | and ")


def denials(sentence: str, spans: Sequence[Span]) -> list[Denial | None]:
    """Return the kind of denial of each span of a normalised sentence; None for a span that is not denied.

    Parameters
    ----------
    spans : (start, end) of findings in characters

    Examples
    --------
    >>> denials("no effusion but small pneumothorax , nodule ?", [(3, 11), (22, 34), (37, 43)])
    ['absent', None, 'doubtful']
    """
    results: list[Denial | None] = [None] * len(spans)
    for clause in clauses(sentence):
        inside = [number for number, span in enumerate(spans) if clause[0] <= span[0] < clause[1]]
        if not inside:
            continue
        for trigger in _TRIGGER.finditer(sentence, *clause):
            for number in inside:
                if results[number] != "absent":
                    results[number] = _denial(trigger, sentence, spans[number]) or results[number]
    return results


def _denial(trigger: re.Match[str], sentence: str, span: Span) -> Denial | None:
    """Return the effect of a trigger on a span in the same clause; None if it has none."""
    kind = str(trigger.lastgroup)
    kind_of = KINDS.get(kind)
    if trigger.start() < span[1] and trigger.end() > span[0]:  # "the heart is not enlarged"
        return kind_of or "absent"
    if kind_of is None or kind.endswith("_before") != (trigger.end() <= span[0]):
        return None
    between = sentence[min(trigger.end(), span[1]) : max(trigger.start(), span[0])]
    ending = _AND_END if trigger[0] in ("prior", "status post") else _NARROW_END
    return None if kind_of == "doubtful" and ending.search(f"{between} ") else kind_of


def clauses(sentence: str) -> list[Span]:
    """Return (start, end) of the clauses of a normalised sentence, see the module's conventions."""
    spans: list[Span] = []
    start = 0
    for ending in _ENDING.finditer(sentence):
        spans += _statements(sentence, start, ending.start())
        start = ending.end()
    return [*spans, *_statements(sentence, start, len(sentence))]


def _statements(sentence: str, start: int, end: int) -> Iterator[Span]:
    candidates = [*_CANDIDATE.finditer(sentence, start, end)]
    for number, candidate in enumerate(candidates):
        following = candidates[number + 1].start() if number + 1 < len(candidates) else end
        left, right = sentence[start : candidate.start()], sentence[candidate.end() : following].strip()
        if _begins(str(candidate.lastgroup), left, right, sentence[candidate.end() : end]):
            yield start, candidate.start()
            start = candidate.end()
    yield start, end


def _begins(kind: str, left: str, right: str, rest: str) -> bool:
    """Return True if a new statement begins between `left` and `right`; `rest` is the text after `left`."""
    is_denial = _DENIES.search(left) is not None
    if is_denial and _CUE.match(right):
        until = _DENIES.split(rest, maxsplit=1)[0]
        return " or " not in until and " nor " not in until
    if kind == "with" or not _OWN_VERB.match(right):
        return False
    if is_denial and _PERCEIVED.search(right):
        return False
    return kind == "comma" or is_denial or _HAS_VERB.search(left) is not None
