"""The command ``export``: a receipt or a score document in the forms that other systems, papers and checklists take."""

from __future__ import annotations

import hashlib
import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.board import read_json, read_key

if TYPE_CHECKING:
    from reveal_bench.results.checklists import Recorded
    from reveal_bench.results.facts import Result

__all__ = ["Form", "export"]


class Form(StrEnum):
    """What a result can be written as."""

    EVAL_RESULTS = "eval-results"
    EVERY_EVAL_EVER = "every-eval-ever"
    LATEX = "latex"
    MARKDOWN = "markdown"
    CLAIM = "claim"
    TRIPOD_LLM = "tripod-llm"


def export(
    file: Annotated[Path, typer.Argument(help="Receipt, or output of `score --json`.", show_default=False)],
    to: Annotated[Form, typer.Option(help="Form to write.", show_default=False)],
    model: Annotated[str | None, typer.Option(help="Name of the model; a receipt has its own.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to show; by default the one that ranks.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY|FILE", help="Public key that the leaderboard published, or a file that holds it."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Hub repository of the dataset, organization/name.")] = None,
    revision: Annotated[str | None, typer.Option(help="Commit of that repository (eval-results).")] = None,
    url: Annotated[str | None, typer.Option(help="Where the result is shown (eval-results, every-eval-ever).")] = None,
    organization: Annotated[str | None, typer.Option(help="Who ran the evaluation (every-eval-ever).")] = None,
    folder: Annotated[Path | None, typer.Option(help="Dataset folder, for its card (claim, tripod-llm).")] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder of the predictions (claim, tripod-llm).")] = None,
) -> None:
    """Print a result for others: model page, record, row of a paper, facts of a checklist; no false receipt."""
    from reveal_bench.results import checklists, paper, registries
    from reveal_bench.results.facts import read_result

    result = read_result(file, model=model, trusted_key=None if key is None else read_key(key))
    if result.receipt is not None and key is None:
        terminal.warn(["the signature holds, by the key inside the receipt: give --key, one that the board published"])
    match to:
        case Form.EVAL_RESULTS:
            if dataset is None:
                raise typer.BadParameter("--dataset is needed: the repository that the result is shown at")
            text = registries.eval_results(result, dataset=dataset, metric=metric, revision=revision, url=url)
        case Form.EVERY_EVAL_EVER:
            record = registries.every_eval_ever(
                result, at=time.time(), organization=organization, dataset=dataset, url=url
            )
            text = json.dumps(record, indent=2)
        case Form.LATEX:
            text = paper.latex_table(result, metric)
        case Form.MARKDOWN:
            text = paper.markdown_table(result, metric)
        case Form.CLAIM:
            text = checklists.claim_table(_recorded(result, folder, run))
        case Form.TRIPOD_LLM:
            text = checklists.tripod_llm_table(_recorded(result, folder, run))
    typer.echo(text.rstrip("\n"))


def _recorded(result: Result, folder: Path | None, run: Path | None) -> Recorded:
    from reveal_bench.kinds.folder import read_folder_info
    from reveal_bench.results.checklists import Recorded

    info = None if folder is None else read_folder_info(folder)
    if run is None:
        return Recorded(result, info)
    return Recorded(result, info, *_run_facts(run, result.file_sha256))


def _run_facts(run: Path, file_sha256: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run folder records, if the result is of one of its prediction files."""
    from reveal_bench.models.run_folder import RUN, SUMMARY, prediction_files, read_run_info

    info = read_run_info(run)
    if info is None:
        raise ArgumentError("run", "must be a run folder", run)
    made = [run / name for name in prediction_files(info.epochs)]
    if file_sha256 not in {hashlib.sha256(path.read_bytes()).hexdigest() for path in made if path.is_file()}:
        raise ArgumentError("run", f"must have made the predictions, whose SHA-256 is {file_sha256}", run)
    return read_json(run / RUN), read_json(run / SUMMARY)
