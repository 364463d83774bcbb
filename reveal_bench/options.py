"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reveal_bench.prices import Prices

Folder = Annotated[Path, typer.Argument(help="Dataset folder, as `build` writes it.", show_default=False)]
PredictionFile = Annotated[Path, typer.Argument(help="Prediction file of any accepted format.", show_default=False)]
Split = Annotated[str, typer.Option(help="Split of the dataset folder.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
AllowMissing = Annotated[bool, typer.Option("--allow-missing", help="Count unanswered questions as misses.")]
GridSize = Annotated[int | None, typer.Option("--grid", help="Cells per side; the folder's own by default.")]
Resamples = Annotated[int, typer.Option(min=1, max=100_000, help="Bootstrap replicates.")]
ResamplingUnit = Annotated[str, typer.Option(help="What is resampled: patient or image.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Price = Annotated[str | None, typer.Option(help="Price of a million tokens, for the cost.")]


def prices_of(price_in: str | None, price_out: str | None, price_cached: str | None = None) -> Prices | None:
    """Prices as they were typed; None if there are none.

    Raises
    ------
    ValueError
        If one is there without the other, or is no number of at least 0.
    """
    if price_in is None or price_out is None:
        if (price_in, price_out, price_cached) != (None, None, None):
            raise ValueError("give both of `--price-in` and `--price-out`, or neither")
        return None
    from reveal_bench.prices import Prices

    try:
        return Prices.from_text(price_in, price_out, price_cached)
    except ValueError as error:
        raise ValueError(str(error).replace("tokens_", "--price-")) from None


def check_outside_datasets(out: Path, option: str) -> None:
    """Raise ValueError if `out` lies in a dataset folder: what is written there may be published with it."""
    for place in (out.resolve(), *out.resolve().parents):
        if (place / "manifest" / "benchmark.json").is_file():
            raise ValueError(f"`{option}` must not lie in a dataset folder, which may be published, got {out}")
