"""Commands that collect models' answers: ``run`` asks a model, ``import-inspect``, ``export-lmms`` and ``import-lmms``
use other harnesses, ``import-replies`` reads saved replies, and ``draft-ratings`` asks a model to rate answers.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.convert import TheirColumns, by_their_names
from reveal_bench.cli.curate import (
    ANSWERS,
    Connections,
    Model,
    ModelOptions,
    client_of,
    counted,
    read_model_options,
)
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import (
    Endpoint,
    Findings,
    Folder,
    GridSize,
    PriceCached,
    PriceIn,
    PriceOut,
    Seed,
    check_outside_datasets,
    prices_of,
)
from reveal_bench.cli.report import labelled

if TYPE_CHECKING:
    from reveal_bench.curation.film_grader import FilmGrader
    from reveal_bench.kinds.folder import AnyFolder
    from reveal_bench.models.endpoints import RunStoppedError
    from reveal_bench.models.questions import AskSettings
    from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, RunSummary

AskedSplit = Annotated[str, typer.Option("--split", help="Split whose questions are asked.", show_default=False)]
RunFolder = Annotated[Path, typer.Option("--out", help="Run folder to write or resume.", show_default=False), OUTPUT]
PromptStyle = Annotated[
    Literal["zero-shot", "chain-of-thought", "few-shot"], typer.Option("--prompt", help="Style of the prompt.")
]
Answer = Annotated[
    Literal["cell", "point", "box", "boxes", "labels", "text"] | None,
    typer.Option(help="Format of the answers; by default a cell, boxes with scores, labels or text."),
]
Side = Annotated[
    int | None, typer.Option(help="Side of the image in pixels; by default 256, or 1024 for whole images.")
]
Shots = Annotated[int, typer.Option(min=1, help="Number of examples in a few-shot prompt.")]
ShotsSplit = Annotated[str | None, typer.Option(help="Split of the examples; by default `validation` if it exists.")]
Views = Annotated[
    Literal["all", "one"],
    typer.Option(help="Images per study: all, or one (PA, otherwise AP) and one of the prior study."),
]
Coordinates = Annotated[
    str,
    typer.Option(
        help="Meaning of an answer's numbers: pixels, fractions, percent, thousandths-xy, thousandths-yx, pixels-N."
    ),
]
Corners = Annotated[
    bool | None,
    typer.Option(
        "--corners/--sizes", help="Boxes as two corners, or as a corner with width and height (default for pixels)."
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Ask only the first questions of the split. `score` then needs the run folder."),
]
Organization = Annotated[str, typer.Option(help="Submitter's name, for submission.json.")]
_REPLY_CHARACTERS = 160


def run(
    folder: Folder,
    split: AskedSplit,
    model: Annotated[
        str | None, typer.Option(help="Model: openai/gpt-5, anthropic/..., or its name at --endpoint.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write or resume.", show_default=False), OUTPUT] = None,
    label: Annotated[str | None, typer.Option(help="Published name of the model; by default --model.")] = None,
    endpoint: Endpoint = None,
    prompt: PromptStyle = "zero-shot",
    answer: Answer = None,
    findings: Findings = None,
    grid: GridSize = None,
    side: Side = None,
    shots: Shots = 3,
    shots_split: ShotsSplit = None,
    seed: Seed = 0,
    detail: Annotated[
        Literal["auto", "low", "high"], typer.Option(help="Image detail to request; `auto` sends none to an endpoint.")
    ] = "high",
    system: Annotated[
        Literal["message", "user"],
        typer.Option(help="Put the system text in its own message or, without a system role, in the user's."),
    ] = "message",
    coordinates: Annotated[
        str,
        typer.Option(
            help="Meaning of numbers in answers: pixels, fractions, percent, thousandths-xy, thousandths-yx, pixels-N; "
            "or auto, which first asks the model about test drawings."
        ),
    ] = "pixels",
    corners: Corners = None,
    views: Views = "all",
    control: Annotated[
        list[str] | None,
        typer.Option(
            help="Also ask all questions with one change; repeatable: no-image, blank, other-patient, "
            "occluded-finding, without-finding, mirrored, occluded-elsewhere, paraphrase."
        ),
    ] = None,
    counterfactuals: Annotated[
        Path | None, typer.Option(help="Folder of phantom images with one finding removed, for `without-finding`.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, max=100, help="Number of times that every question is asked.")] = 1,
    limit: Limit = None,
    temperature: Annotated[
        str, typer.Option(help="Sampling temperature; `none` sends none, for models that refuse it.")
    ] = "0",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest reply.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Probability mass to sample from, 0 to 1.")] = None,
    reasoning_effort: Annotated[
        str | None, typer.Option(help="Effort of reasoning models: low, medium or high.")
    ] = None,
    extra_body: Annotated[
        str | None, typer.Option(help="JSON object to add to every request, such as the server's own parameters.")
    ] = None,
    model_seed: Annotated[int | None, typer.Option(help="Seed to send to the model.")] = None,
    max_connections: Annotated[int, typer.Option(min=1, help="Concurrent requests.")] = 8,
    attempt_timeout: Annotated[int, typer.Option(min=1, help="Timeout of a request in seconds.")] = 120,
    max_retries: Annotated[int, typer.Option(min=0, help="Maximum number of times that a request is repeated.")] = 8,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    log_images: Annotated[bool, typer.Option("--log-images", help="Also keep the images in the logs.")] = False,
    ask_again: Annotated[
        bool, typer.Option("--ask-again", help="Ask again the questions that failed in an earlier run.")
    ] = False,
    organization: Organization = "not stated",
    dry_run: Annotated[
        Path | None, typer.Option(help="Send nothing; write all messages and images to this new folder."), OUTPUT
    ] = None,
) -> None:
    """Ask a multimodal model all questions of a split, and write its predictions, replies and cost.

    A run that was interrupted or killed resumes when you repeat the same command. Questions without a usable answer are
    misses when the predictions are scored. The images are sent to the model only: check that your data use agreement
    allows this.
    """
    from reveal_bench.models.questions import AskSettings

    settings = AskSettings.of_folder(
        folder,
        form=answer,
        style=prompt,
        grid=grid,
        side=side,
        shots=shots,
        shots_split=shots_split,
        seed=seed,
        detail=detail,
        coordinates=coordinates,
        corners=corners,
        views=views,
        system=system,
    )
    asked = terminal.asked_part(folder, split, findings, None, [])
    part: AnyFolder = asked if isinstance(asked, Path) else asked.dataset
    if dry_run is not None:
        if coordinates == "auto":
            raise ValueError(
                "`--coordinates` must name a convention with `--dry-run`, because no model is asked, got auto"
            )
        if len(control or []) > 1:
            raise ValueError("`--control` must be given at most once with `--dry-run`")
        settings = replace(settings, control=control[0] if control else None)
        _check_place(dry_run, "--dry-run", "must be new or empty: nothing is overwritten")
        _rehearse(part, split, settings, dry_run, limit, counterfactuals)
        return
    if model is None or out is None:
        raise ValueError("`--model` and `--out` must be given, or `--dry-run`")
    from reveal_bench.models.endpoints import RunStoppedError, check_reachable
    from reveal_bench.models.running import ModelChoice, run_controls, run_model

    _warn_of_coordinates(model, settings)
    prices = prices_of(price_in, price_out, price_cached)
    choice = ModelChoice(
        model,
        endpoint=endpoint,
        label=label,
        temperature=_temperature(temperature),
        max_tokens=max_tokens,
        top_p=top_p,
        reasoning_effort=reasoning_effort,
        extra_body=_json_object(extra_body),
        seed=model_seed,
        max_connections=max_connections,
        attempt_timeout=attempt_timeout,
        max_retries=max_retries,
        log_images=log_images,
    )
    _check_place(out, "--out", "must be new, empty, or the folder of a run to continue", run=True)
    if endpoint is not None and (ask_again or not _is_complete(out)):
        check_reachable(endpoint)
    for name in control or ():
        replace(settings, control=name)  # check before asking any question
    try:
        with terminal.progress("asking") as progress:
            options: dict[str, Any] = {"epochs": epochs, "limit": limit, "prices": prices, "ask_again": ask_again}
            options |= {"organization": organization, "progress": progress}
            summary = run_model(part, split, out, settings, choice, **options)
            options["counterfactuals"] = counterfactuals
            under = run_controls(part, split, out, choice, control or (), **options)
    except KeyboardInterrupt:
        terminal.say(f"stopped; answers are kept in {out}: repeat the command to continue", err=True)
        raise typer.Exit(130) from None
    except RunStoppedError as error:
        raise RunStoppedError(f"{error}\n{_remedy(error, endpoint)}", error.status) from None
    terminal.print_run(summary)
    _say_unanswered(out)
    drawings = _say_coordinates(out)
    for name, outcome in under.items():
        answered = outcome.by_status.get("answered", 0)
        of_all = f"{answered:,} of {outcome.n_expected:,} answered"
        terminal.say(f"control {name}: {of_all}; {terminal.usage_text(outcome)}")
    costs = [one.cost for one in (summary, *drawings, *under.values()) if one.cost is not None]
    if len(costs) > 1:
        terminal.say(f"total cost: {sum(costs, Decimal()).normalize():f}")
    if under:
        terminal.say(f"compare controls: reveal-bench report {out} --folder {folder} --out REPORT")
    _say_where(out, epochs, folder, split, is_text=settings.form == "text")


def _warn_of_coordinates(model: str, settings: AskSettings) -> None:
    """Warn if a model is known to use another coordinate convention than the requested one."""
    from reveal_bench.models.coordinates import AUTO, known_model
    from reveal_bench.models.questions import PLACED

    known, asked = known_model(model), settings.coordinates
    if known is None or settings.form not in PLACED or asked == AUTO or known.names(asked):
        return
    warning = f"{known.family} is known to answer in {known.coordinates} ({known.source})"
    terminal.warn([f"{warning}, but {asked} are requested: try --coordinates auto"])


def _say_unanswered(out: Path) -> None:
    """Print how many questions have no usable answer and why, one such reply, and where all replies are."""
    from reveal_bench.models.run_folder import TRANSCRIPT, read_run
    from reveal_bench.words import count_text

    run = read_run(out)
    unanswered = [one for one in run.exchanges if one.status not in ("answered", "absent")]
    if not unanswered:
        return
    counts = Counter(one.status.replace("_", " ") for one in unanswered).most_common()
    reasons = ", ".join(f"{n:,} {status}" for status, n in counts)
    n_asked = count_text(len(run.exchanges), "question")
    terminal.say(f"no usable answer to {len(unanswered):,} of {n_asked}: {reasons}; all replies: {out / TRANSCRIPT}")
    one = max(unanswered, key=lambda one: (bool(one.text or one.error), dict(counts)[one.status.replace("_", " ")]))
    reply = shorten(one.text or one.error or "", _REPLY_CHARACTERS, placeholder=" ...")
    terminal.say(f"example ({one.status.replace('_', ' ')}): {reply!r}" + (f" ({one.note})" if one.note else ""))


def _say_coordinates(out: Path) -> list[RunSummary]:
    """Print the coordinates that drawings showed, if any; return the counts of these drawings."""
    from reveal_bench.models.run_folder import read_run

    run = read_run(out)
    calibration, drawings = run.info.calibration, run.drawings
    if calibration is None or drawings is None:
        return []
    n, how = calibration.hits[calibration.key], " as corners" if calibration.corners else ""
    by = f"by {n} of {len(calibration.answers)} drawings"
    terminal.say(f"coordinates: {calibration.coordinates}{how}, {by}; {terminal.usage_text(drawings)}")
    return [drawings]


def _check_place(out: Path, option: str, rule: str, *, run: bool = False) -> None:
    """Raise ValueError before the first question if `out` is not writable, has unexpected files, or is in a dataset."""
    check_outside_datasets(out, option)
    try:
        there = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.exists() else set()
        if there and not (run and there & {"run.json", "logs"}):
            raise ValueError(f"`{option}` {rule}, got {out}, which contains {min(there)}")
        if run:
            out.mkdir(parents=True, exist_ok=True)
            (out / ".writable").touch()
            (out / ".writable").unlink()
    except OSError as error:
        raise ValueError(f"`{option}` must be a writable folder, got {out}: {error.strerror}") from None


def _is_complete(out: Path) -> bool:
    """Return True if an earlier run asked all questions, so that its files can be rewritten without the model."""
    from reveal_bench.models.run_folder import read_run

    try:
        return "not_asked" not in read_run(out).summary.by_status
    except ValueError:
        return False


_REMEDIES = {
    r"system role|roles must alternate": "--system user",
    r"image_url\W{1,4}detail": "--detail auto",
    r"\btemperature\b": "--temperature none",
    r"max_completion_tokens": "--extra-body '{\"max_completion_tokens\": N}' instead of --max-tokens",
}
"""Wording of a refused request -> the option to use."""


def _remedy(error: RunStoppedError, endpoint: str | None) -> str:
    """Return advice for a stopped run, by the HTTP status and wording of the last response."""
    from reveal_bench.models.endpoints import KEY_VARIABLE

    status = error.status
    again = "then repeat the command with --ask-again, which also asks the failed questions again"
    if status in (401, 403):
        if endpoint is None:
            return f"check the provider's key and its permissions; {again}"
        state = "is set, check its value" if os.environ.get(KEY_VARIABLE) else "is not set"
        return f"the key is read from {KEY_VARIABLE}, which {state}; {again}"
    if status == 402:
        return f"the account has no credit left: pay or choose another; {again}"
    if status == 404:
        path = " and --endpoint (it usually ends in /v1)" if endpoint is not None else ""
        return f"check the name in --model{path}; {again}"
    if status is None:  # unreachable or disconnected, so pending questions count as not asked
        return "answers are kept: fix the problem, then repeat the command, which asks only the remaining questions"
    options = [option for pattern, option in _REMEDIES.items() if re.search(pattern, str(error), re.IGNORECASE)]
    return f"use {options[0]}, in a new folder" if options else f"fix the problem with the model; {again}"


def _temperature(text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`--temperature` must be a number or `none`, got {text!r}") from None


def _json_object(text: str | None) -> dict[str, Any] | None:
    try:
        value = None if text is None else json.loads(text)
    except ValueError:
        value = text
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"`--extra-body` must be a JSON object, such as '{{\"top_k\": 1}}', got {text!r}")
    return value


def _rehearse(
    part: AnyFolder, split: str, settings: AskSettings, out: Path, limit: int | None, counterfactuals: Path | None
) -> None:
    from reveal_bench.models.control_pictures import control_pictures
    from reveal_bench.models.pictures import FolderPictures
    from reveal_bench.models.prompts import compose
    from reveal_bench.models.questions import list_questions
    from reveal_bench.models.shots import ShotPool
    from reveal_bench.reports.rehearsal import rehearse

    questions, folder = list_questions(part, split, settings, limit=limit), Path(part)
    pictures = FolderPictures(folder)
    changed = control_pictures(folder, split, settings, pictures, held=pictures.ids, counterfactuals=counterfactuals)
    pool = ShotPool(folder, settings) if settings.shots else None
    count = rehearse(
        out,
        questions,
        settings,
        lambda question: compose(
            question, settings, pictures=changed(question), shots=() if pool is None else pool.pick(question)
        ),
    )
    terminal.say(
        f"wrote {count.questions:,} questions to {out}: {count.messages:,} messages with {count.pictures:,} pictures, "
        f"{count.bytes_sent / 1e6:,.1f} MB to send; look at {out / 'index.html'}"
    )


def _say_where(out: Path, epochs: int, folder: Path, split: str, *, is_text: bool) -> None:
    from reveal_bench.models.run_folder import prediction_files

    for name in prediction_files(epochs):
        terminal.say(f"wrote {out / name}")
    if is_text:
        terminal.say(f"readers score these answers; check the file: reveal-bench lint {out} {folder} --split {split}")
    elif any(path.parent.name not in ("holdout_inputs", "manifest") for path in folder.glob(f"*/{split}-*.parquet")):
        terminal.say(f"score: reveal-bench score {out} {folder}")
    else:
        terminal.say(f"the references are private; to get a score: reveal-bench submit {out} --benchmark NAME")


def import_inspect(
    logs: Annotated[list[Path], typer.Argument(help="Logs of inspect_ai, or folders of them.", show_default=False)],
    out: RunFolder,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    organization: Organization = "not stated",
) -> None:
    """Turn logs of `inspect eval reveal_bench/...` into a run folder: predictions, transcript, submission.json."""
    from reveal_bench.models.inspect_logs import import_logs

    prices = prices_of(price_in, price_out, price_cached)
    info, exchanges = import_logs(logs)
    _write(replace(info, prices=prices) if prices is not None else info, exchanges, out, organization)


def export_lmms(
    folder: Folder,
    split: AskedSplit,
    out: Annotated[Path, typer.Option(help="New folder for the task files.", show_default=False), OUTPUT],
    prompt: PromptStyle = "zero-shot",
    answer: Answer = None,
    grid: GridSize = None,
    side: Side = None,
    shots: Shots = 3,
    shots_split: ShotsSplit = None,
    seed: Seed = 0,
    coordinates: Coordinates = "pixels",
    corners: Corners = None,
    views: Views = "all",
    limit: Limit = None,
) -> None:
    """Write a split's questions and images as tasks for lmms-eval."""
    from reveal_bench.models.lmms import export_tasks
    from reveal_bench.models.questions import AskSettings

    check_outside_datasets(out, "--out")
    if coordinates == "auto":
        raise ValueError("`--coordinates` must name a convention because no model is asked here, got auto")
    settings = AskSettings.of_folder(
        folder,
        form=answer,
        style=prompt,
        grid=grid,
        side=side,
        shots=shots,
        shots_split=shots_split,
        seed=seed,
        detail="auto",
        coordinates=coordinates,
        corners=corners,
        views=views,
    )
    task = export_tasks(folder, split, out, settings, limit=limit).stem
    terminal.say(f"wrote the task {task} to {out}; how to run and import it: {out / 'README.md'}")


