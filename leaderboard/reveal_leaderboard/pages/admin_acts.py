"""What a maintainer can do on the admin page: each act by name, with the admin's right asked for at every call.

An act answers a message for the page. The right is checked by :meth:`reveal_leaderboard.pages.desk.Desk.admin` before
any of them runs, and again, where people are concerned, inside the transaction that writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import gradio as gr

from reveal_leaderboard import boards, quota
from reveal_leaderboard.pages.desk import Desk, NotAdminError
from reveal_leaderboard.pages.drawing import action, message, plural
from reveal_leaderboard.people import Actor, Team, Token, User
from reveal_leaderboard.store import Submission

__all__ = ["Acts"]

REFUSALS = (NotAdminError, PermissionError, LookupError, ValueError)

log = logging.getLogger(__name__)


class Acts:
    """The acts on `desk`; `do` runs one for whoever sent the event."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._by_name: dict[str, Callable[[Actor, str, str], str]] = {
            "refresh": self._refresh,
            "switch": self._ask_switch,
            "switch-now": self._switch,
            "clear-flag": self._clear_flag,
            "hide": self._ask_reason,
            "restore": self._ask_reason,
            "hide-now": self._hide,
            "restore-now": self._restore,
            "approve-team": self._approve_team,
            "refuse-team": self._ask_refusal,
            "refuse-now": self._refuse_team,
            "close-team": self._close_team,
            "open-team": self._open_team,
            "close-user": self._close_user,
            "open-user": self._open_user,
            "make-admin": lambda actor, subject, why: self._set_admin(actor, subject, is_admin=True),
            "revoke-token": self._ask_revocation,
            "revoke-now": self._revoke_token,
            "no-admin": lambda actor, subject, why: self._set_admin(actor, subject, is_admin=False),
        }

    def do(self, request: gr.Request, act: str, subject: str, why: str = "") -> str:
        """Run the act `act` on `subject`; whatever goes wrong is a message, and nothing is half done."""
        return self.told(request, lambda actor: self._by_name[act](actor, subject, why) if act in self._by_name else "")

    def told(self, request: gr.Request, do: Callable[[Actor], str]) -> str:
        """What `do` answers for an admin, or why it was not done."""
        try:
            return do(self.desk.admin(request))
        except REFUSALS as error:
            return message("bad", "Not done.", str(error.args[0]) if error.args else str(error))
        except Exception:
            log.exception("an act of the admin page failed")
            return message("bad", "Not done.", "The fault is in the server’s log.")

    def set_state(self, request: gr.Request, benchmark: str, state: str, why: str) -> str:
        """Open, pause or close a board."""

        def do(actor: Actor) -> str:
            if state != "open" and not why.strip():
                raise ValueError("say why: submitters are shown the reason")
            with self.desk.store.write() as connection:
                boards.set_state(connection, benchmark, state, who=actor.name, why=why.strip()[:500])
            return message("good", f"The board of {benchmark} is {state} now.")

        return self.told(request, do)

    def grant(self, request: gr.Request, team_id: str, benchmark: str, n: int, why: str) -> str:
        """Give a team more scored submissions."""

        def do(actor: Actor) -> str:
            team = self._team(team_id)
            if not why.strip():
                raise ValueError("say why: it stands in the team's ledger")
            version = self.desk.catalogue.current(benchmark).version
            with self.desk.store.write() as connection:
                quota.grant(connection, team.id, benchmark, version, n, who=actor.name, why=why.strip()[:500])
            return message("good", f"{team.name} has {plural(n, 'more scored submission')} on {benchmark} {version}.")

        return self.told(request, do)

    # Versions -------------------------------------------------------------------------------------------------------

    def _refresh(self, actor: Actor, subject: str, why: str) -> str:
        benchmark, _, version = subject.partition(":")
        with self.desk.store.write() as connection:
            n = boards.start_refresh(connection, benchmark, version, who=actor.name)
        return message("good", f"{plural(n, 'submission')} of {benchmark} will be scored against {version}.")

    def _ask_switch(self, actor: Actor, subject: str, why: str) -> str:
        benchmark, _, version = subject.partition(":")
        button = f"<p>{action('Yes, show it', 'switch-now', subject, tone='danger')} {action('Not yet', 'keep')}</p>"
        told = "The version before is frozen for good; its entries keep their figures under their permanent addresses."
        return message("info", f"Show version {version} of {benchmark} from now on?", told, markup=button)

    def _switch(self, actor: Actor, subject: str, why: str) -> str:
        benchmark, _, version = subject.partition(":")
        with self.desk.store.write() as connection:
            changes = boards.switch_version(connection, benchmark, version, who=actor.name)
        moved = sum(change.before != change.after for change in changes.changes)
        told = f"{plural(moved, 'rank')} changed, {plural(len(changes.dropped), 'submission')} dropped."
        return message("good", f"The board of {benchmark} shows {version} now.", told)

    # Submissions ----------------------------------------------------------------------------------------------------

    def _submission(self, submission_id: str) -> Submission:
        found = self.desk.store.get(submission_id)
        if found is None:
            raise LookupError(f"there is no submission {submission_id}")
        return found

    def _clear_flag(self, actor: Actor, subject: str, why: str) -> str:
        done = self.desk.store.clear_flag(subject, actor.name)
        return message("good", "The flag is cleared.") if done else message("info", "The flag was cleared before.")

    def _ask_reason(self, actor: Actor, subject: str, why: str) -> str:
        found = self._submission(subject)
        act, verb = ("restore-now", "Restore it") if found.hidden_at is not None else ("hide-now", "Hide it")
        button = f"<p>{action(verb, act, subject, tone='danger')} {action('Leave it', 'keep')}</p>"
        told = "Write the reason into the field above first; its team is shown it."
        return message("info", f"{verb}: {found.model_name}, {found.team}?", told, markup=button)

    def _hide(self, actor: Actor, subject: str, why: str) -> str:
        if not why.strip():
            raise ValueError("write the reason into the field first")
        found = self.desk.store.hide(subject, who=actor.name, why=why.strip())
        return message("good", f"{found.model_name} of {found.team} is off the board.")

    def _restore(self, actor: Actor, subject: str, why: str) -> str:
        if not why.strip():
            raise ValueError("write the reason into the field first")
        found = self.desk.store.restore(subject, who=actor.name, why=why.strip())
        return message("good", f"{found.model_name} of {found.team} is on the board again.")

    # People ---------------------------------------------------------------------------------------------------------

    def _team(self, team_id: str) -> Team:
        found = self.desk.accounts.team(team_id)
        if found is None:
            raise LookupError("there is no such team")
        return found

    def _user(self, user_id: str, actor: Actor) -> User:
        """Somebody else: nobody shuts the own door."""
        found = self.desk.accounts.user(user_id)
        if found is None:
            raise LookupError("there is no such person")
        if found.id == actor.user.id:
            raise ValueError("you cannot close your own account or change your own right; another admin can")
        return found

    def _approve_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        if not self.desk.accounts.approve_team(team, actor.name):
            return message("info", f"{team.name} was approved before.")
        return message("good", f"{team.name} is approved and may submit now.")

    def _ask_refusal(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        button = f"<p>{action('Refuse it', 'refuse-now', subject, tone='danger')} {action('Leave it', 'keep')}</p>"
        told = "Write the reason into the field above first; its members are shown it. The team is closed with it."
        return message("info", f"Refuse the team {team.name}?", told, markup=button)

    def _refuse_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        if not why.strip():
            raise ValueError("write the reason into the field first")
        if team.waiting_since is None:
            raise ValueError(f"{team.name} was approved before: close it if it must not submit")
        self.desk.accounts.disable_team(team, actor.name, why.strip())
        return message("good", f"{team.name} is refused and closed.")

    def _ask_revocation(self, actor: Actor, subject: str, why: str) -> str:
        token, owner = self._token(subject)
        button = f"<p>{action('Revoke it', 'revoke-now', subject, tone='danger')} {action('Leave it', 'keep')}</p>"
        told = "Write the reason into the field above first; its owner is shown it. No token comes back to life."
        return message("info", f"Revoke the token {token.name} of {owner}, for {token.team.name}?", told, markup=button)

    def _revoke_token(self, actor: Actor, subject: str, why: str) -> str:
        token, owner = self._token(subject)
        if not why.strip():
            raise ValueError("write the reason into the field first")
        self.desk.accounts.revoke_token(token.id, actor.name, why.strip())
        return message("good", f"The token {token.name} of {owner} is revoked.")

    def _token(self, token_id: str) -> tuple[Token, str]:
        found = next((one for one in self.desk.accounts.live_tokens() if one[0].id == token_id), None)
        if found is None:
            raise LookupError("there is no such token in use")
        return found

    def _close_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        self.desk.accounts.disable_team(team, actor.name, why)
        return message("good", f"{team.name} may not submit any more.")

    def _open_team(self, actor: Actor, subject: str, why: str) -> str:
        team = self._team(subject)
        self.desk.accounts.enable_team(team, actor.name, why)
        return message("good", f"{team.name} may submit again.")

    def _close_user(self, actor: Actor, subject: str, why: str) -> str:
        user = self._user(subject, actor)
        self.desk.accounts.disable_user(user, actor.name, why)
        return message("good", f"The account of {user.name} is closed and signed out.")

    def _open_user(self, actor: Actor, subject: str, why: str) -> str:
        user = self._user(subject, actor)
        self.desk.accounts.enable_user(user, actor.name, why)
        return message("good", f"The account of {user.name} is open.")

    def _set_admin(self, actor: Actor, subject: str, *, is_admin: bool) -> str:
        user = self._user(subject, actor)
        self.desk.accounts.set_admin(user, is_admin, actor.name)
        return message("good", f"{user.name} is {'an admin' if is_admin else 'no longer an admin'}.")
