"""What the API answers with about boards, accounts and itself; conventions as in :mod:`.documents`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reveal_bench.kinds import KINDS
from reveal_leaderboard.web.api.documents import Budget, Document, FigureDocument, Id, Moment, one_of

__all__ = [
    "Account", "BenchmarkDocument", "BenchmarkList", "Board", "BoardVersion", "Comparison", "EntryDocument",
    "Health", "Key", "Keys", "LedgerDocument", "LedgerList", "LedgerRow", "ManifestDocument", "ManifestRow",
    "Membership", "MetricDocument", "Readiness", "ReferenceDocument", "TokenDocument", "TokenIssued", "TokenList",
    "TokenRequest",
]  # fmt: skip


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
    synthetic: Annotated[bool, Field(description="whether the data are made up")]
    findings: list[str]
    n_items: Annotated[int, Field(description="images, studies or tasks that the scored split asks for")]
    items: Annotated[str, one_of(*(kind.items for kind in KINDS.values()))]
    grid: Annotated[int | None, Field(description="cells per side; null where nothing is localized")]
    asks: str | None
    settings: Annotated[dict[str, Any], Field(description="release, quota, exposure, reading, citation and terms")]


class BenchmarkList(Document):
    """The benchmarks that are served."""

    benchmarks: list[BenchmarkDocument]


class ManifestRow(Document):
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
    rows: list[ManifestRow]


class BoardVersion(Document):
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
    """A submission on the board. Members of a tier are not told apart: their order claims nothing."""

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
    figures: list[FigureDocument]
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
    versions: list[BoardVersion]
    metrics: list[MetricDocument]
    entries: list[EntryDocument]
    references: list[ReferenceDocument]


class Comparison(Document):
    """Two submissions compared case by case; `document` is null until a worker has done so."""

    status: Literal["ready", "computing"]
    a: Id
    b: Id
    benchmark: str
    version: str
    document: dict[str, Any] | None


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


class Membership(Document):
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
    teams: list[Membership]


class LedgerRow(Document):
    """One booking: reserved +1, charged 0, refunded -1, granted -n; the sum counts against the total."""

    at: Moment
    kind: Annotated[str, one_of("reserved", "charged", "refunded", "granted")]
    amount: int
    submission_id: Id | None
    why: str


class LedgerDocument(Document):
    """The itemised account of a team for one version of a benchmark."""

    team: Membership
    benchmark: str
    version: str
    balance: Budget
    rows: list[LedgerRow]


class LedgerList(Document):
    """The accounts of all teams of the asker."""

    ledgers: list[LedgerDocument]


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
    days: Annotated[int, Field(ge=1, le=365, description="days until it expires")] = 90


class Health(Document):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Document):
    """Whether the server can work, and who works for it."""

    status: Literal["ready"]
    confinement: Annotated[str, Field(description="how this process is kept from what it has no business with")]
    benchmarks: list[str]
    queued: int
    live_workers: Annotated[int, Field(description="workers seen within 60 seconds")]
    worker_confinement: list[str]
