"""Data models of the API's answers, and their construction from stored rows.

Conventions
-----------
Scores are released fractions: rounded, and without findings that have few cases. Times are UTC texts such as
``2026-11-21T23:05:00Z``. Public documents name no people; an event has the author's role, not the name. Contact
addresses and names of uploaded files are never shown. In the API's description, class names have no prefix `Api`:
`ApiReceipt` is `Receipt`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from reveal_bench.kinds import KINDS
from reveal_bench.predictions.report import escape
from reveal_leaderboard.accounts.credentials import MAX_TOKEN_DAYS, TOKEN_DAYS
from reveal_leaderboard.custody import Lint
from reveal_leaderboard.release.release import ReleasedEstimate
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.metadata import Links, Model
from reveal_leaderboard.store.queue import ALIVE_SECONDS

ROLES = {"user": "submitter", "worker": "worker", "cli": "operator"}
"""Prefix of an actor's name in the event log -> displayed role; any other prefix is displayed as "server"."""
OPERATORS_ALONE = ("hidden", "restored")


def _text_of(moment: object) -> object:
    """Return a stored time (seconds since 1970) as a UTC text."""
    return iso_time(moment) if isinstance(moment, (int, float)) else moment


Moment = Annotated[
    str, BeforeValidator(_text_of), Field(json_schema_extra={"format": "date-time"}, examples=["2026-11-21T23:05:00Z"])
]
Id = Annotated[str, Field(examples=["9f86d081884c7d659a2feaa0"])]


def one_of(*words: str, means: str | None = None) -> Any:
    """Return the type of a text field that the API's description restricts to `words`."""
    return Field(json_schema_extra={"enum": list(words)}, description=means)


def found_at(*path: str) -> Any:
    """Return a field that is read from other attributes of the object that a document is created from."""
    return Field(validation_alias=AliasPath(*path))


class Document(BaseModel):
    """Base class of all documents; can be created from an object with the same attributes, such as a stored row."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class ApiFault(Document):
    """A rule that a request or its metadata breaks."""

    field: Annotated[str, Field(examples=["links.code"])]
    rule: Annotated[str, Field(examples=["must be an https:// address"])]
    value: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> ApiFault:
        """Return the error from a mapping with these fields as keys; escape unprintable characters, cut long texts."""
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
        Moment | None,
        Field(
            description="time when the next submission becomes available; null if one is available now, or none will be"
        ),
    ]
    board_left: Annotated[int, Field(description="submissions left for all teams together")]
    why: str


class ApiProblem(BaseModel):
    """An error (RFC 9457), for some types with further members such as `report`."""

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
    """Meaning of a problem type."""

    type: str
    title: str
    status: int
    meaning: str


class PublicTuning(Document):
    """The data on which a submission's thresholds were tuned, without the name of the sender's file."""

    benchmark: str
    version: str
    split: str
    n: int
    criterion: str


class PublicMetadata(Document):
    """A submission's metadata, without the contact and the name of the file on which thresholds were tuned."""

    model: Model
    organization: str
    kind: str
    prompt_style: str | None = None
    parameters: dict[str, str | int | float | bool | None] | None = None
    grid: int | None = None
    thresholds: float | dict[str, float] | None = None
    tuning: PublicTuning | None = None
    training_data: str | None = None
    known_overlap: str | None = None
    links: Links = Links()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PublicMetadata:
        """Return the public part of stored metadata."""
        fields = {name: value for name, value in stored.items() if name in cls.model_fields}
        if tuning := fields.get("tuning"):
            fields["tuning"] = {name: value for name, value in tuning.items() if name in PublicTuning.model_fields}
        return cls.model_validate(fields)


class EventDocument(Document):
    """An event in the history of a submission."""

    at: Moment
    who: Literal["submitter", "operator", "worker", "server"]
    from_status: str | None
    to_status: str
    why: str

    @classmethod
    def of(cls, event: Any) -> EventDocument:
        """Return the document of a row of the event log."""
        who: Any = ROLES.get(event.who.split(":")[0], "server")
        if event.to_status in OPERATORS_ALONE:
            who = "operator"
        return cls(at=event.at, who=who, from_status=event.from_status, to_status=event.to_status, why=event.why)


