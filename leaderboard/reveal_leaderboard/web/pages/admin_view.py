"""What the maintainers see, as HTML: boards, versions, the queue, workers, incidents, flags, people.

The exposure meter as HTML: how much of a holdout version the scores shown could have told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from reveal_leaderboard.accounts.people import Team, Token, User
from reveal_leaderboard.boards.refresh import Progress
from reveal_leaderboard.release.exposure import Exposure
from reveal_leaderboard.store.boards import BoardRow, VersionRow
from reveal_leaderboard.store.queue import ALIVE_SECONDS, Job, WorkerRow
from reveal_leaderboard.store.store import Flag, Submission
from reveal_leaderboard.web.pages.drawing import (
    action,
    badge,
    detail,
    facts,
    link,
    message,
    percent,
    plural,
    table,
    text,
    when,
)

__all__ = [
    "boards_view",
    "exposure_view",
    "flags_view",
    "incidents_view",
    "live_tokens_view",
    "queue_view",
    "submissions_view",
    "teams_view",
    "users_view",
    "versions_view",
    "waiting_view",
    "workers_view",
]

ROWS_SHOWN = 200


def boards_view(rows: Sequence[BoardRow]) -> str:
    """Every board and its state."""
    body = "".join(
        f'<tr><th scope="row">{text(row.benchmark)}</th><td>{text(row.version)}</td><td>{badge(row.state)}</td>'
        f"<td>{text(row.why) or '–'}</td><td>{when(row.changed_at)}</td></tr>"
        for row in rows
    )
    return table(["Benchmark", "Version", "State", "Why", "Since"], [f"<tbody>{body}</tbody>"], label="Boards")


def versions_view(rows: Sequence[tuple[VersionRow, Progress]]) -> str:
    """Versions with what can be done to each: a new one is scored in the background, then shown at once."""
    body = []
    for version, progress in rows:
        key = f"{version.benchmark}:{version.version}"
        state, buttons = "shown", ""
        if version.frozen_at is not None:
            state = "frozen"
        elif version.shown_at is None:
            state = "waiting"
            buttons = action("Score all against it", "refresh", key, describe=key)
            if progress.total and not progress.left:
                buttons += " " + action("Show it now …", "switch", key, describe=key)
        done = f"{progress.done} of {progress.total}" if progress.total else "–"
        bar = f'<progress max="{progress.total}" value="{progress.done}">{done}</progress> ' if progress.left else ""
        failed = f", {plural(progress.failed, 'failure')}" if progress.failed else ""
        body.append(
            f'<tr><th scope="row">{text(version.benchmark)} {text(version.version)}</th><td>{badge(state)}</td>'
            f"<td>{bar}{done}{failed}</td><td>{when(version.shown_at)}</td><td>{buttons or '–'}</td></tr>"
        )
    head = ["Version", "State", "Scored again", "Shown since", "What you can do"]
    return table(head, [f"<tbody>{''.join(body)}</tbody>"], label="Versions")


def queue_view(jobs: Sequence[Job]) -> str:
    """Jobs that wait or run, the oldest first."""
    if not jobs:
        return message("good", "The queue is empty.")
    body = "".join(
        f'<tr><th scope="row">{text(job.kind)}</th><td><code>{text(job.subject)}</code></td><td>{text(job.benchmark)} '
        f"{text(job.version)}</td><td>{badge(job.status)}</td><td>{job.attempts}</td><td>{text(job.worker or '–')}</td>"
        f"<td>{when(job.created_at)}</td></tr>"
        for job in jobs[:ROWS_SHOWN]
    )
    head = ["Job", "Of", "Board", "State", "Attempts", "Worker", "Since"]
    shown = table(head, [f"<tbody>{body}</tbody>"], label="Queue")
    cut = f'<p class="rv-note">{ROWS_SHOWN} of {len(jobs)} are shown.</p>' if len(jobs) > ROWS_SHOWN else ""
    return f'<p class="rv-note">{plural(len(jobs), "job")}.</p>{shown}{cut}'


def workers_view(workers: Sequence[WorkerRow], now: float) -> str:
    """Workers, and whether they are alive."""
    if not any(now - worker.seen_at < ALIVE_SECONDS for worker in workers):
        warning = message("bad", "No worker is at work.", "Nothing is scored until one is started.")
    else:
        warning = ""
    body = "".join(
        f'<tr><th scope="row">{text(worker.name)}</th>'
        f"<td>{badge('alive' if now - worker.seen_at < ALIVE_SECONDS else 'silent')}</td>"
        f"<td>{when(worker.seen_at)}</td>"
        f"<td>{text(', '.join(' '.join(pair) for pair in worker.serves))}</td><td>{text(worker.job_id or '–')}</td>"
        f"<td>{text(worker.confinement)}</td></tr>"
        for worker in workers[:ROWS_SHOWN]
    )
    if not body:
        return warning
    head = ["Worker", "State", "Seen", "Serves", "Works on", "Confinement of its children"]
    return warning + table(head, [f"<tbody>{body}</tbody>"], label="Workers")


def incidents_view(incidents: Sequence[tuple[str, float]]) -> str:
    """Incidents: number and time only. What happened is in the worker's own log, since it may tell of references."""
    if not incidents:
        return message("good", "No incident.")
    body = "".join(
        f'<tr><th scope="row"><code>{text(number)}</code></th><td>{when(at)}</td></tr>'
        for number, at in incidents[:ROWS_SHOWN]
    )
    told = '<p class="rv-note">What happened stands under this number in the workers’ vault.</p>'
    return told + table(["Incident", "When"], [f"<tbody>{body}</tbody>"], label="Incidents")


