"""``reveal-leaderboard gallery``: the cases of a released split, prepared for the board's page of cases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["gallery"]


def gallery(
    benchmark: Annotated[str, typer.Argument(help="Name of the board's benchmark.", show_default=False)],
    dataset: Annotated[
        Path, typer.Option(help="Its public dataset folder, with pictures.", exists=True, file_okay=False)
    ],
    out: Annotated[Path, typer.Option(help="New or empty folder, for `serve --gallery`.", show_default=False)],
    split: Annotated[str, typer.Option(help="Split whose references are public.")] = "released",
    predictions: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="Answers of a system; once per system.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Cases to show, spread over the split; all by default.")
    ] = None,
    max_side: Annotated[int, typer.Option(min=64, help="Longer side of a film in pixels.")] = 2048,
) -> None:
    """Prepare films, references and answers of released cases to be looked at. Mind the licence of the films."""
    from reveal_bench.cli import output as terminal
    from reveal_bench.evaluation.score import LintError
    from reveal_bench.kinds.folder import read_folder_info
    from reveal_bench.viewer.gallery import named_files, prepare_gallery
    from reveal_bench.viewer.serving import Gallery
    from reveal_leaderboard.boards.galleries import check_gallery, private_manifests

    try:
        if (found := read_folder_info(dataset).benchmark) != benchmark:
            raise typer.BadParameter(f"must be a folder of {benchmark}, got one of {found}", param_hint="--dataset")
        with terminal.progress("preparing") as bar:
            n = prepare_gallery(
                dataset, split, named_files(predictions or []), out, max_side=max_side, most=most,
                progress=lambda done, total: bar("preparing", done, total),
            )  # fmt: skip
        check_gallery(Gallery(out), private_manifests(dataset))
    except LintError as error:
        typer.echo(error.report.render(), err=True)
        raise typer.BadParameter(str(error), param_hint="--predictions") from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(f"{out}: {n:,} cases. Show them with `reveal-leaderboard serve --gallery {out} ...`.")
