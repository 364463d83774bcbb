"""The commands ``reveal-bench curate ...``: make a benchmark from studies and reports (paper 004), step by step.

Every command names the curation folder first; ``extract``, ``refresh`` and ``candidates`` begin one. Each prints
whether its step was done now or before, and its counts; after asking a model, also the requests and cost of this run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import AsJson, Endpoint, PriceIn, PriceOut, Resamples, check_outside_datasets, prices_of
from reveal_bench.cli.report import labelled
from reveal_bench.files import write_whole

if TYPE_CHECKING:
    from reveal_bench.curation.extract import ReportTable
    from reveal_bench.curation.film_grader import FilmGrader
    from reveal_bench.curation.folder import CurationFolder, StepRecord
    from reveal_bench.curation.report_tables import ReportEngine
    from reveal_bench.models.model_client import ModelClient

Model = Annotated[str | None, typer.Option(help="Model to ask, by its name at --endpoint.")]
ModelOptions = Annotated[
    str | None,
    typer.Option(help="How the model is asked, as JSON: temperature, seed, max_tokens, structure, extra."),
]
Connections = Annotated[int, typer.Option(min=1, help="Concurrent requests to the model.")]


ANSWERS = os.path.join("cache", "answers")
"""Subfolder with models' answers."""


Calls = Literal["two", "one"]


def engine_of(client: ModelClient | None, calls: Calls) -> ReportEngine:
    """Return the engine that reads reports: a model, or rules without a `client`."""
    from reveal_bench.curation.rules import Rules

    if client is None:
        return Rules()
    from reveal_bench.curation.model_engine import ModelEngine

    return ModelEngine(client, calls)


def client_of(
    cache: Path,
    model: str | None,
    endpoint: str | None,
    options: str | None,
    connections: int,
    price_in: str | None,
    price_out: str | None,
) -> ModelClient | None:
    """Return a client that asks the model and stores its answers in `cache`; None without a model.

    Raises
    ------
    ValueError
        If an option breaks its rule, or needs another option.
    """
    if model is None:
        if endpoint is not None or options is not None:
            raise ValueError("`--endpoint` and `--model-options` need `--model`")
        return None
    if endpoint is None:
        raise ValueError("`--model` needs `--endpoint`: name the server that reports may go to")
    from reveal_bench.models.model_client import ModelClient, ModelSettings

    prices = prices_of(price_in, price_out)
    settings = ModelSettings(model, **_model_options(options))
    return ModelClient(settings, endpoint, cache, max_connections=connections, prices=prices)


def _model_options(text: str | None) -> dict[str, Any]:
    from reveal_bench.models.model_client import ModelSettings

    known = [field.name for field in fields(ModelSettings) if field.name != "model"]
    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"`--model-options` must be JSON: {error}") from None
    if not isinstance(options, dict) or not options.keys() <= set(known):
        raise ValueError(f"`--model-options` must be an object with {', '.join(known)}, got {text}")
    return options


