"""The server's log: one JSON object per line, with messages and ids, but no text that a user wrote.

Conventions
-----------
A line has `time` (UTC), `level`, `logger`, `event` and perhaps `where`, `error` and named facts. `event` is the message
in this program's source with its arguments inserted. An argument is inserted only if it cannot be a user's text:
numbers, ids, hashes, incident numbers, names of modules, words for kinds and statuses, and the words passed to
:func:`set_up_journal`. Every other argument is replaced by its length. For an exception, the type and the positions in
the code are logged, but never a variable. The exception's message is logged only if its class declares ``loggable =
True``, which promises a message without users' texts; a parser's message, for example, quotes the parsed file. For
messages of other libraries, only logger, position and level are logged. This includes tracebacks that a library prints:
Gradio's contain data that a visitor sent. Messages of network libraries about clients are limited in number
(:class:`Damped`), because clients can cause any number of them.
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TextIO

from reveal_leaderboard.store.tables import BOARD_STATES, JOB_KINDS, JOB_STATES, LEDGER_KINDS, STATUSES

OURS = "reveal_leaderboard"
FACTS = ("submission", "job", "kind", "status", "benchmark", "version", "incident", "seconds", "count", "route")
"""Names of facts that a line may have: ``log.info("...", extra={"submission": ID, "seconds": 1.5})``."""

ABOUT_CLIENTS = ("asyncio", "uvicorn.error")

_WORDS = frozenset((*STATUSES, *JOB_STATES, *JOB_KINDS, *LEDGER_KINDS, *BOARD_STATES))
_ID = re.compile(r"[0-9a-f]{24,64}|INC-[0-9A-F]{8}|reveal_leaderboard(\.[a-z_]+)+")
_INCIDENT = re.compile(r"\bINC-[0-9A-F]{8}\b")
_HANDLER = "reveal-journal"


class Damped(logging.Filter):
    """Log filter that passes one of equal records per `seconds`; its `count` includes the records dropped before it."""

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be logged; records are equal if code position and type of error are."""
        place = (record.pathname, record.lineno, record.exc_info and record.exc_info[0])
        until, n_dropped = self._seen.get(place, (0.0, 0))
        if self._clock() < until:
            self._seen[place] = (until, n_dropped + 1)
            return False
        self._seen[place] = (self._clock() + self._seconds, 0)
        record.count = n_dropped + 1
        return True


class JournalFormatter(logging.Formatter):
    """Formats a log record as a JSON line.

    Parameters
    ----------
    known : words that may be printed: names of benchmarks and versions, the worker's name
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__()
        self._known = _WORDS | frozenset(known)

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON line, without a line break."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.name.split(".")[0] == OURS:
            line["event"] = self._event(record)
        else:
            line["event"] = "a message of another library"
            line["where"] = f"{PurePath(record.pathname).name}:{record.lineno}"
        facts = {name: getattr(record, name) for name in FACTS if hasattr(record, name)}
        line |= {name: self._safe(value) for name, value in facts.items()}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _error(record.exc_info[1])
        return json.dumps(line)

    def _event(self, record: logging.LogRecord) -> str:
        if not record.args:
            return str(record.msg)
        try:
            if isinstance(record.args, tuple):
                return str(record.msg) % tuple(self._safe(value) for value in record.args)
            return str(record.msg) % {name: self._safe(value) for name, value in record.args.items()}
        except (TypeError, ValueError):
            return str(record.msg)

    def _safe(self, value: object) -> object:
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, BaseException):
            return type(value).__name__
        text = str(value)
        if text in self._known or _ID.fullmatch(text):
            return text
        numbers = " ".join(_INCIDENT.findall(text))
        return f"[{len(text)} characters{': ' + numbers if numbers else ''}]"


def _error(error: BaseException) -> dict[str, Any]:
    """Return the types and code positions of an exception and its causes, and messages of loggable classes."""
    frames = traceback.extract_tb(error.__traceback__)
    described: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "frames": [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if getattr(error, "loggable", False):
        described["message"] = str(error)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        described["cause"] = _error(cause)
    return described


def set_up_journal(stream: TextIO, *, known: Iterable[str] = ()) -> None:
    """Write the log of this process to `stream` as JSON lines, replacing all handlers.

    This program's messages are logged from level INFO, those of other libraries from WARNING. A second call replaces
    the first.
    """
    handler = logging.StreamHandler(stream)
    handler.set_name(_HANDLER)
    handler.setFormatter(JournalFormatter(known))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(logging.INFO)
    for name in ABOUT_CLIENTS:
        logger = logging.getLogger(name)
        logger.filters = [Damped()]
    logging.captureWarnings(True)
    traceback.print_exc = _log_traceback
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # these loggers have their own handlers
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"  # its messages contain addresses with query strings


def _log_traceback(*_args: object, **_options: object) -> None:
    """Log the current exception as a JSON line; replaces `traceback.print_exc`."""
    logging.getLogger("traceback").error("printed", exc_info=True, stacklevel=2)
