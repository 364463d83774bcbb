"""The commands ``convert`` and ``export``, for formats of annotation tools and of result registries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.board import KEYS_ADVICE, read_json, read_key
from reveal_bench.cli.build import Blank, Uncertain
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import Folder, Split
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from reveal_bench.exchange.checklists import Recorded
    from reveal_bench.exchange.facts import Result
    from reveal_bench.exchange.transfer import Converted

Deployment = Literal["self_deployed", "externally_managed", "unknown"]
Availability = Literal["open_weights", "closed_weights", "unknown"]
ExchangeForm = Literal["table", "coco", "cvat", "label-studio", "fiftyone", "dicom-seg", "dicom-sr"]
"""Annotation formats: the keys of :data:`reveal_bench.exchange.FORMS`, and "table"."""

TheirColumns = Annotated[
    list[str] | None, typer.Option("--column", metavar="THEIRS=OURS", help="Meaning of a column of a table.")
]


def convert(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="New folder to write; with --from, prediction file to write."), OUTPUT],
    split: Split = None,
    to: Annotated[ExchangeForm | None, typer.Option(help="Form to write.", show_default=False)] = None,
    form: Annotated[
        ExchangeForm | None,
        typer.Option(
            "--from", help="Format to read; `table` for tables, and for COCO results of models.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--file", help="File or folder to read, with --from; of a folder of tables, each CSV."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Prediction file or run folder to convert, with --to; by default the references."),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Also write the images, with --to.")] = True,
    reader: Annotated[str | None, typer.Option(help="Reader whose drawings, labels or rows are converted.")] = None,
    instances: Annotated[
        Path | None, typer.Option(help="COCO file that names images and categories, with --from table.")
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option("--category", help="Finding for the next category number, with --from table; repeatable."),
    ] = None,
    first_category: Annotated[int, typer.Option(min=0, max=1, help="Category number of the first --category.")] = 1,
    columns: TheirColumns = None,
    boxes: Annotated[
        Literal["xywh", "xyxy", "cxcywh"], typer.Option(help="Meaning of a box's numbers, with --from table.")
    ] = "xywh",
    normalised: Annotated[
        bool, typer.Option("--normalised", help="Coordinates are fractions of the image's sides.")
    ] = False,
    leave_out_unknown: Annotated[
        bool, typer.Option("--leave-out-unknown", help="Omit and count rows that are not in the split.")
    ] = False,
    blank: Blank = None,
    uncertain: Uncertain = None,
) -> None:
    """Convert references or predictions for annotation tools, or annotations and model output to predictions."""
    from reveal_bench.kinds.folder import chosen_split

    if (to is None) == (form is None):
        raise ArgumentError("to", "must be given, or `form`, and not both", others=("form",))
    split = chosen_split(folder, split)
    if form is None:
        from reveal_bench.exchange.transfer import to_form

        done = to_form(str(to), folder, split, out, predictions=predictions, reader=reader, with_pictures=pictures)
        _tell(out, done, [f"{done.n_images} images", f"{done.n_pictures} pictures"])
        return
    if source is None:
        raise ArgumentError("source", "must be given with `form`", others=("form",))
    if form == "table":
        settings = {
            "split": split,
            "reader": reader,
            "instances": instances,
            "categories": categories or None,
            "first_category": 1 if first_category else 0,
            "columns": by_their_names(columns),
            "boxes": boxes,
            "normalised": normalised,
            "leave_out_unknown": leave_out_unknown,
            "blank": blank,
            "uncertain": uncertain,
        }
        results = [_convert_table(table, folder, target, settings) for table, target in _tables(source, out)]
        if not all(results):
            raise typer.Exit(1)
        return
    from reveal_bench.exchange.transfer import from_form

    _tell(out, from_form(form, source, folder, split, out, reader=reader), [])


def _tables(source: Path, out: Path) -> list[tuple[Path, Path]]:
    """Return (table, prediction file to write): `source` to `out`, or each CSV file below `source` to a file in `out`.

    Raises
    ------
    ArgumentError
        If a folder has no CSV file, or two of the same name.
    """
    if not source.is_dir():
        return [(source, out)]
    tables = {path.stem: path for path in sorted(source.rglob("*.csv")) if path.name[0] != "."}
    n = sum(path.name[0] != "." for path in source.rglob("*.csv"))
    if not tables or n > len(tables):
        raise ArgumentError("source", "must contain CSV files, each with its own name", f"{n} in {source}")
    out.mkdir(parents=True, exist_ok=True)
    return [(path, out / f"{name}.jsonl") for name, path in tables.items()]


def _convert_table(table: Path, folder: Path, out: Path, settings: dict[str, Any]) -> bool:
    """Write the prediction file of a table; return False if the linter refuses it."""
    from reveal_bench import api

    outputs = api.convert(table, folder, **settings)
    outputs.write(out)
    terminal.say(f"{out}: {count_text(len(outputs.lines), 'prediction')} for {outputs.bench}")
    for note in outputs.notes:
        terminal.say(f"  {note}")
    report = api.lint(outputs.predictions, folder, split=settings["split"], allow_missing=True, name=out.name)
    if not report.ok:
        terminal.warn([f"the linter refuses the output:\n{report.render(statistics=False)}"])
    return report.ok


def by_their_names(columns: Sequence[str] | None) -> dict[str, str]:
    """Return the table's name -> our name of a column, from texts THEIRS=OURS."""
    pairs = {text: text.rpartition("=") for text in columns or ()}
    if wrong := [text for text, (_, sign, _) in pairs.items() if not sign]:
        raise ArgumentError("columns", "must be THEIRS=OURS", repr(wrong[0]))
    return {theirs: ours for theirs, _, ours in pairs.values()}


