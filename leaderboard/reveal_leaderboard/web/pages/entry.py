"""The page of an entry at its permanent address: metadata, scores per finding, history and receipt.

A submission that is not scored yet, hidden or withdrawn is visible only to its team and the admins. If an entry was
public before it was withdrawn, its page says so, since a paper may cite the address
(:func:`reveal_leaderboard.boards.standings.read_withdrawn`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request

from reveal_bench.analyses.published import ReferenceRow, read_reference_rows
from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import WithdrawnEntry, is_public, read_withdrawn
from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.store.metadata import KINDS, versioned
from reveal_leaderboard.store.scores import ranking_scores
from reveal_leaderboard.store.store import Score, Submission
from reveal_leaderboard.web.api.visibility import is_own
from reveal_leaderboard.web.link_preview import Preview, server_of
from reveal_leaderboard.web.pages.drawing import draw, message, part
from reveal_leaderboard.web.pages.first_sentences import SITE, entry_opening, entry_title
from reveal_leaderboard.web.pages.plain import ReadPage, titled
from reveal_leaderboard.web.pages.submission_view import changes_view, finding_plot, score_view, shown_metrics
from reveal_leaderboard.web.result_images import badge
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.shared_result import SharedResult, read_shared

PAGE = "entry.html"
STATES = {"linted": "checked"}  # displayed words for states in the event log

PLACES_NOTE = (
    "The background is the mean of the released images. The stronger the colour, the more cases of the finding have a "
    "localization at that position. Left: the entry's answers; right: the references."
)


def show(services: Services, request: Request) -> ReadPage:
    """Return the page of the entry that the address names."""
    entry_id, version = request.query_params.get("id", "")[:64], request.query_params.get("version")
    submission = services.store.get(entry_id)
    if submission is None:
        return _unknown(entry_id)
    actor, scores = services.actor(request), services.store.scores_of(submission.id)
    if not may_see(submission, scores, actor):
        withdrawn = read_withdrawn(services.store, submission)
        return _unknown(entry_id) if withdrawn is None else _page(withdrawn_view(withdrawn), status=410)
    try:
        return _seen(services, submission, scores, version, actor, server_of(request))
    except UnknownBenchmarkError:
        return _unknown(entry_id)


def may_see(submission: Submission, scores: Sequence[Score], actor: Actor | None) -> bool:
    """Return True if `actor` may see the submission: its team and admins always, others only while it is public.

    For others, a hidden or held-back submission looks like an unknown id.
    """
    return is_own(actor, submission) or any(is_public(submission, score) for score in scores)


def _unknown(entry_id: str) -> ReadPage:
    return _page(draw(PAGE, "unknown", bool(entry_id)), status=404)


def _page(content: str, result: SharedResult | None = None, status: int = 200) -> ReadPage:
    """Return the page with a preview of the result, if visitors may see it."""
    page = titled("/entry", f'<div id="entry">{content}</div>', status)
    if result is None:
        return page
    title = f"{result.model}, {result.team} · {SITE}"
    return replace(page, preview=Preview(result.path, title, result.spoken, result.card))


def withdrawn_view(entry: WithdrawnEntry) -> str:
    """Return the page of a withdrawn entry for visitors: team and dates, but no scores."""
    return draw(PAGE, "withdrawn", entry)


def _seen(
    services: Services,
    submission: Submission,
    scores: list[Score],
    version: str | None,
    actor: Actor | None,
    server: str,
) -> ReadPage:
    names = list(dict.fromkeys(score.version for score in scores))
    version = version if version in names else (names[-1] if names else None)
    own = is_own(actor, submission)
    events = [(e.at, e.to_status, e.why if own else "") for e in services.store.events_of(submission.id)]
    synthetic = any(served.synthetic for served in services.catalogue.versions(submission.benchmark))
    human = None if synthetic else _human(submission.benchmark)
    result = _shared(services, submission, scores, version)
    places = services.galleries.places(submission.benchmark, entry_title(submission))
    shared: dict[str, Any] = {"is_own": own, "human": human, "result": result, "server": server, "places": places}
    return _page(entry_view(submission, scores, version, events, **shared), result)


def _shared(
    services: Services, submission: Submission, scores: Sequence[Score], version: str | None
) -> SharedResult | None:
    """Return the result to share; None if visitors cannot see it."""
    score = next((ranking for ranking in ranking_scores(scores) if ranking.version == version), None)
    if score is None or score.is_held or not may_see(submission, scores, None):
        return None
    return read_shared(services, submission, score)


def _human(benchmark: str) -> ReferenceRow | None:
    return next((row for row in read_reference_rows(benchmark) if row.kind == "human"), None)


def entry_view(
    submission: Submission,
    scores: Sequence[Score],
    version: str | None,
    events: Sequence[tuple[float, str, str]],
    *,
    is_own: bool = False,
    human: ReferenceRow | None = None,
    result: SharedResult | None = None,
    server: str = "",
    places: Sequence[tuple[str, int, str, str]] = (),
) -> str:
    """Return the entry's page as HTML.

    Parameters
    ----------
    scores : scores on each benchmark version that may be shown, public and final, oldest version first
    version : version of the scores shown
    events : (time, state, reason); visitors get no reasons
    is_own : whether the reader belongs to the team or is an admin
    result : the result to share; None if visitors cannot see it
    server : address of the server, such as "https://board.example.org"
    places : maps of released cases, see :meth:`reveal_bench.viewer.serving.Galleries.places`
    """
    parts = [entry_opening(submission, version, result), _state(submission, is_own=is_own)]
    ranking = ranking_scores(scores)
    score = next((s for s in ranking if s.version == version), None)
    if score is not None:
        parts += _score_parts(submission, score, ranking, human, result)
    if places:
        parts += [part("Where it answers", note=PLACES_NOTE), draw(PAGE, "places", places, submission.benchmark)]
    for public in (s for s in scores if s.version == version and s is not score):
        released = ReleasedScore.from_json(public.released)
        parts.append(part("Public scores", note="Shown before the end of the round, and not used for the final ranks."))
        parts.append(score_view(released, shown_metrics(released)))
        parts.append(draw(PAGE, "receipt", submission, public))
    if result is not None:
        parts += [part("Share and cite"), draw(PAGE, "share", result, server, badge(result).data_address)]
    parts += [part("About the model"), _about(submission.metadata, submission)]
    steps = [(STATES.get(status, status), at, why) for at, status, why in events]
    parts.append(draw(PAGE, "history", steps))
    return "".join(parts)


def _state(submission: Submission, *, is_own: bool) -> str:
    if submission.hidden_at is not None:
        why = f"Reason: {submission.hidden_why}" if is_own and submission.hidden_why else ""
        return message("info", "The maintainers hid this entry from the board.", why)
    if submission.withdrawn_at is not None or submission.status == "withdrawn":
        return message("info", "Its team has withdrawn this entry.")
    if submission.status != "scored":
        return message("info", f"This submission is {submission.status}.", "Its scores appear here once it is scored.")
    if not submission.is_chosen:
        return message("info", "Its team shows another submission of this model on the board.")
    return ""


def _score_parts(
    submission: Submission,
    score: Score,
    scores: Sequence[Score],
    human: ReferenceRow | None,
    result: SharedResult | None,
) -> list[str]:
    released = ReleasedScore.from_json(score.released)
    titles = shown_metrics(released)
    note = "Computed on patients that the public scores exclude, after the end of the round."
    parts = [part("Final scores", note=note) if score.part == "final" else part("Scores")]
    newest = scores[-1].version
    if score.version != newest:
        parts.append(draw(PAGE, "frozen", submission, score.version, newest))
    if score.is_held:
        parts.append(draw("pieces.html", "held", score.shown_of))
    parts.append(score_view(released, titles, human=human))
    if titles:
        primary = next(iter(titles))
        plot = finding_plot(released, primary, titles[primary], human=human)
        parts.append(plot)
        if plot and result is not None:
            parts.append(draw(PAGE, "downloads", result))
    parts.append(draw(PAGE, "receipt", submission, score, has_compare=True))
    if len(scores) > 1:
        parts += [
            part(
                "Versions",
                note="Entries are scored again on every new version of the benchmark. Earlier scores are kept.",
            )
        ]
        parts.append(_versions(submission, score, scores))
    return parts


def _versions(submission: Submission, score: Score, scores: Sequence[Score]) -> str:
    listed = draw(PAGE, "versions", submission, score, scores)
    at = list(scores).index(score)
    other = scores[at - 1] if at else scores[at + 1]
    old, new = (other, score) if at else (score, other)
    released = [ReleasedScore.from_json(s.released) for s in (old, new)]
    return listed + changes_view(released[0], released[1], shown_metrics(released[1]), [old.version, new.version])


def _about(metadata: Mapping[str, Any], submission: Submission) -> str:
    model, links = metadata.get("model") or {}, metadata.get("links") or {}
    thresholds = metadata.get("thresholds")
    parameters = metadata.get("parameters") or {}
    if isinstance(thresholds, Mapping):
        thresholds = ", ".join(f"{name} {value}" for name, value in thresholds.items())
    if tuning := metadata.get("tuning"):
        thresholds = f"{thresholds}; tuned on {tuning['benchmark']} {tuning['version']}, split {tuning['split']}"
    plain = {
        "Model": versioned(submission.model_name, str(model.get("version") or "")),
        "Team": submission.team,
        "Kind": KINDS.get(submission.kind, submission.kind),
        "Prompt style": submission.prompt_style or "",
        "Parameters": ", ".join(f"{name} {value}" for name, value in parameters.items()),
        "Thresholds": "" if thresholds is None else str(thresholds),
        "Training data": metadata.get("training_data") or "",
        "Known overlap": metadata.get("known_overlap") or "",
    }
    named = {"Code": "code", "Paper": "paper", "Model page": "model"}
    return draw(PAGE, "about", submission, plain, {name: str(links.get(key) or "") for name, key in named.items()})
