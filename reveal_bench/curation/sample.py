"""Draw the studies for the readers: a random sample, stratified by the number of suggested labels.

Paper 004 (section 2.1) sampled 1,000 of 13,735 studies, each of a different patient, in the strata
:data:`PAPER_STRATA`, so that each of the twelve labels is represented. The paper does not describe how studies are
drawn within a stratum; the docstring of :func:`draw_sample` describes the method used here. If a stratum has too few
studies, the shortage is counted, and other strata compensate for the shortage only on request.

Outputs: ``sample.parquet`` (:class:`~reveal_bench.curation.tables.Sampled`, by study id) and ``set_aside.jsonl``, which
names the studies that could not be drawn because another study of the same patient was kept, or because they cannot be
built (:mod:`reveal_bench.curation.films`), and the files at which a build stops.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.films import CACHE_NAME, FilmPool, unusable_studies
from reveal_bench.curation.folder import CurationFolder, Progress, StepRecord
from reveal_bench.curation.tables import Sampled, Suggestion, label_counts, read_table, write_table
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.sources.mapping import KEY_FACTS

PAPER_STRATA = {1: 300, 2: 300, 3: 319, 4: 76, 5: 4, 6: 1}
"""Number of suggested labels -> number of studies (paper 004, section 2.1)."""

SAMPLE, SET_ASIDE = "sample.parquet", "set_aside.jsonl"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A study that could not be drawn.

    Attributes
    ----------
    kept : the study of the same patient that came first in random order, or None
    reason : why the study cannot be built, naming each film, or None
    """

    study_id: str
    patient_id: str
    kept: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class Stratum:
    """Counts of one stratum: ``wanted + from_above == drawn + short + passed_down``."""

    wanted: int
    candidates: int
    from_above: int = 0
    drawn: int = 0
    short: int = 0
    passed_down: int = 0

    @property
    def room(self) -> int:
        """The number of studies that may still be drawn."""
        return self.wanted + self.from_above - self.passed_down - self.drawn


@dataclass(frozen=True, slots=True)
class SampleDrawn:
    """The result of :func:`draw_sample`; `labels` counts the candidate, drawn and missing studies of every label.

    ``n_suggestions == n_quarantined + n_outside_strata + len(set_aside) + n_candidates``.
    """

    sampled: tuple[Sampled, ...]
    set_aside: tuple[SetAside, ...]
    strata: Mapping[int, Stratum]
    labels: Mapping[str, Mapping[str, int]]
    n_suggestions: int
    n_quarantined: int
    n_outside_strata: int
    n_candidates: int


def sample(
    folder: CurationFolder,
    *,
    strata: Mapping[int, int],
    min_per_label: int = 1,
    fill: bool = False,
    films: FilmPool | None = None,
    redo: bool = False,
    progress: Progress | None = None,
) -> StepRecord:
    """Draw the studies for the readers from ``suggestions.parquet``; see :func:`draw_sample`.

    Parameters
    ----------
    films : the films of the pool; None to draw without looking at films
    progress : called with (studies done, all studies) while films are read

    Returns
    -------
    StepRecord
        The counts are `suggestions`, `quarantined`, `outside_strata`, `unusable`, `set_aside`, `candidates`, `sampled`,
        `short` (in all), `strata` and `labels` with the counts of each, `patients`, the number of patients with
        suggestions, and, if films were found, `films_checked`, the number of studies whose films were read, and
        `unread_files`, the number of files that stop a build without ``--keep-going``.

    Raises
    ------
    ValueError
        If an argument is invalid or a study has two suggestions.
    CurationError
        If the step `extract` is not done, `sample` was done with other settings, or `films` has none of the studies.
    """
    _check(strata, min_per_label)
    if films is not None and films.study_key not in KEY_FACTS:
        raise ArgumentError("study_key", f"must be one of {', '.join(KEY_FACTS)}", repr(films.study_key))

    def work(scratch: Path) -> dict[str, Any]:
        suggestions = read_table(folder.path("suggestions.parquet"), Suggestion)
        asked = [one.study_id for one in suggestions if _is_eligible(one, strata)]
        checked = None if films is None else unusable_studies(films, asked, folder.path(CACHE_NAME), progress)
        unusable, unread = checked or ({}, [])
        counts = {} if checked is None else {"films_checked": len(asked), "unread_files": len(unread)}
        drawn = draw_sample(
            suggestions, strata, folder.rng("sample"), min_per_label=min_per_label, fill=fill, unusable=unusable
        )
        write_table(scratch / SAMPLE, drawn.sampled, Sampled)
        aside = [{name: text for name, text in asdict(one).items() if text is not None} for one in drawn.set_aside]
        aside += [{"file": problem.file, "reason": problem.value} for problem in unread]
        (scratch / SET_ASIDE).write_text("".join(json.dumps(one) + "\n" for one in aside), encoding="utf-8")
        return {"patients": len({one.patient_id for one in suggestions}), **_counts(drawn), **counts}

    settings = {
        "strata": {str(n): size for n, size in sorted(strata.items())},
        "min_per_label": min_per_label,
        "fill": fill,
    }
    if films is not None:
        settings["films"] = films.study_key
    files = {} if films is None else {"films": films.root}
    writes = [SAMPLE, SET_ASIDE]
    return folder.run("sample", settings, work, reads=["suggestions.parquet"], files=files, writes=writes, redo=redo)


