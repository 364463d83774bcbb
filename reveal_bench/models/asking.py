"""Asking a model in words: many questions at once to an OpenAI-compatible endpoint, with retries, every answer kept.

The one place of the project that talks to a model itself (with the SDK ``openai``, extra ``run``); questions with
pictures go by inspect_ai, see :mod:`reveal_bench.models.running`, under the same rules for endpoints and keys.

Conventions
-----------
The endpoint is always named by the caller, since reports go there; redirects are not followed. Its key comes from an
environment variable and goes nowhere else: not to another machine over plain http, not into a file or a message. Of
the rest of the environment only proxies and certificates are heeded, and those only for https to another machine.

A request that breaks, hangs, or is answered 408, 409, 429, 5xx or with something that is not an answer is sent again, a
few times, with growing pauses or those that the endpoint asks for. What a request cannot have is a :class:`Failure` of
this one request; what no request will have (a wrong key, an unknown model, an endpoint that is down) ends the run with
a :class:`RunStoppedError`, and the answers so far are kept. A body is read as data that may hold anything: what is not
a chat completion is a fault, never an exception. A request that a content filter refuses is answered, whatever status
it came with: the next one may pass (:func:`names_content_filter`).

Answers are kept by what was asked, so that nothing is asked and paid for twice: the key of an answer is the SHA-256 of
the request's body (model, messages, schema and settings, but neither endpoint nor key). An answer is one file, which
appears whole or not at all; it holds what came back, not the question, and no time. What a reader of answers makes of
it is not kept: another parser reads the same answers anew.

A *dialogue* is a generator that yields requests, is sent what became of them, and returns a result. It knows nothing
of the network, so it is tested without one. Times are seconds, costs are exact decimals.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.prices import Prices
from reveal_bench.files import write_whole

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

KEY_VARIABLE = "REVEAL_MODEL_KEY"
"""Not the SDK's own variable: a key for one provider must not go to another endpoint because it happens to be set."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PASSING = (408, 409, 429)
FINAL = (401, 403, 404)
"""Statuses that every further request would have, too."""
FILTERED = (400, 403, 422, 451)
"""Statuses with which content filters are known to refuse a request."""
CONTENT_FILTER = re.compile(
    r"(?i)content[ _-]?(?:filter|polic|management polic|moderation)|safety (?:system|filter|polic)|\bflagged\b"
    r"|(?:inappropriate|sensitive|prohibited|harmful|unsafe)[ _]content|data_?inspection_?failed|responsibleaipolicy"
)
"""Words in which Azure, OpenAI, DashScope, OpenRouter and others say so; not all send a code for it."""

T = TypeVar("T")


class RunStoppedError(ValueError):
    """The run was given up: no request is answered as things stand; those that were before are kept.

    `status` is that of HTTP, of the last answer; None if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def check_endpoint(endpoint: str, key_variable: str = KEY_VARIABLE) -> None:
    """Raise ValueError unless `endpoint` is an http or https URL to which reports, pictures and the key may go."""
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ArgumentError("endpoint", "must be an http or https URL", repr(endpoint))
    if url.username or url.password:
        raise ArgumentError("endpoint", f"must not hold a key, which comes from ${key_variable}")
    if os.environ.get(key_variable) and url.scheme == "http" and url.hostname not in LOOPBACK:
        rule = f"must be https when ${key_variable} is set: no key goes to another machine over plain http"
        raise ArgumentError("endpoint", rule, repr(endpoint))


def is_sealed(endpoint: str) -> bool:
    """Whether a proxy on the way cannot read what is sent: https to another machine."""
    url = urlsplit(endpoint)
    return url.scheme == "https" and url.hostname not in LOOPBACK


def names_content_filter(status: int | None, said: str) -> bool:
    """Whether a refused request was refused because of what it shows: by the words, where there is no code for it.

    Examples
    --------
    >>> names_content_filter(400, "The response was filtered due to the content management policy.")
    True
    >>> names_content_filter(400, "Unknown parameter: 'temperature'.")
    False
    """
    return status in FILTERED and CONTENT_FILTER.search(said) is not None


@dataclass(frozen=True, slots=True)
class Request:
    """Messages as (role, text), and the JSON schema that the answer is held to, with its name."""

    messages: tuple[tuple[str, str], ...]
    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that has no answer, and why."""

    reason: str


