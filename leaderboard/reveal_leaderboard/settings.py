"""The figures of the policy: how much of a score is shown, how often, and when a maintainer is warned.

Conventions
-----------
`settings.toml` beside this file holds every figure with its reason, and is printed by the page "About". An operator's
file holds only what differs. Reading is strict: an unknown key, a wrong type or a figure out of range is an error, so
that a misspelled key never leaves a holdout under another policy than its maintainer thinks. What a key may hold stands
beside it in the classes below. These rules are for files alone: code may make a policy of any figures. Webhooks, which
an operator's file alone has, are no policy, and no page prints them. A file holds no secret: these are read from the
environment, or from files that it names (:func:`secret_from`).
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from reveal_bench.benchmarks import BENCHMARKS

PACKAGED = Path(__file__).with_name("settings.toml")
Document = Mapping[str, Any]

_TOML_NAMES = {int: "a whole number", float: "a number", str: "a text", list: "a list", bool: "true or false"}
WEBHOOK_EVENTS = ("scored", "withdrawn", "flagged")


class SettingsError(ValueError):
    """A settings file breaks a rule; the message names the file, the key, the rule and the value."""


def _rule(kind: type, is_met: Callable[[Any], bool], words: str, *, or_word: str | None = None) -> PlainValidator:
    """What a key may hold: `kind` as TOML has it, a test, and the test in words; or one word in place of all that."""
    accepted = (int, float) if kind is float else (kind,)
    words = words if or_word is None else f'{words}, or "{or_word}"'

    def check(value: Any) -> Any:
        if or_word is not None and value == or_word:
            return value
        is_kind = type(value) in accepted  # not isinstance: true is not a number
        if not is_kind or not is_met(value):
            named = "" if is_kind else _TOML_NAMES.get(type(value), "a " + type(value).__name__) + ": "
            found = {"words": words, "found": f"{named}{value!r}"}
            raise PydanticCustomError("rule", "must be {words}, got {found}", found)
        return tuple(value) if kind is list else value

    return PlainValidator(check)


def _whole(low: int, high: int, *, or_word: str | None = None) -> PlainValidator:
    words = f"a whole number from {low} to {high}"
    return _rule(int, lambda value: low <= value <= high, words, or_word=or_word)


def _number(is_met: Callable[[float], bool], words: str) -> PlainValidator:
    return _rule(float, is_met, f"a number {words}")


def _either(*words: str) -> PlainValidator:
    return _rule(str, lambda value: value in words, " or ".join(f'"{word}"' for word in words))


def _is_step(value: float) -> bool:
    return 0.01 <= value <= 0.25 and abs(1 / value - round(1 / value)) < 1e-9


def _are_bands(value: list[Any]) -> bool:
    whole = all(type(start) is int for start in value)
    return whole and len(value) > 0 and all(a < b for a, b in itertools.pairwise(value))


def _are_steps(value: list[Any]) -> bool:
    numbers = all(type(step) in (int, float) and _is_step(step) for step in value)
    return numbers and len(value) > 0 and all(a >= b for a, b in itertools.pairwise(value))


def _is_receiver(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    is_plain = parts.username is None and not parts.fragment and url.isprintable() and len(url) <= 1000
    return is_safe and is_plain and host != ""


def _are_events(value: list[Any]) -> bool:
    return len(value) > 0 and all(name in WEBHOOK_EVENTS and value.count(name) == 1 for name in value)


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_STEP = _number(_is_step, "from 0.01 to 0.25 that divides 1")
_BANDS = _rule(list, _are_bands, "a list of ascending whole numbers")
_STEPS_OF_BANDS = _rule(
    list, _are_steps, "a list of numbers from 0.01 to 0.25 that divide 1, none above the one before"
)
_BITS = _number(lambda value: 0 < value <= 1000, "above 0, to 1000")
_LINE = _rule(str, lambda text: len(text) <= 1000 and text.isprintable(), "one line of at most 1000 characters")
_NAME = _rule(str, lambda text: len(text) <= 100 and text.isprintable(), "a line of at most 100 characters")


_LISTS = ("bands", "band_resolution")
LEAST_CELL: Final = 10
"""No finding with fewer cases is ever shown."""
BY_HOLDOUT: Final = "by holdout"
"""For `quota.total`: the number follows from the kind of benchmark and the size of its holdout."""


@dataclass(frozen=True, slots=True)
class ReleasePolicy:
    """The settings of release.

    Attributes
    ----------
    min_cell : int
        Fewest cases of a finding for which its figures are shown.
    resolution : float
        Averages are rounded to a multiple of this.
    bands : lower ends of the bands in which counts of cases are shown, ascending, the first is `min_cell`; a file that
        sets `min_cell` alone keeps the bands above it
    band_resolution : for each band, what the figures of its findings are multiples of
    place_factor : times so much where places are marked, each of which a sender can move
    place_cell : fewest cases of a finding for which figures of marked places are shown of it, and not on average alone
    n_resamples, seed : of the intervals
    ladder_step : a new best is shown only if its primary macro is above the best before by more than this
    ladder_per : {"team", "model"}, whose best that is
    final_share : share of the patients kept for final figures at announced rounds, 0 for none
    """

    min_cell: Annotated[int, _whole(LEAST_CELL, 100_000)] = 30
    resolution: Annotated[float, _STEP] = 0.01
    bands: Annotated[tuple[int, ...], _BANDS] = (30, 60, 120)
    band_resolution: Annotated[tuple[float, ...], _STEPS_OF_BANDS] = (0.1, 0.05, 0.01)
    place_factor: Annotated[int, _whole(1, 5)] = 2
    place_cell: Annotated[int, _whole(10, 100_000)] = 50
    n_resamples: Annotated[int, _whole(100, 100_000)] = 1000
    seed: Annotated[int, _whole(0, 2**32 - 1)] = 0
    ladder_step: Annotated[float, _number(lambda value: 0 <= value <= 1, "from 0 to 1")] = 0.01
    ladder_per: Annotated[Literal["team", "model"], _either("team", "model")] = "team"
    final_share: Annotated[float, _number(lambda value: 0 <= value <= 0.9, "from 0 to 0.9")] = 0.0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ReleasePolicy:
        """A policy from its fields as JSON or TOML has them."""
        return cls(**{**raw, **{name: tuple(raw[name]) for name in _LISTS}})


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """Scored submissions per benchmark version.

    Attributes
    ----------
    total, per_day : of a team, in all and per UTC day; `BY_HOLDOUT` for as many in all as the holdout bears
    board_total : of all teams together
    """

    total: Annotated[int | Literal["by holdout"], _whole(1, 1000, or_word=BY_HOLDOUT)] = BY_HOLDOUT
    per_day: Annotated[int, _whole(1, 1000)] = 2
    board_total: Annotated[int, _whole(1, 1_000_000)] = 150

    def on(self, answers: int) -> Quota:
        """The numbers for a holdout that bears so many answers."""
        return Quota(answers if self.total == BY_HOLDOUT else self.total, self.per_day, self.board_total)


@dataclass(frozen=True, slots=True)
class Quota:
    """`QuotaPolicy` in numbers, for one version of a benchmark."""

    total: int
    per_day: int
    board_total: int


@dataclass(frozen=True, slots=True)
class ExposurePolicy:
    """When the exposure meter rises.

    Attributes
    ----------
    colluding : groups of teams that are taken to put their answers together
    watch_bits, close_bits : bits let out to so many groups, as a share of the bits in a finding's labels
    watch_used : share of the board's submissions that are used up
    near : share of answers that agree, from which predictions count as near-identical
    """

    colluding: Annotated[int, _whole(1, 1000)] = 5
    watch_bits: Annotated[float, _BITS] = 0.3
    close_bits: Annotated[float, _BITS] = 0.75
    watch_used: Annotated[float, _number(lambda value: 0 < value <= 1, "above 0, to 1")] = 0.5
    near: Annotated[float, _number(lambda value: 0.5 < value <= 1, "above 0.5, to 1")] = 0.95


@dataclass(frozen=True, slots=True)
class ReadingPolicy:
    """How answers to tasks are read.

    Attributes
    ----------
    readers_per_answer : readers who score each answer before its submission is scored
    team : name of the team whose members of the role "reader" score answers, beside the admins; empty for none
    """

    readers_per_answer: Annotated[int, _whole(1, 10)] = 2
    team: Annotated[str, _NAME] = ""


@dataclass(frozen=True, slots=True)
class AccountsPolicy:
    """Who may submit: `new_teams` is "open" (a new team at once) or "asked" (a new team once it is approved)."""

    new_teams: Annotated[str, _either("open", "asked")] = "open"


@dataclass(frozen=True, slots=True)
class _About:
    citation: Annotated[str, _LINE] = ""
    terms: Annotated[str, _LINE] = ""
    host: Annotated[str, _LINE] = ""
    contact: Annotated[str, _LINE] = ""


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """The figures of one benchmark."""

    release: ReleasePolicy
    quota: QuotaPolicy
    exposure: ExposurePolicy
    citation: str
    terms: str
    host: str = ""
    contact: str = ""
    reading: ReadingPolicy = ReadingPolicy()


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told what happens on the board.

    Attributes
    ----------
    url : where to, by https, or by http on this machine
    events : which of `WEBHOOK_EVENTS`
    private : it may lie at an address that the internet does not reach, such as this machine's
    """

    url: Annotated[
        str, _rule(str, _is_receiver, "https://... without a password, or http://... on this machine, in one line")
    ]
    events: Annotated[tuple[str, ...], _rule(list, _are_events, f"a list of some of {', '.join(WEBHOOK_EVENTS)}")]
    private: Annotated[bool, _rule(bool, lambda _: True, "true or false")] = False


