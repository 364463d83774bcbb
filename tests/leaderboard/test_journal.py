"""The log: JSON lines that report events, and repeat no text of a user."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.cli.process import log_to_stderr
from reveal_leaderboard.custody.confinement import CHILDREN_GAPS
from reveal_leaderboard.custody.fork_client import TemplateError
from reveal_leaderboard.custody.server import GAPS
from reveal_leaderboard.store.journal import Damped, JournalFormatter, set_up_journal

from tests.conftest import ROOT
from tests.syntax import tree_of

CANARY = "canary-7f3a"
SHA256 = "ab" * 32


@pytest.fixture
def journal() -> io.StringIO:
    """The journal of this process."""
    for name in ("uvicorn", "uvicorn.error"):  # servers of other tests in this process set their levels
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)
    stream = io.StringIO()
    set_up_journal(stream, known=["chexlocalize"])
    return stream


def lines(journal: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.getvalue().splitlines()]


log = logging.getLogger("reveal_leaderboard.web.submissions")


def test_a_line_is_json_with_ids_numbers_and_our_words(journal: io.StringIO) -> None:
    log.info("submission %s of %s is %s after %.1f s", "0f" * 16, "chexlocalize", "queued", 1.25)
    (line,) = lines(journal)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "reveal_leaderboard.web.submissions",
        "event": f"submission {'0f' * 16} of chexlocalize is queued after 1.2 s",
    }


def test_named_facts_are_kept_if_they_are_ours(journal: io.StringIO) -> None:
    log.info("scored", extra={"submission": SHA256, "seconds": 2.5, "status": "scored", "filename_given": CANARY})
    log.info("scored", extra={"submission": CANARY})
    first, second = lines(journal)
    assert (first["submission"], first["seconds"], first["status"]) == (SHA256, 2.5, "scored")
    assert second["submission"] == "[11 characters]"


@pytest.mark.parametrize(
    "text",
    [f"{CANARY}.jsonl", f"{{'model': '{CANARY}'}}", f'{CANARY}\n{{"level": "error"}}', f"INC-12345678 {CANARY}"],
    ids=["file-name", "metadata", "forged-line", "incident"],
)
def test_what_a_user_wrote_is_not_repeated(journal: io.StringIO, text: str) -> None:
    log.warning("refused %s", text)
    log.warning("refused %(name)s", {"name": text})
    log.warning("refused", extra={"status": text})
    assert CANARY not in journal.getvalue()
    assert len(lines(journal)) == 3
    assert (f"[{len(text)} characters" in lines(journal)[0]["event"]) is True
    assert ("INC-12345678" in lines(journal)[0]["event"]) is text.startswith("INC")


def test_of_an_exception_only_type_and_places_are_kept(journal: io.StringIO) -> None:
    def parse(line: str) -> None:
        try:
            json.loads(line)
        except ValueError as error:
            raise RuntimeError(f"cannot read {line}") from error

    try:
        parse(f"{CANARY} is not JSON")
    except RuntimeError as error:
        log.exception("reading failed: %s", error)
    (line,) = lines(journal)
    assert CANARY not in journal.getvalue()
    assert line["event"] == "reading failed: RuntimeError"
    assert line["error"]["type"] == "builtins.RuntimeError"
    assert line["error"]["frames"][-1].startswith("test_journal.py:")
    assert line["error"]["cause"]["type"] == "json.decoder.JSONDecodeError"


def test_why_a_template_does_not_start_is_told(journal: io.StringIO) -> None:
    """It said so before any upload was known."""
    try:
        raise TemplateError("the template of x does not start: no module named y")
    except TemplateError:
        log.exception("the template of %s died", "reveal_leaderboard.custody.parsing")
    (line,) = lines(journal)
    assert line["event"] == "the template of reveal_leaderboard.custody.parsing died"
    assert line["error"]["message"] == "the template of x does not start: no module named y"


def test_other_libraries_say_only_where_and_how_grave(journal: io.StringIO) -> None:
    logging.getLogger("sqlalchemy.engine").error(f"INSERT ... {CANARY}")
    logging.getLogger("uvicorn.access").info("GET /entry?q=%s", CANARY)
    logging.getLogger("uvicorn.error").info("started %s", CANARY)
    (line,) = lines(journal)
    assert CANARY not in journal.getvalue()
    assert (line["level"], line["logger"]) == ("error", "sqlalchemy.engine")
    assert line["where"].startswith("test_journal.py:")


def test_a_traceback_that_a_library_prints_is_a_line(journal: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    """Gradio prints what its pages' functions raise: a value that no list of choices has, in full."""
    try:
        raise ValueError(f"Value: {CANARY} is not in the list of choices")
    except ValueError:
        traceback.print_exc()
    (line,) = lines(journal)
    assert CANARY not in journal.getvalue()
    assert line["where"].startswith("test_journal.py:")
    assert line["error"]["type"] == "builtins.ValueError"
    assert capsys.readouterr().err == ""


def test_a_message_that_does_not_fit_its_arguments_is_shown_without_them() -> None:
    record = logging.LogRecord(log.name, logging.INFO, __file__, 1, "%d submissions", (CANARY,), None)
    assert json.loads(JournalFormatter().format(record))["event"] == "%d submissions"


def test_setting_up_twice_writes_once(journal: io.StringIO) -> None:
    second = io.StringIO()
    set_up_journal(second)
    log.info("once")
    assert journal.getvalue() == ""
    assert [line["event"] for line in lines(second)] == ["once"]


def log_calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted((ROOT / "leaderboard" / "reveal_leaderboard").rglob("*.py")):
        logs = re.search(r"\blog(ger)?\.", path.read_text(encoding="utf-8")) is not None
        for node in ast.walk(tree_of(path)) if logs else ():
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("log", "logger"):
                yield path, node


def test_our_messages_are_fixed_texts() -> None:
    """The journal prints them as they are, so nothing may be built into them."""
    calls = [
        (path, node)
        for path, node in log_calls()
        if node.func.attr in ("debug", "info", "warning", "error", "exception")
    ]
    assert calls
    for path, node in calls:
        assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"


def test_what_a_confinement_leaves_open_is_logged_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    for gap in (*GAPS, *CHILDREN_GAPS):
        log.warning("%s", gap)
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == [*GAPS, *CHILDREN_GAPS]


def test_repeated_lines_about_clients_are_damped_and_counted(journal: io.StringIO) -> None:
    clock = [0.0]
    server = logging.getLogger("uvicorn.error")
    server.filters = [Damped(60, lambda: clock[0])]
    for clock[0] in (0.0, 1.0, 59.0, 60.0):
        server.warning("Invalid HTTP request received.")
    server.warning("another place")
    assert [line["count"] for line in lines(journal)] == [1, 3, 1]
