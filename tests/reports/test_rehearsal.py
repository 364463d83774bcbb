"""rehearsal: the folder holds exactly what would be sent, and counts it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.models.questions import AskSettings, Message, PromptImage
from reveal_bench.reports import rehearsal
from reveal_bench.reports.rehearsal import RehearsalCount, rehearse
from tests.reports.html_page import HtmlPage


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (12, 8), (value,) * 3).save(buffer, "PNG")
    return buffer.getvalue()


def question(image_id: str, finding: str = "Edema") -> Question:
    return Question(f"{image_id}|{finding}", "cell", (ViewedImage(image_id, "PA", (20, 30)),), finding)


QUESTIONS = [question("a"), question("a", "Lung <Lesion>"), question("b")]
EXAMPLE = PromptImage("shot", png(1))


def compose(asked: Question) -> Sequence[Message]:
    visible = PromptImage(asked.image.image_id, png(ord(asked.image.image_id)))
    return (
        Message("system", ("<script>alert(1)</script> & über",)),
        Message("user", ("An example:", EXAMPLE)),
        Message("assistant", ("D5",)),
        Message("user", (visible, f"Where is {asked.finding}?\nName a cell.")),
    )


def test_every_message_and_every_picture_is_there_as_it_would_be_sent(tmp_path: Path) -> None:
    out = tmp_path / "new" / "rehearsal"
    count = rehearse(out, iter(QUESTIONS), AskSettings(), compose)
    for number, asked in enumerate(QUESTIONS, start=1):
        document = json.loads((out / "questions" / f"{number:05d}" / "messages.json").read_text(encoding="utf-8"))
        assert document["question"] == asked.id
        back = tuple(
            Message(
                turn["role"],
                tuple(
                    part["text"]
                    if "text" in part
                    else PromptImage(part["image_id"], (out / part["picture"]).read_bytes())
                    for part in turn["parts"]
                ),
            )
            for turn in document["messages"]
        )
        assert back == compose(asked)
    # three different pictures; per question two are sent, in base64 4 bytes for every 3 begun
    parts = [part for asked in QUESTIONS for turn in compose(asked) for part in turn.parts]
    texts = sum(len(part.encode()) for part in parts if isinstance(part, str))
    files = [len(base64.b64encode(png(value))) for value in (1, ord("a"), 1, ord("a"), 1, ord("b"))]
    assert count == RehearsalCount(3, 12, 6, 3, texts + sum(files), 3)
    assert len(list((out / "pictures").iterdir())) == 3
    facts = json.loads((out / "rehearsal.json").read_text(encoding="utf-8"))
    assert AskSettings.from_document(facts["settings"]) == AskSettings()
    assert facts["count"]["bytes_sent"] == count.bytes_sent
    assert {path.name for path in out.iterdir()} == {"index.html", "rehearsal.json", "questions", "pictures"}
    assert [path.name for path in out.parent.iterdir()] == ["rehearsal"]  # nothing is left of the work


def test_the_page_needs_nothing_beside_it_and_takes_texts_as_texts(tmp_path: Path) -> None:
    rehearse(tmp_path / "out", QUESTIONS, AskSettings(), compose)
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    page = HtmlPage(text)
    assert len(page.all("article")) == 3
    assert len(page.all("img")) == 6
    assert page.all("script") == page.all("link") == []
    decoded = [base64.b64decode(source.removeprefix("data:image/png;base64,")) for source in page.sources]
    assert decoded == [png(value) for value in (1, ord("a"), 1, ord("a"), 1, ord("b"))]
    assert page.texts.count("<script>alert(1)</script> & über") == 3
    assert "Where is Lung <Lesion>?\nName a cell." in page.texts
    assert "On this page: all of them. Every question is in " in page.texts
    assert re.findall(r"url\(|https?://", text) == []
    assert any("12 x 8 pixels" in words for words in page.texts)


def test_the_same_questions_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        rehearse(tmp_path / name, QUESTIONS, AskSettings(), compose)
    files = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two")
    ]
    assert files[0] == files[1]
    assert len(files[0]) == 8


@pytest.mark.parametrize(
    ("name", "limit", "on_page"), [("PAGE_QUESTIONS", 2, 2), ("PAGE_BYTES", 3 * len(png(1)), 1), ("PAGE_BYTES", 1, 0)]
)
def test_the_page_ends_before_it_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int, on_page: int
) -> None:
    monkeypatch.setattr(rehearsal, name, limit)
    count = rehearse(tmp_path / "out", QUESTIONS, AskSettings(), compose)
    assert (count.questions, count.on_page) == (3, on_page)
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert f"On this page: the first {on_page} of 3." in text
    assert text.count("<article") == on_page
    assert len(list((tmp_path / "out" / "questions").iterdir())) == 3


def test_ten_questions_are_shown_and_the_others_folded(tmp_path: Path) -> None:
    rehearse(tmp_path / "out", [question(name) for name in "abcdefghijkl"], AskSettings(), compose)
    visible, _, folded = (tmp_path / "out" / "index.html").read_text(encoding="utf-8").partition("<details")
    assert (visible.count("<article"), folded.count("<article")) == (10, 2)
    assert "<summary>Questions 11 to 12</summary>" in folded


def test_an_empty_folder_is_free_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert rehearse(tmp_path / "empty", QUESTIONS[:1], AskSettings(), compose).questions == 1
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in ("empty", "file", "link"):
        with pytest.raises(ValueError, match=f"`out` must be a new or empty folder, got .*{taken}"):
            rehearse(tmp_path / taken, QUESTIONS, AskSettings(), compose)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_a_rehearsal_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(asked: Question) -> Sequence[Message]:
        if asked is QUESTIONS[2]:
            raise ValueError("no picture of b")
        return compose(asked)

    with pytest.raises(ValueError, match="no picture of b"):
        rehearse(tmp_path / "out", QUESTIONS, AskSettings(), fails)
    with pytest.raises(ValueError, match="`questions` must hold at least one question, got none"):
        rehearse(tmp_path / "out", [], AskSettings(), compose)
    assert list(tmp_path.iterdir()) == []
