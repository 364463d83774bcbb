"""The commands ``reveal-bench curate ...``, which make a benchmark from studies and reports in steps (paper 004).

The first argument of every command is the curation folder; ``extract``, ``refresh`` and ``candidates`` create it.
Commands print whether the step was done now or earlier, its counts, and requests and cost if a model was used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.build import Workers, cores
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import AsJson, Endpoint, PriceIn, PriceOut, Resamples, prices_of
from reveal_bench.files import write_whole
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from reveal_bench.curation.extract import ReportTable
    from reveal_bench.curation.folder import CurationFolder, StepRecord
    from reveal_bench.curation.report_tables import ReportEngine
    from reveal_bench.models.model_client import ModelClient

Model = Annotated[str | None, typer.Option(help="Model to use, by its name at --endpoint.")]
ModelOptions = Annotated[
    str | None,
    typer.Option(help="Model settings as JSON: temperature, seed, max_tokens, structure, extra."),
]
Connections = Annotated[int, typer.Option(min=1, help="Concurrent requests to the model.")]


ANSWERS = os.path.join("cache", "answers")
"""Subfolder that caches models' answers."""


Calls = Literal["two", "one"]


def engine_of(client: ModelClient | None, calls: Calls) -> ReportEngine:
    """Return the engine that extracts labels from reports: a model, or rules if there is no `client`."""
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
    """Return a model client that stores answers in `cache`; None without a model.

    Raises
    ------
    ValueError
        If an option is invalid, or lacks another option.
    """
    if model is None:
        if endpoint is not None or options is not None:
            raise ValueError("`--endpoint` and `--model-options` need `--model`")
        return None
    if endpoint is None:
        raise ValueError("`--model` needs `--endpoint`: name the server to which reports may be sent")
    from reveal_bench.models.model_client import ModelClient, ModelSettings

    prices = prices_of(price_in, price_out)
    settings = ModelSettings(model, **read_model_options(options))
    return ModelClient(settings, endpoint, cache, max_connections=connections, prices=prices)


def read_model_options(text: str | None) -> dict[str, Any]:
    """Return the settings in the JSON text of ``--model-options``."""
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
    help="Make or refresh a benchmark of studies and reports: extract, sample, assign, import-votes, consensus, "
    "select, split, refresh, candidates, report, status.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Curation = Annotated[Path, typer.Argument(help="Curation folder.", show_default=False)]
NewCuration = Annotated[Path, typer.Argument(help="Curation folder.", show_default=False), OUTPUT]
Redo = Annotated[bool, typer.Option("--redo", help="Repeat the step, even with other inputs or settings.")]
Name = Annotated[str | None, typer.Option(help="Name of a new benchmark. [default: Chest radiographs]")]
FirstSeed = Annotated[
    int | None, typer.Option(min=0, help="Seed of all random choices of a new benchmark. [default: 0]")
]
Sheet = Annotated[str | None, typer.Option(help="Sheet to read if an xlsx file has several.")]
Study = Annotated[str, typer.Option(help="Column of study ids.")]
Patient = Annotated[str, typer.Option(help="Column of patient ids.")]
ReportColumn = Annotated[str | None, typer.Option(help="Column of report texts. [default: report]")]
FileColumn = Annotated[str | None, typer.Option(help="Column of paths to report text files, instead of --report.")]
Version = Annotated[str, typer.Option(help="Benchmark version, such as 1.0.0.")]
StudyKey = Annotated[str, typer.Option(help="DICOM header field of the study ids.")]


@app.command()
def extract(
    folder: NewCuration,
    reports: Annotated[Path | None, typer.Option(help="Table of reports (csv, tsv, xlsx, jsonl, parquet).")] = None,
    suggestions: Annotated[Path | None, typer.Option(help="Table of existing labels, instead of --reports.")] = None,
    study: Study = "study",
    patient: Patient = "patient",
    report: ReportColumn = None,
    file: FileColumn = None,
    labels: Annotated[str, typer.Option(help="Column of --suggestions with labels, separated by `;`.")] = "labels",
    model: Model = None,
    endpoint: Endpoint = None,
    calls: Annotated[
        Calls, typer.Option(help="Model calls per report: one for findings and one for labels, or both in one.")
    ] = ("two"),
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    sheet: Sheet = None,
    name: Name = None,
    seed: FirstSeed = None,
    redo: Redo = False,
) -> None:
    """Extract labels from reports by rules or with a model; creates the folder."""
    from reveal_bench.curation.extract import SuggestionTable
    from reveal_bench.curation.extract import extract as step
    from reveal_bench.curation.report_tables import SuggestionColumns

    if (reports is None) == (suggestions is None):
        raise ValueError("give one of `--reports` and `--suggestions`")
    if suggestions is not None and (model or report or file):
        raise ValueError(
            "`--model`, `--report` and `--file` need `--reports`: with `--suggestions`, labels already exist"
        )
    with _begin(folder, name, seed) as curation, terminal.progress("reading") as progress:
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
        int, typer.Option(min=0, help="Minimum number of studies with each label, if available.")
    ] = 1,
    fill: Annotated[bool, typer.Option("--fill", help="Fill a short stratum from the next lower one.")] = False,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the films; studies without a usable film are not drawn.")
    ] = None,
    study_key: StudyKey = "StudyInstanceUID",
    workers: Workers = None,
    redo: Redo = False,
) -> None:
    """Draw the studies to read: one per patient, stratified by number of labels, with every label represented."""
    from reveal_bench.curation.films import FilmPool
    from reveal_bench.curation.sample import SET_ASIDE
    from reveal_bench.curation.sample import sample as step

    curation = _open(folder)
    films = None if images is None else FilmPool(images, study_key, cores(workers))
    with terminal.progress("reading films") as progress:
        record = step(
            curation,
            strata=_strata(strata),
            min_per_label=min_per_label,
            fill=fill,
            films=films,
            redo=redo,
            progress=counted(progress, "reading films"),
        )
    _tell(curation, record)
    if "films_checked" not in record.counts:
        where = f"{images} has none" if images else "pass their folder as --images"
        terminal.warn([f"films were not checked: {where}"])
    elif n := record.counts["unusable"]:
        text = f"{n:,} of {count_text(record.counts['films_checked'], 'study')} cannot be built and are set aside"
        terminal.warn([f"{text}; the reasons are in {curation.path(SET_ASIDE)}"])
    if n := record.counts.get("unread_files"):
        text = f"`build` stops at {count_text(n, 'file')} unless --keep-going leaves them out"
        terminal.warn([f"{text}; the reasons are in {curation.path(SET_ASIDE)}"])


