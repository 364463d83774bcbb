"""The documents that children answer, checked before a word of them is used.

Conventions
-----------
Models are strict and take no field that they do not know: a child that was taken over can say no more than a child in
good order. Figures must be rounded as the policy says and of findings that it shows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from reveal_bench.kinds import KINDS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.settings import ReleasePolicy

__all__ = ["CompareAnswer", "ParseAnswer", "RankAnswer", "ScoreAnswer", "check_released"]

Short = Annotated[str, Field(max_length=200)]
_STEPS = (0.02, 0.05, 0.1, 0.25)  # coarser than a policy's own, to which its macros may be rounded
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ParseAnswer(_Strict):
    """What a parse child says: a report that :meth:`LintReport.from_json` checks, and signs for moderators."""

    report: str
    signs: Annotated[list[Annotated[str, Field(max_length=20_000)]], Field(max_length=50)]


class _Figure(_Strict):
    metric: Short
    finding: Short
    value: Finite
    low: Finite | None
    high: Finite | None
    n: Short
    signature: Annotated[str, Field(max_length=500)]


class _Released(_Strict):
    figures: Annotated[list[_Figure], Field(max_length=1000)]
    shown: Annotated[list[Short], Field(max_length=200)]
    hidden: Annotated[list[Short], Field(max_length=200)]
    note: Annotated[str, Field(max_length=20_000)]
    policy: dict[Short, Any]


class _Fingerprint(_Strict):
    content: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    sketch: Annotated[list[int], Field(max_length=10_000)]


class ScoreAnswer(_Strict):
    """What a score child says."""

    released: _Released
    final: _Released | None
    reference_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    fingerprint: _Fingerprint


class _Place(_Strict):
    rank: Annotated[int, Field(ge=1)]
    rank_low: Annotated[int, Field(ge=1)]
    rank_high: Annotated[int, Field(ge=1)]
    tier: Short


class RankAnswer(_Strict):
    """What a rank child says, see :func:`reveal_leaderboard.release.ranking.rank_document`."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    metric: Short
    n_resamples: int
    seed: int
    findings: list[Short]
    entries: dict[Short, _Place]
    computed_for: list[Short]


def _known_kind(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {name!r}")
    return name


class _Difference(_Strict):
    metric: Short
    finding: Short
    a: Finite
    b: Finite
    value: Finite
    low: Finite | None
    high: Finite | None
    told_apart: bool


class CompareAnswer(_Strict):
    """What a compare child says, see :func:`reveal_leaderboard.release.ranking.compare_document`."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    kind: Annotated[Short, AfterValidator(_known_kind)]
    a: Short
    b: Short
    rows: Annotated[list[_Difference], Field(max_length=1000)]
    note: Annotated[str, Field(max_length=20_000)]


def check_released(answer: _Released, policy: ReleasePolicy) -> ReleasedScore:
    """The score, if it is of this policy: figures rounded, and only of what is shown.

    Raises
    ------
    ValueError
        If it is not.
    """
    raw = answer.model_dump(mode="json")
    score = replace(ReleasedScore.from_json(raw), policy=asdict(policy))
    if json.loads(json.dumps(score.to_json())) != raw:
        raise ValueError("the released score must be one of this policy, and nothing else")
    steps = [policy.resolution, *(step for step in (policy.small_resolution, *_STEPS) if step > policy.resolution)]
    for figure in score.figures:
        for number in (figure.value, figure.low, figure.high):
            if number is not None and not any(abs(number - step * round(number / step)) < 1e-9 for step in steps):
                raise ValueError("released figures must be rounded as the policy says")
        if figure.finding != MACRO and figure.finding not in score.shown:
            raise ValueError("released figures must be of findings that are shown")
    return score
