"""A page as a browser parses it: its elements, and their texts."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "hr", "link"}


class HtmlPage(HTMLParser):
    """Elements and texts of a page; each element must be closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open[-1:] in (["td"], ["th"]) and data.strip():
            self.cells.append(data.strip())

    def all(self, name: str) -> list[dict[str, str | None]]:
        """Attributes of every element of a name."""
        return [attrs for tag, attrs in self.tags if tag == name]

    @property
    def sources(self) -> list[str]:
        """Addresses that the page refers to."""
        return [attrs[name] or "" for _, attrs in self.tags for name in ("src", "href") if name in attrs]
