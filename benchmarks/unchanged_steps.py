"""How `unchanged.py` runs commands and servers, and what it notes of them: hashes of outputs, texts of messages.

The tables at the top list the parts that are left out, depend on chance or a clock, or may be reworded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = Path(sys.executable).parent
WHAT = tomllib.loads(Path(__file__).with_name("unchanged.toml").read_text(encoding="utf-8"))

LEFT_OUT = {
    "*.html": "pages are being redesigned",
    "*.svg": "figures are being redesigned",
    "*report*/*.png": "figures are being redesigned; pictures of datasets and those that models see are compared",
    "*.lock": "empty",
}
"""Files that are not compared, and why."""
PROSE = ("*lmms/README.md", "*lmms/*.py")
"""Files for people to read and code that is handed out: they count as messages."""
NORMALISED = (
    ("*", r"\b127\.0\.0\.1:\d+", "<address>", "a free port"),
    ("board*", r"\b20\d\d-\d\d-\d\d(T[\d:.]+(Z|\+00:00)| \d\d:\d\d)?", "<time>", "the clock"),
    ("board*", r"\b1[6-9]\d{8}\.\d+\b", "<time>", "the clock, in seconds since 1970"),
    ("board*", r"\b([0-9a-f]{32}|[0-9a-f]{24})\b", "<id>", "random ids of people, teams, jobs and answers"),
    ("board*", r'"[A-Za-z0-9+/]{86}=="', '"<signature>"', "signed with a random key"),
    ("board*", r"[A-Za-z0-9+/]{43}=(?!=)", "<key>", "a random key"),
    ("board*", r"(?<![\w-])[0-9a-f]{16}\b", "<key>", "the name of a random key"),
    (
        "board*",
        r'("(hash|previous|head|blind|key_hash|idempotency_key)": ?)"[0-9a-f]{64}"',
        r'\1"<hash>"',
        "times, ids",
    ),
    ("board: *audit*", r'"[0-9a-f]{64}"', '"<hash>"', "heads of the chains, which hold times and ids"),
    ("board: re[fs]*", r'("(id|number)": ?)\d+', r"\1<number>", "a refresh scores in the order of random ids"),
    ("board*", rf"\b{re.escape(socket.gethostname())}-\d+\b", "<worker>", "a worker's machine and process"),
    ("board*", r"(?<=, head )[0-9a-f]{64}", "<hash>", "heads of the chains, which hold times and ids"),
)
"""(steps, text that differs between runs, its replacement, reason)"""
REWORDED = (("*--json*", "message|hint"), ("board*", "why|state_why|detail|rule"))
"""Steps, and the fields of their JSON that hold sentences: these count as messages."""


class Recording:
    """The results so far, and the folder in which everything is made."""

    def __init__(self, root: Path, data: Path) -> None:
        self.root, self.data = root, data
        self.outputs: dict[str, dict[str, str]] = {}
        self.messages: dict[str, str] = {}
        self.known = {str(root): "<work>", str(ROOT): "<checkout>"}
        for name, text in WHAT["files"].items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text.lstrip("\n"), encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("REVEAL_", "HF_"))}
        paths = [str(Path(one).resolve()) for one in kept.pop("PYTHONPATH", "").split(os.pathsep) if one]
        self.environment = kept | {
            "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120", "NO_COLOR": "1", "TZ": "UTC",
            "HF_HOME": str(root / "hf"), "HF_HUB_OFFLINE": "1",
        }  # fmt: skip

    def plain(self, step: str, text: str) -> str:
        """Return the text, with names instead of everything that differs between runs."""
        for text_to_hide, name in list(self.known.items()):
            text = text.replace(text_to_hide, name)
        for steps, pattern, name, _ in NORMALISED:
            text = re.sub(pattern, name, text) if fnmatch(step, steps) else text
        return text

    def note(self, step: str, name: str, content: bytes | str) -> None:
        """Hash a file, or an answer to a request."""
        step, name = self.plain(step, step), self.plain(step, name)
        content = content.encode() if isinstance(content, str) else content
        try:
            text = self.plain(step, content.decode())
        except UnicodeDecodeError:
            pass  # a picture, a Parquet file, an archive: as it is
        else:
            if any(fnmatch(name, pattern) for pattern in PROSE):
                self.messages[f"{step} | {name}"] = text
                return
            for steps, fields in REWORDED:
                if fnmatch(step, steps):
                    sentences = rf'"({fields})": ?"(?:[^"\\]|\\.)*"'
                    self.messages[f"{step} | {name}"] = "\n".join(one[0] for one in re.finditer(sentences, text))
                    text = re.sub(sentences, r'"\1": "<words>"', text)
            content = text.encode()
        self.outputs.setdefault(step, {})[name] = hashlib.sha256(content).hexdigest()


class Steps:
    """Commands that run one after the other in a folder of their own."""

    def __init__(self, recording: Recording, name: str) -> None:
        self.recording, self.name, self.folder = recording, name, recording.root / name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "key").write_text("07" * 32)
        (self.folder / "key").chmod(0o600)

    def follow(self, script: str, **values: str) -> None:
        """Run the commands of a script of ``unchanged.toml``."""
        for line in filter(None, Template(WHAT["steps"][script]).substitute(values).splitlines()):
            command, _, kept = line.partition("=>")
            self.run(command.strip(), *kept.split())

    def run(self, command: str, *kept: str) -> str:
        """Run a command; note exit code, output and kept files, and return its standard output."""
        step, words = f"{self.name}: {command}", shlex.split(command)
        program = words.pop(0) if words[0] == "reveal-leaderboard" else "reveal-bench"
        done = subprocess.run(
            [COMMANDS / program, *words], cwd=self.folder, env=self.recording.environment, stdin=subprocess.DEVNULL,
            capture_output=True, check=False,
        )  # fmt: skip
        step, output, errors = self.recording.plain(step, step), done.stdout.decode(), done.stderr.decode()
        if "Traceback" in errors or (done.returncode and self.name != "errors" and words[0] != "lint"):
            print(f"exit {done.returncode}: {step}\n{output}{errors}", file=sys.stderr)
        self.recording.outputs[step] = {"exit": str(done.returncode)}
        if "--json" in words:
            self.recording.note(step, "stdout", output)
            output = ""
        self.recording.messages[step] = self.recording.plain(step, output + errors)
        for name in kept:
            self.keep(step, name)
        return done.stdout.decode()

    def keep(self, step: str, name: str) -> None:
        """Note a file, or all files of a folder."""
        place = self.folder / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and not any(fnmatch(str(path), pattern) for pattern in LEFT_OUT):
                self.recording.note(step, path.relative_to(self.folder).as_posix(), path.read_bytes())

    def score_each(self, data: str) -> None:
        """Score and lint every file of predictions in ``mine``."""
        for path in sorted((self.folder / "mine").iterdir()):
            if path.name != "thresholds.json":
                missing = " --allow-missing" if path.stem == "half" else ""
                rows = f"--rows rows.parquet --resamples 200{missing}"
                self.run(f"score mine/{path.name} {data} --json {rows}", "rows.parquet")
                self.run(f"lint mine/{path.name} {data} --split released --json")


@contextmanager
def serving(steps: Steps, command: str, health: str) -> Iterator[str]:
    """Run a server of the leaderboard until the block ends; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [str(COMMANDS / "reveal-leaderboard"), *shlex.split(command), "--port", str(port)]
    log = steps.folder / "server.log"
    with log.open("ab") as output:
        server = subprocess.Popen(
            words, cwd=steps.folder, env=steps.recording.environment, stdout=output, stderr=output
        )
    try:
        while not answers(url + health):
            if server.poll() is not None:
                raise RuntimeError(f"{command} ended:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def fetch(url: str) -> bytes:
    """What a server answers; of a refusal the status."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as refusal:
        return str(refusal.code).encode()


def dump(steps: Steps, database: str, *, rows: bool) -> None:
    """Note the schema of an SQLite database, and the rows of its tables."""
    step = f"{steps.name}: {database}"
    with sqlite3.connect(f"file:{steps.folder / database}?mode=ro", uri=True) as connection:
        made = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql > '' ORDER BY type, name"
        ).fetchall()
        steps.recording.note(step, "schema", "\n".join(sql for *_, sql in made))
        for name in (name for kind, name, _ in made if rows and kind == "table"):
            cursor = connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
            columns = [about[0] for about in cursor.description]
            cells = [{c: opened(v, steps.recording.known) for c, v in zip(columns, row, strict=True)} for row in cursor]
            lines = sorted(steps.recording.plain(step, json.dumps(row, sort_keys=True)) for row in cells)
            steps.recording.note(step, name, "\n".join(lines))


def opened(value: object, known: Mapping[str, str]) -> object:
    """Return a cell of a database for comparison: ids replaced by names, JSON parsed, lists of submissions sorted."""
    if not isinstance(value, str):
        return value
    for text_to_hide, name in known.items():
        value = value.replace(text_to_hide, name)
    if value[:1] not in ("{", "["):
        return value
    return json.loads(value, object_hook=lambda one: {k: in_order(v) for k, v in one.items()})


def in_order(value: object) -> object:
    """Return the value, sorted if it is a list of submissions."""
    if isinstance(value, list) and all(str(one).startswith("<submission") for one in value):
        return sorted(value)
    return value