class ScoreDocument(BaseModel):
    """The released score of a submission on one version of the benchmark.

    If the ladder holds the new scores back, `is_held` is true and the scores are those of the submission `shown_of`.
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
        """Return the document of a stored score."""
        names = ("version", "part", "is_held", "shown_of", "signature", "reference_hash", "scored_at")
        return cls(**score.released, **{name: getattr(score, name) for name in names})


class EventList(Document):
    """The history of a submission, oldest first."""

    events: list[EventDocument]


class ApiReceipt(Document):
    """A signed receipt; `reveal-bench verify-receipt` checks it offline."""

    receipt: Annotated[
        dict[str, Any], Field(description="signed content, with scores as texts, and the hash of the previous receipt")
    ]
    hash: Annotated[str, Field(description="SHA-256 of the receipt's canonical bytes")]
    signature: Annotated[str, Field(description="Ed25519, base64")]


class SubmissionDocument(Document):
    """A submission as the caller may see it: status, history, and the released score once scored."""

    id: Id
    url: str
    status: Literal[
        "received", "linted", "queued", "scoring", "reading", "scored", "refused", "failed", "withdrawn"
    ]  # fmt: skip
    is_public: Annotated[
        bool, Field(description="true if all visitors see the submission, false if only its team does")
    ]
    is_chosen: Annotated[bool, Field(description="true if the board shows this submission for its model")]
    queue_position: Annotated[
        int | None, Field(description="1 for the next submission to be scored; null unless queued")
    ]
    expected_seconds: Annotated[
        float | None,
        Field(description="seconds until the submission is scored, estimated from recent jobs; null if unknown"),
    ]
    benchmark: str
    version: Annotated[str, Field(description="version to which the submission was sent")]
    split: str
    metadata: PublicMetadata
    allow_missing: bool
    sha256: str
    created_at: Moment
    updated_at: Moment
    withdrawn_at: Moment | None
    hidden_why: Annotated[str | None, Field(description="reason why an operator hid the submission from the board")]
    incident: Annotated[str | None, Field(examples=["INC-1A2B3C4D"])]
    versions: Annotated[list[str], Field(description="versions of the benchmark on which the submission has a score")]
    score: ScoreDocument | None
    public_score: Annotated[
        ScoreDocument | None, Field(description="the earlier public score, once `score` is the final one")
    ]
    events: list[EventDocument]


class SubmissionReceived(SubmissionDocument):
    """The answer to an upload."""

    is_new: Annotated[bool, Field(description="false if the same file was sent before")]
    report: Lint


class SubmissionList(Document):
    """Submissions, newest first."""

    submissions: list[SubmissionDocument]
    n: Annotated[int, Field(description="total number")]


Part = Annotated[
    str, Field(description="part of the findings that the benchmark asks; empty if all", examples=["5 of 14 findings"])
]


class BenchmarkDocument(Document):
    """A benchmark on this server, at the version on its board."""

    name: str
    title: str
    kind: Annotated[str, one_of(*KINDS)]
    version: str
    versions: Annotated[list[str], Field(description="all versions with a board")]
    split: str
    state: Annotated[str, one_of("open", "paused", "closed", means="whether the board accepts submissions")]
    state_why: str
    synthetic: Annotated[bool, Field(description="whether the data are synthetic")]
    findings: list[str]
    part: Part
    n_items: Annotated[int, Field(description="images, studies or tasks in the scored split")]
    items: Annotated[str, one_of(*(kind.items for kind in KINDS.values()))]
    grid: Annotated[int | None, Field(description="cells per side; null if nothing is localized")]
    asks: str | None
    settings: Annotated[dict[str, Any], Field(description="release, quota, exposure, reading, citation and terms")]


class BenchmarkList(Document):
    """The benchmarks served."""

    benchmarks: list[BenchmarkDocument]


class ApiManifestRow(Document):
    """The questions for one image, study or task (for a task, its category)."""

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
    """A current or earlier version of the board; `frozen_at` is null for the current version."""

    version: str
    shown_at: Moment
    frozen_at: Moment | None


class MetricDocument(Document):
    """A column of the board."""

    name: Annotated[str, Field(examples=["point_hit"])]
    title: str
    better: Annotated[str, Field(examples=["higher"])]


class EntryDocument(Document):
    """A submission on the board. Members of a tier do not differ significantly, so their order has no meaning."""

    submission_id: Id
    model: str
    model_version: str
    team: str
    kind: str
    prompt_style: str | None
    date: Annotated[str, Field(json_schema_extra={"format": "date"})]
    version: str
    rank: Annotated[int | None, Field(description="rank of the entry's tier; null if not ranked")]
    rank_low: int | None
    rank_high: int | None
    tier: Annotated[str | None, Field(examples=["A"])]
    is_new: Annotated[bool, Field(description="true if scored after the last ranking, so not ranked yet")]
    place: Annotated[str, Field(examples=["2-5"])]
    figures: Annotated[list[ReleasedEstimate], found_at("score", "figures")]
    public_figures: Annotated[
        list[ReleasedEstimate], Field(description="the earlier public scores, once `figures` are final")
    ]
    hidden: Annotated[list[str], found_at("score", "hidden")]


class ReferenceDocument(Document):
    """Published scores of a paper, shown but never ranked."""

    name: str
    kind: str
    prompt_style: str | None
    citation: str
    url: str
    place: Annotated[str, Field(description="table or figure of the paper with these scores")]
    protocol: str
    notes: str
    figures: Annotated[dict[str, dict[str, float]], Field(description="metric -> finding -> fraction")]
    macro: Annotated[
        dict[str, Annotated[float, BeforeValidator(lambda pair: pair[0])]], Field(description="metric -> fraction")
    ]


class Board(Document):
    """The board of one version of a benchmark: its entries in order, and published scores for comparison."""

    # created from `Standings`
    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True, serialize_by_alias=True)

    schema_: Annotated[int, Field(alias="schema", description="version of this document's format")]
    benchmark: str
    title: str
    kind: Annotated[str, one_of(*KINDS)]
    version: str
    split: str
    synthetic: bool
    is_frozen: Annotated[bool, Field(description="true if the board now shows a later version")]
    min_cell: int
    primary: Annotated[str, found_at("primary", "name"), Field(examples=["point_hit"])]
    findings: list[str]
    part: Part
    hidden: Annotated[list[str], Field(description="findings with too few cases to show")]
    notes: list[str]
    ranked_part: Annotated[
        Literal["public", "final"], Field(description="part of the holdout that ranks: final once the round is over")
    ]
    ranked_at: Moment | None
    n_items: Annotated[int | None, Field(description="number of held-out images, studies or tasks")]
    n_patients: Annotated[int | None, Field(description="number of patients; null if each item counts as a patient")]
    chance: Annotated[dict[str, float], Field(description="metric -> expected macro of random answers, a fraction")]
    versions: Annotated[list[ApiBoardVersion], found_at("history")]
    metrics: list[MetricDocument]
    entries: list[EntryDocument]
    references: Annotated[list[ReferenceDocument], found_at("comparable_references")]


class ApiComparison(Document):
    """A comparison of the released scores of two submissions."""

    a: Id
    b: Id
    benchmark: str
    version: str
    document: dict[str, Any]


class Key(Document):
    """A public key that verifies receipts."""

    algorithm: Literal["Ed25519"] = "Ed25519"
    key_id: str
    public_key: Annotated[str, Field(description="32 bytes, base64")]
    first: Annotated[
        int | None, Field(description="number of the first receipt signed with this key; null if no receipt is")
    ]
    last: int | None


class Keys(Document):
    """Keys of the workers that sign receipts."""

    keys: list[Key]


class ApiMembership(Document):
    """One of your teams."""

    id: Id
    name: str
    role: Annotated[str, one_of("owner", "member", "reader")]


class Account(Document):
    """Your account."""

    id: Id
    name: str
    is_admin: bool
    via: Annotated[str, one_of("session", "token", "local")]
    scopes: list[str]
    teams: list[ApiMembership]


class ApiLedgerRow(Document):
    """A ledger entry of a team: reserved +1, charged 0, refunded -1, granted -n.

    The sum is the used part of the total.
    """

    at: Moment
    kind: Annotated[str, one_of("reserved", "charged", "refunded", "granted")]
    amount: int
    submission_id: Id | None
    why: str


class LedgerDocument(Document):
    """The itemised budget of a team for one version of a benchmark."""

    team: ApiMembership
    benchmark: str
    version: str
    balance: Budget
    rows: list[ApiLedgerRow]


class LedgerList(Document):
    """The budgets of all your teams."""

    ledgers: list[LedgerDocument]


class InvitedTo(Document):
    """A team that invites you."""

    id: Id
    name: str


class InvitationDocument(Document):
    """An open invitation; `inviter` is a person's name."""

    id: Id
    team: InvitedTo
    role: str
    inviter: str
    created_at: Moment
    expires_at: Moment


class InvitationList(Document):
    """Your open invitations, oldest first."""

    invitations: list[InvitationDocument]


class InvitationAnswer(BaseModel):
    """A reply to an invitation."""

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
    """Your tokens."""

    tokens: list[TokenDocument]


class TokenIssued(Document):
    """A new token; `secret` is shown only this once."""

    token: TokenDocument
    secret: str


class TokenRequest(BaseModel):
    """A request to create a token."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,63}$", examples=["workstation"])]
    team_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
    scopes: Annotated[Sequence[Literal["read", "submit"]], Field(min_length=1, max_length=2)] = ("read", "submit")
    days: Annotated[int, Field(ge=1, le=MAX_TOKEN_DAYS, description="days until the token expires")] = TOKEN_DAYS


class Health(Document):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Document):
    """Readiness of the server and its workers."""

    status: Literal["ready"]
    confinement: Annotated[str, Field(description="confinement of this process")]
    benchmarks: list[str]
    queued: int
    live_workers: Annotated[int, Field(description=f"workers seen within {ALIVE_SECONDS:g} seconds")]
    worker_confinement: list[str]
    gaps: Annotated[list[str], Field(description="what the confinement of the server or of a worker does not prevent")]
