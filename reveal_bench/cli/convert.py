"""The command ``convert``: references and predictions to the forms of annotation tools, and back."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import Folder

__all__ = ["ExchangeForm", "convert"]


class ExchangeForm(StrEnum):
    """What annotations can be written as and read from, the keys of :data:`reveal_bench.exchange.FORMS`."""

    COCO = "coco"
    CVAT = "cvat"
    LABEL_STUDIO = "label-studio"
    FIFTYONE = "fiftyone"
    DICOM_SEG = "dicom-seg"
    DICOM_SR = "dicom-sr"


def convert(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="New folder to write, or the prediction file that --from makes.")],
    split: Annotated[str, typer.Option(help="Split of the dataset.")] = "released",
    to: Annotated[ExchangeForm | None, typer.Option(help="Form to write.", show_default=False)] = None,
    source: Annotated[ExchangeForm | None, typer.Option("--from", help="Form to read.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option(help="File or folder to read, with --from.", exists=True)] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Prediction file to write, with --to; the references unless given.", exists=True)
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Write the pictures too, with --to.")] = True,
    reader: Annotated[str | None, typer.Option(help="Whose drawings to read, with --from.")] = None,
) -> None:
    """Write references or predictions for annotation tools; read annotations as a prediction file."""
    from reveal_bench.exchange.convert import from_form, to_form

    if (to is None) == (source is None):
        raise ArgumentError("to", "must be given, or `source`, and not both", others=("source",))
    if to is not None:
        done = to_form(to.value, folder, split, out, predictions=predictions, with_pictures=pictures)
        what = [f"{done.n_images} images", f"{done.n_pictures} pictures"]
    else:
        if file is None:
            raise ArgumentError("file", "must be given with `source`", others=("source",))
        done = from_form(str(source), file, folder, split, out, reader=reader)
        what = []
    what += [f"{done.n_drawings} drawings"] * bool(done.n_drawings) + [f"labels of {done.n_studies} studies"] * bool(
        done.n_studies
    )
    typer.echo(f"{out}: {', '.join(what) or 'nothing'}, by {', '.join(done.readers) or 'nobody'}")
    terminal.warn([f"not kept: {told}" for told in done.lost])
