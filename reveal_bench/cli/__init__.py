"""The command line ``reveal-bench``. Each command parses options, calls the library and prints the result.

Slow imports are inside the commands, so that ``reveal-bench --help`` answers at once. Results are printed to standard
output, progress and warnings to standard error. Progress is only shown on a terminal.
"""

from __future__ import annotations

import gc
import inspect
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import (
    analyses,
    board,
    build,
    compare,
    convert,
    curate,
    data,
    operating,
    output,
    report,
    run,
    saliency,
    score,
)
from reveal_bench.cli.help import EXAMPLES, Command, CommandGroups
from reveal_bench.cli.inputs import check_inputs
from reveal_bench.files import FOLDER_INFO
from reveal_bench.version import __version__

app = typer.Typer(
    name="reveal-bench",
    cls=CommandGroups,
    rich_markup_mode=None,  # plain help, because importing rich would double the start-up time
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reveal-bench {__version__}")
        raise typer.Exit()


@app.callback()
def _options_of_all(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Benchmark datasets and metrics for chest-radiograph AI. `reveal-leaderboard` serves boards."""


def main() -> None:
    """Run the command line; errors that the user can fix print one message without a traceback and exit with code 1."""
    gc.set_threshold(100_000, 20, 100)  # garbage collection took a fifth of the time, and loaded rows stay in use
    # `kill` raises an exception, so that half-written files are removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    warnings.showwarning = lambda message, *_: output.warn([str(message)])
    try:
        asked_for(sys.argv[1:])()
    except BrokenPipeError:  # the program that reads this output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, ImportError) as error:  # ImportError means that an extra is not installed
        report = getattr(error, "report", None)  # set for linter errors, whose message has the first problems
        message = _message(error) if report is None else str(error).partition("\n")[0]
        typer.secho(f"error: {message}", fg="red", err=True)
        if report is not None:
            typer.echo(_with_inputs(report.render(), report.file), err=True)
        sys.exit(1)


def asked_for(words: Sequence[str]) -> typer.Typer:
    """Return `app` with only the command in `words[0]`; for ``--help``, with all commands but without their options.

    Creating all commands with all options would take longer than running most commands.
    """
    narrowed = copy(app)
    if list(words) == ["--help"]:
        narrowed.registered_commands = [_named(command) for command in app.registered_commands]
        return narrowed
    commands = [command for command in app.registered_commands if [_name(command)] == list(words[:1])]
    if not commands:
        return app
    narrowed.registered_commands, narrowed.registered_groups = commands, []
    return narrowed


def _name(command: CommandInfo) -> str:
    assert command.callback is not None
    return command.name or get_command_name(command.callback.__name__)


def _named(command: CommandInfo) -> CommandInfo:
    """Return a command with its name and help text, without options."""
    named = copy(command)
    named.name, named.callback = _name(command), lambda: None
    return named


REMEDIES = {
    "id_key": "give --id-key FILE: a secret key from which ids are made; a missing file is created",
    "mapping": "give --mapping FILE",
    "readers_are": "--fixed-readers makes readers 'fixed', --fixed-cases cases; give at most one of the two",
}


PARAMETERS = {
    "bench": ("folder",), "dataset": ("folder",), "records": ("folder",), "references": ("folder",),
    "predictions": ("file", "files"), "source": ("file",), "rows": ("table", "pilot", "file"),
    "systems": ("directory", "file_b", "file"), "scores": ("file",), "metrics": ("metric",),
    "paths": ("logs", "samples"), "export": ("tasks",), "ids": ("subset",), "n_resamples": ("resamples",),
    "map": ("maps",), "prob": ("maps",),
    "heat_map": ("maps",), "heat_maps": ("maps",), "n_val": ("val_images",), "n_images": ("images",),
    "n_studies": ("images",), "pixels": ("images",), "exchanges": ("replies", "logs", "samples"),
    "form": ("answer",), "max_per_finding": ("most",), "studies": ("folder",), "uid": ("root",),
}  # fmt: skip
"""Parameter of a library function -> parameters of commands that give its value; the first that a command has is named
in errors.
"""


def _message(error: Exception) -> str:
    """Return an error's message with option names instead of argument names, and with a remedy if known."""
    if isinstance(error, FileNotFoundError) and error.filename and not Path(error.filename).parent.exists():
        return f"{Path(error.filename).parent} does not exist"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    if not isinstance(error, ArgumentError):
        return str(error)
    options = _options()
    remedy = REMEDIES.get(error.argument, "")
    return error.spelled(lambda name: options.get(name, f"`{name}`")) + (f"\n{remedy}" if remedy else "")


def _with_inputs(advice: str, file: str) -> str:
    """Return advice to convert `file` with the words of the command being run, ready to copy."""
    words = sys.argv[1:]
    folder = next((word for word in words if os.path.isfile(f"{word}/{FOLDER_INFO}")), "FOLDER")  # words may be long
    paths = (word if os.path.isfile(word) else word.split("=", 1)[-1] for word in words)  # NAME=FILE or FILE
    path = next((path for path in paths if Path(path).name == file), "FILE")
    split = ["--split", words[words.index("--split") + 1]] if "--split" in words else []
    advice = advice.replace("convert FOLDER --from table", shlex.join(["convert", folder, *split, "--from", "table"]))
    return advice.replace("--file FILE", shlex.join(["--file", path]))


def _options() -> dict[str, str]:
    """Return parameter name -> option, or name of the argument in its usage, for the command being run."""
    command: Any = typer.main.get_command(asked_for(sys.argv[1:]))
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    options = {option.name: option.opts[0] if option.opts[0].startswith("--") else option.name.upper()
               for option in command.params}  # fmt: skip
    for name, parameters in PARAMETERS.items():
        ours = next((options[parameter] for parameter in parameters if parameter in options), None)
        if ours is not None:
            options.setdefault(name, ours)
    return options


COMMANDS = {
    "For model developers (score and compare)": (
        score.lint, score.score, compare.compare, compare.rank, score.metrics, convert.convert, score.baseline,
        report.report, report.view, report.misses,
    ),
    "For model developers (probabilities, thresholds, heat maps)": (
        analyses.confidence, analyses.curves, operating.tune, operating.operating_points, saliency.saliency,
        saliency.score_maps, analyses.shapes,
    ),
    "For model developers (ask a multimodal model)": (
        run.run, run.import_inspect, run.export_lmms, run.import_lmms, run.import_replies, run.draft_ratings,
    ),
    "For model developers (send to a leaderboard, publish a score)": (
        board.submit, board.status, board.withdraw, board.receipt, board.verify_receipt, convert.export,
    ),
    "For reader studies": (analyses.readers, analyses.readings, analyses.agreement, analyses.plan_readers),
    "For maintainers (make and publish a dataset)": (
        build.phantom, build.inspect, build.build, data.validate, data.diff, data.attach, data.publish,
    ),
}  # fmt: skip
"""Title -> commands, in the order of ``--help``."""

for title, functions in COMMANDS.items():
    for function in functions:
        name = get_command_name(function.__name__)
        app.command(name, rich_help_panel=title, epilog=f"reveal-bench {name} {EXAMPLES[name]}")(function)
app.add_typer(
    curate.app, name="curate", rich_help_panel=title, short_help="Make and refresh a benchmark of studies and reports."
)
for command in (*app.registered_commands, *curate.app.registered_commands):
    assert command.callback is not None
    command.cls, command.callback = Command, check_inputs(command.callback)
    help_text = inspect.getdoc(command.callback) or ""
    command.short_help = " ".join(
        help_text.partition("\n\n")[0].split()
    )  # lists of commands show `short_help` in full, but truncate other help
