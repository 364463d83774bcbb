"""Dry run: write everything that a model would receive to a folder instead of sending it.

The folder::

    index.html                   the first questions on one self-contained page
    rehearsal.json               the settings and the counts
    questions/00001/messages.json  every question, in order
    pictures/<sha256>.png        every image once, even if it is sent several times

The folder contains radiographs, so the dataset's terms apply to it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.questions import Question
from reveal_bench.models.questions import AskSettings, Message, PromptImage
from reveal_bench.reports.page import render
from reveal_bench.reports.style import check_extra

PAGE_QUESTIONS = 200
PAGE_BYTES = 32 << 20
"""Maximum total bytes of the images on the page, so that browsers open it quickly."""
HASH_DIGITS = 32


@dataclass(frozen=True, slots=True)
class RehearsalCount:
    """Counts of what would be sent.

    Attributes
    ----------
    questions, messages : numbers of questions and of conversation turns, in total
    pictures : number of images sent, repeats included
    distinct_pictures : number of image files in the folder
    bytes_sent : bytes of UTF-8 texts and base64 images, repeats included, without protocol overhead
    on_page : number of questions on the page
    """

    questions: int = 0
    messages: int = 0
    pictures: int = 0
    distinct_pictures: int = 0
    bytes_sent: int = 0
    on_page: int = 0


def rehearse(
    out: Path,
    questions: Iterable[Question],
    settings: AskSettings,
    compose: Callable[[Question], Sequence[Message]],
) -> RehearsalCount:
    """Write the messages for `questions` to the new folder `out`; on failure, write nothing.

    Parameters
    ----------
    out : new or empty folder
    questions : the questions in order
    settings : settings that `compose` uses, written beside the questions
    compose : question -> messages to the model

    Raises
    ------
    ValueError
        If `out` is a file or a folder with contents, or `questions` is empty.
    ImportError
        Without the extra [run] or [report].
    """
    check_extra("jinja2")
    out = Path(out)
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise ArgumentError("out", "must be a new or empty folder", out)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        count = _Stage(scratch).play(questions, settings, compose)
        if out.exists():
            out.rmdir()
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return count


@dataclass
class _Stage:
    """The unfinished output folder and its counts."""

    folder: Path
    n_messages: int = 0
    n_pictures: int = 0
    bytes_sent: int = 0
    page_bytes: int = 0
    names: set[str] = field(default_factory=set)
    on_page: list[Any] = field(default_factory=list)

    def play(
        self, questions: Iterable[Question], settings: AskSettings, compose: Callable[[Question], Sequence[Message]]
    ) -> RehearsalCount:
        (self.folder / "pictures").mkdir(parents=True)
        n_questions = 0
        for n_questions, question in enumerate(questions, start=1):
            self._add(n_questions, question, compose(question))
        if not n_questions:
            raise ArgumentError("questions", "must hold at least one question", "none")
        count = RehearsalCount(
            n_questions, self.n_messages, self.n_pictures, len(self.names), self.bytes_sent, len(self.on_page)
        )
        _write_json(self.folder / "rehearsal.json", {"settings": settings.document(), "count": asdict(count)})
        page = _page(self.on_page, count, settings)
        (self.folder / "index.html").write_text(page, encoding="utf-8", newline="\n")
        return count

    def _add(self, number: int, question: Question, messages: Sequence[Message]) -> None:
        place = self.folder / "questions" / f"{number:05d}"
        place.mkdir(parents=True)
        turns = [{"role": turn.role, "parts": [self._part(part) for part in turn.parts]} for turn in messages]
        _write_json(place / "messages.json", {"question": question.id, "messages": turns})
        self.n_messages += len(messages)
        size = sum(len(part.png) for turn in messages for part in turn.parts if isinstance(part, PromptImage))
        fits = len(self.on_page) < PAGE_QUESTIONS and self.page_bytes + size <= PAGE_BYTES
        if fits and len(self.on_page) == number - 1:  # only the first questions, without a gap
            self.page_bytes += size
            self.on_page.append(_on_page(number, question, messages))

    def _part(self, part: str | PromptImage) -> dict[str, str]:
        """Return a message part as JSON; count its bytes, and write its image unless already written."""
        if isinstance(part, str):
            self.bytes_sent += len(part.encode())
            return {"text": part}
        name = f"{hashlib.sha256(part.png).hexdigest()[:HASH_DIGITS]}.png"
        if name not in self.names:
            self.names.add(name)
            (self.folder / "pictures" / name).write_bytes(part.png)
        self.n_pictures += 1
        self.bytes_sent += 4 * -(-len(part.png) // 3)
        return {"picture": f"pictures/{name}", "image_id": part.image_id}


def _write_json(path: Path, document: Any) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


@dataclass(frozen=True, slots=True)
class _Picture:
    """An image on the page."""

    base64: str
    image_id: str
    width: int
    height: int
    n_bytes: int

    @classmethod
    def of(cls, part: PromptImage) -> _Picture:
        width, height = (
            int.from_bytes(part.png[at : at + 4], "big") for at in (16, 20)
        )  # from the header (IHDR) chunk
        return cls(base64.b64encode(part.png).decode(), part.image_id, width, height, len(part.png))


def _on_page(number: int, question: Question, messages: Sequence[Message]) -> tuple[int, str, list[dict[str, Any]]]:
    """Return (number, title, turns) of a question, for the template."""
    title = question.id if question.finding is None else f"{question.image.image_id} · {question.finding}"
    turns = [
        {
            "role": turn.role,
            "parts": [_Picture.of(part) if isinstance(part, PromptImage) else part for part in turn.parts],
        }
        for turn in messages
    ]
    return number, title, turns


def _page(questions: Sequence[Any], count: RehearsalCount, settings: AskSettings) -> str:
    settings_text = "; ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in settings.document().items() if value is not None
    )
    extent = (
        "all of them" if count.on_page == count.questions else f"the first {count.on_page:,} of {count.questions:,}"
    )
    return render(
        "rehearsal.html", questions=questions, facts=list(_facts(count)), settings=settings_text, shown=extent
    )


def _facts(count: RehearsalCount) -> Iterator[tuple[str, str]]:
    yield "Questions", f"{count.questions:,}"
    yield "Messages", f"{count.messages:,}"
    yield "Images sent", f"{count.pictures:,}"
    yield "Different images", f"{count.distinct_pictures:,}"
    yield "Size", f"{count.bytes_sent / 1e6:,.1f} MB"
