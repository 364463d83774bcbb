"""Rules that derive a reader's labels from the reader's comment on suggested labels.

Conventions
-----------
As in paper 004 (Box 4), the comment changes the suggested list, and the new list has only labels of which the reader is
certain. A comment gives no list if it mentions no label, or only denies labels that were not suggested. Per sentence:

* A named label is added if the reader is certain; "only" before the label excludes all other labels.
* A label that is denied ("no effusion", "I do not see ..."), to be removed ("would remove ...", "... is wrong"), or
  doubtful ("possible", "?", "equivocal") is not in the list. "No pneumonia" denies one cause of an airspace opacity,
  not the opacity itself, so it removes nothing; the same is true of other findings narrower than a label.
* Approval without a label ("labels are fine", "plausible") leaves the list unchanged. Doubt without a label also leaves
  the list unchanged if the reader mostly agreed, because readers were instructed to answer so if a finding is plausible
  but subtle.

Labels are recognised as in reports (:mod:`reveal_bench.curation.rules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reveal_bench.curation.rules import SIGNATURE, Mention, mentions
from reveal_bench.curation.sentences import clauses, sentences, whole_words
from reveal_bench.curation.tables import ANSWERS, Labels, Revision, Vote, in_order

AGREE_MOSTLY = ANSWERS[1]

LUNGS = ("Airspace opacity", "Interstitial opacity", "Lung mass", "Lung nodule")
NORMAL: dict[str, tuple[str, ...]] = {
    "lungs? (?:(?:is|are|look|fields) ){0,2}(?:clear|normal)|(?:clear|normal) lungs?": LUNGS,
    "(?:heart|cardiac)(?: size| silhouette| shadow)? (?:(?:is|looks|appears) )?normal|normal heart": ("Cardiomegaly",),
    "(?:costo ?phrenic|cp) (?:angles?|sulci) (?:is |are )?(?:clear|sharp)": ("Pleural effusion",),
    "aorta (?:is )?normal|normal aorta": ("Aneurysm",),
}
"""Wording of a normal finding -> the labels that it denies."""

WHOLE = frozenset(
    (
        *("airspace opacity", "consolidation", "aneurysm", "cardiomegaly", "chronic obstructive pulmonary disease"),
        *("hiatal hernia", "interstitial opacity", "mass", "nodule", "lymphadenopathy", "pleural effusion"),
        *("pleural thickening", "pneumothorax"),
    )
)
"""Findings that cover their whole label: denying the finding denies the label."""


_DIRECTIVES = {
    "remove_before": "(?:is|are|was|were|(?:(?:should|must|can|could|to) )?be|looks?|label) (?:[a-z]+ )?"
    "(?:remov(?:e|ed)|deleted|dropped|omitted|wrong|incorrect|false|over ?called|unconvincing|not real)"
    "|(?:(?:is|are) )?not (?:convincing|definite)|(?:is|are) (?:actually|really|in fact)",
    "doubt_before": "(?:(?:is|are|was|were|seems?|looks?) ){1,2}(?:[a-z]+ )?(?:possible|questionable|doubtful|equivocal"
    "|uncertain|unclear|debatable|borderline|not (?:certain|definite|sure))",
    "remove": "remov(?:e|ed|ing)|deleted?|drop|omit|discard|erase|exclude|(?:take|leave) (?:out|off|away)|change"
    "|replace|switch|wrong|incorrect|over ?call(?:ed)?|false(?: positive)?"
    "|unable to (?:see|identify|confirm|appreciate)|(?:dis ?agree|not agree) (?:with|on|about)"
    "|(?:agree|agreed|fine|ok|okay|correct|right|good|all|everything|labels?) (?:[a-z]+ ){0,2}?"
    "(?:except(?: for)?|but not|other than|apart from|minus)",
    "doubt": "possibl[ey]|probabl[ey]|likely|may(?: be)?|might(?: be)?|could(?: be)?|maybe|perhaps|suspect(?:ed)?"
    "|equivocal|uncertain|unsure|not (?:sure|certain|convinced)(?: of| about)?|doubt(?:ful)?|questionable|versus|vs"
    "|suspicious for|suggest(?:s|ive of|ive|ing)?|consider|\\?",
    "add": "also|add|adding|plus|include|including|missing|missed|misses|needs|keep|with|by|i see|there (?:is|are)"
    "|should be|to|but|however|is|are|has",
}
"""Words that act on the labels after or before them; the first match at a position applies."""

APPROVAL = "fine|ok|okay|plausible|acceptable|reasonable|correct|agree|agreed|good|accurate|appropriate"
UNSURE = "equivocal|subtle|borderline|faint|questionable|difficult|limited|hard to (?:say|tell|see)"
NO_LABEL = (
    "(?:normal|clear)(?: (?:chest|film|study|radiograph|x ray|exam|examination|cxr))?|none(?: of (?:these|them))?"
    "|no (?:abnormal(?:ity|ities)|abnormal findings?|findings?|labels?)(?: at all)?|nothing(?: abnormal)?"
)
AMOUNT = "mild|mildly|small|slight|slightly|minimal|minimally|tiny|trace|subtle|a"


_DIRECTIVE = whole_words("|".join(f"(?P<{name}>{pattern})" for name, pattern in _DIRECTIVES.items()))
_ONLY = whole_words(f"(?<!not )(?:only|just|solely)(?! (?:{AMOUNT}) )")
_APPROVAL, _UNSURE, _NO_LABEL = whole_words(APPROVAL), whole_words(UNSURE), re.compile(NO_LABEL)
_NOT = whole_words("no|not|never|hardly|dis ?agree")
_NORMAL = [(whole_words(pattern), labels) for pattern, labels in NORMAL.items()]


@dataclass
class _CommentEffects:
    """Labels that a comment adds, removes or doubts, and flags for its statements that name no label."""

    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    doubted: set[str] = field(default_factory=set)
    is_only: bool = False
    is_none: bool = False
    is_approval: bool = False
    is_unsure: bool = False


class _ByRules:
    """A :class:`reveal_bench.curation.consensus.Reviser`."""

    signature = SIGNATURE

    def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
        """Yield one revision per (vote, suggested labels), in order."""
        for vote, suggested in votes:
            labels = labels_after(vote.comment, suggested, vote.answer)
            yield Revision(vote.study_id, vote.reader, labels, "nothing" if labels is None else "rules")


revise_by_rules = _ByRules()
"""A reviser that applies the rules of :func:`labels_after`."""


def labels_after(comment: str, suggested: Labels, answer: str) -> Labels | None:
    """Return the reader's labels, in the order of REVEAL_LABELS; None if the comment does not determine them.

    Parameters
    ----------
    comment : the reader's text
    suggested : the labels suggested to the reader
    answer : one of :data:`reveal_bench.curation.tables.ANSWERS`

    Examples
    --------
    >>> labels_after("also cardiomegaly and pleural effusions", ("Airspace opacity",), "disagree")
    ('Airspace opacity', 'Cardiomegaly', 'Pleural effusion')
    >>> labels_after("No pneumonia", ("Airspace opacity", "Interstitial opacity"), "disagree") is None
    True
    """
    effects = _CommentEffects()
    for sentence in sentences(comment):
        _add_effects(sentence, effects)
    before = set(suggested)
    if effects.is_only and effects.added:
        return in_order(effects.added)
    labels = (before | effects.added) - ((effects.removed | effects.doubted) - effects.added)
    if labels != before or effects.doubted:
        return in_order(labels)
    if effects.is_none and not effects.added:
        return ()
    is_plausible = answer == AGREE_MOSTLY and (bool(effects.added) or effects.is_unsure)
    return in_order(before) if effects.is_approval or is_plausible else None


def _add_effects(sentence: str, effects: _CommentEffects) -> None:
    """Add the effects of a normalised sentence to `effects`."""
    labelled = [one for one in mentions(sentence) if one.term.label is not None]
    directed = _directives(sentence, labelled)
    for mention, directive in zip(labelled, directed, strict=True):
        label, is_whole = str(mention.term.label), mention.term.finding in WHOLE
        if directive == "remove":
            effects.removed.add(label)
        elif mention.denial == "absent":
            effects.removed |= {label} if is_whole else set()
        elif directive == "doubt" or mention.denial == "doubtful":
            effects.doubted |= {label} if is_whole else set()
        else:
            effects.added.add(label)
            effects.is_only |= _is_only(sentence, mention)
    normal = {label for pattern, labels in _NORMAL if pattern.search(sentence) for label in labels}
    effects.removed |= normal
    if not labelled:
        effects.is_none |= _NO_LABEL.fullmatch(sentence) is not None
        effects.is_approval |= _APPROVAL.search(sentence) is not None and _NOT.search(sentence) is None
        effects.is_unsure |= _UNSURE.search(sentence) is not None


def _directives(sentence: str, labelled: Sequence[Mention]) -> list[str]:
    """Return "add", "remove" or "doubt" for each mention of a label, from the words before or after the mention."""
    state = ["add"] * len(labelled)
    marks = [*_DIRECTIVE.finditer(sentence)]
    for number, mark in enumerate(marks):
        kind = str(mark.lastgroup)
        if kind == "add":
            continue
        before = marks[number - 1].end() if number else 0
        after = marks[number + 1].start() if number + 1 < len(marks) else len(sentence)
        if kind.startswith("doubt"):  # doubt reaches only to the next comma
            before = max(before, sentence.rfind(" , ", before, mark.start()) + 1)
            comma = sentence.find(" , ", mark.end(), after)
            after = comma if comma >= 0 else after
        following = [i for i, one in enumerate(labelled) if mark.end() <= one.start < after]
        preceding = [i for i, one in enumerate(labelled) if before <= one.start and one.end <= mark.start()]
        for i in preceding if kind.endswith("_before") or not following else following:
            state[i] = kind.removesuffix("_before")
    return state


def _is_only(sentence: str, mention: Mention) -> bool:
    """Return True if "only" is in the clause of a mention."""
    start, end = next(clause for clause in clauses(sentence) if mention.start < clause[1])
    return _ONLY.search(sentence, start, end) is not None
