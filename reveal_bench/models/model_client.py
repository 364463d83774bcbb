"""Send many text prompts at once to an OpenAI-compatible endpoint, and store every completion.

The curation sends all its text prompts through :class:`ModelClient` (with the SDK ``openai``, extra ``run``), under the
rules of :mod:`reveal_bench.models.endpoints`. Redirects are not followed. Besides the key, only proxies and
certificates are taken from the environment, and only for https to another machine. inspect_ai, which sends prompts with
images, is unsuitable here. The cache of inspect_ai depends on the endpoint's address and on pickled classes of
inspect_ai's version. inspect_ai also sends a prompt again while the first request is under way, and its errors and
transcripts contain the prompts, which are reports.

If a single request gets no completion, its outcome is a :class:`RequestFailure`. A problem of every request (a wrong
key, an unknown model, an endpoint that is down) stops the run with a
:class:`~reveal_bench.models.endpoints.RunStoppedError`; earlier completions are kept. A response body is untrusted
data: anything other than a chat completion counts as a failed attempt, never as an exception.

No prompt is sent and paid for twice, because completions are stored under the SHA-256 of the request's body (model,
messages, schema and settings, but neither endpoint nor key). Each completion has one file, written whole or not at all,
without the prompt and without a time. Parsed results are not stored, so that another parser can read the same
completions.

A *dialogue* is a generator that yields requests, is sent their outcomes, and returns a result. A dialogue itself uses
no network, and can be tested without one. Times are seconds, costs are exact decimals.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import write_whole
from reveal_bench.models.endpoints import (
    FINAL,
    IN_A_ROW,
    KEY_VARIABLE,
    RunStoppedError,
    check_endpoint,
    is_sealed,
    names_content_filter,
    reason_text,
    retry_after,
)
from reveal_bench.models.prices import Prices

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

RETRIED = (408, 409, 429)
"""HTTP statuses below 500 after which a request is repeated."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request: messages as (role, text), and the named JSON schema of the completion."""

    messages: tuple[tuple[str, str], ...]
    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """The outcome of a request that got no completion, with the reason."""

    reason: str


