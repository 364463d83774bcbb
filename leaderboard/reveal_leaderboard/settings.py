"""The figures of the policy: how much of a score is shown, how often, and when a maintainer is warned.

Conventions
-----------
`settings.toml` beside this file holds every figure with its reason, and is printed by the page "About". An operator's
file holds only what differs. Reading is strict: an unknown key, a wrong type or a figure out of range is an error, so
that a misspelled key never leaves a holdout under another policy than its maintainer thinks.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reveal_bench.benchmarks import BENCHMARKS
from reveal_leaderboard.release.release import ReleasePolicy

__all__ = [
    "AccountsPolicy", "BenchmarkSettings", "ExposurePolicy", "QuotaPolicy", "ReadingPolicy", "Settings",
    "SettingsError", "load_settings",
]  # fmt: skip

PACKAGED = Path(__file__).with_name("settings.toml")
Document = Mapping[str, Any]


class SettingsError(ValueError):
    """A settings file breaks a rule; the message names the file, the key, the rule and the value."""


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """Scored submissions per benchmark version: of a team in all and per UTC day, and of all teams together."""

    total: int = 10
    per_day: int = 2
    board_total: int = 500


@dataclass(frozen=True, slots=True)
class ExposurePolicy:
    """When the exposure meter rises.

    Attributes
    ----------
    watch_bits, close_bits : bits let out to one group of teams, as a share of the bits in a finding's labels
    watch_used : share of the board's submissions that are used up
    near : share of answers that agree, from which predictions count as near-identical
    """

    watch_bits: float = 0.75
    close_bits: float = 1.5
    watch_used: float = 0.5
    near: float = 0.95


@dataclass(frozen=True, slots=True)
class ReadingPolicy:
    """How answers to tasks are read.

    Attributes
    ----------
    readers_per_answer : readers who score each answer before its submission is scored
    team : name of the team whose members of the role "reader" score answers, beside the admins; empty for none
    """

    readers_per_answer: int = 2
    team: str = ""


@dataclass(frozen=True, slots=True)
class AccountsPolicy:
    """Who may submit: `new_teams` is "open" (a new team at once) or "asked" (a new team once it is approved)."""

    new_teams: str = "open"


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """The figures of one benchmark."""

    release: ReleasePolicy
    quota: QuotaPolicy
    exposure: ExposurePolicy
    citation: str
    terms: str
    reading: ReadingPolicy = ReadingPolicy()


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a key may hold: `kind` as TOML has it, a test, and the test in words."""

    kind: type
    is_met: Callable[[Any], bool]
    words: str


def _whole(low: int, high: int) -> _Rule:
    return _Rule(int, lambda value: low <= value <= high, f"a whole number from {low} to {high}")


def _number(is_met: Callable[[float], bool], words: str) -> _Rule:
    return _Rule(float, is_met, f"a number {words}")


def _is_step(value: float) -> bool:
    return 0.01 <= value <= 0.25 and abs(1 / value - round(1 / value)) < 1e-9


def _are_bands(value: list[Any]) -> bool:
    whole = all(type(start) is int for start in value)
    return whole and len(value) > 0 and all(a < b for a, b in itertools.pairwise(value))


_LINE = _Rule(str, lambda text: len(text) <= 1000 and text.isprintable(), "one line of at most 1000 characters")
_RULES: dict[str, dict[str, _Rule]] = {
    "release": {
        "min_cell": _whole(10, 100_000),
        "resolution": _number(_is_step, "from 0.01 to 0.25 that divides 1"),
        "small_resolution": _number(_is_step, "from 0.01 to 0.25 that divides 1"),
        "bands": _Rule(list, _are_bands, "a list of ascending whole numbers"),
        "ladder_step": _number(lambda value: 0 <= value <= 1, "from 0 to 1"),
        "ladder_per": _Rule(str, lambda value: value in ("team", "model"), '"team" or "model"'),
        "final_share": _number(lambda value: 0 <= value <= 0.9, "from 0 to 0.9"),
        "n_resamples": _whole(100, 100_000),
        "seed": _whole(0, 2**32 - 1),
    },
    "quota": {"total": _whole(1, 1000), "per_day": _whole(1, 1000), "board_total": _whole(1, 1_000_000)},
    "exposure": {
        "watch_bits": _number(lambda value: 0 < value <= 1000, "above 0, to 1000"),
        "close_bits": _number(lambda value: 0 < value <= 1000, "above 0, to 1000"),
        "watch_used": _number(lambda value: 0 < value <= 1, "above 0, to 1"),
        "near": _number(lambda value: 0.5 < value <= 1, "above 0.5, to 1"),
    },
    "reading": {
        "readers_per_answer": _whole(1, 10),
        "team": _Rule(str, lambda text: len(text) <= 100 and text.isprintable(), "a line of at most 100 characters"),
    },
    "accounts": {"new_teams": _Rule(str, lambda value: value in ("open", "asked"), '"open" or "asked"')},
    "about": {"citation": _LINE, "terms": _LINE},
}
_OF_ALL = ("accounts",)
"""Tables that no benchmark has of its own."""
_TOML_NAMES = {int: "a whole number", float: "a number", str: "a text", list: "a list", bool: "true or false"}


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
        release = dict(tables["release"])
        return BenchmarkSettings(
            ReleasePolicy(**{**release, "bands": tuple(release["bands"])}),
            QuotaPolicy(**tables["quota"]),
            ExposurePolicy(**tables["exposure"]),
            **tables["about"],
            reading=ReadingPolicy(**tables["reading"]),
        )

    @property
    def accounts(self) -> AccountsPolicy:
        """What holds for all benchmarks together."""
        return AccountsPolicy(**self._document["accounts"])

    def document(self, benchmark: str) -> dict[str, Any]:
        """The figures of `benchmark` as plain JSON values."""
        fields = asdict(self.of(benchmark))
        fields["release"]["bands"] = list(fields["release"]["bands"])
        return fields

    def to_toml(self) -> str:
        """The figures in force, with the comments of the packaged file."""
        return "\n".join(_lines(self._document)) + "\n"


