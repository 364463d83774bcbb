"""The settings of a leaderboard: precision of shown scores, number of submissions, and warnings to the maintainer.

Conventions
-----------
`settings.toml` beside this file contains every setting with its reason, and the page "About" prints it. An operator's
file contains only changed settings. An unknown key, a wrong type or a value out of range is an error, so that a
misspelled key cannot leave a holdout less protected than intended. The classes below state which values are accepted in
files; code may create a policy with any values. Webhooks appear only in an operator's file, and no page prints them.
Secrets are read from the environment, or from files that the environment names (:func:`secret_from`).
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.findings import nearest_names
from reveal_leaderboard.addresses import is_loopback

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PACKAGED = Path(__file__).with_name("settings.toml")
Document = Mapping[str, Any]

WEBHOOK_EVENTS = ("scored", "withdrawn", "flagged")
LEAST_CELL: Final = 10
"""Smallest value of `min_cell` that a file may set."""
LEAKS: Final = ("more submissions", "few cases")
"""Names of the reasons why colluding teams could gain more than 0.05 on a board; an operator can accept each reason."""
BY_HOLDOUT: Final = "by holdout"
"""Value of `quota.total` that means: the number suited to the kind of benchmark."""


class SettingsError(ValueError):
    """A settings file breaks a rule; the message names the file, the key, the rule and the value."""


# Rules for values in files --------------------------------------------------------------------------------------------


def _must(rule: str, is_met: Callable[[Any], bool]) -> AfterValidator:
    """Return a validator that refuses values for which `is_met` returns False, with `rule` in its message."""

    def check(value: Any) -> Any:
        if not is_met(value):
            raise ValueError(rule)
        return value

    return AfterValidator(check)


def _check_as_written(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    check(value)
    return value  # without pydantic's conversion: 0 stays 0, and receipts print 0


def _check_total(value: Any) -> Any:
    if value != BY_HOLDOUT and not (type(value) is int and 1 <= value <= 1000):
        raise ValueError(f'be a whole number from 1 to 1000, or "{BY_HOLDOUT}"')
    return value


def _divides_one(step: float) -> bool:
    return abs(1 / step - round(1 / step)) < 1e-9


def _ascends(values: Sequence[Any]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))


def _never_rises(values: Sequence[float]) -> bool:
    return all(a >= b for a, b in itertools.pairwise(values))


def _is_receiver(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    is_plain = parts.username is None and not parts.fragment and url.isprintable() and len(url) <= 1000
    return is_safe and is_plain and host != ""


_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z")


def _is_time(text: str) -> bool:
    try:
        return not text or (_TIME.fullmatch(text) is not None and datetime.fromisoformat(text).year >= 1970)
    except ValueError:
        return False


def _shown(time: str) -> str:
    """Return a time of a settings file as pages and errors show it."""
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M} UTC"


def _are_events(names: Sequence[str]) -> bool:
    return len(names) > 0 and all(name in WEBHOOK_EVENTS and names.count(name) == 1 for name in names)


def _are_leaks(names: Sequence[str]) -> bool:
    return all(name in LEAKS for name in names)


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False), WrapValidator(_check_as_written)]
_Step = Annotated[_Number, Field(ge=0.01, le=0.25), _must("divide 1", _divides_one)]
_Line = Annotated[StrictStr, Field(max_length=1000), _must("be one line of printable characters", str.isprintable)]
_Time = Annotated[StrictStr, _must('be a UTC time such as "2027-03-01T12:00Z", or empty', _is_time)]
_FewestCases = Annotated[StrictInt, Field(ge=LEAST_CELL, le=100_000)]
_Budget = Annotated[StrictInt, Field(ge=1, le=1000)]
_Bits = Annotated[_Number, Field(gt=0, le=1000)]


@dataclass(frozen=True, slots=True)
class ReleasePolicy:
    """The release policy.

    Attributes
    ----------
    min_cell : int
        A finding's scores are shown only with at least this many cases.
    resolution : float
        Averages are rounded to a multiple of this.
    bands : starts of the ranges that show numbers of cases, ascending; the first is `min_cell`, and a file that sets
        only `min_cell` keeps the higher packaged starts
    band_resolution : rounding step for the scores of findings in each range of `bands`
    place_factor : factor by which this step is multiplied for localizations
    place_cell : number of cases that each positional score needs, see
        :func:`reveal_leaderboard.release.release.shown_places`
    place_metric : hit rate by which a localization board ranks, and which it shows first: "point_hit" or "grid_hit"
    n_resamples, seed : number of resamples for the intervals, and their seed
    ladder_step : a new best is shown only if its primary macro exceeds the earlier best by more than this
    ladder_per : {"team", "model"}, whether the earlier best is the team's or the model's
    final_share : proportion of the patients reserved for the final scores of a closed board
    """

    min_cell: _FewestCases = 30
    resolution: _Step = 0.01
    bands: Annotated[tuple[StrictInt, ...], Field(min_length=1), _must("ascend", _ascends)] = (30, 60, 120)
    band_resolution: Annotated[tuple[_Step, ...], Field(min_length=1), _must("not increase", _never_rises)] = (
        0.1,
        0.05,
        0.01,
    )
    place_factor: Annotated[StrictInt, Field(ge=1, le=5)] = 2
    place_cell: _FewestCases = 350
    place_metric: Literal["point_hit", "grid_hit"] = "point_hit"
    n_resamples: Annotated[StrictInt, Field(ge=100, le=100_000)] = 1000
    seed: Annotated[StrictInt, Field(ge=0, lt=2**32)] = 0
    ladder_step: Annotated[_Number, Field(ge=0, le=1)] = 0.01
    ladder_per: Literal["team", "model"] = "team"
    final_share: Annotated[_Number, Field(ge=0, le=0.9)] = 0.0

    @property
    def least_held_out(self) -> int:
        """Number of held-out cases with which a finding has `min_cell` in both parts, if they are divided as wanted."""
        return math.ceil(round(self.min_cell / (min(self.final_share, 1 - self.final_share) or 1), 6))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ReleasePolicy:
        """Return a policy from its fields in JSON or TOML."""
        return cls(**{**raw, **{name: tuple(raw[name]) for name in ("bands", "band_resolution")}})


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """Budgets of scored submissions per benchmark version.

    Attributes
    ----------
    total, per_day : submissions per team, in total and per UTC day; `BY_HOLDOUT` means the total suited to the kind of
        benchmark
    board_total : submissions of all teams together
    """

    total: Annotated[int | Literal["by holdout"], PlainValidator(_check_total)] = BY_HOLDOUT
    per_day: _Budget = 2
    board_total: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 150

    def on(self, answers: int) -> Quota:
        """Return the budgets; `answers` is the total that `BY_HOLDOUT` means for this holdout."""
        return Quota(answers if self.total == BY_HOLDOUT else self.total, self.per_day, self.board_total)


@dataclass(frozen=True, slots=True)
class Quota:
    """Budgets of scored submissions for one version of a benchmark, as numbers."""

    total: int
    per_day: int
    board_total: int


@dataclass(frozen=True, slots=True)
class ExposurePolicy:
    """Thresholds of the exposure meter.

    Attributes
    ----------
    colluding : number of groups of teams that are assumed to combine their scores
    watch_bits, close_bits : bits disclosed to these groups, as a fraction of the bits in a finding's labels
    watch_used : used fraction of the board's budget from which the meter says "watch"
    near : fraction of equal answers from which predictions count as near-identical
    accepted_overlaps : names of other boards whose public files may disclose this board's references
    accepted_leaks : accepted reasons why colluding teams could gain more than 0.05, some of `LEAKS`
    """

    colluding: _Budget = 5
    watch_bits: _Bits = 0.15
    close_bits: _Bits = 0.75
    watch_used: Annotated[_Number, Field(gt=0, le=1)] = 0.5
    near: Annotated[_Number, Field(gt=0.5, le=1)] = 0.95
    accepted_overlaps: tuple[StrictStr, ...] = ()
    accepted_leaks: Annotated[tuple[StrictStr, ...], _must(f"be a list of some of {', '.join(LEAKS)}", _are_leaks)] = ()


@dataclass(frozen=True, slots=True)
class ReadingPolicy:
    """The rules for rating answers to tasks.

    Attributes
    ----------
    readers_per_answer : number of readers who rate each answer before its submission is scored
    team : name of the team whose members with the role "reader" may rate answers; administrators always may; empty for
        administrators only
    """

    readers_per_answer: Annotated[StrictInt, Field(ge=1, le=10)] = 2
    team: Annotated[_Line, Field(max_length=100)] = ""


@dataclass(frozen=True, slots=True)
class RoundPolicy:
    """The times in UTC from which and until which a board accepts submissions, such as "2027-03-01T12:00Z"; empty for
    no limit.
    """

    opens: _Time = ""
    closes: _Time = ""

    @property
    def sentence(self) -> str:
        """The times as a sentence; empty if there are none."""
        limits = [f"{word} {_shown(text)}" for word, text in (("from", self.opens), ("until", self.closes)) if text]
        return f"Submissions are accepted {' '.join(limits)}." if limits else ""

    def includes(self, moment: float) -> bool:
        """Return True if submissions are accepted at a moment, in seconds since 1970."""
        has_begun = not self.opens or moment >= datetime.fromisoformat(self.opens).timestamp()
        return has_begun and (not self.closes or moment < datetime.fromisoformat(self.closes).timestamp())


@dataclass(frozen=True, slots=True)
class AccountsPolicy:
    """The rule for new teams: "open" teams may submit at once, "asked" teams after an administrator approved them."""

    new_teams: Literal["open", "asked"] = "asked"


@dataclass(frozen=True, slots=True)
class _About:
    citation: _Line = ""
    terms: _Line = ""
    host: _Line = ""
    contact: _Line = ""


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """The settings of one benchmark."""

    release: ReleasePolicy
    quota: QuotaPolicy
    exposure: ExposurePolicy
    citation: str
    terms: str
    host: str = ""
    contact: str = ""
    reading: ReadingPolicy = ReadingPolicy()
    round: RoundPolicy = RoundPolicy()


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address to which the board's events are sent.

    Attributes
    ----------
    url : address by https, or by http on this machine
    events : some of `WEBHOOK_EVENTS`
    private : True to allow an address that is not public, such as this machine's
    """

    url: Annotated[
        StrictStr,
        _must("be https://... without a password, or http://... on this machine, in one line", _is_receiver),
    ]
    events: Annotated[tuple[str, ...], _must(f"be a list of some of {', '.join(WEBHOOK_EVENTS)}", _are_events)]
    private: StrictBool = False


