"""Read a receipt or score document as plain facts about a result, from which this package writes other formats.

Conventions
-----------
A result comes from a *receipt*, which a leaderboard signed, or from a *score document*, which ``score --json`` prints.
Scores are exact decimals. A receipt contains only released scores, which are already rounded, and no format shows more
decimals. The signature of a receipt is checked first, and a receipt with an invalid signature is refused. Undefined
scores are left out.

Facts that were not recorded are None. Nothing is guessed: a format states that such a fact is missing, or omits its
field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.exchange.receipts import ReceiptError, read_document, verify_receipt
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import plural

METHODS = {
    "jackknife": "jackknife",
    "percentile": "percentile bootstrap",
    "shifted": "percentile bootstrap, shifted by its bias",
    "bca": "bias-corrected and accelerated bootstrap",
    "chexlocalize": "bootstrap, as in the code of CheXlocalize",
    "shown": "score interval about the rounded value",
}
"""Kind of interval -> name of the method in a paper."""
LARGEST_FILE = 16 << 20
DECIMALS = Decimal("0.001")
LARGEST = 1_000_000_000  # maximum for any metric; a hostile receipt may state more
_PLAIN = re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,20})?")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Figure:
    """One score of a result, with its 95% interval.

    Attributes
    ----------
    metric, finding : name of the metric in METRICS; the finding, or "macro"
    value, low, high : exact, as released or computed; the interval may be missing
    n : number of cases of a finding (in a receipt a range such as "60-119"), or of findings in a macro
    signature : recipe of the computation, see :class:`reveal_bench.metrics.intervals.Estimate`
    """

    metric: str
    finding: str
    value: Decimal
    low: Decimal | None
    high: Decimal | None
    n: str | None
    signature: str | None

    @property
    def is_macro(self) -> bool:
        """True for a mean over findings."""
        return self.finding == MACRO

    @property
    def title(self) -> str:
        """The metric's standard name."""
        return METRICS[self.metric].title if self.metric in METRICS else self.metric

    @property
    def what(self) -> str:
        """Title of the metric, and the finding or "macro average"."""
        return f"{self.title}, macro average" if self.is_macro else f"{self.title}, {self.finding}"

    @property
    def scale(self) -> str | None:
        """The metric's title, and the range of its values, which are never in percent."""
        return METRICS[self.metric].scale if self.metric in METRICS else None

    @property
    def count(self) -> str:
        """The number of cases or findings on which the score is based, in words."""
        if self.n is None:
            return "not recorded"
        rated = (kind for kind in KINDS.values() if kind.scoring.scored_by == "readers")
        by_readers = any(self.metric in kind.release.metrics for kind in rated)
        return f"{self.n} {'cases' if not self.is_macro else 'criteria' if by_readers else 'findings'}"

    @property
    def recipe(self) -> dict[str, str]:
        """Parts of the signature by name: b, seed, unit, i, v."""
        parts = (self.signature or "").split("|")[1:]
        return {name: value for name, colon, value in (part.partition(":") for part in parts) if colon}

    @property
    def n_cases(self) -> int | None:
        """Number of cases of a finding; None if the exact number is unknown."""
        return int(self.n) if not self.is_macro and self.n is not None and _COUNT.fullmatch(self.n) else None

    @property
    def n_resamples(self) -> int | None:
        """Number of bootstrap resamples behind the interval; None if unknown."""
        count = self.recipe.get("b", "")
        return int(count) if _COUNT.fullmatch(count) else None

    @property
    def method(self) -> str | None:
        """The method of the interval, in words."""
        recipe = self.recipe
        kind = recipe.get("i", "percentile")
        unit = plural(recipe.get("unit", "unit"))
        if kind == "shown":
            return f"{METHODS[kind]}, with whole {unit}"
        if self.n_resamples is None:
            return None
        if kind == "jackknife":
            return f"{METHODS[kind]} over {unit}"
        return f"{METHODS.get(kind, kind)}, {self.n_resamples} resamples of {unit}, seed {recipe.get('seed', '?')}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Identity of a receipt: its number in the chain, its hash (64 hexadecimal digits) and its signing key."""

    number: int
    hash: str
    key_id: str


