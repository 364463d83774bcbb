"""How far a submission is, as HTML: the steps, the place in the queue, and the score once there is one."""

from __future__ import annotations

from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.store.queue import Waiting
from reveal_leaderboard.store.store import Score, Submission
from reveal_leaderboard.web.pages.drawing import link, message, plural, text, when
from reveal_leaderboard.web.pages.entry import shown_metrics
from reveal_leaderboard.web.pages.score_view import score_view

__all__ = ["FINAL", "duration", "progress_view", "steps"]

FINAL = ("scored", "refused", "failed", "withdrawn")
STEPS = ("queued", "scoring", "scored")


def progress_view(submission: Submission, waiting: Waiting | None, score: Score | None, why: str = "") -> str:
    """The whole box.

    Parameters
    ----------
    waiting : the place in the queue, while there is one
    why : the reason of the last event, for a submission that ended without a score
    """
    parts = [steps(submission.status), _state(submission, waiting, why)]
    if score is not None and submission.status == "scored":
        released = ReleasedScore.from_json(score.released)
        if score.is_held:
            better = link("/entry", "your earlier one", id=score.shown_of)
            told = (
                f"<p>It is not better than {better} by more than the board’s step, or holds the same predictions.</p>"
            )
            parts.append(message("info", "The figures of an earlier submission are shown again.", markup=told))
        parts.append(score_view(released, shown_metrics(released)))
    return "".join(parts)


def steps(status: str) -> str:
    """The three steps with a mark and a word for each."""
    ended = status in FINAL and status != "scored"
    names = ("queued", status) if status == "withdrawn" else (*STEPS[:2], status) if ended else STEPS
    names = ("queued", "reading", "scored") if status == "reading" else names
    at = names.index(status) if status in names else 0
    items = []
    for i, name in enumerate(names):
        state = "done" if i < at or (i == at and status in FINAL) else "now" if i == at else "to come"
        mark = {"done": "✓", "now": "●", "to come": "○"}[state]
        if ended and i == at:
            mark = "✕"
        current = ' aria-current="step"' if i == at else ""
        css_class = f"rv-step-{state.replace(' ', '-')}"
        items.append(f'<li class="{css_class}"{current}><span aria-hidden="true">{mark}</span> {text(name)}</li>')
    return f'<ol class="rv-steps">{"".join(items)}</ol>'


def _state(submission: Submission, waiting: Waiting | None, why: str) -> str:
    sent = f"<p>Submission <code>{text(submission.id)}</code>, sent {when(submission.created_at)}.</p>"
    if submission.status in ("received", "linted", "queued"):
        return message("busy", _place(waiting), _expected(waiting), markup=sent)
    if submission.status == "scoring":
        return message("busy", "Being scored.", _expected(waiting, "It should be done"), markup=sent)
    if submission.status == "reading":
        told = "This may take days; you need not wait here."
        return message("info", "The answers wait for readers.", told, markup=sent)
    if submission.status == "scored":
        board = link("/", "the board", benchmark=submission.benchmark)
        see = f"<p>{link('/entry', 'Its page', id=submission.id)} · {board}</p>"
        return message("good", f"{submission.model_name} is scored.", markup=sent + see)
    if submission.status == "withdrawn":
        return message("info", "You have withdrawn it; nothing was charged.", markup=sent)
    number = f" Incident {submission.incident}." if submission.incident else ""
    refund = " Nothing was charged."
    return message("bad", f"The submission was {submission.status}.", f"{why}{number}{refund}", markup=sent)


def _place(waiting: Waiting | None) -> str:
    if waiting is None or waiting.position is None:
        return "In the queue."
    return f"In the queue, position {waiting.position}."


def _expected(waiting: Waiting | None, what: str = "It should start") -> str:
    if waiting is None or waiting.expected_seconds is None:
        return "When it starts cannot be told yet." if what.endswith("start") else ""
    return f"{what} {duration(waiting.expected_seconds)}."


def duration(seconds: float) -> str:
    """A time to come in words, no finer than it can be known."""
    if seconds < 5:
        return "in a moment"
    if seconds < 90:
        return f"in about {max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 5400:
        return f"in about {plural(round(seconds / 60), 'minute')}"
    return f"in about {plural(round(seconds / 3600), 'hour')}"