@dataclass(frozen=True)
class ModelSettings:
    """Everything about the model that its answers depend on.

    Parameters
    ----------
    model : the name that the endpoint knows it by
    temperature, seed, max_tokens : None leaves one out, for models that do not take it
    structure : how the endpoint is told to hold the answer to the schema: "schema", "object" (any JSON object) or
        "none"; the answer is checked in any case
    extra : further fields of the request's body
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
        taken = {"model", "messages", "response_format", "stream", "n"} & set(self.extra)
        if taken:
            raise ArgumentError("extra", f"must not set {', '.join(sorted(taken))}")

    def document(self) -> dict[str, Any]:
        """The settings as JSON."""
        return asdict(self)

    def body(self, request: Request) -> dict[str, Any]:
        """The body of a request."""
        sampling = {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.max_tokens}
        held = {
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
            **({"response_format": held} if held else {}),
            **self.extra,
        }


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for an answer, and how often to ask again; times in seconds.

    `in_a_row` requests without an answer, one after the other, end the run. A pause that the endpoint asks for is kept
    up to `longest_pause`.
    """

    attempts: int = 6
    attempt_timeout: float = 120.0
    first_pause: float = 1.0
    longest_pause: float = 120.0
    in_a_row: int = 10

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.in_a_row < 1:
            raise ValueError(f"`attempts` and `in_a_row` must be at least 1, got {self.attempts} and {self.in_a_row}")
        if not (self.attempt_timeout > 0 and 0 <= self.first_pause <= self.longest_pause):
            raise ArgumentError("attempt_timeout", "must be positive, and 0 <= `first_pause` <= `longest_pause`")

    def pause(self, n_failed: int, asked_for: float | None) -> float:
        """Seconds before the next attempt, after `n_failed` of them."""
        own = min(self.longest_pause, self.first_pause * 2.0 ** min(n_failed - 1, 30)) * random.uniform(0.75, 1)
        return own if asked_for is None else max(own, min(asked_for, self.longest_pause))


@dataclass
class Spending:
    """What this process asked for: `requests` were sent, `retries` of them again; `cached` answers cost nothing."""

    requests: int = 0
    answered: int = 0
    cached: int = 0
    retries: int = 0
    failures: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said; `finish` is why it ended, `refusal` its words if it would not answer.

    `tokens_in` and `tokens_out` are the endpoint's own count, None if it sends none; `served_model` is the name that
    it answers with, often more exact than the one that was asked for.
    """

    text: str
    finish: str | None = None
    refusal: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    served_model: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the text is not to be read at all, None if it may be."""
        if self.refusal:
            return f"the model would not answer: {self.refusal[:200]}"
        if self.finish == "length":
            return "the answer was cut off at the largest number of tokens"
        if self.finish == "content_filter":
            return "the answer was held back by a content filter"
        return None


