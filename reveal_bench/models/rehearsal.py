"""A dry run: everything that a model would be sent, written to a folder and not sent.

Of the folder::

    index.html                   the first questions on one page that needs nothing beside it
    rehearsal.json               the settings and the counts
    questions/00001/messages.json  of every question, in the order in which they are asked
    pictures/<sha256>.png        every picture once, however often it is sent

What is written shows radiographs: it is bound by the same terms as the dataset.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from reveal_bench.kinds.questions import Question
from reveal_bench.models.questions import AskSettings, Message, Shown

__all__ = ["RehearsalCount", "rehearse"]

PAGE_QUESTIONS = 200
PAGE_BYTES = 32 << 20
"""Of the pictures on the page; whatever a browser can still show at ease."""
HASH_DIGITS = 32


@dataclass(frozen=True, slots=True)
class RehearsalCount:
    """How much would be sent.

    Attributes
    ----------
    questions, messages : asked, and turns of conversation in all
    pictures : sent, each time one is
    distinct_pictures : files in the folder
    bytes_sent : texts as UTF-8 and pictures as base64, each time one is sent, without what a protocol puts around them
    on_page : questions on the page
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
    """Write what would be sent for `questions` to the new folder `out`, whole or not at all.

    Parameters
    ----------
    out : must not exist, or be an empty folder
    questions : in the order in which they would be asked
    settings : that `compose` follows; written beside the questions
    compose : question -> its messages

    Raises
    ------
    ValueError
        If `out` is not free, or there is no question.
    """
    out = Path(out)
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise ValueError(f"`out` must not exist or be an empty folder, got {out}")
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
    """The folder while it is written."""

    folder: Path
    n_messages: int = 0
    n_pictures: int = 0
    bytes_sent: int = 0
    page_bytes: int = 0
    names: set[str] = field(default_factory=set)
    articles: list[str] = field(default_factory=list)

    def play(
        self, questions: Iterable[Question], settings: AskSettings, compose: Callable[[Question], Sequence[Message]]
    ) -> RehearsalCount:
        (self.folder / "pictures").mkdir(parents=True)
        n_questions = 0
        for n_questions, question in enumerate(questions, start=1):
            self._add(n_questions, question, compose(question))
        if not n_questions:
            raise ValueError("`questions` must hold at least one question, got none")
        count = RehearsalCount(
            n_questions, self.n_messages, self.n_pictures, len(self.names), self.bytes_sent, len(self.articles)
        )
        _write_json(self.folder / "rehearsal.json", {"settings": settings.document(), "count": asdict(count)})
        page = _page(self.articles, count, settings)
        (self.folder / "index.html").write_text(page, encoding="utf-8", newline="\n")
        return count

    def _add(self, number: int, question: Question, messages: Sequence[Message]) -> None:
        place = self.folder / "questions" / f"{number:05d}"
        place.mkdir(parents=True)
        turns = [{"role": turn.role, "parts": [self._part(part) for part in turn.parts]} for turn in messages]
        _write_json(place / "messages.json", {"question": question.id, "messages": turns})
        self.n_messages += len(messages)
        size = sum(len(part.png) for turn in messages for part in turn.parts if isinstance(part, Shown))
        fits = len(self.articles) < PAGE_QUESTIONS and self.page_bytes + size <= PAGE_BYTES
        if fits and len(self.articles) == number - 1:  # the first ones, without a gap
            self.page_bytes += size
            self.articles.append(_article(number, question, messages))

    def _part(self, part: str | Shown) -> dict[str, str]:
        """A part as JSON; its bytes are counted and its picture, if it is a new one, is written."""
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


def _article(number: int, question: Question, messages: Sequence[Message]) -> str:
    turns = "".join(_turn(turn) for turn in messages)
    title = question.id if question.finding is None else f"{question.image.image_id} · {question.finding}"
    return f'<article id="q{number}"><h2><span>{number}</span> {escape(title)}</h2>{turns}</article>'


def _turn(turn: Message) -> str:
    parts = "".join(_shown(part) if isinstance(part, Shown) else f"<p>{escape(part)}</p>" for part in turn.parts)
    return f'<section class="{turn.role}"><h3>{turn.role}</h3><div>{parts}</div></section>'


def _shown(part: Shown) -> str:
    source = f"data:image/png;base64,{base64.b64encode(part.png).decode()}"
    width, height = (int.from_bytes(part.png[at : at + 4], "big") for at in (16, 20))  # of PNG's first chunk
    caption = f"{escape(part.image_id)} · {width} x {height} pixels · {len(part.png):,} bytes"
    return (
        f'<figure><img src="{source}" alt="Picture of {escape(part.image_id)} as it would be sent" '
        f'width="{width}" height="{height}" loading="lazy"><figcaption>{caption}</figcaption></figure>'
    )


def _page(articles: Sequence[str], count: RehearsalCount, settings: AskSettings) -> str:
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in _facts(count))
    chosen = "; ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in settings.document().items() if value is not None
    )
    shown = "all of them" if count.on_page == count.questions else f"the first {count.on_page:,} of {count.questions:,}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>What would be sent</title><style>{STYLE}</style></head><body><main>"
        "<h1>What would be sent</h1><p>A rehearsal: nothing was sent to any model. The pictures are bound by the same "
        f"terms as the dataset.</p><dl>{facts}</dl><p>Settings: {escape(chosen)}.</p>"
        f"<p>On this page: {shown}. Every question is in <code>questions/</code>, every picture in "
        f"<code>pictures/</code>.</p>{''.join(articles)}</main></body></html>\n"
    )


def _facts(count: RehearsalCount) -> Iterator[tuple[str, str]]:
    yield "Questions", f"{count.questions:,}"
    yield "Messages", f"{count.messages:,}"
    yield "Pictures sent", f"{count.pictures:,}"
    yield "Different pictures", f"{count.distinct_pictures:,}"
    yield "To be sent", f"{count.bytes_sent / 1e6:,.1f} MB"


STYLE = """
:root{color-scheme:light dark;--ink:#1c2127;--soft:#5a646f;--line:#d5dade;--paper:#fff;--system:#f3f4f6;--said:#eaf3ee}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#a2abb4;--line:#3a4148;--paper:#15181b;
--system:#1e2226;--said:#1a2a22}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 4rem}h1{font-size:1.6rem;margin:0 0 .5rem}
dl{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;margin:1.25rem 0}dt{color:var(--soft);font-size:.875rem}
dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}
article{margin-top:2.5rem;border-top:1px solid var(--line);padding-top:1rem}
h2{font-size:1.1rem;margin:0 0 .75rem;overflow-wrap:anywhere}
h2 span{color:var(--soft);font-weight:400;margin-right:.5rem}
section{display:grid;grid-template-columns:6rem minmax(0,1fr);gap:1rem;padding:.75rem 1rem;border:1px solid var(--line);
border-bottom-width:0}section:last-child{border-bottom-width:1px}
section.system{background:var(--system)}section.assistant{background:var(--said)}
h3{margin:0;font-size:.875rem;font-weight:400;color:var(--soft)}section p{margin:0 0 .75rem;white-space:pre-wrap;
overflow-wrap:anywhere}section div>:last-child{margin-bottom:0}
figure{margin:0 0 .75rem}img{display:block;max-width:100%;height:auto}
figcaption{color:var(--soft);font-size:.8125rem;margin-top:.25rem;overflow-wrap:anywhere}
@media(max-width:36rem){section{grid-template-columns:minmax(0,1fr);gap:.25rem}}
""".replace("\n", "")
