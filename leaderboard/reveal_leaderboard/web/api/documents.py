"""What the API answers with: the models of its documents, and how each is made of stored rows.

Conventions
-----------
Figures are fractions as released: already rounded, small cells already left out. Moments are UTC texts such as
``2026-11-21T23:05:00Z``. People stand in no public document; an event tells the role of who did it, not the name.
The address of a contact is never shown, nor is the name of an uploaded file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from reveal_bench.kinds import KINDS
from reveal_bench.predictions.report import escape
from reveal_leaderboard.accounts.credentials import MAX_TOKEN_DAYS, TOKEN_DAYS
from reveal_leaderboard.custody import Lint
from reveal_leaderboard.release.release import ReleasedEstimate
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.metadata import Links, Model
from reveal_leaderboard.store.queue import ALIVE_SECONDS

ROLES = {"user": "submitter", "worker": "worker", "cli": "operator"}
"""From the kind of who changed something, the part before the colon, to what is shown; "server" for all else."""
OPERATORS_ALONE = ("hidden", "restored")


def _text_of(moment: object) -> object:
    """Seconds since 1970, as stored rows have them, as a text."""
    return iso_time(moment) if isinstance(moment, (int, float)) else moment


Moment = Annotated[
    str, BeforeValidator(_text_of), Field(json_schema_extra={"format": "date-time"}, examples=["2026-11-21T23:05:00Z"])
]
Id = Annotated[str, Field(examples=["9f86d081884c7d659a2feaa0"])]


def one_of(*words: str, means: str | None = None) -> Any:
    """A text that is one of `words`, as the description of the API tells it."""
    return Field(json_schema_extra={"enum": list(words)}, description=means)


class Document(BaseModel):
    """A part of an answer; what has the same names as a stored row is made of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class ApiFault(Document):
    """One broken rule of a request or of its metadata."""

    field: Annotated[str, Field(examples=["links.code"])]
    rule: Annotated[str, Field(examples=["must be an https:// address"])]
    value: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> ApiFault:
        """From a mapping with these keys; what does not print is escaped, all is cut to a sane length."""
        return cls(**{name: escape(str(raw.get(name, "")))[:500] for name in ("field", "rule", "value")})


class Budget(Document):
    """A team's scored submissions to one version of a benchmark."""

    total: int
    charged: Annotated[int, Field(description="scored")]
    pending: Annotated[int, Field(description="queued or being scored")]
    left: int
    per_day: int
    left_today: int
    next_at: Annotated[
        Moment | None, Field(description="when the next one becomes available; null if none will, or if one is left")
    ]
    board_left: Annotated[int, Field(description="of all teams together")]
    why: str


class ApiProblem(BaseModel):
    """An error (RFC 9457). Further members, such as `report`, are there where they help."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Annotated[str, Field(examples=["/problems/quota"])]
    title: str
    status: int
    detail: str
    errors: list[ApiFault] | None = None
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
        return cls(at=event.at, who=who, from_status=event.from_status, to_status=event.to_status, why=event.why)


class ScoreDocument(BaseModel):
    """All that is shown of a score on one version of the benchmark.

    When the ladder held the new figures back, `is_held` is true and the figures are those of submission `shown_of`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    version: str
    part: Literal["public", "final"]
    is_held: bool
    shown_of: Id
    figures: list[ReleasedEstimate]
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
        names = ("version", "part", "is_held", "shown_of", "signature", "reference_hash", "scored_at")
        return cls(**score.released, **{name: getattr(score, name) for name in names})


class EventList(Document):
    """The history of a submission, oldest first."""

    events: list[EventDocument]


class ApiReceipt(Document):
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


class BenchmarkDocument(Document):
    """A benchmark that this board serves, at the version that it shows."""

    name: str
    title: str
    kind: Annotated[str, one_of(*KINDS)]
    version: str
    versions: Annotated[list[str], Field(description="all versions whose boards can be asked for")]
    split: str
    state: Annotated[str, one_of("open", "paused", "closed", means="whether it takes submissions")]
    state_why: str
    synthetic: Annotated[bool, Field(description="whether the data are synthetic")]
    findings: list[str]
    n_items: Annotated[int, Field(description="images, studies or tasks that the scored split asks for")]
    items: Annotated[str, one_of(*(kind.items for kind in KINDS.values()))]
    grid: Annotated[int | None, Field(description="cells per side; null where nothing is localized")]
    asks: str | None
    settings: Annotated[dict[str, Any], Field(description="release, quota, exposure, reading, citation and terms")]


class BenchmarkList(Document):
    """The benchmarks that are served."""

    benchmarks: list[BenchmarkDocument]


class ApiManifestRow(Document):
    """What is asked of one image, of one study, or of one task: of this its category."""

    image_id: str | None = None
    study_id: str | None = None
    task_id: str | None = None
    prompt: str | None = None
    indication: str | None = None
    requires_boxes: bool | None = None
    view: str | None = None
    width: int | None = None
    height: int | None = None
    asked: list[str]


class ManifestDocument(Document):
    """The public manifest of a scored split."""

    benchmark: BenchmarkDocument
    rows: list[ApiManifestRow]


class ApiBoardVersion(Document):
    """A version that is or was on the board; `frozen_at` is null for the one that submissions go to."""

    version: str
    shown_at: Moment
    frozen_at: Moment | None


class MetricDocument(Document):
    """A column of the board."""

    name: Annotated[str, Field(examples=["point_hit"])]
    title: str
    better: Annotated[str, Field(examples=["higher"])]


