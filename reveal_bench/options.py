"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="Dataset folder, as `build` writes it.", show_default=False)]
PredictionFile = Annotated[Path, typer.Argument(help="Prediction file of any accepted format.", show_default=False)]
Split = Annotated[str, typer.Option(help="Split of the dataset folder.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
AllowMissing = Annotated[bool, typer.Option("--allow-missing", help="Count unanswered questions as misses.")]
GridSize = Annotated[int | None, typer.Option("--grid", help="Cells per side; the folder's own by default.")]
Resamples = Annotated[int, typer.Option(min=1, max=100_000, help="Bootstrap replicates.")]
ResamplingUnit = Annotated[str, typer.Option(help="What is resampled: patient or image.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