@app.command()
def assign(
    folder: Curation,
    readers: Annotated[Path, typer.Option(help="Table with the columns reader and capacity.", show_default=False)],
    most: Annotated[int, typer.Option(min=1, help="Maximum number of studies per reader.")] = 300,
    redo: Redo = False,
) -> None:
    """Assign three readers to every study, and give every reader a list in random order."""
    from reveal_bench.curation.assign import assign as step

    curation = _open(folder)
    _tell(curation, step(curation, readers, most=most, redo=redo))


@app.command(name="import-votes")
def import_votes(
    folder: Curation,
    votes: Annotated[
        list[Path],
        typer.Option(
            help="Table with columns study, reader, answer, optionally comment and labels. Repeatable.",
            show_default=False,
        ),
    ],
    reassigned: Annotated[Path | None, typer.Option(help="Final assignments, if studies were reassigned.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept studies with missing readings.")
    ] = False,
    redo: Redo = False,
) -> None:
    """Import readers' votes (agree all, agree mostly or disagree) and comments."""
    from reveal_bench.curation.votes import import_votes as step

    curation = _open(folder)
    _tell(curation, step(curation, *votes, allow_missing=allow_missing, reassigned=reassigned, redo=redo))


@app.command()
def consensus(
    folder: Curation,
    three: Annotated[
        bool,
        typer.Option("--three", help="Compare readers on three answers; by default, `mostly` counts as disagreement."),
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
    """Derive labels of every vote and study, reading comments by rules or a model, and measure agreement."""
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
    target: Annotated[int, typer.Option(min=2, help="Number of studies in the benchmark.")] = 200,
    at_least: Annotated[int, typer.Option(min=1, help="Minimum number of readers who agree with all labels.")] = 2,
    less_common: Annotated[
        str | None,
        typer.Option(
            help="Labels of which all studies are included, separated by `;`; by default nine, as in the paper."
        ),
    ] = None,
    redo: Redo = False,
) -> None:
    """Select the benchmark's studies among confirmed ones: less common findings first, then most labels."""
    from reveal_bench.curation.select import LESS_COMMON
    from reveal_bench.curation.select import select as step

    curation = _open(folder)
    chosen = LESS_COMMON if less_common is None else [label.strip() for label in less_common.split(";")]
    record = step(curation, target=target, less_common=chosen, at_least=at_least, redo=redo)
    _tell(curation, record)
    if n := record.counts["without_labels"]:
        text = f"{count_text(n, 'study')} without labels left out"
        terminal.warn([f"{text}: as in the paper, every selected study has a finding"])


@app.command()
def split(
    folder: Curation,
    facts: Annotated[Path | None, typer.Option(help="Table of acquisition and demographics per study.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of --facts to compare, separated by `,`.")] = None,
    study: Study = "study",
    study_key: StudyKey = "StudyInstanceUID",
    best_of: Annotated[int, typer.Option(min=1, help="Number of random draws; the best balanced is used.")] = 1,
    version: Version = "1.0.0",
    redo: Redo = False,
) -> None:
    """Split the benchmark into a released and a holdout half by patient, and test their balance."""
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
    folder: NewCuration,
    before: Annotated[Path, typer.Option(help="Curation folder of the previous version.", show_default=False)],
    corrections: Annotated[Path | None, typer.Option(help="Table with columns study, labels, why.")] = None,
    additions: Annotated[Path | None, typer.Option(help="Curation folder whose selected studies are added.")] = None,
    facts: Annotated[Path | None, typer.Option(help="Demographics of the added studies, as a table.")] = None,
    study: Study = "study",
    retire_holdout: Annotated[
        bool, typer.Option("--retire-holdout", help="Release the previous holdout; the added studies replace it.")
    ] = False,
    redo: Redo = False,
) -> None:
    """Make the next version: correct labels, or add studies of patients who were never released."""
    from reveal_bench.curation.folder import CurationFolder
    from reveal_bench.curation.refresh import refresh as step

    earlier = CurationFolder(before)
    # The seed is that of the earlier version, but random choices also depend on the name of the step
    with _begin(folder, earlier.name, earlier.seed) as curation:
        record = step(
            curation,
            earlier,
            corrections=corrections,
            additions=None if additions is None else CurationFolder(additions),
            facts=facts,
            key=study,
            retire_holdout=retire_holdout,
            redo=redo,
        )
    _tell(curation, record)
    _tell_build(curation, record.counts["version"], is_later=True, retires=retire_holdout)


