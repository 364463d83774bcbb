"""Commands for heat maps: make a prediction file, or score the maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.engine import EngineName, ExecutorFile, StoragePlace, TaskSize, tasks_of
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import AsJson, Folder, Format, Split, numbers_of

if TYPE_CHECKING:
    from reveal_bench.saliency_maps.tuning import Tuned


def saliency(
    maps: Annotated[Path, typer.Argument(help="Folder of heat maps: <image>_<finding>.npy ...", show_default=False)],
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Prediction file to write (JSONL).", show_default=False), OUTPUT],
    split: Split = None,
    threshold: Annotated[
        str,
        typer.Option(
            help="otsu, a number, a table finding,threshold, tuned (needs --tune-split), or none (points only)."
        ),
    ] = "otsu",
    tune_split: Annotated[
        str | None, typer.Option(help="Split on which thresholds (0.2 to 0.8) and gates (0 to 0.8) are tuned.")
    ] = None,
    tune_metric: Annotated[
        str, typer.Option(help="Metric for tuning thresholds, such as dice or hausdorff_95.")
    ] = "mask_iou",
    tune_grid: Annotated[str | None, typer.Option(help="Thresholds to try when tuning, such as 0.1,0.2,0.3.")] = None,
    tune_on_itself: Annotated[
        bool, typer.Option("--tune-on-itself", help="Allow tuning on the predicted split.")
    ] = False,
    keep_holes: Annotated[
        bool, typer.Option("--keep-holes", help="Keep holes and isolated pixels of masks at Otsu's threshold.")
    ] = False,
    gate: Annotated[
        str | None,
        typer.Option(help="Probability below which masks are empty: a number, a table finding,gate, or tuned."),
    ] = None,
    gate_rule: Annotated[Literal["ours", "published"], typer.Option(help="Method of tuning gates.")] = "ours",
    smooth: Annotated[int, typer.Option(min=0, help="Size of smoothing in pixels; 0 for none.")] = 0,
    smoothing: Annotated[
        Literal["box", "gaussian", "published"],
        typer.Option(
            help="Smoothing for masks at Otsu's threshold: a box of that side, a Gaussian of that SD, or as published."
        ),
    ] = "box",
    ensemble: Annotated[list[Path] | None, typer.Option(help="Another folder of maps to average; repeatable.")] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Finding of the next map in arrays (n, h, w); repeatable.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that read and threshold maps.")] = 1,
    engine: EngineName = "pool",
    storage: StoragePlace = None,
    executor: ExecutorFile = None,
    task_size: TaskSize = 256,
) -> None:
    """Make a prediction file from heat maps: a point, a mask and a probability per question."""
    from reveal_bench import api
    from reveal_bench.kinds.folder import chosen_split

    terminal.check_outside_datasets(out, "--out")
    split = chosen_split(folder, split)
    if ("tuned" in (threshold, gate)) != (tune_split is not None):
        rule = "must be given if and only if `threshold` or `gate` is tuned"
        raise ArgumentError("tune_split", rule, others=("threshold", "gate"))
    if tune_split == split and not tune_on_itself:
        rule = "must not be the predicted split, unless --tune-on-itself is given"
        raise ArgumentError("tune_split", rule, repr(split))
    names = name or []
    cut: Any = _threshold(threshold)
    cut_off: Any = None if gate in (None, "tuned") else _number_or_table("gate", str(gate))
    with (
        tasks_of(engine, storage, executor, "saliency", target=out, workers=processes, task_size=task_size) as tasks,
        terminal.progress("reading") as progress,
    ):
        tuned: dict[str, Tuned] = {}
        if tune_split is not None:
            how: dict[str, Any] = {"split": tune_split, "names": names, "progress": progress}
            if threshold == "tuned":
                own: dict[str, Any] = {} if tune_grid is None else {"grid": numbers_of("tune_grid", tune_grid)}
                tuned["above"] = cut = api.tune_saliency(maps, folder, metric=tune_metric, **own, **how)
            if gate == "tuned":
                fill = not keep_holes
                tuned["from a probability of"] = gates = api.tune_gates(maps, folder, rule=gate_rule, fill=fill, **how)
                cut_off = gates
        done = api.saliency(
            [maps, *(ensemble or [])],
            folder,
            out=out,
            split=split,
            threshold=cut,
            fill=not keep_holes,
            gate=cut_off,
            smooth=smooth,
            smoothing=smoothing,
            on_tuned_split=tune_on_itself,
            names=names,
            n_processes=processes,
            progress=progress,
            tasks=tasks,
        )
    for ending, curves in (("tuning", tuned.get("above")), ("gates", tuned.get("from a probability of"))):
        beside = out.with_name(f"{out.name}.{ending}.csv")
        beside.unlink(missing_ok=True)  # a report would mistake an earlier run's file for this run's
        if curves is not None:
            beside.write_text(curves.to_csv(), encoding="utf-8")
    for word, found in tuned.items():
        for finding, value in found.thresholds.items():
            typer.echo(f"  {finding}: {word} {value:g}, tuned on {found.n_cases[finding]} maps of {tune_split!r}")
    empty = f", {done.n_empty:,} with an empty mask" if threshold != "none" else ""
    typer.echo(f"wrote {done.n_predictions:,} predictions to {out}{empty}; settings: {done.record}")
    turned = done.n_unsigned if smoothing == "published" else 0
    alone = {"threshold": "have only points, so their IoU is 0", "gate": "keep all masks"}
    terminal.warn([f"no {name} for {', '.join(own)}: they {alone[name]}" for name, own in done.lacking.items() if own])
    warnings = [
        (
            turned,
            "maps have no negative value: the published smoothing is meant for signed maps, and the masks of "
            "these maps may also include the places with the lowest values",
        ),
        (done.n_constant, "maps are constant and have no point"),
        (len(done.missing), "questions have no map: `score --allow-missing` counts these questions as misses"),
        (done.n_left, "files or maps are for other images, or for findings that are not asked about"),
    ]
    terminal.warn([f"{n:,} {what}" for n, what in warnings if n])


def score_maps(
    maps: Annotated[Path, typer.Argument(help="Folder of heat maps: <image>_<finding>.npy ...", show_default=False)],
    folder: Folder,
    split: Split = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Tolerance of a point hit, in pixels.")] = 15,
    in_mm: Annotated[
        bool, typer.Option("--mm", help="The tolerance is in mm, converted by each image's pixel spacing.")
    ] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Finding of the next map in arrays (n, h, w); repeatable.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Number of processes that read maps.")] = 1,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Score heat maps: tolerant hits, energy, pixel AP per image and pooled, and phrase grounding's IoU and CNR."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    with terminal.progress("reading") as progress:
        options: dict[str, Any] = {"names": name or [], "n_processes": processes, "progress": progress}
        result = api.score_maps(maps, folder, split=split, tolerance=tolerance, in_mm=in_mm, **options)
    if not terminal.printed_as(result, form):
        terminal.print_shown(result)


def _threshold(text: str) -> Any:
    if text in ("otsu", "tuned"):
        return text  # `threshold` or `gate`: "tuned" is replaced by the tuned value
    return None if text == "none" else _number_or_table("threshold", text)


def _number_or_table(argument: str, text: str) -> float | dict[str, float]:
    """Return the number in `text`, or finding -> number if `text` is the path of a table.

    The table's first column may be called `finding` or `task`.
    """
    try:
        return float(text)
    except ValueError:
        pass
    from reveal_bench.tables import read_table

    path = Path(text)
    if not path.is_file():
        raise ArgumentError(argument, "must be a number or a table with the columns finding and a number", repr(text))
    table = read_table(path)
    numbers = [name for name in table.columns if name.casefold() not in ("finding", "task")]
    numbers_by_finding: dict[str, float] = {}
    for row in table.rows:
        finding = row.get("finding") or row.get("task")
        try:
            if not finding or finding in numbers_by_finding or len(numbers) != 1:
                raise ValueError
            numbers_by_finding[finding] = float(row[numbers[0]])
        except ValueError:
            rule = "must be a table with the columns finding and a number, each finding once"
            raise ArgumentError(argument, rule, f"{path}, line {row.number}") from None
    return numbers_by_finding
