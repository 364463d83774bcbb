"""Commands that ask models: ``reveal-bench run``, ``import-inspect``, ``export-lmms`` and ``import-lmms``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_bench import terminal
from reveal_bench.options import Folder, Price, Seed, prices_of

if TYPE_CHECKING:
    from reveal_bench.runner.exchanges import Exchange
    from reveal_bench.runner.outputs import RunInfo
    from reveal_bench.runner.questions import AskSettings

__all__ = ["export_lmms", "import_inspect", "import_lmms", "run"]


class Prompt(StrEnum):
    """How a model is asked."""

    ZERO_SHOT = "zero-shot"
    CHAIN_OF_THOUGHT = "chain-of-thought"
    FEW_SHOT = "few-shot"


class AnswerForm(StrEnum):
    """What it is asked for."""

    CELL = "cell"
    POINT = "point"
    BOX = "box"
    LABELS = "labels"
    TEXT = "text"


class Detail(StrEnum):
    """How finely an API is asked to look."""

    AUTO = "auto"
    LOW = "low"
    HIGH = "high"


AskedSplit = Annotated[str, typer.Option("--split", help="Split to ask about.", show_default=False)]
RunFolder = Annotated[Path, typer.Option("--out", help="Run folder to write, or to go on with.", show_default=False)]
PromptStyle = Annotated[Prompt, typer.Option("--prompt", help="Style of the prompt.")]
Answer = Annotated[AnswerForm | None, typer.Option(help="Form of the answers; by default a cell, labels or text.")]
Cells = Annotated[int | None, typer.Option("--grid", help="Cells per side; the folder's own by default.")]
Side = Annotated[int | None, typer.Option(help="Pixels of the picture's side; 256, or 1024 for whole pictures.")]
Shots = Annotated[int, typer.Option(min=1, help="Examples of a few-shot prompt.")]
ShotsSplit = Annotated[str | None, typer.Option(help="Split of the examples; `validation` if there is one.")]
DetailHint = Annotated[Detail, typer.Option(help="How finely an API is asked to look at pictures.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Ask only the first questions of the split.")]
Organization = Annotated[str, typer.Option(help="Who submits, for submission.json.")]


def run(
    folder: Folder,
    split: AskedSplit,
    model: Annotated[
        str | None, typer.Option(help="Model: openai/gpt-5, anthropic/..., or the name that --endpoint knows.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write, or to go on with.", show_default=False)] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Base URL of an OpenAI-compatible API; its key is read from REVEAL_MODEL_KEY.")
    ] = None,
    prompt: PromptStyle = Prompt.ZERO_SHOT,
    answer: Answer = None,
    grid: Cells = None,
    side: Side = None,
    shots: Shots = 3,
    shots_split: ShotsSplit = None,
    seed: Seed = 0,
    detail: DetailHint = Detail.HIGH,
    epochs: Annotated[int, typer.Option(min=1, max=100, help="How often every question is asked.")] = 1,
    limit: Limit = None,
    temperature: Annotated[str, typer.Option(help="A number; `none` sends none, for models that refuse it.")] = "0",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest reply.")] = None,
    reasoning_effort: Annotated[str | None, typer.Option(help="Of models that reason: low, medium, high.")] = None,
    model_seed: Annotated[int | None, typer.Option(help="Seed that is sent to the model.")] = None,
    max_connections: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 8,
    attempt_timeout: Annotated[int, typer.Option(min=1, help="Seconds until a request is given up.")] = 120,
    max_retries: Annotated[int, typer.Option(min=0, help="How often it is sent again.")] = 8,
    price_in: Price = None,
    price_out: Price = None,
    price_cached: Price = None,
    log_images: Annotated[bool, typer.Option("--log-images", help="Keep the pictures in the logs, too.")] = False,
    ask_again: Annotated[bool, typer.Option("--ask-again", help="Ask again what failed in an earlier run.")] = False,
    organization: Organization = "not stated",
    dry_run: Annotated[
        Path | None, typer.Option(help="Ask nobody: write all messages and pictures to this new folder.")
    ] = None,
) -> None:
    """Ask a multimodal model every question of a split, and write its predictions, its words and its cost.

    A run that was interrupted or killed goes on where it stopped when the same command is given again. A question
    without a usable answer is a miss when the predictions are scored. The pictures go to the model and nowhere else:
    check that your data use agreement allows that.
    """
    settings = _settings(folder, answer, prompt, grid, side, shots, shots_split, seed, detail)
    if dry_run is not None:
        _rehearse(folder, split, settings, dry_run, limit)
        return
    if model is None or out is None:
        raise ValueError("`--model` and `--out` must be given, or `--dry-run`")
    from reveal_bench.runner.running import ModelChoice, run_model

    prices = prices_of(price_in, price_out, price_cached)
    choice = ModelChoice(
        model,
        endpoint=endpoint,
        temperature=_temperature(temperature),
        max_tokens=max_tokens,
        reasoning_effort=reasoning_effort,
        seed=model_seed,
        max_connections=max_connections,
        attempt_timeout=attempt_timeout,
        max_retries=max_retries,
        log_images=log_images,
    )
    with terminal.progress("asking") as progress:
        summary = run_model(
            folder,
            split,
            out,
            settings,
            choice,
            epochs=epochs,
            limit=limit,
            prices=prices,
            ask_again=ask_again,
            organization=organization,
            progress=progress,
        )
    terminal.print_run(summary)
    _say_where(out, epochs, folder, split)


def _settings(
    folder: Path,
    answer: AnswerForm | None,
    prompt: Prompt,
    grid: int | None,
    side: int | None,
    shots: int,
    shots_split: str | None,
    seed: int,
    detail: Detail,
) -> AskSettings:
    from reveal_bench.runner.questions import AskSettings

    return AskSettings.of_folder(
        folder,
        form=None if answer is None else answer.value,
        style=prompt.value,
        grid=grid,
        side=side,
        shots=shots,
        shots_split=shots_split,
        seed=seed,
        detail=detail.value,
    )


def _temperature(text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`--temperature` must be a number or `none`, got {text!r}") from None


def _rehearse(folder: Path, split: str, settings: AskSettings, out: Path, limit: int | None) -> None:
    from reveal_bench.runner.pictures import FolderPictures
    from reveal_bench.runner.prompts import compose
    from reveal_bench.runner.questions import list_questions
    from reveal_bench.runner.rehearsal import rehearse
    from reveal_bench.runner.shots import ShotPool

    questions = list_questions(folder, split, settings, limit=limit)
    pictures = FolderPictures(folder)
    pool = ShotPool(folder, settings) if settings.shots else None
    count = rehearse(
        out,
        questions,
        settings,
        lambda question: compose(
            question, settings, pictures=pictures, shots=() if pool is None else pool.pick(question)
        ),
    )
    typer.echo(
        f"wrote {count.questions:,} questions to {out}: {count.messages:,} messages with {count.pictures:,} pictures, "
        f"{count.bytes_sent / 1e6:,.1f} MB to send; look at {out / 'index.html'}"
    )


def _say_where(out: Path, epochs: int, folder: Path, split: str) -> None:
    from reveal_bench.runner.outputs import prediction_files

    for name in prediction_files(epochs):
        typer.echo(f"wrote {out / name}")
    first = out / prediction_files(epochs)[0]
    typer.echo(f"score: reveal-bench score {first} {folder} --split {split} --allow-missing")


def import_inspect(
    logs: Annotated[list[Path], typer.Argument(help="Logs of inspect_ai, or folders of them.", show_default=False)],
    out: RunFolder,
    price_in: Price = None,
    price_out: Price = None,
    price_cached: Price = None,
    organization: Organization = "not stated",
) -> None:
    """Turn logs of `inspect eval reveal_bench/...` into a run folder: predictions, transcript, submission.json."""
    from dataclasses import replace

    from reveal_bench.runner.logs import import_logs

    prices = prices_of(price_in, price_out, price_cached)
    info, exchanges = import_logs(logs)
    _write(replace(info, prices=prices) if prices is not None else info, exchanges, out, organization)


def export_lmms(
    folder: Folder,
    split: AskedSplit,
    out: Annotated[Path, typer.Option(help="New folder for the task files.", show_default=False)],
    prompt: PromptStyle = Prompt.ZERO_SHOT,
    answer: Answer = None,
    grid: Cells = None,
    side: Side = None,
    shots: Shots = 3,
    shots_split: ShotsSplit = None,
    seed: Seed = 0,
    limit: Limit = None,
) -> None:
    """Write the questions of a split as tasks of lmms-eval, for models that run there; they hold the pictures."""
    from reveal_bench.runner.lmms import export_tasks

    settings = _settings(folder, answer, prompt, grid, side, shots, shots_split, seed, Detail.AUTO)
    task = export_tasks(folder, split, out, settings, limit=limit).stem
    typer.echo(f"wrote the task {task} to {out}; how to run and import it: {out / 'README.md'}")


def import_lmms(
    samples: Annotated[list[Path], typer.Argument(help="Files of --log_samples, or folders.", show_default=False)],
    tasks: Annotated[Path, typer.Option(help="The folder that `export-lmms` wrote.", show_default=False)],
    out: RunFolder,
    model: Annotated[str | None, typer.Option(help="Name to publish; that in lmms-eval's results by default.")] = None,
    organization: Organization = "not stated",
) -> None:
    """Turn what lmms-eval logged into a run folder: predictions, transcript, submission.json."""
    from reveal_bench.runner.lmms import import_samples

    _write(*import_samples(samples, tasks, model=model), out, organization)


def _write(info: RunInfo, exchanges: list[Exchange], out: Path, organization: str) -> None:
    from reveal_bench.runner.outputs import prediction_files, write_outputs

    terminal.print_run(write_outputs(out, exchanges, info, organization=organization))
    for name in prediction_files(info.epochs):
        typer.echo(f"wrote {out / name}")