def draw_sample(
    suggestions: Iterable[Suggestion],
    strata: Mapping[int, int],
    rng: np.random.Generator,
    *,
    min_per_label: int = 1,
    fill: bool = False,
    unusable: Mapping[str, str] | None = None,
) -> SampleDrawn:
    """Draw studies; the order of `suggestions` does not change the result.

    1. All suggestions, sorted by study id, are put into one random order; below, "first" refers to this order.
       Quarantined suggestions are removed, as are suggestions whose number of labels has no stratum or a stratum of
       size 0. Then studies that cannot be built are set aside.
    2. The first study of each patient is kept, so that all of a patient's studies have the same chance; the others are
       set aside.
    3. Each label is brought to `min_per_label` studies, starting with the label with the fewest candidates (ties in the
       order of REVEAL_LABELS). While a label is short, the next study is chosen among the candidates that have this
       label and whose stratum is not full: the study with the most short labels, and the first of these in a tie.
    4. Every stratum is filled up to its size with the first of its remaining candidates: a simple random sample.
    5. With `fill`, the shortage of a stratum is added to the size of the next lower one (before step 3, starting with
       the highest number of labels), repeatedly if necessary.

    Steps 3 and 4 never exceed the size of a stratum. Step 3 looks ahead by one study only: if strata are nearly as
    small as the number of labels, a label may stay short although another choice would have filled it.

    Parameters
    ----------
    suggestions : one per study
    strata : number of suggested labels -> number of studies, at least one of them above 0
    rng : source of every draw
    min_per_label : minimum number of sampled studies with each label among the suggested ones
    fill : make up for the shortage of a stratum from the next lower one, counted in `from_above` and `passed_down`
    unusable : study id -> reason why the study cannot be built

    Raises
    ------
    ValueError
        If `strata` or `min_per_label` are invalid, or a study occurs twice.
    """
    _check(strata, min_per_label)
    ordered = sorted(suggestions, key=lambda one: one.study_id)
    twice = sorted(study for study, n in Counter(one.study_id for one in ordered).items() if n > 1)
    if twice:
        raise ValueError(f"suggestions.parquet: `study_id` must occur only once, got {twice[0]!r} more than once")
    wanted = {n: size for n, size in strata.items() if size > 0}
    shuffled = [ordered[i] for i in rng.permutation(len(ordered))]
    ok = [one for one in shuffled if one.status == "ok"]
    eligible = [one for one in ok if _is_eligible(one, strata)]
    reasons = unusable or {}
    candidates, others = _one_per_patient([one for one in eligible if one.study_id not in reasons])
    unbuildable = [
        SetAside(one.study_id, one.patient_id, reason=reasons[one.study_id])
        for one in eligible
        if one.study_id in reasons
    ]
    per_stratum = Counter(len(one.labels) for one in candidates)
    counts = {n: Stratum(wanted[n], per_stratum[n]) for n in sorted(wanted)}
    if fill:
        _pass_down(counts)
    drawn = _represent(candidates, counts, min_per_label)
    for one in candidates:
        stratum = counts[len(one.labels)]
        if stratum.room > 0 and one.study_id not in drawn:
            drawn[one.study_id] = one
            stratum.drawn += 1
    for stratum in counts.values():
        stratum.short = stratum.room
    chosen = [Sampled(one.study_id, one.patient_id, one.labels, len(one.labels)) for one in drawn.values()]
    return SampleDrawn(
        sampled=tuple(sorted(chosen, key=lambda one: one.study_id)),
        set_aside=tuple(sorted([*others, *unbuildable], key=lambda one: one.study_id)),
        strata=counts,
        labels=_label_counts(candidates, chosen, min_per_label),
        n_suggestions=len(ordered),
        n_quarantined=len(ordered) - len(ok),
        n_outside_strata=len(ok) - len(eligible),
        n_candidates=len(candidates),
    )


