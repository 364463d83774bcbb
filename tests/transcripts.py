"""Console transcripts in Markdown: parse them, run their commands, compare what they print.

A line that begins with ``$ `` is a command, run by the shell; one that ends in ``&`` is started and left running. What
follows, up to the next command, is what it prints; ``...`` there stands for anything within a line, and alone on a line
for any lines. Lines that tell progress come every ten seconds, more of them on a slow machine: they are left out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROGRESS = re.compile(r"(?m)^[^:\n]+: [\d,]+(?: of [\d,]+ \(\d+ %\))?[^\n]* after \d+ s\n")


@dataclass(frozen=True)
class Step:
    command: str
    output: str

    @property
    def is_background(self) -> bool:
        return self.command.endswith("&")

    def matches(self, printed: str) -> bool:
        """Whether `printed` is what the transcript shows."""
        lines = plain(self.output).splitlines()
        patterns = ["(?s:.*)" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in lines]
        return re.fullmatch("\n".join(patterns), plain(_PROGRESS.sub("", printed))) is not None


def plain(text: str) -> str:
    """Without trailing spaces, which tables have and Markdown should not."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def steps(markdown: str, *, after: str) -> list[Step]:
    """The steps of the first console block after the text `after`."""
    block = markdown.split(after, 1)[1].split("```console\n", 1)[1].split("```", 1)[0]
    parts = re.split(r"(?m)^\$ ", block)[1:]
    return [Step(*(part.split("\n", 1) if "\n" in part else (part, ""))) for part in parts]


class Shell:
    """Runs commands in `folder` with this interpreter's programs first on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> str:
        """What the command prints, errors too; it must succeed."""
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def start(self, command: str) -> None:
        """Start a command that goes on."""
        log = (self.folder / "background.log").open("ab")
        words = f"exec {command.removesuffix('&').strip()}"
        self.running.append(
            subprocess.Popen(
                words, shell=True, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        )

    def stop(self) -> None:
        for process in self.running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.running:
            process.wait(timeout=30)


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    opened = Shell(folder)
    try:
        yield opened
    finally:
        opened.stop()
