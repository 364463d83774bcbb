"""How the ``curate`` commands ask a model: their options, and what becomes of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reveal_bench.options import prices_of

if TYPE_CHECKING:
    from reveal_bench.curation.asking import Asker
    from reveal_bench.curation.folder import CurationFolder
    from reveal_bench.curation.reports import Engine

__all__ = ["Calls", "Connections", "Endpoint", "Model", "ModelOptions", "asker_of", "engine_of", "spent"]

Model = Annotated[str | None, typer.Option(help="Ask this model, by the name that --endpoint knows.")]
Endpoint = Annotated[
    str | None, typer.Option(help="Base URL of an OpenAI-compatible API; its key is read from REVEAL_MODEL_KEY.")
]
ModelOptions = Annotated[
    str | None,
    typer.Option(help="How the model is asked, as JSON: temperature, seed, max_tokens, structure, extra."),
]
Connections = Annotated[int, typer.Option(min=1, help="Requests to the model at once.")]


class Calls(StrEnum):
    """How a model is asked about a report."""

    TWO = "two"
    ONE = "one"


def engine_of(asker: Asker | None, calls: Calls) -> Engine:
    """What reads reports: a model, or rules."""
    from reveal_bench.curation.rules import Rules

    if asker is None:
        return Rules()
    from reveal_bench.curation.model_engine import ModelEngine

    return ModelEngine(asker, calls.value)


def asker_of(
    folder: CurationFolder,
    model: str | None,
    endpoint: str | None,
    options: str | None,
    connections: int,
    price_in: str | None,
    price_out: str | None,
) -> Asker | None:
    """Who asks the model; None if none is named.

    Raises
    ------
    ValueError
        If an option breaks its rule, or needs another.
    """
    if model is None:
        if endpoint is not None or options is not None:
            raise ValueError("`--endpoint` and `--model-options` need `--model`")
        return None
    if endpoint is None:
        raise ValueError("`--model` needs `--endpoint`: reports go nowhere that was not named")
    from reveal_bench.curation.asking import Asker
    from reveal_bench.curation.model_settings import ModelSettings

    prices = prices_of(price_in, price_out)
    settings = ModelSettings(model, **_json_object("--model-options", options))
    cache = folder.path(os.path.join("cache", "answers"))
    return Asker(settings, endpoint, cache, max_connections=connections, prices=prices)


def _json_object(option: str, text: str | None) -> dict[str, Any]:
    from reveal_bench.curation.model_settings import ModelSettings

    known = [field.name for field in fields(ModelSettings) if field.name != "model"]
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"`{option}` must be JSON: {error}") from None
    if not isinstance(found, dict) or not found.keys() <= set(known):
        raise ValueError(f"`{option}` must be an object with {', '.join(known)}, got {text}")
    return found


def spent(asker: Asker) -> dict[str, Any]:
    """What this run asked and paid; what was asked before is in the cache, and free."""
    return asdict(asker.spent)