def load_settings(path: Path | None = None) -> Settings:
    """Read the packaged figures, and those of `path` in their place.

    Raises
    ------
    SettingsError
        If a file cannot be read, is no TOML, or breaks a rule.

    Examples
    --------
    >>> load_settings().of("reveal-cxr").quota
    QuotaPolicy(total=10, per_day=2, board_total=500)
    """
    document = _read(PACKAGED)
    if path is not None:
        document = _merge(document, _read(Path(path)))
    source = Path(path or PACKAGED)
    for benchmark in ("", *document.get("benchmarks", {})):
        _check_together(_tables_of(document, benchmark), source, f"benchmarks.{benchmark}." if benchmark else "")
    return Settings(document)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # bytes that are no text, or text that is no TOML
        raise SettingsError(f"{path}: must be TOML: {error}") from None
    benchmarks = document.get("benchmarks", {})
    _check_tables({name: table for name, table in document.items() if name != "benchmarks"}, path, "")
    if not isinstance(benchmarks, dict):
        raise SettingsError(f"{path}: `benchmarks` must be a table, got {benchmarks!r}")
    for name, tables in benchmarks.items():
        if name not in BENCHMARKS:
            raise SettingsError(f"{path}: `benchmarks` must be of {', '.join(BENCHMARKS)}, got {name!r}")
        if not isinstance(tables, dict):
            raise SettingsError(f"{path}: `benchmarks.{name}` must be a table, got {tables!r}")
        _check_tables(tables, path, f"benchmarks.{name}.")
    return document


def _check_tables(tables: Mapping[str, Any], path: Path, prefix: str) -> None:
    for name, table in tables.items():
        if name not in _RULES:
            raise SettingsError(f"{path}: tables must be of {', '.join(_RULES)}, benchmarks, got `{prefix}{name}`")
        if prefix and name in _OF_ALL:
            raise SettingsError(f"{path}: `{name}` must be the same for all benchmarks, got `{prefix}{name}`")
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: `{prefix}{name}` must be a table, got {table!r}")
        for key, value in table.items():
            if key not in _RULES[name]:
                known = ", ".join(_RULES[name])
                raise SettingsError(f"{path}: keys of `{prefix}{name}` must be of {known}, got {key!r}")
            _check_value(_RULES[name][key], value, path, f"{prefix}{name}.{key}")


def _check_value(rule: _Rule, value: Any, path: Path, key: str) -> None:
    accepted = (int, float) if rule.kind is float else (rule.kind,)
    if type(value) not in accepted:  # not isinstance: true is no number
        kind = _TOML_NAMES.get(type(value), "a " + type(value).__name__)
        raise SettingsError(f"{path}: `{key}` must be {rule.words}, got {kind}: {value!r}")
    if not rule.is_met(value):
        raise SettingsError(f"{path}: `{key}` must be {rule.words}, got {value!r}")


def _check_together(tables: Document, path: Path, prefix: str) -> None:
    """Rules between two keys."""
    release, quota, exposure = tables["release"], tables["quota"], tables["exposure"]
    pairs = (
        ("release.bands", release["bands"][0] == release["min_cell"], "begin with release.min_cell", release["bands"]),
        (
            "release.resolution",
            release["resolution"] <= release["small_resolution"],
            "not exceed release.small_resolution",
            release["resolution"],
        ),
        ("quota.per_day", quota["per_day"] <= quota["total"], "not exceed quota.total", quota["per_day"]),
        ("quota.total", quota["total"] <= quota["board_total"], "not exceed quota.board_total", quota["total"]),
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
