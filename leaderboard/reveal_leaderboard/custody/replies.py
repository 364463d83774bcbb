"""Data models of the children's answers, by which answers are validated before use.

The lint report of a child is a :class:`Lint`, which the API returns unchanged.

Conventions
-----------
Models reject unknown fields, so a compromised child can say no more than a healthy one. Scores must be rounded as the
policy requires, and belong to findings that the policy shows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.predictions.report import verdict_of
from reveal_leaderboard.release.release import ReleasedScore, Short
from reveal_leaderboard.settings import ReleasePolicy

_STEPS = (0.02, 0.05, 0.1, 0.25)  # further steps, larger than the policy's, to which macros may be rounded
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ApiLintProblem(_StrictModel):
    """A problem found by the linter; `line` is null if the problem concerns the whole file."""

    severity: Literal["error", "warning"]
    file: str
    line: int | None
    field: str
    rule: Annotated[str, Field(examples=["rle-sum"])]
    value: str
    message: str
    hint: str


_Statistics = Annotated[
    dict[str, int | Finite | dict[str, int | Finite]], WithJsonSchema({"additionalProperties": True, "type": "object"})
]


class Lint(_StrictModel):
    """The linter's report, which depends only on the file and the public manifest."""

    schema_: Annotated[int, Field(alias="schema", ge=1, le=1, exclude=True)]
    file: str
    format: Annotated[str, Field(examples=["jsonl"])]
    ok: bool
    n_entries: int
    n_predictions: Annotated[int, Field(exclude=True)]
    n_errors: int
    n_warnings: int
    allow_missing: bool
    problems: list[ApiLintProblem]
    missing_pairs: Annotated[
        list[list[str]], Field(description="questions without a prediction, as [image, finding] or [study]")
    ]
    abstained: Annotated[
        list[list[str]],
        Field(
            description="questions that the model declined, which count as misses, as [image, "
            "finding], "
            "[study] or "
            "[image]"
        ),
    ]
    statistics: _Statistics

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        n_errors = sum(problem.severity == "error" for problem in self.problems)
        counts = (n_errors, len(self.problems) - n_errors, n_errors == 0)
        if (self.n_errors, self.n_warnings, self.ok) != counts:
            raise ValueError(f"(`n_errors`, `n_warnings`, `ok`) must be {counts}, as the problems say")
        if not 0 <= self.n_predictions <= self.n_entries:
            raise ValueError(f"`n_predictions` must be in [0, `n_entries`], got {self.n_predictions}")
        if any(len(pair) != 2 for pair in (*self.missing_pairs, *self.abstained)):
            raise ValueError("`missing_pairs` and `abstained` must contain pairs")
        return self

    @property
    def verdict(self) -> str:
        """The numbers of errors and warnings as text."""
        return verdict_of(self.n_errors, self.n_warnings)


class Parsed(_StrictModel):
    """The result of a parse child.

    Attributes
    ----------
    signs : sentences for moderators if a file without errors seems to probe the labels; they do not depend on
        references
    """

    report: Lint
    signs: Annotated[list[Annotated[str, Field(max_length=20_000)]], Field(max_length=50)]


class _Fingerprint(_StrictModel):
    content: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    sketch: Annotated[list[int], Field(max_length=10_000)]


class ScoreAnswer(_StrictModel):
    """The result of a score child."""

    released: ReleasedScore
    final: ReleasedScore | None
    reference_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    fingerprint: _Fingerprint


class _RankedEntry(_StrictModel):
    rank: Annotated[int, Field(ge=1)]
    rank_low: Annotated[int, Field(ge=1)]
    rank_high: Annotated[int, Field(ge=1)]
    tier: Short


class RankAnswer(_StrictModel):
    """The result of a rank child, see :func:`reveal_leaderboard.release.ranking.rank_document`."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    metric: Short
    n_resamples: int
    seed: int
    paired: bool
    findings: list[Short]
    entries: dict[Short, _RankedEntry]
    computed_for: list[Short]
    n_patients: Annotated[int, Field(ge=0)]
    chance: dict[Short, Annotated[int, Field(ge=0, le=100)]]


def check_released(score: ReleasedScore, policy: ReleasePolicy) -> ReleasedScore:
    """Return the score if its numbers are rounded by this policy and all belong to shown findings.

    Raises
    ------
    ValueError
        If the score does not follow the policy.
    """
    settings = asdict(policy)
    if dict(score.policy) != json.loads(json.dumps(settings)):
        raise ValueError("the released score must contain this policy and nothing else")
    steps = [policy.resolution, *(step for step in (*policy.band_resolution, *_STEPS) if step > policy.resolution)]
    for figure in score.figures:
        for number in (figure.value, figure.low, figure.high):
            if number is not None and not any(abs(number - step * round(number / step)) < 1e-9 for step in steps):
                raise ValueError("released scores must be rounded as the policy says")
        if figure.finding != MACRO and figure.finding not in score.shown:
            raise ValueError("released scores must belong to shown findings")
    return replace(score, policy=settings)