def import_lmms(
    samples: Annotated[list[Path], typer.Argument(help="Files of --log_samples, or folders.", show_default=False)],
    tasks: Annotated[Path, typer.Option(help="Folder that `export-lmms` wrote.", show_default=False)],
    out: RunFolder,
    model: Annotated[
        str | None, typer.Option(help="Published name of the model; by default from lmms-eval's results.")
    ] = None,
    organization: Organization = "not stated",
) -> None:
    """Turn lmms-eval's logs into a run folder: predictions, transcript, submission.json."""
    from reveal_bench.models.lmms import import_samples

    _write(*import_samples(samples, tasks, model=model), out, organization)


def import_replies(
    replies: Annotated[Path, typer.Argument(help="Table (CSV, TSV, JSONL) of ids and replies.", show_default=False)],
    folder: Folder,
    split: AskedSplit,
    model: Annotated[str, typer.Option(help="Published name of the model.", show_default=False)],
    out: RunFolder,
    answer: Answer = None,
    grid: GridSize = None,
    side: Side = None,
    coordinates: Coordinates = "pixels",
    corners: Corners = None,
    columns: TheirColumns = None,
    organization: Organization = "not stated",
) -> None:
    """Turn a model's saved replies into a run folder: predictions, transcript, submission.json."""
    from reveal_bench.models.questions import AskSettings
    from reveal_bench.models.saved_replies import read_saved_replies

    asked = AskSettings.of_folder(folder, form=answer, grid=grid, side=side, coordinates=coordinates, corners=corners)
    named = by_their_names(columns)
    _write(*read_saved_replies(replies, folder, split, asked, model=model, columns=named), out, organization)


