"""The page My submissions: a person's submissions, ledger, API tokens and teams.

Each handler checks that the team or submission whose id the browser sends belongs to the actor. A token's secret is
only in the answer to the event that created the token, never in a list or in Gradio's state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gradio as gr

from reveal_leaderboard.accounts import invitations
from reveal_leaderboard.accounts.accounts import TeamNameError
from reveal_leaderboard.accounts.credentials import MAX_TOKEN_DAYS, TOKEN_DAYS, TokenError
from reveal_leaderboard.accounts.invitations import INVITATION_DAYS
from reveal_leaderboard.accounts.people import ROLES, SCOPES, Actor, Membership, NotPermittedError, Team, Token
from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.store import quota
from reveal_leaderboard.store.boards import list_boards
from reveal_leaderboard.store.database import moment
from reveal_leaderboard.store.queue import QueuePosition
from reveal_leaderboard.store.store import NotAllowedError, Submission
from reveal_leaderboard.web.pages.drawing import (
    ACTIONS,
    PRIVATE,
    QUIET,
    SHOW_ANSWER,
    draw,
    message,
    note,
    part,
    sign_in,
)  # fmt: skip
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.handlers import Click, Handlers, attempt
from reveal_leaderboard.web.pages.header import build_header
from reveal_leaderboard.web.pages.submission_view import duration, ledger_view
from reveal_leaderboard.web.services import Services

NOTE = "With a token, a program can act for you and one of your teams, within the token’s scopes, until it expires."


def build_tokens(services: Services, page: gr.Blocks, team: gr.Dropdown) -> None:
    """Build the section on tokens; `team` is the page's selection of a team."""
    handlers = TokenHandlers(services)
    gr.HTML(part("API tokens", note=NOTE))
    answer = gr.HTML("", elem_id="token-answer")
    listed = gr.HTML("", elem_id="tokens", js_on_load=ACTIONS)
    with gr.Accordion("Create a token", open=False):
        with gr.Row():
            name = gr.Textbox(label="Purpose", placeholder="cluster nightly run", max_length=64, min_width=180)
            days = gr.Number(TOKEN_DAYS, label="Days", precision=0, minimum=1, maximum=MAX_TOKEN_DAYS, min_width=90)
            scopes = gr.CheckboxGroup(list(SCOPES), value=["read", "submit"], label="Scopes", min_width=180)
        issue = gr.Button("Create token")
    page.load(handlers.show, None, listed, **QUIET)
    issue.click(handlers.issue, [team, name, days, scopes], [answer, listed], **QUIET)
    listed.click(handlers.revoke, None, [answer, listed], **QUIET)


class TokenHandlers(Handlers):
    """Handlers of the events of the section on tokens."""

    def show(self, request: gr.Request) -> str:
        """Return the user's tokens."""
        return self._listed(self.services.actor(request))

    def issue(
        self, request: gr.Request, team_id: str | None, name: str | None, days: float | None, scopes: list[str]
    ) -> tuple[str, str]:
        """Create a token and show its secret, which is never shown again."""
        actor = self.services.actor(request)
        if actor is None:
            return message("bad", "No token was created.", "You are not signed in."), self._listed(actor)
        membership = _membership(actor, team_id)
        if membership is None:
            return message("bad", "No token was created.", "Choose one of your teams above."), self._listed(actor)
        try:
            token, secret = self.services.accounts.issue_token(
                actor.user,
                membership.team,
                name=name or "",
                scopes=[str(scope) for scope in scopes],
                days=int(days or 0),
            )
        except TokenError as error:
            return message("bad", "No token was created.", str(error)), self._listed(actor)
        return draw(PAGE, "secret", token, secret), self._listed(actor)

    def revoke(self, request: gr.Request, event: gr.EventData) -> tuple[str, str]:
        """Revoke a token; `Credentials.revoke_token` checks the token's owner."""
        actor = self.services.actor(request)
        click = Click.of(event)
        if actor is None or click.act != "revoke":
            return "", self._listed(actor)
        done = self.services.accounts.revoke_token(click.subject, who=actor.name)
        answer = message("good", "Token revoked.") if done else message("info", "The token was no longer valid.")
        return answer, self._listed(actor)

    def _listed(self, actor: Actor | None) -> str:
        if actor is None:
            return ""
        with self.services.store.read() as connection:
            at = moment(connection)
        return tokens_view(
            self.services.accounts.tokens_of(actor.user), at, self.services.accounts.why_revoked(actor.user)
        )


POLL_SECONDS = 5.0
REFUSALS = (NotAllowedError, NotPermittedError, TeamNameError, ValueError)
SIGN_IN = sign_in("/mine")
NO_TEAM = message(
    "info", "You are not in a team yet.", "Create a team below, or ask the owner of a team to invite you."
)


def build(services: Services, page: gr.Blocks) -> None:
    """Build the page inside the current `gr.Blocks`."""
    handlers = MineHandlers(services)
    build_header(services, page)
    gr.HTML(opening("/mine"))
    account = gr.HTML("", elem_id="account", js_on_load=ACTIONS)
    with gr.Row():
        team = gr.Dropdown([], label="Team", min_width=200)
        benchmark = gr.Dropdown(services.names, value=services.names[0], label="Benchmark (ledger)", min_width=200)
    answer = gr.HTML("", elem_id="answer", js_on_load=ACTIONS)
    gr.HTML(part("Submissions"))
    listed = gr.HTML("", elem_id="submissions", js_on_load=ACTIONS)
    gr.HTML(part("Ledger", note="Scored submissions reserved, charged and refunded, with reasons."))
    ledger = gr.HTML("", elem_id="ledger")
    gr.HTML(part("Team"))
    members = gr.HTML("", elem_id="members", js_on_load=ACTIONS)
    with gr.Accordion("Invite a member", open=False):
        with gr.Row():
            user_id = gr.Textbox(
                label="User id", info="shown on their page “My submissions”", max_length=64, min_width=200
            )
            role = gr.Dropdown(list(ROLES), value="member", label="Role", min_width=120)
        invite = gr.Button("Invite or change the role")
    with gr.Accordion("Create a team", open=False):
        name = gr.Textbox(label="Name", info="as shown on the board", max_length=64)
        make = gr.Button("Create team")
    build_tokens(services, page, team)
    outputs = [account, team, listed, ledger, members]
    answer.change(None, js=SHOW_ANSWER, **PRIVATE)
    timer = gr.Timer(POLL_SECONDS)
    page.load(handlers.open, None, outputs, **QUIET)
    gr.on([team.input, benchmark.input], handlers.show, [team, benchmark], [listed, ledger, members], **QUIET)
    timer.tick(handlers.refresh, [team, benchmark], [listed, ledger], **QUIET)
    with_answer = [answer, listed, ledger, members]
    for element in (listed, answer):
        element.click(handlers.act, [team, benchmark], with_answer, **PRIVATE)
    members.click(handlers.act, [team, benchmark], with_answer, **PRIVATE)
    account.click(handlers.answer, [team, benchmark], [answer, *outputs], **PRIVATE)
    invite.click(handlers.invite, [team, benchmark, user_id, role], with_answer, **PRIVATE)
    make.click(handlers.make_team, [name, benchmark], [answer, *outputs], **PRIVATE)


class MineHandlers(Handlers):
    """Handlers of the page's events."""

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Return the user's account and first team."""
        return self._page(self.services.actor(request), None, self.services.names[0])

    def show(self, request: gr.Request, team_id: str | None, benchmark: str) -> tuple[str, str, str]:
        """Return the page for another team, or with the ledger of another benchmark."""
        return self._lists(self.services.actor(request), team_id, benchmark)

    def refresh(self, request: gr.Request, team_id: str | None, benchmark: str) -> tuple[Any, Any]:
        """Return the submissions and the ledger, which refresh automatically."""
        actor = self.services.actor(request)
        if actor is None:
            return gr.skip(), gr.skip()
        return self._lists(actor, team_id, benchmark)[:2]

    def act(
        self, request: gr.Request, event: gr.EventData, team_id: str | None, benchmark: str
    ) -> tuple[str, str, str, str]:
        """Answer a click on a button in the page's lists."""
        click = Click.of(event)
        actor = self.services.actor(request)
        actions: dict[str, Callable[[Actor, str], str]] = {
            "withdraw": self._ask,
            "withdraw-now": self._withdraw,
            "choose": self._choose,
            "remove": lambda who, user_id: self._remove(who, team_id, user_id),
            "uninvite": lambda who, invitation_id: self._uninvite(who, team_id, invitation_id),
        }
        answer = self._attempt(
            actor, lambda who: actions[click.act](who, click.subject) if click.act in actions else ""
        )
        return answer, *self._lists(self.services.actor(request), team_id, benchmark)

    def answer(self, request: gr.Request, event: gr.EventData, team_id: str | None, benchmark: str) -> tuple[Any, ...]:
        """Accept or decline an invitation to the actor."""
        click = Click.of(event)

        def do(actor: Actor) -> str:
            if click.act not in ("accept", "decline"):
                return ""
            with self.services.store.write() as connection:
                team = getattr(invitations, click.act)(connection, click.subject, actor.user)
            done = "You have joined" if click.act == "accept" else "You declined to join"
            return message("good", f"{done} {team.name}.")

        answer = self._attempt(self.services.actor(request), do)
        return answer, *self._page(self.services.actor(request), team_id, benchmark)

    def invite(
        self, request: gr.Request, team_id: str | None, benchmark: str, user_id: str | None, role: str
    ) -> tuple[str, str, str, str]:
        """Invite a person to the team, or change a member's role; the called functions check the right."""

        def do(actor: Actor) -> str:
            membership = _membership(actor, team_id)
            user = self.services.accounts.user((user_id or "").strip())
            if membership is None or user is None:
                return message(
                    "bad", "Not invited.", "No user has this id. People find their id on their page “My submissions”."
                )
            team = membership.team
            if any(member.id == user.id for member, _ in self.services.accounts.members(team)):
                self.services.accounts.add_member(team, user, role, who=actor.name)
                return message("good", f"{user.name} is now {role} of {team.name}.")
            with self.services.store.write() as connection:
                invitations.invite(connection, team, user, role, who=actor.name)
            accepts = f"They can answer the invitation on their page “My submissions” for {INVITATION_DAYS} days."
            return message("good", f"{user.name} is invited to {team.name} as {role}.", accepts)

        answer = self._attempt(self.services.actor(request), do)
        return answer, *self._lists(self.services.actor(request), team_id, benchmark)

    def make_team(self, request: gr.Request, name: str | None, benchmark: str) -> tuple[Any, ...]:
        """Create a team with the actor as owner."""

        def do(actor: Actor) -> str:
            is_asked = self.services.settings.accounts.new_teams == "asked"
            team = self.services.accounts.create_team(name or "", owner=actor.user, who=actor.name, is_asked=is_asked)
            waits = "" if team.waiting_since is None else "The team may submit once the maintainers have approved it."
            return message("good", f"Team {team.name} created. You are its owner.", waits)

        answer = self._attempt(self.services.actor(request), do)
        return answer, *self._page(self.services.actor(request), None, benchmark)

    # Actions of the handlers ----------------------------------------------------------------------------------------

    def _attempt(self, actor: Actor | None, do: Callable[[Actor], str]) -> str:
        """Return the message that `do` returns, or the reason why the action was not done."""
        return SIGN_IN if actor is None else attempt(lambda: do(actor), REFUSALS)

    def _own(self, actor: Actor, submission_id: str) -> Submission:
        """Return a submission of a team for which the actor may submit."""
        submission = self.services.store.get(submission_id)
        if submission is None or actor.team(submission.team_id) is None:
            raise NotPermittedError("this submission is not yours")
        return submission

    def _ask(self, actor: Actor, submission_id: str) -> str:
        return draw(PAGE, "confirm", self._own(actor, submission_id))

    def _withdraw(self, actor: Actor, submission_id: str) -> str:
        submission = self.services.store.withdraw(self._own(actor, submission_id).id, who=actor.name)
        return message("good", f"{submission.model_name} was withdrawn.")

    def _choose(self, actor: Actor, submission_id: str) -> str:
        submission = self.services.store.choose(self._own(actor, submission_id).id, who=actor.name)
        return message("good", f"The board now shows this submission of {submission.model_name}.")

    def _remove(self, actor: Actor, team_id: str | None, user_id: str) -> str:
        team, user = _membership(actor, team_id), self.services.accounts.user(user_id)
        if team is None or user is None:
            raise NotPermittedError("you are not a member of this team")
        self.services.accounts.remove_member(team.team, user, who=actor.name)
        return message("good", f"{user.name} is no longer a member of {team.team.name}.")

    def _uninvite(self, actor: Actor, team_id: str | None, invitation_id: str) -> str:
        membership = _membership(actor, team_id)
        if membership is None:
            raise NotPermittedError("you are not a member of this team")
        with self.services.store.write() as connection:
            invitations.withdraw(connection, membership.team, invitation_id, who=actor.name)
        return message("good", "Invitation withdrawn.")

    # Contents of the page -------------------------------------------------------------------------------------------

    def _page(self, actor: Actor | None, team_id: str | None, benchmark: str) -> tuple[Any, ...]:
        memberships = () if actor is None else actor.memberships
        choices = [(m.team.name, m.team.id) for m in memberships]
        selected = team_id or (choices[0][1] if choices else None)
        account = SIGN_IN
        if actor is not None:
            closed = self.services.accounts.closed_teams_of(actor.user)
            with self.services.store.read() as connection:
                invited = invitations.of_user(connection, actor.user)
            account = draw(PAGE, "invited", invited) + account_view(actor, closed, is_local=actor.via == "local")
        return account, gr.update(choices=choices, value=selected), *self._lists(actor, selected, benchmark)

    def _lists(self, actor: Actor | None, team_id: str | None, benchmark: str) -> tuple[str, str, str]:
        """Return the submissions, ledger and members of one of the actor's teams."""
        if actor is None:
            return note("Sign in to see your submissions."), "", ""
        membership = _membership(actor, team_id)
        if membership is None:
            return NO_TEAM, "", ""
        members = self.services.accounts.members(membership.team)
        with self.services.store.read() as connection:
            invited = invitations.of_team(connection, membership.team)
        team = draw(PAGE, "team", membership, members, invited, actor.user)
        return self._submissions(actor, membership), self._ledger(membership, benchmark), team

    def _submissions(self, actor: Actor, membership: Membership) -> str:
        store, queue = self.services.store, self.services.queue
        if membership.team.waiting_since is not None:
            return draw(PAGE, "waiting", membership.team)
        submissions = store.of_team(membership.team.id)
        waiting = {row.id: queue.position(row.id) for row in submissions if row.status in ("queued", "scoring")}
        ended = [row for row in submissions if row.status in ("refused", "failed")]
        reasons = {row.id: events[-1].why for row in ended if (events := store.events_of(row.id))}
        scored = [row.id for row in submissions if row.status == "scored"]
        with store.read() as connection:
            closed = {board.benchmark for board in list_boards(connection) if board.state == "closed"}
        held = {key for key in scored if (score := store.score_of(key)) is not None and score.is_held}
        return submissions_view(
            submissions,
            waiting=waiting,
            reasons=reasons,
            held=held,
            closed=closed,
            may_change=actor.team(membership.team.id) is not None,
        )

    def _ledger(self, membership: Membership, benchmark: str) -> str:
        try:
            version = self.services.catalogue.current(benchmark).version
        except UnknownBenchmarkError as error:
            return message("bad", "This benchmark is not served.", str(error))
        with self.services.store.read() as connection:
            rows = quota.statement(connection, membership.team.id, benchmark, version)
            balance = quota.balance(connection, membership.team.id, benchmark, version, self.services.settings)
        return ledger_view(rows, balance)


def _membership(actor: Actor, team_id: str | None) -> Membership | None:
    return next((m for m in actor.memberships if m.team.id == team_id), None)


WAITING = ("received", "linted", "queued", "reading")
PAGE = "mine.html"


def account_view(actor: Actor, closed: Sequence[tuple[Team, str]] = (), *, is_local: bool) -> str:
    """Return the user's name, id (for invitations to teams) and teams.

    Parameters
    ----------
    closed : the user's teams that the maintainers closed or refused, with reasons
    """
    roles = ", ".join(_role(membership) for membership in actor.memberships) or "none yet"
    if is_local:
        return message("info", f"Local mode: {actor.user.name}.", "Anyone who can reach this address is an admin here.")
    notices = "".join(message("bad", _closed(team), f"Reason: {why}" if why else "") for team, why in closed)
    return notices + draw(PAGE, "account", actor.user.name, actor.user.id, roles)


def _role(membership: Membership) -> str:
    waits = ", awaiting approval" if membership.team.waiting_since is not None else ""
    return f"{membership.team.name} ({membership.role}{waits})"


def _closed(team: Team) -> str:
    done = "closed" if team.waiting_since is None else "did not approve"
    return f"The maintainers {done} the team {team.name}."


def submissions_view(
    submissions: Sequence[Submission],
    *,
    waiting: Mapping[str, QueuePosition],
    reasons: Mapping[str, str],
    held: Collection[str] = (),
    closed: Collection[str] = (),
    may_change: bool,
) -> str:
    """Return the submissions of a team with their actions, newest first.

    Parameters
    ----------
    waiting : id -> queue position, for queued submissions
    reasons : id -> reason why the submission ended without a score
    held : ids of submissions that show the scores of an earlier one
    closed : benchmarks whose board is closed
    may_change : whether the viewer's role is owner or member
    """
    if not submissions:
        return draw(PAGE, "none_sent")
    rows = []
    for row in sorted(submissions, key=lambda submission: submission.created_at, reverse=True):
        is_held = row.id in held
        is_active = may_change and row.withdrawn_at is None and row.hidden_at is None
        may_choose = is_active and row.status == "scored" and not row.is_chosen and not is_held
        may_choose = may_choose and row.benchmark not in closed
        may_withdraw = is_active and row.status in (*WAITING, "scored")
        state, note = _status(row, waiting.get(row.id), reasons.get(row.id, ""), is_held=is_held)
        rows.append((row, state, note, may_choose, may_withdraw))
    return draw(PAGE, "submissions", rows)