@app.command()
def candidates(
    folder: NewCuration,
    reports: Annotated[Path, typer.Option(help="Table of reports, as for `extract`.", show_default=False)],
    model: Model = None,
    endpoint: Endpoint = None,
    n: Annotated[int, typer.Option("--candidates", min=1, help="Number of tasks to draft per study.")] = 5,
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
    """Draft, score and tag open tasks with a model, and write a page for selecting tasks (paper 001)."""
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
    with _begin(folder, name, None) as curation, terminal.progress("drafting") as progress:
        client = client_of(curation.path(ANSWERS), model, endpoint, model_options, connections, price_in, price_out)
        if client is None:
            raise ValueError("`candidates` needs `--model` and `--endpoint`: rules cannot write tasks")
        record = draft_candidates(
            curation, source, TaskDrafter(client, n), redo=redo, progress=counted(progress, "drafting")
        )
    _tell(curation, record)
    _tell_spent(record, client)
    if n_left := record.counts["quarantined"]:
        terminal.warn([f"{n_left:,} studies have no candidates; the reasons are in {curation.path(QUARANTINE_NAME)}"])
    texts = {one.study_id: one.text for one in read_reports(reports, source.columns, sheet=sheet)}
    page = curation.path("candidates.html")
    write_whole(page, selection_page(read_candidates(curation), texts), single_writer=True)
    typer.echo(
        f"select tasks in {page}, or by hand in {CANDIDATES_NAME}, and save one row per study as tasks.csv for `build`"
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
    """Show the status of each step of a curation."""
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


@contextmanager
def _begin(folder: Path, name: str | None, seed: int | None) -> Iterator[CurationFolder]:
    """Yield the new or existing curation folder; name and seed of an existing one cannot change.

    A new folder is removed if the command fails before any step has a result.
    """
    from reveal_bench.curation.folder import STATE_NAME, CurationFolder

    if not (folder / STATE_NAME).is_file():
        with CurationFolder.begun(folder, name=name or "Chest radiographs", seed=seed or 0) as begun:
            yield begun
        return
    begun = CurationFolder(folder)
    for option, given, there in (("--name", name, begun.name), ("--seed", seed, begun.seed)):
        if given not in (None, there):
            raise ValueError(f"`{option}` must be {there!r}, as when {folder} was started, got {given!r}")
    yield begun


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
            raise ValueError(f"`--strata` must be like 1:300,2:300, each number of labels once, got {part.strip()!r}")
        sizes[int(n_labels)] = int(size)
    return sizes


def counted(progress: Any, what: str) -> Any:
    """Return a function of (done, total) that reports progress on `what`."""
    return lambda done, total: progress(what, done, total)


def _tell(folder: CurationFolder, record: StepRecord) -> None:
    did = "done" if record.is_new else "already done, with the same inputs and settings"
    terminal.say(f"{record.step}: {did}; {_counts(record.counts)}")
    for name in record.outputs:
        typer.echo(f"  {folder.path(name)}")


def _counts(counts: Mapping[str, Any]) -> str:
    """Return the counts in one line, without nested ones."""
    plain = {name.replace("_", " "): value for name, value in counts.items() if isinstance(value, (int, str, Decimal))}
    texts = {name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in plain.items()}
    return ", ".join(f"{name} {value}" for name, value in texts.items() if value)


def _tell_spent(record: StepRecord, client: ModelClient) -> None:
    """Print this run's requests and cost, and the number of texts without an answer."""
    typer.echo(f"  {_counts(asdict(client.spent))}")
    n = sum(record.counts.get(who, {}).get("unanswered", 0) for who in ("engine", "reviser"))
    if n:
        terminal.warn([f"the model gave no answer for {n:,} texts; --redo only repeats these requests"])


def _tell_build(folder: CurationFolder, version: str, *, is_later: bool = False, retires: bool = False) -> None:
    later = " --previous PUBLIC_BEFORE --previous-holdout PRIVATE_BEFORE" if is_later else ""
    typer.echo(
        "build it with: reveal-bench build IMAGES --out PUBLIC --holdout PRIVATE --source reveal-cxr --id-key KEY "
        "--card CARD.md "
        f"--mapping {folder.path('benchmark/mapping.yaml')} --version {version}{later}"
        f"{' --retire-holdout' if retires else ''}"
    )