@dataclass(frozen=True)
class Result:
    """The recorded facts about a result.

    Attributes
    ----------
    benchmark, version, split : the scored data
    part : "public" or "final" for a receipt, otherwise None
    model, team : names that the submitter stated; for a score document, names that the caller states, or None
    time : time of scoring, ISO 8601 in UTC
    file_sha256, references_sha256 : SHA-256 of the prediction file and of the references
    n_predictions, n_missing : counts in a score document
    allow_missing : whether questions without an answer counted as misses (otherwise the file is refused)
    receipt : the receipt; None for a score document
    shown_of : the submission to which these scores belong, if not the receipt's
    """

    benchmark: str
    version: str
    split: str
    figures: tuple[Figure, ...]
    file_sha256: str
    references_sha256: str
    allow_missing: bool
    software: Mapping[str, str]
    part: str | None = None
    model: str | None = None
    team: str | None = None
    time: str | None = None
    n_predictions: int | None = None
    n_missing: int | None = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    receipt: Receipt | None = None
    submission: str | None = None
    shown_of: str | None = None

    @property
    def title(self) -> str:
        """Title of the benchmark."""
        known = BENCHMARKS.get(self.benchmark)
        return self.benchmark if known is None else known.title

    @property
    def asked(self) -> str | None:
        """Description of the scored part of the split, such as "1 of 14 findings (Edema)"; None for the whole split."""
        parts = (self.protocol.get("part"), *(figure.recipe.get("part") for figure in self.figures))
        return next((str(part) for part in parts if part), None)

    @property
    def place(self) -> str:
        """Benchmark, version, split, and the part and questions of it, in words."""
        part = "" if self.part is None else f", {self.part} part"
        asked = "" if self.asked is None else f", {self.asked}"
        return f"{self.title} {self.version}, split {self.split}{part}{asked}"

    @property
    def caveat(self) -> str | None:
        """A warning if the scores belong to another submission than the receipt's, otherwise None."""
        if self.shown_of is None:
            return None
        return f"the scores are those of submission {self.shown_of}, which the receipt's submission did not surpass"

    def shown(self, figure: Figure) -> tuple[str, ...]:
        """Return the value of a score, and the bounds of its interval if there is one, as text.

        Numbers of a receipt keep the released decimals, padded to equal length ("0.70 to 0.86"); numbers of a score
        document get three decimals.
        """
        numbers = (figure.value, *(() if figure.low is None or figure.high is None else (figure.low, figure.high)))
        unit = DECIMALS
        if self.receipt is not None:
            unit = Decimal(1).scaleb(min(0, *(int(number.as_tuple().exponent) for number in numbers)))
        return tuple(format(number.quantize(unit), "f") for number in numbers)

    def interval(self, figure: Figure) -> tuple[str, str] | None:
        """Return both bounds of a score's interval as text; None without an interval."""
        _, *ends = self.shown(figure)
        return (ends[0], ends[1]) if ends else None

    def headline(self, metric: str | None = None, finding: str = MACRO) -> Figure:
        """Return the headline score of `metric`, a name or a title; by default of the first metric used for ranking.

        Raises
        ------
        ValueError
            If the result has no such score.
        """
        ranking = {name for kind in KINDS.values() for name in (kind.release.primary, *kind.release.fallback_metrics)}
        have = {figure.metric: figure for figure in self.figures if figure.finding == finding}
        wanted = [metric] if metric is not None else [name for name in have if name in ranking]
        titles = {figure.title.casefold(): figure for figure in have.values()}
        match = next((one for name in wanted if (one := have.get(name) or titles.get(name.casefold()))), None)
        if match is None:
            rule = f"must be a metric with a score for {finding}: {', '.join(have) or 'none'}"
            raise ArgumentError("metric", rule, metric or "the metric used for ranking")
        return match


