"""Console transcripts in Markdown: run their commands, compare what they print.

A line that begins with ``$ `` is a command, run by the shell; one that ends in ``&`` is started and left running. The
lines up to the next command are its output; ``...`` there means anything within a line, and alone on a line for any
lines. Lines that tell progress come every ten seconds, more of them on a slow machine: they are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.markdown import block_below

_PROGRESS = re.compile(r"(?m)^[^:\n]+: [\d,]+(?: of [\d,]+ \(\d+%\))?[^\n]* after \d+ s\n")


@dataclass(frozen=True)
class Step:
    command: str
    output: str

    @property
    def is_background(self) -> bool:
        return self.command.endswith("&")

    def matches(self, printed: str) -> bool:
        """Return True if `printed` matches the transcript."""
        lines = plain(self.output).splitlines()
        patterns = ["(?s:.*)" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in lines]
        return re.fullmatch("\n".join(patterns), plain(_PROGRESS.sub("", printed))) is not None


def plain(text: str) -> str:
    """Without trailing spaces, which tables have and Markdown should not."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def steps(page: Path, heading: str) -> list[Step]:
    """Return the steps of the first console block below a heading."""
    parts = re.split(r"(?m)^\$ ", block_below(page, heading, "console"))[1:]
    return [Step(*(part.split("\n", 1) if "\n" in part else (part, ""))) for part in parts]


def in_shell(command: str, folder: Path) -> str:
    """Return the output of `command` in `folder`, with errors, and this interpreter's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout
