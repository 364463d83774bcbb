"""The page Admin: health, boards, versions, queue, incidents, exposure, flags, submissions and people.

Only admins receive any part of the page. The page shows no exact scores and no texts of exceptions, because the web
process does not have them. :class:`Acts` has the actions of a maintainer by name; each returns a message.
:meth:`reveal_leaderboard.web.services.Services.admin` checks the right before an action; if the action concerns people,
the right is checked again inside the transaction that makes the change. :class:`Panels` reads the rows of each panel,
the functions below it select and order them, and ``admin.html`` has the markup.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gradio as gr
import sqlalchemy as sa

from reveal_bench.words import count_text
from reveal_leaderboard.accounts.people import Actor, Team, Token, User
from reveal_leaderboard.boards import refresh
from reveal_leaderboard.release.exposure import Exposure, exposure
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.database import moment
from reveal_leaderboard.store.queue import ALIVE_SECONDS, Job, WorkerRow
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.store.tables import BOARD_STATES, jobs
from reveal_leaderboard.web.pages.drawing import (
    ACTIONS,
    PRIVATE,
    QUIET,
    SHOW_ANSWER,
    draw,
    message,
    part,
    percent,
)  # fmt: skip
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.handlers import OUR_ERROR, Click, Handlers, attempt
from reveal_leaderboard.web.pages.header import build_header
from reveal_leaderboard.web.pages.health import health_view, read_health
from reveal_leaderboard.web.services import NotAdminError, Services

PAGE = "admin.html"
ROWS_SHOWN = 200
REFUSALS = (NotAdminError, PermissionError, LookupError, ValueError)


class Acts(Handlers):
    """Actions of a maintainer; `do` runs an action for the sender of an event."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._by_name: dict[str, Callable[[Actor, str, str], str]] = {
            "refresh": self._refresh,
            "switch": self._ask_switch,
            "switch-now": self._switch,
            "clear-flag": self._clear_flag,
            "hide-now": self._hide,
            "restore-now": self._restore,
            "approve-team": self._approve_team,
            "refuse-now": self._refuse_team,
            "close-team": self._close_team,
            "open-team": self._open_team,
            "close-user": self._close_user,
            "open-user": self._open_user,
            "make-admin": lambda actor, subject, why: self._set_admin(actor, subject, is_admin=True),
            "revoke-now": self._revoke_token,
            "no-admin": lambda actor, subject, why: self._set_admin(actor, subject, is_admin=False),
        }

    def do(self, request: gr.Request, click: Click) -> str:
        """Run an action and return its message; an error becomes a message, and the action has no effect."""
        act = self._by_name.get(click.act)
        return "" if act is None else self._attempt(request, lambda actor: act(actor, click.subject, click.why))

    def _attempt(self, request: gr.Request, do: Callable[[Actor], str]) -> str:
        """Return the message of `do` if the sender is an admin, or the reason why nothing was done."""
        return attempt(lambda: do(self.services.admin(request)), REFUSALS)

    def set_state(self, request: gr.Request, benchmark: str, state: str, why: str) -> str:
        """Open, pause or close a board."""

        def do(actor: Actor) -> str:
            if state != "open" and not why.strip():
                raise ValueError("a reason is required; submitters see it")
            with self.services.store.write() as connection:
                boards.set_state(connection, benchmark, state, who=actor.name, why=why.strip()[:500])
            return message("good", f"The board of {benchmark} is now {state}.")

        return self._attempt(request, do)

    def grant(self, request: gr.Request, team_id: str, benchmark: str, n: int, why: str) -> str:
        """Give a team more scored submissions."""

        def do(actor: Actor) -> str:
            team = self._team(team_id)
            if not why.strip():
                raise ValueError("a reason is required; the team's ledger shows it")
            version = self.services.catalogue.current(benchmark).version
            with self.services.store.write() as connection:
                quota.grant(connection, team.id, benchmark, version, n, who=actor.name, why=why.strip()[:500])
            return message(
                "good", f"{team.name} has {count_text(n, 'more scored submission')} on {benchmark} {version}."
            )

        return self._attempt(request, do)

    # Versions -------------------------------------------------------------------------------------------------------

    def _refresh(self, actor: Actor, subject: str, why: str) -> str:
        benchmark, _, version = subject.partition(":")
        with self.services.store.write() as connection:
            n = refresh.start_refresh(connection, benchmark, version, who=actor.name)
        return message("good", f"{count_text(n, 'submission')} to {benchmark} will be scored against {version}.")

    def _ask_switch(self, actor: Actor, subject: str, why: str) -> str:
        benchmark, _, version = subject.partition(":")
        effect = "The previous version is frozen permanently; its entries keep their scores and addresses."
        title = f"Show version {version} of {benchmark} from now on?"
        return draw(PAGE, "ask", title, effect, "Show version", "switch-now", subject, "Cancel")

    def _switch(self, actor: Actor, subject: str, why: str) -> str:
        benchmark, _, version = subject.partition(":")
        with self.services.store.write() as connection:
            changes = refresh.switch_version(connection, benchmark, version, who=actor.name)
        moved = sum(change.before != change.after for change in changes.changes)
        summary = f"{count_text(moved, 'rank')} changed, {count_text(len(changes.dropped), 'submission')} dropped."
        return message("good", f"The board of {benchmark} now shows {version}.", summary)

    # Submissions ----------------------------------------------------------------------------------------------------

    def _clear_flag(self, actor: Actor, subject: str, why: str) -> str:
        done = self.services.store.clear_flag(subject, actor.name)
        return message("good", "Flag cleared.") if done else message("info", "The flag has already been cleared.")

    def _hide(self, actor: Actor, subject: str, why: str) -> str:
        submission = self.services.store.hide(subject, who=actor.name, why=_reason(why))
        return message("good", f"{submission.model_name} of {submission.team} is hidden from the board.")

    def _restore(self, actor: Actor, subject: str, why: str) -> str:
        submission = self.services.store.restore(subject, who=actor.name, why=_reason(why))
        return message("good", f"{submission.model_name} of {submission.team} is on the board again.")

    # People ---------------------------------------------------------------------------------------------------------

    def _team(self, team_id: str) -> Team:
        team = self.services.accounts.team(team_id)
        if team is None:
            raise LookupError("unknown team")
        return team

    def _user(self, user_id: str, actor: Actor) -> User:
        """Return the person with this id, who must not be the acting admin: admins must not lock themselves out."""
        user = self.services.accounts.user(user_id)
        if user is None:
            raise LookupError("unknown person")
        if user.id == actor.user.id:
            raise ValueError("you cannot close your own account or change your own rights; another admin can")
        return user

    def _approve_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        if not self.services.accounts.approve_team(team, actor.name):
            return message("info", f"{team.name} has already been approved.")
        return message("good", f"{team.name} is approved and may now submit.")

    def _refuse_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        reason = _reason(why)
        if team.waiting_since is None:
            raise ValueError(f"{team.name} has already been approved. Close the team if it must not submit")
        self.services.accounts.disable(team, actor.name, reason)
        return message("good", f"{team.name} is refused and closed.")

    def _revoke_token(self, actor: Actor, subject: str, why: str) -> str:
        token, owner = self._token(subject)
        self.services.accounts.revoke_token(token.id, actor.name, _reason(why))
        return message("good", f"The token {token.name} of {owner} is revoked.")

    def _token(self, token_id: str) -> tuple[Token, str]:
        pair = next((pair for pair in self.services.accounts.live_tokens() if pair[0].id == token_id), None)
        if pair is None:
            raise LookupError("the token is unknown, expired or revoked")
        return pair

    def _close_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        self.services.accounts.disable(team, actor.name, why)
        return message("good", f"{team.name} may no longer submit.")

    def _open_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        self.services.accounts.enable(team, actor.name, why)
        return message("good", f"{team.name} may submit again.")

    def _close_user(self, actor: Actor, subject: str, why: str) -> str:
        user = self._user(subject, actor)
        self.services.accounts.disable(user, actor.name, why)
        return message("good", f"The account of {user.name} is closed and signed out.")

    def _open_user(self, actor: Actor, subject: str, why: str) -> str:
        user = self._user(subject, actor)
        self.services.accounts.enable(user, actor.name, why)
        return message("good", f"The account of {user.name} is open again.")

    def _set_admin(self, actor: Actor, subject: str, *, is_admin: bool) -> str:
        user = self._user(subject, actor)
        self.services.accounts.set_admin(user, is_admin, actor.name)
        return message("good", f"{user.name} is {'an admin' if is_admin else 'no longer an admin'}.")


def _reason(why: str) -> str:
    if not why.strip():
        raise ValueError("a reason is required: enter it in the field")
    return why.strip()


PANELS = {
    "health": "Health",
    "boards": "Boards",
    "versions": "Versions",
    "exposure": "Exposure",
    "queue": "Queue",
    "workers": "Workers",
    "incidents": "Incidents",
    "flags": "Flags",
    "submissions": "All submissions",
    "waiting": "Teams awaiting approval",
    "teams": "Teams",
    "users": "People",
    "tokens": "API tokens in use",
}
LIVE = ("health", "versions", "queue", "workers", "incidents")
"""Panels that refresh automatically; the others refresh after an action."""

MAX_JOBS = 500


class Panels(Handlers):
    """Panels of the page; the caller must have checked that the viewer is an admin."""

    def draw_all(self, actor: Actor, search: str, names: Iterable[str] = PANELS) -> list[str]:
        """Return the panels with these names, in order; a panel that fails shows a message instead."""
        panels: dict[str, Callable[[], str]] = {
            "health": lambda: health_view(read_health(self.services)),
            "boards": self._boards,
            "versions": self._versions,
            "exposure": self._exposure,
            "queue": self._queue,
            "workers": self._workers,
            "incidents": self._incidents,
            "flags": self._flags,
            "submissions": lambda: submissions_view(self.services.store.list_submissions(), search),
            "waiting": self._waiting,
            "teams": lambda: teams_view(self.services.accounts.teams()),
            "users": lambda: draw(PAGE, "users", self.services.accounts.users(), actor.user),
            "tokens": lambda: draw(PAGE, "tokens", self.services.accounts.live_tokens(), ROWS_SHOWN),
        }
        return [part(PANELS[name]) + self._draw(name, panels[name]) for name in names]

    @staticmethod
    def _draw(name: str, make: Callable[[], str]) -> str:
        try:
            return make()
        except Exception:
            log.exception("the panel %s could not be drawn", name)
            return message("bad", "This panel cannot be read now.", OUR_ERROR)

    def _boards(self) -> str:
        with self.services.store.read() as connection:
            return draw(PAGE, "boards", boards.list_boards(connection))

    def _versions(self) -> str:
        with self.services.store.read() as connection:
            rows = [
                (version, refresh.progress(connection, name, version.version))
                for name in self.services.names
                for version in boards.list_versions(connection, name, shown_only=False)
            ]
        return draw(PAGE, "versions", rows)

    def _exposure(self) -> str:
        with self.services.store.read() as connection:
            return "".join(
                exposure_view(board.name, exposure(connection, board.name, board.version, self.services.settings))
                for board in map(self.services.catalogue.current, self.services.names)
            )

    def _queue(self) -> str:
        live = sa.select(jobs).where(jobs.c.status.in_(("queued", "leased"))).order_by(jobs.c.created_at)
        with self.services.store.read() as connection:
            rows = [Job(**row._mapping) for row in connection.execute(live.limit(MAX_JOBS))]
        return draw(PAGE, "queue", rows, ROWS_SHOWN)

    def _workers(self) -> str:
        with self.services.store.read() as connection:
            return workers_view(self.services.queue.workers(connection), moment(connection))

    def _incidents(self) -> str:
        """Return the numbers of the incidents and the times of their jobs."""
        query = sa.select(jobs.c.incident, jobs.c.ended_at).where(jobs.c.incident.is_not(None))
        with self.services.store.read() as connection:
            rows = connection.execute(query.order_by(jobs.c.ended_at.desc()).limit(MAX_JOBS)).all()
        return draw(PAGE, "incidents", [(str(row.incident), float(row.ended_at or 0)) for row in rows], ROWS_SHOWN)

    def notice(self) -> str:
        """Return the notice at the top of the page."""
        n = len(self._waiting_teams())
        if not n:
            return ""
        verb = "is" if n == 1 else "are"
        return message(
            "info", f"{count_text(n, 'team')} {verb} awaiting approval.", "Approve or refuse teams under People."
        )

    def _waiting_teams(self) -> list[Team]:
        teams = self.services.accounts.teams()
        return [team for team in teams if team.waiting_since is not None and team.disabled_at is None]

    def _waiting(self) -> str:
        waiting = [(team, self.services.accounts.members(team)) for team in self._waiting_teams()]
        is_asked = self.services.settings.accounts.new_teams == "asked"
        return waiting_view(waiting, is_asked=is_asked)

    def _flags(self) -> str:
        flags = self.services.store.flags()
        ids = {key for flag in flags for key in (flag.submission_id, flag.other_id) if key is not None}
        rows = [row for row in map(self.services.store.get, sorted(ids)) if row is not None]
        names = {row.id: f"{row.model_name}, {row.team}" for row in rows}
        return draw(PAGE, "flags", flags, names, ROWS_SHOWN)


POLL_SECONDS = 5.0
PEOPLE = ("waiting", "teams", "users", "tokens")
CLOSED = draw(PAGE, "closed")

log = logging.getLogger(__name__)


def build(services: Services, page: gr.Blocks) -> None:
    """Lay out the page inside the present Blocks."""
    build_header(services, page)
    gr.HTML(opening("/admin"))
    answer = gr.HTML(CLOSED, elem_id="answer", js_on_load=ACTIONS)
    with gr.Column(visible=False) as everything:
        panels: dict[str, gr.HTML] = {}
        with gr.Tabs():
            with gr.Tab("Health"):
                panels |= {name: gr.HTML("") for name in ("health", "queue", "workers", "incidents")}
            with gr.Tab("Boards"):
                panels["boards"] = gr.HTML("")
                with gr.Row():
                    benchmark = gr.Dropdown(services.names, value=services.names[0], label="Board", min_width=160)
                    state = gr.Dropdown(list(BOARD_STATES), value="paused", label="State", min_width=120)
                    why_state = gr.Textbox(label="Reason (visible to submitters)", max_length=500, min_width=200)
                    set_state = gr.Button("Set state", min_width=140)
                panels |= {name: gr.HTML("", js_on_load=ACTIONS) for name in ("versions", "exposure")}
            with gr.Tab("Submissions"):
                panels["flags"] = gr.HTML("", js_on_load=ACTIONS)
                search = gr.Textbox(label="Search model, team or id", max_length=100)
                panels["submissions"] = gr.HTML("", js_on_load=ACTIONS)
            with gr.Tab("People"):
                panels |= {name: gr.HTML("", js_on_load=ACTIONS) for name in PEOPLE}
                gr.HTML(part("Budgets", note="Number of scored submissions beyond the budget in the settings."))
                with gr.Row():
                    team = gr.Dropdown([], label="Team", min_width=160)
                    granted_board = gr.Dropdown(services.names, value=services.names[0], label="Board", min_width=160)
                    more = gr.Number(1, label="More submissions", precision=0, minimum=1, maximum=100, min_width=110)
                    why_grant = gr.Textbox(label="Reason (in the team’s ledger)", max_length=500, min_width=200)
                    grant = gr.Button("Grant submissions", min_width=120)
    handlers = AdminHandlers(services)
    outputs = [panels[name] for name in PANELS]
    answer.change(None, js=SHOW_ANSWER, **PRIVATE)
    timer = gr.Timer(POLL_SECONDS)
    page.load(handlers.open, None, [everything, answer, team, *outputs], **QUIET)
    timer.tick(handlers.live, None, [panels[name] for name in LIVE], **QUIET)
    search.input(handlers.refresh, search, outputs, **QUIET)
    for element in (answer, *(panels[name] for name in ("versions", "flags", "submissions", *PEOPLE))):
        element.click(handlers.act, search, [answer, *outputs], **QUIET)
    set_state.click(handlers.set_state, [benchmark, state, why_state, search], [answer, *outputs], **QUIET)
    grant.click(handlers.grant, [team, granted_board, more, why_grant, search], [answer, *outputs], **QUIET)