def flags_view(flags: Sequence[Flag], named: Mapping[str, str]) -> str:
    """Open flags; `named` maps submission ids to "model, team"."""
    if not flags:
        return message("good", "No open flag.")
    rows = []
    for flag in flags[:ROWS_SHOWN]:
        whose = link("/entry", named.get(flag.submission_id, flag.submission_id), id=flag.submission_id)
        other = "–"
        if flag.other_id is not None:
            other = link("/entry", named.get(flag.other_id, flag.other_id), id=flag.other_id)
        rows.append(
            f'<tr><th scope="row">{badge(flag.kind.replace("_", " "))}</th><td>{whose}</td><td>{other}</td>'
            f"<td>{text(flag.detail)}</td><td>{when(flag.raised_at)}</td>"
            f"<td>{action('Clear', 'clear-flag', flag.id, describe=flag.kind)}</td></tr>"
        )
    head = ["Flag", "Submission", "Other", "What was seen", "When", "What you can do"]
    return table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="Flags")


def submissions_view(submissions: Sequence[Submission], search: str = "") -> str:
    """Submissions of everybody, newest first; `search` looks in model, team and id."""
    words = search.casefold().split()
    kept = [one for one in submissions if all(w in f"{one.model_name} {one.team} {one.id}".casefold() for w in words)]
    if not kept:
        return message("info", "No submission matches." if submissions else "There is no submission yet.")
    rows = []
    for one in sorted(kept, key=lambda one: one.created_at, reverse=True)[:ROWS_SHOWN]:
        spoken = f"{one.model_name}, {one.team}"
        if one.hidden_at is None:
            button = action("Hide …", "hide", one.id, describe=spoken)
        else:
            button = action("Restore …", "restore", one.id, describe=spoken)
        state = badge("hidden") if one.hidden_at is not None else ""
        state += badge("withdrawn") if one.withdrawn_at is not None and one.status != "withdrawn" else ""
        why = f'<span class="rv-hint">{text(one.hidden_why)}</span>' if one.hidden_why else ""
        rows.append(
            f'<tr><th scope="row"><span class="rv-name">{link("/entry", one.model_name, id=one.id)}</span>'
            f'<span class="rv-team">{text(one.team)}</span></th><td>{text(one.benchmark)} {text(one.version)}</td>'
            f"<td>{badge(one.status)}{state}{why}</td><td>{text(one.incident or '–')}</td>"
            f"<td>{when(one.created_at)}</td><td>{button}</td></tr>"
        )
    head = ["Submission", "Board", "Status", "Incident", "Sent", "What you can do"]
    cut = f'<p class="rv-note">{ROWS_SHOWN} of {len(kept)} are shown.</p>' if len(kept) > ROWS_SHOWN else ""
    return table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="All submissions", css_class="rv-mine") + cut


def waiting_view(waiting: Sequence[tuple[Team, Sequence[tuple[User, str]]]], *, is_asked: bool) -> str:
    """Teams that wait for approval with their members, who asked first standing first.

    Parameters
    ----------
    is_asked : whether teams made now wait, too
    """
    if not waiting:
        told = "New teams wait here." if is_asked else "By the settings, new teams may submit at once."
        return message("good", "No team waits.", told)
    rows = []
    for team, members in sorted(waiting, key=lambda one: one[0].waiting_since or 0.0):
        people = "".join(
            f"<li>{text(user.name)} ({text(role)}){_hint(f'{text(user.issuer)}: {text(user.subject)}')}</li>"
            for user, role in members
        )
        buttons = action("Approve", "approve-team", team.id, describe=team.name)
        buttons += action("Refuse …", "refuse-team", team.id, describe=team.name, tone="danger")
        rows.append(
            f'<tr><th scope="row">{text(team.name)}{_hint(f"since {when(team.waiting_since)}, by")}'
            f'<ul class="rv-list">{people}</ul></th><td><div class="rv-balance">{buttons}</div></td></tr>'
        )
    head = ["Team, its members, and how they sign in", "What you can do"]
    return table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="Teams that wait for approval")


