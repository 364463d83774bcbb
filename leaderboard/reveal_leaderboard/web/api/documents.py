"""What the API answers with about submissions: the models of its documents, and how each is made of stored rows.

Boards, accounts and health have theirs in :mod:`.board_documents`.

Conventions
-----------
Figures are fractions as released: already rounded, small cells already left out. Moments are UTC texts such as
``2026-11-21T23:05:00Z``. People stand in no public document; an event tells the role of who did it, not the name.
The address of a contact is never shown, nor is the name of an uploaded file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reveal_bench.entries.report import LintReport, escape
from reveal_leaderboard.boards.standings import iso_time
from reveal_leaderboard.store.metadata import Links, Model

__all__ = [
    "Budget", "Document", "EventDocument", "EventList", "Fault", "FigureDocument", "Id", "Lint",
    "lint_document", "one_of", "LintProblem", "Moment", "Problem", "ProblemPage", "PublicMetadata", "Receipt",
    "ScoreDocument", "SubmissionDocument", "SubmissionList", "SubmissionReceived",
]  # fmt: skip

ROLES = {"user": "submitter", "worker": "worker", "cli": "operator"}
"""From the kind of who changed something, the part before the colon, to what is shown; "server" for all else."""
OPERATORS_ALONE = ("hidden", "restored")

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-11-21T23:05:00Z"])]
Id = Annotated[str, Field(examples=["9f86d081884c7d659a2feaa0"])]
Fraction = Annotated[float, Field(examples=[0.47])]


def one_of(*words: str, means: str | None = None) -> Any:
    """A text that is one of `words`, as the description of the API tells it."""
    return Field(json_schema_extra={"enum": list(words)}, description=means)


class Document(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(Document):
    """One broken rule of a request or of its metadata."""

    field: Annotated[str, Field(examples=["links.code"])]
    rule: Annotated[str, Field(examples=["must be an https:// address"])]
    value: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Fault:
        """From a mapping with these keys; what does not print is escaped, all is cut to a sane length."""
        return cls(**{name: escape(str(raw.get(name, "")))[:500] for name in ("field", "rule", "value")})


class LintProblem(Document):
    """One finding of the linter; `line` is null when it concerns the whole file."""

    severity: Literal["error", "warning"]
    file: str
    line: int | None
    field: str
    rule: Annotated[str, Field(examples=["rle-sum"])]
    value: str
    message: str
    hint: str


class Lint(Document):
    """The linter's report; it knows the public manifest and no reference."""

    file: str
    format: Annotated[str, Field(examples=["jsonl"])]
    ok: bool
    n_entries: int
    n_errors: int
    n_warnings: int
    allow_missing: bool
    problems: list[LintProblem]
    missing_pairs: Annotated[list[list[str]], Field(description="[image, finding] or [study]: asked, not predicted")]
    statistics: dict[str, Any]


def lint_document(report: LintReport) -> Lint:
    """A lint report as the API shows it."""
    return Lint(
        **{name: getattr(report, name) for name in ("file", "format", "ok", "n_entries", "n_errors", "n_warnings")},
        allow_missing=report.allow_missing,
        problems=[LintProblem(**{name: getattr(p, name) for name in p.__slots__}) for p in report.problems],
        missing_pairs=[[str(part) for part in pair] for pair in report.missing_pairs],
        statistics=dict(report.statistics),
    )


class Budget(Document):
    """A team's scored submissions to one version of a benchmark."""

    total: int
    charged: Annotated[int, Field(description="scored")]
    pending: Annotated[int, Field(description="queued or being scored")]
    left: int
    per_day: int
    left_today: int
    next_at: Annotated[
        Moment | None, Field(description="when the next is given; null if none is to come or one is left")
    ]
    board_left: Annotated[int, Field(description="of all teams together")]
    why: str