def content_key(body: Mapping[str, Any]) -> str:
    """The key of a request's body: its keys' order does not matter, everything else does."""
    text = json.dumps(body, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


class AnswerCache:
    """Answers below `root`, which is made when the first is kept."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def find(self, key: str) -> Answer | None:
        """The answer of this key; None if there is none, or one that is damaged, which costs one more request."""
        try:
            document = json.loads(self._path(key).read_text(encoding="utf-8"))
            return Answer(**document["answer"]) if document["key"] == key else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, key: str, answer: Answer) -> None:
        """Keep an answer, whole or not at all."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"key": key, "answer": asdict(answer)}, ensure_ascii=True, indent=1) + "\n")

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one attempt; `asked_for` is the pause that the endpoint wants, `status` HTTP's."""

    reason: str
    is_passing: bool = True
    status: int | None = None
    asked_for: float | None = None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the endpoint asks, None if it does not."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                moment = parsedate_to_datetime(text)
                seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
            except ValueError:
                continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def read_completion(content: bytes) -> Answer | Fault:
    """The answer in the body of a response."""
    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text, refusal = choice["message"].get("content"), choice["message"].get("refusal")
        usage = document.get("usage") or {}
        tokens = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return Fault("HTTP 200 with a body that is not a chat completion")
    if not (text is None or isinstance(text, str)):
        return Fault("HTTP 200 with content that is not text")
    counted = [n if isinstance(n, int) and not isinstance(n, bool) and n >= 0 else None for n in tokens]
    named = {"finish": choice.get("finish_reason"), "refusal": refusal, "served_model": document.get("model")}
    texts = {name: value if isinstance(value, str) else None for name, value in named.items()}
    return Answer(text or "", tokens_in=counted[0], tokens_out=counted[1], **texts)


Dialogue = Generator[Request, Answer | Failure, T]


class Asker:
    """Asks one model.

    Parameters
    ----------
    settings : the model, and how it is asked
    endpoint : base URL of an OpenAI-compatible API, such as ``http://localhost:8000/v1``
    cache : folder of the answers; ``cache/answers`` of the curation folder
    max_connections : requests under way at once
    prices : for the cost; without, it is None
    key_variable : environment variable of the endpoint's key; unset for an endpoint that needs none

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
        key_variable: str = KEY_VARIABLE,
    ) -> None:
        if max_connections < 1:
            raise ArgumentError("max_connections", "must be at least 1", max_connections)
        check_endpoint(endpoint, key_variable)
        self.settings, self.endpoint, self.key_variable = settings, endpoint, key_variable
        self.max_connections, self.retry_policy, self.prices = max_connections, retry_policy or RetryPolicy(), prices
        self.spent = Spending(cost=None if prices is None else Decimal(0))
        self._cache = AnswerCache(cache)
        self._used: dict[str, tuple[int | None, int | None, str | None]] = {}
        self._in_a_row = 0

    def hold(self, dialogues: Iterable[Dialogue[T]]) -> Iterator[T]:
        """Hold every dialogue, `max_connections` at once, and give their results as they come, in any order.

        Raises
        ------
        RunStoppedError
            If the key or the model is refused, requests in a row were not answered, or not one was.
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
                        running.add(runner.get_loop().create_task(self._held(dialogue, client, locks)))
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
        """What the answers amount to that were used so far, whichever run paid for them.

        The same after a run that was killed and done again; :attr:`spent` says what this process asked for. `cost` is
        exact, as text; it leaves out ``answers_without_usage``.
        """
        tokens_in = sum(used[0] or 0 for used in self._used.values())
        tokens_out = sum(used[1] or 0 for used in self._used.values())
        return {
            "answers": len(self._used),
            "answers_without_usage": sum(None in used[:2] for used in self._used.values()),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost": None if self.prices is None else f"{self.prices.cost(tokens_in, tokens_out).normalize():f}",
            "served_models": sorted({used[2] for used in self._used.values() if used[2]}),
        }

    def _n_answers(self) -> int:
        return self.spent.answered + self.spent.cached

    async def _held(self, dialogue: Dialogue[T], client: AsyncOpenAI, locks: dict[str, asyncio.Lock]) -> T:
        try:
            request = next(dialogue)
            while True:
                request = dialogue.send(await self._ask(request, client, locks))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _ask(self, request: Request, client: AsyncOpenAI, locks: dict[str, asyncio.Lock]) -> Answer | Failure:
        """From the cache, or else from the endpoint; the same question twice at once is asked once."""
        body = self.settings.body(request)
        key = content_key(body)
        async with locks.setdefault(key, asyncio.Lock()):
            outcome: Answer | Failure | None = self._cache.find(key)
            if outcome is not None:
                self.spent.cached += 1
            else:
                outcome = await self._sent(body, client)
                if isinstance(outcome, Answer):
                    self._cache.keep(key, outcome)
                    self._count(outcome)
        if isinstance(outcome, Answer):
            self._used[key] = (outcome.tokens_in, outcome.tokens_out, outcome.served_model)
        return outcome

    async def _sent(self, body: Mapping[str, Any], client: AsyncOpenAI) -> Answer | Failure:
        for n_failed in range(self.retry_policy.attempts):
            if n_failed:
                self.spent.retries += 1
            self.spent.requests += 1
            outcome = await _attempt(client, body, self.retry_policy.attempt_timeout)
            if isinstance(outcome, Answer):
                self._in_a_row = 0
                return outcome
            reason, status = self._without_key(outcome.reason), outcome.status
            if status in FINAL or (status or 500) < 400:
                raise RunStoppedError(
                    f"the endpoint refuses every request (key: ${self.key_variable}): {reason}", status
                )
            if not outcome.is_passing:
                break
            if n_failed + 1 < self.retry_policy.attempts:
                await asyncio.sleep(self.retry_policy.pause(n_failed + 1, outcome.asked_for))
        else:
            reason = f"{reason} in the last of {self.retry_policy.attempts} attempts"
        self.spent.failures += 1
        self._in_a_row += 1
        if self._in_a_row >= self.retry_policy.in_a_row:
            raise RunStoppedError(f"{self._in_a_row} requests in a row were not answered, the last: {reason}", status)
        return Failure(reason)

    def _count(self, answer: Answer) -> None:
        tokens_in, tokens_out = answer.tokens_in or 0, answer.tokens_out or 0
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
            api_key=os.environ.get(self.key_variable) or "none",  # the SDK wants one, an open endpoint does not look
            base_url=self.endpoint,
            max_retries=0,  # so that attempts are counted and bounded here
            timeout=None,  # an attempt as a whole is bounded, not each of its reads
            http_client=openai.DefaultAsyncHttpx2Client(
                follow_redirects=False, timeout=None, trust_env=is_sealed(self.endpoint)
            ),
        )
        # The SDK takes these from OPENAI_* variables, which were set for somebody else.
        client.organization = client.project = client.admin_api_key = None
        client._custom_headers = {}
        _ = client.chat.completions  # imports a good deal, which is not to be taken for a slow endpoint
        return client

    def _without_key(self, text: str) -> str:
        """Endpoints repeat the key in their messages."""
        key = os.environ.get(self.key_variable)
        return text.replace(key, "***") if key else text