def webhook_keys(name: str, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return a webhook's signing keys, from ``REVEAL_WEBHOOK_NAME_SECRET`` or the file that ``..._FILE`` names.

    A key is ``whsec_`` followed by 24 to 64 bytes in base64. During the replacement of a key there are two keys, the
    new one first.

    Raises
    ------
    SettingsError
        If a key is malformed.
    """
    variable = f"REVEAL_WEBHOOK_{name.upper().replace('-', '_')}_SECRET"
    keys = []
    for text in (secret_from(environ, variable) or "").split():
        try:
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            key = b""
        if not text.startswith("whsec_") or not 24 <= len(key) <= 64:
            raise SettingsError(f"{variable} must be whsec_ followed by 24 to 64 bytes in base64")
        keys.append(key)
    return tuple(keys)


def case_key(environ: Mapping[str, str]) -> bytes:
    """Return the operator's key for digests of ids, from ``REVEAL_CASE_KEY`` or the file that ``..._FILE`` names.

    Empty by default.

    Raises
    ------
    SettingsError
        If the key is not 64 to 128 hexadecimal digits.
    """
    text = secret_from(environ, "REVEAL_CASE_KEY")
    if text is None:
        return b""
    if not re.fullmatch(r"([0-9a-fA-F]{2}){32,64}", text):
        raise SettingsError("REVEAL_CASE_KEY must be 64 to 128 hexadecimal digits")
    return bytes.fromhex(text)


def secret_from(environ: Mapping[str, str], name: str) -> str | None:
    """Return the secret in the variable `name` or in the file that ``NAME_FILE`` names; None if neither is set.

    Raises
    ------
    SettingsError
        If the file cannot be read, or is empty.
    """
    path = environ.get(f"{name}_FILE")
    if not path:
        return environ.get(name, "").strip() or None
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__
        raise SettingsError(f"{name}_FILE must be a readable text file, got {path!r} ({reason})") from None
    if not secret:
        raise SettingsError(f"{name}_FILE must contain the secret, got the empty file {path!r}")
    return secret


class _BenchmarkTables(BaseModel, extra="forbid"):
    """The tables that a settings file may contain under ``[benchmarks.NAME]``."""

    release: ReleasePolicy = ReleasePolicy()
    quota: QuotaPolicy = QuotaPolicy()
    exposure: ExposurePolicy = ExposurePolicy()
    reading: ReadingPolicy = ReadingPolicy()
    round: RoundPolicy = RoundPolicy()
    about: _About = _About()


_Benchmark = Annotated[str, _must(f"be one of {', '.join(BENCHMARKS)}", BENCHMARKS.__contains__)]
_WebhookName = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)]


class _File(_BenchmarkTables):
    """A whole file."""

    accounts: AccountsPolicy = AccountsPolicy()
    benchmarks: dict[_Benchmark, _BenchmarkTables] = Field(default_factory=dict)
    webhooks: dict[_WebhookName, Webhook] = Field(default_factory=dict)


_KEYS = [f"{table}.{key}" for table, keys in _File().model_dump().items() for key in keys]


@dataclass(frozen=True)
class Settings:
    """The settings of all benchmarks.

    Attributes
    ----------
    _document : mapping, the packaged settings overridden by the operator's settings
    """

    _document: Document

    def of(self, benchmark: str) -> BenchmarkSettings:
        """Return the settings of `benchmark`: its own values if set, otherwise the general values."""
        tables = _File(**_tables_of(self._document, benchmark))
        about = asdict(tables.about)
        rules = (tables.release, tables.quota, tables.exposure)
        return BenchmarkSettings(*rules, **about, reading=tables.reading, round=tables.round)

    @property
    def accounts(self) -> AccountsPolicy:
        """The policy for accounts, which is the same for all benchmarks."""
        return _File(**self._document).accounts

    @property
    def webhooks(self) -> dict[str, Webhook]:
        """The webhooks by name."""
        return _File(**self._document).webhooks

    def document(self, benchmark: str) -> dict[str, Any]:
        """Return the settings of `benchmark` as plain JSON values."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self.of(benchmark))))
        return document

    def to_toml(self) -> str:
        """Return the settings in force, with the comments of the packaged file."""
        return "\n".join(_lines(self._document)) + "\n"


def load_settings(path: Path | None = None) -> Settings:
    """Read the packaged settings, overridden by those in `path`.

    Raises
    ------
    SettingsError
        If a file cannot be read, is not TOML, or breaks a rule.

    Examples
    --------
    >>> load_settings().of("reveal-cxr").quota
    QuotaPolicy(total='by holdout', per_day=2, board_total=150)
    """
    document = _read(PACKAGED)
    if path is not None:
        own = _read(Path(path))
        document = _merge(document, _with_bands(own, document["release"]))
        named = {name: _with_bands(tables, document["release"]) for name, tables in own.get("benchmarks", {}).items()}
        document = _merge(document, {"benchmarks": named})
    source = Path(path or PACKAGED)
    for benchmark in ("", *document.get("benchmarks", {})):
        _check_together(_tables_of(document, benchmark), source, f"benchmarks.{benchmark}." if benchmark else "")
    return Settings(document)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # bytes that are not text, or text that is not TOML
        raise SettingsError(f"{path}: must be TOML: {error}") from None
    try:
        _File.model_validate(document)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_explain(error.errors()[0])}") from None
    return document


