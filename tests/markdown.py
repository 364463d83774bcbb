"""Markdown files of this repository: their blocks of code, the code in their text, and the commands in both."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.conftest import ROOT

SHELLS = ("sh", "console")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Return the block's place, for the names of tests and for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Logical lines of a shell block, without comments; in a transcript, only what follows a prompt."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console" and any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        bare = (re.sub(r"(^|\s)#(\s.*)?$", "", line).strip() for line in lines)
        return [line for line in bare if line]


@cache
def pages() -> list[Path]:
    """Return every Markdown file of the repository, also those that are new."""
    words = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in (ROOT / name for name in sorted(listed)) if path.exists()]


@cache
def _tokens(page: Path) -> list[Token]:
    text = page.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        front = text[: text.index("\n---\n", 3) + 5]
        text = "\n" * front.count("\n") + text[len(front) :]
    return MarkdownIt("commonmark").enable("table").parse(text)


@cache
def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of code of a page, of all languages if none is given."""
    fences = [token for token in _tokens(page) if token.type in ("fence", "code_block")]
    blocks = [Block(page, (token.map or [0])[0] + 1, token.info.strip(), token.content) for token in fences]
    return [block for block in blocks if not languages or block.language in languages]


def block_below(page: Path, heading: str, language: str) -> str:
    """Return the first block of a language below a heading."""
    return next(block.text for block in blocks(page, language) if block.line > _headings(page)[heading])


def _headings(page: Path) -> dict[str, int]:
    """Return the headings of a page with their lines."""
    pairs = pairwise(_tokens(page))
    return {text.content: (opening.map or [0])[0] for opening, text in pairs if opening.type == "heading_open"}


def _inline(page: Path) -> Iterator[Token]:
    for token in _tokens(page):
        yield from token.children or ()


@cache
def code_in_text(page: Path) -> list[str]:
    """Return the code in the sentences and tables of a page, each on one line."""
    return [" ".join(token.content.split()) for token in _inline(page) if token.type == "code_inline"]


@cache
def links(page: Path) -> list[str]:
    """Return the targets of the links and pictures of a page."""
    names = {"link_open": "href", "image": "src"}
    return [str(token.attrs[names[token.type]]) for token in _inline(page) if token.type in names]


@cache
def anchors(page: Path) -> set[str]:
    """Return the ends of links to the headings of a page, as GitHub and the site both make them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _headings(page)}


def words_of(command: str) -> list[list[str]]:
    """Return the words of every program that a line of a shell starts, without redirections and variables set for it.

    Raises
    ------
    ValueError
        If a quotation is not closed.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    programs: list[list[str]] = [[]]
    skip_next = False
    for word in lexer:
        if re.fullmatch(r"[|&;()]+", word):
            programs.append([])
        elif re.fullmatch(r"[<>&]+", word):
            skip_next = True
        elif skip_next:
            skip_next = False
        elif programs[-1] or not re.fullmatch(r"\w+=.*", word):
            programs[-1].append(word)
    return [words for words in programs if words]
