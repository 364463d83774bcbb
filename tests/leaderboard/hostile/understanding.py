"""Checks of every answer to a bad file: short, printable, of a listed rule, without words from the machine."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from reveal_leaderboard.custody import Lint, ParseFailed
from reveal_leaderboard.web.pages.submit import lint_view

from reveal_bench.predictions import RULES

LONGEST = 500
SENTENCES = {str(ParseFailed(kind)) for kind in ("too_large", "timeout", "crashed")}
MACHINE = re.compile(
    r"Traceback|File \"|\.py\b|line \d+, in |\b(?:Key|Index|Type|Value|Attribute|Overflow|Memory|Recursion|OS)Error\b"
    r"|0x[0-9a-f]{9,}|/(?:tmp|proc|home|usr|var|work|root|arrow)/(?!self/environ)|site-packages"
)
"""Texts forbidden in messages; `/proc/self/environ` is in the corpus, which messages quote."""

TAGS = {
    "article", "b", "button", "code", "dd", "details", "div", "dl", "dt", "em", "figure", "footer", "h1", "h2", "h3",
    "header", "i", "li", "nav", "ol", "p", "section", "small", "span", "strong", "summary", "table", "tbody", "td",
    "tfoot", "th", "thead", "time", "tr", "ul", "a", "caption", "meter", "col", "colgroup", "abbr", "sup", "sub", "br",
    "svg", "circle", "line", "text", "title", "rect", "path", "g", "figcaption", "select", "option", "label",
}  # fmt: skip
"""Elements of the board's own pages; none of them runs, loads or sends anything."""


def check_sentence(sentence: str) -> None:
    """A message is for people, and can be shown."""
    assert 0 < len(sentence) <= LONGEST, sentence
    assert sentence.isprintable(), sentence
    assert not MACHINE.search(sentence), sentence


def check_report(report: Lint) -> None:
    """Check that every problem has a listed rule and a position, and can be displayed."""
    for problem in report.problems:
        assert problem.rule in RULES
        check_sentence(problem.message)
        assert not problem.hint or problem.hint.isprintable()
        assert not MACHINE.search(problem.hint)
        assert max(len(problem.field), len(problem.value), len(problem.hint)) <= LONGEST
        assert (problem.field + problem.value + problem.file).isprintable()
    assert report.ok or report.n_predictions == 0
    check_markup(lint_view(report))


class _Reader(HTMLParser):
    """Notes every element and attribute."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen_tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen_tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def check_markup(markup: str) -> None:
    """HTML holds our own elements only: nothing from the file has become one."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    assert reader.seen_tags <= TAGS, reader.seen_tags - TAGS
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "srcdoc", "action")}