class EntryDocument(Document):
    """A submission on the board. Members of a tier do not differ significantly: their order means nothing."""

    submission_id: Id
    model: str
    model_version: str
    team: str
    kind: str
    prompt_style: str | None
    date: Annotated[str, Field(json_schema_extra={"format": "date"})]
    version: str
    rank: Annotated[int | None, Field(description="of its tier; null without a place")]
    rank_low: int | None
    rank_high: int | None
    tier: Annotated[str | None, Field(examples=["A"])]
    is_new: Annotated[bool, Field(description="scored since the ranks were computed, and being placed")]
    place: Annotated[str, Field(examples=["2-5"])]
    figures: list[ReleasedEstimate]
    hidden: list[str]


class ReferenceDocument(Document):
    """A row that a paper published; never ranked."""

    name: str
    kind: str
    prompt_style: str | None
    citation: str
    url: str
    place: Annotated[str, Field(description="where in the paper the figures stand")]
    protocol: str
    notes: str
    figures: Annotated[dict[str, dict[str, float]], Field(description="metric -> finding -> fraction")]
    macro: Annotated[dict[str, float], Field(description="metric -> fraction")]


class Board(Document):
    """The board of one version of a benchmark: its entries in order, and published rows beside them."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    schema_: Annotated[int, Field(alias="schema", description="of this document")]
    benchmark: str
    title: str
    kind: Annotated[str, one_of(*KINDS)]
    version: str
    split: str
    synthetic: bool
    is_frozen: Annotated[bool, Field(description="a later version is on the board")]
    min_cell: int
    primary: Annotated[str, Field(examples=["point_hit"])]
    findings: list[str]
    hidden: Annotated[list[str], Field(description="findings with too few cases to be shown")]
    notes: list[str]
    ranked_at: Moment | None
    n_items: Annotated[int | None, Field(description="held-out images, studies or tasks")]
    n_patients: Annotated[int | None, Field(description="whose they are; null where each counts as a patient")]
    chance: Annotated[dict[str, float], Field(description="metric -> macro of answers drawn at random, a fraction")]
    versions: list[ApiBoardVersion]
    metrics: list[MetricDocument]
    entries: list[EntryDocument]
    references: list[ReferenceDocument]


class ApiComparison(Document):
    """Two submissions compared by what is released of both."""

    a: Id
    b: Id
    benchmark: str
    version: str
    document: dict[str, Any]


class Key(Document):
    """A public key with which receipts are signed."""

    algorithm: Literal["Ed25519"] = "Ed25519"
    key_id: str
    public_key: Annotated[str, Field(description="32 bytes, base64")]
    first: Annotated[int | None, Field(description="number of the first receipt signed with it; null before that")]
    last: int | None


class Keys(Document):
    """The keys of the workers that sign receipts."""

    keys: list[Key]


class ApiMembership(Document):
    """A team of the asker's."""

    id: Id
    name: str
    role: Annotated[str, one_of("owner", "member", "reader")]


class Account(Document):
    """Who is asking."""

    id: Id
    name: str
    is_admin: bool
    via: Annotated[str, one_of("session", "token", "local")]
    scopes: list[str]
    teams: list[ApiMembership]


class ApiLedgerRow(Document):
    """One booking: reserved +1, charged 0, refunded -1, granted -n; the sum counts against the total."""

    at: Moment
    kind: Annotated[str, one_of("reserved", "charged", "refunded", "granted")]
    amount: int
    submission_id: Id | None
    why: str


class LedgerDocument(Document):
    """The itemised account of a team for one version of a benchmark."""

    team: ApiMembership
    benchmark: str
    version: str
    balance: Budget
    rows: list[ApiLedgerRow]


class LedgerList(Document):
    """The accounts of all teams of the asker."""

    ledgers: list[LedgerDocument]


class InvitedTo(Document):
    """A team that invites."""

    id: Id
    name: str


class InvitationDocument(Document):
    """An open invitation; `inviter` is the name of who invites."""

    id: Id
    team: InvitedTo
    role: str
    inviter: str
    created_at: Moment
    expires_at: Moment


class InvitationList(Document):
    """The asker's open invitations, oldest first."""

    invitations: list[InvitationDocument]


class InvitationAnswer(BaseModel):
    """What the person invited says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: Literal["accept", "decline"]


class TokenDocument(Document):
    """A token, without its secret."""

    id: Id
    name: str
    team_id: Id
    scopes: list[str]
    created_at: Moment
    expires_at: Moment
    used_at: Moment | None
    revoked_at: Moment | None


class TokenList(Document):
    """The asker's tokens."""

    tokens: list[TokenDocument]


class TokenIssued(Document):
    """A new token; `secret` is shown this once."""

    token: TokenDocument
    secret: str


class TokenRequest(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,63}$", examples=["workstation"])]
    team_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
    scopes: Annotated[Sequence[Literal["read", "submit"]], Field(min_length=1, max_length=2)] = ("read", "submit")
    days: Annotated[int, Field(ge=1, le=MAX_TOKEN_DAYS, description="days until it expires")] = TOKEN_DAYS


class Health(Document):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Document):
    """Whether the server can work, and who works for it."""

    status: Literal["ready"]
    confinement: Annotated[str, Field(description="how this process is confined")]
    benchmarks: list[str]
    queued: int
    live_workers: Annotated[int, Field(description=f"workers seen within {ALIVE_SECONDS:g} seconds")]
    worker_confinement: list[str]