async def _end(running: Iterable[asyncio.Task[Any]], client: AsyncOpenAI) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await client.close()


async def _attempt(client: AsyncOpenAI, body: Mapping[str, Any], seconds: float) -> Answer | Fault:
    import openai

    rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
    try:
        async with asyncio.timeout(seconds):
            response = await client.chat.completions.with_raw_response.create(
                model=body["model"], messages=body["messages"], extra_body=rest
            )
    except openai.APIStatusError as error:
        if names_content_filter(error.status_code, str(error)):
            return Answer("", finish="content_filter")
        return _refused(error)
    except (TimeoutError, openai.APITimeoutError):
        return Fault(f"no answer within {seconds:g} s")
    except openai.OpenAIError as error:
        return Fault(f"the connection broke ({type(error.__cause__ or error).__name__})")
    return read_completion(response.http_response.content)


def _refused(error: APIStatusError) -> Fault:
    status, said = error.status_code, error.body.get("message") if isinstance(error.body, dict) else None
    is_passing = status in PASSING or status >= 500
    # What an overloaded server says differs from time to time; why it refuses a request, does not.
    reason = f"HTTP {status}" + (f": {said[:200]}" if isinstance(said, str) and not is_passing else "")
    return Fault(reason, is_passing, status, retry_after(error.response.headers))