def webhook_keys(name: str, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """The keys that sign for a webhook, from ``REVEAL_WEBHOOK_NAME_SECRET`` or the file that ``..._FILE`` names.

    Each is ``whsec_`` and 24 to 64 bytes in base64. While one follows another, both are given, the new one first.

    Raises
    ------
    SettingsError
        If what is given is no such key.
    """
    variable = f"REVEAL_WEBHOOK_{name.upper().replace('-', '_')}_SECRET"
    keys = []
    for text in (secret_from(environ, variable) or "").split():
        try:
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            key = b""
        if not text.startswith("whsec_") or not 24 <= len(key) <= 64:
            raise SettingsError(f"{variable} must hold whsec_ and 24 to 64 bytes in base64, got another text")
        keys.append(key)
    return tuple(keys)


def secret_from(environ: Mapping[str, str], name: str) -> str | None:
    """The secret in the variable `name`, or in the file that `name` with ``_FILE`` names; None if neither is set.

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
        told = type(error).__name__
        raise SettingsError(f"{name}_FILE must be a readable text file, got {path!r} ({told})") from None
    if not secret:
        raise SettingsError(f"{name}_FILE must hold the secret, got the empty file {path!r}")
    return secret


_TABLES = {
    "release": ReleasePolicy, "quota": QuotaPolicy, "exposure": ExposurePolicy, "reading": ReadingPolicy,
    "accounts": AccountsPolicy, "about": _About,
}  # fmt: skip
_NAMED = ("benchmarks", "webhooks")
"""Tables of tables, each with a name of its own."""
_OF_ALL = ("accounts",)
"""Tables that no benchmark has of its own."""


@dataclass(frozen=True)
class Settings:
    """The figures of every benchmark.

    Attributes
    ----------
    _document : mapping, the packaged figures with the operator's in their place
    """

    _document: Document

    def of(self, benchmark: str) -> BenchmarkSettings:
        """The figures of `benchmark`: the general ones, and its own where it has any."""
        tables = _tables_of(self._document, benchmark)
        return BenchmarkSettings(
            ReleasePolicy.from_json(tables["release"]),
            QuotaPolicy(**tables["quota"]),
            ExposurePolicy(**tables["exposure"]),
            **tables["about"],
            reading=ReadingPolicy(**tables["reading"]),
        )

    @property
    def accounts(self) -> AccountsPolicy:
        """What holds for all benchmarks together."""
        return AccountsPolicy(**self._document["accounts"])

    @property
    def webhooks(self) -> dict[str, Webhook]:
        """Who is told what happens, by name."""
        named = self._document.get("webhooks", {})
        return {name: Webhook(**{**table, "events": tuple(table["events"])}) for name, table in named.items()}

    def document(self, benchmark: str) -> dict[str, Any]:
        """The figures of `benchmark` as plain JSON values."""
        fields = asdict(self.of(benchmark))
        fields["release"] |= {name: list(fields["release"][name]) for name in _LISTS}
        return fields

    def to_toml(self) -> str:
        """The figures in force, with the comments of the packaged file."""
        return "\n".join(_lines(self._document)) + "\n"


def load_settings(path: Path | None = None) -> Settings:
    """Read the packaged figures, and those of `path` in their place.

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
    general = {name: table for name, table in document.items() if name not in _NAMED}
    _check_tables(general, path, "")
    benchmarks, webhooks = (document.get(name, {}) for name in _NAMED)
    for name, tables in zip(_NAMED, (benchmarks, webhooks), strict=True):
        if not isinstance(tables, dict):
            raise SettingsError(f"{path}: `{name}` must be a table, got {tables!r}")
    for name, table in webhooks.items():
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > 40:
            raise SettingsError(f"{path}: `webhooks` must be named by small letters, digits and hyphens, got {name!r}")
        _check_table(Webhook, table, path, f"webhooks.{name}")
    for name, tables in benchmarks.items():
        if name not in BENCHMARKS:
            raise SettingsError(f"{path}: `benchmarks` must be of {', '.join(BENCHMARKS)}, got {name!r}")
        if not isinstance(tables, dict):
            raise SettingsError(f"{path}: `benchmarks.{name}` must be a table, got {tables!r}")
        _check_tables(tables, path, f"benchmarks.{name}.")
    return document


def _check_tables(tables: Mapping[str, Any], path: Path, prefix: str) -> None:
    for name, table in tables.items():
        if name not in _TABLES:
            known = ", ".join((*_TABLES, *_NAMED))
            raise SettingsError(f"{path}: tables must be of {known}, got `{prefix}{name}`")
        if prefix and name in _OF_ALL:
            raise SettingsError(f"{path}: `{name}` must be the same for all benchmarks, got `{prefix}{name}`")
        _check_table(_TABLES[name], table, path, f"{prefix}{name}")


def _check_table(kind: type, table: Any, path: Path, name: str) -> None:
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: `{name}` must be a table, got {table!r}")
    keys = [field.name for field in fields(kind)]
    for key in table:
        if key not in keys:
            raise SettingsError(f"{path}: keys of `{name}` must be of {', '.join(keys)}, got {key!r}")
    try:
        _checker(kind).validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        words = "must be given" if first["type"] == "missing" else first["msg"]
        raise SettingsError(f"{path}: `{name}.{first['loc'][0]}` {words}") from None


@cache  # making one takes longer than all else that is done with settings
def _checker(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _divides_one(step: float) -> bool:
    return step <= 0.5 and abs(round(1 / step) * step - 1) < 1e-9


def _check_together(tables: Document, path: Path, prefix: str) -> None:
    """Rules between two keys."""
    release, quota, exposure = tables["release"], tables["quota"], tables["exposure"]
    is_ruled = quota["total"] == BY_HOLDOUT
    pairs = (
        ("release.bands", release["bands"][0] == release["min_cell"], "begin with release.min_cell", release["bands"]),
        (
            "release.band_resolution",
            len(release["band_resolution"]) == len(release["bands"]),
            "have a number for each of release.bands",
            release["band_resolution"],
        ),
        (
            "release.place_factor",
            all(_divides_one(step * release["place_factor"]) for step in release["band_resolution"]),
            "make steps that divide 1, of 0.5 at most, of release.band_resolution",
            release["place_factor"],
        ),
        ("quota.per_day", is_ruled or quota["per_day"] <= quota["total"], "not exceed quota.total", quota["per_day"]),
        (
            "quota.total",
            is_ruled or quota["total"] <= quota["board_total"],
            "not exceed quota.board_total",
            quota["total"],
        ),
        (
            "exposure.watch_bits",
            exposure["watch_bits"] <= exposure["close_bits"],
            "not exceed exposure.close_bits",
            exposure["watch_bits"],
        ),
    )
    for key, is_met, rule, value in pairs:
        if not is_met:
            raise SettingsError(f"{path}: `{prefix}{key}` must {rule}, got {value!r}")


def _merge(below: Document, above: Document) -> dict[str, Any]:
    """`above` over `below`, table by table and key by key."""
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merge(below.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def _with_bands(tables: Document, below: Document) -> Document:
    """`tables`; if their `release` sets `min_cell` alone, with the bands of the release table `below` from there on."""
    release = tables.get("release", {})
    if "min_cell" not in release or "bands" in release or "band_resolution" in release:
        return tables
    least, given = release["min_cell"], list(zip(below["bands"], below["band_resolution"], strict=False))
    step = [step for start, step in given if start <= least or start == given[0][0]][-1]
    bands, steps = zip((least, step), *(band for band in given if band[0] > least), strict=True)
    return {**tables, "release": {**release, "bands": list(bands), "band_resolution": list(steps)}}


def _tables_of(document: Document, benchmark: str) -> dict[str, Any]:
    general = {name: table for name, table in document.items() if name != "benchmarks"}
    return _merge(general, document.get("benchmarks", {}).get(benchmark, {}))


def _lines(document: Document) -> Iterator[str]:
    """The packaged file with the values of `document`; what it has for single benchmarks comes last."""
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
    """JSON's form of a text, a number or a list of numbers is TOML's too, for texts of printable characters."""
    return json.dumps(value, ensure_ascii=False)
