"""Monitor a run: count finished questions and repeated requests, and decide when to stop the run.

Conventions
-----------
A request is *repeated* after an attempt that broke, hung or got status 408, 409, 429 or 5xx. The pauses grow, and are
at least as long as the endpoint asks for. A request *fails* if its repetitions are not answered either. A run stops
when :data:`IN_A_ROW` requests in a row have failed, and at once after a status of :data:`FINAL`. A run also stops when
as many attempts in a row got no HTTP status, for as long as a single attempt may take. Requests under way are then
cancelled and count as not asked. Times are seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reveal_bench.models.endpoints import FINAL, IN_A_ROW, RunStoppedError, reason_text, retry_after
from reveal_bench.models.run_folder import QuestionOutcome

if TYPE_CHECKING:
    import anyio

FIRST_PAUSE, LONGEST_PAUSE = 3.0, 1800.0

Progress = Callable[[str, int, int, int, str], None]
"""Function called with (activity, number done, total, number failed, text about repeated requests)."""


class RunWatcher:
    """Counts finished questions, reports them, and decides when to stop.

    Parameters
    ----------
    progress : called after every change
    what, total : the activity, and its number of questions
    done : exchanges of earlier runs
    patience : seconds of silence after which a run stops
    """

    def __init__(
        self, progress: Progress | None, what: str, total: int, done: Sequence[QuestionOutcome], *, patience: float
    ) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, len(done)
        self._failed = sum(exchange.status == "failed" for exchange in done)
        self._patience, self._last_response = patience, time.monotonic()
        self._in_a_row = self._silent = self._sent_again = 0
        self._pause = self._over = self.last_error = ""
        self.last_status: int | None = None
        self._scopes = set["anyio.CancelScope"]()
        self._report()

    @contextlib.contextmanager
    def asking_scope(self) -> Iterator[anyio.CancelScope]:
        """Return a scope for asking one question, which is cancelled when the run stops."""
        import anyio

        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def count_attempt(self, error: Exception | None) -> None:
        """Count an attempt at a question, which was answered if `error` is None, and otherwise may be asked again."""
        if error is None:
            self._in_a_row, self._pause = 0, ""
            self._note_response()
            return
        self._in_a_row += 1
        status = self._note(error)
        if status in FINAL:
            self._end("the endpoint refuses every request")
        if self._in_a_row >= IN_A_ROW:
            self._end(f"{IN_A_ROW} requests in a row were not answered")

    def count_done(self, status: str) -> None:
        """Count a finished question, unless it was cancelled."""
        if self._over and status == "failed":
            return
        self._done += 1
        self._failed += status == "failed"
        self._report()

    def is_over(self) -> bool:
        """Return True if the remaining questions must not be asked."""
        return bool(self._over)

    def check(self) -> None:
        """Raise RunStoppedError if the run stopped."""
        if self._over:
            raise RunStoppedError(f"{self._over}; last reason: {self.last_error}", self.last_status)

    @contextlib.contextmanager
    def watch_retries(self, api: Any, max_retries: int) -> Iterator[None]:
        """Within this context, count every attempt that inspect_ai's `api` of a model retries."""
        from tenacity import wait_exponential_jitter

        own = api.retry_wait() or wait_exponential_jitter(FIRST_PAUSE, LONGEST_PAUSE, jitter=FIRST_PAUSE)

        def pause(state: Any) -> float:
            error = state.outcome.exception()
            headers = getattr(getattr(error, "response", None), "headers", {})
            seconds = max(own(state), min(retry_after(headers) or 0, LONGEST_PAUSE))
            self._count_failed(error, seconds if state.attempt_number <= max_retries else None)
            return float(seconds)

        api.retry_wait = lambda: pause
        try:
            yield
        finally:
            del api.retry_wait  # restores the method of the class

    def _count_failed(self, error: Exception, pause: float | None) -> None:
        """Count a failed attempt; `pause` is the time before the next attempt, if there is one."""
        status = self._note(error)
        if pause is not None:
            self._sent_again += 1
            reason = "no answer" if status is None else f"HTTP {status}"
            self._pause = f", waiting {pause:.0f} s after {reason}"
        if status is not None:
            self._note_response()
        else:
            self._silent += 1
            if self._silent >= IN_A_ROW and time.monotonic() - self._last_response >= self._patience:
                self._end(f"the endpoint does not answer: {self._silent} attempts in a row failed")
        self._report()

    def _note(self, error: Exception) -> int | None:
        self.last_error = reason_text(str(error) or type(error).__name__)
        self.last_status = getattr(error, "status", None) or getattr(error, "status_code", None)
        return self.last_status

    def _note_response(self) -> None:
        self._silent, self._last_response = 0, time.monotonic()

    def _end(self, reason: str) -> None:
        self._over = self._over or reason
        for scope in self._scopes:
            scope.cancel()

    def _report(self) -> None:
        if self._progress is not None:
            again = f"{self._sent_again:,} sent again{self._pause}" if self._sent_again else ""
            self._progress(self._what, self._done, self._total, self._failed, again)