def _status(submission: Submission, waiting: QueuePosition | None, why: str, *, is_held: bool) -> tuple[str, str]:
    """Return the displayed status of a submission, and a note."""
    if submission.hidden_at is not None:
        return "hidden", f"by the maintainers: {submission.hidden_why or ''}"
    if submission.withdrawn_at is not None or submission.status == "withdrawn":
        return "withdrawn", "after scoring: charged" if submission.status == "scored" else "before scoring: not charged"
    note = ""
    if waiting is not None and waiting.position is not None:
        note = f"position {waiting.position}"
        note += f", {duration(waiting.expected_seconds)}" if waiting.expected_seconds is not None else ""
    elif submission.status == "reading":
        note = "waiting for readers to rate its answers"
    elif submission.status in ("refused", "failed"):
        note = why + (f" Incident {submission.incident}." if submission.incident else "")
    elif submission.status == "scored":
        note = "shown on the board" if submission.is_chosen else "the board shows another submission of this model"
        note = "scored, but its scores are not shown: they do not beat the team’s earlier best" if is_held else note
    return submission.status, note


def tokens_view(tokens: Sequence[Token], now: float, reasons: Mapping[str, str] | None = None) -> str:
    """Return the list of API tokens without secrets, expired and revoked tokens last.

    Parameters
    ----------
    reasons : id -> reason of the revocation, for tokens revoked with a reason
    """
    if not tokens:
        return message(
            "info", "You have no tokens.", "Create a token to let a program, such as reveal-bench submit, act for you."
        )
    rows = [(token, _state(token, now), (reasons or {}).get(token.id, "")) for token in tokens]
    return draw(PAGE, "tokens", sorted(rows, key=lambda row: (row[1] != "valid", -row[0].created_at)))


def _state(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.expires_at > now else "expired"
