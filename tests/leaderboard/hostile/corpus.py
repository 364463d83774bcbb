"""The form of a bad file, and of the tables of bad files.

Conventions
-----------
Every file is made in code and the same each time. `rules` are the rules of all errors that its report must hold, no
more and no fewer; none for a file that is odd but sound, which must be accepted. Texts use placeholders for values
that depend on the board: IMAGE, FINDING (asked of that image), STUDY, ANOTHER (study) and LABELS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

HEIGHT, WIDTH = 48, 64
TOO_LARGE, BROKE_OFF = "too_large", "crashed"
"""Stand among the rules of a file that a child may also give up for want of memory, with one of the fixed sentences."""


@dataclass(frozen=True)
class Site:
    """Ids of the two boards that files are sent to."""

    image: str
    finding: str
    study: str
    another_study: str
    labels: tuple[str, ...]

    def fill(self, text: str) -> str:
        """`text` with the ids put in."""
        labels = json.dumps(dict.fromkeys(self.labels, 0.5))
        texts = {"IMAGE": self.image, "FINDING": self.finding, "STUDY": self.study, "ANOTHER": self.another_study}
        for name, value in texts.items():
            text = text.replace(name, value)
        return text.replace("LABELS", labels)


@dataclass(frozen=True)
class Bad:
    """A file to send, and the rules that its report must name.

    Attributes
    ----------
    name : of the file in the tests
    make : its bytes
    rules : of the errors in its report; empty if it must be accepted
    board : which of the two boards it is sent to
    filename : under which it is sent
    """

    name: str
    make: Callable[[Site], bytes]
    rules: frozenset[str]
    board: Literal["images", "studies"] = "images"
    filename: str = "predictions.jsonl"


def as_bytes(content: str | bytes, site: Site) -> bytes:
    """The bytes of a text with the ids put in; surrogates go as they are."""
    return content if isinstance(content, bytes) else site.fill(content).encode("utf-8", "surrogatepass")


def bad_texts(
    group: str, table: Mapping[str, tuple[str | bytes, str]], *, board: Literal["images", "studies"] = "images"
) -> Iterable[Bad]:
    """The files of a table {name: (content, rules with spaces between)}."""
    for name, (content, rules) in table.items():
        yield Bad(f"{group}: {name}", partial(as_bytes, content), frozenset(rules.split()), board)


def prediction(geometry: str) -> str:
    """The line of one prediction; `geometry` is JSON text."""
    return f'{{"image_id": "IMAGE", "finding": "FINDING", {geometry}}}\n'
