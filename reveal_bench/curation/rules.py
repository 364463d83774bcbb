"""Labels read out of reports by rules: no model, no network, the same answer everywhere.

What is looked for is in :mod:`reveal_bench.curation.terms`, which sections are read in
:mod:`reveal_bench.curation.sentences`, what is denied and how hedges are read in :mod:`reveal_bench.curation.denials`.
A finding that one sentence asserts is there, whatever another one says. Every pattern has bounded repetitions: time is
linear in the length of the report. A change of any of these that changes an answer raises the version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from reveal_bench.curation.denials import POLICY, Denial, clauses, denials
from reveal_bench.curation.folder import Progress
from reveal_bench.curation.reports import Quarantined, Report
from reveal_bench.curation.sentences import sentences, told_sections
from reveal_bench.curation.tables import Finding, Labels, Suggestion, in_order
from reveal_bench.curation.terms import EXPLAINED_AWAY, LARGEST_NODULE_CM, SIDED, SIDES, TERMS, Term

__all__ = ["SIGNATURE", "Mention", "Rules", "find_findings", "labels_of", "mentions"]

SIGNATURE = "rules|v:2"

_IS = (
    "(?:(?:is|are|was|were|be|been|has|have|had|to|remains?|appears?|looks?|seems?|became|size|not|no|longer|now|again"
    "|still|also|and|stable|stably|unchanged|persistently|mildly|moderately|markedly|slightly|severely|grossly|massively"
    "|minimally|somewhat|mild|moderate|marked|diffusely|bilaterally|both|seen|noted|likely|probably|chronically|at"
    "|least) ){0,6}"
)
_GAP = "(?:[a-z]+ ){0,5}"


@dataclass(frozen=True, slots=True)
class Mention:
    """A term at a place of a normalised sentence, in characters; and how it is denied, if it is."""

    term: Term
    start: int
    end: int
    denial: Denial | None = None
    side: str | None = None


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(f"(?<![^ ])(?:{pattern.replace('{is}', _IS).replace('{gap}', _GAP)})(?![^ ])")


_PATTERNS = tuple(tuple(_compiled(pattern) for pattern in term.patterns) for term in TERMS)
_AWAY = {finding: re.compile(rf"\b(?:{pattern})\b") for finding, pattern in EXPLAINED_AWAY.items()}
_SIDE = re.compile("|".join(rf"(?P<{side}>(?<![^ ]){pattern}(?![^ ]))" for side, pattern in SIDES.items()))
_SIZE = re.compile(
    r"(?<![^ ])(?<!from )(?<!previously )(?<!formerly )(\d+(?:\.\d+)?)(?: (?:x|by|to) (\d+(?:\.\d+)?)){0,2}"
    r" (cm|mm|centimet(?:er|re)s?|millimet(?:er|re)s?)(?! (?:above|below|from|to) )(?![^ ])"
)


class Rules:
    """The engine, see :class:`reveal_bench.curation.reports.Engine`.

    A report without any findings or impression is quarantined.
    """

    signature = SIGNATURE

    def settings(self) -> dict[str, Any]:
        """How hedges are read."""
        return {"hedges": POLICY}

    def run(
        self, reports: Iterable[Report], scratch: Path, progress: Progress | None = None
    ) -> Iterator[Suggestion | Quarantined]:
        """One answer per report, in their order; nothing is kept in `scratch`."""
        listed = list(reports)
        for done, report in enumerate(listed, start=1):
            findings = find_findings(report.text)
            if findings is None:
                yield Quarantined(report.study_id, report.patient_id, "no findings or impression to read", SIGNATURE)
            else:
                labels = labels_of(findings)
                yield Suggestion(report.study_id, report.patient_id, findings, labels, "ok", SIGNATURE)
            if progress is not None:
                progress(done, len(listed))


def find_findings(report: str) -> tuple[Finding, ...] | None:
    """What a report says is there, once each, in the order of the report; None if it tells nothing of the film.

    Findings of none of the twelve labels are among them, where they are known. One that is named with a side and
    without is given with the side only.

    Examples
    --------
    >>> find_findings("Small left effusion. No pneumothorax.")
    (Finding(finding='pleural effusion', side='left', icd10='J90', label='Pleural effusion'),)
    >>> find_findings("INDICATION: Pneumonia?") is None
    True
    """
    told = told_sections(report)
    if not told:
        return None
    found: dict[Finding, None] = {}
    for sentence in sentences(told):
        for mention in mentions(sentence):
            if mention.denial is None and mention.term.finding:
                term = mention.term
                found[Finding(term.finding, mention.side, term.icd10, term.label)] = None
    sided = {finding.finding for finding in found if finding.side is not None}
    return tuple(one for one in found if one.side is not None or one.finding not in sided)


def labels_of(findings: Iterable[Finding]) -> Labels:
    """The labels of findings, once each, in the order of REVEAL_LABELS."""
    return in_order(finding.label for finding in findings if finding.label is not None)


@lru_cache(maxsize=1 << 14)
def mentions(sentence: str) -> tuple[Mention, ...]:
    """The terms of a normalised sentence, those that count: in their order, denied or not."""
    found = {
        (match.start(), match.end(), number)
        for number, patterns in enumerate(_PATTERNS)
        for pattern in patterns
        for match in pattern.finditer(sentence)
    }
    kept = _uncovered(found)
    found_denials = denials(sentence, [(start, end) for start, end, _ in kept])
    listed = [
        Mention(TERMS[number], start, end, denial)
        for (start, end, number), denial in zip(kept, found_denials, strict=True)
    ]
    listed = [replace(one, denial="absent") if _is_explained(one, sentence) else one for one in listed]
    return tuple(_sided(one, sentence) for one in _told_by_size(listed, sentence))


def _uncovered(found: set[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Without those that lie within a longer one."""
    kept: list[tuple[int, int, int]] = []
    furthest = -1
    for start, end, number in sorted(found, key=lambda one: (one[0], -one[1])):
        if end > furthest or (start, end) == kept[-1][:2]:
            kept.append((start, end, number))
            furthest = end
    return kept


