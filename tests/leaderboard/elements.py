"""Elements and visible text of a fragment of a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

OURS = {"class", "role", "title", "href", "rel", "style", "datetime", "type", "scope", "tabindex", "lang", "id"}


class Elements(HTMLParser):
    """Collects the elements of a fragment, and every attribute that the pages do not use."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.strange: list[str] = []
        self.texts: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.strange += [name for name, _ in attrs if name not in OURS and not name.startswith(("data-", "aria-"))]

    def handle_data(self, data: str) -> None:
        self.texts += data.split()


def texts_in(markup: str, tag: str) -> list[str]:
    """The text of every element `tag`, none of which holds another of its kind."""
    return [text_of(piece.split(f"</{tag}>")[0]) for piece in re.split(rf"<{tag}\b[^>]*>", markup)[1:]]


def text_of(markup: str) -> str:
    """The words of a fragment, with a blank between elements."""
    return " ".join(Elements(markup).texts)
