"""Exact cost of the tokens that a model reads and writes.

Prices and costs are decimals in a single currency, never binary fractions, so that a cost equals tokens times price to
the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from reveal_bench.arguments import ArgumentError


@dataclass(frozen=True)
class Prices:
    """Prices per million tokens.

    Parameters
    ----------
    tokens_in, tokens_out : price of tokens sent and of tokens received, including hidden reasoning
    tokens_cached : price of tokens sent that were in the provider's cache; None if cached tokens cost the same as
        others

    Raises
    ------
    ValueError
        If a price is not a finite Decimal of at least 0.

    Examples
    --------
    >>> Prices(Decimal("2.50"), Decimal("10")).cost(1000, 30)
    Decimal('0.00280000')
    >>> Prices(Decimal("2.50"), Decimal("10"), Decimal("0.25")).cost(1000, 30, tokens_cached=800)
    Decimal('0.00100000')
    """

    tokens_in: Decimal
    tokens_out: Decimal
    tokens_cached: Decimal | None = None

    def __post_init__(self) -> None:
        for name in ("tokens_in", "tokens_out", "tokens_cached"):
            price = getattr(self, name)
            if price is None and name == "tokens_cached":
                continue
            if not (isinstance(price, Decimal) and price.is_finite() and price >= 0):
                raise ArgumentError(name, "must be a Decimal of at least 0", repr(price))

    @classmethod
    def from_text(cls, tokens_in: str, tokens_out: str, tokens_cached: str | None = None) -> Prices:
        """Parse prices from texts as users type them.

        Raises
        ------
        ValueError
            If a text is not a number of at least 0.
        """
        return cls(
            _decimal("tokens_in", tokens_in),
            _decimal("tokens_out", tokens_out),
            None if tokens_cached is None else _decimal("tokens_cached", tokens_cached),
        )

    def cost(self, tokens_in: int, tokens_out: int, *, tokens_cached: int = 0) -> Decimal:
        """Return the cost of the tokens; `tokens_cached` is the number of `tokens_in` that came from the cache."""
        price = self.tokens_in if self.tokens_cached is None else self.tokens_cached
        fresh = tokens_in - tokens_cached
        return (fresh * self.tokens_in + tokens_cached * price + tokens_out * self.tokens_out).scaleb(-6)

    def document(self) -> dict[str, Any]:
        """Return the prices as JSON values, with decimals as text."""
        cached = None if self.tokens_cached is None else str(self.tokens_cached)
        return {"tokens_in": str(self.tokens_in), "tokens_out": str(self.tokens_out), "tokens_cached": cached}


def _decimal(name: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ArgumentError(name, "must be a number", repr(text)) from None
