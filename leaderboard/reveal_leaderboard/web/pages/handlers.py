"""Handlers of page events: one class per page, derived from :class:`Handlers`.

A page is a `build` function, which lays it out, and its handlers, which answer its events. The browser is never
trusted: every handler looks up the sender anew, and applies the rules to that person.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from reveal_leaderboard.web.pages.drawing import message
from reveal_leaderboard.web.services import Services

OUR_ERROR = "The error is on our side and is in the server’s log."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Click:
    """A click on one of a page's own buttons, which `ACTIONS` in :mod:`.drawing` sends.

    Attributes
    ----------
    act : name of the action
    subject : id of the thing that it applies to
    why : reason written beside the button
    """

    act: str
    subject: str
    why: str

    @classmethod
    def of(cls, event: gr.EventData) -> Click:
        """Return the click that an event describes; missing fields become empty texts, and long fields are cut."""
        data = event._data if isinstance(event._data, dict) else {}
        act, subject, why = (str(data.get(name, ""))[:n] for name, n in (("act", 50), ("id", 200), ("why", 500)))
        return cls(act, subject, why)


class Handlers:
    """Handlers of the events of a page or of a part of a page."""

    def __init__(self, services: Services) -> None:
        self.services = services


def attempt(do: Callable[[], str], refusals: tuple[type[Exception], ...]) -> str:
    """Return the message that `do` returns; if it raises an exception, return a message with the reason."""
    try:
        return do()
    except refusals as error:
        return message("bad", "Not done.", str(error.args[0]) if error.args else str(error))
    except Exception:
        log.exception("an action of a page failed")
        return message("bad", "Not done.", OUR_ERROR)


def unavailable(name: str) -> str:
    """Return the message shown when `name`, such as "The board", cannot be read."""
    return message("bad", f"{name} cannot be read now.", "Reload the page in a moment.")