class AdminHandlers(Handlers):
    """Handlers of the page's events; each checks that the sender is an admin."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.acts, self.panels = Acts(services), Panels(services)

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Return all panels for an admin, nothing for anyone else."""
        try:
            actor = self.services.admin(request)
        except NotAdminError:
            return gr.update(visible=False), CLOSED, gr.update(choices=[]), *[""] * len(PANELS)
        teams = [(team.name, team.id) for team in self.services.accounts.teams()]
        notice = self.panels.notice()
        return gr.update(visible=True), notice, gr.update(choices=teams), *self.panels.draw_all(actor, "")

    def refresh(self, request: gr.Request, search: str | None) -> tuple[Any, ...]:
        """Return the current panels."""
        return tuple(self._panels(request, search))

    def live(self, request: gr.Request) -> tuple[str, ...]:
        """Return the panels that refresh automatically."""
        try:
            return tuple(self.panels.draw_all(self.services.admin(request), "", LIVE))
        except NotAdminError:
            return ("",) * len(LIVE)

    def act(self, request: gr.Request, event: gr.EventData, search: str | None) -> tuple[Any, ...]:
        """Answer a click on a button in a panel."""
        return self.acts.do(request, Click.of(event)), *self._panels(request, search)

    def set_state(
        self, request: gr.Request, benchmark: str, state: str, why: str | None, search: str | None
    ) -> tuple[Any, ...]:
        """Open, pause or close a board."""
        answer = self.acts.set_state(request, benchmark, state, why or "")
        return answer, *self._panels(request, search)

    def grant(
        self,
        request: gr.Request,
        team: str | None,
        benchmark: str,
        n: float | None,
        why: str | None,
        search: str | None,
    ) -> tuple[Any, ...]:
        """Give a team more scored submissions."""
        answer = self.acts.grant(request, team or "", benchmark, int(n or 0), why or "")
        return answer, *self._panels(request, search)

    def _panels(self, request: gr.Request, search: str | None) -> list[str]:
        try:
            actor = self.services.admin(request)
        except NotAdminError:
            return [""] * len(PANELS)
        return self.panels.draw_all(actor, (search or "")[:100])


