"""Handlers of page events: one class per page, derived from :class:`Handlers`.

A page has a `build` function, which creates its components, and handlers, which answer its events. Data from the
browser are never trusted: every handler looks up the sender and checks the sender's rights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from reveal_leaderboard.web.pages.drawing import message
from reveal_leaderboard.web.services import Services

OUR_ERROR = "This is an error of the server, which has logged the details."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Click:
    """A click on a button in a page's HTML, sent by the script `ACTIONS` in :mod:`.drawing`.

    Attributes
    ----------
    act : name of the action
    subject : id of the object of the action, such as a submission
    why : reason entered next to the button
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
    """Base class of the handlers of a page's events."""

    def __init__(self, services: Services) -> None:
        self.services = services


def attempt(do: Callable[[], str], refusals: tuple[type[Exception], ...]) -> str:
    """Call `do` and return its message, or a message with the reason of an exception."""
    try:
        return do()
    except refusals as error:
        return message("bad", "Not done.", str(error.args[0]) if error.args else str(error))
    except Exception:
        log.exception("an action of a page failed")
        return message("bad", "Not done.", OUR_ERROR)