def _tell(out: Path, done: Converted, what: list[str]) -> None:
    what += [count_text(done.n_drawings, "drawing")] * bool(done.n_drawings)
    what += [f"labels of {count_text(done.n_studies, 'study')}"] * bool(done.n_studies)
    typer.echo(f"{out}: {', '.join(what) or 'nothing'}, by {', '.join(done.readers) or 'nobody'}")
    terminal.warn([*done.notes, *(f"not kept: {part}" for part in done.lost)])


def export(
    file: Annotated[Path, typer.Argument(help="Receipt file, or output of `score --json`.", show_default=False)],
    to: Annotated[
        Literal["eval-results", "every-eval-ever", "latex", "markdown", "bibtex", "badge", "claim", "tripod-llm"],
        typer.Option(help="Form to write.", show_default=False),
    ],
    model: Annotated[str | None, typer.Option(help="Name of the model; receipts already contain it.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to show; by default the ranking metric.")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY|FILE|-",
            help="Public key published by the leaderboard, or a file (- for standard input) with the key or the answer "
            "of /api/v1/keys.",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset repository on the Hub, organization/name.")] = None,
    revision: Annotated[str | None, typer.Option(help="Commit of that repository (eval-results).")] = None,
    url: Annotated[
        str | None, typer.Option(help="URL that shows the result (eval-results, every-eval-ever, bibtex, badge).")
    ] = None,
    organization: Annotated[str | None, typer.Option(help="Who ran the evaluation (every-eval-ever).")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Dataset folder, for its card (claim, tripod-llm) or cases.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder that made the predictions (claim, tripod-llm).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write in the registry's layout (every-eval-ever)."), OUTPUT
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Prediction file, to also write its cases; needs --folder and --out (every-eval-ever)."),
    ] = None,
    developer: Annotated[str | None, typer.Option(help="Developer of the model (every-eval-ever).")] = None,
    deployment: Annotated[
        Deployment, typer.Option(help="Who ran the model: you or a service (every-eval-ever).")
    ] = "unknown",
    availability: Annotated[
        Availability, typer.Option(help="Availability of the model's weights (every-eval-ever).")
    ] = "unknown",
) -> None:
    """Print a result for publication: model page, registry record, table row or checklist; verify receipts first."""
    from reveal_bench.exchange import checklists, hub_results, paper
    from reveal_bench.exchange.every_eval_ever import Evaluation, every_eval_ever, made_at
    from reveal_bench.exchange.facts import read_result

    if to != "every-eval-ever" and (out is not None or predictions is not None):
        raise typer.BadParameter("--out and --predictions are for --to every-eval-ever")
    if predictions is not None and (folder is None or out is None):
        raise typer.BadParameter("--predictions needs --folder and --out")

    result = read_result(file, model=model, trusted_key=None if key is None else read_key(key, file))
    if result.receipt is not None and key is None:
        raise typer.BadParameter(f"--key is needed to verify a receipt: {KEYS_ADVICE}")
    match to:
        case "eval-results":
            if dataset is None:
                raise typer.BadParameter("--dataset is needed: the Hub repository of the dataset")
            text = hub_results.eval_results(result, dataset=dataset, metric=metric, revision=revision, url=url)
        case "every-eval-ever":
            at = made_at(result, file)
            evaluation = Evaluation(at, organization, url, dataset, developer, deployment, availability)
            record = every_eval_ever(result, evaluation, folder=folder, predictions=predictions)
            if out is not None and "unknown" in (deployment, availability):
                terminal.warn(["the record states `unknown` about the model: give --deployment and --availability"])
            text = json.dumps(record.document, indent=2) if out is None else "\n".join(map(str, record.write(out)))
        case "latex" | "markdown":
            text = (paper.latex_table if to == "latex" else paper.markdown_table)(result, metric)
        case "bibtex" | "badge":
            text = (paper.bibtex if to == "bibtex" else paper.badge)(result, metric, url)
        case "claim" | "tripod-llm":
            write_table = checklists.claim_table if to == "claim" else checklists.tripod_llm_table
            text = write_table(_recorded(result, folder, run))
    typer.echo(text.rstrip("\n"))


def _recorded(result: Result, folder: Path | None, run: Path | None) -> Recorded:
    from reveal_bench.exchange.checklists import Recorded
    from reveal_bench.kinds.folder import read_folder_info

    info = None if folder is None else read_folder_info(folder)
    return Recorded(result, info, *(() if run is None else _run_facts(run, result.file_sha256)))


def _run_facts(run: Path, file_sha256: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a run folder's settings if the result is for one of its prediction files."""
    from reveal_bench.models.run_folder import RUN, SUMMARY, prediction_files, read_run_info

    info = read_run_info(run)
    if info is None:
        raise ArgumentError("run", "must be a run folder", run)
    made = [run / name for name in prediction_files(info.epochs)]
    if file_sha256 not in {hashlib.sha256(path.read_bytes()).hexdigest() for path in made if path.is_file()}:
        raise ArgumentError("run", f"must contain the prediction file with SHA-256 {file_sha256}", run)
    return read_json(run / RUN), read_json(run / SUMMARY)
