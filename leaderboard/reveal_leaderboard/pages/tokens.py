"""API tokens on the page of one's own: issue one, see those there are, revoke.

A secret is the answer of the event that made it and stands nowhere else: not in a state, not in the list.
"""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr

from reveal_leaderboard.credentials import TOKEN_DAYS, TokenError
from reveal_leaderboard.database import moment
from reveal_leaderboard.pages.desk import Desk
from reveal_leaderboard.pages.drawing import ACTIONS, message, part
from reveal_leaderboard.pages.mine_view import secret_view, tokens_view
from reveal_leaderboard.people import SCOPES, Actor, Team

__all__ = ["build_tokens"]

NOTE = "A token lets a program act for you and one organization, as far as its scopes say, until it ends."

log = logging.getLogger(__name__)


def build_tokens(desk: Desk, page: gr.Blocks, team: gr.Dropdown) -> None:
    """Lay out this part; `team` is the page's choice of organization."""
    wire = _Handlers(desk)
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    gr.HTML(part("API tokens", note=NOTE))
    answer = gr.HTML("", elem_id="token-answer")
    listed = gr.HTML("", elem_id="tokens", js_on_load=ACTIONS)
    with gr.Accordion("Issue a token", open=False):
        with gr.Row():
            name = gr.Textbox(label="What it is for", placeholder="cluster nightly run", max_length=64, min_width=180)
            days = gr.Number(TOKEN_DAYS, label="Days", precision=0, minimum=1, maximum=366, min_width=90)
            scopes = gr.CheckboxGroup(list(SCOPES), value=["read", "submit"], label="May", min_width=180)
        issue = gr.Button("Issue the token")
    page.load(wire.show, None, listed, **private)
    issue.click(wire.issue, [team, name, days, scopes], [answer, listed], **private)
    listed.click(wire.revoke, None, [answer, listed], **private)


class _Handlers:
    """What happens on the events of this part."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def show(self, request: gr.Request) -> str:
        """The tokens of who is there."""
        return self._listed(self.desk.actor(request))

    def issue(
        self, request: gr.Request, team_id: str | None, name: str | None, days: float | None, scopes: list[str]
    ) -> tuple[str, str]:
        """A new token, its secret shown this once. Only somebody signed in may make one: a token makes no token."""
        actor = self.desk.actor(request)
        if actor is None or actor.via == "token":
            return message("bad", "No token was made.", "You are not signed in."), self._listed(actor)
        team = _team(actor, team_id)
        if team is None:
            return message("bad", "No token was made.", "Choose one of your organizations above."), self._listed(actor)
        try:
            token, secret = self.desk.accounts.issue_token(
                actor.user, team, name=name or "", scopes=[str(scope) for scope in scopes], days=int(days or 0)
            )
        except TokenError as error:
            return message("bad", "No token was made.", str(error)), self._listed(actor)
        return secret_view(token, secret), self._listed(actor)

    def revoke(self, request: gr.Request, event: gr.EventData) -> tuple[str, str]:
        """End a token; whose it is, is checked where it is written."""
        actor = self.desk.actor(request)
        data = event._data if isinstance(event._data, dict) else {}
        if actor is None or data.get("act") != "revoke":
            return "", self._listed(actor)
        done = self.desk.accounts.revoke_token(str(data.get("id", ""))[:64], who=actor.name)
        told = message("good", "The token is revoked.") if done else message("info", "There is no such valid token.")
        return told, self._listed(actor)

    def _listed(self, actor: Actor | None) -> str:
        if actor is None:
            return ""
        with self.desk.store.read() as connection:
            at = moment(connection)
        return tokens_view(self.desk.accounts.tokens_of(actor.user), at, self.desk.accounts.why_revoked(actor.user))


def _team(actor: Actor, team_id: str | None) -> Team | None:
    return next((m.team for m in actor.memberships if m.team.id == team_id), None)