app = typer.Typer(
    help="Make a benchmark of studies and reports, and refresh it: extract, sample, assign, import-votes, consensus, "
    "select, split, refresh, candidates, report, status.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Curation = Annotated[Path, typer.Argument(help="Curation folder.", show_default=False)]
Redo = Annotated[bool, typer.Option("--redo", help="Repeat the step, even with other inputs or settings.")]
Name = Annotated[
    str | None, typer.Option(help="Name of the benchmark, when the folder is started.  [default: Chest radiographs]")
]
FirstSeed = Annotated[
    int | None, typer.Option(min=0, help="Seed of everything random, when the folder is started.  [default: 0]")
]
Sheet = Annotated[str | None, typer.Option(help="Sheet to read, if an xlsx file has several.")]
Study = Annotated[str, typer.Option(help="Column with the ids of studies.")]
Patient = Annotated[str, typer.Option(help="Column with the ids of patients.")]
ReportColumn = Annotated[str | None, typer.Option(help="Column with the report's text.  [default: report]")]
FileColumn = Annotated[
    str | None, typer.Option(help="Column with the path of the report's text file, instead of --report.")
]
Version = Annotated[str, typer.Option(help="Version of the benchmark, such as 1.0.0.")]
StudyKey = Annotated[str, typer.Option(help="Header field of the images that holds the ids of studies.")]


@app.command()
def extract(
    folder: Curation,
    reports: Annotated[
        Path | None, typer.Option(help="Table of reports (csv, tsv, xlsx, jsonl, parquet).", exists=True)
    ] = None,
    suggestions: Annotated[
        Path | None, typer.Option(help="Table of labels you already have, instead of --reports.", exists=True)
    ] = None,
    study: Study = "study",
    patient: Patient = "patient",
    report: ReportColumn = None,
    file: FileColumn = None,
    labels: Annotated[str, typer.Option(help="Column of --suggestions with labels, separated by `;`.")] = "labels",
    model: Model = None,
    endpoint: Endpoint = None,
    calls: Annotated[Calls, typer.Option(help="Model calls per report: findings, then labels; or both in one.")] = (
        "two"
    ),
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    sheet: Sheet = None,
    name: Name = None,
    seed: FirstSeed = None,
    redo: Redo = False,
) -> None:
    """Extract labels from reports, by rules or with a model; starts the folder."""
    from reveal_bench.curation.extract import SuggestionTable
    from reveal_bench.curation.extract import extract as step
    from reveal_bench.curation.report_tables import SuggestionColumns

    if (reports is None) == (suggestions is None):
        raise ValueError("give one of `--reports` and `--suggestions`")
    if suggestions is not None and (model or report or file):
        raise ValueError("`--model`, `--report` and `--file` are for `--reports`: suggestions are labels already")
    curation = _begin(folder, name, seed)
    with terminal.progress("reading") as progress:
        source: ReportTable | SuggestionTable
        engine = client = None
        if reports is None:
            assert suggestions is not None
            source = SuggestionTable(suggestions, SuggestionColumns(study, patient, labels), sheet)
        else:
            source = _report_table(reports, study, patient, report, file, sheet)
            client = client_of(curation.path(ANSWERS), model, endpoint, model_options, connections, price_in, price_out)
            engine = engine_of(client, calls)
        record = step(curation, source, engine=engine, redo=redo, progress=counted(progress, "reading"))
    _tell(curation, record)
    if client is not None:
        _tell_spent(record, client)


@app.command()
def sample(
    folder: Curation,
    strata: Annotated[
        str, typer.Option(help="Studies per number of suggested labels; the default is the paper's 1,000.")
    ] = "1:300,2:300,3:319,4:76,5:4,6:1",
    min_per_label: Annotated[
        int, typer.Option(min=0, help="Least number of studies with each label, if there are enough.")
    ] = 1,
    fill: Annotated[bool, typer.Option("--fill", help="Fill a short stratum from the next one down.")] = False,
    redo: Redo = False,
) -> None:
    """Draw the studies that readers will see: one per patient, by number of labels, every label represented."""
    from reveal_bench.curation.sample import sample as step

    curation = _open(folder)
    _tell(curation, step(curation, strata=_strata(strata), min_per_label=min_per_label, fill=fill, redo=redo))


@app.command()
def assign(
    folder: Curation,
    readers: Annotated[Path, typer.Option(help="Table with the columns reader and capacity.", show_default=False)],
    most: Annotated[int, typer.Option(min=1, help="Most studies per reader.")] = 300,
    redo: Redo = False,
) -> None:
    """Give every study three readers, and every reader a list in random order."""
    from reveal_bench.curation.assign import assign as step

    curation = _open(folder)
    _tell(curation, step(curation, readers, most=most, redo=redo))


@app.command(name="import-votes")
def import_votes(
    folder: Curation,
    votes: Annotated[
        Path, typer.Option(help="Table: study, reader, answer, perhaps comment and labels.", show_default=False)
    ],
    reassigned: Annotated[Path | None, typer.Option(help="Final assignments, if studies were reassigned.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept studies that some of their readers have not read.")
    ] = False,
    redo: Redo = False,
) -> None:
    """Import the readers' votes: agree all, agree mostly or disagree, with comments."""
    from reveal_bench.curation.votes import import_votes as step

    curation = _open(folder)
    _tell(curation, step(curation, votes, allow_missing=allow_missing, reassigned=reassigned, redo=redo))


@app.command()
def consensus(
    folder: Curation,
    three: Annotated[
        bool,
        typer.Option("--three", help="Compare readers on three answers; by default `mostly` counts as disagreement."),
    ] = False,
    model: Model = None,
    endpoint: Endpoint = None,
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    resamples: Resamples = 1000,
    redo: Redo = False,
) -> None:
    """Find the labels of every vote and study, and how well readers agree; comments by rules or with a model."""
    from reveal_bench.curation.consensus import Reviser
    from reveal_bench.curation.consensus import consensus as step

    curation = _open(folder)
    revise: Reviser | str = "rules"
    client = client_of(curation.path(ANSWERS), model, endpoint, model_options, connections, price_in, price_out)
    if client is not None:
        from reveal_bench.curation.model_engine import ModelReviser

        revise = ModelReviser(client)
    with terminal.progress("reading comments") as progress:
        record = step(
            curation,
            revise=revise,  # type: ignore[arg-type]  # "rules" is a literal there
            merge_mostly=not three,
            n_resamples=resamples,
            redo=redo,
            progress=counted(progress, "reading comments"),
        )
    _tell(curation, record)
    if client is not None:
        _tell_spent(record, client)


@app.command()
def select(
    folder: Curation,
    target: Annotated[int, typer.Option(min=2, help="Studies of the benchmark.")] = 200,
    at_least: Annotated[int, typer.Option(min=1, help="Readers who must have agreed with all labels.")] = 2,
    less_common: Annotated[
        str | None,
        typer.Option(help="Labels whose studies are all included, separated by `;`; by default the paper's nine."),
    ] = None,
    redo: Redo = False,
) -> None:
    """Choose the studies of the benchmark: agreed on, less common findings first, then those with most labels."""
    from reveal_bench.curation.select import LESS_COMMON
    from reveal_bench.curation.select import select as step

    curation = _open(folder)
    chosen = LESS_COMMON if less_common is None else [label.strip() for label in less_common.split(";")]
    _tell(curation, step(curation, target=target, less_common=chosen, at_least=at_least, redo=redo))


@app.command()
def split(
    folder: Curation,
    facts: Annotated[Path | None, typer.Option(help="Table of acquisition and demographics, per study.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of --facts to compare, separated by `,`.")] = None,
    study: Study = "study",
    study_key: StudyKey = "StudyInstanceUID",
    best_of: Annotated[int, typer.Option(min=1, help="Draws; the best balanced is used.")] = 1,
    version: Version = "1.0.0",
    redo: Redo = False,
) -> None:
    """Divide the benchmark into a released and a holdout half by patient, and test their balance."""
    from reveal_bench.curation.split import split as step

    curation = _open(folder)
    named = None if columns is None else [column.strip() for column in columns.split(",")]
    with terminal.progress("drawing") as progress:
        record = step(
            curation,
            facts,
            columns=named,
            best_of=best_of,
            version=version,
            key=study,
            study_key=study_key,
            redo=redo,
            progress=counted(progress, "drawing"),
        )
    _tell(curation, record)
    _tell_build(curation, version)


@app.command()
def refresh(
    folder: Curation,
    before: Annotated[Path, typer.Option(help="Curation folder of the previous version.", show_default=False)],
    corrections: Annotated[Path | None, typer.Option(help="Table: study, labels, why.")] = None,
    additions: Annotated[Path | None, typer.Option(help="Curation folder whose selection is added.")] = None,
    facts: Annotated[Path | None, typer.Option(help="Table with the demographics of the added studies.")] = None,
    study: Study = "study",
    study_key: StudyKey = "StudyInstanceUID",
    retire_holdout: Annotated[
        bool, typer.Option("--retire-holdout", help="Release the previous holdout; the added studies replace it.")
    ] = False,
    redo: Redo = False,
) -> None:
    """Make the next version: corrected labels, or new studies of patients who were never released."""
    from reveal_bench.curation.folder import CurationFolder
    from reveal_bench.curation.refresh import refresh as step

    earlier = CurationFolder(before)
    curation = _begin(folder, earlier.name, earlier.seed)  # random choices differ by the version's own step
    record = step(
        curation,
        earlier,
        corrections=corrections,
        additions=None if additions is None else CurationFolder(additions),
        facts=facts,
        key=study,
        study_key=study_key,
        retire_holdout=retire_holdout,
        redo=redo,
    )
    _tell(curation, record)
    _tell_build(curation, record.counts["version"], is_later=True, retires=retire_holdout)


@app.command()
def candidates(
    folder: Curation,
    reports: Annotated[
        Path, typer.Option(help="Table of reports, as extract takes it.", show_default=False, exists=True)
    ],
    model: Model = None,
    endpoint: Endpoint = None,
    n: Annotated[int, typer.Option("--candidates", min=1, help="Tasks to draft per study.")] = 5,
    study: Study = "study",
    patient: Patient = "patient",
    report: ReportColumn = None,
    file: FileColumn = None,
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    sheet: Sheet = None,
    name: Name = None,
    redo: Redo = False,
) -> None:
    """Draft, score and tag open tasks with a model, and write the page to select among them (paper 001)."""
    from reveal_bench.curation.candidates import (
        CANDIDATES_NAME,
        QUARANTINE_NAME,
        TaskDrafter,
        draft_candidates,
        read_candidates,
    )
    from reveal_bench.curation.report_tables import read_reports
    from reveal_bench.reports.candidates_page import selection_page

    source = _report_table(reports, study, patient, report, file, sheet)
    curation = _begin(folder, name, None)
    client = client_of(curation.path(ANSWERS), model, endpoint, model_options, connections, price_in, price_out)
    if client is None:
        raise ValueError("`candidates` needs `--model` and `--endpoint`: rules cannot write tasks")
    with terminal.progress("drafting") as progress:
        record = draft_candidates(
            curation, source, TaskDrafter(client, n), redo=redo, progress=counted(progress, "drafting")
        )
    _tell(curation, record)
    _tell_spent(record, client)
    if n_left := record.counts["quarantined"]:
        terminal.warn([f"{n_left:,} studies have no candidates; {curation.path(QUARANTINE_NAME)} says why"])
    texts = {one.study_id: one.text for one in read_reports(reports, source.columns, sheet=sheet)}
    page = curation.path("candidates.html")
    write_whole(page, selection_page(read_candidates(curation), texts), single_writer=True)
    typer.echo(
        f"select in {page}, or by hand in {CANDIDATES_NAME}: one row per study, saved as tasks.csv, is what build takes"
    )


@app.command()
def report(folder: Curation, redo: Redo = False) -> None:
    """Write the paper's tables and figures for this curation as one HTML page, with SVG and CSV files."""
    from reveal_bench.reports.curation import report as step

    curation = _open(folder)
    _tell(curation, step(curation, redo=redo))
    typer.echo(f"open {curation.path('report/index.html')}")


@app.command()
def status(folder: Curation, as_json: AsJson = False) -> None:
    """Show the state of each step of a curation."""
    curation = _open(folder)
    if as_json:
        typer.echo(json.dumps([asdict(state) for state in curation.states()], indent=2))
        return
    typer.echo(f"{folder}: {curation.name}, seed {curation.seed}")
    for state in curation.states():
        counts = "" if state.record is None else _counts(state.record.counts)
        colour = {"done": "green", "open": None}.get(state.status, "red")
        typer.echo(f"  {state.step:<13}{typer.style(f'{state.status:<8}', fg=colour)} {state.why or counts}".rstrip())


def _open(folder: Path) -> CurationFolder:
    from reveal_bench.curation.folder import CurationFolder

    return CurationFolder(folder)


def _begin(folder: Path, name: str | None, seed: int | None) -> CurationFolder:
    """Return the folder, new or existing; its name and seed cannot change."""
    from reveal_bench.curation.folder import STATE_NAME, CurationFolder

    if not (folder / STATE_NAME).is_file():
        return CurationFolder.create(folder, name=name or "Chest radiographs", seed=seed or 0)
    begun = CurationFolder(folder)
    for option, given, there in (("--name", name, begun.name), ("--seed", seed, begun.seed)):
        if given not in (None, there):
            raise ValueError(f"`{option}` must be {there!r}, as when {folder} was started, got {given!r}")
    return begun


def _report_table(
    reports: Path, study: str, patient: str, report: str | None, file: str | None, sheet: str | None
) -> ReportTable:
    from reveal_bench.curation.extract import ReportTable
    from reveal_bench.curation.report_tables import ReportColumns

    if report is not None and file is not None:
        raise ValueError("give one of `--report` and `--file`")
    return ReportTable(reports, ReportColumns(study, patient, None if file else report or "report", file), sheet)


def _strata(text: str) -> dict[int, int]:
    """ "1:300,2:300" -> {1: 300, 2: 300}."""
    sizes: dict[int, int] = {}
    for part in text.split(","):
        n_labels, separator, size = part.partition(":")
        if not (separator and n_labels.strip().isdecimal() and size.strip().isdecimal()) or int(n_labels) in sizes:
            raise ValueError(f"`--strata` must have the form 1:300,2:300, each number once, got {part.strip()!r}")
        sizes[int(n_labels)] = int(size)
    return sizes


def counted(progress: Any, what: str) -> Any:
    """Return a progress function for (done, total)."""
    return lambda done, total: progress(what, done, total)


def _tell(folder: CurationFolder, record: StepRecord) -> None:
    did = "done" if record.is_new else "already done, with the same inputs and settings"
    typer.echo(f"{record.step}: {did}; {_counts(record.counts)}")
    for name in record.outputs:
        typer.echo(f"  {folder.path(name)}")


def _counts(counts: Mapping[str, Any]) -> str:
    """Return those counts that are single numbers, in one line."""
    plain = {name.replace("_", " "): value for name, value in counts.items() if isinstance(value, (int, str, Decimal))}
    texts = {name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in plain.items()}
    return ", ".join(f"{name} {value}" for name, value in texts.items() if value)


def _tell_spent(record: StepRecord, client: ModelClient) -> None:
    """Print this run's requests and cost, and how many texts the model did not answer."""
    typer.echo(f"  {_counts(asdict(client.spent))}")
    n = sum(record.counts.get(who, {}).get("unanswered", 0) for who in ("engine", "reviser"))
    if n:
        terminal.warn([f"{n:,} texts had no answer; --redo asks for them again, all other answers are kept"])


def _tell_build(folder: CurationFolder, version: str, *, is_later: bool = False, retires: bool = False) -> None:
    later = " --previous PUBLIC_BEFORE --previous-holdout PRIVATE_BEFORE" if is_later else ""
    typer.echo(
        "build it with: reveal-bench build IMAGES --out PUBLIC --holdout PRIVATE --source reveal-cxr --id-key KEY "
        "--card CARD.md "
        f"--mapping {folder.path('benchmark/mapping.yaml')} --version {version}{later}"
        f"{' --retire-holdout' if retires else ''}"
    )


def draft_ratings(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders and prediction files: MODEL=PATH, named as in --ratings.", show_default=False),
    ],
    folder: Annotated[Path, typer.Option(help="Dataset folder that the runs answered.", show_default=False)],
    ratings: Annotated[Path, typer.Option(help="Table of readers' ratings of some of the answers.")],
    out: Annotated[Path, typer.Option(help="Private folder: drafts, agreement, and the model's replies.")],
    model: Model = None,
    endpoint: Endpoint = None,
    split: Annotated[str | None, typer.Option(help="Split with references; the runs' own by default.")] = None,
    films: Annotated[
        bool,
        typer.Option(
            "--films", help="Also show the images; --model may then be a name of inspect_ai, without --endpoint."
        ),
    ] = False,
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
) -> None:
    """Draft ratings of answers to open tasks with a model, and its agreement with readers; never a score."""
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
            raise ValueError("`--price-in` and `--price-out` are not used with `--films`: its logs hold the tokens")
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
    typer.echo(f"{len(drafts.drafts):,} drafts; against readers (quadratic kappa; MAD: mean absolute difference):")
    for one in drafts.agreement:
        figures = f"kappa {one.cohen_kappa_quadratic:6.3f}  MAD {one.mean_absolute_difference:.2f}  n {one.n:,}"
        typer.echo(f"  {one.reader:<20}{one.criterion:<12}{figures}")
    if drafts.n_unread:
        terminal.warn([f"{drafts.n_unread:,} answers have no draft: the model's texts could not be parsed"])
    typer.echo(f"wrote {out / 'drafts.csv'} and {out / 'agreement.csv'}; drafts are not scores")


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
    given, known = _model_options(options), ("temperature", "max_tokens", "seed")
    if other := [name for name in given if name not in known]:
        raise ValueError(f"`--model-options` must be among {', '.join(known)} with `--films`, got {other[0]}")
    choice = ModelChoice(model, endpoint, max_connections=connections, **given)
    return FilmGrader(folder, split, choice, out)