def _write(info: RunInfo, exchanges: list[QuestionOutcome], out: Path, organization: str) -> None:
    check_outside_datasets(out, "--out")
    from reveal_bench.models.run_folder import check_keeps_answers, check_same_run, prediction_files, write_outputs

    check_same_run(out, info)
    check_keeps_answers(out, {(one.question, one.epoch) for one in exchanges})
    terminal.print_run(write_outputs(out, exchanges, info, organization=organization))
    _say_unanswered(out)
    for name in prediction_files(info.epochs):
        terminal.say(f"wrote {out / name}")


def draft_ratings(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders and prediction files as MODEL=PATH, with the model names of --ratings.",
            show_default=False,
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Dataset folder that the runs answered.", show_default=False)],
    ratings: Annotated[Path, typer.Option(help="Table of readers' ratings for at least some answers.")],
    out: Annotated[Path, typer.Option(help="Private folder for drafts, agreement and the model's replies."), OUTPUT],
    model: Model = None,
    endpoint: Endpoint = None,
    split: Annotated[str | None, typer.Option(help="Split with references; by default the runs' split.")] = None,
    films: Annotated[
        bool,
        typer.Option(
            "--films", help="Also send the images; --model may then be an inspect_ai model name, without --endpoint."
        ),
    ] = False,
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
) -> None:
    """Draft ratings of answers to open tasks with a model, and its agreement with readers; drafts are not scores."""
    from reveal_bench.api.scoring import read_ratings_given
    from reveal_bench.curation import draft_ratings as drafting
    from reveal_bench.reports.runs import load_runs, open_split

    check_outside_datasets(out, "--out")
    labelled_runs = [labelled(one) for one in runs]
    opened = open_split(folder, labelled_runs, split)
    if opened.kind.scoring.scored_by != "readers":
        rule = "must contain a benchmark whose answers readers rate"
        raise ValueError(f"`--folder` {rule}, got one of {opened.kind.name}")
    readers = read_ratings_given(ratings, opened.name) or ()
    grader: drafting.Rater
    if films:
        if price_in or price_out:
            raise ValueError(
                "`--price-in` and `--price-out` cannot be used with `--films`, whose logs contain the token counts"
            )
        grader = _film_grader(folder, opened.name, out, model, endpoint, model_options, connections)
    else:
        client = client_of(out / ANSWERS, model, endpoint, model_options, connections, price_in, price_out)
        if client is None:
            raise ValueError("`draft-ratings` needs `--model` and `--endpoint`")
        grader = drafting.Grader(client)
    answers = {run.label: run.predictions[0] for run in load_runs(labelled_runs, opened)}
    with terminal.progress("drafting") as progress:
        report_progress = counted(progress, "drafting")
        drafts = drafting.draft_ratings(opened.records, answers, readers, grader, progress=report_progress)
    drafting.write_drafts(out, drafts)
    terminal.say(f"{len(drafts.drafts):,} drafts; against readers (quadratic kappa; MAD: mean absolute difference):")
    for one in drafts.agreement:
        figures = f"kappa {one.cohen_kappa_quadratic:6.3f}  MAD {one.mean_absolute_difference:.2f}  n {one.n:,}"
        terminal.say(f"  {one.reader:<20}{one.criterion:<12}{figures}")
    if drafts.n_unread:
        terminal.warn([f"{drafts.n_unread:,} answers have no draft: the model's texts could not be parsed"])
    terminal.say(f"wrote {out / 'drafts.csv'} and {out / 'agreement.csv'}; drafts are not scores")


def _film_grader(
    folder: Path,
    split: str,
    out: Path,
    model: str | None,
    endpoint: str | None,
    options: str | None,
    connections: int,
) -> FilmGrader:
    from reveal_bench.curation.film_grader import FilmGrader
    from reveal_bench.models.running import ModelChoice

    if model is None:
        raise ValueError("`draft-ratings` needs `--model`")
    given, known = read_model_options(options), ("temperature", "max_tokens", "seed")
    if other := [name for name in given if name not in known]:
        raise ValueError(f"`--model-options` must be among {', '.join(known)} with `--films`, got {other[0]}")
    choice = ModelChoice(model, endpoint, max_connections=connections, **given)
    return FilmGrader(folder, split, choice, out)
