"""An entry's public result for sharing: headline, citation, and data for its badge, card and figures.

Conventions
-----------
The data are from the board (:mod:`reveal_leaderboard.boards.standings`), released scores and published rows. An entry
that visitors cannot see has no public result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from reveal_bench.exchange.paper import bibtex_entry, escape_bibtex
from reveal_bench.metrics import METRICS
from reveal_bench.printed_tables import escape_markdown
from reveal_bench.words import with_interval
from reveal_leaderboard.boards.standings import BoardEntry, Standings, standings
from reveal_leaderboard.release.receipts import receipt_file
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore, primary_figure
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.metadata import versioned
from reveal_leaderboard.web.pages.drawing import in_words, query_text

if TYPE_CHECKING:
    from reveal_leaderboard.store.store import Score, Submission
    from reveal_leaderboard.web.services import Services


@dataclass(frozen=True)
class Comparator:
    """A reference value for the entry's score: chance, or human readers in a paper."""

    name: str
    kind: str
    value: float
    source: str


@dataclass(frozen=True)
class SharedResult:
    """One entry on one version of its benchmark.

    Attributes
    ----------
    place : the entry's rank or range of ranks, such as "2-5"; empty without a rank
    n_ranked : number of ranked entries
    figure : the macro used for ranking; None if it is not released
    comparators : chance on this holdout and published values on the same data, for that macro
    receipt : SHA-256 of the receipt, or empty
    scored_on : UTC day
    part : part of the findings that the benchmark asks, such as "5 of 14 findings"; empty if it asks all
    """

    submission_id: str
    model: str
    team: str
    benchmark: str
    title: str
    version: str
    split: str
    score: ReleasedScore
    scored_on: str
    place: str = ""
    tier: str = ""
    n_ranked: int = 0
    comparators: tuple[Comparator, ...] = ()
    receipt: str = ""
    part: str = ""

    @property
    def figure(self) -> ReleasedEstimate | None:
        """The macro used for ranking."""
        return primary_figure(self.score)

    @property
    def metric(self) -> str:
        """Name of the metric used for ranking, in lower case for use inside a sentence."""
        return "" if self.figure is None else METRICS[self.figure.metric].in_words

    @property
    def ranked(self) -> str:
        """Rank as text, such as "Rank 2-5 of 8 · tier B"; empty without a rank."""
        if not self.place:
            return ""
        return f"Rank {self.place.replace('-', '–')} of {self.n_ranked} · tier {self.tier}"

    @property
    def value(self) -> str:
        """Macro as text, such as "78%"."""
        if self.figure is None:
            return "no score shown"
        text = in_words(self.figure).value
        return f"{text}%" if is_percent(self.figure) and "%" not in text else text

    @property
    def interval(self) -> str:
        """95% interval as text, such as "72 to 84"; empty without an interval."""
        return "" if self.figure is None else in_words(self.figure).interval

    @property
    def measured(self) -> str:
        """Value and interval, such as "78% (72 to 84)"."""
        return with_interval(self.value, self.interval)

    @property
    def spoken(self) -> str:
        """The whole result in a sentence."""
        text = f"{self.model} by {self.team}: macro {self.metric} {self.measured}, {self.title} {self.version}"
        return f"{text}. {self.ranked}." if self.ranked else f"{text}."

    @property
    def path(self) -> str:
        """Permanent path of these scores on the server."""
        return f"/entry?{query_text({'id': self.submission_id, 'version': self.version})}"

    def bibtex(self, server: str) -> str:
        """Return a BibTeX entry; you fill in the date of access.

        Parameters
        ----------
        server : address of the board, such as "https://board.example.org"
        """
        interval = f" (95\\,\\% interval {escape_bibtex(self.interval)})" if self.interval else ""
        value = escape_bibtex(self.value.replace("\u00a0", " "))
        notes = [
            f"Macro {escape_bibtex(self.metric)} {value}{interval}",
            f"split {escape_bibtex(self.split)}",
            *([self.part] if self.part else []),
            f"scored {self.scored_on}",
            *([f"receipt SHA-256 {self.receipt}"] if self.receipt else []),
        ]
        return bibtex_entry(
            submission=self.submission_id,
            team=self.team,
            model=self.model,
            benchmark=self.benchmark,
            version=self.version,
            day=self.scored_on,
            notes=notes,
            url=f"{server}{self.path}",
        )

    def badge_markdown(self, server: str) -> str:
        """Return the badge in Markdown, as an image that links to the entry."""
        label = escape_markdown(f"{self.benchmark} {self.version}: {self.measured}")
        return f"[![{label}]({server}{self.badge})]({server}{self.path})"

    def badge_html(self, server: str) -> str:
        """Return the badge in HTML, as an image that links to the entry."""
        picture = Markup('<img src="{}" alt="{}" height="20">').format(
            f"{server}{self.badge}", f"{self.benchmark} {self.version}: {self.measured}"
        )
        return str(Markup('<a href="{}">{}</a>').format(f"{server}{self.path}", picture))

    @property
    def card(self) -> str:
        """Path of the preview card on the server."""
        return f"/card/{self.submission_id}.png?{query_text({'version': self.version})}"

    @property
    def badge(self) -> str:
        """Path of the badge on the server."""
        return f"/badge/{self.submission_id}.svg?{query_text({'version': self.version})}"


def is_percent(figure: ReleasedEstimate) -> bool:
    """Return True if the score is shown in percent."""
    return METRICS[figure.metric].low == 0 and METRICS[figure.metric].high == 1


def read_shared(services: Services, submission: Submission, score: Score) -> SharedResult:
    """Return the result of a submission's score, the one that ranks it."""
    published = services.catalogue.current(submission.benchmark)
    board = standings(services.store, published, score.version)
    entry = next((row for row in board.entries if row.submission_id == submission.id), None)
    model = submission.metadata.get("model") or {}
    released = ReleasedScore.from_json(score.released)
    with services.store.read() as connection:
        receipt = receipt_file(connection, submission.id, score.version, score.part)
    return SharedResult(
        submission_id=submission.id,
        model=_plain(versioned(submission.model_name, str(model.get("version") or ""))),
        team=_plain(submission.team),
        benchmark=board.benchmark,
        title=board.title,
        version=score.version,
        split=board.split if score.part == "public" else f"{board.split}, final part",
        score=released,
        scored_on=iso_time(score.scored_at)[:10],
        place="" if entry is None or entry.rank_low is None else entry.place,
        tier="" if entry is None else entry.tier or "",
        n_ranked=_n_ranked(board.entries),
        comparators=_comparators(board, primary_figure(released)),
        receipt="" if receipt is None else str(receipt["hash"]),
        part=board.part,
    )


def _n_ranked(entries: tuple[BoardEntry, ...]) -> int:
    return sum(entry.rank_low is not None for entry in entries)


def _comparators(board: Standings, figure: ReleasedEstimate | None) -> tuple[Comparator, ...]:
    """Return reference values of the ranked macro: chance (on this holdout or else from a paper) and human readers."""
    if figure is None:
        return ()
    names = {"human": "Human readers", "chance": "Chance"}
    comparators: dict[str, Comparator] = {}
    if figure.metric in board.chance:
        comparators["chance"] = Comparator("Chance", "chance", board.chance[figure.metric], "answers drawn at random")
    for row in board.comparable_references:
        if row.kind in names and figure.metric in row.macro:
            comparators.setdefault(
                row.kind, Comparator(names[row.kind], row.kind, row.macro[figure.metric][0], row.source)
            )
    return tuple(comparators.values())


def _plain(text: str) -> str:
    """Return the text on one line, without unprintable characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