def teams_view(teams: Sequence[Team]) -> str:
    """All teams but those that wait for approval."""
    shown = [team for team in teams if team.waiting_since is None or team.disabled_at is not None]
    if not shown:
        return message("info", "There is no team yet.")
    body = "".join(
        f'<tr><th scope="row">{text(team.name)}{_hint(_code(team.id))}</th>'
        f"<td>{badge(_team_state(team))}</td>"
        f"<td>{_switch('team', team.id, team.name, team.disabled_at)}</td></tr>"
        for team in shown
    )
    return table(["Team", "State", "What you can do"], [f"<tbody>{body}</tbody>"], label="Teams")


def _team_state(team: Team) -> str:
    if team.disabled_at is None:
        return "open"
    return "closed" if team.waiting_since is None else "not approved"


def users_view(users: Sequence[User], me: User) -> str:
    """Everybody who ever signed in; nobody can shut the own door."""
    rows = []
    for user in users:
        buttons = "you"
        if user.id != me.id:
            right = ("No admin", "no-admin") if user.is_admin else ("Make admin", "make-admin")
            buttons = _switch("user", user.id, user.name, user.disabled_at)
            buttons += action(right[0], right[1], user.id, describe=user.name)
        roles = badge("admin") if user.is_admin else ""
        rows.append(
            f'<tr><th scope="row">{text(user.name)}{_hint(f"{_code(user.id)} of {text(user.issuer)}")}</th>'
            f"<td>{badge('closed' if user.disabled_at else 'open')}{roles}</td>"
            f'<td><div class="rv-balance">{buttons}</div></td></tr>'
        )
    head = ["Person, and who signs them in", "State", "What you can do"]
    return table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="People")


def live_tokens_view(tokens: Sequence[tuple[Token, str]]) -> str:
    """Tokens that work, each with its owner's name; what is known of one says nothing of its secret."""
    if not tokens:
        return message("good", "No token is in use.")
    body = "".join(
        f'<tr><th scope="row">{text(token.name)}{_hint(f"of {text(owner)}, {text(token.team.name)}")}'
        f"{_hint(_code(token.id))}</th><td>{text(', '.join(token.scopes))}"
        f"{_hint(f'last used {when(token.used_at)}' if token.used_at is not None else 'not used yet')}"
        f"{_hint(f'made {when(token.created_at, date_only=True)}')}"
        f"{_hint(f'ends {when(token.expires_at, date_only=True)}')}</td>"
        f"<td>{action('Revoke …', 'revoke-token', token.id, describe=f'{token.name} of {owner}')}</td></tr>"
        for token, owner in tokens[:ROWS_SHOWN]
    )
    head = ["Token, whose, and for which team", "May", "What you can do"]
    cut = f'<p class="rv-note">{ROWS_SHOWN} of {len(tokens)} are shown.</p>' if len(tokens) > ROWS_SHOWN else ""
    return table(head, [f"<tbody>{body}</tbody>"], label="API tokens in use") + cut


def _hint(markup: str) -> str:
    return f'<span class="rv-hint">{markup}</span>'


def _code(subject: str) -> str:
    return f"<code>{text(subject)}</code>"


def _switch(kind: str, subject: str, name: str, disabled_at: float | None) -> str:
    if disabled_at is None:
        return action("Close", f"close-{kind}", subject, describe=name)
    return action("Open again", f"open-{kind}", subject, describe=name)


WORDS = {"low": "low", "watch": "watch", "close": "close the board for a refresh"}


def exposure_view(benchmark: str, meter: Exposure) -> str:
    """One benchmark: the level, the meter, who sent how many."""
    kind = "info" if meter.level == "low" else "bad" if meter.level == "close" else "info"
    head = message(kind, f"{benchmark}: {WORDS[meter.level]}.", meter.sentence)
    known = f"{percent(meter.share)} %" if math.isfinite(meter.share) else "more than all"
    told = {
        "Scored submissions": f"{_meter(meter.n_scored, meter.board_total)} {meter.n_scored} of {meter.board_total}",
        "Most exposed finding": text(meter.finding or "none is shown"),
        "Told about it": f"at most {meter.bits_out:.0f} of the {meter.bits_held:.0f} bits in its labels ({known})",
        "Told to": "" if meter.group is None else text(", ".join(meter.group.teams)),
    }
    return head + facts(told) + _teams(meter)


def _meter(value: int, high: int) -> str:
    return f'<meter min="0" max="{high}" value="{value}">{value} of {high}</meter>'


def _teams(meter: Exposure) -> str:
    if not meter.by_team:
        return ""
    rows = "".join(f'<tr><th scope="row">{text(name)}</th><td>{n}</td></tr>' for name, n in meter.by_team)
    shown = table(["Team", "Scored"], [f"<tbody>{rows}</tbody>"], label="Scored submissions by team")
    groups = [group for group in meter.groups if len(group.teams) > 1]
    alike = "".join(
        f"<li>{text(', '.join(group.teams))}: near-identical predictions, {plural(group.n_shown, 'score')} shown, "
        f"{group.n_held} held back</li>"
        for group in groups
    )
    return detail(f"By team ({len(meter.by_team)})", shown + (f'<ul class="rv-list">{alike}</ul>' if alike else ""))
