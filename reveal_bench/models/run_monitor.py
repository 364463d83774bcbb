"""How a run goes: what is done, what waits to be sent again, and when nothing is to be asked any more.

Conventions
-----------
A request is *sent again* after an attempt that broke, hung or was answered 408, 409, 429 or 5xx, with growing pauses,
or those that the endpoint asks for. It *fails* when that is of no use. A run is over when :data:`IN_A_ROW` requests in
a row have failed, or when as many attempts in a row met silence (no status of HTTP at all) for as long as one of them
may take; what is under way is then broken off and counts as not asked. Times are seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reveal_bench.models.endpoints import IN_A_ROW, RunStoppedError, reason_text, retry_after
from reveal_bench.models.run_folder import Exchange

if TYPE_CHECKING:
    import anyio

FIRST_PAUSE, LONGEST_PAUSE = 3.0, 1800.0

Progress = Callable[[str, int, int, int, str], None]
"""Is told (what is being done, how many are done, of how many, how many of these failed, what is sent again)."""


class RunWatcher:
    """Counts what is done, reports it, and says when to give up.

    Parameters
    ----------
    progress : is told how it goes
    what, total : what is being done, and how often
    done : what was done before
    patience : seconds of silence after which a run is given up
    """

    def __init__(
        self, progress: Progress | None, what: str, total: int, done: Sequence[Exchange], *, patience: float
    ) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, len(done)
        self._failed = sum(exchange.status == "failed" for exchange in done)
        self._patience, self._heard = patience, time.monotonic()
        self._in_a_row = self._silent = self._sent_again = 0
        self._pause = self._over = self.last_error = ""
        self.last_status: int | None = None
        self._scopes = set["anyio.CancelScope"]()
        self._tell()

    @contextlib.contextmanager
    def putting(self) -> Iterator[anyio.CancelScope]:
        """A question is put meanwhile; the scope is cancelled when nothing is to be asked any more."""
        import anyio

        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def tried(self, error: Exception | None) -> None:
        """A question was put, and answered unless there is an error; it may be put again."""
        if error is None:
            self._in_a_row, self._pause = 0, ""
            self._hear()
            return
        self._in_a_row += 1
        self._note(error)
        if self._in_a_row >= IN_A_ROW:
            self._end(f"{IN_A_ROW} requests in a row were not answered")

    def done(self, status: str) -> None:
        """A question is done with, unless it was broken off."""
        if self._over and status == "failed":
            return
        self._done += 1
        self._failed += status == "failed"
        self._tell()

    def is_over(self) -> bool:
        """Whether what is left is not to be asked any more."""
        return bool(self._over)

    def check(self) -> None:
        """Raise RunStoppedError if the run was given up."""
        if self._over:
            raise RunStoppedError(f"{self._over}, the last: {self.last_error}", self.last_status)

    @contextlib.contextmanager
    def pausing(self, api: Any, max_retries: int) -> Iterator[None]:
        """Be told of every attempt that a model's `api`, one of inspect_ai, sends again meanwhile."""
        from tenacity import wait_exponential_jitter

        own = api.retry_wait() or wait_exponential_jitter(FIRST_PAUSE, LONGEST_PAUSE, jitter=FIRST_PAUSE)

        def pause(state: Any) -> float:
            error = state.outcome.exception()
            headers = getattr(getattr(error, "response", None), "headers", {})
            seconds = max(own(state), min(retry_after(headers) or 0, LONGEST_PAUSE))
            self._broke(error, seconds if state.attempt_number <= max_retries else None)
            return float(seconds)

        api.retry_wait = lambda: pause
        try:
            yield
        finally:
            del api.retry_wait  # the method of its class is there again

    def _broke(self, error: Exception, pause: float | None) -> None:
        """An attempt was of no use; the next is made after a pause, if there is one."""
        status = self._note(error)
        if pause is not None:
            self._sent_again += 1
            reason = "no answer" if status is None else f"HTTP {status}"
            self._pause = f", waiting {pause:.0f} s after {reason}"
        if status is not None:
            self._hear()
        else:
            self._silent += 1
            if self._silent >= IN_A_ROW and time.monotonic() - self._heard >= self._patience:
                self._end(f"the endpoint does not answer: {self._silent} attempts in a row failed")
        self._tell()

    def _note(self, error: Exception) -> int | None:
        self.last_error = reason_text(str(error) or type(error).__name__)
        self.last_status = getattr(error, "status", None) or getattr(error, "status_code", None)
        return self.last_status

    def _hear(self) -> None:
        self._silent, self._heard = 0, time.monotonic()

    def _end(self, reason: str) -> None:
        self._over = self._over or reason
        for scope in self._scopes:
            scope.cancel()

    def _tell(self) -> None:
        if self._progress is not None:
            again = f"{self._sent_again:,} sent again{self._pause}" if self._sent_again else ""
            self._progress(self._what, self._done, self._total, self._failed, again)