@dataclass(frozen=True)
class ModelSettings:
    """The model, and every setting on which its completions depend.

    Parameters
    ----------
    model : the endpoint's name for the model
    temperature, seed, max_tokens : None omits the setting, for models that do not accept it
    structure : the check that the endpoint makes itself: "schema", "object" (any JSON object) or "none"; this package
        checks every completion again
    extra : additional fields of the request's body
    """

    model: str
    temperature: float | None = 0.0
    seed: int | None = 0
    max_tokens: int | None = 4096
    structure: Literal["schema", "object", "none"] = "schema"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ArgumentError("model", "must name a model", "a blank")
        if self.structure not in ("schema", "object", "none"):
            raise ArgumentError("structure", 'must be "schema", "object" or "none"', repr(self.structure))
        reserved = {"model", "messages", "response_format", "stream", "n"} & set(self.extra)
        if reserved:
            raise ArgumentError("extra", f"must not set {', '.join(sorted(reserved))}")

    def document(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request."""
        sampling = {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.max_tokens}
        response_format = {
            "schema": {
                "type": "json_schema",
                "json_schema": {"name": request.name, "strict": True, "schema": request.schema},
            },
            "object": {"type": "json_object"},
            "none": None,
        }[self.structure]
        return {
            "model": self.model,
            "messages": [{"role": role, "content": text} for role, text in request.messages],
            **{name: value for name, value in sampling.items() if value is not None},
            **({"response_format": response_format} if response_format else {}),
            **self.extra,
        }


@dataclass(frozen=True)
class RetryPolicy:
    """Timeouts and pauses in seconds, and numbers of attempts.

    The run stops after `in_a_row` failed requests in a row. If the endpoint asks for a pause, the client waits that
    long, but at most `longest_pause`.
    """

    attempts: int = 6
    attempt_timeout: float = 120.0
    first_pause: float = 1.0
    longest_pause: float = 120.0
    in_a_row: int = IN_A_ROW

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.in_a_row < 1:
            raise ValueError(f"`attempts` and `in_a_row` must be at least 1, got {self.attempts} and {self.in_a_row}")
        if not (self.attempt_timeout > 0 and 0 <= self.first_pause <= self.longest_pause):
            raise ArgumentError("attempt_timeout", "must be positive, and 0 <= `first_pause` <= `longest_pause`")

    def pause(self, n_failed: int, asked_for: float | None) -> float:
        """Return the seconds to wait before the next attempt, after `n_failed` failed attempts."""
        own = min(self.longest_pause, self.first_pause * 2.0 ** min(n_failed - 1, 30)) * random.uniform(0.75, 1)
        return own if asked_for is None else max(own, min(asked_for, self.longest_pause))


@dataclass
class Spending:
    """Number and cost of this process's requests; `requests` include `retries`, `cached` completions are free."""

    requests: int = 0
    answered: int = 0
    cached: int = 0
    retries: int = 0
    failures: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply; `finish` says why the text ended, and `refusal` is the wording of a refusal, if any.

    `tokens_in` and `tokens_out` are counted by the endpoint, and are None if it sends no counts. `served_model` is the
    model's name in the response, often more exact than the requested name.
    """

    text: str
    finish: str | None = None
    refusal: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    served_model: str | None = None

    @property
    def fault(self) -> str | None:
        """The reason why the text must not be parsed; None if it may be parsed."""
        if self.refusal:
            return f"the model would not answer: {self.refusal[:200]}"
        if self.finish == "length":
            return "the answer was cut off at the largest number of tokens"
        if self.finish == "content_filter":
            return "the answer was held back by a content filter"
        return None


def content_key(body: Mapping[str, Any]) -> str:
    """Return the key of a request's body; bodies that differ only in the order of fields have the same key."""
    text = json.dumps(body, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


class CompletionStore:
    """Completions stored in files below `root`, a folder that is created with the first completion."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def find(self, key: str) -> Completion | None:
        """Return the completion stored under `key`; None if it is missing or damaged and must be requested again."""
        try:
            document = json.loads(self._path(key).read_text(encoding="utf-8"))
            return Completion(**document["answer"]) if document["key"] == key else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, key: str, completion: Completion) -> None:
        """Store a completion, whole or not at all."""
        path = self._path(key)
        write_whole(path, json.dumps({"key": key, "answer": asdict(completion)}, ensure_ascii=True, indent=1) + "\n")

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The reason why an attempt failed, the pause that the endpoint asks for (`asked_for`), and the HTTP status."""

    reason: str
    is_passing: bool = True
    status: int | None = None
    asked_for: float | None = None


def read_completion(content: bytes) -> Completion | FailedAttempt:
    """Parse a response body into a completion or a failed attempt."""
    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text, refusal = choice["message"].get("content"), choice["message"].get("refusal")
        usage = document.get("usage") or {}
        tokens = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return FailedAttempt("HTTP 200 with a body that is not a chat completion")
    if not (text is None or isinstance(text, str)):
        return FailedAttempt("HTTP 200 with content that is not text")
    counts = [n if isinstance(n, int) and not isinstance(n, bool) and n >= 0 else None for n in tokens]
    fields = {"finish": choice.get("finish_reason"), "refusal": refusal, "served_model": document.get("model")}
    texts = {name: value if isinstance(value, str) else None for name, value in fields.items()}
    return Completion(text or "", tokens_in=counts[0], tokens_out=counts[1], **texts)


Dialogue = Generator[ModelRequest, Completion | RequestFailure, T]


class ModelClient:
    """A client that sends text prompts to one model.

    Parameters
    ----------
    settings : the model and its settings
    endpoint : base URL of an OpenAI-compatible API, such as ``http://localhost:8000/v1``
    cache : folder of the completions; in a curation, ``cache/answers`` of its folder
    max_connections : concurrent requests
    prices : prices of tokens; without prices, the cost is None

    Raises
    ------
    ValueError
        If the endpoint is not an http(s) URL, a key would go to another machine over plain http, or `max_connections`
        is below 1.
    """

    def __init__(
        self,
        settings: ModelSettings,
        endpoint: str,
        cache: Path,
        *,
        max_connections: int = 8,
        retry_policy: RetryPolicy | None = None,
        prices: Prices | None = None,
    ) -> None:
        if max_connections < 1:
            raise ArgumentError("max_connections", "must be at least 1", max_connections)
        check_endpoint(endpoint)
        self.settings, self.endpoint = settings, endpoint
        self.max_connections, self.retry_policy, self.prices = max_connections, retry_policy or RetryPolicy(), prices
        self.spent = Spending(cost=None if prices is None else Decimal(0))
        self._store = CompletionStore(cache)
        self._used: dict[str, Completion] = {}
        self._in_a_row = 0

    def run(self, dialogues: Iterable[Dialogue[T]]) -> Iterator[T]:
        """Run every dialogue, `max_connections` at a time, and yield the results in order of completion.

        Raises
        ------
        RunStoppedError
            If the key or the model is refused, too many requests in a row failed, or all requests failed.
        ImportError
            If `openai` is not installed.
        """
        waiting, running = iter(dialogues), set[asyncio.Task[T]]()
        answered_before, failed_before = self._n_answers(), self.spent.failures
        with asyncio.Runner() as runner:
            client, locks = self._client(), dict[str, asyncio.Lock]()
            try:
                while True:
                    for dialogue in islice(waiting, self.max_connections - len(running)):
                        running.add(runner.get_loop().create_task(self._run_one(dialogue, client, locks)))
                    if not running:
                        break
                    done, running = runner.run(asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))
                    for task in done:
                        yield task.result()
            finally:
                runner.run(_end(running, client))
        if self.spent.failures > failed_before and self._n_answers() == answered_before:
            raise RunStoppedError("no request was answered; try again when the endpoint is up")

    def counts(self) -> dict[str, Any]:
        """Return the number, tokens and cost of all completions used so far, whichever run paid for them.

        A resumed run therefore has the same counts as an uninterrupted one; :attr:`spent` counts the requests of this
        process. `cost` is an exact decimal as text, and excludes ``answers_without_usage``.
        """
        used = self._used.values()
        tokens_in = sum(one.tokens_in or 0 for one in used)
        tokens_out = sum(one.tokens_out or 0 for one in used)
        return {
            "answers": len(used),
            "answers_without_usage": sum(None in (one.tokens_in, one.tokens_out) for one in used),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost": None if self.prices is None else f"{self.prices.cost(tokens_in, tokens_out).normalize():f}",
            "served_models": sorted({one.served_model for one in used if one.served_model}),
        }

    def _n_answers(self) -> int:
        return self.spent.answered + self.spent.cached

    async def _run_one(self, dialogue: Dialogue[T], client: AsyncOpenAI, locks: dict[str, asyncio.Lock]) -> T:
        try:
            request = next(dialogue)
            while True:
                request = dialogue.send(await self._ask(request, client, locks))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _ask(
        self, request: ModelRequest, client: AsyncOpenAI, locks: dict[str, asyncio.Lock]
    ) -> Completion | RequestFailure:
        """Return the stored completion, or request it from the endpoint; equal requests wait for the first."""
        body = self.settings.body(request)
        key = content_key(body)
        async with locks.setdefault(key, asyncio.Lock()):
            outcome: Completion | RequestFailure | None = self._store.find(key)
            if outcome is not None:
                self.spent.cached += 1
            else:
                outcome = await self._send(body, client)
                if isinstance(outcome, Completion):
                    self._store.write(key, outcome)
                    self._count(outcome)
        if isinstance(outcome, Completion):
            self._used[key] = replace(outcome, text="", refusal=None)  # only its counts are needed
        return outcome

    async def _send(self, body: Mapping[str, Any], client: AsyncOpenAI) -> Completion | RequestFailure:
        for n_failed in range(self.retry_policy.attempts):
            if n_failed:
                self.spent.retries += 1
            self.spent.requests += 1
            outcome = await _attempt(client, body, self.retry_policy.attempt_timeout)
            if isinstance(outcome, Completion):
                self._in_a_row = 0
                return outcome
            reason, status = outcome.reason, outcome.status
            if status in (*FINAL, 403) or (status or 500) < 400:
                raise RunStoppedError(f"the endpoint refuses every request (key: ${KEY_VARIABLE}): {reason}", status)
            if not outcome.is_passing:
                break
            if n_failed + 1 < self.retry_policy.attempts:
                await asyncio.sleep(self.retry_policy.pause(n_failed + 1, outcome.asked_for))
        else:
            reason = f"{reason} in the last of {self.retry_policy.attempts} attempts"
        self.spent.failures += 1
        self._in_a_row += 1
        if self._in_a_row >= self.retry_policy.in_a_row:
            raise RunStoppedError(
                f"{self._in_a_row} requests in a row were not answered; last reason: {reason}", status
            )
        return RequestFailure(reason)

    def _count(self, completion: Completion) -> None:
        tokens_in, tokens_out = completion.tokens_in or 0, completion.tokens_out or 0
        self.spent.answered += 1
        self.spent.tokens_in += tokens_in
        self.spent.tokens_out += tokens_out
        if self.prices is not None and self.spent.cost is not None:
            self.spent.cost += self.prices.cost(tokens_in, tokens_out)

    def _client(self) -> AsyncOpenAI:
        try:
            import openai
        except ImportError:
            raise ImportError("asking a model needs openai: pip install 'reveal-bench[run]'") from None
        client = openai.AsyncOpenAI(
            api_key=os.environ.get(KEY_VARIABLE) or "none",  # the SDK requires a key, which an open endpoint ignores
            base_url=self.endpoint,
            max_retries=0,  # this client counts and limits attempts itself
            timeout=None,  # the limit applies to a whole attempt, not to each read
            http_client=openai.DefaultAsyncHttpx2Client(
                follow_redirects=False, timeout=None, trust_env=is_sealed(self.endpoint)
            ),
        )
        # The SDK takes these values from OPENAI_* variables, which were set for another endpoint.
        client.organization = client.project = client.admin_api_key = None
        client._custom_headers = {}
        _ = client.chat.completions  # this slow import must not look like a slow endpoint
        return client


async def _end(running: Iterable[asyncio.Task[Any]], client: AsyncOpenAI) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await client.close()


async def _attempt(client: AsyncOpenAI, body: Mapping[str, Any], seconds: float) -> Completion | FailedAttempt:
    import openai

    rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
    try:
        async with asyncio.timeout(seconds):
            response = await client.chat.completions.with_raw_response.create(
                model=body["model"], messages=body["messages"], extra_body=rest
            )
    except openai.APIStatusError as error:
        if names_content_filter(error.status_code, str(error)):
            return Completion("", finish="content_filter")
        return _refusal(error)
    except (TimeoutError, openai.APITimeoutError):
        return FailedAttempt(f"no answer within {seconds:g} s")
    except openai.OpenAIError as error:
        return FailedAttempt(f"the connection broke ({type(error.__cause__ or error).__name__})")
    return read_completion(response.http_response.content)


def _refusal(error: APIStatusError) -> FailedAttempt:
    status, message = error.status_code, error.body.get("message") if isinstance(error.body, dict) else None
    is_passing = status in RETRIED or status >= 500
    # An overloaded server words its errors differently each time; a refusal has the same wording each time.
    detail = f": {reason_text(message)[:200]}" if isinstance(message, str) and not is_passing else ""
    return FailedAttempt(f"HTTP {status}{detail}", is_passing, status, retry_after(error.response.headers))