def _explain(error: ErrorDetails) -> str:
    """Return one of pydantic's errors as a sentence that names the key, the rule and the value."""
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    match error["type"]:
        case "missing":
            return f"`{key}` is missing"
        case "extra_forbidden" | "unexpected_keyword_argument":
            near = nearest_names(key, (*_KEYS, *_File.model_fields), most=1)
            return f"`{key}` is not a setting" + (f" (nearest: `{near[0]}`)" if near else "")
        case "dataclass_type" | "dict_type" | "model_type":
            rule = "be a table"
        case _:
            rule = re.sub(r"^(Value error,|\w+ should) | after validation, not .*", "", error["msg"])
            rule = rule.replace("a valid tuple", "a list")
    return f"`{key}` must {rule}, got {error['input']!r}"


def _check_together(tables: Document, path: Path, prefix: str) -> None:
    """Check the rules that involve two keys."""
    release, quota, exposure = tables["release"], tables["quota"], tables["exposure"]
    times = [datetime.fromisoformat(text) for text in map(tables["round"].get, ("opens", "closes")) if text]
    is_ruled = quota["total"] == BY_HOLDOUT
    steps = [step * release["place_factor"] for step in release["band_resolution"]]
    rules = (
        ("release", "bands", release["bands"][0] == release["min_cell"], "begin with release.min_cell"),
        ("release", "band_resolution", len(steps) == len(release["bands"]), "have a number for each of release.bands"),
        ("release", "place_factor", all(step <= 0.5 and _divides_one(step) for step in steps),
         "give steps of at most 0.5 that divide 1 when multiplied by release.band_resolution"),
        ("quota", "per_day", is_ruled or quota["per_day"] <= quota["total"], "not exceed quota.total"),
        ("quota", "total", is_ruled or quota["total"] <= quota["board_total"], "not exceed quota.board_total"),
        ("exposure", "watch_bits", exposure["watch_bits"] <= exposure["close_bits"], "not exceed exposure.close_bits"),
        ("round", "closes", _ascends(times), "be after round.opens"),
    )  # fmt: skip
    for table, key, is_met, rule in rules:
        if not is_met:
            raise SettingsError(f"{path}: `{prefix}{table}.{key}` must {rule}, got {tables[table][key]!r}")


