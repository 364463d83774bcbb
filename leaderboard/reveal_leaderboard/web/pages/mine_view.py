"""What is somebody's own, as HTML: submissions, API tokens, teams."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from reveal_leaderboard.accounts.people import Actor, Membership, Team, Token, User
from reveal_leaderboard.store.queue import Waiting
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.web.pages.drawing import action, badge, facts, link, message, plural, table, text, when
from reveal_leaderboard.web.pages.progress_view import duration

__all__ = [
    "account_view", "confirm_view", "secret_view", "submissions_view", "team_view", "tokens_view", "waiting_view",
]  # fmt: skip

WAITING = ("received", "linted", "queued", "reading")


def account_view(actor: Actor, closed: Sequence[tuple[Team, str]] = (), *, is_local: bool) -> str:
    """Who is signed in, with the id by which a team's owner adds the person.

    Parameters
    ----------
    closed : teams of the person that the maintainers closed or did not approve, and why
    """
    roles = ", ".join(_role(membership) for membership in actor.memberships) or "none yet"
    if is_local:
        return message(
            "info", f"Local mode: {actor.user.name}.", "Whoever reaches this machine’s address is admin here."
        )
    told = "".join(message("bad", _closed(team), f"Their reason: {why}" if why else "") for team, why in closed)
    return told + facts(
        {
            "Name": text(actor.user.name),
            "Your id": f"<code>{text(actor.user.id)}</code> (an owner of a team adds you by it)",
            "Teams": roles,
        }
    )


def _role(membership: Membership) -> str:
    waits = ", waits for approval" if membership.team.waiting_since is not None else ""
    return f"{text(membership.team.name)} ({membership.role}{waits})"


def _closed(team: Team) -> str:
    done = "closed" if team.waiting_since is None else "did not approve"
    return f"The maintainers {done} the team {team.name}."


def waiting_view(team: Team) -> str:
    """What a team that nobody has approved yet reads in place of its submissions."""
    since = f"<p>Asked on {when(team.waiting_since)}. {link('/submit', 'Checking files')} is free meanwhile.</p>"
    told = (
        "The maintainers look at new teams first. Nothing can be sent for scoring before; this page says when it can."
    )
    return message("info", f"{team.name} waits for approval.", told, markup=since)


def submissions_view(
    submissions: Sequence[Submission],
    *,
    waiting: Mapping[str, Waiting],
    reasons: Mapping[str, str],
    held: Collection[str] = (),
    may_change: bool,
) -> str:
    """The submissions of a team, newest first, with what can be done to each.

    Parameters
    ----------
    waiting : id -> place in the queue, of those that wait
    reasons : id -> why it ended without a score
    held : ids of those that show the figures of an earlier one
    may_change : whether the reader is an owner or a member
    """
    if not submissions:
        return message("info", "Nothing was sent yet.", markup=f"<p>{link('/submit', 'Send the first one')}</p>")
    ordered = sorted(submissions, key=lambda submission: submission.created_at, reverse=True)
    rows = "".join(
        _submission_row(one, waiting.get(one.id), reasons.get(one.id, ""), one.id in held, may_change=may_change)
        for one in ordered
    )
    head = ["Model", "Status", "Sent", "Benchmark", "What you can do"]
    return table(head, [f"<tbody>{rows}</tbody>"], label="Submissions", css_class="rv-mine")


def _submission_row(one: Submission, waiting: Waiting | None, why: str, is_held: bool, *, may_change: bool) -> str:
    name = link("/entry", one.model_name, id=one.id)
    actions = _actions(one, is_held=is_held) if may_change else ""
    return (
        f'<tr><th scope="row"><span class="rv-name">{name}</span><span class="rv-team">{text(one.filename)}</span></th>'
        f"<td>{_status(one, waiting, why, is_held=is_held)}</td><td>{when(one.created_at)}</td>"
        f"<td>{text(one.benchmark)} {text(one.version)}</td><td>{actions or '–'}</td></tr>"
    )


def _status(one: Submission, waiting: Waiting | None, why: str, *, is_held: bool) -> str:
    if one.hidden_at is not None:
        return f'{badge("hidden")}<span class="rv-hint">by the maintainers: {text(one.hidden_why or "")}</span>'
    if one.withdrawn_at is not None or one.status == "withdrawn":
        kept = "after scoring: charged" if one.status == "scored" else "in time: not charged"
        return f'{badge("withdrawn")}<span class="rv-hint">{kept}</span>'
    note = ""
    if waiting is not None and waiting.position is not None:
        note = f"position {waiting.position}"
        note += f", {duration(waiting.expected_seconds)}" if waiting.expected_seconds is not None else ""
    elif one.status == "reading":
        note = "its answers wait for readers"
    elif one.status in ("refused", "failed"):
        note = why + (f" Incident {one.incident}." if one.incident else "")
    elif one.status == "scored":
        note = "shown on the board" if one.is_chosen else "another one of this model is shown"
        note = "not better than an earlier one, whose figures it shows" if is_held else note
    hint = f'<span class="rv-hint">{text(note)}</span>' if note else ""
    return f"{badge(one.status)}{hint}"


def _actions(one: Submission, *, is_held: bool) -> str:
    if one.withdrawn_at is not None or one.hidden_at is not None:
        return ""
    buttons = []
    if one.status == "scored" and not one.is_chosen and not is_held:
        buttons.append(action("Show this one", "choose", one.id, describe=f"{one.model_name}, {one.filename}"))
    if one.status in (*WAITING, "scored"):
        buttons.append(action("Withdraw …", "withdraw", one.id, describe=f"{one.model_name}, {one.filename}"))
    return " ".join(buttons)


def confirm_view(one: Submission) -> str:
    """The question before a withdrawal."""
    charged = (
        "It leaves the board for good and stays charged: its score was seen. Its address will say that it is gone."
        if one.status == "scored"
        else "It is not scored and nothing is charged."
    )
    buttons = (
        action("Yes, withdraw it", "withdraw-now", one.id, tone="danger") + " " + action("Keep it", "keep", one.id)
    )
    return message("info", f"Withdraw {one.model_name}, sent as {one.filename}?", charged, markup=f"<p>{buttons}</p>")


def tokens_view(tokens: Sequence[Token], now: float, reasons: Mapping[str, str] | None = None) -> str:
    """API tokens, those that are over last; no secret is among what is known of them.

    Parameters
    ----------
    reasons : id -> why it was revoked, where somebody gave a reason
    """
    if not tokens:
        return message("info", "You have no token.", "One lets a program submit for you, such as reveal-bench submit.")
    rows = []
    for token in sorted(tokens, key=lambda t: (not _is_alive(t, now), -t.created_at)):
        state = "revoked" if token.revoked_at is not None else "valid" if _is_alive(token, now) else "expired"
        button = action("Revoke", "revoke", token.id, describe=token.name) if _is_alive(token, now) else "–"
        why = (reasons or {}).get(token.id, "")
        hint = f'<span class="rv-hint">{text(why)}</span>' if why else ""
        rows.append(
            f'<tr><th scope="row">{text(token.name)}</th><td>{text(token.team.name)}</td>'
            f"<td>{text(', '.join(token.scopes))}</td><td>{badge(state)}{hint}</td>"
            f"<td>{when(token.expires_at, date_only=True)}</td><td>{when(token.used_at)}</td><td>{button}</td></tr>"
        )
    head = ["Name", "Organization", "May", "State", "Until", "Last used", "What you can do"]
    return table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="API tokens", css_class="rv-tokens")


def _is_alive(token: Token, now: float) -> bool:
    return token.revoked_at is None and token.expires_at > now


def secret_view(token: Token, secret: str) -> str:
    """A new token's secret, the one time that it is shown."""
    box = f'<p><code class="rv-secret">{text(secret)}</code></p>'
    told = "Copy it now: it is shown this once and kept nowhere. Put it where your program reads secrets from."
    return message("good", f"Token {token.name} for {token.team.name}.", told, markup=box)


def team_view(membership: Membership, members: Sequence[tuple[User, str]], me: User) -> str:
    """The members of a team; an owner can take them out, everybody can leave."""
    rows = []
    for user, role in members:
        is_me = user.id == me.id
        button = ""
        if is_me:
            button = action("Leave", "remove", user.id, describe=membership.team.name)
        elif membership.role == "owner":
            button = action("Remove", "remove", user.id, describe=user.name)
        you = " (you)" if is_me else ""
        rows.append(
            f'<tr><th scope="row">{text(user.name)}{you}</th><td>{text(role)}</td><td><code>{text(user.id)}</code></td>'
            f"<td>{button or '–'}</td></tr>"
        )
    head = ["Member", "Role", "Id", "What you can do"]
    count = plural(len(members), "member")
    shown = table(head, [f"<tbody>{''.join(rows)}</tbody>"], label=f"Members of {membership.team.name}")
    return f'<p class="rv-note">{text(membership.team.name)}: {count}.</p>{shown}'


def team_choices(teams: Sequence[Team]) -> list[tuple[str, str]]:
    """Teams as the choices of a list: name and id."""
    return [(team.name, team.id) for team in teams]
