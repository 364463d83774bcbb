"""The page About: scoring, release policy, citations and terms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import Request
from markupsafe import Markup, escape

from reveal_bench.kinds import KINDS
from reveal_bench.words import count_text
from reveal_leaderboard.boards.catalogue import Published
from reveal_leaderboard.boards.standings import board_metrics
from reveal_leaderboard.release.release import ranking_metric
from reveal_leaderboard.settings import BenchmarkSettings, Quota
from reveal_leaderboard.store import boards
from reveal_leaderboard.web.pages.board_notes import RANK_SENTENCE, average_only, in_points, rounding
from reveal_leaderboard.web.pages.drawing import draw
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.plain import ReadPage, titled
from reveal_leaderboard.web.services import Services

HOW = (
    ("The file is checked first", "The check has no reference answers, so it can report every problem by line. It is "
     "free."),
    ("Scoring is separate", "The server reads your file in a confined process that has no references. A worker scores "
     "the resulting arrays of numbers in another process, which has the references but never your file. This web "
     "server has neither references nor exact scores."),
    ("Not everything is shown", "Scores are rounded, have intervals, and are shown only for findings with enough "
     "cases. Averages exclude findings with too few cases. Some findings with few cases count only in averages. Every "
     "scored submission is charged to a small budget."),
    ("A new best must be better", "A score must beat the team's earlier best by a minimum step. Otherwise the board "
     "shows the earlier scores again, and says so."),
    ("Each score has a receipt", Markup(
        "The receipt is signed and linked to the previous receipt. <code>reveal-bench verify-receipt FILE</code> "
        "checks it without this server; the public keys are at "
        '<a href="/api/v1/keys">/api/v1/keys</a>.'
    )),
)  # fmt: skip

NEW_TEAMS = {
    "open": "Anyone who signs in may create a team, and a new team may submit at once.",
    "asked": "Anyone who signs in may create a team; it may submit once the maintainers have approved it.",
}

PAPERS = {
    "paper 000": "Gosai et al. 2025, arXiv 2509.18015",
    "paper 001": "Banerjee et al. (ReExecution)",
    "paper 002": "Saporta et al. 2022, doi:10.1038/s42256-022-00536-x",
    "paper 004": "REVEAL-CXR, arXiv 2601.15129",
}
"""Citations of papers, by their keys in the sources of metrics."""
ADDRESSES = {"arxiv": "https://arxiv.org/abs/", "doi": "https://doi.org/", "address": "", "mail": "mailto:"}
NAMED = re.compile(
    r"arXiv (?P<arxiv>\d{4}\.\d{5})|doi:(?P<doi>10\.\d{4,9}/[\w./-]*\w)|(?P<address>https://[\w./?=&;%#~+-]*[\w/])"
    r"|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
)
"""Pattern of texts that become links; `ADDRESSES` has the start of each kind of address."""


def show(services: Services, request: Request) -> ReadPage:
    """Return the page."""
    published = [services.catalogue.current(name) for name in services.names]
    with services.store.read() as connection:
        states = {
            row.benchmark: boards.shown_state(connection, row, services.settings.of(row.benchmark).round)
            for row in boards.list_boards(connection)
        }
        confinement = sorted({worker.confinement for worker in services.queue.alive(connection)})
    settings = {item.name: services.settings.of(item.name) for item in published}
    toml, new_teams = services.settings.to_toml(), services.settings.accounts.new_teams
    view = about_view(published, settings, states, confinement, toml, new_teams=new_teams)
    return titled("/about", f'{opening("/about")}<div id="about">{view}</div>')


def about_view(
    published: Sequence[Published],
    settings: dict[str, BenchmarkSettings],
    states: dict[str, tuple[str, str]],
    confinement: Sequence[str],
    toml: str,
    *,
    new_teams: str = "asked",
) -> str:
    """Return the page below its heading."""
    facts = [_benchmark(item, settings[item.name], *states.get(item.name, ("open", ""))) for item in published]
    metrics = {metric.name: metric for item in published for metric in board_metrics(item.name)}
    named = [(metric, with_links(_named(metric.source))) for metric in metrics.values()]
    return draw(
        "about.html", "page", HOW, confinement, RANK_SENTENCE, facts, named, NEW_TEAMS[new_teams], toml
    )  # fmt: skip


def _benchmark(item: Published, settings: BenchmarkSettings, state: str, why: str) -> dict[str, Any]:
    findings = item.part or count_text(len(item.findings), "finding")
    scored_on = f"held-out split “{item.split}”, {item.n_items} {item.items}, {findings}"
    return {
        "title": item.title, "name": item.name, "version": item.version, "synthetic": item.synthetic, "state": state,
        "why": why, "scored_on": scored_on, "citation": with_links(settings.citation), "terms": settings.terms,
        "host": settings.host, "contact": with_links(settings.contact),
        "policy": policy_sentences(
            settings, item.quota(settings), ranking_metric(KINDS[item.kind], settings.release)
        ),
    }  # fmt: skip


def policy_sentences(settings: BenchmarkSettings, quota: Quota, primary: str) -> list[str]:
    """Return sentences on a benchmark's release policy and quota; `primary` is the metric used for ranking."""
    release = settings.release
    ladder = (
        f"A new score is shown if it exceeds the {release.ladder_per}’s best by more than "
        f"{in_points(release.ladder_step)}."
        if release.ladder_step
        else "Every score is shown, better or not."
    )
    a_day = f", {quota.per_day} a day (UTC)" if quota.per_day < quota.total else ""
    final = (
        f"{100 * release.final_share:.0f}% of the patients are reserved for final scores, which rank the closed board."
        if release.final_share
        else "No patients are reserved for final scores."
    )
    released = (
        f"Scores are shown for findings with at least {release.min_cell} cases.",
        average_only(asdict(release), primary),
        rounding(asdict(release), primary),
        f"Intervals come from {release.n_resamples:,} resamples of patients.",
    )
    return [
        " ".join(filter(None, released)),
        ladder,
        f"{count_text(quota.total, 'scored submission')} per team and version{a_day}; {quota.board_total} for all "
        "teams together.",
        final,
    ]


def with_links(text: str) -> Markup:
    """Return a text with its arXiv numbers, DOIs, https addresses and mail addresses as links."""

    def linked(match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        return f'<a href="{ADDRESSES[kind]}{match[kind]}" rel="noopener">{match[0]}</a>'

    return Markup(NAMED.sub(linked, str(escape(text))))


def _named(source: str) -> str:
    for number, name in PAPERS.items():
        source = source.replace(number, name)
    return source