def read_result(path: Path, *, model: str | None = None, trusted_key: str | None = None) -> Result:
    """Read a receipt, after checking its signature, or a score document.

    Parameters
    ----------
    model : name of the model for a score document, which does not state a model; must not be given for a receipt, which
        does
    trusted_key : public key that the leaderboard published, for a receipt

    Raises
    ------
    ReceiptError
        If the receipt is not valid.
    ValueError
        If the file is neither a receipt nor a score document.
    """
    document = read_document(path, LARGEST_FILE)
    if "receipt" in document:
        if model is not None:
            raise ArgumentError("model", f"must not be given with a receipt, which states the model: {path}")
        return of_receipt(document, trusted_key)
    if "estimates" in document:
        if trusted_key is not None:
            raise ValueError(f"a key must not be given with a score document, which is not signed: {path}")
        return of_score(document, model)
    raise ValueError(f"{path} must be a receipt, or a document of `reveal-bench score --json`")


def of_receipt(document: Mapping[str, Any], trusted_key: str | None = None) -> Result:
    """Return the facts of a receipt file, after its signature was checked.

    Raises
    ------
    ReceiptError
        If any check of the receipt fails.
    """
    receipt = verify_receipt(document, trusted_key).receipt
    try:
        figures = _figures(receipt["released"]["figures"])
    except (KeyError, TypeError, AttributeError, InvalidOperation):
        raise ReceiptError("`released.figures` of the receipt must be a list of figures with their decimals") from None
    names = ("benchmark", "version", "split", "part", "model", "team", "time", "file_sha256", "allow_missing")
    return Result(
        **{name: receipt[name] for name in names},
        figures=figures,
        references_sha256=receipt["reference_hash"],
        software={name: str(version) for name, version in receipt["software"].items()},
        receipt=Receipt(receipt["number"], document["hash"], receipt["key_id"]),
        submission=receipt["submission"],
        shown_of=receipt["shown_of"],
    )


def of_score(document: Mapping[str, Any], model: str | None = None) -> Result:
    """Return the facts of a document of ``reveal-bench score --json``.

    Raises
    ------
    ValueError
        If the document does not have this format.
    """
    if document.get("schema") != 1:
        raise ValueError(f"`schema` of a score document must be 1, got {document.get('schema')!r}")
    names = ("benchmark", "version", "split", "file_sha256", "references_sha256", "n_predictions", "n_missing")
    try:
        return Result(
            **{name: document[name] for name in names},
            figures=_figures(document["estimates"]),
            allow_missing=document["protocol"]["allow_missing"],
            protocol=document["protocol"],
            software={document["software"]["name"]: document["software"]["version"]},
            model=model,
        )
    except (KeyError, TypeError, AttributeError, InvalidOperation) as error:
        raise ValueError(f"a score document must have the fields of `score --json`; wrong: {error}") from None


def _figures(entries: Any) -> tuple[Figure, ...]:
    if not isinstance(entries, list):
        raise TypeError("figures")
    return tuple(_figure(entry) for entry in entries if entry["value"] is not None)


def _figure(entry: Mapping[str, Any]) -> Figure:
    low, high = (_decimal(entry.get(name)) for name in ("low", "high"))
    value = _decimal(entry["value"])
    if value is None:
        raise TypeError("value")
    n, signature = (None if entry.get(name) is None else str(entry[name]) for name in ("n", "signature"))
    return Figure(str(entry["metric"]), str(entry["finding"]), value, low, high, n, signature)


def _decimal(number: object) -> Decimal | None:
    """Return a number exactly as it was written; in a receipt it must be a plain decimal, short enough to be shown."""
    if number is None:
        return None
    if isinstance(number, str) and not _PLAIN.fullmatch(number):
        raise InvalidOperation(number)
    exact = Decimal(number if isinstance(number, str) else repr(number))
    if not exact.is_finite() or abs(exact) > LARGEST:
        raise InvalidOperation(number)
    return exact