class Problem(BaseModel):
    """An error (RFC 9457). Further members, such as `report`, are there where they help."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Annotated[str, Field(examples=["/problems/quota"])]
    title: str
    status: int
    detail: str
    errors: list[Fault] | None = None
    report: Lint | None = None
    balance: Budget | None = None
    confinement: str | None = None


class ProblemPage(Document):
    """What a type of problem means."""

    type: str
    title: str
    status: int
    meaning: str


class PublicMetadata(Document):
    """What a submitter said of a submission, without the contact."""

    model: Model
    organization: str
    kind: str
    prompt_style: str | None = None
    parameters: dict[str, str | int | float | bool | None] | None = None
    grid: int | None = None
    thresholds: float | dict[str, float] | None = None
    training_data: str | None = None
    known_overlap: str | None = None
    links: Links = Links()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PublicMetadata:
        """From the stored metadata."""
        return cls.model_validate({name: value for name, value in stored.items() if name in cls.model_fields})


class EventDocument(Document):
    """One change of a submission."""

    at: Moment
    who: Literal["submitter", "operator", "worker", "server"]
    from_status: str | None
    to_status: str
    why: str

    @classmethod
    def of(cls, event: Any) -> EventDocument:
        """From a row of the event log."""
        who: Any = ROLES.get(event.who.split(":")[0], "server")
        if event.to_status in OPERATORS_ALONE:
            who = "operator"
        return cls(
            at=iso_time(event.at), who=who, from_status=event.from_status, to_status=event.to_status, why=event.why
        )


class FigureDocument(BaseModel):
    """A released number: value and 95 % interval as fractions, and the band of cases behind it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    metric: Annotated[str, Field(examples=["point_hit"])]
    finding: Annotated[str, Field(examples=["macro"])]
    value: Fraction
    low: Fraction | None
    high: Fraction | None
    n: Annotated[str, Field(examples=["60-119"])]
    signature: str


class ScoreDocument(BaseModel):
    """All that is shown of a score on one version of the benchmark.

    When the ladder held the new figures back, `is_held` is true and the figures are those of submission `shown_of`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    version: str
    part: Literal["public", "final"]
    is_held: bool
    shown_of: Id
    figures: list[FigureDocument]
    shown: list[str]
    hidden: list[str]
    note: str
    policy: dict[str, Any]
    signature: str
    reference_hash: str
    scored_at: Moment

    @classmethod
    def of(cls, score: Any) -> ScoreDocument:
        """From a row of the scores."""
        return cls(
            **score.released,
            version=score.version,
            part=score.part,
            is_held=score.is_held,
            shown_of=score.shown_of,
            signature=score.signature,
            reference_hash=score.reference_hash,
            scored_at=iso_time(score.scored_at),
        )


class EventList(Document):
    """The history of a submission, oldest first."""

    events: list[EventDocument]


class Receipt(Document):
    """A signed receipt; `reveal-bench verify-receipt` checks it offline."""

    receipt: Annotated[dict[str, Any], Field(description="what is signed: figures as texts, and the chain before it")]
    hash: Annotated[str, Field(description="SHA-256 of the receipt's canonical bytes")]
    signature: Annotated[str, Field(description="Ed25519, base64")]


class SubmissionDocument(Document):
    """A submission as its reader may see it: state, history, and the released score once there is one."""

    id: Id
    url: str
    status: Literal[
        "received", "linted", "queued", "scoring", "reading", "scored", "refused", "failed", "withdrawn"
    ]  # fmt: skip
    is_public: Annotated[bool, Field(description="whether everybody sees it, or its team only")]
    is_chosen: Annotated[bool, Field(description="whether it is the one of its model that the board shows")]
    queue_position: Annotated[int | None, Field(description="1 for the next to be scored; null unless queued")]
    expected_seconds: Annotated[
        float | None, Field(description="until it is scored, from recent ones; null if unknown")
    ]
    benchmark: str
    version: Annotated[str, Field(description="the version it was sent to")]
    split: str
    metadata: PublicMetadata
    allow_missing: bool
    sha256: str
    created_at: Moment
    updated_at: Moment
    withdrawn_at: Moment | None
    hidden_why: Annotated[str | None, Field(description="why an operator took it off the board")]
    incident: Annotated[str | None, Field(examples=["INC-1A2B3C4D"])]
    versions: Annotated[list[str], Field(description="versions of the benchmark on which it has a score")]
    score: ScoreDocument | None
    events: list[EventDocument]


class SubmissionReceived(SubmissionDocument):
    """The answer to an upload."""

    is_new: Annotated[bool, Field(description="false if the same file was there already")]
    report: Lint


class SubmissionList(Document):
    """Submissions, the newest first."""

    submissions: list[SubmissionDocument]
    n: Annotated[int, Field(description="how many there are in all")]
