"""For maintainers: boards and versions, the queue, incidents, exposure, flags, submissions, people.

Nothing of the page is sent to anybody who is no admin, and every act asks anew (:mod:`.admin_acts`). No exact figure
and no text of an exception can be had here: the web process has none.
"""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr

from reveal_leaderboard.pages.account_strip import build_strip
from reveal_leaderboard.pages.admin_acts import Acts
from reveal_leaderboard.pages.admin_panels import LIVE, PANELS, Panels
from reveal_leaderboard.pages.desk import Desk, NotAdminError
from reveal_leaderboard.pages.drawing import ACTIONS, SHOW_ANSWER, link, message, page_head, part
from reveal_leaderboard.tables import BOARD_STATES

__all__ = ["build"]

POLL_SECONDS = 5.0
PEOPLE = ("waiting", "teams", "users", "tokens")
CLOSED = message(
    "info", "This page is for the maintainers.", markup=f"<p>{link('/login', 'Sign in', next='/admin')} as one.</p>"
)

log = logging.getLogger(__name__)


def build(desk: Desk, page: gr.Blocks) -> None:
    """Lay out the page inside the present Blocks."""
    build_strip(desk, page)
    gr.HTML(page_head("Admin"))
    answer = gr.HTML(CLOSED, elem_id="answer", js_on_load=ACTIONS)
    with gr.Column(visible=False) as everything:
        reason = gr.Textbox(
            label="Reason",
            info="for pausing, hiding, restoring, refusing, closing, revoking and granting; those concerned see it",
            max_length=500,
        )
        panels: dict[str, gr.HTML] = {}
        with gr.Tabs():
            with gr.Tab("Boards"):
                panels["boards"] = gr.HTML("")
                with gr.Row():
                    benchmark = gr.Dropdown(desk.names, value=desk.names[0], label="Board", min_width=160)
                    state = gr.Dropdown(list(BOARD_STATES), value="paused", label="State", min_width=120)
                    set_state = gr.Button("Set the state", min_width=140)
                panels |= {name: gr.HTML("", js_on_load=ACTIONS) for name in ("versions", "exposure")}
            with gr.Tab("Queue"):
                panels |= {name: gr.HTML("") for name in ("queue", "workers", "incidents")}
            with gr.Tab("Submissions"):
                panels["flags"] = gr.HTML("", js_on_load=ACTIONS)
                search = gr.Textbox(label="Search model, team or id", max_length=100)
                panels["submissions"] = gr.HTML("", js_on_load=ACTIONS)
            with gr.Tab("People"):
                panels |= {name: gr.HTML("", js_on_load=ACTIONS) for name in PEOPLE}
                gr.HTML(part("Budgets", note="Scored submissions beyond those that the settings give to every team."))
                with gr.Row():
                    team = gr.Dropdown([], label="Team", min_width=160)
                    of = gr.Dropdown(desk.names, value=desk.names[0], label="On the board", min_width=160)
                    more = gr.Number(1, label="More submissions", precision=0, minimum=1, maximum=100, min_width=110)
                    grant = gr.Button("Grant them", min_width=120)
    wire = _Handlers(desk)
    shown = [panels[name] for name in PANELS]
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    answer.change(None, js=SHOW_ANSWER, api_visibility="private")
    timer = gr.Timer(POLL_SECONDS)
    page.load(wire.open, None, [everything, answer, team, *shown], **private)
    timer.tick(wire.live, None, [panels[name] for name in LIVE], **private)
    search.input(wire.refresh, search, shown, **private)
    for element in (answer, *(panels[name] for name in ("versions", "flags", "submissions", *PEOPLE))):
        element.click(wire.act, [reason, search], [answer, *shown], **private)
    set_state.click(wire.set_state, [benchmark, state, reason, search], [answer, *shown], **private)
    grant.click(wire.grant, [team, of, more, reason, search], [answer, *shown], **private)


class _Handlers:
    """What happens on the page's events; each asks anew whether an admin is there."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.acts, self.panels = desk, Acts(desk), Panels(desk)

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Everything for an admin, nothing for anybody else."""
        try:
            actor = self.desk.admin(request)
        except NotAdminError:
            return gr.update(visible=False), CLOSED, gr.update(choices=[]), *[""] * len(PANELS)
        teams = [(team.name, team.id) for team in self.desk.accounts.teams()]
        told = self.panels.notice()
        return gr.update(visible=True), told, gr.update(choices=teams), *self.panels.drawn(actor, "")

    def refresh(self, request: gr.Request, search: str | None) -> tuple[Any, ...]:
        """The panels as they are now."""
        return tuple(self._panels(request, search))

    def live(self, request: gr.Request) -> tuple[str, ...]:
        """The panels that change by themselves."""
        try:
            return tuple(self.panels.drawn(self.desk.admin(request), "", LIVE))
        except NotAdminError:
            return ("",) * len(LIVE)

    def act(self, request: gr.Request, event: gr.EventData, why: str | None, search: str | None) -> tuple[Any, ...]:
        """A click on one of the page's own buttons."""
        data = event._data if isinstance(event._data, dict) else {}
        told = self.acts.do(request, str(data.get("act", "")), str(data.get("id", ""))[:200], (why or "")[:500])
        return told, *self._panels(request, search)

    def set_state(
        self, request: gr.Request, benchmark: str, state: str, why: str | None, search: str | None
    ) -> tuple[Any, ...]:
        """Open, pause or close a board."""
        told = self.acts.set_state(request, benchmark, state, why or "")
        return told, *self._panels(request, search)

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
        told = self.acts.grant(request, team or "", benchmark, int(n or 0), why or "")
        return told, *self._panels(request, search)

    def _panels(self, request: gr.Request, search: str | None) -> list[str]:
        try:
            actor = self.desk.admin(request)
        except NotAdminError:
            return [""] * len(PANELS)
        return self.panels.drawn(actor, (search or "")[:100])
