"""What is asked of a model, how and how patiently: the settings of :mod:`reveal_bench.curation.asking`.

Conventions
-----------
Times are seconds, costs are exact decimals. Nothing here touches the network.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

__all__ = ["Failure", "ModelSettings", "Patience", "Request", "Spending"]


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
            raise ValueError("`model` must name a model, got a blank")
        if self.structure not in ("schema", "object", "none"):
            raise ValueError(f'`structure` must be "schema", "object" or "none", got {self.structure!r}')
        taken = {"model", "messages", "response_format", "stream", "n"} & set(self.extra)
        if taken:
            raise ValueError(f"`extra` must not set {', '.join(sorted(taken))}")

    def document(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {
            "model": self.model,
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "structure": self.structure,
            "extra": dict(self.extra),
        }

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
class Patience:
    """How long and how often; times in seconds.

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
            raise ValueError("`attempt_timeout` must be positive, and 0 <= `first_pause` <= `longest_pause`")

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
