"""Help texts: commands in groups, options of long commands in groups, and an example of every command."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["EXAMPLES", "Command", "CommandGroups"]

_FEW_OPTIONS = 12
"""A command with at most this many options lists them without groups."""

_TITLES = {
    "Questions": "split findings subset limit allow-missing missing criterion grid metadata",
    "Model": "model endpoint temperature max-tokens reasoning-effort model-seed epochs max-connections "
    "attempt-timeout max-retries price-in price-out price-cached label",
    "Prompt": "prompt answer side coordinates corners shots shots-split views detail control counterfactuals",
    "Intervals and random choices": "resamples seed unit interval",
    "Holdout and versions": "holdout holdout-fraction holdout-split retire-holdout best-of previous previous-holdout "
    "beside accept-overlap version",
    "Cores and machines": "workers processes engine storage executor task-size",
    "Output": "out format json wide rows pixels boundaries box-accuracy compat tables human log id-table log-images",
}
_SECTIONS = {f"--{name}": title for title, names in _TITLES.items() for name in names.split()}

EXAMPLES = {
    "lint": "predictions.jsonl data/chexlocalize --split released",
    "score": "predictions.jsonl data/chexlocalize --split released",
    "compare": "mine.jsonl theirs.jsonl data/chexlocalize",
    "rank": "systems/ data/chexlocalize",
    "metrics": "--json",
    "convert": "data/chexlocalize --from table --file boxes.csv --out mine.jsonl",
    "baseline": "chance data/chexlocalize --split released --out chance.jsonl",
    "report": "GPT-5=runs/gpt-5 --folder data/chexlocalize --out report",
    "view": "data/chexlocalize GPT-5=gpt-5.jsonl",
    "misses": "GPT-5=runs/gpt-5 --folder data/chexlocalize --out misses",
    "confidence": "predictions.jsonl data/reveal-cxr --out confidence",
    "curves": "predictions.jsonl data/reveal-cxr --out curves",
    "tune": "val.jsonl data/own --split val --metric youden",
    "operating-points": "predictions.jsonl data/reveal-cxr --specificity 0.9",
    "saliency": "maps/ data/chexlocalize --split test --out cam.jsonl",
    "score-maps": "maps/ data/chexlocalize --split test",
    "shapes": "data/chexlocalize --split test --model model.jsonl --out shapes",
    "run": "data/chexlocalize --split released --model openai/gpt-5 --out runs/gpt-5",
    "import-inspect": "logs --out runs/gpt-5",
    "export-lmms": "data/chexlocalize --split released --out tasks",
    "import-lmms": "lmms-out --tasks tasks --out runs/from-lmms",
    "import-replies": "replies.csv data/reveal --split released --model Ours --out runs/ours",
    "draft-ratings": "o3=runs/o3 --folder data/tasks --ratings ratings.csv --model NAME --out drafts",
    "submit": "holdout.jsonl --benchmark chexlocalize",
    "status": "ID",
    "withdraw": "ID",
    "receipt": "ID --out receipt.json",
    "verify-receipt": "receipt.json --file holdout.jsonl --key board.key",
    "export": "receipt.json --to latex --key board.key",
    "readers": "readings.csv --merit sensitivity --margin 0.05",
    "readings": "mine.jsonl data/chexpert --split test > readings.csv",
    "agreement": "ratings.csv --metric fleiss_kappa",
    "plan-readers": "readings.csv --difference 0.05",
    "phantom": "downloads/phantom --style reveal-cxr",
    "inspect": "downloads/chexlocalize",
    "build": "downloads/chexlocalize --out data/chexlocalize --holdout private/chexlocalize",
    "validate": "data/chexlocalize --holdout private/chexlocalize",
    "diff": "data/chexlocalize-1.0 data/chexlocalize-1.1",
    "attach": "data/chestx-det downloads/images --out data/chestx-det-images",
    "publish": "data/chexlocalize our-lab/chexlocalize --dry-run",
}
"""Command -> words of a typical call."""


class Command(TyperCommand):
    """A command whose options are in groups if there are many, and whose help ends with an example."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options: those without a group first."""
        params = self.get_params(ctx)
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], **{t: [] for t in _TITLES}}
        is_long = len(params) > _FEW_OPTIONS
        for param in params:
            record = param.get_help_record(ctx)
            if record is not None:
                is_option = param.param_type_name == "option"
                title = "Options" if is_option else "Arguments"
                title = _SECTIONS.get(param.opts[0], title) if is_long and is_option else title
                sections[title].append((_without_list(record[0]), record[1]))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, which must not be wrapped."""
        if self.epilog:
            formatter.write(f"\nExample:\n  {self.epilog}\n")


def _without_list(text: str) -> str:
    return re.sub(r"<list\[(\w+)\]>", lambda match: f"<{match[1].lower()}>", text)


class CommandGroups(TyperGroup):
    """A program whose help lists its commands in groups."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write every group of commands under its title."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = command.rich_help_panel
            summary = command.get_short_help_str(limit=1000)
            sections.setdefault(title if isinstance(title, str) else "Commands", []).append((name, summary))
        for title, commands in sections.items():
            with formatter.section(title):
                formatter.write_dl(commands)