RECENT_SECONDS = 24 * 3600.0
LEVELS = {"low": "low", "watch": "watch", "close": "close the board for a refresh"}


def workers_view(workers: Sequence[WorkerRow], now: float) -> str:
    """Return the workers seen in the last day, and whether they are alive."""
    alive = {worker.name for worker in workers if now - worker.seen_at < ALIVE_SECONDS}
    recent = [worker for worker in workers if now - worker.seen_at < RECENT_SECONDS]
    return draw(PAGE, "workers", recent, alive, ROWS_SHOWN, len(workers) - len(recent))


def submissions_view(submissions: Sequence[Submission], search: str = "") -> str:
    """Return the submissions of all teams, newest first; `search` matches model, team and id."""
    words = search.casefold().split()
    matching = [
        row for row in submissions if all(w in f"{row.model_name} {row.team} {row.id}".casefold() for w in words)
    ]
    if not matching:
        return message("info", "No submission matches." if submissions else "No submissions yet.")
    return draw(PAGE, "submissions", sorted(matching, key=lambda row: row.created_at, reverse=True), ROWS_SHOWN)


def waiting_view(waiting: Sequence[tuple[Team, Sequence[tuple[User, str]]]], *, is_asked: bool) -> str:
    """Return the teams awaiting approval with their members, the oldest request first.

    Parameters
    ----------
    is_asked : whether the settings require approval of new teams
    """
    if not waiting:
        policy = "New teams appear here." if is_asked else "The settings allow new teams to submit immediately."
        return message("good", "No team awaits approval.", policy)
    return draw(PAGE, "waiting", sorted(waiting, key=lambda pair: pair[0].waiting_since or 0.0))


def teams_view(teams: Sequence[Team]) -> str:
    """Return all teams except those awaiting approval."""
    rows = [team for team in teams if team.waiting_since is None or team.disabled_at is not None]
    return draw(PAGE, "teams", rows) if rows else message("info", "No teams yet.")


def exposure_view(benchmark: str, meter: Exposure) -> str:
    """Return an upper bound on how much the shown scores reveal about a holdout version, and the submissions per
    team.
    """
    known = f"{percent(meter.share)}%" if math.isfinite(meter.share) else "more than all"
    return draw(PAGE, "exposure", benchmark, LEVELS[meter.level], meter, known)