def _is_explained(mention: Mention, sentence: str) -> bool:
    pattern = _AWAY.get(mention.term.finding)
    return pattern is not None and pattern.search(sentence) is not None


def _told_by_size(listed: list[Mention], sentence: str) -> list[Mention]:
    """Nodules and masses as their sizes have it: every size belongs to the nearest finding."""
    largest: dict[int, float] = {}
    for match in _SIZE.finditer(sentence):
        if not listed:
            break
        nearest = min(range(len(listed)), key=lambda number: _distance(listed[number], match.start(), match.end()))
        unit = 10.0 if match[3].startswith("m") else 1.0
        largest[nearest] = max(float(match[1]), float(match[2] or 0)) / unit
    return [_sized(one, largest.get(number)) for number, one in enumerate(listed)]


def _sized(mention: Mention, cm: float | None) -> Mention:
    if not mention.term.sized or cm is None:
        return mention
    finding, label = ("nodule", "Lung nodule") if cm <= LARGEST_NODULE_CM else ("mass", "Lung mass")
    return replace(mention, term=replace(mention.term, finding=finding, label=label))


def _sided(mention: Mention, sentence: str) -> Mention:
    """With the side that is named nearest in its clause, before it if it can be."""
    if mention.term.label not in SIDED:
        return mention
    start, end = next(clause for clause in clauses(sentence) if mention.start < clause[1])
    named = [*_SIDE.finditer(sentence, start, end)]
    if not named:
        return mention
    best = min(named, key=lambda match: _distance(mention, match.start(), match.end()))
    return replace(mention, side=best.lastgroup)


def _distance(mention: Mention, start: int, end: int) -> int:
    """Characters between a mention and a place; one after it is a little farther."""
    if start >= mention.end:
        return start - mention.end + 2
    return max(mention.start - end, 0)