def _check(strata: Mapping[int, int], min_per_label: int) -> None:
    if not any(size > 0 for size in strata.values()):
        raise ArgumentError("strata", "must ask for at least one study", dict(strata))
    for n, size in strata.items():
        if not 0 <= n <= len(REVEAL_LABELS):
            raise ArgumentError("strata", f"must have numbers of labels from 0 to {len(REVEAL_LABELS)}", n)
        if size < 0:
            raise ArgumentError("strata", "must have sizes of at least 0", f"{size} for {n} labels")
    if min_per_label < 0:
        raise ArgumentError("min_per_label", "must be at least 0", min_per_label)


def _is_eligible(one: Suggestion, strata: Mapping[int, int]) -> bool:
    return one.status == "ok" and strata.get(len(one.labels), 0) > 0


def _one_per_patient(studies: Sequence[Suggestion]) -> tuple[list[Suggestion], list[SetAside]]:
    """Return the first study of each patient, and the others."""
    kept: dict[str, Suggestion] = {}
    others = []
    for one in studies:
        first = kept.setdefault(one.patient_id, one)
        if first is not one:
            others.append(SetAside(one.study_id, one.patient_id, first.study_id))
    return list(kept.values()), others


def _pass_down(strata: Mapping[int, Stratum]) -> None:
    """Add the shortage of each stratum to the next lower one; the lowest one's shortage remains."""
    below = sorted(strata, reverse=True)
    for upper, lower in pairwise(below):
        missing = max(strata[upper].room - strata[upper].candidates, 0)
        strata[upper].passed_down = strata[lower].from_above = missing


def _represent(
    candidates: Sequence[Suggestion], strata: Mapping[int, Stratum], min_per_label: int
) -> dict[str, Suggestion]:
    """Return the studies drawn for labels below their minimum, by study id: step 3 of :func:`draw_sample`."""
    drawn: dict[str, Suggestion] = {}
    frequency = label_counts(one.labels for one in candidates)
    short = dict.fromkeys(REVEAL_LABELS, min_per_label)
    for label in sorted(REVEAL_LABELS, key=lambda label: frequency[label]):
        with_it = [one for one in candidates if label in one.labels]
        while short[label] > 0:
            left = [one for one in with_it if one.study_id not in drawn and strata[len(one.labels)].room > 0]
            if not left:
                break
            one = max(left, key=lambda one: sum(short[other] > 0 for other in one.labels))  # ties: the first
            drawn[one.study_id] = one
            strata[len(one.labels)].drawn += 1
            for other in one.labels:
                short[other] -= 1
    return drawn


def _label_counts(
    candidates: Sequence[Suggestion], chosen: Sequence[Sampled], min_per_label: int
) -> dict[str, dict[str, int]]:
    there = label_counts(one.labels for one in candidates)
    drawn = label_counts(one.labels for one in chosen)
    return {
        label: {
            "candidates": there[label],
            "drawn": drawn[label],
            "short": max(min_per_label - drawn[label], 0),
        }
        for label in REVEAL_LABELS
    }


def _counts(drawn: SampleDrawn) -> dict[str, Any]:
    fields = ("wanted", "candidates", "from_above", "drawn", "short", "passed_down")
    return {
        "suggestions": drawn.n_suggestions,
        "quarantined": drawn.n_quarantined,
        "outside_strata": drawn.n_outside_strata,
        "unusable": sum(one.kept is None for one in drawn.set_aside),
        "set_aside": sum(one.kept is not None for one in drawn.set_aside),
        "candidates": drawn.n_candidates,
        "sampled": len(drawn.sampled),
        "short": sum(stratum.short for stratum in drawn.strata.values()),
        "strata": {
            str(n): {name: getattr(stratum, name) for name in fields} for n, stratum in sorted(drawn.strata.items())
        },
        "labels": {label: dict(counts) for label, counts in drawn.labels.items()},
    }