def _merge(below: Document, above: Document) -> dict[str, Any]:
    """Return `below` overridden by `above`, table by table and key by key."""
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merge(below.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def _with_bands(tables: Document, below: Document) -> Document:
    """Return `tables`.

    Where a table `release` sets `min_cell` but no bands, add the bands of `below` that start above `min_cell`.
    """
    release = tables.get("release", {})
    if "min_cell" not in release or "bands" in release or "band_resolution" in release:
        return tables
    least, bands_below = release["min_cell"], list(zip(below["bands"], below["band_resolution"], strict=False))
    step = [step for start, step in bands_below if start <= least or start == bands_below[0][0]][-1]
    bands, steps = zip((least, step), *(band for band in bands_below if band[0] > least), strict=True)
    return {**tables, "release": {**release, "bands": list(bands), "band_resolution": list(steps)}}


def _tables_of(document: Document, benchmark: str) -> dict[str, Any]:
    general = {name: table for name, table in document.items() if name != "benchmarks"}
    return _merge(general, document.get("benchmarks", {}).get(benchmark, {}))


def _lines(document: Document) -> Iterator[str]:
    """Yield the lines of the packaged file with the values of `document`; tables for single benchmarks come last."""
    table = ""
    for line in PACKAGED.read_text(encoding="utf-8").splitlines():
        if line.startswith("[benchmarks"):
            break
        table = line.strip("[]") if line.startswith("[") else table
        assigned = re.match(r"(\w+) = ", line)
        yield f"{assigned[1]} = {_as_toml(document[table][assigned[1]])}" if assigned else line
    for benchmark, tables in document.get("benchmarks", {}).items():
        for name, values in tables.items():
            yield f"[benchmarks.{benchmark}.{name}]"
            yield from (f"{key} = {_as_toml(value)}" for key, value in values.items())
            yield ""


def _as_toml(value: Any) -> str:
    """Return a text, a number or a list of numbers as TOML; JSON of printable characters is valid TOML."""
    return json.dumps(value, ensure_ascii=False)
